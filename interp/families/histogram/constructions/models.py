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

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from interp.errors import InterpError, one_of
from interp.families.histogram.constructions import inventory, relation
from interp.families.histogram.constructions.readout import Wanted
from interp.families.histogram.tasks import Histogram
from interp.families.histogram.theory.frames import simplex_dimension
from interp.families.histogram.theory.ranges import MixingKind
from interp.models.constructions import Construct, ConstructedWeights, register_construction
from interp.models.spec import Construction, Layer, ModelSpec, Training

VARIANTS: dict[str, dict[str, tuple[Callable[..., ConstructedWeights], str]]] = {
    "lin": {
        "uniform": (inventory.uniform, "a"),
        "diagonal": (inventory.diagonal, ""),
        "simplex": (inventory.simplex, ""),
        "frame": (inventory.linear_frame, "seed"),
    },
    "dot": {
        "orthogonal": (relation.orthogonal, ""),
        "simplex": (relation.simplex, "alpha"),
        "counter-frame": (relation.counter_frame, "alpha seed"),
        "frame": (inventory.score_frame, "seed"),
    },
    "dot-softmax": {
        "orthogonal": (inventory.softmax_orthogonal, ""),
        "frame": (inventory.softmax_frame, "kappa seed"),
    },
    "bos": {"bos-sum": (relation.summed_bos, ""), "bos-zero": (relation.orthogonal, "")},
    "bos-softmax": {
        "orthogonal": (relation.softmax_orthogonal, ""),
        **{code + form: (relation.code, "kappa alpha") for form in ("", "-printed") for code in relation.CODES},
    },
}
"""Variants of each model, with what builds each and the options that it takes; the first variant is the default."""
VARIANTS["lin-softmax"] = VARIANTS["lin"]
VARIANTS["bos"] |= {name: VARIANTS["dot"][name] for name in ("simplex", "counter-frame", "frame")}


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
    to uniform only, `seed` to frame only. See `inventory.py`.
    """
    return _construct(_linear(Wanted("lin", variant, T, L, d_model, p, zero_class)), a=a, seed=seed)


@register_construction("histogram/lin-softmax-exact", _variants("lin-softmax"))
def lin_softmax(
    T: int = 32, L: int = 10, d_model: int | None = None, p: int | None = None, variant: str = "auto",
    zero_class: bool = False, seed: int | None = None,
) -> Construct:  # fmt: skip
    """Counts by an inventory: softmax of a fixed matrix, one hidden neuron per token (p >= T).

    Variants: `uniform` (A.3.2), `diagonal`, `simplex` (d_model >= T - floor(T/L)) and `frame`. auto is as for `lin`.
    `seed` applies to frame only. See `inventory.py`.
    """
    return _construct(_linear(Wanted("lin-softmax", variant, T, L, d_model, p, zero_class)), seed=seed)


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
    frame. See `relation.py` and, for frame, `inventory.py`.
    """
    return _construct(_scores(Wanted("dot", variant, T, L, d_model, p, zero_class), alpha), alpha=alpha, seed=seed)


@register_construction("histogram/dot-softmax-exact", _variants("dot-softmax"))
def dot_softmax(
    T: int = 32, L: int = 10, d_model: int | None = None, p: int | None = None, variant: str = "auto",
    zero_class: bool = False, kappa: float | None = None, seed: int | None = None,
) -> Construct:  # fmt: skip
    """Counts by an inventory: attention on the own token, one hidden neuron per token (p >= T).

    Variants: `orthogonal` (A.3.3) and `frame` (at T = 32, L = 10 from d_model = 6, with a usable margin from 7). auto
    is orthogonal for d_model >= T (and by default) unless kappa is given, else frame. `kappa` and `seed` apply to
    frame only. See `inventory.py`.
    """
    if variant == "auto":
        variant = "orthogonal" if (d_model is None or d_model >= T) and kappa is None else "frame"
    return _construct(Wanted("dot-softmax", variant, T, L, d_model, p, zero_class), kappa=kappa, seed=seed)


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
    return _construct(_scores(Wanted("bos", variant, T, L, d_model, p, zero_class), alpha), alpha=alpha, seed=seed)


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
    giving either selects binary instead of orthogonal. See `relation.py`.
    """
    if variant == "auto":
        if d_model is None or d_model >= T:
            variant = "orthogonal" if kappa is None and alpha is None else "binary"
        else:
            variant = "binary" if d_model >= T.bit_length() + 1 else "circle"
    return _construct(Wanted("bos-softmax", variant, T, L, d_model, p, zero_class), kappa=kappa, alpha=alpha)


def _linear(want: Wanted) -> Wanted:
    """Choose the variant of lin and lin-softmax."""
    if want.variant != "auto":
        return want
    if want.d_model is None or want.d_model >= want.T:
        return replace(want, variant="uniform")
    return replace(want, variant="simplex" if want.d_model >= simplex_dimension(want.T, want.L) else "frame")


def _scores(want: Wanted, alpha: float | None) -> Wanted:
    """Choose the variant of dot and bos."""
    if want.variant != "auto":
        return want
    if want.d_model is None or want.d_model >= want.T:
        return replace(want, variant=next(iter(VARIANTS[want.model])) if alpha is None else "simplex")
    if want.d_model > simplex_dimension(want.T, want.L):
        return replace(want, variant="simplex")
    return replace(want, variant="frame" if want.p is not None and want.p >= want.T else "counter-frame")


def _construct(want: Wanted, **options: float | None) -> Construct:
    """Build the weights; add task and spec. The origin records all sizes and the variant, so it rebuilds this model."""
    name, T, L = f"histogram/{want.model}-exact", want.T, want.L
    if want.variant not in VARIANTS[want.model]:
        raise InterpError(one_of(f"variant of {name}", want.variant, _variants(want.model)))
    if T < 2 or L < 1:
        raise InterpError(f"{want.name} needs an alphabet of T >= 2 tokens and a length L >= 1, got T={T}, L={L}")
    build, takes = VARIANTS[want.model][want.variant]
    chosen = {option: value for option, value in options.items() if value is not None}
    for option, value in chosen.items():
        if option not in takes.split():
            raise InterpError(f"variant {want.variant!r} of {name} does not take {option}; got {value}")
    weights = build(want, **chosen)
    d_model, p = weights.tensors["unembed.W_in"].shape
    task = Histogram(T=T, L=L, bos=want.model.startswith("bos"), zero_class=want.zero_class)
    arguments = {"T": T, "L": L, "d_model": d_model, "p": p, "zero_class": want.zero_class, **chosen}
    origin = Construction(name=name, variant=want.variant, arguments=tuple(arguments.items()))
    return Construct(histogram_spec(want.model, task, d_model, p, "float64", origin), task, weights)


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
