"""Heads that add up to a difference of two answers (Zsámboki et al. 2025): logits, planes, attention, reweighting."""

from functools import partial

import numpy as np
import plotly.graph_objects as go
import torch

from interp.families.count01.planes import head_plane, head_planes, head_planes_grid
from interp.measures.attention_ratios import reweight_attention
from interp.measures.heads import logit_distributions
from interp.report import Report
from interp.report.aim import counts
from interp.report.sections import _shared as shared
from interp.report.sections.base import Study, section
from interp.support import figures as draw
from interp.support import words

SHOWN_ROWS = 300


def logits_needs(study: Study) -> str | None:
    """Return the reason why outputs are not tokens, or not a sum over heads, or None."""
    return shared.needs_two_answers(study) if study.task.n_out == study.task.d_vocab else "outputs are not tokens"


@section("head_logits", title="Logits of single heads", order=330, block="where", needs=logits_needs)
def head_logits(study: Study, report: Report) -> None:
    """Show box plots of the logits of every head and of the model, by current and true next token (Figure 1)."""
    batch = study.once(shared.rows, "test")[slice(0, SHOWN_ROWS)]
    reads = range(study.once(shared.n_reads))
    outputs = [shared.first_rows(study.once(shared.outputs, "test", read), SHOWN_ROWS) for read in reads]
    named = ", ".join(f"'{token}'" for token in study.task.contrast or ())
    report.heading("Logits of single heads")
    report.add_figure(
        "logit_distributions",
        draw.logit_distributions(logit_distributions(study.subject, batch, outputs), study.once(shared.by_category)),
        f"Logits of {named} and of the tokens after them, from each head alone and from the whole model, by current "
        "and true next token. In a trained model, most heads are biased toward one of the answers (Figure 1).",
    )


@section("head_planes", title="Head outputs", order=320, block="where", needs=shared.needs_two_answers)
def planes(study: Study, report: Report) -> None:
    """Show head outputs with value vectors and separators: best and worst head, then all (Figures 6, 7, 15)."""
    tested, heads = study.once(shared.outputs, "test"), study.once(shared.singles)
    d_head = tested.z.shape[-1]
    axes = {1: "across is its one coordinate, up the answer", 2: "the axes are its two coordinates"}
    report.heading(
        "Head outputs",
        f"Each dot is one head's output on one test input; "
        f"{axes.get(d_head, 'the axes are the first two principal components of its outputs')}.",
    )
    seen = study.once(tokens_seen)
    planes = head_planes(study.subject, study.once(shared.outputs, "train"), tested, seen)
    points, values, lines = planes.points, planes.values, planes.lines
    if study.subject.count_space:
        points.attrs["counted"] = study.task.counted
        points["input"] = study.once(inputs) * tested.n_heads  # the same inputs for each head
    notes = {int(head): f"s-acc {words.share(s_acc, 3)}" for head, s_acc in zip(heads["head"], heads["s_acc"])}
    best, worst = int(heads["s_acc"].idxmax()), int(heads["s_acc"].idxmin())
    chosen = {"best": best} if best == worst else {"best": best, "worst": worst}
    # Without positions, an output is a mean of value vectors. With positions there are no value vectors.
    vectors = (
        f" Diamonds are the value vectors of {words.joined(map(repr, seen))}; every output is an "
        "average of them, weighted by the attention."
        if len(values)
        else ""
    )
    for word, head in chosen.items():
        mine, its_values = (frame[frame["head"] == head] for frame in (points, values))
        line = " The line is the separator that was fitted on the training set."
        report.add_figure(
            f"{word}_head",
            _title_vertical_axis(
                head_plane(mine, its_values, lines.get(head), head, planes.variance.get(head)), d_head
            ),
            f"The {word} head by s-acc ({notes[head]}; Figures 6 and 7).{line if head in lines else ''}{vectors}",
        )
    if len(heads) > 1:
        report.add_figure(
            "all_heads",
            head_planes_grid(points, values, lines, notes, order=study.once(shared.by_category)),
            "The same for every head, the best by s-acc first (Figure 15).",
        )


def inputs(study: Study) -> list[str]:
    """Return the test inputs, as the numbers of their counted tokens."""
    batch = study.once(shared.rows, "test")
    before = torch.arange(batch.tokens.shape[1]) <= study.subject.answer_positions(batch.tokens)[:, None]
    ids = [study.task.token_id(token) for token in study.task.counted]
    return [counts(row) for row in torch.stack([((batch.tokens == i) & before).sum(1) for i in ids], 1).tolist()]


