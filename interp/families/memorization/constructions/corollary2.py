"""Corollary 2, repaired: one attention layer that reads its last k tokens at every position of a longer sequence.

As printed it fails (erratum 9): the window has k + 1 tokens, generic embeddings destroy the mask, and values depend on
the absolute position, so one set of heads cannot serve all positions. In the repaired version,
- the residual stream has d = N + S dimensions: N for content, and one for each of S positions;
- e(t) is generic in the content dimensions, so linearly independent, and zero in the others; pos_s is the unit vector
  of position s;
- W_QK = sqrt d (sum_s pos_s (sum_{o < k} (mask + b_o) pos_{s-o})^T + a random content block c): the offsets b_o
  distinguish the places in the window, and `mask` exceeds c(t, t') - c(t, t) - b_0 by at least `lead` nats for all
  tokens t, t', so every token outside the window has at most e^-lead times the weight of the last token in it;
- W_OV reads content only, so a head's output depends on the window and not on its position.
P = ceil((N^k - 1) / (N - 1)) heads then have full rank N^k, and at most (S - k) e^-lead of the attention is outside.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from interp.errors import InterpError
from interp.families.memorization.constructions import theorem1
from interp.families.memorization.constructions.models import constructed, target_hash
from interp.families.memorization.tasks.tables import table_task
from interp.families.memorization.theory.attention_heads import attention_matrix
from interp.families.memorization.theory.kl import kl_divergence
from interp.families.memorization.theory.table import ConditionalTable, as_table
from interp.models.constructions import Construct, ConstructedWeights, register_construction
from interp.models.spec import Scalar


@register_construction("memorization/corollary2")
def corollary2(
    table: Any,
    length: int,
    rank: int | None = None,
    W_U: Any = None,
    W_E: Any = None,
    prior: Any = None,
    n_heads: int | None = None,
    spare: float = 0.25,
    lead: float = 60.0,
    max_draws: int = 12,
    draw_seed: int = 0,
    target_sha256: str = "",
) -> Construct:
    """Corollary 2, repaired: the same at every position of sequences up to `length`, in N + length dimensions.

    table: has all N^k contexts, k >= 2. rank: of the optimum to compute, unless W_U (d', outputs) and W_E
    (contexts, d') are given, which occupy the first d' dimensions. target_sha256 and the tensors: as for `theorem1`.
    The weights' numbers: n_heads, kl, target_kl, logit_error (largest over all windows, at the first and at the last
    position), condition, draws, mask, outside_mass (an upper bound over all sequences and positions).
    Raises InterpError if there are too few heads or the logits miss the target.
    Source: Dana 2024, Corollary 2 (not established as printed); erratum 9.
    """
    task = table_task(table, prior)
    target = target_hash(task, W_U, W_E, target_sha256)
    weights = _weights(as_table(task), length, rank, W_U, W_E, n_heads, spare, lead, max_draws, draw_seed)
    width, heads = len(weights.tensors["unembed.W_U"]), int(weights.numbers["n_heads"])
    arguments: dict[str, Scalar] = {"draw_seed": draw_seed, "lead": float(lead), "length": length, "n_heads": heads}
    arguments |= {"max_draws": max_draws}
    arguments |= {"target_sha256": target} if target else {"rank": int(rank or 0)}
    return constructed("memorization/corollary2", task, weights, arguments, width, heads, length)


def _weights(
    checked: ConditionalTable, length: int, rank: int | None, W_U: Any, W_E: Any, n_heads: int | None, spare: float,
    lead: float, max_draws: int, seed: int,
) -> ConstructedWeights:  # fmt: skip
    n, k = checked.n_tokens, checked.order
    _check(checked, length)
    small_U, small_E = theorem1.target_map(checked, rank, W_U, W_E, seed)
    d = n + length
    if len(small_U) > d:
        raise InterpError(f"the target has rank {len(small_U)}, more than the {d} = {n} + {length} dimensions")
    wide_U, wide_E = np.zeros((d, checked.n_outputs)), np.zeros((checked.n_contexts, d))
    wide_U[: len(small_U)], wide_E[:, : len(small_U)] = small_U, small_E
    least = -(-(n**k - 1) // (n - 1))
    heads = int(np.ceil(least * (1 + spare) - 1e-9)) if n_heads is None else n_heads
    if heads < least:
        raise InterpError(f"{heads} heads are too few for {n**k} windows; at least {least} are needed")

    windows = np.array(checked.contexts)
    keys = _draw(windows, n, length, heads, lead, max_draws, np.random.default_rng(seed))
    theorem1.refuse_condition(keys.condition, keys.draws, "give more heads (spare) or another seed")
    W_OV = np.zeros((heads, d, d))
    W_OV[:, :n] = theorem1.solve(keys.matrix, wide_E - keys.W_E[windows[:, -1]]).reshape(heads, n, d)

    target, errors, logits = small_E @ small_U, [], np.empty(0)
    for end in sorted({k, length}):
        mixed = attention_matrix(_sequences(windows, end, n), keys.W_E, keys.W_pos, keys.W_QK) @ W_OV.reshape(-1, d)
        logits = (keys.W_E[windows[:, -1]] + mixed) @ wide_U
        errors.append(float(np.abs(logits - target).max()))
    theorem1.refuse_error(max(errors), target, keys, "give more heads (spare), a larger lead, or another seed")
    return ConstructedWeights(
        tensors=theorem1.layer_tensors(keys.W_E, keys.W_pos, wide_U, W_Q=keys.W_QK, W_O=W_OV),
        directions={"position": torch.from_numpy(keys.W_pos.copy())},
        claim=f"at positions {k} to {length} of every sequence, the logits are those of the given map of the last {k} "
        "tokens",
        margin=theorem1.smallest_lead(logits),
        notes=("Dana 2024, Corollary 2, repaired as in erratum 9: as printed it is not established",),
        numbers={
            "n_heads": float(heads),
            "kl": kl_divergence(checked, logits),
            "target_kl": kl_divergence(checked, target),
            "logit_error": max(errors),
            "condition": keys.condition,
            "draws": float(keys.draws),
            "mask": keys.mask,
            "outside_mass": float((length - k) * np.exp(-lead)),
        },
    )


def _check(table: ConditionalTable, length: int) -> None:
    if not table.complete or table.n_tokens < 2:
        raise InterpError("sequences would contain contexts that the table lacks; give all n_tokens ** order of them")
    if table.order < 2:
        raise InterpError("order is 1: the embedding itself is the answer at every position, with no head at all")
    if length < table.order:
        raise InterpError(f"length is {length}; at least the order, {table.order}, is needed")


def _draw(
    windows: Int[np.ndarray, "contexts k"],
    n: int,
    length: int,
    heads: int,
    lead: float,
    max_draws: int,
    rng: np.random.Generator,
) -> theorem1.Keys:
    """Return the first draw of keys with a well-conditioned attention matrix, otherwise the best draw."""
    k, d = windows.shape[1], n + length
    W_pos = np.zeros((length, d))
    W_pos[:, n:] = np.eye(length)

    def draw(spread: float, number: int) -> theorem1.Keys:
        content = rng.standard_normal((n, n))
        block = rng.standard_normal((heads, n, n)) * spread / n
        offsets = rng.standard_normal((heads, k)) * spread / 2
        scores = content @ block @ content.T  # c(t, t'), in nats
        own = np.diagonal(scores, axis1=1, axis2=2) + offsets[:, :1]
        mask = lead + float((scores.max(axis=2) - own).max())
        W_QK = np.zeros((heads, d, d))
        W_QK[:, :n, :n] = block
        for back in range(k):
            position = np.arange(back, length)
            W_QK[:, n + position, n + position - back] = mask + offsets[:, back, None]
        W_QK *= np.sqrt(d)
        W_E = np.hstack([content, np.zeros((n, length))])
        mixed = attention_matrix(_sequences(windows, k, n), W_E, W_pos, W_QK).reshape(len(windows), heads, d)
        matrix = np.ascontiguousarray(mixed[:, :, :n]).reshape(len(windows), -1)
        return theorem1.Keys(W_E, W_pos, W_QK, matrix, np.linalg.svd(matrix, compute_uv=False), number, mask)

    return theorem1.draw_until_good(draw, lambda keys: (keys.condition,), max_draws, theorem1.CONDITION_LIMIT)


def _sequences(windows: Int[np.ndarray, "contexts k"], end: int, n: int) -> Int[np.ndarray, "contexts end"]:
    """Return one sequence of `end` tokens per window, which ends with it; the tokens before it differ among rows."""
    before = (7 * np.arange(len(windows))[:, None] + 3 * np.arange(end - windows.shape[1])) % n
    return np.hstack([before, windows])
