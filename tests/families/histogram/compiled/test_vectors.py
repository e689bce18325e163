"""The vector operations and small products of the compiled kernels against numpy and math."""

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from closeness import close
from numba import njit

from interp.families.histogram.compiled import arrays, elementary, layout, vectors

DTYPES = (np.float32, np.float64)


def compiled(code: str) -> tuple[Any, ...]:
    """Compile once and cache on disk; `code` is part of the cache key."""

    @njit(cache=True)
    def apply_exp(a: Any, out: Any) -> None:
        _ = code
        for at in range(0, a.size, vectors.lanes_of(a)):
            vectors.store(out, at, elementary.exp(vectors.load(a, at)))

    @njit(cache=True)
    def apply_log(a: Any, out: Any) -> None:
        _ = code
        for at in range(0, a.size, vectors.lanes_of(a)):
            vectors.store(out, at, elementary.log(vectors.load(a, at)))

    @njit(cache=True)
    def apply_reductions(a: Any, out: Any) -> None:
        _ = code
        out[0] = vectors.total(vectors.load(a, 0))
        vectors.store(out, 1, vectors.at_lane(a[0], 3))

    @njit(cache=True)
    def apply_store_totals(a: Any, out: Any) -> None:
        _ = code
        elementary.store_totals(out, 1, vectors.load_tile(a, 0, 4, 1, a.shape[1], 4), False)

    @njit(cache=True)
    def apply_transpose(out: Any, a: Any, m: int, n: int) -> None:
        _ = code
        arrays.transpose(out, a, m, n)

    @njit(cache=True)
    def apply_multiply(out: Any, a: Any, b: Any, m: int, k: int, n: int, add: bool) -> None:
        _ = code
        arrays.multiply(out, a, b, m, k, n, add)

    @njit(cache=True)
    def apply_multiply_column(out: Any, column: int, a: Any, b: Any, row: int, m: int) -> None:
        _ = code
        arrays.multiply_column(out, column, a, b, row, m)

    return (
        apply_exp,
        apply_log,
        apply_reductions,
        apply_store_totals,
        apply_transpose,
        apply_multiply,
        apply_multiply_column,
    )


apply_exp, apply_log, apply_reductions, apply_store_totals, apply_transpose, apply_multiply, apply_multiply_column = (
    compiled(layout.sources())  # which imports all of them
)


def random(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    out = layout.aligned(shape, dtype)
    out[...] = np.random.default_rng(seed).standard_normal(shape)
    return out


@pytest.mark.parametrize("dtype", DTYPES)
def test_exp_is_right_to_a_few_units_and_never_leaves_the_range(dtype: Any) -> None:
    largest = 88.0 if dtype is np.float32 else 709.0
    x = np.linspace(-largest + 1, largest - 0.1, 1 << 14).astype(dtype)
    x[:4] = [0, 1, -1, 0.5]
    out = np.empty_like(x)
    apply_exp(x, out)
    exact = np.array([math.exp(float(value)) for value in x])
    assert np.abs(out / exact - 1).max() < 4 * np.finfo(dtype).eps
    assert out[0] == 1
    edge = np.array([-np.inf, -1e30, -largest - 1, 1e30, np.inf, -largest * 20, 0, 0] * 2, dtype)
    apply_exp(edge, out[:16])
    assert (out[[0, 1, 2, 5]] == 0).all()
    assert np.isfinite(out[:8]).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_log_is_right_to_a_few_units(dtype: Any) -> None:
    x = np.concatenate([np.geomspace(1e-30, 1e30, 1 << 12), np.linspace(0.5, 2, 1 << 12)]).astype(dtype)
    out = np.empty_like(x)
    apply_log(x, out)
    exact = np.array([math.log(float(value)) for value in x])
    assert (np.abs(out - exact) <= 4 * np.finfo(dtype).eps * np.maximum(np.abs(exact), 0.1)).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_over_lanes(dtype: Any) -> None:
    lanes = vectors.lanes(dtype)
    a = random((4, lanes), dtype)
    out = np.zeros(lanes + 8, dtype)
    apply_reductions(a.reshape(-1), out)
    np.testing.assert_allclose(out[0], a[0].sum(), rtol=1e-5)
    assert out[4] == a[0, 0]
    assert np.count_nonzero(out[1 : lanes + 1]) == 1
    out[:] = 7
    apply_store_totals(a, out)
    np.testing.assert_allclose(out[1:5], a.sum(1), rtol=1e-4)
    assert (out[[0, 5]] == 7).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "n"), [(1, 1), (16, 16), (33, 7), (5, 40), (17, 31)])
@pytest.mark.thinned(3)
@pytest.mark.compiles
def test_transpose_fills_the_padding_with_zeros(m: int, n: int, dtype: Any) -> None:
    pad = vectors.lanes(dtype)
    a = random((m, -(-n // pad) * pad), dtype)
    out = random((n, -(-m // pad) * pad), dtype)
    apply_transpose(out, a, m, n)
    assert np.array_equal(out[:, :m], a[:, :n].T)
    assert not out[:, m:].any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [(1, 1, 1), (4, 3, 16), (5, 8, 17), (11, 33, 40), (3, 2, 128), (34, 20, 48)])
@pytest.mark.thinned(6)
@pytest.mark.compiles
def test_products_equal_numpy(size: tuple[int, int, int], dtype: Any) -> None:
    m, k, n = size
    width = -(-n // vectors.lanes(dtype)) * vectors.lanes(dtype)
    b, before = random((k, width), dtype, 2), random((m, width), dtype, 3)
    for a in (random((m, k), dtype, 1), random((k, m), dtype, 1).T):
        for add in (False, True):
            out = layout.aligned((m, width), dtype)
            out[...] = before
            apply_multiply(out, a, b, m, k, n, add)
            wanted = a.astype(np.float64) @ b.astype(np.float64) + (before if add else 0)
            close(out, wanted, atol=1e-12 if dtype is np.float64 else 1e-4)
    left, right = random((m, width), dtype, 4), random((k, width), dtype, 5)
    out = random((m, width), dtype, 6)
    kept = out.copy()
    apply_multiply_column(out, n - 1, left, right, k - 1, m)
    close(out[:, n - 1], left.astype(np.float64) @ right[k - 1], atol=1e-4)
    out[:, n - 1] = kept[:, n - 1]
    assert np.array_equal(out, kept)


@pytest.mark.compiles
def test_only_the_asked_columns_of_a_product_are_touched() -> None:
    a, b, out = random((6, 5), np.float32), random((5, 48), np.float32), random((6, 48), np.float32)
    kept = out.copy()
    apply_multiply(out, a, b, 6, 5, 32, False)
    close(out[:, :32], (a @ b)[:, :32], atol=1e-5)
    assert np.array_equal(out[:, 32:], kept[:, 32:])


@pytest.mark.slow
def test_the_engines_import_without_numba() -> None:
    code = "import sys, interp.training.train; assert not set(sys.modules) & {'transformer_lens', 'numba'}"
    subprocess.run([sys.executable, "-c", code], check=True)
