"""Describe a head: attention by a query variable and a key variable, times a value by the key's variable.

The scores are fitted by a table over the values of two variables, up to a constant for each query, which the softmax
does not see. What a head reads at each position is fitted by its mean for each value of a third variable. Both are
judged in the running model: the described head takes the place of the real one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist
from torch import Tensor

from interp.measures.runs import Part
from interp.programs.maps import Codes
from interp.programs.other_rows import same_elsewhere
from interp.programs.quantize import SHARE_KEPT_BY_VALUES, Quantized, separate
from interp.programs.read_sums import FROM_OTHER_ROWS, describe_by_sums
from interp.programs.read_waves import attention_by_waves
from interp.programs.readers import spread
from interp.programs.reading import MOST_VALUES, TRIED, Reading, matrix
from interp.programs.relations import completed
from interp.programs.running import Running, scaled, softmax
from interp.programs.steps import NEVER, SAME, Head, Linear, Step, Table, weights_of

CLOSE = 0.05
"""Total variation of a pattern, or share of variance of values that is left out, up to which a description is close."""
EXACT = 1e-3
"""The same of a description that is exact up to rounding; where there is one, no looser one is tried."""
ROUNDED = 3e-5
"""Distance of patterns that differ by the rounding of scores alone."""
SELECTED = 0.01
"""Total variation of a pattern from one without grades, up to which the head selects keys, and weighs none."""
FITTED = 100_000
"""Largest number of pairs of query and key on which scores are fitted."""
MOST_UNEVEN = 0.25
"""Largest difference of scores of keys that get even attention: one at most 1.28 times that of another."""
ALIKE = 3.0
"""Largest difference of scores between keys of which none comes before another."""
ROUNDS = 4
"""Rounds of fitting tables and the constants of queries in turn."""


def describe_head(reading: Reading, part: Part) -> None:
    enough = reading.enough()
    quantized = reading.quantized(part)
    name = str(part)
    if quantized.size == 1:
        reading.minor(part, quantized)
        return
    asked = queries(reading, part, quantized.needed)
    chosen = selected(reading, part, quantized, asked, enough)
    if chosen is None:
        if asked.total or not describe_by_sums(reading, part, quantized):
            reading.keep(part, quantized, "its attention and values are no table over variables found so far")
        return
    step, mean, value = chosen
    steps: list[Step] = [step]
    if coarse := coarsest(reading, part, quantized, step, mean, enough):
        steps, mean, value = coarse
    elif waves := attention_by_waves(reading, quantized, step, mean, enough):
        steps, value = waves, (reading.variable(*waves) @ mean.double()).float()
    odd = reading.strict and not asked.total and same_elsewhere(reading, part, value) < FROM_OTHER_ROWS
    if reading.finer and not odd and not asked.total:  # its values may read more than the one variable of a table
        odd = reading.tried.stay_without(part, reading.writers(step.value), "v") < FROM_OTHER_ROWS
    if odd and describe_by_sums(reading, part, quantized):
        return
    if not reading.explain(part, quantized, steps, mean, value, enough):
        reading.keep(part, quantized, "as a table of attention and values, it does not keep the answers")
        return
    graded = not reading.has_code(name, quantized.needed)
    if graded and quantized.size <= MOST_VALUES and quantized.share >= enough:
        add_level(reading, part, quantized, mean, enough)


def elsewhere(reading: Reading, part: Part) -> float:
    """How much of a described head's attention in the model is given otherwise, where the head matters: see
    `Queries.distance`."""
    step = reading.step(str(part))
    assert isinstance(step, Head)
    made = reading.after([later for later in reading.steps if later.name not in reading.made])
    asked = queries(reading, part, matters_at(reading, part), reading.running.original)
    return asked.far(step.attention(made, reading.seen)[asked.rows, asked.positions])


def matters_at(reading: Reading, part: Part) -> Bool[Tensor, "rows length"]:
    """Where a head matters: answers change with its mean there; or, in the model, with values of other positions of the
    same kind, which a reading that is not strict does not ask of a description."""
    kinds, whole, where = reading.kinds, reading.running.original, reading.needed[str(part)]
    for kind in () if reading.strict else kinds.present:
        here = kinds.each == kind
        moved = {part: kinds.shuffled(whole.value(part), (kind,))}
        if not bool((where & here).any()) and whole.kept(moved).share < SHARE_KEPT_BY_VALUES:
            where = where | here
    return where


def finds_none(reading: Reading, part: Part) -> float:
    """The share of a described head's queries, where the head matters, that see none of the keys it selects; places
    relative to their own are told by a relation."""
    step = reading.step(str(part))
    assert isinstance(step, Head)
    if not step.hard or step.evened or not step.key or step.query == step.key == "position":
        return 0.0
    made = reading.after([later for later in reading.steps if later.name not in reading.made])
    return float(step.finds_none(made, reading.seen)[reading.needed[str(part)]].double().mean())


def only_from(reading: Reading, part: Part) -> tuple[int, ...] | None:
    """The positions from which a head matters that is described as attending to certain positions, whatever its own is,
    where it attends otherwise from others that see these; None if it does not, and of other heads."""
    step, needed = reading.step(str(part)), reading.needed[str(part)]
    assert isinstance(step, Head)
    if not step.hard or step.query or step.key != "position":
        return None
    made = reading.after([later for later in reading.steps if later.name not in reading.made])
    others = reading.running.mask & ~needed & ~step.finds_none(made, reading.seen)
    asked = queries(reading, part, others, reading.running.original)
    if not len(asked.rows) or asked.far(step.attention(made, reading.seen)[asked.rows, asked.positions]) <= CLOSE:
        return None
    return tuple(needed.any(0).nonzero()[:, 0].tolist())


def queries(reading: Reading, part: Part, where: Tensor, running: Running | None = None) -> Queries:
    """The queries of a head at some positions, in the model with its descriptions so far, or in another one."""
    running = running or reading.running
    rows, positions, scores = running.scores(part)
    there = where[rows, positions]
    rows, positions = rows[there], positions[there]
    block = running.blocks[part.layer]
    counts = reading.seen[rows, positions].float()
    times = torch.ones(len(rows), 1)
    if scaled(block):
        times = counts.logsumexp(-1, keepdim=True).clamp(min=1e-9)  # of one token, no score counts
    return Queries(rows, positions, scores[there] / times, counts, times, not softmax(block))


def coded(reading: Reading, part: Part) -> Codes:
    """The variables that have one value at each position when a part runs; the empty name is a constant."""
    return {"": (torch.zeros_like(reading.running.batch.tokens), 1), **reading.codes(part=part)}


def selected(
    reading: Reading, part: Part, found: Quantized, asked: Queries, enough: float
) -> tuple[Head, Tensor, Tensor] | None:
    """The simplest attention by two variables and value by a third that take the head's place."""
    v, low = reading.running.v(part), reading.low(part)
    pattern = fitting_pattern(reading, part, found, asked, v, enough)
    if pattern is None:
        return None
    pattern, everywhere = everywhere_alike(reading, part, asked, pattern)
    pattern = with_pairs_that_never_meet(reading, part, everywhere, pattern)
    hard = hardened(pattern)
    places = pattern.query == pattern.key == "position"
    hard = torch.where(completed(hard == 0, pattern.seen, places), 0.0, NEVER)
    graded = given(pattern, asked)
    known = coded(reading, part)
    query, key = known[pattern.query][0], known[pattern.key][0]

    def weights(scores: Tensor, asked: Queries = asked) -> Tensor:
        return asked.attention(scores[query[asked.rows, asked.positions][:, None], key[asked.rows]])

    def missing(scores: Tensor) -> bool:
        """Whether, at some query, no key is there that is selected; places are there or not whatever the tokens are."""
        there = scores[query[asked.rows, asked.positions][:, None], key[asked.rows]] == 0
        return pattern.key != "position" or not bool((there & (asked.counts > -torch.inf)).any(-1).all())

    def far(scores: Tensor) -> float:
        return float((weights(scores) - asked.pattern).abs().sum(-1).mean()) / 2

    def good(scores: Tensor) -> bool:
        return reading.stays(part, with_attention(found, asked, weights(scores), v)) >= enough

    scores = graded
    # An exact pattern also says which key comes next where the selected ones are missing.
    order = missing(hard) and far(graded) < EXACT / 10 and ordered(pattern)
    selects = not reading.strict or (far(hard) <= SELECTED and not order)
    if selects and not asked.total and good(hard):
        scores = hard
    elif pattern.query and pattern.key:
        scores = fewest_exceptions(pattern, graded, good if asked.total else lambda table: far(table) < EXACT)
    attends = (pattern.query, pattern.key, matrix(scores))
    if scores is hard and bool((hard == 0)[pattern.seen].all()):
        attends = ("", "", ((0.0,),))  # evenly to all
    received = torch.zeros(v.shape[:2]).index_add_(0, everywhere.rows, weights(scores, everywhere).abs())
    tried = []
    read = reading.read(part)[2]
    for name, weights_ in reading.made.items():
        if not reading.allowed(name, read) or not reading.before(name, part):
            continue
        if name in known:
            mean, left = values_by(v, received, *known[name], low)
        elif weights_.shape[-1] <= MOST_VALUES:
            mean, left = values_of_shares(v, received, weights_, low)
        else:
            continue
        tried.append((weights_.shape[-1], left, name, mean))
    near = nearby([left for _, left, _, _ in tried] or [1.0])
    for _, left, name, mean in sorted(tried, key=lambda option: option[:2]):
        if left <= near:
            step = Head(str(part), *attends, name, str(part), asked.total)
            step = replace(step, scaled=scaled(reading.running.blocks[part.layer]) and not step.hard)
            value = (reading.variable(step) @ mean.double()).float()
            if reading.stays(part, reading.spread(found, value)) >= enough:
                return step, mean, value
    return None


