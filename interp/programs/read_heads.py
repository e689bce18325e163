"""Describe a head: where it attends by two variables, and what it reads; judged in the running model."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from interp.measures.runs import Part
from interp.programs.heads import (
    Pattern,
    Queries,
    alike,
    hardened,
    ordered,
    patterns,
    soft,
    values_by,
    values_of_shares,
)  # fmt: skip
from interp.programs.quantize import Quantized
from interp.programs.read_sums import describe_by_sums
from interp.programs.read_waves import attention_by_waves
from interp.programs.reading import MOST_VALUES, TRIED, Reading, matrix
from interp.programs.running import Running, scaled, softmax
from interp.programs.steps import Head, Linear, Step

CLOSE = 0.05
"""Total variation of a pattern, or share of variance of values that is left out, up to which a description is close."""
EXACT = 1e-3
"""The same of a description that is exact up to rounding; where there is one, no looser one is tried."""
SELECTED = 0.01
"""Total variation of a pattern from one without grades, up to which the head selects keys, and weighs none."""


def describe_head(reading: Reading, part: Part) -> None:
    enough = reading.enough()
    found = reading.quantized(part)
    name = str(part)
    if found.size == 1:
        reading.minor(part, found)
        return
    asked = queries(reading, part, found.needed)
    one = selected(reading, part, found, asked, enough)
    if one is None:
        if asked.total or not describe_by_sums(reading, part, found):
            reading.keep(part, found, "its attention and values are no table over variables found so far")
        return
    step, mean, value = one
    steps: list[Step] = [step]
    if waves := attention_by_waves(reading, found, step, mean, enough):
        steps, value = waves, (reading.variable(*waves) @ mean.double()).float()
    if not reading.explain(part, found, steps, mean, value, enough):
        reading.keep(part, found, "as a table of attention and values, it does not keep the answers")
        return
    if name not in reading.codes(found.needed) and found.size <= MOST_VALUES and found.share >= enough:
        add_level(reading, part, found, mean, enough)


def elsewhere(reading: Reading, part: Part) -> float:
    """How much of a described head's attention in the model goes elsewhere, where the head matters: see
    `Queries.distance`."""
    step = reading.step(str(part))
    if not isinstance(step, Head):
        raise ValueError(f"{part} is not described as a head")
    made = reading.after([one for one in reading.steps if one.name not in reading.made])
    asked = queries(reading, part, reading.needed[str(part)], reading.running.original)
    return asked.far(step.attention(made, reading.seen)[asked.rows, asked.positions])


def queries(reading: Reading, part: Part, where: Tensor, running: Running | None = None) -> Queries:
    """The queries of a head at some positions, in the model with its descriptions so far, or in another one."""
    running = running or reading.running
    rows, positions, scores = running.scores(part)
    there = where[rows, positions]
    rows, positions = rows[there], positions[there]
    block = running.blocks[part.layer]
    counts = reading.seen[rows, positions].float()
    times = torch.ones(len(rows), 1)
    if scaled(block):
        times = counts.logsumexp(-1, keepdim=True).clamp(min=1e-9)  # of one token, no score counts
    return Queries(rows, positions, scores[there] / times, counts, times, not softmax(block))


def selected(
    reading: Reading, part: Part, found: Quantized, asked: Queries, enough: float
) -> tuple[Head, Tensor, Tensor] | None:
    """The simplest attention by two variables and value by a third that take the head's place."""
    v, low = reading.running.v(part), reading.low(part)
    pattern = fitting_pattern(reading, part, found, asked, v, enough)
    if pattern is None:
        return None
    pattern, everywhere = everywhere_alike(reading, part, asked, pattern)
    hard = hardened(pattern)
    graded = given(pattern, asked)
    codes_ = {"": (torch.zeros_like(reading.running.batch.tokens), 1), **reading.codes(part=part)}
    query, key = codes_[pattern.query][0], codes_[pattern.key][0]

    def weights(scores: Tensor, asked: Queries = asked) -> Tensor:
        return asked.attention(scores[query[asked.rows, asked.positions][:, None], key[asked.rows]])

    def missing(scores: Tensor) -> bool:
        """Whether, at some query, no key is there that is selected; places are there or not whatever the tokens are."""
        there = scores[query[asked.rows, asked.positions][:, None], key[asked.rows]] == 0
        return pattern.key != "position" or not bool((there & (asked.counts > -torch.inf)).any(-1).all())

    def far(scores: Tensor) -> float:
        return float((weights(scores) - asked.pattern).abs().sum(-1).mean()) / 2

    def good(scores: Tensor) -> bool:
        return reading.stays(part, with_attention(found, asked, weights(scores), v)) >= enough

    scores = graded
    # An exact pattern also says which key comes next where the selected ones are missing.
    order = missing(hard) and far(graded) < EXACT / 10 and ordered(pattern)
    selects = not reading.strict or (far(hard) <= SELECTED and not order)
    if selects and not asked.total and good(hard):
        scores = hard
    elif pattern.query and pattern.key:
        scores = fewest_exceptions(pattern, graded, good if asked.total else lambda one: far(one) < EXACT)
    attends = (pattern.query, pattern.key, matrix(scores))
    if scores is hard and bool((hard == 0)[pattern.seen].all()):
        attends = ("", "", ((0.0,),))  # evenly to all
    received = torch.zeros(reading.counts.shape).index_add_(0, everywhere.rows, weights(scores, everywhere).abs())
    tried = []
    read = reading.read(part)[2]
    known = reading.codes(part=part)
    for name, weights_ in reading.made.items():
        if not reading.allowed(name, read) or not reading.before(name, part):
            continue
        if name in known:
            mean, left = values_by(v, received, *known[name], low)
        elif weights_.shape[-1] <= MOST_VALUES:
            mean, left = values_of_shares(v, received, weights_, low)
        else:
            continue
        tried.append((weights_.shape[-1], left, name, mean))
    near = nearby([left for _, left, _, _ in tried] or [1.0])
    for _, left, name, mean in sorted(tried, key=lambda one: one[:2]):
        if left <= near:
            step = Head(str(part), *attends, name, str(part), asked.total)
            step = replace(step, scaled=scaled(reading.running.blocks[part.layer]) and not step.hard)
            value = (reading.variable(step) @ mean.double()).float()
            if reading.stays(part, reading.spread(found, value)) >= enough:
                return step, mean, value
    return None


