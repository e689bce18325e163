"""Position codes by name, as formulas of position i and length n: codes of the formal-language proofs, and sinusoids.

A code fills the first components of the residual stream; the others are zero. `<name>-doubled` is the code [x; -x] for
the layer-norm constructions (Chiang and Cholak 2022, section 5.3). This module works without transformer_lens.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import InterpError, check_one_of

Formula = Callable[[Tensor, Tensor, int], Tensor]
"""i: (rows, length), n: (rows, 1) and d_model -> (rows, length, d_model). i starts at 0; n excludes padding."""


def position_formula(name: str) -> Formula:
    """Return a formula by name, including "sinusoidal". Raises InterpError for an unknown name."""
    check_one_of("position formula", name, FORMULAS)
    return FORMULAS[name]


def sinusoidal(i: Tensor, n: Tensor, d_model: int) -> Tensor:
    """Interleave sin and cos of i / 10000^(2j/d) (Vaswani et al. 2017, section 3.5)."""
    rates = torch.exp(torch.arange(0, d_model, 2, device=i.device, dtype=i.dtype) * (-math.log(10000.0) / d_model))
    angles = i[..., None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)[..., :d_model]


# ---------------------------------------------------------------- codes of the proofs


def first(i: Tensor, n: Tensor) -> tuple[Tensor, ...]:
    """I[i = 1], the indicator of the first symbol; position 0 is CLS (Chiang and Cholak 2022, section 3.1)."""
    return ((i == 1).to(i),)


def fraction(i: Tensor, n: Tensor) -> tuple[Tensor, ...]:
    """i / n (Nowak et al. 2022, section 3.1.1; n counts CLS)."""
    return (i / n,)


def parity(i: Tensor, n: Tensor) -> tuple[Tensor, ...]:
    """i / n, and cos(i pi) as exactly +-1 (Chiang and Cholak 2022, section 3.2)."""
    return i / n, 1 - 2 * (i % 2)


def halves(i: Tensor, n: Tensor) -> tuple[Tensor, ...]:
    """i, n - 1 - i, I[i <= (n-1)/2], I[i >= (n-1)/2] (Nowak et al. 2022, section 3.2.1; n counts CLS and EOS)."""
    return i, n - 1 - i, (2 * i <= n - 1).to(i), (2 * i >= n - 1).to(i)


def mirror(i: Tensor, n: Tensor) -> tuple[Tensor, ...]:
    """sqrt(B) (cos t, sin t), t = pi i / (n-1), B = ln(16 n) / (1 - cos(pi / (n-1))).

    The score -B cos(t_i + t_j) is largest at the mirror image j = n-1-i, by at least ln(16 n).
    """
    steps = (n - 1).clamp(min=1)
    # 1 - cos(x) = 2 sin^2(x/2), without cancellation.
    strength = ((16 * n).log() / 2).sqrt() / torch.sin(math.pi / (2 * steps))
    # Written so that mirror images have bitwise equal sines and opposite cosines.
    cosine = torch.sin(math.pi * (steps - 2 * i) / (2 * steps))
    return strength * cosine, strength * torch.sin(math.pi * torch.minimum(i, steps - i) / steps)


def _embed(parts: tuple[Tensor, ...], d_model: int, name: str) -> Tensor:
    """Pad a code with zeros to d_model components."""
    if len(parts) > d_model:
        raise InterpError(f"positions {name!r} need {len(parts)} components; the model has d_model = {d_model}")
    code = torch.stack(torch.broadcast_tensors(*parts), -1)
    return torch.nn.functional.pad(code, (0, d_model - len(parts)))


Code = Callable[[Tensor, Tensor], tuple[Tensor, ...]]


def _embed_code(code: Code, name: str, i: Tensor, n: Tensor, d_model: int) -> Tensor:
    return _embed(code(i, n), d_model, name)


def _doubled(code: Code, name: str, i: Tensor, n: Tensor, d_model: int) -> Tensor:
    if d_model % 2:
        raise InterpError(f"positions '{name}-doubled' need an even d_model, not {d_model}")
    half = _embed(code(i, n), d_model // 2, name)
    return torch.cat([half, -half], -1)


CODES: tuple[Code, ...] = (first, fraction, parity, halves, mirror)
FORMULAS: dict[str, Formula] = {"sinusoidal": sinusoidal}
"""All formulas by name."""
for _code in CODES:
    for _suffix, _formula in (("", _embed_code), ("-doubled", _doubled)):
        FORMULAS[_code.__name__ + _suffix] = partial(_formula, _code, _code.__name__)  # unlike a closure, it pickles


# ---------------------------------------------------------------- positions that share a code


def position_codes(name: str, n: int, d_model: int) -> tuple[Float[Tensor, "codes d_model"], Int[Tensor, "length"]]:
    """Return the distinct codes of a row of n tokens in float64, and the index of each position's code.

    With spec.symmetry = "position_codes", positions with equal tokens and codes have equal residual streams. "first"
    has two codes at any length. Raises InterpError for an unknown name or n < 1.
    """
    if n < 1:
        raise InterpError(f"n = {n}: a row has at least one token")
    i, length = torch.arange(n, dtype=torch.float64)[None], torch.tensor([[float(n)]], dtype=torch.float64)
    return position_formula(name)(i, length, d_model)[0].unique(dim=0, return_inverse=True)
