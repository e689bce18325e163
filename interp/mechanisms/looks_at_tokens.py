"""Heads that attend by token: to marks, the same token, the token after it, the largest number, or by a table."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.measures.runs import Part
from interp.mechanisms.attention import SMALL, Relation, closeness, explained, proposals
from interp.mechanisms.base import Proposal, mechanism
from interp.mechanisms.bench import Bench, Pattern
from interp.mechanisms.kinds import few, plural

NAMED = 8
"""Largest number of tokens whose weights are named."""
CELLS = 4096
"""Largest number of entries of a proposed table of queries and keys."""


@mechanism("marks", of="pattern")
def marks(bench: Bench, part: Part) -> Iterator[Proposal]:
    """Propose attention to one mark, such as [BOS], [CLS] or '='."""
    for token in bench.setting.marks:
        if token == bench.subject.task.pad:
            continue
        holds = (bench.view.is_token(token) > 0)[:, None, :] & bench.visible
        yield from proposals(bench, part, f"mark {token}", Relation(f"at {token}", holds))


@mechanism("one token", of="pattern")
def one_token(bench: Bench, part: Part) -> Iterator[Proposal]:
    """Propose attention to all occurrences of one token."""
    for token in few(bench.setting):
        holds = (bench.view.is_token(token) > 0)[:, None, :] & bench.visible
        yield from proposals(bench, part, f"token {token}", Relation(f"at all {plural(token)}", holds))


@mechanism("same token", of="pattern")
def same_token(bench: Bench, part: Part) -> Iterator[Proposal]:
    """Propose attention to all occurrences of the current token, with or without the current position."""
    tokens = bench.view.tokens
    holds = (tokens[:, :, None] == tokens[:, None, :]) & bench.visible & bench.view.content[:, None, :]
    yield from proposals(bench, part, "same token", Relation("at all occurrences of the current token", holds))
    apart = holds & ~torch.eye(tokens.shape[1], dtype=torch.bool)
    words = "at the other occurrences of the current token"
    yield from proposals(bench, part, "same token elsewhere", Relation(words, apart))


@mechanism("after same token", of="pattern")
def after_same_token(bench: Bench, part: Part) -> Iterator[Proposal]:
    """Propose attention to the tokens that followed earlier occurrences of the current token: an induction head."""
    if not bench.setting.causal:
        return
    tokens = bench.view.tokens
    before = torch.nn.functional.pad(tokens[:, :-1], (1, 0), value=-1)
    place = bench.view.place
    holds = (tokens[:, :, None] == before[:, None, :]) & (place[None, :] <= place[:, None]) & bench.visible
    words = "at the tokens that followed earlier occurrences of the current one"
    yield from proposals(bench, part, "after same token", Relation(words, holds))
    last = torch.where(holds, place, -1).amax(-1, keepdim=True)
    words = "at the token that followed the most recent earlier occurrence of the current one"
    yield from proposals(bench, part, "after last same token", Relation(words, holds & (place == last)))


@mechanism("extreme number", of="pattern")
def extreme(bench: Bench, part: Part) -> Iterator[Proposal]:
    """Propose attention to the largest or the smallest visible number."""
    if not bench.setting.numbers:
        return
    content = bench.view.content[:, None, :] & bench.visible
    values = bench.view.values[:, None, :].expand_as(content)
    for name, sign in (("largest", 1), ("smallest", -1)):
        signed = torch.where(content, sign * values, -(1 << 40))
        holds = (signed == signed.amax(-1, keepdim=True)) & content
        yield from proposals(bench, part, f"{name} number", Relation(f"at the {name} number", holds))


@mechanism("by token", of="pattern")
def by_token(bench: Bench, part: Part) -> Iterator[Proposal]:
    """Propose one weight per key token, or per pair of query token and key token."""
    if part.head is None:
        return
    actual, tokens, matters = bench.pattern(part), bench.view.tokens, bench.matters(part)
    counted = bench.visible & matters[:, :, None]
    if not counted.any():
        return
    softmax = bool((actual[matters].sum(-1) - 1).abs().max() < 1e-3)
    n = len(bench.setting.vocabulary)
    key = tokens[:, None, :].expand_as(actual)
    for name, words, codes, cells in (
        ("by key token", "by a fixed weight for each attended token", key, n),
        ("by pair of tokens", "by a table of the current and the attended token", tokens[:, :, None] * n + key, n * n),
    ):
        if cells > CELLS:
            continue
        # Softmax weights are known up to a factor per query, so logs are compared within each query.
        values = actual.clamp(min=SMALL).log() if softmax else actual
        values = torch.where(counted, values, 0)
        if softmax:
            values = values - values.sum(-1, keepdim=True) / counted.sum(-1, keepdim=True).clamp(min=1)
        flat = codes[counted]
        total = torch.zeros(n * n).index_add_(0, flat, values[counted])
        often = torch.zeros(n * n).index_add_(0, flat, torch.ones(len(flat)))
        table = total / often.clamp(min=1)
        form = torch.where(bench.visible, table[codes].exp() if softmax else table[codes], 0)
        form = form / form.sum(-1, keepdim=True).clamp(min=SMALL) if softmax else form
        fit = closeness(actual, form, matters) if softmax else explained(actual, form, counted)
        used = int((often > 0).sum())
        weights = _weights(bench, table[:n].exp() if softmax else table[:n], often[:n] > 0) if cells == n else ""
        yield Proposal(name, "pattern", part, f"looks {words}{weights}", Pattern(part, form), used, fit)


def _weights(bench: Bench, table: Float[Tensor, "tokens"], seen: Bool[Tensor, "tokens"]) -> str:
    """List the weights of up to NAMED tokens relative to the largest; "" for more tokens."""
    if int(seen.sum()) > NAMED:
        return ""
    largest = float(table[seen].abs().max())
    each = [f"{bench.setting.vocabulary[at]} {float(table[at]) / largest:.2f}" for at in seen.nonzero()[:, 0].tolist()]
    return f" (relative to the largest: {', '.join(each)})" if largest > 0 else ""
