"""How good are the closed forms of the bigram problem, and how loose are their bounds? (errata tables A and B)

python analyses/memorization_tables.py --out out/memorization_tables [--quick | --smoke]

Table A: each bound of Theorem 2, printed and sharper, beside the divergence it bounds. Table B: mean divergence of
f_ls, f_wls, Newton's rows and the best rank-d map found. The published tables drew other random instances, so compare
orders and orderings, not digits. Full: 17 instances, 40 random starts; quick: 20 x 10 ones only; smoke: three.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from shared.script import Arguments, run

from interp.families.memorization.theory.drawn_tables import dirichlet_table, lookup_table, low_rank_table
from interp.families.memorization.theory.kl_bounds import bounds_table
from interp.families.memorization.theory.optimum import rank_d_optimum
from interp.families.memorization.theory.rank_d import least_squares, newton_refinement, weighted_least_squares
from interp.families.memorization.theory.spectrum import singular_values
from interp.families.memorization.theory.table import ConditionalTable
from interp.report import Report


def instances(mode: str) -> list[tuple[str, ConditionalTable, int]]:
    """Name, table and width of each row of table B."""
    small = [
        (f"Dir({a:g}) {prior}", dirichlet_table(20, 10, a, prior=prior, seed=0), d)
        for a, prior in ((1.0, "uniform"), (5.0, "uniform"), (0.1, "uniform"), (1.0, "zipf"))
        for d in (2, 4)
    ]
    if mode == "smoke":
        return small[:3]
    if mode == "quick":
        return small
    return [
        *small,
        *(("Dir(1) uniform", dirichlet_table(100, 50, 1.0, seed=0), d) for d in (2, 8)),
        ("Dir(1) zipf", dirichlet_table(100, 50, 1.0, prior="zipf", seed=0), 8),
        ("Dir(.1) uniform", dirichlet_table(100, 50, 0.1, seed=0), 8),
        ("rank8+.1", low_rank_table(100, 50, 8, 0.1, seed=0), 8),
        ("rank8+1", low_rank_table(100, 50, 8, 1.0, seed=0), 8),
        *(("look-up .05", lookup_table(100, 50, 0.05, seed=0), d) for d in (2, 8)),
        ("look-up .05 zipf", lookup_table(100, 50, 0.05, prior="zipf", seed=0), 8),
    ]


def closed_forms(name: str, table: ConditionalTable, d: int, starts: int) -> dict[str, object]:
    """One row of table B."""
    ls = least_squares(table, d)
    weighted = least_squares(table, d, sqrt_prior=True)
    best = rank_d_optimum(table, d, random_starts=starts)
    return {
        **{"instance": name, "N": table.n_contexts, "M": table.n_outputs, "d": d},
        "ls": ls.kl,
        "ls_pi": least_squares(table, d, centering="pi").kl,
        "wls": weighted_least_squares(table, W_U=ls.W_U).kl,
        "newton_2": newton_refinement(table, ls.W_U, max_steps=2).kl,
        "newton": newton_refinement(table, ls.W_U).kl,
        "newton_sqrt_prior": newton_refinement(table, weighted.W_U).kl,
        "svd_lbfgs": best.restarts.set_index("start").kl["svd"],
        "best": best.kl,
        "starts_agreeing": int(best.restarts.best.sum()),
        "starts": len(best.restarts),
        "gradient_norm": best.gradient_norm,
    }


def looseness(name: str, table: ConditionalTable, d: int) -> dict[str, object]:
    """One row of table A: value of each bound over the divergence it bounds."""
    bounds = bounds_table(table, d)
    row: dict[str, object] = {"instance": name, "d": d, "sigma": float(singular_values(table)[d])}
    row |= {f"kl {which}": float(kl) for which, kl in zip(bounds["map"], bounds["kl"])}
    row |= {f"{bound}, {which}": float(v) for bound, which, v in zip(bounds["bound"], bounds["map"], bounds["value"])}
    row["all_hold"] = bool(bounds["holds"].all())
    return row


def study(arguments: Arguments) -> Report:
    report = Report("Closed forms of the bigram problem, and their bounds")
    chosen = instances(arguments.mode)
    starts = arguments.pick(40, 20, 4)
    best = pd.DataFrame([closed_forms(name, table, d, starts) for name, table, d in chosen])
    bounds = pd.DataFrame(
        [looseness(name, table, d) for name, table, d in chosen if table.conditional.min() > 1e-13]
    ).replace(np.inf, 1e308)
    report.heading("Table B: mean divergence, nats")
    report.add_table("closed_forms", best, "From f_ls to the best rank-d map found; 'best' is not certified as global.")
    report.heading("Table A: bounds, nats")
    report.add_table("bounds", bounds, "Each bound beside the divergence of its map; 1e308 stands for overflow.")
    higher = int((best["wls"] > best["ls"]).sum())
    gain = (best["newton"] / best["best"]).median()
    report.verdict = (
        f"Every bound holds on {int(bounds['all_hold'].sum())} of {len(bounds)} instances. f_wls is above f_ls on "
        f"{higher} of {len(best)}. With the W_U of the SVD and the best embeddings the divergence is {gain:.2f} times "
        f"(median) that of the best W_U found."
    )
    return report


if __name__ == "__main__":
    run(study, __doc__)
