"""State dicts of TransformerLens and of earlier research code with transposed matrices.

There are three layouts, all with the names embed.W_E, blocks.0.attn.W_Q, unembed.W_U and so on. TransformerLens
computes x @ W (W_Q is heads x d_model x d_head, W_O heads x d_head x d_model). "Progress measures for grokking" (Nanda
et al. 2023) computes W @ x, except for the unembedding, with all heads in one W_O. The first EasyTransformer computes
W @ x throughout. The shapes in a file usually fit only one layout.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from interp.errors import CheckpointError, InterpError, first_few
from interp.models.readers.base import Conversion, NamedTensors, Reader, Source

Turn = Callable[[Tensor, int], Tensor]


def _turn(matrix: Tensor, heads: int) -> Tensor:
    return matrix.transpose(-1, -2)


def _by_head(matrix: Tensor, heads: int) -> Tensor:
    return matrix.T.reshape(heads, -1, matrix.shape[0])


_FROM_LEFT = dict.fromkeys(("W_E", "W_Q", "W_K", "W_V", "W_O", "W_in", "W_out"), _turn)
LAYOUTS: dict[str, Mapping[str, Turn]] = {
    "TransformerLens state dict": {},
    "plain tensors, multiplied from the left": {**_FROM_LEFT, "W_O": _by_head},
    "EasyTransformer state dict": {**_FROM_LEFT, "W_pos": _turn, "W_U": _turn},
}
SHAPES = {
    "W_E": ("vocab", "d"), "W_pos": ("ctx", "d"), "W_Q": ("heads", "d", "head"), "W_K": ("heads", "d", "head"),
    "W_V": ("heads", "d", "head"), "W_O": ("heads", "head", "d"), "W_in": ("d", "mlp"), "W_out": ("mlp", "d"),
    "W_U": ("d", "out"),
}  # fmt: skip
"""Axes of each matrix in TransformerLens's layout."""
CONSTANTS = (".mask", ".IGNORE", ".rotary_sin", ".rotary_cos")


def _recognizes(source: Source) -> bool:
    names = source.tensors
    return "embed.W_E" in names and "unembed.W_U" in names and any(name.endswith("attn.W_O") for name in names)


def fits(tensors: Mapping[str, Tensor]) -> list[tuple[str, dict[str, Tensor], dict[str, int]]]:
    """Find the layouts that fit all shapes of a file: name, tensors in TransformerLens's layout, and axis lengths."""
    found = []
    for name, turns in LAYOUTS.items():
        made = _turned(tensors, turns)
        if made is not None and (sizes := _sizes(made)) is not None:
            found.append((name, made, sizes))
    return found


def _turned(tensors: Mapping[str, Tensor], turns: Mapping[str, Turn]) -> dict[str, Tensor] | None:
    heads = tensors.get("blocks.0.attn.W_Q")
    if heads is None or heads.ndim != 3:
        return None
    made = {}
    for name, tensor in tensors.items():
        kind = name.rsplit(".", 1)[-1]
        if kind in turns:
            flat = turns[kind] is _by_head
            if tensor.ndim != (2 if flat else len(SHAPES[kind])) or (flat and tensor.shape[1] % len(heads)):
                return None
            tensor = turns[kind](tensor, len(heads))
        made[name] = tensor
    return made


def _sizes(tensors: Mapping[str, Tensor]) -> dict[str, int] | None:
    sizes: dict[str, int] = {}
    for name, tensor in tensors.items():
        axes = SHAPES.get(name.rsplit(".", 1)[-1])
        if axes is None:
            continue
        if len(axes) != tensor.ndim or any(sizes.setdefault(a, n) != n for a, n in zip(axes, tensor.shape)):
            return None
    return sizes if {"d", "heads", "head", "vocab", "out"} <= set(sizes) else None


