"""The model itself on a few hundred inputs of the domain, against what a proof says of them.

A proof is about weights; a certificate is about the model that predict() runs. Before a certificate is given, inputs
with the smallest margins and others drawn at random are run through predict() and through the whole forward pass, and
every margin must be what the proof says, up to its own bound of the rounding. A mismatch is an error, whoever is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.architecture.answers import find_positions
from interp.architecture.task_model import TaskModel
from interp.errors import InterpError
from interp.tasks import Batch

ROWS_AT_ONCE = 64


class Mismatch(InterpError):
    """The proof and the model say different things of one input: no certificate is given."""


@dataclass(frozen=True)
class Probes:
    """What a proof says of a few inputs, at every position that is read.

    right: which outputs are right; of one output s (a recognizer) there are two, "no" (s <= 0) and "yes" (s > 0). Where
    none is right nothing is said. low, high: the margin in exact arithmetic lies between them; bound: how far rounding
    can move it. at: the positions that are read (None: where the model is read), among: the outputs that are compared
    (None: all). whole: run the whole forward pass, and not only predict().
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
    """Run the model on probes; how many margins agreed. Raises Mismatch for the first that does not."""
    agreed = 0  # of each input the margin, or where that is not compared the answer
    for each in probes:
        for start in range(0, len(each.batch), ROWS_AT_ONCE):
            if each.whole:
                agreed += _part(model, each, slice(start, start + ROWS_AT_ONCE))
        if each.at is None and each.among is None:
            said = _answers(model, each)
            agreed += 0 if each.whole else said
    return agreed


def _part(model: TaskModel, probes: Probes, rows: slice) -> int:
    """Margins of the whole forward pass on some rows."""
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
    slip = bound * 1.0 + 2.0**-52 * margin.abs()  # the subtraction here
    said = probes.right[rows].any(-1) & bound.isfinite() & low.isfinite()
    bad = said & ~((margin >= low - slip) & (margin <= high + slip))
    if bad.any():
        row = int(bad.flatten(1).any(1).int().argmax()) if bad.ndim > 1 else int(bad.int().argmax())
        place = (row, int(bad[row].int().argmax())) if bad.ndim > 1 else (row,)
        raise Mismatch(
            f"{model.spec.id}: no certificate, because proof and model disagree at {_text(model, batch, row)}: the "
            f"margin is {float(margin[place]):g}, the proof says {float(low[place]):g} to {float(high[place]):g}, "
            f"up to {float(bound[place]):g}"
        )
    return int(said.sum())


def margins(
    out: Float[Tensor, "*rows n_model_out"], right: Bool[Tensor, "*rows n_out"], among: Bool[Tensor, " n_out"] | None
) -> Float[Tensor, "*rows"]:
    """The best right output less the best wrong one."""
    if right.shape[-1] == 2 and out.shape[-1] == 1:
        out = torch.cat([torch.zeros_like(out), out], -1)
    wrong = ~right if among is None else ~right & among
    return out.masked_fill(~right, -torch.inf).amax(-1) - out.masked_fill(~wrong, -torch.inf).amax(-1)


def _answers(model: TaskModel, probes: Probes) -> int:
    """What predict() answers, wherever the proof says that the answer is right or wrong beyond rounding; how many."""
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
            f"{_text(model, probes.batch, row)} is {says}, and predict says otherwise"
        )
    return int((sure | false).sum())


def _text(model: TaskModel, batch: Batch, row: int) -> str:
    return repr(model.task.format(batch.tokens[row, : int(batch.lengths[row])]))
