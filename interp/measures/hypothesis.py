"""Hypotheses: named variables, their places in a model, and the variables that they are computed from.

    hypothesis = interp.Hypothesis(
        [
            interp.Variable("even", at="head 2.0"),                # a declared feature of the task
            interp.Variable("never_below", at=["head 1.1", "MLP 1"]),
        ],
        answer=lambda even, never_below: even & never_below,
    )
    interp.evaluate_hypothesis(model, hypothesis)

The value of a variable is a feature that the task declares, or a function of the tokens, or a function of other
variables (`of`). If a variable has no place, inputs must agree on it wherever the hypothesis uses it.

A place is the output of a head, an MLP or a neuron, or the residual stream: `head 0.1`, `MLP 2`, `neuron 1.7`, or
`stream 1`, the stream before layer 1. In a model of n layers, `stream n` is the stream after the last layer. A position
may follow an @: `head 0.1 @ 3`, `stream 1 @ -1`, `MLP 0 @ each`. The default is the read position.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import InterpError, check_one_of, first_few, of_type, one_of, quoted
from interp.measures.runs import Edit, Neuron, Part, part_named, reads_of, stream_hook
from interp.models.subject import Subject
from interp.tasks import Batch


@dataclass(frozen=True)
class Variable:
    """A named variable of a hypothesis.

    Args:
        name: a feature that the task declares, or any name if `function` is given.
        at: its place, or several places that represent it together: "head 0.1", "MLP 2 @ 3", a `Place`. None: unknown.
        of: the variables that it is computed from (default: it is computed from the tokens).
        function: computes its value from the values of `of`, in order, or, without `of`, from the tokens (rows,
            length). Returns integers, one per row, (rows,), or one per position, (rows, length).
        words: a description, shown in print.

    Example:

        >>> interp.Variable("height", at="stream 1 @ each")  # a feature that the task declares
        Variable(name='height', at=('stream 1 @ each',), of=(), function=None, words='')
        >>> sum_ = interp.Variable("sum", at="MLP 0", of=("a", "b"), function=lambda a, b: a + b)
    """

    name: str
    at: Any = ()
    of: str | Sequence[str] = ()
    function: Any = None
    words: str = ""

    def __post_init__(self) -> None:
        at = () if self.at is None else self.at
        object.__setattr__(self, "at", tuple(at) if isinstance(at, list | tuple) else (at,))
        object.__setattr__(self, "of", (self.of,) if isinstance(self.of, str) else tuple(self.of))


@dataclass(frozen=True)
class AtRead:
    """An answer that is computed at the read position.

    function: from the read positions (units,) and the values there of each variable (units,) to output indices.
    """

    function: Callable[..., Int[Tensor, "units"]]


@dataclass(frozen=True)
class Hypothesis:
    """Variables, and how the answer is computed from them.

    Args:
        variables: in any order, with distinct names.
        answer: a function from the values of `of`, in order, to the answer, in the form of Batch.labels, or an AtRead
            (default: the model's most frequent answer for these values).
        of: the variables that the answer is computed from (default: those from which no other variable is computed).

    Raises InterpError for missing or repeated names, and for variables that are computed from each other.

    Example:

        >>> even = interp.Variable("even", at="head 2.0")
        >>> never_below = interp.Variable("never_below", at=["head 2.1", "MLP 1"])
        >>> print(interp.Hypothesis([even, never_below], answer=lambda a, b: a & b))
        even: in head 2.0, computed from the tokens
        never_below: in head 2.1, MLP 1, computed from the tokens
        answer: computed from even, never_below
    """

    variables: Sequence[Any]
    answer: Callable[..., Any] | AtRead | None = None
    of: str | Sequence[str] = ()
    order: tuple[Variable, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        variables = tuple(self.variables)
        if not variables or not all(isinstance(variable, Variable) for variable in variables):
            raise InterpError("a hypothesis needs at least one variable: Hypothesis([Variable('sum', at='MLP 0')])")
        known = {variable.name: variable for variable in variables}
        if len(known) < len(variables):
            names = [variable.name for variable in variables]
            raise InterpError(f"two variables are named {next(n for n in names if names.count(n) > 1)!r}")
        for variable in variables:
            for name in variable.of:
                check_one_of(f"variable that {variable.name} is computed from", name, known)
        used = {name for variable in variables for name in variable.of}
        wanted = (self.of,) if isinstance(self.of, str) else tuple(self.of)
        for name in wanted:
            check_one_of("variable that the answer is computed from", name, known)
        object.__setattr__(self, "variables", variables)
        object.__setattr__(self, "of", wanted or tuple(name for name in known if name not in used))
        object.__setattr__(self, "order", _ordered(known))

    def __getitem__(self, name: str) -> Variable:
        known = {variable.name: variable for variable in self.variables}
        return known[check_one_of("variable", name, known)]

    def __str__(self) -> str:
        lines = []
        for variable in self.order:
            lives = f"in {', '.join(map(str, variable.at))}" if variable.at else "without a place"
            source = f"from {', '.join(variable.of)}" if variable.of else "from the tokens"
            lines.append(
                f"{variable.name}: {lives}, computed {source}" + (f" ({variable.words})" if variable.words else "")
            )
        return "\n".join([*lines, f"answer: computed from {', '.join(self.of)}"])


def _ordered(known: Mapping[str, Variable]) -> tuple[Variable, ...]:
    """Sort variables so that each comes after the variables it is computed from."""
    ordered: dict[str, Variable] = {}
    left = dict(known)
    while left:
        ready = [variable for variable in left.values() if all(name in ordered for name in variable.of)]
        if not ready:
            raise InterpError(f"variables are computed from each other in a circle: {first_few(left)}")
        for variable in ready:
            ordered[variable.name] = left.pop(variable.name)
    return tuple(ordered.values())


# ---------------------------------------------------------------- places

At = Callable[[Int[Tensor, "units length"], Int[Tensor, "units"]], Int[Tensor, "units"]]
"""A function from rows of tokens and their read positions to one position per row."""

FORMS = '"head 0.1", "MLP 2", "neuron 1.7", "stream 1", with a position as in "head 0.1 @ 3" or "MLP 0 @ each"'
_PLACE = re.compile(r"(head|mlp|neuron|stream|embedding)\s*([\w.]*)\s*(?:@\s*(\S+))?", re.IGNORECASE)


@dataclass(frozen=True)
class Place:
    """One place in a model.

    what: a head or an MLP (Part), a Neuron, or a layer's number for the residual stream before that layer. position: an
    index (negative: from the end of the row), "read", "each", or a function (tokens, read_at) -> one position per row.
    basis: a matrix (d, k) whose columns span a subspace (default: the whole vector).

    Example:

        >>> from interp.measures.hypothesis import Place
        >>> print(Place(1, position=3, basis=torch.eye(8)[:, :2]))
        stream 1 @ 3 (2 directions)
    """

    what: Part | Neuron | int
    position: int | str | At = "read"
    basis: Float[Tensor, "d k"] | None = None

    @classmethod
    def of(cls, subject: Subject, place: Any) -> Place:
        """Convert text, a Part or a Neuron to a place. Raises InterpError if the model has no such place."""
        if isinstance(place, str):
            place = _parse(subject, place)
        elif isinstance(place, Part | Neuron):
            place = cls(place)
        if not isinstance(place, Place):
            raise InterpError(f"{of_type(place)} is not a place; write it as {FORMS}")
        if not isinstance(place.what, int):
            part_named(subject, str(place.what))
        elif not 0 <= place.what <= subject.model.cfg.n_layers:
            raise InterpError(one_of("residual stream", place.what, range(subject.model.cfg.n_layers + 1)))
        if isinstance(place.position, str) and place.position not in ("read", "each"):
            raise InterpError(f"position {place.position!r} must be a number, 'read' or 'each'")
        if place.basis is None:
            return place
        return replace(place, basis=_orthonormal(place.basis, place.width(subject), str(place)))

    @property
    def each(self) -> bool:
        """Whether the place covers all positions."""
        return self.position == "each"

    def hook(self, subject: Subject) -> str:
        """Return the hook point of the place."""
        return stream_hook(subject, self.what) if isinstance(self.what, int) else self.what.hook

    def width(self, subject: Subject) -> int:
        """Return the size of the place's value at one position."""
        if isinstance(self.what, Neuron):
            return 1
        if isinstance(self.what, Part) and self.what.head is not None:
            return int(subject.model.blocks[self.what.layer].attn.W_O.shape[1])
        return int(subject.model.cfg.d_model)

    def get(self, activation: Tensor) -> Float[Tensor, "rows length d"]:
        """Return the place's value in an activation of its hook."""
        return activation if isinstance(self.what, int) else self.what.get(activation)

    def edit(self, subject: Subject, value: Float[Tensor, "rows *length d"], at: Int[Tensor, "rows"]) -> Edit:
        """Return the edit that sets this place to a value, at one position per row or at all positions."""
        what = self.hook(subject) if isinstance(self.what, int) else self.what
        return Edit(what, value, None if self.each else at, basis=self.basis)

    def at(self, tokens: Int[Tensor, "units length"], lengths: Int[Tensor, "units"], read_at: Tensor) -> Tensor:
        """Return the place's position in each row; -1 if the row is too short."""
        if callable(self.position):
            positions = self.position(tokens, read_at)
            if not isinstance(positions, Tensor) or positions.shape != read_at.shape:
                raise InterpError(f"the position function of {self} must return one position for each row")
            positions = positions.long()
        elif self.position == "read":
            positions = read_at
        elif self.position == "each":
            positions = torch.zeros_like(read_at)
        else:
            index = torch.full_like(read_at, int(self.position))
            positions = torch.where(index < 0, lengths + index, index)
        return torch.where((positions >= 0) & (positions < lengths), positions, -1)

    def __str__(self) -> str:
        name = f"stream {self.what}" if isinstance(self.what, int) else str(self.what)
        where = "" if self.position == "read" else f" @ {getattr(self.position, '__name__', self.position)}"
        return name + where + ("" if self.basis is None else f" ({self.basis.shape[1]} directions)")


def _parse(subject: Subject, text: str) -> Place:
    match = _PLACE.fullmatch(text.strip())
    kind, name, position = (match[1].lower(), match[2], match[3]) if match else ("", "", None)
    where: int | str = "read" if position is None else position.lower()
    if re.fullmatch(r"-?\d+", str(where)):
        where = int(where)
    if name.isdecimal() if kind == "stream" else kind == "embedding" and not name:
        return Place(int(name or 0), where)
    if kind in ("head", "mlp", "neuron") and name:
        return Place(part_named(subject, f"{kind.replace('mlp', 'MLP')} {name}"), where)
    raise InterpError(f"{quoted(text)} is not a place; write it as {FORMS}")


def _orthonormal(basis: Tensor, width: int, name: str) -> Float[Tensor, "d k"]:
    """Return an orthonormal basis of the columns' span."""
    if basis.ndim not in (1, 2) or basis.shape[0] != width:
        raise InterpError(
            f"the basis of {name} is {tuple(basis.shape)}; it must be a tensor of {width} rows, with one column per "
            "direction"
        )
    columns = basis.detach().double().cpu().reshape(width, -1)
    if not bool(columns.isfinite().all()):
        raise InterpError(f"the basis of {name} has numbers that are not finite")
    u, s, _ = torch.linalg.svd(columns, full_matrices=False)
    kept = s > 1e-6 * s.max()
    if not len(s) or not float(s.max()) > 0:
        raise InterpError(f"the basis of {name} spans nothing: all its columns are zero")
    return u[:, kept]


# ---------------------------------------------------------------- units: one per read


Value = Int[Tensor, "..."]
"""One number per unit, (units,), or per unit and position, (units, length)."""


@dataclass(frozen=True)
class Units:
    """The reads of a batch as separate units: row, read position, and right output index."""

    batch: Batch
    read_at: Int[Tensor, "units"]
    classes: Int[Tensor, "units"]
    rows: Int[Tensor, "units"]

    @classmethod
    def of(cls, subject: Subject, batch: Batch) -> Units:
        where = reads_of(subject, batch)
        return cls(batch[where.rows], where.positions, where.classes, where.rows)

    def __len__(self) -> int:
        return len(self.batch)

    def at_read(self, value: Value, subject: Subject, which: Int[Tensor, "wanted"] | None = None) -> Value:
        """Return values of (some) units at the read position, if each position is read for itself and they have all."""
        if value.ndim == 1 or subject.read_at != "all":
            return value
        at = self.read_at if which is None else self.read_at[which]
        return value.gather(1, at[:, None])[:, 0]

    def at(self, place: Place) -> Int[Tensor, "units"]:
        """Return the position of a place in each unit. Raises InterpError if a row is too short."""
        positions = place.at(self.batch.tokens, self.batch.lengths, self.read_at)
        if bool((positions < 0).any()):
            row = int((positions < 0).int().argmax())
            raise InterpError(
                f"{place}: an input of {int(self.batch.lengths[row])} tokens has no such position; give inputs of one "
                "length, or a position that every input has"
            )
        return positions


class Values:
    """Values of a hypothesis's variables on some units: one value per unit, or one per unit and position."""

    def __init__(self, subject: Subject, hypothesis: Hypothesis, places: Mapping[str, Sequence[Place]], units: Units):
        self.subject, self.hypothesis, self.places, self.units = subject, hypothesis, places, units
        self.features = subject.task.features(units.batch)
        self.tables: dict[str, CodeTable] = {}
        self.known: dict[str, Value] = {}
        for variable in hypothesis.order:
            if variable.of and variable.function is None:
                arguments = [self.known[name] for name in variable.of]
                self.tables[variable.name] = CodeTable.exact(variable, arguments, self._feature(variable))
            self.known[variable.name] = self._value(variable, self.known)

    def _feature(self, variable: Variable) -> Value:
        if variable.name not in self.features:
            known = [*self.features]
            raise InterpError(
                f"{one_of(f'feature of task {self.subject.task.name}', variable.name, known)}; "
                "a variable with another name needs its function"
            )
        return self._checked(variable, self.features[variable.name])

    def _value(self, variable: Variable, known: Mapping[str, Value]) -> Value:
        if variable.function is None and not variable.of:
            return self._feature(variable)
        arguments = [known[name] for name in variable.of] if variable.of else [self.units.batch.tokens]
        if variable.function is None:
            return self.tables[variable.name](*arguments)
        return self._checked(variable, variable.function(*arguments))

    def _checked(self, variable: Variable, value: Any) -> Value:
        """Check a variable's values, and pick or repeat them to fit its places: one per unit, or one per position."""
        shape, values = tuple(self.units.batch.tokens.shape), torch.as_tensor(value).cpu()
        if tuple(values.shape) not in ((shape[0],), shape):
            raise InterpError(
                f"variable {variable.name} has values of shape {tuple(values.shape)}; it must be ({shape[0]},), one "
                f"for each input, or {shape}, one for each position"
            )
        whole = values.long()
        if not bool((whole == values).all()):
            raise InterpError(f"variable {variable.name} has values that are not whole numbers")
        return self._placed(variable, whole, torch.arange(len(whole)))

    def _placed(self, variable: Variable, whole: Value, units: Int[Tensor, "wanted"]) -> Value:
        """Pick or repeat a variable's values on some units to fit its places."""
        places = self.places[variable.name]
        if whole.ndim == 2 and places and not places[0].each:
            at = [self.units.at(place)[units] for place in places]
            if any(bool((other != at[0]).any()) for other in at[1:]):
                raise InterpError(
                    f"variable {variable.name} has places at different positions, and its values there differ"
                )
            whole = whole.gather(1, at[0][:, None])[:, 0]
        if whole.ndim == 1 and places and places[0].each:
            whole = whole[:, None].expand(-1, self.units.batch.tokens.shape[1])
        return whole

    def interchanged(self, name: str, base: Tensor, source: Tensor) -> dict[str, Value]:
        """Return values on base units with one variable set to the source's value and its descendants recomputed."""
        here = {variable.name: self.known[variable.name][base] for variable in self.hypothesis.order}
        here[name] = self.known[name][source]
        changed = {name}
        for variable in self.hypothesis.order:
            if variable.name != name and changed.intersection(variable.of):
                changed.add(variable.name)
                arguments = [here[other] for other in variable.of]
                value = (
                    self.tables[variable.name](*arguments)
                    if variable.function is None
                    else variable.function(*arguments)
                )
                here[variable.name] = self._placed(variable, torch.as_tensor(value).long(), base)
        return here


class CodeTable:
    """A function of some variables, tabulated from observed values; NONE for combinations that never occur."""

    NONE = -(2**62)

    def __init__(self, given: Sequence[Value], value: Value):
        self.seen = [torch.unique(column) for column in given]
        keys, inside = self._keys(given)
        assert bool(inside.all())
        self.keys, which = keys.unique(return_inverse=True)
        answers, index = value.unique(return_inverse=True)
        counts = torch.zeros(len(self.keys) * len(answers), dtype=torch.long)
        counts = counts.index_add(0, which * len(answers) + index, torch.ones_like(which)).view(len(self.keys), -1)
        self.value = answers[counts.argmax(1)]
        self.unanimous = bool((counts.amax(1) == counts.sum(1)).all())

    @classmethod
    def exact(cls, variable: Variable, given: Sequence[Value], value: Value) -> CodeTable:
        """Tabulate a variable. Raises InterpError if it is not a function of its `of` variables."""
        if any(other.ndim != 1 for other in given) or value.ndim != 1:
            raise InterpError(
                f"variable {variable.name} needs a function: a table has one value per input, not per position"
            )
        table = cls(given, value)
        if not table.unanimous:
            raise InterpError(
                f"variable {variable.name} does not follow from {', '.join(variable.of)}: inputs that agree on them "
                "differ in it"
            )
        return table

    def _keys(self, columns: Sequence[Value]) -> tuple[Tensor, Tensor]:
        keys, inside = torch.zeros_like(columns[0]), torch.ones_like(columns[0], dtype=torch.bool)
        for column, seen in zip(columns, self.seen):
            index = torch.searchsorted(seen, column.contiguous()).clamp(max=len(seen) - 1)
            inside &= seen[index] == column
            keys = keys * len(seen) + index
        return keys, inside

    def __call__(self, *given: Value) -> Value:
        keys, inside = self._keys(given)
        index = torch.searchsorted(self.keys, keys).clamp(max=len(self.keys) - 1)
        return torch.where(inside & (self.keys[index] == keys), self.value[index], self.NONE)
