"""A model is explained by the same program if it is permuted, turned, in float64, or has dead parts."""

from dataclasses import replace

import pytest
import torch
from same_model import CHANGES, Changed, changes, form
from shared.random_programs import random_program

import interp
from interp.models.spec import MLP

TRAINED = (
    "algorithmic/max-of-k", "algorithmic/max-of-k-positions", "algorithmic/induction", "algorithmic/brackets",
    "algorithmic/modular-addition", "count01/paper", "histogram/bos-softmax", "histogram/dot-softmax",
    "histogram/lin-softmax", "languages/first-learned", "languages/one-learned-batches", "languages/palindrome-learned",
)  # fmt: skip


def compiled(seed: int) -> interp.TaskModel:
    return interp.compile(random_program(seed), decoys=4, dead=8, rotate=seed, seed=seed)


@torch.no_grad()
def differences(model: interp.TaskModel, only: tuple[str, ...] = tuple(CHANGES)) -> dict[str, object]:
    """What is said otherwise of the model in other forms."""
    said, found = form(interp.explain(model)), {}
    for name, change in changes(model).items():
        if name in only:
            new = change(model)
            equals(model, new)
            other = form(interp.explain(new.model), new.names)
            found |= {f"{name}: {key}": (said.get(key), other.get(key)) for key in said.keys() | other.keys()
                      if said.get(key) != other.get(key)}  # fmt: skip
    return found


def equals(model: interp.TaskModel, new: Changed) -> None:
    tokens = model.task.sample(64).tokens
    assert torch.allclose(model(tokens).double(), new.model(tokens), atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 4, 5, 20, 92, 98, 169])
def test_some_compiled_models(seed: int) -> None:
    assert not differences(compiled(seed))


@pytest.mark.slow
def test_a_trained_model() -> None:
    assert not differences(interp.load("algorithmic/max-of-k"), ("rotated", "dead"))


@pytest.mark.parametrize("positions", ["none", "alibi"])
def test_gates_move_with_their_neurons_and_slopes_stay(positions: str) -> None:
    mlp = MLP(d_mlp=8, gated=True, activation="silu")
    layer = interp.Layer(n_heads=2, d_head=4, mlp=mlp, norm="pre", norm_kind="rms")
    enter = "attention" if positions == "alibi" else "residual"
    spec = interp.ModelSpec(
        task="count01", d_model=8, layers=(layer,), readout_at="=", positions=positions, positions_enter=enter
    )
    model, draw = interp.build(spec), torch.Generator().manual_seed(0)
    for tensor in model.parameters():
        tensor.data.copy_(torch.randn(tensor.shape, generator=draw))
    for change in changes(model).values():
        equals(model, change(model))


def test_a_difference_is_seen() -> None:
    found = interp.explain(compiled(5))
    said = form(found)
    part = next(step.part for step in found.program.steps if step.part.startswith("head"))
    assert form(found, {part: "head 9.9"}) != said
    assert form(replace(found, level="in part")) != said


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(200))
def test_every_compiled_model(seed: int) -> None:
    assert not differences(compiled(seed))


@pytest.mark.soak
@pytest.mark.parametrize("name", TRAINED)
def test_every_trained_model(name: str) -> None:
    assert not differences(interp.load(name))
