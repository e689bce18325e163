"""Every model and variant: right on all sequences of small sizes, right in the exact worst case at larger ones.

The scalar-to-class readout: argmax by brute force on a fine grid, and the published recursion.
"""

import math

import numpy as np
import pytest
import torch

from interp.errors import InterpError
from interp.families.histogram import feasibility
from interp.families.histogram.constructions.models import VARIANTS
from interp.families.histogram.constructions.readout import Wanted, finish, scalar_readout, separate
from interp.models.constructions import construct

CASES = [(model, variant) for model, variants in VARIANTS.items() for variant in variants]


def build(model, **arguments):
    return construct(f"histogram/{model}-exact", **arguments).weights


@pytest.mark.parametrize(("model", "variant"), CASES)
@pytest.mark.parametrize(("T", "L"), [(6, 3), (4, 4), (3, 5), (2, 6), (5, 2), (3, 1)])
@pytest.mark.thinned(5)
def test_right_on_every_sequence(reference, model, variant, T, L):
    built = build(model, T=T, L=L, variant=variant)
    assert all(tensor.dtype == torch.float64 for tensor in built.tensors.values())
    lead = reference.leads(model, built, reference.all_sequences(T, L))
    if L == 1:
        assert built.margin == np.inf
    else:
        assert lead.min() == pytest.approx(built.margin, rel=1e-6)
    assert lead.min() > 0
    assert reference.leads(model, built, reference.all_sequences(T, L), np.float32).min() > 0


@pytest.mark.parametrize(
    ("model", "variant", "T", "L"),
    [
        *((*case, T, L) for case in CASES for T, L in ((32, 10), (10, 14))),
        # the larger size is for the searched frames; everything else is a formula in T and L
        *(pytest.param(*case, 64, 15, marks=pytest.mark.slow) for case in CASES if "frame" in case[1]),
    ],
)
@pytest.mark.thinned(9)
def test_right_in_the_exact_worst_case(reference, model, variant, T, L):
    """Two-token sequences are the exact worst case, so this is every sequence; in float32 with a tenth of the lead."""
    built = build(model, T=T, L=L, variant=variant)
    sequences = reference.two_token_sequences(T, L)
    lead = reference.leads(model, built, sequences)
    assert lead.min() == pytest.approx(built.margin, rel=1e-5)
    if variant.startswith("quarter-circle"):
        return  # scores of several thousand leave float32 no digits for the softmax
    assert reference.leads(model, built, sequences, np.float32).min() > 0.1 * built.margin


@pytest.mark.parametrize(("model", "variant"), CASES)
def test_wider_models_and_the_published_classes(reference, model, variant):
    """Zero-filled width and neurons, and L + 1 classes, leave every decision and the margin as they are."""
    T, L = 4, 3
    small = build(model, T=T, L=L, variant=variant)
    wide = build(model, T=T, L=L, variant=variant, d_model=T + 3, p=T + 2, zero_class=True)
    assert wide.tensors["embed.W_E"].shape == (T + model.startswith("bos"), T + 3)
    assert wide.tensors["unembed.W_in"].shape == (T + 3, T + 2)
    assert wide.tensors["unembed.W_out"].shape == (T + 2, L + 1)
    lead = reference.leads(model, wide, reference.all_sequences(T, L))
    assert lead.min() == pytest.approx(wide.margin, rel=1e-9)
    assert wide.margin >= small.margin * (1 - 1e-9) or "frame" in variant


@pytest.mark.parametrize(("model", "d_model", "p", "variant"), [
    ("lin", None, None, "uniform"), ("lin", 32, None, "uniform"), ("lin", 29, 32, "simplex"),
    ("lin-softmax", 30, None, "simplex"), ("dot", None, None, "orthogonal"), ("dot", 40, 3, "orthogonal"),
    ("dot", 30, 1, "simplex"), ("dot", 30, 64, "simplex"), ("dot", 8, 32, "frame"),
    ("bos", None, None, "bos-sum"), ("bos", 31, None, "simplex"), ("bos", 12, 32, "frame"),
    ("dot-softmax", None, None, "orthogonal"), ("dot-softmax", 7, 32, "frame"),
    ("bos-softmax", None, None, "orthogonal"), ("bos-softmax", 7, 1, "binary"), ("bos-softmax", 6, 1, "circle"),
])  # fmt: skip
def test_auto_picks_the_documented_variant(model, d_model, p, variant):
    built = build(model, T=32, L=10, d_model=d_model, p=p)
    assert built.variant == variant


