"""compare: which algorithm did each of many models learn, and is it the same one?

Each model is explained by itself, and its row is written before the next one is loaded, so memory does not grow with
the number of models and a run that is killed goes on where it stopped. Then rows are put into classes (canonical.py),
and variables of one model are tried in others of its class (transplant.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import fields
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pandas as pd

from interp.errors import InterpError, as_list, check_one_of, check_size, of_type
from interp.measures.results import Result
from interp.models import zoo
from interp.models.architecture.task_model import TaskModel
from interp.models.model_files import find_checkpoint, is_dir
from interp.models.subject import Subject
from interp.programs.explanations.causal import RULES
from interp.programs.explanations.explanation import weights_hash
from interp.programs.many.canonical import FORM, Canonical
from interp.programs.many.one_model import Row, Tasks, learned, needs_certificate, reformed, right_of
from interp.programs.many.table import ComparedTable
from interp.programs.many.transplant import Transplant, transplanted
from interp.support.progress import LateBar
from interp.support.words import counted
from interp.tasks.scores import wilson
from interp.training.sweeps.table import FILE as RUNS

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Grade: TypeAlias = Literal["steps", "shape", "answers"]
GRADES: tuple[Grade, ...] = ("steps", "shape", "answers")
"""What two models that are called the same have in common, strictest first; see canonical.py."""
SAME_ANSWERS = 0.99
"""Least share of the answers on common inputs that programs of one class give alike, by grade "answers"."""
NONE = "none"
"""The class of models without a program of their parts."""
TRIED = 3
"""Models of a class into which, and out of which, variables of its first model are put."""


def compare(
    models: str | Path | Sequence[str | Path | TaskModel],
    out: str | Path | None = None,
    workers: int = 1,
    *,
    dask: str | None = None,
    tried: int = TRIED,
    certify: bool = False,
    progress: bool = True,
) -> ComparedModels:
    """Find out which algorithm each of many models of one task learned, and which of them are the same.

    models: a folder with checkpoints (of a sweep, or of a model with several seeds), the name of a model with seeds, or
    a list of names, files and task models. out: a folder for the table, one line for each model; a run that was killed
    goes on there. workers: processes on this machine. dask: the address of a Dask scheduler to use instead. tried: the
    number of models of a class with which its first one exchanges variables. certify: whether to take the accuracy from
    a certificate where one knows it exactly; the accuracy of a task that lists its inputs is exact without one.

    Raises InterpError if there is no model, or if models are of different tasks.

    Example:

        >>> twins = [interp.compile(interp.programs.task.ENDS, rotate=turn) for turn in (1, 2)]
        >>> interp.compare(twins).to_frame("algorithms")[["algorithm", "models", "share"]].to_dict("records")
        [{'algorithm': 'A', 'models': 2, 'share': 1.0}]
    """
    check_size("workers", workers)
    sources = sources_of(models)
    with ComparedTable(out) as rows, LateBar("compare") as bar:
        known = {name: row for name, row in rows.known.items() if row.get("rules") == RULES}
        asked = [(source, source.unchanged(known.get(source.name))) for source in sources]
        left = [
            (source, row)
            for source, row in asked
            if row is None or row["form"] != FORM or needs_certificate(row, certify)
        ]
        done = len(sources) - len(left)
        tasks: Tasks = {}
        for row in _learned(left, workers, dask, certify, tasks):
            rows.append(row)
            _check_task(rows.known.values(), row)
            done += 1
            if progress:
                bar.update(done, len(sources), f"{row['model']} {row['level']}")
        compared = ComparedModels([rows.known[source.name] for source in sources])
        by_name = {source.name: source for source in sources}
        held: dict[str, TaskModel] = {}
        for one, other in compared.pairs(tried):
            key = f"{one} -> {other}"
            if key not in rows.tested:
                held = {name: held.get(name) or by_name[name].load() for name in (one, other)}  # the last two, no more
                tests = transplanted(held[one], compared.row(one), held[other], compared.row(other), tasks)
                rows.append_tests(key, tests)
            compared.transplants += rows.tested[key]
    return compared


def _check_task(rows: Iterable[Row], row: Row) -> None:
    """Raise InterpError if models are of different tasks, or of one task with different parameters."""
    if other := next((earlier for earlier in rows if earlier["asked"] != row["asked"]), None):
        alike = " with other parameters" * (other["task"] == row["task"])
        raise InterpError(
            f"only models of one task can be compared, but {other['model']} is of {other['task']}, and {row['model']} "
            f"of {row['task']}{alike}"
        )


class ModelSource:
    """One model to compare: its name, and how to load it."""

    def __init__(self, name: str, given: str | Path | TaskModel, axes: Mapping[str, Any] | None = None):
        self.name, self.given, self.axes = name, given, dict(axes or {})

    def load(self) -> TaskModel:
        model = self.given if isinstance(self.given, TaskModel) else zoo.load(self.given)
        if not isinstance(model, TaskModel):
            raise InterpError(f"{self.name} is no task model; compare takes models with a spec")
        return model

    def unchanged(self, known: Row | None) -> Row | None:
        """Return a row if it is of these weights: another model may have had the name."""
        return None if known is None or known.get("weights") != weights_hash(Subject.of(self.load())) else known

    def row(self, known: Row | None, certify: bool, tasks: Tasks) -> Row:
        """Its row; known: the one with an earlier canonical form, or without a certificate. tasks: see `learned`."""
        model = self.load()
        if known is None:
            return {**learned(model, self.name, certify, tasks), "axes": self.axes}
        row = known if known["form"] == FORM else reformed(model, known)
        return {**row, **right_of(model, certify)} if needs_certificate(row, certify) else row


def sources_of(models: str | Path | Sequence[str | Path | TaskModel]) -> list[ModelSource]:
    """Return the models to compare, in order. Raises InterpError if there is none, or if two have one name."""
    if isinstance(models, str | Path):
        sources = _of_folder(Path(models)) if is_dir(Path(models)) else _of_name(str(models))
    else:
        sources = [
            ModelSource(f"model {n}", model)
            if isinstance(model, TaskModel)
            else ModelSource(str(model), _checked(model), _axes(Path(str(model))))
            for n, model in enumerate(as_list(models, "models", '["first.safetensors", model]'))
        ]
    if not sources:
        of_sweep = isinstance(models, str | Path) and (Path(models) / RUNS).is_file()
        kept = "; the sweep kept no models: repeat it with models=True (--models)" * of_sweep
        raise InterpError(f"there is no checkpoint to compare in {models}{kept}")
    if twice := [name for name, n in Counter(source.name for source in sources).items() if n > 1]:
        raise InterpError(f"{twice[0]} is given twice")
    return sources


def _checked(model: object) -> str | Path | TaskModel:
    if not isinstance(model, str | Path | TaskModel):
        raise InterpError(f"expected names, files or task models, got {of_type(model)}")
    return model


def _of_folder(folder: Path) -> list[ModelSource]:
    """Checkpoints of a folder and of those in it; snapshots within a run are left out. Folders named d=8 are axes."""
    files = sorted(folder.rglob("seed-*.safetensors"), key=_by_number) or sorted(folder.glob("*.safetensors"))
    names = [file.relative_to(folder).with_suffix("") for file in files]
    return [ModelSource(str(name), file, _axes(name)) for name, file in zip(names, files)]


def _axes(name: Path) -> dict[str, Any]:
    """The axes of a grid that folders name, as numbers where they are."""
    pairs = (part.partition("=") for part in name.parent.parts)
    return {axis: int(value) if value.isdigit() else value for axis, equals, value in pairs if equals}


def _of_name(name: str) -> list[ModelSource]:
    """All seeds of a named model."""
    try:
        file = find_checkpoint(name)
    except InterpError:  # an exact model has no file
        return [ModelSource(name, name)]
    seeds = sorted(file.parent.glob("seed-*.safetensors"), key=_by_number)
    return [ModelSource(f"{name}/{seed.stem}", seed) for seed in seeds] if file in seeds else [ModelSource(name, name)]


def _by_number(file: Path) -> tuple[Path, int, str]:
    number = file.stem.removeprefix("seed-")
    return file.parent, int(number) if number.isdigit() else -1, number


def _learned(
    left: Sequence[tuple[ModelSource, Row | None]], workers: int, dask: str | None, certify: bool, tasks: Tasks
) -> Iterator[Row]:
    """The row of each model, as it is done."""
    if (workers == 1 and dask is None) or len(left) < 2 or any(isinstance(one.given, TaskModel) for one, _ in left):
        yield from (source.row(known, certify, tasks) for source, known in left)
        return
    with _executor(workers, dask) as pool:
        for done in as_completed([pool.submit(_row_of, source, known, certify) for source, known in left]):
            yield done.result()


def _row_of(source: ModelSource, known: Row | None, certify: bool) -> Row:
    import torch

    torch.set_num_threads(1)
    return source.row(known, certify, _OF_WORKER)


_OF_WORKER: Tasks = {}


@contextmanager
def _executor(workers: int, dask: str | None) -> Iterator[Executor]:
    if dask is None:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            yield pool
    else:
        from distributed import Client

        with Client(dask) as client:
            yield client.get_executor()


class ComparedModels(Result):
    """Which algorithm each model learned. Tables: to_frame("models" | "algorithms" | "transplants").

    grade: what models of one algorithm have in common: the same "steps", the same "shape" (up to thresholds and graded
    weights), or the same "answers". Algorithms are named A, B, ... from the most frequent on; "none" is no algorithm:
    no program of the model's parts was found.
    """

    def __init__(self, rows: Sequence[Row], grade: Grade = "shape"):
        self.rows, self.grade = list(rows), grade
        self.transplants: list[Transplant] = []

    def by(self, grade: Grade) -> ComparedModels:
        """Return the same with algorithms told apart by another grade."""
        regraded = ComparedModels(self.rows, check_one_of("grade", grade, GRADES))
        regraded.transplants = self.transplants
        return regraded

    # ------------------------------------------------------------ classes

    @cached_property
    def algorithms(self) -> list[str]:
        """The algorithm of each model."""
        firsts: list[int] = []
        classes = []
        forms = [Canonical.from_plain(row["canonical"]) if row["canonical"] else None for row in self.rows]
        for number, form in enumerate(forms):
            if form is None:
                classes.append(-1)
                continue
            same = (first for first in firsts if _same(self.grade, forms[first], form))
            first = next(same, number)
            firsts += [first] * (first == number)
            classes.append(first)
        order = [first for first, _ in Counter(number for number in classes if number >= 0).most_common()]
        return [NONE if number < 0 else letters(order.index(number)) for number in classes]

    def same(self, one: str, other: str) -> bool:
        """Test whether two models have the same algorithm."""
        mine = dict(zip((row["model"] for row in self.rows), self.algorithms, strict=True))
        return mine[one] == mine[other] != NONE

    def row(self, name: str) -> Row:
        """The row of a model."""
        return next(row for row in self.rows if row["model"] == name)

    def pairs(self, tried: int) -> list[tuple[str, str]]:
        """Models of one algorithm between which variables are exchanged: its first one and some others, both ways."""
        members: dict[str, list[str]] = {}
        for row, algorithm in zip(self.rows, self.algorithms, strict=True):
            members.setdefault(algorithm, []).append(row["model"])
        members.pop(NONE, None)
        pairs = [(first, other) for first, *others in members.values() for other in others[:tried]]
        return [pair for first, other in pairs for pair in ((first, other), (other, first))]

    # ------------------------------------------------------------ tables

    @property
    def title(self) -> str:
        shares = self.to_frame("algorithms")
        named = [
            f"{row.algorithm}: {row.models} ({row.share:.0%}, 95% interval {row.low:.0%} to {row.high:.0%})"
            for row in shares.head(4).itertuples()
        ]
        models = f"{counted(len(self.rows), 'model')} of task {self.rows[0]['task']}"
        return f"{models}, by the same {self.grade}. {'; '.join(named)}"

    def to_frame(self, table: Literal["models", "algorithms", "transplants"] = "models") -> pd.DataFrame:
        """Return one row for each model, for each algorithm, or for each variable put into another model."""
        check_one_of("table", table, ("models", "algorithms", "transplants"))
        if table == "transplants":
            return pd.DataFrame(self.transplants, columns=[column.name for column in fields(Transplant)])
        shown = ("model", "seed", "accuracy", "low", "high", "exact", "on", "level", "answers", "interchange",
                 "constants", "parts", "used", "reason")  # fmt: skip
        frame = pd.DataFrame([{**row["axes"], **{name: row[name] for name in shown}} for row in self.rows])
        frame.insert(list(frame).index("level"), "algorithm", self.algorithms)
        return frame if table == "models" else self._shares(frame)

    def _shares(self, frame: pd.DataFrame) -> pd.DataFrame:
        """One row for each algorithm, most frequent first: how many models, the share with Wilson's 95% interval, their
        accuracy, and how their first model computes it, with the weights of graded attention: two algorithms may
        differ in these alone."""
        how = {algorithm: row["how"] for row, algorithm in reversed(list(zip(self.rows, self.algorithms)))}
        rows = []
        for name, part in frame.groupby("algorithm", sort=False):
            low, high = wilson(len(part) / len(frame), len(frame))
            rows.append({
                "algorithm": name, "models": len(part), "share": len(part) / len(frame), "low": low, "high": high,
                "accuracy": part["accuracy"].mean(), "least": part["accuracy"].min(),
                "constants": part["constants"].median(), "how": how[name],
            })  # fmt: skip
        return pd.DataFrame(rows).sort_values("models", ascending=False, kind="stable", ignore_index=True)

    def plot(self) -> Figure:
        """Draw the accuracy of each model, by algorithm; or of a grid with two axes, the algorithms of its cells."""
        from interp.support.figures.algorithms import accuracies, phases

        frame = self.to_frame()
        axes = [name for name in self.rows[0]["axes"] if frame[name].nunique() > 1]
        return phases(frame, *axes[:2]) if len(axes) > 1 else accuracies(frame)


def _same(grade: Grade, form: Canonical | None, other: Canonical) -> bool:
    if form is None:
        return False
    if grade == "steps":
        return form.same_steps(other)
    return form.shape == other.shape if grade == "shape" else form.same_answers(other) >= SAME_ANSWERS


def letters(number: int) -> str:
    """A, B, ..., Z, AA, AB, ...: the name of the algorithm with this place."""
    name = ""
    number += 1
    while number:
        number, last = divmod(number - 1, 26)
        name = chr(65 + last) + name
    return name
