"""Check claims about the largest of K numbers, for all v^K inputs."""

from __future__ import annotations

from functools import partial
from operator import add
from typing import Any

from .attention import weights_of
from .counts import Asked, asked_by
from .enclosures import Vec
from .inputs import Found, Spread
from .model import Model
from .reading import fields, need, whole

MOST_NODES = 10**7


def maxima(model: Model, domain: Any, parts: Any, margin: int, spread: Spread) -> Found:
    """Check a claim about max-of-k: at '=', one head averages the values of K numbers and '='.

    A difference of outputs minus the margin, times the sum of weights, is a sum over positions. So it is smallest if
    every position has its worst number. Inputs are grouped by their maximum and its first position, then by single
    numbers.
    """
    (errors,) = fields(domain, "errors", "claim.domain")
    need(model.task == "max-of-k" and set(model.parameters) <= {"K", "v"} and parts == [], "maxima are for max-of-k")
    K, v = (whole(model.parameters.get(name, size), 1, 512, name) for name, size in (("K", 4), ("v", 64)))
    need(len(model.words) == v + 1 and model.n_out == v, "words are v numbers and '='")
    need(model.longest in (None, K + 1), "positions are for K numbers and '='")
    need(model.spec["readout_at"] in ("=", "last"), "answers are read at '='")
    wrong, rounding = errors_of_maxima(model, K, v, margin, spread)
    need(errors == wrong, f"errors are {wrong[:9]}, not as claimed")
    return sentence(K, v, wrong), rounding


def sentence(K: int, v: int, wrong: list[list[int]]) -> str:
    said = f"max-of-k: at '=' the largest of {K} numbers below {v} has the largest output, for all {v}^{K} inputs"
    if not wrong:
        return said
    places = "; ".join(f"largest {m}: {n} of {(m + 1) ** K - m**K}" for m, n in wrong)
    return said + f" but exactly {sum(n for _, n in wrong)}, for which it has not ({places})"


def errors_of_maxima(model: Model, K: int, v: int, margin: int, spread: Spread) -> tuple[list[list[int]], int]:
    """Return each maximum that has wrong inputs with the number of these, and the rounding bound."""
    rows = [model.embed(t, i, K + 1) for i in range(K) for t in range(v)] + [model.embed(v, K, K + 1)]
    asked = asked_by(model, rows[-1], rows, n_heads=(1,), positions=("none", "learned"), max_length=(None, K + 1))
    found = spread(partial(one_maximum, asked, K, v, margin), [(m, at) for m in range(v) for at in range(K)])
    wrong = [[m, n] for m in range(v) if (n := sum(found[m * K : m * K + K]))]
    return wrong, model.drift(rows[-1], rows, K + 1)


def one_maximum(asked: Asked, K: int, v: int, margin: int, m: int, at: int) -> int:
    """Return the number of wrong inputs whose maximum m occurs first at position `at`."""

    allowed = [p * v + t for p in range(K) for t in range(m + 1)] + [K * v]
    scores = Vec(*(tuple(part[row] for row in allowed) for part in asked.scores[0]))
    weights = dict(zip(allowed, weights_of(scores, softmax=True)))

    def share(row: int, i: int, j: int) -> int:
        """Return a lower bound on a row's term in (output i - output j - margin) times the sum of weights."""
        logits = asked.logits[0][row]
        more = logits[i] - logits[j] + asked.base[i] - asked.base[j] - 4 * asked.rad - margin
        return min(bound * more for bound in weights[row])

    free = [p for p in range(K) if p != at]
    choices = [range(m if p < at else m + 1) for p in free]
    rivals = [j for j in range(v) if j != m]
    fixed_rows = (at * v + m, K * v)
    tables = [[[share(p * v + t, m, j) for j in rivals] for t in choice] for p, choice in zip(free, choices)]
    if not all(choices):
        return 0
    below = [[0] * len(rivals)]  # the smallest sums over the remaining positions
    for table in reversed(tables):
        below.append(list(map(add, below[-1], map(min, zip(*table)))))
    below.reverse()
    first: list[int] = []
    stack = [(first, [sum(share(row, m, j) for row in fixed_rows) for j in rivals])]
    wrong = nodes = 0
    while stack:
        chosen, sums = stack.pop()
        nodes += 1
        need(nodes < MOST_NODES, f"largest {m}: too many parts")
        if all(total + rest >= 0 for total, rest in zip(sums, below[len(chosen)])):
            continue
        if len(chosen) < len(free):
            table = tables[len(chosen)]
            stack += [([*chosen, t], list(map(add, sums, table[t]))) for t in choices[len(chosen)]]
            continue
        seen = (*fixed_rows, *(p * v + t for p, t in zip(free, chosen)))
        worst = any(sum(share(row, j, m) for row in seen) >= 0 for j in rivals)
        need(worst, f"numbers {chosen} beside {m}: neither right nor wrong by the margin")
        wrong += 1
    return wrong
