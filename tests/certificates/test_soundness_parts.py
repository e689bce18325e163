"""The one arithmetic part by part: errors that go in come out, and what formats lose is there; each line broke unseen.

Truths are other computations: inputs moved to the corners of what their errors allow, numbers in another format, and
the same sums taken in another order.
"""

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

import interp
from interp.certificates import count_boxes, multisets, products
from interp.certificates.arithmetic import (
    EXP_ULPS,
    KEYS_PER_RESCALING,
    ROUNDOFF,
    Arithmetic,
    Tracked,
    exact,
    exp_error,
    format_refusal,
    premise_refusal,
)
from interp.certificates.rounding import forward_with_bound, logit_error, pattern
from interp.families.count01.tasks import EQUALS, CountBox
from interp.families.histogram.certificates import certify as histogram
from interp.families.histogram.certificates import spaces
from interp.families.histogram.certificates.tables import rounding_bound, tables_of
from interp.families.languages.certificates import strings as language_strings
from interp.families.memorization import certificates as memorization
from interp.models.spec import Layer, ModelSpec, TaskRef

SINGLE, DOUBLE = Arithmetic(ROUNDOFF[torch.float32]), Arithmetic(ROUNDOFF[torch.float64])
WEIGHT = torch.tensor([[1.3, -0.7], [0.4, 2.1], [-0.9, 0.3]], dtype=torch.float64)
GAIN, SHIFT = torch.tensor([1.5, -0.5, 2.0]).double(), torch.tensor([0.1, 0.0, -1.0]).double()


def corners(x: Tracked) -> Tensor:
    """Every way to move all numbers as far as their errors allow: (moves, *shape)."""
    signs = torch.tensor(list(product((-1.0, 1.0), repeat=x.value.numel())), dtype=torch.float64)
    return x.value + signs.view(-1, *x.value.shape) * x.error


def norm(x: Tensor, eps: float = 1e-3) -> Tensor:
    center = x - x.mean(-1, keepdim=True)
    return center / (center.square().mean(-1, keepdim=True) + eps).sqrt() * GAIN + SHIFT


