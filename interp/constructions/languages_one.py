"""ONE = {w : w has exactly one 1} with one layer and one head (Nowak et al. 2022, section 3.1).

n counts CLS (erratum 30). The head attends uniformly (its scores are all zero) and averages I[w = 1] and I[w = CLS], so
every row holds k/n and 1/n, with k the number of ones. Four neurons without bias give, times n,

    max(0, k-2) - 2 max(0, k-1) + max(0, k) - 1/2 = I[k = 1] - 1/2        for every whole number k >= 0,

because the left side is piecewise linear between whole numbers and takes the values 0, 1, 0, 0, ... at k = 0, 1, 2,
3, ... The half is carried by 1/n, so that it shrinks as fast as the rest. Hence **s = (I[k = 1] - 1/2) / n**: s is
positive if and only if w is in ONE, and |s| n = 1/2 for every string.

With layer norm rows keep their direction and neurons without bias keep their sign, so s is only scaled by a positive
number, and the last norm takes it to +-sqrt(d/2) at eps = 0.
"""

from __future__ import annotations

from interp.constructions.languages_parts import Block, Head, Neuron, Proof, Stream, norm_of
from interp.constructions.registry import Construct, register_construction
from interp.tasks import One
from interp.theory import languages as theory

LONGEST = {"float64": 10_000, "float32": 10_000, "float16": 1_000, "bfloat16": 100}
"""Symbols, measured; all but bfloat16 are as far as tests go."""


@register_construction("languages/one")
def one(layer_norm: bool = False, eps: float = 0.0, output_scale: float = 1.0, beyond: str = "refuse") -> Construct:
    """ONE by the average number of ones: d = 7, or 14 with layer norm.

    eps: of the layer norm. output_scale: what the readout multiplies s by; with layer norm and eps = 0 the
    cross-entropy of every string is ln(1 + exp(-output_scale sqrt(7))). beyond: "refuse" or "warn" at strings that
    are too long for the number format. Raises InterpError for values that make no sense.
    """
    stream = Stream(("i/n", "[0]", "[1]", "[CLS]", "k/n", "1/n", "s"), doubled=layer_norm)
    average = Head(moves=[({"[1]": 1}, {"k/n": 1}), ({"[CLS]": 1}, {"1/n": 1})])
    hat = [
        Neuron({"k/n": 1, "1/n": -2}, {"s": 1}),
        Neuron({"k/n": 1, "1/n": -1}, {"s": -2}),
        Neuron({"k/n": 1}, {"s": 1}),
        Neuron({"1/n": 1}, {"s": -0.5}),
    ]
    proof = Proof(
        name="languages/one",
        task=One(),
        stream=stream,
        words={"0": {"[0]": 1}, "1": {"[1]": 1}, "[CLS]": {"[CLS]": 1}},
        blocks=[Block([average], hat)],
        answer="s",
        positions="fraction",
        claim="right on every string: s = (I[k = 1] - 1/2) / n, with k the number of ones",
        margin=lambda length: 0.5 / (length + 1),
        longest=LONGEST,
        notes=("Nowak et al. 2022, section 3.1; erratum 30",),
        value=theory.one,
        numbers={"s_times_n": 0.5},
    )
    arguments = {"layer_norm": layer_norm, "eps": float(eps), "output_scale": float(output_scale)}
    return proof.build({**arguments, "beyond": beyond}, output_scale, norm_of(layer_norm, eps), beyond)
