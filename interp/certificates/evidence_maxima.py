"""Evidence of a max-of-k certificate: one bound for each maximum, or, where the model errs, each of its multisets.

One head's outputs, times the sum of its weights, are sums over tokens: with a given maximum they are extreme where all
other numbers are equal. This is a compact proof (Gross et al. 2024): v maxima in the place of v^K inputs.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from interp.architecture.reduced import stack_one, token_tables
from interp.architecture.task_model import TaskModel
from interp.certificates.base import Certificate
from interp.certificates.evidence import Finding, register_evidence, smallest, stated
from interp.errors import InterpError, UnsupportedError
from interp.tasks import MaxOfK

STEPS = 60


@register_evidence("every multiset")
def maxima_evidence(model: TaskModel, certificate: Certificate, options: dict[str, Any]) -> Finding:
    """Bounds by bisection; exact errors."""
    task = model.task
    if not isinstance(task, MaxOfK) or model.spec.layers[0].n_heads != 1:
        raise UnsupportedError("the checker knows multisets of max-of-k, for models of one head")
    K, v = task.terms, task.base
    named = {name: parameter.detach().double().cpu() for name, parameter in model.named_parameters()}
    tables = token_tables(model.spec, stack_one(named))
    weights = (tables.scores[0, 0, v] - tables.scores[0, 0, v].max()).exp().numpy()
    logits = tables.folded().values[0, 0].numpy() + tables.offset[0, v].numpy()
    parts: list[Any] = []
    bounds, errors = [], []
    for m in range(v):
        gaps = np.delete(logits[:, [m]] - logits, m, 1)  # (token, rival)
        bound = _least(weights, gaps, m, K)
        if bound > 0:
            parts.append(stated(bound))
            bounds.append(parts[-1])
            continue
        single, wrong = [], 0
        for row in combinations_with_replacement(range(m + 1), K - 1):
            seen = [*row, m, v]
            out = weights[seen] @ logits[seen] / weights[seen].sum()
            margin = out[m] - out
            margin[m] = np.inf
            rival = int(margin.argmin())
            bounds.append(stated(abs(float(margin[rival]))))
            single.append(bounds[-1] if margin[rival] > 0 else [rival, bounds[-1]])
            if margin[rival] < 0:
                wrong += math.factorial(K) // math.prod(map(math.factorial, Counter((*row, m)).values()))
        parts.append(single)
        if wrong:
            errors.append([m, wrong])
    if certificate.n_errors is not None and sum(n for _, n in errors) != certificate.n_errors:
        raise InterpError(f"evidence finds {sum(n for _, n in errors)} errors, the certificate {certificate.n_errors}")
    said = f"max-of-k: at '=' the largest of {K} numbers below {v} has the largest output, for all {v}^{K} inputs"
    if errors:
        places = "; ".join(f"largest {m}: {n} of {(m + 1) ** K - m**K}" for m, n in errors)
        said += f" but exactly {sum(n for _, n in errors)}, for which it has not ({places})"
    return Finding("maxima", {"errors": errors}, parts, smallest(bounds), said)


def _least(weights: np.ndarray, gaps: np.ndarray, m: int, K: int) -> float:
    """The largest bound that all inputs with maximum m keep, by bisection: for each rival its own numbers are worst."""
    low, high = float(gaps.min()), float(gaps.max())
    if not _holds(weights, gaps, m, K, 0.0):
        return 0.0
    low = 0.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if _holds(weights, gaps, m, K, middle) else (low, middle)
    return low


def _holds(weights: np.ndarray, gaps: np.ndarray, m: int, K: int, bound: float) -> bool:
    shares = weights[:, None] * (gaps - bound)
    return bool((shares[-1] + shares[m] + (K - 1) * shares[: m + 1].min(0) > 0).all())
