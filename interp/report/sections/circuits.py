"""Paths between parts: composition, QK and OV circuits of vectors and of tokens, edges, and patches.

The exact direct effect of every edge is made on request only if there are many edges.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from interp.errors import UnsupportedError
from interp.measures.circuits import (
    composition_scores,
    no_circuits,
    no_table,
    number_circuits,
    ov_circuit,
    qk_circuit,
    singular_values,
    token_circuits,
)
from interp.measures.edges import DIGITS, edge_effects, edges, edges_by_kind, largest, nodes
from interp.measures.minimal_pairs import make_pairs, pairs_by_kind
from interp.measures.patching import MAX_POSITIONS, Patched, activation_patching
from interp.measures.results import reduces
from interp.measures.runs import heads_of, mlps_of, operations
from interp.models.subject import Subject
from interp.report import Report
from interp.report.sections.base import Study, section
from interp.support import figures as draw
from interp.support import words
from interp.tasks.pairs import KINDS, Pairs
from interp.tasks.populations import SIZES, SPEED, Population
from interp.tasks.scores import NORMAL_95

MOST_HEADS, MOST_CELLS = 24, 14_000
"""Limits of a figure of token tables: heads, and cells of all heads together (24 heads with 24 tokens fit)."""
MONOTONIC = 0.9
"""Least share of the steps, or of the numbers, for which a head is said to follow their size, or to copy them."""
MOST_NUMBER_HEADS = 4
"""Largest number of heads that each get a sentence on how they read numbers."""


@section("circuits", title="Circuits", order=525, block="where", needs=lambda study: no_circuits(study.subject))
def circuits(study: Study, report: Report) -> None:
    """Show circuits as in Elhage et al. 2021; exact token tables are in the section token_circuits instead."""
    subject, cfg = study.subject, study.model.cfg
    n_heads = cfg.n_layers * cfg.n_heads
    spectra = singular_values(subject)
    values = spectra.to_frame().copy()
    values["head"] = [f"{layer}.{head}" for layer, head in zip(values["layer"], values["head"])]
    largest = values[values["index"] == 0].pivot(index="head", columns="circuit", values="value")
    shares = values.assign(square=values["value"] ** 2).groupby(["head", "circuit"])["square"]
    rank = (shares.sum() ** 2 / shares.agg(lambda s: (s**2).sum())).unstack()  # participation ratio
    report.heading(
        "Circuits",
        "W_QK says which directions attract attention, and W_OV what a head writes when it attends. Gains of norms "
        "are folded in, but their scales are not, so after a norm the tables are right up to a positive factor.",
    )
    order = list(dict.fromkeys(values["head"]))  # by number: 0.2 before 0.10
    table = largest.join(rank.add_suffix("_rank")).loc[order].reset_index()
    table = table.rename(columns={"QK": "QK_largest", "OV": "OV_largest"})
    report.add_table(
        "circuits",
        table,
        "The largest singular value of each circuit, and its effective rank: with s the squared singular values, the "
        "square of their sum divided by the sum of their squares.",
    )
    if values["index"].max() > 0 and values["matrix"].nunique() <= 12:
        caption = "Singular values of W_QK (solid) and W_OV (dashed), the largest first. A head has one color."
        report.add_figure("circuits_singular", spectra.plot(), caption)
    cells = n_heads * study.task.d_vocab * max(study.task.d_vocab, study.task.n_out)
    if not subject.count_space and cells <= MOST_CELLS and n_heads <= MOST_HEADS:
        _tables(study, report)
    if cfg.n_layers > 1:
        _composition(study, report)


def _tables(study: Study, report: Report) -> None:
    subject, most = study.subject, study.task.d_vocab
    capped = ", before the soft cap" if getattr(study.model.cfg, "attn_scores_soft_cap", -1.0) > 0 else ""
    if words := numbers_in_words(study):
        report.add_text(words + " Positions and attention biases are left out.")
    for which in ("QK", "OV"):
        if no_table(subject, which) is not None:
            continue
        table = token_circuits(subject, which, most)
        if not table["value"].abs().max() > ROUNDING:  # nothing goes from one token to another directly
            continue
        table["head"] = [f"{layer}.{head}" for layer, head in zip(table["layer"], table["head"])]
        rows, columns = table.columns[2:4]
        report.add_figure(
            f"circuits_{which.lower()}",
            draw.circuit(table, rows, columns, color_title="score" if which == "QK" else "output"),
            f"QK: the score of a query token (rows) for a key token (columns), without positions and biases{capped}."
            if which == "QK"
            else "OV: what attending to a token (rows) adds directly to each output (columns).",
        )


def numbers_in_words(study: Study) -> str:
    """Return sentences on how heads read numbers at the answer position; "" if the task has no numbers."""
    try:
        heads = number_circuits(study.subject)
    except UnsupportedError:
        return ""
    sentences = []
    for row in heads.itertuples() if len(heads) <= MOST_NUMBER_HEADS else ():
        if max(row.grows, 1 - row.grows) < MONOTONIC or row.range == 0:  # scores do not follow the size of numbers
            continue
        copied = ""
        if row.copied >= MONOTONIC:
            copied = (
                " What it adds for a number, plus the readout's bias, is largest at that number for "
                f"{words.portion(row.copied, 3)} of them."
            )
        rises, share = ("grows", row.grows) if row.grows > 0.5 else ("falls", 1 - row.grows)
        sentences.append(
            f"At '{study.subject.read_at}', the score of head {row.layer}.{row.head} {rises} in "
            f"{words.portion(share, 3)} of the steps from one number to the next, and by {abs(row.range):.4g} from the "
            f"first to the last.{copied}"
        )
    return " ".join(sentences)


def _composition(study: Study, report: Report) -> None:
    scores = composition_scores(study.subject)
    table, random = scores.to_frame(), scores.random
    long = table.melt(["writer", "reader"], ["Q", "K", "V"], "through", "score")
    best = long.loc[long["score"].idxmax()]
    if best["score"] > random:
        report.add_text(
            "The strongest composition between heads is through the "
            f"{ {'Q': 'query', 'K': 'key', 'V': 'value'}[best['through']] }: "
            f"{best['reader']} reads {best['writer']} with a score of "
            f"{words.share(best['score'], 3)} (random matrices: about {random:.3f})."
        )
    if len(table) <= 60 and best["score"] > ROUNDING:
        report.add_figure(
            "circuits_composition",
            scores.plot(),
            "Composition scores: Frobenius norm of the product of two circuits over the product of their norms.",
        )
    report.add_table("circuits_composition", table, "Composition scores of all pairs of heads of different layers.")
    if best["score"] > random:
        report.add_fact("strongest_composition", f"{best['writer']} -> {best['reader']} ({best['through']})")


def needs(study: Study) -> str | None:
    """Require one attention layer without positions, and few enough tokens to draw."""
    if not study.subject.count_space:
        return "token-by-token circuits are exact only with one attention layer, no positions and a linear readout"
    cells = study.task.d_vocab * max(study.task.d_vocab, study.task.n_out) * study.model.cfg.n_heads
    return f"{cells:,} pairs of tokens and heads are too many to draw" if cells > 40_000 else None


@section("token_circuits", title="QK and OV circuits", order=520, block="where", needs=needs)
def circuits_of_tokens(study: Study, report: Report) -> None:
    """Show scores of all pairs of tokens, and what each token adds to every output when it is attended to alone."""
    attention, logits = qk_circuit(study.subject), ov_circuit(study.subject)
    report.heading("QK and OV circuits", numbers_in_words(study))
    report.add_figure(
        "qk",
        draw.circuit(attention.rename(columns={"score": "value"})),
        "QK: the attention score of every query token (rows) for every key token (columns), before the softmax.",
    )
    report.add_figure(
        "ov",
        draw.circuit(logits.rename(columns={"logit": "value", "token": "logit"})),
        "OV: what a head adds to every output's logit (columns) when it attends to one token alone (rows).",
    )


def needs_edges(study: Study) -> str | None:
    """Require at most 64 nodes with additive outputs, and minimal pairs."""
    nodes(study.subject)
    study.measure(make_pairs, 24)
    return None


ROUNDING = 1e-6
"""Rounding error of a share of a logit difference, in float32."""


def passes(study: Study) -> int:
    """Return the number of forward passes: for each kind of pair one per edge, and one per sender and layer."""
    return len(KINDS) * (len(edges(study.subject)) + len(nodes(study.subject)) * study.model.cfg.n_layers)


def cost_of_edges(study: Study) -> float:
    """Return the nominal seconds on the smallest sample."""
    length = study.task.sample(2, study.task.splits[-1], seed=0).tokens.shape[1]
    length = min(length, study.task.d_vocab) if reduces(study.subject) else length
    return SIZES[0] * passes(study) * operations(study.subject, length) / SPEED


WORDS = {
    "own": "of the task's own",
    "changed": "with one token changed",
    "swapped": "with two tokens swapped",
    "longer": "with one token more",
    "shorter": "with one token less",
}
"""Kinds of pairs in words."""


def describe_pairs(kinds: Mapping[str, Pairs]) -> str:
    """How many pairs of each kind there are, and what they cannot show."""
    listed = words.joined(f"{words.counted(len(pairs), 'pair')} {WORDS[kind]}" for kind, pairs in kinds.items())
    if not all(pairs.clean.lengths.equal(pairs.corrupted.lengths) for pairs in kinds.values()):
        return listed
    return f"{listed} (inputs of one length, so an edge that only carries the length has effect 0)"


@section("edges", title="Edges between parts", order=505, block="where", needs=needs_edges, cost=cost_of_edges)
def edges_between(study: Study, report: Report) -> None:
    """Show path patching of every edge, by kind of pair."""
    inputs = study.population("edges", passes(study), fixed=False, most=1_000)  # the clean inputs of the pairs
    kinds = pairs_by_kind(study.subject, batch=inputs.batch)
    by_kind = edges_by_kind(study.subject, kinds)
    effects, whole = edge_effects(by_kind), largest(by_kind)
    best = effects.iloc[0]
    kind = str(best[[*by_kind]].astype(float).abs().round(DIGITS).idxmax())
    recovered = words.number(float(best[kind]), 3, ROUNDING)
    on = f" in the pairs {WORDS[kind]}" if len(by_kind) > 1 else ""
    pairs = describe_pairs({name: kinds[name] for name in by_kind})
    report.heading(
        "Edges between parts",
        "Take what one part writes in the clean run, and put it into the input of one later part in the corrupted "
        "run, and nowhere else. Then run the rest of the model. Nothing is linearized.\n\n"
        f"On {pairs}, made {inputs.on}, the strongest edge is from {best['sender']} to {best['receiver']}: it recovers "
        f"{recovered} of the clean run's logit difference{on}.",
    )
    shown = "The effect of every edge" + (", of the kind of pair for which it is largest" if len(by_kind) > 1 else "")
    report.add_figure("edges", whole.plot(), f"{shown}. Cells without color are not edges.")
    listed = "All edges, the strongest first" + ("; one column for each kind of pair" if len(by_kind) > 1 else "")
    report.add_table("edges", effects, f"{listed}.", max_rows=20)
    report.add_fact("strongest_edge", f"{best['sender']} -> {best['receiver']}")


MOST_SITES = 400
"""Largest number of forward passes of the patches."""


def sites(subject: Subject, by_position: bool = False) -> int:
    """Return the approximate number of forward passes. by_position: if each head is patched at each position, too."""
    length = subject.task.sample(2, subject.task.splits[-1], seed=0).tokens.shape[1]
    length = length if length <= MAX_POSITIONS else 3
    heads = len(heads_of(subject))
    return (subject.model.cfg.n_layers + 1 + heads * by_position) * length + heads + len(mlps_of(subject))


def needs_pairs(study: Study) -> str | None:
    """Require minimal pairs, and few enough sites."""
    if (n := sites(study.subject)) > MOST_SITES:
        return f"{n} sites are too many to patch one by one"
    study.measure(make_pairs, 24)  # raises with the reason if there are none
    return None


def places(study: Study) -> bool:
    """Return whether there are few enough heads and positions to patch each head at each position."""
    return sites(study.subject, by_position=True) <= MOST_SITES


def passes_of_patching(study: Study) -> int:
    """Return the approximate number of forward passes: in the last layer, only patches at the read have an effect."""
    n_heads, alone = study.model.cfg.n_heads, sites(study.subject)
    more = sites(study.subject, by_position=True) - alone if places(study) else 0
    return 2 + alone + more * (len(heads_of(study.subject)) - n_heads) // max(1, len(heads_of(study.subject)))


def population(study: Study) -> Population:
    """Return the clean inputs of the pairs."""
    return study.population("patching", passes_of_patching(study), fixed=False)


def patched(study: Study) -> Patched:
    """Return the effects of all sites; use it with study.once."""
    return activation_patching(study.subject, study.once(population).batch, by_position=places(study))


def find_leading_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Return the row that recovers most, then all rows whose 95% intervals overlap its interval, up to rounding."""
    table = table.sort_values("recovered", ascending=False, kind="stable", key=lambda shares: shares.round(6))
    low = table["recovered"].iloc[0] - NORMAL_95 * table["error"].fillna(0).iloc[0]
    return table[table["recovered"] + NORMAL_95 * table["error"].fillna(0) >= low - ROUNDING]


