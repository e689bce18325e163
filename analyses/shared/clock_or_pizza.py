"""Clock or pizza: two numbers of a model that adds two tokens modulo p (Zhong et al. 2023, sections 4.1 and 4.2).

A clock multiplies the angles of both tokens: its right logit does not depend on a - b. A pizza adds their vectors, so
that both enter alike, and its right logit does depend on a - b.
"""

from __future__ import annotations

import torch
from torch import Tensor

from interp.models.architecture.task_model import TaskModel

DRAWN = 100
"""Triples (a, b, c) on which gradients are compared, as in the paper."""


def distance_irrelevance(right: Tensor) -> float:
    """The mean standard deviation of right logits at a fixed a - b, over that of all; right: (p, p), by a and b.

    0: right logits depend on a - b alone (pizza); 1: they do not depend on it (clock).
    """
    p = len(right)
    each = torch.arange(p)
    rows = right[(each[:, None] + each) % p, each]  # row d: all pairs with a - b = d
    return float(rows.std(1, correction=0).mean() / right.std(correction=0))


def gradient_symmetry(model: TaskModel, seed: int = 0) -> float:
    """The mean cosine of the gradients of logits with respect to the embeddings of a and of b: 1 for a pizza."""
    draw = torch.Generator().manual_seed(seed)
    batch = model.task.sample(DRAWN, seed=seed)
    wanted = torch.randint(model.task.n_out, (DRAWN,), generator=draw)
    kept: list[Tensor] = []

    def keep(embedded: Tensor, hook: object) -> Tensor:
        kept.append(embedded.detach().requires_grad_())
        return kept[-1]

    with torch.enable_grad():
        out = model.run_with_hooks(batch.tokens, fwd_hooks=[("hook_embed", keep)])
        at = model.answer_positions(batch.tokens)
        every = torch.arange(DRAWN)
        (slope,) = torch.autograd.grad(out[every, at, wanted].sum(), kept)
    return float(torch.cosine_similarity(slope[:, 0], slope[:, 1], dim=-1).mean())


@torch.no_grad()
def clock_or_pizza(model: TaskModel) -> dict[str, float]:
    """Both numbers of a model of task modular-addition."""
    (batch,) = model.task.inputs(model.task.n_inputs)
    logits = model.read(batch.tokens)
    p = model.task.n_out
    right = torch.zeros(p, p)
    right[batch.tokens[:, 0], batch.tokens[:, 1]] = logits.gather(1, model.task.classes(batch).amax(1, keepdim=True))[
        :, 0
    ]
    return {"distance irrelevance": distance_irrelevance(right), "gradient symmetry": gradient_symmetry(model)}
