"""Frames for the common sizes, stored with the package, and one function that finds a frame for any size.

`python -m interp.theory.frame_cache` makes the stored file anew from the table below (a few minutes).
"""

from __future__ import annotations

import math
import sys
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import InterpError
from interp.theory.frame_search import best_kappa, frame_slack, search_frame
from interp.theory.frames import equiangular_frame, mutual_coherence

STORED_AT = Path(__file__).with_name("frames.npz")
STORED: tuple[tuple[Literal["squared", "softmax"], int, int, int, int, int, int], ...] = (
    # criterion, T, L, d, seed, restarts, steps
    ("squared", 32, 10, 8, 0, 8, 3000),
)


@cache
def stored_frames() -> dict[tuple[str, int, int, int], Float[Tensor, "T d"]]:
    """All stored frames by (criterion, T, L, d)."""
    found = {}
    with np.load(STORED_AT, allow_pickle=False) as file:
        for key in file.files:
            criterion, T, L, d = key.split("_")
            found[criterion, int(T[1:]), int(L[1:]), int(d[1:])] = torch.from_numpy(file[key])
    return found


def usable_slack(frame: Float[Tensor, "T d"], criterion: Literal["squared", "softmax"], L: int) -> float:
    """The slack of a frame for its construction, -inf where overlaps alone let foreign neurons fire (|c| >= 1/2)."""
    if criterion == "softmax":
        return best_kappa(frame, L)[1]
    return frame_slack(frame, "squared", L) if mutual_coherence(frame) < 0.5 else -math.inf


def frame_for(
    criterion: Literal["squared", "softmax"], T: int, L: int, d: int | None = None, *, seed: int = 0
) -> Float[Tensor, "T width"]:
    """A frame of T vectors for length L, at most d wide: stored, from algebra, or else by a seeded search of seconds.

    Rows of a larger stored frame serve smaller alphabets. Without d there is no search: the smallest width at hand that
    works. With d the frame of largest slack, even where that is negative and the construction has to refuse it.
    Raises InterpError for T < 2, L < 1 or d < 2.
    """
    if T < 2 or L < 1 or (d is not None and d < 2):
        raise InterpError(f"a frame needs T >= 2, L >= 1 and d >= 2, got T={T}, L={L}, d={d}")
    ready = [(usable_slack(f, criterion, L), f) for f in _at_hand(criterion, T, T if d is None else d)]
    works = [(slack, f) for slack, f in ready if slack > 0]
    if d is None:
        width = min(f.shape[1] for _, f in works)  # the orthonormal basis always works
        return max((pair for pair in works if pair[1].shape[1] == width), key=lambda pair: pair[0])[1]
    if not works:
        found = search_frame(criterion, T, max(L, 2), d, seed=seed, restarts=8, steps=3000, seconds=60).frame
        ready.append((usable_slack(found, criterion, L), found))
    return max(ready, key=lambda pair: pair[0])[1]


def _at_hand(criterion: str, T: int, d: int) -> list[Tensor]:
    """Stored frames with enough rows, equiangular ones of exactly T rows, the orthonormal basis where it fits."""
    stored = [
        f[:T] for (kind, rows, _, width), f in stored_frames().items() if kind == criterion and rows >= T and width <= d
    ]
    algebraic = []
    for width in range(2, min(d, T) + 1):
        try:
            algebraic.append(equiangular_frame(T, width))
        except InterpError:
            continue
    return stored + algebraic


def main() -> None:
    """Search every frame of the table again and write the stored file."""
    arrays = {}
    for criterion, T, L, d, seed, restarts, steps in STORED:
        found = search_frame(
            criterion, T, L, d, seed=seed, restarts=restarts, steps=steps, progress=sys.stderr.isatty()
        )
        print(f"{criterion} T={T} L={L} d={d}: slack {found.slack:.5f}")
        arrays[f"{criterion}_T{T}_L{L}_d{d}"] = found.frame.numpy()
    np.savez_compressed(STORED_AT, allow_pickle=False, **arrays)


if __name__ == "__main__":
    main()
