"""The six exact histogram models. Each docstring names the file that contains the mechanism and the proof.

Sections such as A.3.1 are of the paper on the histogram task, Behrens et al. (2024).

Common arguments: T tokens; sequences of length L (at least 1; L > T is allowed); d_model and the number p of hidden
neurons (default: the smallest that the variant allows; larger sizes are padded with zeros); n_out = L or L + 1 classes
(default L: class c means count c + 1; with L + 1 classes, class c means count c). All tensors are float64. Tokens are
0..T-1, and the last embedding of a bos model is BOS. variant = "auto" selects the orthogonal construction if d_model is
left out or at least T, else the variant described in each docstring. All functions raise InterpError for an unknown
variant and for sizes at which the variant does not work.
"""

from __future__ import annotations

from interp.constructions.base import ConstructedWeights
from interp.errors import InterpError
from interp.families.histogram.constructions import bos_softmax, dot_inventory, linear
from interp.families.histogram.constructions import counting_direction as counting
from interp.families.histogram.constructions.parts import check_variant
from interp.families.histogram.theory.frames import simplex_dimension
from interp.families.histogram.theory.ranges import MixingKind

VARIANTS: dict[str, tuple[str, ...]] = {
    "lin": ("uniform", "diagonal", "simplex", "frame"),
    "lin-softmax": ("uniform", "diagonal", "simplex", "frame"),
    "dot": ("orthogonal", "simplex", "counter-frame", "frame"),
    "dot-softmax": ("orthogonal", "frame"),
    "bos": ("bos-sum", "bos-zero", "simplex", "counter-frame", "frame"),
    "bos-softmax": (
        "orthogonal", "binary", "circle", "quarter-circle",
        "binary-printed", "circle-printed", "quarter-circle-printed",
    ),
}  # fmt: skip
"""Variants of each model; the first is the default."""


def lin_exact(
    T: int = 32, L: int = 10, d_model: int | None = None, p: int | None = None, variant: str = "auto",
    n_out: int | None = None, *, a: float | None = None, seed: int | None = None,
) -> ConstructedWeights:  # fmt: skip
    """Build `lin`: fixed mixing, p >= T.

    Variants: `uniform` (A.3.1), `diagonal` (main text), `simplex` (d_model >= T - floor(T/L)) and `frame`. auto is
    uniform for d_model >= T (and by default), else simplex if d_model is large enough for it, else frame. `a` applies
    to uniform only, `seed` to frame only. See histogram_linear.
    """
    return _linear("lin", T, L, d_model, p, variant, n_out, a, seed)


def lin_softmax_exact(
    T: int = 32, L: int = 10, d_model: int | None = None, p: int | None = None, variant: str = "auto",
    n_out: int | None = None, *, seed: int | None = None,
) -> ConstructedWeights:  # fmt: skip
    """Build `lin-softmax`: softmax of a fixed matrix, p >= T.

    Variants: `uniform` (A.3.2), `diagonal`, `simplex` (d_model >= T - floor(T/L)) and `frame`. auto is as for `lin`.
    `seed` applies to frame only. See histogram_linear.
    """
    return _linear("lin-softmax", T, L, d_model, p, variant, n_out, None, seed)


def dot_exact(
    T: int = 32, L: int = 10, d_model: int | None = None, p: int | None = None, variant: str = "auto",
    n_out: int | None = None, *, alpha: float | None = None, seed: int | None = None,
) -> ConstructedWeights:  # fmt: skip
    """Build `dot`: raw scores, no softmax.

    Variants: `orthogonal` (A.2.1, p >= 1), `simplex` (B.2.2, p >= 1, d_model >= T - floor(T/L) + 1), `counter-frame`
    (B.2.2, p >= 1) and `frame` (B.2.3, p >= T; d_model = 8 at T = 32, L = 10). auto is orthogonal for d_model >= T (and
    by default), else simplex if d_model is large enough for it, else frame if p >= T, else counter-frame. `alpha`
    applies to simplex and counter-frame (with d_model >= T, giving it selects simplex), `seed` to counter-frame and
    frame. See histogram_counting_direction and, for frame, histogram_dot_inventory.
    """
    return _scores("dot", T, L, d_model, p, variant, n_out, alpha, seed)


def bos_exact(
    T: int = 32, L: int = 10, d_model: int | None = None, p: int | None = None, variant: str = "auto",
    n_out: int | None = None, *, alpha: float | None = None, seed: int | None = None,
) -> ConstructedWeights:  # fmt: skip
    """Build `bos`: raw scores with a BOS token.

    Variants: `bos-sum` (A.2.3, p >= 1), where the BOS embedding is the sum of the token embeddings; `bos-zero` (A.2.3,
    p >= 1), which is the orthogonal variant of dot with a BOS embedding of 0; and `simplex`, `counter-frame` and
    `frame`, also as in dot with a BOS embedding of 0. auto is bos-sum for d_model >= T (and by default), otherwise as
    for dot. See the files named in `dot_exact`.
    """
    return _scores("bos", T, L, d_model, p, variant, n_out, alpha, seed)


