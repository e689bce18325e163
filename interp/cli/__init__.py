"""The command line: thin typer commands over the public names. `interp --help` loads neither torch nor pandas."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import interp
from interp.cli.options import (
    ConfigOption,
    InputsOption,
    Loader,
    SecondsOption,
    loads_models,
)
from interp.errors import InterpError, check_size
from interp.support.files import no_empty_folder, write_atomically

if TYPE_CHECKING:
    import pandas as pd

app = typer.Typer(
    help="Take small transformers apart: what they compute, how, and whether that can be proved.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class OutputFormat(StrEnum):
    """The output format of tables."""

    table = "table"
    json = "json"
    csv = "csv"


FormatOption = Annotated[OutputFormat, typer.Option("--format", help="Output format of tables.")]


def _print(frame: pd.DataFrame, format: OutputFormat) -> None:
    from interp.support.figures.cells import format_table

    typer.echo(format_table(frame, format.value))


LongOption = Annotated[bool, typer.Option("--long", "-l", help="Show all columns, in full width.")]

COLORS = {"proved": "green", "certified": "green", "refuted": "red", "undecided": "yellow"}
"""Terminal colors of words for certificates."""


def _print_lines(rows: Sequence[Mapping[str, Any]], columns: list[str]) -> None:
    """Print columns; on a terminal, cut the last one so that a row has at most 80 characters."""
    texts = [["" if row.get(c) is None else " ".join(str(row[c]).split()) for row in rows] for c in columns]
    widths = [max(map(len, [column, *cells])) for column, cells in zip(columns, texts)]
    if sys.stdout.isatty():
        widths[-1] = 80 - sum(widths[:-1]) - 2 * (len(columns) - 1)
    for line in [columns, *zip(*texts)]:
        cut = [cell if len(cell) <= width else f"{cell[: width - 1]}…" for cell, width in zip(line, widths)]
        shown = "  ".join(
            typer.style(f"{cell:{width}}", fg=COLORS.get(cell)) if cell in COLORS else f"{cell:{width}}"
            for cell, width in zip(cut, widths)
        )
        typer.echo(shown.rstrip())


def _version(wanted: bool | None) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"interp {version('interp')}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool | None, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = None,
    imports: Annotated[
        list[Path] | None,
        typer.Option("--import", help="Run this Python file first, to register its tasks and sections."),
    ] = None,
) -> None:
    for path in imports or ():
        from interp.tasks.registry import import_file

        import_file(path)


def _same_command(resume: bool) -> str:
    """Return the command as the user gave it, with --resume if it continues what was saved."""
    typed = [argument for argument in sys.argv[1:] if argument != "--resume"]
    return shlex.join(["interp", *typed, *["--resume"] * resume])


@app.command()
def tasks(format: FormatOption = OutputFormat.table, long: LongOption = False) -> None:
    """List the tasks."""
    from interp.models.listing import list_tasks, task_rows

    if long or format is not OutputFormat.table:
        return _print(list_tasks(), format)
    return _print_lines(task_rows(), ["name", "tokens", "outputs", "about"])


@app.command()
def models(format: FormatOption = OutputFormat.table, long: LongOption = False) -> None:
    """List all models, exact and trained. Green: proved right. Red: proved wrong."""
    from interp.models.listing import list_models, model_rows

    if long or format is not OutputFormat.table:
        return _print(list_models(), format)
    return _print_lines(model_rows(), ["name", "state", "about"])


@app.command()
def train(
    spec: Annotated[Path, typer.Argument(help="A model.toml with a training recipe.")],
    seeds: Annotated[int, typer.Option(help="Number of models to train: seeds 0 to N-1.")] = 1,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the checkpoints.")] = Path("."),
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run in the same folder.")] = False,
    engine: Annotated[str, typer.Option(help="Training engine; auto picks the fastest exact one.")] = "auto",
    snapshots: Annotated[str, typer.Option(help="Also save checkpoints at these epochs, e.g. 0,100.")] = "",
    history: Annotated[bool, typer.Option("--history", help="Write every epoch's loss to history.csv.")] = False,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    format: FormatOption = OutputFormat.table,
) -> None:
    """Train several seeds of a spec at once and write seed-N.safetensors files. Exit code 1: a seed diverged."""
    import pandas as pd

    from interp.training.results import FILE, save_run
    from interp.training.train import train_parameters

    described = interp.ModelSpec.from_toml(spec)
    kept = _integers("--snapshots", snapshots, "epochs, such as 0,100,200")
    if seeds < 1:
        raise InterpError(f"--seeds {seeds}: give at least 1")
    if os.path.exists(out) and not out.is_dir():
        raise InterpError(f"--out {out} is a file; name a folder")
    finished = any(os.path.exists(out / f"seed-{seed}.safetensors") for seed in range(seeds))  # which is refused below
    if resume and not finished and not os.path.isfile(out / FILE):
        typer.echo(f"no interrupted run in {out}: starting at the first epoch", err=True)
    with no_empty_folder(out):
        try:
            runner, run = train_parameters(
                described, range(seeds), snapshots=kept, folder=out, resume=resume, engine=engine, device=device
            )
        except KeyboardInterrupt as stop:
            saved = os.path.isfile(out / FILE)
            hint = "; continue with" if saved else ", and nothing was saved; start again with"
            typer.echo(f"{str(stop) or 'interrupted'}{hint}: {_same_command(resume=saved)}", err=True)
            raise typer.Exit(130) from None
        rows, lost = save_run(runner, run, out)
        for seed, reason in lost.items():
            typer.echo(f"seed {seed} {reason}; it was not saved", err=True)
        if history:
            by_model = pd.DataFrame(run.history).sort_values("seed", kind="stable")
            text = by_model.to_csv(index=False, float_format="%.6g", lineterminator="\n")
            write_atomically(out / "history.csv", text)
        (out / FILE).unlink(missing_ok=True)
        if rows:
            _print(pd.DataFrame(rows), format)
        if lost:
            raise typer.Exit(1)


@app.command()
def sweep(
    grid: Annotated[Path, typer.Argument(help="A grid: base spec, axes, seeds (see analyses/sweeps).")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Output folder (default out/<grid>).")] = None,
    workers: Annotated[int, typer.Option(help="Processes on this machine, one thread each.")] = 2,
    dask: Annotated[str | None, typer.Option(help="Run on the Dask cluster at this address instead.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an interrupted sweep in the output folder.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the number of runs and what they write, and exit.")
    ] = False,
    only: Annotated[list[str] | None, typer.Option(help="Run only cells with AXIS=VALUE; repeatable.")] = None,
    seeds: Annotated[str, typer.Option(help="Run only these seeds, e.g. 0,1.")] = "",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    models: Annotated[bool, typer.Option("--models", help="Keep each model, for interp compare FOLDER.")] = False,
    format: FormatOption = OutputFormat.table,
) -> None:
    """Train every run of a grid and save the results as one table. If runs fail, list them and exit with code 1."""
    import pandas as pd

    from interp.training.sweeps.grid import read_grid

    part = read_grid(grid, device).part(only or (), _integers("--seeds", seeds, "seeds, such as 0,1") or None)
    if dry_run:
        from interp.training.sweeps.sweep import estimate

        check_size("workers", workers)
        _print(pd.DataFrame([estimate(part, out, device=device, models=models).readable()]), format)
        return
    folder = out or Path("out") / grid.stem
    try:
        runs = interp.sweep(part, folder, workers, resume, dask=dask, device=device, models=models)
    except KeyboardInterrupt:
        typer.echo(f"interrupted; continue with: {_same_command(resume=True)}", err=True)
        raise typer.Exit(130) from None
    wrong = runs[runs["error"] != ""]
    if format is not OutputFormat.table:
        _print(runs, format)
    elif len(wrong):
        known = runs.columns[: list(runs.columns).index("seed")]
        _print(wrong[[*known, "seed", "error"]], format)
    typer.echo(f"{len(runs) - len(wrong)} of {len(runs)} runs are in {folder / 'runs.jsonl'}", err=True)
    raise typer.Exit(1 if len(wrong) else 0)


def _integers(option: str, listed: str, what: str) -> list[int]:
    try:
        return [int(number) for number in listed.split(",") if number.strip()]
    except ValueError:
        raise InterpError(f"{option} {listed}: give {what}") from None


@app.command()
@loads_models
def analyze(
    checkpoints: Annotated[list[str], typer.Argument(help="Model names or files; several are compared.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Output file.")] = Path("report.html"),
    sections: Annotated[str, typer.Option(help="Only these sections, e.g. heads,circuits (see interp sections).")] = "",
    no_explain: Annotated[bool, typer.Option("--no-explain", help="Do not search for an explanation.")] = False,
    inputs: InputsOption = None,
    seconds: SecondsOption = None,
    load: Loader = str,
    format: FormatOption = OutputFormat.table,
) -> None:
    """Write a report on one or more models to an HTML file and print the verdict."""
    import pandas as pd
    from rich.console import Console

    console = Console(stderr=True)
    wanted = [name.strip() for name in sections.split(",") if name.strip()] or None
    sources = [load(name) for name in checkpoints]
    with console.status(f"analyzing {', '.join(checkpoints)}"):
        report = interp.analyze(
            sources if len(sources) > 1 else sources[0],
            sections=wanted,
            inputs=inputs,
            seconds=seconds,
            explain=not no_explain,
            out=out,
        )
    if "comparison" in report.tables:
        _print(report.tables["comparison"], format)
    elif format is OutputFormat.table:
        typer.echo(report.verdict)
    else:
        _print(pd.DataFrame([{"model": report.title, "verdict": report.verdict, **report.metadata}]), format)


@app.command()
@loads_models
def sections(
    checkpoints: Annotated[
        list[str] | None, typer.Argument(help="Model names or files; one table for all. Default: names and titles.")
    ] = None,
    inputs: InputsOption = None,
    seconds: SecondsOption = None,
    load: Loader = str,
    format: FormatOption = OutputFormat.table,
) -> None:
    """List the report sections of a model: whether they apply, run on request only, or why they do not apply."""
    if not checkpoints:
        from interp.models.listing import stored

        if (rows := stored("sections")) is None:
            from interp.report.sections import all_sections

            rows = [{"section": entry.name, "title": entry.title} for entry in all_sections()]
        return _print_lines(rows, ["section", "title"])
    from interp.report.analyze import list_sections

    sources = [load(name) for name in checkpoints]
    return _print(list_sections(sources if len(sources) > 1 else sources[0], inputs=inputs, seconds=seconds), format)


@app.command()
@loads_models
def explain(
    checkpoint: Annotated[str, typer.Argument(help="Model name or file.")],
    seconds: Annotated[
        float | None, typer.Option(help="Stop after the steps of this many nominal seconds (default: never).")
    ] = None,
    share: Annotated[float, typer.Option(help="Share of the model's answers that the program must give.")] = 0.99,
    out: Annotated[Path | None, typer.Option(help="Write it to this JSON file; print only a summary.")] = None,
    load: Loader = str,
) -> None:
    """Read the program of a model's parts, as Python.

    If the parts add up to no program, search for a rule that gives the answers, and say which of the two it is. Exit
    code 3: there is neither, for example if the model is explained in part.
    """
    if out is not None and not out.parent.is_dir():
        raise InterpError(f"cannot write {out}: the folder {out.parent} does not exist")
    explanation = interp.explain(load(checkpoint), seconds=seconds, share=share)
    typer.echo(str(explanation) if out is None else explanation.sentence)
    if out is not None:
        write_atomically(out, explanation.to_json())
        typer.echo(f"wrote {out}{', with the program' if explanation.program is not None else ''}", err=True)
    if not explanation.found:
        raise typer.Exit(3)


@app.command()
def compare(
    models: Annotated[
        list[str], typer.Argument(help="A folder of checkpoints, a model with seeds, or several models.")
    ],
    grade: Annotated[
        str, typer.Option(help="What models of one algorithm have in common: steps, shape or answers.")
    ] = "shape",
    out: Annotated[Path | None, typer.Option(help="Folder of the table; a run that was killed goes on there.")] = None,
    page: Annotated[Path | None, typer.Option(help="Write a page, one HTML file.")] = None,
    table: Annotated[str, typer.Option(help="The table to print: algorithms, models or transplants.")] = "algorithms",
    workers: Annotated[int, typer.Option(help="Processes on this machine.")] = 1,
    dask: Annotated[str | None, typer.Option(help="Address of a Dask scheduler to use instead.")] = None,
    certify: Annotated[
        bool, typer.Option("--certify", help="Exact accuracies by certificates, where they tell.")
    ] = False,
    format: FormatOption = OutputFormat.table,
) -> None:
    """Find out which algorithm each of many models learned, and which of them are the same."""
    from interp.errors import check_one_of
    from interp.programs.many.compare import GRADES
    from interp.programs.many.table import FILE
    from interp.report.compared import comparison_page
    from interp.report.page import check_out

    check_one_of("grade", grade, GRADES)
    check_one_of("table", table, ("algorithms", "models", "transplants"))
    if page is not None:
        check_out(page)  # before the work starts
    sources = models[0] if len(models) == 1 else models
    try:
        comparison = interp.compare(sources, out, workers, dask=dask, certify=certify).by(grade)  # type: ignore[arg-type]
        if page is not None:
            typer.echo(f"wrote {comparison_page(comparison).save(page)}", err=True)
    except KeyboardInterrupt:
        if out is None or not (out / FILE).is_file() or not (out / FILE).stat().st_size:
            raise
        typer.echo(f"interp: compare was interrupted; the same command goes on from {out / FILE}", err=True)
        raise typer.Exit(130) from None
    frame = comparison.to_frame(table)  # type: ignore[arg-type]
    _print(frame.drop(columns="how") if table == "algorithms" else frame, format)


@app.command(context_settings={"ignore_unknown_options": True})
@loads_models
def certify(
    checkpoint: Annotated[str, typer.Argument(help="Model name or file.")],
    more: Annotated[
        list[str] | None, typer.Argument(metavar="--OPTION VALUE", help="Options of the certification method.")
    ] = None,
    options: Annotated[
        bool, typer.Option("--options", help="List the options of the method that applies to this model, and exit.")
    ] = False,
    evidence: Annotated[
        str | None, typer.Option(help="Write evidence to this .json or .json.gz file, for interp/certificates/check.")
    ] = None,
    load: Loader = str,
    format: FormatOption = OutputFormat.table,
) -> None:
    """Prove or refute that a model is right on every input. Exit code 0: certified, 1: refuted, 3: undecided.

    Options depend on the method, e.g. which inputs to check; `interp certify MODEL --options` lists them.
    """
    if checkpoint.startswith("-"):
        raise InterpError(f"name the model before its options: interp certify MODEL {checkpoint} ...")
    model = interp.load(source) if isinstance(source := load(checkpoint), str) else source
    # A wrong name fails before the slow imports.
    from interp.certificates import plan
    from interp.certificates.certify import options_table, parse_options
    from interp.certificates.evidence import check_path
    from interp.models.subject import Subject
    from interp.support.resources import threads_for

    subject = Subject.of(model)
    planned = plan(subject)
    if options:
        typer.echo(f"{checkpoint} is certified by: {planned.method.name}", err=True)
        _print(options_table(planned.method, subject.task), format)
        return
    if evidence is not None:
        check_path(evidence)  # fail before the computation if the file cannot be written
    with threads_for(subject.model):
        certificate = planned.certificate(**parse_options(planned.method, more or ()))
    if format is OutputFormat.table:
        colored = typer.style(certificate.status, fg=COLORS.get(certificate.status), bold=True)
        typer.echo(str(certificate).replace(certificate.status, colored, 1))
    else:
        _print(certificate.to_frame(), format)
    if evidence is not None:  # after the result, because some certificates have no evidence
        typer.echo(f"wrote {certificate.evidence(evidence)}", err=True)
    raise typer.Exit({"certified": 0, "refuted": 1}.get(certificate.status, 3))


@app.command()
def inspect(
    path: Annotated[str, typer.Argument(help="A folder, checkpoint or state dict written by another library.")],
    config: ConfigOption = None,
    format: FormatOption = OutputFormat.table,
) -> None:
    """Print a file's format, reader, config and missing settings. Exit code 3: more than the task is missing."""
    from interp.models.readers.models import inspect as look
    from interp.models.zoo import settings_of

    inspected = look(path, settings_of(config))
    _print((inspected.brief() if format is OutputFormat.table else inspected).to_frame(), format)
    raise typer.Exit(0 if inspected.ready else 3)


