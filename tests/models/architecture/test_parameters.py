"""Initial values: what each recipe promises, parameter by parameter."""

import math

import pytest
import torch
from torch import Tensor

from interp.errors import InterpError
from interp.models.architecture.parameters import check_parameters, initialize, outputs, parameter_shapes
from interp.models.spec import MLP, Bias, Layer, ModelSpec, TaskRef, Training
from interp.tasks import make_task

TASK = make_task("count01")
BIG = ModelSpec(
    task=TaskRef(name="count01"),
    d_model=60,
    layers=(
        Layer(n_heads=6, d_head=40, norm="pre", bias=Bias(q=True, k=True, v=True, o=True), mlp=MLP(d_mlp=300)),
        Layer(n_heads=6, d_head=40, norm="pre"),
    ),
    positions="learned", max_length=50, readout="relu_mlp", readout_width=200,
)  # fmt: skip


def draw(seed: int = 0, **recipe: object) -> dict[str, Tensor]:
    return initialize(BIG.replace(origin=Training(**recipe)), TASK, seed)


def test_shapes() -> None:
    """Every parameter of a spec that has nearly all of them, counted by hand."""
    shapes = parameter_shapes(BIG, TASK)
    assert {name: tensor.shape for name, tensor in draw().items()} == shapes
    at = "blocks.0."
    assert shapes["embed.W_E"] == (8, 60)
    assert shapes["pos_embed.W_pos"] == (50, 60)
    assert all(shapes[f"{at}attn.W_{name}"] == (6, 60, 40) for name in "QKV")
    assert shapes[at + "attn.W_O"] == (6, 40, 60)
    assert all(shapes[f"{at}attn.b_{name}"] == (6, 40) for name in "QKV")
    assert shapes[at + "attn.b_O"] == (60,)
    assert (shapes[at + "mlp.W_in"], shapes[at + "mlp.W_out"]) == ((60, 300), (300, 60))
    assert (shapes["unembed.W_in"], shapes["unembed.W_out"], shapes["unembed.b_out"]) == ((60, 200), (200, 8), (8,))
    assert len(shapes) == 2 + (8 + 2 + 2 + 4) + (4 + 2) + 4


def test_number_of_outputs() -> None:
    spec = ModelSpec(task=TaskRef(name="count01"), d_model=2, layers=(Layer(d_head=2),))
    assert outputs(spec, TASK) == 8
    assert outputs(spec.replace(n_out=3), TASK) == 3
    assert outputs(spec.replace(readout="scalar", decision="sigmoid"), TASK) == 1


def test_normal_recipe() -> None:
    """Every matrix N(0, std), biases zero, layer norms the identity."""
    for name, value in draw(init="normal", init_std=0.05).items():
        kind = name.rsplit(".", 1)[-1]
        if kind == "w":
            assert (value == 1).all()
        elif kind.startswith("b"):
            assert (value == 0).all()
        else:
            error = 5 * 0.05 / math.sqrt(value.numel())
            assert abs(float(value.mean())) < error, name
            assert abs(float(value.std()) - 0.05) < error, name
            assert float(value.abs().max()) > 2 * 0.05  # normal, not uniform: beyond sqrt(3) standard deviations


def test_torch_recipe() -> None:
    """torch.nn: embeddings N(0, 1); a linear map and its bias uniform in +-1/sqrt(fan-in)."""
    at = "blocks.0."
    fan_in = {f"{at}attn.{kind}_{name}": 60 for kind in "Wb" for name in "QKV"}
    fan_in |= {at + "attn.W_O": 240, at + "attn.b_O": 240}  # one map from all heads
    fan_in |= {at + "mlp.W_in": 60, at + "mlp.b_in": 60, at + "mlp.W_out": 300, at + "mlp.b_out": 300}
    fan_in |= {"unembed.W_in": 60, "unembed.b_in": 60, "unembed.W_out": 200, "unembed.b_out": 200}
    values = draw(init="torch")
    for name in ("embed.W_E", "pos_embed.W_pos"):
        assert abs(float(values[name].std()) - 1) < 0.1
        assert float(values[name].abs().max()) > 2
    for name, inputs in fan_in.items():
        bound = 1 / math.sqrt(inputs)
        largest = float(values[name].abs().max())
        assert bound * (1 - 20 / values[name].numel()) < largest <= bound, name
        assert abs(float(values[name].mean())) < 5 * bound / math.sqrt(3 * values[name].numel()), name
    # The same by torch itself, for one of them.
    linear = torch.nn.Linear(60, 300)
    assert abs(float(linear.weight.detach().abs().max()) / float(values[at + "mlp.W_in"].abs().max()) - 1) < 0.01
    assert all((values[name] == 1).all() for name in values if name.endswith(".w"))


