"""Where heads of programs attend, in words: "to the position before", "evenly to all positions that it sees"."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import torch

from interp.programs import relations
from interp.programs.language import Program
from interp.programs.naming import unnamed
from interp.programs.steps import NEVER, Head, Sums, Values
from interp.programs.variable_words import NAMED, said, sums_behind, variables_words
from interp.programs.waves import Waves
from interp.support import words

GRADED = 2.0
"""A soft head attends most where its scores are at most this far (an eighth of the weight) below the largest."""
EXCEPTED = 2
"""Most values that are listed as those to which a head does not attend."""
STRONG = 1.4
"""A soft head attends most to values whose scores are at most this far (a quarter of the weight) below the largest."""
SLIGHT = 0.1
"""Least distance between the scores of values of which a soft head is said to attend to some more than to others."""
ORDER = 8.0
"""Least distance between scores of which the larger decides alone, unless it occurs some thousand times less."""


def where(program: Program, step: Head, brief: bool = False) -> str:
    """Where a head attends: "to the position before", "evenly to all positions that it sees"."""
    if (key := sums_behind(program, step.key)) is not None:
        return _products(program, key, sums_behind(program, step.query))
    waves = program.by_name.get(step.key)
    if isinstance(waves, Waves) and not step.query:
        k = words.joined(str(k) for k in waves.frequencies if k)
        angles = "" if brief else f" x (cos and sin of 2πkx/{waves.period} for k = {k})"
        return f"to positions by waves of {words.joined(_there(program, name) for name in waves.of)}{angles}"
    keys = program.values.get(step.key, ("",))
    queries = program.values.get(step.query, ("",))
    if step.total and queries == keys and (two := _two(step)):
        fits = f"{said(program, step.key)} equals {_here(program, step.query)}"
        return f"with weight {two[0]:.2g} where {fits}, and {two[1]:.2g} elsewhere"
    if step.total:
        by = [_there(program, step.key)] if step.key else []
        by += [_here(program, step.query)] if step.query else []
        return f"weighted by {words.joined(by)}" if by else "all with one weight"
    if not step.query and not step.key:
        return "evenly to all positions that it sees"
    if step.hard:
        return _selected(program, step, queries, keys, 0.0) or _pairs(program, step)
    if step.scaled:
        return _powers(program, step, keys, brief)
    if not step.query:
        return _graded(program, step.key, step.scores[0], keys, brief)
    if (common := _common(step)) is not None:
        odd = [query for query, row in enumerate(step.scores) if row != common]
        by_key = _graded(program, step.key, common, keys, brief).rstrip(",")
        return f"{by_key}, {_from(program, step.query, odd, queries)} otherwise,"
    if most := _selected(program, step, queries, keys, GRADED):
        return f"most {most}"
    if queries == keys and (alike := _alike(program, step, brief)):
        return alike
    both = f"{_there(program, step.key)} and {_here(program, step.query)}"
    return f"to positions by {both} (a table of scores{_nearest(program, step, brief)})"


def _common(step: Head) -> tuple[float, ...] | None:
    """The scores of all queries but a few, if these have the same."""
    row, n = Counter(step.scores).most_common(1)[0]
    others = len(step.scores) - n
    return row if 0 < others <= EXCEPTED and n > others else None


def _nearest(program: Program, step: Head, brief: bool) -> str:
    """The relative position to which a soft head attends most, unless another one gets more than half as much."""
    if not step.query == step.key == "position":
        return ""
    shares, n = Counter[int](), 0
    for q, row in enumerate(step.scores):
        seen = {k: score for k, score in enumerate(row) if score > NEVER and (k <= q or not program.causal)}
        weights = {k: math.exp(score - max(seen.values())) for k, score in seen.items()}
        n += bool(seen)
        shares.update({k - q: weight / sum(weights.values()) for k, weight in weights.items()})
    (shift, most), (_, second) = [*shares.most_common(2), (0, 0.0), (0, 0.0)][:2]
    if most <= 2 * second:
        return ""
    share = "" if brief else f", {words.share(most / n)} of it; to no other more than {words.share(second / n)}"
    return f", most to {relations.shifted(shift)}{share}"


def _products(program: Program, key: Sums, query: Sums | None) -> str:
    """Where a head attends whose scores are products of sums over the query's and over the key's variables."""
    if not key.of:
        return "evenly to all positions that it sees"
    there = variables_words(program, key.of)
    if query is None or not query.of:
        return f"to positions by {words.counted(len(key.bias), 'weighted sum')} over {there} there"
    here = variables_words(program, query.of)
    factors = f"a weighted sum over {there} there and one over {here} at its own position"
    n = len(key.bias)
    return f"to positions by {f'{n} products, each of' if n > 1 else 'the product of'} {factors}"


def _graded(program: Program, key: str, scores: Sequence[float], keys: Values, brief: bool) -> str:
    """Where a head attends whose scores depend on the key alone: by an order of values, or more to some than others."""
    order = sorted((at for at in range(len(keys)) if scores[at] > NEVER), key=lambda at: -scores[at])
    if all(scores[higher] - scores[lower] >= ORDER for higher, lower in pairwise(order)):
        named = ", ".join(_value(key, keys[at]) for at in order)
        listed = named if len(order) <= 2 * NAMED else f"of {len(order)} values"
        return f"to positions where {said(program, key)} comes first in the order {listed}"
    weights = "" if brief else f" ({_weights(scores, keys, key)})"
    if len(order) == len(keys) and scores[order[0]] - scores[order[-1]] < SLIGHT:
        return f"almost evenly to all positions that it sees{weights}"
    more = _more(scores, keys, order, key)
    return f"to positions by {_there(program, key)}{more}{weights}{',' * bool(more)}"


def _powers(program: Program, step: Head, keys: Values, brief: bool) -> str:
    """Where a head attends whose scores grow with the logarithm of the number of tokens."""
    here = f" and {_here(program, step.query)}" if step.query else ""
    by = f"to positions by {_there(program, step.key)}{here}, with powers of the length"
    if brief or step.query:
        return f"{by} as weights"
    (scores,) = step.scores
    order = sorted((at for at in range(len(keys)) if scores[at] > NEVER), key=lambda at: -scores[at])
    powers = [f"{_value(step.key, keys[at])} n^{scores[at] - scores[order[0]]:.2g}" for at in order[1:NAMED]]
    more = f", {len(order) - NAMED} more" if len(order) > NAMED else ""
    return f"{by} as weights ({_value(step.key, keys[order[0]])} 1, {', '.join(powers)}{more}, with n tokens)"


def _more(scores: Sequence[float], keys: Values, order: Sequence[int], key: str) -> str:
    """Which values a soft head attends to more than to others. order: those it attends to, the largest score first."""
    drops = [scores[higher] - scores[lower] for higher, lower in pairwise(order)]
    if len(order) > NAMED and min(drops) > 0 and all(keys[at].isdecimal() for at in order):
        numbers = [int(keys[at]) for at in order]
        later, earlier = ("later", "earlier") if key == "position" else ("larger", "smaller")
        for more, sign in ((later, -1), (earlier, 1)):
            if numbers == sorted(numbers, key=lambda number: sign * number):
                return f", the {more} the more"
    most = sum(scores[at] >= scores[order[0]] - STRONG for at in order)
    if most < len(order):
        return _compared("most", "least", order, most, keys, key)
    if not drops or max(drops) < SLIGHT:
        return ""
    return _compared("more", "less", order, drops.index(max(drops)) + 1, keys, key)


def _compared(more: str, less: str, order: Sequence[int], n: int, keys: Values, key: str) -> str:
    """The first n values of an order, or the others if these are fewer, or if both are many, how many of them."""
    first, others = order[:n], order[n:]
    if key == "position":
        return f", {more} to {positions_words(first, len(keys))}"
    if n <= min(NAMED, len(others)) or len(others) > NAMED:
        named = words.either([repr(keys[at]) for at in first], NAMED)
        return f", {more} to each {named if n <= NAMED else f'of {n} of {len(order)} values'}"
    return f", {less} to each {words.either([repr(keys[at]) for at in others], NAMED)}"


def _value(key: str, value: str) -> str:
    """A value of a key in a list: a position is a number, and a token of the same name is quoted."""
    return f"position {value}" if key == "position" else repr(value)


def positions_words(chosen: Sequence[int], n: int | None = None) -> str:
    """Some of n positions (None: not known of how many): "the first position", "positions 3 to 7"."""
    listed = sorted(chosen)
    if len(listed) == 1:
        return "the first position" if listed == [0] else f"position {listed[0]}"
    if len(listed) > NAMED and listed == list(range(listed[0], listed[-1] + 1)):
        return f"positions {listed[0]} to {listed[-1]}"
    if len(listed) > NAMED:
        if n is None:
            return f"positions {words.ranges(listed)}"
        alternate = listed == list(range(listed[0] % 2, n, 2))
        return f"the {('even', 'odd')[listed[0]]} positions" if alternate else f"{len(listed)} of {n} positions"
    return f"positions {words.joined([str(at) for at in listed])}"


def _there(program: Program, name: str) -> str:
    """A variable of an attended position."""
    return f"their {name}" if name in ("token", "position") else f"{said(program, name)} there"


def _here(program: Program, name: str) -> str:
    """A variable of a head's own position."""
    return f"its own {name}" if name in ("token", "position") else f"{said(program, name)} at its own position"


