"""Answers from outputs: decision rules, margins, losses and read positions.

All analyses use this module, so that scalar readouts, tolerances and restricted choices mean the same everywhere.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from interp.errors import InterpError
from interp.models.spec import ModelSpec
from interp.tasks import IGNORED, Batch, Task
from interp.tasks.batch import find_positions as find_positions
from interp.tasks.sets import pack_sets, unpack_sets

NO_ANSWER = "none, for its outputs are not finite"
NOT_NAMED = "an output that the task does not name"


@dataclass(frozen=True)
class Decision:
    """The rule that converts outputs to an output index.

    argmax: the index of the largest output, among all or among the indices `among`. sigmoid: for one output s, 1 if s >
    0, otherwise 0. indicator: for one output s, 1 if |s| <= tolerance, otherwise 0. set: the set of outputs above 0, as
    a class with bit i for output i (see tasks.sets).
    """

    kind: Literal["argmax", "sigmoid", "indicator", "set"] = "argmax"
    tolerance: float | None = None
    among: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if (self.kind == "indicator") != (self.tolerance is not None):
            raise InterpError(
                f"decision {self.kind!r} with tolerance = {self.tolerance}: an indicator needs a tolerance, and "
                "only an indicator has one"
            )
        if self.among is not None and (self.kind != "argmax" or len(set(self.among)) < 2):
            raise InterpError(f"among = {self.among}: an argmax chooses among at least two different outputs")


def decision_of(spec: ModelSpec) -> Decision:
    """Return the decision rule of a spec."""
    return Decision(spec.decision, spec.tolerance)


def decide(outputs: Float[Tensor, "*rows n_out"], rule: Decision | ModelSpec) -> Int[Tensor, "*rows"]:
    """Convert outputs to output indices (classes). Ties go to the lowest index."""
    rule = rule if isinstance(rule, Decision) else decision_of(rule)
    if rule.kind == "argmax":
        if rule.among is None:
            return outputs.argmax(-1)
        return torch.tensor(rule.among, device=outputs.device)[outputs[..., list(rule.among)].argmax(-1)]
    if rule.kind == "set":
        return pack_sets(outputs > 0)
    s = _single_output(outputs)
    return (s > 0).long() if rule.kind == "sigmoid" else (s.abs() <= (rule.tolerance or 0.0)).long()


def answers_of(task: Task, classes: Int[Tensor, "rows *length"], tokens: Int[Tensor, "rows length"]) -> Tensor:
    """Convert output indices to the units of Batch.labels; -1, which is never right, for those that are no answers."""
    named = classes < task.n_classes
    if bool(named.all()):
        return task.answers(classes, tokens)
    return task.answers(classes.where(named, 0), tokens).long().where(named, -1)


def with_others(output_ids: Int[Tensor, "n_out"], n_model_out: int, task: Task) -> Int[Tensor, "n_all"]:
    """Add the ids of the outputs that are not answers of the task, which compete with the answers in an argmax."""
    if task.decision is not None or len(output_ids) == 1:
        return output_ids
    others = torch.ones(n_model_out, dtype=torch.bool)
    others[output_ids] = False
    return torch.cat([output_ids, others.nonzero()[:, 0]])


def has_answer(outputs: Float[Tensor, "*rows n_out"]) -> Bool[Tensor, "*rows"]:
    """Return the mask of finite outputs. An output with inf or NaN is never right."""
    return outputs.isfinite().all(-1)


def correct(
    outputs: Float[Tensor, "*rows n_out"], classes: Int[Tensor, "*rows"], rule: Decision | ModelSpec
) -> Bool[Tensor, "*rows"]:
    """Test whether outputs are finite and give these classes."""
    return (decide(outputs, rule) == classes) & has_answer(outputs)


def word_of(task: Task, outputs: Float[Tensor, "n_out"], rule: Decision | ModelSpec) -> str:
    """Return the word for the answer that a model's outputs at one read position give."""
    if not bool(has_answer(outputs)):
        return NO_ANSWER
    return class_word(task, int(decide(outputs, rule)))


def class_word(task: Task, answer: int) -> str:
    """Return the word for the answer that a decision gives, which may be an output that is no answer of the task."""
    return task.word(answer) if answer < task.n_classes else NOT_NAMED


