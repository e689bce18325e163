"""State dicts in files and in checkpoints of training libraries, read without running code.

Names lose the prefixes of wrappers (torch.compile, DistributedDataParallel, FSDP), and the attribute in which a module
holds its only part, such as Lightning's `model.`.
"""

import errno
import re
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from interp.errors import CheckpointError, first_few, of_type, quoted, short
from interp.models.architecture.header import MAX_BYTES, opened, regular_file

NESTED = ("model", "state_dict", "model_state_dict", "net", "weights")
"""Common keys of state dicts in checkpoints."""
_WRAPPERS = re.compile(r"^(module\.)+|(?<![^.])(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
_BLOCKS = re.compile(r"^attn_blocks(?=\.\d)")
"""Another name of TransformerLens's blocks in research code."""
_CLASS = re.compile(r"GLOBAL (\S+) (?:was not an allowed global|whose module \S+ is blocked)")


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """Read the named tensors of a .pt, .pth or .safetensors file to the CPU, without executing anything.

    Raises CheckpointError unless the file contains a state dict, alone or as one entry of a checkpoint.
    """
    return named_tensors(read_mapping(path), str(path))


def read_mapping(path: str | Path) -> Mapping[Any, Any]:
    """Read the tensors of a safetensors file, or the mapping in any other file, with torch's weights_only loader."""
    path = regular_file(path)
    if path.suffix == ".safetensors":
        with opened(path):
            return load_file(path)
    try:
        with torch.serialization.safe_globals([]):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a hostile file can cause any error in torch
        if _ends_early(error):
            raise CheckpointError(f"{path} is not a whole file of torch.save: its end is missing or damaged") from None
        # Text, or a pickle of others: torch meets an unknown operand, or looks for what was never stored.
        if "Unsupported operand" in str(error) or isinstance(error, KeyError | IndexError):
            raise CheckpointError(f"{path} cannot be read without running code: torch.save did not write it") from None
        raise CheckpointError(f"{path} cannot be read without running code: {_reason(error)}") from None
    if not isinstance(content, Mapping):
        raise CheckpointError(f"{path} contains {of_type(content)}; expected a state dict (names and tensors)")
    if damaged := _damaged(path):
        warnings.warn(
            f"{path} may be damaged: the checksum of {damaged} is wrong, which torch does not look at (or the file was "
            "saved without checksums)",
            stacklevel=2,
        )
    return content


def _damaged(path: Path) -> str | None:
    """Return the first record of a torch.save file whose checksum is wrong, or that cannot be read as it says."""
    if not zipfile.is_zipfile(path):  # the format before torch 1.6 has none
        return None
    try:
        with zipfile.ZipFile(path) as records:
            stored = all(record.compress_type == zipfile.ZIP_STORED for record in records.infolist())
            return records.testzip() if stored else "compressed records, which torch.save does not write,"
    except Exception:  # a hostile file can cause any error in zipfile
        return "its list of records"


def _ends_early(error: Exception) -> bool:
    """Test for the errors of torch in a file that was cut off."""
    if isinstance(error, OSError):
        return error.errno == errno.EINVAL  # it seeks beyond the start
    return isinstance(error, EOFError) or any(
        words in str(error) for words in ("PytorchStreamReader", "unexpected EOF", "Ran out of input")
    )


def _reason(error: Exception) -> str:
    """Return torch's reason for refusing a file as one sentence, with the class that it would have to import."""
    text = str(error).split("WeightsUnpickler error: ")[-1]  # advice for users of torch.load comes first
    if match := _CLASS.search(text):
        return (
            f"it contains {short(match[1])}, whose code would run; save the tensors alone, with "
            "torch.save(model.state_dict(), path)"
        )
    return short(re.split(r"(?<=[.?!])\s|\n", text.strip())[0].rstrip("."), 200) or type(error).__name__


def nested(found: Mapping[Any, Any], where: str) -> Mapping[Any, Any]:
    """Return the state dict in a checkpoint, or the mapping itself if it is one."""
    names = [name for name in NESTED if _is_state_dict(found.get(name))]
    arrays = [name for name, value in found.items() if isinstance(value, np.ndarray)]
    if arrays and not names and not any(isinstance(value, Tensor) for value in found.values()):
        raise CheckpointError(
            f"{where} contains numpy arrays ({first_few(arrays, 2)}); expected tensors, which torch.from_numpy makes"
        )
    # A checkpoint may have single tensors besides its state dict, such as nanoGPT's best_val_loss.
    if not names and any(isinstance(value, Tensor) for value in found.values()):
        return found
    names = names or [name for name, value in found.items() if _is_state_dict(value)]
    if len(names) != 1:
        raise CheckpointError(
            f"{where} contains {first_few(found) or 'an empty dict'}; expected a state dict, or exactly one entry with "
            "a state dict" + (f", not {len(names)}" if names else "")
        )
    return dict(found[names[0]])


def _is_state_dict(value: object) -> bool:
    return isinstance(value, Mapping) and bool(value) and all(isinstance(tensor, Tensor) for tensor in value.values())


def named_tensors(found: Mapping[Any, Any], where: str = "this mapping") -> dict[str, Tensor]:
    """Return the tensors of a state dict, alone or in a checkpoint, on the CPU, by names without wrappers' prefixes.

    Raises CheckpointError for entries that are not dense tensors.
    """
    tensors = {}
    for name, value in nested(found, where).items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise CheckpointError(f"{where}: the entry {quoted(name)} is {of_type(value)}; expected a tensor")
        if value.layout != torch.strided or value.is_quantized or value.is_nested or value.is_meta:
            raise CheckpointError(f"{where}: {short(name)!r} is not a dense tensor with values")
        tensors[_BLOCKS.sub("blocks", _WRAPPERS.sub("", name))] = value.detach().cpu()
    views = [tensor.nbytes for tensor in tensors.values() if tensor.nbytes > tensor.untyped_storage().nbytes()]
    if sum(views) > MAX_BYTES:  # a few bytes, seen many times: a small file that fills the memory
        raise CheckpointError(f"{where}: its tensors have {sum(views):,} bytes, more than the limit of {MAX_BYTES:,}")
    while (holder := only_part(tensors)) is not None:
        tensors = {name.removeprefix(f"{holder}."): tensor for name, tensor in tensors.items()}
    return tensors


def only_part(names: Iterable[str]) -> str | None:
    """Return the attribute with which all names begin, if it holds one module rather than a list of layers.

    A bare GPT-2 keeps the name that its readers know.
    """
    parts = [name.split(".", 2) for name in names]
    holders = {part[0] for part in parts}
    single = len(holders) == 1 and all(len(part) > 1 and not part[1].isdecimal() for part in parts)
    return holders.pop() if single and any(len(part) > 2 for part in parts) and holders != {"transformer"} else None