def _from(program: Program, name: str, chosen: Sequence[int], queries: Values) -> str:
    """Some of a head's own positions, by the values of a variable there."""
    if name == "position":
        return f"from {positions_words(chosen)}"
    values = words.either([repr(queries[query]) for query in chosen], NAMED)
    return f"from {values}" if name == "token" else f"where {_here(program, name)} is {values}"


def _weights(scores: Sequence[float], keys: Values, key: str) -> str:
    """The weights of a soft head relative to the largest, in falling order; one that most values have comes last."""
    order = sorted(range(len(keys)), key=lambda at: -scores[at])
    ratios = [math.exp(score - max(scores)) if score > NEVER else 0.0 for score in scores]
    common, n = Counter(scores).most_common(1)[0]
    few = [at for at in order if scores[at] != common]
    alike = n > len(keys) / 2 and 0 < len(few) <= NAMED
    parts = [
        f"{ratios[at]:.2g} at position {keys[at]}" if key == "position" else f"{keys[at]!r} {ratios[at]:.2g}"
        for at in (few if alike else order[:NAMED])
    ]
    if alike:
        parts.append(f"all others {ratios[scores.index(common)]:.2g}")
    more = f", {len(keys) - NAMED} more" if len(keys) > NAMED and not alike else ""
    return f"weights {', '.join(parts)}{more}"


