"""What a head would read with even attention: its shares, divided by the weights of its scores.

So how often each value occurs is known again from the shares of a soft head, as models that count by them know it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

OCCURS = -1e3
"""Values with scores below this have no share to be divided."""


@dataclass(frozen=True)
class Evened:
    """Map: each share divided by exp(score) of its value; they sum to one again.

    of: the head's query (none if it is a constant), and the head, which has softmax and reads what its scores are
    about. scores: the head's own, (values of query) x (values), so they are not counted again.
    """

    name: str
    of: tuple[str, ...]
    scores: tuple[tuple[float, ...], ...]
    part: str = ""

    @property
    def head(self) -> str:
        return self.of[-1]

    @property
    def constants(self) -> int:
        return 0


def evened(step: Evened, made: Mapping[str, Tensor]) -> Float[Tensor, "rows length values"]:
    """The shares of even attention; 0 where nothing is read."""
    scores = torch.tensor(step.scores, dtype=torch.float64)
    lowest = torch.where(scores > OCCURS, scores, torch.inf).amin(1, keepdim=True)
    weights = torch.where(scores > OCCURS, (lowest - scores).exp(), 0.0)
    each = weights[made[step.of[0]].argmax(-1) if len(step.of) > 1 else torch.zeros((), dtype=torch.long)]
    found = made[step.head] * each
    return found / found.sum(-1, keepdim=True).clamp(min=1e-300)
