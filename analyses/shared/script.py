"""The command line of the studies in analyses/: parse the arguments, run the study, and write its results.

    from shared.script import Arguments, run

    def study(arguments: Arguments) -> Report: ...

    if __name__ == "__main__":
        run(study, __doc__, default="count01/paper")

gives `python analyses/X.py CHECKPOINT --out DIR [--quick | --smoke]`: the verdict on standard output, each table as
DIR/<key>.csv, each figure as DIR/<key>.svg (not in a smoke run; needs the extra `static`), and everything as
DIR/report.html, which says at its top if it is a quick or smoke run. Bad input gives one sentence and exit code 2.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from interp.errors import InterpError
from interp.report.page import Report
from interp.support.files import write_atomically


@dataclass(frozen=True)
class Arguments:
    """Arguments of a study: checkpoints (names or paths), size of the run, and folder of the results."""

    checkpoints: tuple[str, ...]
    mode: Literal["full", "quick", "smoke"]
    out: Path

    @property
    def checkpoint(self) -> str:
        """The checkpoint of a study of one model."""
        if len(self.checkpoints) != 1:
            raise InterpError(f"this study takes one checkpoint, not {len(self.checkpoints)}")
        return self.checkpoints[0]

    def pick(self, full: Any, quick: Any, smoke: Any) -> Any:
        """Return the value for this run's mode."""
        return {"full": full, "quick": quick, "smoke": smoke}[self.mode]


def run(
    study: Callable[[Arguments], Report], doc: str | None, default: str | None = None, what: str = "names or files"
) -> None:
    """Parse the command line, run the study, print its verdict, and write its tables and its page.

    default: the checkpoint if the user names none; None if the study takes no checkpoints. what: the name of the
    positional arguments in the help.
    """
    lines = (doc or "").strip().splitlines()
    parser = argparse.ArgumentParser(description=lines[0] if lines else None)
    if default is not None:
        parser.add_argument("checkpoints", nargs="*", default=[default], help=f"{what} (default {default})")
    parser.add_argument("--out", type=Path, required=True, help="folder for report.html and one CSV per table")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="smaller run: minutes at most")
    size.add_argument("--smoke", action="store_true", help="only check that it runs: seconds")
    given = parser.parse_args()
    mode: Literal["full", "quick", "smoke"] = "smoke" if given.smoke else "quick" if given.quick else "full"
    arguments = Arguments(tuple(getattr(given, "checkpoints", ())), mode, given.out)
    try:
        report = study(arguments)
        if mode != "full":
            report.subtitle = f"{mode.capitalize()} run, smaller than the study. {report.subtitle}".strip()
        write(report, given.out)
        pictures = 0 if mode == "smoke" else len(as_svg(report, given.out))
    except InterpError as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        sys.exit(2)
    print(report.verdict)
    written = f"{len(report.tables)} tables" + f" and {pictures} figures as SVG" * bool(pictures)
    print(f"wrote {given.out / 'report.html'} and {written}", file=sys.stderr)


def as_svg(report: Report, folder: Path) -> list[Path]:
    """Save each figure as DIR/<key>.svg. If the extra `static` or a browser is missing, print that and save none."""
    try:
        return report.save_figures(folder) if report.figures else []
    except InterpError as error:
        print(f"no figures as SVG: {error}", file=sys.stderr)
        return []


def write(report: Report, folder: Path) -> None:
    """Write DIR/report.html, and each table as DIR/<key>.csv."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InterpError(f"cannot write to {folder}: {error.strerror or error}") from None
    for key, frame in report.tables.items():
        write_atomically(folder / f"{key.replace('/', '-')}.csv", frame.to_csv(index=False, lineterminator="\n"))
    report.save(folder / "report.html")
