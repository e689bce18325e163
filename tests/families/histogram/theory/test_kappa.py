"""Eq. 92: the root against the equation itself, the published numbers, and brute force over all sequences."""

import itertools
import math

import pytest

from interp.errors import InterpError
from interp.families.histogram.theory.frames import binary_code, kappa_threshold, overlaps


def test_root_solves_the_equation_of_the_paper():
    for eps, L in ((0.10557, 10), (0.3, 4), (0.0192, 15), (0.5, 3)):
        kappa = kappa_threshold(eps, L)
        if kappa:
            u = math.exp(kappa)
            assert (L - 1) * u ** (1 - eps) - u - (L - 2) == pytest.approx(0, abs=1e-9 * u)
            assert kappa < math.log(L - 1) / eps


def test_published_numbers():
    """Erratum 21: kappa* = 20.812 at T = 32, L = 10, and 25.22 with the printed lower bound on eps, 0.0871."""
    eps = 1 - overlaps(binary_code(32)).highest
    assert eps == pytest.approx(0.10557, abs=5e-6)
    assert kappa_threshold(eps, 10) == pytest.approx(20.812, abs=5e-4)
    printed = 1 - math.sqrt(1 - 1 / 6)  # eq. 78, with 6 = ceil(log2(33)) dimensions
    assert printed == pytest.approx(0.0871, abs=5e-5)
    assert kappa_threshold(printed, 10) == pytest.approx(25.22, abs=5e-3)


def test_every_kappa_works_for_two_positions():
    assert kappa_threshold(0.01, 2) == 0
    assert kappa_threshold(0.9, 3) == 0


@pytest.mark.parametrize(("eps", "lowest", "L"), [(0.2, 0.0, 4), (0.2, -1.0, 4), (0.4, -0.5, 5), (0.6, 0.1, 6)])
def test_threshold_is_exact_by_brute_force(eps, lowest, L):
    """1/s_0 over all multisets of other tokens' overlaps, drawn from the two extreme ones."""
    threshold = kappa_threshold(eps, L, lowest)
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
    assert kappa_threshold(0.4, 5, -0.5) > kappa_threshold(0.4, 5)


def test_bad_input_is_refused():
    for arguments in ((0.0, 5), (2.5, 5), (0.1, 0), (0.5, 5, 0.6)):
        with pytest.raises(InterpError, match=r"kappa\* needs"):
            kappa_threshold(*arguments)
