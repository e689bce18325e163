"""The published numbers and their errata: what each construction's hidden value is, and where print is wrong."""

import math

import numpy as np
import pytest
import torch
from closeness import close

from interp.families.histogram.theory import frames, ranges
from interp.models.constructions import construct


def build(model, **arguments):
    return construct(f"histogram/{model}-exact", **arguments).weights


def hidden_values(reference, model, built, sequences):
    """The one or the own token's hidden value at every position, through the forward with an identity readout."""
    p = built.tensors["unembed.W_in"].shape[1]
    probe = dict(built.tensors)
    probe["unembed.W_out"] = torch.eye(p, dtype=torch.float64)
    probe["unembed.b_out"] = torch.zeros(p, dtype=torch.float64)
    hidden = reference.forward(model, probe, sequences)
    return hidden[..., 0] if p == 1 else np.take_along_axis(hidden, sequences[..., None], -1)[..., 0]


@pytest.mark.parametrize(
    ("model", "variant", "formula"),
    [
        ("lin", "uniform", lambda k, T, L: k / L),
        ("lin", "diagonal", lambda k, T, L: k / (L + 1)),
        ("lin-softmax", "uniform", lambda k, T, L: k / L),
        ("lin-softmax", "diagonal", lambda k, T, L: k / (L + 1)),
        ("dot", "orthogonal", lambda k, T, L: k),
        ("bos", "bos-sum", lambda k, T, L: k),
        ("bos", "bos-zero", lambda k, T, L: k),
        ("dot-softmax", "orthogonal", lambda k, T, L: k * math.e / (k * math.e + L - k)),
        ("bos-softmax", "orthogonal", lambda k, T, L: 1 + (T - 1) * math.e / ((k + 1) * math.e + L - k)),
    ],
)
@pytest.mark.parametrize(("T", "L"), [(32, 10), (5, 4)])
def test_hidden_values_of_the_orthogonal_constructions(reference, model, variant, formula, T, L):
    """Errata 2, 3, 6, 7, 8, 9, 10: the closed forms."""
    built = build(model, T=T, L=L, variant=variant)
    sequences = reference.two_token_sequences(T, L)[:: 7 if T == 32 else 1]
    k = reference.counts(sequences)
    close(hidden_values(reference, model, built, sequences), formula(k, T, L), atol=1e-10)


def test_dot_counts_exactly_at_the_largest_published_size(reference):
    """Erratum 2: gamma = k with an error of at most 7e-13 at T = 64."""
    sequences = reference.two_token_sequences(64, 10)[::11]
    gamma = hidden_values(reference, "dot", build("dot", T=64, L=10), sequences)
    assert np.abs(gamma - reference.counts(sequences)).max() < 2e-12


def test_lin_works_with_every_weight_up_to_the_limit(reference):
    """Erratum 8: 0 < a <= 1/(L-1); just above it a foreign neuron fires."""
    for a in (1e-3, 0.1, 1 / 9):
        assert reference.leads("lin", build("lin", T=16, L=10, a=a), reference.two_token_sequences(16, 10)).min() > 0
    assert build("lin", T=32, L=10, a=1 / 9).numbers["foreign_slack"] == pytest.approx(0, abs=1e-12)


def test_simplices_break_the_symmetric_condition_and_work():
    """Erratum 14: d = 29 from groups of 10, 11, 11; |overlap| 1/9 > 1/17; gap 0.011."""
    built = build("lin", T=32, L=10, d_model=29)
    span = frames.overlaps(built.tensors["embed.W_E"])
    assert (span.lowest, span.highest) == pytest.approx((-1 / 9, 0), abs=1e-12)
    assert built.numbers["gap"] == pytest.approx(0.1 * (1 - 8 / 9))
    assert build("dot", T=32, L=10, d_model=30).numbers["gap"] == pytest.approx(1 - 8 / 9)


