"""Linear bounds of sets: every point of random sets lies in what the operations say, and float32 within the error."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch
from rounded_forward import Machine
from torch.nn import functional

from interp.certificates.arithmetic import ROUNDOFF
from interp.certificates.places_forms import CURVES, STEP, FormArithmetic, Forms

N, K, CELLS = 4, 3, 300
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": functional.relu, "gelu": functional.gelu, "silu": functional.silu,
    "gelu_new": lambda x: functional.gelu(x, approximate="tanh"),
}  # fmt: skip
WEIGHT = np.random.default_rng(5).normal(size=(N, 3))
GAIN = np.random.default_rng(6).normal(size=N)

OPERATIONS: dict[str, tuple[Callable, Callable]] = {
    **{name: (lambda f, x, y, name=name: f.activation(x, name), lambda x, y, name=name: ACTIVATIONS[name](x))
       for name in ACTIVATIONS},
    "linear": (lambda f, x, y: f.linear(x, WEIGHT, WEIGHT[0]),
               lambda x, y: torch.from_numpy(WEIGHT).to(x).T @ x + torch.from_numpy(WEIGHT[0]).to(x)[:, None]),
    "add": (lambda f, x, y: f.add(x, y), lambda x, y: x + y),
    "product": (lambda f, x, y: f.times(x, y), lambda x, y: x * y),
    "rms": (lambda f, x, y: f.norm(x, "rms", GAIN, np.zeros(1), 1e-5),
            lambda x, y: x / (x.square().mean(0) + 1e-5).sqrt() * torch.from_numpy(GAIN).to(x)[:, None]),
    "layer norm": (lambda f, x, y: f.norm(x, "layer", GAIN, GAIN, 1e-5),
                   lambda x, y: functional.layer_norm(x.T, (N,), *[torch.from_numpy(GAIN).to(x)] * 2, 1e-5).T),
}  # fmt: skip


def drawn(rng: np.random.Generator, size: float) -> Forms:
    center, slopes = rng.normal(size=(N, CELLS)) * 3, rng.normal(size=(N, K, CELLS)) * size
    return Forms(center, slopes, np.abs(rng.normal(size=(N, CELLS))) * size / 10, np.zeros((N, CELLS)))


def points(x: Forms, t: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A point of each cell: slopes at t, and what remains at one of its ends or within."""
    return x.center + (x.slopes * t).sum(1) + x.rest * rng.choice([-1, 0.3, 1], size=x.rest.shape)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("size", [1e-6, 1e-2, 0.3, 3.0])
def test_every_point_lies_within(name: str, size: float) -> None:
    rng, numbers, (bounded, plain) = np.random.default_rng(0), FormArithmetic(torch.float32), OPERATIONS[name]
    x, y = drawn(rng, size), drawn(rng, size)
    found, reached = bounded(numbers, x, y), 0.0
    for _ in range(20):
        t = rng.choice([-1.0, 0.5, 1.0], size=(K, CELLS))
        one, other = points(x, t, rng), points(y, t, rng)
        value = plain(torch.from_numpy(one), torch.from_numpy(other)).numpy()
        off = np.abs(value - found.center - (found.slopes * t).sum(1))
        assert (off <= found.rest).all()
        reached = max(reached, float(np.nanmax(off / found.rest)))
    assert reached > 0.3  # no bound is idle: some point comes near it


@pytest.mark.parametrize("name", OPERATIONS)
def test_float32_is_within_the_error(name: str) -> None:
    rng, numbers, (bounded, plain) = np.random.default_rng(1), FormArithmetic(torch.float32), OPERATIONS[name]
    rows = [torch.from_numpy(rng.normal(size=(N, CELLS)) * 10.0**power).float() for power in (-3, 0, 3)]
    for one, other in zip(rows, rows[1:] + rows[:1]):
        zero, slopes = np.zeros((N, CELLS)), np.zeros((N, 0, CELLS))
        x, y = (Forms(part.double().numpy(), slopes, zero, zero) for part in (one, other))
        found = bounded(numbers, x, y)
        off = np.abs(plain(one, other).double().numpy() - found.center)
        assert (off <= found.error + found.rest).all()
        assert (found.error <= 1e-3 * (1 + np.abs(found.center)) * np.abs(WEIGHT).max() * (1 + found.size.max())).all()


def test_an_error_of_the_input_goes_on() -> None:
    """What comes in wrong by 1e-3 goes out wrong by as much as the operation makes of it."""
    rng, numbers = np.random.default_rng(2), FormArithmetic(torch.float64)
    for bounded, plain in OPERATIONS.values():
        x, y = drawn(rng, 0.0), drawn(rng, 0.0)
        found = bounded(numbers, Forms(x.center, x.slopes, x.rest, np.full_like(x.center, 1e-3)), y)
        for _ in range(10):
            wrong = x.center + rng.choice([-1e-3, 1e-3], size=x.center.shape)
            off = np.abs(plain(torch.from_numpy(wrong), torch.from_numpy(y.center)).numpy() - found.center)
            assert (off <= found.error + found.rest).all()


def test_nothing_is_known_where_a_norm_divides_by_zero() -> None:
    zero = np.zeros((N, 1))
    found = FormArithmetic(torch.float32).norm(
        Forms(zero, np.ones((N, 1, 1)), zero, zero), "rms", GAIN, zero[:1, 0], 0.0
    )
    assert np.isinf(found.rest).all()


