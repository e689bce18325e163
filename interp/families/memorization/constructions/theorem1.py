"""Theorem 1: one attention layer without an MLP computes any rank-d map of its last k tokens, given enough heads.

The logits of the layer at the last token are W_U (e(t_k) + sum_p W_OV^p a_p(t)), where a_p(t) is the average that head
p attends to. Let A (contexts x P d) be the matrix with one row of these averages per context. If A has full row rank,
there is a W_OV with A W_OV = W_E* - e(t_k), and the layer computes W_E* W_U exactly, for any target (W_E*, W_U).

- Rank of A: min(N^k, P min(d, r) + [d > r]), r = N + k - 2, for random embeddings, positions and keys. The paper has
  P d, which is wrong for d > r, and for k = 1, where every head repeats e(t) (errata 4 and 5). For k = 1 no head is
  needed: e := W_E*.
- Precision: with the least number of heads, the condition number of A is between 1e3 and 1e8; 25% more heads gain 2.5
  digits (erratum 7). Keys are redrawn, sharper and softer in turn, until the condition number is small.
- epsilon > 0: heads for the N_epsilon likeliest contexts only. Interpolating these exactly, as the paper does, gives
  wild logits on the others (gaps of several nats). Here all contexts are fitted by prior-weighted ridge least squares
  with the same heads (erratum 8).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import InterpError
from interp.families.memorization.constructions.models import constructed, target_hash
from interp.families.memorization.tasks.tables import table_task
from interp.families.memorization.theory.attention_heads import attention_matrix, heads_needed
from interp.families.memorization.theory.kl import checked_unembedding, kl_divergence
from interp.families.memorization.theory.optimum import rank_d_optimum
from interp.families.memorization.theory.table import ConditionalTable, as_table
from interp.models.constructions import Construct, ConstructedWeights, register_construction
from interp.models.spec import Scalar

CONDITION_LIMIT = 1e6
"""Keys with a smaller condition number are accepted: the divergence is then the target's to 1e-14 (erratum 7)."""
SCORE_SPREADS = (8.0, 4.0, 16.0, 2.0)
"""Standard deviations of the scores, tried in turn. If they are too small, heads agree; if too large, heads copy single
tokens. In both cases A is nearly singular."""
CONDITION_REFUSED = 5e9
"""Exact constructions with a larger condition number are refused. Logits are off by up to 1.4e-16 times it (measured at
d = 1). It has five correct digits on every CPU; the error itself is rounding, so it would be a poor criterion."""
LOGIT_TOLERANCE = 1e-6
"""Largest error of an exact construction's logits, in nats (relative to the largest logit if that is above 1)."""
SPARE, SPARE_AT_ONE = 0.25, 2.0
"""Extra heads, as a share of the least number, in general and at d = 1. There a head adds only one column: at N = 4,
k = 2, the condition number is above 5e9 for 19 of 20 seeds with 25% more heads, and for 3 with 200% more."""

Drawn = TypeVar("Drawn")


@dataclass(frozen=True, eq=False)
class Keys:
    """Random embeddings, positions and query-key matrices, and their attention matrix A.

    matrix: A, of shape (contexts, heads x d), or the part of it that is solved for. values: its singular values,
    largest first. mask: the score by which a position leads over those that no query reads (0: all are read).
    """

    W_E: Float[np.ndarray, "tokens d"]
    W_pos: Float[np.ndarray, "positions d"]
    W_QK: Float[np.ndarray, "heads d d"]
    matrix: Float[np.ndarray, "contexts features"]
    values: Float[np.ndarray, " rank"]
    draws: int
    mask: float = 0.0

    @property
    def condition(self) -> float:
        """The condition number: largest over smallest singular value, inf without full row rank."""
        rows = len(self.matrix)
        if len(self.values) < rows or self.values[rows - 1] == 0:
            return float("inf")
        return float(self.values[0] / self.values[rows - 1])