@pytest.mark.slow
def test_linear_frames_with_large_overlaps_silence_others(reference):
    """Erratum 13: with a = 1/L and b = -1 a foreign neuron leaks for max overlap > 1/(L+1); a or b_in mends it."""
    lin = build("lin", T=3, L=2, d_model=2, variant="frame")  # three points of a triangle: overlaps -1/2
    assert lin.numbers["a"] == 0.5
    lin = build("lin", T=6, L=2, d_model=2, variant="frame")  # six points in the plane: overlaps up to 1/2 at best
    highest = lin.numbers["highest_overlap"]
    assert highest == pytest.approx(0.5, abs=0.01)
    assert lin.numbers["a"] == pytest.approx((1 - highest) / (1 + highest))
    assert reference.leads("lin", lin, reference.all_sequences(6, 2)).min() > 0
    softmax = build("lin-softmax", T=10, L=3, d_model=5, variant="frame")
    assert softmax.numbers["highest_overlap"] == pytest.approx(1 / 6, abs=0.01)
    assert reference.leads("lin-softmax", softmax, reference.all_sequences(10, 3)).min() > 0


def test_overlaps_between_the_two_bounds_make_neurons_leak(monkeypatch):
    """Erratum 13: three points in the plane of which two overlap by .4, above 1/(L+1) and below 1/L at L = 2."""
    angles = torch.tensor([0.0, math.acos(0.4), 3.5], dtype=torch.float64)
    points = torch.stack([angles.cos(), angles.sin()], 1)
    monkeypatch.setattr("interp.families.histogram.constructions.readout.frame_for", lambda *given, **options: points)
    lin = build("lin", T=3, L=2, d_model=2, variant="frame")
    assert lin.numbers["highest_overlap"] == pytest.approx(0.4)
    # A foreign neuron sees the overlap once, where its own token stands everywhere else: just silent.
    assert 0.4 + lin.numbers["a"] * (1 + 0.4) == pytest.approx(1)


def test_counter_coordinate_needs_no_small_alpha():
    """Erratum 15: alpha = 0.001, 0.1, 1, 3 give the same gap 0.1111."""
    for alpha in (0.001, 0.1, 1.0, 3.0):
        built = build("dot", T=32, L=10, variant="simplex", alpha=alpha)
        assert built.numbers["gap"] == pytest.approx(1 / 9, abs=1e-6)


def test_dot_frame_of_eight_dimensions():
    """Erratum 16: d = 8 at T = 32, L = 10, overlaps about +-0.286 to +-0.357, gap 0.050; printed bound 12."""
    built = build("dot", T=32, L=10, d_model=8, p=32)
    sizes = frames.off_diagonal(built.tensors["embed.W_E"]).abs()
    assert float(sizes.min()) == pytest.approx(0.286, abs=0.002)
    assert float(sizes.max()) == pytest.approx(0.357, abs=0.002)
    assert built.numbers["gap"] == pytest.approx(0.050, abs=0.001)
    assert float(sizes.max()) > 1 / math.sqrt(17)  # what print demands


@pytest.mark.slow
def test_frames_with_large_overlaps_scale_the_query_down(reference):
    """Erratum 17: L = 2 or 3 tolerates overlaps of 1/2 and more, where foreign neurons would leak at 1/L."""
    built = build("dot", T=6, L=2, d_model=2, p=6, variant="frame")
    M = built.numbers["coherence"]
    assert M > 0.8
    assert built.numbers["query_scale"] == pytest.approx((1 - M) / (2 * M))
    assert reference.leads("dot", built, reference.all_sequences(6, 2)).min() > 0


@pytest.mark.parametrize(("T", "least"), [(32, 7), (31, 6)])
def test_bos_softmax_dimensions_of_the_example(T, least):
    """Erratum 20: the paper's example says 7 and 6, its formula 8 and 7; the merged counter makes the example true."""
    merged = build("bos-softmax", T=T, L=10, variant="binary")
    printed = build("bos-softmax", T=T, L=10, variant="binary-printed")
    assert merged.tensors["embed.W_E"].shape[1] == least
    assert printed.tensors["embed.W_E"].shape[1] == least + 1


