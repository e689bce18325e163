"""What each part adds to the logit of the right answer over its best rival (direct logit attribution).

Then the neurons whose ablation changes the model most, and what they respond to.
"""

import math
from collections.abc import Callable

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from interp.measures.components import SHOWN, Attribution, direct_logit_attribution
from interp.measures.embeddings import cycle_place, neuron_spectra
from interp.measures.runs import Neuron
from interp.measures.survey import neurons_that_matter, no_neurons, response
from interp.measures.variables import feature_at_reads
from interp.models.subject import no_sum
from interp.report import Report
from interp.report.sections.base import Study, section
from interp.support import figures as draw
from interp.support import words
from interp.support.words import counted, either, joined, number
from interp.tasks import Batch
from interp.tasks.populations import Population
from interp.tasks.scores import NORMAL_95

ROUNDING = 1e-6
"""Rounding error of the mean of logits in float32."""
MOST_SAID = 4
"""Largest number of right answers in the sentence."""


def population(study: Study) -> Population:
    return study.population("components")


def half_width(values: Tensor, inputs: Population) -> float:
    """Return half the width of a mean's 95% interval, for independent rows; 0 if these are all inputs."""
    return 0.0 if inputs.exact else NORMAL_95 * float(values.std(correction=0)) / math.sqrt(min(len(values), inputs.n))


def describe_largest(values: Float[Tensor, "reads components"], inputs: Population) -> list[int]:
    """Return the column with the largest mean, and the columns that are not told apart from it read by read."""
    best = int(values.mean(0).argmax())
    behind = values[:, best, None] - values
    tied = [i for i, gap in enumerate(behind.T) if float(gap.mean()) <= half_width(gap, inputs)]
    return [best, *(i for i in tied if i != best)]


def sentence(found: Attribution, inputs: Population, word: Callable[[int], str]) -> str:
    """Return a sentence on the part that adds most, for each right answer if they are few, or for all together."""
    if not bool((found.centered.abs() > ROUNDING).any()):
        return "Each part adds the same to every input."
    answers = found.classes.unique().tolist()
    by_answer: list[tuple[list[int], str]] = []
    for index in answers if 2 <= len(answers) <= MOST_SAID else [None]:
        values = found.centered if index is None else found.centered[found.classes == index]
        leaders = describe_largest(values, inputs)
        effects = values[:, leaders[0]]
        mean = number(float(effects.mean()))
        interval = "" if inputs.exact else f", 95% interval ±{number(max(half_width(effects, inputs), ROUNDING), 2)}"
        when = "" if index is None else f"when '{word(index)}' is right "
        by_answer.append((leaders, f"{when}({mean} logit{'s' * (mean != '1')}{interval})"))
    names = [either(found.parts["component"][leaders]) for leaders, _ in by_answer]
    if any(leaders != by_answer[0][0] for leaders, _ in by_answer):
        parts = "; ".join(f"{name} {size}" for name, (_, size) in zip(names, by_answer))
        return f"The part that adds most, beyond what it adds to every input, is {parts}."
    always = " for each answer:" if len(by_answer) > 1 else ""
    return (
        f"The part that adds most, beyond what it adds to every input, is {names[0]}{always} "
        f"{joined(size for _, size in by_answer)}."
    )


@section("components", title="What each part adds", order=200, block="where", needs=lambda study: no_sum(study.model))
def make(study: Study, report: Report) -> None:
    """Show the right output minus the best wrong one, divided among embedding, positions, heads, MLPs and biases."""
    inputs = study.once(population)
    attribution = direct_logit_attribution(study.subject, inputs.batch)
    table = attribution.to_frame()
    by_size = table.reindex(table["effect"].abs().sort_values(ascending=False).index)
    mean = float(attribution.difference.mean())
    report.heading(
        "What each part adds",
        f"Take {attribution.of}. This is a sum of what "
        "every part writes to the residual stream, with the scale of the final norm as in the run (direct logit "
        "attribution). Effects of a part through later parts are not included.\n\n"
        f"Its mean {inputs.on} ({counted(len(attribution.difference), 'answer')}) is {number(mean)}. "
        + sentence(attribution, inputs, study.task.word),
    )
    more = f" The {SHOWN} largest of {len(table)}." if len(table) > SHOWN else ""
    report.add_figure(
        "components", attribution.plot(), f"Mean over the answers; whiskers are one standard deviation.{more}"
    )
    report.add_table(
        "components",
        table.drop(columns=["layer", "head"]),
        "effect: mean share of it, in logits. spread: its standard deviation. negative: share of the "
        f"answers for which the part speaks against the right one. Measured {inputs.measured}.",
    )
    if 2 <= len(attribution.classes.unique()) <= 12 and len(table) <= SHOWN:
        report.add_figure(
            "components_by_answer",
            attribution.plot(by_answer=True),
            "Effects for each right answer, centered: without what the part's mean output adds.",
        )
    report.add_fact("largest_component", str(by_size["component"].iloc[0]))
    report.add_fact("mean_difference", mean)


SILENCED, DRAWN, MOST_VALUES, MOST_DOTS = 24, 4, 128, 30


