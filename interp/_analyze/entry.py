"""analyze and certify: names, paths or models in; reports and certificates out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from interp.tasks import Task

Source = str | Path | HookedTransformer


@dataclass(frozen=True)
class Study:
    """What one family's report adds to a model's page.

    fill writes the sections, sets the verdict, and returns one row of numbers for the comparison of several models.
    """

    fill: Callable[[Report, Subject], dict[str, Any]]


STUDIES: dict[str, Study] = {
    "count01": Study(count01.fill),
    "histogram": Study(histogram.fill),
    "languages": Study(languages.fill),
    "memorization": Study(memorization.fill),
}
"""By family; a task of another family gets the generic report."""


def analyze(
    source: Source | Sequence[Source],
    *,
    task: Task | str | None = None,
    tokens: Mapping[str, int] | None = None,
    out: str | Path | None = None,
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype | None = None,
) -> Report:
    """A report on a model: exact accuracy where it can be had, what its parts do, a verdict in words.

    source: a name ("count01/paper"), a checkpoint's path, a model, or several of them (one comparison table first).
    A HookedTransformer of your own needs its task, and `tokens` says its id of each token of the task.
    out: where to save the page, one HTML file. Raises InterpError for what is unknown or does not fit.
    """
    sources: list[Source] = [source] if isinstance(source, (str, Path, HookedTransformer)) else list(source)
    if not sources:
        raise InterpError("nothing to analyze: give at least one name, path or model")
    if out is not None:
        _check_out(Path(out))
    pages = [_analyze_one(one, task, tokens, device, dtype) for one in sources]
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


def _analyze_one(
    source: Source,
    task: Task | str | None,
    tokens: Mapping[str, int] | None,
    device: str | torch.device,
    dtype: str | torch.dtype | None,
) -> tuple[Report, dict[str, Any]]:
    """One model's page and its row of the comparison."""
    if isinstance(source, HookedTransformer):
        subject, name = Subject.of(source, task, tokens), generic.name_of(source)
    else:
        model = _load(source, device, dtype)
        subject, name = Subject.of(model, task, tokens), str(source)
    report = Report(name, subtitle=generic.subtitle(subject), metadata=generic.metadata(subject))
    study = STUDIES.get(subject.task.family, Study(generic.fill))
    return report, {"model": name, **study.fill(report, subject)}


def _compare(pages: list[tuple[Report, dict[str, Any]]]) -> Report:
    """Several models on one page: the table that compares them, then each one's own report."""
    rows = pd.DataFrame([row for _, row in pages])
    report = Report(f"{len(pages)} models", subtitle="side by side, then one by one")
    report.section("Comparison")
    report.add_table("comparison", rows, "One row for each model; each one's report follows below.")
    for number, (page, _) in enumerate(pages):
        report.attach(page, prefix=f"{number}-{page.title}")
    return report