def tokens_seen(study: Study) -> tuple[str, ...]:
    """Return the tokens that a head can attend to from the read position, the counted ones first."""
    batch = study.once(shared.rows, "test")
    places = study.subject.answer_positions(batch.tokens)
    causal = study.model.cfg.attention_dir == "causal"
    upto = places[:, None] if causal else batch.tokens.shape[1]
    before = (torch.arange(batch.tokens.shape[1]) <= upto) & batch.attention_mask.bool()
    seen = [study.task.vocabulary[int(token)] for token in batch.tokens[before].unique()]
    counted = study.task.counted
    return (*counted, *(token for token in seen if token not in counted))


def _title_vertical_axis(figure: go.Figure, d_head: int) -> go.Figure:
    """Add a title to the vertical axis if heads have one dimension; the axis then shows the answer."""
    return figure if d_head > 1 else figure.update_yaxes(title_text="answer, by its number")


def ratios_needs(study: Study) -> str | None:
    """Return the reason why there are no attention ratios (not three counted tokens, or no separators), or None."""
    if len(study.task.counted) != 3:
        return f"task {study.task.name} does not declare three counted tokens"
    return shared.needs_two_answers(study)


@section("attention_ratios", title="Attention to the counted tokens", order=410, block="where", needs=ratios_needs)
def ratios(study: Study, report: Report) -> None:
    """Show one dot per head: attention to the first counted token relative to the second and the third (Figure 5)."""
    counted = a, b, c = study.task.counted
    table = study.once(shared.singles).merge(study.once(shared.ratios), on="head")
    report.heading(f"Attention at '{study.subject.read_at}'")
    report.add_figure(
        "attention_ratios",
        draw.attention_ratios(table, counted),
        f"Each dot is a head. The paper finds successful heads where '{a}' and '{b}' get about equal attention "
        f"(w01 near 1) and '{c}' much less (w02 above 10; Figure 5). Ratios beyond 10^-12 or 10^12 are drawn at "
        "that edge.",
    )
    report.add_table("attention_ratios", table, f"w01, w02: attention to '{a}' relative to '{b}' and '{c}'.")


SWEEP_W01 = tuple(float(r) for r in np.logspace(-3, 3, 13))
SWEEP_W02 = tuple(float(r) for r in np.logspace(-1, 3, 9))


def reweighting_needs(study: Study) -> str | None:
    """Return the reason why attention is not reweighted (not three counted tokens, or not in count space), or None."""
    slow = "this would take minutes on whole sequences; call interp.reweight_attention instead"
    return ratios_needs(study) or (None if study.subject.count_space else slow)


@section("reweighting", title="Interventions on attention", order=510, block="where", needs=reweighting_needs)
def reweighting(
    study: Study, report: Report, w01: tuple[float, ...] = SWEEP_W01, w02: tuple[float, ...] = SWEEP_W02
) -> None:
    """Show s-acc with attention set by hand (section 5.4): w01 without the third token, and w02 at w01 = 1."""
    counted = a, b, c = study.task.counted
    fit = partial(
        reweight_attention,
        study.subject,
        train=study.once(shared.rows, "train"),
        test=study.once(shared.rows, "test"),
        tokens=counted,
    )
    report.heading(
        "Interventions on attention",
        f"The attention at '{study.subject.read_at}' is set by hand, and everything else stays: what could a head do "
        "if it attended differently? s-acc: accuracy of the best linear separator of its outputs, fitted on the "
        "training set.",
    )
    swept = {"w01": (fit(w01=w01), "Figure 8"), "w02": (fit(w01=1.0, w02=w02), "Figure 9")}
    captions = {
        "w01": f"No attention to '{c}', and the ratio between '{a}' and '{b}' varied",
        "w02": f"Equal attention to '{a}' and '{b}', and the ratio between '{a}' and '{c}' varied",
    }
    for key, (effect, figure) in swept.items():
        report.add_figure(
            f"intervention_{key}",
            effect.plot(key),
            f"{captions[key]}: mean s-acc over the heads, the band is one standard deviation ({figure}).",
        )
        report.add_table(f"intervention_{key}", effect.to_frame(), "The same as numbers, one row per head.", max_rows=8)
