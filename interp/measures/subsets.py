"""Groups of heads: checking given groups, listing all, sampling every size."""

from collections.abc import Callable, Iterable
from itertools import combinations
from math import comb
from typing import Any

import numpy as np

from interp.errors import InterpError, as_list

Group = tuple[int, ...]
MAX_SUBSETS = 200_000  # larger tables must be requested explicitly, because 2^n rows are easily requested by accident


def select_groups(groups: str | Iterable[Any], n_heads: int) -> list[Group]:
    """Return groups by name ("singles", "pairs", "singles+pairs", "all") or as given; InterpError if invalid."""
    sizes = {"singles": (1,), "pairs": (2,), "singles+pairs": (1, 2), "all": range(1, n_heads + 1)}
    if not isinstance(groups, str):
        return check_groups(groups, n_heads)
    if groups not in sizes:
        raise InterpError(f"groups = {groups!r} is neither one of {', '.join(sizes)} nor a list of tuples of heads")
    if (total := sum(comb(n_heads, size) for size in sizes[groups])) > MAX_SUBSETS:
        raise InterpError(f"groups = {groups!r} are {total:,} groups of {n_heads} heads; at most {MAX_SUBSETS:,} here")
    return [group for size in sizes[groups] for group in combinations(range(n_heads), size)]


def check_groups(groups: Iterable[Any], n_heads: int) -> list[Group]:
    """Return the groups as tuples of head indices in the given order. Raises InterpError for invalid groups."""
    checked = [_check_group(group, n_heads) for group in as_list(groups, "groups", "[(0,), (0, 3)]")]
    if not checked:
        raise InterpError("no groups of heads were given; give at least one, such as [(0,), (0, 3)]")
    return checked


def _check_group(group: Any, n_heads: int) -> Group:
    if not isinstance(group, Iterable) or isinstance(group, str):
        raise InterpError(f"{group!r} is not a group of heads; give tuples such as (0, 3), or (0,) for a single head")
    named = tuple(group)
    if odd := [head for head in named if isinstance(head, bool) or not isinstance(head, (int, np.integer))]:
        raise InterpError(f"the group {named} names {odd[0]!r}, which is not a head; heads are the integers from 0")
    heads = tuple(int(head) for head in named)
    if not heads:
        raise InterpError("a group of heads is empty; each needs at least one head")
    if len(set(heads)) < len(heads):
        raise InterpError(f"the group {heads} repeats a head; name each head once")
    outside = [head for head in heads if not 0 <= head < n_heads]
    if outside:
        raise InterpError(f"the group {heads} names head {outside[0]}, but the heads are 0 to {n_heads - 1}")
    return heads


def all_subsets(n_heads: int) -> list[Group]:
    """List every non-empty subset of the heads, small ones first."""
    return [group for size in range(1, n_heads + 1) for group in combinations(range(n_heads), size)]


def sample_subsets(n_heads: int, n: int, seed: int) -> list[Group]:
    """Draw n different subsets, spread over the sizes as evenly as possible, small ones first."""
    total = 2**n_heads - 1
    if not 1 <= n <= total:
        raise InterpError(
            f"a sample of {n} subsets was asked for, but {n_heads} heads have {total:,}; give 1 to {total:,}"
        )
    generator = np.random.default_rng(seed)
    groups: list[Group] = []
    # Sizes with few subsets come first. If they have fewer than their share, the other sizes get more.
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


def requested(
    subsets: Iterable[Any] | None,
    sample: int | None,
    seed: int,
    n_heads: int,
    max_subsets: int,
    seconds_each: Callable[[], float],
) -> list[Group]:
    """Return the given groups, a sample, or all. Raises InterpError, with the predicted time, if all are too many."""
    if subsets is not None and sample is not None:
        raise InterpError("give either subsets or sample, not both")
    if subsets is not None:
        return check_groups(subsets, n_heads)
    if sample is not None:
        return sample_subsets(n_heads, sample, seed)
    total = 2**n_heads - 1
    if total > max_subsets:
        raise InterpError(
            f"{n_heads} heads have {total:,} subsets, about {_duration(total * seconds_each())} of work here; "
            f"ask for fewer with sample=1000, or allow them with max_subsets={total}"
        )
    return all_subsets(n_heads)


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.0f} seconds"