def _read(source: Source, given: Mapping[str, Any]) -> Conversion:
    matches = fits({name: tensor for name, tensor in source.tensors.items() if not name.endswith(CONSTANTS)})
    if not matches:
        raise CheckpointError(
            f"{source.where} has TransformerLens's names, but the shapes of its matrices fit no known layout "
            f"({first_few(LAYOUTS)})"
        )
    if len(matches) > 1:
        raise CheckpointError(
            f"{source.where}: its shapes fit {len(matches)} layouts ({first_few(name for name, *_ in matches)}): pass "
            "TransformerLens's config if it is the first, otherwise transpose the matrices to TransformerLens's layout"
        )
    name, tensors, sizes = matches[0]
    weights = NamedTensors(Source(source.where, tensors))
    n_layers = 1 + max(int(m.group(1)) for t in tensors if (m := re.match(r"blocks\.(\d{1,4})\.", t)))
    normed = any(re.search(r"ln(1|_final)\.(w|w_ln)$", t) for t in tensors)
    fields = {
        "n_layers": n_layers,
        "d_model": sizes["d"],
        "n_heads": sizes["heads"],
        "d_head": sizes["head"],
        "d_vocab": sizes["vocab"],
        "n_ctx": sizes.get("ctx") or int(given.get("n_ctx", 0)),
        "attn_only": "mlp" not in sizes,
        "normalization_type": "LN" if normed else None,
        **({"d_mlp": sizes["mlp"]} if "mlp" in sizes else {}),
        **given,
    }
    if name == "TransformerLens state dict":
        _ask(source.where, given, normed, "mlp" in sizes)
    if not fields["n_ctx"]:
        raise InterpError(
            f'{source.where} has no table of positions: pass config={{"n_ctx": ...}}, the length of its longest input'
        )
    if "mlp" in sizes and "act_fn" not in given:
        saved = str(source.config.get("act_type", source.config.get("act_fn", ""))).lower()
        if saved not in ("relu", "gelu", "gelu_new", "silu"):
            raise InterpError(
                f'{source.where} does not contain the activation of its MLPs; pass config={{"act_fn": "relu"}}'
            )
        fields["act_fn"] = saved
    assumed = {
        "attn_scale": "scores are divided by the square root of d_head",
        "attention_dir": "attention is causal",
        "normalization_type": "norms are layer norms" if normed else "there are no norms",
    }
    left = ", ".join(text for setting, text in assumed.items() if setting not in given)
    notes = (f"It is assumed that {left}; config= changes this.",) if left else ()
    return Conversion(name, fields, _complete(weights, fields), notes=notes)


def _ask(where: str, given: Mapping[str, Any], normed: bool, mlp: bool) -> None:
    """Raise InterpError for missing settings that TransformerLens's tensors do not determine."""
    wanted: dict[str, str | None] = {"attention_dir": "causal"}
    wanted |= {} if normed else {"normalization_type": None}
    wanted |= {"act_fn": "relu"} if mlp else {}
    if missing := {key: value for key, value in wanted.items() if key not in given}:
        raise InterpError(
            f"{where} needs the config of its model: the whole TransformerLens config, or the settings that the "
            f"tensors do not determine, such as config={missing}"
        )


def _complete(weights: NamedTensors, fields: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return all tensors of the config. Tensors that are missing in the file are zero."""
    d, heads, head = fields["d_model"], fields["n_heads"], fields["d_head"]
    found = {
        "embed.W_E": weights.take("embed.W_E"),
        "pos_embed.W_pos": weights.maybe("pos_embed.W_pos", fields["n_ctx"], d),
    }
    norm = [f"blocks.{i}.ln{k}" for i in range(fields["n_layers"]) for k in ((1,) if fields["attn_only"] else (1, 2))]
    for name in [*norm, "ln_final"] if fields["normalization_type"] == "LN" else []:
        for ours in "wb":
            theirs = f"{name}.{ours}_ln" if weights.has(f"{name}.{ours}_ln") else f"{name}.{ours}"
            found[f"{name}.{ours}"] = weights.take(theirs, d)
    for index in range(fields["n_layers"]):
        at = f"blocks.{index}."
        for name in "QKVO":
            found[f"{at}attn.W_{name}"] = weights.take(f"{at}attn.W_{name}")
            found[f"{at}attn.b_{name}"] = weights.maybe(f"{at}attn.b_{name}", *((d,) if name == "O" else (heads, head)))
        if not fields["attn_only"]:
            found[f"{at}mlp.W_in"], found[f"{at}mlp.W_out"] = (
                weights.take(f"{at}mlp.W_in"),
                weights.take(f"{at}mlp.W_out"),
            )
            found[f"{at}mlp.b_in"] = weights.maybe(f"{at}mlp.b_in", fields["d_mlp"])
            found[f"{at}mlp.b_out"] = weights.maybe(f"{at}mlp.b_out", d)
    found["unembed.W_U"] = weights.take("unembed.W_U")
    found["unembed.b_U"] = weights.maybe("unembed.b_U", found["unembed.W_U"].shape[1])
    weights.finish(*CONSTANTS)
    return found


SETTINGS = {
    "act_fn": "the activation of the MLPs",
    "n_ctx": "the longest input, if there is no table of positions",
    "eps": "epsilon of the layer norms",
    "attention_dir": "causal or bidirectional",
    "attn_scale": "the number that scores are divided by",
    "normalization_type": "None, LN or LNPre",
    "use_attn_scale": "whether scores are divided by the square root of d_head",
}
READERS = (Reader("plain tensors with TransformerLens's names", _recognizes, _read, SETTINGS, order=40),)
