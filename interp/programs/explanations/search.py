"""Search for a few quantities that determine a model's answers, and for the rule.

Each rule is fitted on one half of the answers and judged on the other half, unless the inputs are all inputs of the
task. Its score is the share of answers that it gives, also among rare answers: see explanations.bench.least_share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
import torch

from interp.errors import InterpError
from interp.programs.explanations.bench import Bench, Setting, Steps, least_share
from interp.programs.explanations.forms import FORMS, PRICE, Grouped, Sum
from interp.programs.explanations.quantities import Quantity, candidates
from interp.programs.explanations.rule import Rule

EXTENDED, THIRDS = 12, 60
"""Number of pairs tried with a third quantity, and number of these; all pairs are tried."""
STRANGE = 2
"""Cost, in constants, of a quantity that the task does not declare."""
PER_CELL = 3
"""Smallest mean number of inputs per table cell: with fewer, the table would merely list the inputs."""


@dataclass(frozen=True)
class Scored:
    """A rule with its score (see the module docstring)."""

    rule: Rule
    share: float
    price: int = 0

    @property
    def cost(self) -> float:
        return self.rule.constants + self.price + PRICE * (1 - self.share)


@dataclass(frozen=True)
class Data:
    """A model's answers and the values of quantities at the same reads. fit, judge: indices of reads."""

    setting: Setting
    quantities: list[Quantity]
    values: list[np.ndarray]
    prices: list[int]
    answers: np.ndarray
    fit: np.ndarray
    judge: np.ndarray
    steps: Steps = field(default_factory=Steps)

    @classmethod
    def of(cls, bench: Bench, given: Sequence[Quantity] = ()) -> Data:
        """Pair the model's answers with the given quantities (default: all candidates)."""
        of, values = list(given) or candidates(bench.setting), []
        for quantity in of:
            bench.steps.check()
            values.append(bench.where.pick(quantity.values(bench.view)).numpy())
        answers, rows = bench.answers.numpy(), bench.where.rows.numpy()
        data = cls.made(of, values, priced(bench, of, values), answers, rows, bench.population.exact)
        return replace(data, steps=bench.steps)

    @classmethod
    def made(
        cls, of: Sequence[Quantity], values: Sequence[np.ndarray], prices: Sequence[int], answers: np.ndarray,
        rows: np.ndarray, exact: bool,
    ) -> Data:  # fmt: skip
        """Drop quantities that are constant here or equal a cheaper one. rows: the input of each answer, so that all
        answers to one input fall into the same half."""
        kept, seen = [], set()
        for number in sorted(range(len(of)), key=prices.__getitem__):
            _, index = np.unique(values[number], return_inverse=True)
            key = index.astype(np.int32).tobytes()
            if index.max() > 0 and key not in seen:
                seen.add(key)
                kept.append(number)
        every = np.arange(len(answers))
        fit, judge = (every, every) if exact else (every[rows % 2 == 0], every[rows % 2 == 1])
        columns = [of[n] for n in kept], [values[n] for n in kept], [prices[n] for n in kept]
        return cls(of[0].setting, *columns, answers, fit, judge)

    def seen(self, picked: Sequence[int]) -> Grouped:
        """The quantities and answers to which rules are fitted."""
        values = [self.values[number][self.fit] for number in picked]
        return Grouped(self.setting, [self.quantities[number] for number in picked], values, self.answers[self.fit])

    def judged(self, rule: Rule) -> float:
        numbers = [self.quantities.index(quantity) for quantity in rule.quantities]  # in the rule's order
        values = [torch.from_numpy(self.values[number][self.judge]) for number in numbers]
        outputs = rule.answers(values).numpy()
        answers = self.answers[self.judge]
        return least_share(torch.from_numpy(outputs == answers), torch.from_numpy(answers))

    def fitted(self, picked: Sequence[int], most: int, listing: bool = False) -> Scored | None:
        """Return the cheapest rule over these quantities with at most `most` constants.

        listing: whether to allow tables that list nearly all inputs.
        """
        self.steps.check()
        # A table with nearly as many cells as inputs explains nothing.
        limit = most if listing else min(most, len(self.fit) // PER_CELL)
        rules = [rule for rule in fits(self.seen(picked)) if rule.constants <= limit]
        price = sum(self.prices[number] for number in picked)
        scored = [Scored(rule, self.judged(rule), price) for rule in rules]
        return min(scored, key=lambda fit: fit.cost, default=None)

    def potential(self, picked: Sequence[int]) -> float:
        """Return the share of answers that a table of these quantities gives; -1 if it has too many cells."""
        self.steps.check()
        seen = self.seen(picked)
        codes, cells = seen.combined
        if len(cells) * PER_CELL > len(self.fit):
            return -1.0
        answers = torch.from_numpy(seen.answers)
        return least_share(torch.from_numpy(seen.best[codes]) == answers, answers)


def fits(seen: Grouped) -> list[Rule]:
    """Fit rules that read all of these quantities to a model's answers: the best ones of each applicable form."""
    return [Rule(seen.setting, name, tuple(of), data) for name, form in FORMS.items() for of, data in form.fit(seen)]


def priced(bench: Bench, of: Sequence[Quantity], values: Sequence[np.ndarray]) -> list[int]:
    """Return the cost of each quantity in addition to its constants.

    It is 0 if the quantity equals a feature that the task declares, STRANGE - 1 if it names a token that such a
    quantity also names, and STRANGE otherwise. So of equally good rules, those in the terms of the task are preferred.
    """
    batch = bench.population.batch
    try:
        features = bench.subject.task.features(batch)
    except InterpError:
        features = {}
    told: list[np.ndarray] = []
    for name, feature in features.items():
        if name == "answer" or feature.dtype.is_floating_point:
            continue
        picked = feature[bench.where.rows] if feature.ndim == 1 else bench.where.pick(feature)
        told.append(picked.long().numpy())
    equal = [any(np.array_equal(value, known) for known in told) for value in values]
    named = {a for quantity, same in zip(of, equal) if same for a in quantity.arguments if a in bench.setting.content}
    return [0 if same else STRANGE - bool(named & set(quantity.arguments)) for quantity, same in zip(of, equal)]


def search(data: Data, share: float, most: int) -> list[Scored]:
    """Return rules that give at least this share of the answers within a limit of constants, cheapest first.

    A rule without errors ends the search: rules over more quantities are then not tried.
    """
    n = len(data.quantities)
    single = [(data.potential([number]), number) for number in range(n)]
    good = _good([data.fitted([number], most) for potential, number in single if potential >= share or potential < 0],
                 share)  # fmt: skip
    if good and good[0].share == 1.0:
        return good
    # All pairs: an equality or an XOR says nothing in its single quantities.
    ranked = [number for _, number in sorted(single, key=lambda pair: -pair[0])]
    pairs = [(data.potential(pair), pair) for pair in combinations(sorted(ranked), 2)]
    paired = [data.fitted(pair, most) for potential, pair in pairs if potential >= share]
    good = _good([*good, *paired, *_sums(data, most)], share)
    if good:
        return good
    best = [pair for _, pair in sorted(pairs, key=lambda pair: -pair[0])][:EXTENDED]
    triples = {tuple(sorted({*pair, third})) for pair in best for third in ranked[:THIRDS] if third not in pair}
    return _good([data.fitted(three, most) for three in sorted(triples) if data.potential(three) >= share], share)


def nearest(data: Data, most: int) -> Scored | None:
    """Return the rule over one quantity that gives the largest share of the answers, however small."""
    scored = [data.fitted([number], most) for number in range(len(data.quantities))]
    return max((fit for fit in scored if fit is not None), key=lambda fit: fit.share, default=None)


def _sums(data: Data, most: int) -> list[Scored | None]:
    """Fit a rule that compares a weighted sum of token counts with a threshold, for tasks with two answers."""
    counts = [number for number, quantity in enumerate(data.quantities) if quantity.kind == "count"]
    if len(counts) < 2:
        return []
    fitted = Sum().weigh(data.seen(counts))
    if fitted is None:
        return []
    rule = Rule(data.setting, "sum", tuple(data.quantities[c] for c in counts), fitted)
    price = sum(data.prices[c] for c in counts)
    return [Scored(rule, data.judged(rule), price)] if rule.constants <= most else []


def _good(scored: Sequence[Scored | None], share: float) -> list[Scored]:
    return sorted((fit for fit in scored if fit is not None and fit.share >= share), key=lambda fit: fit.cost)
