"""Head outputs in their plane, with value vectors and separators (Zsámboki et al. 2025, Figures 6, 7 and 15)."""

from __future__ import annotations

from interp.measures.planes import head_planes
from interp.report import Report
from interp.report import figures as draw
from interp.sections import _shared as shared
from interp.sections.base import Study, section


@section("head_planes", title="Head outputs", order=320, needs=shared.needs_two_answers)
def make(study: Study, report: Report) -> None:
    """The best and the worst head by s-acc, then all of them."""
    tested, heads, counted = study.once(shared.outputs, "test"), study.once(shared.singles), study.task.counted
    d_head = tested.z.shape[-1]
    axes = {1: "their one coordinate", 2: "their two coordinates"}.get(d_head, "two principal components")
    report.section("Head outputs", f"A dot is an input of the test set; the axes are {axes}.")
    planes = head_planes(study.subject, study.once(shared.outputs, "train"), tested, counted)
    points, values, lines = planes.points, planes.values, planes.lines
    notes = {int(head): f"s-acc {s_acc:.3f}" for head, s_acc in zip(heads["head"], heads["s_acc"])}
    best, worst = int(heads["s_acc"].idxmax()), int(heads["s_acc"].idxmin())
    chosen = {"best": best} if best == worst else {"best": best, "worst": worst}
    named = ", ".join(f"'{token}'" for token in counted)
    vectors = f", with the value vectors of {named}" if len(values) else ""  # with positions there are none
    for word, head in chosen.items():
        mine, its_values = (frame[frame["head"] == head] for frame in (points, values))
        report.add_figure(
            f"{word}_head",
            draw.head_plane(mine, its_values, lines.get(head), head),
            f"The {word} head by s-acc ({notes[head]}){vectors}; the line is the separator that was fitted on the "
            "training set (Figures 6 and 7).",
        )
    if len(heads) > 1:
        report.add_figure(
            "all_heads", draw.head_planes_grid(points, values, lines, notes), "The same for every head (Figure 15)."
        )
