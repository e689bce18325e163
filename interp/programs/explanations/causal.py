"""Whether a program is the model's: its answers, its variables under interchange, and what its parts read besides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from interp.measures.interchange import LOWEST, Interchange
from interp.measures.runs import Part
from interp.programs.decompile import revise, sketch, smaller
from interp.programs.explanations.findings import (
    AT_ITS_MEANS,
    AT_ONCE,
    OUT,
    READOUT,
    USED,
    Agreement,
    PairRole,
    PartRole,
    ReadsLess,
    ReadsMore,
    VariableRole,
)
from interp.programs.interchange import FreshInputs, Interchanger, Placed, Scored, carried, in_pairs, interchanged
from interp.programs.language import Program
from interp.programs.minimal import NEXT_TO_NONE, inputs, writers
from interp.programs.quantize import SHARE_KEPT_BY_VALUES
from interp.programs.read_heads import finds_none, only_from
from interp.programs.readers import runs_before
from interp.programs.reading import Reading
from interp.programs.relevance import CHANGED
from interp.programs.steps import Head, Step
from interp.programs.variable_words import said
from interp.programs.words import parts_words, step_words

SHARE = 0.99
"""Share of the model's answers, and of each frequent answer, that a program must give."""
LOSS = 0.005
"""Most answers, as a share, that a program loses with inputs that the model does without; see may_lose."""
RULES = 16
"""Version of what a model must show to be explained, and of how it is measured: in a comparison, rows by an earlier one
are explained anew."""


@dataclass(frozen=True)
class Judged:
    """A program, and whether the model computes as it does."""

    program: Program
    agreement: Agreement
    roles: dict[Part, PartRole]
    variables: tuple[VariableRole, ...]
    pairs: tuple[PairRole, ...]
    more: tuple[ReadsMore, ...]
    rest: float | None = None
    """The share of answers that stay if all that the program leaves out is from another input."""

    @property
    def shown(self) -> bool:
        """Whether the model computes with all of its variables as the program does, and no part reads more."""
        return all(role.interchange.shown for role in self.variables) and not self.more


def least(
    reading: Reading, program: Program, agreement: Agreement, fresh: FreshInputs, to_the_first: bool = False
) -> Judged:
    """The program without the inputs that have no effect, and what interchanges say of it.

    An input stays if the program loses more answers without it than it `may_lose`. If the model computes as the whole
    program does, but not as the smaller one, an input also stays if the model does not compute as the program without
    it. to_the_first: see `judge`.
    """
    loss = may_lose(program, agreement)

    def as_many(candidate: Program) -> bool:
        again = agrees(candidate, fresh)
        enough = loss == 0 or min(again.share, again.least) >= SHARE
        return enough and again.share >= agreement.share - loss and again.least >= agreement.least - loss

    less = smaller(reading, program, as_many, loss)
    judged = judge(reading, less, fresh, to_the_first)
    if judged.shown or less == program or not judge(reading, program, fresh, to_the_first=True).shown:
        revise(reading, less)
        return judged

    def is_shown(candidate: Program) -> bool:
        return as_many(candidate) and judge(reading, candidate, fresh, to_the_first=True).shown

    return judge(reading, smaller(reading, program, is_shown, loss), fresh)


def may_lose(program: Program, agreement: Agreement) -> float:
    """The share of the answers that a program may lose when it is freed of inputs that decide next to none of them.

    A program that gives all answers may lose none, unless it holds fitted sums: these may need one more input for a
    single answer in ten thousand.
    """
    return LOSS if agreement.share < 1 or program.fitted else 0.0


