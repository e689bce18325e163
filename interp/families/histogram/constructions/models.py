"""The six exact histogram models under their registered names: histogram/lin-exact, ..., histogram/bos-softmax-exact.

Each docstring lists the variants and names the file that contains the mechanism and the proof; this file chooses the
variant and adds task and spec. Sections such as A.3.1 are of the paper on the histogram task, Behrens et al. (2024).

Common arguments: T tokens; sequences of length L (at least 1; L > T is allowed); d_model and the number p of hidden
neurons (default: the smallest that the variant allows; larger sizes are padded with zeros); zero_class: L + 1 output
classes, as in the authors' code, where class c means count c (default: L classes, where class c means count c + 1). All
tensors are float64. Tokens are 0..T-1, and the last embedding of a bos model is BOS. variant = "auto" selects the
orthogonal construction if d_model is left out or at least T, else the variant described in each docstring. All
functions raise InterpError for sizes at which a variant does not work.
"""

from typing import Literal

from interp.constructions import Construct, ConstructedWeights, register_construction
from interp.errors import InterpError
from interp.families.histogram.constructions import bos_softmax as attention_on_bos
from interp.families.histogram.constructions import counting_direction, dot_inventory, linear
from interp.families.histogram.constructions.parts import check_variant
from interp.families.histogram.tasks import Histogram
from interp.families.histogram.theory.frames import simplex_dimension
from interp.families.histogram.theory.ranges import MixingKind
from interp.spec import Construction, Layer, ModelSpec, Training

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


def _variants(model: MixingKind) -> tuple[str, ...]:
    return ("auto", *VARIANTS[model])


@register_construction("histogram/lin-exact", _variants("lin"))
def lin(
    T: int = 32, L: int = 10, d_model: int | None = None, p: int | None = None, variant: str = "auto",
    zero_class: bool = False, a: float | None = None, seed: int | None = None,
) -> Construct:  # fmt: skip
    """Counts by an inventory: fixed mixing without softmax, one hidden neuron per token (p >= T).

    Variants: `uniform` (A.3.1), `diagonal` (main text), `simplex` (d_model >= T - floor(T/L)) and `frame`. auto is
    uniform for d_model >= T (and by default), else simplex if d_model is large enough for it, else frame. `a` applies
    to uniform only, `seed` to frame only. See `linear.py`.
    """
    weights = _linear("lin", T, L, d_model, p, variant, L + zero_class, a, seed)
    return _construct("lin", T, L, zero_class, weights, a=a, seed=seed)


@register_construction("histogram/lin-softmax-exact", _variants("lin-softmax"))
def lin_softmax(
    T: int = 32, L: int = 10, d_model: int | None = None, p: int | None = None, variant: str = "auto",
    zero_class: bool = False, seed: int | None = None,
) -> Construct:  # fmt: skip
    """Counts by an inventory: softmax of a fixed matrix, one hidden neuron per token (p >= T).

    Variants: `uniform` (A.3.2), `diagonal`, `simplex` (d_model >= T - floor(T/L)) and `frame`. auto is as for `lin`.
    `seed` applies to frame only. See `linear.py`.
    """
    weights = _linear("lin-softmax", T, L, d_model, p, variant, L + zero_class, None, seed)
    return _construct("lin-softmax", T, L, zero_class, weights, seed=seed)


@register_construction("histogram/dot-exact", _variants("dot"))
def dot(
    T: int = 32, L: int = 10, d_model: int | None = None, p: int | None = None, variant: str = "auto",
    zero_class: bool = False, alpha: float | None = None, seed: int | None = None,
) -> Construct:  # fmt: skip
    """Counts by raw scores: along one direction that all tokens share (p >= 1), or by an inventory (`frame`, p >= T).

    Variants: `orthogonal` (A.2.1, p >= 1), `simplex` (B.2.2, p >= 1, d_model >= T - floor(T/L) + 1), `counter-frame`
    (B.2.2, p >= 1) and `frame` (B.2.3, p >= T; d_model = 8 at T = 32, L = 10). auto is orthogonal for d_model >= T (and
    by default), else simplex if d_model is large enough for it, else frame if p >= T, else counter-frame. `alpha`
    applies to simplex and counter-frame (with d_model >= T, giving it selects simplex), `seed` to counter-frame and
    frame. See `counting_direction.py` and, for frame, `dot_inventory.py`.
    """
    weights = _scores("dot", T, L, d_model, p, variant, L + zero_class, alpha, seed)
    return _construct("dot", T, L, zero_class, weights, alpha=alpha, seed=seed)


@register_construction("histogram/dot-softmax-exact", _variants("dot-softmax"))
def dot_softmax(
    T: int = 32, L: int = 10, d_model: int | None = None, p: int | None = None, variant: str = "auto",
    zero_class: bool = False, kappa: float | None = None, seed: int | None = None,
) -> Construct:  # fmt: skip
    """Counts by an inventory: attention on the own token, one hidden neuron per token (p >= T).

    Variants: `orthogonal` (A.3.3) and `frame` (at T = 32, L = 10 from d_model = 6, with a usable margin from 7). auto
    is orthogonal for d_model >= T (and by default) unless kappa is given, else frame. `kappa` and `seed` apply to
    frame only. See `dot_inventory.py`.
    """
    if variant == "auto":
        variant = "orthogonal" if (d_model is None or d_model >= T) and kappa is None else "frame"
    check_variant("dot-softmax", variant, VARIANTS["dot-softmax"])
    if variant == "orthogonal":
        _unused("dot-softmax", variant, kappa=kappa, seed=seed)
        weights = dot_inventory.softmax_orthogonal(T, L, d_model, p, L + zero_class)
    else:
        weights = dot_inventory.softmax_frame(T, L, d_model, p, L + zero_class, kappa, seed or 0)
    return _construct("dot-softmax", T, L, zero_class, weights, kappa=kappa, seed=seed)


