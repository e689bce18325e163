"""analyze, certify and explain: open models and make reports, certificates and explanations.

The content of a report comes from interp/report/sections.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from interp.certificates import Certificate, plan
from interp.errors import InterpError, UnsupportedError, of_type
from interp.models import zoo
from interp.models.architecture.task_model import TaskModel
from interp.models.lens import HookedTransformer, is_bridge
from interp.models.spec import Construction, ModelSpec, Training
from interp.models.subject import Subject, check_finite, check_runs
from interp.programs.explanations import Explanation, explain_subject
from interp.report import Report
from interp.report.page import check_out
from interp.report.sections import Study, availability, fill
from interp.support.progress import tell
from interp.support.resources import threads_for
from interp.support.words import counted
from interp.tasks.populations import InputsAsked

Source = str | Path | HookedTransformer | Subject
LOADING = ("task", "config", "tokens", "outputs", "padding", "device", "dtype", "spec")
"""What interp.load takes besides the model."""


def analyze(
    source: Source | Sequence[Source],
    *,
    sections: Sequence[str] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    inputs: int | None = None,
    seconds: float | int | None = None,
    explain: bool = True,
    out: str | Path | None = None,
) -> Report:
    """Make a report on a model: its accuracy (exact if possible), the roles of its parts, and a verdict in words.

    source: a name ("count01/paper"), a checkpoint's path, a model, or a list of these (which adds a comparison table).
    interp.load takes a model of your own or of another library, with its task, and gives what is wanted here.
    sections: names of the sections to make (default: all that apply; see `report.sections`). options: keyword
    arguments of sections by name, {"heads": {...}}.
    inputs: the number of inputs to measure on in every section (all, if there are fewer). seconds: the work per
    section that determines the number of inputs unless `inputs` is given: operations are counted, 10^10 for a second
    (the default is 1), so that a report is the same on every machine. For one section only: options={"heads":
    {"inputs": 5000}}.
    explain: whether to search for an explanation where none came with interp, if the work is not too much for a report
    (see report.sections.explanation).
    out: where to save the page, one HTML file. Raises InterpError for unknown names and for arguments that do not fit.

    Example:

        >>> report = interp.analyze("count01/minimal", sections=["accuracy"])
        >>> print(report.verdict.splitlines()[-1])
        Proved right on all of the 502,500 inputs of the domain (n0 in 151..200, n1 in 151..200, n2 in 0..200).
    """
    sources = _sources(source)
    if out is not None:
        check_out(out)  # before the work starts
    asked = InputsAsked.of(inputs, seconds)
    loaded = [opened(entry) for entry in sources]
    titles = _told_apart([name for _, name in loaded])
    for (subject, _), title in zip(loaded, titles):
        with _said_of(title if len(sources) > 1 else None):
            check_finite(subject)
            check_runs(subject)
    pages = []
    for entry, (subject, name), title in zip(sources, loaded, titles):
        load = f"model = interp.load({name!r})" if isinstance(entry, str | Path) else None
        with _said_of(title if len(sources) > 1 else None):
            pages.append(_page(subject, title, load, sections, options, asked, explain))
    report = pages[0] if len(pages) == 1 else _compare(pages, [subject.task.name for subject, _ in loaded])
    if out is not None:
        tell(f"wrote {report.save(out)}")
    return report


def certify(source: Source, **options: Any) -> Certificate:
    """Prove or refute that a model is right on every input of a domain (see Certificate).

    source: a name, a path or a model, as in analyze. options: of the certification method, such as the domain (Count01:
    box="test" or "cube"). A model of your own that no proof takes is run on every input that its task lists. Raises
    UnsupportedError with the reason if no method applies to the model.

    Example:

        >>> found = interp.certify("languages/one", longest=10)  # its one layer finds a single 1
        >>> found.status, found.n_inputs, found.domain
        ('certified', 2046, 'every string of 1 to 10 symbols')
    """
    _check_source(source)
    if misplaced := [name for name in LOADING if name in options]:
        raise InterpError(f"{misplaced[0]} is for interp.load: interp.certify(interp.load(model, {misplaced[0]}=...))")
    subject, _ = opened(source)
    check_finite(subject)
    with threads_for(subject.model):
        return plan(subject).certificate(**options)


def _sources(source: Source | Sequence[Source]) -> list[Source]:
    """Convert one or several sources to a list. Raises InterpError if it is empty or contains anything but models."""
    sources: list[Any] = list(source) if isinstance(source, list | tuple) else [source]
    if not sources:
        raise InterpError("no model is given: pass at least one name, path or model")
    for entry in sources:
        _check_source(entry)
    return sources


def _check_source(source: object) -> None:
    """Raise InterpError for anything except a model, or the name or path of one."""
    if not isinstance(source, (str, Path, HookedTransformer, Subject)):
        hint = "; build it first: interp.build(spec)" if isinstance(source, ModelSpec) else ""
        if is_bridge(source) or isinstance(source, torch.nn.Module):
            hint = "; convert it first: interp.load(it, task=...)"
        raise InterpError(
            f"expected a model, got {of_type(source)}: pass a name such as 'count01/paper', a path, or a model{hint}"
        )


def list_sections(
    source: Source | Sequence[Source],
    *,
    inputs: int | None = None,
    seconds: float | int | None = None,
) -> pd.DataFrame:
    """List all report sections with their status for a model: applies, on request, or does not apply.

    Columns: section, title, status, note (time, command or reason). For several models: section, title, a column each.

    Example:

        >>> from interp.report.analyze import list_sections
        >>> found = list_sections("count01/minimal").set_index("section")
        >>> found.loc["accuracy", "status"]
        'applies'
    """
    asked = InputsAsked.of(inputs, seconds)
    loaded = [opened(entry) for entry in _sources(source)]
    titles, frames = _told_apart([name for _, name in loaded]), {}
    for title, (subject, _) in zip(titles, loaded):
        with _said_of(title if len(titles) > 1 else None):
            check_finite(subject)
            frames[title] = availability(Study(subject, asked=asked))
    first = next(iter(frames.values()))
    if not isinstance(source, list | tuple):
        return first
    return first[["section", "title"]].assign(**{name: _in_words(frame) for name, frame in frames.items()})


@contextmanager
def _said_of(title: str | None) -> Iterator[None]:
    """With several models, add the model's title to errors."""
    try:
        yield
    except InterpError as error:
        if title is None:
            raise
        kind = UnsupportedError if isinstance(error, UnsupportedError) else InterpError
        raise kind(f"{title}: {error}") from None


