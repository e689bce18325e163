"""PARITY = {w : w has an odd number of 1s} with two layers of two heads (Chiang and Cholak 2022, section 3.2).

n counts CLS (erratum 30); the position code is i/n and cos(i pi) = +-1.

Layer 1 attends uniformly, so every row holds k/n and 1/n, with k the number of ones. Three neurons compute, times n,

    max(0, k-i-1) - 2 max(0, k-i) + max(0, k-i+1) = I[i = k]        for whole numbers i and k,

a hat over the one position i = k; it exists, because 0 <= k <= n - 1.
Layer 2: at CLS head 1 scores position i by -c cos(i pi), head 2 by +c cos(i pi): head 1 favors odd positions, head 2
even ones (the comments of the published code have it the other way round, erratum 37). Both average I[i = k]/n, and
s = head 1 - head 2. With E even and O odd positions, E + O = n, 0 <= E - O <= 1,

    k odd:   n s =  e^c / (O e^c + E e^-c) - e^-c / (E e^c + O e^-c),
    k even:  n s = e^-c / (O e^c + E e^-c) -  e^c / (E e^c + O e^-c).

For k odd the sign is that of e^c (E e^c + O e^-c) - e^-c (O e^c + E e^-c) = E (e^2c - e^-2c) > 0, for k even that of
-O (e^2c - e^-2c) < 0, as O >= 1 for every string that is not empty: s > 0 if and only if w is in PARITY. And
n^2 |s| tends to 2 tanh(c).

With layer norm each row i is scaled by a positive number r_i. Neurons without bias keep I[i = k] apart from zero and
zero at zero; the scores become -+c cos(i pi) r_i, so each head still favors its positions. That the two heads' sums of
weights stay close enough for the sign of s is not proved here but checked, for every k at many lengths.
The last norm takes s to +-sqrt(d/2) at eps = 0. There the heads look from every row, not from CLS alone: other rows
would hold s = 0, which a norm with eps = 0 cannot scale. The tenth component is empty: the published code has it, and
its +-sqrt(10) with it.
"""

from __future__ import annotations

from math import exp, sqrt, tanh

from interp.constructions.languages_parts import Block, Head, Neuron, Proof, Stream, everywhere, norm_of, positive
from interp.constructions.registry import Construct, register_construction
from interp.tasks import Parity
from interp.theory import languages as theory

LONGEST = {"float64": 10_000, "float32": 10_000, "float16": 80, "bfloat16": 20}
"""Symbols, measured; the float64 and float32 figures are as far as tests go."""


def smallest_value(length: int, c: float) -> float:
    """The smallest |s| over all strings of a length: the formulas above, with E - O = n mod 2."""
    n = length + 1
    even, odd = (n + 1) // 2, n // 2
    one, two = odd * exp(c) + even * exp(-c), even * exp(c) + odd * exp(-c)
    values = [exp(c) / one - exp(-c) / two, exp(c) / two - exp(-c) / one]
    return min(values) / n


@register_construction("languages/parity")
def parity(
    layer_norm: bool = False, eps: float = 0.0, c: float = 0.0, output_scale: float = 1.0, beyond: str = "refuse"
) -> Construct:
    """PARITY by whether the k-th position is odd: d = 10, or 20 with layer norm.

    c: how strongly the heads of layer 2 favor their positions; 0 takes 1/sqrt(d/2), as the published code does
    (errata, section B). eps: of the layer norm. output_scale: what the readout multiplies s by; with layer norm and
    eps = 0 the cross-entropy of every string is ln(1 + exp(-output_scale sqrt(10))). beyond: "refuse" or "warn" at
    strings too long for the number format. Raises InterpError for values that make no sense.
    """
    names = ("i/n", "cos(i pi)", "[0]", "[1]", "[CLS]", "k/n", "1/n", "[i=k]/n", "s", "empty")
    stream = Stream(names, doubled=layer_norm)
    sharpness = positive("c", c or 1 / sqrt(stream.d_model / 2))
    asking = everywhere(("[0]", "[1]", "[CLS]"), sharpness) if layer_norm else {"[CLS]": sharpness}
    average = Head(moves=[({"[1]": 1}, {"k/n": 1}), ({"[CLS]": 1}, {"1/n": 1})])
    hat = [
        Neuron({"k/n": 1, "i/n": -1, "1/n": -1}, {"[i=k]/n": 1}),
        Neuron({"k/n": 1, "i/n": -1}, {"[i=k]/n": -2}),
        Neuron({"k/n": 1, "i/n": -1, "1/n": 1}, {"[i=k]/n": 1}),
    ]
    odd = Head(matches=[(asking, {"cos(i pi)": -1})], moves=[({"[i=k]/n": 1}, {"s": 1})])
    even = Head(matches=[(asking, {"cos(i pi)": 1})], moves=[({"[i=k]/n": 1}, {"s": -1})])
    proof = Proof(
        name="languages/parity",
        task=Parity(),
        stream=stream,
        words={"0": {"[0]": 1}, "1": {"[1]": 1}, "[CLS]": {"[CLS]": 1}},
        blocks=[Block([average], hat), Block([odd, even])],
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
    arguments = {"layer_norm": layer_norm, "eps": float(eps), "c": float(c), "output_scale": float(output_scale)}
    return proof.build({**arguments, "beyond": beyond}, output_scale, norm_of(layer_norm, eps), beyond)
