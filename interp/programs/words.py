"""Steps of programs in words: where a head attends, what a map depends on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch

from interp.programs import relations
from interp.programs.language import Program
from interp.programs.naming import unnamed
from interp.programs.steps import NEVER, Evened, Head, Linear, Matrix, Normed, Product, Step, Sums, Table, Values
from interp.programs.waves import Cosines, Waves
from interp.support import words

NAMED = 4
"""Most values that are listed."""
GRADED = 2.3
"""A soft head mostly attends where its scores are at most this far (a tenth of the attention) below the largest."""
EXCEPTED = 2
"""Most values that are listed as those to which a head does not attend."""
STRONG = 1.4
"""A soft head attends most to values whose scores are at most this far (a quarter of the weight) below the largest."""
SLIGHT = 0.1
"""Least distance between the scores of values of which a soft head is said to attend to some more than to others."""
ORDER = 8.0
"""Least distance between scores of which the larger decides alone, unless it occurs some thousand times less."""


def said(program: Program, name: str) -> str:
    """A variable in words: "the token", "the position", or the part that makes it, and what it is if that is known."""
    if name in ("token", "position"):
        return f"the {name}"
    part = name.removesuffix(" level")
    if name in program.words:
        made_by = {step.name: step.part for step in program.steps}.get(name) or part
        return f"{program.words[name]} ({made_by})"
    if part != name:
        return f"the rounded value of {part}"
    if isinstance(table := _step(program, name), Table) and not table.part and len(table.of) == 1:
        return _class_words(program, table)
    if (sums := _sums(program, name)) is not None:
        return f"{words.counted(len(sums.bias), 'weighted sum')} over {_of(program, sums.of)}"
    if isinstance(step := _step(program, name), Product) and not step.part:
        return _share(program, step)
    if isinstance(step, Evened):
        return f"what {step.head} would read with even attention"
    return f"the value of {name}"


def _class_words(program: Program, step: Table) -> str:
    """What classes a table without a part makes of one variable: "whether the token is 'a'"."""
    (name,) = step.of
    return classed(said(program, name), program.values[name], step.entries)


def _of(program: Program, names: Sequence[str]) -> str:
    """Variables that a step reads; of normed ones, what they are made of."""
    steps = {name: _step(program, name) for name in names}
    flat = [one for name, step in steps.items() for one in (step.divided if isinstance(step, Normed) else (name,))]
    by = " (divided by a length)" if any(isinstance(step, Normed) for step in steps.values()) else ""
    return f"{words.joined(said(program, name) for name in flat)}{by}" if flat else "no variable"


def _sums(program: Program, name: str) -> Sums | None:
    """The step of sums that are no part's own value; None for other variables."""
    step = _step(program, name)
    return step if isinstance(step, Sums) and not step.part else None


def _step(program: Program, name: str) -> Step | None:
    return {step.name: step for step in program.steps}.get(name)


def _share(program: Program, step: Product) -> str:
    """What two variables give to the same value."""
    one, other = step.of
    if one in ("token", "position") or isinstance(_step(program, one), Table | Linear):
        return f"the weight of its own {said(program, one).removeprefix('the ')} in {said(program, other)}"
    return f"the products of the weights that {said(program, one)} and {said(program, other)} give to each value"


