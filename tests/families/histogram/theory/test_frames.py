"""Frames: bounds, algebraic families, codes; checked against direct arithmetic.

Eq. 92 (kappa*): the root against the equation itself, the published numbers, and brute force over all sequences.
"""

import itertools
import math

import pytest
import torch

from interp.errors import InterpError
from interp.families.histogram.theory import frame_search, frames


def direct_overlaps(frame):
    return [sum(x * y for x, y in zip(a, b)) for a, b in itertools.combinations(frame.tolist(), 2)]


def assert_units(frame):
    torch.testing.assert_close(frame.norm(dim=1), torch.ones(len(frame), dtype=torch.float64))


def test_welch_bound_at_the_published_sizes():
    """Erratum 11: T = 32, d = 12 and 29; and the two trivial ends."""
    assert frames.welch_bound(32, 12) == pytest.approx(0.2319, abs=5e-5)
    assert frames.welch_bound(32, 29) == pytest.approx(0.0578, abs=5e-5)
    assert frames.welch_bound(5, 5) == 0
    assert frames.welch_bound(7, 1) == 1


def test_overlaps_and_coherence_by_hand():
    frame = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, -1.0]], dtype=torch.float64)
    span = frames.overlaps(frame)
    assert (span.lowest, span.highest) == pytest.approx((-0.8, 0.6))
    assert frames.mutual_coherence(frame) == pytest.approx(0.8)


@pytest.mark.parametrize(("T", "groups"), [(32, 3), (9, 4), (5, 1), (4, 0)])
def test_simplex_sum_overlaps(T, groups):
    frame = frames.simplex_sum(T, groups)
    assert frame.shape == (T, T - groups)
    assert_units(frame)
    sizes = {T // groups, -(-T // groups)} if groups else set()
    allowed = [0.0, *(-1 / (m - 1) for m in sizes)]
    for overlap in direct_overlaps(frame):
        assert min(abs(overlap - value) for value in allowed) < 1e-12


def test_codes():
    """Errata 19, 21 and 25: unit norm, and the separations of the codes."""
    for code, T, eps in (
        (frames.binary_code, 32, 0.10557),
        (frames.circle_points, 32, 0.0192),
        (frames.quarter_circle_points, 31, 5.2e-4),
    ):
        frame = code(T)
        assert_units(frame)
        assert 1 - max(direct_overlaps(frame)) == pytest.approx(eps, rel=2e-3)
    assert frames.binary_code(32)[0].tolist() == [1, 0, 0, 0, 0, 0]  # token 1
    assert frames.binary_code(32)[14].tolist() == pytest.approx([0.5, 0.5, 0.5, 0.5, 0, 0])  # token 15
    assert 1 - math.sqrt(1 - 1 / 31**2) == pytest.approx(5.2e-4, rel=2e-3)


@pytest.mark.slow
def test_one_sided_bound_is_respected_by_every_frame_we_have():
    """Frames that satisfy the condition live at or above the bound; some reach it, so it is not vacuous."""
    reached = 0
    for (criterion, T, _, d), frame in frame_search.stored_frames().items():
        bound = frames.squared_bound if criterion == "squared" else frames.one_sided_bound
        kind = "squared" if criterion == "squared" else "one-sided"
        for L in range(3, 20, 4):
            if frame_search.frame_slack(frame, kind, L) > 0:
                assert bound(T, L) <= d
                reached += bound(T, L) == d
    assert reached
    assert frame_search.frame_slack(frames.simplex_sum(32, 2), "one-sided", 15) > 0
    assert frames.one_sided_bound(32, 15) == 30  # two simplices of 16 points cannot be beaten
    assert [frames.one_sided_bound(*size) for size in ((32, 10), (16, 6), (64, 10), (64, 15), (10, 3))] == [
        28,
        13,
        52,
        58,
        5,
    ]
    assert frames.squared_bound(32, 10) == 8  # so the published 12 is far off, and 7 is impossible


@pytest.mark.parametrize("L", [3, 4, 7])
def test_random_frames_below_the_bound_never_satisfy_it(L):
    """Property: 300 random clouds, tight and collapsed ones, below the bound."""
    generator = torch.Generator().manual_seed(L)
    for T in (4, 6, 9):
        bound = frames.one_sided_bound(T, L)
        for _ in range(100):
            d = int(torch.randint(1, bound, (), generator=generator)) if bound > 1 else 1
            shift = 3 * torch.rand((), generator=generator, dtype=torch.float64)
            cloud = torch.randn(T, d, generator=generator, dtype=torch.float64)
            frame = torch.nn.functional.normalize(cloud + shift * cloud[:1], dim=1)
            assert d >= bound or frame_search.frame_slack(frame, "one-sided", L) <= 1e-5


def test_bad_sizes_are_refused():
    with pytest.raises(InterpError, match="got"):
        frames.simplex_sum(5, 3)


def test_root_solves_the_equation_of_the_paper():
    for eps, L in ((0.10557, 10), (0.3, 4), (0.0192, 15), (0.5, 3)):
        kappa = frames.kappa_threshold(eps, L)
        if kappa:
            u = math.exp(kappa)
            assert (L - 1) * u ** (1 - eps) - u - (L - 2) == pytest.approx(0, abs=1e-9 * u)
            assert kappa < math.log(L - 1) / eps


def test_published_numbers():
    """Erratum 21: kappa* = 20.812 at T = 32, L = 10, and 25.22 with the printed lower bound on eps, 0.0871."""
    eps = 1 - frames.overlaps(frames.binary_code(32)).highest
    assert eps == pytest.approx(0.10557, abs=5e-6)
    assert frames.kappa_threshold(eps, 10) == pytest.approx(20.812, abs=5e-4)
    printed = 1 - math.sqrt(1 - 1 / 6)  # eq. 78, with 6 = ceil(log2(33)) dimensions
    assert printed == pytest.approx(0.0871, abs=5e-5)
    assert frames.kappa_threshold(printed, 10) == pytest.approx(25.22, abs=5e-3)


def test_every_kappa_works_for_two_positions():
    assert frames.kappa_threshold(0.01, 2) == 0
    assert frames.kappa_threshold(0.9, 3) == 0


@pytest.mark.parametrize(("eps", "lowest", "L"), [(0.2, 0.0, 4), (0.2, -1.0, 4), (0.4, -0.5, 5), (0.6, 0.1, 6)])
def test_threshold_is_exact_by_brute_force(eps, lowest, L):
    """1/s_0 over all multisets of other tokens' overlaps, drawn from the two extreme ones."""
    threshold = frames.kappa_threshold(eps, L, lowest)
    assert threshold > 0

    def separated(kappa):
        sums = {
            k: [k + sum(math.exp(-kappa * (1 - c)) for c in others)
                for others in itertools.combinations_with_replacement((lowest, 1 - eps), L - k)]
            for k in range(1, L + 1)
        }  # fmt: skip
        return all(max(sums[k]) < min(sums[k + 1]) for k in range(1, L))

    assert not separated(0.999 * threshold)
    assert separated(1.001 * threshold)


def test_ignoring_negative_overlaps_is_not_safe():
    """The printed equation assumes orthogonal others; with overlaps down to -1 its root is a little too small."""
    assert frames.kappa_threshold(0.4, 5, -0.5) > frames.kappa_threshold(0.4, 5)


def test_bad_input_is_refused():
    for arguments in ((0.0, 5), (2.5, 5), (0.1, 0), (0.5, 5, 0.6)):
        with pytest.raises(InterpError, match=r"kappa\* needs"):
            frames.kappa_threshold(*arguments)
