"""State dicts of TransformerLens and of earlier research code with transposed matrices.

There are three layouts, all with the names embed.W_E, blocks.0.attn.W_Q, unembed.W_U and so on. TransformerLens
computes x @ W (W_Q is heads x d_model x d_head, W_O heads x d_head x d_model). "Progress measures for grokking" (Nanda
et al. 2023) computes W @ x, except for the unembedding, with all heads in one W_O. The first EasyTransformer computes
W @ x throughout. The shapes in a file usually fit only one layout.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from interp.errors import CheckpointError, first_few
from interp.models.architecture.settings import AS_IN_CONFIG, ASKED, BY_NAME, PASSIVE, SIZES, complete
from interp.models.architecture.stock import read_config
from interp.models.readers.base import Conversion, Reader, Source, no_biases

Turn = Callable[[Tensor, int], Tensor]


def _turn(matrix: Tensor, heads: int) -> Tensor:
    return matrix.transpose(-1, -2)


def _by_head(matrix: Tensor, heads: int) -> Tensor:
    return matrix.T.reshape(heads, -1, matrix.shape[0])


_FROM_LEFT = dict.fromkeys(("W_E", "W_Q", "W_K", "W_V", "W_O", "W_in", "W_out"), _turn)
LENS = "TransformerLens state dict"
LAYOUTS: dict[str, Mapping[str, Turn]] = {
    LENS: {},
    "plain tensors, multiplied from the left": {**_FROM_LEFT, "W_O": _by_head},
    "EasyTransformer state dict": {**_FROM_LEFT, "W_pos": _turn, "W_U": _turn},
}
SHAPES = {
    "W_E": ("vocab", "d"), "W_pos": ("ctx", "d"), "W_Q": ("heads", "d", "head"), "W_K": ("heads", "d", "head"),
    "W_V": ("heads", "d", "head"), "W_O": ("heads", "head", "d"), "W_in": ("d", "mlp"), "W_out": ("mlp", "d"),
    "W_U": ("d", "out"),
}  # fmt: skip
"""Axes of each matrix in TransformerLens's layout."""
CONSTANTS = (".mask", ".IGNORE")
ROTARY = (".rotary_sin", ".rotary_cos")


def _recognizes(source: Source) -> bool:
    names = source.tensors
    return "embed.W_E" in names and "unembed.W_U" in names and any(name.endswith("attn.W_O") for name in names)


def fits(tensors: Mapping[str, Tensor]) -> list[tuple[str, dict[str, Tensor]]]:
    """Find the layouts that fit all shapes of a file: name, and tensors in TransformerLens's layout."""
    layouts = {name: _turned(tensors, turns) for name, turns in LAYOUTS.items()}
    return [(name, turned) for name, turned in layouts.items() if turned is not None and _consistent(turned)]


def _turned(tensors: Mapping[str, Tensor], turns: Mapping[str, Turn]) -> dict[str, Tensor] | None:
    heads = tensors.get("blocks.0.attn.W_Q")
    if heads is None or heads.ndim != 3:
        return None
    turned = {}
    for name, tensor in tensors.items():
        kind = name.rsplit(".", 1)[-1]
        if kind in turns and not name.endswith(ROTARY):
            flat = turns[kind] is _by_head
            if tensor.ndim != (2 if flat else len(SHAPES[kind])) or (flat and tensor.shape[1] % len(heads)):
                return None
            tensor = turns[kind](tensor, len(heads))
        turned[name] = tensor
    return turned


def _consistent(tensors: Mapping[str, Tensor]) -> bool:
    """Test whether every axis has one length in all matrices."""
    sizes: dict[str, int] = {}
    for name, tensor in tensors.items():
        axes = SHAPES.get(name.rsplit(".", 1)[-1])
        if axes is None:
            continue
        if len(axes) != tensor.ndim or any(sizes.setdefault(a, n) != n for a, n in zip(axes, tensor.shape)):
            return False
    return {"d", "heads", "head", "vocab", "out"} <= set(sizes)