def step_words(program: Program, step: Step, brief: bool = False) -> str:
    """What a step does, without its subject: "attends to the position before and reads the token".

    brief: without the weights of a soft head.
    """
    if isinstance(step, Head) and step.evened:
        return f"reads {said(program, step.value)} (even attention changes no answer)"
    if isinstance(step, Head):
        does = f"adds up {said(program, step.value)} over the positions that it sees," if step.total else "attends"
        reads = "" if step.total else f" and reads {said(program, step.value)}"
        return f"{does} {where(program, step, brief)}{reads}"
    if isinstance(step, Product):
        return f"takes {_share(program, step)}"
    if isinstance(step, Evened):
        return f"divides {said(program, step.head)} by the weights of its scores: {said(program, step.name)}"
    if isinstance(step, Normed):
        return f"divides {_of(program, step.divided)} by the length of {said(program, step.length)}"
    of = _of(program, step.of)
    if isinstance(step, Waves):
        return waves_words(program, step)
    if isinstance(step, Sums):
        n = words.counted(len(step.bias), "weighted sum")
        return f"makes {n} over {of}{', or 0 where they are negative' if step.ramps else ''}"
    if isinstance(step, Table):
        if equal := _says_of_two(program, step):
            return f"says {equal}"
        if not step.part and len(step.of) == 1:
            return f"says {_class_words(program, step)}"
        of = words.joined(_read_as(program, step, at) for at in range(len(step.of)))
        cells = words.counted(len(step.entries), "entry", "entries")
        return f"looks up {of} in a table of {cells}"
    if isinstance(step, Linear) and len(step.of) == 1 and len(two := program.values[step.of[0]]) == 2:
        reader = _step(program, step.of[0])
        if isinstance(reader, Head):
            value = next((one for one in two if one not in ("others", "other")), two[0])
            n = words.counted(len(step.values), "value")
            return f"takes one of {n} by limits of the share of {value!r} in {said(program, step.of[0])}"
    if len(step.values) == 2:
        return f"takes one of two values by the sign of a weighted sum over {of}"
    return f"takes the value with the largest weighted sum over {of}"


def _classes(program: Program, step: Table, at: int) -> tuple[int, ...]:
    """For each value of the variable that a table reads at a place, the first value with the same entries."""
    sizes = [len(program.values[name]) for name in step.of]
    rows = torch.tensor(step.entries).reshape(sizes).movedim(at, 0).reshape(sizes[at], -1).tolist()
    return tuple(map(rows.index, rows))


def _read_as(program: Program, step: Table, at: int) -> str:
    """A variable that a table reads, as coarsely as the table does: "whether the token is 'a'"."""
    return classed(said(program, name := step.of[at]), program.values[name], _classes(program, step, at))


def classed(variable: str, values: Values, classes: Sequence[int]) -> str:
    """A variable of which only classes of values are told apart; classes: any number for each value."""
    groups = sorted((list(map(values.__getitem__, group)) for group in grouped_by(classes)), key=len)
    if len(groups) == len(values):
        return variable
    if len(groups) == 2 and len(groups[0]) <= NAMED:
        return f"whether {variable} is {words.either(list(map(repr, groups[0])), NAMED)}"
    few = groups[:-1]
    if len(few) <= NAMED and all(len(group) == 1 for group in few):
        return f"whether {variable} is {words.either([repr(value) for (value,) in few], NAMED)}, and which"
    return f"which of {len(groups)} classes {variable} is in"


def grouped_by(classes: Sequence[int]) -> list[list[int]]:
    """The places of each class, in the order of their first places."""
    return [[at for at, other in enumerate(classes) if other == one] for one in dict.fromkeys(classes)]


def _says_of_two(program: Program, step: Table) -> str:
    """What a table of two values says of two variables that have the same values: whether they are equal, say."""
    if len(step.of) != 2 or len(set(step.entries)) != 2:
        return ""
    (one, other), (values, others) = step.of, (program.values[name] for name in step.of)
    if values != others or len(values) < 2:
        return ""
    rows = torch.tensor(step.entries).reshape(len(values), -1)
    for entry in sorted(set(step.entries), reverse=True):
        chosen = rows == entry
        relation = relations.relation_of(chosen, torch.ones_like(chosen))
        words_ = relations.COMPARED.get(relation.kind)
        if words_ is not None and relation.constants == 1:
            return f"whether {said(program, other)} {words_} {said(program, one)}"
    return ""


def waves_words(program: Program, step: Waves) -> str:
    """What waves are made of: "makes cos and sin of 2πk(x + y)/7, for k = 1 and 3, where x and y are ..."."""
    k = words.joined(map(str, step.frequencies))
    if step.terms != 2:
        return f"makes cos and sin of 2πkx/{step.period} for k = {k}, where x is {_of(program, step.of)}"
    fading = f", times |cos(πk(x − y)/{step.period})|" * step.fading
    waves = f"cos and sin of 2πk(x + y)/{step.period}{fading}, for k = {k}"
    return f"makes {waves}, where x and y are the numbers that {parts_words(step.of)} read{'s' * (len(step.of) == 1)}"


