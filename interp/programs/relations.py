"""The shortest relation that says which pairs of values a head selects, with a list of exceptions.

Relations are about the places of two values in the order of a variable's values: equal, another, smaller, a fixed
distance, a fixed sum, or any. An exception is a key that is always selected, or never, or a single pair. Pairs that
never occur are no exceptions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool
from torch import Tensor

from interp.support import words

COMPARED = {
    "equal": "equals", "different": "differs from", "smaller": "comes before", "greater": "comes after",
    "at most": "equals or comes before", "at least": "equals or comes after",
}  # fmt: skip
"""The place of one value against that of another, in the order of the vocabulary, say."""
NUMBERS = {
    "smaller": "is smaller than",
    "greater": "is greater than",
    "at most": "is at most",
    "at least": "is at least",
}
"""The same of values that are numbers."""
EDGES = {
    "clamped": " (where there is none, to the {end} position)",
    "around": " (in a circle: the first position follows the last)",
    "evenly": " (where there is none, evenly to all positions)",
}
"""Where a head attends whose place at a distance is not there."""
EXCEPTIONS = 2
"""Most single pairs that are exceptions of a short relation."""


@dataclass(frozen=True)
class Relation:
    """Which keys each query selects.

    kind: "any", "equal", "different", "smaller", "greater", "at most", "at least" (the key's place against the
    query's), "shift" (the key's place is the query's plus `by`) or "sum" (both add up to `by`). always, never: keys
    that are selected whatever the query is, or by none. pairs: single exceptions (query, key). edge: what queries
    select whose place at a distance is not there: the nearest one ("clamped"), the one counted on from the other end
    ("around"), all ("evenly"), or none ("").
    """

    kind: str
    by: int = 0
    edge: str = ""
    always: tuple[int, ...] = ()
    never: tuple[int, ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()

    @property
    def constants(self) -> int:
        """The relation, and its exceptions; that the nearest place stands for one that is not there costs none."""
        edge = int(self.edge in ("around", "evenly"))
        return 1 + edge + len(self.always) + len(self.never) + len(self.pairs)

    def holds(self, n_queries: int, n_keys: int) -> Bool[Tensor, "queries keys"]:
        """Which pairs are selected."""
        selected = base(self.kind, self.by, n_queries, n_keys)
        if self.edge:
            out = ~inside(self, n_queries, n_keys)[:, 0]
            place = (torch.arange(n_queries) + self.by)[out]
            near = place.clamp(0, n_keys - 1) if self.edge == "clamped" else place % n_keys
            selected[out] = True if self.edge == "evenly" else torch.eye(n_keys).bool()[near]
        selected[:, list(self.always)] = True
        selected[:, list(self.never)] = False
        for query, key in self.pairs:
            selected[query, key] = ~selected[query, key]
        return selected


def base(kind: str, by: int, n_queries: int, n_keys: int) -> Bool[Tensor, "queries keys"]:
    """Which pairs a relation without exceptions selects."""
    query, key = torch.arange(n_queries)[:, None], torch.arange(n_keys)[None]
    relations = {
        "any": (key >= 0) & (query >= 0), "equal": key == query, "different": key != query, "smaller": key < query,
        "greater": key > query, "at most": key <= query, "at least": key >= query, "shift": key - query == by,
        "sum": key + query == by,
    }  # fmt: skip
    return relations[kind]


def relation_of(
    chosen: Bool[Tensor, "queries keys"], occurs: Bool[Tensor, "queries keys"], places: bool = False
) -> Relation:
    """The relation with the fewest exceptions among pairs that occur; of two, the simpler one.

    chosen: the pairs that a head selects. occurs: those that are there. places: both are positions, of which distances
    and sums are told, too. Variables with other values than each other have no relation but "any".
    """
    asked = occurs & chosen.any(1, keepdim=True)  # a query that selects nothing says nothing
    free = asked & (asked.sum(1, keepdim=True) > 1)  # nor does one that sees one key, of a place that is not there
    there = ((plain, asked.where(inside(plain, *chosen.shape), free)) for plain in _plain(asked, places))
    tried = (_with_exceptions(plain, chosen, pairs) for plain, pairs in there)
    return min(tried, key=lambda relation: (relation.constants, len(relation.pairs)))


def inside(one: Relation, n_queries: int, n_keys: int) -> Bool[Tensor, "queries 1"]:
    """The queries of which a relation says something: at a distance, those for which this place is there."""
    place = torch.arange(n_queries)[:, None] + one.by
    return (place >= 0) & (place < n_keys) if one.kind == "shift" else torch.ones_like(place).bool()


def _plain(occurs: Bool[Tensor, "queries keys"], places: bool) -> Iterator[Relation]:
    n_queries, n = occurs.shape
    yield Relation("any")
    if n_queries != n:
        return
    yield from map(Relation, ("equal", "different", "smaller", "greater", "at most", "at least"))
    if places:
        for by in sorted((by for by in range(1 - n, n) if by), key=lambda by: (abs(by), by)):
            there = base("shift", by, n, n) & occurs
            if 2 * int(there.sum()) > int(occurs.any(1).sum()):
                yield from (Relation("shift", by, edge) for edge in ("", *EDGES))
        yield from (Relation("sum", by) for by in range(1, 2 * n - 2))


def _with_exceptions(relation: Relation, chosen: Tensor, occurs: Tensor) -> Relation:
    """A relation with keys that differ as a whole, where this is shorter than their pairs, and the pairs left."""
    selected = relation.holds(*chosen.shape)
    wrong, n = ((selected != chosen) & occurs).sum(0), occurs.sum(0)
    taken = (chosen & occurs).sum(0)
    always = tuple(k for k in range(len(n)) if wrong[k] > 1 + n[k] - taken[k])
    never = tuple(k for k in range(len(n)) if wrong[k] > 1 + taken[k] and k not in always)
    with_keys = replace(relation, always=always, never=never)
    left = ((with_keys.holds(*chosen.shape) != chosen) & occurs).nonzero().tolist()
    return replace(with_keys, pairs=tuple((query, key) for query, key in left))


def short(chosen: Bool[Tensor, "queries keys"], occurs: Bool[Tensor, "queries keys"], places: bool) -> Relation | None:
    """The relation, if it has at most half as many constants as pairs are selected, and few single exceptions."""
    relation, n = relation_of(chosen, occurs, places), int((chosen & occurs).sum())
    return relation if 2 * relation.constants <= max(2, n) and len(relation.pairs) <= EXCEPTIONS else None


def completed(
    chosen: Bool[Tensor, "queries keys"], occurs: Bool[Tensor, "queries keys"], places: bool
) -> Bool[Tensor, "queries keys"]:
    """The selected pairs, with pairs that never occur as the shortest relation has them.

    A query that selects nothing stays so.
    """
    relation = short(chosen, occurs, places)
    if relation is None:
        return chosen
    return torch.where(chosen.any(1, keepdim=True) & ~occurs, relation.holds(*chosen.shape), chosen)


def in_words(
    one: Relation, other: str, own: str, keys: Sequence[str], queries: Sequence[str], places: tuple[bool, bool]
) -> str:
    """Where a head attends by a relation: "to the position before", "to positions where the token equals its own ...".

    other, own: what is compared, of a key and of a query. keys, queries: their values. places: whether the keys, and
    the queries, are positions.
    """
    of_keys, of_queries = places
    placed = {
        "any": "evenly to all positions", "equal": "to its own position",
        "different": "evenly to all positions but its own", "smaller": "evenly to all earlier positions",
        "greater": "evenly to all later positions", "at most": "evenly to all positions up to its own",
        "at least": "evenly to its own and all later positions", "shift": f"to {shifted(one.by)}",
        "sum": f"to position {one.by} minus its own position",
    }  # fmt: skip
    if all(places) or one.kind == "any":
        text = placed[one.kind]
    elif of_keys and one.kind == "equal":
        text = f"to the position whose number is {own}"
    else:
        text = f"to positions where {compared(one.kind, other, own, keys)}"
    text += EDGES.get(one.edge, "").format(end="first" if one.by < 0 else "last")
    text += _listed(", or ", [keys[key] for key in one.always], of_keys)
    text += _listed(", not ", [keys[key] for key in one.never], of_keys)
    selected = one.holds(len(queries), len(keys))
    for query, key in one.pairs:
        more = "not " * (not selected[query, key]) or "also " * (int(selected[query].sum()) > 1)
        text += f", from {_value(queries[query], of_queries)} {more}to {_value(keys[key], of_keys)}"
    return text


def compared(kind: str, one: str, other: str, values: Sequence[str]) -> str:
    """A comparison in words: "the token equals its own token". values: those of both."""
    if all(value.isdecimal() for value in values) and [*map(int, values)] == sorted(map(int, values)):
        return f"{one} {NUMBERS.get(kind, COMPARED[kind])} {other}"
    return f"{one} {COMPARED[kind]} {other}{' in the vocabulary' * (kind in NUMBERS)}"


def shifted(shift: int) -> str:
    """A position relative to a head's own."""
    near = {-1: "the position before", 0: "its own position", 1: "the next position", -2: "the position two before"}
    return near.get(shift, f"the position {abs(shift)} {'before' if shift < 0 else 'after'} its own")


def _listed(before: str, values: Sequence[str], places: bool) -> str:
    if places and len(values) > 1:
        return f"{before}positions {words.ranges(map(int, values))}"
    return f"{before}{words.joined(_value(value, places) for value in values)}" if values else ""


def _value(value: str, places: bool) -> str:
    return f"position {value}" if places else repr(value)