def test_second_derivatives_stay_below_their_table() -> None:
    x = np.linspace(-15, 15, 200_001)
    step = x[1] - x[0]
    for curve in CURVES.values():
        bend = np.abs(np.diff(curve.slope(x)) / step)
        assert (bend <= curve.bend(np.maximum(np.abs(x[1:]) - step, 0)) + 1e-9).all()
        assert curve.bend(np.zeros(1))[0] < 0.85  # at 0 it is largest: 0.8 at most
        assert np.abs(np.diff(np.diff(curve.slope(x)) / step) / step).max() * STEP < 4 * STEP
        assert curve.value(x).min() >= curve.lowest


MACHINES: dict[str, Callable[[Machine, np.ndarray, np.ndarray], np.ndarray]] = {
    **{name: (lambda m, x, y, name=name: m.activation(x, name)) for name in ACTIVATIONS},
    "linear": lambda m, x, y: m.matmul(x.T, WEIGHT, WEIGHT[0]).T, "add": lambda m, x, y: m.off(x + y),
    "product": lambda m, x, y: m.off(x * y), "rms": lambda m, x, y: m.norm(x.T, "rms", GAIN, np.zeros(1), 1e-5).T,
    "layer norm": lambda m, x, y: m.norm(x.T, "layer", GAIN, GAIN, 1e-5).T,
}  # fmt: skip
USED = {"relu": (0, 0), "gelu": (0.9, 1), "gelu_new": (0.9, 1), "silu": (0.15, 0.5), "linear": (0.6, 0.8),
        "add": (0.9, 1), "product": (0.9, 1), "rms": (0.3, 0.6), "layer norm": (0.25, 0.6)}  # fmt: skip
"""Which share of the bound a machine that rounds badly comes to, at least and at most."""


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_rounding_is_counted_and_few_twice(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    coarse = 2.0**-20
    monkeypatch.setitem(ROUNDOFF, torch.float32, coarse)
    rng, numbers = np.random.default_rng(3), FormArithmetic(torch.float32)
    center, zero, slopes = rng.normal(size=(N, CELLS)) * 3, np.zeros((N, CELLS)), np.zeros((N, 0, CELLS))
    x, y = Forms(center, slopes, zero, zero), Forms(center[::-1].copy(), slopes, zero, zero)
    found, worst = OPERATIONS[name][0](numbers, x, y), 0.0
    for machine in [Machine(coarse, 1), Machine(coarse, -1), *(Machine(coarse, 0, seed) for seed in range(30))]:
        off = np.abs(MACHINES[name](machine, x.center, y.center) - found.center)
        assert (off <= found.error + found.rest).all()
        if name != "relu":
            worst = max(worst, float((off / (found.error + found.rest)).max()))
    assert USED[name][0] <= worst <= USED[name][1]


@pytest.mark.parametrize("eps", [0.5, 10.0])
def test_a_norm_may_add_more_than_it_is_given(eps: float) -> None:
    """Numbers that are small beside eps: in the reals, as run, and with errors that come in."""
    rng, numbers = np.random.default_rng(8), FormArithmetic(torch.float32)
    x = Forms(rng.normal(size=(N, CELLS)) * 0.3, rng.normal(size=(N, K, CELLS)) * 0.01,
              np.full((N, CELLS), 0.01), np.full((N, CELLS), 1e-3))  # fmt: skip
    for kind, plain in (("rms", lambda y: y / np.sqrt((y**2).mean(0) + eps) * GAIN[:, None]),
                        ("layer", lambda y: (y - y.mean(0)) / np.sqrt(y.var(0) + eps) * GAIN[:, None])):  # fmt: skip
        found, reached = numbers.norm(x, kind, GAIN, np.zeros(N), eps), 0.0
        for _ in range(50):
            t = rng.choice([-1.0, 1.0], size=(K, CELLS))
            inside = x.center + (x.slopes * t).sum(1) + x.rest * rng.choice([-1, 1], size=x.rest.shape)
            value, moved = plain(inside), plain(inside + x.error * rng.choice([-1, 1], size=x.rest.shape))
            assert (np.abs(value - found.center - (found.slopes * t).sum(1)) <= found.rest).all()
            assert (np.abs(moved - value) <= found.error).all()
            reached = max(reached, float((np.abs(moved - value) / found.error).max()))
        assert reached > 0.3


def test_a_norm_of_numbers_that_are_off_by_half() -> None:
    """Four ones, each off by a half: the norm of 3/2 beside three 1/2 is more by .73."""
    one = np.ones((N, 1))
    given = Forms(one, np.zeros((N, 0, 1)), 0 * one, one / 2)
    found = FormArithmetic(torch.float64).norm(given, "rms", one[:, 0], 0 * one[:, 0], 0.0)
    moved = one + np.array(list(product((-1, 1), repeat=N))).T / 2
    off = np.abs(moved / np.sqrt((moved**2).mean(0)) - 1).max()
    assert off == pytest.approx(3**0.5 - 1)
    assert (off <= found.error).all()
    assert found.error == pytest.approx((1 / 2 + 1 / 2) / (1 - 1 / 2), rel=1e-6)
