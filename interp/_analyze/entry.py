"""analyze and certify: names, paths or models in; reports and certificates out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import torch

from interp import zoo
from interp._analyze import count01, generic, histogram, languages, memorization
from interp._lens import HookedTransformer
from interp.architecture.task_model import TaskModel
from interp.certificates import Certificate, certify_model
from interp.errors import InterpError
from interp.measures.subject import Subject
from interp.report import Report
from interp.sections import Study, availability, fill
from interp.tasks import Task

Source = str | Path | HookedTransformer


@dataclass(frozen=True)
class Family:
    """What one family's report adds to a model's page.

    fill writes the sections, sets the verdict, and returns one row of numbers for the comparison of several models.
    """

    fill: Callable[[Report, Subject], dict[str, Any]]


STUDIES: dict[str, Family] = {
    "count01": Family(count01.fill),
    "histogram": Family(histogram.fill),
    "languages": Family(languages.fill),
    "memorization": Family(memorization.fill),
}
"""By family; a task of another family gets the sections that apply."""


def analyze(
    source: Source | Sequence[Source],
    *,
    task: Task | str | None = None,
    tokens: Mapping[str, int] | None = None,
    outputs: Mapping[str, int] | None = None,
    padding: Literal["mask", "attend"] = "mask",
    sections: Sequence[str] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    out: str | Path | None = None,
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype | None = None,
) -> Report:
    """A report on a model: exact accuracy where it can be had, what its parts do, a verdict in words.

    source: a name ("count01/paper"), a checkpoint's path, a model, or several of them (one comparison table first).
    A HookedTransformer of your own needs its task; `tokens` says its id of each token of the task, `outputs` its output
    of each answer word, `padding` whether it attends to padding ("mask": it does not).
    sections: names of those to make, all that apply by default; list_sections(model) has them. options: keyword
    arguments of sections by name, {"heads": {...}}.
    out: where to save the page, one HTML file. Raises InterpError for what is unknown or does not fit.
    """
    sources: list[Source] = [source] if isinstance(source, (str, Path, HookedTransformer)) else list(source)
    if not sources:
        raise InterpError("nothing to analyze: give at least one name, path or model")
    if out is not None:
        _check_out(Path(out))
    open_one = partial(_subject, task=task, tokens=tokens, outputs=outputs, padding=padding, device=device, dtype=dtype)
    pages = [_analyze_one(*open_one(one), isinstance(one, str | Path), sections, options) for one in sources]
    report = pages[0][0] if len(pages) == 1 else _compare(pages)
    if out is not None:
        report.save(out)
    return report


def certify(
    source: str | Path | TaskModel,
    *,
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype | None = None,
    **options: Any,
) -> Certificate:
    """Is the model right on every input? See Certificate; options name the domain (Count01: box="test", "cube").

    Raises UnsupportedError with the reason where no method holds for the model.
    """
    model = source if isinstance(source, TaskModel) else _load(source, device, dtype)
    return certify_model(model, **options)


def _load(source: str | Path, device: str | torch.device, dtype: str | torch.dtype | None) -> TaskModel:
    return zoo.load(source, device=device, dtype=dtype)


def _check_out(path: Path) -> None:
    """Refuse before the work, not after it."""
    if not path.parent.is_dir():
        raise InterpError(f"cannot save the report to {path}: the folder {path.parent} does not exist")
    if path.is_dir():
        raise InterpError(f"cannot save the report to {path}: it is a folder; name a file such as report.html in it")


def list_sections(
    source: Source,
    *,
    task: Task | str | None = None,
    tokens: Mapping[str, int] | None = None,
    outputs: Mapping[str, int] | None = None,
    device: str | torch.device = "cpu",
) -> pd.DataFrame:
    """Every section of a report on a model: whether it applies, is made on request only (and how long), or why not."""
    subject, _ = _subject(source, task, tokens, outputs, "mask", device, None)
    return availability(Study(subject))


def _subject(
    source: Source,
    task: Task | str | None,
    tokens: Mapping[str, int] | None,
    outputs: Mapping[str, int] | None,
    padding: Literal["mask", "attend"],
    device: str | torch.device,
    dtype: str | torch.dtype | None,
) -> tuple[Subject, str]:
    """The model under study and its name."""
    if isinstance(source, HookedTransformer):
        return Subject.of(source, task, tokens, outputs, padding), generic.name_of(source)
    return Subject.of(_load(source, device, dtype), task, tokens, outputs, padding), str(source)


def _analyze_one(
    subject: Subject,
    name: str,
    named: bool,
    sections: Sequence[str] | None,
    options: Mapping[str, Mapping[str, Any]] | None,
) -> tuple[Report, dict[str, Any]]:
    """One model's page and its row of the comparison."""
    report = Report(name, subtitle=generic.subtitle(subject), metadata=generic.metadata(subject))
    load = f"model = interp.load({name!r})" if named else None
    study = STUDIES.get(subject.task.family)
    if sections is None and study is not None:
        fill(Study(subject, load), report, ["live"])
        return report, {"model": name, **study.fill(report, subject)}
    fill(Study(subject, load), report, sections, options)
    return report, {"model": name, **report.facts}


def _compare(pages: list[tuple[Report, dict[str, Any]]]) -> Report:
    """Several models on one page: the table that compares them, then each one's own report."""
    rows = pd.DataFrame([row for _, row in pages])
    report = Report(f"{len(pages)} models", subtitle="side by side, then one by one")
    report.section("Comparison")
    report.add_table("comparison", rows, "One row for each model; each one's report follows below.")
    for number, (page, _) in enumerate(pages):
        report.attach(page, prefix=f"{number}-{page.title}")
    return report
