"""Mechanisms: known ways in which parts of models compute, and how they are found and tested.

A mechanism inspects a part of a model and *proposes* a description and an ideal form. The ideal form replaces the part
in the running model. The proposal is accepted only if enough of the model's answers stay the same.

    @mechanism("itself", of="pattern")
    def itself(bench: Bench, part: Part) -> Iterator[Proposal]: ...

The files in this folder are imported automatically; functions elsewhere join with the same decorator.
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
"""What a mechanism replaces: a head's attention pattern, a part's output, or a head's values or an MLP's neurons."""


@dataclass(frozen=True)
class Proposal:
    """A mechanism's description of a part, with the ideal form that tests it.

    mechanism: its name. words: the description, to follow the part's name: "looks at the previous token". constants:
    number of constants in the ideal form. fit: agreement of the part with the form, from 0 to 1 (the same). facts:
    plain data. expected: whether it concerns a quantity of the program; such proposals are tried first.
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
    """A proposal that passed its test, with the answers kept when it and all cuts are applied."""

    proposal: Proposal
    kept: Kept

    def __str__(self) -> str:
        return f"{self.proposal.part} {self.proposal.words}"


Propose = Callable[[Bench, Part], Iterator[Proposal]]
_MECHANISMS: dict[str, tuple[Of, Propose]] = {}


def mechanism(name: str, of: Of) -> Callable[[Propose], Propose]:
    """Register a function (bench, part) -> proposals as a mechanism that every explanation tries.

    Raises InterpError if another function has the same name.
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
    """All mechanisms of a kind by name, including a user's own."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"{__package__}.{module.name}")
    return {name: propose for name, (kind, propose) in _MECHANISMS.items() if kind == of}


HALF = 0.5
"""Least fit of a pattern that is described with "mostly"; only used if uniform attention would lose answers."""


def found(bench: Bench, part: Part, of: Of, cut: Sequence[Edit], share: float, fit: float = 0.0) -> Finding | None:
    """The first mechanism whose ideal form keeps this share of the answers, or None.

    Expected mechanisms are tried first, then those with fewer constants. cut: edits that are also applied. fit: least
    agreement of the part with the form. For a pattern, a fit of HALF is enough, described with "mostly", if uniform
    attention in its place loses answers. If replacing the part by its mean also keeps the answers, the test is
    inconclusive, so the form must then explain HALF of the output's variance.
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
