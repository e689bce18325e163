"""Circuits of heads: composition, and QK and OV circuits of vectors and of tokens."""

from interp import words
from interp.measures.circuits import (
    composition,
    no_circuits,
    no_table,
    ov_circuit,
    qk_circuit,
    singular_values,
    token_circuits,
)
from interp.report import Report
from interp.report import figures as draw
from interp.sections._shared import numbers_in_words
from interp.sections.base import Study, section

MOST_HEADS, MOST_CELLS = 24, 14_000
"""Limits of a figure of token tables: heads, and cells of all heads together (24 heads with 24 tokens fit)."""


@section("circuits", title="Circuits", order=525, block="where", needs=lambda study: no_circuits(study.subject))
def circuits(study: Study, report: Report) -> None:
    """Show circuits as in Elhage et al. 2021; exact token tables are in the section token_circuits instead."""
    subject, cfg = study.subject, study.model.cfg
    n_heads = cfg.n_layers * cfg.n_heads
    found = singular_values(subject)
    values = found.to_frame().copy()
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
        report.add_figure("circuits_singular", found.plot(), "Singular values of W_QK and W_OV, the largest first.")
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
        table["head"] = [f"{layer}.{head}" for layer, head in zip(table["layer"], table["head"])]
        rows, columns = table.columns[2:4]
        report.add_figure(
            f"circuits_{which.lower()}",
            draw.circuit(table, rows, columns, color_title="score" if which == "QK" else "output"),
            f"QK: the score of a query token (rows) for a key token (columns), without positions and biases{capped}."
            if which == "QK"
            else "OV: what attending to a token (rows) adds directly to each output (columns).",
        )


def _composition(study: Study, report: Report) -> None:
    found = composition(study.subject)
    long = found.melt(["writer", "reader"], ["Q", "K", "V"], "through", "score")
    best = long.loc[long["score"].idxmax()]
    random = study.model.cfg.d_model**-0.5
    if best["score"] <= random:
        report.add_text(
            f"No two heads of different layers compose more than random matrices do (a score of about {random:.3f})."
        )
    else:
        report.add_text(
            "The strongest composition between heads is through the "
            f"{ {'Q': 'query', 'K': 'key', 'V': 'value'}[best['through']] }: "
            f"{best['reader']} reads {best['writer']} with a score of "
            f"{words.share(best['score'], 3)} (random matrices: about {random:.3f})."
        )
    if len(found) <= 60:
        report.add_figure(
            "circuits_composition",
            draw.heatmap(
                found[["Q", "K", "V"]].to_numpy(), ["query", "key", "value"],
                [f"{writer} -> {reader}" for writer, reader in zip(found["writer"], found["reader"])],
                "through", "writes -> reads", "composition score", square=False, show_values=len(found) <= 24,
            ),
            "Composition scores: Frobenius norm of the product of two circuits over the product of their norms.",
        )  # fmt: skip
    report.add_table("circuits_composition", found, "Composition scores of all pairs of heads of different layers.")
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
