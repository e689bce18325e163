"""Evidence of certificates of max-of-k by inputs, multisets or products: a compact proof.

For max-of-k with one head, the checker makes the proof itself: outputs times the sum of weights are sums over
positions, so they are extreme if each position has its worst number (a compact proof, Gross et al. 2024). The evidence
states only the errors. The checker knows this task by name and reads K and v from its parameters, so the evidence
depends on the task's class.
"""

from typing import Any

from interp.certificates import check
from interp.certificates.certificate import Certificate
from interp.certificates.check.counts import errors_of_maxima, maxima_sentence
from interp.certificates.evidence import Finding, checker_model, register_evidence, round_bound_down
from interp.errors import InterpError
from interp.families.algorithmic.tasks.max_of_k import MaxOfK
from interp.models.architecture.task_model import TaskModel

REFUTED_MARGIN = 2.0**-16
"""Margin claimed for a model that errs, because its certificate does not contain one; the checker verifies it."""


@register_evidence("every input, as run", "every multiset", "every product of token sets")
def maxima_evidence(model: TaskModel, certificate: Certificate, options: dict[str, Any]) -> Finding | None:
    """Make evidence with the number of errors per maximum; None for other tasks and models."""
    task, spec = model.task, model.spec
    layer = spec.layers[0]
    plain = spec.direction == "causal" and len(spec.layers) == 1 and layer.n_heads == 1 and layer.mlp is None
    if not isinstance(task, MaxOfK) or not plain or spec.positions_enter != "residual" or spec.final_norm != "none":
        return None
    K, v = task.terms, task.base
    margin = REFUTED_MARGIN if certificate.status == "refuted" else certificate.worst_margin * (1 - 2.0**-10)
    margin = float.fromhex(round_bound_down(margin))
    errors = _errors(model, K, v, margin)
    total = sum(n for _, n in errors)
    if certificate.n_errors not in (None, total):
        raise InterpError(f"the certificate counts {certificate.n_errors} errors, its evidence {total}")
    subject = maxima_sentence(K, v, errors)
    return Finding("maxima", {"errors": errors}, [], margin, subject, lambda model: _search(model, K, v, 1)[1])


def _errors(model: TaskModel, K: int, v: int, margin: float) -> list[list[int]]:
    """Return the exact number of errors per maximum, by the checker's own search, which is the fastest method."""
    try:
        return _search(checker_model(model), K, v, check.fixed(margin))[0]
    except check.Fault as fault:
        raise InterpError(f"{model.spec.id} has no evidence: {fault}") from None


def _search(model: check.Model, K: int, v: int, margin: int) -> tuple[list[list[int]], int]:
    return errors_of_maxima(model, K, v, margin, lambda do, items: [do(*item) for item in items])
