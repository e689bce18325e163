"""Compiled CPU training, one model per core at a time. This package exports the kernel of the histogram models.

Needs numba (the extra "fast"), which is imported on first use of HistogramKernel. Neither torch nor TransformerLens is
imported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interp.errors import InterpError
from interp.theory.block_samplers import SAMPLERS, count_distribution

if TYPE_CHECKING:
    from interp.training.compiled.histogram import HistogramKernel

__all__ = ["SAMPLERS", "HistogramKernel", "count_distribution"]


def __getattr__(name: str) -> Any:
    if name != "HistogramKernel":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from interp.training.compiled.histogram import HistogramKernel
    except ModuleNotFoundError as error:
        if error.name in ("numba", "llvmlite"):
            raise InterpError("the compiled training kernels need numba; install it with: pip install numba") from error
        raise
    return HistogramKernel
