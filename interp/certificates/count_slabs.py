"""Logits of a model in count space on slabs of a box of counts.

A slab has a fixed n0, and n1 on one side of it, so the right token is the same everywhere. A head's output is a ratio
of two sums. Each sum has one part that depends only on n1 and one that depends only on n2.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.architecture.reduced import SAFE_SPREAD, CountedRows, TokenTables, reduced_outputs
from interp.tasks.counted import CountBox, CountedShape

Question = Literal["answer", "4 against 5", "end"]


@dataclass(frozen=True)
class Slab:
    """All inputs of a box with a fixed n0, and n1 in a range on one side of it; they have the same right answer.

    keys: the counts that the query token sees at the slab's smallest n1 and n2. right: index of the right logit, among
    all or among those of the two answers. varied: the tokens counted by n1 and n2.
    """

    n0: int
    n1: Int[np.ndarray, " n1"]
    n2: Int[np.ndarray, " n2"]
    query: int
    keys: Int[Tensor, " d_vocab"]
    right: int
    varied: tuple[int, int]

    def counts(self, index: Int[np.ndarray, " inputs"]) -> Int[np.ndarray, "inputs 3"]:
        """Return (n0, n1, n2) of inputs, numbered with n2 running fastest."""
        one, two = np.divmod(index, len(self.n2))
        return np.stack([np.full_like(one, self.n0), self.n1[one], self.n2[two]], 1)


def slabs(shape: CountedShape, box: CountBox, question: Question) -> Iterator[Slab]:
    (low0, high0), (low1, high1), (low2, high2) = box.ranges.values()
    n2 = np.arange(low2, high2 + 1)
    for n0 in range(low0, high0 + 1):
        for first, last in ((low1, min(n0, high1)), (max(n0 + 1, low1), high1)):
            if first > last:
                continue
            rows = shape.end_rows if question == "end" else shape.answer_rows
            query, keys, right = rows(torch.tensor([[n0, first, low2]]))
            yield Slab(n0, np.arange(first, last + 1), n2, int(query), keys[0], int(right), shape.counted[1:])


def slab_logits(tables: TokenTables, slab: Slab) -> Float[Tensor, "n_out inputs"]:
    """Return the logits of one model on a slab, by a softmax per row if attention weights could underflow."""
    scores, values = tables.scores[0, :, slab.query], tables.values[0]
    first, second = slab.varied
    offset, one, two = tables.offset[0, slab.query][:, None], len(slab.n1), len(slab.n2)
    if float((scores.amax(-1) - scores.amin(-1)).max()) >= SAFE_SPREAD[torch.float64]:
        keys = slab.keys.double().repeat(one * two, 1)
        keys[:, first] += torch.arange(one).repeat_interleave(two)
        keys[:, second] += torch.arange(two).repeat(one)
        return reduced_outputs(tables, CountedRows(torch.full((1, one * two), slab.query), keys[None]))[0].T
    weights = (scores - scores.amax(-1, keepdim=True)).exp()  # (heads, d_vocab)
    terms = torch.cat([weights[..., None] * values, weights[..., None]], -1).movedim(1, -1)  # (heads, d_head + 1, key)
    corner = (terms @ slab.keys.double())[..., None]
    by_one = corner + terms[..., first, None] * torch.arange(one)
    by_two = terms[..., second, None] * torch.arange(two)
    sums = by_one[..., None] + by_two[..., None, :]  # (heads, d_head + 1, n1, n2)
    z = sums[:, :-1] / sums[:, -1:]
    assert tables.readout is not None
    return tables.readout[0].flatten(0, 1).T @ z.flatten(2).flatten(0, 1) + offset


def between(tables: TokenTables, right: int, wrong: int) -> TokenTables:
    """Return tables for the logit difference of two tokens, as the logits (right - wrong, 0)."""
    assert tables.readout is not None
    readout = tables.readout[..., right] - tables.readout[..., wrong]
    folded = tables.values @ readout[..., None]
    eye = torch.tensor([1.0, 0.0], dtype=torch.float64).expand(*readout.shape[:2], 1, 2)
    offset = tables.offset[..., right] - tables.offset[..., wrong]
    return TokenTables(tables.scores, folded, eye, torch.stack([offset, torch.zeros_like(offset)], -1))
