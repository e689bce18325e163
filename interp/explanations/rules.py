"""From quantities to the answer: the forms that the last step of a program may have, simple ones first.

A rule is plain data: a form, the quantities that it reads, and its constants. Its words, its source and its answers
follow from these.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from interp.mechanisms.quantities import Quantity
from interp.mechanisms.setting import Setting

PRICE = 1000.0
"""What a program that gives none of the answers would cost, in constants: a thousandth of them is worth one."""
FINE, LEAST_GAIN = 4, 3
"""An exception has to be worth a FINE-th of what a constant is, and so many answers."""
MAIN = -2
"""No exception: the main rule holds."""
SHOWN = 12
"""Entries of a table that its words name."""


@dataclass(frozen=True)
class Rule:
    """How the answer follows from quantities.

    form: "constant" (always one answer), "same" (the token), "number" (the number, plus `shift`), "steps" (one number
    against thresholds), "all" (yes where every quantity has one of its values), "sum" (a weighted sum of numbers
    against a threshold), "table" (an answer for each combination of values, `default` elsewhere), "except" (the first
    number plus `shift`, but for listed pairs of it and a second quantity).
    """

    setting: Setting
    form: str
    quantities: tuple[Quantity, ...] = ()
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def constants(self) -> int:
        """Numbers, tokens and answers that the rule names; an entry of a table counts as one."""
        own = sum(one.constants for one in self.quantities)
        data = self.data
        if self.form == "constant":
            return 1
        if self.form == "number":
            return own + (data["shift"] != 0)
        if self.form == "steps":
            return own + len(data["starts"]) + len(data["answers"])
        if self.form == "all":
            return own + sum(len(values) for values in data["values"]) + 1
        if self.form == "sum":
            return own + len(data["weights"]) + 3
        if self.form == "except":
            return own + len(data["entries"]) + (data["shift"] != 0)
        return own + (len(data["entries"]) + 1 if self.form == "table" else 0)

    def answers(self, values: Sequence[Int[Tensor, "n"]]) -> Int[Tensor, "n"]:
        """Output indices from the values of the quantities; -1 for a token or number that is not an answer."""
        data = self.data
        if self.form == "constant":
            return torch.full_like(values[0], data["answer"]) if values else torch.tensor([data["answer"]])
        if self.form in ("same", "number"):
            return _named(self, values[0])
        if self.form == "steps":
            starts = torch.tensor(data["starts"])
            return torch.tensor(data["answers"])[torch.bucketize(values[0], starts, right=True)]
        if self.form == "all":
            yes = torch.ones_like(values[0], dtype=torch.bool)
            for value, allowed in zip(values, data["values"]):
                yes &= torch.isin(value, torch.tensor(allowed))
            return torch.where(yes, data["yes"], data["no"])
        if self.form == "sum":
            total = sum(weight * value.double() for weight, value in zip(data["weights"], values))
            assert isinstance(total, Tensor)
            return torch.where(total > data["threshold"], data["yes"], data["no"])
        if self.form == "except":
            plain = _named(self, values[0])
            return torch.where((said := _looked_up(data["entries"], MAIN, values)) == MAIN, plain, said)
        return _looked_up(data["entries"], data["default"], values)

    def to_json(self) -> dict[str, Any]:
        return {"form": self.form, "of": [one.to_json() for one in self.quantities], **self.data}

    @classmethod
    def from_json(cls, setting: Setting, given: dict[str, Any]) -> Rule:
        data = {key: value for key, value in given.items() if key not in ("form", "of")}
        return cls(setting, given["form"], tuple(Quantity.from_json(setting, one) for one in given["of"]), data)


def _named(rule: Rule, values: Tensor) -> Tensor:
    """The answer whose word is the token's, or the number's."""
    answers = {word: number for number, word in enumerate(rule.setting.answers)}
    known, where = values.unique(return_inverse=True)
    shift = rule.data.get("shift", 0)
    quantity = rule.quantities[0]
    found = [
        answers.get(str(quantity.spoken(int(v)) if quantity.tokens else int(v) + shift), -1) for v in known.tolist()
    ]
    return torch.tensor(found)[where]


def _looked_up(entries: list[list[Any]], default: int, values: Sequence[Tensor]) -> Tensor:
    keys = {tuple(entry[:-1]): entry[-1] for entry in entries}
    codes, cells = code([value.numpy() for value in values])
    return torch.tensor([keys.get(tuple(cell), default) for cell in cells.tolist()])[torch.from_numpy(codes)]


# ---------------------------------------------------------------- fitting


def fits(
    setting: Setting, quantities: Sequence[Quantity], values: Sequence[np.ndarray], answers: np.ndarray
) -> list[Rule]:
    """Rules that read all of these quantities, fitted to a model's answers: of each form that can be, the best one."""
    found: list[Rule] = []
    if len(quantities) == 1:
        single = [form(setting, quantities[0], values[0], answers) for form in (_same, _number, _steps)]
        found = [rule for rule in single if rule is not None]
    codes, cells = code(values)
    best = majority(codes, answers, len(setting.answers))
    if len(quantities) == 2:
        orders = ((0, 1), (1, 0))
        excepted = [_except(setting, quantities, values, order, codes, cells, best, answers) for order in orders]
        found += [rule for rule in excepted if rule is not None]
    conjunction = _all(setting, quantities, values, codes, cells, best, answers)
    table = _table(setting, quantities, codes, cells, best, answers)
    return [*found, *([conjunction] if conjunction else []), table]


def code(values: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """One number for each combination of values, and the combinations."""
    codes, cells = np.zeros(len(values[0]), dtype=np.int64), None
    for value in values:
        known, index = np.unique(value, return_inverse=True)
        codes = codes * len(known) + index
        seen, codes = np.unique(codes, return_inverse=True)
        old = np.zeros((1, 0), dtype=np.int64) if cells is None else cells
        cells = np.column_stack([old[seen // len(known)], known[seen % len(known)]])
    assert cells is not None
    return codes, cells


def majority(codes: np.ndarray, answers: np.ndarray, n_answers: int) -> np.ndarray:
    """The most frequent answer of each cell."""
    n = int(codes.max()) + 1
    return np.bincount(codes * n_answers + answers, minlength=n * n_answers).reshape(n, n_answers).argmax(1)


def _same(setting: Setting, one: Quantity, values: np.ndarray, answers: np.ndarray) -> Rule | None:
    return Rule(setting, "same", (one,)) if one.tokens else None


def _number(setting: Setting, one: Quantity, values: np.ndarray, answers: np.ndarray) -> Rule | None:
    """The number itself is the answer, or the number plus a constant."""
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
    """A number, but for the pairs of it and a second quantity in which another answer is more frequent."""
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
    """Thresholds on one number, where they are fewer than its values."""
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
    """Neighboring steps are joined while that costs fewer answers than a step is worth, the cheapest first."""
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
    """Two answers, one of which is given exactly where every quantity has one of its values."""
    two = np.unique(best)
    if len(two) != 2:
        return None
    found = []
    for yes in two[::-1]:  # of two rules that are equally short, the one that says when the answer is yes
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
    """An answer for each combination of values, but for those that the default answer costs next to nothing."""
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
    """Two answers, told apart by the sign of a weighted sum of numbers; weights of three digits, the largest is 1."""
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