def where(program: Program, step: Head, brief: bool = False) -> str:
    """Where a head attends: "to the position before", "evenly to all positions that it sees"."""
    if (key := _sums(program, step.key)) is not None:
        return _products(program, key, _sums(program, step.query))
    waves = {step.name: step for step in program.steps}.get(step.key)
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
    if most := _selected(program, step, queries, keys, GRADED):
        return f"mostly {most}"
    if queries == keys and (alike := _alike(program, step, brief)):
        return alike
    both = f"{_there(program, step.key)} and {_here(program, step.query)}"
    return f"to positions by {both} (a table of scores{_nearest(program, step, brief)})"


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
    if query is None or not query.of:
        return f"to positions by {words.counted(len(key.bias), 'weighted sum')} over {_of(program, key.of)} there"
    each = f"a weighted sum over {_of(program, key.of)} there and one over {_of(program, query.of)} at its own position"
    n = len(key.bias)
    return f"to positions by {f'{n} products, each of' if n > 1 else 'the product of'} {each}"


def _graded(program: Program, key: str, scores: Sequence[float], keys: Values, brief: bool) -> str:
    """Where a head attends whose scores depend on the key alone: by an order of values, or more to some than others."""
    order = sorted((at for at in range(len(keys)) if scores[at] > NEVER), key=lambda at: -scores[at])
    if all(scores[one] - scores[other] >= ORDER for one, other in pairwise(order)):
        listed = (
            ", ".join(_value(key, keys[at]) for at in order) if len(order) <= 2 * NAMED else f"of {len(order)} values"
        )
        return f"to positions where {said(program, key)} comes first in the order {listed}"
    weights = "" if brief else f" ({_weights(scores, keys, key)})"
    if len(order) == len(keys) and scores[order[0]] - scores[order[-1]] < SLIGHT:
        return f"almost evenly to all positions that it sees{weights}"
    more = _more(scores, keys, order, key)
    return f"to positions by {_there(program, key)}{more}{weights}{',' * bool(more)}"


def _powers(program: Program, step: Head, keys: Values, brief: bool) -> str:
    """Where a head attends whose scores grow with the logarithm of the number of tokens."""
    own = f" and {_here(program, step.query)}" if step.query else ""
    by = f"to positions by {_there(program, step.key)}{own}, with powers of the length"
    if brief or step.query:
        return by
    (scores,) = step.scores
    order = sorted((at for at in range(len(keys)) if scores[at] > NEVER), key=lambda at: -scores[at])
    powers = [f"{_value(step.key, keys[at])} n^{scores[at] - scores[order[0]]:.2g}" for at in order[1:NAMED]]
    more = f", {len(order) - NAMED} more" if len(order) > NAMED else ""
    return f"{by} as weights ({_value(step.key, keys[order[0]])} 1, {', '.join(powers)}{more}, with n tokens)"


def _more(scores: Sequence[float], keys: Values, order: Sequence[int], key: str) -> str:
    """Which values a soft head attends to more than to others. order: those it attends to, the largest score first."""
    drops = [scores[one] - scores[other] for one, other in pairwise(order)]
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
    """The first n values of an order, or if these are many, the others, or if both are, how many of them."""
    first, others = order[:n], order[n:]
    if key == "position":
        return f", {more} to {_positions(first, len(keys))}"
    if n <= NAMED or len(others) > NAMED:
        listed = (
            words.either([repr(keys[at]) for at in first], NAMED) if n <= NAMED else f"of {n} of {len(order)} values"
        )
        return f", {more} to each {listed}"
    return f", {less} to each {words.either([repr(keys[at]) for at in others], NAMED)}"


def _value(key: str, value: str) -> str:
    """A value of a key in a list: a position is a number, and a token of the same name is quoted."""
    return f"position {value}" if key == "position" else repr(value)


def _positions(chosen: Sequence[int], n: int) -> str:
    """Some of n positions: "the first position", "positions 3 to 7"."""
    listed = sorted(chosen)
    if len(listed) == 1:
        return "the first position" if listed == [0] else f"position {listed[0]}"
    if len(listed) > NAMED and listed == list(range(listed[0], listed[-1] + 1)):
        return f"positions {listed[0]} to {listed[-1]}"
    if len(listed) > NAMED:
        alternate = listed == list(range(listed[0] % 2, n, 2))
        return f"the {('even', 'odd')[listed[0]]} positions" if alternate else f"{len(listed)} of {n} positions"
    return f"positions {words.joined([str(at) for at in listed])}"


