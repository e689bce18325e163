"""Dana 2024 (draft of June 14): memorization in attention-only transformers."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
from claim_checks.base import Found, check, kept, study, verdict
from shared.corollary1 import corollary1_instance, corollary1_ls, corollary1_wls
from shared.lookup_bounds import theorem3_bound, theorem3_least_width

from interp.errors import InterpError
from interp.families.memorization.constructions.corollary2 import corollary2 as build_corollary2
from interp.families.memorization.constructions.theorem1 import draw_keys
from interp.families.memorization.constructions.theorem1 import theorem1 as build_theorem1
from interp.families.memorization.theory.attention_heads import attention_rank, heads_needed
from interp.families.memorization.theory.drawn_tables import dirichlet_table, lookup_table
from interp.families.memorization.theory.kl import kl_divergence, kl_rows
from interp.families.memorization.theory.kl_bounds import lemma1, theorem2_ls, theorem2_wls
from interp.families.memorization.theory.lookup import lookup_construction
from interp.families.memorization.theory.optimum import rank_d_optimum
from interp.families.memorization.theory.rank_d import least_squares, weighted_least_squares
from interp.families.memorization.theory.spectrum import singular_values, zero_divergence_rank
from interp.families.memorization.theory.stationarity import position_priors
from interp.families.memorization.theory.table import ConditionalTable, as_table

INSTANCES = 100


def _tables(seed: int) -> list[ConditionalTable]:
    """Random conditional tables of 2 to 8 contexts, of several concentrations, bounded away from zero."""
    rng, tables = np.random.default_rng(seed), []
    for _ in range(INSTANCES):
        n, m = int(rng.integers(2, 9)), int(rng.integers(3, 9))
        table = dirichlet_table(n, m, float(rng.choice([0.3, 1.0, 5.0, 50.0])), seed=rng)
        rows = np.maximum(table.conditional, 1e-9)
        tables.append(as_table(rows / rows.sum(axis=1, keepdims=True), rng.dirichlet(np.ones(n))))
    return tables


# ---------------------------------------------------------------- what attention can represent (section 3)


@check("memorization.proposition1")
def proposition1() -> Found:
    """A sticky chain that starts uniform: the least d^{k+1} of rank 1, and a d^S below it."""
    chain = np.array(
        [[0.3, 0.05, 0.05, 0.6], [0.05, 0.3, 0.05, 0.6], [0.05, 0.05, 0.3, 0.6], [0.004, 0.006, 0.01, 0.98]]
    )
    start = as_table(chain)
    mean = as_table(chain, position_priors(start, 50).mean(axis=0))
    least = rank_d_optimum(start, 1).kl
    reached = kl_divergence(mean, rank_d_optimum(mean, 1).logits)
    return Found(f"least d^(k+1) {least:.4f}, but d^S {reached:.4f} at S = 50", verdict(reached >= least), 1)


@check("memorization.theorem1")
def theorem1() -> Found:
    """Exact weights for k = 2 at the corrected number of heads: the divergence against that of the target."""
    table = dirichlet_table(8, 20, order=2, seed=0)
    target, gaps = least_squares(table, 4), []
    for seed in range(3):
        numbers = build_theorem1(
            table, W_U=target.W_U, W_E=target.W_E, n_heads=heads_needed(8, 2, 4), max_draws=12, draw_seed=seed
        ).weights.numbers
        gaps.append(abs(numbers["kl"] - numbers["target_kl"]))
    return Found(f"KL differs from the target's by at most {max(gaps):.0e} nats", verdict(max(gaps) < 1e-9, True), 3)


@check("memorization.theorem1_k1")
def theorem1_k1() -> Found:
    """One key alone: the rank of the attention matrix does not grow with the number of heads."""
    contexts = np.array(dirichlet_table(6, 2, order=1).contexts)
    ranks = [int((draw_keys(contexts, 6, 2, heads, 4, 0, stop=0.0).values > 1e-12).sum()) for heads in (1, 3, 9)]
    return Found(f"rank {', '.join(map(str, ranks))} of 6 with 1, 3 and 9 heads, d = 2", verdict(ranks[1] == 6), 3)


@check("memorization.lemma3")
def lemma3() -> Found:
    cases = ((4, 2, 6, 3), (3, 3, 5, 6), (3, 3, 7, 4), (4, 2, 3, 6))
    printed = corrected = 0
    for n, k, d, heads in cases:
        contexts = np.array(dirichlet_table(n, 2, order=k).contexts)
        draws = (draw_keys(contexts, n, d, heads, 4, seed, stop=0.0).values for seed in range(4))
        rank = max(int((values > 1e-13 * values[0]).sum()) for values in draws)
        printed += rank == min(n**k, heads * d)
        corrected += rank == attention_rank(n, k, d, heads)
    return Found(
        f"rank as printed in {printed} of {len(cases)} cases, as corrected in {corrected}",
        verdict(corrected == len(cases), printed < len(cases)),
        len(cases),
    )


@check("memorization.theorem1_epsilon", cheap=False)
def theorem1_epsilon() -> Found:
    table = study("memorization_theorem1")["epsilon"]
    printed, ridge = table["KL above target, printed"], table["KL above target, ridge"]
    return Found(
        f"printed construction {printed.min():.1f} to {printed.max():.1f} nats above the target; weighted ridge "
        f"{ridge.min():.3f} to {ridge.max():.3f}",
        verdict(printed.max() < 1),
        len(table),
    )


@check("memorization.corollary2_mass")
def corollary2_mass() -> Found:
    """Mass outside the window of masks of strength lambda: e^(-lambda / sqrt d), not e^(-lambda)."""
    d, strengths, bound = 14, (40.0, 80.0, 160.0), 1.0
    outside = [6 * np.exp(-s / np.sqrt(d) + 2 * bound) for s in strengths]
    claimed = [np.exp(-s) for s in strengths]
    return Found(
        f"{outside[0]:.0e} to {outside[2]:.0e}, e^-lambda {claimed[0]:.0e} to {claimed[2]:.0e} at lambda 40 to 160",
        verdict(outside[0] <= claimed[0]),
        3,
    )


@check("memorization.corollary2")
def corollary2() -> Found:
    numbers = build_corollary2(dirichlet_table(3, 3, order=2, seed=1), 4, 2).weights.numbers
    return Found(
        f"repaired with {numbers['n_heads']:.0f} heads: largest logit error {numbers['logit_error']:.0e}",
        verdict(numbers["logit_error"] < 1e-8, True),
        1,
    )


# ---------------------------------------------------------------- the bigram problem (section 4)


@check("memorization.kl_identity")
def kl_identity() -> Found:
    """d_KL = E log E exp(fbar)."""
    rng, worst = np.random.default_rng(5), 0.0
    for table in _tables(5):
        p = table.conditional
        f = rng.standard_normal(p.shape)
        residual = f - np.log(p)
        fbar = residual - (p * residual).sum(1, keepdims=True)
        right = float(table.prior @ np.log((p * np.exp(fbar)).sum(1)))
        worst = max(worst, abs(right / kl_divergence(table, f) - 1))
    return Found(f"largest relative difference {worst:.0e}", verdict(worst < 1e-9), INSTANCES)


@check("memorization.zero_rank")
def zero_rank() -> Found:
    """Zero divergence needs the rank of the log table with any centering that does not depend on the input."""
    table = dirichlet_table(6, 5, 1.0, seed=0)
    ranks = {name: zero_divergence_rank(table, name) for name in ("uniform", "pi")}
    kl = least_squares(table, ranks["uniform"]).kl
    return Found(
        f"rank {ranks['uniform']} centered uniformly ({kl:.0e} nats left), {ranks['pi']} by the conditional",
        verdict(ranks["uniform"] == ranks["pi"], otherwise="holds corrected"),
        1,
    )


@cache
def _lemma1() -> dict[str, int]:
    rng, violated = np.random.default_rng(0), {"l2": 0, "text": 0, "pi": 0}
    for table in _tables(0):
        noise = rng.standard_normal(table.conditional.shape) * 10 ** rng.uniform(-2, 0.7, (table.n_contexts, 1))
        for norm in violated:
            violated[norm] += not lemma1(table, np.log(table.conditional) + noise, norm=norm).holds
    return violated


@check("memorization.lemma1")
def lemma_1() -> Found:
    return Found(
        f"{_lemma1()['l2']} violations as printed, {_lemma1()['pi']} with the weighted norm",
        verdict(_lemma1()["l2"] == 0),
        INSTANCES,
    )


@check("memorization.lemma2")
def lemma2() -> Found:
    """The weighted least squares minimizes the variance: 20 random perturbations of each table's embeddings."""
    rng, better = np.random.default_rng(3), 0
    for table in _tables(3)[:30]:
        p = table.conditional
        found = weighted_least_squares(table, 1)

        def variance(logits: np.ndarray, p: np.ndarray = p) -> np.ndarray:
            gap = logits - np.log(p)
            return (p * gap**2).sum(1) - (p * gap).sum(1) ** 2

        least = variance(found.W_E @ found.W_U)
        for _ in range(20):
            moved = variance((found.W_E + 0.1 * rng.standard_normal(found.W_E.shape)) @ found.W_U)
            better += int((moved < least - 1e-9).sum())
    return Found(f"{better} of 600 perturbations have a smaller variance", verdict(better == 0, True), 600)


