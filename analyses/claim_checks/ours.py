"""What this repository claims itself, of many seeds (docs/many_seeds.md)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pandas as pd
from claim_checks.base import Found, check, number, verdict
from scipy.stats import ttest_ind
from shared.clock_or_pizza import clock_or_pizza
from shared.pseudo_ensembles import pseudo_ensembles

import interp
from interp.tasks.scores import wilson

MANY, HALF, RIGHT = 0.1, 0.5, 0.95
OVER_TRAINING = 0.72
"""Pearson's r of the mean s-acc of heads and the accuracy over checkpoints of a training (Zsámboki et al. 2025, section
6.1)."""
SWEEPS = Path(__file__).resolve().parent.parent / "sweeps"


@check("ours.count01_one_algorithm", cheap=False)
def count01_one_algorithm() -> Found:
    found = interp.compare("count01/paper", progress=False)
    first, n = found.to_frame("algorithms").iloc[0], len(found.rows)
    moved = found.to_frame("transplants")
    return Found(
        f"{first['models']} of {n} seeds (95% interval {number(first['low'])} to {number(first['high'])}); with "
        f"variables of another seed, {number(moved['changes'].min())} to {number(moved['changes'].max())} of the "
        "answers that change are the program's",
        verdict(first["algorithm"] != "none" and first["models"] == n),
        n,
    )


@check("ours.modular_addition_clock")
def modular_addition_clock() -> Found:
    found = clock_or_pizza(interp.load("algorithmic/modular-addition"))
    irrelevance, symmetry = found["distance irrelevance"], found["gradient symmetry"]
    return Found(
        f"distance irrelevance {number(irrelevance)}, gradient symmetry {number(symmetry)}",
        verdict(irrelevance > HALF > symmetry),
        1,
    )


@check("ours.modular_addition_seeds")
def modular_addition_seeds() -> Found:
    table = pd.read_csv(SWEEPS / "many_modular_addition.csv", keep_default_na=False)
    read = table[table["frequencies"] != ""]
    clocks, n = int((~read["fading"]).sum()), len(read)
    low, high = wilson(clocks / n, n)
    sizes = read["frequencies"].str.split().map(len)
    by_numbers = int(((read["distance irrelevance"] > HALF) & (read["gradient symmetry"] < HALF)).sum())
    return Found(
        f"{n} of {len(table)} seeds have a program, {clocks} a clock (95% interval {number(low)} to {number(high)}) of "
        f"{sizes.min()} to {sizes.max()} frequencies, {read['frequencies'].nunique()} sets of them; distance "
        f"irrelevance and gradient symmetry say so of {by_numbers}",
        verdict(low > HALF and read["frequencies"].is_unique),
        len(table),
    )


@check("ours.count01_seeds")
def count01_seeds() -> Found:
    table = pd.read_csv(SWEEPS / "many_count01.csv", keep_default_na=False)
    first = table["algorithm"].mode()[0]
    by_heads = (table["algorithm"] == first).groupby(table["heads"], sort=False).agg(["sum", "count"])
    m, n = int(by_heads["sum"].sum()), len(table)
    low, high = wilson(m / n, n)
    each = ", ".join(f"{row['sum']} of {row['count']} with {heads} heads" for heads, row in by_heads.iterrows())
    return Found(
        f"{m} of {n} seeds (95% interval {number(low)} to {number(high)}): {each}", verdict(low > HALF and m < n), n
    )


@check("ours.count01_pseudo_ensembles")
def count01_pseudo_ensembles() -> Found:
    table = pseudo_ensembles(pd.read_csv(SWEEPS / "many_count01.csv", keep_default_na=False))
    each = "; ".join(
        f"{row.heads} heads: {row.pseudo} of {row.models} (95% interval {number(row.low)} to {number(row.high)}), "
        f"better pairs {number(row.better)}, r of all {number(row.r, 2)} ({number(row.r_low, 2)} to "
        f"{number(row.r_high, 2)}), of {row.right} that are right {number(row.of_right, 2)} "
        f"({number(row.right_low, 2)} to {number(row.right_high, 2)})"
        for row in table.rename(
            columns={"pseudo-ensembles": "pseudo", "better pairs": "better", "r of right": "of_right"}
        ).itertuples()
    )
    paper = table.set_index("heads").loc[16]
    good = paper["low"] > HALF and paper["right_high"] < OVER_TRAINING
    return Found(each, verdict(good), int(table["models"].sum()))


@check("ours.count01_length")
def count01_length() -> Found:
    """B and C have heads that look at '=' alone: with them, a share of the attention says how long the row is. B has
    heads that look at '=' and at 0s and 1s besides."""
    table = pd.read_csv(SWEEPS / "many_count01.csv", keep_default_na=False)
    gains, above, n = [], dict[tuple[str, str], bool](), 0
    for heads, part in table.groupby("heads", sort=False):
        by = {name: part["accuracy"][part["algorithm"] == name] for name in "ABC"}
        for name in "BC":
            if len(by[name]) < 2:
                continue
            low, high = ttest_ind(by[name], by["A"], equal_var=False).confidence_interval()
            more = number(by[name].mean() - by["A"].mean(), 4)
            gains.append(f"{name} with {heads} heads {more} ({number(low, 4)} to {number(high, 4)})")
            above[name, str(heads)] = bool(low > 0)
        n += sum(map(len, by.values()))
    good = above["B", "16"] and above["B", "8"] and not any(yes for (name, _), yes in above.items() if name == "C")
    return Found("more than A: " + "; ".join(gains), verdict(good), n)


@check("ours.parity_length")
def parity_length() -> Found:
    table = pd.read_csv(SWEEPS / "many_parity.csv", keep_default_na=False)
    right = table[table["accuracy"] >= RIGHT]
    m, n = int((right["longer"] >= RIGHT).sum()), len(right)
    low, high = wilson(m / n, n)
    return Found(
        f"{n} of {len(table)} seeds learned it, {m} of them hold (95% interval {number(low)} to {number(high)}): right "
        f"on {number(right['longer'].min())} to {number(right['longer'].max())} of the longer strings",
        verdict(m == 0),
        len(table),
    )


@check("ours.histogram_programs")
def histogram_programs() -> Found:
    table = pd.read_csv(SWEEPS / "many_histogram.csv", keep_default_na=False)
    right, told = int(table["right"].sum()), how_many(table["by program"])
    read, same, mixed = right - told["no program"], int(table["agree"].sum()), int(table["mixed"].sum())
    alone = table[table["bounds"] == "relation"]
    n, tried = int(alone["right"].sum()), how_many(alone["by interventions"])["inventory-based"]
    low, high = wilson(tried / n, n)
    return Found(
        f"{read} of {right} right models have a program, {told['inventory']} an inventory; interventions say the same "
        f"of {same}, mixed of {mixed} and the opposite of {read - same - mixed}; of {n} models where bounds allow a "
        f"relation alone, {how_many(alone['by program'])['inventory']} are inventories by program, {tried} by "
        f"interventions (95% interval {number(low)} to {number(high)})",
        verdict(low > MANY and same > HALF * read),
        len(table),
    )


def how_many(told: pd.Series) -> Counter[str]:
    """How many models each word is said of, in cells such as "2 inventory, 1 no program"."""
    pairs = (one.split(" ", 1) for cell in told if cell for one in cell.split(", "))
    found: Counter[str] = Counter()
    for n, word in pairs:
        found[word] += int(n)
    return found


@check("ours.planted_programs")
def planted_programs() -> Found:
    table = pd.read_csv(SWEEPS / "many_planted.csv").query("grade == 'shape'").set_index("noise")
    each = "; ".join(f"{noise:g}: {row['wrong']} of {row['pairs']}" for noise, row in table.iterrows())
    return Found(f"wrong pairs by noise: {each}", verdict(table.loc[1e-6, "wrong"] == 0), int(table["pairs"].sum()))
