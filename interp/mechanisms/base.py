"""Mechanisms: propose what a part of a model computes, and test the proposals.

A mechanism inspects a part of a model and *proposes* a description and an ideal form. The ideal form replaces the part
in the running model. A proposal is accepted only if enough of the model's answers stay the same.

    @mechanism("itself", of="pattern")
    def itself(bench: Bench, part: Part) -> Iterator[Proposal]: ...

The files in this folder are imported automatically. Functions in other files use the same decorator.
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
"""What a mechanism replaces: an attention pattern, the output of a part, or ("inside") a head's values or neurons."""


@dataclass(frozen=True)
class Proposal:
    """A description of a part, with the ideal form that tests it.

    mechanism: its name. words: the description, which follows the name of the part: "looks at the previous token".
    constants: number of constants in the ideal form. fit: agreement of the part with the form, from 0 to 1 (equal).
    facts: further results as plain data. expected: whether it concerns a quantity of the program; such proposals are
    tried first.
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
    """A proposal that passed its test. kept: the answers that stay the same when it and all cuts are applied."""

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
    """Return all mechanisms of a kind by name, including those of users."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"{__package__}.{module.name}")
    return {name: propose for name, (kind, propose) in _MECHANISMS.items() if kind == of}


HALF = 0.5
"""Least fit of a pattern that is described with "mostly". Used only if uniform attention would lose answers."""


def found(bench: Bench, part: Part, of: Of, cut: Sequence[Edit], share: float, fit: float = 0.0) -> Finding | None:
    """Return the first proposal whose ideal form keeps this share of the answers, or None.

    Expected proposals are tried first, then those with fewer constants.

    Args:
        cut: edits that are also applied.
        fit: least agreement of the part with the form. For a pattern, HALF is enough, described with "mostly", if
            uniform attention loses answers. For an output whose mean also keeps the answers, the test is inconclusive,
            so the form must explain at least HALF of the variance.
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
