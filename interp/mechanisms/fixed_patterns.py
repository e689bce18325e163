"""Describe a fixed attention pattern: the distances or positions that get most of the attention."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from interp import words
from interp.mechanisms.kinds import neighbor_words

SHOWN = 4
"""Largest number of distances or positions that are named."""
LEAST, ENOUGH = 0.05, 0.5
"""Least attention to a distance or position that is named, and least total attention to all that are named."""


def in_words(pattern: Float[Tensor, "length length"], queries: Sequence[int]) -> str:
    """Describe where these query positions attend: by distance for several queries, by position for one.

    Returns "" if the named distances or positions get less than ENOUGH of the attention.
    """
    if len(queries) > 1:
        return _distances(pattern, queries)
    row = pattern[queries[0]]
    strongest = row.argsort(descending=True, stable=True).tolist()
    alike = sorted(at for at in strongest if row[at] >= 0.9 * row[strongest[0]])
    if len(alike) > SHOWN and float(row[alike].sum()) >= ENOUGH and (steps := _progression(alike)):
        return f"from position {queries[0]}: {float(row[alike].mean()):.2f} on each of positions {steps}"
    named = [at for at in strongest[:SHOWN] if row[at] >= LEAST]
    if float(row[named].sum()) < ENOUGH:
        return ""
    shares = words.joined(f"{float(row[at]):.2f} on position {at}" for at in named)
    return f"from position {queries[0]}: {shares}"


def _distances(pattern: Tensor, queries: Sequence[int]) -> str:
    """Describe the distances that get most of the attention, averaged over positions."""
    by_distance: dict[int, float] = {}
    for query in queries:
        for key, weight in enumerate(pattern[query].tolist()):
            by_distance[key - query] = by_distance.get(key - query, 0.0) + weight / len(queries)
    named = [pair for pair in sorted(by_distance.items(), key=lambda pair: -pair[1])[:SHOWN] if pair[1] >= LEAST]
    if sum(weight for _, weight in named) < ENOUGH:
        return ""
    shares = words.joined(f"{weight:.2f} on {_place(distance)}" for distance, weight in named)
    return f"on average {shares}"


def _place(distance: int) -> str:
    return neighbor_words(distance) if distance else "the current position"


def _progression(places: Sequence[int]) -> str:
    """Abbreviate evenly spaced places: "0, 2, ..., 20"; "" for others."""
    step = places[1] - places[0]
    if list(places) != list(range(places[0], places[-1] + 1, step)):
        return ""
    return f"{places[0]}, {places[1]}, ..., {places[-1]}"
