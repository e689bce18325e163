"""The two exact models of PALINDROME: the halves compared as binary numbers, or position by position.

n counts CLS and EOS (erratum 30), which are at i = 0 and i = n - 1. Position n - 1 - i is the mirror image of i.

**Binary** (Nowak et al. 2022, section 3.2 and appendix A, corrected).

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

**Mirror** (errata, section B): attention to the mirror image, without 2^-n, so that long strings need few bits.

The position code is sqrt(B) (cos t_i, sin t_i) with t_i = pi i / (n-1) and B = ln(16 n) / (1 - cos(pi / (n-1))).

Layer 1: position i scores position j by -B cos t_i cos t_j + B sin t_i sin t_j = -B cos(t_i + t_j). The largest score,
B, is at the mirror image, where t_i + t_j = pi. Elsewhere t_i + t_j differs from pi by at least pi/(n-1). So the score
is lower by at least B (1 - cos(pi/(n-1))) = ln(16 n), and the weight is at most 1/(16 n). All other positions together
have at most the weight 1/16, so v_i = sum_j a_ij I[w_j = 1] differs from I[w_(n-1-i) = 1] by at most 1/16. Two neurons
compute the mismatch

    m_i = max(0, I[w_i = 1] - v_i - 1/4) + max(0, v_i - I[w_i = 1] - 1/4).

If w_i = w_(n-1-i), then I[w_i = 1] and v_i differ by at most 1/16, and m_i is exactly 0. Otherwise m_i is at least
15/16 - 1/4 = 11/16, and so is the mismatch at n-1-i.

Layer 2 attends uniformly, so s = (1/n) sum_i m_i is **exactly 0 for palindromes and at least 11/(8n) otherwise**. This
is true in every number format in which the errors of the scores are below about ln(16 n) - ln 16 = ln n. The scores are
of size B ~ 2 ln(16 n) (n-1)^2 / pi^2, which limits the length in float32.

The same head averages I[w = CLS]. So the logit can be slack = (11/16) / n - s, which is positive if and only if w is a
palindrome. If a tolerance is given, the model is an indicator of |s| <= tolerance, right while 11/(8n) is larger.

With layer norm, row i is scaled by some r_i > 0 after the scores of layer 1 are computed. The mismatches stay 0 where
they are 0, because the neurons have no bias (1/4 comes from the one word of each row). Before scaling, a row with a
mismatch has a squared length of at most B + 1 + 1 + (3/4)^2, and CLS of at least B + 1. As B >= ln 48 > 3.87 for
n >= 3, r_i / r_0 >= sqrt(4.87 / 6.44) > 0.86, so two mismatches outweigh (11/16) r_0, and slack keeps its sign. The
last norm scales slack to +-sqrt(d/2) at eps = 0. So the cross-entropy of PALINDROME, too, goes to zero as output_scale
grows, which the paper leaves open.
"""

from math import exp, log

from interp.errors import InterpError
from interp.families.languages.constructions.rules import (
    Block,
    HeadRule,
    NeuronRule,
    PostNorm,
    Recognizer,
    Stream,
    everywhere,
    norm_of,
    positive,
)
from interp.families.languages.tasks.palindrome import Palindrome
from interp.families.languages.theory import values as theory
from interp.models.constructions import Construct, register_construction

LONGEST_BINARY = {"float64": 95, "float32": 42, "float16": 18, "bfloat16": 13}
"""Largest number of symbols by number format, as measured: about twice the number of mantissa bits."""

LN2 = log(2)


def smallest_binary(length: int) -> float:
    """Return 2 / (2^n - 1), the smallest |s| of a string of this length that is not a palindrome."""
    return 2 / (2.0 ** (length + 2) - 1)


def binary(c: float, tolerance: float, output_scale: float, beyond: str) -> Construct:
    """Build PALINDROME in binary: d = 12, and two layers, with two heads in the second. See `palindrome`."""
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
        claim=_binary_claim(exact, tolerance),
        margin=lambda length: smallest_binary(length) / 2 if exact and not tolerance else 0.0,
        longest=LONGEST_BINARY,
        notes=(
            "Nowak et al. 2022, section 3.2 and appendix A; errata 30 to 36",
            "no number format but integers or fractions goes further with a binary code",
        ),
        value=theory.palindrome if exact else None,
        numbers={"c": step, "base": exp(step)},
        tolerance=tolerance or None,
    )
    return proof.build({"c": float(c), "tolerance": float(tolerance)}, output_scale, None, beyond)


def largest_length(tolerance: float) -> int:
    """Return the largest length up to which |s| <= tolerance identifies palindromes in exact arithmetic with base 2."""
    length = 0
    while smallest_binary(length + 1) > tolerance:
        length += 1
    return length


