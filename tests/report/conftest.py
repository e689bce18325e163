"""Synthetic tables of the shapes that the measures give, and a report with all figures made of them."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from interp.families.count01.figures.planes import head_plane, head_planes_grid
from interp.report import Report, figures

HEADS = range(16)


def make_frames(seed: int = 0) -> dict[str, pd.DataFrame]:
    random = np.random.default_rng(seed)
    skill = np.where(random.random(16) < 0.5, random.uniform(0.98, 1.0, 16), random.uniform(0.5, 0.85, 16))
    good = skill > 0.97
    w01 = np.where(good, random.uniform(0.88, 1.06, 16), 10 ** random.uniform(-2.5, 2.5, 16))
    w02 = np.where(good, 10 ** random.uniform(1.1, 2.5, 16), 10 ** random.uniform(-1.5, 1.0, 16))
    groups = [(head,) for head in HEADS] + list(combinations(HEADS, 2))
    s_acc = [min(1.0, max(skill[list(group)]) + 0.004 * (len(group) - 1)) for group in groups]
    frames = {
        "groups": pd.DataFrame(
            {
                "heads": groups,
                "size": [len(group) for group in groups],
                "s_acc": s_acc,
                "l_acc": random.uniform(0.45, 0.8, len(groups)),
                "roc_auc": np.clip(np.array(s_acc) + 0.01, 0, 1),
            }
        ),
        "heads": pd.DataFrame(
            {
                "head": list(HEADS),
                "s_acc": skill,
                "w01": w01,
                "w02": w02,
                "category": np.where(good, "successful", np.where(skill > 0.8, "mixed", "failed")),
            }
        ),
    }
    points, values, separators = [], [], {}
    for head in HEADS:
        corners = random.normal(0, 1, (3, 2))
        counts = random.integers(1, 200, (1500, 3)).astype(float)
        weights = counts * np.array([1.0, 1 / w01[head], 1 / w02[head]])
        outputs = weights / weights.sum(1, keepdims=True) @ corners
        label = np.where(counts[:, 1] > counts[:, 0], "4", "5")
        split = np.where(np.arange(1500) % 3 == 0, "test", "train")
        points.append(
            pd.DataFrame({"head": head, "x": outputs[:, 0], "y": outputs[:, 1], "label": label, "split": split})
        )
        values.append(pd.DataFrame({"head": head, "token": ["0", "1", "2"], "x": corners[:, 0], "y": corners[:, 1]}))
        direction = outputs[label == "4"].mean(0) - outputs[label == "5"].mean(0)
        separators[head] = (*direction, -float(direction @ outputs.mean(0)))
    frames["points"], frames["values"] = pd.concat(points, ignore_index=True), pd.concat(values, ignore_index=True)
    frames["separators"] = pd.DataFrame.from_dict(separators, orient="index", columns=["w1", "w2", "b"])

    ratios = np.logspace(-3, 3, 25)
    curve = [
        {
            "head": head,
            "ratio": ratio,
            "s_acc": np.clip(1 - 0.05 * np.log10(ratio) ** 2 * random.uniform(0.5, 1.2), 0.5, 1),
        }
        for head in HEADS
        for ratio in ratios
    ]
    frames["curve"] = pd.DataFrame(curve)
    logits = [
        pd.DataFrame(
            {"head": head, "current": current, "next": following, "token": token, "logit": random.normal(shift, 1, 60)}
        )
        for head in [*HEADS, "model"]
        for current, following in [("=", "4"), ("=", "5"), ("4", "[EOS]"), ("5", "[EOS]")]
        for token, shift in zip(["4", "5", "[EOS]"], random.normal(0, 3, 3))
    ]
    frames["logits"] = pd.concat(logits, ignore_index=True)
    difference = np.arange(-200, 201)
    inputs = 15150 - 50 * np.abs(difference)
    errors = np.where((difference > 0) & (difference < 4), inputs * 0.3 / np.maximum(difference, 1), 0).astype(int)
    frames["errors"] = pd.DataFrame({"difference": difference, "errors": errors, "inputs": inputs})
    n2 = np.arange(0, 201)
    frames["frontier"] = pd.DataFrame(
        {
            "n2": n2,
            "min_difference": np.where(n2 < 40, np.nan, 1.0),
            "max_difference": np.where(n2 < 40, np.nan, n2 // 45),
        }
    )
    frames["history"] = pd.DataFrame(
        [
            {
                "seed": seed,
                "epoch": epoch,
                "loss": np.exp(-epoch / (10 + 4 * seed)) + 0.002,
                "accuracy": 1 - 0.5 * np.exp(-epoch / 15),
            }
            for seed in range(4)
            for epoch in range(100)
        ]
    )
    tokens = ["[BOS]", "0", "1", "2", "=", "4", "5", "[EOS]"]
    frames["qk"] = pd.DataFrame(
        [{"head": h, "query": q, "key": k, "value": random.normal(0, 2)} for h in HEADS for q in tokens for k in tokens]
    )
    return frames


def make_report(frames: dict[str, pd.DataFrame]) -> Report:
    report = Report(
        "count01/paper/seed-0",
        "Count01: is there a '1' more than there are '0's?",
        {
            "checkpoint": "models/count01/paper/seed-0.safetensors",
            "sha256": "9f2c" * 16,
            "torch": "2.13.0",
            "seed": "0",
        },
    )
    report.verdict = (
        "Right on 502,012 of 502,500 inputs of the test domain (99.90 %); every error has n1 - n0 between 1 and 3.\n\n"
        "8 of 16 heads are successful, 7 failed, 1 is mixed: a pseudo-ensemble, not a cooperation."
    )
    heads, groups = frames["heads"], frames["groups"]
    report.heading("Accuracy", "Counted on every input of the test domain, so there is no sampling error.")
    report.add_figure("errors", figures.error_by_difference(frames["errors"]), "Where the errors lie.")
    report.add_figure(
        "frontier", figures.error_frontier(frames["frontier"]), "How far from the boundary the model still errs."
    )
    report.heading("Heads", "Each head measured alone, with all other heads switched off.")
    report.add_table("heads", heads, "One row per head.", formats={"s_acc": ".4f"})
    report.add_table("groups", groups, "Single heads and pairs.", max_rows=12)
    for metric in ("s_acc", "l_acc", "roc_auc"):
        caption = f"{metric} of single heads (diagonal) and of pairs (elsewhere). Figure 3 of the paper."
        report.add_figure(metric, figures.heads_heatmap(groups, metric), caption)
    report.add_figure("sizes", figures.metrics_by_size(groups), "Groups by their size. Figure 4 of the paper.")
    report.heading("Attention")
    report.add_figure("attention_ratios", figures.attention_ratios(heads), "Each dot is a head. Figure 5 of the paper.")
    for x in ("w01", "w02"):
        curve = figures.intervention_curve(frames["curve"], x)
        report.add_figure(
            f"curve_{x}", curve, f"Separation accuracy when {x} is set by hand. Figures 8 and 9 of the paper."
        )
    report.heading("Head outputs")
    separators = {int(head): tuple(row) for head, row in frames["separators"].iterrows()}
    points, values = frames["points"], frames["values"]
    own = [frame[frame["head"] == 0] for frame in (points, values)]
    report.add_figure("plane", head_plane(*own, separators[0], 0, variance=(0.91, 0.05)), "Outputs of head 0.")
    notes = {int(head): f"{value:.3f}" for head, value in zip(heads["head"], heads["s_acc"])}
    test = points[points["split"] == "test"]
    grid = head_planes_grid(test, values, separators, notes)
    report.add_figure("planes", grid, "Outputs of every head on the test inputs. Figure 15 of the paper.")
    report.heading("Logits and circuits")
    report.add_figure(
        "logits", figures.logit_distributions(frames["logits"]), "Logits of heads and model. Figure 1 of the paper."
    )
    report.add_figure("qk", figures.circuit(frames["qk"]), "What each token would attend to.")
    ov = frames["qk"].rename(columns={"query": "source", "key": "logit"})
    report.add_figure("ov", figures.circuit(ov[ov["head"] < 2]), "What attending to a token adds to each logit.")
    report.heading("Training")
    report.add_figure("history", figures.history(frames["history"]), "Loss and accuracy.")
    report.heading("Generic")
    matrix = np.random.default_rng(1).normal(size=(5, 9))
    report.add_figure(
        "heat", figures.heatmap(matrix, range(9), list("abcde"), "column", "row", "gain", 0.0, show_values=True), "A."
    )
    long = frames["history"].assign(group="seed " + frames["history"]["seed"].astype(str))
    report.add_figure("lines", figures.lines(long, "epoch", "loss", "group", y_type="log", y_title="loss (nats)"), "B.")
    report.add_figure("bars", figures.bars(heads.assign(err=0.02), "head", "s_acc", "category", error="err"), "C.")
    report.add_figure("scatter", figures.scatter(heads, "s_acc", "w01", "category", "head", y_type="log"), "D.")
    report.add_figure("scale", figures.scatter(groups, "s_acc", "roc_auc", "l_acc", "heads", diagonal=True), "E.")
    return report


@pytest.fixture(scope="session")
def frames() -> dict[str, pd.DataFrame]:
    return make_frames()


@pytest.fixture(scope="session")
def report(frames: dict[str, pd.DataFrame]) -> Report:
    return make_report(frames)
