"""Outputs that carry the value of one or two quantities.

The ideal form replaces the output of a part by its mean over all positions with the same values of the quantities. If
the answers stay the same, the model does not use the other variation of the output.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.measures.runs import Part
from interp.mechanisms.base import Proposal, mechanism
from interp.mechanisms.bench import Bench, Given
from interp.mechanisms.kinds import Scope
from interp.mechanisms.quantities import Quantity, candidates

TRIED, PAIRED = 6, 6
"""Number of quantities proposed alone, and number of quantities from which pairs are formed."""
LOCAL = ("own", "position")
PER_CELL = 4
"""Least mean number of positions per value; with fewer, the form would merely list the inputs."""
STEPS = 32
"""Number of steps into which a number with too many values is divided."""


@mechanism("carries", of="output")
def carries(bench: Bench, part: Part) -> Iterator[Proposal]:
    """Propose the quantities that explain most of a part's output, alone and in pairs."""
    scopes: tuple[Scope, ...] = ("seen",) if bench.setting.causal else ("seen", "upto", "from")
    matters = bench.matters(part)
    output = bench.output(part)[matters].double()
    tried = list(dict.fromkeys([*bench.hints, *candidates(bench.setting, scopes)]))
    ranked: list[tuple[float, Quantity]] = []
    for one in tried:
        codes = coded([one], bench, matters, STEPS)
        if codes is not None and int(codes[matters].max()) > 0:
            ranked.append((explained(output, codes[matters]), one))
    ranked.sort(key=lambda pair: -pair[0])
    known = {one for _, one in ranked}
    hints = [one for one in bench.hints if one in known]
    alone = list(dict.fromkeys([*hints, *(one for _, one in ranked[:TRIED])]))
    for one in alone:
        yield _proposal(bench, part, [one], matters)
    best = list(dict.fromkeys([*alone[: len(hints)], *_local(known), *(one for _, one in ranked[:PAIRED])]))
    pairs = []
    for one, other in combinations(best, 2):
        if (codes := coded([one, other], bench, matters)) is not None:
            telling = one in hints and other.kind in LOCAL
            pairs.append((telling, explained(output, codes[matters]), one, other))
    for _, _, one, other in sorted(pairs, key=lambda pair: (-pair[0], -pair[1]))[: TRIED + len(hints)]:
        yield _proposal(bench, part, [one, other], matters)


def _local(known: Iterable[Quantity]) -> list[Quantity]:
    """Return the current token and the position, on which nearly all outputs also depend."""
    return [one for one in known if one.kind in LOCAL]


def _proposal(bench: Bench, part: Part, quantities: Sequence[Quantity], matters: Tensor) -> Proposal:
    exact = coded(quantities, bench, matters)
    codes = exact if exact is not None else coded(quantities, bench, matters, STEPS)
    assert codes is not None
    means = cell_means(bench.output(part), codes, matters)
    fit = explained(bench.output(part)[matters].double(), codes[matters])
    words = " and ".join(one.brief for one in quantities) + (
        "" if exact is not None else f", rounded to {len(means)} levels"
    )
    facts = {"quantities": [one.to_json() for one in quantities]}
    known = set(quantities) <= set(bench.hints)
    edit = Given(part, codes, means, matters)
    return Proposal("carries", "output", part, f"carries {words}", edit, len(means), fit, facts, known)


def coded(
    quantities: Sequence[Quantity], bench: Bench, matters: Tensor, steps: int | None = None
) -> Int[Tensor, "rows length"] | None:
    """Number the combinations of values at the positions of a mask (0 elsewhere).

    Returns None if there are fewer than PER_CELL positions per combination. steps: the number of intervals into which a
    single quantity with too many values is divided.
    """
    codes = torch.zeros(int(matters.sum()), dtype=torch.long)
    for one in quantities:
        known, own = one.values(bench.view)[matters].unique(return_inverse=True)
        if steps is not None and len(quantities) == 1 and not one.tokens and len(known) * PER_CELL > len(own):
            known, own = _in_steps(own, min(steps, len(own) // PER_CELL))
        known, codes = (codes * len(known) + own).unique(return_inverse=True)
    if len(known) * PER_CELL > len(codes):
        return None
    found = torch.zeros(matters.shape, dtype=torch.long)
    found[matters] = codes
    return found


def _in_steps(ranks: Int[Tensor, "positions"], steps: int) -> tuple[Tensor, Tensor]:
    """Divide ranks of values into steps with about equal numbers of positions; equal values stay together."""
    below = torch.bincount(ranks).cumsum(0) - torch.bincount(ranks)  # positions with a lower value
    known, codes = (below[ranks] * steps // max(len(ranks), 1)).unique(return_inverse=True)
    return known, codes


def cell_means(output: Tensor, codes: Tensor, mask: Tensor) -> Float[Tensor, "cells d"]:
    """Return the mean output for each code, over the positions of a mask."""
    n, flat = int(codes.max()) + 1, codes[mask]
    total = torch.zeros(n, output.shape[-1], dtype=torch.float64).index_add_(0, flat, output[mask].double())
    often = torch.zeros(n, dtype=torch.float64).index_add_(0, flat, torch.ones(len(flat), dtype=torch.float64))
    return (total / often.clamp(min=1)[:, None]).float()


def explained(output: Float[Tensor, "positions d"], codes: Int[Tensor, "positions"]) -> float:
    """Return the share of the variance of the output that the codes explain."""
    spread = float(((output - output.mean(0)) ** 2).sum())
    if spread <= 0:
        return 0.0
    n = int(codes.max()) + 1
    total = torch.zeros(n, output.shape[1], dtype=torch.float64).index_add_(0, codes, output)
    often = torch.zeros(n, dtype=torch.float64).index_add_(0, codes, torch.ones(len(codes), dtype=torch.float64))
    means = total / often.clamp(min=1)[:, None]
    return float((often[:, None] * (means - output.mean(0)) ** 2).sum()) / spread
