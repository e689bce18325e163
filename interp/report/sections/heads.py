"""Heads and MLPs of every layer: effect of ablation, information in their outputs about features, and attention."""

import pandas as pd

from interp.measures.components import quantity_of
from interp.measures.head_types import KINDS, HeadTypes, head_features
from interp.measures.runs import heads_of
from interp.measures.survey import MODES
from interp.report import Report
from interp.report.reading import FEWEST
from interp.report.sections import _shared as shared
from interp.report.sections.base import Study, section
from interp.support import figures as draw
from interp.support import words
from interp.tasks.populations import Population

MOST_PARTS, MOST_NAMED = 200, 3
NEEDED = 0.05
"""A part is needed if accuracy falls by more than this when the part is replaced by its mean."""
CLOSED = 0.5
"""Answers can be read from a head if its separator is more accurate than always giving the most frequent answer, by
more than NEEDED or by more than this share of what is missing to 1."""


def needs(study: Study) -> str | None:
    """Return the reason to skip this section (too many parts to ablate one by one), or None."""
    n = study.model.cfg.n_layers * (study.model.cfg.n_heads + 1)
    return f"{n} parts are too many to ablate one by one; use interp.ablate_heads" if n > MOST_PARTS else None


@section("heads", title="Heads and MLPs", order=300, block="where", needs=needs)
def make(study: Study, report: Report) -> None:
    """Write a table of all parts, and sentences about it."""
    table, population = study.once(shared.surveyed), study.once(shared.parts_population)
    layers = study.model.cfg.n_layers
    fewer = "" if table.attrs["looked"] == population.n else f", effect and attention {study.once(shared.looked_at).on}"
    sentences = [
        f"Measured {population.measured}.",
        describe_lowest_accuracy(table, population),
        describe_readable_heads(table, population),
    ]
    report.heading("Heads and MLPs", " ".join(filter(None, [*sentences, describe_induction(table)])))
    sizes = dict.fromkeys(("entropy", "uniform", *KINDS), ".3f")
    shown = table.dropna(axis=1, how="all").drop(columns=["layer", "head"] if layers == 1 else ["head"])
    shown = shown if normalized(table) else shown.drop(columns="uniform", errors="ignore")
    mean = describe_mean(table, population)
    report.add_table(
        "heads",
        shown,
        f"effect: the part's direct contribution to {quantity_of(study.subject.decision.kind)}. "
        f"accuracy_*, loss_* (nats): those of the whole model with the part replaced by zero, by {mean}, or "
        f"by its value on another input. {describe_separation(table)} {describe_attention(table)} "
        f"Measured {population.measured}{fewer}; separators are from the same inputs as the means.",
        {name: form for name, form in sizes.items() if name in shown},
        max_rows=80,
    )
    lost = pd.concat(
        [
            pd.DataFrame({"part": table["part"], "ablation": mode, "loss": table[f"loss_{mode}"]})
            if table[f"loss_{mode}"].notna().any()
            else pd.DataFrame({"part": table["part"], "ablation": mode, "accuracy": table[f"accuracy_{mode}"]})
            for mode in MODES
        ]
    )
    quantity = "loss" if "loss" in lost else "accuracy"
    report.add_figure(
        "heads_ablated",
        draw.bars(lost, "part", quantity, "ablation", x_title="ablated part",
                  y_title="loss (nats)" if quantity == "loss" else "accuracy"),
        f"{quantity.capitalize()} of the whole model with one part ablated.",
    )  # fmt: skip
    heads = table[table["kind"] == "head"]
    if normalized(heads) and heads["uniform"].max() == 0:
        report.add_text("No position sees more than one token, so heads cannot choose where to attend.")
    elif len(heads) and heads[list(KINDS)].notna().any(axis=None):
        values = (
            "Share of each head's attention" if normalized(heads) else "Scores of each head (no softmax, so no shares)"
        )
        report.add_figure(
            "heads_look",
            HeadTypes(heads, table.attrs["looked"]).plot(),
            f"{values}, averaged over the read positions. The keys are the position itself, the previous one, "
            "the first one, other positions with the same token, and positions after an earlier occurrence of "
            "the same token (induction).",
        )
    whole, chance = table.attrs["accuracy"], table.attrs["chance"]
    # One part, or a model no better than a guess: then what the section says is all there is to say.
    report.say(
        describe_needed_parts(table, whole, chance, population) or " ".join(sentences[:2]), "where", ["heads_ablated"]
    )
    report.add_fact("most_needed_part", name_most_needed_part(table, whole, chance, population))
    report.add_fact("accuracy_without_it", float(table["accuracy_mean"].min()))


