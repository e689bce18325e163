"""explain: from weights to a program that a person reads, and how far it is true."""

from __future__ import annotations

import time
from dataclasses import replace

from interp import words
from interp.errors import InterpError, UnsupportedError
from interp.explanations.explanation import Explanation
from interp.explanations.findings import Agreement, PartRole
from interp.explanations.inputs import to_search, to_test, widened
from interp.explanations.machines import by_automaton, whole_table
from interp.explanations.parts import Role, Roles, roles
from interp.explanations.program import Program
from interp.explanations.search import Data, Scored, declared, nearest, search
from interp.measures.subject import Subject
from interp.measures.waves import waves
from interp.mechanisms.bench import Bench, Clock, OutOfTime
from interp.populations import Asked, Population, choose, sample, wilson

SHARE = 0.99
"""Of the model's answers, so many must stay."""
SECONDS = 300.0
LEARNED = 0.5
"""A model is worth explaining when it does at least half of what its task asks beyond one answer for everything."""
NEAR = 0.9
"""A rule that gives fewer of the answers is not named."""
MOST = 5_000
"""Inputs of a sample."""
JUDGED = 500
"""Inputs from the task's own distribution that say whether a model does its task."""
JUDGED_RULES = 10
"""Rules that are judged on the whole population, the cheapest first."""
TENTH = 10
"""A program has at most a tenth as many constants as the model has parameters."""
LEAST = 12
"""Constants that every program may have, however small its model."""
SEARCH, PLACED = 0.6, 0.9
"""The share of the seconds after which the search for a program ends, and that for its place in the model; the rest is
for the runs that judge both."""


