"""Comparing a conversion with its original: in float64 where possible, otherwise against the rounding of float32."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy_forward import forward
from torch import Tensor, nn

import interp
from interp.models.architecture.comparison import cast, compare, runs
from interp.models.lens import HookedTransformer, config, quiet_construction
from interp.models.spec import MLP, Layer, ModelSpec
from interp.tasks import make_task

TOKENS = torch.tensor([[0, 1, 2, 3], [3, 3, 1, 0]])


class Shifted(nn.Module):
    """A table of logits behind a norm that removes a mean of 3000: float32 loses four digits in it."""

    def __init__(self, change: float = 0.0) -> None:
        super().__init__()
        table = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
        self.table = nn.Parameter(3000 + table.double().float())
        self.change = change

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table[tokens]
        x = x - x.sum(-1, keepdim=True) / 6
        return x / x.pow(2).mean(-1, keepdim=True).sqrt() * (1 + self.change)


class Pinned(Shifted):
    """The same in float32, whatever it is asked for, as functions and many modules are."""

    def forward(self, tokens: Tensor) -> Tensor:
        self.float()
        return super().forward(tokens).flip(-1).flip(-1)


def ours(dtype: torch.dtype) -> Tensor:
    """The same numbers, added up in another order."""
    x = Shifted().table.to(dtype)[TOKENS].detach()
    x = x - (x.flip(-1).cumsum(-1)[..., -1:] / 6)
    return x / (x.pow(2).sum(-1, keepdim=True) / 6).sqrt()


@pytest.mark.parametrize("kind", [Shifted, Pinned])
def test_rounding_is_told_from_a_wrong_conversion(kind: type[Shifted]) -> None:
    right, wrong = compare(ours, runs(kind(), TOKENS)), compare(ours, runs(kind(0.05), TOKENS))
    assert right.rounding > 1e-5  # more than a limit on float32 numbers would allow
    assert right.same
    assert right.precision == ("float64" if kind is Shifted else "float32")
    assert (right.difference < 1e-12) == (kind is Shifted)
    assert not wrong.same
    assert wrong.difference == pytest.approx(0.05 / 1.05, rel=0.05)
    assert "float32 alone changes them by" in str(wrong)


def test_nan_is_a_difference() -> None:
    assert not compare(ours, lambda dtype: ours(dtype) * torch.nan).same


def test_overflow_in_float32_allows_no_difference_in_float64() -> None:
    def moved(by: float) -> Any:
        return lambda dtype: (
            torch.tensor([torch.inf, 1.0 + by]) if dtype == torch.float64 else torch.full((2,), torch.inf)
        )

    assert compare(moved(0.0), moved(1e-7)).same
    assert not compare(moved(0.0), moved(0.1)).same
    assert not compare(moved(0.0), lambda dtype: torch.ones(2)).same


def normed(**changes: Any) -> ModelSpec:
    layer = Layer(n_heads=2, d_head=4, mlp=MLP(d_mlp=12, activation="relu"), norm="pre", **changes)
    return ModelSpec(task=make_task("count01").ref, d_model=8, layers=(layer,), final_norm="layer_norm", readout_at="=")


@pytest.mark.parametrize("how", ["to", "double", "cast"])
def test_float64_is_float64_in_every_part(how: str) -> None:
    model = interp.build(normed(), seed=3)
    tokens = model.task.sample(3, seed=0).tokens
    made: Any = (
        cast(model, torch.float64) if how == "cast" else model.double() if how == "double" else model.to(torch.float64)
    )
    weights = {name: tensor.detach().numpy() for name, tensor in made.named_parameters()}
    wanted = [forward(made.spec, weights, row.tolist())[0] for row in tokens]
    np.testing.assert_allclose(made(tokens).detach().numpy(), np.stack(wanted), rtol=0, atol=1e-12)


def stock(**fields: Any) -> HookedTransformer:
    sizes = {"n_layers": 1, "d_model": 8, "d_head": 4, "n_heads": 2, "n_ctx": 6, "d_vocab": 4, "attn_only": True}
    with quiet_construction():
        model = HookedTransformer(config(**(sizes | fields)))
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator)
    return model


def test_a_copy_in_float64_has_exact_angles_and_leaves_its_model() -> None:
    fields = {"positional_embedding_type": "rotary", "rotary_dim": 4, "normalization_type": "RMS"}
    model, exact = stock(**fields), stock(**fields, dtype=torch.float64)
    exact.load_state_dict({n: t for n, t in model.state_dict().items() if "rotary" not in n}, strict=False)
    made = cast(model, torch.float64)
    torch.testing.assert_close(made(TOKENS), exact.to(torch.float64)(TOKENS), rtol=0, atol=1e-13)
    assert model.cfg.dtype == next(model.parameters()).dtype == torch.float32
