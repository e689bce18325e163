"""What this repository claims itself, of many seeds (docs/many_seeds.md)."""

from __future__ import annotations

from claim_checks.base import Found, check, number, verdict
from shared.clock_or_pizza import clock_or_pizza

import interp

HALF = 0.5


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
