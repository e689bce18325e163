"""The premise of all rounding bounds, measured on this machine: torch and numba, both formats, threads, shapes."""

from collections.abc import Callable, Iterator

import mpmath
import numba
import numpy as np
import pytest
import torch

import interp
from interp.certificates import arithmetic
from interp.models.architecture.formulas import position_formula
from interp.models.spec import TaskRef

DRAWN = 200_000
FORMATS = (torch.float32, torch.float64)
LONG = np.longdouble
assert np.finfo(LONG).nmant >= 63, "the reference needs 80-bit numbers"


@numba.njit(cache=True)
def numba_exp(x: np.ndarray) -> np.ndarray:
    return np.exp(x)


@numba.njit(cache=True, fastmath=True)
def numba_dots(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    out = np.zeros(len(a), a.dtype)
    for row in range(len(a)):
        total = a.dtype.type(0)
        for k in range(a.shape[1]):
            total += a[row, k] * b[row, k]
        out[row] = total
    return out


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def draw(shape: tuple[int, ...], dtype: torch.dtype, seed: int, size: float = 1.0) -> torch.Tensor:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * size).to(dtype)


def long(x: torch.Tensor) -> np.ndarray:
    return x.numpy().astype(LONG)


EXPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "torch": torch.exp,
    "torch in rows": lambda x: x.reshape(-1, 1000)[:, :-1].exp().reshape(-1),
    "numba": lambda x: torch.from_numpy(numba_exp(x.numpy())),
    "numpy": lambda x: torch.from_numpy(np.exp(x.numpy())),
}


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("how", [pytest.param(one, marks=[pytest.mark.compiles] * (one == "numba")) for one in EXPS])
@pytest.mark.thinned(3)
def test_exponentials_are_as_near_as_the_premise_says(how: str, dtype: torch.dtype, threads: int) -> None:
    u, (smallest, _) = arithmetic.ROUNDOFF[dtype], arithmetic.limits(dtype)
    lowest = float(np.log(smallest))
    x = torch.linspace(lowest * 1.1, 0, DRAWN, dtype=torch.float64)
    x = (x + draw((DRAWN,), torch.float64, 0, abs(lowest) / DRAWN)).clamp(max=0).to(dtype)
    found = EXPS[how](x)
    used = x.reshape(-1, 1000)[:, :-1].reshape(-1) if how == "torch in rows" else x
    right = np.exp(long(used))
    error = np.abs(long(found) - right)
    assert (error <= 2 * arithmetic.EXP_ULPS * u * right + smallest).all()
    assert (error > 0.4 * u * right).any()  # there is something to bound: no premise of zero holds


def test_position_codes_are_as_near_as_the_premise_says() -> None:
    """Sines and a logarithm of the mirror code, each component against 80-bit numbers."""
    pi, worst = 4 * np.arctan(LONG(1)), 0.0
    for n in (2, 3, 4, 12, 130, 10_002):
        found = position_formula("mirror")(torch.arange(n).double()[None], torch.tensor([[float(n)]]).double(), 2)[0]
        i, m = np.arange(n).astype(LONG), LONG(n - 1)
        strength = np.sqrt(np.log(16 * LONG(n)) / 2) / np.sin(pi / (2 * m))
        right = np.stack([np.sin(pi * (m - 2 * i) / (2 * m)), np.sin(pi * np.minimum(i, m - i) / m)], 1) * strength
        error = np.abs(long(found) - right)
        assert (error <= 256 * arithmetic.ROUNDOFF[torch.float64] * np.abs(right)).all()
        worst = max(worst, float((error / np.maximum(np.abs(right), LONG(1e-300))).max()))
    assert worst > 0.4 * arithmetic.ROUNDOFF[torch.float64]


