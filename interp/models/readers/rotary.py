"""Hugging Face folders of models with rotary positions: the Llama family, and GPT-NeoX, such as Pythia.

Llama, mistral, qwen2 and qwen3 have RMSNorm, gated MLPs, grouped keys and values, and (qwen3) norms of queries and
keys. GPT-NeoX rotates a part of each head, and its blocks may be parallel.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from interp.errors import CheckpointError, short
from interp.models.readers.base import (
    Config,
    Conversion,
    NamedTensors,
    Reader,
    Source,
    activation,
    head_size,
    join_heads,
    no_biases,
    split_heads,
    unembedding,
)
from interp.models.readers.sources import hugging_face

KINDS = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen 2", "qwen3": "Qwen 3"}
LONGEST = 1024
"""Default limit of n_ctx: rotary positions have no table, but TransformerLens stores a mask of n_ctx x n_ctx."""
SETTINGS = {"n_ctx": f"the longest input in tokens, if {LONGEST} is too short"}


def _read_llama(source: Source, settings: Mapping[str, Any]) -> Conversion:
    config, kind = Config(source.where, source.config), source.config["model_type"]
    d, heads = config.size("hidden_size"), config.size("num_attention_heads")
    longest, n_ctx = _lengths(config, settings)
    fields = {
        "n_layers": config.size("num_hidden_layers"),
        "d_model": d,
        "n_heads": heads,
        "n_key_value_heads": config.size("num_key_value_heads", default=heads),
        "d_head": config.size("head_dim", default=max(1, d // heads)),
        "d_mlp": config.size("intermediate_size"),
        "d_vocab": config.size("vocab_size"),
        "n_ctx": n_ctx,
        "act_fn": activation(source.where, config.word("hidden_act", default="silu")),
        "eps": config.number("rms_norm_eps", default=1e-6),
        "normalization_type": "RMS",
        "gated_mlp": True,
        "positional_embedding_type": "rotary",
        "rotary_base": _rotary_base(config),
        "use_qk_norm": kind == "qwen3",
    }
    _check_windows(config, kind, n_ctx)
    if fields["d_head"] % 2 or heads % fields["n_key_value_heads"]:
        raise CheckpointError(
            f"{source.where}: {heads} heads of size {fields['d_head']} with {fields['n_key_value_heads']} key heads: "
            "the size must be even, and the number of heads a multiple of the number of key heads"
        )
    fields["rotary_dim"] = fields["d_head"]
    tensors = _llama_tensors(source, fields, config.flag("tie_word_embeddings", False))
    notes: tuple[str, ...] = () if n_ctx == longest else (
        f"Inputs are limited to {n_ctx} tokens (the model allows {longest:,}); config={{'n_ctx': ...}} changes it.",
    )  # fmt: skip
    notes += no_biases(source, *_llama_biases(config, kind))
    return Conversion(f"Hugging Face {KINDS[kind]}", fields, tensors, vocabulary=source.vocabulary, notes=notes,
                   original=hugging_face(source))  # fmt: skip


def _llama_biases(config: Config, kind: str) -> list[str]:
    """Return the biases that a config says its model has: most of these models have none."""
    attention, mlp = config.flag("attention_bias", False), config.flag("mlp_bias", False)
    names = ["q_proj", "k_proj", "v_proj"] * (attention or kind == "qwen2") + ["o_proj"] * (
        attention and kind != "qwen2"
    )
    return [f"{name}.bias" for name in names + ["down_proj"] * mlp]


def _lengths(config: Config, settings: Mapping[str, Any]) -> tuple[int, int]:
    """Return the longest input that the model allows, and n_ctx."""
    longest = config.size("max_position_embeddings", default=LONGEST)
    return longest, Config("config", settings).size("n_ctx", default=min(longest, LONGEST))


def _rotary_base(config: Config) -> float:
    """Return the base of rotary positions, by its old or new name. Raises CheckpointError for scaled positions."""
    saved: Any = config.fields.get("rope_parameters") or config.fields.get("rope_scaling") or {}
    if not isinstance(saved, Mapping):
        raise CheckpointError(f"{config.where}: rope_parameters = {short(saved)} must be a table")
    kind = saved.get("rope_type", saved.get("type", "default"))
    if kind not in ("default", None):
        raise CheckpointError(f"{config.where}: rope_type = {short(kind)} is not supported, only default")
    inner = Config(config.where, saved)
    return inner.number("rope_theta", default=config.number("rope_theta", "rotary_emb_base", default=10_000.0))


def _check_windows(config: Config, kind: str, n_ctx: int) -> None:
    """Raise CheckpointError if a sliding window is shorter than the longest input."""
    window = config.fields.get("sliding_window")
    used = kind == "mistral" or config.fields.get("use_sliding_window")
    if used and isinstance(window, int) and window < n_ctx:
        raise CheckpointError(
            f"{config.where}: sliding_window = {window} is shorter than the longest input of {n_ctx} tokens; "
            f"config={{'n_ctx': {window}}} limits inputs to lengths for which the window has no effect"
        )
    if used and "sliding_attention" in str(config.fields.get("layer_types")) and not isinstance(window, int):
        raise CheckpointError(f"{config.where}: layer_types = sliding_attention needs sliding_window")


def _llama_tensors(source: Source, fields: Mapping[str, Any], tied: bool) -> dict[str, Tensor]:
    d, size, inner = fields["d_model"], fields["d_head"], fields["d_mlp"]
    heads, keys = fields["n_heads"], fields["n_key_value_heads"]
    prefix = "model." if source.any_name("model.embed_tokens.weight") else ""
    weights = NamedTensors(source, prefix)
    embedding = weights.take("embed_tokens.weight", fields["d_vocab"], d)
    tensors = {"embed.W_E": embedding}
    for index in range(fields["n_layers"]):
        theirs, ours = f"layers.{index}.", f"blocks.{index}."
        tensors[f"{ours}ln1.w"] = weights.take(f"{theirs}input_layernorm.weight", d)
        tensors[f"{ours}ln2.w"] = weights.take(f"{theirs}post_attention_layernorm.weight", d)
        for name, count, stem in (("q", heads, ""), ("k", keys, "_"), ("v", keys, "_")):
            part = f"{theirs}self_attn.{name}_proj"
            tensors[f"{ours}attn.{stem}W_{name.upper()}"] = split_heads(
                weights.take(f"{part}.weight", count * size, d), count
            )
            tensors[f"{ours}attn.{stem}b_{name.upper()}"] = weights.maybe(f"{part}.bias", count * size).reshape(
                count, size
            )
        part = f"{theirs}self_attn.o_proj"
        tensors[f"{ours}attn.W_O"] = join_heads(weights.take(f"{part}.weight", d, heads * size), heads)
        tensors[f"{ours}attn.b_O"] = weights.maybe(f"{part}.bias", d)
        if fields["use_qk_norm"]:
            tensors[f"{ours}attn.q_norm.w"] = weights.take(f"{theirs}self_attn.q_norm.weight", size)
            tensors[f"{ours}attn.k_norm.w"] = weights.take(f"{theirs}self_attn.k_norm.weight", size)
        gate, up = f"{theirs}mlp.gate_proj", f"{theirs}mlp.up_proj"
        if weights.has(f"{gate}.bias") and weights.maybe(f"{gate}.bias", inner).any():
            raise CheckpointError(f"{source.where}: TransformerLens does not support {prefix}{gate}.bias")
        tensors[f"{ours}mlp.W_gate"] = weights.take(f"{gate}.weight", inner, d).T
        tensors[f"{ours}mlp.W_in"] = weights.take(f"{up}.weight", inner, d).T
        if weights.has(f"{up}.bias") and weights.maybe(f"{up}.bias", inner).any():
            raise CheckpointError(
                f"{source.where}: TransformerLens does not support {prefix}{up}.bias; its b_in is added after the gate"
            )
        tensors[f"{ours}mlp.b_in"] = torch.zeros(inner)
        tensors[f"{ours}mlp.W_out"] = weights.take(f"{theirs}mlp.down_proj.weight", d, inner).T
        tensors[f"{ours}mlp.b_out"] = weights.maybe(f"{theirs}mlp.down_proj.bias", d)
    tensors["ln_final.w"] = weights.take("norm.weight", d)
    tensors |= unembedding(weights, embedding, "lm_head", tied)
    weights.finish("rotary_emb.inv_freq")
    return tensors


def _read_neox(source: Source, settings: Mapping[str, Any]) -> Conversion:
    config = Config(source.where, source.config)
    d, heads = config.size("hidden_size"), config.size("num_attention_heads")
    size = head_size(source.where, d, heads)
    saved = config.fields.get("rope_parameters")
    inner = Config(source.where, saved if isinstance(saved, Mapping) else {})
    share = inner.number("partial_rotary_factor", default=config.number("rotary_pct", default=0.25))
    fields: dict[str, Any] = {
        "n_layers": config.size("num_hidden_layers"),
        "d_model": d,
        "n_heads": heads,
        "d_head": size,
        "d_mlp": config.size("intermediate_size"),
        "d_vocab": config.size("vocab_size"),
        "n_ctx": _lengths(config, settings)[1],
        "act_fn": activation(source.where, config.word("hidden_act", default="gelu")),
        "eps": config.number("layer_norm_eps", default=1e-5),
        "normalization_type": "LN",
        "positional_embedding_type": "rotary",
        "rotary_dim": int(size * share),
        "rotary_base": _rotary_base(config),
        "parallel_attn_mlp": config.flag("use_parallel_residual", True),
    }
    if fields["rotary_dim"] % 2 or not fields["rotary_dim"]:
        raise CheckpointError(
            f"{source.where}: rotary_pct = {share:g} rotates {fields['rotary_dim']} of {size} dimensions; the number "
            "must be even and at least 2"
        )
    tensors = _neox_tensors(source, fields, config.flag("tie_word_embeddings", False))
    biases = ("query_key_value.bias", "dense.bias") if config.flag("attention_bias", True) else ()
    return Conversion("Hugging Face GPT-NeoX", fields, tensors, vocabulary=source.vocabulary,
                   notes=no_biases(source, *biases), original=hugging_face(source))  # fmt: skip


def _neox_tensors(source: Source, fields: Mapping[str, Any], tied: bool) -> dict[str, Tensor]:
    d, heads, size, inner = (fields[name] for name in ("d_model", "n_heads", "d_head", "d_mlp"))
    prefix = "gpt_neox." if source.any_name("gpt_neox.embed_in.weight") else ""
    weights = NamedTensors(source, prefix)
    embedding = weights.take("embed_in.weight", fields["d_vocab"], d)
    tensors = {"embed.W_E": embedding}
    for index in range(fields["n_layers"]):
        theirs, ours = f"layers.{index}.", f"blocks.{index}."
        for old, new in (("input_layernorm", "ln1"), ("post_attention_layernorm", "ln2")):
            tensors[f"{ours}{new}.w"] = weights.take(f"{theirs}{old}.weight", d)
            tensors[f"{ours}{new}.b"] = weights.take(f"{theirs}{old}.bias", d)
        part = f"{theirs}attention.query_key_value"
        # One matrix for queries, keys and values, in the order (head, Q/K/V, d_head).
        matrix = weights.take(f"{part}.weight", 3 * heads * size, d).reshape(heads, 3, size, d)
        bias = weights.maybe(f"{part}.bias", 3 * heads * size).reshape(heads, 3, size)
        for i, name in enumerate("QKV"):
            tensors[f"{ours}attn.W_{name}"] = matrix[:, i].transpose(1, 2)
            tensors[f"{ours}attn.b_{name}"] = bias[:, i]
        tensors[f"{ours}attn.W_O"] = join_heads(weights.take(f"{theirs}attention.dense.weight", d, heads * size), heads)
        tensors[f"{ours}attn.b_O"] = weights.maybe(f"{theirs}attention.dense.bias", d)
        tensors[f"{ours}mlp.W_in"] = weights.take(f"{theirs}mlp.dense_h_to_4h.weight", inner, d).T
        tensors[f"{ours}mlp.b_in"] = weights.take(f"{theirs}mlp.dense_h_to_4h.bias", inner)
        tensors[f"{ours}mlp.W_out"] = weights.take(f"{theirs}mlp.dense_4h_to_h.weight", d, inner).T
        tensors[f"{ours}mlp.b_out"] = weights.take(f"{theirs}mlp.dense_4h_to_h.bias", d)
    tensors["ln_final.w"] = weights.take("final_layer_norm.weight", d)
    tensors["ln_final.b"] = weights.take("final_layer_norm.bias", d)
    head = "lm_head" if "lm_head.weight" in weights.left else "embed_out"
    tensors |= unembedding(weights, embedding, head, tied)
    weights.finish("attention.bias", "masked_bias", "rotary_emb.inv_freq")
    return tensors


READERS = (
    Reader(
        "Hugging Face Llama, Mistral or Qwen", lambda s: str(s.config.get("model_type")) in KINDS, _read_llama, SETTINGS
    ),
    Reader("Hugging Face GPT-NeoX", lambda s: s.config.get("model_type") == "gpt_neox", _read_neox, SETTINGS),
)
