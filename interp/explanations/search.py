"""Which few quantities decide a model's answers, and by which rule.

Every rule is fitted on one half of the answers and judged on the other, unless all inputs are at hand. What counts is
the share of answers that it gives, of rare answers too: see mechanisms.bench.least_share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch

from interp.explanations.rules import PRICE, Rule, code, fits, majority, weighted
from interp.mechanisms.bench import least_share
from interp.mechanisms.quantities import Quantity
from interp.mechanisms.setting import Setting

PAIRED, EXTENDED = 40, 12
"""Quantities that are tried in pairs, and pairs that are tried with a third."""
PER_CELL = 3
"""Inputs that a cell of a table has on average, at least: with fewer it lists the inputs."""


@dataclass(frozen=True)
class Scored:
    """A rule with the least share of answers that it gives: see the module's text."""

    rule: Rule
    share: float

    @property
    def cost(self) -> float:
        return self.rule.constants + PRICE * (1 - self.share)


@dataclass(frozen=True)
class Data:
    """Answers of a model and the values of quantities at the same reads; fit and judge are rows."""

    setting: Setting
    quantities: list[Quantity]
    values: list[np.ndarray]
    answers: np.ndarray
    fit: np.ndarray
    judge: np.ndarray

    @classmethod
    def of(
        cls, setting: Setting, quantities: Sequence[Quantity], values: Sequence[np.ndarray], answers: np.ndarray,
        rows: np.ndarray, exact: bool,
    ) -> Data:  # fmt: skip
        """Without quantities that are constant here or equal to an earlier one. rows: the input of each read, so that
        reads of one input are never parted."""
        kept, seen = [], set()
        for one, value in zip(quantities, values):
            _, index = np.unique(value, return_inverse=True)
            key = index.astype(np.int32).tobytes()
            if index.max() > 0 and key not in seen:
                seen.add(key)
                kept.append((one, value))
        every = np.arange(len(answers))
        fit = every if exact else every[rows % 2 == 0]
        judge = every if exact else every[rows % 2 == 1]
        return cls(setting, [one for one, _ in kept], [value for _, value in kept], answers, fit, judge)

    def judged(self, rule: Rule, picked: Sequence[int]) -> float:
        values = [torch.from_numpy(self.values[number][self.judge]) for number in picked]
        given = rule.answers(values).numpy()
        answers = torch.from_numpy(self.answers[self.judge])
        return least_share(torch.from_numpy(given == self.answers[self.judge]), answers)

    def fitted(self, picked: Sequence[int], most: int, listing: bool = False) -> Scored | None:
        """The cheapest rule that reads these quantities, with at most so many constants; listing: tables of all inputs
        are allowed."""
        values = [self.values[number][self.fit] for number in picked]
        of, answers = [self.quantities[number] for number in picked], self.answers[self.fit]
        rules = [rule for rule in fits(self.setting, of, values, answers) if rule.constants <= most]
        if self.potential(picked) < 0 and not listing:  # a table of nearly the inputs explains nothing
            rules = [rule for rule in rules if rule.form not in ("table", "all")]
        scored = [Scored(rule, self.judged(rule, picked)) for rule in rules]
        return min(scored, key=lambda one: one.cost, default=None)

    def potential(self, picked: Sequence[int]) -> float:
        """The share of answers that a table of these quantities gives; -1 where its cells are nearly the inputs."""
        codes, cells = code([self.values[number][self.fit] for number in picked])
        if len(cells) * PER_CELL > len(self.fit):
            return -1.0
        best = majority(codes, self.answers[self.fit], len(self.setting.answers))
        answers = torch.from_numpy(self.answers[self.fit])
        return least_share(torch.from_numpy(best[codes]) == answers, answers)


def search(data: Data, share: float, most: int) -> Scored | None:
    """The cheapest rule that gives at least this share of the answers with at most so many constants, or None."""
    n = len(data.quantities)
    single = [(data.potential([number]), number) for number in range(n)]
    found = [data.fitted([number], most) for potential, number in single if potential >= share or potential < 0]
    best = _best(found, share)
    if best is not None and best.share == 1.0:
        return best
    # Quantities that tell most by themselves come first; all are tried in pairs where they are few.
    ranked = [number for _, number in sorted(single, key=lambda one: -one[0])][:PAIRED]
    pairs = [(data.potential(pair), pair) for pair in combinations(sorted(ranked), 2)]
    found = [data.fitted(pair, most) for potential, pair in pairs if potential >= share]
    best = _best([best, *found], share)
    summed = _sums(data, most)
    best = _best([best, *summed], share)
    if best is not None:
        return best
    good = [pair for _, pair in sorted(pairs, key=lambda one: -one[0])][:EXTENDED]
    triples = {tuple(sorted({*pair, third})) for pair in good for third in ranked if third not in pair}
    found = [data.fitted(three, most) for three in sorted(triples) if data.potential(three) >= share]
    return _best(found, share)


def nearest(data: Data, most: int) -> Scored | None:
    """The rule over one quantity that gives the largest share of the answers, however small that is."""
    found = [data.fitted([number], most) for number in range(len(data.quantities))]
    return max((one for one in found if one is not None), key=lambda one: one.share, default=None)


def _sums(data: Data, most: int) -> list[Scored | None]:
    """Weighted sums of the counts of single tokens, for two answers."""
    counts = [number for number, one in enumerate(data.quantities) if one.kind == "count"]
    if len(counts) < 2:
        return []
    fit, answers = data.fit, data.answers
    if len(np.unique(answers[fit])) != 2:
        return []
    rule = weighted(
        data.setting, [data.quantities[c] for c in counts], [data.values[c][fit] for c in counts], answers[fit]
    )
    return [Scored(rule, data.judged(rule, counts))] if rule is not None and rule.constants <= most else []


def _best(found: Sequence[Scored | None], share: float) -> Scored | None:
    good = [one for one in found if one is not None and one.share >= share]
    return min(good, key=lambda one: one.cost, default=None)
