"""Fit rules from quantities to a model's answers, one per form (see rule.py)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch

from interp.explanations.bench import Setting
from interp.explanations.quantities import Quantity, combine
from interp.explanations.rule import Rule

PRICE = 1000.0
"""Cost of getting all answers wrong, in constants: 1/1000 of the answers is worth one constant."""
FINE, LEAST_GAIN = 4, 3
"""An exception must gain answers worth at least 1/FINE of a constant, and at least LEAST_GAIN answers."""


def fits(
    setting: Setting, quantities: Sequence[Quantity], values: Sequence[np.ndarray], answers: np.ndarray
) -> list[Rule]:
    """Fit rules that read all of these quantities to a model's answers: the best one per applicable form."""
    found: list[Rule] = []
    if len(quantities) == 1:
        single = [form(setting, quantities[0], values[0], answers) for form in (_same, _number, _steps)]
        found = [rule for rule in single if rule is not None]
    codes, cells = combine(values)
    best = majority(codes, answers, len(setting.answers))
    if len(quantities) == 2:
        orders = ((0, 1), (1, 0))
        excepted = [_except(setting, quantities, values, order, codes, cells, best, answers) for order in orders]
        found += [rule for rule in excepted if rule is not None]
    conjunction = _all(setting, quantities, values, codes, cells, best, answers)
    table = _table(setting, quantities, codes, cells, best, answers)
    return [*found, *([conjunction] if conjunction else []), table]


def majority(codes: np.ndarray, answers: np.ndarray, n_answers: int) -> np.ndarray:
    """Return the most frequent answer of each cell."""
    n = int(codes.max()) + 1
    return np.bincount(codes * n_answers + answers, minlength=n * n_answers).reshape(n, n_answers).argmax(1)


def _same(setting: Setting, one: Quantity, values: np.ndarray, answers: np.ndarray) -> Rule | None:
    return Rule(setting, "same", (one,)) if one.tokens else None


def _number(setting: Setting, one: Quantity, values: np.ndarray, answers: np.ndarray) -> Rule | None:
    """Fit a rule whose answer is the number, possibly plus a constant."""
    words = [int(word) if word.isdecimal() else None for word in setting.answers]
    if one.tokens or all(word is None for word in words):
        return None
    numeric = np.array([-(1 << 30) if word is None else word for word in words])[answers]
    shifts, often = np.unique(numeric - values, return_counts=True)
    return Rule(setting, "number", (one,), {"shift": int(shifts[often.argmax()])})


def _except(
    setting: Setting,
    quantities: Sequence[Quantity],
    values: Sequence[np.ndarray],
    order: tuple[int, int],
    codes: np.ndarray,
    cells: np.ndarray,
    best: np.ndarray,
    answers: np.ndarray,
) -> Rule | None:
    """Fit a number rule with exceptions: pairs of the number and a second quantity that have another answer."""
    main, other = order
    number = _number(setting, quantities[main], values[main], answers)
    if number is None:
        return None
    plain = number.answers([torch.from_numpy(cells[:, main].copy())]).numpy()
    gains = np.bincount(codes, weights=(answers == best[codes]).astype(int) - (answers == plain[codes]))
    chosen = (gains >= max(LEAST_GAIN, len(answers) / PRICE / FINE)).nonzero()[0]
    if not len(chosen):
        return None
    entries = [
        [int(cells[at, main]), int(cells[at, other]), int(best[at])] for at in chosen[np.argsort(-gains[chosen])]
    ]
    return Rule(setting, "except", (quantities[main], quantities[other]), {**number.data, "entries": entries})


def _steps(setting: Setting, one: Quantity, values: np.ndarray, answers: np.ndarray) -> Rule | None:
    """Fit thresholds on one number, if a table of its values would be larger."""
    known, index = np.unique(values, return_inverse=True)
    if one.tokens or len(known) < 3:
        return None
    n_answers = len(setting.answers)
    counts = np.bincount(index * n_answers + answers, minlength=len(known) * n_answers).reshape(len(known), n_answers)
    steps = _merged([(start, counts[start].copy()) for start in range(len(known))], 2 * len(answers) / PRICE)
    if len(steps) < 2 or 2 * len(steps) >= len(known) + 2:
        return None
    starts, said = [int(known[at]) for at, _ in steps[1:]], [int(each.argmax()) for _, each in steps]
    return Rule(setting, "steps", (one,), {"starts": starts, "answers": said})