@pytest.mark.parametrize("model", ["lin", "lin-softmax", "dot", "dot-softmax", "bos", "bos-softmax"])
@pytest.mark.parametrize(("T", "L"), [(32, 10), (16, 6), (10, 3), (6, 4), pytest.param(64, 10, marks=pytest.mark.slow)])
@pytest.mark.thinned(6)
def test_feasibility_is_what_can_be_built(reference, model, T, L):
    for row in feasibility(model, T, L).to_dict("records"):
        if row["variant"]:
            p = 1 if row["p"] == "1" else T
            built = build(model, T=T, L=L, d_model=row["verified"], p=p, variant=variant_of(model, row["variant"]))
            assert reference.leads(model, built, reference.two_token_sequences(T, L)).min() > 0


def variant_of(model, variant):
    return "auto" if variant == "orthogonal" else variant


@pytest.mark.parametrize(("model", "arguments", "message"), [
    ("lin", {"variant": "orthogonal"}, "unknown variant of histogram/lin-exact 'orthogonal'"),
    ("lin", {"p": 31}, r"one hidden neuron per token, p >= 32, got p=31"),
    ("lin", {"variant": "uniform", "d_model": 31}, r"needs d_model >= 32 .*need d >= T.*got d_model=31"),
    ("lin", {"variant": "simplex", "d_model": 28}, r"d_model >= 29 .*T - floor\(T/L\)"),
    ("lin", {"a": 0.2}, r"0 < a <= 1/\(L - 1\) = 0.111111"),
    ("lin", {"a": 0.1, "variant": "diagonal"}, "does not take a"), ("lin", {"T": 1}, "T >= 2 tokens"),
    ("dot", {"L": 0}, "L = 0 must be at least 1"), ("dot", {"p": 0}, "p = 0 must be at least 1"),
    ("dot", {"d_model": 29, "variant": "simplex"}, r"d_model >= 30 .*one shared coordinate"),
    ("dot", {"alpha": -1.0}, "alpha, the coordinate that all tokens share, must be positive"),
    ("bos", {"variant": "zero"}, "did you mean 'bos-zero'"),
    ("bos-softmax", {"variant": "binary", "d_model": 6}, "d_model >= 7"),
    ("bos-softmax", {"variant": "binary", "kappa": 20.8}, r"must exceed kappa\* = 20.8124 \(eq. 92\), got 20.8"),
    ("bos-softmax", {"variant": "binary", "alpha": 1.0}, "below 1"),
    ("bos-softmax", {"variant": "binary", "kappa": 40.0, "alpha": 0.8}, "too little for float64"),
    ("bos-softmax", {"variant": "orthogonal", "kappa": 40.0}, "does not take kappa"),
    ("dot-softmax", {"variant": "orthogonal", "d_model": 31}, "d_model >= 32"),
    ("dot-softmax", {"variant": "frame", "d_model": 7, "kappa": 25.0}, "does not work at T=32, L=10"),
])  # fmt: skip
def test_refusals_name_the_bound(model, arguments, message):
    with pytest.raises(InterpError, match=message):
        build(model, **{"T": 32, "L": 10, **arguments})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "p", "d_model", "bound"), [("dot", 32, 7, 8), ("dot", 1, 28, 29), ("lin", 32, 27, 28)]
)
def test_below_the_necessary_width_the_refusal_names_it(model, p, d_model, bound):
    with pytest.raises(InterpError, match=f"none exist below d_model = {bound}$"):
        build(model, T=32, L=10, d_model=d_model, p=p)


@pytest.mark.parametrize(("model", "variant"), CASES)
def test_named_directions_are_units_in_the_residual_stream(model, variant):
    built = build(model, T=6, L=3, variant=variant)
    d = built.tensors["embed.W_E"].shape[1]
    assert "tokens" in built.directions
    for name, direction in built.directions.items():
        assert direction.shape[-1] == d, name
        torch.testing.assert_close(direction.norm(dim=-1), torch.ones(direction.shape[:-1], dtype=torch.float64))
    if "count" in built.directions:  # the one hidden neuron reads the counting direction and nothing else
        w = built.tensors["unembed.W_in"][:, 0]
        torch.testing.assert_close(w / w.norm(), built.directions["count"])


