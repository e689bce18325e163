"""What "the same outputs up to rounding" means: of two programs, and of two runs of one program.

Two programs are a converted model and its original; `compare` runs them, and Comparison.same decides. Two runs of one
program on the same numbers, such as a task model and its fresh copy, must agree far more closely: see `of_two_runs`.

The limit on float32 numbers is no property of a conversion: large sums that cancel lose digits in any correct program.
So both models run in float64 where the original can, and the difference is compared with what float32 alone changes.
"""

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from interp.errors import CheckpointError, InterpError, of_type
from interp.models.lens import HookedTransformer, is_bridge

Model = TypeVar("Model", bound=HookedTransformer)
Runs = Callable[[torch.dtype], Tensor]
"""A model's logits on fixed inputs, run in a number format, or in the model's own if it cannot be changed."""

TOLERANCE = 1e-5
"""Difference that is always allowed, relative to the largest logit."""
ROUNDINGS = 8.0
"""Allowed difference, in multiples of what float32 changes."""
STEPS = 64.0
"""Largest difference between two runs of one program, in units in the last place of the largest output."""
ANGLES = 0.01
"""Largest difference of sines and cosines that is rounding: half precision changes them by .004."""


@dataclass(frozen=True)
class Comparison:
    """The largest difference of two models' logits, relative to the original's largest logit (at least 1).

    difference: with the original in `precision` and the converted model in float64. rounding: what float32 instead of
    float64 changes in the original, or in the converted model, if the original runs in one format only. at, ours,
    theirs: the index of the largest difference, and both values there.
    """

    difference: float
    rounding: float
    precision: str
    at: tuple[int, ...]
    ours: float
    theirs: float

    @property
    def same(self) -> bool:
        """Whether the difference is at most TOLERANCE, or at most ROUNDINGS times the rounding of float32, if finite.

        This measure is for conversions and for models to be certified alike.
        """
        return self.difference <= max(TOLERANCE, ROUNDINGS * self.rounding if math.isfinite(self.rounding) else 0.0)

    def __str__(self) -> str:
        return (
            f"logits differ by at most {self.difference:.1e} of the largest logit in {self.precision}; "
            f"float32 alone changes them by {self.rounding:.1e}"
        )


class NotCompared(CheckpointError):
    """Two models could not be compared: the original does not run, or its outputs have another shape."""


class Differs(CheckpointError):
    """A converted model is not its original."""


@torch.no_grad()
def compare(ours: Runs, theirs: Runs) -> Comparison:
    """Compare two models on the same inputs. Raises NotCompared if their logits have different shapes."""
    mine, exact = ours(torch.float64).double().cpu(), theirs(torch.float64).detach().cpu()
    if mine.shape != exact.shape:
        raise NotCompared(
            f"the original's logits have shape {tuple(exact.shape)}, the converted model's {tuple(mine.shape)}"
        )
    precision, other = str(exact.dtype).removeprefix("torch."), exact.double()
    scale = max(1.0, *other[other.isfinite()].abs().amax().reshape(-1).tolist()) if other.isfinite().any() else 1.0

    def rounding(runs: Runs, exact: Tensor) -> float:
        return float(_apart(runs(torch.float32).double().cpu(), exact).max()) / scale

    apart = _apart(mine, other)
    at = tuple(int(i) for i in torch.unravel_index(apart.argmax(), apart.shape))
    return Comparison(
        float(apart.max()) / scale, rounding(theirs, other) or rounding(ours, mine), precision, at,
        float(mine[at]), float(other[at]),
    )  # fmt: skip


def _apart(first: Tensor, second: Tensor) -> Tensor:
    """Return the size of each difference: 0 between equal infinities, infinite where only one is a number."""
    return torch.where(first == second, 0.0, first - second).abs().nan_to_num(nan=torch.inf, posinf=torch.inf)


def of_two_runs(wanted: Tensor) -> float:
    """Return how far outputs of one program may differ between two runs in one number format."""
    limits, finite = torch.finfo(wanted.dtype), wanted.nan_to_num(0, 0, 0).abs()
    scale = float(finite.max()) if finite.numel() else 0.0  # a batch may have no rows
    return STEPS * limits.eps * scale + limits.tiny


def first_apart(found: Tensor, wanted: Tensor, near: float) -> int | None:
    """Return the first row in which values differ by more than `near`, or only one is finite; None if there is none."""
    if found.shape != wanted.shape:
        return 0
    finite = wanted.isfinite()
    apart = (found.isfinite() != finite) | (finite & ~((found - wanted).abs() <= near))
    return int(apart.nonzero()[0, 0]) if bool(apart.any()) else None


def runs(original: Any, tokens: Tensor) -> Runs:
    """Return the logits of an original on rows of its token ids, as a function of the number format.

    original: a HookedTransformer or another module, which runs in evaluation mode and is not changed, or a function,
    which runs in its own format. A module that cannot run in a format runs in float32, or as it is. Logits may be an
    attribute of the result, as in transformers, or the first of several results. The model runs once in each format.
    """

    @cache
    def run(dtype: torch.dtype) -> Tensor:
        if isinstance(original, HookedTransformer):
            return _logits(cast(original, dtype).eval()(tokens))
        if not isinstance(original, nn.Module):
            return _logits(original(tokens))
        for kind in () if is_bridge(original) else (dtype, torch.float32):
            try:
                return _logits(copy.deepcopy(original).eval().to(kind)(tokens))
            except Exception:  # a module of somebody else may fix a number format, or forbid copies
                continue
        with evaluating(original):
            return _logits(original(tokens))

    return run


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Within this context, a module and its parts are in evaluation mode."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def _logits(output: Any) -> Tensor:
    output = getattr(output, "logits", output)
    try:
        return torch.as_tensor(output[0] if isinstance(output, tuple) and output else output).detach()
    except (RuntimeError, TypeError, ValueError):
        raise InterpError(f"the model returns {of_type(output)}, where logits are expected") from None


def cast(model: Model, dtype: torch.dtype) -> Model:
    """Return a copy of a model that computes in another number format.

    Its tables of rotary angles are made anew in that format, if they are those of its config.
    """
    copied = copy.deepcopy(model)
    ours = [_has_own_angles(block.attn) for block in copied.blocks]
    copied.cfg.dtype = dtype
    nn.Module.to(copied, dtype)  # TransformerLens's own `to` makes a state dict for each tensor
    for block, own_angles in zip(copied.blocks, ours):
        attention: Any = block.attn
        if own_angles:  # TransformerLens would keep angles rounded to the old format
            attention._extend_rotary_embeddings(attention.rotary_cos.shape[0])
        if hasattr(attention, "alibi"):
            attention.alibi = None  # TransformerLens makes it on the next run
    return copied


def _has_own_angles(attention: Any) -> bool:
    """Test whether tables of rotary angles are there, and are those that the config gives, up to rounding."""
    if "rotary_cos" not in attention._buffers:
        return False
    fresh = copy.deepcopy(attention)
    fresh._extend_rotary_embeddings(attention.rotary_cos.shape[0])
    pairs = [(attention.rotary_cos, fresh.rotary_cos), (attention.rotary_sin, fresh.rotary_sin)]
    return all(bool(((held - computed).abs() <= ANGLES).all()) for held, computed in pairs)
