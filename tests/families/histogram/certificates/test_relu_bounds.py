"""Affine bounds of sums of ReLUs, against their values."""

from __future__ import annotations

import numpy as np
import pytest
from closeness import close

from interp.families.histogram.certificates.spaces import affine_below, interval_below


def drawn(seed: int, p: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    ends = np.sort(generator.normal(size=(2, 50, p)), axis=0)
    ends[:, generator.random((50, p)) < 0.2] = 0.0  # intervals that are the point 0
    return generator.normal(size=(50, p)), ends[0], ends[1]


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("p", [1, 4])
def test_nowhere_above(parallel: bool, p: int) -> None:
    weight, lo, hi = drawn(0, p)
    (slope, offset), least = affine_below(weight, lo, hi, parallel), interval_below(weight, lo, hi)
    generator = np.random.default_rng(1)
    for share in [np.zeros_like(lo), np.ones_like(lo), *(generator.random((50, p)) for _ in range(200))]:
        z = lo + share * (hi - lo)
        value = (weight * np.maximum(z, 0)).sum(1)
        assert ((slope * z).sum(1) + offset <= value + 1e-12).all()
        assert (least <= value + 1e-12).all()


def test_fixed_signs_are_equal_and_concave_ones_touch_both_ends() -> None:
    weight, lo, hi = drawn(2, 3)
    fixed = ((lo >= 0) | (hi <= 0)).all(1)
    concave = (weight < 0).all(1)
    assert fixed.any()
    assert concave.any()
    slope, offset = affine_below(weight, lo, hi)
    for z in (lo, hi):
        value = (weight * np.maximum(z, 0)).sum(1)
        bound = (slope * z).sum(1) + offset
        close(bound[fixed | concave], value[fixed | concave], atol=1e-12)


def test_one_neuron_is_exact() -> None:
    weight, lo, hi = drawn(3, 1)
    ends = np.minimum(weight * np.maximum(lo, 0), weight * np.maximum(hi, 0))[:, 0]
    assert np.array_equal(interval_below(weight, lo, hi), ends)


def test_flat_or_steep_leaves_the_smaller_gap() -> None:
    """On [-1, 3] the line z is at most 1 below relu, the line 0 up to 3; on [-3, 1] it is the other way round."""
    one = np.ones((1, 1))
    assert affine_below(one, -one, 3 * one)[0].item() == 1
    assert affine_below(one, -3 * one, one)[0].item() == 0
