"""What the registered memorization constructions share: their spec, and the arguments recorded in it.

The table is part of the task. Tables with a generator are rebuilt from the spec; your own is saved in the checkpoint.
"""

from typing import Any, Literal

import torch

from interp.errors import InterpError
from interp.families.memorization.tasks.conditional import TableTask
from interp.families.memorization.theory.kl import checked_unembedding
from interp.models.constructions import Construct, ConstructedWeights
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


def constructed(
    name: str,
    task: TableTask,
    weights: ConstructedWeights,
    arguments: dict[str, Scalar],
    d_model: int,
    n_heads: int,
    length: int | None = None,
    d_head: int | None = None,
) -> Construct:
    """Return a construction with its spec, whose origin has the arguments from which it is built again."""
    origin = Construction(name=name, arguments=tuple(arguments.items()))
    spec = memorization_spec(task, d_model, n_heads, d_head, length=length, dtype="float64", origin=origin)
    return Construct(spec, task, weights)


def target_hash(task: TableTask, W_U: Any, W_E: Any, wanted: str) -> str:
    """Return the hash of the user's own target, or "" if the target is the table's optimum."""
    if W_U is None or W_E is None:
        if wanted:
            raise InterpError(f"this model was built for the target {wanted[:10]}.. of your own: give its W_U and W_E")
        return ""
    target = {
        "W_U": torch.from_numpy(checked_unembedding(W_U, task.n_out).copy()),
        "W_E": torch.as_tensor(W_E, dtype=torch.float64),
    }
    digest = tensors_sha256(target)
    if wanted and wanted != digest:
        raise InterpError(f"these W_U and W_E have the hash {digest[:10]}.., not {wanted[:10]}..")
    return digest
