"""FIRST = {w : w_1 = 1} with two layers of one head (Chiang and Cholak 2022, section 3.1).

n counts CLS. The first symbol is at position i = 1, which the position code I[i = 1] marks.

Layer 1: the attention adds nothing. One neuron computes max(0, I[i = 1] - I[w = 0] - I[w = CLS]), which is
I[i = 1 and w_1 = 1].
Layer 2: at CLS, position i has the score c I[i = 1], so the first symbol has weight e^c / (e^c + n - 1). The head
averages I[i = 1 and w_1 = 1] - I[i = 1] / 2. At CLS, the result is

    s = e^c / (e^c + n - 1) (I[w_1 = 1] - 1/2),

which is positive if and only if w is in FIRST, for any c > 0. As n grows, n |s| tends to e^c / 2.

With layer norm, every row is scaled by a positive number before the neuron and before the head. Signs and zeros stay
the same, so s keeps its sign. The last norm scales it to +-sqrt(d/2) at eps = 0. The head then attends to the first
symbol from every row, not only from CLS.
"""

from math import exp, sqrt

from interp.families.languages.constructions import rules
from interp.families.languages.tasks.regular import First
from interp.families.languages.theory import values as theory
from interp.models.constructions import Construct, register_construction

LONGEST = {"float64": 10_000, "float32": 10_000, "float16": 1_000, "bfloat16": 1_000}
"""Largest tested number of symbols by number format."""


@register_construction("languages/first")
def first(
    layer_norm: bool = False, eps: float = 0.0, c: float = 0.0, output_scale: float = 1.0, beyond: str = "refuse"
) -> Construct:
    """FIRST by attention to the first symbol: d = 6, or 12 with layer norm.

    c: the score of the first symbol at CLS; 0 means 1/sqrt(d), as in the published code (errata, section B). A larger c
    makes |s| larger: log(n) keeps it at about 1/4. eps: of the layer norm. output_scale: the readout's factor on s;
    with layer norm and eps = 0, the cross-entropy of every string is ln(1 + exp(-output_scale sqrt(6))).
    beyond: "refuse" or "warn" if a string is too long for the number format. Raises InterpError for invalid values.
    """
    stream = rules.Stream(("[i=1]", "[0]", "[1]", "[CLS]", "[i=1, w=1]", "s"), doubled=layer_norm)
    sharpness = rules.positive("c", c or 1 / sqrt(stream.d_model))
    asking = rules.everywhere(("[0]", "[1]", "[CLS]"), sharpness) if layer_norm else {"[CLS]": sharpness}
    look = rules.HeadRule(matches=[(asking, {"[i=1]": 1})], moves=[({"[i=1, w=1]": 1, "[i=1]": -0.5}, {"s": 1})])
    proof = rules.Recognizer(
        name="languages/first",
        task=First(),
        stream=stream,
        words={"0": {"[0]": 1}, "1": {"[1]": 1}, "[CLS]": {"[CLS]": 1}},
        blocks=[
            rules.Block(neurons=[rules.NeuronRule({"[i=1]": 1, "[0]": -1, "[CLS]": -1}, {"[i=1, w=1]": 1})]),
            rules.Block([look]),
        ],
        answer="s",
        positions="first",
        claim="right on every string: s = e^c / (e^c + n - 1) (I[w_1 = 1] - 1/2)",
        margin=lambda length: 0.5 * exp(sharpness) / (exp(sharpness) + length),
        longest=LONGEST,
        notes=("Chiang and Cholak 2022, section 3.1; errata 30 and 38 of Nowak et al. 2022",),
        value=lambda symbols: theory.first(symbols, sharpness),
        numbers={"c": sharpness, "s_times_n": exp(sharpness) / 2},
    )
    arguments = {"layer_norm": layer_norm, "eps": float(eps), "c": float(c)}
    return proof.build(arguments, output_scale, rules.norm_of(layer_norm, eps), beyond)
