"""Outputs with 50 digits against the plain forward pass in numpy, on random models of every kind."""

import numpy as np
import pytest
import torch
from numpy_forward import forward
from random_models import random_subject

import interp
from interp.certificates.digits import DIGITS, Precise, products
from interp.tasks import make_task


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.thinned(2)
def test_many_digits_agree_with_numpy(seed: int) -> None:
    subject = random_subject(seed).in_format(torch.float64)
    if not isinstance(model := subject.model, interp.TaskModel):
        return
    tokens = subject.task.sample(1).tokens[0, :7].tolist()
    weights = {name: value.detach().numpy() for name, value in model.named_parameters()}
    wanted, _ = forward(model.spec, weights, tokens)
    for place in (2, len(tokens) - 1):
        found = Precise(model).outputs_at(tokens, place).astype(float)
        np.testing.assert_allclose(found, wanted[place], rtol=1e-11, atol=1e-11 * abs(wanted).max())


def test_digits_beyond_float64_are_right() -> None:
    """Sums that cancel in float64 do not cancel here."""
    layer = interp.Layer(d_head=2, value_output="identity")
    spec = interp.ModelSpec(task="count01", d_model=2, layers=(layer,), readout_at="=", dtype="float64")
    model = interp.TaskModel(spec, make_task("count01"), seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embed.W_E += torch.tensor([2.0**57, 0.5])
        model.unembed.W_U[:, 0] = torch.tensor([1.0, 1.0])
        model.unembed.b_U[0] = -(2.0**58)
    assert float(Precise(model).outputs_at([0, 1, 2], 2)[0]) == 1.0  # twice the embedding: 2^58 + 1 - 2^58
    assert float(model(torch.tensor([[0, 1, 2]])).detach()[0, 2, 0]) == 0.0
    assert DIGITS >= 2 * 16
    assert products(model, 8) > 2 * products(model, 3)
