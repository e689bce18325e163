"""Open a folder, a file, a mapping of tensors or a module as a Source, without executing anything in a file.

To check a converted model, the original library's model is built from a Source; that library is imported on first use.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from interp.errors import CheckpointError, InterpError, first_few, of_type
from interp.models.architecture.header import MAX_BYTES
from interp.models.architecture.state_dicts import named_tensors, nested, only_part, read_mapping
from interp.models.lens import is_bridge
from interp.models.readers.base import CLASSIFIERS, Source

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
SETTINGS = ("model_args", "config", "args", "hyper_parameters")
"""Common keys of model settings in checkpoints."""
NATIVE = "TransformerLensNative"
"""The architecture of bridges made by TransformerBridge.boot_native."""
MOST_JSON = 32 * 2**20


def open_source(source: Any) -> Source:
    """Open a path, a mapping or a module.

    Raises CheckpointError for a broken file, and InterpError for other types.
    """
    if is_bridge(source):
        return _of_bridge(source)
    if isinstance(source, nn.Module):
        return _of_module(source)
    if isinstance(source, Mapping):
        return _of_mapping(source, "this mapping")
    if not isinstance(source, str | Path):
        raise InterpError(
            f"expected a file, a folder, a state dict or a module, got {of_type(source)}: pass the path of a model"
        )
    path = Path(source)
    if path.is_dir():
        return _of_folder(path)
    beside = path.parent / "config.json"
    if path.name in WEIGHTS and beside.is_file():
        return _of_folder(path.parent)
    return _of_mapping(read_mapping(path), str(path))


def _of_mapping(mapping: Mapping[Any, Any], where: str) -> Source:
    """Open a state dict, alone or as one entry of a checkpoint, with the checkpoint's settings."""
    saved: Mapping[Any, Any] = next((mapping[name] for name in SETTINGS if isinstance(mapping.get(name), Mapping)), {})
    config = {} if nested(mapping, where) is mapping else {str(name): value for name, value in saved.items()}
    return Source(where, named_tensors(mapping, where), config)


def _of_folder(folder: Path) -> Source:
    """Open a Hugging Face folder with config.json and model.safetensors or pytorch_model.bin."""
    config = _json(folder / "config.json")
    if config is None:
        raise CheckpointError(f"{folder} has no config.json; a folder must be in Hugging Face's format")
    if not isinstance(config, Mapping):
        raise CheckpointError(f"{folder / 'config.json'} contains {of_type(config)}; expected an object")
    files = next(filter(None, (_files(folder, name) for name in WEIGHTS)), [])
    if not files:
        raise CheckpointError(f"{folder} has a config.json, but neither {' nor '.join(WEIGHTS)}")
    size = sum(path.stat().st_size for path in files if path.is_file())
    if size > MAX_BYTES:
        raise CheckpointError(f"the weights in {folder} have {size:,} bytes, more than the limit of {MAX_BYTES:,}")
    tensors: dict[str, Tensor] = {}
    for path in files:
        tensors |= read_mapping(path)
    return Source(str(folder), named_tensors(tensors, str(folder)), config, vocabulary_of(folder))


def _files(folder: Path, name: str) -> list[Path]:
    """Return the file of weights of this name, or the parts that its index lists; none if there is neither."""
    if (folder / name).is_file():
        return [folder / name]
    index = _json(folder / f"{name}.index.json")
    parts = index.get("weight_map") if isinstance(index, Mapping) else None
    names = sorted({str(part) for part in parts.values()}) if isinstance(parts, Mapping) else []
    if any(Path(part).name != part for part in names):
        raise CheckpointError(f"{folder}: its index names files outside the folder")
    return [folder / part for part in names]


def vocabulary_of(folder: Path) -> dict[str, int] | None:
    """Read token strings and ids from tokenizer.json or vocab.json; None if neither contains them."""
    saved = _json(folder / "tokenizer.json")
    if isinstance(saved, Mapping) and isinstance(saved.get("model"), Mapping):
        words = saved["model"].get("vocab")
        added = saved.get("added_tokens") or []
        ids = dict(words) if isinstance(words, Mapping) else {}
        ids |= {entry.get("content"): entry.get("id") for entry in [*added] if isinstance(entry, Mapping)}
    else:
        saved = _json(folder / "vocab.json")
        ids = dict(saved) if isinstance(saved, Mapping) else {}
    whole = {word: i for word, i in ids.items() if isinstance(word, str) and type(i) is int and i >= 0}
    return whole or None


