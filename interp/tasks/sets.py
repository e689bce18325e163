"""Answers that are sets: at each position, which of the outputs are right (their logits above 0), several or none.

Formal languages are often learned so: for each prefix the set of symbols that may follow, trained with binary
cross-entropy. A set is one integer, its class: bit i is set where output i belongs to it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.errors import InterpError

MOST_OUTPUTS = 62
"""Sets are 64-bit integers, and negative ones mark positions without an answer."""


def pack_sets(members: Bool[Tensor, "*rows n_out"]) -> Int[Tensor, "*rows"]:
    """Each set as one integer. Raises InterpError for more than 62 outputs."""
    n_out = members.shape[-1]
    if n_out > MOST_OUTPUTS:
        raise InterpError(f"sets of {n_out} outputs: at most {MOST_OUTPUTS} are supported")
    return (members.long() << torch.arange(n_out, device=members.device)).sum(-1)


def unpack_sets(classes: Int[Tensor, "*rows"], n_out: int) -> Bool[Tensor, "*rows n_out"]:
    """The members of each set; the inverse of pack_sets."""
    return (classes[..., None] >> torch.arange(n_out, device=classes.device)) % 2 == 1


def set_word(answer: int, words: Sequence[str]) -> str:
    """A set in words: "{a, b}"; "{}" where nothing belongs to it."""
    return "{" + ", ".join(word for i, word in enumerate(words) if answer >> i & 1) + "}"