def is_whole(config: Any) -> bool:
    """Test whether this is a whole TransformerLens config rather than settings for a reader."""
    if isinstance(config, Mapping):
        return {"n_layers", "d_model", "d_vocab"} <= set(config)
    return config is not None


def read_lens(source: Source, config: Any) -> Conversion:
    """Read TransformerLens's tensors with a config that has at least the sizes."""
    return _conversion(LENS, source, source.tensors, read_config(config), ask=("normalization_type",))


def _read(source: Source, settings: Mapping[str, Any]) -> Conversion:
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
    name, tensors = matches[0]
    saved = str(source.config.get("act_type", source.config.get("act_fn", ""))).lower()
    known = {"act_fn": saved} if saved in ("relu", "gelu", "gelu_new", "silu") else {}
    tables = {name: tensor for name, tensor in source.tensors.items() if name.endswith(ROTARY)}
    ask = ASKED if name == LENS else ("act_fn",)
    return _conversion(name, source, tensors | tables, known | read_config(settings), ask)


def _conversion(
    name: str, source: Source, saved: Mapping[str, Tensor], config: Mapping[str, Any], ask: Collection[str]
) -> Conversion:
    """Complete the config and the biases of a model in TransformerLens's layout."""
    tensors = {name.replace(".w_ln", ".w").replace(".b_ln", ".b"): tensor for name, tensor in saved.items()
               if not name.endswith(CONSTANTS)}  # fmt: skip
    filled = complete(tensors, config, source.where, ask)
    zeros = _zeros(tensors, filled.fields)
    fields = filled.fields | {"positional_embedding_type": filled.fields["positional_embedding_type"] or "standard"}
    kinds = dict.fromkeys(re.sub(r"^blocks\.\d+\.", "", name) for name in zeros if name != "pos_embed.W_pos")
    notes = ((filled.sentence,) if filled.sentence else ()) + no_biases(source, *kinds)
    return Conversion(name, fields, tensors | zeros, notes=notes)


def _zeros(tensors: Mapping[str, Tensor], fields: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the biases, and the table of positions, that a file lacks because they are zero."""
    d, heads, head = fields["d_model"], fields["n_heads"], fields["d_head"]
    shapes = {"attn.b_Q": (heads, head), "attn.b_O": (d,)}
    stem, count = ("", heads) if fields["n_key_value_heads"] is None else ("_", fields["n_key_value_heads"])
    shapes |= {f"attn.{stem}b_K": (count, head), f"attn.{stem}b_V": (count, head)}
    if not fields["attn_only"] and not fields["num_experts"]:
        shapes |= {"mlp.b_in": (fields["d_mlp"],), "mlp.b_out": (d,)}
    by_name = {f"blocks.{i}.{name}": shape for i in range(fields["n_layers"]) for name, shape in shapes.items()}
    by_name["unembed.b_U"] = (fields["d_vocab_out"],)
    if fields["positional_embedding_type"] is None:
        by_name["pos_embed.W_pos"] = (fields["n_ctx"], d)
    return {name: torch.zeros(shape) for name, shape in by_name.items() if name not in tensors}


MEANINGS = {
    "act_fn": "the activation of the MLPs",
    "n_ctx": "the longest input, if there is no table of positions",
    "eps": "epsilon of the norms",
    "attention_dir": "causal or bidirectional",
    "attn_scale": "the number that scores are divided by",
    "normalization_type": "None, LN, LNPre, RMS or RMSPre",
    "use_attn_scale": "whether scores are divided by the square root of d_head",
    "positional_embedding_type": "standard, rotary, shortformer, alibi, or None for no positions",
}
SETTINGS = MEANINGS | {
    name: AS_IN_CONFIG for name in (*BY_NAME, *SIZES, *sorted(PASSIVE), "dtype") if name not in MEANINGS
}
READERS = (Reader("plain tensors with TransformerLens's names", _recognizes, _read, SETTINGS, order=40),)
