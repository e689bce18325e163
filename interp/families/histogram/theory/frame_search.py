"""Frames by search: which overlaps a construction tolerates, and seeded annealed descent towards such frames.

Four criteria, each a signed slack of a (T, d) frame of unit rows at length L, with c the overlaps of different rows.
The slack is positive if the construction works:

- coherence:  minus the largest |c| (no construction uses it; for comparison with the Welch bound).
- one-sided:  1 - (L-1) max c + (L-2) min c. lin and lin-softmax p=T, dot and bos p=1 (erratum 14).
- squared:    1 - (L-1) max c^2 + (L-2) min c^2. dot and bos p=T (erratum 16).
- softmax:    min over k of [min_c phi_k - max_c phi_(k+1)], phi_k(c) = (L-k) g l / (k + (L-k) l), g = 1 - c,
              l = e^(-kappa g). dot-softmax p=T (erratum 26); the search also finds kappa.

Each compares neighboring counts k, k+1 of the own token, with one other token in every other slot. That case is extreme
(`interp.families.histogram.theory.ranges`), so the criteria are exact. For one-sided and squared, k = 1 decides.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import InterpError, one_of
from interp.families.histogram.theory.frames import off_diagonal

Criterion = Literal["coherence", "one-sided", "squared", "softmax"]


@dataclass(frozen=True)
class FoundFrame:
    """The best frame of a search: unit rows, its slack (positive: works; for coherence minus the coherence), kappa."""

    frame: Float[Tensor, "T d"]
    slack: float
    kappa: float | None


def frame_slack(frame: Float[Tensor, "T d"], criterion: Criterion, L: int, kappa: float | None = None) -> float:
    """The exact slack of a frame. `softmax` needs kappa. Raises InterpError on an unknown criterion, missing kappa."""
    if criterion not in get_args(Criterion):
        raise InterpError(one_of("frame criterion", criterion, get_args(Criterion)))
    c = off_diagonal(frame)
    if criterion == "coherence":
        return -float(c.abs().max())
    if L < 2:
        return 1.0
    if criterion == "softmax":
        if kappa is None:
            raise InterpError("the softmax criterion needs kappa")
        phi = _phi(c[None], torch.tensor([kappa], dtype=c.dtype), L)[0]
        return float((phi[:-1].amin(1) - phi[1:].amax(1)).min())
    if criterion == "squared":
        c = c**2
    return float(1 - (L - 1) * c.max() + (L - 2) * c.min())


def best_kappa(frame: Float[Tensor, "T d"], L: int) -> tuple[float, float]:
    """Return the best inverse temperature of the softmax criterion and its slack, on a grid refined three times."""
    low, high = 0.2, 8.0
    best = (low, -math.inf)
    for _ in range(3):
        grid = torch.linspace(low, high, 65, dtype=torch.float64).tolist()
        best = max(((kappa, frame_slack(frame, "softmax", L, kappa)) for kappa in grid), key=lambda pair: pair[1])
        step = (high - low) / 64
        low, high = max(1e-3, best[0] - step), best[0] + step
    return best


def _phi(c: Float[Tensor, "R pairs"], kappa: Float[Tensor, " R"], L: int) -> Float[Tensor, "R L pairs"]:
    """Return the reduction of the own neuron's activation by the other tokens, for k = 1..L (last: zero)."""
    gap = (1 - c)[:, None]
    others = L - torch.arange(1, L + 1, dtype=c.dtype)[None, :, None]
    weight = torch.exp(-kappa[:, None, None] * gap)
    return others * gap * weight / (L - others + others * weight)


def _smooth_slack(c: Tensor, criterion: Criterion, L: int, kappa: Tensor, sharpness: float) -> Float[Tensor, " R"]:
    """Return the slack with max and min replaced by log-sum-exp at the given sharpness: a lower bound on the slack."""

    def high(x: Tensor) -> Tensor:
        return torch.logsumexp(sharpness * x, -1) / sharpness

    if criterion == "coherence":
        return -high(torch.cat([c, -c], -1))
    if criterion == "softmax":
        phi = _phi(c, kappa, L)
        return -high(high(phi[:, 1:]) + high(-phi[:, :-1]))
    if criterion == "squared":
        c = c**2
    return 1 - (L - 1) * high(c) - (L - 2) * high(-c)


def search_frame(
    criterion: Criterion, T: int, L: int, d: int, *, seed: int = 0, restarts: int = 12, steps: int = 3000
) -> FoundFrame:
    """Search for T unit vectors in d dimensions with the largest slack, and return the best seen; it may be negative.

    Adam improves `restarts` random frames together on a smoothed slack, which it sharpens as it goes.

    Deterministic in `seed`. Raises InterpError for sizes below T = 2, L = 2, d = 2 or an unknown criterion.
    """
    if criterion not in get_args(Criterion):
        raise InterpError(one_of("frame criterion", criterion, get_args(Criterion)))
    if T < 2 or L < 2 or d < 2 or restarts < 1 or steps < 1:
        raise InterpError(f"a frame search needs T, L, d >= 2 and at least one restart and step, got T={T}, L={L}, "
                          f"d={d}, restarts={restarts}, steps={steps}")  # fmt: skip
    generator = torch.Generator().manual_seed(seed)
    raw = torch.randn(restarts, T, d, dtype=torch.float64, generator=generator).requires_grad_()
    log_kappa = torch.full((restarts,), 0.35, dtype=torch.float64).requires_grad_()
    optimizer = torch.optim.Adam([raw, log_kappa], betas=(0.9, 0.99))
    row, column = torch.triu_indices(T, T, 1)
    best = FoundFrame(raw[0].detach(), -math.inf, None)
    for step in range(steps):
        done = step / steps
        optimizer.param_groups[0]["lr"] = 0.05 * (1 - done) ** 2 + 1e-5
        sharpness = 20.0 * 500.0**done
        optimizer.zero_grad()
        unit = raw / raw.norm(dim=-1, keepdim=True)
        c = (unit @ unit.mT)[:, row, column]
        loss = -_smooth_slack(c, criterion, L, log_kappa.exp(), sharpness).sum()
        loss.backward()
        optimizer.step()
        if step == steps - 1 or (done > 0.5 and step % 50 == 0):
            best = _best_of(unit.detach(), log_kappa.detach().exp(), criterion, L, best)
    return best


def _best_of(unit: Tensor, kappa: Tensor, criterion: Criterion, L: int, best: FoundFrame) -> FoundFrame:
    for frame, one_kappa in zip(unit, kappa.tolist(), strict=True):
        slack = frame_slack(frame, criterion, L, one_kappa)
        if slack > best.slack:
            best = FoundFrame(frame.clone(), slack, one_kappa if criterion == "softmax" else None)
    return best
