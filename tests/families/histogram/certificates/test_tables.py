"""Which models a histogram's tables speak of."""

from __future__ import annotations

import interp
from interp.architecture.task_model import TaskModel
from interp.families.histogram.certificates.tables import refusal


def test_a_model_that_answers_at_one_position_is_refused() -> None:
    exact = interp.build("histogram/dot-exact", T=4, L=3)
    assert refusal(exact) is None
    last = TaskModel(exact.spec.replace(readout_at="last", origin=None), tensors=dict(exact.named_parameters()))
    assert refusal(last) == "the method needs a ReLU readout at all positions, not 'relu_mlp' at 'last'"
