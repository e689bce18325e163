"""What matters: the smallest set of parts whose mean, together with that of all others left out, keeps the answers.

A part is *not used* if it can be replaced by its mean over positions of the same kind, together with all other parts
that are not used, and the model's answers stay; read strictly, also by its values at other positions of the same kind.

Kinds are: where answers are read, if this is not all of the content; each mark (a token such as [BOS] that stands at
the same place in each row); and content.
Means by absolute position would mix kinds where rows differ in length. What correlates with a part that is not used
does not matter.

Where parts stand in for each other, any of them may go, but not all: see `stand_ins`; `backups` stand in for a part
without which a few answers change. Where two of them cancel, neither may go alone, but both may: see `cancelling`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations
from typing import TypeVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.measures.runs import Part
from interp.programs.running import Kept, Running
from interp.support.cached import cached_method

CHANGED = 1e-3
"""Largest share of the answers, and of each frequent answer, that may change without the parts that are not used."""
CONTENT, READ, MARK = 0, 1, 2
"""Kinds of positions; token t, if it is a mark, is of kind MARK + t. Padding is -1."""


@dataclass(frozen=True, eq=False)
class Kinds:
    """The kind of each position of a batch."""

    running: Running

    @cached_property
    def marks(self) -> tuple[int, ...]:
        """Tokens that each row has exactly once, at the same place from the start or from the end."""
        tokens, mask, lengths = self.running.batch.tokens, self.running.mask, self.running.batch.lengths
        rows, marks = torch.arange(len(tokens)), []
        if len(tokens) < 2 or tokens.shape[1] < 2 or self.running.counts is not None:
            return ()
        for place in (torch.zeros_like(lengths), torch.ones_like(lengths), lengths - 1, lengths - 2):
            if int(place.min()) < 0 or bool((place >= lengths).any()):
                continue
            token = int(tokens[0, place[0]])
            if bool((tokens[rows, place] == token).all()) and int(((tokens == token) & mask).sum()) == len(tokens):
                marks.append(token)
        return tuple(sorted(set(marks)))

    @cached_property
    def content(self) -> list[int]:
        """Tokens that occur at positions of content."""
        return self.running.batch.tokens[self.each == CONTENT].unique().tolist()

    @cached_property
    def each(self) -> Int[Tensor, "rows length"]:
        """The kind of each position."""
        tokens = self.running.batch.tokens
        kinds = torch.full_like(tokens, CONTENT)
        for token in self.marks:
            kinds[tokens == token] = MARK + token
        read = self.running.reads.mask(self.running.batch)
        if bool((self.running.mask & (kinds == CONTENT) & ~read).any()):
            kinds[read] = READ
        return kinds.masked_fill(~self.running.mask, -1)

    @cached_property
    def present(self) -> tuple[int, ...]:
        return tuple(kind for kind in self.each.unique().tolist() if kind >= 0)

    def reached(self, part: Part) -> set[int]:
        """The kinds of the positions at which a part may matter: of a last layer, those of the reads."""
        if part.layer < len(self.running.blocks) - 1:
            return {*self.present}
        return {*self.running.reads.pick(self.each).tolist()}

    def mean(self, value: Tensor, kinds: tuple[int, ...] | None = None) -> Tensor:
        """A value with the positions of each kind (default: all) at their mean."""
        new = value.clone()
        for kind in self.present if kinds is None else kinds:
            here = self.each == kind
            new[here] = value[here].mean(0)
        return new

    def shuffled(self, value: Tensor, kinds: tuple[int, ...] | None = None) -> Tensor:
        """A value with the positions of each kind (default: all) in another order."""
        return value.flatten(0, 1)[self._order(self.present if kinds is None else kinds)]

    @cached_method
    def _order(self, kinds: tuple[int, ...]) -> Int[Tensor, "rows length"]:
        """Where the values come from, if the positions of these kinds are in another order."""
        return mixed([self.each == kind for kind in kinds], self.each, torch.Generator().manual_seed(0))

    def exchanged(self, where: Bool[Tensor, "rows length"]) -> Callable[[Tensor], Tensor]:
        """What gives some positions of a value those of others of them, in one order for all values."""
        donors = mixed([where], where, torch.Generator().manual_seed(0))
        return lambda value: value.flatten(0, 1)[donors]

    def foreign(self, value: Tensor, kind: int) -> Tensor:
        """A value with the positions of a kind at values of other kinds' positions, drawn at random."""
        here, others = self.each == kind, (self.each != kind) & (self.each >= 0)
        if not bool(others.any()):
            return value
        new, random = value.clone(), torch.Generator().manual_seed(0)
        new[here] = value[others][torch.randint(int(others.sum()), (int(here.sum()),), generator=random)]
        return new

    @cached_method
    def means(self, part: Part) -> Tensor:
        """The value of a part with the positions of each kind at their mean."""
        return self.mean(self.running.value(part))


def mixed(
    groups: Sequence[Bool[Tensor, "rows length"]], like: Tensor, random: torch.Generator
) -> Int[Tensor, "rows length"]:
    """For each position the place (row * length + position) of its value, if those of each group are in another order.

    like: a tensor of this shape.
    """
    places = torch.arange(like.numel()).reshape(like.shape)
    for group in groups:
        here = group.flatten().nonzero()[:, 0]
        places[group] = here[torch.randperm(len(here), generator=random)]
    return places