def describe_undecided_pairs(clean: float, corrupted: float) -> str:
    """Return a warning if the model, on average, prefers the same answer in both runs; otherwise ""."""
    if clean * corrupted < 0:
        return ""
    return "On average, the model prefers the same answer in both runs, so these numbers say little. "


@section("patching", title="Patching", order=500, block="where", needs=needs_pairs)
def patches(study: Study, report: Report) -> None:
    """Patch the residual stream by layer and position, then heads and MLPs."""
    inputs = study.once(population)
    result = study.once(patched)
    first = find_leading_rows(result.parts)
    best = first.iloc[0]
    most = words.number(float(best["recovered"]), 3, ROUNDING)
    half = NORMAL_95 * float(best["error"])
    error = "" if inputs.exact or np.isnan(half) else f" (95% interval ±{words.number(max(half, ROUNDING), 2)})"
    parts, several = words.either(first["site"]), len(result.parts) > 1
    report.heading(
        "Patching",
        "Each pair of inputs, clean and corrupted, differs by one small change and has different answers. One site "
        "of the corrupted run gets its value from the clean run, and the rest of the model runs on. The result is "
        "the difference of the two answers' logits, scaled so that the corrupted run has 0 and the clean run has 1 "
        f"(unscaled: {words.number(result.corrupted)} and {words.number(result.clean)}, means over "
        f"{words.counted(result.reads, 'answer')}). The pairs are made {inputs.on}.\n\n"
        f"{describe_undecided_pairs(result.clean, result.corrupted)}"
        f"{f'Among single parts, {parts} recovers most:' if several else f'Patching {parts} recovers'} {most}{error}.",
    )
    report.add_figure(
        "patching_stream",
        result.plot("stream"),
        "The residual stream, patched before each layer and at one position at a time."
        if result.by_index
        else "The residual stream, patched before each layer; rows have different lengths or more than "
        f"{MAX_POSITIONS} tokens, so positions are grouped.",
    )
    if several:
        report.add_figure("patching_parts", result.plot("parts"), "Heads and MLPs, each patched at all positions.")
    if len(result.at_positions):
        report.add_figure("patching_heads", result.plot("heads"), "Each head, patched at one position at a time.")
    report.add_table(
        "patching",
        result.parts.drop(columns=["layer", "head", "position"]).rename(columns={"site": "part"}),
        f"On {words.counted(result.reads, 'answer')}. recovered: share of the clean run's logit difference; error: its "
        "standard error. flipped: share of the answers that the patch changes to the right answer of the clean input.",
    )
    report.add_fact("patched_most", words.either(first["site"]))
    report.add_fact("recovered_most", float(np.round(best["recovered"], 6)))