def judge(reading: Reading, program: Program, fresh: FreshInputs, to_the_first: bool = False) -> Judged:
    """What interchanges say of a program; the descriptions of parts are its steps from here on.

    to_the_first: no more is tried after a variable that is refuted.
    """
    revise(reading, program)
    roles = {part: part_role(reading, program, part, alone=True) for part in reading.running.parts}
    agreement = agrees(program, fresh)

    def judged(copies: Mapping[str, str]) -> Judged:
        taken, variables, pairs = causal(reading, program, fresh, roles, copies, to_the_first)
        held = {part: placed(role, variables) for part, role in roles.items()}
        if to_the_first and any_refuted(variables):
            return Judged(taken, agreement, held, variables, pairs, ())
        more = reads_more(reading, taken, held, variables)
        rest, at_once = (None, ()) if more else reads_at_once(reading, taken, held, variables)
        return Judged(taken, agreement, held, variables, pairs, more or at_once, rest)

    described = {step.part for step in program.steps}
    copies = {part: other for part, other in reading.alike.items() if part not in described and other in described}
    best = judged(copies)
    while (best.more or unread(at_means(reading, best.roles))) and (
        further := carriers(reading, best)
    ).keys() - copies.keys():
        copies = {**copies, **further}
        again = judged(copies)
        if not all(role.interchange.shown for role in again.variables):
            break
        best = again
    return replace(best, roles=at_means(reading, best.roles))


def carriers(reading: Reading, judged: Judged) -> dict[str, str]:
    """Further places of the program's variables, each with the first place of its variable.

    They are looked for where a part, or the readout, reads more than the program says, or where a part matters that the
    program does without. A further place is a part that the program does without, and that stands in for a place of the
    variable, or reads nothing but the variable, so that what it writes follows from it. Those are taken that matter,
    and as few others as are needed, so that nothing more is read.
    """
    tried, parts = reading.tried, reading.running.by_name

    def enough_at_once(carrying: Mapping[str, str]) -> bool:
        variables = [lives_in(role, carrying) for role in judged.variables]
        return (reads_at_once(reading, judged.program, judged.roles, variables)[0] or 0.0) >= LOWEST

    known = holders(reading, judged)
    matter = [str(part) for part in unread(at_means(reading, judged.roles))]
    carrying = {name: known[name] for name in matter if name in known}
    more = {reads.reader for reads in judged.more}
    for reader, ((read, sides), *_) in reads_of_parts(judged.program, judged.roles, judged.variables).items():
        least = [*known]
        part = parts.get(reader)
        if reader in more and tried.stay_without(part, {*read, *least}, sides) >= SHARE:
            for name in known:
                rest = [other for other in least if other != name]
                if tried.stay_without(part, {*read, *rest}, sides) >= SHARE:
                    least = rest
            carrying |= {name: known[name] for name in least}
    if AT_ONCE in more and enough_at_once(known):
        for name in [*known]:
            if enough_at_once(fewer := {other: place for other, place in known.items() if other != name}):
                known = fewer
        carrying |= known
    return carrying


def lives_in(role: VariableRole, carrying: Mapping[str, str]) -> VariableRole:
    """The variable in further places, too; carrying: these, each with the first place of its variable."""
    further = [name for name, place in carrying.items() if place == role.places[0] and name not in role.places]
    return replace(role, places=(*role.places, *further))


def holders(reading: Reading, judged: Judged) -> dict[str, str]:
    """The parts that may be further places of a variable, and the first place of that variable; see carriers."""
    spare = [part for part, role in judged.roles.items() if role.status in ("not read", *OUT)]
    parts = reading.running.by_name
    groups = [set(map(str, group)) for group in reading.groups]
    found: dict[str, str] = {}
    for role in judged.variables:
        alike = set[str]().union(*(group for group in groups if group & {*role.places}))
        for part in spare:
            later = all(runs_before(parts[place], part) for place in role.places)
            if str(part) in alike or (later and reading.tried.stay_without(part, role.places, "qkv") >= SHARE):
                found.setdefault(str(part), role.places[0])
    return {name: place for name, place in found.items() if not any(name in role.places for role in judged.variables)}


