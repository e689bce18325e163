"""Rounding bounds: they hold, they are not absurd, and they know what is exact."""

from collections.abc import Iterator

import pytest
import torch
from drawn_weights import draw

import interp
from interp.certificates import rounding
from interp.certificates.rounding import ROUNDOFF, Arithmetic, Tracked, exact, forward_with_bound, refusal
from interp.models.constructions import construct
from interp.models.spec import MLP, Layer, ModelSpec, TaskRef
from interp.support.resources import one_thread


def random_model(seed: int, dtype: torch.dtype) -> interp.TaskModel:
    """Two layers of two heads with ReLU neurons, weights of order one, log-length scaling."""
    layer = Layer(n_heads=2, d_head=4, mlp=MLP(d_mlp=12), log_length="current")
    spec = ModelSpec(
        task=TaskRef(name="parity"), d_model=8, direction="bidirectional", layers=(layer, layer), positions="parity",
        readout="scalar", readout_at="[CLS]", decision="sigmoid",
    )  # fmt: skip
    model = interp.TaskModel(spec, dtype=dtype)
    draw(model, seed, 0.25, torch.float32)
    return model


@pytest.mark.parametrize("seed", range(6))
def test_float32_stays_within_its_bound(seed: int) -> None:
    single, double = random_model(seed, torch.float32), random_model(seed, torch.float64)
    for name, parameter in double.named_parameters():
        parameter.data.copy_(dict(single.named_parameters())[name].data)
    double.pos_embed.forward = lambda *args, **kw: single.pos_embed(*args, **kw).double()  # the same rounded codes
    tokens = single.task.strings(30, 25, seed=seed).tokens
    value, bound = forward_with_bound(single, tokens)
    with torch.no_grad():
        found, reference = single(tokens)[:, 0].double(), double(tokens)[:, 0]
        watched, _ = single.run_with_cache(tokens)
    torch.testing.assert_close(value, reference, atol=1e-11, rtol=0)
    for own in (found, watched[:, 0].double()):
        error = (own - reference).abs()
        assert (error <= bound).all()
        assert error.max() > 1e-9  # there is something to bound
    assert bound.max() < 0.1


def test_a_norm_before_the_readout_of_one_layer_is_bounded_too() -> None:
    spec = ModelSpec(
        task=TaskRef(name="parity"), d_model=4, direction="bidirectional", layers=(Layer(d_head=2, norm="pre"),),
        readout="scalar", readout_at="[CLS]", decision="sigmoid", final_norm="layer_norm",
    )  # fmt: skip
    single = interp.TaskModel(spec, seed=0, dtype="float32")
    with torch.no_grad():
        for parameter in single.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    double = interp.TaskModel(
        spec, tensors={name: p.detach().double() for name, p in single.named_parameters()}, dtype="float64"
    )
    tokens = single.task.strings(10, 7, seed=0).tokens
    value, bound = forward_with_bound(single, tokens)
    with torch.no_grad():
        torch.testing.assert_close(value, double(tokens)[:, 0], atol=1e-11, rtol=0)
        assert ((single(tokens)[:, 0].double() - value).abs() <= bound).all()


@pytest.mark.parametrize("name", ["one", "first", "parity"])
def test_exact_models_stay_within_their_bound(name: str) -> None:
    model = construct(f"languages/{name}").model(dtype="float32")
    tokens = model.task.strings(20, 150, seed=1).tokens
    value, bound = forward_with_bound(model, tokens)
    with torch.no_grad():
        assert ((model(tokens)[:, 0].double() - value).abs() <= bound).all()


def test_what_is_exact_is_known_to_be() -> None:
    numbers = Arithmetic(ROUNDOFF[torch.float32])
    whole = exact(torch.tensor([[3.0, -0.5, 0.0]]))
    product = numbers.linear(whole, torch.tensor([[1.0, 0.1], [2.0, 0.0], [1.0, 1.0]]))
    assert (product.error == 0).tolist() == [[True, False]]
    assert numbers.add(whole, whole).error.max() == 0
    assert numbers.add(whole, exact(torch.tensor([[0.1, 0.1, 0.1]]))).error[0].gt(0).tolist() == [True, True, False]
    unsure = Tracked(torch.tensor([-1.0, 1e-9]), torch.tensor([0.5, 1e-8]))
    assert numbers.relu(unsure).error.tolist() == [0.0, pytest.approx(1e-8)]
    even = numbers.softmax(exact(torch.zeros(1, 4)))
    assert even.error.max() < 8 * numbers.u