def find_needed_parts(table: pd.DataFrame, whole: float, chance: float, population: Population) -> pd.Series:
    """Return the accuracy without each part that the model needs, lowest first.

    Accuracy must fall by more than NEEDED and by more than the sampling error. Empty if the model is no better than
    always giving the most frequent answer.
    """
    without = table.set_index("part")["accuracy_mean"]
    if whole <= chance + NEEDED:
        return without[:0]
    falls = [value < whole - NEEDED and population.score(whole).exceeds(population.score(value)) for value in without]
    return without[falls].sort_values(kind="stable")


def name_most_needed_part(table: pd.DataFrame, whole: float, chance: float, population: Population) -> str:
    """Name the part whose ablation lowers accuracy most, and its ties within sampling error, or return "none"."""
    needed = find_needed_parts(table, whole, chance, population)
    return words.either(population.leaders(dict(needed), least=True)) if len(needed) else "none"


def describe_needed_parts(table: pd.DataFrame, whole: float, chance: float, population: Population) -> str:
    """A sentence on the parts that the model needs, from the table's columns part and accuracy_mean.

    "" if the model is no better than always giving the most frequent answer (chance).
    """
    if len(table) < 2 or whole <= chance + NEEDED:
        return ""
    on = population.measured[:1].upper() + population.measured[1:]
    needed = find_needed_parts(table, whole, chance, population)
    rest = table.set_index("part")["accuracy_mean"].drop(needed.index)
    kept = f" Without any other part it is {_lowest(rest)}." if len(rest) else ""
    mean = describe_mean(table, population)
    if needed.empty:
        clearly = "" if population.exact else "clearly "
        return (
            f"{on}, replacing any single part by {mean} does not {clearly}lower accuracy by more than "
            f"{NEEDED:g}: it is then {_lowest(rest)} ({words.share(whole)} with all parts)."
        )
    named = [f"{part} (to {words.share(float(value))})" for part, value in needed.head(MOST_NAMED).items()]
    more = [f"{len(needed) - MOST_NAMED} more"] if len(needed) > MOST_NAMED else []
    return (
        f"{on}, accuracy falls from {words.share(whole)} when one of these is replaced by {mean}: "
        f"{words.joined([*named, *more])}.{kept}"
    )


def describe_mean(table: pd.DataFrame, population: Population) -> str:
    """The mean that replaces a part, and the inputs that it is from."""
    where = " at each position" if table.attrs.get("by_position") else ""
    return f"its mean{where} over {table.attrs['train']:,} {'training' if population.own else 'more'} inputs"


def describe_separation(table: pd.DataFrame) -> str:
    """Caption for the column s_acc, or the reason why it is missing."""
    if (reason := table.attrs["no_s_acc"]) is not None:
        return f"There is no s_acc: {reason}."
    return (
        "s_acc: accuracy of the best linear separator (each answer against the rest) of the head's output at the "
        "read positions."
    )


def normalized(heads: pd.DataFrame) -> bool:
    """Whether attention sums to 1. If not, the entropy is NaN."""
    return bool(heads["entropy"].notna().any())


def describe_attention(table: pd.DataFrame) -> str:
    """Caption for the attention columns."""
    if normalized(table):
        return (
            "Columns entropy to induction: attention from the read positions (entropy and uniform in nats, the others "
            "as shares)."
        )
    return (
        "Columns self to induction: the head's scores summed over the keys of each kind, averaged over the read "
        "positions. Without a softmax, they are not shares of attention."
    )


def _lowest(accuracies: pd.Series) -> str:
    """The lowest accuracy, rounded as it is wherever else it is printed."""
    return words.share(float(accuracies.min())) + " at worst" * (accuracies.nunique() > 1)


def describe_lowest_accuracy(table: pd.DataFrame, population: Population) -> str:
    """A sentence on the lowest accuracy without one part; attrs["accuracy"] is that of the whole model."""
    without, whole = table.set_index("part")["accuracy_mean"], words.share(table.attrs["accuracy"])
    if len(without) == 1:
        left = words.share(float(without.iloc[0]))
        return f"The only part is {without.index[0]}. With it mean-ablated, accuracy is {left} (otherwise {whole})."
    sentence = f"With any one part mean-ablated, accuracy is {_lowest(without)} ({whole} with all)"
    least = population.leaders(dict(without), least=True)
    if len(least) == len(without):
        same = without.nunique() == 1
        return sentence + ("." if same or population.exact else "; too few inputs to say which part matters most.")
    return f"{sentence}; it is lowest without {words.either(least)}."


