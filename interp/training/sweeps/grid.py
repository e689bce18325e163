"""Grids of sweeps: a base spec, axes of changes, and seeds. The cells are the product of all axes.

    seeds = 5                       # 0 to 4, or a list of seeds
    epochs = 500                    # optional, replaces the recipe's

    [base]                          # a spec as in model.toml, or base = "path/to/model.toml"
    ...
    [axes]
    readout_width = [8, 32]                                                   # a field of the spec and its values
    d = { fields = ["d_model", "layers.0.d_head"], values = [8, 32] }         # one value for several fields
    model.choices.dot = { "layers.0.normalizer" = "none" }                    # a name for one or more changes
    model.choices.dot-softmax = { "layers.0.normalizer" = "softmax" }

Numbers in a field's path are indices of lists. A run is a cell with a seed, identified by the spec's id and the seed.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from interp.errors import InterpError, SpecError, as_path, check_one_of, cut, one_of, quoted
from interp.models.spec import Construction, ModelSpec, read_toml
from interp.training.sweeps.table import RESULT_COLUMNS

MOST_CELLS = 20_000
"""Limits of one grid for 1 GB of memory. All specs are checked before anything runs."""
GRID_FIELDS = ("base", "axes", "seeds", "epochs", "engine")
AXIS_FORMS = "a list of values, { fields = [...], values = [...] }, or { choices = { name = { field = value } } }"


class GridError(InterpError):
    """A grid with problems; `problems` lists all of them, each with its cells."""

    def __init__(self, where: str, problems: list[str]) -> None:
        self.problems = problems = [cut(problem) for problem in problems[:20]]
        listed = problems[0] if len(problems) == 1 else "\n" + "\n".join(f"  - {problem}" for problem in problems)
        super().__init__(f"{where}: {listed}")


@dataclass(frozen=True)
class Cell:
    """One spec of a grid, and the value of each axis that led to it."""

    axes: Mapping[str, Any]
    spec: ModelSpec

    @property
    def label(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.axes.items()) or self.spec.id


@dataclass(frozen=True)
class Grid:
    """The cells of a sweep, the seeds of each, and the engine."""

    name: str
    cells: tuple[Cell, ...]
    seeds: tuple[int, ...]
    engine: str = "auto"

    @property
    def n_runs(self) -> int:
        return len(self.cells) * len(self.seeds)

    def part(self, only: Sequence[str] = (), seeds: Sequence[int] | None = None) -> Grid:
        """Select the cells with these values of axes, such as ("model=dot", "d=32"), and these seeds.

        Several values of one axis are alternatives. To share a grid among machines, run one part on each;
        training.sweeps.table.read_runs combines the tables. Raises InterpError for an unknown axis, value or seed.
        """
        wanted: dict[str, set[str]] = {}
        for choice in only:
            axis, _, value = choice.partition("=")
            values = {name: {str(cell.axes[name]) for cell in self.cells} for name in self.cells[0].axes}
            check_one_of("axis", axis, values)
            check_one_of(f"axis {axis}: value", value, sorted(values[axis]))
            wanted.setdefault(axis, set()).add(value)
        if missing := [seed for seed in seeds or () if seed not in self.seeds]:
            raise InterpError(f"seed {missing[0]} is not in the grid, whose seeds are {list(self.seeds)}")
        cells = tuple(c for c in self.cells if all(str(c.axes[axis]) in known for axis, known in wanted.items()))
        return replace(self, cells=cells, seeds=self.seeds if seeds is None else tuple(seeds))


def read_grid(path: str | Path, device: str = "cpu") -> Grid:
    """Read a grid from a TOML file. Raises GridError with all problems of the file and of the cells' specs."""
    path = as_path(path, "a grid")
    try:
        data = read_toml(path)
    except SpecError as error:
        raise InterpError(str(error)) from None
    return make_grid(data, path.stem, path.parent, device)


