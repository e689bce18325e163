"""Do the tests notice? Small mistakes go into a copy of the tree, one at a time, and the tests of the file run.

    make mutants                                all of tests/mutants.toml; what is known is not run again
    python tests/mutants.py --room measures     one room;  --file interp/spec.py: one file;  --minutes 10: for a while

A mutant is killed when a test fails, or when the tests take ten times as long as without it. The score is printed by
room. Each entry of mutants.toml names a file, a text that stands in it once, what to put in its place, and the tests
where those are not tests/ROOM/test_FILE.py; `slow` where those are in the long suite. `survives` explains a mutant that
no test can notice, or that none should.

Verdicts gather in a file of JSON lines outside version control, under what they depend on: the mutant, its file and
its tests. After an interruption the same command goes on where it was; what has changed since runs again.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "mutants.toml"
RESULTS = ROOT / ".mutants.jsonl"
LIBRARIES = ("numpy", "torch", "pandas", "scipy.optimize", "sklearn.svm", "plotly.graph_objects", "pytest", "pydantic",
             "transformer_lens", "jaxtyping", "beartype", "safetensors.torch", "typer", "rich", "jinja2")  # fmt: skip
OPTIONS = ("-x", "-q", "-p", "no:xdist", "--tb=line",
           "-W", "ignore::pytest.PytestAssertRewriteWarning")  # fmt: skip # libraries with plugins are loaded before


@dataclass(frozen=True)
class Mutant:
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    survives: str = ""  # why no test notices, where that is known
    slow: bool = False  # its tests are in the long suite

    @property
    def room(self) -> str:
        parts = Path(self.file).parts
        return parts[1] if len(parts) > 2 and parts[0] == "interp" else parts[0] if parts[0] != "interp" else "top"

    def applied(self, root: Path | None = None) -> str | None:
        """The file's text with the mistake in it; None where the list is out of date."""
        root = root or ROOT
        files = [self.file, *(test.split("::")[0] for test in self.tests)]
        if not all((root / file).is_file() for file in files):
            return None
        text = (root / self.file).read_text("utf-8")
        return text.replace(self.old, self.new) if text.count(self.old) == 1 and self.old != self.new else None

    def key(self, root: Path | None = None) -> str:
        """What the verdict depends on: the mutant, its file and its tests."""
        root = root or ROOT
        digest = hashlib.sha256(repr((self.file, self.old, self.new, self.tests)).encode())
        for path in (self.file, *sorted({test.split("::")[0] for test in self.tests})):
            digest.update((root / path).read_bytes())
        return digest.hexdigest()[:16]

    def __str__(self) -> str:
        lines = zip(self.old.splitlines(), self.new.splitlines())
        return f"{self.file}: {next((new.strip() for old, new in lines if old != new), self.new.strip())}"


def mirrored(file: str) -> tuple[str, ...]:
    """The test file of a module's own name: interp/theory/kl.py -> tests/theory/test_kl.py."""
    path = Path(file)
    return (str(Path("tests", *path.parts[1:-1], f"test_{path.stem}.py")),)


def read(path: Path = LIST) -> list[Mutant]:
    entries = tomllib.loads(path.read_text("utf-8"))["mutant"]
    return [
        Mutant(
            e["file"],
            e["old"],
            e["new"],
            tuple(e.get("tests", mirrored(e["file"]))),
            e.get("survives", ""),
            e.get("slow", False),
        )
        for e in entries
    ]


