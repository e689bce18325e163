"""Places in a model that may represent a variable: the output of a head, an MLP or a neuron, or the residual stream.

A place is written as text: `head 0.1`, `MLP 2`, `neuron 1.7`, or `stream 1`, the residual stream before layer 1. In a
model of n layers, `stream n` is the stream after the last layer. A position may follow an @: `head 0.1 @ 3`,
`stream 1 @ -1`, `MLP 0 @ each`. The default is the read position.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import InterpError, of_type, one_of, quoted
from interp.measures.runs import Edit, Neuron, Part, part_named, stream_hook
from interp.measures.subject import Subject

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

        >>> from interp.measures.hypothesis_places import Place
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
        place._check(subject)
        if place.basis is None:
            return place
        return replace(place, basis=_orthonormal(place.basis, place.width(subject), str(place)))

    def _check(self, subject: Subject) -> None:
        if not isinstance(self.what, int):
            part_named(subject, self.what)
        elif not 0 <= self.what <= subject.model.cfg.n_layers:
            raise InterpError(one_of("residual stream", self.what, range(subject.model.cfg.n_layers + 1)))
        if isinstance(self.position, str) and self.position not in ("read", "each"):
            raise InterpError(f"position {self.position!r} must be a number, 'read' or 'each'")

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
            found = self.position(tokens, read_at)
            if not isinstance(found, Tensor) or found.shape != read_at.shape:
                raise InterpError(f"the position function of {self} must return one position for each row")
            found = found.long()
        elif self.position == "read":
            found = read_at
        elif self.position == "each":
            found = torch.zeros_like(read_at)
        else:
            index = torch.full_like(read_at, int(self.position))
            found = torch.where(index < 0, lengths + index, index)
        return torch.where((found >= 0) & (found < lengths), found, -1)

    def __str__(self) -> str:
        name = f"stream {self.what}" if isinstance(self.what, int) else str(self.what)
        where = "" if self.position == "read" else f" @ {getattr(self.position, '__name__', self.position)}"
        return name + where + ("" if self.basis is None else f" ({self.basis.shape[1]} directions)")


def _parse(subject: Subject, text: str) -> Place:
    match = _PLACE.fullmatch(text.strip())
    if match is None:
        raise InterpError(f"{quoted(text)} is not a place; write it as {FORMS}")
    kind, name, position = match[1].lower(), match[2], match[3]
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
    if not isinstance(basis, Tensor) or basis.ndim not in (1, 2) or basis.shape[0] != width:
        shape = tuple(basis.shape) if isinstance(basis, Tensor) else of_type(basis)
        raise InterpError(
            f"the basis of {name} is {shape}; it must be a tensor of {width} rows, with one column per direction"
        )
    columns = basis.detach().double().cpu().reshape(width, -1)
    if not bool(columns.isfinite().all()):
        raise InterpError(f"the basis of {name} has numbers that are not finite")
    u, s, _ = torch.linalg.svd(columns, full_matrices=False)
    kept = s > 1e-6 * s.max()
    if not len(s) or not float(s.max()) > 0:
        raise InterpError(f"the basis of {name} spans nothing: all its columns are zero")
    return u[:, kept]
