"""PALINDROME by attention to the mirror image: without 2^-n, so that long strings need few bits (errata, section B).

n counts CLS and EOS, which are at i = 0 and i = n - 1. Position n - 1 - i is the mirror image of i. The position code
is sqrt(B) (cos t_i, sin t_i) with t_i = pi i / (n-1) and B = ln(16 n) / (1 - cos(pi / (n-1))).

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

from interp.constructions import Construct
from interp.families.languages.constructions.parts import (
    Block,
    HeadRule,
    NeuronRule,
    PostNorm,
    Recognizer,
    Stream,
    everywhere,
    positive,
)
from interp.families.languages.tasks.palindrome import Palindrome
from interp.spec import Scalar

LONGEST = {"float64": 10_000, "float32": 4_000, "float16": 80, "bfloat16": 24}
"""Largest number of symbols by number format, as measured. Scores grow like n^2 ln n; errors must be below ln n."""

GAP = 11 / 16
"""The smallest mismatch; a string that is not a palindrome has at least two."""


def smallest_value(length: int) -> float:
    """Return 11 / (8 n), the proof's lower bound of s for a string of this length that is not a palindrome."""
    return 2 * GAP / (length + 2)


def mirror(tolerance: float, layer_norm: bool, norm: PostNorm | None, output_scale: float, beyond: str) -> Construct:
    """Build PALINDROME by its mirror image: d = 10, or 20 with layer norm. See languages_palindrome."""
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
        claim=_claim(tolerance),
        margin=lambda length: smallest_value(length) / 2 if not tolerance else 0.0,
        longest=LONGEST,
        notes=("errata of Nowak et al. 2022, section B, after the table",),
        numbers={"smallest_s_times_n": 2 * GAP},
        tolerance=tolerance or None,
    )
    arguments: dict[str, Scalar] = {
        "tolerance": float(tolerance),
        "layer_norm": layer_norm,
        "eps": norm.eps if norm else 0.0,
        "output_scale": float(output_scale),
        "beyond": beyond,
    }
    return proof.build(arguments, output_scale, norm, beyond)


def _claim(tolerance: float) -> str:
    if tolerance:
        return f"right on every string with n < {2 * GAP / tolerance:.0f}, where 11/(8n) > {tolerance:g}"
    return "right on every string: s = 0 exactly for palindromes, s >= 11/(8n) for others, the tolerance half that"