def _there(program: Program, name: str) -> str:
    """A variable of an attended position."""
    return f"their {name}" if name in ("token", "position") else f"{said(program, name)} there"


def _here(program: Program, name: str) -> str:
    """A variable of a head's own position."""
    return f"its own {name}" if name in ("token", "position") else f"{said(program, name)} at its own position"


def _weights(scores: Sequence[float], keys: Values, key: str) -> str:
    """The weights of a soft head, largest first, relative to the largest."""
    order = sorted(range(len(keys)), key=lambda at: -scores[at])
    top = max(scores)
    parts = []
    for at in order[:NAMED]:
        ratio = 2.718281828459045 ** (scores[at] - top) if scores[at] > NEVER else 0.0
        parts.append(f"{ratio:.2g} at position {keys[at]}" if key == "position" else f"{keys[at]!r} {ratio:.2g}")
    more = f", {len(keys) - NAMED} more" if len(keys) > NAMED else ""
    return f"weights {', '.join(parts)}{more}"


def _selected(program: Program, step: Head, queries: Values, keys: Values, least: float) -> str:
    """Where a head attends if that has a name, else ""; scores within `least` of the largest count as selected."""
    chosen = [[at for at, score in enumerate(row) if NEVER < score >= max(row) - least] for row in step.scores]
    if not step.query:
        return _fixed(program, step.key, chosen[0], keys)
    places = step.query == step.key == "position"
    related = _related(program, step, chosen, queries, keys, evenly=not least)
    several = _several_places(chosen, len(keys), evenly=not least) if places else ""
    exceptions = ", from " in related
    return (several if exceptions else "") or related or several or _matched(program, step, chosen, queries, keys)


def _fixed(program: Program, name: str, chosen: Sequence[int], keys: Values) -> str:
    """The values of a key that every query selects."""
    if name == "position":
        return _places(chosen, len(keys))
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
    one = relations.short(selected, there, places)
    if one is None or (queries != keys and one.kind != "any"):
        return ""
    if one.kind in ("smaller", "greater", "at most", "at least") and unnamed(keys):
        return ""
    if not evenly and one.kind not in ("equal", "shift", "sum") and (places or one.kind != "different"):
        return ""
    return relations.in_words(one, said(program, step.key), _here(program, step.query), keys, queries, places)


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
    return f"to positions where {said(program, step.key)} equals {_here(program, step.query)}"


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
    listed = words.joined(f"{words.joined(str(abs(one)) for one in some)} {side}" for side, some in sides if some)
    whole = all(row == [q + shift for shift in shifts if 0 <= q + shift < n] for q, row in enumerate(chosen) if row)
    return f"{'evenly ' * (evenly and whole)}to {'' if whole else 'one or more of '}the positions {listed} its own"


def _places(chosen: Sequence[int], n: int) -> str:
    """Fixed positions that a head attends to."""
    return f"{'evenly ' * (len(chosen) > 1)}to {_positions(chosen, n)}"


def _pairs(program: Program, step: Head) -> str:
    pairs = sum(score > NEVER for row in step.scores for score in row)
    fits = f"{said(program, step.key)} fits {_here(program, step.query)}"
    return f"to positions where {fits} (a table of {words.counted(pairs, 'pair')})"


def _values(listed: Sequence[str], n: int) -> str:
    if len(listed) == n:
        return "anything"
    if len(listed) <= NAMED:
        return words.either([repr(one) for one in listed], NAMED) if listed else "nothing"
    return f"{', '.join(map(repr, listed[: NAMED - 1]))} or one of {len(listed) - NAMED + 1} others"


