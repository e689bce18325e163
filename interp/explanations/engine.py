"""explain: find a readable program that gives a model's answers, and measure how often they agree."""

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
"""Share of the model's answers that a replacement must keep."""
SECONDS = 300.0
LEARNED = 0.5
"""A model is explained only if its accuracy is at least this far from that of a constant answer (0) to perfect (1)."""
NEAR = 0.9
"""Smallest share of the answers for which the closest rule is named if no rule is good enough."""
MOST = 5_000
"""Number of inputs in a sample."""
JUDGED = 500
"""Number of inputs from the task's own distribution for deciding whether a model has learned its task."""
JUDGED_RULES = 10
"""Largest number of rules that are judged on the whole population, cheapest first."""
TENTH = 10
"""A program may have one constant per this many parameters of the model."""
LEAST = 12
"""Number of constants that any program may have, however small the model."""
SEARCH, PLACED = 0.6, 0.9
"""Shares of the time limit at which the search for a program and the search for parts end. The rest is for tests."""


def explain_subject(subject: Subject, name: str, seconds: float = SECONDS, share: float = SHARE) -> Explanation:
    """Explain a model under study; see interp.explain."""
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
    """Return further facts about a program. For a sum modulo p: the waves that make up the logits."""
    of = program.rule.quantities
    modular = (
        program.rule.form == "number" and of[0].kind == "sum modulo" and of[0].arguments[0] == bench.logits.shape[1]
    )
    if not modular:
        return ()
    try:
        found = waves(bench.logits, bench.where.classes)
    except InterpError:  # the sample lacks some of the sums
        return ()
    return (f"{found} Measured {bench.population.on}.",) if found.kept >= SHARE else ()


def placed(found: Explanation, wide: Bench, program: Program, share: float) -> Explanation:
    """Return the explanation together with the result for each part of the model."""
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
    """Return all inputs if running them takes at most an eighth of the time, otherwise a sample.

    Running the sample takes a twenty-fourth of the time at most, because it is widened and run again.
    """
    whole, few = Asked(seconds=seconds / 8), Asked(seconds=seconds / 24)
    found = choose(subject.task, lambda batch: subject.logits(batch), whole, fixed=False, most=MOST)
    if found.exact:
        return found
    return choose(subject.task, lambda batch: subject.logits(batch), few, fixed=False, exact=False, most=MOST)


def find(bench: Bench, wide: Bench, share: float, most: int) -> tuple[Program | None, Agreement | None, str]:
    """Return the cheapest program that gives the model's answers, with its agreement; or None and the reason.

    Rules are searched on widened or reduced inputs (`wide`, to_search), but judged on the population of `bench`.
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
    """Search for rules in half of the remaining time; also return whether the search finished."""
    try:
        hurried = replace(data, clock=Clock(time.monotonic() + clock.left / 2))
        return search(hurried, share, most)[:JUDGED_RULES], True
    except OutOfTime:
        return [], False


def not_learned(bench: Bench) -> str | None:
    """Return why a model is not worth explaining (it has not learned its task), or None."""
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
    """Describe the best rule, which was not good enough."""
    if scored is None or scored.share < NEAR:
        return ""
    return f'; the closest rule, "{Program(scored.rule).words}", gives {words.share(scored.share)}'


def judged(bench: Bench, program: Program) -> Agreement:
    """Measure how many of the model's answers a program gives on a population."""
    given = program.answers(bench.view, bench.where.rows, bench.where.positions)
    kept = bench.agreement(given == bench.answers)
    low, high = (kept.share, kept.share) if bench.population.exact else wilson(kept.share, bench.population.n)
    return Agreement(
        kept.n, kept.changed, kept.share, low, high, None if kept.right != kept.right else kept.right,
        None if kept.wrong != kept.wrong else kept.wrong, bench.population.on,
    )  # fmt: skip


# ---------------------------------------------------------------- parts


def on(bench: Bench) -> str:
    """Describe the inputs on the bench."""
    lengths = bench.population.batch.lengths
    low, high = int(lengths.min()), int(lengths.max())
    split = f" (split {bench.population.split})" if bench.population.split else ""
    tokens = words.counted(low, "token") if low == high else f"{low} to {high} tokens"
    return f"{words.counted(bench.population.n, 'input')} of {tokens}{split}"


def part_role(role: Role) -> PartRole:
    """Return a role as text and plain numbers."""
    looks, inside, carries = role.looks, role.inside, role.carries
    return PartRole(
        str(role.part), role.status,
        None if looks is None else looks.proposal.words, None if looks is None else looks.kept.share,
        None if inside is None else inside.proposal.words, None if inside is None else inside.kept.share,
        None if carries is None else carries.proposal.words, None if carries is None else carries.kept.share,
        () if carries is None else tuple(map(tuple, carries.proposal.facts["quantities"])),
    )  # fmt: skip


def recovered(bench: Bench, made: Roles) -> float | None:
    """Return the share of the loss recovered: 0 with every part at its mean, 1 for the original model."""
    whole = bench.compare(bench.logits).loss
    gap = made.empty.loss - whole
    if not gap > 1e-9:
        return None
    return (made.empty.loss - made.joint.loss) / gap
