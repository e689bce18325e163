"""Heads that attend by position: to all, the current, a neighboring, the mirror, the first or the last position."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from interp.measures.runs import Part
from interp.mechanisms.attention import Relation, closeness, proposals
from interp.mechanisms.base import Proposal, mechanism
from interp.mechanisms.bench import Bench, Pattern
from interp.mechanisms.fixed_patterns import in_words
from interp.mechanisms.kinds import neighbor_words
from interp.mechanisms.quantities_order import pairs

OFFSETS = (-1, -2, -3, 1, 2)


@mechanism("everywhere", of="pattern")
def everywhere(bench: Bench, part: Part) -> Iterator[Proposal]:
    """Propose even attention to all visible positions."""
    yield from proposals(bench, part, "everywhere", Relation("evenly at everything it sees", bench.visible))


@mechanism("itself", of="pattern")
def itself(bench: Bench, part: Part) -> Iterator[Proposal]:
    """Propose attention to the current position."""
    length = bench.visible.shape[1]
    yield from proposals(
        bench, part, "itself", Relation("at the current position", torch.eye(length, dtype=torch.bool) & bench.visible)
    )


@mechanism("offset", of="pattern")
def offset(bench: Bench, part: Part) -> Iterator[Proposal]:
    """Propose attention to the position at a fixed distance before or after."""
    place = torch.arange(bench.visible.shape[1])
    for step in OFFSETS:
        if step > 0 and bench.setting.causal:
            continue
        words = f"at {neighbor_words(step)}"
        holds = (place[None, :] - place[:, None] == step) & bench.visible
        yield from proposals(bench, part, f"offset {step:+d}", Relation(words, holds))


@mechanism("mirror", of="pattern")
def mirror(bench: Bench, part: Part) -> Iterator[Proposal]:
    """Propose attention to the mirror position in the string."""
    if bench.setting.causal:
        return
    view = bench.view
    first = view.content.long().argmax(1)
    last = view.tokens.shape[1] - 1 - view.content.flip(1).long().argmax(1)
    place = view.place
    holds = (place[None, :, None] + place[None, None, :] == (first + last)[:, None, None]) & view.content[:, None, :]
    holds = holds & view.content[:, :, None]
    yield from proposals(bench, part, "mirror", Relation("at the mirror position", holds & bench.visible))


@mechanism("partner", of="pattern")
def partner(bench: Bench, part: Part) -> Iterator[Proposal]:
    """Propose attention from a closing bracket to its opening bracket."""
    kinds = dict(pairs(bench.setting))
    if not kinds:
        return
    vocabulary, holds = bench.setting.vocabulary, torch.zeros_like(bench.visible)
    for row, (tokens, content) in enumerate(zip(bench.view.tokens.tolist(), bench.view.content.tolist())):
        stack: list[int] = []
        for at, (token, inside) in enumerate(zip(tokens, content)):
            word = vocabulary[token]
            if inside and word in kinds:
                stack.append(at)
            elif inside and word in kinds.values() and stack:
                holds[row, at, stack.pop()] = True
    words = "at the bracket that the current one closes"
    yield from proposals(bench, part, "partner", Relation(words, holds & bench.visible))


@mechanism("ends", of="pattern")
def ends(bench: Bench, part: Part) -> Iterator[Proposal]:
    """Propose attention to the first or the last token of the string."""
    view, place = bench.view, bench.view.place
    first = view.content.long().argmax(1)
    last = view.tokens.shape[1] - 1 - view.content.flip(1).long().argmax(1)
    for name, at in (("first", first), ("last", last)):
        if name == "last" and bench.setting.causal and bench.subject.read_at == "all":
            continue
        holds = (place == at[:, None])[:, None, :] & bench.visible
        yield from proposals(bench, part, f"{name} token", Relation(f"at the {name} token of the string", holds))


@mechanism("by position", of="pattern")
def by_position(bench: Bench, part: Part) -> Iterator[Proposal]:
    """Propose a fixed pattern, the same for all inputs of one length."""
    if part.head is None:
        return
    actual, lengths = bench.pattern(part), bench.population.batch.lengths
    form = torch.zeros_like(actual)
    matters = bench.matters(part)
    constants = 0
    for length in lengths.unique().tolist():
        rows = lengths == length
        if int(rows.sum()) < 2:
            return
        form[rows] = actual[rows].mean(0)
        constants += int(matters[rows].any(0).sum()) * length
    longest = int(lengths.argmax())
    where = in_words(form[longest], matters[longest].nonzero()[:, 0].tolist())
    words = "looks by a fixed pattern, whatever the tokens" + (f" ({where})" if where else "")
    yield Proposal("by position", "pattern", part, words,
                   Pattern(part, form), constants, closeness(actual, form, matters))  # fmt: skip