def coarsest(
    reading: Reading, part: Part, found: Quantized, head: Head, mean: Tensor, enough: float
) -> tuple[list[Step], Tensor, Tensor] | None:
    """The same head, reading only which class a value is in, where values of a class have the same effect; the vector
    of each class, and the head's value. None if no values are alike, or if fewer answers stay.

    mean: the vector of each value.
    """
    if head.value not in (known := reading.codes(part=part)) or reading.cyclic:
        return None
    code, size = known[head.value]
    received = head.attention(reading.made, reading.seen)[reading.needed[str(part)]]
    rows = reading.needed[str(part)].nonzero()[:, 0]
    mass = torch.zeros(size).double().index_add_(0, code[rows].flatten(), received.flatten())
    read = (mass > EXACT * mass.sum()).nonzero()[:, 0]
    marks = reading.kinds.marks if head.value == "token" else ()
    label = classes_read((mean[read] @ reading.low(part)).double(), read.tolist(), size, marks)
    if label is None:
        return None
    n = int(label.max()) + 1
    classes = torch.full((size,), int(label.bincount().argmax()))  # values that are never read are like most others
    classes[read] = label
    names = class_names(reading.values(head.value), classes.tolist())
    table = Table(f"{head.value} class of {part}", (head.value,), tuple(classes.tolist()), names)
    steps: list[Step] = [table, replace(head, value=table.name)]
    weight = torch.zeros(n, size).double().index_put_((classes, torch.arange(size)), mass)
    vectors = (weight @ mean.double() / weight.sum(1, keepdim=True)).float()
    value = (reading.variable(*steps) @ vectors.double()).float()
    before = reading.stays(part, reading.spread(found, (reading.variable(head) @ mean.double()).float()))
    if reading.stays(part, reading.spread(found, value)) < max(enough, before):
        return None
    return steps, vectors, value