Name = TypeVar("Name")


def needed(names: Sequence[Name], kept: Callable[[Sequence[Name]], Kept]) -> list[Name]:
    """Return the names that cannot be left out together; `kept` says what stays without some of them.

    They are left out from the one that matters least alone, as many as can go at once (by bisection); then each of the
    rest is tried again, until none can go.
    """

    def stays(out: Sequence[Name]) -> bool:
        staying = kept(out)
        return staying.share >= 1 - CHANGED and staying.least >= 1 - 5 * CHANGED

    alone = {name: kept([name]).both for name in names}
    order = sorted(names, key=lambda name: -alone[name])
    n = sum(alone[name] >= 1 - 5 * CHANGED for name in order)
    n -= bisect_left(range(n, 0, -1), True, key=lambda n: stays(order[:n]))
    out, again = order[:n], True
    while again:
        again = False
        for name in [name for name in order if name not in out]:
            if stays([*out, name]):
                out, again = [*out, name], True
    return [name for name in names if name not in out]


PAIRS = 8
"""Most pairs of parts that are put at their means for whether they cancel."""


def cancelling(
    running: Running, kinds: Kinds, without: Mapping[Part, float], left: Callable[[Sequence[Part]], float]
) -> list[tuple[Part, Part]]:
    """Return the pairs of parts of one layer that cancel: either alone at its mean changes answers, both change none.

    without: the share of the answers that stays with each part alone at its mean. left: the same of several parts. It
    is asked of at most PAIRS pairs: those whose sum varies least, and less than either of the two. A part is in one
    pair at most.
    """
    added = {part: running.written(part) for part, share in without.items() if share < 1 - 10 * CHANGED}
    varies = {part: (value - kinds.mean(value))[running.mask] for part, value in added.items()}
    rest = {pair: float((varies[pair[0]] + varies[pair[1]]).norm()) / min(float(varies[part].norm()) for part in pair)
            for pair in combinations(varies, 2) if pair[0].layer == pair[1].layer}  # fmt: skip
    pairs: list[tuple[Part, Part]] = []
    for pair in sorted((pair for pair in rest if rest[pair] < 1), key=rest.__getitem__)[:PAIRS]:
        if not set(pair) & set(chain(*pairs)) and left(pair) >= 1 - CHANGED:
            pairs.append(pair)
    return pairs


def used(
    running: Running, kinds: Kinds, check: Callable[[], None], strict: bool = True,
    pairs: Sequence[tuple[Part, Part]] = (),
) -> list[Part]:  # fmt: skip
    """Return the parts that matter, in order of running: with all others at their means, the answers stay.

    pairs: parts that cancel, and so are left out together or not at all. strict: a part matters, too, if it cannot
    carry the values of other positions of the same kind: where a later part decides by the largest of its inputs, the
    mean may stand for the usual value.
    """
    means = {part: kinds.means(part) for part in running.parts}
    others = {part: kinds.shuffled(running.value(part)) for part in running.parts} if strict else means

    def kept(out: Sequence[tuple[Part, ...]]) -> Kept:
        check()
        parts = [*chain(*out)]
        either = (running.kept({part: new[part] for part in parts})
                  for new in ((means, others) if strict else (means,)))  # fmt: skip
        return min(either, key=lambda kept: kept.both)

    single = [(part,) for part in running.parts if part not in chain(*pairs)]
    matter = set(chain(*needed([*single, *pairs], kept)))
    return [part for part in running.parts if part in matter]


def stand_ins(names: Sequence[Name], stays: Callable[[Sequence[Name]], bool]) -> list[list[Name]]:
    """Group names of which each can be left out alone, but not all together; those in no group can.

    stays: whether the answers stay without some names. A group is a smallest one that cannot be left out together, with
    all names that can take the place of one of it in this.
    """
    groups, rest = list[list[Name]](), list(names)
    while not stays(rest):
        least = rest
        for name in rest:
            fewer = [member for member in least if member != name]
            least = least if stays(fewer) else fewer
        pairs = ((name, member) for name in rest if name not in least for member in least)
        alike = {name for name, member in pairs if not stays([name, *(other for other in least if other != member)])}
        groups.append([name for name in rest if name in least or name in alike])
        rest = [name for name in rest if name not in groups[-1]]
    return groups


BACKED, MOST_ALONE = 0.01, 0.1
"""Answers that must change with a part and its backups at their means, beyond those that change without the backups and
twice those that change without the part alone, as a share of all; and most of those that change without it alone."""


def backups(name: Name, others: Sequence[Name], left: Callable[..., float]) -> list[Name]:
    """Return the names, of which each can be left out alone, that stand in for one without which few answers change:
    all with which many more change; or, if it takes several of them, the fewest that do.

    left: the share of the answers that stays without the names that it is given.
    """
    lost = 1 - left(name)

    def stands_in(out: Sequence[Name]) -> bool:
        return left(*out) - left(name, *out) > 2 * lost + BACKED

    if lost > MOST_ALONE:
        return []
    if each := [other for other in others if stands_in([other])]:
        return each
    fewest = list(others)
    if not stands_in(fewest):
        return []
    for other in others:
        fewer = [one for one in fewest if one != other]
        fewest = fewer if stands_in(fewer) else fewest
    return fewest
