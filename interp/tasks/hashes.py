"""The hash by which a spec identifies a user's tables."""

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor


def tensors_sha256(tensors: Mapping[str, Tensor], salt: str = "") -> str:
    """Hash named tensors: `salt`, then names, dtypes, shapes and bytes in the order of the names."""
    digest = hashlib.sha256(salt.encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