def classes_read(
    points: Float[Tensor, "values r"], read: Sequence[int], size: int, marks: Sequence[int]
) -> Int[Tensor, "values"] | None:
    """The class of each value that is read, from what is read of it; None if most are classes of their own.

    read: which of `size` values these are. Of two, a mark is told from all others.
    """
    if len(read) == 2 < size and len(set(read) & set(marks)) == 1:
        return torch.tensor([0, 1])[torch.tensor([int(value in marks) for value in read])]
    if len(read) < 3:
        return None
    tree = linkage(pdist(points.numpy()), "ward")
    n = separate(tree, 2)
    if n == 0 or n > max(2, len(read) // 2):
        return None
    return torch.as_tensor(fcluster(tree, n, "maxclust")).long() - 1


def class_names(values: Sequence[str], classes: Sequence[int]) -> tuple[str, ...]:
    """A name for each class: its values, or "others" for the largest class."""
    groups = [[value for value, c in zip(values, classes, strict=True) if c == n] for n in range(max(classes) + 1)]
    largest = max(groups, key=len)
    return tuple("others" if group is largest and len(group) > 1 else " ".join(group) for group in groups)


def given(pattern: Pattern, asked: Queries) -> Tensor:
    """The scores of a pattern; without softmax, no attention where no pair was seen."""
    return pattern.scores.masked_fill(~pattern.seen, 0.0) if asked.total else soft(pattern)


def fewest_exceptions(pattern: Pattern, weights: Tensor, good: Callable[[Tensor], bool]) -> Tensor:
    """The weights with as many pairs alike as will do, at least half of them; else as they are."""
    most = weights.numel() // 2
    if not good(alike(weights, pattern.seen, most)):
        return weights
    n = bisect_left(range(most), True, key=lambda n: good(alike(weights, pattern.seen, n)))
    found = alike(weights, pattern.seen, n)
    return found if 2 * int((found != found[pattern.seen].median()).sum()) <= weights.numel() else weights


def everywhere_alike(reading: Reading, part: Part, asked: Queries, pattern: Pattern) -> tuple[Pattern, Queries]:
    """A pattern fitted at all positions, if it is exact there, too: it then says what the head does where that does not
    matter. Else the pattern as it is."""
    every = queries(reading, part, reading.running.mask)
    if len(every.rows) == len(asked.rows) or pattern.distance >= EXACT / 10:
        return pattern, asked
    known = coded(reading, part)
    (again,) = patterns(every.some(), *({name: known[name]} for name in (pattern.query, pattern.key)))
    return (again, every) if again.distance < EXACT / 10 else (pattern, asked)


def with_pairs_that_never_meet(reading: Reading, part: Part, asked: Queries, pattern: Pattern) -> Pattern:
    """A pattern with the scores of pairs that meet on no input, as the head gives them to keys in another order: where
    a variable is that of another input, they may meet."""
    if bool(pattern.seen.all()) or not pattern.key or pattern.query == pattern.key == "position":
        return pattern
    moved, mask, known = reading.kinds.shuffled, reading.running.mask, coded(reading, part)
    (query, _), (key, n_keys) = known[pattern.query], known[pattern.key]
    seen, table = pattern.seen.flatten().clone(), pattern.scores.flatten().clone()
    first = query[asked.rows, asked.positions][:, None] * n_keys
    there = asked.counts > -torch.inf
    cell = first + moved(key)[asked.rows]
    meet = there & moved(reading.matters(pattern.key))[asked.rows] & ~seen[cell]
    some = meet.any(1)  # the queries that meet a new key
    if not bool(some.any()):
        return pattern
    cell, rows, meet = cell[some][meet[some]], asked.rows[some], meet[some]
    of_rows, positions, _ = reading.running.scores(part)
    at = torch.zeros(mask.shape, dtype=torch.long).index_put_((of_rows, positions), torch.arange(len(of_rows)))
    scores = reading.running.scores_of_keys(part, moved)[at[rows, asked.positions[some]]] / asked.times[some]
    as_fitted = torch.where(there[some], asked.scores[some] - table[first[some] + key[rows]], 0.0)
    shift = 0 if asked.total else as_fitted.sum(1, keepdim=True) / there[some].sum(1, keepdim=True)
    mass = torch.zeros(len(table)).index_add_(0, cell, torch.ones(len(cell)))
    mean = torch.zeros(len(table)).index_add_(0, cell, (scores - shift)[meet]) / mass
    new = ~seen & (mass > 0)
    table, seen = (cells.reshape(pattern.seen.shape) for cells in (torch.where(new, mean, table), seen | new))
    return replace(pattern, scores=table, seen=seen)


def fitting_pattern(
    reading: Reading, part: Part, found: Quantized, asked: Queries, v: Tensor, enough: float
) -> Pattern | None:
    """Even attention, or else the cheapest pattern by two variables, that takes the place of the head's in the running
    model; of exact ones, the first that leaves out nothing that its queries and keys read, if there is one."""
    drawn, known = asked.some(), coded(reading, part)

    def fitted() -> Iterator[list[Pattern]]:
        if (evenly := uniform(drawn, {"": known[""]})) is not None:
            yield [evenly]
        sides = ({name: code for name, code in known.items() if not name or reading.allowed(name, sources)}
                 for sources in reading.read(part)[:2])  # fmt: skip
        yield list(patterns(drawn, *sides))

    for tried in fitted():
        limit, first = nearby([pattern.distance for pattern in tried]), None
        near = [pattern for pattern in tried if pattern.distance <= limit]
        for pattern in sorted(near, key=lambda pattern: (pattern.scores.numel(), pattern.distance))[:TRIED]:
            cell = known[pattern.query][0][asked.rows, asked.positions][:, None], known[pattern.key][0][asked.rows]
            weights = asked.attention(given(pattern, asked)[cell])
            if reading.stays(part, with_attention(found, asked, weights, v)) >= enough:
                sides = (("q", pattern.query), ("k", pattern.key))
                exact = reading.strict and pattern.distance < EXACT
                if not exact or all(reads_all(reading, part, side, name) for side, name in sides):
                    return pattern
                first = first or pattern
        if first is not None:
            return first
    return None


def reads_all(reading: Reading, part: Part, side: str, name: str) -> bool:
    """Whether a head's queries ("q") or keys ("k") may read all but what writes a variable at other positions of the
    same kind: the answers stay."""
    running = reading.running
    if not running.paths:
        return True
    written = reading.writers(name) if name else set[str]()
    others = {source: added for source, added in reading.sources(part).items() if source not in written}
    change = {source: reading.kinds.shuffled(added) - added for source, added in others.items()}
    return not change or reading.stays(part, running.head_on(part, side, change)) >= reading.enough()


def with_attention(found: Quantized, asked: Queries, weights: Tensor, v: Tensor) -> Tensor:
    """The head's value with other attention at the queries that matter."""
    new = found.elsewhere.clone()
    if len(asked.rows) <= len(v):  # about one query for each row
        new[asked.rows, asked.positions] = torch.einsum("nk,nkd->nd", weights, v[asked.rows])
        return new
    pattern = weights.new_zeros(*v.shape[:2], v.shape[1])
    pattern[asked.rows, asked.positions] = weights
    new[asked.rows, asked.positions] = (pattern @ v)[asked.rows, asked.positions]
    return new


def add_level(reading: Reading, part: Part, found: Quantized, mean: Tensor, enough: float) -> None:
    """A soft head's value as a code: the nearest of its vectors, by what later parts read."""
    low = reading.low(part)
    seen, centers = (mean @ low).double(), (found.vectors @ low).double()
    weights, bias = 2 * seen @ centers.T, -centers.square().sum(1)
    name = f"{part} level"
    values = tuple(f"level {i}" for i in range(found.size))
    step = Linear(name, (str(part),), (matrix(weights),), tuple(bias.tolist()), values, str(part))
    if reading.stays(part, found.put(reading.code(step))) >= enough:
        reading.add(step)


def nearby(distances: Sequence[float]) -> float:
    """Up to which distance descriptions are tried, cheapest first."""
    best = min(distances)
    return max(10 * best, ROUNDED) if best < EXACT / 10 else max(CLOSE, 1.5 * best)


# ---------------------------------------------------------------- patterns and values


@dataclass(frozen=True, eq=False)
class Pattern:
    """Scores by a query's and a key's value, and how far the pattern is from the model's (mean total variation)."""

    query: str
    key: str
    scores: Float[Tensor, "queries keys"]
    seen: Tensor
    distance: float


@dataclass(frozen=True, eq=False)
class Queries:
    """The queries of a head: where they are, their scores, and the logarithm of how often each key counts.

    total: the scores are the attention, without softmax. times: what the scores are multiplied by.
    """

    rows: Int[Tensor, "queries"]
    positions: Int[Tensor, "queries"]
    scores: Float[Tensor, "queries keys"]
    counts: Float[Tensor, "queries keys"]
    times: Float[Tensor, "queries 1"]
    total: bool = False

    @cached_property
    def pattern(self) -> Float[Tensor, "queries keys"]:
        return self.attention(self.scores)

    def attention(self, scores: Float[Tensor, "queries keys"]) -> Float[Tensor, "queries keys"]:
        """The attention that these scores give."""
        return weights_of(scores * self.times, self.counts, self.total)

    def distance(self, scores: Float[Tensor, "queries keys"]) -> float:
        """How far the attention of other scores is from the head's."""
        return self.far(self.attention(scores))

    def far(self, attention: Float[Tensor, "queries keys"]) -> float:
        """How far other attention is from the head's: half the absolute difference, as a share of all."""
        pattern = self.pattern
        return float((attention - pattern).abs().sum() / pattern.abs().sum().clamp(min=1e-30)) / 2

    def some(self) -> Queries:
        """As many as can be fitted, spread evenly."""
        most = max(50, FITTED // self.scores.shape[1])
        if len(self.rows) <= most:
            return self
        at = torch.randperm(len(self.rows), generator=torch.Generator().manual_seed(0))[:most].sort().values
        return Queries(self.rows[at], self.positions[at], self.scores[at], self.counts[at], self.times[at], self.total)


def patterns(asked: Queries, queries: Codes, keys: Codes) -> Iterator[Pattern]:
    """Fit a table of scores for each pair of a query's and a key's variable; see `coded`."""
    there = asked.counts > -torch.inf
    scores = torch.where(there, asked.scores, 0.0)
    for query, (query_code, n_query) in queries.items():
        q = query_code[asked.rows, asked.positions]
        for key, (key_code, n_key) in keys.items():
            if not key and query and not asked.total:
                continue  # scores that depend on the query alone are even attention, which "" and "" say
            cell = q[:, None] * n_key + key_code[asked.rows]
            tables = _fitted(cell, scores, there, n_query * n_key)[: 1 if asked.total else 2]
            distance, table = min(((asked.distance(table[cell]), table) for table in tables), key=lambda pair: pair[0])
            seen = torch.zeros(n_query * n_key, dtype=torch.bool)
            seen[cell[there]] = True
            shape = (n_query, n_key)
            yield Pattern(query, key, table.reshape(shape), seen.reshape(shape), distance)


def _fitted(cell: Tensor, scores: Tensor, there: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The mean score of each cell, and the same up to a constant for each query (fitted in turn), which a softmax does
    not see."""
    flat, weight = cell.flatten(), there.float()
    mass = torch.zeros(n).index_add_(0, flat, weight.flatten()).clamp(min=1e-30)

    def mean(values: Tensor) -> Tensor:
        return torch.zeros(n).index_add_(0, flat, (values * weight).flatten()) / mass

    first = table = mean(scores)
    for _ in range(ROUNDS):
        shift = ((scores - table[cell]) * weight).sum(-1) / weight.sum(-1).clamp(min=1.0)
        table = mean(scores - shift[:, None])
    return first, table


def uniform(asked: Queries, constant: Codes) -> Pattern | None:
    """Even attention to all, if no key gets much more than another, at any query."""
    apart = spread(asked.scores * asked.times, asked.counts > -torch.inf)
    if asked.total or float(apart.max()) > MOST_UNEVEN:
        return None
    (pattern,) = patterns(asked, constant, constant)
    return pattern if pattern.distance <= SELECTED else None


def hardened(pattern: Pattern) -> Float[Tensor, "queries keys"]:
    """The same selection without grades: for each query value, all keys within MOST_UNEVEN of the best one."""
    scores = pattern.scores.masked_fill(~pattern.seen, -torch.inf)
    best = scores.amax(1, keepdim=True)
    return torch.where((scores >= best - MOST_UNEVEN) & pattern.seen, 0.0, NEVER)


def ordered(pattern: Pattern) -> bool:
    """Whether keys that are not selected differ for some query value, so that the next comes where the first is not."""
    others = pattern.seen & (hardened(pattern) < 0)
    return bool((spread(pattern.scores, others) > ALIKE).any())


def alike(weights: Float[Tensor, "queries keys"], seen: Tensor, n: int) -> Float[Tensor, "queries keys"]:
    """The same weights with all pairs but n at their median; with more than n where some are equal up to rounding."""
    middle = weights[seen].median()
    far = torch.where(seen, (weights - middle).abs(), -1.0)
    same = SAME * min(1.0, float(far.max()))
    kept = far >= far.flatten().sort(descending=True).values[n - 1] - same if n else torch.zeros_like(seen)
    return torch.where(kept & seen, weights, middle)


def soft(pattern: Pattern) -> Float[Tensor, "queries keys"]:
    """The scores with their largest at 0 for each query value, and NEVER where no pair was seen."""
    scores = pattern.scores.masked_fill(~pattern.seen, -torch.inf)
    scores = scores - scores.amax(1, keepdim=True).nan_to_num(neginf=0.0)
    return scores.clamp(min=NEVER).nan_to_num(neginf=NEVER)


def values_by(
    v: Float[Tensor, "rows length d"], weight: Float[Tensor, "rows length"], code: Int[Tensor, "rows length"], n: int,
    low: Float[Tensor, "d r"],
) -> tuple[Float[Tensor, "values d"], float]:  # fmt: skip
    """What a head reads, by the value of a variable, and the share of its variance that this leaves out.

    weight: attention that each position gets. low: the metric of what later parts read.
    """
    flat, w, values = code.flatten(), weight.flatten(), v.flatten(0, 1)
    mass = torch.zeros(n).index_add_(0, flat, w).clamp(min=1e-12)
    mean = torch.zeros(n, v.shape[-1]).index_add_(0, flat, values * w[:, None]) / mass[:, None]
    seen = (values - mean[flat]) @ low
    whole = (values - (values * w[:, None]).sum(0) / w.sum().clamp(min=1e-12)) @ low
    left = float((seen.square().sum(1) * w).sum() / (whole.square().sum(1) * w).sum().clamp(min=1e-20))
    return mean, left


def values_of_shares(
    v: Float[Tensor, "rows length d"], weight: Float[Tensor, "rows length"],
    shares: Float[Tensor, "rows length values"], low: Float[Tensor, "d r"],
) -> tuple[Float[Tensor, "values d"], float]:  # fmt: skip
    """The same for a variable that has several values with shares at one position: a sum of vectors by the shares."""
    w, x, y = weight.flatten().double(), shares.flatten(0, 1).double(), v.flatten(0, 1).double()
    root = w.sqrt()[:, None]
    mean = torch.linalg.lstsq(root * x, root * y, driver="gelsd").solution
    whole = y - (y * w[:, None]).sum(0) / w.sum().clamp(min=1e-12)
    left = ((y - x @ mean) @ low.double()).square().sum(1) @ w / ((whole @ low.double()).square().sum(1) @ w + 1e-20)
    return mean.float(), float(left)