@app.command()
def gallery(
    out: Annotated[Path, typer.Option("--out", "-o", help="Output folder.")] = Path("site"),
    models: Annotated[str, typer.Option(help="Only these models, e.g. count01/paper,languages/first.")] = "",
    sections: Annotated[str, typer.Option(help="Only these sections of each report, e.g. live,accuracy.")] = "",
) -> None:
    """Write a folder of static pages: a report on every model, and an index."""
    from interp.report.gallery import gallery

    chosen, wanted = ([word.strip() for word in text.split(",") if word.strip()] or None for text in (models, sections))
    typer.echo(f"wrote {gallery(out, chosen, wanted)}", err=True)


def _imports_first(arguments: list[str]) -> list[str]:
    """Move every --import FILE before the command."""
    first: list[str] = []
    rest: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        if argument == "--import":
            first += [argument, *([value] if (value := next(remaining, None)) is not None else [])]
        elif argument.startswith("--import="):
            first.append(argument)
        else:
            rest.append(argument)
    return first + rest


def main() -> None:
    """Run the command line. For bad input, print one sentence to standard error and exit with code 2."""
    import warnings

    warnings.formatwarning = lambda message, *rest, **more: f"interp: {message}\n"  # only the message
    try:
        app(_imports_first(sys.argv[1:]))
    except InterpError as error:
        typer.echo(f"interp: {error}", err=True)
        sys.exit(2)
    except (SystemExit, KeyboardInterrupt) as left:
        cause = left if isinstance(left, KeyboardInterrupt) else getattr(left.__context__, "__cause__", None)
        if isinstance(cause, KeyboardInterrupt):  # which typer turns into an exit without a word
            typer.echo(f"interp: {' '.join(sys.argv[1:2])} was interrupted, so nothing was written", err=True)
            sys.exit(130)
        raise


if __name__ == "__main__":
    main()
