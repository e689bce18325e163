"""PALINDROME by comparing the two halves as binary numbers (Nowak et al. 2022, section 3.2 and appendix A, corrected).

n counts CLS and EOS (erratum 30), which are at i = 0 and i = n - 1. Position n - 1 - i is the mirror image of i.

Layer 1: the attention adds nothing. One neuron marks the ones of the left half, by max(0, I[i <= (n-1)/2] - I[w = 0] -
I[w = CLS] - I[w = EOS]). Another does the same for the right half. If n is odd, the middle is in both halves.
Layer 2: at CLS, head 1 scores position i by c i, and head 2 by c (n-1-i). With c = ln 2 the weights are 2^i / (2^n - 1)
and 2^(n-1-i) / (2^n - 1). Head 1 averages the left marks, and head 2 the right marks with a minus sign. Together,

    s = 1/(2^n - 1) sum_{i=1}^{floor((n-1)/2)} (I[w_i = 1] - I[w_(n-1-i) = 1]) 2^i.

(The sum starts at 1, because CLS and EOS have no marks; erratum 32.) The coefficients are -1, 0 or 1, and the highest
nonzero one outweighs all below it, so **s = 0 if and only if w is a palindrome**. As every term of the sum is even,
|s| >= 2 / (2^n - 1) for all other strings. Equality holds if only the pair at i = 1 differs, or if the halves are
consecutive binary numbers such as 1000 and 0111.

The model tests whether |s| < 1/(2^n - 1), half of this smallest value; the paper has an indicator I[s = 0] instead. The
threshold comes from the same attention: it is the weight of CLS in head 1, 2^0 / (2^n - 1). Two neurons compute |s|.
The logit is

    slack = 1/(2^n - 1) - |s|,   positive if and only if w is a palindrome, and |slack| >= 1/(2^n - 1).

If a tolerance is given, the model is the paper's, an indicator of |s| <= tolerance. It is right only while 2/(2^n - 1)
is larger than the tolerance. The published code has the tolerance 1e-7, and the base e^(1/sqrt 6) = 1.504 instead of 2,
for which s is not a binary number (errata 33 to 36).

The paper's W^{V,2,1} selects component 10 for both heads; head 1 needs component 9 (erratum 31).
"""

from math import exp, log

from interp.constructions import Construct
from interp.families.languages.constructions.parts import Block, HeadRule, NeuronRule, Recognizer, Stream, positive
from interp.families.languages.tasks.palindrome import Palindrome
from interp.families.languages.theory import values as theory
from interp.spec import Scalar

LONGEST = {"float64": 95, "float32": 42, "float16": 18, "bfloat16": 13}
"""Largest number of symbols by number format, as measured: about twice the number of mantissa bits."""

LN2 = log(2)


def smallest_value(length: int) -> float:
    """Return 2 / (2^n - 1), the smallest |s| of a string of this length that is not a palindrome."""
    return 2 / (2.0 ** (length + 2) - 1)


def binary(c: float, tolerance: float, output_scale: float, beyond: str) -> Construct:
    """Build PALINDROME in binary: d = 12, and two layers, with two heads in the second. See languages_palindrome."""
    step = positive("c", c or LN2)
    if tolerance:
        positive("tolerance", tolerance)
    names = ("i", "n-1-i", "left", "right", "[0]", "[1]", "[CLS]", "[EOS]", "left 1", "right 1", "s", "slack")
    stream = Stream(names)
    no_one = {"[0]": -1, "[CLS]": -1, "[EOS]": -1}
    mark = [NeuronRule({"left": 1, **no_one}, {"left 1": 1}), NeuronRule({"right": 1, **no_one}, {"right 1": 1})]
    left = HeadRule([({"[CLS]": step}, {"i": 1})], [({"left 1": 1}, {"s": 1}), ({"[CLS]": 1}, {"slack": 1})])
    right = HeadRule([({"[CLS]": step}, {"n-1-i": 1})], [({"right 1": 1}, {"s": -1})])
    size = [NeuronRule({"s": 1}, {"slack": -1}), NeuronRule({"s": -1}, {"slack": -1})]
    exact = step == LN2
    proof = Recognizer(
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
    """Return the largest length up to which |s| <= tolerance identifies palindromes in exact arithmetic with base 2."""
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