def make_grid(data: Mapping[str, Any], name: str = "grid", folder: Path | None = None, device: str = "cpu") -> Grid:
    """Make a grid from plain data; a path in `base` is relative to `folder`. Raises GridError with all problems."""
    problems = [one_of("field", field, GRID_FIELDS) for field in data if field not in GRID_FIELDS]
    seeds = _seeds(data.get("seeds", 1), problems)
    base = _base(data, folder or Path(), problems)
    table = data.get("axes", {})
    if not isinstance(table, Mapping):
        problems.append(f"axes = {quoted(table)} must be a table")
        table = {}
    axes = {axis: _axis(axis, entry, problems) for axis, entry in table.items()}
    if problems:
        raise GridError(name, problems)
    count = math.prod(len(points) for points in axes.values())
    if count > MOST_CELLS:
        raise GridError(name, [f"{count:,} cells are more than {MOST_CELLS:,}: sweep the grid in parts"])
    cells = _cells(base, axes, problems)
    grid = Grid(name, tuple(cells), tuple(seeds), str(data.get("engine", "auto")))
    problems += _untrainable(grid, device)
    if problems:
        raise GridError(name, problems)
    return grid


# ---------------------------------------------------------------- parts of the file


def _seeds(entry: Any, problems: list[str]) -> list[int]:
    seeds = list(range(entry)) if type(entry) is int else entry
    if not isinstance(seeds, list) or any(type(seed) is not int or seed < 0 for seed in seeds):
        problems.append(f"seeds = {quoted(entry)} must be a number of seeds, or a list of integers from 0")
        return [0]
    elif not seeds:
        problems.append(f"seeds = {quoted(entry)}: the grid has no runs; give at least one seed")
    elif len(set(seeds)) != len(seeds):
        problems.append(f"seeds = {quoted(entry)} holds a seed twice")
    return seeds


def _base(data: Mapping[str, Any], folder: Path, problems: list[str]) -> dict[str, Any]:
    entry = data.get("base")
    if isinstance(entry, str):
        try:
            entry = read_toml(folder / entry)
        except SpecError as error:
            problems += error.problems
            entry = {}
    if not isinstance(entry, Mapping):
        problems.append("base is missing: give a spec as a table, or the path of a model.toml")
        return {}
    base = copy.deepcopy({field: value for field, value in entry.items() if field != "zoo"})
    if "epochs" in data:
        origin = base.get("origin", {})
        if not isinstance(origin, Mapping):
            problems.append(f"origin = {quoted(origin)} must be a table, where epochs are given beside it")
            origin = {}
        base["origin"] = {"kind": "training", **origin, "epochs": data["epochs"]}
    return base


Changes = dict[str, Any]
"""Field path -> value."""


def _axis(name: str, entry: Any, problems: list[str]) -> list[tuple[Any, Changes]]:
    """Return pairs (value in the table, changes) for each value of an axis."""
    if name in RESULT_COLUMNS or name.startswith(("spec.", "version.")):
        problems.append(f"axis {name}: the table of runs has a column of that name; choose another")
    points = _points({"fields": [name], "values": entry} if isinstance(entry, list) else entry)
    if points is None:
        problems.append(f"axis {name} = {quoted(entry)} must be {AXIS_FORMS}")
        return []
    if not points:
        problems.append(f"axis {name} is empty: the grid has no cells; give at least one value")
    return [(v if isinstance(v, str | int | float) else json.dumps(v, default=str), changes) for v, changes in points]


def _points(entry: Any) -> list[tuple[Any, Changes]] | None:
    """Return the values of an axis with their changes, or None if it has neither of the two forms."""
    if not isinstance(entry, Mapping):
        return None
    if set(entry) == {"choices"}:
        choices = entry["choices"]
        if isinstance(choices, Mapping) and all(isinstance(changes, Mapping) for changes in choices.values()):
            return [(label, dict(changes)) for label, changes in choices.items()]
    if set(entry) == {"fields", "values"}:
        fields, values = entry["fields"], entry["values"]
        if isinstance(values, list) and isinstance(fields, list) and fields and all(type(f) is str for f in fields):
            return [(value, dict.fromkeys(fields, value)) for value in values]
    return None


# ---------------------------------------------------------------- cells


