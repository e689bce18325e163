"""Sums of weights: of scores, and of what is read through a norm, against the numbers themselves."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from interp.measures.runs import Part
from interp.programs import read_sums
from interp.programs.language import Head, Sums
from interp.programs.quantize import Quantized
from interp.programs.reading import Reading


def test_products_are_the_scores_up_to_a_constant_of_each_query() -> None:
    draw = torch.Generator().manual_seed(0)
    q, k = (torch.randn(n, 6, generator=draw, dtype=torch.float64) for n in (30, 40))
    k[:, 2:] = 1.0  # keys differ in two directions
    for products in (2, 6):
        left, right = read_sums.products_of(q, k, products)
        assert left.shape == right.shape == (6, products)
        off = (q @ left) @ (k @ right).T - q @ k.T
        assert float((off - off.mean(1, keepdim=True)).abs().max()) < 1e-6
    left, right = read_sums.products_of(q, k, 1)
    off = (q @ left) @ (k @ right).T - q @ k.T
    assert float((off - off.mean(1, keepdim=True)).abs().max()) > 0.1


def test_heads_of_one_dimension_have_products_too() -> None:
    draw = torch.Generator().manual_seed(0)
    q, k = (torch.randn(n, 1, generator=draw, dtype=torch.float64) for n in (30, 40))
    left, right = read_sums.products_of(q, k, 1)
    off = (q @ left) @ (k @ right).T - q @ k.T
    assert float((off - off.mean(1, keepdim=True)).abs().max()) < 1e-6
    assert read_sums.covariance(k).shape == (1, 1)


def flat(features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: weights.flatten(0, 1) for name, weights in features.items()}


@pytest.mark.parametrize("norm", ["none", "layer norm, written"])
def test_what_is_read_is_a_sum_over_the_variables(norm: str) -> None:
    draw = torch.Generator().manual_seed(1)
    features = {
        name: torch.nn.functional.one_hot(torch.randint(3, (50, 4), generator=draw), 3).double()
        for name in ("token", "position")
    }
    stream = sum(one @ torch.randn(3, 8, generator=draw, dtype=torch.float64) for one in features.values())
    layer = torch.nn.LayerNorm(8, elementwise_affine=False) if norm != "none" else None
    where = torch.ones(50, 4, dtype=torch.bool)
    by = (
        None
        if layer is None
        else read_sums.length("length", flat(features), read_sums.undivided(layer, stream).flatten(0, 1), layer.eps)
    )
    read = read_sums.Input(features, stream, layer, by, where)
    made = dict(features)
    for step in read.fit("token", "position").sums("sums", torch.eye(8, dtype=torch.float64)):
        made[step.name] = step.applied(made, where)
    wanted = stream if layer is None else layer(stream)
    torch.testing.assert_close(made["sums"], wanted, rtol=0, atol=1e-4)


def test_the_most_frequent_value_adds_nothing_to_a_sum() -> None:
    """What it adds is in the constant; a value that never occurs adds nothing, either."""
    where = torch.ones(1, 5, dtype=torch.bool)
    feature = torch.eye(4).double()[torch.tensor([[0, 1, 1, 2, 1]])]
    stream = feature @ torch.tensor([[1.0], [3.0], [5.0], [9.0]], dtype=torch.float64)
    (step,) = (
        read_sums.Input({"token": feature}, stream, None, None, where).fit("token").sums("sums", torch.eye(1).double())
    )
    assert isinstance(step, Sums)
    torch.testing.assert_close(torch.tensor(step.weights[0]), torch.tensor([[-2.0], [0.0], [2.0], [0.0]]))
    assert step.bias == pytest.approx((3.0,))
    assert step.constants == 3


def test_sums_are_turned_until_many_weights_are_0() -> None:
    """Three sums of five values: each has a value of its own. Those of which one says nothing new stay."""
    weights = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    turned = weights @ read_sums.turn(weights)
    assert int((turned.abs() < 1e-9).sum()) == 6
    assert torch.linalg.matrix_rank(torch.cat([weights, turned], 1)) == 3
    weights[:, 2] = weights[:, 0]
    for few in (weights, weights[:2]):
        assert read_sums.turn(few).equal(torch.eye(3).double())


def test_sums_turned_by_rank_keep_their_lengths() -> None:
    draw = torch.Generator().manual_seed(0)
    weights = torch.randn(7, 5, generator=draw, dtype=torch.float64)
    weights[2] = weights[0] + weights[1]  # follows from the first two, so it needs no sum of its own
    weights[3] = 0.0
    found = read_sums.lower(weights)
    assert torch.allclose(found @ found.T, weights @ weights.T)
    first = [len(row.nonzero()) and int(row.nonzero()[-1]) + 1 for row in found]
    assert first == [1, 2, 2, 0, 3, 4, 5]
    noise = 1e-9 * torch.randn(7, 5, generator=draw, dtype=torch.float64)
    assert torch.equal(read_sums.lower(weights + noise) == 0, found == 0)
    assert read_sums.lower(weights[:3]).shape == (3, 2)


def test_only_parts_behind_one_norm_share_what_is_normed() -> None:
    """Two heads of a layer that read the same variables do; an MLP that reads these has another length."""
    vectors = torch.randn(3, 4, dtype=torch.float64)
    lengths = [Sums(name, ("token",), (((1.0,),) * 3,), (0.0,)) for name in ("length 0", "length 1")]
    one, same, other = (
        read_sums.Fitted(("token",), vectors, vectors[0], [2], by).sums(name, torch.eye(4, dtype=torch.float64))
        for name, by in (("query", lengths[0]), ("key", lengths[0]), ("neurons", lengths[1]))
    )
    assert one[:2] == same[:2]
    assert one[1].of == ("token", "length 0")
    assert not {step.name for step in one} & {step.name for step in other}


def test_the_first_names_that_nothing_needs_are_left_out() -> None:
    assert read_sums.fewest("abcde", lambda left: "b" in left and len(left) > 2) == ["b", "d", "e"]


# ---------------------------------------------------------------- whole parts: answers stay where their values do


class Reads:
    """What a part of one layer reads: tokens in three dimensions of five, positions in two. Answers stay where the
    value of the part is as it was."""

    finer = of_other_rows = False
    strict, matter, steps, vectors, roles = True, (Part(0),), list[Any](), dict[str, Any](), dict[Any, Any]()

    def __init__(self, **parts: Any) -> None:
        draw = torch.Generator().manual_seed(3)
        tokens = torch.randint(3, (40, 4), generator=draw)
        self.steps, self.vectors, self.roles = [], {}, {}
        self.made = {"token": torch.eye(3)[tokens].double(), "position": torch.eye(4).double().expand(40, 4, 4)}
        codes = torch.randn(4, 2, generator=draw, dtype=torch.float64)
        self.x = torch.cat([self.made["token"], self.made["position"] @ codes], -1)
        self.seen, everywhere = torch.zeros(40, 4, 4).double(), torch.ones(40, 4, dtype=torch.bool)
        self.found = Quantized(Part(0), *[torch.zeros(0)] * 2, everywhere, torch.zeros(0), 0.0)
        self.running: Any = SimpleNamespace(
            blocks=[SimpleNamespace(**parts)], mask=everywhere, value=lambda part: self.truth, before=lambda at: self.x,
            subject=SimpleNamespace(model=SimpleNamespace(cfg=SimpleNamespace(act_fn="relu"))),
            stream=lambda edits, at, reads: self.x, between=lambda at: self.x,
        )  # fmt: skip
        self.truth = torch.zeros(40, 4, 1)

    def move(self, part: Any) -> None:
        """No row has a variable of another."""

    def kept(self, edits: Any) -> Any:
        same = [float((value - self.truth).abs().max()) < 1e-4 for value in edits.values()]
        return SimpleNamespace(share=float(all(same)), least=float(all(same)))

    def step(self, name: str) -> Any:
        return next((one for one in self.steps if one.name == name), None)

    def low(self, part: Part) -> torch.Tensor:
        return torch.eye(3)

    tried: Any = SimpleNamespace(stay_without=lambda part, said, sides: 1.0)
    writers = lambda self, name: {name}  # noqa: E731
    before = allowed = put = lambda self, *of: True
    after, variable, explain, stays = Reading.after, Reading.variable, Reading.explain, Reading.stays
    read = lambda self, part: (None, None, None)  # noqa: E731
    spread = lambda self, found, value: value  # noqa: E731


@pytest.mark.parametrize("of", [("token",), ("token", "position")], ids=["as they are", "from another row"])
def test_an_mlp_is_the_neurons_and_variables_that_it_needs(of: tuple[str, ...]) -> None:
    """Of six neurons two are read on, and both see the token alone; the position stays if answers change with it from
    another row."""
    draw = torch.Generator().manual_seed(4)
    w_in, w_out = (torch.randn(*shape, generator=draw, dtype=torch.float64) for shape in ((5, 6), (6, 5)))
    w_in[3:, 4:], w_out[:4], bias = 0, 0, torch.linspace(-0.2, 0.3, 6, dtype=torch.float64)
    reading: Any = Reads(mlp=SimpleNamespace(W_in=w_in, b_in=bias, W_out=w_out))
    reading.truth = (reading.x @ w_in + bias).relu() @ w_out
    reading.tried = SimpleNamespace(stay_without=lambda part, said, sides: float(set(of) <= said))
    assert read_sums.describe_by_sums(reading, Part(0, None), reading.found)
    (step,) = reading.steps
    assert isinstance(step, Sums)
    assert (set(step.of), step.ramps, len(step.bias)) == (set(of), True, 2)
    wanted = (reading.x @ w_in + bias).relu()[..., 4:]
    torch.testing.assert_close(reading.made["MLP 0"], wanted, rtol=0, atol=1e-6)


def test_an_mlp_of_which_no_sum_keeps_the_answers() -> None:
    w = torch.ones(5, 2).double()
    reading: Any = Reads(mlp=SimpleNamespace(W_in=w, b_in=w[0], W_out=w.T))
    reading.truth = torch.randn(40, 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert not read_sums.describe_by_sums(reading, Part(0, None), reading.found)
    assert not reading.steps


def test_a_head_is_the_products_and_sums_that_it_needs() -> None:
    """Scores of rank two, and values of rank two that are read from the token: one of either would not do."""
    draw = torch.Generator().manual_seed(5)
    q, k, v = torch.randn(3, 1, 5, 3, generator=draw, dtype=torch.float64)
    q[..., 2], v[..., 2], v[:, 3:] = 0, 0, 0
    b = torch.randn(3, 1, 3, generator=draw, dtype=torch.float64)
    attn = SimpleNamespace(
        hook_attn_scores=None, W_Q=q, W_K=k, W_V=v, b_Q=b[0] * torch.tensor([1.0, 1.0, 0.0]), b_K=b[1], b_V=b[2]
    )
    reading: Any = Reads(attn=attn)
    pattern = ((reading.x @ q[0] + attn.b_Q) @ (reading.x @ k[0] + b[1]).mT).softmax(-1)
    reading.truth = pattern @ (reading.x @ v[0] + b[2])
    assert read_sums.describe_by_sums(reading, Part(0, 0), reading.found)
    head = next(step for step in reading.steps if isinstance(step, Head))
    sums = {step.name: step for step in reading.steps if isinstance(step, Sums)}
    assert [len(sums[name].bias) for name in (head.query, head.key, head.value)] == [2, 2, 2]
    assert sums[head.key].bias == (0.0, 0.0)  # all keys would have it alike
    assert sums[head.value].of == ("token",)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("everywhere", [False, True])
def test_what_is_tried_before_a_part_has_no_sums(norm: bool, everywhere: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A norm is written only where there is one, after a sum fitted to what comes out of it; then all positions."""
    tried = []
    monkeypatch.setattr(read_sums, "as_swapped", lambda reading, part: [])
    monkeypatch.setattr(read_sums, "length_before", lambda *of: "length" if norm else None)
    monkeypatch.setattr(read_sums, "_mlp", lambda *of: tried.append((bool(of[2].needed.all()), of[4])))
    reading: Any = Reads(mlp=None)
    needed = reading.running.mask.clone()
    needed[0] = everywhere
    assert not read_sums.describe_by_sums(reading, Part(0), replace(reading.found, needed=needed))
    sums = [None, "length"] if norm else [None]
    assert tried == [(at, one) for at in ([True] if everywhere else [False, True]) for one in sums]


