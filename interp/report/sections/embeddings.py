"""What vectors stand for: the geometry of the embedding, and named variables (is each there, and is it used?)."""

from typing import Literal

import numpy as np
import pandas as pd

from interp.errors import UnsupportedError
from interp.measures.embeddings import cosines, output_spectra, principal_components, spectra, token_vectors
from interp.measures.variables import probe, sites
from interp.report import Report
from interp.report.reading import FEWEST
from interp.report.sections.base import Study, section
from interp.support import figures as draw
from interp.support.words import joined, portion
from interp.tasks.populations import Population

MOST_TOKENS, NAMED = 64, 20
MOST_POWER, DROP, NOISE = 0.85, 3.0, 1e-12
"""Frequencies are key if together they hold MOST_POWER of the power, and the next weaker one has DROP times less.
Shares of the power below NOISE are rounding."""
ROUNDING = 1e-9
"""Largest rounding error of a sum of shares in float64."""


def needs(study: Study) -> str | None:
    """Require few enough tokens to draw, and more than two."""
    n = study.task.d_vocab
    if n > MOST_TOKENS and not study.task.cyclic:
        return f"the embeddings of {n} tokens are too many to draw"
    return "the geometry of two embeddings is only their distance" if n < 3 else None


@section("embeddings", title="Embeddings", order=600, block="where", needs=needs)
def make(study: Study, report: Report) -> None:
    """Show the embeddings in their principal plane, their cosines, and their Fourier power."""
    vectors, words = token_vectors(study.subject), list(study.task.vocabulary)
    places, shares = principal_components(vectors, 2)
    report.heading(
        "Embeddings",
        f"The first two principal components hold {portion(shares[:2].sum(), 4, ROUNDING)} of the variance of the "
        f"{len(words)} embeddings.",
    )
    if len(words) <= MOST_TOKENS:
        frame = pd.DataFrame({"first": places[:, 0], "second": places[:, 1], "token": words, "is": "token"})
        for group, members in study.task.cyclic.items():
            frame.loc[frame["token"].isin(members), "is"] = f"cycle {group}"
        report.add_figure(
            "embeddings_plane",
            draw.scatter(frame, "first", "second", "is" if frame["is"].nunique() > 1 else None, "token",
                         x_title="first principal component", y_title="second principal component",
                         named=len(words) <= NAMED),
            f"The tokens in the plane of their first two principal components ({portion(shares[0], 3, ROUNDING)} and "
            f"{portion(shares[1] if len(shares) > 1 else 0.0, 3, ROUNDING)} of the variance).",
        )  # fmt: skip
        matrix = cosines(vectors)
        report.add_figure(
            "embeddings_cosines",
            draw.heatmap(matrix, words, words, "token", "token", "cosine", 0.0, ends=(-1.0, 1.0),
                         show_values=len(words) <= 10),
            "Cosine similarity of each pair of embeddings.",
        )  # fmt: skip
        off = matrix[~np.eye(len(words), dtype=bool)]
        if np.isfinite(off).any():  # the one farthest from 0, with its sign
            report.add_fact("largest_cosine", float(off[np.nanargmax(np.abs(off))]))
    if study.task.cyclic:
        _waves(study, report)


def count_key_frequencies(power: np.ndarray) -> int:
    """Return the number of key frequencies, 0 if there are none: the strongest, up to the largest drop of the power.

    power: the shares, in decreasing order.
    """
    at_least = np.maximum(power, NOISE)
    drops = at_least[:-1] / at_least[1:]
    drops[np.cumsum(power)[:-1] < MOST_POWER] = 0
    return int(drops.argmax()) + 1 if drops.size and drops.max() >= DROP else 0


