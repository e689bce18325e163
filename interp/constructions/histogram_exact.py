"""The six exact histogram models by name; the mechanisms and proofs are in the files named in each docstring.

Common arguments: T tokens, sequences of length L (at least 1; L > T is fine), d_model and p (default: what the variant
needs at least; larger ones are filled with zeros), n_out = L or L + 1 classes (default L: class c means count c + 1;
with L + 1 class c means count c). All tensors are float64; tokens are 0..T-1, and a bos model's last embedding is BOS.
variant = "auto" means: the textbook orthogonal construction where d_model (default) and p allow it, else the one that
needs least. All raise InterpError for an unknown variant and for sizes that the variant does not serve.
"""

from __future__ import annotations

from interp.constructions import histogram_bos_softmax as bos_softmax
from interp.constructions import histogram_counting_direction as counting
from interp.constructions import histogram_dot_inventory as dot_inventory
from interp.constructions import histogram_linear as linear
from interp.constructions.base import ConstructedWeights
from interp.constructions.histogram_parts import check_variant
from interp.errors import InterpError
from interp.theory.frames import simplex_dimension
from interp.theory.ranges import MixingKind

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
"""Variants by model, the default first."""


def lin_exact(
    T: int = 32, L: int = 10, d_model: int | None = None, p: int | None = None, variant: str = "auto",
    n_out: int | None = None, *, a: float | None = None, seed: int | None = None,
) -> ConstructedWeights:  # fmt: skip
    """Fixed mixing, p >= T: `uniform` (A.3.1), `diagonal` (main text), `simplex` (d_model >= T - floor(T/L)), `frame`.

    auto: uniform for d_model >= T (and by default), simplex where d_model is large enough for it, else frame. `a`
    belongs to uniform, `seed` to frame. See histogram_linear.
    """
    return _linear("lin", T, L, d_model, p, variant, n_out, a, seed)


def lin_softmax_exact(
    T: int = 32, L: int = 10, d_model: int | None = None, p: int | None = None, variant: str = "auto",
    n_out: int | None = None, *, seed: int | None = None,
) -> ConstructedWeights:  # fmt: skip
    """Softmax of a fixed matrix, p >= T: `uniform` (A.3.2), `diagonal`, `simplex` (d_model >= T - floor(T/L)), `frame`.

    auto: uniform for d_model >= T (and by default), simplex where d_model is large enough for it, else frame. `seed`
    belongs to frame. See histogram_linear.
    """
    return _linear("lin-softmax", T, L, d_model, p, variant, n_out, None, seed)


def dot_exact(
    T: int = 32, L: int = 10, d_model: int | None = None, p: int | None = None, variant: str = "auto",
    n_out: int | None = None, *, alpha: float | None = None, seed: int | None = None,
) -> ConstructedWeights:  # fmt: skip
    """Raw scores: `orthogonal` (A.2.1, p >= 1), `simplex` (B.2.2, p >= 1, d_model >= T - floor(T/L) + 1),
    `counter-frame` (B.2.2, p >= 1), `frame` (B.2.3, p >= T, d_model 8 at T=32, L=10).

    auto: orthogonal for d_model >= T (and by default), simplex where d_model is large enough for it, else frame where
    p >= T, else counter-frame. `alpha` belongs to simplex and counter-frame (see histogram_counting_direction), `seed`
    to the frames (see also histogram_dot_inventory).
    """
    return _scores("dot", T, L, d_model, p, variant, n_out, alpha, seed)


def bos_exact(
    T: int = 32, L: int = 10, d_model: int | None = None, p: int | None = None, variant: str = "auto",
    n_out: int | None = None, *, alpha: float | None = None, seed: int | None = None,
) -> ConstructedWeights:  # fmt: skip
    """Raw scores with BOS: `bos-sum` (A.2.3, BOS = sum of tokens), `bos-zero` (A.2.3, as dot, BOS = 0), p >= 1, and
    with BOS = 0 also `simplex` and `counter-frame` (B.2.2, p >= 1) and `frame` (B.2.3, p >= T): all as for dot.

    auto: bos-sum for d_model >= T (and by default), below as for dot.
    """
    return _scores("bos", T, L, d_model, p, variant, n_out, alpha, seed)


def bos_softmax_exact(
    T: int = 32, L: int = 10, d_model: int | None = None, p: int | None = None, variant: str = "auto",
    n_out: int | None = None, *, kappa: float | None = None, alpha: float | None = None,
) -> ConstructedWeights:  # fmt: skip
    """Softmax with BOS, p >= 1: `orthogonal` (A.2.2), `binary` (B.3.1, d_model >= ceil(log2(T+1)) + 1), `circle` and
    `quarter-circle` (d_model >= 3); with `-printed` one dimension more and the counter in a coordinate of its own.

    auto: orthogonal for d_model >= T (and by default), binary where it fits, else circle. `kappa` and `alpha` belong
    to the codes. See histogram_bos_softmax.
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
    """Softmax over scores, p >= T: `orthogonal` (A.3.3), `frame` (d_model 6 at T=32, L=10; 7 or more for a margin).

    auto: orthogonal for d_model >= T (and by default), frame below. `kappa` and `seed` belong to frame. See
    histogram_dot_inventory.
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
            raise InterpError(f"variant {variant!r} of histogram/{model}-exact has no scale {name}, got {name}={value}")
