"""Subsets of heads: all of them, or a sample of every size."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np

from interp.errors import InterpError

Group = tuple[int, ...]


def all_subsets(n_heads: int) -> list[Group]:
    """Every non-empty subset of the heads, small ones first."""
    return [group for size in range(1, n_heads + 1) for group in combinations(range(n_heads), size)]


def sample_subsets(n_heads: int, n: int, seed: int) -> list[Group]:
    """n different subsets, as evenly spread over the sizes as their numbers allow, small ones first."""
    total = 2**n_heads - 1
    if not 1 <= n <= total:
        raise InterpError(
            f"a sample of {n} subsets was asked for, but {n_heads} heads have {total:,}; give 1 to {total:,}"
        )
    generator = np.random.default_rng(seed)
    groups: list[Group] = []
    # Sizes with few subsets first: what they cannot fill is left to the others.
    by_number = sorted(range(1, n_heads + 1), key=lambda size: (comb(n_heads, size), size))
    for done, size in enumerate(by_number):
        share = min(comb(n_heads, size), -(-(n - len(groups)) // (n_heads - done)))
        groups += _some_of_size(n_heads, size, share, generator)
    return sorted(groups, key=lambda group: (len(group), group))


def _some_of_size(n_heads: int, size: int, n: int, generator: np.random.Generator) -> list[Group]:
    if 2 * n > comb(n_heads, size):  # drawing until all are different would take long
        everything = list(combinations(range(n_heads), size))
        return [everything[i] for i in generator.permutation(len(everything))[:n]]
    chosen: set[Group] = set()
    while len(chosen) < n:
        chosen.add(tuple(sorted(generator.permutation(n_heads)[:size].tolist())))
    return list(chosen)