def explain_subject(subject: Subject, name: str, seconds: float = SECONDS, share: float = SHARE) -> Explanation:
    """The explanation of a model under study; see interp.explain."""
    started = time.monotonic()
    clock = Clock(started + SEARCH * seconds)
    population = inputs_of(subject, seconds)
    bench = Bench(subject, population, clock=clock)
    n_parameters = sum(parameter.numel() for parameter in subject.model.parameters())
    empty = Explanation(name, subject.task.name, n_parameters, 0.0)

    def ended(found: Explanation) -> Explanation:
        return replace(found, seconds=round(time.monotonic() - started, 1))

    if (reason := not_learned(Bench(subject, sample(subject.task, JUDGED)))) is not None:
        return ended(replace(empty, reason=reason))
    wider = widened(population, subject)
    wide = bench if wider is population else replace(bench, population=wider)
    most = max(LEAST, n_parameters // TENTH)
    try:
        program, agreement, reason = find(bench, wide, share, most)
    except OutOfTime:
        return ended(replace(empty, reason=f"the search for a rule did not end in {SEARCH * seconds:.0f} seconds"))
    except UnsupportedError as error:
        return ended(replace(empty, reason=str(error)))
    if program is None:
        return ended(replace(empty, reason=reason))
    clock.until = started + PLACED * seconds
    try:
        found = replace(empty, program=program, agreement=agreement, notes=notes(bench, program))
        return ended(placed(found, wide, program, share))
    except OutOfTime:
        return ended(replace(empty, program=program, agreement=agreement, complete=False))


def notes(bench: Bench, program: Program) -> tuple[str, ...]:
    """What else is known of such a program: of a sum modulo p, the waves that its logits are made of."""
    of = program.rule.quantities
    modular = (
        program.rule.form == "number" and of[0].kind == "sum modulo" and of[0].arguments[0] == bench.logits.shape[1]
    )
    if not modular:
        return ()
    try:
        found = waves(bench.logits, bench.where.classes)
    except InterpError:  # some sum is missing in a sample
        return ()
    return (f"{found} Measured {bench.population.on}.",) if found.kept >= SHARE else ()


def placed(found: Explanation, wide: Bench, program: Program, share: float) -> Explanation:
    """An explanation with what became of each part of the model."""
    small = to_test(wide)
    if small is None:
        return replace(found, complete=False)
    used = program.rule.quantities
    inner = [part for one in used for part in one.inner]
    small = replace(small, hints=tuple(dict.fromkeys([*used, *inner, *declared(small)])))
    made = roles(small, share)
    return replace(
        found, parts=tuple(map(part_role, made.roles)), cut=made.cut.share, joint=made.joint.share,
        empty=made.empty.share, recovered=recovered(small, made), tested_on=on(small), complete=made.complete,
    )  # fmt: skip


def inputs_of(subject: Subject, seconds: float) -> Population:
    """All inputs, where running them takes an eighth of the time at most; else a sample that takes much less, since it
    is widened and run again."""
    whole, few = Asked(seconds=seconds / 8), Asked(seconds=seconds / 24)
    found = choose(subject.task, lambda batch: subject.logits(batch), whole, fixed=False, most=MOST)
    if found.exact:
        return found
    return choose(subject.task, lambda batch: subject.logits(batch), few, fixed=False, exact=False, most=MOST)


def find(bench: Bench, wide: Bench, share: float, most: int) -> tuple[Program | None, Agreement | None, str]:
    """The cheapest program that gives the model's answers, and how many; or None and why.

    Rules are searched on a part of the inputs, or on more than the task's own; what counts is the population.
    """
    data = Data.of(to_search(wide))
    good, in_time = within_half(bench.clock, data, share, most)
    tried: list[tuple[Program, Agreement]] = []
    for scored in [*good, by_automaton(bench, wide, share, most) if not good else None, whole_table(bench, share)]:
        if scored is None:
            continue
        program = Program(scored.rule)
        tried.append((program, agreement := judged(bench, program)))
        if agreement.share >= share:
            return program, agreement, ""
    if tried:
        program, agreement = max(tried, key=lambda pair: pair[1].share)
        return None, None, f'the best program, "{program.words}", gives {agreement}'
    reason = (
        f"no rule over up to three of the quantities tried gives {share:.0%} of the model's answers "
        f"{bench.population.on} with at most a tenth as many constants as the model has "
        f"parameters{closest(nearest(data, most))}"
    )
    return None, None, reason if in_time else "the search for a rule did not end in time"


def within_half(clock: Clock, data: Data, share: float, most: int) -> tuple[list[Scored], bool]:
    """The rules that half of the time that is left finds, and whether it was enough."""
    try:
        hurried = replace(data, clock=Clock(time.monotonic() + clock.left / 2))
        return search(hurried, share, most)[:JUDGED_RULES], True
    except OutOfTime:
        return [], False


def not_learned(bench: Bench) -> str | None:
    """Why a model is not worth explaining: it does not do its task. Or None."""
    answers, right = bench.answers, float(bench.right.double().mean())
    if len(answers.unique()) == 1:
        return f"the model answers {bench.setting.answers[int(answers[0])]} to every input {bench.population.on}"
    classes = bench.where.classes
    base = float(classes.bincount().max()) / len(classes)
    if right < base + LEARNED * (1 - base):
        return (
            f"the model has not learned its task: it is right on {words.share(right)} {bench.population.on}, and "
            f"always giving the same answer is right on {words.share(base)}"
        )
    return None


# ---------------------------------------------------------------- the program


def closest(scored: Scored | None) -> str:
    """What the best rule comes to that was not good enough."""
    if scored is None or scored.share < NEAR:
        return ""
    return f'; the closest rule, "{Program(scored.rule).words}", gives {words.share(scored.share)}'


def judged(bench: Bench, program: Program) -> Agreement:
    """How many of the model's answers a program gives on a population."""
    given = program.answers(bench.view, bench.where.rows, bench.where.positions)
    kept = bench.agreement(given == bench.answers)
    low, high = (kept.share, kept.share) if bench.population.exact else wilson(kept.share, bench.population.n)
    return Agreement(
        kept.n, kept.changed, kept.share, low, high, None if kept.right != kept.right else kept.right,
        None if kept.wrong != kept.wrong else kept.wrong, bench.population.on,
    )  # fmt: skip


# ---------------------------------------------------------------- what is told of parts


def on(bench: Bench) -> str:
    """The inputs on the bench, in words."""
    lengths = bench.population.batch.lengths
    low, high = int(lengths.min()), int(lengths.max())
    split = f" (split {bench.population.split})" if bench.population.split else ""
    tokens = words.counted(low, "token") if low == high else f"{low} to {high} tokens"
    return f"{words.counted(bench.population.n, 'input')} of {tokens}{split}"


def part_role(role: Role) -> PartRole:
    """A role in words and plain numbers."""
    looks, inside, carries = role.looks, role.inside, role.carries
    return PartRole(
        str(role.part), role.status,
        None if looks is None else looks.proposal.words, None if looks is None else looks.kept.share,
        None if inside is None else inside.proposal.words, None if inside is None else inside.kept.share,
        None if carries is None else carries.proposal.words, None if carries is None else carries.kept.share,
        () if carries is None else tuple(map(tuple, carries.proposal.facts["quantities"])),
    )  # fmt: skip


def recovered(bench: Bench, made: Roles) -> float | None:
    """The share of the loss between all parts at their mean and the model that the replaced model recovers."""
    whole = bench.compare(bench.logits).loss
    gap = made.empty.loss - whole
    if not gap > 1e-9:
        return None
    return (made.empty.loss - made.joint.loss) / gap