OPERATIONS: dict[str, tuple[Callable[[Tracked], Tracked], Callable[[Tensor], Tensor]]] = {
    "linear": (lambda x: DOUBLE.linear(x, WEIGHT), lambda x: x @ WEIGHT),
    "add": (lambda x: DOUBLE.add(x, exact(SHIFT)), lambda x: x + SHIFT),
    "layer norm": (lambda x: DOUBLE.norm(x, "layer", GAIN, SHIFT, 1e-3), norm),
    "relu": (DOUBLE.relu, torch.relu),
    "gelu": (DOUBLE.gelu, torch.nn.functional.gelu),
    "softmax": (DOUBLE.softmax, lambda x: x.softmax(-1)),
    "mixed values": (
        lambda x: DOUBLE.mix(x, exact(WEIGHT)), lambda x: x @ WEIGHT,
    ),
}  # fmt: skip
INPUTS = {
    "apart": (torch.tensor([[1.0, -0.5, 0.25]]), torch.tensor([[0.1, 0.02, 0.3]])),
    "near zero": (torch.tensor([[-0.01, 0.01, 0.0]]), torch.tensor([[0.05, 0.05, 0.002]])),
    "whole numbers": (torch.tensor([[2.0, -1.0, 0.0]]), torch.tensor([[0.5, 0.0, 0.25]])),
    "steep": (torch.tensor([[1.41, 1.4, 1.42]]), torch.tensor([[1e-3, 1e-3, 1e-3]])),
    "certain": (torch.tensor([[0.3, 6.0, -0.2]]), torch.tensor([[0.2, 0.0, 0.0]])),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("case", INPUTS)
def test_errors_that_go_in_come_out(name: str, case: str) -> None:
    ours, plain = OPERATIONS[name]
    value, error = (part.double() for part in INPUTS[case])
    x = Tracked(value.abs() if name == "mixed values" else value, error)
    found = ours(x)
    assert ((plain(corners(x)) - found.value).abs().amax(0) <= found.error + 1e-15).all()
    assert found.error.min() >= 0


def test_a_norm_of_numbers_that_are_all_error_knows_nothing() -> None:
    value = torch.tensor([[1.0, 1.001, 0.999]], dtype=torch.float64)
    assert DOUBLE.norm(Tracked(value, torch.full_like(value, 0.5)), "layer", GAIN, SHIFT, 1e-9).error.isinf().all()


def test_a_norm_rounds() -> None:
    """Exact inputs: nothing but the rounding of the norm itself, which float32 shows."""
    x = (torch.randn(4000, 3, generator=torch.Generator().manual_seed(0)) * 3).float()
    found = SINGLE.norm(exact(x.double()), "layer", GAIN, SHIFT, 1e-3)
    own = torch.nn.functional.layer_norm(x, (3,), GAIN.float(), SHIFT.float(), 1e-3)
    error = (own.double() - norm(x.double())).abs()
    assert (error <= found.error).all()
    assert (error > found.error / 40).any()


def test_what_format_loses_is_there() -> None:
    """Numbers that float32 cannot hold: too small, too large, too many digits."""
    tiny = torch.tensor([[1e-25]], dtype=torch.float64)
    assert float(tiny.float() @ tiny.float()) == 0.0
    assert SINGLE.linear(exact(tiny), tiny).error >= 1e-50
    assert SINGLE.mix(exact(tiny), exact(tiny)).error >= 1e-50
    far = exact(torch.tensor([[0.0, -200.0]], dtype=torch.float64))
    assert math.exp(-200) <= SINGLE.softmax(far).error[0, 1] < 1e-30
    large = torch.tensor([[1e30]], dtype=torch.float64)
    assert SINGLE.linear(exact(large), large).error.isinf().all()
    assert DOUBLE.linear(exact(large), large).error.isfinite().all()
    # 4097^2 has 25 binary digits, and 2^24 + 1 is the first whole number that float32 does not have.
    whole = torch.tensor([[4097.0]], dtype=torch.float64)
    assert SINGLE.linear(exact(whole), whole).error >= abs(float(np.float32(4097.0) * np.float32(4097.0)) - 4097.0**2)
    assert float(SINGLE.linear(exact(whole), whole).error) >= 1
    most = torch.tensor([2.0**24], dtype=torch.float64)
    assert float(SINGLE.add(exact(most), exact(torch.ones(1))).error) >= 1
    assert float(SINGLE.add(exact(torch.tensor([0.3])), exact(torch.tensor([0.1]))).error) > 0.05 * 2.0**-24


def test_every_rescaling_of_a_fused_kernel_counts() -> None:
    for keys in (1, 127, 128, 1280, 12800):
        assert exp_error(1.0, keys) >= 2 * EXP_ULPS * (1 + keys / KEYS_PER_RESCALING)
    assert exp_error(1.0, 1) > 0


def test_formats_and_devices_without_a_premise() -> None:
    assert format_refusal(interp.build("languages/one", dtype="float32").to(torch.bfloat16)) is not None
    assert "not on meta" in (premise_refusal(torch.nn.Linear(2, 2, device="meta")) or "")


# ---------------------------------------------------------------- attention


def one_head(d_model: int = 1, **fields: object) -> interp.TaskModel:
    layer = Layer(d_head=1, scale=1.0)
    given = {"task": TaskRef(name="parity"), "d_model": d_model, "direction": "bidirectional", "layers": (layer,),
             "readout": "scalar", "readout_at": "[CLS]", "decision": "sigmoid", "dtype": "float64"}  # fmt: skip
    model = interp.TaskModel(ModelSpec(**{**given, **fields}), seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0)
    return model


@pytest.mark.parametrize("which", ["asking", "asked"])
def test_errors_of_queries_and_of_keys_reach_the_pattern(which: str) -> None:
    """One key scores -6 q, the other 0, so that a weight moves by nearly as much as its score."""
    model = one_head()
    keys = Tracked(torch.tensor([[[0.0], [-6.0]]]).double(), torch.tensor([[[0.0], [0.5]]]).double())
    query = Tracked(torch.ones(1, 1, 1).double(), torch.full((1, 1, 1), 0.1).double())
    keys = keys if which == "asked" else exact(keys.value)
    query = query if which == "asking" else exact(query.value)
    found = pattern(DOUBLE, model, 0, keys, query)
    scores = torch.stack([q * k.mT for q in corners(query) for k in corners(keys)])
    moved = (scores.softmax(-1)[:, :, None] - found.value).abs().amax(0)
    assert (moved <= found.error).all()
    assert (moved >= 0.4 * found.error)[..., 1].all()


def test_scores_that_cancel_keep_the_rounding_of_their_terms() -> None:
    """Queries and keys are exact, their products add up to 0: gamma_d times the terms' sizes is left (Higham)."""
    d, size = 16, 63.0625
    model = one_head(d, layers=(Layer(d_head=d, scale=1.0),), dtype="float32")
    with torch.no_grad():
        model.blocks[0].attn.W_Q.copy_(torch.eye(d)[None])
        model.blocks[0].attn.W_K.copy_(torch.eye(d)[None])
    signs = torch.tensor([1.0, -1.0] * (d // 2), dtype=torch.float64)
    keys = torch.stack([size * signs, torch.zeros(d).double()])[None]
    found = pattern(SINGLE, model, 0, exact(keys), exact(torch.full((1, 1, d), size).double()))
    higham = d * 2.0**-24 / (1 - d * 2.0**-24) * d * size**2
    assert float(found.error[0, 0, 0, 0]) >= 0.5 * math.expm1(higham)


def test_the_bound_covers_the_folded_readout_of_predict() -> None:
    model = one_head(40)
    tokens = model.task.enumerate(3).tokens
    _, bound = forward_with_bound(model, tokens)
    folded = logit_error(model, int(tokens[0, 0]), tokens.unique(), tokens.shape[1], torch.float64)
    assert bool((bound >= folded).all())
    assert folded > 0


# ---------------------------------------------------------------- count space


def counted(V: float, O: float, U: float, dtype: str = "float32") -> interp.TaskModel:  # noqa: E741
    """Values V, written by O, read by U: sizes only, no scores."""
    model = interp.build("count01/minimal", dtype=dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embed.W_E.fill_(1.0)
        model.blocks[0].attn.W_V.fill_(V)
        model.blocks[0].attn.W_O.fill_(O)
        model.unembed.W_U.fill_(U)
    return model


@pytest.mark.parametrize(("V", "O", "U", "n"), [(1e20, 1e20, 1e-20, 4), (1e-20, 1e20, 1e20, 4), (1.0, 1.0, 1e36, 1000)])
def test_every_order_of_the_readout_is_bounded(V: float, O: float, U: float, n: int) -> None:  # noqa: E741
    """Stream first, heads first, keys first: in each case one of them overflows in float32."""
    keys = torch.arange(4)
    assert logit_error(counted(V, O, U), EQUALS, keys, n, torch.float32) == math.inf
    assert logit_error(counted(1.0, 1.0, 1.0), EQUALS, keys, n, torch.float32) < 1


def test_scores_bring_their_own_error() -> None:
    """Large scores are off by more: with queries and keys of the same product."""
    bounds = []
    for gain in (1.0, 100.0):
        model = counted(1.0, 1.0, 1.0)
        with torch.no_grad():
            model.blocks[0].attn.W_Q.fill_(gain)
            model.blocks[0].attn.W_K.fill_(gain)
        bounds.append(logit_error(model, EQUALS, torch.arange(4), 10, torch.float32))
    assert bounds[1] > 3 * bounds[0]


def test_the_difference_of_two_logits_is_bounded_by_both() -> None:
    """Against float32 in which each logit is off by half a unit in the last place, in opposite directions."""
    model = counted(1.0, 1.0, 1.0)
    one = logit_error(model, EQUALS, torch.arange(4), 10, torch.float32)
    with torch.no_grad():
        model.unembed.W_U[:, 1:] = 0.0  # one logit that can be off, where there were many
    assert one > 1.5 * logit_error(model, EQUALS, torch.arange(4), 10, torch.float32)


# ---------------------------------------------------------------- histogram


def test_bounds_of_histogram_models_have_each_of_their_parts() -> None:
    """Sizes turned up one at a time, each seen by one part of the bound alone."""
    model = interp.build("histogram/dot-softmax-exact", T=3, L=3, p=3, dtype="float32")

    def bound(change: Callable[[interp.TaskModel], None]) -> float:
        copy = interp.build("histogram/dot-softmax-exact", T=3, L=3, p=3, dtype="float32")
        with torch.no_grad():
            for name, parameter in copy.named_parameters():
                parameter.copy_(dict(model.named_parameters())[name])
            change(copy)
        tables = tables_of(copy)
        return float(rounding_bound(copy, tables, histogram._highest(tables), torch.float32).max())

    plain = bound(lambda m: None)
    assert 0 < plain < 1
    assert bound(lambda m: m.unembed.b_out.add_(1e6)) > plain + 1e6 * 2.0**-24  # the last sum
    assert bound(lambda m: m.unembed.b_in.sub_(1e6)) > plain + 1e6 * 2.0**-24  # the neurons' sum, though all are off

    def louder(m: interp.TaskModel) -> None:
        m.blocks[0].attn.W_Q.mul_(100.0)

    assert bound(louder) > 5 * plain  # the scores

    def larger(m: interp.TaskModel) -> None:
        m.embed.W_E.mul_(1e20)
        m.blocks[0].attn.W_Q.mul_(1e-20)
        m.blocks[0].attn.W_K.mul_(1e-20)
        m.unembed.W_in.mul_(1e20)

    assert math.isinf(bound(larger))


def test_a_softmax_weight_that_vanishes_leaves_the_method() -> None:
    model = interp.build("histogram/dot-softmax-exact", T=3, L=3, p=3)
    with torch.no_grad():
        model.blocks[0].attn.W_Q.mul_(-1e4)  # the own token scores lowest, by thousands
    assert all(spaces.space_of(tables_of(model), token) is None for token in range(3))
    assert interp.certify(model, samples=0).status != "certified"


def test_ties_and_near_ties_are_faults_of_a_histogram_model() -> None:
    """All outputs equal: nothing is right, nothing is surely wrong, and the share of right answers stays open."""
    model = interp.build("histogram/dot-exact", T=3, L=3, p=3)
    with torch.no_grad():
        model.unembed.W_out.zero_()
        model.unembed.b_out.zero_()
    found = interp.certify(model, samples=0)
    assert found.status != "certified"
    assert found.accuracy == (0.0, 1.0)
    assert found.n_errors is None
    with torch.no_grad():
        model.unembed.b_out[0] = 1e-30  # count 1 everywhere, by less than anything is known
    found = interp.certify(model, samples=0)
    low, high = found.accuracy if isinstance(found.accuracy, tuple) else (found.accuracy, found.accuracy)
    assert low <= 4 / 9 <= high + 1e-9  # the share of tokens that occur once


# ---------------------------------------------------------------- tables


def test_a_table_s_verdict_needs_more_than_a_positive_margin() -> None:
    margins, rounded = np.array([0.5, 0.2]), np.array([0.1, 0.3])
    assert memorization._status(margins - rounded, margins + rounded) == "undecided"
    assert memorization._status(-margins - rounded, rounded - margins) == "refuted"
    assert memorization._status((-margins - rounded)[1:], (rounded - margins)[1:]) == "undecided"
    assert memorization._status((margins - rounded)[:1], (margins + rounded)[:1]) == "certified"


# ---------------------------------------------------------------- verdicts


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_margin_must_exceed_rounding_of_both_evaluations(dtype: str) -> None:
    model = interp.build("count01/minimal", dtype=dtype)
    shape = count_boxes.shape_of(model.task)
    need, slack = count_boxes.rounding_bounds(model, shape, CountBox((0, 3), (0, 3), (0, 2)))(EQUALS)
    seen = torch.tensor(sorted({*shape.marks.nonzero()[:, 0].tolist(), *shape.counted, EQUALS}))
    own = logit_error(model, EQUALS, seen, 3 + 3 + 2 + int(shape.marks.sum()) + 1, model.embed.W_E.dtype)
    assert need == pytest.approx(own + slack, rel=1e-12)
    assert slack > 0
    other = interp.build("algorithmic/max-of-k-exact", K=2, v=4, dtype=dtype)
    read, every = other.task.token_id("="), torch.arange(other.task.d_vocab)
    both = [logit_error(other, read, every, 3, kind) for kind in (other.embed.W_E.dtype, torch.float64)]
    assert multisets.certify_multisets(other).rounding == pytest.approx(sum(both), rel=1e-12)
    # A proof by products bounds its own rounding apart from the model's.
    assert products.certify_products(other).rounding == pytest.approx(both[0], rel=1e-12)


@pytest.mark.parametrize(
    ("size", "status"), [(1e-9, "undecided"), (-1e-9, "undecided"), (1e-3, "certified"), (-1e-3, "refuted")]
)
def test_strings_are_judged_beyond_rounding_on_both_sides(
    size: float, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs of a given size, right or wrong everywhere, that are off by up to 1e-6."""
    model = interp.build("languages/one")

    def answer(model: interp.TaskModel, tokens: Tensor, *args: object, **kw: object) -> tuple[Tensor, Tensor]:
        value = torch.where(model.task.batch(tokens).labels, size, -size).double()[:, None]
        return value, torch.full_like(value, 1e-6)

    monkeypatch.setattr(language_strings, "forward_with_bound", answer)
    found = language_strings.certify_strings(model, longest=3)
    assert found.status == status
    known = {"certified": 1.0, "refuted": 0.0}  # all classes of strings are counted
    assert found.accuracy == known[status] if status in known else isinstance(found.accuracy, tuple)
