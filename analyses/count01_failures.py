"""How do heads fail to count? The two ways of Figure 7, and a third (Zsámboki et al. 2025, section 5.3).

python analyses/count01_failures.py --out out/failures [--quick | --smoke]

A failed head (s-acc of at most .6) looks at one counted token alone, so that its outputs collapse into one point
(Figure 7, top), or at '2' beside another, which is noise (bottom), or away from all of them. Which it is depends on
where training starts, which the paper leaves open: the shipped models start from normal(0, .02) (recipe A), the fresh
ones of this study from where torch.nn's layers start (recipe T of count01_recipes.py). Full: 8 fresh models; quick: 3;
smoke: 1, of two epochs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from shared.script import Arguments, run

import interp
from interp.families.count01.planes import head_plane, head_planes
from interp.measures.attention_ratios import attention_shares
from interp.measures.heads import FAILED, head_metrics, head_outputs
from interp.models.spec import Training
from interp.report import Report
from interp.support import words
from interp.tasks.batch import find_first

START = {"A": "normal(0, .02), shipped", "T": "torch.nn's, fresh"}
FIRST_SEED = 1000
COUNTED = ("0", "1", "2")
ALONE, SOME = 0.9, 0.1
"""Share of the attention from which a head looks at one token alone, and from which it looks at a token at all."""
PAPER_NO_ZERO, PAPER_NO_ZERO_NO_ONE = 73, 2


def study(arguments: Arguments) -> Report:
    names = [f"count01/paper/seed-{seed}" for seed in range(arguments.pick(4, 4, 1))]
    shipped = {name: interp.load(name) for name in names}
    recipe = Training(learning_rate=2e-4, schedule="cosine", init="torch", epochs=arguments.pick(100, 100, 2))
    spec = shipped[names[0]].spec.replace(origin=recipe)
    seeds = range(FIRST_SEED, FIRST_SEED + arguments.pick(8, 3, 1))
    fresh = {f"T, seed {model.seed}": model for model in interp.train(spec, seeds)}
    models = shipped | fresh
    found = [
        _failed(model).assign(model=name, start=START["A" if name in shipped else "T"])
        for name, model in models.items()
    ]
    heads = pd.concat(found, ignore_index=True)
    report = Report("How heads fail to count")
    report.heading(
        "Where failed heads look",
        f"Heads with s-acc of at most {FAILED:g}, by what gets the attention of '=' on the training set. Collapse: one "
        f"of '0', '1' and '2' gets at least {ALONE:g}. Noise: none does, and '2' gets at least {SOME:g}. Looks away: "
        f"what else there is gets at least {ALONE:g}. Other: none of these.",
    )
    ways = heads.groupby(["start", "way"], sort=False).size().rename("heads").reset_index()
    report.add_table("ways", ways, "Failed heads by where training starts and by the way they fail.")
    report.add_table("failed", heads, "Every failed head: shares of the attention of '=' on the training set.")
    for way, title in (("collapse", "Figure 7, top: outputs collapse"), ("noise", "Figure 7, bottom: '2' is noise")):
        mine = heads[heads["way"] == way]
        report.heading(title, "" if len(mine) else "No failed head of these models fails in this way.")
        if len(mine):
            # As in the paper, a collapse on another token than '2'; of noise that with most of it.
            best = mine["most"] - (mine["token"] == "2") if way == "collapse" else mine["to 2"]
            row = mine.loc[best.idxmax()].to_dict()
            _draw(report, models[row["model"]], row)
    report.verdict = _verdict(ways, heads)
    return report


def _failed(model: interp.TaskModel) -> pd.DataFrame:
    """One row a failed head: head, s_acc, way, token (that gets most), most (its share), and every token's share."""
    metrics = head_metrics(model, "singles").to_frame().assign(head=range(model.cfg.n_heads))
    shares = attention_shares(model, model.task.dataset("train")).pivot(index="head", columns="token", values="share")
    found = metrics[metrics["s_acc"] <= FAILED][["head", "s_acc"]].reset_index(drop=True)
    mine = shares.loc[found["head"]].reset_index(drop=True)
    token = mine.idxmax(axis=1).astype(object)
    found = found.assign(way=[way(row) for row in mine.to_dict("records")], token=token, most=mine.max(axis=1))
    return found.join(mine.add_prefix("to "))


