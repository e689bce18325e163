"""Tables drawn from a seed: Dirichlet rows, look-up with noise, and rank d plus noise."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from interp.errors import InterpError, one_of
from interp.families.memorization.theory.stationarity import stationary_prior
from interp.families.memorization.theory.table import ConditionalTable, all_contexts, as_table

Seed = int | np.random.Generator
PRIORS = ("uniform", "zipf", "stationary")


def dirichlet_table(
    n_tokens: int,
    n_outputs: int,
    concentration: float = 1.0,
    *,
    order: int = 1,
    prior: str | Sequence[float] | np.ndarray = "uniform",
    seed: Seed = 0,
) -> ConditionalTable:
    """Draw each row from a symmetric Dirichlet(concentration); n_tokens ** order contexts (a k-gram table).

    Small concentrations give low entropy. Below about 0.01, entries underflow to exact zeros, which are kept.
    """
    _positive("concentration", concentration)
    n = _n_contexts(n_tokens, n_outputs, order)
    rows = _dirichlet_rows(np.random.default_rng(seed), n, n_outputs, concentration)
    return _table(rows, n_tokens, order, prior, f"dirichlet({concentration:g})")


def lookup_table(
    n_tokens: int,
    n_outputs: int,
    noise: float = 0.0,
    *,
    order: int = 1,
    targets: Sequence[int] | Int[np.ndarray, " contexts"] | None = None,
    noise_concentration: float | None = None,
    prior: str | Sequence[float] | np.ndarray = "uniform",
    seed: Seed = 0,
) -> ConditionalTable:
    """Give each context one right output g(context) with probability 1 - noise, and spread the noise over the others.

    targets               g, an output per context; by default, uniformly random
    noise_concentration   the noise is Dirichlet-distributed over the wrong outputs; by default, it is uniform
    Source: Dana 2024, section 4.2.
    """
    if not 0 <= noise < 1:
        raise InterpError(f"noise is {noise}; the probability of a wrong output must be in [0, 1)")
    n = _n_contexts(n_tokens, n_outputs, order)
    rng = np.random.default_rng(seed)
    chosen = rng.integers(n_outputs, size=n) if targets is None else np.asarray(targets)
    if chosen.shape != (n,) or chosen.min() < 0 or chosen.max() >= n_outputs:
        raise InterpError(f"targets must be {n} outputs, each from 0 to {n_outputs - 1}")
    if noise_concentration is None:
        wrong = np.full((n, n_outputs - 1), 1.0 / (n_outputs - 1))
    else:
        _positive("noise_concentration", noise_concentration)
        wrong = _dirichlet_rows(rng, n, n_outputs - 1, noise_concentration)
    rows = np.empty((n, n_outputs))
    right = np.arange(n_outputs) == chosen[:, None]
    rows[right] = 1 - noise
    rows[~right] = noise * wrong.reshape(-1)
    return _table(rows, n_tokens, order, prior, f"lookup({noise:g})")


def low_rank_table(
    n_tokens: int,
    n_outputs: int,
    rank: int,
    noise: float = 0.0,
    *,
    order: int = 1,
    prior: str | Sequence[float] | np.ndarray = "uniform",
    seed: Seed = 0,
) -> ConditionalTable:
    """softmax(A B + noise * G), A (contexts, rank), B (rank, outputs) and G all standard normal."""
    if rank < 0 or noise < 0:
        raise InterpError(f"rank is {rank} and noise is {noise}; neither can be negative")
    n = _n_contexts(n_tokens, n_outputs, order)
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, n_outputs))
    logits += noise * rng.standard_normal((n, n_outputs))
    rows = np.exp(logits - logits.max(axis=1, keepdims=True))
    rows /= rows.sum(axis=1, keepdims=True)
    return _table(rows, n_tokens, order, prior, f"rank{rank}+{noise:g}")


def named_prior(name: str, n_contexts: int) -> Float[np.ndarray, " contexts"]:
    """'uniform', or 'zipf': the i-th context has probability proportional to 1 / i."""
    if name not in PRIORS[:2]:
        raise InterpError(one_of("prior", name, PRIORS))
    weights = np.ones(n_contexts) if name == "uniform" else 1.0 / np.arange(1, n_contexts + 1)
    return weights / weights.sum()


def _table(rows: np.ndarray, n_tokens: int, order: int, prior: Any, name: str) -> ConditionalTable:
    contexts = all_contexts(n_tokens, order)
    if isinstance(prior, str) and prior == "stationary":
        prior = stationary_prior(rows, n_tokens, order)
    elif isinstance(prior, str):
        prior = named_prior(prior, len(rows))
    return as_table(rows, prior, contexts, name)


def _dirichlet_rows(rng: np.random.Generator, n: int, m: int, concentration: float) -> np.ndarray:
    """Draw Dirichlet rows through log-gamma draws: the direct sampler returns NaN rows if every draw underflows."""
    # Gamma(a) has the law of Gamma(a + 1) U^(1/a), whose logarithm never underflows.
    logs = np.log(rng.standard_gamma(concentration + 1, size=(n, m))) + np.log(rng.random((n, m))) / concentration
    rows = np.exp(logs - logs.max(axis=1, keepdims=True))
    return rows / rows.sum(axis=1, keepdims=True)


def _n_contexts(n_tokens: int, n_outputs: int, order: int) -> int:
    if n_tokens < 1 or n_outputs < 2 or order < 1:
        raise InterpError(
            f"a table needs at least 1 token, 2 outputs and order 1, not {n_tokens} tokens, {n_outputs} outputs, "
            f"order {order}"
        )
    return n_tokens**order


def _positive(what: str, value: float) -> None:
    if not (value > 0 and np.isfinite(value)):
        raise InterpError(f"{what} is {value}; a positive number is needed")
