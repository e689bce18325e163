"""How do heads become good during training, and does their weighted s-acc predict accuracy? (Figures 10 and 14 right)

python analyses/count01_dynamics.py --out out/dynamics [--quick | --smoke]

Trains the paper's main model (recipe A) on fresh seeds and looks at it again and again. Full: 4 seeds, 100 epochs,
every 2 epochs. Quick: 2 seeds, every 5. Smoke: 1 seed, 4 epochs.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from shared.script import Arguments, run

import interp
from interp.measures.heads import FAILED, SUCCESSFUL, head_outputs, head_weights
from interp.measures.separation import score_groups
from interp.models.spec import Training
from interp.report import Report
from interp.support import figures as draw
from interp.support.figures import theme
from interp.support.figures.drawing import compact, head_name

FIRST_SEED = 2000
PAPER_R = 0.72
FROM = (10, 20, 30)
"""The paper takes checkpoints from epoch 10 on; the earliest of them have not learned to count yet (errata)."""
THINNEST, THICKEST = 0.8, 5.0
"""Widths of the lines of the heads with the least and the most weight, in pixels."""


def study(arguments: Arguments) -> Report:
    epochs, every = arguments.pick(100, 100, 4), arguments.pick(2, 5, 2)
    spec = interp.load("count01/paper").spec
    recipe = Training(**{**spec.training.model_dump(), "epochs": epochs})
    looks = sorted({0, 1, 2, *range(every, epochs + 1, every)})
    seeds = range(FIRST_SEED, FIRST_SEED + arguments.pick(4, 2, 1))
    models = interp.train(spec.replace(origin=recipe), seeds, snapshots=looks)
    sets = {split: models[0].task.dataset(split) for split in ("train", "test")}
    heads = pd.concat([_heads(model, epoch, sets) for model in models for epoch in looks], ignore_index=True)
    points = _points(heads)
    report = Report("Heads during training")
    _add_evolution(report, heads, int(seeds[0]))
    correlations = _add_correlation(report, points, [start for start in FROM if start <= epochs] or [0])
    report.verdict = _verdict(heads, correlations)
    return report


def _heads(model: interp.TaskModel, epoch: int, sets: dict[str, interp.Batch]) -> pd.DataFrame:
    """Every head of a snapshot: s-acc, weight and the norm of its W_O; with the snapshot's accuracy."""
    then = model.snapshots[epoch]
    fitted, tested = (head_outputs(then, sets[split]) for split in ("train", "test"))
    s_acc = score_groups(
        fitted.z.numpy(), fitted.labels.numpy(), tested.z.numpy(), tested.labels.numpy(),
        [(head,) for head in range(tested.n_heads)],
    )["s_acc"].to_numpy()  # fmt: skip
    right = tested.logits(range(tested.n_heads), with_skip=True).argmax(-1) == tested.labels
    norms = then.blocks[-1].attn.W_O.detach().double().norm(dim=(1, 2)).numpy()
    accuracy = float(right.double().mean())
    return head_weights(then).assign(W_O=norms, s_acc=s_acc, seed=model.seed, epoch=epoch, accuracy=accuracy)


def _points(heads: pd.DataFrame) -> pd.DataFrame:
    """One row a checkpoint: accuracy, and the heads' s-acc averaged with the readout's weights (section 6.1)."""
    weighted = heads.assign(weighted=heads["s_acc"] * heads["weight"])
    return weighted.groupby(["seed", "epoch"]).agg(
        weighted_s_acc=("weighted", "sum"), accuracy=("accuracy", "first")
    ).reset_index()  # fmt: skip


def head_evolution(frame: pd.DataFrame) -> go.Figure:
    """Draw the separation accuracy of every head by epoch, with lines as wide as its mean weight (Figure 14, right).

    Args:
        frame: one row per head and epoch: `head`, `epoch`, `s_acc`, `weight` (share in the readout).

    A line has the color of the head's last category: successful, failed or in between.
    """
    theme.check_rows(frame, "head_evolution")
    drawn = theme.figure(x="epoch", y="separation accuracy", height=460)
    weights = frame.groupby("head")["weight"].mean()
    span = float(weights.max() - weights.min()) or 1.0
    shown: set[str] = set()
    for head, part in frame.groupby("head"):
        part = part.sort_values("epoch", kind="stable")
        last = float(part["s_acc"].iloc[-1])
        name, color = (
            ("ends above .98", theme.BLUE) if last >= 0.98
            else ("ends at .6 or below", theme.VERMILLION) if last <= 0.6
            else ("ends in between", theme.GREY)
        )  # fmt: skip
        width = THINNEST + (THICKEST - THINNEST) * float(weights[head] - weights.min()) / span
        line = go.Scatter(x=compact(part["epoch"]), y=compact(part["s_acc"]), mode="lines", name=name, legendgroup=name)
        said = f"head {head_name(head)}, weight {weights[head]:.3f}"
        line.update(
            line={"width": width, "color": theme.fade(color, 0.75)},
            showlegend=name not in shown,
            meta={"head": head_name(head)},
            hovertemplate=f"{said}<br>epoch %{{x}}: %{{y:.4f}}<extra></extra>",
        )
        shown.add(name)
        drawn.add_trace(line)
    return drawn