def describe_missed_neurons(table: pd.DataFrame, population: Population) -> str:
    """Return a sentence on the neurons whose ablation lowers accuracy most or, if none does, raises the loss most."""
    worst, whole = float(table["accuracy"].min()), table.attrs["accuracy"]
    if population.score(whole).exceeds(population.score(worst)):
        without = dict(zip(table["neuron"], table["accuracy"]))
        neurons = words.either(f"neuron {name}" for name in population.leaders(without, least=True))
        return f"Accuracy is lowest without {neurons}: {words.share(worst)} ({words.share(whole)} with all)."
    grows, costs = table.iloc[0], "costs" if worst >= whole else "is seen to cost"
    opening = f"None of them alone {costs} accuracy, which is {words.share(whole)} with all"
    return f"{opening}; the loss grows most without neuron {grows['neuron']}." if grows["change"] > 0 else f"{opening}."


@section("neurons", title="Neurons", order=700, block="where", needs=lambda study: no_neurons(study.subject))
def one_by_one(study: Study, report: Report) -> None:
    """Show a table of the most harmful ablations, and the responses of the first few neurons."""
    inputs = study.population("neurons", SILENCED + 2, whole=True)
    table = neurons_that_matter(study.subject, inputs.batch, SILENCED)
    fewer = (
        f"the {len(table)} most promising of {table.attrs['neurons']:,}"
        if len(table) < table.attrs["neurons"]
        else words.counted(len(table), "neuron in all", "neurons in all")
    )
    report.heading(
        "Neurons",
        f"Measured {inputs.measured}. One neuron at a time is replaced by its mean: {fewer}. "
        f"{describe_missed_neurons(table, inputs)}",
    )
    shown = table.drop(columns=["layer", "index"]).dropna(axis=1, how="all")
    report.add_table(
        "neurons",
        shown,
        "accuracy, loss: of the whole model without the neuron. change: of the loss, in nats. active: share of the "
        "answers at which the neuron is above 0.",
    )
    if study.task.cyclic:
        _waves(study, report, inputs.batch)
    names = _features(study, inputs.batch)
    if not names:
        return
    places = table[["layer", "index"]].head(DRAWN).itertuples(index=False)
    drawn = [Neuron(None if pd.isna(layer) else int(layer), int(index)) for layer, index in places]
    responses = {neuron: response(study.subject, inputs.batch, neuron, names) for neuron in drawn}
    if len(names) == 1:
        _lines(report, responses, names[0])
        return
    for neuron, activation in responses.items():
        matrix = activation.pivot(index=names[0], columns=names[1], values="activation")
        report.add_figure(
            f"neuron_{neuron}",
            draw.heatmap(
                matrix.to_numpy(), list(matrix.columns), list(matrix.index), names[1], names[0], "activation", 0.0,
                square=False,
            ),
            f"Mean activation of {neuron} by {names[0]} and {names[1]}.",
        )  # fmt: skip


def _waves(study: Study, report: Report, batch: Batch) -> None:
    """The strongest frequency of each MLP neuron over each cycle of tokens (Nanda et al. 2023)."""
    for group in study.task.cyclic:
        place = cycle_place(study.subject, batch, group)
        if place is None:
            continue
        table = neuron_spectra(study.subject, batch, group, place)
        live = table[table["size"] > 0]
        waves = live.groupby("frequency").agg(neurons=("neuron", "size"), power=("power", "mean")).reset_index()
        if waves.empty:
            continue
        report.add_figure(
            f"neurons_waves_{group}",
            draw.bars(waves, "frequency", "neurons", x_title="strongest frequency", y_title="neurons"),
            f"The strongest frequency of each neuron's mean activation over the cycle {group} at position {place}; on "
            f"average it holds {words.portion(live['power'].mean(), 3, rounding=1e-9)} of a neuron's power (Nanda et "
            "al. 2023).",
        )
        ordered = live.sort_values("power", ascending=False, ignore_index=True)
        report.add_table(f"neurons_waves_{group}", ordered, "One row per neuron, the purest waves first.", max_rows=12)


def _features(study: Study, batch: Batch) -> tuple[str, ...]:
    """Return one or two features with few values, for the axes of the figures."""
    values = {name: feature_at_reads(study.subject, batch, name) for name in study.task.features(batch[slice(0, 2)])}
    numbers = {name: len(value.unique()) for name, value in values.items()}
    few = [name for name, n in numbers.items() if 2 <= n <= MOST_VALUES]
    inner = [name for name in few if name != "answer"] or few
    reads = len(next(iter(values.values()), ()))
    fits = len(inner) > 1 and numbers[inner[0]] * numbers[inner[1]] * 4 <= reads  # else most cells would be empty
    return tuple(inner[: 2 if fits else 1])


def _lines(report: Report, responses: dict[Neuron, pd.DataFrame], name: str) -> None:
    """Draw all neurons against one feature, as bars if it has few values."""
    table = pd.concat([frame.assign(neuron=str(neuron)) for neuron, frame in responses.items()])
    if table[name].nunique() <= 6:
        figure = draw.bars(table.assign(**{name: table[name].astype(str)}), name, "activation", "neuron",
                           y_title="mean activation", error="spread")  # fmt: skip
    else:
        figure = draw.lines(
            table,
            name,
            "activation",
            "neuron",
            y_title="mean activation",
            markers=table[name].nunique() <= MOST_DOTS,
            spread="spread",
        )
    report.add_figure(
        "neurons_response",
        figure,
        f"Mean activation of the first neurons of the table, by {name}, with one standard deviation.",
    )
