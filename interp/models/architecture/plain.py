"""Models as plain data, for other languages to run: a description of the forward pass, and the weights.

`describe` contains every setting of a spec, or of a HookedTransformer's config, that affects outputs. `pack` writes
tensors as base64 in the model's precision. A model that the format cannot describe raises UnsupportedError.
"""

import base64
from typing import Any

import torch
from torch import Tensor

from interp.errors import refuse_if
from interp.models.architecture.parameters import outputs
from interp.models.architecture.reduced import count_space_refusal
from interp.models.architecture.stock import layer_of, refusal
from interp.models.architecture.task_model import TaskModel
from interp.models.lens import HookedTransformer
from interp.models.spec import Layer, ModelSpec


def describe(model: HookedTransformer) -> dict[str, Any]:
    """Describe the forward pass. Raises UnsupportedError with the reason if the format cannot describe it.

    Keys of the model: d_model, n_out, causal, masks (whether padding is masked in attention), attn_only, layers,
    positions, pos_embed (whether the model has a hook_pos_embed), final_norm (its epsilon, or None), final_kind,
    readout, max_length, fixed_length (whether inputs must have max_length tokens), counts (whether outputs can be
    computed from token counts). Keys of a layer include key_heads (number of key and value heads), norm_kind (layer or
    rms), query_key_eps (epsilon of the norm of queries and keys, or None), gated (whether the MLP is gated) and
    parallel (whether attention and MLP read the same stream).
    """
    return _of_spec(model) if isinstance(model, TaskModel) else _of_config(model)


def weights(model: HookedTransformer) -> dict[str, Tensor]:
    """Return the parameters of the described model, under TransformerLens's names."""
    tensors = {name: parameter.detach().cpu() for name, parameter in model.named_parameters()}
    if isinstance(model, TaskModel) and model.spec.tied_embeddings:
        tensors["unembed.W_U"] = tensors["embed.W_E"].T
    return tensors


def pack(tensor: Tensor) -> dict[str, Any]:
    """Convert a tensor to its shape, dtype and base64-encoded little-endian values."""
    flat = tensor.detach().cpu().contiguous()
    raw = flat.reshape(-1).view(torch.uint8).numpy().tobytes()
    dtype = str(flat.dtype).removeprefix("torch.")
    return {"shape": list(flat.shape), "dtype": dtype, "data": base64.b64encode(raw).decode()}


# ---------------------------------------------------------------- task models


def _of_spec(model: TaskModel) -> dict[str, Any]:
    spec = model.spec
    return {
        "d_model": spec.d_model,
        "n_out": outputs(spec, model.task),
        "causal": spec.direction == "causal",
        "masks": model.task.pad_id is not None,
        "attn_only": all(layer.mlp is None for layer in spec.layers),
        "layers": [_layer(spec.d_model, layer) for layer in spec.layers],
        "positions": _positions(spec),
        "pos_embed": True,
        "final_norm": spec.layers[-1].norm_eps if spec.final_norm != "none" else None,
        "final_kind": "rms" if spec.final_norm == "rms_norm" else "layer",
        "readout": spec.readout,
        "max_length": spec.max_length,
        "fixed_length": any(layer.mixing == "linear" for layer in spec.layers),
        "counts": count_space_refusal(spec) is None,
    }


def _layer(d_model: int, layer: Layer) -> dict[str, Any]:
    return {
        "n_heads": layer.n_heads,
        "d_head": layer.d_head,
        "mixing": layer.mixing,
        "softmax": layer.normalizer == "softmax",
        "scale": layer.factor(d_model),
        "log_length": None if layer.log_length == "none" else layer.log_length,
        "norm": layer.norm,
        "norm_kind": layer.norm_kind,
        "eps": layer.norm_eps,
        "key_heads": layer.key_value_heads or layer.n_heads,
        "query_key_eps": layer.norm_eps if layer.query_key_norm else None,
        "mlp": layer.mlp and layer.mlp.activation,
        "gated": layer.mlp is not None and layer.mlp.gated,
        "parallel": False,
    }


def _positions(spec: ModelSpec) -> dict[str, Any]:
    """Describe positions by the name of their formula, which programs reading the plain data must know."""
    name = spec.positions
    if name == "rotary":
        return _rotary(
            spec.rotary_dim or spec.layers[0].d_head, float(spec.rotary_base), spec.rotary_pairs == "adjacent"
        )
    if name == "alibi":
        return {"name": name}
    if spec.positions_enter == "attention":
        return {"name": "none"}
    return {"name": name}


def _rotary(dim: int, base: float, adjacent: bool) -> dict[str, Any]:
    return {"name": "rotary", "dim": dim, "base": base, "adjacent": adjacent}


# ---------------------------------------------------------------- other HookedTransformers


def _of_config(model: HookedTransformer) -> dict[str, Any]:
    cfg = model.cfg
    refused = refusal(model, "the format", also=("parallel_attn_mlp",))
    refuse_if(refused, "this HookedTransformer cannot be written as plain data: ")
    layer = layer_of(cfg, "blocks.0.", dict(model.named_parameters()))
    own = {"scale": _scale(cfg), "parallel": not cfg.attn_only and bool(getattr(cfg, "parallel_attn_mlp", False))}
    return {
        "d_model": cfg.d_model,
        "n_out": cfg.d_vocab_out,
        "causal": cfg.attention_dir == "causal",
        "masks": False,
        "attn_only": cfg.attn_only,
        "layers": [_layer(cfg.d_model, layer) | own] * cfg.n_layers,
        "positions": _positions_of_config(cfg),
        "pos_embed": cfg.positional_embedding_type == "standard",
        "final_norm": None if layer.norm == "none" else cfg.eps,
        "final_kind": layer.norm_kind,
        "readout": "linear",
        "max_length": cfg.n_ctx,
        "fixed_length": False,
        "counts": False,
    }


def _positions_of_config(cfg: Any) -> dict[str, Any]:
    if cfg.positional_embedding_type == "rotary":
        return _rotary(cfg.rotary_dim, float(cfg.rotary_base), cfg.rotary_adjacent_pairs)
    return {"name": "alibi" if cfg.positional_embedding_type == "alibi" else "learned"}


def _scale(cfg: Any) -> float:
    """Return the factor of the scores. In TransformerLens 4, attn_scale = -1 means sqrt(d_head)."""
    if not cfg.use_attn_scale:
        return 1.0
    return 1 / (cfg.attn_scale if cfg.attn_scale > 0 else cfg.d_head**0.5)
