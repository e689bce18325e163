"""Logits of a stack of models at the positions that are read, against each model's own forward pass."""

from itertools import product

import pytest
import torch

import interp
from interp.families.histogram import Histogram
from interp.families.histogram.constructions.models import histogram_spec
from interp.models.architecture.sequence import sequence_inputs, sequence_logits


@pytest.mark.parametrize(("kind", "direction"), [
    *product(["dot", "dot-softmax", "bos", "bos-softmax"], ["causal", "bidirectional"]),
    ("lin", "bidirectional"), ("lin-softmax", "bidirectional"),
])  # fmt: skip
@pytest.mark.parametrize("read", [[1], [2, 0], [3]])
def test_stacked_models_give_what_each_gives(kind: str, direction: str, read: list[int]) -> None:
    task = Histogram(T=5, L=4, bos=kind.startswith("bos"), zero_class=True)
    spec = histogram_spec(kind, task, 6, 7, "float64", interp.Training()).replace(direction=direction)
    models, rows = [interp.TaskModel(spec, seed=seed) for seed in (0, 1)], task.sample(6, seed=2).tokens
    for parameter in (*models[0].parameters(), *models[1].parameters()):
        parameter.data *= 20  # of order one
    stack = {name: torch.stack([dict(model.named_parameters())[name].detach() for model in models])
             for name, _ in models[0].named_parameters()}  # fmt: skip
    found = sequence_logits(spec, stack, sequence_inputs(spec, task, rows, torch.tensor([read] * 6)))
    torch.testing.assert_close(found, torch.stack([model(rows)[:, read].detach() for model in models]))