SHAPES = [(256, 1, 8, 16), (2, 4, 8, 2000), (1, 1, 800, 1500), (64, 2, 40, 40), (2, 1, 300, 600), (1, 3, 1, 5)]


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.thinned(5)
def test_fused_and_explicit_softmax_stay_within_their_bound(
    shape: tuple[int, int, int, int], dtype: torch.dtype, threads: int
) -> None:
    """One component with query 1, so that the scores are the keys themselves, exactly."""
    rows, heads, queries, keys = shape
    q = torch.ones(rows, heads, queries, 1, dtype=dtype)
    k = (draw((rows, heads, keys, 1), dtype, keys, 4.0)).sort(2).values  # ascending: every block has a new maximum
    v = draw((rows, heads, keys, 4), dtype, 1)
    fused = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=1.0)
    plain = (q @ k.mT).softmax(-1) @ v
    weights = np.exp(long(k)[..., 0] - long(k)[..., 0].max(-1, keepdims=True))
    truth = np.einsum("bhk,bhkd->bhd", weights / weights.sum(-1, keepdims=True), long(v))
    numbers = arithmetic.Arithmetic(arithmetic.ROUNDOFF[dtype])
    bound = numbers.mix(numbers.softmax(arithmetic.exact(k.mT.double())), arithmetic.exact(v.double()))
    for found in (fused, plain):
        error = np.abs(long(found) - truth[:, :, None])
        assert (error <= bound.error.numpy() + 1e-18).all()
        assert error.max() > 0.4 * arithmetic.ROUNDOFF[dtype] * np.abs(truth).max()


def test_weights_that_underflow_stay_within_their_bound() -> None:
    """e^-110 is below the smallest number of float32, which makes it 0: an error of all of it."""
    scores = torch.tensor([[0.0, -110.0]], dtype=torch.float64)
    found = arithmetic.Arithmetic(arithmetic.ROUNDOFF[torch.float32]).softmax(arithmetic.exact(scores))
    assert scores.float().softmax(-1)[0, 1] == 0
    assert 0 < found.value[0, 1] < found.error[0, 1] < 1e-37


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("k", [3, 64, 1000])
@pytest.mark.thinned(5)
@pytest.mark.compiles
def test_sums_of_products_stay_within_gamma_in_every_order(k: int, dtype: torch.dtype, threads: int) -> None:
    n = DRAWN // k
    a, b = draw((n, k), dtype, 2), draw((n, k), dtype, 3)
    truth, size = (long(a) * long(b)).sum(1), np.abs(long(a) * long(b)).sum(1)
    weight, columns = draw((k, 7), dtype, 4), draw((n, k), dtype, 5)
    found = {
        "elements": (a * b).sum(1), "batched": torch.bmm(a[:, None], b[:, :, None])[:, 0, 0],
        "einsum": torch.einsum("nk,nk->n", a, b), "numba": torch.from_numpy(numba_dots(a.numpy(), b.numpy())),
    }  # fmt: skip
    worst = 0.0
    for out in found.values():
        error = np.abs(long(out) - truth)
        assert (error <= arithmetic.gamma(k, arithmetic.ROUNDOFF[dtype]) * size).all()
        worst = max(worst, float((error / size).max()))
    assert worst > 0.4 * arithmetic.ROUNDOFF[dtype]
    wanted, reach = long(columns) @ long(weight), np.abs(long(columns)) @ np.abs(long(weight))
    for rows in (slice(None), slice(0, 1), slice(0, 5)):
        out = torch.nn.functional.linear(columns[rows], weight.T.contiguous())
        assert (np.abs(long(out) - wanted[rows]) <= arithmetic.gamma(k, arithmetic.ROUNDOFF[dtype]) * reach[rows]).all()