def test_refusals() -> None:
    assert "float16" in (refusal(construct("languages/one").model(dtype="float16")) or "")
    causal = construct("count01/minimal").model()
    assert "bidirectional models" in (refusal(causal) or "")
    assert refusal(construct("languages/one").model()) is None


def test_layers_without_attention_tell_all_positions_the_same() -> None:
    """The shortcut for scores that are all zero against the whole pattern."""
    model = construct("languages/parity").model()
    tokens = model.task.strings(5, 9, seed=2).tokens
    numbers = rounding.Arithmetic(rounding.ROUNDOFF[torch.float64])
    x = rounding.embed(numbers, model, tokens)
    short = rounding.attention(numbers, model, 0, x)
    whole = rounding.pattern(numbers, model, 0, x)
    assert whole.value.shape == (5, 2, 10, 10)
    values = numbers.linear(x[:, None], model.blocks[0].attn.W_V.detach())
    z = numbers.mix(whole, values)
    joined = rounding.Tracked(z.value.transpose(1, 2).flatten(2), z.error.transpose(1, 2).flatten(2))
    wanted = numbers.linear(joined, model.blocks[0].attn.W_O.detach().flatten(0, 1))
    torch.testing.assert_close(short.value.expand_as(wanted.value), wanted.value, rtol=1e-14, atol=1e-16)
    torch.testing.assert_close(short.error.expand_as(wanted.error), wanted.error, rtol=1e-12, atol=0)


def test_one_thread_is_given_back() -> None:
    before = torch.get_num_threads()
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("power", [-12, -8, -3, 3, 8, 12])
@pytest.mark.parametrize("name", ["one", "first"])
@pytest.mark.thinned(4)
def test_weights_that_overflow_or_underflow_are_not_certified(name: str, power: int) -> None:
    """All parameters times a power of ten: signs of margins stay the same in exact arithmetic for a one-layer model,
    but not in float32, whose numbers end at 1e-38 and 3e38."""
    model = interp.build(f"languages/{name}", dtype="float32")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(10.0**power)
    found = interp.certify(model, longest=6)
    wrong = 0
    for length in range(1, 7):
        batch = model.task.enumerate(length)
        wrong += int((model.predict(batch.tokens) != batch.labels).sum())
    assert not (found.status == "certified" and wrong)
    if name == "one":
        assert (found.status == "certified") == (abs(power) == 3)