def answer_words(program: Program) -> str:
    """How the answer follows from the variables, as a sentence."""
    answer = program.answer
    if isinstance(answer, Cosines):
        return _cosines(program, answer)
    of = [*dict.fromkeys(said(program, name) for name in answer.of)]
    if (limits := _by_limits(program, answer)) is not None:
        return limits
    if len(of) == 1:
        steps = {step.name: step for step in program.steps}
        step = steps.get(program.answer.of[0])
        if isinstance(step, Table) and not step.part:
            inner = words.joined(said(program, name) for name in step.of)
            return f"The answer is looked up by {inner} in a table of {len(step.entries)} entries."
        if isinstance(step, Head) and not (step.hard and step.query) and _itself(program):
            mixed = said(program, step.value).removeprefix("the ")
            return f"The answer is the {mixed} with the largest share of the attention of {step.part or step.name}."
        return f"The answer follows from {of[0]}."
    parts = [one.removeprefix("the value of ") for one in of if one.startswith("the value of ")]
    if len(parts) > 1:
        of = [*(one for one in of if not one.startswith("the value of ")), f"the values of {parts_words(parts)}"]
    return f"The answer is the one with the largest weighted sum over {words.joined(of)}."


def _by_limits(program: Program, answer: Linear) -> str | None:
    """How an answer follows from limits of an own weight for each value; see read_limits. None for other answers."""
    own = _step(program, answer.of[1]) if 2 <= len(answer.of) <= 3 else None
    if not isinstance(own, Product) or own.part or own.of[0] != answer.of[0]:
        return None
    each = said(program, answer.of[0]).removeprefix("the ")
    text = f"The answer follows from {said(program, own.name)}, by limits for each {each}"
    if len(answer.of) == 2:
        return f"{text}."
    if (sums := _sums(program, answer.of[2])) is None:
        return None
    n, of = len(sums.bias), said(program, own.of[1])
    return f"{text}; {n} of these {'are limits of weighted sums' if n > 1 else 'is one of a weighted sum'} over {of}."


def _cosines(program: Program, answer: Cosines) -> str:
    """The answer as a sum of waves, with their amplitudes relative to the largest."""
    step = program.step(answer.of[0])
    assert isinstance(step, Waves)
    top = max(map(abs, answer.amplitudes))
    sizes = [f"{size / top:.2g}" for size in answer.amplitudes]
    k = words.joined(map(str, answer.frequencies))
    equal = len(set(sizes)) == 1
    a = "" if equal else "a "
    size = "" if equal else f", and relative amplitudes a = {words.joined(sizes)}"
    x = "x + y" if step.terms == 2 else "x"
    fading = f"|cos(πk(x − y)/{step.period})| " * step.fading
    return (
        f"The answer is the number c with the largest sum of the waves {a}{fading}cos(2πk({x} − c)/{step.period}) "
        f"for k = {k}{size}."
    )


def _itself(program: Program) -> bool:
    """Whether the answer is the value that has the largest share."""
    answer = program.answer
    assert isinstance(answer, Linear)
    ((of,), (weights,)) = answer.of, answer.weights
    return not any(answer.bias) and weights == same_word(program.values[of], program.answers)


def same_word(values: Values, answers: Values) -> Matrix:
    """The weights of the answer whose word is that of the value; none for other values."""
    return tuple(tuple(float(value == answer) for answer in answers) for value in values)


def grouped(phrases: Mapping[str, str]) -> list[tuple[list[str], str]]:
    """Parts with the same phrase together, in order: [(["head 0.3", "head 0.4"], "attends ..."), ...]."""
    found: dict[str, list[str]] = {}
    for part, phrase in phrases.items():
        found.setdefault(phrase, []).append(part)
    return [(parts, phrase) for phrase, parts in found.items()]


def parts_words(parts: Sequence[str]) -> str:
    """Names of parts in a sentence: "heads 0.3, 0.4 and 0.5", "MLP 0"."""
    heads = [part.removeprefix("head ") for part in parts if part.startswith("head ")]
    others = [part for part in parts if not part.startswith("head ")]
    said_ = [f"head{'s' * (len(heads) > 1)} {words.joined(heads)}"] if heads else []
    return words.joined([*said_, *others])


PLURALS = {
    "that it sees": "that they see", "attends": "attend", "reads": "read", "looks up": "look up", "makes": "make",
    "takes": "take", "says": "say", "adds up": "add up", "divides": "divide",
}  # fmt: skip
"""What changes in the description of a part where several do the same."""


def plural(phrase: str) -> str:
    """A description of several parts: "attend ..." for "attends ..."."""
    for one, several in PLURALS.items():
        phrase = phrase.replace(one, several)
    return phrase
