"""Names, shapes and initial values of a task model's parameters, from its spec, and the checks before it is built.

The names are TransformerLens's, but this module works without transformer_lens.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from interp.errors import InterpError, check_size, first_few, one_of
from interp.models.architecture.formulas import FORMULAS, position_formula
from interp.models.spec import MLP, PLAIN_POSITIONS, Layer, ModelSpec
from interp.tasks import Task

Shape = tuple[int, ...]


def parameter_shapes(spec: ModelSpec, task: Task) -> dict[str, Shape]:
    """Return each parameter's shape by name, in the order of the forward pass, without constants (identities)."""
    d, n_out, d_vocab = spec.d_model, outputs(spec, task), task.d_vocab
    shapes: dict[str, Shape] = {"embed.W_E": (d_vocab, d)}
    if spec.positions == "learned" and spec.positions_enter == "residual":
        shapes["pos_embed.W_pos"] = (_length(spec), d)
    for index, layer in enumerate(spec.layers):
        shapes |= {f"blocks.{index}.{name}": shape for name, shape in _layer_shapes(spec, layer).items()}
    if spec.final_norm != "none":
        shapes |= _norm_shapes("ln_final", d, spec.final_norm == "rms_norm")
    if spec.readout == "relu_mlp":
        width = spec.readout_width or 0
        shapes |= {"unembed.W_in": (d, width), "unembed.b_in": (width,)}
        shapes |= {"unembed.W_out": (width, n_out), "unembed.b_out": (n_out,)}
    else:
        if not spec.tied_embeddings:
            shapes["unembed.W_U"] = (d, n_out)
        if spec.readout_bias:
            shapes["unembed.b_U"] = (n_out,)
    return shapes


def _norm_shapes(name: str, d: int, rms: bool) -> dict[str, Shape]:
    return {f"{name}.w": (d,)} if rms else {f"{name}.w": (d,), f"{name}.b": (d,)}


def outputs(spec: ModelSpec, task: Task) -> int:
    """Return the number of outputs: the spec's if set, otherwise the task's."""
    return 1 if spec.readout == "scalar" else spec.n_out or task.n_out


def _length(spec: ModelSpec) -> int:
    if spec.max_length is None:
        raise ValueError("a spec without max_length has no position table")  # spec.check() reports this first
    return spec.max_length


def _layer_shapes(spec: ModelSpec, layer: Layer) -> dict[str, Shape]:
    d, h, dh = spec.d_model, layer.n_heads, layer.d_head
    rms, groups = layer.norm_kind == "rms", layer.key_value_heads
    # TransformerLens stores shared weights as _W_K and _W_V; its W_K and W_V repeat them for every head.
    shared, held = ("", h) if groups is None else ("_", groups)
    shapes: dict[str, Shape] = {}
    if layer.norm != "none":
        shapes |= _norm_shapes("ln1", d, rms)
    if spec.positions == "learned" and spec.positions_enter == "attention":
        shapes["attn.W_pos"] = (_length(spec), d)
    if layer.mixing == "linear":
        shapes["attn.W_mix"] = (h, _length(spec), _length(spec))
    else:
        shapes["attn.W_Q"] = (h, d, dh)
        if layer.query_key == "learned":
            shapes[f"attn.{shared}W_K"] = (held, d, dh)
        if layer.bias.q:
            shapes["attn.b_Q"] = (h, dh)
        if layer.bias.k:
            shapes[f"attn.{shared}b_K"] = (held, dh)
    if layer.query_key_norm:
        shapes |= {"attn.q_norm.w": (dh,), "attn.k_norm.w": (dh,)}
    if layer.value_output == "learned":
        shapes[f"attn.{shared}W_V"] = (held, d, dh)
    if layer.bias.v:
        shapes[f"attn.{shared}b_V"] = (held, dh)
    if layer.value_output != "identity":
        shapes["attn.W_O"] = (h, dh, d)
    if layer.bias.o:
        shapes["attn.b_O"] = (d,)
    if layer.mlp is not None:
        if layer.norm != "none":
            shapes |= _norm_shapes("ln2", d, rms)
        shapes |= {f"mlp.{name}": shape for name, shape in _mlp_shapes(layer.mlp, d).items()}
    return shapes