def reads_more(
    reading: Reading, program: Program, roles: Mapping[Part, PartRole], variables: Sequence[VariableRole]
) -> tuple[ReadsMore, ...]:
    """The parts, and the readout, that read more than the program says: with the rest from another row, answers change.

    What carries a variable that is read, such as a copy, does not count, unless the program has a step for it.
    """
    more, tried = [], reading.tried
    for reader, ways in reads_of_parts(program, roles, variables).items():
        part = reading.running.by_name.get(reader)
        left, (read, sides) = next(
            ((left, way) for way in ways if (left := tried.stay_without(part, *way)) < SHARE), (1.0, ways[0])
        )
        if left < SHARE:
            every = tried.sources(part)
            alone = {name: tried.stay_without(part, {*every} - {name}, sides) for name in every if name not in read}
            most = min(alone, key=lambda name: alone[name])
            more.append(ReadsMore(reader, left, most, alone[most], "" if (read, sides) == ways[0] else sides))
    return tuple(more)


def reads_at_once(
    reading: Reading, program: Program, roles: Mapping[Part, PartRole], variables: Sequence[VariableRole]
) -> tuple[float | None, tuple[ReadsMore, ...]]:
    """The share of answers that stay if all parts and the readout take all but what the program says from another row,
    at once; and what changes most of them, where too few stay. None if that cannot be tried.

    What one part reads besides may change no answer where another one has the same from its own place. Further places
    of a variable read what its first place reads, and the earlier places.
    """
    tried, parts = reading.tried, reading.running.by_name
    reads: dict[Part | None, tuple[set[str], str]] = {
        parts.get(reader): way for reader, (way, *_) in reads_of_parts(program, roles, variables).items()
    }
    if not reading.running.paths or None not in reads:  # paths are no sum, or the answer is a constant
        return None, ()
    for part, role in roles.items():
        places = next((held.places for held in variables if role.part in held.places), (role.like,))
        if part not in reads and places != ("",):
            said = {*places}.union(*(reads[parts[place]][0] for place in places if parts[place] in reads))
            reads[part] = said, "" if part.head is None else "qkv"
    rest = tried.stay_together(reads)
    if rest >= LOWEST:
        return rest, ()
    every = tried.sources(None)
    alone = {
        name: tried.stay_together({part: (said | {*every} - {name}, sides) for part, (said, sides) in reads.items()})
        for name in every
    }
    most = min(alone, key=lambda name: alone[name])
    return rest, (ReadsMore(AT_ONCE, rest, most, alone[most]),)


def reads_of_parts(
    program: Program, roles: Mapping[Part, PartRole], variables: Sequence[VariableRole]
) -> dict[str, list[tuple[set[str], str]]]:
    """What each part, and the readout, reads by the program, and what else carries that; and on which sides of a head
    ("" for others). Of a head first on all sides at once, then on each: a side may read what only another one is said
    to read."""
    described = {step.part for step in program.steps}
    alike = ({str(part), role.like} for part, role in roles.items() if role.like)
    together = [*(set(role.places) for role in variables), *alike]
    reads: dict[str, list[tuple[set[str], str]]] = {}
    for reader, step in readers(program):
        each: dict[str, set[str]] = {}
        for way, name in inputs(step):
            each.setdefault(way[0], set()).update(writers(program, name, reader) or [name])
        sides = "" if not isinstance(step, Head) else "v" if step.evened else "qkv"
        (known, _), *_ = reads.get(reader, [(set[str](), "")])
        found = [(known.union(*each.values()), sides)]
        found += [(each.get(side, set()), side) for side in sides] if len(sides) > 1 else []
        for read, _ in found:
            read |= {name for places in together if places & read for name in places - described}
        reads[reader] = found
    return reads


def readers(program: Program) -> list[tuple[str, Step]]:
    """The steps that read from the model's stream, each with its part. A step that is computed from variables is not
    one of them: a later step reads it, or it is part of what the head itself carries."""
    kept = [(step.part, step) for step in program.steps if step.part.startswith("MLP") or isinstance(step, Head)]
    return [*kept, (READOUT, program.answer)] if program.answer.of else kept