def _told_apart(names: list[str]) -> list[str]:
    """Make names unique by appending the model's number to repeated ones."""
    return [f"{name} ({i + 1})" if name in names[:i] else name for i, name in enumerate(names)]


def _in_words(table: pd.DataFrame) -> list[str]:
    """One cell per section: "applies", "on request" with its time or command, or the reason why it does not apply."""
    says = {"applies": "applies", "on request": "on request, {}", "does not apply": "no: {}"}
    return [says[status].format(note) for status, note in zip(table["status"], table["note"])]


def opened(source: Source) -> tuple[Subject, str]:
    """Return the model under study and its name. A name or path is loaded."""
    subject = Subject.of(zoo.load(source) if isinstance(source, str | Path) else source)
    return subject, str(source) if isinstance(source, str | Path) else subject.name


def _page(
    subject: Subject,
    title: str,
    load: str | None,
    sections: Sequence[str] | None,
    options: Mapping[str, Mapping[str, Any]] | None,
    asked: InputsAsked,
    explains: bool,
) -> Report:
    """Make one model's report. load: Python code that loads the model, if known."""
    cfg = subject.model.cfg
    heads = f"{counted(cfg.n_layers, 'layer')}, {counted(cfg.n_heads, 'head')} of dimension {cfg.d_head}"
    subtitle = f"task {subject.task.name} · {heads} · residual stream of {cfg.d_model}"
    report = Report(title, subtitle, _metadata(subject))
    with threads_for(subject.model):
        study = Study(subject, load, asked, explains)
        fill(study, report, sections, options)
    report.list_sections = partial(availability, study)
    report.replace_bare_figures()
    return report


def _compare(pages: list[Report], tasks: list[str]) -> Report:
    """Combine reports on one page: a table of their facts (and tasks, if these differ), then each report."""
    rows = pd.DataFrame([{"model": page.title, "task": task, **page.facts} for page, task in zip(pages, tasks)])
    rows = rows if len(set(tasks)) > 1 else rows.drop(columns="task")
    if "most_needed_part" in rows:  # without none of the parts, there is no accuracy to compare
        rows["accuracy_without_it"] = rows["accuracy_without_it"].where(rows["most_needed_part"] != "none")
    report = Report(f"{len(pages)} models", subtitle="side by side, then one by one")
    report.heading("Comparison")
    report.add_table(
        "comparison",
        rows,
        "One row per model. Each model's report below states the inputs on which its numbers were measured.",
    )
    for number, page in enumerate(pages):
        report.attach(page, prefix=f"{number}-{page.title}")
    return report


# ---------------------------------------------------------------- name and metadata


def _metadata(subject: Subject) -> dict[str, str]:
    """Describe the model's origin."""
    entries = {"interp": version("interp"), "torch": torch.__version__}
    run = str(next(subject.model.parameters()).dtype).removeprefix("torch.")
    if run != (subject.model.spec.dtype if isinstance(subject.model, TaskModel) else "float32"):
        entries["run in"] = run
    outputs, named = subject.model.cfg.d_vocab_out, subject.task.n_classes
    if subject.decision.kind == "argmax" and outputs > named:
        entries["answer"] = f"the largest of its {outputs} outputs, of which {named} are answers of the task"
    if subject.notes:
        entries["loaded with"] = " ".join(subject.notes)
    if isinstance(subject.model, TaskModel):
        spec = subject.model.spec
        entries = {"spec": spec.id, "seed": str(subject.model.seed), **entries}
        if isinstance(spec.origin, Construction):
            entries["origin"] = f"construction {spec.origin.name} {spec.origin.variant}".strip()
        elif isinstance(spec.origin, Training):
            recipe = spec.origin
            entries["origin"] = f"trained {recipe.epochs} epochs, {recipe.optimizer} {recipe.learning_rate:g}"
    return entries


def explain(
    source: Source,
    *,
    seconds: float | None = None,
    share: float = 0.99,
) -> Explanation:
    """Read the algorithm out of a model: a program of its parts that runs by itself.

    Each part's description takes its place in the running model, and must keep the model's answers. Where the parts do
    not add up to a program, a rule for the answers is searched for, and the level says so; see Explanation.

    source: a name, a path or a model, as in analyze. seconds: stop after as many steps as this time has at
    a nominal speed, the same on every machine (default: never). share: the share of the model's answers, and of each
    frequent answer, that the program must give.

    Example:

        >>> found = interp.explain(interp.build("algorithmic/max-of-k-exact", K=3, v=8))
        >>> found.level, found.answer(["3", "1", "4", "="])
        ('explained', '4')
    """
    _check_source(source)
    if not 0.5 <= share <= 1:
        raise InterpError(f"share = {share!r} must be from 0.5 to 1")
    subject, name = opened(source)
    check_finite(subject)
    with threads_for(subject.model):
        return explain_subject(subject, name, InputsAsked.of(None, seconds).seconds or math.inf, share)