@pytest.mark.parametrize("dtype", FORMATS)
def test_gelu_is_as_near_as_the_premise_says(dtype: torch.dtype) -> None:
    x = torch.cat([draw((3000,), dtype, 6, 4.0), torch.linspace(-12, 12, 97).to(dtype)])
    found = torch.nn.functional.gelu(x.repeat(3))[: len(x)].double().numpy()
    mpmath.mp.dps = 40
    right = [float(mpmath.mpf(float(v)) * mpmath.ncdf(mpmath.mpf(float(v)))) for v in x]
    error = np.abs(found - np.array(right))
    assert (
        error
        <= arithmetic.GELU_UNITS * arithmetic.ROUNDOFF[dtype] * x.abs().double().numpy() + arithmetic.limits(dtype)[0]
    ).all()
    assert error.max() > 0.4 * arithmetic.ROUNDOFF[dtype]
    t = torch.linspace(-6, 6, 200_001, dtype=torch.float64)
    assert float((torch.nn.functional.gelu(t).diff() / t.diff()).abs().max()) <= arithmetic.GELU_SLOPE


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("offset", [0.0, 30.0])
def test_layer_norm_stays_within_its_bound(dtype: torch.dtype, offset: float, threads: int) -> None:
    x, w, b = draw((2000, 16), dtype, 7) + offset, draw((16,), dtype, 8), draw((16,), dtype, 9)
    bound = arithmetic.Arithmetic(arithmetic.ROUNDOFF[dtype]).norm(arithmetic.exact(x.double()), "layer", w, b, 1e-5)
    center = long(x) - long(x).mean(1, keepdims=True)
    truth = center / np.sqrt((center**2).mean(1, keepdims=True) + LONG(1e-5)) * long(w) + long(b)
    ours = x - x.mean(-1, keepdim=True)
    ours = ours / (ours.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * w + b
    for found in (ours, torch.nn.functional.layer_norm(x, (16,), w, b, 1e-5)):
        error = np.abs(long(found) - truth)
        assert (error <= bound.error.numpy()).all()
        assert error.max() > bound.error.numpy().max() / 2000


def test_what_a_layer_norm_may_lose_by_underflow() -> None:
    """Of exact zeros, in units of the smallest number: 4 in the centers, 2 in the quotient, 4 in weight and bias."""
    numbers, zeros = arithmetic.Arithmetic(arithmetic.ROUNDOFF[torch.float32]), torch.zeros(1, 4, dtype=torch.float64)
    found = numbers.norm(arithmetic.exact(zeros), "layer", torch.ones(4), torch.zeros(4), 1.0)
    assert found.value.tolist() == zeros.tolist()
    assert (found.error / numbers.smallest).tolist() == [pytest.approx([10.0] * 4, rel=1e-4)]


def test_relu_keeps_the_error_of_what_may_be_positive() -> None:
    """A number that is slightly negative here may be positive in the model's arithmetic, and the other way round."""
    numbers = arithmetic.Arithmetic(arithmetic.ROUNDOFF[torch.float32])
    value, error = torch.tensor([[-1e-9, 1e-9, -1.0], [1e-8, 1e-8, 0.5]], dtype=torch.float64)
    out = numbers.relu(arithmetic.Tracked(value, error))
    assert out.value.tolist() == [0.0, 1e-9, 0.0]
    assert out.error[0] >= 9e-9
    assert out.error[1] >= 1e-8
    assert out.error[2] == 0


def test_one_premise_for_all() -> None:
    """Every bound asks for the same exponentials, and the checker's premise is at least as cautious."""
    assert arithmetic.exp_error(2.0**-24, 1) == 4 * arithmetic.EXP_ULPS * 2.0**-24
    for keys in (1, 31, 200, 5000):
        assert 128 * (2 + keys // 32) >= arithmetic.exp_error(1.0, keys)
    assert arithmetic.gamma(2**60, 2.0**-53) == float("inf")


def test_where_the_premise_does_not_speak() -> None:
    model = interp.build("languages/one")
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert "multiplies float32 in 'medium' precision" in (arithmetic.premise_refusal(model) or "")
        for name in ("count01/minimal", "histogram/dot-exact"):
            with pytest.raises(interp.errors.UnsupportedError, match="'medium' precision"):
                interp.certify(name)
        short = TaskRef(name="one", parameters=(("length", 4),))
        few = interp.TaskModel(model.spec.replace(task=short), tensors=dict(model.named_parameters()), dtype="float64")
        for inputs in (few, "memorization/lookup"):  # inputs that can all be run need no premise
            assert interp.certify(inputs).arithmetic.startswith("as run")
    finally:
        torch.set_float32_matmul_precision(before)
    assert arithmetic.premise_refusal(model) is None


def test_what_may_overflow_with_its_error_is_not_bounded() -> None:
    """A size below the largest number, and an error that may lead beyond it."""
    numbers = arithmetic.Arithmetic(arithmetic.ROUNDOFF[torch.float32])
    error, size = numbers.largest * torch.tensor([[0.4, 0.4, 1e-9], [0.7, 0.5, 0.0]], dtype=torch.float64)
    assert numbers.bounded(error, size).tolist() == [torch.inf, *error.tolist()[1:]]


def test_a_sum_of_exact_numbers_is_rounded_once() -> None:
    numbers = arithmetic.Arithmetic(arithmetic.ROUNDOFF[torch.float32])
    found = numbers.add(
        arithmetic.exact(torch.tensor([[0.1, 3.0]]).double()), arithmetic.exact(torch.tensor([[0.2, 4.0]]).double())
    )
    assert found.error[0, 0] == pytest.approx(numbers.u * float(found.value[0, 0]))
    assert found.error[0, 1] == 0  # whole numbers
