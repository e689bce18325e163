"""When an answer is right as a model runs; the same in all certificates.

Tied outputs are an error, in a proof and in a run, although predict() gives the first of them: which of two equal
numbers comes first says nothing about a model. Where a proof cannot tell a tie from rounding, the answer is undecided.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.architecture.answers import Decision, answered, margins, word_of
from interp.spec import ModelSpec
from interp.tasks import Task


def right_in_run(
    out: Float[Tensor, "*rows n_out"], classes: Int[Tensor, "*rows"], rule: Decision | ModelSpec
) -> Bool[Tensor, "*rows"]:
    """Return which answers are right: the outputs are finite, and the margin is above 0."""
    return answered(out) & (margins(out.double(), classes, rule) > 0)


def said_in_run(task: Task, out: Float[Tensor, "n_out"], right: int, rule: Decision | ModelSpec) -> str:
    """Return the answer that a model's outputs give, for a counterexample; a tie with the right one is named."""
    out = out.detach()
    tied = bool(answered(out)) and float(margins(out.double(), torch.tensor(right), rule)) == 0
    return f"{word_of(task, out, rule)}{' (a tie)' if tied else ''}"


def surely_wrong(margin: Any, slack: Any) -> Any:
    """Return which margins are not above 0, whatever rounding up to `slack` has done to them. Arrays or tensors."""
    return (margin < -slack) | ((margin == 0) & (slack == 0))