def _mlp_shapes(mlp: MLP, d: int) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {"W_gate": (d, mlp.d_mlp)} if mlp.gated else {}
    shapes["W_in"] = (d, mlp.d_mlp)
    if mlp.bias:
        shapes["b_in"] = (mlp.d_mlp,)
    shapes["W_out"] = (mlp.d_mlp, d)
    if mlp.bias:
        shapes["b_out"] = (d,)
    return shapes


def check_shapes(wanted: Mapping[str, Shape], found: Mapping[str, Sequence[int]], owner: Callable[[], str]) -> None:
    """Raise InterpError unless names and shapes are exactly those that the owner has. owner: its name in messages."""
    if missing := [name for name in wanted if name not in found]:
        raise InterpError(f"missing {first_few(missing)}: {owner()} has {len(wanted)} parameters")
    if extra := [name for name in found if name not in wanted]:
        raise InterpError(f"unexpected {first_few(extra)}: {owner()} has {first_few(wanted, 6)}")
    for name, shape in wanted.items():
        if tuple(found[name]) != shape:
            raise InterpError(f"{name} has shape {tuple(found[name])}; {owner()} needs {shape}")


def check_parameters(spec: ModelSpec, task: Task, tensors: Mapping[str, Tensor]) -> None:
    """Raise InterpError unless names and shapes match the spec exactly and every value is finite."""
    check_tensors(parameter_shapes(spec, task), tensors, lambda: spec.id)


def check_tensors(wanted: Mapping[str, Shape], tensors: Mapping[str, Tensor], owner: Callable[[], str]) -> None:
    """Raise InterpError unless names and shapes are exactly those that the owner has and every value is finite."""
    check_shapes(wanted, {name: tensor.shape for name, tensor in tensors.items()}, owner)
    check_values(tensors)


def check_values(tensors: Mapping[str, Tensor]) -> None:
    """Raise InterpError unless every value is a finite floating-point number."""
    for name, tensor in tensors.items():
        if tensor.is_meta:
            raise InterpError(f"{name} is on the meta device, where tensors have no values")
        if tensor.dtype not in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
            raise InterpError(
                f"{name} has dtype {str(tensor.dtype).removeprefix('torch.')}, which specs do not support"
            )
        if not torch.isfinite(tensor).all():
            raise InterpError(f"{name} has values that are not finite")


def fan_in(name: str, shape: Shape) -> int:
    """Return the number of inputs that one output of a matrix sums over (outputs are x @ W)."""
    if name.endswith("attn.W_O"):
        return shape[0] * shape[1]  # all heads write to one output
    return shape[-2]


def fan_out(name: str, shape: Shape) -> int:
    """Return the number of outputs that depend on one input of a matrix, over all heads."""
    if name.rsplit(".", 1)[-1] in ("W_Q", "W_K", "W_V", "_W_K", "_W_V"):
        return shape[0] * shape[2]
    return shape[-1]