def _merged(steps: list[tuple[int, np.ndarray]], worth: float) -> list[tuple[int, np.ndarray]]:
    """Merge neighboring steps, cheapest first, while that costs fewer answers than a step is worth."""
    while len(steps) > 1:
        costs = [
            (int(one.max() + other.max() - (one + other).max()), at)
            for at, ((_, one), (_, other)) in enumerate(itertools.pairwise(steps))
        ]
        cost, at = min(costs)
        if cost > 0 and cost >= worth:
            break
        steps = [*steps[:at], (steps[at][0], steps[at][1] + steps[at + 1][1]), *steps[at + 2 :]]
    return steps


def _all(
    setting: Setting,
    quantities: Sequence[Quantity],
    values: Sequence[np.ndarray],
    codes: np.ndarray,
    cells: np.ndarray,
    best: np.ndarray,
    answers: np.ndarray,
) -> Rule | None:
    """Fit a rule with two answers: the first if and only if every quantity has one of its listed values."""
    two = np.unique(best)
    if len(two) != 2:
        return None
    found = []
    for yes in two[::-1]:  # prefer the rule for "yes" if both are equally short
        no = two[0] if yes == two[1] else two[1]
        allowed = [np.unique(cells[best == yes, number]) for number in range(cells.shape[1])]
        data = {"values": [a.tolist() for a in allowed], "yes": int(yes), "no": int(no)}
        rule = Rule(setting, "all", tuple(quantities), data)
        agrees = np.ones(len(cells), dtype=bool)
        for number, a in enumerate(allowed):
            agrees &= np.isin(cells[:, number], a)
        if (agrees == (best == yes)).all():
            found.append(rule)
    return min(found, key=lambda rule: rule.constants) if found else None


def _table(
    setting: Setting,
    quantities: Sequence[Quantity],
    codes: np.ndarray,
    cells: np.ndarray,
    best: np.ndarray,
    answers: np.ndarray,
) -> Rule:
    """Fit one answer per combination of values, without those for which the default answer is nearly as good."""
    default = int(np.bincount(best).argmax())
    gained = (answers == best[codes]).astype(int) - (answers == default)
    gains = np.bincount(codes, weights=gained, minlength=len(cells))
    worth = len(answers) / PRICE
    named = [(*map(int, cell), int(answer)) for cell, answer, gain in zip(cells, best, gains) if gain >= worth]
    entries = [list(entry) for entry in named if entry[-1] != default]
    return Rule(setting, "table", tuple(quantities), {"entries": entries, "default": default})


def weighted(
    setting: Setting, quantities: Sequence[Quantity], values: Sequence[np.ndarray], answers: np.ndarray
) -> Rule | None:
    """Fit a rule with two answers: a weighted sum of numbers and a threshold, rounded to three digits.

    The largest weight is 1 in size.
    """
    from sklearn.linear_model import LogisticRegression

    two = np.unique(answers)
    if len(two) != 2 or any(one.tokens for one in quantities):
        return None
    design = np.column_stack(values).astype(float)
    width = np.abs(design).max(0).clip(1)
    fitted = LogisticRegression(C=1e4, max_iter=2000).fit(design / width, answers == two[1])
    weights = fitted.coef_[0] / width
    largest = np.abs(weights).max()
    if largest == 0:
        return None
    rounded = [float(f"{w / largest:.3g}") for w in weights]
    data = {"weights": rounded, "threshold": float(f"{-fitted.intercept_[0] / largest:.3g}"), "yes": int(two[1]),
            "no": int(two[0])}  # fmt: skip
    return Rule(setting, "sum", tuple(quantities), data)