def reads_less(reading: Reading, program: Program, variables: Sequence[VariableRole] = ()) -> tuple[ReadsLess, ...]:
    """The inputs that the program reads, although next to none of the model's answers change if one of them is taken
    from elsewhere: from all places of its variable, and by all heads that are places of the variable that reads it."""
    tried, less, parts = reading.tried, list[ReadsLess](), reading.running.by_name
    together = [*(held.places for held in variables), *([copy, other] for copy, other in reading.alike.items())]

    def stays(part: Part | None, way: str, sources: Sequence[str]) -> float | None:
        """The share of answers that stay; None if it is not next to all."""
        known = tried.sources(part)
        carried = {name for places in together if {*places} & {*sources} for name in places if name in known}
        copies = {name for places in together if str(part) in places for name in places if name != str(part)}
        others = [parts[name] for name in sorted(copies) if part is not None and parts[name].head is not None]
        left = 1.0
        for share in tried.stay_with(part, way, [*sources, *sorted(carried - {*sources})], others=others):
            if (left := min(left, share)) < 1 - NEXT_TO_NONE:
                return None
        return left

    for reader, step in readers(program):
        part = reading.running.by_name.get(reader)
        for way, name in inputs(step):
            sources = [source for source in writers(program, name, reader) or [name] if source in tried.sources(part)]
            each = [[source] for source in sources] if len(sources) > 1 else []
            for group in ([sources], each):  # where they matter together, each alone
                left = {tuple(some): stays(part, way, some) for some in group}
                idle = [ReadsLess(reader, way, some, share) for some, share in left.items() if share is not None]
                less += idle
                if idle:
                    break
    return tuple(less)


def agrees(program: Program, fresh: FreshInputs) -> Agreement:
    """How often a program gives a model's answers."""
    return Agreement.of(fresh.given_by(program), fresh.all.answers, fresh.population)


def causal(
    reading: Reading, program: Program, fresh: FreshInputs, roles: Mapping[Part, PartRole], copies: Mapping[str, str],
    to_the_first: bool,
) -> tuple[Program, tuple[VariableRole, ...], tuple[PairRole, ...]]:  # fmt: skip
    """Whether the model computes with the variables of a program: each is interchanged alone, and each two at once.
    copies: parts in which a variable lives, too, each with one that the program describes.

    Where it does not, the program is taken whose heads carry what is read of them (see interchange.carried), if the
    model computes with its variables.
    """
    spare = [str(part) for part, role in roles.items() if role.status in ("not read", *OUT)]

    def scored(tried: Program, to_the_first: bool) -> tuple[Interchanger, list[Scored]]:
        of = Interchanger(fresh, tried, copies, reading.check)
        return of, interchanged(of, spare, to_the_first)

    of, tested = scored(program, to_the_first)
    if not all(score.shown for _, score in tested) and (other := carried(program)) != program:
        again = scored(other, True)
        if all(score.shown for _, score in again[1]):
            program, (of, tested) = other, again
    named = {places: variable(program, places, score) for places, score in tested}
    pairs = [] if to_the_first and any_refuted([*named.values()]) else in_pairs(of, [*named])
    both = (PairRole((named[first].name, named[second].name), score) for first, second, score in pairs)
    return program, tuple(named.values()), tuple(both)


def any_refuted(variables: Sequence[VariableRole]) -> bool:
    """Whether the model does not compute with one of these variables as the program does."""
    return any(role.interchange.verdict == "refuted" for role in variables)


def unread(roles: Mapping[Part, PartRole]) -> list[Part]:
    """The parts that matter, but that the program does without."""
    return [part for part, role in roles.items() if role.status == "not read"]


