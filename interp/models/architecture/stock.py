"""External models: a TransformerLens config with weights, and the equivalent task model.

If a spec can express the config, the model becomes a task model, with rows of the embedding and columns of the readout
in the task's order. Otherwise it stays a HookedTransformer, and `to_task_model` raises UnsupportedError.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from interp.errors import (
    CheckpointError,
    InterpError,
    SpecError,
    UnsupportedError,
    of_type,
    one_of,
    quoted,
    refuse_if,
    short,
)
from interp.models.architecture.answers import with_others
from interp.models.architecture.comparison import compare, runs
from interp.models.architecture.foreign import BUFFERS
from interp.models.architecture.parameters import check_tensors
from interp.models.architecture.settings import BY_NAME, PASSIVE, SIZES, check_angles, plain_angles, set_to
from interp.models.architecture.task_model import TaskModel
from interp.models.lens import HookedTransformer, config, config_fields, quiet_construction
from interp.models.spec import MLP, Bias, Layer, ModelSpec, read_json, read_toml
from interp.tasks import Task

KINDS: dict[str | None, Literal["layer", "rms"]] = {"LN": "layer", "LNPre": "layer", "RMS": "rms", "RMSPre": "rms"}
FINAL: dict[str | None, Literal["none", "layer_norm", "rms_norm"]] = {
    None: "none", "LN": "layer_norm", "LNPre": "layer_norm", "RMS": "rms_norm", "RMSPre": "rms_norm",
}  # fmt: skip
POSITIONS = ("standard", "rotary", "alibi")
ACTIVATIONS = ("relu", "gelu", "gelu_new", "gelu_pytorch_tanh", "silu")
TOO_LARGE = 16
"""A config of more parameters than this many times those that a file holds is not of this file."""
MOST = 2**31
"""Largest size in a config; a file may contain any integer."""

DTYPES: dict[torch.dtype, Literal["float64", "float32", "float16", "bfloat16"]] = {
    torch.float64: "float64", torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16",
}  # fmt: skip


# ---------------------------------------------------------------- config and weights


def read_config(source: Mapping[str, Any] | str | Path | Any) -> dict[str, Any]:
    """Read the fields of a TransformerLens config from a dict, a JSON or TOML file, or a config object.

    Fields may be left out (see settings.complete). Raises SpecError for a file that cannot be read, an unknown field,
    or a size that is not a positive integer.
    """
    if isinstance(source, (str, Path)):
        fields = read_json(source) if Path(source).suffix == ".json" else read_toml(source)
    elif isinstance(source, Mapping):
        fields = dict(source)
    elif hasattr(source, "to_dict"):
        fields = dict(source.to_dict())
    else:
        raise InterpError(
            f"config must be a TransformerLens config, a dict of its fields, or the path of a JSON or TOML file, "
            f"not {type(source).__name__}"
        )
    known, problems = config_fields(), []
    for name, value in fields.items():
        if not isinstance(name, str) or (value and not (name in known or name in PASSIVE or name in BY_NAME)):
            problems.append(one_of("field of a TransformerLens config", name, known))
        left_out = name in ("d_mlp", "d_vocab_out", "n_heads") and value in (None, -1)
        if name in SIZES and not left_out and (type(value) is not int or value < 1):
            problems.append(f"config: {name} = {short(value)} must be a positive integer")
    if fields.get("attention_dir", "causal") not in ("causal", "bidirectional"):
        problems.append(f"config: attention_dir = {short(fields['attention_dir'])} must be causal or bidirectional")
    if "dtype" in fields:
        dtype = fields["dtype"]
        fields["dtype"] = dtype if isinstance(dtype, torch.dtype) else getattr(torch, str(dtype).split(".")[-1], None)
        if fields["dtype"] not in DTYPES:
            problems.append(f"config: dtype = {short(dtype)} must be float32, float64, float16 or bfloat16")
    if problems:
        raise SpecError(problems)
    return fields


def stock_model(fields: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> HookedTransformer:
    """Build the HookedTransformer of a whole config with these weights, on the CPU.

    Names and shapes must match exactly, and values must be finite. TransformerLens's constant buffers are optional, but
    tables of rotary angles must be those of the config. Raises CheckpointError for weights that do not fit, and
    InterpError for a config that TransformerLens rejects.
    """
    lacks = [name for name in ("n_layers", "d_model", "d_head", "n_ctx", "d_vocab") if name not in fields]
    if lacks:
        raise SpecError([f"config lacks {name}" for name in lacks])
    for name in ("n_layers", "d_model", "n_heads", "d_head", "d_mlp", "n_ctx", "d_vocab", "d_vocab_out"):
        if isinstance(size := fields.get(name), int) and size > MOST:
            raise InterpError(f"the config's {name} = {quoted(size)} must be at most {MOST:,}")
    _check_claim(fields, tensors)
    dropped = ("seed", "init_weights", "device", "n_devices", "n_params", "tokenizer_name", "trust_remote_code")
    known = config_fields()
    for name in fields:
        if name in BY_NAME and name not in known and set_to(name, fields):
            raise UnsupportedError(f"{name} = {fields[name]!r}: this version of TransformerLens has no such field")
    kept = {name: value for name, value in fields.items() if name in known and name not in dropped}
    kept.setdefault("act_fn", "relu")
    try:
        cfg = config(**kept, device="cpu")
        with quiet_construction():
            model = HookedTransformer(cfg)
    except InterpError:
        raise
    except (ValueError, TypeError, AssertionError, NotImplementedError, KeyError, NameError) as error:
        words = re.sub(r": <[^<>]*>", "", str(error))  # of a table of functions, their names
        raise InterpError(f"TransformerLens rejects this config: {words[:200]}") from None
    load_exactly(model, tensors)
    return model.eval()  # TransformerLens scales queries by ln(n), and rotary bases by the length, in this mode only


def _check_claim(fields: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Refuse a config of a model much larger than the tensors beside it, before memory is taken for that model."""
    layers, d_model, heads = fields["n_layers"], fields["d_model"], fields.get("n_heads") or 1
    block = 4 * heads * fields["d_head"] + 2 * (fields.get("d_mlp") or 0)
    claimed = d_model * (fields["d_vocab"] + max(0, fields.get("d_vocab_out") or 0) + fields["n_ctx"] + layers * block)
    held = sum(tensor.numel() for tensor in tensors.values())
    if layers > len(tensors) or claimed > TOO_LARGE * (held + 1_000_000):
        raise CheckpointError(
            f"the config is of a model with {layers:,} layers and about {claimed:,} parameters, but the weights have "
            f"{len(tensors):,} tensors with {held:,} numbers"
        )