def _binary_claim(exact: bool, tolerance: float) -> str:
    if not exact:
        return "no claim: with a base other than 2, non-palindromes come arbitrarily near to s = 0"
    if tolerance:
        return f"right on every string up to length {largest_length(tolerance)}, where 2 / (2^n - 1) > {tolerance:g}"
    return "right on every string: s = 0 for palindromes, |s| >= 2 / (2^n - 1) for others, the tolerance half that"


LONGEST_MIRROR = {"float64": 10_000, "float32": 4_000, "float16": 80, "bfloat16": 24}
"""Largest number of symbols by number format, as measured. Scores grow like n^2 ln n; errors must be below ln n."""

GAP = 11 / 16
"""The smallest mismatch; a string that is not a palindrome has at least two."""


def smallest_mirror(length: int) -> float:
    """Return 11 / (8 n), the proof's lower bound of s for a string of this length that is not a palindrome."""
    return 2 * GAP / (length + 2)


def mirror(tolerance: float, layer_norm: bool, norm: PostNorm | None, output_scale: float, beyond: str) -> Construct:
    """Build PALINDROME by its mirror image: d = 10, or 20 with layer norm. See `palindrome`."""
    if tolerance:
        positive("tolerance", tolerance)
    words = ("[0]", "[1]", "[CLS]", "[EOS]")
    stream = Stream(("cos", "sin", *words, "mirror 1", "mismatch", "s", "slack"), doubled=norm is not None)
    image = HeadRule([({"cos": -1}, {"cos": 1}), ({"sin": 1}, {"sin": 1})], [({"[1]": 1}, {"mirror 1": 1})])
    quarter = everywhere(words, -0.25)
    differ = [
        NeuronRule({**quarter, "[1]": 0.75, "mirror 1": -1}, {"mismatch": 1}),
        NeuronRule({**quarter, "[1]": -1.25, "mirror 1": 1}, {"mismatch": 1}),
    ]
    average = HeadRule(moves=[({"mismatch": 1}, {"s": 1}), ({"[CLS]": GAP, "mismatch": -1}, {"slack": 1})])
    proof = Recognizer(
        name="languages/palindrome",
        variant="mirror",
        task=Palindrome(),
        stream=stream,
        words={word[1:-1] if word in ("[0]", "[1]") else word: {word: 1} for word in words},
        blocks=[Block([image], differ), Block([average])],
        answer="s" if tolerance else "slack",
        positions="mirror",
        claim=_mirror_claim(tolerance),
        margin=lambda length: smallest_mirror(length) / 2 if not tolerance else 0.0,
        longest=LONGEST_MIRROR,
        notes=("errata of Nowak et al. 2022, section B, after the table",),
        numbers={"smallest_s_times_n": 2 * GAP},
        tolerance=tolerance or None,
    )
    arguments = {"tolerance": float(tolerance), "layer_norm": layer_norm, "eps": norm.eps if norm else 0.0}
    return proof.build(arguments, output_scale, norm, beyond)


def _mirror_claim(tolerance: float) -> str:
    if tolerance:
        return f"right on every string with n < {2 * GAP / tolerance:.0f}, where 11/(8n) > {tolerance:g}"
    return "right on every string: s = 0 exactly for palindromes, s >= 11/(8n) for others, the tolerance half that"


@register_construction("languages/palindrome", variants=("binary", "mirror"))
def palindrome(
    variant: str = "binary",
    c: float = 0.0,
    tolerance: float = 0.0,
    layer_norm: bool = False,
    eps: float = 0.0,
    output_scale: float = 1.0,
    beyond: str = "refuse",
) -> Construct:
    """PALINDROME: the two halves compared as binary numbers, or position by position through the mirror.

    variant: "binary" (d = 12; up to length 42 in float32, 95 in float64) or "mirror" (d = 10; up to 4,000 and 10,000).
    c: binary only, the difference between scores of neighboring positions; 0 means ln 2, the only value with a proof.
    tolerance: 0 means that the model computes half the lower bound of |s| for other strings of the same length; a
    positive number gives the paper's indicator of |s| <= tolerance. layer_norm, eps: mirror only. output_scale: the
    readout's factor on the logit (on s with a tolerance). beyond: "refuse" or "warn" if a string is too long for the
    number format. Raises InterpError for invalid values.
    """
    if variant == "binary":
        if layer_norm or eps:
            raise InterpError("layer_norm applies to variant='mirror': a norm would bend the binary code i of 'binary'")
        return binary(c, tolerance, output_scale, beyond)
    if c:
        raise InterpError(f"c = {c!r} applies to variant='binary' only; 'mirror' takes its strength from the proof")
    if tolerance and layer_norm:
        raise InterpError("tolerance and layer_norm exclude each other: a norm scales s away from 0 whatever it is")
    return mirror(tolerance, layer_norm, norm_of(layer_norm, eps), output_scale, beyond)