def test_xavier_recipe() -> None:
    """torch.nn.init.xavier_uniform_ of the one matrix that each parameter is part of; biases zero."""
    at = "blocks.0."
    whole = {f"{at}attn.W_{name}": (60, 240) for name in "QKV"}  # all heads side by side
    whole |= {at + "attn.W_O": (240, 60), at + "mlp.W_in": (60, 300), at + "mlp.W_out": (300, 60)}
    whole |= {"embed.W_E": (TASK.d_vocab, 60), "unembed.W_in": (60, 200), "pos_embed.W_pos": (50, 60)}
    values = draw(init="xavier")
    for name, (rows, columns) in whole.items():
        assert values[name].numel() == rows * columns
        theirs = torch.nn.init.xavier_uniform_(torch.empty(rows, columns))
        bound, largest = math.sqrt(6 / (rows + columns)), float(values[name].abs().max())
        assert bound * (1 - 20 / values[name].numel()) < largest <= bound, name
        assert abs(float(values[name].std() / theirs.std()) - 1) < 0.1, name
    assert all((value == 0).all() for name, value in values.items() if name.rsplit(".", 1)[-1].startswith("b"))
    assert all((value == 1).all() for name, value in values.items() if name.endswith(".w"))


@pytest.mark.parametrize("init", ["normal", "torch", "xavier"])
def test_embeddings_may_have_a_scale_of_their_own(init: str) -> None:
    values = draw(init=init, embedding_std=0.25)
    embedding = values["embed.W_E"]
    assert abs(float(embedding.std()) / 0.25 - 1) < 0.2
    assert float(embedding.abs().max()) > 2 * 0.25  # normal in every recipe
    plain = draw(init=init)
    assert values.keys() == plain.keys()
    assert not plain["embed.W_E"].equal(embedding)


@pytest.mark.parametrize("init", ["normal", "torch", "xavier"])
def test_seeds(init: str) -> None:
    one, again, other = draw(3, init=init), draw(3, init=init), draw(4, init=init)
    for name, value in one.items():
        assert value.equal(again[name])
        if name.rsplit(".", 1)[-1].startswith("W"):
            assert not value.equal(other[name])
    matrices = [value.flatten()[:100] for name, value in one.items() if "W_" in name]
    assert len({tuple(row.tolist()) for row in matrices}) == len(matrices)  # no parameter repeats another's numbers


def test_dtypes() -> None:
    single = initialize(BIG, TASK, 0)
    double = initialize(BIG.replace(dtype="float64"), TASK, 0)
    for name, value in single.items():
        assert value.dtype == torch.float32
        assert double[name].dtype == torch.float64
        assert value.double().equal(double[name])
    assert initialize(BIG, TASK, 0, torch.bfloat16)["embed.W_E"].dtype == torch.bfloat16
    torch.set_default_dtype(torch.float64)  # in which a generator draws other numbers
    try:
        assert all(value.equal(single[name]) for name, value in initialize(BIG, TASK, 0).items())
    finally:
        torch.set_default_dtype(torch.float32)


def test_initialization_moves_no_global_generator() -> None:
    before = torch.get_rng_state()
    draw()
    assert torch.get_rng_state().equal(before)


def test_check_parameters() -> None:
    values = draw()
    check_parameters(BIG, TASK, values)
    with pytest.raises(InterpError, match=r"missing embed\.W_E, unembed\.b_in"):
        check_parameters(BIG, TASK, {k: v for k, v in values.items() if k not in ("embed.W_E", "unembed.b_in")})
    with pytest.raises(InterpError, match=r"shape \(8, 59\)"):
        check_parameters(BIG, TASK, values | {"embed.W_E": torch.zeros(8, 59)})
