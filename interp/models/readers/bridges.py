"""Native TransformerBridges, made by TransformerBridge.boot_native, as HookedTransformers.

A bridge is loaded as what it runs, which its config does not always say: 3.9 and 4.3 do not read the fields IGNORED. So
two readings are tried, the config as such bridges are known to run it and the config as written, and the one that has
the bridge's outputs is taken.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from interp.errors import InterpError, UnsupportedError
from interp.models.architecture.comparison import compare, runs
from interp.models.architecture.settings import BY_NAME, complete, set_to
from interp.models.architecture.stock import read_config, stock_model
from interp.models.readers.base import Conversion, Reader, Source, join_heads, split_heads
from interp.models.readers.sources import NATIVE

NORMS = {"LN": "LN", "LNPRE": "LNPre", "RMS": "RMS", "RMSPRE": "RMSPre"}
IGNORED = ("use_qk_norm", "use_attn_scale", "parallel_attn_mlp", "scale_attn_by_inverse_layer_idx", "use_local_attn",
           "window_size", "attn_types", "use_normalization_before_and_after", "post_embedding_ln", "num_experts",
           "experts_per_token", "original_architecture", "use_NTK_by_parts_rope", "rotary_adjacent_pairs",
           "load_in_4bit")  # fmt: skip
"""Fields that change outputs of a HookedTransformer, but not of a native bridge."""


def _recognizes(source: Source) -> bool:
    return getattr(getattr(source.module, "cfg", None), "architecture", None) == NATIVE


def _read(source: Source, settings: Mapping[str, Any]) -> Conversion:
    bridge: Any = source.module
    cfg = bridge.cfg
    written = {name: value for name, value in cfg.to_dict().items() if name in BY_NAME or name == "n_ctx"}
    tensors = _tensors(source.tensors, cfg)
    rows = torch.randint(cfg.d_vocab, (4, min(12, cfg.n_ctx)), generator=torch.Generator().manual_seed(0))
    reasons = []
    for fields in (_as_run(cfg, written), written):
        try:
            whole = complete(tensors, read_config(fields), source.where).fields
            comparison = compare(runs(stock_model(whole, tensors), rows), runs(bridge, rows))
        except InterpError as error:
            reasons.append(str(error))
            continue
        if comparison.same:
            return Conversion("a native TransformerBridge", whole, tensors, notes=_notes(written, whole))
        reasons.append(str(comparison))
    odd = [name for name, value in written.items() if name in BY_NAME and set_to(name, written)]
    odd += ["rope_scaling"] if getattr(cfg, "rope_scaling", None) else []
    listed = ", ".join(f"{name} = {getattr(cfg, name)!r}" for name in odd) or "the default settings"
    raise UnsupportedError(f"this TransformerBridge, with {listed}, cannot be converted: {reasons[0]}")


def _as_run(cfg: Any, written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a config as native bridges of TransformerLens 3.9 and 4.3 run it."""
    fields = {name: value for name, value in written.items() if name not in IGNORED}
    norm = cfg.normalization_type
    fields["normalization_type"] = None if norm is None else NORMS.get(norm.upper(), "LN")
    fields["positional_embedding_type"] = (cfg.positional_embedding_type or "standard").lower()
    fields["act_fn"] = (cfg.act_fn or ("silu" if cfg.gated_mlp else "gelu")).lower().replace("swish", "silu")
    fields |= {"use_attn_scale": True, "attn_scale": cfg.attn_scale if cfg.use_attn_scale else -1.0}
    fields |= {"rotary_adjacent_pairs": True, "final_rms": cfg.final_rms and fields["normalization_type"] != "RMS"}
    scaling = getattr(cfg, "rope_scaling", None)
    if isinstance(scaling, Mapping) and (scaling.get("rope_type") or scaling.get("type")) == "linear":
        fields["rotary_scaling_factor"] = float(scaling.get("factor", 1.0))
    return fields


def _notes(written: Mapping[str, Any], run: Mapping[str, Any]) -> tuple[str, ...]:
    """Say which fields of its config the bridge does not run, by its outputs."""
    other = [name for name in IGNORED if name in written and set_to(name, written) and run.get(name) != written[name]]
    if run["positional_embedding_type"] == "rotary" and not written["rotary_adjacent_pairs"]:
        other += ["rotary_adjacent_pairs"] * bool(run["rotary_adjacent_pairs"] and run["rotary_dim"] != 2)
    if not other:
        return ()
    return (f"By its outputs, the bridge does not run its config's {', '.join(dict.fromkeys(other))}.",)


def _tensors(saved: Mapping[str, Tensor], cfg: Any) -> dict[str, Tensor]:
    """Return a bridge's tensors in TransformerLens's layout. Biases that it does not have are zero."""
    heads, groups, d = cfg.n_heads, cfg.n_key_value_heads, cfg.d_model
    tensors = {"embed.W_E": saved["embed.weight"], "unembed.W_U": saved["unembed.weight"].T}
    tensors["unembed.b_U"] = saved.get("unembed.bias", torch.zeros(len(saved["unembed.weight"])))
    for name, tensor in saved.items():
        place, _, kind = name.rpartition(".")
        at, _, part = place.rpartition(".")
        if part in ("ln1", "ln2", "ln_final"):
            tensors[f"{place}.{'w' if kind == 'weight' else 'b'}"] = tensor
        elif name == "pos_embed.weight":
            tensors["pos_embed.W_pos"] = tensor
        elif part == "o":
            tensors[f"{at}.W_O" if kind == "weight" else f"{at}.b_O"] = (
                join_heads(tensor, heads) if kind == "weight" else tensor
            )
        elif part in ("q", "k", "v"):
            count, stem = (heads, "") if part == "q" or groups is None else (groups, "_")
            value = split_heads(tensor, count) if kind == "weight" else tensor.reshape(count, -1)
            tensors[f"{at}.{stem}{'W' if kind == 'weight' else 'b'}_{part.upper()}"] = value
        elif part in ("gate", "in", "out"):
            tensors[f"{at}.{'W' if kind == 'weight' else 'b'}_{part}"] = tensor.T if kind == "weight" else tensor
    for name, tensor in list(tensors.items()):
        if name.endswith("mlp.W_in"):
            tensors.setdefault(name.replace("W_in", "b_in"), tensor.new_zeros(tensor.shape[1]))
            tensors.setdefault(name.replace("W_in", "b_out"), tensor.new_zeros(d))
    return tensors


READERS = (Reader("native TransformerBridge", _recognizes, _read, order=10),)