def _add_evolution(report: Report, heads: pd.DataFrame, seed: int) -> None:
    report.heading("Heads (Figure 14, right)")
    one = heads[heads["seed"] == seed]
    report.add_figure(
        "figure_14_right", head_evolution(one),
        f"s-acc of every head of seed {seed} during training; a thicker line has more weight in the readout.",
    )  # fmt: skip
    report.add_table("heads", heads, "One row for each head and look.", max_rows=10)
    by_epoch = heads.groupby("epoch")["s_acc"].agg(
        successful=lambda s: (s >= SUCCESSFUL).mean(),
        failed=lambda s: (s <= FAILED).mean(),
        mixed=lambda s: s.between(FAILED, SUCCESSFUL, inclusive="neither").mean(),
    )
    shares = by_epoch.reset_index().melt("epoch", var_name="category", value_name="share")
    report.add_figure(
        "categories", draw.lines(shares, "epoch", "share", "category", y_title="share of heads"),
        "Heads of all seeds by category.",
    )  # fmt: skip
    report.add_table("categories", by_epoch.reset_index(), "Shares of heads by epoch, all seeds.", max_rows=60)


def _add_correlation(report: Report, points: pd.DataFrame, starts: list[int]) -> pd.DataFrame:
    report.heading("Weighted s-acc against accuracy (Figure 10)")
    shown = points[points["epoch"] >= starts[0]].assign(seed=lambda frame: frame["seed"].astype(str))
    report.add_figure(
        "figure_10",
        draw.scatter(
            shown, "weighted_s_acc", "accuracy", "epoch", x_title="s-acc of the heads, averaged with their weights",
            y_title="accuracy at '='", color_title="epoch",
        ),
        f"A dot is a checkpoint from epoch {starts[0]} on.",
    )  # fmt: skip
    rows = []
    for start in starts:
        late = points[points["epoch"] >= start]
        rows.append({"from epoch": start, "checkpoints": len(late), "pearson": _pearson(late)})
    table = pd.DataFrame(rows)
    report.add_table("correlation", table, f"Pearson's r over the checkpoints from an epoch on; paper: {PAPER_R}.")
    report.add_table("checkpoints", points, "One row a checkpoint.", max_rows=10)
    return table


def _pearson(points: pd.DataFrame) -> float:
    x, y = points["weighted_s_acc"].to_numpy(), points["accuracy"].to_numpy()
    return float(np.corrcoef(x, y)[0, 1]) if len(x) > 1 and x.std() > 0 and y.std() > 0 else float("nan")


def _verdict(heads: pd.DataFrame, correlations: pd.DataFrame) -> str:
    r = ", ".join(f"{row['pearson']:.2f} from epoch {row['from epoch']:.0f}" for _, row in correlations.iterrows())
    last = heads["epoch"].max()
    middle = heads["epoch"][heads["epoch"] >= last / 2].min()
    s_acc = heads.pivot_table(index=["seed", "head"], columns="epoch", values="s_acc")
    weight = heads.pivot_table(index=["seed", "head"], columns="epoch", values="weight")
    early = heads["epoch"][heads["epoch"] >= min(10, middle)].min()
    moved = (s_acc[last] - s_acc[middle]).abs() > 0.05
    good, failed = s_acc >= SUCCESSFUL, s_acc <= FAILED
    turned = (good[early] & failed[last]) | (failed[early] & good[last])
    change = (weight[last] / weight[early] - 1).abs().median()
    unlike_the_end = (good != good[[last]].to_numpy()).any() | (failed != failed[[last]].to_numpy()).any()
    settled = s_acc.columns[~unlike_the_end[::-1].cummax()[::-1]].min()
    focus = np.corrcoef(weight[last], s_acc[last])[0, 1]
    return (
        f"Pearson's r of weighted s-acc and accuracy: {r} (paper: {PAPER_R} from epoch 10). s-acc moves by more than "
        f".05 in {moved.mean():.0%} of the heads after epoch {middle} (paper: heads stabilize around epoch 50), and no "
        f"head changes its category from epoch {settled} on. From epoch {early} to {last}, {turned.mean():.0%} of the "
        f"heads turn from failed to successful or back; the weight of a head in the readout changes by {change:.0%} "
        f"in the median (paper: barely). At the end weight and s-acc correlate with r = {focus:.2f} (paper: the model "
        "does not learn to focus on the good heads)."
    )


if __name__ == "__main__":
    run(study, __doc__)
