"""What each part adds to the logit of the right answer over its best rival (direct logit attribution)."""

import math
from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

from interp.measures.components import SHOWN, Attribution, direct_logit_attribution
from interp.measures.subject import no_sum
from interp.populations import NORMAL_95, Population
from interp.report import Report
from interp.sections.base import Study, section
from interp.words import counted, either, number

ROUNDING = 1e-6
"""Rounding error of the mean of logits in float32."""
MOST_SAID = 4
"""Largest number of right answers in the sentence."""


def population(study: Study) -> Population:
    return study.population("components")


def half_width(values: Tensor, inputs: Population) -> float:
    """Return half the width of a mean's 95% interval, for independent rows; 0 if these are all inputs."""
    return 0.0 if inputs.exact else NORMAL_95 * float(values.std(correction=0)) / math.sqrt(min(len(values), inputs.n))


def largest(values: Float[Tensor, "reads components"], inputs: Population) -> list[int]:
    """Return the column with the largest mean, and the columns that are not told apart from it read by read."""
    best = int(values.mean(0).argmax())
    behind = values[:, best, None] - values
    tied = [i for i, one in enumerate(behind.T) if float(one.mean()) <= half_width(one, inputs)]
    return [best, *(i for i in tied if i != best)]


def sentence(found: Attribution, inputs: Population, word: Callable[[int], str]) -> str:
    """Return a sentence on the part that adds most, for each right answer if they are few, or for all together."""
    answers = found.classes.unique().tolist()
    said = []
    for index in answers if 2 <= len(answers) <= MOST_SAID else [None]:
        values = found.values if index is None else found.values[found.classes == index]
        leaders = largest(values, inputs)
        own = values[:, leaders[0]]
        mean = number(float(own.mean()))
        interval = "" if inputs.exact else f", 95% interval ±{number(half_width(own, inputs), 2, ROUNDING)}"
        when = "" if index is None else f" when '{word(index)}' is right"
        said.append(f"{either(found.parts['component'][leaders])}{when} ({mean} logit{'s' * (mean != '1')}{interval})")
    return f"The part that adds most is {'; '.join(said)}."


@section("components", title="What each part adds", order=200, block="where", needs=lambda study: no_sum(study.model))
def make(study: Study, report: Report) -> None:
    """Show the right output minus the best wrong one, divided among embedding, positions, heads, MLPs and biases."""
    inputs = study.once(population)
    found = direct_logit_attribution(study.subject, inputs.batch)
    table = found.to_frame()
    by_size = table.reindex(table["effect"].abs().sort_values(ascending=False).index)
    mean = float(found.difference.mean())
    report.heading(
        "What each part adds",
        "Take the logit of the right answer minus the logit of its best rival. This difference is a sum of what "
        "every part writes to the residual stream, with the scale of the final norm as in the run (direct logit "
        "attribution). Effects of a part through later parts are not included.\n\n"
        f"The mean difference {inputs.on} ({counted(len(found.difference), 'answer')}) is {number(mean)}. "
        + sentence(found, inputs, study.task.word),
    )
    more = f" The {SHOWN} largest of {len(table)}." if len(table) > SHOWN else ""
    report.add_figure("components", found.plot(), f"Mean over the answers; whiskers are one standard deviation.{more}")
    report.add_table(
        "components",
        table.drop(columns=["layer", "head"]),
        "effect: mean share of the difference, in logits. spread: its standard deviation. negative: share of the "
        f"answers for which the part favors the rival. Measured {inputs.measured}.",
    )
    if 2 <= len(found.classes.unique()) <= 12 and len(table) <= SHOWN:
        report.add_figure(
            "components_by_answer", found.plot(by_answer=True), "The same, separately for each right answer."
        )
    report.add_fact("largest_component", str(by_size["component"].iloc[0]))
    report.add_fact("mean_difference", mean)
