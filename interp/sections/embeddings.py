"""Geometry of the embedding: principal components, cosines, and waves if tokens form a cycle."""

import numpy as np
import pandas as pd

from interp.errors import UnsupportedError
from interp.measures.embeddings import cosines, output_spectra, principal_components, spectra, token_vectors
from interp.report import Report
from interp.report import figures as draw
from interp.sections.base import Study, section
from interp.words import portion

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


def n_key(power: np.ndarray) -> int:
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
        few = part[: n_key(part["power"].to_numpy())]
        names = ", ".join(map(str, sorted(few["frequency"]))) or "none"
        if few.empty:
            sentences.append(
                f"The {which} has no key frequencies: no few of the {len(part)} hold {MOST_POWER:g} of the power and "
                f"each {DROP:g} times as much as any other."
            )
        else:
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
