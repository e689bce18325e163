"""Answers that are sets: at each position, any number of outputs can be right. The model's set: all logits above 0.

Models of formal languages are often trained this way, with binary cross-entropy: for each prefix, the answer is the set
of symbols that may follow. A set is stored as one integer, its class: bit i is 1 if output i is a member.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.errors import InterpError

MOST_OUTPUTS = 62
"""Sets are stored as 64-bit integers; negative ones mark positions without an answer."""


def pack_sets(members: Bool[Tensor, "*rows n_out"]) -> Int[Tensor, "*rows"]:
    """Store each set as one integer. Raises InterpError for more than 62 outputs."""
    n_out = members.shape[-1]
    if n_out > MOST_OUTPUTS:
        raise InterpError(f"sets of {n_out} outputs: at most {MOST_OUTPUTS} are supported")
    return (members.long() << torch.arange(n_out, device=members.device)).sum(-1)


def unpack_sets(classes: Int[Tensor, "*rows"], n_out: int) -> Bool[Tensor, "*rows n_out"]:
    """Return the members of each set (the inverse of pack_sets)."""
    return (classes[..., None] >> torch.arange(n_out, device=classes.device)) % 2 == 1


def set_word(answer: int, words: Sequence[str]) -> str:
    """Write a set as text: "{a, b}", or "{}" if it is empty."""
    return "{" + ", ".join(word for i, word in enumerate(words) if answer >> i & 1) + "}"
