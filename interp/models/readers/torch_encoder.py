"""torch.nn.TransformerEncoder, alone or inside a module with an embedding, positions and an output layer.

A state dict does not contain the number of heads, the place of norms, the activation or the attention mask; a module
contains all of these except for the mask. TransformerLens does not support post-norm blocks, PyTorch's default, so
these models become task models.
"""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from interp.errors import CheckpointError, InterpError, first_few
from interp.models.architecture.settings import assumptions
from interp.models.readers import base
from interp.models.spec import MLP, Bias, Layer

BIASES = ("self_attn.in_proj_bias", "self_attn.out_proj.bias", "linear1.bias", "linear2.bias", "norm1.bias",
          "norm2.bias")  # fmt: skip
FIRST = re.compile(r"^(.*?)layers\.0\.self_attn\.in_proj_weight$")
SETTINGS = {
    "n_heads": "nhead of the layers",
    "norm_first": "whether norms come before attention and MLP (PyTorch's default: False)",
    "act_fn": "the activation, relu (PyTorch's default) or gelu",
    "eps": "layer_norm_eps",
    "causal": "whether a causal mask is given to the encoder (default: False)",
    "embed": "the name of the embedding's tensor",
    "positions": "the name of the table of positions, (length, d_model)",
    "unembed": "the name of the output layer's matrix",
}


def _read(source: base.Source, settings: Mapping[str, Any]) -> base.Conversion:
    prefixes = [match.group(1) for name in source.tensors if (match := FIRST.match(name))]
    if len(prefixes) > 1:
        raise CheckpointError(
            f"{source.where} has {len(prefixes)} encoders ({first_few(prefixes)}); only one is supported"
        )
    prefix = prefixes[0]
    config = base.Config(source.where, {**_settings(source, prefix), **settings})
    if "n_heads" not in config.fields:
        raise InterpError(
            f"{source.where} does not contain the number of heads of its torch.nn.TransformerEncoder; pass "
            'config={"n_heads": 4}, and norm_first, act_fn and causal unless they are False, relu and False'
        )
    weights = base.NamedTensors(source)
    d = source.tensors[f"{prefix}layers.0.self_attn.in_proj_weight"].shape[-1]
    heads, causal = config.size("n_heads"), config.flag("causal", False)
    first = config.flag("norm_first", False)
    size = base.head_size(source.where, d, heads)
    word: Any = base.activation(source.where, config.word("act_fn", default="relu"))
    if word not in ("relu", "gelu"):
        raise CheckpointError(f"{source.where}: activation {word} is not supported, only relu and gelu")
    numbers = {
        int(m.group(1)) for name in source.tensors if (m := re.match(re.escape(prefix) + r"layers\.(\d{1,4})\.", name))
    }
    tensors: dict[str, Tensor] = {}
    layers = []
    for index in range(max(numbers) + 1):
        of_layer, inner = _layer(weights, f"{prefix}layers.{index}.", d, heads)
        tensors |= {f"blocks.{index}.{name}": tensor for name, tensor in of_layer.items()}
        layers.append(
            Layer(
                n_heads=heads,
                d_head=size,
                bias=Bias(q=True, k=True, v=True, o=True),
                mlp=MLP(d_mlp=inner, activation=word),
                norm="pre" if first else "post",
                norm_eps=config.number("eps", default=1e-5),
            )
        )
    final = weights.has(f"{prefix}norm.weight")
    if final:
        tensors |= {
            "ln_final.w": weights.take(f"{prefix}norm.weight", d),
            "ln_final.b": weights.take(f"{prefix}norm.bias", d),
        }
    ends, length, notes = _ends(weights, d, settings)
    notes += [assumptions(config.assumed), base.NO_FACTOR, *base.no_biases(source, *BIASES)]
    blocks = base.Layers(tuple(layers), causal, final, length)
    fields = {
        "n_layers": len(layers), "d_model": d, "n_heads": heads, "d_head": size, "d_mlp": layers[0].mlp.d_mlp,  # type: ignore[union-attr]
        "act_fn": word, "norm_first": first, "causal": causal,
    }  # fmt: skip
    module = _Masked(source.original, _encoder(source, prefix)) if causal and source.original is not None else None
    return base.Conversion(
        "torch.nn.TransformerEncoder", fields, tensors | ends, blocks=blocks, notes=tuple(notes), module=module
    )