def at_means(reading: Reading, roles: dict[Part, PartRole]) -> dict[Part, PartRole]:
    """The roles; parts that the program does without are explained if little but their means by position matters: the
    answers stay with these means, and with the values that they have at the same position of another row.

    They are tried together, where all rows have one length: a position is then the same place in each row.
    """
    parts = unread(roles)
    if not parts:
        return roles
    running = reading.running.original
    if running.counts is not None or len(running.batch.lengths.unique()) > 1:
        return roles
    values = {part: running.value(part) for part in parts}
    kept = running.kept({part: value.mean(0, keepdim=True).expand_as(value) for part, value in values.items()}).share
    others = (rows for rows, _ in reading.tried.other_rows)
    swapped = ({part: value.flatten(0, 1)[rows] for part, value in values.items()} for rows in others)
    if kept < SHARE or any(running.kept(new).share < SHARE for new in swapped):
        return roles
    mean: dict[str, Any] = {
        "status": "explained",
        "does": AT_ITS_MEANS,
        "brief": AT_ITS_MEANS,
        "kept": kept,
        "elsewhere": None,
        "finds_none": None,
        "only_from": None,
    }
    return roles | {part: replace(roles[part], **mean) for part in parts}


def placed(role: PartRole, variables: Sequence[VariableRole]) -> PartRole:
    """The role of a part that the program does without, but in which one of its variables lives, too: a description of
    its own was not tested in a program."""
    if role.status not in ("not read", *OUT):
        return role
    held = next((held for held in variables if role.part in held.places), None)
    if held is None:
        return role
    status, like = "stands in" if role.status == "not used" else "explained", held.places[0]
    does = f"carries what {like} does, too"
    return replace(
        role, status=status, like=like, does=does, brief=does, elsewhere=None, finds_none=None, only_from=None
    )


def variable(program: Program, one: Placed, score: Interchange) -> VariableRole:
    """A variable in words."""
    step = program.step(one.steps[0])
    known = program.words.get(step.name)
    name = said(program, step.name) if known and len(one.steps) == 1 else f"the value of {parts_words(one.parts)}"
    steps = [program.step(name) for name in one.steps if not name.endswith(" level")]
    steps = steps if len({step.part for step in steps}) == 1 else steps[:1]
    does = ", and ".join(step_words(program, step, brief=True) for step in steps)
    return VariableRole(name, one.parts, does, score)


def part_role(reading: Reading, program: Program | None, part: Part, alone: bool) -> PartRole:
    """What was found about a part, in words. alone: whether the program explains the model by itself."""
    role = reading.roles[part]
    status = role.status
    like, read = "", {step.part for step in program.steps} if alone and program is not None else {role.part}
    if status in USED and role.part not in read:
        like = reading.alike.get(role.part, "")
        like = like if like in read else ""
        status = status if like else "not used" if reading.without[part] >= 1 - CHANGED else "not read"
    if status == "minor" and reading.without[part] < SHARE_KEPT_BY_VALUES:  # one value does, but not its mean
        status = "not read" if alone else "kept"
    if status in OUT and any(part in group for group in reading.groups):
        status = "stands in"
    step = reading.step(role.part)
    does = brief = ""
    if step is not None and role.status == "explained":
        drawn = sketch(reading, program)
        does, brief = step_words(drawn, step), step_words(drawn, step, brief=True)
    makes = "" if program is None else program.words.get(role.part, program.words.get(f"{role.part} level", ""))
    without, moved, elsewhere = reading.without[part], reading.moved.get(part), reading.elsewhere.get(part)
    alike = reading.read_as(like) if like else None
    note = f"the program reads {like} in its place" if like else role.note
    if status == "not used" and moved is None and (share := reading.left_when_moved(part)) < 1 - CHANGED:
        moved = share
    if status == "not used" and moved is not None:
        where = "its values at" if moved < 1 - CHANGED else "the values of this and of other parts at"
        note = note or f"with {where} other positions, answers change"
    none = None if elsewhere is None else finds_none(reading, part) or None
    places = None if elsewhere is None else only_from(reading, part)
    return PartRole(
        role.part, status, does, brief, makes, without, moved, role.kept, note, elsewhere, like, alike, none, places
    )
