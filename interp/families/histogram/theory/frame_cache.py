"""Frames for the common sizes, stored with the package, and one function that finds a frame for any size.

`python -m interp.families.histogram.theory.frame_cache` rebuilds the stored file from the table below (a few minutes).
"""

from functools import cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import InterpError
from interp.families.histogram.theory.frame_search import Criterion, best_kappa, frame_slack, search_frame
from interp.families.histogram.theory.frames import equiangular_frame, simplex_sum

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
    found = {}
    with np.load(STORED_AT, allow_pickle=False) as file:
        for key in file.files:
            criterion, T, L, d = key.split("_")
            found[criterion, int(T[1:]), int(L[1:]), int(d[1:])] = torch.from_numpy(file[key])
    return found


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
    if T < 2 or L < 1 or (d is not None and d < 2):
        raise InterpError(f"a frame needs T >= 2, L >= 1 and d >= 2, got T={T}, L={L}, d={d}")
    ready = [(best_slack(f, criterion, L), f) for f in frames_at_hand(criterion, T, T if d is None else d)]
    works = [(slack, f) for slack, f in ready if slack > 0]
    if d is None:
        width = min(f.shape[1] for _, f in works)  # the orthonormal basis always works
        return max((pair for pair in works if pair[1].shape[1] == width), key=lambda pair: pair[0])[1]
    if not works:
        found = search_frame(criterion, T, max(L, 2), d, seed=seed, restarts=8, steps=3000).frame
        ready.append((best_slack(found, criterion, L), found))
    return max(ready, key=lambda pair: pair[0])[1]


def frames_at_hand(criterion: str, T: int, d: int) -> list[Tensor]:
    """List stored frames with enough rows, equiangular ones of exactly T rows, and the orthonormal basis if it fits."""
    stored = [
        f[:T] for (kind, rows, _, width), f in stored_frames().items() if kind == criterion and rows >= T and width <= d
    ]
    algebraic = []
    for width in range(2, min(d, T) + 1):
        try:
            algebraic.append(equiangular_frame(T, width))
        except InterpError:
            continue
    if criterion == "one-sided":
        algebraic += [simplex_sum(T, T - width) for width in range(max(2, (T + 1) // 2), min(d, T) + 1)]
    return stored + algebraic


def main() -> None:
    """Repeat the search for every frame of the table and write the stored file."""
    arrays = {}
    for criterion, T, L, d, seed, restarts, steps in STORED:
        found = search_frame(criterion, T, L, d, seed=seed, restarts=restarts, steps=steps)
        print(f"{criterion} T={T} L={L} d={d}: slack {found.slack:.5f}")
        arrays[f"{criterion}_T{T}_L{L}_d{d}"] = found.frame.numpy()
    np.savez_compressed(STORED_AT, allow_pickle=False, **arrays)


if __name__ == "__main__":
    main()
