"""Open a folder, a file, a mapping of tensors or a module as a Source, without executing anything in a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from interp.architecture.checkpoint import MAX_BYTES, opened, regular_file
from interp.budget import need
from interp.errors import CheckpointError, InterpError, first_few, of_type, quoted, short
from interp.readers.base import Source

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
NESTED = ("model", "state_dict", "model_state_dict", "net", "weights")
"""Common keys of state dicts in checkpoints."""
SETTINGS = ("model_args", "config", "args", "hyper_parameters")
"""Common keys of model settings in checkpoints."""
MOST_JSON = 32 * 2**20


def open_source(source: Any) -> Source:
    """Open a path, a mapping or a module.

    Raises CheckpointError for a broken file, and InterpError for other types.
    """
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
    return _of_mapping(_read_file(path), str(path))


def _read_file(path: Path) -> Mapping[str, Any]:
    """Read the tensors of a safetensors file, or the mapping in any other file, with torch's weights_only loader."""
    path = regular_file(path, MAX_BYTES)
    if path.suffix == ".safetensors":
        with opened(path):
            return load_file(path)
    try:
        with torch.serialization.safe_globals([]):
            found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a hostile file can cause any error in torch
        reason = str(error).strip().split("\n", 1)[0] or type(error).__name__
        raise CheckpointError(
            f"{path} is not a file that torch can read without running code: {reason[:120]}"
        ) from None
    if not isinstance(found, Mapping):
        raise CheckpointError(f"{path} contains {of_type(found)}; expected a state dict (names and tensors)")
    return found


def _of_mapping(found: Mapping[Any, Any], where: str) -> Source:
    """Open a state dict, alone or as one entry of a checkpoint, with the checkpoint's settings."""
    inner, config = found, {}
    # A checkpoint may have single tensors besides its state dict, such as nanoGPT's best_val_loss.
    nested = [name for name in NESTED if _holds_tensors(found.get(name))]
    if nested or not any(isinstance(value, Tensor) for value in found.values()):
        nested = nested or [name for name, value in found.items() if _holds_tensors(value)]
        if len(nested) != 1:
            raise CheckpointError(
                f"{where} contains {first_few(found)}; expected a state dict, or exactly one entry with a state dict"
                + (f", not {len(nested)}" if nested else "")
            )
        inner = found[nested[0]]
        saved = [found[name] for name in SETTINGS if isinstance(found.get(name), Mapping)]
        config = {str(name): value for name, value in saved[0].items()} if saved else {}
    return Source(where, _dense(inner, where), config)


def _holds_tensors(value: object) -> bool:
    return isinstance(value, Mapping) and bool(value) and all(isinstance(tensor, Tensor) for tensor in value.values())


def _dense(found: Mapping[Any, Any], where: str) -> dict[str, Tensor]:
    """Return dense tensors on the CPU by name, without the prefixes of torch.compile and data parallelism."""
    tensors = {}
    for name, value in found.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise CheckpointError(f"{where}: the entry {quoted(name)} is {of_type(value)}; expected a tensor")
        if value.layout != torch.strided or value.is_quantized or value.is_nested or value.is_meta:
            raise CheckpointError(f"{where}: {short(name)} is not a dense tensor with values")
        while name.startswith(("_orig_mod.", "module.")):
            name = name.split(".", 1)[1]
        tensors[name] = value.detach().cpu()
    if not tensors:
        raise CheckpointError(f"{where} contains no tensors")
    return tensors


def _of_folder(folder: Path) -> Source:
    """Open a Hugging Face folder with config.json and model.safetensors or pytorch_model.bin."""
    config = _json(folder / "config.json")
    if config is None:
        raise CheckpointError(f"{folder} has no config.json; a folder must be in Hugging Face's format")
    if not isinstance(config, Mapping):
        raise CheckpointError(f"{folder / 'config.json'} contains {of_type(config)}; expected an object")
    files = [folder / name for name in WEIGHTS if (folder / name).is_file()]
    index = _json(folder / "model.safetensors.index.json")
    if isinstance(index, Mapping) and isinstance(index.get("weight_map"), Mapping):
        names = sorted({str(name) for name in index["weight_map"].values()})
        if any(Path(name).name != name for name in names):
            raise CheckpointError(f"{folder}: its index names files outside the folder")
        files = files or [folder / name for name in names]
    if not files:
        raise CheckpointError(f"{folder} has a config.json, but neither {' nor '.join(WEIGHTS)}")
    shards = files if files[0].name not in WEIGHTS else files[:1]
    need("the weights of this folder", 2.0 * sum(path.stat().st_size for path in shards if path.is_file()))
    tensors: dict[str, Tensor] = {}
    for path in shards:
        tensors |= _dense(_read_file(path), str(path))
    return Source(str(folder), tensors, config, vocabulary_of(folder))


def vocabulary_of(folder: Path) -> dict[str, int] | None:
    """Read token strings and ids from tokenizer.json or vocab.json; None if neither contains them."""
    saved = _json(folder / "tokenizer.json")
    if isinstance(saved, Mapping) and isinstance(saved.get("model"), Mapping):
        words = saved["model"].get("vocab")
        added = saved.get("added_tokens") or []
        found = dict(words) if isinstance(words, Mapping) else {}
        found |= {entry.get("content"): entry.get("id") for entry in [*added] if isinstance(entry, Mapping)}
    else:
        saved = _json(folder / "vocab.json")
        found = dict(saved) if isinstance(saved, Mapping) else {}
    whole = {word: i for word, i in found.items() if isinstance(word, str) and type(i) is int and i >= 0}
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
    """Open a module: its state dict, and its config if it has an attribute `config`."""
    settings: Any = getattr(module, "config", None)
    config = settings.to_dict() if hasattr(settings, "to_dict") else {}
    if not config and hasattr(settings, "__dict__"):
        config = dict(vars(settings))  # a dataclass or a namespace, as in nanoGPT
    where = f"this {type(module).__name__}"
    return Source(where, _dense(module.state_dict(), where), config, module=module)
