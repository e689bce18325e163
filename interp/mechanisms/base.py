"""What a mechanism is, how it is found, and how it is tested.

A mechanism is a known way to compute something. It looks at a part of a model on the bench and *proposes*: words for
what the part does, and an ideal form that is put in the part's place in the running model. The test is the same for
all: how many of the model's answers stay. What keeps too few of them is never said.

    @mechanism("itself", of="pattern")
    def itself(bench: Bench, part: Part) -> Iterator[Proposal]: ...

Files of this folder are imported by themselves; a function of yours anywhere joins with the same decorator.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from interp.errors import InterpError
from interp.measures.runs import Part
from interp.mechanisms.bench import Bench, Edit, Kept, Mean

Of = Literal["pattern", "output", "inside"]
"""What a mechanism replaces: where a head looks, what a part puts out, or what a head moves and neurons follow."""


@dataclass(frozen=True)
class Proposal:
    """What a mechanism says of a part, with the ideal form that tests it.

    mechanism: its name. words: what the part does, after its name: "looks at the token before". constants: numbers that
    the ideal form needs. fit: how close the part itself is to the form, from 0 to 1 (1: the same). facts: plain data.
    expected: it is about what the program computes, and is tried before anything else.
    """

    mechanism: str
    of: Of
    part: Part
    words: str
    edit: Edit
    constants: int = 0
    fit: float = 1.0
    facts: dict[str, Any] = field(default_factory=dict)
    expected: bool = False


@dataclass(frozen=True)
class Finding:
    """A proposal that passed its test: with it, and with all parts that are cut, so many answers stay."""

    proposal: Proposal
    kept: Kept

    def __str__(self) -> str:
        return f"{self.proposal.part} {self.proposal.words}"


Propose = Callable[[Bench, Part], Iterator[Proposal]]
_MECHANISMS: dict[str, tuple[Of, Propose]] = {}


def mechanism(name: str, of: Of) -> Callable[[Propose], Propose]:
    """Make a function (bench, part) -> proposals a mechanism that every explanation tries.

    Raises InterpError for a name that another function has.
    """

    def register(propose: Propose) -> Propose:
        known = _MECHANISMS.get(name)
        if known is not None and (known[1].__module__, known[1].__qualname__) != (
            propose.__module__,
            propose.__qualname__,
        ):
            raise InterpError(f"a mechanism named {name!r} is registered already, by {known[1].__module__}")
        _MECHANISMS[name] = (of, propose)
        return propose

    return register


def mechanisms(of: Of) -> dict[str, Propose]:
    """All mechanisms of a kind by name: those of this folder, and those of a user."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"{__package__}.{module.name}")
    return {name: propose for name, (kind, propose) in _MECHANISMS.items() if kind == of}


HALF = 0.5
"""How close a pattern must be to an ideal one to be "mostly" that, where even attention would lose answers."""


def found(bench: Bench, part: Part, of: Of, cut: Sequence[Edit], share: float, fit: float = 0.0) -> Finding | None:
    """The first mechanism whose ideal form keeps this share of the answers, or None: those that the program expects
    come first, then those with fewer constants.

    cut: what is replaced besides. fit: how close the part must be to the form, at least; HALF is enough, and is said as
    "mostly", for a pattern in whose place even attention loses answers. Where the answers stay with the part at its
    mean, too, a replacement of its output shows nothing: then the form must give HALF of the output's variance.
    """
    proposals = []
    for propose in mechanisms(of).values():
        for one in propose(bench, part):
            bench.clock.check()
            proposals.append(one)
    even = next((one for one in proposals if one.mechanism == "everywhere"), None)
    matters = even is not None and bench.kept([*cut, even.edit]).least < share
    if of == "output" and bench.kept([*cut, Mean.of(bench, part)]).least >= share:
        fit = max(fit, HALF)
    for one in sorted(proposals, key=lambda one: (not one.expected, one.constants, -one.fit)):
        if one.fit < fit and not (matters and one.fit >= HALF):
            continue
        kept = bench.kept([*cut, one.edit])
        if kept.least >= share:
            mostly = f"looks mostly ({one.fit:.2f} of its attention) "
            said = one.words if one.fit >= fit else one.words.replace("looks ", mostly, 1)
            return Finding(replace(one, words=said), kept)
    return None