def way(shares: dict[str, float]) -> str:
    """How a head fails that gives these shares of its attention to the tokens."""
    counted = [shares.get(token, 0.0) for token in COUNTED]
    if max(counted) >= ALONE:
        return "collapse"
    if counted[2] >= SOME:
        return "noise"
    return "looks away" if sum(counted) <= 1 - ALONE else "other"


def _counts(model: interp.TaskModel, batch: interp.Batch) -> np.ndarray:
    """Numbers of '0', '1' and '2' before '='."""
    before = torch.arange(batch.tokens.shape[1]) < find_first(batch.tokens, model.task.token_id("="))[:, None]
    ids = [model.task.token_id(token) for token in COUNTED]
    return torch.stack([((batch.tokens == i) & before).sum(1) for i in ids], 1).numpy()


def _draw(report: Report, model: interp.TaskModel, row: dict[str, Any]) -> None:
    """The outputs of one head on the training set, those of inputs without its token apart."""
    batch, head, token = model.task.dataset("train"), int(row["head"]), str(row["token"])
    outputs, counts = head_outputs(model, batch), _counts(model, batch)
    none = counts[:, COUNTED.index(token)] == 0
    planes = head_planes(model, outputs, outputs, COUNTED)
    points = planes.points[planes.points["head"] == head].reset_index(drop=True)
    points["split"] = np.where(none, f"no '{token}'", f"with '{token}'")
    values = planes.values[planes.values["head"] == head]
    said = (
        f"Head {head} of {row['model']} (s-acc {words.share(row['s_acc'], 3)}) on the {len(batch):,} training inputs. "
    )
    z = outputs.z[:, head].numpy()
    shares = words.joined(f"'{one}' {words.number(float(row[f'to {one}']), 3)}" for one in COUNTED)
    said += f"Of the attention of '=' it gives {shares}. "
    said += collapse(z, counts, token) if row["way"] == "collapse" else noise(z, counts)
    report.add_figure(
        f"figure_7_{row['way']}",
        head_plane(points.sort_values("split", kind="stable", ascending=False), values, None, head, max_points=7000),
        said + " Diamonds are the value vectors; every output is an average of such, weighted by the attention.",
    )


def collapse(z: np.ndarray, counts: np.ndarray, token: str) -> str:
    """Who the outliers are: how many inputs without the token are among as many outputs farthest from the median."""
    none = counts[:, COUNTED.index(token)] == 0
    n, other = int(none.sum()), "1" if token == "0" else "0"
    distance = np.linalg.norm(z - np.median(z, axis=0), axis=1)
    farthest = np.argsort(-distance, kind="stable")[:n]
    inside = int(none[farthest].sum())
    neither = int((none & (counts[:, COUNTED.index(other)] == 0)).sum())
    return (
        "Half of its outputs lie within "
        f"{words.number(float(np.median(distance)), 2)} of one point, those without a '{token}' "
        f"{words.number(float(distance[none].min()), 2) if n else 'none'} or more from it. These outliers are "
        f"{words.counted(n, 'input')} without any '{token}', {neither} of which have no '{other}' either; {inside} of "
        f"them are among the {n} farthest. (Paper: {PAPER_NO_ZERO} without '0', {PAPER_NO_ZERO_NO_ONE} of which have "
        "no '1'.)"
    )


def noise(z: np.ndarray, counts: np.ndarray) -> str:
    """What the outputs follow: squared correlations of their main direction with the counts."""
    main = np.linalg.svd(z - z.mean(0), full_matrices=False)[0][:, 0]
    two = counts[:, 2] / np.maximum(counts.sum(1), 1)
    by_two, by_answer = (float(np.corrcoef(main, x)[0, 1] ** 2) for x in (two, counts[:, 1] - counts[:, 0]))
    return (
        "The main direction of its outputs has a squared correlation of "
        f"{words.share(by_two, 2)} with the share of '2' among the counted tokens, and of "
        f"{words.share(by_answer, 2)} with n1 - n0."
    )


def _verdict(ways: pd.DataFrame, heads: pd.DataFrame) -> str:
    sentences = []
    for start, part in ways.groupby("start", sort=False):
        numbers = words.joined(f"{row.heads} {row.way}" for row in part.itertuples())
        n, models = int(part["heads"].sum()), heads[heads["start"] == start]["model"].nunique()
        sentences.append(
            f"Start {start}: {words.counted(n, 'failed head')} in {words.counted(models, 'model')} ({numbers})."
        )
    return " ".join(sentences) or "0 heads failed."


if __name__ == "__main__":
    run(study, __doc__)