class _Masked(nn.Module):
    """A module whose encoder gets a causal mask, if nothing else gives it one: the mask is no part of an encoder."""

    def __init__(self, whole: nn.Module, encoder: nn.Module) -> None:
        super().__init__()
        self.whole, self.encoder = whole, encoder

    def forward(self, tokens: Tensor) -> Any:
        def mask(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
            if len(args) < 2 and kwargs.get("mask") is None:
                kwargs = {**kwargs, "mask": torch.ones(2 * tokens.shape[1:2], dtype=torch.bool).triu(1)}
            return args, kwargs

        hook = self.encoder.register_forward_pre_hook(mask, with_kwargs=True)
        try:
            return self.whole(tokens)
        finally:
            hook.remove()


def _encoder(source: base.Source, prefix: str) -> nn.Module:
    assert source.module is not None
    return source.module.get_submodule(prefix.rstrip(".")) if prefix else source.module


def _settings(source: base.Source, prefix: str) -> dict[str, Any]:
    """Read the settings of the layers from the module, if one was given."""
    if source.module is None:
        return {}
    layer: Any = _encoder(source, prefix).layers[0]  # type: ignore[index]
    if not isinstance(layer, nn.TransformerEncoderLayer):
        return {}
    words = {functional.relu: "relu", functional.gelu: "gelu"}
    called = layer.activation
    word = words.get(called) or {nn.ReLU: "relu", nn.GELU: "gelu"}.get(type(called))
    if word is None or (isinstance(called, nn.GELU) and called.approximate != "none"):
        name = getattr(called, "__name__", called)
        raise CheckpointError(f"{source.where}: activation {name} is not supported, only relu and gelu")
    return {
        "n_heads": layer.self_attn.num_heads,
        "norm_first": layer.norm_first,
        "act_fn": word,
        "eps": layer.norm1.eps,
    }


def _layer(weights: base.NamedTensors, at: str, d: int, heads: int) -> tuple[dict[str, Tensor], int]:
    """Return the tensors of one layer under interp's names, and the width of its MLP."""
    tensors: dict[str, Tensor] = {}
    matrix = weights.take(f"{at}self_attn.in_proj_weight", 3 * d, d)
    bias = weights.maybe(f"{at}self_attn.in_proj_bias", 3 * d)
    for name, part, b in zip("QKV", matrix.split(d), bias.split(d)):
        tensors[f"attn.W_{name}"], tensors[f"attn.b_{name}"] = base.split_heads(part, heads), b.reshape(heads, -1)
    tensors["attn.W_O"] = base.join_heads(weights.take(f"{at}self_attn.out_proj.weight", d, d), heads)
    tensors["attn.b_O"] = weights.maybe(f"{at}self_attn.out_proj.bias", d)
    inner = weights.take(f"{at}linear1.weight", None, d)
    tensors["mlp.W_in"], tensors["mlp.b_in"] = inner.T, weights.maybe(f"{at}linear1.bias", len(inner))
    tensors["mlp.W_out"] = weights.take(f"{at}linear2.weight", d, len(inner)).T
    tensors["mlp.b_out"] = weights.maybe(f"{at}linear2.bias", d)
    for index in (1, 2):
        tensors[f"ln{index}.w"] = weights.take(f"{at}norm{index}.weight", d)
        tensors[f"ln{index}.b"] = weights.maybe(f"{at}norm{index}.bias", d)
    return tensors, len(inner)


def _ends(
    weights: base.NamedTensors, d: int, config: Mapping[str, Any]
) -> tuple[dict[str, Tensor], int | None, list[str]]:
    """Find embedding, positions and readout among the remaining tensors: named by the user, or the only candidates."""
    left = {name: tensor for name, tensor in weights.left.items() if tensor.is_floating_point()}
    flat = {name: t.reshape(-1, d) if t.ndim == 3 and 1 in t.shape[:2] else t for name, t in left.items()}
    tables = {name: t for name, t in flat.items() if t.ndim == 2 and t.shape[1] == d}
    chosen: dict[str, str | None] = {}
    hints = {"positions": ("pos", "pe"), "unembed": ("head", "out", "unembed", "decoder", "classifier", "fc", "lin"),
             "embed": ("emb", "tok", "wte")}  # fmt: skip
    for role, words in hints.items():
        if role in config:
            if config[role] not in tables:
                raise InterpError(
                    f"{role} = {config[role]!r} is not a tensor of width {d}; these are: {first_few(tables)}"
                )
            chosen[role] = config[role]
        else:
            fits = [
                name for name in tables if name not in chosen.values() and any(word in name.lower() for word in words)
            ]
            if role == "unembed":
                fits = [name for name in fits if name.endswith("weight") and tables[name] is left[name]]
            if len(fits) > 1 or (not fits and role != "positions"):
                raise InterpError(
                    f"{weights.where}: the tensor for {role} is not clear; pass its name as config={{{role!r}: ...}}, "
                    f"one of {first_few(tables, 8)}"
                )
            chosen[role] = fits[0] if fits else None
    embed, positions, unembed = chosen["embed"], chosen["positions"], chosen["unembed"]
    assert embed is not None
    assert unembed is not None
    matrix = tables[unembed]
    bias = weights.left.get(f"{unembed.removesuffix('weight')}bias", torch.zeros(len(matrix)))
    tensors = {"embed.W_E": tables[embed], "unembed.W_U": matrix.T, "unembed.b_U": bias}
    for name in (embed, unembed, f"{unembed.removesuffix('weight')}bias"):
        weights.left.pop(name, None)
    places = "no table of positions was found" if positions is None else f"{positions} is the table of positions"
    named = set(hints) <= set(config)
    notes = [] if named else [f"{embed} is assumed to be the embedding, {unembed} the output layer; {places}."]
    length = None
    if positions is not None:
        tensors["pos_embed.W_pos"], length = tables[positions], len(tables[positions])
        weights.left.pop(positions)
    weights.finish("num_batches_tracked")
    return tensors, length, notes


READERS = (base.Reader("torch.nn.TransformerEncoder", lambda s: any(map(FIRST.match, s.tensors)), _read, SETTINGS),)
