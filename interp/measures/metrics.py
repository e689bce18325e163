"""What patching measures of a run's outputs: one number for each answer at which the inputs of a pair differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import InterpError, UnsupportedError, check_one_of
from interp.measures.minimal_pairs import Compared
from interp.models.architecture.answers import Decision, losses
from interp.models.subject import Subject
from interp.tasks.sets import unpack_sets

Named: TypeAlias = Literal["logit difference", "loss", "probability", "KL"]
Metric: TypeAlias = Named | Callable[[Tensor, Compared], Tensor]
"""A named metric, or a function of logits (reads, n_out), in the task's order, and the answers compared: (reads,)."""


def leaning(subject: Subject, logits: Float[Tensor, "reads n_out"], where: Compared) -> Float[Tensor, "reads"]:
    """Return the logit difference of the clean and the corrupted answer."""
    rule, rows = subject.decision, torch.arange(len(logits))
    if rule.kind == "argmax":
        return logits[rows, where.clean] - logits[rows, where.corrupted]
    if rule.kind == "set":  # summed over the outputs in which the two answers differ
        mine, theirs = (unpack_sets(classes, logits.shape[1]).to(logits) for classes in (where.clean, where.corrupted))
        return (logits * (mine - theirs)).sum(-1)
    s = logits[:, 0] if rule.kind == "sigmoid" else (rule.tolerance or 0.0) - logits[:, 0].abs()
    return torch.where(where.clean == 1, s, -s)


def measured(
    subject: Subject,
    metric: Metric,
    logits: Float[Tensor, "reads n_out"],
    where: Compared,
    clean: Float[Tensor, "reads n_out"],
) -> Float[Tensor, "reads"]:
    """Return the metric of outputs. clean: the outputs of the clean run at the same reads.

    "logit difference" of the clean and the corrupted answer; "loss" of the clean answer in nats, and its "probability";
    "KL", the divergence of the answers' distribution from the clean run's, in nats. Raises InterpError for an unknown
    metric and for a function that does not return one number for each read, and UnsupportedError if outputs are not a
    distribution.
    """
    if callable(metric):
        numbers = metric(logits, where)
        if not isinstance(numbers, Tensor) or numbers.shape != logits.shape[:1]:
            raise InterpError(
                f"the metric must return a tensor, one number for each of the {len(logits)} reads, (reads,)"
            )
        return numbers
    if check_one_of("metric", metric, get_args(Named)) == "logit difference":
        return leaning(subject, logits, where)
    lost = losses(logits, where.clean, subject.decision)
    if lost is None:
        raise UnsupportedError(f"metric {metric!r} needs outputs that are a distribution; this model's are distances")
    if metric == "KL":
        return _divergence(subject.decision, clean, logits)
    return lost if metric == "loss" else (-lost * (logits.shape[1] if subject.decision.kind == "set" else 1)).exp()


def _divergence(
    rule: Decision, ours: Float[Tensor, "reads n_out"], theirs: Float[Tensor, "reads n_out"]
) -> Float[Tensor, "reads"]:
    """Return the KL divergence of the second distribution of answers from the first, in nats."""
    if rule.kind == "argmax":
        chosen: Any = slice(None) if rule.among is None else list(rule.among)
        mine, other = (torch.log_softmax(logits[:, chosen], -1) for logits in (ours, theirs))
        return (mine.exp() * (mine - other)).sum(-1)
    total = torch.zeros_like(ours)
    for sign in (1, -1):  # each output says yes or no
        mine, other = (torch.nn.functional.logsigmoid(sign * logits) for logits in (ours, theirs))
        total = total + mine.exp() * (mine - other)
    return total.sum(-1)
