"""analyze and certify: names, paths or models in; reports and certificates out.

A report is made of the sections that apply to a model (interp/sections); here is only what opens it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import torch

from interp import zoo
from interp._lens import HookedTransformer, is_bridge
from interp.architecture.task_model import TaskModel
from interp.certificates import Certificate, certify_model, certify_subject
from interp.errors import InterpError, UnsupportedError, of_type
from interp.measures.subject import Subject, check_finite
from interp.report import Report
from interp.sections import Study, availability, fill
from interp.spec import Construction, ModelSpec, Training
from interp.tasks import Task
from interp.threads import threads_for

Source = str | Path | HookedTransformer | Subject


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

    Example:

        >>> report = interp.analyze("count01/minimal", sections=["accuracy"])
        >>> print(report.verdict.splitlines()[-1])
        Proved right on all of the 502,500 inputs of the domain (n0 in 151..200, n1 in 151..200, n2 in 0..200).
    """
    sources = _sources(source)
    if out is not None:
        _check_out(Path(out))
    open_one = partial(_subject, task=task, tokens=tokens, outputs=outputs, padding=padding, device=device, dtype=dtype)
    opened = [open_one(one) for one in sources]
    titles = _told_apart([name for _, name in opened])
    for (subject, _), title in zip(opened, titles):
        with _said_of(title if len(sources) > 1 else None):
            check_finite(subject)
    pages = []
    for one, (subject, name), title in zip(sources, opened, titles):
        load = f"model = interp.load({name!r})" if isinstance(one, str | Path) else None
        with _said_of(title if len(sources) > 1 else None):
            pages.append(_page(subject, title, load, sections, options))
    report = pages[0] if len(pages) == 1 else _compare(pages, [subject.task.name for subject, _ in opened])
    if out is not None:
        report.save(out)
    return report


def certify(
    source: Source,
    *,
    task: Task | str | None = None,
    tokens: Mapping[str, int] | None = None,
    outputs: Mapping[str, int] | None = None,
    padding: Literal["mask", "attend"] = "mask",
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype | None = None,
    **options: Any,
) -> Certificate:
    """Is the model right on every input? See Certificate; options name the domain (Count01: box="test", "cube").

    A HookedTransformer of your own needs its task (and `tokens`, `outputs`, `padding` as in analyze): every input that
    the task lists is run. Raises UnsupportedError with the reason where no method holds for the model.

    Example:

        >>> found = interp.certify("languages/one", longest=10)  # its one layer finds a single 1
        >>> found.status, found.n_inputs, found.domain
        ('certified', 2046, 'every string of 1 to 10 symbols')
    """
    _check_source(source)
    subject, _ = _subject(source, task, tokens, outputs, padding, device, dtype)
    with threads_for(subject.model):
        if isinstance(subject.model, TaskModel) and subject.token_ids is None:
            return certify_model(subject.model, **options)
        return certify_subject(subject, **options)


def _sources(source: Source | Sequence[Source]) -> list[Source]:
    """One or several sources as a list. Raises InterpError for none, and for what is no model."""
    sources: list[Any] = list(source) if isinstance(source, list | tuple) else [source]
    if not sources:
        raise InterpError("no model is given: give at least one name, path or model")
    for one in sources:
        _check_source(one)
    return sources


def _check_source(source: object) -> None:
    """Raise InterpError for what is neither a model nor a name or path of one."""
    if not isinstance(source, (str, Path, HookedTransformer, Subject)):
        hint = "; build it first: interp.build(spec)" if isinstance(source, ModelSpec) else ""
        hint = "; convert it first: interp.load(bridge, task=...)" if is_bridge(source) else hint
        raise InterpError(
            f"{of_type(source)} is no model: give a name such as 'count01/paper', a checkpoint's path, or a model{hint}"
        )


def _load(source: str | Path, device: str | torch.device, dtype: str | torch.dtype | None) -> TaskModel:
    return zoo.load(source, device=device, dtype=dtype)


def _check_out(path: Path) -> None:
    """Refuse before the work, not after it."""
    if not path.parent.is_dir():
        raise InterpError(f"cannot save the report to {path}: the folder {path.parent} does not exist")
    if path.is_dir():
        raise InterpError(f"cannot save the report to {path}: it is a folder; name a file such as report.html in it")