@pytest.mark.parametrize("name", ["count01/minimal", "languages/one", "histogram/dot-exact"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_refused(name: str, value: float) -> None:
    model = interp.build(name)
    with torch.no_grad():
        next(iter(model.parameters())).view(-1)[0] = value
    with pytest.raises(interp.InterpError, match=r"weights of embed\.W_E is not finite"):
        interp.certify(model)


def test_products_that_underflow_are_lost_before_scaling() -> None:
    """1,024 products of 2e-45, between two numbers of float32, times 3e38: the scores are off by about 1e-4."""
    layer = Layer(n_heads=1, d_head=1024, scale=3e38)
    spec = ModelSpec(
        task=TaskRef(name="parity"), d_model=1, direction="bidirectional", layers=(layer,), readout="scalar",
        readout_at="[CLS]", decision="sigmoid",
    )  # fmt: skip
    single, double = interp.TaskModel(spec, dtype=torch.float32), interp.TaskModel(spec, dtype=torch.float64)
    with torch.no_grad():
        for model in (single, double):
            for parameter in model.parameters():
                parameter.zero_()
            model.embed.W_E[1] = 1.0
            for weight in (model.blocks[0].attn.W_Q, model.blocks[0].attn.W_K):
                weight.copy_(torch.full_like(weight, 4.5e-23, dtype=torch.float32))
    tokens = single.task.encode(["0110"]).tokens
    numbers = Arithmetic(ROUNDOFF[torch.float32])
    bound = rounding.pattern(numbers, single, 0, rounding.embed(numbers, single, tokens)).error
    with torch.no_grad():
        found, reference = (model.run_with_cache(tokens)[1]["pattern", 0].double() for model in (single, double))
    error = (found - reference).abs()
    assert error.max() > 1e-6  # more than the rounding of anything else
    assert (error <= bound).all()


@pytest.fixture
def flushed() -> Iterator[None]:
    """Subnormal numbers are zero, as the premise allows."""
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU keeps subnormal numbers")
    yield
    torch.set_flush_denormal(False)


TINY = [
    *(("palindrome", "mirror", "float32", size) for size in (1e-30, 1e-36, 1e-37, 1e-38, 1e-40)),
    *(("palindrome", "binary", "float64", size) for size in (1e-290, 1e-300, 1e-305, 1e-307)),
    *((name, None, dtype, size) for name in ("one", "first", "parity")
      for dtype, size in (("float32", 1e-36), ("float32", 1e-38), ("float64", 1e-307))),
]  # fmt: skip


@pytest.mark.parametrize(("name", "variant", "dtype", "size"), TINY)
@pytest.mark.thinned(8)
def test_certificates_hold_where_subnormals_are_flushed(
    name: str, variant: str | None, dtype: str, size: float, flushed: None
) -> None:
    model = interp.build(f"languages/{name}", variant=variant, dtype=dtype, output_scale=size)
    torch.set_flush_denormal(False)
    table = interp.certify(model, longest=6).tables["lengths"]
    torch.set_flush_denormal(True)
    for length, status in zip(table["length"], table["status"]):
        batch = model.task.enumerate(int(length))
        right = bool((model.predict(batch.tokens) == batch.labels).all())
        assert right or status != "certified", f"{length} symbols"


@pytest.mark.slow
def test_answers_that_flushing_changes_are_not_certified() -> None:
    def mirror(size: float) -> interp.TaskModel:
        return interp.build("languages/palindrome", variant="mirror", dtype="float32", output_scale=size)

    assert interp.certify(mirror(1e-30), longest=6).status == "certified"
    assert interp.certify(mirror(1e-37), longest=6).status == "undecided"


def test_a_sum_of_subnormal_numbers_may_be_flushed(flushed: None) -> None:
    """Parameters, too: what is read as zero is off by all of it."""
    numbers = Arithmetic(ROUNDOFF[torch.float32])
    one, other = torch.tensor([[[2e-39, 0.0, 3.0]], [[3e-39, 0.0, 4.0]]], dtype=torch.float64)
    found = numbers.add(exact(one), exact(other))
    error = ((one.float() + other.float()).double() - one - other).abs()
    assert error[0, 0] > 0
    assert (error <= found.error).all()
    assert found.error[0, 1:].tolist() == [0, 0]


def test_scores_of_subnormal_queries_are_bounded_before_scaling(flushed: None) -> None:
    numbers = Arithmetic(ROUNDOFF[torch.float32])
    q, k = torch.full((1, 3), 3e-39, dtype=torch.float64), torch.full((2, 3), 2.0, dtype=torch.float64)
    found = numbers.scores(exact(q), exact(k), 1e30)
    error = ((q.float() @ k.float().T) * 1e30).double() - q @ k.T * 1e30
    assert error.abs().max() > 1e-9
    assert (error.abs() <= found.error).all()


@pytest.mark.parametrize(("one", "other"), [(1e10, 1e-40), (1e-40, 1e10), (-1e10, 1e-40)])
def test_a_factor_that_is_flushed_loses_all_of_its_product(one: float, other: float) -> None:
    """1e10 times a subnormal number is normal: flushed to zero before, it is lost."""
    numbers = Arithmetic(2.0**-24)
    x, y = (exact(torch.tensor([[part]], dtype=torch.float64)) for part in (one, other))
    assert float(numbers.product(x, y).error) >= abs(one * other)
    assert float(numbers.scores(x, y, 1.0).error) >= abs(one * other)
    assert float(numbers.linear(x, y.value).error) >= abs(one * other)
    assert float(numbers.product(x, y).error) <= 1e-27
