"""Head outputs in their plane, with value vectors and separators (Zsámboki et al. 2025, Figures 6, 7 and 15)."""

from __future__ import annotations

import plotly.graph_objects as go
import torch

from interp import words
from interp.measures.planes import head_planes
from interp.report import Report
from interp.report import figures as draw
from interp.report.aim import counts
from interp.sections import _shared as shared
from interp.sections.base import Study, section


@section("head_planes", title="Head outputs", order=320, needs=shared.needs_two_answers)
def make(study: Study, report: Report, C: float = 1000.0) -> None:
    """The best and the worst head by s-acc, then all of them. C: weight of errors in the separators' objective."""
    tested, heads = study.once(shared.outputs, "test"), study.once(shared.singles, C)
    d_head = tested.z.shape[-1]
    axes = {1: "across is its one coordinate, up the answer", 2: "the axes are its two coordinates"}
    report.section(
        "Head outputs",
        f"A dot is an input of the test set, seen by one head; "
        f"{axes.get(d_head, 'the axes are the first two principal components of its outputs')}.",
    )
    seen = study.once(tokens_seen)
    planes = head_planes(study.subject, study.once(shared.outputs, "train"), tested, seen, C)
    points, values, lines = planes.points, planes.values, planes.lines
    if study.subject.count_space:
        points.attrs["counted"] = study.task.counted
        points["input"] = study.once(inputs) * tested.n_heads  # the same inputs, head after head
    notes = {int(head): f"s-acc {words.share(s_acc, 3)}" for head, s_acc in zip(heads["head"], heads["s_acc"])}
    best, worst = int(heads["s_acc"].idxmax()), int(heads["s_acc"].idxmin())
    chosen = {"best": best} if best == worst else {"best": best, "worst": worst}
    # With positions there are no value vectors; an output is an average of them, so it lies between them.
    vectors = (
        f" Diamonds are the value vectors of {words.listed(map(repr, seen))}; every output is an "
        "average of them, weighted by the attention."
        if len(values)
        else ""
    )
    for word, head in chosen.items():
        mine, its_values = (frame[frame["head"] == head] for frame in (points, values))
        line = f" The line is the separator that was fitted on the training set{shared.weighed(C)}."
        report.add_figure(
            f"{word}_head",
            _named(draw.head_plane(mine, its_values, lines.get(head), head, planes.variance.get(head)), d_head),
            f"The {word} head by s-acc ({notes[head]}; Figures 6 and 7).{line if head in lines else ''}{vectors}",
        )
    if len(heads) > 1:
        report.add_figure(
            "all_heads",
            draw.head_planes_grid(points, values, lines, notes, order=study.once(shared.by_category, C)),
            "The same for every head, the best by s-acc first (Figure 15).",
        )


def inputs(study: Study) -> list[str]:
    """The test inputs, as the numbers of their counted tokens."""
    batch = study.once(shared.rows, "test")
    before = torch.arange(batch.tokens.shape[1]) <= study.subject.answer_positions(batch.tokens)[:, None]
    ids = [study.task.token_id(token) for token in study.task.counted]
    return [counts(row) for row in torch.stack([((batch.tokens == i) & before).sum(1) for i in ids], 1).tolist()]


def tokens_seen(study: Study) -> tuple[str, ...]:
    """The tokens that a head can look at where the answer is read, the counted ones first."""
    batch = study.once(shared.rows, "test")
    places = study.subject.answer_positions(batch.tokens)
    causal = study.model.cfg.attention_dir == "causal"
    upto = places[:, None] if causal else batch.tokens.shape[1]
    before = (torch.arange(batch.tokens.shape[1]) <= upto) & batch.attention_mask.bool()
    found = [study.task.vocabulary[int(token)] for token in batch.tokens[before].unique()]
    counted = study.task.counted
    return (*counted, *(token for token in found if token not in counted))


def _named(figure: go.Figure, d_head: int) -> go.Figure:
    """With one dimension, up is the answer."""
    return figure if d_head > 1 else figure.update_yaxes(title_text="answer, by its number")