def given(pattern: Pattern, asked: Queries) -> Tensor:
    """The scores of a pattern; without softmax, no attention where no pair was seen."""
    return pattern.scores.masked_fill(~pattern.seen, 0.0) if asked.total else soft(pattern)


def fewest_exceptions(pattern: Pattern, weights: Tensor, good: Callable[[Tensor], bool]) -> Tensor:
    """The weights with as many pairs alike as will do, at least half of them; else as they are."""
    most = weights.numel() // 2
    if not good(alike(weights, pattern.seen, most)):
        return weights
    n = bisect_left(range(most), True, key=lambda n: good(alike(weights, pattern.seen, n)))
    return alike(weights, pattern.seen, n)


def everywhere_alike(reading: Reading, part: Part, asked: Queries, pattern: Pattern) -> tuple[Pattern, Queries]:
    """A pattern fitted at all positions, if it is exact there, too: it then says what the head does where that does not
    matter. Else the pattern as it is."""
    every = queries(reading, part, reading.running.mask)
    if len(every.rows) == len(asked.rows) or pattern.distance >= EXACT / 10:
        return pattern, asked
    codes = reading.codes(part=part)
    names = ({name: codes[name]} if name else {} for name in (pattern.query, pattern.key))
    (again,) = (one for one in patterns(every.some(), *names) if (one.query, one.key) == (pattern.query, pattern.key))
    return (again, every) if again.distance < EXACT / 10 else (pattern, asked)


def fitting_pattern(
    reading: Reading, part: Part, found: Quantized, asked: Queries, v: Tensor, enough: float
) -> Pattern | None:
    """The cheapest pattern by two variables that takes the place of the head's."""
    some = asked.some()
    queries, keys, _ = reading.read(part)

    known = reading.codes(part=part)
    fitted = patterns(
        some,
        {name: one for name, one in known.items() if reading.allowed(name, queries)},
        {name: one for name, one in known.items() if reading.allowed(name, keys)},
    )
    return first_fitting(reading, part, found, asked, v, enough, list(fitted))


def first_fitting(
    reading: Reading, part: Part, found: Quantized, asked: Queries, v: Tensor, enough: float, fitted: list[Pattern]
) -> Pattern | None:
    """The first of these patterns, cheapest first, that takes the place of the head's in the running model."""
    codes_ = {"": (torch.zeros_like(reading.running.batch.tokens), 1), **reading.codes(part=part)}
    limit = nearby([one.distance for one in fitted])
    near = [one for one in fitted if one.distance <= limit]
    for one in sorted(near, key=lambda one: (one.cost, one.distance))[:TRIED]:
        cell = codes_[one.query][0][asked.rows, asked.positions][:, None], codes_[one.key][0][asked.rows]
        weights = asked.attention(given(one, asked)[cell])
        if reading.stays(part, with_attention(found, asked, weights, v)) >= enough:
            return one
    return None


def with_attention(found: Quantized, asked: Queries, weights: Tensor, v: Tensor) -> Tensor:
    """The head's value with other attention at the queries that matter."""
    new = found.elsewhere.clone()
    new[asked.rows, asked.positions] = torch.einsum("nk,nkd->nd", weights, v[asked.rows])
    return new


def add_level(reading: Reading, part: Part, found: Quantized, mean: Tensor, enough: float) -> None:
    """A soft head's value as a code: the nearest of its vectors, by what later parts read."""
    low = reading.low(part)
    seen, centers = (mean @ low).double(), (found.vectors @ low).double()
    weights, bias = 2 * seen @ centers.T, -centers.square().sum(1)
    name = f"{part} level"
    values = tuple(f"level {i}" for i in range(found.size))
    step = Linear(name, (str(part),), (matrix(weights),), tuple(bias.tolist()), values, str(part))
    if reading.stays(part, found.put(reading.code(step))) >= enough:
        reading.add(step)


def nearby(distances: Sequence[float]) -> float:
    """Up to which distance descriptions are tried, cheapest first."""
    best = min(distances)
    return 10 * best + 1e-9 if best < EXACT / 10 else max(CLOSE, 1.5 * best)
