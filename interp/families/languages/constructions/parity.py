"""PARITY = {w : w has an odd number of 1s} with two layers of two heads (Chiang and Cholak 2022, section 3.2).

n counts CLS (erratum 30), and k is the number of ones. The position code is i/n and cos(i pi) = +-1.

Layer 1 attends uniformly, which gives k/n and 1/n in every row. Three neurons compute 1/n times

    max(0, k-i-1) - 2 max(0, k-i) + max(0, k-i+1) = I[i = k]        for whole numbers i and k.

So they mark the position i = k, which exists because 0 <= k <= n - 1.
Layer 2: at CLS, head 1 scores position i by -c cos(i pi), and head 2 by +c cos(i pi). So head 1 favors odd positions,
and head 2 even ones (the comments in the published code exchange the two; erratum 37). Both average I[i = k]/n, and
s = head 1 - head 2. With E even and O odd positions, where E + O = n and 0 <= E - O <= 1,

    k odd:   n s =  e^c / (O e^c + E e^-c) - e^-c / (E e^c + O e^-c),
    k even:  n s = e^-c / (O e^c + E e^-c) -  e^c / (E e^c + O e^-c).

For odd k, s has the sign of e^c (E e^c + O e^-c) - e^-c (O e^c + E e^-c) = E (e^2c - e^-2c) > 0. For even k, it has the
sign of -O (e^2c - e^-2c) < 0, since O >= 1 for every nonempty string. So s > 0 if and only if w is in PARITY. As n
grows, n^2 |s| tends to 2 tanh(c).

With layer norm, rows are scaled by positive numbers. So the neurons still mark only i = k, because they have no bias,
and the scores keep their signs, so each head still favors its positions. But whether the heads' sums of weights stay
close enough for the sign of s is not proved here; it is checked, for every k at many lengths. The last norm scales s to
+-sqrt(d/2) at eps = 0. The heads then attend from every row, not only from CLS: other rows would have s = 0, which a
norm with eps = 0 cannot scale. The tenth component is unused, as in the published code; without it, s would be +-3.
"""

from math import exp, sqrt, tanh

from interp.families.languages.constructions import rules
from interp.families.languages.tasks.regular import Parity
from interp.families.languages.theory import values as theory
from interp.models.constructions import Construct, register_construction

LONGEST = {"float64": 10_000, "float32": 10_000, "float16": 80, "bfloat16": 20}
"""Largest number of symbols by number format, as measured; float64 and float32 were tested no further."""


def smallest_value(length: int, c: float) -> float:
    """Return the smallest |s| of all strings of a length, by the formulas above with E - O = n mod 2."""
    n = length + 1
    even, odd = (n + 1) // 2, n // 2
    total_1, total_2 = odd * exp(c) + even * exp(-c), even * exp(c) + odd * exp(-c)
    values = [exp(c) / total_1 - exp(-c) / total_2, exp(c) / total_2 - exp(-c) / total_1]
    return min(values) / n


@register_construction("languages/parity")
def parity(
    layer_norm: bool = False, eps: float = 0.0, c: float = 0.0, output_scale: float = 1.0, beyond: str = "refuse"
) -> Construct:
    """PARITY by whether the k-th position is odd: d = 10, or 20 with layer norm.

    c: how strongly the heads of layer 2 favor their positions; 0 means 1/sqrt(d/2), as in the published code (errata,
    section B). eps: of the layer norm. output_scale: the readout's factor on s; with layer norm and eps = 0, the
    cross-entropy of every string is ln(1 + exp(-output_scale sqrt(10))). beyond: "refuse" or "warn" if a string is too
    long for the number format. Raises InterpError for invalid values.
    """
    names = ("i/n", "cos(i pi)", "[0]", "[1]", "[CLS]", "k/n", "1/n", "[i=k]/n", "s", "empty")
    stream = rules.Stream(names, doubled=layer_norm)
    sharpness = rules.positive("c", c or 1 / sqrt(stream.d_model / 2))
    asking = rules.everywhere(("[0]", "[1]", "[CLS]"), sharpness) if layer_norm else {"[CLS]": sharpness}
    average = rules.HeadRule(moves=[({"[1]": 1}, {"k/n": 1}), ({"[CLS]": 1}, {"1/n": 1})])
    hat = [
        rules.NeuronRule({"k/n": 1, "i/n": -1, "1/n": -1}, {"[i=k]/n": 1}),
        rules.NeuronRule({"k/n": 1, "i/n": -1}, {"[i=k]/n": -2}),
        rules.NeuronRule({"k/n": 1, "i/n": -1, "1/n": 1}, {"[i=k]/n": 1}),
    ]
    odd = rules.HeadRule(matches=[(asking, {"cos(i pi)": -1})], moves=[({"[i=k]/n": 1}, {"s": 1})])
    even = rules.HeadRule(matches=[(asking, {"cos(i pi)": 1})], moves=[({"[i=k]/n": 1}, {"s": -1})])
    proof = rules.Recognizer(
        name="languages/parity",
        task=Parity(),
        stream=stream,
        words={"0": {"[0]": 1}, "1": {"[1]": 1}, "[CLS]": {"[CLS]": 1}},
        blocks=[rules.Block([average], hat), rules.Block([odd, even])],
        answer="s",
        positions="parity",
        claim="right on every string: s > 0 if and only if the number of ones is odd; n^2 |s| tends to 2 tanh(c)",
        margin=lambda length: smallest_value(length, sharpness),
        longest=LONGEST,
        notes=(
            "Chiang and Cholak 2022, section 3.2; errata 30, 37 and 38 of Nowak et al. 2022",
            *(["with layer norm the sign of s is checked at many lengths, not proved"] if layer_norm else []),
        ),
        value=lambda symbols: theory.parity(symbols, sharpness),
        numbers={"c": sharpness, "s_times_n_squared": 2 * tanh(sharpness)},
    )
    arguments = {"layer_norm": layer_norm, "eps": float(eps), "c": float(c)}
    return proof.build(arguments, output_scale, rules.norm_of(layer_norm, eps), beyond)