def load_exactly(model: HookedTransformer, tensors: Mapping[str, Tensor]) -> None:
    """Set every parameter of a model from a state dict with the same names."""
    wanted = dict(model.named_parameters())
    constant = {name for name, _ in model.named_buffers()}
    ends = (*BUFFERS, ".rotary_sin", ".rotary_cos")
    if not getattr(model.cfg, "use_dynamic_ntk_rope", False):  # there, the table depends on the last input
        check_angles(tensors, lambda block: _angles(model, block), "the state dict")
    kept = {n: t for n, t in tensors.items() if n in wanted or not (n in constant or n.endswith(ends))}
    try:
        check_tensors({name: tuple(parameter.shape) for name, parameter in wanted.items()}, kept, lambda: "the config")
    except InterpError as error:
        raise CheckpointError(str(error)) from None
    with torch.no_grad():
        for name, parameter in wanted.items():
            parameter.copy_(kept[name])


def _angles(model: HookedTransformer, block: int) -> tuple[Tensor, Tensor] | None:
    """Return the table (sines, cosines) of rotary angles of a block, or None if it has none."""
    cfg: Any = model.cfg
    if cfg.positional_embedding_type != "rotary" or block >= cfg.n_layers:
        return None
    attention: Any = model.blocks[block].attn
    if hasattr(attention, "rotary_sin"):
        return attention.rotary_sin, attention.rotary_cos
    return plain_angles(cfg.to_dict(), cfg.n_ctx)


# ---------------------------------------------------------------- as a task model


def refusal(model: HookedTransformer, form: str = "a spec", also: tuple[str, ...] = ()) -> str | None:
    """Return the reason why a spec, or another form, cannot express this model, or None. also: as for unread_field."""
    cfg: Any = model.cfg
    if cfg.positional_embedding_type not in POSITIONS:
        return f"its positions are {cfg.positional_embedding_type!r}; {form} supports {' or '.join(POSITIONS)}"
    if cfg.normalization_type not in (None, *KINDS):
        return f"its norm is {cfg.normalization_type!r}; {form} supports layer norms, RMS norms or none"
    if cfg.attention_dir not in ("causal", "bidirectional"):
        return f"its attention_dir is {cfg.attention_dir!r}"
    if not cfg.attn_only and cfg.act_fn not in ACTIVATIONS:
        return f"its activation is {cfg.act_fn!r}; {form} supports {', '.join(ACTIVATIONS)}"
    if (name := unread_field(cfg, also)) is not None:
        return f"it has {name} = {getattr(cfg, name)!r}, which {form} does not support"
    return replaced_norm(model)


