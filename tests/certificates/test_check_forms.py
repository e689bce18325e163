"""The checker's linear bounds of sets: points of random sets lie within, and some come near."""

from collections.abc import Callable
from typing import Any

import attacks
import numpy as np
import pytest
from scipy.special import erf

forms = attacks.check.forms
ONE, P = attacks.check.enclosures.ONE, attacks.check.enclosures.P

N, K = 4, 3
EPS = 1e-3
WEIGHT, SHIFT = np.random.default_rng(5).normal(size=(N, 3)), np.random.default_rng(7).normal(size=3)
GAIN = np.random.default_rng(6).normal(size=N)


def whole(x: Any) -> Any:
    """In units of 2^-64, exactly."""
    return [whole(part) for part in x] if np.ndim(x) else int(float(x) * 2.0**52) << 12


def real(x: Any) -> np.ndarray:
    return np.array(x, dtype=object).astype(float) / 2.0**64


COLUMNS = forms.Columns(
    [[w << P - 64 for w in column] for column in whole(WEIGHT.T)], [b << P - 64 for b in whole(SHIFT)]
)
OPERATIONS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[np.ndarray, np.ndarray], np.ndarray]]] = {
    "matrix": (lambda x, y: COLUMNS(x), lambda x, y: x @ WEIGHT + SHIFT),
    "sum": (forms.added, lambda x, y: x + y),
    "product": (forms.product, lambda x, y: x * y),
    "rms": (lambda x, y: forms.rms(x, whole(GAIN), whole(EPS)), lambda x, y: x / np.sqrt((x**2).mean() + EPS) * GAIN),
    "relu": (lambda x, y: forms.activated(x, "relu"), lambda x, y: np.maximum(x, 0)),
    "gelu": (lambda x, y: forms.activated(x, "gelu"), lambda x, y: x * (1 + erf(x / 2**0.5)) / 2),
    "silu": (lambda x, y: forms.activated(x, "silu"), lambda x, y: x / (1 + np.exp(-x))),
}


def drawn(rng: np.random.Generator, size: float) -> Any:
    return forms.Form(whole(rng.normal(size=N) * 2), whole(rng.normal(size=(K, N)) * size),
                      whole(np.abs(rng.normal(size=N)) * size / 5))  # fmt: skip


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("size", [1e-3, 0.1, 1.0])
@pytest.mark.thinned(4)
def test_every_point_lies_within(name: str, size: float) -> None:
    rng, (bounded, plain), reached = np.random.default_rng(1), OPERATIONS[name], 0.0
    for _ in range(30):
        x, y = drawn(rng, size), drawn(rng, size)
        found = bounded(x, y)
        for _ in range(30):
            t, ends = rng.choice([-1.0, 0.3, 1.0], size=K), rng.choice([-1.0, 1.0], size=(2, N))
            one, other = (real(part.center) + t @ real(part.slopes) + end * real(part.rest)
                          for part, end in zip((x, y), ends))  # fmt: skip
            off = np.abs(plain(one, other) - real(found.center) - t @ real(found.slopes))
            assert (off <= real(found.rest) + 1e-12).all()
            reached = max(reached, float((off / real(found.rest)).max()))
    assert reached > 0.3


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_single_point_is_known(name: str) -> None:
    rng, (bounded, plain) = np.random.default_rng(2), OPERATIONS[name]
    least = 2e-6 if name in ("gelu", "silu") else 1e-12  # these two are tabulated at steps of 2^-8
    for _ in range(30):
        x, y = drawn(rng, 0.0), drawn(rng, 0.0)
        found = bounded(x, y)
        assert np.abs(real(found.center) - plain(real(x.center), real(y.center))).max() < least
        assert real(found.rest).max() < least
        assert min(found.rest) >= 0


def test_a_norm_of_what_may_be_zero_is_unknown() -> None:
    around = forms.Form([0] * N, [whole([1.0] * N)], [0] * N)
    assert forms.rms(around, whole(GAIN), 0) is None
    assert forms.rms(around, whole(GAIN), whole(EPS)) is not None


@pytest.mark.parametrize("right", range(3))
def test_the_lead_of_an_output_is_its_least(right: int) -> None:
    rng = np.random.default_rng(right)
    for _ in range(20):
        x = drawn(rng, 0.2)
        lead = forms.lead(x, COLUMNS, right) / 2.0**64
        others = np.delete(np.arange(3), right)
        w, b = WEIGHT[:, [right]] - WEIGHT[:, others], SHIFT[right] - SHIFT[others]
        least = real(x.center) @ w + b - np.abs(real(x.slopes) @ w).sum(0) - real(x.rest) @ np.abs(w)
        assert least.min() - 1e-12 <= lead <= least.min() + 1e-12
        assert COLUMNS.leads(right) is COLUMNS.leads(right)