@cache
def _theorem2() -> dict[str, int]:
    rng, found = np.random.default_rng(1), {"ls": 0, "wls": 0, "rows": 0, "worse": 0}
    for table in _tables(1):
        p, d = table.conditional, int(rng.integers(1, min(table.conditional.shape)))
        sigma = float(singular_values(table)[d])
        ls, wls = least_squares(table, d), weighted_least_squares(table, d)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # bounds that overflow are inf
            found["ls"] += int((ls.kl_by_row > theorem2_ls(p, sigma) * (1 + 1e-9) + 1e-12).sum())
            found["wls"] += int((wls.kl_by_row > theorem2_wls(p, sigma) * (1 + 1e-9) + 1e-12).sum())
        found["rows"] += len(p)
        found["worse"] += int((wls.kl_by_row > ls.kl_by_row + 1e-9).sum())
    return found


@check("memorization.theorem2_ls")
def theorem_2_ls() -> Found:
    return Found(
        f"{_theorem2()['ls']} of {_theorem2()['rows']} rows above the bound",
        verdict(_theorem2()["ls"] == 0),
        _theorem2()["rows"],
    )


@check("memorization.theorem2_wls")
def theorem_2_wls() -> Found:
    return Found(
        f"{_theorem2()['wls']} of {_theorem2()['rows']} rows above the bound",
        verdict(_theorem2()["wls"] == 0),
        _theorem2()["rows"],
    )


