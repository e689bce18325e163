"""Frames by search: which overlaps a construction tolerates, seeded annealed descent, and frames that it found.

Three criteria, each a signed slack of a (T, d) frame of unit rows at length L, with c the overlaps of different rows.
The slack is positive if the construction works:

- one-sided:  1 - (L-1) max c + (L-2) min c. lin and lin-softmax p=T, dot and bos p=1 (erratum 14).
- squared:    1 - (L-1) max c^2 + (L-2) min c^2. dot and bos p=T (erratum 16).
- softmax:    min over k of [min_c phi_k - max_c phi_(k+1)], phi_k(c) = (L-k) g l / (k + (L-k) l), g = 1 - c,
              l = e^(-kappa g). dot-softmax p=T (erratum 26); the search also finds kappa.

Each compares neighboring counts k, k+1 of the own token, with one other token in every other slot. That case is extreme
(`interp.families.histogram.theory.ranges`), so the criteria are exact. For one-sided and squared, k = 1 decides.

Frames for the common sizes are stored with the package. `python -m interp.families.histogram.theory.frame_search`
rebuilds the stored file from the table below (a few minutes).
"""

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import InterpError, check_one_of
from interp.families.histogram.theory.frames import off_diagonal, simplex, simplex_sum

Criterion = Literal["one-sided", "squared", "softmax"]


@dataclass(frozen=True)
class FoundFrame:
    """The best frame of a search: unit rows, its slack (positive: works), kappa."""

    frame: Float[Tensor, "T d"]
    slack: float
    kappa: float | None


def frame_slack(frame: Float[Tensor, "T d"], criterion: Criterion, L: int, kappa: float | None = None) -> float:
    """The exact slack of a frame. `softmax` needs kappa. Raises InterpError on an unknown criterion, missing kappa."""
    check_one_of("frame criterion", criterion, get_args(Criterion))
    c = off_diagonal(frame)
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
        step = (high - low) / 64
        grid = [low + i * step for i in range(65)]
        best = max(((kappa, frame_slack(frame, "softmax", L, kappa)) for kappa in grid), key=lambda pair: pair[1])
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
            for frame, kappa in zip(unit.detach(), log_kappa.detach().exp().tolist(), strict=True):
                slack = frame_slack(frame, criterion, L, kappa)
                if slack > best.slack:
                    best = FoundFrame(frame.clone(), slack, kappa if criterion == "softmax" else None)
    return best


STORED_AT = Path(__file__).with_name("frames.npz")
STORED: tuple[tuple[Criterion, int, int, int, int, int, int], ...] = (
    # criterion, T, L, d, seed, restarts, steps
    ("one-sided", 16, 6, 13, 0, 8, 4000),
    ("one-sided", 32, 10, 29, 0, 4, 3000),
    ("one-sided", 64, 10, 53, 0, 4, 3000),
    ("one-sided", 64, 15, 59, 0, 4, 3000),
    ("squared", 16, 6, 5, 0, 8, 3000),
    ("squared", 32, 10, 8, 0, 8, 3000),
    ("squared", 64, 10, 11, 2, 32, 10000),
    ("squared", 64, 10, 12, 0, 4, 3000),
    ("squared", 64, 15, 15, 0, 4, 3000),
    ("softmax", 32, 10, 6, 0, 24, 4000),
    ("softmax", 32, 10, 7, 0, 12, 4000),
    ("softmax", 32, 10, 8, 0, 4, 3000),
    ("softmax", 32, 10, 12, 0, 4, 3000),
    ("softmax", 32, 15, 10, 0, 4, 4000),
    ("softmax", 32, 15, 12, 0, 4, 4000),
    ("softmax", 64, 10, 9, 0, 4, 4000),
    ("softmax", 64, 10, 12, 0, 4, 3000),
    ("softmax", 64, 15, 14, 0, 4, 4000),
)


@cache
def stored_frames() -> dict[tuple[str, int, int, int], Float[Tensor, "T d"]]:
    """Load all stored frames, keyed by (criterion, T, L, d)."""
    frames = {}
    with np.load(STORED_AT, allow_pickle=False) as file:
        for key in file.files:
            criterion, T, L, d = key.split("_")
            frames[criterion, int(T[1:]), int(L[1:]), int(d[1:])] = torch.from_numpy(file[key])
    return frames


def best_slack(frame: Float[Tensor, "T d"], criterion: Criterion, L: int) -> float:
    """The slack of a frame, for the softmax criterion at its best kappa."""
    return best_kappa(frame, L)[1] if criterion == "softmax" else frame_slack(frame, criterion, L)


def frame_for(criterion: Criterion, T: int, L: int, d: int | None = None, *, seed: int = 0) -> Float[Tensor, "T width"]:
    """Return a frame of T vectors for length L, at most d wide: stored, algebraic, or from a seeded search of seconds.

    Smaller alphabets use the first rows of a larger stored frame. Without d nothing is searched: the result has the
    smallest available width that works. With d it is the frame of largest slack, even if that slack is negative, in
    which case the construction must refuse it.
    Raises InterpError for T < 2, L < 1 or d < 2.
    """
    ready = [(best_slack(f, criterion, L), f) for f in frames_at_hand(criterion, T, T if d is None else d)]
    works = [(slack, f) for slack, f in ready if slack > 0]
    if d is None:
        width = min(f.shape[1] for _, f in works)  # the orthonormal basis always works
        return max((pair for pair in works if pair[1].shape[1] == width), key=lambda pair: pair[0])[1]
    if not works:
        frame = search_frame(criterion, T, max(L, 2), d, seed=seed, restarts=8, steps=3000).frame
        ready.append((best_slack(frame, criterion, L), frame))
    return max(ready, key=lambda pair: pair[0])[1]


def frames_at_hand(criterion: str, T: int, d: int) -> list[Tensor]:
    """List stored frames with enough rows, and the orthonormal basis and the simplex if they fit."""
    stored = [
        f[:T] for (kind, rows, _, width), f in stored_frames().items() if kind == criterion and rows >= T and width <= d
    ]
    algebraic = [torch.eye(T, dtype=torch.float64)] * (d >= T) + [simplex(T)] * (1 < T - 1 <= d)
    if criterion == "one-sided":
        algebraic += [simplex_sum(T, T - width) for width in range(max(2, (T + 1) // 2), min(d, T) + 1)]
    return stored + algebraic


def main() -> None:
    """Repeat the search for every frame of the table and write the stored file."""
    arrays = {}
    for criterion, T, L, d, seed, restarts, steps in STORED:
        best = search_frame(criterion, T, L, d, seed=seed, restarts=restarts, steps=steps)
        print(f"{criterion} T={T} L={L} d={d}: slack {best.slack:.5f}")
        arrays[f"{criterion}_T{T}_L{L}_d{d}"] = best.frame.numpy()
    np.savez_compressed(STORED_AT, allow_pickle=False, **arrays)


if __name__ == "__main__":
    main()