def test_the_proof_is_checked_before_the_readout_is_made():
    """A bias too high lets foreign neurons fire, one too low clips the own one: both are refused, never built."""
    T, L = 4, 3
    eye = torch.eye(T, dtype=torch.float64)
    tensors = {"embed.W_E": eye, "blocks.0.attn.W_mix": torch.full((1, L, L), 1 / L, dtype=torch.float64)}

    def attempt(bias):
        want = Wanted("lin", "test", T, L, None, None, False)
        return finish(want, tensors, {}, p=T, W_in=eye, b_in=bias, claim="", notes=())

    assert attempt(-0.9).margin > 0
    with pytest.raises(InterpError, match=r"the neuron of a different token reaches 0.167 > 0"):
        attempt(-0.5)
    with pytest.raises(InterpError, match="counts 1 and 2 overlap"):
        attempt(-1.7)


def predicted(readout, values):
    return (values[:, None] * readout.weight.numpy() + readout.bias.numpy()).argmax(1)


@pytest.mark.parametrize("rising", [True, False])
@pytest.mark.parametrize("n_out", [None, 7])
def test_argmax_changes_exactly_at_the_thresholds(rising, n_out):
    cuts = np.array([0.1, 0.15, 1.0, 1.5, 40.0])
    ordered = cuts if rising else cuts[::-1]
    readout = scalar_readout(torch.from_numpy(ordered.copy()), rising=rising, n_out=n_out)
    values = np.concatenate([np.linspace(0, 59.7, 3989), cuts - 1e-9, cuts + 1e-9])
    level = (values[:, None] > cuts).sum(1)
    count = level + 1 if rising else 6 - level
    assert (predicted(readout, values) == (count - 1 if n_out is None else count)).all()


def test_published_recursion_for_integer_counts():
    """A.2.1 eqs. 15 and 16 with (b2)_(l-1) as the last term (erratum 3): thresholds l - 1/2."""
    L = 10
    w, b = [-1 + 1 / (L + 1)], [0.0]
    for level in range(2, L + 1):
        w.append(-1 + level / (L + 1))
        b.append((w[-2] - w[-1]) * (level - 0.5) + b[-1])
    readout = scalar_readout(torch.arange(1.5, L, dtype=torch.float64))
    assert readout.weight.tolist() == pytest.approx(w)
    assert readout.bias.tolist() == pytest.approx(b)


def test_lead_next_to_a_threshold():
    """Neighboring lines part by 1/(L + 1) per unit of hidden value."""
    readout = scalar_readout(torch.tensor([1.0, 3.0], dtype=torch.float64))
    logits = np.sort(1.2 * readout.weight.numpy() + readout.bias.numpy())
    assert logits[-1] - logits[-2] == pytest.approx(0.2 / 4)


def test_separate_rising_falling_and_touching():
    def t(*values):
        return torch.tensor(values, dtype=torch.float64)

    rising = separate(t(0.0, 2.0, 5.0), t(1.0, 3.0, 6.0))
    assert (rising.thresholds.tolist(), rising.gap, rising.rising) == ([1.5, 4.0], 1.0, True)
    falling = separate(t(5.0, 2.0, 0.0), t(6.0, 3.0, 1.5))
    assert (falling.thresholds.tolist(), falling.gap, falling.rising) == ([4.0, 1.75], 0.5, False)
    assert separate(t(1.0), t(1.0)).gap == math.inf
    with pytest.raises(InterpError, match=r"counts 2 and 3 overlap \(by 0.5\)"):
        separate(t(0.0, 2.0, 2.5), t(1.0, 3.0, 6.0))
    with pytest.raises(InterpError, match="counts 1 and 2 overlap"):
        separate(t(0.0, 1.0), t(1.0, 2.0))


@pytest.mark.parametrize("scale", [1, 1 / 11, 10 / 11, 2**0.5 / 3, 341])
def test_rounding_of_ranges_does_not_reach_thresholds(scale):
    """Another CPU's products give other last digits of the ranges, here 1e-14 of the largest value."""
    lo = scale * torch.arange(5, dtype=torch.float64)
    hi, noise = lo + scale / 3, scale * 5e-14 * torch.tensor([1.0, -1.0, 0.0, 1.0, -1.0], dtype=torch.float64)
    exact, other = separate(lo, hi), separate(lo + noise, hi - noise)
    assert exact.gap != other.gap
    assert torch.equal(exact.thresholds, other.thresholds)
    assert exact.thresholds.tolist() == pytest.approx(((hi[:-1] + lo[1:]) / 2).tolist(), abs=1e-6 * exact.gap)
    assert exact.room == pytest.approx(exact.gap / 2, rel=2e-6)
    assert exact.room <= exact.gap / 2