def list_sections(
    source: Source | Sequence[Source],
    *,
    task: Task | str | None = None,
    tokens: Mapping[str, int] | None = None,
    outputs: Mapping[str, int] | None = None,
    padding: Literal["mask", "attend"] = "mask",
    device: str | torch.device = "cpu",
) -> pd.DataFrame:
    """Every section of a report on a model: whether it applies, is made on request only (and how long), or why not.

    Columns section, title, status, note. Of several models: section, title, and for each model what is so there.

    Example:

        >>> found = interp.list_sections("count01/minimal").set_index("section")
        >>> found.loc["accuracy", "status"]
        'applies'
    """
    opened = [_subject(one, task, tokens, outputs, padding, device, None) for one in _sources(source)]
    titles, frames = _told_apart([name for _, name in opened]), {}
    for title, (subject, _) in zip(titles, opened):
        with _said_of(title if len(titles) > 1 else None):
            check_finite(subject)
            frames[title] = availability(Study(subject))
    first = next(iter(frames.values()))
    if not isinstance(source, list | tuple):
        return first
    return first[["section", "title"]].assign(**{name: _in_words(frame) for name, frame in frames.items()})


@contextmanager
def _said_of(title: str | None) -> Iterator[None]:
    """Of several models, an error names the one that it is about."""
    try:
        yield
    except InterpError as error:
        if title is None:
            raise
        kind = UnsupportedError if isinstance(error, UnsupportedError) else InterpError
        raise kind(f"{title}: {error}") from None


def _told_apart(names: list[str]) -> list[str]:
    """Each name, with its number among the models where an earlier one has the same."""
    return [f"{name} ({i + 1})" if name in names[:i] else name for i, name in enumerate(names)]


def _in_words(found: pd.DataFrame) -> list[str]:
    """One cell a section: applies; on request, and for how long; or the reason why not."""
    says = {"applies": "applies", "on request": "on request, {}", "does not apply": "no: {}"}
    return [says[status].format(note) for status, note in zip(found["status"], found["note"])]


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
    if isinstance(source, Subject):
        return source, _name_of(source.model)
    if isinstance(source, HookedTransformer):
        return Subject.of(source, task, tokens, outputs, padding), _name_of(source)
    return Subject.of(_load(source, device, dtype), task, tokens, outputs, padding), str(source)


def _page(
    subject: Subject,
    title: str,
    load: str | None,
    sections: Sequence[str] | None,
    options: Mapping[str, Mapping[str, Any]] | None,
) -> Report:
    """One model's report. load: Python that makes `model`, where there is such."""
    report = Report(title, subtitle=_subtitle(subject), metadata=_metadata(subject))
    with threads_for(subject.model):
        fill(Study(subject, load), report, sections, options)
    report.spare_figures()
    return report


def _compare(pages: list[Report], tasks: list[str]) -> Report:
    """Several models on one page: their facts side by side, with their tasks where these differ; then each report."""
    rows = pd.DataFrame([{"model": page.title, "task": task, **page.facts} for page, task in zip(pages, tasks)])
    rows = rows if len(set(tasks)) > 1 else rows.drop(columns="task")
    report = Report(f"{len(pages)} models", subtitle="side by side, then one by one")
    report.section("Comparison")
    report.add_table(
        "comparison",
        rows,
        "One row for each model; each one's report follows below, and says on which inputs a number was measured.",
    )
    for number, page in enumerate(pages):
        report.attach(page, prefix=f"{number}-{page.title}")
    return report


# ---------------------------------------------------------------- who the model is


def _name_of(model: HookedTransformer) -> str:
    """A model that came without a name."""
    return f"{model.spec.id}, seed {model.seed}" if isinstance(model, TaskModel) else "a HookedTransformer of your own"


def _subtitle(subject: Subject) -> str:
    """One line on the task and the architecture."""
    cfg = subject.model.cfg
    heads = f"{cfg.n_layers} layer{'s' * (cfg.n_layers > 1)}, {cfg.n_heads} head{'s' * (cfg.n_heads > 1)}"
    return f"task {subject.task.name} · {heads} of dimension {cfg.d_head} · residual stream of {cfg.d_model}"


def _metadata(subject: Subject) -> dict[str, str]:
    """Where the model comes from."""
    found = {"interp": version("interp"), "torch": torch.__version__}
    run = str(next(subject.model.parameters()).dtype).removeprefix("torch.")
    if run != (subject.model.spec.dtype if isinstance(subject.model, TaskModel) else "float32"):
        found["run in"] = run
    if subject.output_ids is not None and len(subject.output_ids) < subject.model.cfg.d_vocab_out:
        found["answer"] = f"the largest of {len(subject.output_ids)} of its {subject.model.cfg.d_vocab_out} outputs"
    if isinstance(subject.model, TaskModel):
        spec = subject.model.spec
        found = {"spec": spec.id, "seed": str(subject.model.seed), **found}
        if isinstance(spec.origin, Construction):
            found["origin"] = f"construction {spec.origin.name} {spec.origin.variant}".strip()
        elif isinstance(spec.origin, Training):
            recipe = spec.origin
            found["origin"] = f"trained {recipe.epochs} epochs, {recipe.optimizer} {recipe.learning_rate:g}"
    return found