@pytest.mark.parametrize(
    ("T", "variant"), [(32, "binary"), (31, "binary"), (15, "binary"), (6, "binary"), (32, "circle")]
)
def test_eq_92_is_the_exact_threshold(reference, T, variant):
    """Erratum 21: fails at 0.999 kappa*, works at 1.001, whatever alpha. Checked without the construction's refusal."""
    built = build("bos-softmax", T=T, L=10, variant=variant)
    threshold = built.numbers["kappa_threshold"]
    sequences = reference.two_token_sequences(T, 10)
    k = reference.counts(sequences)
    for factor, works in ((0.999, False), (1.001, True)):
        scaled = dict(built.tensors)
        scaled["blocks.0.attn.W_Q"] = built.tensors["blocks.0.attn.W_Q"] * (factor * threshold / built.numbers["kappa"])
        probe = type(built)(scaled, {}, "", 0.0)
        gamma = hidden_values(reference, "bos-softmax", probe, sequences)
        separated = all(gamma[k == count].min() > gamma[k == count + 1].max() for count in range(1, 10))
        assert separated == works
    assert build("bos-softmax", T=T, L=10, variant=variant, kappa=1.001 * threshold).margin > 0


def test_alpha_costs_precision():
    """Erratum 22: gaps of s_0 at kappa = 40 and alpha = 0.01, 0.1, 0.5, 1."""
    for alpha, gap in ((0.01, 8.9e-3), (0.1, 6.4e-3), (0.5, 5e-7), (1.0, 5e-20)):
        built = build("bos-softmax", T=32, L=10, variant="binary-printed", kappa=40.0, alpha=alpha)
        assert built.numbers["gap"] == pytest.approx(gap, rel=0.12)


def test_circle_in_three_dimensions_works_in_float32(reference):
    """Erratum 25: d = 3 at T = 32; the full circle needs kappa about 114, the printed quarter circle about 4,500."""
    full = build("bos-softmax", T=32, L=10, d_model=3)
    assert full.numbers["separation"] == pytest.approx(1 - math.cos(2 * math.pi / 32))
    assert full.numbers["kappa_threshold"] == pytest.approx(114.35, abs=0.01)
    sequences = reference.two_token_sequences(32, 10)
    assert reference.leads("bos-softmax", full, sequences, np.float32).min() > 0.5 * full.margin
    quarter = build("bos-softmax", T=32, L=10, variant="quarter-circle")
    assert 4200 < quarter.numbers["kappa_threshold"] < 4500


@pytest.mark.parametrize(
    ("d", "kappa", "gap"), [(6, 1.47, 5.5e-4), (7, 1.44, 0.011), (8, None, 0.013), (12, None, 0.019)]
)
@pytest.mark.thinned(3)
def test_dot_softmax_frames_reach_the_known_gaps(d, kappa, gap):
    """Erratum 26: optimized frames at T = 32, L = 10; ours are at least as good."""
    built = build("dot-softmax", T=32, L=10, d_model=d)
    assert built.tensors["embed.W_E"].shape == (32, d)
    assert built.numbers["gap"] >= gap
    assert 1.0 < built.numbers["kappa"] < 1.5
    if d == 6:
        assert built.numbers["kappa"] == pytest.approx(kappa, abs=0.01)
        assert built.numbers["b_in"] == pytest.approx(-1.24, abs=0.01)


def test_binary_code_without_bos_cannot_count():
    """Erratum 26: B.3.2 as described is false at T = 32, L = 10 for every kappa, with a threshold per token even."""
    code = frames.binary_code(32)
    eye = torch.eye(code.shape[1], dtype=torch.float64)
    for kappa in np.linspace(-3, 40, 87):
        found = ranges.token_mixing("dot-softmax", code, 10, W_Q=kappa * len(eye) ** 0.5 * eye, W_K=eye).ranges(code.T)
        lo, hi = found.lo.diagonal(dim1=0, dim2=2), found.hi.diagonal(dim1=0, dim2=2)  # (count, token)
        rising, falling = lo[1:] > hi[:-1], hi[1:] < lo[:-1]
        assert not bool((rising.all(0) | falling.all(0)).all())
    own = ranges.token_mixing("dot-softmax", code, 10, W_Q=25 * len(eye) ** 0.5 * eye, W_K=eye).ranges(code.T)
    share = own.lo.diagonal(dim1=0, dim2=2).amin(1) - 1
    assert share[:2].tolist() == pytest.approx([0.959, 0.977], abs=1e-3)  # with the largest near 1 for both counts
    assert float(own.hi.movedim(2, 1)[~torch.eye(32, dtype=torch.bool)].max()) - 1 == pytest.approx(0.83, abs=0.01)
