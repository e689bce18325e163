"""The six exact histogram models under their registered names: histogram/lin-exact, ..., histogram/bos-softmax-exact.

The weights and proofs are in `histogram_exact` and the files that it names; this file adds the tasks and specs. The
arguments T, L, d_model, p and variant are described there; zero_class = True gives L + 1 output classes, as in the
authors' code. All functions raise InterpError for sizes at which a variant does not work.
"""

from __future__ import annotations

from typing import Literal

from interp.constructions.base import ConstructedWeights
from interp.constructions.registry import Construct, register_construction
from interp.families.histogram.constructions import exact
from interp.families.histogram.constructions.exact import VARIANTS
from interp.families.histogram.tasks import Histogram
from interp.families.histogram.theory.ranges import MixingKind
from interp.spec import Construction, Layer, ModelSpec, Training


def _variants(model: MixingKind) -> tuple[str, ...]:
    return ("auto", *VARIANTS[model])


@register_construction("histogram/lin-exact", _variants("lin"))
def lin(
    T: int = 32, L: int = 10, d_model: int | None = None, p: int | None = None, variant: str = "auto",
    zero_class: bool = False, a: float | None = None, seed: int | None = None,
) -> Construct:  # fmt: skip
    """Counts by an inventory: fixed mixing without softmax, one hidden neuron per token (p >= T).

    Variants, `a` and `seed`: see histogram_exact.lin_exact.
    """
    weights = exact.lin_exact(T, L, d_model, p, variant, L + zero_class, a=a, seed=seed)
    return _construct("lin", T, L, zero_class, weights, a=a, seed=seed)


@register_construction("histogram/lin-softmax-exact", _variants("lin-softmax"))
def lin_softmax(
    T: int = 32, L: int = 10, d_model: int | None = None, p: int | None = None, variant: str = "auto",
    zero_class: bool = False, seed: int | None = None,
) -> Construct:  # fmt: skip
    """Counts by an inventory: softmax of a fixed matrix, one hidden neuron per token (p >= T).

    Variants and `seed`: see histogram_exact.lin_softmax_exact.
    """
    weights = exact.lin_softmax_exact(T, L, d_model, p, variant, L + zero_class, seed=seed)
    return _construct("lin-softmax", T, L, zero_class, weights, seed=seed)


@register_construction("histogram/dot-exact", _variants("dot"))
def dot(
    T: int = 32, L: int = 10, d_model: int | None = None, p: int | None = None, variant: str = "auto",
    zero_class: bool = False, alpha: float | None = None, seed: int | None = None,
) -> Construct:  # fmt: skip
    """Counts by raw scores: along one direction that all tokens share (p >= 1), or by an inventory (`frame`, p >= T).

    Variants, `alpha` and `seed`: see histogram_exact.dot_exact.
    """
    weights = exact.dot_exact(T, L, d_model, p, variant, L + zero_class, alpha=alpha, seed=seed)
    return _construct("dot", T, L, zero_class, weights, alpha=alpha, seed=seed)


@register_construction("histogram/dot-softmax-exact", _variants("dot-softmax"))
def dot_softmax(
    T: int = 32, L: int = 10, d_model: int | None = None, p: int | None = None, variant: str = "auto",
    zero_class: bool = False, kappa: float | None = None, seed: int | None = None,
) -> Construct:  # fmt: skip
    """Counts by an inventory: attention on the own token, one hidden neuron per token (p >= T).

    Variants, `kappa` and `seed`: see histogram_exact.dot_softmax_exact.
    """
    weights = exact.dot_softmax_exact(T, L, d_model, p, variant, L + zero_class, kappa=kappa, seed=seed)
    return _construct("dot-softmax", T, L, zero_class, weights, kappa=kappa, seed=seed)


@register_construction("histogram/bos-exact", _variants("bos"))
def bos(
    T: int = 32, L: int = 10, d_model: int | None = None, p: int | None = None, variant: str = "auto",
    zero_class: bool = False, alpha: float | None = None, seed: int | None = None,
) -> Construct:  # fmt: skip
    """Counts by raw scores with [BOS]: along one direction (p >= 1), or by an inventory (`frame`, p >= T).

    Variants, `alpha` and `seed`: see histogram_exact.bos_exact.
    """
    weights = exact.bos_exact(T, L, d_model, p, variant, L + zero_class, alpha=alpha, seed=seed)
    return _construct("bos", T, L, zero_class, weights, alpha=alpha, seed=seed)


@register_construction("histogram/bos-softmax-exact", _variants("bos-softmax"))
def bos_softmax(
    T: int = 32, L: int = 10, d_model: int | None = None, p: int | None = None, variant: str = "auto",
    zero_class: bool = False, kappa: float | None = None, alpha: float | None = None,
) -> Construct:  # fmt: skip
    """Counts by the attention on [BOS], which falls as the own token repeats (p >= 1).

    Variants, `kappa` and `alpha`: see histogram_exact.bos_softmax_exact.
    """
    weights = exact.bos_softmax_exact(T, L, d_model, p, variant, L + zero_class, kappa=kappa, alpha=alpha)
    return _construct("bos-softmax", T, L, zero_class, weights, kappa=kappa, alpha=alpha)


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
