"""The table of all fields of a TransformerLens config that change outputs, and what a state dict says of each.

A state dict holds tensors, and a model also has settings. `complete` finds the value of every one: the file shows it
(names and shapes of tensors, and the angles of rotary positions), or the user gives it, or loading asks for it, or it
is assumed and said. Fields that change no output of a model whose weights are given are PASSIVE.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from interp.errors import CheckpointError, InterpError, quoted, short

Tensors = Mapping[str, Tensor]
Fields = Mapping[str, Any]

UNKNOWN: Any = type("Unknown", (), {"__repr__": lambda self: "unknown"})()
"""What tensors say of a setting that they do not show."""


@dataclass(frozen=True)
class ConfigField:
    """A field of a TransformerLens config that changes outputs.

    default: the field's default, which is assumed. shown: reads the value off the tensors, given the fields before it
    in the table, or returns UNKNOWN. matters: whether the field can have an effect beside the fields before it.
    example: the value to suggest where loading asks for it. spec: whether a ModelSpec can express values that are not
    the default.
    """

    name: str
    default: Any
    shown: Callable[[Tensors, Fields], Any] = lambda tensors, fields: UNKNOWN
    matters: Callable[[Fields], bool] = lambda fields: True
    example: Any = None
    spec: bool = False


def has(tensors: Iterable[str], *endings: str) -> bool:
    """Test whether any tensor's name ends with one of these."""
    return any(name.endswith(endings) for name in tensors)


def _set_by(*endings: str) -> Callable[[Tensors, Fields], bool]:
    """Return a reader for switches that show in the name of a tensor."""
    return lambda tensors, fields: has(tensors, *endings)


def _tensor_that_ends(tensors: Tensors, ending: str) -> Tensor | None:
    return next((tensor for name, tensor in tensors.items() if name.endswith(ending)), None)


def _key_value_heads(tensors: Tensors, fields: Fields) -> Any:
    shared = _tensor_that_ends(tensors, "attn._W_K")
    return None if shared is None else shared.shape[0]


def _norm(tensors: Tensors, fields: Fields) -> Any:
    if has(tensors, "ln1.b", "ln1.b_ln"):
        return "LN"
    return "RMS" if has(tensors, "ln1.w", "ln1.w_ln") else UNKNOWN


def _final_rms(tensors: Tensors, fields: Fields) -> Any:
    if fields["normalization_type"] != "LN":
        return False if fields["normalization_type"] != "LNPre" else UNKNOWN
    return not has(tensors, "ln_final.b", "ln_final.b_ln")


def _query_key_norm(tensors: Tensors, fields: Fields) -> Any:
    """TransformerLens's OLMo models norm whole rows of queries, which may be as long as one head's only with one."""
    gain = _tensor_that_ends(tensors, "attn.q_norm.w")
    return gain is not None and gain.shape == (fields["d_head"],)


ARCHITECTURES = ("OlmoeForCausalLM", "Olmo2ForCausalLM", "Olmo3ForCausalLM", "GptOssForCausalLM")
"""Values of original_architecture by which TransformerLens chooses another forward pass."""


def _architecture(tensors: Tensors, fields: Fields) -> Any:
    whole_rows = has(tensors, "attn.q_norm.w") and (not fields["use_qk_norm"] or fields.get("n_heads") == 1)
    return UNKNOWN if whole_rows or fields["num_experts"] else None


def _experts(tensors: Tensors, fields: Fields) -> Any:
    numbers = {name.split(".experts.")[1].split(".")[0] for name in tensors if ".experts." in name}
    return len(numbers) or None


def _positions(tensors: Tensors, fields: Fields) -> Any:
    return "rotary" if has(tensors, ROTARY_TABLE) else UNKNOWN


ROTARY_TABLE = "attn.rotary_sin"


def angles(tensors: Tensors) -> Tensor | None:
    """Return the angles of position 1 in the first rotary table, one per column, or None without one."""
    sin, cos = (tensors.get(f"blocks.0.attn.rotary_{name}") for name in ("sin", "cos"))
    if sin is None or cos is None or sin.ndim != 2 or sin.shape != cos.shape or len(sin) < 2:
        return None
    return torch.atan2(sin[1].double(), cos[1].double())