@check("memorization.wls_better")
def wls_better() -> Found:
    worse, rows = _theorem2()["worse"], _theorem2()["rows"]
    return Found(f"worse in {worse} of {rows} rows", verdict(worse == 0), rows)


@cache
def _corollary1() -> dict[str, float]:
    rng, found = (
        np.random.default_rng(2),
        {"wls": 0.0, "wls printed": 0.0, "ls": 0.0, "ls printed": 0.0, "worse": 0, "rows": 0},
    )
    for _ in range(20):
        m = int(rng.integers(3, 6))
        try:
            p = corollary1_instance(m + int(rng.integers(0, 3)), m, rng)
        except InterpError:
            continue  # now and then none is found
        kept = rng.choice(m, size=int(rng.integers(1, m - 1)), replace=False).tolist()
        truth = {}
        for name, form in (("wls", corollary1_wls), ("ls", corollary1_ls)):
            exact = form(p, kept)
            truth[name] = kl_rows(p, exact.logits)
            for word, shown in (("", exact), (" printed", form(p, kept, statement="printed"))):
                found[name + word] = max(found[name + word], float(np.abs(shown.kl_by_row - truth[name]).max()))
        found["worse"] += int((truth["wls"] > truth["ls"] + 1e-9).sum())
        found["rows"] += len(p)
    return found


@check("memorization.corollary1_wls")
def corollary_1_wls() -> Found:
    found = _corollary1()
    return Found(
        f"printed off by up to {found['wls printed']:.2f} nats, corrected by {found['wls']:.0e}",
        verdict(found["wls printed"] < 1e-9, otherwise="holds corrected" if found["wls"] < 1e-9 else "fails"),
        int(found["rows"]),
    )


