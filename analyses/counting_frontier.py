"""How small can an exact counter be? The smallest width of each construction, built and checked, against the bounds.

python analyses/counting_frontier.py --out out/frontier [--quick | --smoke]

Full: four pairs of alphabet size T and length L. Quick: T = 32, L = 10 (the paper's). Smoke: T = 8, L = 4.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import torch
from shared.script import Arguments, run

import interp
from interp.families.histogram import Histogram
from interp.families.histogram.theory.bounds import feasibility
from interp.report import Report
from interp.support import figures as draw

MODELS = ("lin", "lin-softmax", "dot", "dot-softmax", "bos", "bos-softmax")
SIZES = {"full": ((32, 10), (64, 10), (32, 15), (16, 6)), "quick": ((32, 10),), "smoke": ((8, 4),)}


def study(arguments: Arguments) -> Report:
    rows = pd.concat([feasibility(name, T, L) for T, L in SIZES[arguments.mode] for name in MODELS], ignore_index=True)
    rows = rows[rows["variant"] != ""].reset_index(drop=True)
    checked = [_check(row) for row in rows.to_dict("records")]
    rows[["float64", "float32"]] = pd.DataFrame(checked, index=rows.index)
    report = Report("The smallest exact counters")
    report.heading(
        "The frontier",
        "Each width is that of weights that were built and run on every sequence of two tokens, a^k b^(L-k), in both "
        "orders of which tokens: the exact worst case of these constructions.",
    )
    report.add_table(
        "frontier", rows, "Smallest d_model: printed bound, corrected bound, what is necessary, what works."
    )
    for (T, L), part in rows.groupby(["T", "L"], sort=False):
        long = part.assign(model=part["model"] + ", p = " + part["p"]).melt(
            "model", ["printed", "corrected", "necessary", "verified"], "bound", "d_model"
        )
        long["d_model"] = long["d_model"].astype(float)
        report.add_figure(
            f"frontier_T{T}_L{L}",
            draw.bars(long.dropna(), "model", "d_model", "bound", x_title="model", y_title="smallest d_model"),
            f"T = {T} tokens, length L = {L}. A missing bar: no formula is known.",
        )
    first = rows[(rows["T"] == rows["T"][0]) & (rows["L"] == rows["L"][0])]
    best = ", ".join(f"{row['model']} (p = {row['p']}) {row['verified']}" for row in first.to_dict("records"))
    right, single = (int((rows[dtype] == 1).sum()) for dtype in ("float64", "float32"))
    report.verdict = (
        f"{right} of {len(rows)} constructions are right on every worst case in float64, "
        f"{single} in float32. Smallest widths at T = {rows['T'][0]}, L = {rows['L'][0]}: {best}."
    )
    return report


def _check(row: dict[str, Any]) -> tuple[float, float]:
    """Accuracy over all two-token sequences, in float64 and float32."""
    T, L = row["T"], row["L"]
    pairs = torch.cartesian_prod(torch.arange(T), torch.arange(T))
    k = torch.arange(1, L + 1)
    rows = torch.where(torch.arange(L) < k[:, None], pairs[:, None, :1], pairs[:, None, 1:]).flatten(0, 1)
    batch = Histogram(T=T, L=L, bos=row["model"].startswith("bos")).of_sequences(rows)
    found = []
    for dtype in ("float64", "float32"):
        model = interp.build(
            f"histogram/{row['model']}-exact", dtype=dtype, T=T, L=L, d_model=row["verified"],
            p=1 if row["p"] == "1" else T, variant=None if row["variant"] == "orthogonal" else row["variant"],
        )  # fmt: skip
        found.append(float((model.predict(batch.tokens) == batch.labels).double().mean()))
    return found[0], found[1]


if __name__ == "__main__":
    run(study, __doc__)