def _selected(program: Program, step: Head, queries: Values, keys: Values, least: float) -> str:
    """Where a head attends if that has a name, else ""; scores within `least` of the largest count as selected. Of a
    causal program's later positions, which it never sees, nothing is said."""
    places = step.query == step.key == "position"
    seen = [row[: query + 1] if places and program.causal else row for query, row in enumerate(step.scores)]
    chosen = [[at for at, score in enumerate(row) if NEVER < score >= max(row) - least] for row in seen]
    if not step.query:
        return _fixed(program, step.key, chosen[0], keys)
    related = _related(program, step, chosen, queries, keys, evenly=not least)
    several = _several_places(chosen, len(keys), evenly=not least) if places else ""
    exceptions = ", from " in related
    return (several if exceptions else "") or related or several or _matched(program, step, chosen, queries, keys)


def _fixed(program: Program, name: str, chosen: Sequence[int], keys: Values) -> str:
    """The values of a key that every query selects."""
    if name == "position":
        return f"{'evenly ' * (len(chosen) > 1)}to {positions_words(chosen, len(keys))}"
    if len(chosen) < len(keys) <= len(chosen) + EXCEPTED and len(chosen) > 1:
        others = [value for at, value in enumerate(keys) if at not in chosen]
        return f"evenly to positions where {said(program, name)} is not {_values(others, len(keys))}"
    return f"evenly to positions where {said(program, name)} is {_values([keys[at] for at in chosen], len(keys))}"


def _related(
    program: Program, step: Head, chosen: Sequence[Sequence[int]], queries: Values, keys: Values, evenly: bool
) -> str:
    """A short relation between the values of a query and of a key; unless it is even, one that selects few."""
    selected = torch.zeros(len(queries), len(keys), dtype=torch.bool)
    for query, row in enumerate(chosen):
        selected[query, list(row)] = True
    places = step.query == step.key == "position"
    there = torch.ones_like(selected)
    if places and program.causal:
        there = there.tril()
    relation = relations.short(selected, there, places)
    if relation is None or (queries != keys and relation.kind != "any"):
        return ""
    held = relations.base(relation.kind, relation.by, *selected.shape) & there
    if places and 2 * int(held.any(1).sum()) <= int((selected & there).any(1).sum()):
        return ""  # its exceptions say more
    if relation.kind in ("smaller", "greater", "at most", "at least") and unnamed(keys):
        return ""
    if not evenly and relation.kind not in ("equal", "shift", "sum") and (places or relation.kind != "different"):
        return ""
    if program.causal and places and relation == relations.Relation("shift", -1) and 0 in chosen[0]:
        relation = replace(relation, edge="clamped")  # the first position sees no other than itself
    are_places = step.key == "position", step.query == "position"
    own = _numbered(program, step) or _here(program, step.query)
    return relations.in_words(relation, said(program, step.key), own, keys, queries, are_places)