@check("memorization.corollary1_ls")
def corollary_1_ls() -> Found:
    found = _corollary1()
    return Found(
        f"printed off by up to {found['ls printed']:.2f} nats, corrected by {found['ls']:.0e}",
        verdict(found["ls printed"] < 1e-9, otherwise="holds corrected" if found["ls"] < 1e-9 else "fails"),
        int(found["rows"]),
    )


@check("memorization.corollary1_better")
def corollary_1_better() -> Found:
    found = _corollary1()
    return Found(
        f"f_wls worse in {found['worse']:.0f} of {found['rows']:.0f} rows",
        verdict(found["worse"] == 0),
        int(found["rows"]),
    )


# ---------------------------------------------------------------- look-up tables (section 4.2)


@check("memorization.zero_entropy")
def zero_entropy() -> Found:
    """Entropy 0, two dimensions, 12 outputs on a circle: the loss falls to 0 as lambda grows."""
    angles = 2 * np.pi * np.arange(12) / 12
    W = np.stack([np.cos(angles), np.sin(angles)])
    losses = [float(np.mean(np.log(np.exp(s * (W.T @ W - 1)).sum(1)))) for s in (1.0, 10.0, 100.0, 300.0)]
    return Found(
        f"{losses[0]:.2f}, {losses[1]:.2f}, {losses[2]:.0e}, {losses[3]:.0e} nats at lambda 1, 10, 100, 300",
        verdict(losses == sorted(losses, reverse=True) and losses[-1] < 1e-12),
        12,
    )


@check("memorization.theorem3_bound")
def theorem3() -> Found:
    """The printed bound has the logarithm of a negative number; with +H it holds."""
    table = lookup_table(20, 12, 0.05, noise_concentration=1.0, seed=0)
    found = lookup_construction(table, 64, scale="entropy")
    printed = theorem3_bound(table.conditional, found.targets, min(found.deviation, 0.49), statement="printed")
    corrected = theorem3_bound(table.conditional, found.targets, min(found.deviation, 0.49))
    violated = int((found.kl_by_row > corrected + 1e-9).sum())
    return Found(
        f"printed: {int(np.isnan(printed).sum())} of 20 rows have no value; corrected: {violated} violations",
        verdict(not np.isnan(printed).any(), otherwise="holds corrected" if not violated else "fails"),
        20,
    )


@check("memorization.theorem3_lambda")
def theorem3_lambda() -> Found:
    """-H = log sum exp(...), whose right side is at least 0: no solution unless H = 0."""
    table = lookup_table(20, 12, 0.05, noise_concentration=1.0, seed=0)
    entropy = -(table.conditional * np.log(table.conditional)).sum(1)
    return Found(
        f"left side {-entropy.max():.2f} to {-entropy.min():.2f}, right side in (0, {np.log(12):.2f}]",
        verdict(bool((entropy <= 0).all()), otherwise="holds corrected"),
        20,
    )


@check("memorization.theorem3_domain")
def theorem3_domain() -> Found:
    least = theorem3_least_width(50)
    return Found(
        f"50 outputs: valid from d = {least}, where d = 49 already gives zero divergence", verdict(least < 49), 1
    )


# ---------------------------------------------------------------- experiments


@check("memorization.mlp_equal", cheap=False)
def mlp_equal() -> Found:
    table = study("memorization_training")["training"]
    best = table.pivot_table(index=["d", "size"], columns="model", values="mean").dropna()
    wins = int((best["attention"] < best["one head + MLP"]).sum())
    return Found(
        f"attention better in {wins} of {len(best)} sizes",
        verdict(0 < wins < len(best), otherwise="not reproduced"),
        10,
    )


@check("memorization.capacity")
def capacity() -> Found:
    table = kept("memorization_capacity")
    gap = table["on the sample"] - table["published"]
    return Found(
        f"ours minus published: mean {gap.mean():.3f}, {gap.min():.3f} to {gap.max():.3f}; {int(table['seeds'].min())} "
        f"seeds of each of {len(table)} cells",
        verdict(gap.abs().max() < 0.08),
        len(table),
        f"std of the difference over cells {gap.std():.3f}, of our seeds {table['std'].mean():.3f} on average",
    )
