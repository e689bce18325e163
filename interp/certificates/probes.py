"""Compare a proof with the model itself on a few hundred inputs.

A proof is about weights, a certificate about the model that predict() runs. Before a certificate is issued, the inputs
with the smallest margins and some random ones go through predict() and through the full forward pass. Every margin must
agree with the proof up to the proof's bound on rounding; otherwise Mismatch is raised.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.architecture.answers import find_positions
from interp.architecture.task_model import TaskModel
from interp.errors import InterpError, short
from interp.tasks import Batch, Task

ROWS_AT_ONCE = 64


class Mismatch(InterpError):
    """The proof and the model disagree on an input, so no certificate is issued."""


@dataclass(frozen=True)
class Probes:
    """A proof's bounds on the margins of a few inputs, at every read position.

    right: mask of the right outputs; a single output s (a recognizer) counts as two, "no" (s <= 0) and "yes" (s > 0).
    Positions without a right output are not compared. low, high: bounds on the margin in exact arithmetic. bound: how
    far rounding can move it. at: the read positions (None: the model's own). among: the outputs that compete (None:
    all). whole: run the full forward pass in addition to predict().
    """

    batch: Batch
    right: Bool[Tensor, "rows *length n_out"]
    low: Float[Tensor, "rows *length"]
    high: Float[Tensor, "rows *length"]
    bound: Float[Tensor, "rows *length"]
    at: Int[Tensor, " rows"] | None = None
    among: Bool[Tensor, " n_out"] | None = None
    whole: bool = True


@torch.no_grad()
def compare(model: TaskModel, probes: Iterable[Probes]) -> int:
    """Run the model on probes and return the number of margins that agreed (answers, if only predict() is run).

    Raises Mismatch at the first that does not agree.
    """
    agreed = 0
    for each in probes:
        if each.whole:
            for start in range(0, len(each.batch), ROWS_AT_ONCE):
                agreed += _compare_margins(model, each, slice(start, start + ROWS_AT_ONCE))
        if each.at is None and each.among is None:
            answers = _compare_answers(model, each)
            agreed += 0 if each.whole else answers
    return agreed


def _compare_margins(model: TaskModel, probes: Probes, rows: slice) -> int:
    """Compare the margins of the full forward pass on some rows; return the number compared."""
    batch = probes.batch[rows]
    mask = batch.attention_mask if bool((~batch.attention_mask).any()) and model.task.pad_id is None else None
    out = model(batch.tokens.to(model.cfg.device), attention_mask=mask).double().cpu()
    if probes.right.ndim == 2:
        places = (
            find_positions(model.task, batch.tokens, model.spec.readout_at) if probes.at is None else probes.at[rows]
        )
        out = out[torch.arange(len(batch)), places]
    margin = margins(out, probes.right[rows], probes.among)
    low, high, bound = probes.low[rows], probes.high[rows], probes.bound[rows]
    slip = bound * 1.0 + 2.0**-52 * margin.abs()  # the second term is the rounding of the subtraction in margins()
    compared = probes.right[rows].any(-1) & bound.isfinite() & low.isfinite()
    bad = compared & ~((margin >= low - slip) & (margin <= high + slip))
    if bad.any():
        row = int(bad.flatten(1).any(1).int().argmax()) if bad.ndim > 1 else int(bad.int().argmax())
        place = (row, int(bad[row].int().argmax())) if bad.ndim > 1 else (row,)
        raise Mismatch(
            f"{model.spec.id}: no certificate, because proof and model disagree at {row_text(model.task, batch, row)}: "
            f"the margin is {float(margin[place]):g}, the proof says {float(low[place]):g} to {float(high[place]):g}, "
            f"up to {float(bound[place]):g}"
        )
    return int(compared.sum())


def margins(
    out: Float[Tensor, "*rows n_model_out"], right: Bool[Tensor, "*rows n_out"], among: Bool[Tensor, " n_out"] | None
) -> Float[Tensor, "*rows"]:
    """Return the largest right output minus the largest wrong one."""
    if right.shape[-1] == 2 and out.shape[-1] == 1:
        out = torch.cat([torch.zeros_like(out), out], -1)
    wrong = ~right if among is None else ~right & among
    return out.masked_fill(~right, -torch.inf).amax(-1) - out.masked_fill(~wrong, -torch.inf).amax(-1)


def _compare_answers(model: TaskModel, probes: Probes) -> int:
    """Compare predict() with the proof wherever the margin exceeds rounding; return the number compared."""
    found = model.predict(probes.batch.tokens).cpu()
    single = probes.right.sum(-1) == 1
    correct = found == probes.batch.labels
    sure = single & (probes.low > probes.bound)
    false = single & (probes.high < -probes.bound)
    bad = (sure & ~correct) | (false & correct)
    if bad.any():
        row = int(bad.flatten(1).any(1).int().argmax()) if bad.ndim > 1 else int(bad.int().argmax())
        says = "right" if (sure[row] & ~correct[row]).any() else "wrong"
        raise Mismatch(
            f"{model.spec.id}: no certificate, because the proof says that the answer at "
            f"{row_text(model.task, probes.batch, row)} is {says}, and predict says otherwise"
        )
    return int((sure | false).sum())


def row_text(task: Task, batch: Batch, row: int) -> str:
    """Write a row of a batch as text for a message."""
    return short(repr(task.format(batch.tokens[row, : int(batch.lengths[row])])))