@register_construction("memorization/theorem1")
def theorem1(
    table: Any,
    d_model: int | None = None,
    W_U: Any = None,
    W_E: Any = None,
    prior: Any = None,
    epsilon: float = 0.0,
    n_heads: int | None = None,
    spare: float | None = None,
    ridge: float = 1e-5,
    max_draws: int = 12,
    draw_seed: int = 0,
    target_sha256: str = "",
) -> Construct:
    """Theorem 1: enough heads compute any rank-d map of a table, its rank-d optimum unless W_U and W_E are given.

    table: a memorization task, a ConditionalTable or an array. d_model, or W_U (d, outputs) with W_E (contexts, d).
    epsilon   0: exact. Otherwise heads for the least number of contexts of total probability 1 - epsilon, and W_OV by
              ridge regression over all contexts, with `ridge` added to the squared singular values of sqrt(prior) A
    n_heads   by default the least number for full rank times 1 + spare; spare is 0.25 unless given, 2 at d = 1
    target_sha256   hash of the target that a spec was built for; it does not contain your own W_U and W_E
    The weights' numbers: n_heads, kl, target_kl, logit_error (largest difference from the target's logits, nats),
    residual (||A W_OV - target|| / ||target||), condition, draws, float32_logit_error. W_Q = W_QK and W_O = W_OV are
    (P, d, d), W_K and W_V identities; scores are divided by sqrt d.
    Raises InterpError if there are too few heads, or A is so ill-conditioned that float64 misses the target.
    Source: Dana 2024, Theorem 1; errata 4, 5, 7 and 8.
    """
    task = table_task(table, prior)
    target = target_hash(task, W_U, W_E, target_sha256)
    weights = _weights(as_table(task), d_model, W_U, W_E, epsilon, n_heads, spare, ridge, max_draws, draw_seed)
    width, heads = len(weights.tensors["unembed.W_U"]), int(weights.numbers["n_heads"])
    arguments: dict[str, Scalar] = {"draw_seed": draw_seed, "epsilon": float(epsilon), "max_draws": max_draws}
    arguments |= {"ridge": float(ridge)} if epsilon else {}
    arguments |= {"n_heads": heads} if task.order > 1 else {}
    arguments |= {"target_sha256": target} if target else {"d_model": width}
    return constructed("memorization/theorem1", task, weights, arguments, width, heads)


def _weights(
    checked: ConditionalTable, d_model: int | None, W_U: Any, W_E: Any, epsilon: float, n_heads: int | None,
    spare: float | None, ridge: float, max_draws: int, seed: int,
) -> ConstructedWeights:  # fmt: skip
    W_U, W_E = target_map(checked, d_model, W_U, W_E, seed)
    contexts = np.array(checked.contexts)
    if checked.order == 1:
        return _without_heads(checked, W_U, W_E, contexts)
    if not 0 <= epsilon < 1:
        raise InterpError(f"epsilon is {epsilon}; a probability of at least 0 and below 1 is needed")
    d, covered = len(W_U), count_likeliest(checked.prior, epsilon)
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


def count_likeliest(prior: Float[np.ndarray, " contexts"], epsilon: float) -> int:
    """Return N_epsilon, the least number of contexts with a total probability of at least 1 - epsilon."""
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
    """Draw Gaussian embeddings, positions and W_QK until the condition number is at most `stop`; return the best."""
    rng = np.random.default_rng(seed)

    def draw(spread: float, number: int) -> Keys:
        W_E, W_pos = rng.standard_normal((n_tokens, d)), rng.standard_normal((contexts.shape[1], d))
        # x = e + pos has variance 2, so x W x' / sqrt d has 2 sqrt d times the standard deviation of W's entries.
        W_QK = rng.standard_normal((n_heads, d, d)) * spread / (2 * np.sqrt(d))
        matrix = attention_matrix(contexts, W_E, W_pos, W_QK)
        return Keys(W_E, W_pos, W_QK, matrix, np.linalg.svd(matrix, compute_uv=False), number)

    return draw_until_good(draw, lambda keys: (keys.condition,), max_draws, stop)