def copy_of(root: Path, folder: Path) -> Path:
    """Every file that git knows or would take, in another folder: nothing here touches the working tree."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=root, capture_output=True, check=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        if (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)
    return folder


def put(path: Path, text: str, moment: int) -> None:
    """Compiled files are found by size and second of the source: no two texts of a file may share both."""
    path.write_text(text, "utf-8")
    os.utime(path, (moment, moment))


def run_tests(tree: Path, mutant: Mutant, limit: float) -> tuple[str, float]:
    """'passed', 'failed' or 'slow', and the seconds: in a fork, which has the libraries and nothing of interp yet."""
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        os.setsid()  # what tests start ends with them
        null = os.open(os.devnull, os.O_WRONLY)
        if not os.environ.get("MUTANTS_SHOW"):
            os.dup2(null, 1)
            os.dup2(null, 2)
        os.chdir(tree)
        sys.path[:] = [str(tree), *(p for p in sys.path if Path(p or ".").resolve() not in (ROOT, ROOT / "tests"))]
        os.environ["PYTHONPATH"] = str(tree)
        os.environ["INTERP_CHECKED"] = ".".join(Path(mutant.file).with_suffix("").parts)
        import pytest

        code = 1
        try:
            code = pytest.main([*OPTIONS, "-m", "" if mutant.slow else "not slow", *mutant.tests])
        finally:
            os._exit(int(code))
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        seconds = time.monotonic() - start
        if done:
            return ("passed" if status == 0 else "failed"), seconds
        if seconds > limit:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "slow", seconds
        time.sleep(0.05)


def known(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    return {row["key"]: row["verdict"] for row in map(json.loads, path.read_text("utf-8").splitlines())}


def run(mutants: list[Mutant], results: Path, minutes: float) -> None:
    """Every mutant without a verdict gets one, which is written down at once."""
    verdicts = known(results)
    waiting = [mutant for mutant in mutants if mutant.applied() is not None and mutant.key() not in verdicts]
    if not waiting:
        return
    for name in LIBRARIES:
        importlib.import_module(name)
    import torch

    torch.set_num_threads(1)
    sys.dont_write_bytecode = False  # the copy is imported once a mutant, and only one of its files is new
    end = time.monotonic() + 60 * minutes
    whole: dict[tuple[str, ...], float] = {}
    with tempfile.TemporaryDirectory(prefix="interp-mutants-") as folder, results.open("a", encoding="utf-8") as out:
        tree = copy_of(ROOT, Path(folder))
        for number, mutant in enumerate(sorted(waiting, key=lambda m: m.tests), 1):
            if time.monotonic() > end:
                print(f"{len(waiting) - number + 1} mutants are left for another time")
                return
            path, wrong = tree / mutant.file, mutant.applied(tree)
            assert wrong is not None
            if mutant.tests not in whole:
                verdict, whole[mutant.tests] = run_tests(tree, mutant, 600)
                if verdict != "passed":
                    print(f"{' '.join(mutant.tests)}: {verdict} without any mutant")
                    whole[mutant.tests] = math.nan
            if math.isnan(whole[mutant.tests]):
                continue
            text = path.read_text("utf-8")
            put(path, wrong, 1_000_000_000 + 2 * number)
            verdict, seconds = run_tests(tree, mutant, 60 + 10 * whole[mutant.tests])
            put(path, text, 1_000_000_001 + 2 * number)
            verdict = "survived" if verdict == "passed" else "killed"
            row = {"key": mutant.key(tree), "verdict": verdict, "mutant": str(mutant)}
            print(json.dumps(row), file=out, flush=True)
            print(f"{number:>4}/{len(waiting)} {verdict:<11} {seconds:5.1f} s  {mutant}", flush=True)


def verdicts_of(mutants: list[Mutant], results: Path) -> Iterator[tuple[Mutant, str]]:
    verdicts = known(results)
    for mutant in mutants:
        yield mutant, "out of date" if mutant.applied() is None else verdicts.get(mutant.key(), "not run")


def score(mutants: list[Mutant], results: Path) -> str:
    """A line for each room, then every survivor."""
    rooms: dict[str, list[str]] = {}
    lines, survivors = [], []
    for mutant, verdict in verdicts_of(mutants, results):
        rooms.setdefault(mutant.room, []).append(verdict)
        if verdict in ("survived", "out of date"):
            survivors.append(f"{verdict}: {mutant}" + (f"\n    {mutant.survives}" if mutant.survives else ""))
    rooms = dict(sorted(rooms.items())) | {"all": [verdict for found in rooms.values() for verdict in found]}
    for room, found in rooms.items():
        run = [verdict for verdict in found if verdict in ("killed", "survived")]
        share = f"{100 * run.count('killed') / len(run):.1f} %" if run else "-"
        lines.append(f"{room:<14} {run.count('killed'):>4} of {len(run):>4} killed  {share:>8}"
                     + (f"  ({len(found) - len(run)} without a verdict)" if len(run) < len(found) else ""))  # fmt: skip
    return "\n".join([*lines, "", *survivors])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--room", nargs="+", help="only files of these rooms, such as measures")
    parser.add_argument("--file", help="only this file, such as interp/spec.py")
    parser.add_argument("--minutes", type=float, default=600, help="stop after the mutant that is under way by then")
    parser.add_argument("--list", type=Path, default=LIST, help="another list of mutants")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where verdicts gather")
    parser.add_argument("--score", action="store_true", help="run nothing, print what is known")
    options = parser.parse_args()
    mutants = [m for m in read(options.list)
               if m.room in (options.room or [m.room]) and options.file in (None, m.file)]  # fmt: skip
    try:
        if not options.score:
            run(mutants, options.results, options.minutes)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here")
    print(score(mutants, options.results))


if __name__ == "__main__":
    main()