def bos_softmax_exact(
    T: int = 32, L: int = 10, d_model: int | None = None, p: int | None = None, variant: str = "auto",
    n_out: int | None = None, *, kappa: float | None = None, alpha: float | None = None,
) -> ConstructedWeights:  # fmt: skip
    """Build `bos-softmax`: softmax attention with a BOS token, p >= 1.

    Variants: `orthogonal` (A.2.2), `binary` (B.3.1, d_model >= ceil(log2(T+1)) + 1), and `circle` and `quarter-circle`
    (d_model >= 3). The last three are codes: fixed vectors of few dimensions for the tokens. Their `-printed`
    forms follow the paper and use one more dimension, a separate coordinate for the counter. auto is orthogonal for
    d_model >= T (and by default), else binary if it fits, else circle. `kappa` and `alpha` apply to the codes only;
    giving either selects binary instead of orthogonal. See histogram_bos_softmax.
    """
    if variant == "auto":
        if d_model is None or d_model >= T:
            variant = "orthogonal" if kappa is None and alpha is None else "binary"
        else:
            variant = "binary" if d_model >= T.bit_length() + 1 else "circle"
    check_variant("bos-softmax", variant, VARIANTS["bos-softmax"])
    if variant == "orthogonal":
        _unused("bos-softmax", variant, kappa=kappa, alpha=alpha)
        return bos_softmax.orthogonal(T, L, d_model, p, n_out)
    return bos_softmax.code(variant, T, L, d_model, p, n_out, kappa, alpha)


def dot_softmax_exact(
    T: int = 32, L: int = 10, d_model: int | None = None, p: int | None = None, variant: str = "auto",
    n_out: int | None = None, *, kappa: float | None = None, seed: int | None = None,
) -> ConstructedWeights:  # fmt: skip
    """Build `dot-softmax`: softmax over scores, p >= T.

    Variants: `orthogonal` (A.3.3) and `frame` (at T = 32, L = 10 from d_model = 6, with a usable margin from 7). auto
    is orthogonal for d_model >= T (and by default) unless kappa is given, else frame. `kappa` and `seed` apply to
    frame only. See histogram_dot_inventory.
    """
    if variant == "auto":
        variant = "orthogonal" if (d_model is None or d_model >= T) and kappa is None else "frame"
    check_variant("dot-softmax", variant, VARIANTS["dot-softmax"])
    if variant == "orthogonal":
        _unused("dot-softmax", variant, kappa=kappa, seed=seed)
        return dot_inventory.softmax_orthogonal(T, L, d_model, p, n_out)
    return dot_inventory.softmax_frame(T, L, d_model, p, n_out, kappa, seed or 0)


def _linear(
    model: MixingKind, T: int, L: int, d_model: int | None, p: int | None, variant: str, n_out: int | None,
    a: float | None, seed: int | None,
) -> ConstructedWeights:  # fmt: skip
    if variant == "auto":
        if d_model is None or d_model >= T:
            variant = "uniform"
        else:
            variant = "simplex" if d_model >= simplex_dimension(T, L) else "frame"
    check_variant(model, variant, VARIANTS[model])
    if variant == "frame":
        _unused(model, variant, a=a)
        return linear.frame(model, T, L, d_model, p, n_out, seed or 0)
    _unused(model, variant, seed=seed)
    if variant == "uniform":
        return linear.uniform(model, T, L, d_model, p, n_out, a)
    _unused(model, variant, a=a)
    return (linear.diagonal if variant == "diagonal" else linear.simplex)(model, T, L, d_model, p, n_out)


def _scores(
    model: MixingKind, T: int, L: int, d_model: int | None, p: int | None, variant: str, n_out: int | None,
    alpha: float | None, seed: int | None,
) -> ConstructedWeights:  # fmt: skip
    if variant == "auto":
        if d_model is None or d_model >= T:
            variant = VARIANTS[model][0] if alpha is None else "simplex"
        elif d_model > simplex_dimension(T, L):
            variant = "simplex"
        else:
            variant = "frame" if p is not None and p >= T else "counter-frame"
    check_variant(model, variant, VARIANTS[model])
    coordinate = 1.0 if alpha is None else alpha
    if variant == "counter-frame":
        return counting.counter_frame(model, T, L, d_model, p, n_out, coordinate, seed or 0)
    if variant == "frame":
        _unused(model, variant, alpha=alpha)
        return dot_inventory.frame(model, T, L, d_model, p, n_out, seed or 0)
    _unused(model, variant, seed=seed)
    if variant == "simplex":
        return counting.simplex(model, T, L, d_model, p, n_out, coordinate)
    _unused(model, variant, alpha=alpha)
    if variant == "bos-sum":
        return counting.bos_sum(T, L, d_model, p, n_out)
    return counting.orthogonal(model, T, L, d_model, p, n_out)


def _unused(model: str, variant: str, **scales: float | None) -> None:
    for name, value in scales.items():
        if value is not None:
            raise InterpError(f"variant {variant!r} of histogram/{model}-exact does not take {name}; got {value}")