@register_construction("histogram/bos-exact", _variants("bos"))
def bos(
    T: int = 32, L: int = 10, d_model: int | None = None, p: int | None = None, variant: str = "auto",
    zero_class: bool = False, alpha: float | None = None, seed: int | None = None,
) -> Construct:  # fmt: skip
    """Counts by raw scores with [BOS]: along one direction (p >= 1), or by an inventory (`frame`, p >= T).

    Variants: `bos-sum` (A.2.3, p >= 1), where the BOS embedding is the sum of the token embeddings; `bos-zero` (A.2.3,
    p >= 1), which is the orthogonal variant of dot with a BOS embedding of 0; and `simplex`, `counter-frame` and
    `frame`, also as in dot with a BOS embedding of 0. auto is bos-sum for d_model >= T (and by default), otherwise as
    for dot. See the files named in `dot`.
    """
    weights = _scores("bos", T, L, d_model, p, variant, L + zero_class, alpha, seed)
    return _construct("bos", T, L, zero_class, weights, alpha=alpha, seed=seed)


@register_construction("histogram/bos-softmax-exact", _variants("bos-softmax"))
def bos_softmax(
    T: int = 32, L: int = 10, d_model: int | None = None, p: int | None = None, variant: str = "auto",
    zero_class: bool = False, kappa: float | None = None, alpha: float | None = None,
) -> Construct:  # fmt: skip
    """Counts by the attention on [BOS], which falls as the own token repeats (p >= 1).

    Variants: `orthogonal` (A.2.2), `binary` (B.3.1, d_model >= ceil(log2(T+1)) + 1), and `circle` and `quarter-circle`
    (d_model >= 3). The last three are codes: fixed vectors of few dimensions for the tokens. Their `-printed`
    forms follow the paper and use one more dimension, a separate coordinate for the counter. auto is orthogonal for
    d_model >= T (and by default), else binary if it fits, else circle. `kappa` and `alpha` apply to the codes only;
    giving either selects binary instead of orthogonal. See `bos_softmax.py`.
    """
    if variant == "auto":
        if d_model is None or d_model >= T:
            variant = "orthogonal" if kappa is None and alpha is None else "binary"
        else:
            variant = "binary" if d_model >= T.bit_length() + 1 else "circle"
    check_variant("bos-softmax", variant, VARIANTS["bos-softmax"])
    if variant == "orthogonal":
        _unused("bos-softmax", variant, kappa=kappa, alpha=alpha)
        weights = attention_on_bos.orthogonal(T, L, d_model, p, L + zero_class)
    else:
        weights = attention_on_bos.code(variant, T, L, d_model, p, L + zero_class, kappa, alpha)
    return _construct("bos-softmax", T, L, zero_class, weights, kappa=kappa, alpha=alpha)


def _linear(
    model: MixingKind, T: int, L: int, d_model: int | None, p: int | None, variant: str, n_out: int,
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
    model: MixingKind, T: int, L: int, d_model: int | None, p: int | None, variant: str, n_out: int,
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
        return counting_direction.counter_frame(model, T, L, d_model, p, n_out, coordinate, seed or 0)
    if variant == "frame":
        _unused(model, variant, alpha=alpha)
        return dot_inventory.frame(model, T, L, d_model, p, n_out, seed or 0)
    _unused(model, variant, seed=seed)
    if variant == "simplex":
        return counting_direction.simplex(model, T, L, d_model, p, n_out, coordinate)
    _unused(model, variant, alpha=alpha)
    if variant == "bos-sum":
        return counting_direction.bos_sum(T, L, d_model, p, n_out)
    return counting_direction.orthogonal(model, T, L, d_model, p, n_out)


def _unused(model: str, variant: str, **scales: float | None) -> None:
    for name, value in scales.items():
        if value is not None:
            raise InterpError(f"variant {variant!r} of histogram/{model}-exact does not take {name}; got {value}")


def _construct(
    model: MixingKind, T: int, L: int, zero_class: bool, weights: ConstructedWeights, **scales: float | None
) -> Construct:
    """Add task and spec. The origin records all sizes and the variant that "auto" chose, so it rebuilds this model."""
    d_model, p = weights.tensors["unembed.W_in"].shape
    task = Histogram(T=T, L=L, bos=model.startswith("bos"), zero_class=zero_class)
    given = {name: value for name, value in scales.items() if value is not None}
    arguments = {"T": T, "L": L, "d_model": d_model, "p": p, "zero_class": zero_class, **given}
    origin = Construction(name=f"histogram/{model}-exact", variant=weights.variant, arguments=tuple(arguments.items()))
    return Construct(histogram_spec(model, task, d_model, p, "float64", origin), task, weights)


def histogram_spec(
    model: MixingKind,
    task: Histogram,
    d_model: int,
    p: int,
    dtype: Literal["float32", "float64"] = "float32",
    origin: Construction | Training | None = None,
) -> ModelSpec:
    """Return the spec of one of the six models: one head with identity value and output maps, a ReLU readout."""
    linear, softmax = model.startswith("lin"), model.endswith("-softmax")
    layer = Layer(
        n_heads=1,
        d_head=d_model,
        mixing="linear" if linear else "dot",
        normalizer="softmax" if softmax else "none",
        scale="inv_sqrt_d_model",
        value_output="identity",
    )
    return ModelSpec(
        task=task.ref,
        d_model=d_model,
        direction="bidirectional",
        layers=(layer,),
        max_length=task.L if linear else None,
        readout="relu_mlp",
        readout_width=p,
        dtype=dtype,
        origin=origin,
    )