def draw_until_good(
    draw: Callable[[float, int], Drawn], badness: Callable[[Drawn], tuple[float, ...]], max_draws: int, stop: float
) -> Drawn:
    """Return the first draw(spread of the scores, number) whose badness[0] is at most `stop`, otherwise the best."""
    best: Drawn | None = None
    for number in range(max_draws):
        drawn = draw(SCORE_SPREADS[number % len(SCORE_SPREADS)], number + 1)
        if best is None or badness(drawn) < badness(best):
            best = drawn
        if badness(drawn)[0] <= stop:
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


def refuse_error(error: float, target: np.ndarray, keys: Keys, remedy: str) -> None:
    """Raise InterpError if an exact construction's logits miss the target."""
    if error > LOGIT_TOLERANCE * max(1.0, float(np.abs(target).max())):
        raise InterpError(
            f"the attention matrix has condition number {keys.condition:.1e} after {keys.draws} draws of keys, so the "
            f"logits miss the target by {error:.1e}; {remedy}"
        )


def layer_tensors(W_E: np.ndarray, W_pos: np.ndarray, W_U: np.ndarray, **heads: np.ndarray) -> dict[str, Tensor]:
    """Return the weights of one attention layer by the model's names; heads: W_Q, W_O and so on."""
    attention = {f"blocks.0.attn.{name}": value for name, value in {"W_pos": W_pos, **heads}.items()}
    weights = {"embed.W_E": W_E, **attention, "unembed.W_U": W_U}
    return {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in weights.items()}


def smallest_lead(logits: Float[np.ndarray, "contexts outputs"]) -> float:
    """Return the smallest difference between a context's two largest logits."""
    ordered = np.sort(logits, axis=1)
    return float((ordered[:, -1] - ordered[:, -2]).min())


def solve(
    matrix: Float[np.ndarray, "contexts features"], goal: Float[np.ndarray, "contexts d"]
) -> Float[np.ndarray, "features d"]:
    """Return the least-norm W with A W = goal, after one step of iterative refinement."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    kept = values > 1e-13 * values[0]  # far below all values of an exact construction: its condition number is limited
    left, inverse = left[:, kept].T, right[kept].T / values[kept]
    W = inverse @ (left @ goal)
    return W + inverse @ (left @ (goal - matrix @ W))


def weighted_ridge(
    matrix: Float[np.ndarray, "contexts features"],
    goal: Float[np.ndarray, "contexts d"],
    prior: Float[np.ndarray, " contexts"],
    ridge: float,
) -> Float[np.ndarray, "features d"]:
    """Return the W that minimizes sum_i prior_i ||A_i W - goal_i||^2 + ridge ||W||^2."""
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
        optimum = rank_d_optimum(table, d_model, seed=seed)
        return optimum.W_U, optimum.W_E
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
    """Return the layer for k = 1: the embedding is the answer, and one head adds nothing (a layer needs a head)."""
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
    """Return the tensors by name, with their errors over the whole table."""
    d, last = len(W_U), np.array(table.contexts)[:, -1]
    target = W_E @ W_U
    goal = W_E - keys.W_E[last]
    embedded = keys.matrix @ W_OV
    logits = (keys.W_E[last] + embedded) @ W_U
    error = float(np.abs(logits - target).max())
    if epsilon == 0:
        refuse_error(error, target, keys, "give more heads (spare), a larger d, or another seed")
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
    if epsilon == 0:
        claim = f"the logits after each of the {table.n_contexts} contexts are those of the given rank-{d} map"
    else:
        claim = f"with heads for {covered} of {table.n_contexts} contexts, near the given rank-{d} map in divergence"
    return ConstructedWeights(
        tensors=layer_tensors(keys.W_E, keys.W_pos, W_U, W_Q=keys.W_QK, W_O=W_OV.reshape(-1, d, d)),
        directions={},
        claim=claim,
        margin=smallest_lead(logits),
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
    """Return the largest difference from the target's logits if weights and arithmetic are float32."""
    W_E, W_pos, W_QK, W_OV, W_U = (array.astype(np.float32) for array in (keys.W_E, keys.W_pos, keys.W_QK, W_OV, W_U))
    logits = (W_E[last] + attention_matrix(contexts, W_E, W_pos, W_QK) @ W_OV) @ W_U
    return float(np.abs(logits - target).max())