def initialize(spec: ModelSpec, task: Task, seed: int, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """Draw initial values of all parameters. They are reproducible from the seed on one platform.

    Values are drawn in float32 for every dtype, so that float32 and float64 models start from the same point.
    """
    check_size("seed", seed, least=0)
    recipe = spec.training
    generator = torch.Generator().manual_seed(seed)
    shapes = parameter_shapes(spec, task)
    values = {}
    for name, shape in shapes.items():
        kind = name.rsplit(".", 1)[-1]
        if kind == "w":
            value = torch.ones(shape)
        elif kind == "b" or (_is_bias(kind) and recipe.init != "torch"):
            value = torch.zeros(shape)
        elif kind == "W_E" and recipe.embedding_std is not None:
            value = torch.randn(shape, generator=generator, dtype=torch.float32) * recipe.embedding_std
        elif recipe.init == "normal":
            value = torch.randn(shape, generator=generator, dtype=torch.float32) * recipe.init_std
        elif recipe.init == "xavier":
            value = _uniform(shape, (fan_in(name, shape) + fan_out(name, shape)) / 6, generator)
        elif kind in ("W_E", "W_pos"):
            value = torch.randn(shape, generator=generator, dtype=torch.float32)
        else:
            value = _uniform(shape, _bias_fan_in(name, shapes) if _is_bias(kind) else fan_in(name, shape), generator)
        values[name] = value.to(dtype or getattr(torch, spec.dtype))
    return values


def _is_bias(kind: str) -> bool:
    return kind.removeprefix("_").startswith("b_")


def _bias_fan_in(name: str, shapes: dict[str, Shape]) -> int:
    """Return the fan-in of a bias's matrix, with which torch.nn.Linear draws the bias."""
    matrix = name.replace(".b_", ".W_").replace("._b_", "._W_")
    # An identity or full map has no such parameter; as a matrix it would be d_model x d_model.
    return fan_in(matrix, shapes[matrix]) if matrix in shapes else shapes[name][-1]


def _uniform(shape: Shape, inputs: int | float, generator: torch.Generator) -> Tensor:
    return (torch.rand(shape, generator=generator, dtype=torch.float32) * 2 - 1) / math.sqrt(inputs)


def model_problems(spec: ModelSpec, task: Task) -> list[str]:
    """List all problems of a spec for its task, one sentence each, starting with spec.problems()."""
    # spec.problems() would treat an unknown name as a formula
    problems = _unknown_positions(spec) or spec.problems() or position_problems(spec)
    if spec.tied_embeddings and outputs(spec, task) != task.d_vocab:
        problems.append(
            f"tied_embeddings needs one output per token ({task.d_vocab}), but there are {outputs(spec, task)} outputs"
        )
    if (task.decision == "set") != (spec.decision == "set"):
        wanted = "set" if task.decision == "set" else "argmax, sigmoid or indicator"
        problems.append(f"decision = {spec.decision!r} does not fit task {task.name}: expected {wanted}")
    places = ("all", "first", "last", *task.vocabulary)
    if spec.readout_at not in places:
        problems.append(one_of("readout_at", spec.readout_at, places))
    return problems


def _unknown_positions(spec: ModelSpec) -> list[str]:
    known = dict.fromkeys((*PLAIN_POSITIONS, *FORMULAS))
    return [] if spec.positions in known else [one_of("positions", spec.positions, known)]


def position_problems(spec: ModelSpec) -> list[str]:
    """Return one sentence if the codes of a formula's positions have more than d_model components."""
    if spec.positions in FORMULAS:
        try:
            position_formula(spec.positions)(torch.zeros(1, 1), torch.ones(1, 1), spec.d_model)
        except InterpError as error:
            return [str(error)]
    return []


def as_dtype(dtype: torch.dtype | str) -> torch.dtype:
    """Convert a dtype or its name to a floating-point torch dtype."""
    torch_dtype = dtype if isinstance(dtype, torch.dtype) else getattr(torch, str(dtype), None)
    if torch_dtype not in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        raise InterpError(one_of("dtype", dtype, ("float64", "float32", "float16", "bfloat16")))
    return torch_dtype


def as_device(device: torch.device | str) -> torch.device:
    """Convert a device or its name to a torch device. Raises InterpError if it is not available."""
    try:
        torch_device = torch.device(device)
    except (RuntimeError, TypeError):
        raise InterpError(one_of("device", device, ("cpu", "cuda"))) from None
    if torch_device.type not in ("cpu", "cuda"):
        raise InterpError(one_of("device", device, ("cpu", "cuda")))
    if torch_device.type == "cuda" and not torch.cuda.is_available():
        raise InterpError(f"device {str(device)!r}: torch finds no CUDA device; use 'cpu'")
    return torch_device
