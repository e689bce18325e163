"""ONE = {w : w has exactly one 1} with one layer and one head (Nowak et al. 2022, section 3.1).

n counts CLS (erratum 30), and k is the number of ones. All scores of the head are zero, so it averages I[w = 1] and
I[w = CLS] uniformly, which gives k/n and 1/n in every row. Four neurons without bias read these, and add to s

    (max(0, k-2) - 2 max(0, k-1) + max(0, k) - 1/2) / n.

The first three terms add up to 0 for k = 0, to 1 for k = 1, and to (k-2) - 2 (k-1) + k = 0 for k >= 2. Hence
**s = (I[k = 1] - 1/2) / n**: s is positive if and only if w is in ONE, and n |s| = 1/2 for every string.

With layer norm, rows are only scaled by positive numbers. Neurons without bias pass such a factor on, so s keeps its
sign. The last norm scales it to +-sqrt(d/2) at eps = 0.
"""

from interp.families.languages.constructions.rules import Block, HeadRule, NeuronRule, Recognizer, Stream, norm_of
from interp.families.languages.tasks.regular import One
from interp.families.languages.theory import values as theory
from interp.models.constructions import Construct, register_construction

LONGEST = {"float64": 10_000, "float32": 10_000, "float16": 1_000, "bfloat16": 100}
"""Largest number of symbols by number format, as measured; tested no further except in bfloat16."""


@register_construction("languages/one")
def one(layer_norm: bool = False, eps: float = 0.0, output_scale: float = 1.0, beyond: str = "refuse") -> Construct:
    """ONE by the average number of ones: d = 7, or 14 with layer norm.

    eps: of the layer norm. output_scale: the readout's factor on s; with layer norm and eps = 0, the cross-entropy of
    every string is ln(1 + exp(-output_scale sqrt(7))). beyond: "refuse" or "warn" if a string is too long for the
    number format. Raises InterpError for invalid values.
    """
    stream = Stream(("i/n", "[0]", "[1]", "[CLS]", "k/n", "1/n", "s"), doubled=layer_norm)
    average = HeadRule(moves=[({"[1]": 1}, {"k/n": 1}), ({"[CLS]": 1}, {"1/n": 1})])
    hat = [
        NeuronRule({"k/n": 1, "1/n": -2}, {"s": 1}),
        NeuronRule({"k/n": 1, "1/n": -1}, {"s": -2}),
        NeuronRule({"k/n": 1}, {"s": 1}),
        NeuronRule({"1/n": 1}, {"s": -0.5}),
    ]
    proof = Recognizer(
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
    arguments = {"layer_norm": layer_norm, "eps": float(eps)}
    return proof.build(arguments, output_scale, norm_of(layer_norm, eps), beyond)
