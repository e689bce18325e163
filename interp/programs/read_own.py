"""What is read of the weight of a position's own value in another variable: of its token among all tokens.

An MLP may give just this weight. The answer may be limits of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import torch
from torch import Tensor

from interp.measures.runs import Part
from interp.programs.maps import LOOSE, Limits, limits, ranked
from interp.programs.quantize import Quantized
from interp.programs.reading import Reading, matrix, regressed
from interp.programs.steps import Features, Head, Linear, Product, Step, Sums, Values

SHARE, LEAST = 0.998, 0.99
"""Share of the model's answers, and of each frequent answer, that must be given."""
FAR = 0.02
"""How far from SHARE the sum over all variables may be for sums over fewer to be tried, too."""
FITS = 1e-4
"""Share of the variance of an MLP's output, as others read it, that an own weight may leave out."""
ORDERED = 0.5
"""Share from which on the weight by itself says in which order the answers come; otherwise they are as the task has
them."""


def limits_of(reading: Reading, own: Product, mask: Tensor, words: Values) -> tuple[Linear, list[Step]] | None:
    """The answer as limits of an own weight, or of a sum of it and weights of the own value and the other variable.

    The own weight may be scaled by the own value. The first that gives the answers is taken, cheapest first. None where
    the sum of all that may be read is far off.
    """
    target = reading.running.answers
    made = {**reading.made, own.name: own.mapped(reading.made)}
    known = {name: made[name][mask] for name in (own.name, *own.of)}
    whole = {own.name: known[own.name].sum(1, keepdim=True)}
    fit = limits(target, whole, ranked(target, whole[own.name]))
    order = fit.order if fit.share >= ORDERED else target.unique()

    def fitted(of: tuple[str, ...]) -> tuple[Linear, list[Step]]:
        reading.check()
        fit = limits(target, {**whole, **{name: known[name] for name in of}}, order, LOOSE)
        answer, steps = steps_of(fit, own, known, words)
        return answer, [own, *steps]

    code, other = own.of
    most = fitted((own.name, code, other))
    if reading.answered(*most).share < SHARE - FAR:  # sums of fewer are among those of all
        return None
    for of in ((), (code,), (code, other), (own.name, code), None):
        reached = most if of is None else fitted(of)
        kept = reading.answered(*reached)
        if kept.share >= SHARE and kept.least >= LEAST:
            return reached
    return None


def describe_by_product(reading: Reading, part: Part, found: Quantized, sources: Sequence[str] | None) -> bool:
    """Describe an MLP by the own weight, if it gives this and a vector for each value."""
    where, low = found.needed, reading.low(part).double()
    value = reading.running.value(part).double()
    for own in products(reading, sources, where, part):
        numbers = own.mapped(reading.made)
        vectors, constant = regressed(numbers[where], value[where])
        new = numbers @ vectors + constant
        left = ((value - new)[where] @ low).square().sum()
        whole = ((value[where] - value[where].mean(0)) @ low).square().sum()
        if float(left) <= FITS * float(whole) and reading.explain(
            part, found, [own], vectors.float(), new.float(), reading.enough()
        ):
            return True
    return False


def products(
    reading: Reading, sources: Sequence[str] | None, mask: Tensor, part: Part | None = None
) -> Iterator[Product]:
    """A variable with one value at each position, and one that has shares of the same values.

    A part (None: the readout) reads both; or only the second, if this was made for the first.
    """
    codes = reading.codes(mask, part)
    for code, other in product(codes, [name for name in reading.made if reading.before(name, part)]):
        step = reading.step(other)
        read = reading.allowed(code, sources) or (isinstance(step, Head) and code == step.query)
        if not read or other in codes or other in reading.given or not reading.allowed(other, sources):
            continue
        if reading.whole((code, other), sources) and values_of(reading, code) == values_of(reading, other):
            yield Product(f"{other} of its {code}" if part is None else str(part), (code, other), str(part or ""))


def values_of(reading: Reading, name: str) -> str:
    """The variable whose values a variable has."""
    step = reading.step(name)
    return values_of(reading, step.value) if isinstance(step, Head) else name


def steps_of(one: Limits, own: Product, known: Features, words: Values) -> tuple[Linear, list[Step]]:
    """The answer by limits, and the sum that these compare, unless it is the own weight."""
    weights = {name: w.expand(known[name].shape[1]) for name, w in zip(one.of, one.weights, strict=True)}
    bias = tuple(one.bias(len(words)).tolist())
    if len(one.of) == 1:
        slopes = one.slopes(weights[own.name], len(words))
        return Linear("answer", (own.name,), (matrix(slopes),), bias, words), []
    total = Sums("sum read out", one.of, tuple(matrix(w[:, None]) for w in weights.values()), (0.0,))
    slopes = one.slopes(torch.ones(1).double(), len(words))
    return Linear("answer", (total.name,), (matrix(slopes),), bias, words), [total]