def margins(
    outputs: Float[Tensor, "*rows n_out"], classes: Int[Tensor, "*rows"], rule: Decision | ModelSpec
) -> Float[Tensor, "*rows"]:
    """Return the margin of each answer, in units of the outputs: positive if it is right, negative if it is wrong.

    argmax: the right output minus the best wrong one. sigmoid: s or -s. indicator: the distance of |s| from the
    tolerance. set: the smallest output, each signed so that positive is right.
    """
    rule = rule if isinstance(rule, Decision) else decision_of(rule)
    if rule.kind == "argmax":
        right = outputs.gather(-1, classes[..., None])
        others = outputs.scatter(-1, classes[..., None], -torch.inf)
        others = others if rule.among is None else others[..., list(rule.among)]
        return right[..., 0] - others.amax(-1)
    if rule.kind == "set":
        return (outputs * (2 * unpack_sets(classes, outputs.shape[-1]).to(outputs) - 1)).amin(-1)
    s = _single_output(outputs)
    sign = 2 * classes.to(s) - 1
    return sign * s if rule.kind == "sigmoid" else sign * ((rule.tolerance or 0.0) - s.abs())


def losses(
    outputs: Float[Tensor, "*rows n_out"], classes: Int[Tensor, "*rows"], rule: Decision | ModelSpec
) -> Float[Tensor, "*rows"] | None:
    """Return the cross-entropy per answer, in nats (set: binary, averaged over outputs); None for an indicator."""
    rule = rule if isinstance(rule, Decision) else decision_of(rule)
    if rule.kind == "set":
        wanted = unpack_sets(classes, outputs.shape[-1]).to(outputs)
        return functional.binary_cross_entropy_with_logits(outputs, wanted, reduction="none").mean(-1)
    if rule.kind == "indicator":
        return None
    if rule.kind == "sigmoid":
        s = _single_output(outputs)
        return functional.binary_cross_entropy_with_logits(s, classes.to(s), reduction="none")
    if rule.among is not None:
        outputs = torch.full_like(outputs, -torch.inf).index_copy(
            -1, torch.tensor(rule.among, device=outputs.device), outputs[..., list(rule.among)]
        )
    return outputs.logsumexp(-1) - outputs.gather(-1, classes[..., None])[..., 0]


def _single_output(outputs: Tensor) -> Tensor:
    if outputs.shape[-1] != 1:
        raise InterpError(f"outputs of shape {tuple(outputs.shape)}: a sigmoid or an indicator decides on one output")
    return outputs[..., 0]


# ---------------------------------------------------------------- right answers in certificates

# Tied outputs are an error, in a proof and in a run, although predict() gives the first of them: which of two equal
# numbers comes first says nothing about a model. Where a proof cannot tell a tie from rounding, an answer is undecided.


def right_in_run(
    out: Float[Tensor, "*rows n_out"], classes: Int[Tensor, "*rows"], rule: Decision | ModelSpec
) -> Bool[Tensor, "*rows"]:
    """Return which answers are right: the outputs are finite, and the margin is above 0."""
    return has_answer(out) & (margins(out.double(), classes, rule) > 0)


def said_in_run(task: Task, out: Float[Tensor, "n_out"], right: int, rule: Decision | ModelSpec) -> str:
    """Return the answer that a model's outputs give, for a counterexample; a tie with the right one is named."""
    out = out.detach()
    tied = bool(has_answer(out)) and float(margins(out.double(), torch.tensor(right), rule)) == 0
    return f"{word_of(task, out, rule)}{' (a tie)' if tied else ''}"


def surely_wrong(margin: Any, slack: Any) -> Any:
    """Return which margins are not above 0, whatever rounding up to `slack` has done to them. Arrays or tensors."""
    return (margin < -slack) | ((margin == 0) & (slack == 0))


# ---------------------------------------------------------------- read positions


def read_mask(task: Task, batch: Batch, at: str) -> Bool[Tensor, "rows length"]:
    """Return the mask of the read positions: all labeled positions, or one per row."""
    if at == "all":
        return task.classes(batch) != IGNORED
    mask = torch.zeros(batch.tokens.shape, dtype=torch.bool, device=batch.tokens.device)
    mask[torch.arange(len(mask)), find_positions(task, batch.tokens, at)] = True
    return mask


def right_classes(task: Task, batch: Batch, at: str) -> Int[Tensor, "reads"]:
    """Return the right output index at every read position, row by row.

    A read position without a label gets the first class of its row. Raises InterpError for a row without labels, and
    for labels that are no answers of the task.
    """
    classes = task.classes(batch)
    if classes.numel() and (largest := int(classes.max())) >= task.n_classes:
        raise InterpError(
            f"a batch has the answer {largest}; task {task.name} has the answers 0 to {task.n_classes - 1}"
        )
    if at == "all":
        return classes[classes != IGNORED].long()
    here = classes.gather(1, find_positions(task, batch.tokens, at)[:, None])[:, 0]
    if (missing := here == IGNORED).any():
        labelled = classes != IGNORED
        if not labelled.any(1).all():
            row = int((~labelled.any(1)).int().argmax())
            raise InterpError(f"row {row} has no position with an answer of task {task.name}")
        here = torch.where(missing, classes.gather(1, labelled.int().argmax(1)[:, None])[:, 0], here)
    return here.long()
