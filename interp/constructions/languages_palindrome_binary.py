"""PALINDROME by comparing the two halves as binary numbers (Nowak et al. 2022, section 3.2 and appendix A, corrected).

n counts CLS and EOS (erratum 30), which stand at i = 0 and i = n - 1 and mirror each other.

Layer 1 attends to nothing; two neurons mark ones of the left and of the right half: max(0, I[i <= (n-1)/2] - I[w = 0] -
I[w = CLS] - I[w = EOS]), and the same for the right. A middle position of odd n is in both.
Layer 2: at CLS head 1 scores position i by c i, head 2 by c (n-1-i). With c = ln 2 the weights are 2^i / (2^n - 1) and
2^(n-1-i) / (2^n - 1). Head 1 averages the left marks, head 2 minus the right ones. Pairing i with n-1-i,

    s = 1/(2^n - 1) sum_{i=1}^{floor((n-1)/2)} (I[w_i = 1] - I[w_(n-1-i) = 1]) 2^i

(the sum starts at 1: CLS and EOS mark nothing, erratum 32). The coefficients are -1, 0 or 1, the highest nonzero one
outweighs all below it, and so **s = 0 if and only if w is a palindrome**; every term is a multiple of 2, so otherwise
|s| >= 2 / (2^n - 1), reached by a wrong pair at i = 1 and by carries such as 1000 against 0111.

The answer is |s| < 1/(2^n - 1), half of the smallest value. The print has an indicator I[s = 0]; here the tolerance is
read off the same attention: the weight of CLS in head 1 is 2^0 / (2^n - 1). Two neurons give |s|, and the logit is

    slack = 1/(2^n - 1) - |s|,   positive if and only if w is a palindrome, and |slack| >= 1/(2^n - 1).

With a tolerance of its own, the model is the printed one, an indicator of |s| <= tolerance: right only while
2/(2^n - 1) exceeds the tolerance. The published code has 1e-7, and a base e^(1/sqrt 6) = 1.504 in the place of 2, for
which s is no longer a binary number (errata 33 to 36).

Printed W^{V,2,1} picks component 10 for both heads; head 1 must pick component 9 (erratum 31).
"""

from __future__ import annotations

from math import exp, expm1, log

from interp.constructions.languages_parts import Block, Head, Neuron, Proof, Stream, positive
from interp.constructions.registry import Construct
from interp.spec import Scalar
from interp.tasks import Palindrome
from interp.theory import languages as theory

LONGEST = {"float64": 95, "float32": 42, "float16": 18, "bfloat16": 13}
"""Symbols, measured: the limit is the number of mantissa bits, which is about half the length."""

LN2 = log(2)


def smallest_value(length: int) -> float:
    """2 / (2^n - 1), the smallest |s| of a string of this length that is not a palindrome."""
    return 2 / (2.0 ** (length + 2) - 1)


def base_tolerance(length: int, c: float) -> float:
    """The weight of CLS, (b - 1) / (b^n - 1) with b = e^c; 1 / (2^n - 1) for base 2."""
    return expm1(c) / expm1(c * (length + 2))


def binary(c: float, tolerance: float, output_scale: float, beyond: str) -> Construct:
    """PALINDROME in binary: d = 12, two layers, two heads in the second. See languages_palindrome."""
    step = positive("c", c or LN2)
    if tolerance:
        positive("tolerance", tolerance)
    names = ("i", "n-1-i", "left", "right", "[0]", "[1]", "[CLS]", "[EOS]", "left 1", "right 1", "s", "slack")
    stream = Stream(names)
    no_one = {"[0]": -1, "[CLS]": -1, "[EOS]": -1}
    mark = [Neuron({"left": 1, **no_one}, {"left 1": 1}), Neuron({"right": 1, **no_one}, {"right 1": 1})]
    left = Head([({"[CLS]": step}, {"i": 1})], [({"left 1": 1}, {"s": 1}), ({"[CLS]": 1}, {"slack": 1})])
    right = Head([({"[CLS]": step}, {"n-1-i": 1})], [({"right 1": 1}, {"s": -1})])
    size = [Neuron({"s": 1}, {"slack": -1}), Neuron({"s": -1}, {"slack": -1})]
    exact = step == LN2
    proof = Proof(
        name="languages/palindrome",
        variant="binary",
        task=Palindrome(),
        stream=stream,
        words={"0": {"[0]": 1}, "1": {"[1]": 1}, "[CLS]": {"[CLS]": 1}, "[EOS]": {"[EOS]": 1}},
        blocks=[Block(neurons=mark), Block([left, right], [] if tolerance else size)],
        answer="s" if tolerance else "slack",
        positions="halves",
        claim=_claim(exact, tolerance),
        margin=lambda length: smallest_value(length) / 2 if exact and not tolerance else 0.0,
        longest=LONGEST,
        notes=(
            "Nowak et al. 2022, section 3.2 and appendix A; errata 30 to 36",
            "no number format but integers or fractions goes further with a binary code",
        ),
        value=theory.palindrome if exact else None,
        numbers={"c": step, "base": exp(step)},
        tolerance=tolerance or None,
    )
    arguments: dict[str, Scalar] = {"c": float(c), "tolerance": float(tolerance), "output_scale": float(output_scale)}
    return proof.build({**arguments, "beyond": beyond}, output_scale, None, beyond)


def largest_length(tolerance: float) -> int:
    """The longest strings that an indicator of |s| <= tolerance can tell apart in exact arithmetic, base 2."""
    if tolerance <= 0:
        raise ValueError("tolerance must be positive")
    length = 0
    while smallest_value(length + 1) > tolerance:
        length += 1
    return length


def _claim(exact: bool, tolerance: float) -> str:
    if not exact:
        return "no claim: with a base other than 2, non-palindromes come arbitrarily near to s = 0"
    if tolerance:
        return f"right on every string up to length {largest_length(tolerance)}, where 2 / (2^n - 1) > {tolerance:g}"
    return "right on every string: s = 0 for palindromes, |s| >= 2 / (2^n - 1) for others, the tolerance half that"