def _json(path: Path) -> Any:
    """Read a JSON file, or return None if it does not exist. Raises CheckpointError for a broken file."""
    if not path.is_file():
        return None
    if path.stat().st_size > MOST_JSON:
        raise CheckpointError(f"{path} has {path.stat().st_size:,} bytes, more than the limit of {MOST_JSON:,}")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as error:
        raise CheckpointError(f"{path} is not JSON: {str(error)[:100]}") from None


def _of_module(module: nn.Module) -> Source:
    """Open a module, or the only part that it holds: its state dict, and its config if it has an attribute `config`."""
    where, original = f"this {type(module).__name__}", module
    while (holder := only_part(module.state_dict())) is not None:
        module = module.get_submodule(holder)
    settings: Any = getattr(module, "config", None)
    config = settings.to_dict() if hasattr(settings, "to_dict") else {}
    if not config and hasattr(settings, "__dict__"):
        config = dict(vars(settings))  # a dataclass or a namespace, as in nanoGPT
    return Source(where, named_tensors(module.state_dict(), where), config, module=module, original=original)


def _of_bridge(bridge: Any) -> Source:
    """Open a TransformerBridge: the native model's tensors, or those of the other library's model that it wraps."""
    where = f"this TransformerBridge of {bridge.cfg.architecture}"
    if bridge.cfg.architecture == NATIVE:
        tensors = {name: tensor.detach().cpu() for name, tensor in bridge.state_dict().items()}
        return Source(where, tensors, module=bridge, original=bridge)
    if getattr(bridge, "compatibility_mode", False):
        raise InterpError(f"{where} has processed weights; give the bridge before enable_compatibility_mode()")
    wrapped = bridge.original_model
    config: Any = getattr(wrapped, "config", None)
    if not hasattr(config, "to_dict"):
        raise InterpError(f"{where} wraps {of_type(wrapped)}, of which nothing is known; give that model itself")
    # The bridge inserts its own modules into the model, beside those that the library made.
    with torch.device("meta"):
        names = type(wrapped)(config).state_dict()
    inside = {name.replace("._original_component", ""): tensor for name, tensor in wrapped.state_dict().items()}
    tensors = {name: inside[name] for name in names if name in inside}
    return Source(where, named_tensors(tensors, where), config.to_dict(), original=bridge)


# ---------------------------------------------------------------- the original library's model

HEADS = (*CLASSIFIERS, "lm_head", "embed_out")


def hugging_face(source: Source) -> Callable[[], nn.Module] | None:
    """Return a function that builds the transformers library's model, or None if that library is not installed.

    The model maps token ids (rows, length) to logits (rows, length, n_out). The library's class is chosen by model_type
    only, and loaded with the weights that were read. auto_map is ignored, so nothing in the folder is executed.
    """
    return None if find_spec("transformers") is None else partial(_Original, source)


class _Original(nn.Module):
    head: Tensor
    bias: Tensor

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.base, head, bias = _body(source)
        self.register_buffer("head", head)
        self.register_buffer("bias", bias)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.base(tokens).last_hidden_state @ self.head.T + self.bias


def _body(source: Source) -> tuple[nn.Module, Tensor, Tensor]:
    """Build the library's model without its head, in float64, which loses nothing; return it with the head."""
    import transformers

    kept = {name: value for name, value in source.config.items() if name not in ("auto_map", "quantization_config")}
    tensors = {name: t.double() if t.is_floating_point() else t for name, t in source.tensors.items()}
    try:
        config = transformers.AutoConfig.for_model(**kept)
        base = transformers.AutoModel.from_config(config, attn_implementation="eager").eval().double()
    except Exception as error:  # the library may raise anything
        raise InterpError(f"transformers cannot build {source.where}: {str(error).strip()[:200]}") from None
    initial = base.state_dict()
    prefix = getattr(base, "base_model_prefix", "") + "."
    saved = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    if lacking := [name for name, _ in base.named_parameters() if name not in saved]:
        raise InterpError(f"the file lacks tensors of transformers' model: {first_few(lacking)}")
    base.load_state_dict({name: saved.get(name, value) for name, value in initial.items()})
    for name in HEADS:
        if (matrix := saved.get(f"{name}.weight")) is not None:
            return base, matrix, saved.get(f"{name}.bias", matrix.new_zeros(len(matrix)))
    matrix = base.get_input_embeddings().weight.detach()
    return base, matrix, matrix.new_zeros(len(matrix))
