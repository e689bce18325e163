"""Theorem 1: one attention layer without an MLP computes any rank-d map of its last k tokens, given enough heads.

The logits of the layer at the last token are W_U (e(t_k) + sum_p W_OV^p a_p(t)), a_p(t) what head p attends to. Stack
the heads' outputs for all contexts as rows of A (contexts x P d). If A has full row rank, W_OV solves
A W_OV = W_E* - e(t_k), and the layer computes W_E* W_U exactly, for any target (W_E*, W_U).

- Rank of A: min(N^k, P min(d, r) + [d > r]), r = N + k - 2, for random embeddings, positions and keys. The print says
  P d, which is wrong for d > r, and for k = 1, where every head repeats e(t) (errata 4 and 5). For k = 1 no head is
  needed: e := W_E*.
- Numbers: with the least number of heads the condition number of A is 1e3..1e8; 25% more heads buy 2.5 digits
  (erratum 7). Keys are drawn anew, sharper and softer in turn, until it is small.
- epsilon > 0: heads for the N_epsilon likeliest contexts only. Interpolating those exactly, as printed, leaves wild
  logits on the others (gaps of several nats); here all contexts are fitted by prior-weighted ridge least squares with
  the same heads (erratum 8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from interp.constructions.base import ConstructedWeights
from interp.errors import InterpError
from interp.theory.attention_heads import attention_matrix, heads_needed
from interp.theory.closed_forms import checked_unembedding
from interp.theory.kl import kl_divergence
from interp.theory.optimum import rank_d_optimum
from interp.theory.table import ConditionalTable, as_table

CONDITION_LIMIT = 1e6
"""Keys are accepted below it: the divergence is then that of the target to 1e-14 in float64 (erratum 7)."""
SCORE_SPREADS = (8.0, 4.0, 16.0, 2.0)
"""Standard deviations of the scores that the draws of keys try in turn: too soft and heads agree, too sharp and they
copy single tokens; either way A is nearly singular."""
CONDITION_REFUSED = 5e9
"""An exact construction is refused above it: logits miss the target by up to 1.4e-16 of it, measured at d = 1. A
condition number of this size has five correct digits on every CPU; the error itself is rounding and must not decide."""
LOGIT_TOLERANCE = 1e-6
"""The logits of an exact construction are off by less, in nats (of the largest, where that is above one)."""
SPARE, SPARE_AT_ONE = 0.25, 2.0
"""Heads beyond the least number, as a share of it. At d = 1 a head adds a single column, and those of a quarter more
are nearly dependent: at N = 4, k = 2 a condition number above 5e9 for 19 of 20 seeds, with three times the least number
for 3."""


@dataclass(frozen=True, eq=False)
class Keys:
    """Random embeddings, positions and query-key matrices, and the attention matrix they make.

    matrix (contexts, heads x d); values its singular values, largest first.
    """

    W_E: Float[np.ndarray, "tokens d"]
    W_pos: Float[np.ndarray, "positions d"]
    W_QK: Float[np.ndarray, "heads d d"]
    matrix: Float[np.ndarray, "contexts features"]
    values: Float[np.ndarray, " rank"]
    draws: int

    @property
    def condition(self) -> float:
        """Largest over smallest of the singular values that full row rank needs; inf if there are too few."""
        rows = len(self.matrix)
        if len(self.values) < rows or self.values[rows - 1] == 0:
            return float("inf")
        return float(self.values[0] / self.values[rows - 1])


def theorem1_weights(
    table: Any,
    d_model: int | None = None,
    *,
    W_U: Any = None,
    W_E: Any = None,
    prior: Any = None,
    epsilon: float = 0.0,
    n_heads: int | None = None,
    spare: float | None = None,
    ridge: float = 1e-5,
    max_draws: int = 12,
    seed: int = 0,
) -> ConstructedWeights:
    """The attention layer that computes W_E @ W_U on the contexts of a table, or the table's rank-d optimum.

    Give d_model (the target is then `rank_d_optimum`) or W_U (d, outputs) and W_E (contexts, d).
    epsilon   0: exact. Otherwise heads for the least number of contexts of total probability 1 - epsilon, and W_OV by
              ridge regression over all contexts, `ridge` added to the squared singular values of sqrt(prior) A
    n_heads   by default the least number for full rank times 1 + spare; spare is 0.25 unless given, 2 at d = 1
    tensors   embed.W_E (N, d), blocks.0.attn.W_pos (k, d), W_Q (P, d, d) = W_QK, W_O (P, d, d) = W_OV,
              unembed.W_U (d, outputs); W_K and W_V are identities; scores are divided by sqrt d
    numbers   n_heads, kl, target_kl, logit_error (largest difference from the target's logits, nats), residual
              (||A W_OV - target|| / ||target||), condition, draws, float32_logit_error
    Raises InterpError if the heads are too few, or A so ill-conditioned that float64 misses the target.
    Source: Dana 2024, Theorem 1; errata 4, 5, 7 and 8.
    """
    checked = as_table(table, prior)
    W_U, W_E = target_map(checked, d_model, W_U, W_E, seed)
    contexts = np.array(checked.contexts)
    if checked.order == 1:
        return _without_heads(checked, W_U, W_E, contexts)
    if not 0 <= epsilon < 1:
        raise InterpError(f"epsilon is {epsilon}; a probability of at least 0 and below 1 is needed")
    d, covered = len(W_U), likeliest(checked.prior, epsilon)
    if spare is None:
        spare = SPARE_AT_ONE if d == 1 else SPARE
    least = heads_needed(checked.n_tokens, checked.order, d, n_contexts=covered, spare=0.0)
    heads = heads_needed(checked.n_tokens, checked.order, d, n_contexts=covered, spare=spare)
    heads = heads if n_heads is None else n_heads
    if heads < least and epsilon == 0:
        raise InterpError(f"{heads} heads are too few for {covered} contexts at d = {d}; at least {least} are needed")
    keys = draw_keys(
        contexts, checked.n_tokens, d, heads, max_draws, seed, stop=CONDITION_LIMIT if not epsilon else float("inf")
    )
    goal = W_E - keys.W_E[contexts[:, -1]]
    if epsilon == 0:
        refuse_condition(keys.condition, keys.draws, "give more heads (spare), a larger d, or another seed")
        W_OV = solve(keys.matrix, goal)
    else:
        W_OV = weighted_ridge(keys.matrix, goal, checked.prior, ridge)
    return _assemble(checked, W_U, W_E, keys, W_OV, epsilon, covered)


def likeliest(prior: Float[np.ndarray, " contexts"], epsilon: float) -> int:
    """N_epsilon: the least number of contexts of total probability at least 1 - epsilon."""
    if epsilon == 0:
        return len(prior)
    return min(int(np.searchsorted(np.cumsum(-np.sort(-prior)), 1 - epsilon - 1e-12)) + 1, len(prior))


def draw_keys(
    contexts: Int[np.ndarray, "contexts length"],
    n_tokens: int,
    d: int,
    n_heads: int,
    max_draws: int,
    seed: int,
    stop: float,
) -> Keys:
    """Gaussian embeddings, positions and W_QK; the first draw with a condition number below `stop`, else the best."""
    rng = np.random.default_rng(seed)
    best: Keys | None = None
    for draw in range(max_draws):
        spread = SCORE_SPREADS[draw % len(SCORE_SPREADS)]
        W_E, W_pos = rng.standard_normal((n_tokens, d)), rng.standard_normal((contexts.shape[1], d))
        # x W x' / sqrt d has standard deviation 2 sqrt d per unit of W's entries, x = e + pos having variance 2.
        W_QK = rng.standard_normal((n_heads, d, d)) * spread / (2 * np.sqrt(d))
        matrix = attention_matrix(contexts, W_E, W_pos, W_QK)
        keys = Keys(W_E, W_pos, W_QK, matrix, np.linalg.svd(matrix, compute_uv=False), draw + 1)
        if best is None or keys.condition < best.condition:
            best = keys
        if keys.condition <= stop:
            break
    if best is None:
        raise InterpError(f"max_draws is {max_draws}; at least 1 is needed")
    return best


def refuse_condition(condition: float, draws: int, remedy: str) -> None:
    """Raise InterpError for an attention matrix that is too nearly singular for an exact solution in float64."""
    if condition > CONDITION_REFUSED:
        raise InterpError(
            f"the attention matrix has condition number {condition:.1e} after {draws} draws of keys; float64 solves up "
            f"to {CONDITION_REFUSED:.0e}: {remedy}"
        )


def solve(
    matrix: Float[np.ndarray, "contexts features"], goal: Float[np.ndarray, "contexts d"]
) -> Float[np.ndarray, "features d"]:
    """The least W with A W = goal, its rounding error refined once."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    kept = values > 1e-13 * values[0]  # an exact construction has none near: its condition number is bounded
    left, inverse = left[:, kept].T, right[kept].T / values[kept]
    W = inverse @ (left @ goal)
    return W + inverse @ (left @ (goal - matrix @ W))


def weighted_ridge(
    matrix: Float[np.ndarray, "contexts features"],
    goal: Float[np.ndarray, "contexts d"],
    prior: Float[np.ndarray, " contexts"],
    ridge: float,
) -> Float[np.ndarray, "features d"]:
    """argmin sum_i prior_i ||A_i W - goal_i||^2 + ridge ||W||^2."""
    if ridge <= 0:
        raise InterpError(f"ridge is {ridge}; a positive number is needed")
    root = np.sqrt(prior)[:, None]
    left, values, right = np.linalg.svd(root * matrix, full_matrices=False)
    return right.T @ ((values / (values**2 + ridge))[:, None] * (left.T @ (root * goal)))


def target_map(
    table: ConditionalTable, d_model: int | None, W_U: Any, W_E: Any, seed: int
) -> tuple[Float[np.ndarray, "d outputs"], Float[np.ndarray, "contexts d"]]:
    if (d_model is None) == (W_U is None) or (W_U is None) != (W_E is None):
        raise InterpError("give d_model, or both W_U and W_E: the width of the rank-d optimum, or the target itself")
    if d_model is not None:
        found = rank_d_optimum(table, d_model, seed=seed)
        return found.W_U, found.W_E
    W_U, W_E = checked_unembedding(W_U, table.n_outputs), np.asarray(W_E, dtype=np.float64)
    if W_E.shape != (table.n_contexts, len(W_U)) or not np.isfinite(W_E).all():
        raise InterpError(
            f"W_E has shape {W_E.shape}; finite numbers of shape (contexts, d) = ({table.n_contexts}, {len(W_U)}) "
            "are needed"
        )
    return W_U, W_E


def _without_heads(
    table: ConditionalTable, W_U: np.ndarray, W_E: np.ndarray, contexts: Int[np.ndarray, "contexts 1"]
) -> ConstructedWeights:
    """k = 1: the embedding is the answer; one head that adds nothing, because a transformer has at least one."""
    d = len(W_U)
    embedding = np.zeros((table.n_tokens, d))
    embedding[contexts[:, 0]] = W_E
    idle = np.zeros((1, d, d))
    matrix = attention_matrix(contexts, embedding, np.zeros((1, d)), idle)
    keys = Keys(embedding, np.zeros((1, d)), idle, matrix, np.zeros(0), 0)
    return _assemble(table, W_U, W_E, keys, np.zeros((d, d)), 0.0, table.n_contexts)


def _assemble(
    table: ConditionalTable,
    W_U: np.ndarray,
    W_E: np.ndarray,
    keys: Keys,
    W_OV: np.ndarray,
    epsilon: float,
    covered: int,
) -> ConstructedWeights:
    """Tensors by name, and how far they are from the target over the whole table."""
    d, last = len(W_U), np.array(table.contexts)[:, -1]
    target = W_E @ W_U
    goal = W_E - keys.W_E[last]
    embedded = keys.matrix @ W_OV
    logits = (keys.W_E[last] + embedded) @ W_U
    error = float(np.abs(logits - target).max())
    if epsilon == 0 and error > LOGIT_TOLERANCE * max(1.0, float(np.abs(target).max())):
        raise InterpError(
            f"the attention matrix has condition number {keys.condition:.1e} after {keys.draws} draws of keys, so the "
            f"logits miss the target by {error:.1e}; give more heads (spare), a larger d, or another seed"
        )
    scale = float(np.linalg.norm(goal))
    numbers = {
        "n_heads": float(len(keys.W_QK)),
        "kl": kl_divergence(table, logits),
        "target_kl": kl_divergence(table, target),
        "logit_error": error,
        "residual": float(np.linalg.norm(embedded - goal)) / scale if scale else 0.0,
        "condition": keys.condition if table.order > 1 else 1.0,
        "draws": float(keys.draws),
        "float32_logit_error": _float32_error(keys, W_OV, W_U, last, target, np.array(table.contexts)),
    }
    tensors = {
        "embed.W_E": keys.W_E,
        "blocks.0.attn.W_pos": keys.W_pos,
        "blocks.0.attn.W_Q": keys.W_QK,
        "blocks.0.attn.W_O": W_OV.reshape(-1, d, d),
        "unembed.W_U": W_U,
    }
    if epsilon == 0:
        claim = f"the logits after each of the {table.n_contexts} contexts are those of the given rank-{d} map"
    else:
        claim = f"with heads for {covered} of {table.n_contexts} contexts, near the given rank-{d} map in divergence"
    ordered = np.sort(logits, axis=1)
    return ConstructedWeights(
        tensors={name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in tensors.items()},
        directions={},
        claim=claim,
        margin=float((ordered[:, -1] - ordered[:, -2]).min()),
        notes=(
            "Dana 2024, Theorem 1, with the number of heads of erratum 5 and the solution of erratum 7",
            "k = 1: the embedding is the answer and the one head is idle (erratum 4)"
            if table.order == 1
            else f"condition number {keys.condition:.1e}; in float32 logits move by up to "
            f"{numbers['float32_logit_error']:.1e}",
        ),
        numbers=numbers,
    )


def _float32_error(
    keys: Keys, W_OV: np.ndarray, W_U: np.ndarray, last: np.ndarray, target: np.ndarray, contexts: np.ndarray
) -> float:
    """Largest difference from the target's logits when weights and arithmetic are float32."""
    W_E, W_pos, W_QK, W_OV, W_U = (array.astype(np.float32) for array in (keys.W_E, keys.W_pos, keys.W_QK, W_OV, W_U))
    logits = (W_E[last] + attention_matrix(contexts, W_E, W_pos, W_QK) @ W_OV) @ W_U
    return float(np.abs(logits - target).max())