def replaced_norm(model: HookedTransformer) -> str | None:
    """Name a norm of the config that was replaced by another module, or return None."""
    if model.cfg.normalization_type is None:
        return None
    norms = {f"blocks.{i}.ln1": block.ln1 for i, block in enumerate(model.blocks)} | {"ln_final": model.ln_final}
    odd = [name for name, norm in norms.items() if not hasattr(norm, "hook_scale")]
    return f"its {odd[0]} was replaced by {of_type(norms[odd[0]])}" if odd else None


def unread_field(cfg: Any, also: tuple[str, ...] = ()) -> str | None:
    """Return the name of a set config field that affects outputs and that interp does not read, or None.

    also: further fields that the caller reads.
    """
    known, fields = config_fields(), cfg.to_dict()
    for name, value in fields.items():
        if name in BY_NAME:
            if not BY_NAME[name].spec and name not in also and set_to(name, fields):
                return str(name)
        elif name in known and name not in (*PASSIVE, *SIZES, "dtype") and value and value != known[name]:
            return str(name)
    return None


def to_task_model(
    model: HookedTransformer,
    task: Task,
    token_ids: Int[Tensor, "d_vocab"] | None = None,
    output_ids: Int[Tensor, "n_out"] | None = None,
    padding: Literal["mask", "attend"] = "mask",
) -> TaskModel:
    """Convert a model to a task model with the same outputs, with embedding and readout in the task's order.

    Outputs that are not answers of the task follow after those that are; they are never right.
    token_ids[t], output_ids[c]: the model's ids of the task's token t and output c (None: the ids are equal). padding:
    how a bidirectional model treats padding; task models never attend to it. Norms without gain and bias get gain 1 and
    bias 0. All-zero biases and position tables are dropped. Raises UnsupportedError, with the reason, if a spec cannot
    express the model or if the outputs differ.
    """
    refuse_if(refusal(model), "a spec cannot express this model: ")
    if padding == "attend" and task.pad is not None and model.cfg.attention_dir == "bidirectional":
        raise UnsupportedError("a spec cannot express a bidirectional model that attends to padding")
    cfg: Any = model.cfg
    with torch.no_grad():
        tensors = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    layers = []
    for index in range(cfg.n_layers):
        at = f"blocks.{index}."
        for part in ("ln1",) if cfg.attn_only else ("ln1", "ln2"):
            _neutral_norm(cfg, tensors, at + part)
        layers.append(layer_of(cfg, at, tensors))
    _neutral_norm(cfg, tensors, "ln_final")
    ours = in_task_order(
        tensors,
        task,
        token_ids,
        output_ids,
        direction=cfg.attention_dir,
        layers=tuple(layers),
        final_norm=FINAL[cfg.normalization_type],
        **_positions(cfg, tensors),
    )
    _check_same(model, ours, token_ids, None if output_ids is None else with_others(output_ids, cfg.d_vocab_out, task))
    return ours


def in_task_order(
    tensors: dict[str, Tensor],
    task: Task,
    token_ids: Int[Tensor, "d_vocab"] | None,
    output_ids: Int[Tensor, "n_out"] | None,
    **fields: Any,
) -> TaskModel:
    """Build the task model of these weights, with embedding and readout in the task's order.

    fields: the fields of its spec that neither the task nor the readout determine.
    """
    if token_ids is not None:
        tensors["embed.W_E"] = tensors["embed.W_E"][token_ids]
    n_out = tensors["unembed.W_U"].shape[1]
    if output_ids is not None:
        every_id = with_others(output_ids, n_out, task)
        tensors["unembed.W_U"], n_out = tensors["unembed.W_U"][:, every_id], len(every_id)
        tensors["unembed.b_U"] = tensors["unembed.b_U"][every_id]
    spec = ModelSpec(
        task=task.ref,
        d_model=tensors["embed.W_E"].shape[1],
        readout="scalar" if n_out == 1 and task.decision is None else "linear",
        decision=task.decision or ("sigmoid" if n_out == 1 else "argmax"),
        readout_at=task.readout,
        n_out=None if n_out in (1, task.n_out) else n_out,
        dtype=DTYPES[tensors["embed.W_E"].dtype],
        **fields,
    )
    model = TaskModel(spec, task, tensors)
    model.ids_before = (token_ids, output_ids)
    return model


