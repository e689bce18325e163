"""Interchange interventions on the variables of a program, each in all its places.

The variable of a step lives in the part that the step describes, and in the parts that are read as it. Parts of one
layer that hold the same variable (each has the same value on two inputs exactly if the others have) are one variable
where one of them alone is not the model's: a number whose waves several heads carry, for example. Where that is not
enough, it may live in parts that the program does without, too: in stand-ins and copies.

In the program the variable, in the model the output of all its places, is that of another position of another row.
Inputs are drawn apart from those on which the program was made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations
from typing import TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.measures.interchange import FEW, UNDECIDED, Interchange, split
from interp.measures.runs import Part
from interp.models.subject import Subject
from interp.programs.language import TIED, Program, largest, sums_at
from interp.programs.quantize import numbered
from interp.programs.relevance import CONTENT, READ, Kinds
from interp.programs.running import Running
from interp.programs.steps import Evened, Head, Product, Step
from interp.support.cached import cached_method
from interp.tasks import Batch
from interp.tasks.populations import Population, sample

ROWS, POSITIONS = 1_000, 24_000
"""Most base inputs, and most of their positions."""
COUNTED = 2_000
"""The same where equal tokens of a row are held once: such rows cost little, and few change their answer. Parts are
described on as many."""
EVERY = 64
"""Up to this many inputs, each is interchanged with each."""
DRAWN, MORE = 16, 128
"""Sources that are drawn for each base input where few change the program's answer (one that does is run, and one that
does not), and where they give too few cases to tell."""
WIDER, APART = (2, 8), 1_000
"""How many times as many inputs are drawn where these give too few cases, too, and what is added to their seed."""
AS_DRAWN, MANY = 4, 400
"""Sources that are run for each base input as they are drawn, and cases in which the answer changes from which on these
are enough."""
PAIRED = 2**20
"""Most positions of all pairs of inputs that are interchanged instead, where the inputs are all that there are."""
ENOUGH = 100
"""Cases in which the answer changes from which on no other way of pairing positions is tried."""
AT_ONCE = 2**21
"""Most numbers of a variable, or sums, that are held at once."""
MOST_PAIRS = 28
"""Most pairs of variables that are interchanged together."""
SAME = 1e-6
"""Weights that differ by less are one value."""

Donors = Int[Tensor, "*tried rows length"]
"""For each position of each row, row * length + position of the source of its value; of one way, or of several."""


@dataclass(frozen=True)
class Placed:
    """A variable with its places: the steps that make it, and the parts where it lives."""

    steps: tuple[str, ...]
    parts: tuple[str, ...]


Swaps: TypeAlias = Sequence[tuple[Placed, Donors]]
"""Variables that are interchanged at once, each with the sources of its values (of as many ways for all)."""


@dataclass(frozen=True, eq=False)
class FreshInputs:
    """Inputs drawn apart from those on which a program was made, with a model's runs on them, each made once."""

    subject: Subject
    population: Population

    @cached_property
    def all(self) -> Running:
        """All inputs."""
        batch = self.population.batch
        return replace(Running.of(self.subject, batch), outputs=self.subject.logits(batch))

    @cached_method
    def given_by(self, program: Program) -> Int[Tensor, "reads"]:
        """A program's answers to all of them; see Running.given_by."""
        return self.all.given_by(program)

    @cached_property
    def some(self) -> Running:
        """As many as are interchanged, in random order: listed ones are like those beside them."""
        batch = self.population.batch
        most = COUNTED if self.subject.count_space else max(100, min(ROWS, POSITIONS // batch.tokens.shape[1]))

        def drawn() -> Batch:
            order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(1))
            return batch[order[:most]]

        return Running.of(self.subject, self.subject.shared(f"{most} rows", batch, drawn))

    @cached_method
    def more(self, times: int) -> Running | None:
        """This many times as many inputs, drawn apart; all inputs where these are known; None where the caller gave
        them."""
        population = self.population
        if times == 1:
            return self.some
        if population.exact:
            return self.all
        if population.kind != "sample" or population.seed is None:
            return None
        drawn = sample(self.subject.task, times * len(self.some.batch), population.split, population.seed + APART)
        return Running.of(self.subject, drawn.batch)

    @cached_property
    def pairings(self) -> dict[tuple[int, int | None, str], Donors]:
        """Which inputs are interchanged with which, as far as that is known: programs are tried on the same ones."""
        return {}


@dataclass(frozen=True, eq=False)
class Interchanger:
    """A program and a model on the same inputs."""

    fresh: FreshInputs
    program: Program
    copies: Mapping[str, str]
    """Parts that are read as another one, and which."""
    check: Callable[[], None] = lambda: None
    times: int = 1
    """How many times as many inputs these are."""
    most: int = WIDER[-1]
    """How many times as many there may be."""

    @cached_property
    def running(self) -> Running:
        running = self.fresh.more(self.times)
        assert running is not None
        return running

    @property
    def listed(self) -> bool:
        """Whether the inputs are all that there are."""
        return self.fresh.population.exact and len(self.running.batch) == len(self.fresh.population.batch)

    @cached_property
    def wider(self) -> Interchanger | None:
        """The same with more inputs; None where there are no more."""
        times = next((n for n in WIDER if self.times < n <= self.most), None)
        if times is None or self.listed or self.fresh.more(times) is None:
            return None
        return replace(self, times=times)

    # ------------------------------------------------------------ the variables

    @cached_property
    def variables(self) -> tuple[Placed, ...]:
        """The variable of each part, and of those that are read as it."""
        steps: dict[str, list[str]] = {}
        for step in self.program.steps:
            if step.part:
                steps.setdefault(step.part, []).append(step.name)
        return tuple(
            Placed(tuple(names), (part, *(copy for copy, other in self.copies.items() if other == part)))
            for part, names in steps.items()
        )

    def parallel(self, one: Placed, other: Placed) -> bool:
        """Whether two variables are of parts of one kind in one layer, and have the same value on the same inputs; of
        heads that select by the same variables and read the same one, it is enough that one value follows from the
        other."""
        first, second = (self.part(placed.parts[0]) for placed in (one, other))
        if (first.layer, first.head is None) != (second.layer, second.head is None):
            return False
        a, b = self._code(one.steps[0]), self._code(other.steps[0])
        n, m = int(a.max()) + 1, int(b.max()) + 1
        both = len((a * m + b).unique())
        if n == m == both:
            return n > 1
        steps = [self.program.step(placed.steps[0]) for placed in (one, other)]
        reads = {(head.query, head.key, head.value) if isinstance(head, Head) else head.name for head in steps}
        return len(reads) == 1 and min(n, m) > 1 and both == max(n, m)

    @cached_property
    def groups(self) -> list[list[int]]:
        """The numbers of variables that are parallel to the first of them; see `parallel`."""
        groups: list[list[int]] = []
        for n, variable in enumerate(self.variables):
            same = next((group for group in groups if self.parallel(self.variables[group[0]], variable)), None)
            if same is None:
                groups.append([n])
            else:
                same.append(n)
        return groups

    def part(self, name: str) -> Part:
        """A part by its name."""
        return self.running.by_name[name]

    @cached_method
    def _code(self, name: str) -> Int[Tensor, "points"]:
        """A number for each value of a variable, at the positions that are no padding."""
        return numbered((self.made[name][self.running.mask] / SAME).round())

    # ------------------------------------------------------------ the program and the model

    @cached_property
    def made(self) -> dict[str, Tensor]:
        return self.program.run(self.running.batch.tokens, self.running.weights)

    @cached_property
    def own_answers(self) -> Int[Tensor, "reads"]:
        """The program's answers."""
        return self._read(self.sums.argmax(-1))

    @cached_property
    def sums(self) -> Float[Tensor, "reads answers"]:
        """The sums of the program's answer at the reads."""
        return self._sums(self.made)

    def _read(self, answers: Int[Tensor, "*tried reads"]) -> Int[Tensor, "*tried reads"]:
        return self.running.of_words(answers, self.program.answers)

    def _sums(self, made: Mapping[str, Tensor]) -> Float[Tensor, "reads answers"]:
        return sums_at(self.program.answer, dict(made), self.running.reads)

    @cached_property
    def _later(self) -> dict[str, set[str]]:
        """The variables that change with a variable, itself among them."""
        later: dict[str, set[str]] = {}
        for first in self.made:
            later[first] = {first}
            for step in self.program.steps:
                if not later[first].isdisjoint(step.of):
                    later[first].add(step.name)
        return later

    def wanted(self, tried: Swaps) -> Int[Tensor, "tried reads"]:
        """The program's answers with the same variables interchanged in several ways; UNDECIDED where the largest sums
        are equal."""
        moved = {name: donors for placed, donors in tried for name in placed.steps}
        changed = set[str]().union(*(self._later[name] for name in moved))
        alone = not changed - set(moved)  # the answer alone reads them
        read = set(moved) & set(self.program.answer.of)
        ways = len(tried[0][1])
        reads = self.running.reads
        n = max(1, AT_ONCE // max(1, len(reads) * len(self.program.answers))) if alone else 1
        pieces = []
        for at in range(0, ways, n):
            self.check()
            chunk = {name: donors[at : at + n] for name, donors in moved.items()}
            if alone:
                sums = self.sums
                for name in read:
                    adds = self._adds(name)
                    sums = sums - reads.pick(adds) + _moved(adds, chunk[name][:, reads.rows, reads.positions])
            else:
                known = {name: weights for name, weights in self.made.items() if name not in changed}
                known |= {name: _moved(self.made[name], donors[0]) for name, donors in chunk.items()}
                sums = self._sums(self.program.run(self.running.batch.tokens, self.running.weights, known))
            pieces.append(self._read(largest(sums, TIED)).expand(len(next(iter(chunk.values()))), -1))
        return torch.cat(pieces)

    @cached_method
    def _adds(self, name: str) -> Float[Tensor, "rows length answers"]:
        """What a variable adds to the answer's sums, at each position."""
        return self.program.answer.sums(self.made, [name], bias=False)

    def answered(self, swaps: Swaps) -> Int[Tensor, "reads"]:
        """The model's answers with the outputs of all places interchanged."""
        self.check()
        edits = {
            part: _moved(self.running.value(part), donors)
            for placed, donors in swaps
            for part in map(self.part, placed.parts)
        }
        return self.running.decided(self.running.logits_with(edits))

    # ------------------------------------------------------------ pairs of positions

    @cached_property
    def drawn(self) -> tuple[int | None, ...]:
        """How many sources are drawn for each base input, at first and for more cases; None: all that there are."""
        n, length = self.running.batch.tokens.shape
        if not self.listed or n * n * length > PAIRED:
            return DRAWN, MORE
        return (None,) if n <= EVERY else (DRAWN, None)

    def pairings(self, drawn: int | None) -> Iterator[tuple[str, Donors]]:
        """Kinds of pairs, in words, each with the sources that are drawn for all positions; None: all."""
        batch, length = self.running.batch, self.running.batch.tokens.shape[1]
        numbers = torch.arange(len(batch))
        alike = {n: (batch.lengths == n).nonzero()[:, 0] for n in batch.lengths.unique().tolist()}

        def rows() -> Iterator[Int[Tensor, "rows"]]:
            for n in range(drawn or max(map(len, alike.values())) - 1):
                other = numbers.clone()
                for here in alike.values():
                    other[here] = here.roll(1 + n if drawn is None else 1 + n % max(1, len(here) - 1))
                yield other

        ways: dict[str, Iterable[Donors]] = {
            "of one length": (other[:, None] * length + torch.arange(length) for other in rows())
        }
        if len(alike) > 1:
            ways["of any lengths"] = (self._aligned(numbers.roll(n)) for n in range(1, (drawn or len(batch) - 1) + 1))
        ways["at other positions"] = (self._shifted(other, n) for n, other in enumerate(rows(), 1))
        for how, donors in ways.items():
            known, key = self.fresh.pairings, (self.times, drawn, how)
            if key not in known:
                made = partial(_stacked, donors, torch.zeros(0, len(batch), length).long())
                known[key] = self.running.subject.shared(f"{how}, {drawn}", batch, made)
            yield how, known[key]

    def _aligned(self, other: Int[Tensor, "rows"]) -> Donors:
        """Positions from the first on, and the read position with the read position; others keep their own."""
        running, (n, length) = self.running, self.running.batch.tokens.shape
        lengths = running.batch.lengths
        places = torch.arange(length)
        inside = places < torch.minimum(lengths, lengths[other])[:, None]
        donors = torch.where(inside, other[:, None], torch.arange(n)[:, None]) * length + places
        if running.subject.read_at != "all":
            at = running.reads.positions
            donors[torch.arange(n), at] = other * length + at[other]
        return donors

    def _shifted(self, other: Int[Tensor, "rows"], shift: int) -> Donors:
        """Positions of content from the next position of content of a row, in a circle."""
        length = self.running.batch.tokens.shape[1]
        donors = other[:, None] * length + torch.arange(length)
        n, order = self._content
        turned = (torch.arange(length) - 1 - shift % (n - 1).clamp(min=1)[:, None]) % n.clamp(min=1)[:, None]
        rows, places = ((torch.arange(length) < n[:, None]) & ((n == n[other]) & (n > 1))[:, None]).nonzero().T
        sources = other[rows]
        donors[rows, order[rows, places]] = sources * length + order[sources, turned[rows, places]]
        return donors

    @cached_property
    def _content(self) -> tuple[Int[Tensor, "rows"], Int[Tensor, "rows length"]]:
        """How many positions of content each row has, and its places, those of content first."""
        kinds = Kinds(self.running).each
        if self.running.subject.read_at == "all":
            kinds = kinds.where(kinds != READ, CONTENT)
        content = kinds == CONTENT
        return content.sum(1), content.int().argsort(dim=1, descending=True, stable=True)

    # ------------------------------------------------------------ scores

    def score(self, one: Placed) -> Interchange:
        """Interchange one variable, with more inputs where the first ones give too few cases to tell."""
        return self.at_last(one, self.at_first(one))

    def at_first(self, one: Placed) -> Interchange:
        """Interchange one variable, with more sources or all where the first ones give too few cases to tell.

        Where equal tokens are held once, a few sources show which rows change their answer at all: if some do, more
        rows give more cases, and more sources of each do not.
        """
        score = Interchange.none()
        for drawn in self.drawn:
            score = self._score(one, drawn)
            rows_are_better = score.changes.n and self.running.counts is not None and self.wider is not None
            if score.verdict != "too few cases" or rows_are_better:
                break
        return score

    def at_last(self, one: Placed, found: Interchange) -> Interchange:
        """What more inputs say of a variable, where the first ones, of which this was found, give too few cases."""
        wider, n = self.wider, found.changes.n
        if found.verdict != "too few cases" or not n or wider is None:
            return found
        if wider.wider is not None and n * wider.times / self.times < FEW:  # too few there, too
            wider = wider.wider
        return wider.score(one)

    def _score(self, placed: Placed, drawn: int | None) -> Interchange:
        """Interchange one variable: with rows of the same length, and in further ways where answers rarely change."""
        score = Interchange.none()
        for how, donors in self.pairings(drawn):
            now = self._scored([(placed, donors)], how, drawn)
            score = replace(score + now, how=how if now.changes.n else score.how)
            if score.changes.n >= (1 if drawn is None else ENOUGH):
                break
        return score

    def both(self, one: Placed, other: Placed) -> Interchange:
        """Interchange two variables at once, with values from two inputs."""
        how, donors = next(self.pairings(self.drawn[0]))
        return self._scored([(one, donors), (other, donors.roll(-1, 0))], how, self.drawn[0])

    def _scored(self, tried: Swaps, how: str, drawn: int | None) -> Interchange:
        """Every one of these interchanges, which are all (drawn: None); or the first ones as they are drawn; or, where
        these rarely change the program's answer, one for each row that does, and one that does not."""
        score, ways = Interchange.none(), len(tried[0][1])
        if not ways:
            return score
        rows, own, before = self.running.reads.rows, self.own_answers, self.running.answers
        if drawn is None:
            for n, wanted in enumerate(self.wanted(tried)):
                given = self.answered([(placed, donors[n]) for placed, donors in tried])
                score += Interchange.of(given, wanted, own, before, rows, True, how)
            return score
        all_wanted = self.wanted([(placed, donors[:AS_DRAWN]) for placed, donors in tried])
        if drawn == DRAWN and int(split(all_wanted, own, before)[0].sum()) >= ENOUGH:
            return self._as_drawn(tried, all_wanted, how)
        if ways > AS_DRAWN:
            all_wanted = torch.cat([all_wanted, self.wanted([(placed, donors[AS_DRAWN:]) for placed, donors in tried])])
        numbers = torch.arange(len(self.running.batch))
        for fits in split(all_wanted, own, before):
            way, read = fits.nonzero(as_tuple=True)
            if not len(way):
                continue
            # Of each row, the first way that fits one of its reads.
            chosen = torch.full(numbers.shape, ways).scatter_reduce_(0, rows[read], way, "amin") % ways
            here = fits[chosen[rows], torch.arange(len(rows))]
            answers = self.answered([(placed, donors[chosen, numbers]) for placed, donors in tried])
            wanted = all_wanted[chosen[rows], torch.arange(len(rows))]
            score += Interchange.of(answers[here], wanted[here], own[here], before[here], rows[here], how=how)
        return replace(score, undecided=int((all_wanted == UNDECIDED).sum()), tried=all_wanted.numel())

    def _as_drawn(self, tried: Swaps, wanted: Int[Tensor, "tried reads"], how: str) -> Interchange:
        """The first of these interchanges that change MANY of the program's answers, or all. wanted: its answers."""
        own, before = self.own_answers, self.running.answers
        changed = split(wanted, own, before)[0].sum(1).cumsum(0)
        n = min(len(wanted), int((changed < MANY).sum()) + 1)
        answers = torch.cat([self.answered([(placed, donors[way]) for placed, donors in tried]) for way in range(n)])
        rows = self.running.reads.rows.repeat(n)
        return Interchange.of(answers, wanted[:n].flatten(), own.repeat(n), before.repeat(n), rows, how=how)


Scored: TypeAlias = tuple[Placed, Interchange]
"""A variable in its places, and what interchanging it says."""


def interchanged(of: Interchanger, spare: Sequence[str] = (), to_the_first: bool = False) -> list[Scored]:
    """The variables of a program with their interchange intervention accuracies.

    Parallel parts that hold the same variable are one, where one of them alone is not the model's. spare: parts that
    the program does without; a variable that is still not the model's may live in the fewest of them, too, that make it
    so. to_the_first: end at the first variable that is refuted, since the program is not the model's then.
    """
    scores: dict[int, Scored] = {}
    left = list(spare)

    def refuted(n: int, score: Interchange) -> bool:
        """Keep the variable with this number, in other places if it is not the model's where it is."""
        together = [n] if score.shown else next(group for group in of.groups if n in group)
        scored = of.variables[n], score
        if len(together) > 1:
            joined = join([of.variables[other] for other in together])
            scored = joined, of.score(joined)
        if not scored[1].shown and (more := _spread(of, scored[0], left)) is not None:
            scored = more
            left[:] = [part for part in left if part not in more[0].parts]
        scores.update(dict.fromkeys(together, scored))
        return to_the_first and scored[1].verdict == "refuted"

    unsure: dict[int, Interchange] = {}
    for n, variable in enumerate(of.variables):
        if n not in scores and (score := of.at_first(variable)).verdict == "too few cases":
            unsure[n] = score
        elif n not in scores and refuted(n, score):
            unsure = {}
            break
    for n, score in unsure.items():
        if n not in scores and refuted(n, of.at_last(of.variables[n], score)):
            break
    return list(dict.fromkeys(scores[n] for n in sorted(scores)))


def _spread(of: Interchanger, placed: Placed, spare: Sequence[str]) -> Scored | None:
    """A variable that lives in spare parts of its kind, too, in its layer or later; None if this does not make it the
    model's."""
    part = of.part(placed.parts[0])
    more = [name for name in spare if of.part(name).kind == part.kind and of.part(name).layer >= part.layer]
    if not more or not (score := of.score(replace(placed, parts=(*placed.parts, *more)))).shown:
        return None
    for name in more[::-1]:  # a part of a later layer may be another variable's
        fewer = [other for other in more if other != name]
        if fewer and (again := of.score(replace(placed, parts=(*placed.parts, *fewer)))).shown:
            more, score = fewer, again
    return replace(placed, parts=(*placed.parts, *more)), score


def join(variables: Sequence[Placed]) -> Placed:
    """One variable that lives in all places of some."""
    return Placed(
        tuple(name for placed in variables for name in placed.steps),
        tuple(part for placed in variables for part in placed.parts),
    )


def in_pairs(of: Interchanger, variables: Sequence[Placed]) -> list[tuple[Placed, Placed, Interchange]]:
    """The accuracies of each two variables that are interchanged at once, from two inputs."""
    pairs = list(combinations(variables, 2))[:MOST_PAIRS]
    return [(first, second, of.both(first, second)) for first, second in pairs]


def same_partition(one: Int[Tensor, "points"], other: Int[Tensor, "points"]) -> bool:
    """Whether two variables divide points alike, into two classes or more."""
    _, a = one.unique(return_inverse=True)
    _, b = other.unique(return_inverse=True)
    n, m = int(a.max()) + 1, int(b.max()) + 1
    return n == m > 1 and len((a * m + b).unique()) == n


def _stacked(donors: Iterable[Int[Tensor, "rows length"]], none: Int[Tensor, "none rows length"]) -> Donors:
    """All ways of pairing in one tensor."""
    return torch.cat([none, *(one[None] for one in donors)])


def _moved(value: Float[Tensor, "rows length d"], donors: Int[Tensor, "..."]) -> Float[Tensor, "... d"]:
    return value.flatten(0, 1)[donors]


def carried(program: Program) -> Program:
    """The same program, with maps of a head and of its own query as what the head carries.

    How often a position's own token occurs may be known to the head alone, or be read of its output for the token that
    is there: on inputs as they are, both say the same, but not where the output is that of another token's position.
    """
    heads = {step.name: step for step in program.steps if isinstance(step, Head) and step.query}
    steps: list[Step] = []
    carrier: dict[str, str] = {name: step.part for name, step in heads.items()}
    for step in program.steps:
        carrying = next((carrier[name] for name in step.of if name in carrier), "")
        head = next((head for head in heads.values() if head.part == carrying), None)
        known = {name for name, part in carrier.items() if part == carrying}
        maps = isinstance(step, Product | Evened) and not step.part
        if head is not None and maps and set(step.of) <= {head.query, *known}:
            assert isinstance(step, Product | Evened)
            step, carrier[step.name] = replace(step, part=carrying), carrying
        steps.append(step)
    return replace(program, steps=tuple(steps))