def describe_readable_heads(table: pd.DataFrame, population: Population) -> str:
    """A sentence on the head from which the answers are best read."""
    separable, chance = table.set_index("part")["s_acc"].dropna(), table.attrs["chance"]
    if separable.empty:
        return ""
    if chance == 1:
        return ""  # one answer is always right
    if separable.max() <= chance + min(NEEDED, CLOSED * (1 - chance)):
        return ""  # no head alone tells the answers
    heads = population.leaders(dict(separable))
    return (
        f"The answers are best read from {words.either(heads)}: a linear separator of its output is right on "
        f"{words.portion(float(separable.max()))} of the answers."
    )


def describe_induction(table: pd.DataFrame) -> str:
    """A sentence on the heads that attend to the position after an earlier occurrence of the same token.

    "" without softmax, because raw scores are not shares of attention.
    """
    heads = table[(table["kind"] == "head") & table["entropy"].notna() & (table["induction"] > 0.5)]
    return (
        "From the read positions, these heads attend mostly to the position after an earlier occurrence of "
        "the same token (induction): "
        f"{', '.join(heads['part'])}."
        if len(heads)
        else ""
    )


MOST_HEADS, MOST_FEATURES, INPUTS = 48, 12, 1000
LEAST = 0.05
"""Smallest share of the variance with which a figure shows more than sampling noise."""
ROUNDING = 1e-6
"""Rounding error of a share of the variance, in float32."""


def needs_features(study: Study) -> str | None:
    """Require few enough heads."""
    heads = study.model.cfg.n_layers * study.model.cfg.n_heads
    return f"{heads} heads are too many to probe" if heads > MOST_HEADS else None


@section("head_features", title="Heads by feature", order=345, block="where", needs=needs_features)
def by_feature(study: Study, report: Report) -> None:
    """Show variance, probe and interchange of each feature, by head."""
    features = tuple(study.task.features(study.data()[slice(0, 2)]))[:MOST_FEATURES]
    fits = max(1, len(features)) * len(heads_of(study.subject))
    inputs = study.population("head_features", fits=fits, most=INPUTS)
    table = head_features(study.subject, inputs.batch, features)
    if table.empty:
        return
    report.heading(
        "Heads by feature", " ".join(filter(None, [f"Measured {inputs.measured}.", describe_best_explained(table)]))
    )
    shown = table.assign(name=[f"head {row.layer}.{row.head}" for row in table.itertuples()])
    for quantity, title, caption in (
        ("variance", "share of variance", "Share of the variance of each head's output that a feature explains."),
        ("interchange", "interchange accuracy", "Interchange: replace the head's output by that for another input. "
            "Among pairs of inputs whose answer should then change, the share that gets the expected answer."),
    ):  # fmt: skip
        frame = shown.dropna(subset=[quantity])
        if len(frame) < FEWEST or frame[quantity].max() < LEAST:  # fewer are in the table alone
            continue
        grid = frame.pivot(index="feature", columns="name", values=quantity)
        grid = grid.loc[list(dict.fromkeys(frame["feature"])), list(dict.fromkeys(frame["name"]))]
        grid = grid.clip(lower=0)  # a share that is corrected for chance may be estimated below 0
        report.add_figure(
            f"head_features_{quantity}",
            draw.heatmap(grid.to_numpy(), list(grid.columns), list(grid.index), "head", "feature", title,
                         ends=(0.0, 1.0), square=False, fixed=True,
                         show_values=grid.size <= (80 if len(grid) > 1 else 6)),
            caption,
        )  # fmt: skip
    report.add_table(
        "head_features",
        table,
        "variance: corrected for the number of values. probe: accuracy of a logistic regression on held-out inputs; "
        "chance: share of the most frequent value. interchange: among pairs whose answer should change.",
        max_rows=60,
    )


def describe_best_explained(table: pd.DataFrame) -> str:
    """Return a sentence with the head that each feature explains best, if it explains at least half of the head."""
    explained = []
    for name, mine in table.groupby("feature", sort=False):
        known = mine.dropna(subset=["variance"])
        if known.empty:
            continue
        best = known.loc[known["variance"].idxmax()]
        if best["variance"] >= 0.5:
            share = words.share(float(best["variance"]), 2, ROUNDING)
            explained.append(f"{name} ({share} of head {best['layer']}.{best['head']})")
    if not explained:
        return ""
    return f"Features that explain at least half of the variance of a head's output: {'; '.join(explained)}."