def _waves(study: Study, report: Report) -> None:
    table = spectra(study.subject)
    try:
        inputs = study.population("embeddings")
        outputs = output_spectra(study.subject, inputs.batch)
    except UnsupportedError:
        outputs = None
    many = table["group"].nunique() > 1
    table = table.assign(which=table["group"] + ": " + table["what"] if many else table["what"])
    sentences = []
    for which, part in table.sort_values("power", ascending=False).groupby("which", sort=False):
        few = part[: count_key_frequencies(part["power"].to_numpy())]
        names = ", ".join(map(str, sorted(few["frequency"]))) or "none"
        if not few.empty:
            sentences.append(
                f"In the {which}, {len(few)} of {len(part)} frequencies hold "
                f"{portion(few['power'].sum(), 3, ROUNDING)} of the power: {names}."
            )
        report.add_fact(f"frequencies_of_{str(which).replace(' ', '_')}", names)
        if outputs is not None and names != "none" and few["what"].iloc[0] == "readout":
            same = (outputs["group"] == few["group"].iloc[0]) & outputs["frequency"].isin(few["frequency"])
            share = float(outputs.loc[same, "power"].sum())
            sentences.append(
                "Waves of these frequencies around the right answer, each the same on every input, explain "
                f"{portion(share, 3, ROUNDING)} of the variance of the logits {inputs.on}."
            )
            report.add_fact(f"logits_explained_by_{str(which).replace(' ', '_')}", share)
    report.add_text(" ".join(sentences))
    report.add_figure(
        "embeddings_waves",
        draw.bars(table, "frequency", "power", "which", x_title="frequency", y_title="share of the power"),
        "Fourier power over the cyclic group (Nanda et al. 2023). Without waves, all frequencies have equal power.",
    )
    ordered = table.drop(columns="which").sort_values("power", ascending=False, ignore_index=True)
    report.add_table("embeddings_waves", ordered, "Shares of the power by frequency, the largest first.", max_rows=12)


MOST_LAYERS, MOST_WIDTH = 12, 1024
LEAST_GROWTH = 0.02
"""Least growth of a probe's accuracy, from half of the inputs to all, that is said."""


def needs_variables(study: Study) -> str | None:
    """Require a model small enough to probe at every layer."""
    cfg = study.model.cfg
    if cfg.n_layers > MOST_LAYERS or cfg.d_model > MOST_WIDTH:
        return f"{cfg.n_layers} layers of width {cfg.d_model} are too many sites to probe"
    return None


def describe_growing_probes(table: pd.DataFrame, inputs: Population) -> str:
    """Return a sentence on the probes that would be more accurate with more inputs; "" if there are none.

    At the site of its best probe, a variable's probe grows if twice the inputs raise its accuracy by more than the
    width of its interval.
    """
    best = table.loc[table.groupby("feature", sort=False)["probe"].idxmax()]
    grows = best[best["probe"] - best["half"] > max(inputs.margin, LEAST_GROWTH)]
    if grows.empty:
        return ""
    growing = joined(f"{row.feature} ({row.half:.3f} with half of the inputs, {row.probe:.3f} with all)" for row in
                  grows.itertuples())  # fmt: skip
    return f" More inputs would raise the probe of {growing}."


def population(study: Study) -> Population:
    batch = study.data()[slice(0, 2)]
    fits = len(sites(study.subject, batch)) * max(1, len(study.task.features(batch)))
    return study.population("variables", fits=fits, most=1_000)


@section("variables", title="Variables", order=750, block="where", needs=needs_variables)
def known_variables(study: Study, report: Report) -> None:
    """Show probe and interchange accuracy of each feature, by layer and position."""
    inputs = study.once(population)
    probed = probe(study.subject, inputs=inputs.batch)
    table = probed.to_frame()
    if table.empty:
        return
    report.heading(
        "Variables",
        f"Measured {inputs.measured}. Two questions for each variable of the task. Is it there? A linear probe tries "
        "to read it from the residual stream, on held-out inputs. Is it used? One site gets its value on another "
        "input (interchange): either the whole vector, or only the directions that the probe reads. The model should "
        "then answer as if this variable alone had changed." + describe_growing_probes(table, inputs),
    )
    quantities: tuple[Literal["probe", "along_probe"], ...] = ("probe", "along_probe")
    for quantity in quantities:
        if table[quantity].count() >= FEWEST:  # fewer are in the table alone
            report.add_figure(
                f"variables_{quantity}",
                probed.plot(quantity),
                "Accuracy of the linear probe."
                if quantity == "probe"
                else "Interchange of the directions that the probe reads: among pairs of inputs whose answer should "
                "change, the share that gets the expected answer.",
            )
    report.add_table(
        "variables",
        table,
        "chance: share of the most frequent value. probe: accuracy of a logistic regression on held-out inputs "
        "(cross-validated); half: the same, fitted on half as many inputs; fitted: its accuracy on the inputs it was "
        "fitted on. interchange: of the whole vector; "
        "along_probe: of the directions that the probe reads; both on the same pairs, whose answer should change.",
        max_rows=60,
    )
