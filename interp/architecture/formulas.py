"""Position codes as formulas of (i, n), by name: the codes of the formal-language proofs, and the sinusoids.

Each code stands in the first components of the residual stream, the rest are zero. `<name>-doubled` is the same code x
in a stream that holds [x; -x], as the layer-norm constructions need (Chiang and Cholak 2022, section 5.3).
Nothing here imports transformer_lens, so that engines can use the codes without loading it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from types import FunctionType

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import InterpError, one_of
from interp.spec import PLAIN_POSITIONS

Formula = Callable[[Tensor, Tensor, int], Tensor]
"""(i: (rows, length), n: (rows, 1), d_model) -> (rows, length, d_model); i counts from 0, n is a row's true length."""

_FORMULAS: dict[str, Formula] = {}


def register_positions(name: str) -> Callable[[Formula], Formula]:
    """Make a formula known by a name that specs can use; a decorator. Raises InterpError on a name that is taken."""

    def add(formula: Formula) -> Formula:
        known = _FORMULAS.get(name)
        # The same function again (a notebook cell run twice) replaces itself.
        again = isinstance(known, FunctionType) and (known.__module__, known.__qualname__) == (
            formula.__module__,
            formula.__qualname__,
        )
        if name in PLAIN_POSITIONS or (known is not None and not again):
            raise InterpError(f"positions named {name!r} are known already")
        _FORMULAS[name] = formula
        return formula

    return add


def registered_positions() -> tuple[str, ...]:
    """The names of all known formulas."""
    return tuple(_FORMULAS)


def position_formula(name: str) -> Formula:
    """The formula of a name, "sinusoidal" included. Raises InterpError for an unknown name."""
    if name == "sinusoidal":
        return sinusoidal
    if name not in _FORMULAS:
        raise InterpError(one_of("position formula", name, ("sinusoidal", *_FORMULAS)))
    return _FORMULAS[name]


def sinusoidal(i: Tensor, n: Tensor, d_model: int) -> Tensor:
    """sin and cos of i / 10000^(2j/d), interleaved (Vaswani et al. 2017, section 3.5)."""
    rates = torch.exp(torch.arange(0, d_model, 2, device=i.device, dtype=i.dtype) * (-math.log(10000.0) / d_model))
    angles = i[..., None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)[..., :d_model]


# ---------------------------------------------------------------- codes of the proofs


def first(i: Tensor, n: Tensor) -> tuple[Tensor, ...]:
    """I[i = 1]: is this the first symbol? (position 0 is CLS; Chiang and Cholak 2022, section 3.1)"""
    return ((i == 1).to(i),)


def fraction(i: Tensor, n: Tensor) -> tuple[Tensor, ...]:
    """i / n (Nowak et al. 2022, section 3.1.1; n counts CLS)."""
    return (i / n,)


def parity(i: Tensor, n: Tensor) -> tuple[Tensor, ...]:
    """i / n and cos(i pi), the latter exactly +-1 (Chiang and Cholak 2022, section 3.2)."""
    return i / n, 1 - 2 * (i % 2)


def halves(i: Tensor, n: Tensor) -> tuple[Tensor, ...]:
    """i, n - 1 - i, I[i <= (n-1)/2], I[i >= (n-1)/2] (Nowak et al. 2022, section 3.2.1; n counts CLS and EOS)."""
    return i, n - 1 - i, (2 * i <= n - 1).to(i), (2 * i >= n - 1).to(i)


def mirror(i: Tensor, n: Tensor) -> tuple[Tensor, ...]:
    """sqrt(B) (cos t, sin t), t = pi i / (n-1), B = ln(16 n) / (1 - cos(pi / (n-1))).

    The score -cos cos + sin sin = -B cos(t_i + t_j) is largest, by at least ln(16 n), at the mirror image j = n-1-i.
    """
    steps = (n - 1).clamp(min=1)
    # 1 - cos(x) = 2 sin^2(x/2), without cancellation.
    strength = ((16 * n).log() / 2).sqrt() / torch.sin(math.pi / (2 * steps))
    # Written so that the mirror image's code is the same to the last bit, with the sign of the cosine changed.
    cosine = torch.sin(math.pi * (steps - 2 * i) / (2 * steps))
    return strength * cosine, strength * torch.sin(math.pi * torch.minimum(i, steps - i) / steps)


def _embed(parts: tuple[Tensor, ...], d_model: int, name: str) -> Tensor:
    """The code in the first components of d_model."""
    if len(parts) > d_model:
        raise InterpError(f"positions {name!r} need {len(parts)} components; the model has d_model = {d_model}")
    code = torch.stack(torch.broadcast_tensors(*parts), -1)
    return torch.nn.functional.pad(code, (0, d_model - len(parts)))


Code = Callable[[Tensor, Tensor], tuple[Tensor, ...]]


def _plain(code: Code, name: str, i: Tensor, n: Tensor, d_model: int) -> Tensor:
    return _embed(code(i, n), d_model, name)


def _doubled(code: Code, name: str, i: Tensor, n: Tensor, d_model: int) -> Tensor:
    if d_model % 2:
        raise InterpError(f"positions '{name}-doubled' need an even d_model, not {d_model}")
    half = _embed(code(i, n), d_model // 2, name)
    return torch.cat([half, -half], -1)


for _code in (first, fraction, parity, halves, mirror):
    for _suffix, _formula in (("", _plain), ("-doubled", _doubled)):
        _FORMULAS[_code.__name__ + _suffix] = partial(_formula, _code, _code.__name__)  # unlike a closure, it pickles


# ---------------------------------------------------------------- which positions share a code


def position_codes(name: str, n: int, d_model: int) -> tuple[Float[Tensor, "codes d_model"], Int[Tensor, "length"]]:
    """The distinct codes of a row of n tokens, and which of them each position has.

    A bidirectional model gives equal rows to positions of equal token and equal code (spec.symmetry =
    "position_codes"): with "first", two codes serve any length. Codes are float64. Raises InterpError for an unknown
    name or n < 1.
    """
    if n < 1:
        raise InterpError(f"n = {n}: a row has at least one token")
    i, length = torch.arange(n, dtype=torch.float64)[None], torch.tensor([[float(n)]], dtype=torch.float64)
    return position_formula(name)(i, length, d_model)[0].unique(dim=0, return_inverse=True)
