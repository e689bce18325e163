"""The layout of a model's parameters in the flat vector that a compiled loop trains, and the key of the compiled code.

Every row is padded to whole vectors with zeros. Padding has zero gradient, so Adam keeps it zero.

numba recompiles a function only if the function's own file changed. So a hash of its module, of all compiled code that
this imports, and of the layouts of its arguments enters each compiled function as a captured value, which is part of
the key of numba's cache.
"""

import hashlib
import math
import re
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

PAD_BYTES = 64  # one vector


def padded(n: int, dtype: Any) -> int:
    """Round n numbers up to whole vectors."""
    lanes = PAD_BYTES // np.dtype(dtype).itemsize
    return -(-n // lanes) * lanes


def aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return zeros aligned to the vector size."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.zeros(size + PAD_BYTES, np.uint8)
    offset = -raw.ctypes.data % PAD_BYTES
    return raw[offset : offset + size].view(dtype).reshape(shape)


def tuple_of(arrays: Callable[..., dict[str, np.ndarray]], sizes: Any) -> Any:
    """Return the namedtuple `Work` of the arrays that `arrays(sizes, rows, dtype)` makes.

    It belongs to the module of `arrays`, where numba's cache looks for it.
    """
    names = arrays(sizes(*[1] * len(sizes._fields)), 1, np.float32)
    return namedtuple("Work", names, module=arrays.__module__)


@dataclass(frozen=True)
class Layout:
    """The blocks of a flat vector.

    shapes: the padded shape of each block, in order. gather: builds the compiled code's argument from the blocks.
    named: the same data by parameter name, in the parameters' shapes (x @ W convention), without padding.
    """

    shapes: Mapping[str, tuple[int, ...]]
    dtype: np.dtype
    gather: Callable[..., Any]
    named: Callable[[Any], dict[str, np.ndarray]]

    def zeros(self) -> np.ndarray:
        """Return a zero vector for parameters, gradients or a moment of Adam."""
        return aligned((sum(math.prod(shape) for shape in self.shapes.values()),), self.dtype)

    def blocks(self, flat: np.ndarray) -> Any:
        """Return the parts of a flat vector in the compiled code's format (views)."""
        blocks, at = {}, 0
        for name, shape in self.shapes.items():
            size = math.prod(shape)
            blocks[name] = flat[at : at + size].reshape(shape)
            at += size
        return self.gather(**blocks)

    def views(self, flat: np.ndarray) -> dict[str, np.ndarray]:
        """Return the parameters by name; writing to one writes to `flat`."""
        return self.named(self.blocks(flat))


ROOT = Path(__file__).parents[3]
IMPORT = re.compile(r"^from (interp\.(?:\w+\.)*compiled\.\w+) import", re.MULTILINE)


def file_of(module: str) -> Path:
    """Return the file of one of interp's modules, without importing it."""
    return (ROOT / module.replace(".", "/")).with_suffix(".py")


@cache
def sources(module: str) -> str:
    """Return the SHA-256 of a module, of the compiled ones that it imports, directly or not, and of its layouts."""
    texts: dict[str, str] = {}
    left = [module, f"{__package__}.layout", f"{module.rpartition('.')[0]}.layout"]
    while left:
        if (name := left.pop()) not in texts and file_of(name).is_file():
            texts[name] = file_of(name).read_text("utf-8")
            left += IMPORT.findall(texts[name])
    return hashlib.sha256("".join(texts[name] for name in sorted(texts)).encode()).hexdigest()