def layer_of(cfg: Any, at: str, tensors: dict[str, Tensor]) -> Layer:
    """Convert one block of a config to a Layer. All-zero biases are removed from `tensors`."""
    grouped = cfg.n_key_value_heads not in (None, cfg.n_heads)
    if cfg.n_key_value_heads == cfg.n_heads:  # grouped in name only
        for name in ("W_K", "W_V", "b_K", "b_V"):
            tensors[f"{at}attn.{name}"] = tensors.pop(f"{at}attn._{name}")
    biased = {}
    for name in "QKVO":
        held = f"{at}attn.{'_' if grouped and name in 'KV' else ''}b_{name}"
        biased[name.lower()] = bool(tensors[held].any())
        if not biased[name.lower()]:
            del tensors[held]
    mlp = None
    if not cfg.attn_only:
        activation: Any = "gelu_new" if cfg.act_fn == "gelu_pytorch_tanh" else cfg.act_fn
        mlp = MLP(d_mlp=cfg.d_mlp, activation=activation, gated=bool(cfg.gated_mlp))
    return Layer(
        n_heads=cfg.n_heads,
        d_head=cfg.d_head,
        scale=_scale(cfg),
        bias=Bias(**biased),
        mlp=mlp,
        norm="none" if cfg.normalization_type is None else "pre",
        norm_eps=float(cfg.eps),
        norm_kind=KINDS.get(cfg.normalization_type, "layer"),
        key_value_heads=cfg.n_key_value_heads if grouped else None,
        query_key_norm=bool(cfg.use_qk_norm),
    )


def _positions(cfg: Any, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Return the position fields of a spec. A position table of zeros is removed from `tensors`."""
    if cfg.positional_embedding_type == "rotary":
        return {
            "positions": "rotary",
            "positions_enter": "attention",
            "max_length": cfg.n_ctx,
            "rotary_base": float(cfg.rotary_base),
            "rotary_dim": None if cfg.rotary_dim in (None, cfg.d_head) else cfg.rotary_dim,
            "rotary_pairs": "adjacent" if cfg.rotary_adjacent_pairs else "halves",
        }
    if cfg.positional_embedding_type == "alibi":
        tensors.pop("pos_embed.W_pos", None)  # TransformerLens keeps an unused table
        return {"positions": "alibi", "positions_enter": "attention"}
    if not tensors["pos_embed.W_pos"].any():
        del tensors["pos_embed.W_pos"]
        return {}
    return {"positions": "learned", "max_length": cfg.n_ctx}


def _scale(cfg: Any) -> Any:
    """Return the scale of the scores."""
    if not cfg.use_attn_scale:
        return 1.0
    default = cfg.attn_scale <= 0 or abs(cfg.attn_scale - cfg.d_head**0.5) < 1e-12
    return "inv_sqrt_d_head" if default else 1 / float(cfg.attn_scale)


def _neutral_norm(cfg: Any, tensors: dict[str, Tensor], name: str) -> None:
    """Add gain 1 (and bias 0) for a norm whose parameters were folded into the next weights."""
    like = tensors["embed.W_E"]
    if cfg.normalization_type in ("LNPre", "RMSPre"):
        tensors[f"{name}.w"] = like.new_ones(cfg.d_model)
    if cfg.normalization_type == "LNPre":
        tensors[f"{name}.b"] = like.new_zeros(cfg.d_model)


def _check_same(model: HookedTransformer, ours: TaskModel, token_ids: Tensor | None, output_ids: Tensor | None) -> None:
    """Compare both models on a few random rows, which reveals any config field with an unknown effect."""
    allowed = torch.tensor([t for t in range(ours.task.d_vocab) if t != ours.task.pad_id])
    length = min(12, model.cfg.n_ctx)
    tokens = allowed[torch.randint(len(allowed), (4, length), generator=torch.Generator().manual_seed(0))]
    theirs, chosen = (
        runs(model, tokens if token_ids is None else token_ids[tokens]),
        ... if output_ids is None else output_ids,
    )
    comparison = compare(runs(ours, tokens), lambda dtype: theirs(dtype)[..., chosen])
    if not comparison.same:
        raise UnsupportedError(f"a spec cannot express this model: {comparison}")