def _rotary_dim(tensors: Tensors, fields: Fields) -> Any:
    table = _tensor_that_ends(tensors, ROTARY_TABLE)
    return UNKNOWN if table is None or table.ndim != 2 else table.shape[1]


def _adjacent(tensors: Tensors, fields: Fields) -> Any:
    rates = angles(tensors)
    if rates is None:
        return UNKNOWN
    return len(rates) > 2 and bool(rates[0] == rates[1])


def _rotary_rates(tensors: Tensors, fields: Fields) -> Tensor | None:
    """Return the angle of each pair at position 1."""
    rates = angles(tensors)
    if rates is None:
        return None
    return rates[::2] if fields["rotary_adjacent_pairs"] else rates[: len(rates) // 2]


def _rotary_scale(tensors: Tensors, fields: Fields) -> Any:
    rates = _rotary_rates(tensors, fields)
    return UNKNOWN if rates is None else _rounded(float(1 / rates[0]))


def _rotary_base(tensors: Tensors, fields: Fields) -> Any:
    rates = _rotary_rates(tensors, fields)
    if rates is None:
        return UNKNOWN
    n = len(rates)  # the last rate is base^(-(n - 1) / n) times the first
    return _rounded(float(rates[0] / rates[-1]) ** (n / (n - 1))) if n > 1 else 10000


def _rounded(value: float) -> int | float:
    """Undo the rounding of a number that was computed from float32 angles."""
    near = float(f"{value:.6g}")
    return int(near) if near.is_integer() else near


def _rotary(fields: Fields) -> bool:
    return fields["positional_embedding_type"] == "rotary"


def _mlp(fields: Fields) -> bool:
    return not fields["attn_only"]


def _normed(fields: Fields) -> bool:
    return fields["normalization_type"] is not None or bool(fields["use_qk_norm"])


def _on(switch: str, also: Callable[[Fields], bool] = lambda fields: True) -> Callable[[Fields], bool]:
    """Return a test whether a switch before it is on."""
    return lambda fields: bool(fields[switch]) and also(fields)


def _scaled_by(switch: str, *names: tuple[str, Any]) -> tuple[ConfigField, ...]:
    return tuple(ConfigField(name, default, matters=_on(switch)) for name, default in names)


SETTINGS = (
    ConfigField("attn_only", False, lambda t, f: not any(".mlp." in name for name in t), spec=True),
    ConfigField("num_experts", None, _experts),
    ConfigField("experts_per_token", None, matters=_on("num_experts"), example=1),
    ConfigField("norm_topk_prob", False, matters=_on("num_experts")),
    ConfigField("gated_mlp", False, _set_by("mlp.W_gate", "experts.0.W_gate.weight"), _mlp, spec=True),
    ConfigField("act_fn", "relu", matters=_mlp, example="relu", spec=True),
    ConfigField("n_key_value_heads", None, _key_value_heads, spec=True),
    ConfigField("use_qk_norm", False, _query_key_norm, spec=True),
    ConfigField("original_architecture", None, _architecture, example="Olmo2ForCausalLM"),
    ConfigField("normalization_type", "LN", _norm, spec=True),
    ConfigField("eps", 1e-5, matters=_normed, spec=True),
    ConfigField("final_rms", False, _final_rms, matters=lambda f: f["normalization_type"] in ("LN", "LNPre")),
    ConfigField("use_normalization_before_and_after", False, _set_by("ln1_post.w")),
    ConfigField("post_embedding_ln", False, _set_by("embed.ln.w")),
    ConfigField("attention_dir", "causal", example="causal", spec=True),
    ConfigField("positional_embedding_type", "standard", _positions, example="rotary", spec=True),
    ConfigField("rotary_dim", None, _rotary_dim, _rotary, spec=True),
    ConfigField("rotary_adjacent_pairs", False, _adjacent, _rotary, spec=True),
    ConfigField("rotary_base", 10000, _rotary_base, _rotary, spec=True),
    ConfigField("rotary_scaling_factor", 1.0, _rotary_scale, _rotary),
    ConfigField("use_NTK_by_parts_rope", False, lambda t, f: UNKNOWN if angles(t) is None else False, _rotary),
    *_scaled_by("use_NTK_by_parts_rope", ("NTK_by_parts_low_freq_factor", 1.0), ("NTK_by_parts_high_freq_factor", 4.0),
                ("NTK_by_parts_factor", 8.0), ("NTK_original_ctx_len", 8192)),
    ConfigField("use_yarn_rope", False, lambda t, f: UNKNOWN if angles(t) is None else False, _rotary),
    *_scaled_by("use_yarn_rope", ("yarn_factor", 1.0), ("yarn_attention_factor", 1.0), ("yarn_beta_fast", 32.0),
                ("yarn_beta_slow", 1.0), ("yarn_original_max_position_embeddings", 4096), ("yarn_truncate", True),
                ("yarn_global_attn_only", False)),
    ConfigField("use_dynamic_ntk_rope", False, matters=_rotary),
    ConfigField("use_attn_scale", True, spec=True),
    ConfigField("attn_scale", -1.0, matters=_on("use_attn_scale"), spec=True),
    ConfigField("scale_attn_by_inverse_layer_idx", False, matters=lambda f: f["n_layers"] > 1),
    ConfigField("attn_scores_soft_cap", -1.0),
    ConfigField("output_logits_soft_cap", -1.0),
    ConfigField("use_attention_sinks", False, _set_by("attn.sinks")),
    ConfigField("use_logn_attn", False),
    ConfigField("train_seq_length", None, matters=lambda f: bool(f["use_logn_attn"] or f["use_dynamic_ntk_rope"])),
    ConfigField("clip_qkv", None),
    ConfigField("use_local_attn", False),
    ConfigField("window_size", None, matters=_on("use_local_attn")),
    ConfigField("attn_types", None, matters=_on("use_local_attn")),
    ConfigField("rotary_base_local", None, matters=_on("use_local_attn", _rotary)),
    ConfigField("parallel_attn_mlp", False, matters=_mlp),
    ConfigField("load_in_4bit", False, lambda t, f: any(tensor.dtype == torch.uint8 for tensor in t.values())),
)  # fmt: skip
"""Every field that changes outputs, except for sizes (from shapes) and the dtype (from the tensors), in the order in
which they are found."""

BY_NAME = {setting.name: setting for setting in SETTINGS}
SIZES = ("n_layers", "d_model", "d_head", "n_heads", "n_ctx", "d_vocab", "d_vocab_out", "d_mlp")

PASSIVE = frozenset({
    "device", "n_devices", "seed", "init_mode", "init_weights", "initializer_range", "n_params", "model_name",
    "architecture", "use_attn_result", "use_split_qkv_input", "use_hook_mlp_in", "use_attn_in", "use_hook_tokens",
    "default_prepend_bos", "default_padding_side", "tokenizer_name", "tokenizer_prepends_bos", "tokenizer_appends_eos",
    "trust_remote_code", "from_checkpoint", "checkpoint_index", "checkpoint_label_type", "checkpoint_value",
    "layer_norm_folding", "uses_rms_norm", "tie_word_embeddings", "decoder_start_token_id", "split_attention_weights",
    "attn_implementation", "ungroup_grouped_query_attention", "quantization_method", "relative_attention_max_distance",
    "relative_attention_num_buckets",
})  # fmt: skip
"""Fields without effect on the outputs of a model whose weights are given."""


def set_to(name: str, fields: Fields) -> bool:
    """Test whether a field of the table has another value than its default, and so an effect."""
    value: Any = fields.get(name)
    setting = BY_NAME[name]
    if value == setting.default or (not value and not setting.default):
        return False
    if name in ("attn_scores_soft_cap", "output_logits_soft_cap"):
        return bool(value > 0)
    if name == "original_architecture":
        return value in ARCHITECTURES
    known = {other.name: other.default for other in SETTINGS} | {"n_layers": 2} | dict(fields)
    return setting.matters(known)


IN_WORDS = {"attn_scale": "sqrt(d_head)", "rotary_dim": "d_head"}
"""Defaults that TransformerLens writes as -1 or None."""


@dataclass(frozen=True)
class Completed:
    """A whole config. assumed: the fields, with their values, that neither the tensors nor the user say."""

    fields: dict[str, Any]
    assumed: dict[str, Any]

    @property
    def sentence(self) -> str:
        """What was assumed, in one sentence; "" if nothing was."""
        return assumptions(self.assumed)


def assumptions(assumed: Fields) -> str:
    """Return one sentence on settings that were assumed; "" if there are none."""
    if not assumed:
        return ""
    listed = ", ".join(f"{name} = {IN_WORDS.get(name) or repr(value)}" for name, value in assumed.items())
    return f"The tensors do not determine these settings, which are assumed: {listed}; config= gives others."


IN_EVERY_CONFIG = frozenset({
    "attn_only", "num_experts", "experts_per_token", "gated_mlp", "act_fn", "n_key_value_heads",
    "original_architecture", "normalization_type", "eps", "final_rms", "post_embedding_ln", "attention_dir",
    "positional_embedding_type", "rotary_dim", "rotary_adjacent_pairs", "rotary_base", "use_attn_scale",
    "scale_attn_by_inverse_layer_idx", "use_local_attn", "window_size", "attn_types", "parallel_attn_mlp",
    "load_in_4bit",
})  # fmt: skip
"""Fields that a config has in every version since TransformerLens 1.19. A config with all of them is a whole one, and
what it does not name was not in the library that ran the model."""

ASKED = ("attention_dir", "normalization_type", "act_fn", "experts_per_token", "positional_embedding_type")
"""Settings that models differ in most: loading asks for them, if a state dict does not show them."""

AS_IN_CONFIG = "as in TransformerLens's config"
"""What a reader says of a setting that it takes from TransformerLens unchanged."""


def complete(
    tensors: Tensors, given: Fields, where: str = "this state dict", ask: Collection[str] = ASKED
) -> Completed:
    """Find every setting of a model with these tensors, in TransformerLens's layout.

    Args:
        given: fields of the config, as the user gave them.
        ask: the settings to ask for, instead of assuming them, if nothing says what they are.

    Raises:
        InterpError: a setting is missing that is asked for; the message names all of them.
        CheckpointError: the config contradicts the tensors.
    """
    fields = sizes(tensors) | {name: value for name, value in given.items() if value is not None and value != -1}
    fields |= {name: value for name, value in given.items() if name in BY_NAME}
    assumed: dict[str, Any] = {}
    missing: dict[str, Any] = {}
    whole = given.keys() >= IN_EVERY_CONFIG
    for setting in SETTINGS:
        name, shown = setting.name, setting.shown(tensors, fields)
        if name in given:
            _check_shown(where, name, given[name], shown)
            continue
        fields[name] = setting.default if shown is UNKNOWN else shown
        if whole or shown is not UNKNOWN or not setting.matters(fields):
            continue
        if _must_be_asked(setting, tensors, fields, ask):
            missing[name] = setting.example
        elif name == "normalization_type":
            fields[name] = None
            assumed[name] = None
        else:
            assumed[name] = setting.default
    if missing:
        raise InterpError(
            f"{where} needs the config of its model: the whole TransformerLens config, or the settings that its "
            f"tensors do not determine, such as config={missing}"
        )
    if not fields.get("n_ctx"):
        raise InterpError(
            f'{where} has no table of positions: pass config={{"n_ctx": ...}}, the length of its longest input'
        )
    return Completed(fields, assumed)


def _must_be_asked(setting: ConfigField, tensors: Tensors, fields: Fields, ask: Collection[str]) -> bool:
    """Test whether a setting must be asked for."""
    if setting.name == "positional_embedding_type":  # standard, shortformer and ALiBi models have a table
        return setting.name in ask and "pos_embed.W_pos" not in tensors
    if setting.name == "original_architecture":  # no other architecture norms whole rows of queries
        return has(tensors, "attn.q_norm.w") and not fields["use_qk_norm"]
    return setting.name in ask


def _check_shown(where: str, name: str, value: Any, shown: Any) -> None:
    """Raise CheckpointError if a config contradicts what the file's table of positions shows.

    Other contradictions show as tensors that are missing, left over or of another shape, and rotary angles are
    compared as a whole (see check_angles).
    """
    if name == "positional_embedding_type" and shown == "rotary" and value != "rotary":
        raise CheckpointError(
            f"{where} has tables of rotary angles (rotary_sin, rotary_cos); its config says {name} = {quoted(value)}"
        )


def sizes(tensors: Tensors) -> dict[str, Any]:
    """Read the sizes of a model off the shapes of its tensors, and its dtype."""
    fields: dict[str, Any] = {}
    axes = {
        "embed.W_E": ("d_vocab", "d_model"), "pos_embed.W_pos": ("n_ctx", None),
        "blocks.0.attn.W_Q": ("n_heads", None, "d_head"), "unembed.W_U": (None, "d_vocab_out"),
    }  # fmt: skip
    for name, names in axes.items():
        tensor = tensors.get(name)
        if tensor is not None and tensor.ndim == len(names):
            fields |= {axis: size for axis, size in zip(names, tensor.shape) if axis is not None}
    table, inner = _tensor_that_ends(tensors, ROTARY_TABLE), _tensor_that_ends(tensors, "mlp.W_out")
    inner = inner if (expert := _tensor_that_ends(tensors, "experts.0.W_in.weight")) is None else expert
    if "n_ctx" not in fields and table is not None and table.ndim == 2:
        fields["n_ctx"] = table.shape[0]
    if inner is not None and inner.ndim == 2:
        fields["d_mlp"] = inner.shape[0]
    numbers = [int(part) for name in tensors if name.startswith("blocks.") and (part := name.split(".")[1]).isdecimal()]
    fields["n_layers"] = 1 + max(numbers, default=0)
    if (matrix := tensors.get("embed.W_E")) is not None and matrix.is_floating_point():
        fields["dtype"] = matrix.dtype
    return fields


def check_angles(tensors: Tensors, made: Callable[[int], tuple[Tensor, Tensor] | None], where: str) -> None:
    """Raise CheckpointError unless the rotary tables of a file are those of the model that was built.

    made: the table (sines, cosines) of a block of the built model, of as many positions as it has.
    """
    for name, sines in tensors.items():
        if not name.endswith(ROTARY_TABLE):
            continue
        table = made(int(name.split(".")[1]))
        if table is None:
            raise CheckpointError(f"{where} has tables of rotary angles ({short(name)}), but its config has none")
        cosines = tensors.get(name.replace("rotary_sin", "rotary_cos"), table[1])
        for saved, ours in zip((sines, cosines), table):
            n = min(len(saved), len(ours))
            limit = 1e-6 * max(1.0, float(n)) if saved.dtype in (torch.float32, torch.float64) else 2e-2
            if saved.shape[1:] != ours.shape[1:] or not (saved[:n].double() - ours[:n].double()).abs().max() <= limit:
                raise CheckpointError(
                    f"{where}: the rotary angles in {short(name)} are not those of its config (rotary_dim, "
                    "rotary_base, rotary_adjacent_pairs, rotary_scaling_factor, rotary_base_local, use_yarn_rope, "
                    "use_NTK_by_parts_rope): pass the whole TransformerLens config"
                )


def plain_angles(fields: Fields, n: int) -> tuple[Tensor, Tensor]:
    """Return the sines and cosines of rotary positions without scaling, (n, rotary_dim)."""
    dim = fields["rotary_dim"] or fields["d_head"]
    rates = float(fields["rotary_base"]) ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    rates = rates.repeat_interleave(2) if fields["rotary_adjacent_pairs"] else rates.repeat(2)
    turned = torch.arange(n, dtype=torch.float64)[:, None] * rates
    return turned.sin(), turned.cos()