def _cells(base: dict[str, Any], axes: Mapping[str, list[tuple[Any, Changes]]], problems: list[str]) -> list[Cell]:
    """Return the cells with valid specs; add each distinct problem of the cells to `problems` once."""
    from interp.training.train import as_trained

    by_problem: dict[str, list[str]] = {}
    seen: dict[str, str] = {}
    cells = []
    for point in itertools.product(*axes.values()):
        labels = dict(zip(axes, (value for value, _ in point)))
        plain, sentences = copy.deepcopy(base), []
        for axis, (_, changes) in zip(axes, point):
            for path, value in changes.items():
                if (problem := _set(plain, path, value)) is not None:
                    sentences.append(f"axis {axis}: {problem}")
        if not sentences:  # if a later axis overwrote an earlier one, the table would have a wrong value
            sentences = [
                f"axis {axis}: another axis changes {path}, too"
                for axis, (_, changes) in zip(axes, point)
                for path, value in changes.items()
                if _get(plain, path) != value
            ]
        spec = None
        if not sentences:
            try:
                spec = ModelSpec.from_dict(plain)
                with suppress(InterpError):  # _untrainable names what is wrong with the task
                    spec, _ = as_trained(spec)
            except SpecError as error:
                sentences = error.problems
        label = Cell(labels, spec).label if spec else ", ".join(f"{name}={value}" for name, value in labels.items())
        if spec is not None:
            if spec.id in seen:
                sentences.append(f"the same model as {seen[spec.id]}")
            seen.setdefault(spec.id, label)
            cells.append(Cell(labels, spec))
        for sentence in sentences:
            by_problem.setdefault(sentence, []).append(label)
    problems += _with_cells(by_problem)
    return cells


def _set(plain: dict[str, Any], path: str, value: Any) -> str | None:
    """Set one field in place, or return a sentence if the path is invalid. The spec checks the field's name later."""
    node: Any = plain
    parts = path.split(".")
    for depth, part in enumerate(parts):
        above = ".".join(parts[:depth])
        if not isinstance(node, dict | list):
            return f"{path}: {above} is {node!r}, not a table"
        index: Any = part
        if isinstance(node, list):  # "²" also counts as a digit in Python
            if not (part.isascii() and part.isdigit() and len(part) < 10 and int(part) < len(node)):
                return f"{path}: {above} has the indices 0 to {len(node) - 1}"
            index = int(part)
        if depth == len(parts) - 1:
            node[index] = copy.deepcopy(value)
        else:
            node = node[index] if isinstance(node, list) else node.setdefault(index, {})
    return None


def _get(plain: Any, path: str) -> Any:
    """Return the value at a path, or None if it no longer exists."""
    for part in path.split("."):
        try:
            plain = plain[int(part) if isinstance(plain, list) else part]
        except (KeyError, IndexError, TypeError, ValueError):
            return None
    return plain


def _untrainable(grid: Grid, device: str) -> list[str]:
    """Return the problems of specs that cannot be built for their task or trained by the engine."""

    from interp.models.architecture.parameters import as_device, model_problems
    from interp.tasks import make_task
    from interp.training.train import choose_engine

    by_problem: dict[str, list[str]] = {}
    for cell in grid.cells:
        try:
            task = make_task(cell.spec.task)
            sentences = model_problems(cell.spec, task)
            if isinstance(cell.spec.origin, Construction):
                sentences.append("its origin is a construction: give the base a training recipe")
            if not sentences:
                choose_engine(cell.spec, task, as_device(device), grid.engine)
        except InterpError as error:
            sentences = [str(error).replace(cell.spec.id, "the spec")]
        for sentence in sentences:
            by_problem.setdefault(sentence, []).append(cell.label)
    return _with_cells(by_problem)


def _with_cells(by_problem: Mapping[str, list[str]]) -> list[str]:
    """List each sentence once, with its first cell and the number of others."""
    listed = []
    for sentence, labels in by_problem.items():
        more = f" and {len(labels) - 1} more" if len(labels) > 1 else ""
        listed.append(f"cell {labels[0]}{more}: {sentence}" if labels[0] else sentence)
    return listed
