"""Does the model count by relation or by inventory? (Behrens et al. 2024, section 5)"""

from __future__ import annotations

import pandas as pd

from interp import words
from interp.measures.relation_or_inventory import Mechanism, mechanism
from interp.report import Report
from interp.report import figures as draw
from interp.sections import _shared as shared
from interp.sections.base import Study, section


@section("counting_mechanism", title="Mechanism", order=702, needs=shared.needs_counter)
def make(study: Study, report: Report) -> None:
    """Weights against contents of the mixed token: what the answer follows when they disagree."""
    counter = study.once(shared.counter)
    found = mechanism(counter)
    report.section(
        "Mechanism",
        "The mixed token that the readout sees is, exactly, the own token, plus weights (how much is attended, along "
        "the mean of the alphabet and [BOS]), plus contents (to which tokens). In relation-based counting the weights "
        "carry the count, in inventory-based counting the contents do. So weights and contents are taken from "
        "different positions of the same token, with different counts, and the answer is regressed on both counts.",
    )
    slopes = pd.DataFrame(
        {"part": ["weights", "contents"], "slope": [found.by_weights, found.by_contents],
         "left": [found.without_contents, found.without_weights]}
    )  # fmt: skip
    report.add_figure(
        "conflict",
        draw.bars(slopes, "part", "slope", x_title="part that holds the count", y_title="rise of the answer per count"),
        "Weights against contents: how much the answer rises when the count in this part rises by one. A relation has "
        "1 and 0, an inventory 0 and 1.",
    )
    alone = found.without_contents, found.without_weights
    evidence = [
        ("answer follows the weights by", found.by_weights, "relation 1, inventory 0"),
        ("answer follows the contents by", found.by_contents, "relation 0, inventory 1"),
        ("variance explained by the two counts", found.explained, ""),
        ("information left without contents", alone[0], "relation 1, inventory 0"),
        ("information left without weights", alone[1], "relation 0, inventory 1"),
        ("accuracy lost on a token whose neurons are silenced", found.own_loss, ""),
        ("accuracy lost on the other tokens by that", found.other_loss, "relation: as much; inventory: none"),
    ]
    report.add_table(
        "mechanism",
        pd.DataFrame(evidence, columns=["evidence", "value", "of the constructions"]),
        f"Causal evidence, over {found.positions:,} positions. Information: squared correlation of answer and count. "
        f"Silenced: {found.neurons} of {counter.W_in.shape[1]} hidden neurons for each token.",
        {"value": ".3f"},
    )
    report.say(sentence(found), "how", ["conflict", "hidden_by_count"])
    report.add_fact("mechanism", found.verdict)
    report.add_fact("by weights", found.by_weights)
    report.add_fact("by contents", found.by_contents)
    report.add_fact("specificity", found.specificity)


ROUNDING = 9
"""Decimals of a regression's slopes that are more than its arithmetic."""


def sentence(found: Mechanism) -> str:
    """The verdict in words, from the numbers alone."""
    if found.verdict == "does not count":
        right = words.share(found.accuracy, 3)
        return f"It does not count well enough to ask how: accuracy {right}, averaged over the counts."
    how = "is partly relation-based and partly inventory-based" if found.verdict == "mixed" else f"is {found.verdict}"
    weights, contents = (words.number(round(by, ROUNDING), 2) for by in (found.by_weights, found.by_contents))
    said = (
        f"The counting {how}: when weights and contents of the mixture stand for different counts, the answer follows "
        f"the weights by {weights} and the contents by {contents}."
    )
    neurons = "neuron that tells" if found.neurons == 1 else f"{found.neurons} neurons that tell"
    mine, theirs = words.number(found.own_loss, 2), words.number(found.other_loss, 2)
    if mine == theirs:
        return f"{said} Silencing the {neurons} most about a token costs every token the same, {mine} of accuracy."
    return (
        f"{said} Silencing the {neurons} most about a token costs that token {mine} of accuracy, the others {theirs}."
    )
