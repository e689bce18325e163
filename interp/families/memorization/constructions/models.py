"""Registered memorization constructions: specs, tasks, and the arguments recorded in the spec.

The table is part of the task. Tables with a generator are rebuilt from the spec; your own is saved in the checkpoint.
"""

from typing import Any, Literal

import torch

from interp.errors import InterpError
from interp.families.memorization.constructions.capacity import capacity_weights
from interp.families.memorization.constructions.corollary2 import corollary2_weights
from interp.families.memorization.constructions.theorem1 import theorem1_weights
from interp.families.memorization.tasks.conditional import TableTask
from interp.families.memorization.tasks.tables import table_task
from interp.families.memorization.theory.kl import checked_unembedding
from interp.models.constructions import Construct, ConstructedWeights, register_construction
from interp.models.spec import MLP, Construction, Layer, ModelSpec, Scalar, Training
from interp.tasks.task import tensors_sha256


def memorization_spec(
    task: TableTask,
    d_model: int,
    n_heads: int,
    d_head: int | None = None,
    *,
    d_mlp: int = 0,
    activation: Literal["relu", "gelu"] = "relu",
    length: int | None = None,
    dtype: str = "float32",
    origin: Construction | Training | None = None,
) -> ModelSpec:
    """Return the spec of the attention-only transformer of Dana 2024, section 3.1: one layer of parallel heads.

    Positions enter queries, keys and values, not the residual stream; no biases; read at the last token. Every head has
    full d x d query-key and value-output matrices, or factors of width `d_head` if given. d_mlp: width of an MLP after
    the heads, as in the one-head baseline. length: of the longest input (default: the task's contexts).
    """
    full = d_head is None
    layer = Layer(
        n_heads=n_heads,
        d_head=d_model if d_head is None else d_head,
        scale="inv_sqrt_d_model" if full else "inv_sqrt_d_head",
        query_key="full" if full else "learned",
        value_output="full" if full else "learned",
        mlp=MLP(d_mlp=d_mlp, activation=activation) if d_mlp else None,
    )
    return ModelSpec(
        task=task.ref,
        d_model=d_model,
        layers=(layer,),
        positions="learned",
        positions_enter="attention",
        max_length=task.order if length is None else length,
        readout_bias=False,
        readout_at="last",
        dtype=dtype,  # type: ignore[arg-type]
        origin=origin,
    )


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
    epsilon, n_heads, spare, ridge and max_draws: as for `theorem1_weights`. target_sha256: hash of the target that a
    spec was built for; it does not contain your own W_U and W_E. Raises InterpError if the model cannot be built.
    """
    task = table_task(table, prior)
    target = _target_hash(task, W_U, W_E, target_sha256)
    weights = theorem1_weights(
        task, d_model, W_U=W_U, W_E=W_E, epsilon=epsilon, n_heads=n_heads, spare=spare, ridge=ridge,
        max_draws=max_draws, seed=draw_seed,
    )  # fmt: skip
    width, heads = _width(weights), int(weights.numbers["n_heads"])
    arguments: dict[str, Scalar] = {"draw_seed": draw_seed, "epsilon": float(epsilon), "max_draws": max_draws}
    arguments |= {"ridge": float(ridge)} if epsilon else {}
    arguments |= {"n_heads": heads} if task.order > 1 else {}
    arguments |= {"target_sha256": target} if target else {"d_model": width}
    return _construct("memorization/theorem1", task, weights, arguments, width, heads)


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

    table: has all N^k contexts, k >= 2. rank: of the optimum to compute, unless W_U and W_E are given. Other arguments:
    as for `corollary2_weights` and `theorem1`. Raises InterpError if the model cannot be built.
    """
    task = table_task(table, prior)
    target = _target_hash(task, W_U, W_E, target_sha256)
    weights = corollary2_weights(
        task, length, rank, W_U=W_U, W_E=W_E, n_heads=n_heads, spare=spare, lead=lead, max_draws=max_draws,
        seed=draw_seed,
    )  # fmt: skip
    width, heads = _width(weights), int(weights.numbers["n_heads"])
    arguments: dict[str, Scalar] = {"draw_seed": draw_seed, "lead": float(lead), "length": length, "n_heads": heads}
    arguments |= {"max_draws": max_draws}
    arguments |= {"target_sha256": target} if target else {"rank": int(rank or 0)}
    return _construct("memorization/corollary2", task, weights, arguments, width, heads, length)


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

    Arguments: as for `capacity_weights`. Raises InterpError if the model is not right on all of these contexts.
    """
    task = table_task(table, prior)
    d_head = d_model if d_head is None else d_head
    weights = capacity_weights(task, d_model, n_heads, d_head, scale=scale, max_draws=max_draws, seed=draw_seed)
    arguments: dict[str, Scalar] = {
        **{"d_model": d_model, "n_heads": n_heads, "d_head": d_head, "scale": float(scale)},
        **{"max_draws": max_draws, "draw_seed": draw_seed},
    }
    return _construct("memorization/capacity", task, weights, arguments, d_model, n_heads, d_head=d_head)


def _construct(
    name: str,
    task: TableTask,
    weights: ConstructedWeights,
    arguments: dict[str, Scalar],
    d_model: int,
    n_heads: int,
    length: int | None = None,
    d_head: int | None = None,
) -> Construct:
    origin = Construction(name=name, arguments=tuple(arguments.items()))
    spec = memorization_spec(task, d_model, n_heads, d_head, length=length, dtype="float64", origin=origin)
    return Construct(spec, task, weights)


def _width(weights: ConstructedWeights) -> int:
    return weights.tensors["unembed.W_U"].shape[0]


def _target_hash(task: TableTask, W_U: Any, W_E: Any, wanted: str) -> str:
    """Return the hash of the user's own target, or "" if the target is the table's optimum."""
    if W_U is None or W_E is None:
        if wanted:
            raise InterpError(f"this model was built for the target {wanted[:10]}.. of your own: give its W_U and W_E")
        return ""
    target = {
        "W_U": torch.from_numpy(checked_unembedding(W_U, task.n_out).copy()),
        "W_E": torch.as_tensor(W_E, dtype=torch.float64),
    }
    found = tensors_sha256(target)
    if wanted and wanted != found:
        raise InterpError(f"these W_U and W_E have the hash {found[:10]}.., not {wanted[:10]}..")
    return found