@pytest.mark.parametrize("norm", [False, True])
def test_shorter_sums_may_lose_little_with_other_rows(norm: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """3% by the root of two parts that follow each other, or what the longest ones lose; but not for want of a norm."""
    monkeypatch.setattr(read_sums, "stays", lambda *of: True)
    monkeypatch.setattr(read_sums, "answers_elsewhere", lambda reading, part: [])
    monkeypatch.setattr(read_sums, "same_elsewhere", lambda reading, part, value, model: value)
    monkeypatch.setattr(read_sums, "same_when_swapped", lambda *of: 1.0)
    monkeypatch.setattr(read_sums, "norm_before", lambda *of: ("norm" if norm else None, None))
    reading: Any = SimpleNamespace(matter=[Part(0, 0), Part(0, 1), Part(0)], of_other_rows=True, running=None)

    def shorter(longest: Any, by: Any = None) -> Any:
        return read_sums.sufficient(reading, Part(0), None, 1.0, by, [], (None, None, longest))  # type: ignore[arg-type]

    assert [shorter(1.0)((None, None, share)) for share in (0.98, 0.978)] == [True, False]
    assert [shorter(0.9, "length")((None, None, share)) for share in (0.9, 0.89)] == [True, False]
    assert (shorter(0.9) is None) == norm


@pytest.mark.parametrize("finer", [False, True])
def test_a_finer_sum_must_do_at_all_positions(finer: bool) -> None:
    """Where the part does not matter, the mean may be put in its place for others."""
    kept = lambda edits: SimpleNamespace(share=edits[Part(0)], least=1.0) if edits else SimpleNamespace(least=1.0)  # noqa: E731
    reading: Any = SimpleNamespace(finer=finer, kept=kept, spread=lambda found, value: 1.0)
    assert read_sums.stays(reading, Part(0), None, 0.9, 1.0) == (not finer)  # type: ignore[arg-type]
