"""What do the closed forms, the rank-d optimum and Theorem 1's weights cost?

    python analyses/benchmarks/memorization.py [--quick | --smoke]

First, seconds for each step on tables up to 4000 contexts x 200 outputs at d = 8. Then the joint search against a
plain one from the same start, interleaved: A is L-BFGS in variables whitened by the blocks of the Hessian (ours), B
the same L-BFGS in plain balanced variables, to the same tolerance. Then Theorem 1 up to 1024 contexts. One thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from interp.families.memorization.constructions.theorem1 import theorem1_weights
from interp.families.memorization.theory.drawn_tables import dirichlet_table, lookup_table, low_rank_table
from interp.families.memorization.theory.joint import balance, descend
from interp.families.memorization.theory.kl import kl_divergence, log_softmax
from interp.families.memorization.theory.optimum import rank_d_optimum
from interp.families.memorization.theory.rank_d import least_squares, newton_refinement, weighted_least_squares
from interp.families.memorization.theory.table import ConditionalTable

T = TypeVar("T")


def timed(work: Callable[[], T]) -> tuple[float, T]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def tables(n: int, m: int) -> list[ConditionalTable]:
    return [
        dirichlet_table(n, m, 1.0, seed=0),
        dirichlet_table(n, m, 0.1, seed=0),
        low_rank_table(n, m, 8, 0.3, seed=0),
        lookup_table(n, m, 0.05, seed=0),
    ]


def costs(table: ConditionalTable, d: int) -> dict[str, object]:
    """Seconds and divergence of every step on one table."""
    ls_time, ls = timed(lambda: least_squares(table, d))
    wls_time, wls = timed(lambda: weighted_least_squares(table, W_U=ls.W_U))
    newton_time, newton = timed(lambda: newton_refinement(table, ls.W_U))
    best_time, best = timed(lambda: rank_d_optimum(table, d))
    kl_time, _ = timed(lambda: kl_divergence(table, ls.logits))
    n, m = table.conditional.shape
    return {
        **{"table": table.name, "N": n, "M": m, "d": d},
        **{"s ls": ls_time, "s wls": wls_time, "s Newton": newton_time, "s optimum": best_time, "s kl": kl_time},
        **{"starts": len(best.restarts), "kl ls": ls.kl, "kl wls": wls.kl, "kl Newton": newton.kl, "kl best": best.kl},
    }


def plain_search(table: ConditionalTable, W_U: np.ndarray, W_E: np.ndarray) -> tuple[int, float]:
    """B: L-BFGS on W_U and sqrt(prior) W_E as they are. Iterations and divergence."""
    d, m = W_U.shape
    root = np.sqrt(table.prior)[:, None]
    W_U, W_E = balance(W_U, W_E, table.prior)

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        W_U, scaled = flat[: d * m].reshape(d, m), flat[d * m :].reshape(-1, d)
        log_q = log_softmax(scaled / root @ W_U)
        value = -float(table.prior @ (table.conditional * log_q).sum(axis=1))
        residual = root * (np.exp(log_q) - table.conditional)
        return value, np.concatenate([(scaled.T @ residual).ravel(), (residual @ W_U.T).ravel()])

    options = {"maxiter": 5000, "maxfun": 10_000, "maxcor": 20, "ftol": 1e-14, "gtol": 1e-10}
    start = np.concatenate([W_U.ravel(), (root * W_E).ravel()])
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
    return int(found.nit), kl_divergence(table, found.x[d * m :].reshape(-1, d) / root @ found.x[: d * m].reshape(d, m))


def search_ratio(table: ConditionalTable, d: int, rounds: int) -> dict[str, object]:
    """Seconds, iterations and divergence of A and B from the same start, interleaved."""
    start = newton_refinement(table, least_squares(table, d).W_U, max_steps=5)
    ratios = []
    for _ in range(rounds):
        a_time, (W_U, W_E, iterations) = timed(lambda: descend(table, start.W_U, start.W_E, 5000))
        b_time, b = timed(lambda: plain_search(table, start.W_U, start.W_E))
        ratios.append(b_time / a_time)
    return {
        **{"table": table.name, "N": table.n_contexts, "M": table.n_outputs, "d": d},
        **{"A s": a_time, "A iterations": iterations, "A kl": kl_divergence(table, W_E @ W_U)},
        **{"B s": b_time, "B iterations": b[0], "B kl": b[1], "B/A": float(np.median(ratios))},
    }


def theorem1_costs(n: int, order: int, d: int) -> dict[str, object]:
    """Seconds to draw keys and solve W_OV, given the target."""
    table = dirichlet_table(n, 20, order=order, seed=0)
    target = least_squares(table, d)
    seconds, weights = timed(lambda: theorem1_weights(table, W_U=target.W_U, W_E=target.W_E))
    names = ("n_heads", "draws", "condition", "logit_error", "float32_logit_error")
    return {
        "N": n,
        "k": order,
        "N^k": n**order,
        "d": d,
        "s": seconds,
        **{name: weights.numbers[name] for name in names},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="tables of 1000 contexts, 256 sequences")
    size.add_argument("--smoke", action="store_true", help="small tables only: does it run?")
    given = parser.parse_args()
    n, m = (30, 12) if given.smoke else (1000, 200) if given.quick else (4000, 200)
    sizes = [(4, 2, 3), (8, 2, 4), (16, 2, 8), (32, 2, 4), (32, 2, 16), (10, 3, 8)]
    pd.set_option("display.width", 200, "display.max_columns", 20, "display.float_format", "{:.3g}".format)
    with threadpool_limits(1):
        print(f"Costs, {n} x {m}, d = 8")
        print(pd.DataFrame([costs(table, 8) for table in tables(n, m)]).to_string(index=False), flush=True)
        print("\nJoint search: A whitened L-BFGS, B plain L-BFGS")
        rounds = 1 if given.smoke or not given.quick else 3
        print(
            pd.DataFrame([search_ratio(table, 8, rounds) for table in tables(n, m)]).to_string(index=False), flush=True
        )
        print("\nTheorem 1")
        chosen = sizes[:2] if given.smoke else sizes[:3] if given.quick else sizes
        print(pd.DataFrame([theorem1_costs(*one) for one in chosen]).to_string(index=False))


if __name__ == "__main__":
    main()
