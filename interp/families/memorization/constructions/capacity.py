"""Memorize H d_h + d associations exactly: one attention layer with H heads of width d_h in a stream of width d.

Let F be the matrix with one row [e(t_k) | z_1 .. z_H] per chosen context: the embedding of the last token, and the
average of the values in each head, together H d_h + d numbers. If F is invertible, there are B (d x d) and
W (H d_h x d) with

    e(t_k) B + sum_h z_h W_h = w_g        for every chosen context,

where w_g is a unit vector that stands for the right output g. With W_O^h = W_h B^-1 and W_U = B w, the logits of the
layer are (e(t_k) + sum_h z_h W_O^h) W_U = w_g . w_j. They are largest at j = g, because distinct unit vectors have
products below 1. So the residual stream itself memorizes d associations in addition to the H d_h of the heads, and two
dimensions suffice for any number of outputs. F is invertible for random embeddings, positions and keys unless d > N or
the heads repeat one another (errata 5); this is checked, not proved.

With fewer contexts than features, F has more columns than rows. If it has full row rank, the solution of least norm is
used. Its B is singular in the directions in which all chosen embeddings are zero (there are some if d > N). B can be
chosen freely in these directions, and is made invertible there.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from interp.errors import InterpError, check_size
from interp.families.memorization.constructions.models import constructed
from interp.families.memorization.constructions.theorem1 import draw_until_good, layer_tensors, solve
from interp.families.memorization.tasks.tables import table_task
from interp.families.memorization.theory.attention_heads import attention_matrix, memorized_associations
from interp.families.memorization.theory.kl import accuracy, memorized
from interp.families.memorization.theory.table import ConditionalTable, as_table
from interp.models.constructions import Construct, ConstructedWeights, register_construction
from interp.models.spec import Scalar

CONDITION_LIMIT = 1e7
RANK_TOLERANCE = 1e-10
"""Singular values below this share of the largest count as zero. The errors of float64 are near 1e-16 of the largest:
values at the limit have six correct digits, and zeros (from repeated heads) are far below it, so all CPUs agree."""
PROMISE = 0.5
"""The computed margin must be at least this share of the margin in exact arithmetic."""


@dataclass(frozen=True, eq=False)
class _Draw:
    """Random weights, and the features F of all contexts."""

    W_E: Float[np.ndarray, "tokens d"]
    W_pos: Float[np.ndarray, "positions d"]
    W_Q: Float[np.ndarray, "heads d d_head"]
    W_K: Float[np.ndarray, "heads d d_head"]
    W_V: Float[np.ndarray, "heads d d_head"]
    features: Float[np.ndarray, "contexts features"]
    condition: float
    rank: int
    draws: int


@register_construction("memorization/capacity")
def capacity(
    table: Any,
    d_model: int,
    n_heads: int,
    d_head: int | None = None,
    prior: Any = None,
    scale: float = 10.0,
    max_draws: int = 12,
    draw_seed: int = 0,
) -> Construct:
    """H heads of width d_h in d dimensions, right on the H d_h + d likeliest contexts of a table.

    The table must have k >= 2 tokens per context; d_model >= 2; d_head is d_model unless given. scale: of the logits.
    draw_seed also breaks ties. The weights' numbers: associations (H d_h + d, at most the number of contexts),
    memorized (over the whole table, luck included), accuracy, condition, draws.
    Raises InterpError if F or B is singular to ten digits, or rounding costs too much of the margin.
    Source: Dana 2025 (arXiv 2411.10115), main theorem, as summarized in the errata ("Published version").
    """
    task = table_task(table, prior)
    d_head = d_model if d_head is None else d_head
    weights = _weights(as_table(task), d_model, n_heads, d_head, scale, max_draws, draw_seed)
    arguments: dict[str, Scalar] = {
        **{"d_model": d_model, "n_heads": n_heads, "d_head": d_head, "scale": float(scale)},
        **{"max_draws": max_draws, "draw_seed": draw_seed},
    }
    return constructed("memorization/capacity", task, weights, arguments, d_model, n_heads, d_head=d_head)


def _weights(
    checked: ConditionalTable, d_model: int, n_heads: int, d_head: int, scale: float, max_draws: int, seed: int
) -> ConstructedWeights:
    if checked.order < 2 or d_model < 2:
        raise InterpError(
            f"a table of order {checked.order} at d = {d_model}: contexts of at least 2 tokens and d of at least 2 are "
            "needed"
        )
    check_size("n_heads", n_heads)
    check_size("d_head", d_head)
    n = min(memorized_associations(n_heads, d_head, d_model), checked.n_contexts)
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(checked.n_contexts)
    chosen = shuffled[np.argsort(-checked.prior[shuffled], kind="stable")][:n]
    drawn = _draw(np.array(checked.contexts), chosen, checked.n_tokens, d_model, n_heads, d_head, max_draws, rng)
    units = _unit_vectors(checked.n_outputs, d_model, rng)
    targets = checked.conditional[chosen].argmax(axis=1)

    if drawn.rank < n:
        raise InterpError(
            f"{n} associations at d = {d_model} with {n_heads} heads of width {d_head}: the {n} features have rank "
            f"{drawn.rank} only in float64; fewer dimensions, d_head of at most d, or more tokens are needed"
        )
    solution = solve(drawn.features[chosen], units[:, targets].T)
    B, W = solution[:d_model], solution[d_model:]
    B, condition = _invertible(B, drawn.features[chosen, :d_model])
    if condition > 1 / RANK_TOLERANCE:
        raise InterpError(
            f"{n} associations at d = {d_model} with {n_heads} heads of width {d_head}: the map of the residual stream "
            "is singular in float64 (the right outputs of these contexts may span too few of its dimensions); another "
            "draw_seed, or fewer dimensions, are needed"
        )
    W_O = np.linalg.solve(B.T, W.T).T.reshape(n_heads, d_head, d_model)
    W_U = scale * B @ units
    logits = (drawn.features[:, :d_model] + drawn.features[:, d_model:] @ W_O.reshape(-1, d_model)) @ W_U
    margin = _margin(logits[chosen], targets)
    promised = _margin(scale * (units.T @ units)[targets], targets)
    if not margin >= PROMISE * promised:
        raise InterpError(
            f"{n} associations at d = {d_model} with {n_heads} heads of width {d_head}: a right logit leads by "
            f"{margin:.2g} and not by {promised:.2g}, lost to rounding at condition numbers {drawn.condition:.0e} and "
            f"{condition:.0e}; another draw_seed, or more heads, are needed"
        )
    heads = {"W_Q": drawn.W_Q, "W_K": drawn.W_K, "W_V": drawn.W_V, "W_O": W_O}
    return ConstructedWeights(
        tensors=layer_tensors(drawn.W_E, drawn.W_pos, W_U, **heads),
        directions={},
        claim=f"right on {n} of the {checked.n_contexts} contexts, the likeliest; the others are left to luck",
        margin=margin,
        notes=("Dana 2025, main theorem: H d_h + d associations", f"condition number {drawn.condition:.1e}"),
        numbers={
            "associations": float(n),
            "memorized": float(memorized(checked, logits)),
            "accuracy": accuracy(checked, logits),
            "condition": drawn.condition,
            "draws": float(drawn.draws),
        },
    )


def _draw(
    contexts: Int[np.ndarray, "contexts k"],
    chosen: Int[np.ndarray, " n"],
    n_tokens: int,
    d: int,
    heads: int,
    d_head: int,
    max_draws: int,
    rng: np.random.Generator,
) -> _Draw:
    """Return the first draw with well-conditioned features on the chosen contexts, otherwise the best draw."""

    def draw(spread: float, number: int) -> _Draw:
        W_E, W_pos = rng.standard_normal((n_tokens, d)), rng.standard_normal((contexts.shape[1], d))
        # x = e + pos has variance 2. If weights have a^2, queries and keys have 2 d a^2: scores deviate by 2 d a^2.
        W_Q, W_K = rng.standard_normal((2, heads, d, d_head)) * np.sqrt(spread / (2 * d))
        W_V = rng.standard_normal((heads, d, d_head)) / np.sqrt(d)
        W_QK = W_Q @ W_K.transpose(0, 2, 1) * np.sqrt(d / d_head)  # attention_matrix divides by sqrt d
        mixed = attention_matrix(contexts, W_E, W_pos, W_QK).reshape(len(contexts), heads, d)
        z = np.einsum("rha,hab->rhb", mixed, W_V, optimize=True).reshape(len(contexts), -1)
        features = np.hstack([W_E[contexts[:, -1]], z])
        values = np.linalg.svd(features[chosen], compute_uv=False)
        rank = int((values > RANK_TOLERANCE * values[0]).sum())
        condition = float(values[0] / values[-1]) if rank == len(chosen) else float("inf")
        return _Draw(W_E, W_pos, W_Q, W_K, W_V, features, condition, rank, number)

    return draw_until_good(draw, lambda drawn: (drawn.condition, -drawn.rank), max_draws, CONDITION_LIMIT)


def _invertible(B: Float[np.ndarray, "d d"], embedded: Float[np.ndarray, "n d"]) -> tuple[np.ndarray, float]:
    """Return B, made invertible on the directions in which all rows of `embedded` are zero, and its condition number.

    It maps these to the directions missing in its image, with its largest singular value, so that the condition number
    remains that of B on the rows.
    """
    _, reach, directions = np.linalg.svd(embedded)
    rank = int((reach > RANK_TOLERANCE * reach[0]).sum())
    _, values, outputs = np.linalg.svd(directions[:rank] @ B)
    completed = B + values[0] * directions[rank:].T @ outputs[rank:]
    return completed, float(values[0] / max(values[-1], np.finfo(float).tiny))


def _unit_vectors(n_outputs: int, d: int, rng: np.random.Generator) -> Float[np.ndarray, "d outputs"]:
    """Return unit columns of which no two are close: evenly spaced for d = 2, otherwise the best of 32 random draws."""
    if d == 2:
        angle = 2 * np.pi * np.arange(n_outputs) / n_outputs
        return np.stack([np.cos(angle), np.sin(angle)])
    best, closest = np.zeros((d, n_outputs)), np.inf
    for _ in range(32):
        columns = rng.standard_normal((d, n_outputs))
        columns /= np.linalg.norm(columns, axis=0)
        product = float((columns.T @ columns - 2 * np.eye(n_outputs)).max())
        if product < closest:
            best, closest = columns, product
    return best


def _margin(logits: Float[np.ndarray, "n outputs"], targets: Int[np.ndarray, " n"]) -> float:
    """Return the smallest lead of the right logit over the best wrong one."""
    rows = np.arange(len(logits))
    wrong = logits.copy()
    wrong[rows, targets] = -np.inf
    return float((logits[rows, targets] - wrong.max(axis=1)).min())
