"""GPT-2's layout: Hugging Face folders, nanoGPT's ckpt.pt and minGPT's state dicts.

All three use names like transformer.h.0.attn.c_attn. Hugging Face stores matrices as (inputs, outputs), in folders and
in bare state dicts, the other two as (outputs, inputs), like torch.nn.Linear. The shape of c_attn shows which is used.
"""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from interp.errors import CheckpointError, first_few
from interp.models.architecture.settings import AS_IN_CONFIG, BY_NAME, assumptions, complete
from interp.models.readers.base import (
    NO_FACTOR,
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

BIASES = ("attn.c_attn.bias", "attn.c_proj.bias", "mlp.c_fc.bias", "mlp.c_proj.bias")
NORM_BIASES = ("ln_1.bias", "ln_2.bias", "ln_f.bias")
BUFFERS = ("attn.bias", "attn.masked_bias", "rotary_emb.inv_freq")
NANO = ("n_layer", "n_head", "n_embd", "block_size", "vocab_size", "bias", "dropout")
"""The fields of nanoGPT's model_args."""
SETTINGS = dict.fromkeys(BY_NAME, AS_IN_CONFIG) | {
    "n_heads": "the number of heads, if the file does not contain it",
    "act_fn": "the activation: relu, gelu, gelu_new or silu",
    "eps": "epsilon of the norms",
    "normalization_type": "LN or RMS, if norms have no biases",
}


def _recognizes_linear(source: Source) -> bool:
    return "model_type" not in source.config and source.any_name("h.0.attn.c_attn.weight")


def _read_hugging_face(source: Source, settings: Mapping[str, Any]) -> Conversion:
    config = Config(source.where, source.config)
    config.refuse(scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    fields: dict[str, Any] = {
        "n_layers": config.size("n_layer", default=12),
        "d_model": config.size("n_embd", default=768),
        "n_heads": config.size("n_head", default=12),
        "n_ctx": config.size("n_positions", "n_ctx", default=1024),
        "d_vocab": config.size("vocab_size", default=50257),
        "act_fn": activation(source.where, config.word("activation_function", default="gelu_new")),
        "eps": config.number("layer_norm_epsilon", default=1e-5),
        "use_attn_scale": config.flag("scale_attn_weights", True),
    }
    fields["d_mlp"] = config.size("n_inner", default=4 * fields["d_model"])
    tied = config.flag("tie_word_embeddings", True)
    tensors = _tensors(source, fields, lambda matrix: matrix.T, tied)
    return Conversion("Hugging Face GPT-2", fields, tensors, vocabulary=source.vocabulary,
                   notes=no_biases(source, *BIASES, *NORM_BIASES), original=hugging_face(source))  # fmt: skip


def _read_linear(source: Source, settings: Mapping[str, Any]) -> Conversion:
    config = Config(source.where, {**source.config, **settings})
    prefix = _prefix(source)
    table = source.tensors.get(f"{prefix}wte.weight")
    places = source.tensors.get(f"{prefix}wpe.weight")
    if table is None or places is None or table.ndim != 2 or places.ndim != 2:
        raise CheckpointError(f"{source.where} lacks the tables {prefix}wte.weight and {prefix}wpe.weight")
    nano, inner = "block_size" in source.config, source.tensors.get(f"{prefix}h.0.mlp.c_fc.weight", table)
    turned = source.tensors[f"{prefix}h.0.attn.c_attn.weight"].shape[0] == table.shape[1]
    if config.fields.get("n_heads", config.fields.get("n_head")) is None:
        raise CheckpointError(
            f'{source.where} does not contain the number of heads; pass config={{"n_heads": 4}}, and act_fn unless it '
            "is gelu_new"
        )
    word = config.word("act_fn", default="gelu" if nano else "gelu_new")
    n_layers = 1 + max((int(rest) for name in source.tensors if (rest := _block(name, prefix)) is not None), default=-1)
    fields = {
        "n_layers": n_layers,
        "d_model": table.shape[1],
        "n_heads": config.size("n_heads", "n_head"),
        "n_ctx": places.shape[0],
        "d_vocab": table.shape[0],
        "d_mlp": inner.shape[turned] if inner.ndim == 2 else 1,
        "act_fn": activation(source.where, word),
        "eps": config.number("eps", default=1e-5),
    }
    if f"{prefix}h.0.ln_1.bias" not in source.tensors:  # nanoGPT without biases, or a relative of it with RMS norms
        fields["normalization_type"] = config.word("normalization_type", default="LN")
    else:  # an RMS norm has none
        config.refuse(normalization_type="LN")
    tensors = _tensors(source, fields, (lambda matrix: matrix.T) if turned else (lambda matrix: matrix), tied=True)
    filled = complete(tensors, {**settings, **fields}, source.where, ask=())
    fields = {name: value for name, value in filled.fields.items() if name != "dtype" or name in settings}
    notes: tuple[str, ...] = (assumptions(config.assumed | filled.assumed), NO_FACTOR)
    unknown = [str(name) for name in source.config if name not in (*NANO, *SETTINGS)]
    if nano and unknown and "n_embd" in source.config:
        notes += (f"Of its settings, nanoGPT does not have {first_few(unknown)}, which were not read.",)
    if source.config.get("bias") is not False:  # nanoGPT's setting
        norms = () if fields["normalization_type"] == "RMS" else NORM_BIASES
        notes += no_biases(source, *BIASES, *norms)
    name = (
        "GPT-2 state dict" if turned else "nanoGPT checkpoint" if nano else "GPT-2 layout with torch.nn.Linear (minGPT)"
    )
    return Conversion(name, fields, tensors, vocabulary=source.vocabulary, notes=notes)


def _prefix(source: Source) -> str:
    return "transformer." if any(name.startswith("transformer.h.") for name in source.tensors) else ""


def _block(name: str, prefix: str) -> str | None:
    """Return the index of the block that a tensor belongs to, as text, or None."""
    rest = name.removeprefix(f"{prefix}h.")
    number = rest.split(".", 1)[0]
    return number if rest != name and number.isdecimal() and len(number) < 6 else None


def _tensors(
    source: Source, fields: dict[str, Any], turned: Callable[[Tensor], Tensor], tied: bool
) -> dict[str, Tensor]:
    """Convert tensors to TransformerLens's, and complete the fields.

    turned(matrix) has torch.nn.Linear's order (outputs, inputs).
    """
    d, heads, inner = fields["d_model"], fields["n_heads"], fields["d_mlp"]
    fields["d_head"] = head_size(source.where, d, heads)
    fields.setdefault("normalization_type", "LN")
    weights = NamedTensors(source, _prefix(source))
    embedding = weights.take("wte.weight", fields["d_vocab"], d)
    tensors = {"embed.W_E": embedding, "pos_embed.W_pos": weights.take("wpe.weight", fields["n_ctx"], d)}

    def linear(name: str, n_in: int, n_out: int) -> tuple[Tensor, Tensor]:
        matrix = turned(weights.take(f"{name}.weight", None, None))
        if tuple(matrix.shape) != (n_out, n_in):
            raise CheckpointError(
                f"{source.where}: {name}.weight has shape {tuple(matrix.shape)}; its config requires {(n_out, n_in)}"
            )
        return matrix, weights.maybe(f"{name}.bias", n_out)

    for index in range(fields["n_layers"]):
        theirs, ours = f"h.{index}.", f"blocks.{index}."
        for old, new in (("ln_1", "ln1"), ("ln_2", "ln2")):
            tensors[f"{ours}{new}.w"] = weights.take(f"{theirs}{old}.weight", d)
            if fields["normalization_type"] != "RMS":
                tensors[f"{ours}{new}.b"] = weights.maybe(f"{theirs}{old}.bias", d)
        matrix, bias = linear(f"{theirs}attn.c_attn", d, 3 * d)
        for name, part, b in zip("QKV", matrix.split(d), bias.split(d)):
            tensors[f"{ours}attn.W_{name}"] = split_heads(part, heads)
            tensors[f"{ours}attn.b_{name}"] = b.reshape(heads, -1)
        matrix, bias = linear(f"{theirs}attn.c_proj", d, d)
        tensors[f"{ours}attn.W_O"], tensors[f"{ours}attn.b_O"] = join_heads(matrix, heads), bias
        matrix, bias = linear(f"{theirs}mlp.c_fc", d, inner)
        tensors[f"{ours}mlp.W_in"], tensors[f"{ours}mlp.b_in"] = matrix.T, bias
        matrix, bias = linear(f"{theirs}mlp.c_proj", inner, d)
        tensors[f"{ours}mlp.W_out"], tensors[f"{ours}mlp.b_out"] = matrix.T, bias
    tensors["ln_final.w"] = weights.take("ln_f.weight", d)
    if fields["normalization_type"] != "RMS":
        tensors["ln_final.b"] = weights.maybe("ln_f.bias", d)
    tensors |= unembedding(weights, embedding, "lm_head", tied)
    weights.finish(*BUFFERS)
    return tensors


READERS = (
    Reader("Hugging Face GPT-2", lambda source: source.config.get("model_type") == "gpt2", _read_hugging_face),
    Reader("nanoGPT or minGPT", _recognizes_linear, _read_linear, SETTINGS),
)