def _several_places(chosen: Sequence[Sequence[int]], n: int, evenly: bool) -> str:
    """A few positions relative to a head's own; "" if there are none, or many."""
    if {tuple(row) for row in chosen if row} == {(0,)}:
        return "to the first position"
    shifts = sorted({key - query for query, row in enumerate(chosen) for key in row})
    few = 1 < len(shifts) <= NAMED and 0 not in shifts and sum(map(bool, chosen)) > len(shifts)
    return _offsets(shifts, chosen, n, evenly) if few else ""


def _matched(program: Program, step: Head, chosen: Sequence[Sequence[int]], queries: Values, keys: Values) -> str:
    """One value of the key for each of the query that selects any, where the words of both are the same."""
    pairs = [(queries[query], keys[row[0]]) for query, row in enumerate(chosen) if len(row) == 1]
    if len(pairs) < 2 or any(len(row) > 1 for row in chosen) or any(query != key for query, key in pairs):
        return ""
    if number := _numbered(program, step):
        return f"to the position whose number is {number}"
    return f"to positions where {said(program, step.key)} equals {_here(program, step.query)}"


def _numbered(program: Program, step: Head) -> str:
    """The query of a head whose values are numbers of positions, whatever else they stand for; "" of other heads."""
    if step.key != "position" or step.query in ("token", "position"):
        return ""
    return f"the value of {program.step(step.query).part or step.query} at its own position"


def _alike(program: Program, step: Head, brief: bool) -> str:
    """Where a soft head attends whose scores say only whether two values are equal, else ""."""
    if (two := _two(step)) is None:
        return ""
    times = "" if brief else f" ({math.exp(two[0] - two[1]):.2g} times the weight of others)"
    fits = f"positions where {said(program, step.key)} equals {_here(program, step.query)}"
    there = "its own position" if step.query == step.key == "position" else fits
    return f"{'more' if two[0] > two[1] else 'less'} to {there}{times}"


def _two(step: Head) -> tuple[float, float] | None:
    """The score of two equal values and that of others, if there are only these two."""
    scores = [(score, q == k) for q, row in enumerate(step.scores) for k, score in enumerate(row) if score > NEVER]
    equal, others = ({score for score, same in scores if same is whether} for whether in (True, False))
    if len(equal) != 1 or len(others) != 1 or equal == others:
        return None
    return max(equal), max(others)


def _offsets(shifts: Sequence[int], chosen: Sequence[Sequence[int]], n: int, evenly: bool) -> str:
    """Several positions relative to a head's own; chosen: the positions, by the head's own."""
    sides = [("before", [shift for shift in shifts if shift < 0]), ("after", [shift for shift in shifts if shift > 0])]
    listed = words.joined(f"{words.joined(str(abs(shift)) for shift in here)} {side}" for side, here in sides if here)
    whole = all(row == [q + shift for shift in shifts if 0 <= q + shift < n] for q, row in enumerate(chosen) if row)
    return f"{'evenly ' * (evenly and whole)}to {'' if whole else 'one or more of '}the positions {listed} its own"


def _pairs(program: Program, step: Head) -> str:
    pairs = sum(score > NEVER for row in step.scores for score in row)
    fits = f"{said(program, step.key)} fits {_here(program, step.query)}"
    return f"to positions where {fits} (a table of {words.counted(pairs, 'pair')})"


def _values(listed: Sequence[str], n: int) -> str:
    if len(listed) == n:
        return "anything"
    if len(listed) <= NAMED:
        return words.either([repr(value) for value in listed], NAMED) if listed else "nothing"
    return f"{', '.join(map(repr, listed[: NAMED - 1]))} or one of {len(listed) - NAMED + 1} others"
