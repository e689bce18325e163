"""The forward pass on contexts against numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from closeness import close
from context_specs import SPECS, TASK
from numpy_forward import forward

from interp.architecture.parameters import initialize
from interp.families.memorization.forward import context_logits


@pytest.mark.parametrize("name", SPECS)
def test_the_stacked_forward_is_the_numpy_forward(name: str) -> None:
    spec = SPECS[name]
    drawn = [initialize(spec, TASK, seed) for seed in (0, 1)]
    stacked = {key: torch.stack([one[key] for one in drawn]) for key in drawn[0]}
    contexts = torch.tensor(TASK.contexts)
    expected = np.array(
        [
            [forward(spec, {k: v.numpy() for k, v in one.items()}, list(c))[0][-1] for c in TASK.contexts]
            for one in drawn
        ]
    )
    close(context_logits(spec, stacked, contexts[None]), expected, atol=1e-12)
    own = torch.stack([contexts, contexts.flip(0)])  # each model its own contexts
    close(context_logits(spec, stacked, own)[1], expected[1, ::-1], atol=1e-12)
