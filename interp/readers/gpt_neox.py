"""Hugging Face folders of GPT-NeoX, such as Pythia: partially rotary positions, and optionally parallel blocks."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from interp.errors import CheckpointError
from interp.readers.base import (
    Config,
    Conversion,
    NamedTensors,
    Reader,
    Source,
    activation,
    head_size,
    join_heads,
    unembedding,
)
from interp.readers.llama import LONGEST, SETTINGS, rotary_base
from interp.readers.originals import hugging_face


def _recognizes(source: Source) -> bool:
    return source.config.get("model_type") == "gpt_neox"


def _read(source: Source, given: Mapping[str, Any]) -> Conversion:
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
        "n_ctx": Config("config", given).size(
            "n_ctx", default=min(LONGEST, config.size("max_position_embeddings", default=LONGEST))
        ),
        "act_fn": activation(source.where, config.word("hidden_act", default="gelu")),
        "eps": config.number("layer_norm_eps", default=1e-5),
        "normalization_type": "LN",
        "positional_embedding_type": "rotary",
        "rotary_dim": int(size * share),
        "rotary_base": rotary_base(config),
        "parallel_attn_mlp": config.flag("use_parallel_residual", True),
    }
    if fields["rotary_dim"] % 2 or not fields["rotary_dim"]:
        raise CheckpointError(
            f"{source.where}: rotary_pct = {share:g} rotates {fields['rotary_dim']} of {size} dimensions; the number "
            "must be even and at least 2"
        )
    tensors = _tensors(source, fields, config.flag("tie_word_embeddings", False))
    fields["d_vocab_out"] = tensors["unembed.W_U"].shape[1]
    return Conversion("Hugging Face GPT-NeoX", fields, tensors, vocabulary=source.vocabulary,
                   original=hugging_face(source))  # fmt: skip


def _tensors(source: Source, fields: Mapping[str, Any], tied: bool) -> dict[str, Tensor]:
    d, heads, size, inner = (fields[name] for name in ("d_model", "n_heads", "d_head", "d_mlp"))
    prefix = "gpt_neox." if source.any_name("gpt_neox.embed_in.weight") else ""
    weights = NamedTensors(source, prefix)
    embedding = weights.take("embed_in.weight", fields["d_vocab"], d)
    found = {"embed.W_E": embedding}
    for index in range(fields["n_layers"]):
        theirs, ours = f"layers.{index}.", f"blocks.{index}."
        for old, new in (("input_layernorm", "ln1"), ("post_attention_layernorm", "ln2")):
            found[f"{ours}{new}.w"] = weights.take(f"{theirs}{old}.weight", d)
            found[f"{ours}{new}.b"] = weights.take(f"{theirs}{old}.bias", d)
        part = f"{theirs}attention.query_key_value"
        # One matrix for queries, keys and values, in the order (head, Q/K/V, d_head).
        matrix = weights.take(f"{part}.weight", 3 * heads * size, d).reshape(heads, 3, size, d)
        bias = weights.maybe(f"{part}.bias", 3 * heads * size).reshape(heads, 3, size)
        for i, name in enumerate("QKV"):
            found[f"{ours}attn.W_{name}"] = matrix[:, i].transpose(1, 2)
            found[f"{ours}attn.b_{name}"] = bias[:, i]
        found[f"{ours}attn.W_O"] = join_heads(weights.take(f"{theirs}attention.dense.weight", d, heads * size), heads)
        found[f"{ours}attn.b_O"] = weights.maybe(f"{theirs}attention.dense.bias", d)
        found[f"{ours}mlp.W_in"] = weights.take(f"{theirs}mlp.dense_h_to_4h.weight", inner, d).T
        found[f"{ours}mlp.b_in"] = weights.take(f"{theirs}mlp.dense_h_to_4h.bias", inner)
        found[f"{ours}mlp.W_out"] = weights.take(f"{theirs}mlp.dense_4h_to_h.weight", d, inner).T
        found[f"{ours}mlp.b_out"] = weights.take(f"{theirs}mlp.dense_4h_to_h.bias", d)
    found["ln_final.w"] = weights.take("final_layer_norm.weight", d)
    found["ln_final.b"] = weights.take("final_layer_norm.bias", d)
    head = "lm_head" if "lm_head.weight" in weights.left else "embed_out"
    found |= unembedding(weights, embedding, head, tied)
    weights.finish("attention.bias", "masked_bias", "rotary_emb.inv_freq")
    return found


READERS = (Reader("Hugging Face GPT-NeoX", _recognizes, _read, SETTINGS),)
