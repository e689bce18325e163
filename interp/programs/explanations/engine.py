"""explain: read the program of a model's parts; where there is none, search for a rule that gives its answers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Int
from torch import Tensor

from interp.errors import InterpError, UnsupportedError
from interp.measures.runs import Part, reads_of
from interp.models.architecture.answers import class_word
from interp.models.architecture.task_model import TaskModel
from interp.models.subject import Subject
from interp.programs.decompile import decompile, program_of, sketch
from interp.programs.explanations import lstar
from interp.programs.explanations.bench import (
    STEPS_PER_SECOND,
    Bench,
    OutOfSteps,
    Setting,
    Steps,
    View,
    as_inputs,
    to_search,
    widened,
)
from interp.programs.explanations.causal import (
    SHARE,
    Judged,
    agrees,
    any_refuted,
    judge,
    least,
    part_role,
    reads_less,
    reads_more,
)
from interp.programs.explanations.explanation import GIVEN, LEVELS, Explanation, Level
from interp.programs.explanations.findings import OUT, Agreement, Cancelling, StandIns
from interp.programs.explanations.quantities import Quantity, candidates
from interp.programs.explanations.rule import Rule
from interp.programs.explanations.search import PER_CELL, Data, Scored, nearest, search
from interp.programs.explanations.strings import Strings, answers
from interp.programs.interchange import COUNTED, FreshInputs, same_partition
from interp.programs.language import Program
from interp.programs.moved_rows import described_on_moved_rows
from interp.programs.naming import LEVEL, with_numbers
from interp.programs.read_limits import by_limits
from interp.programs.read_neurons import by_neurons
from interp.programs.reading import Reading
from interp.programs.relevance import CHANGED, used
from interp.programs.running import OF_HEADS, Running
from interp.support import words
from interp.support.progress import LateBar
from interp.tasks.batch import Batch, concatenate
from interp.tasks.populations import Population, everything, sample
from interp.tasks.structure import CONDITIONAL_TABLE, lacks

LEARNED = 0.5
"""A model is explained only if its accuracy is at least this far from that of a constant answer (0) to perfect (1)."""
ONE_VALUE = 0.9
"""Share above which a value of a variable is its value, on inputs that the task does not have."""
NEAR = 0.9
"""Smallest share of the answers for which the closest rule is named if no rule is good enough."""
MOST, FEWEST = 5_000, 200
"""Most inputs, and fewest where one input is long."""
OF_ONE = {
    "attn.W_O": tuple(f"attn.{name}" for name in OF_HEADS),
    "mlp.W_out": ("mlp.W_in", "mlp.W_gate", "mlp.b_in", "mlp.W_out"),
}
"""The weights of which each head, and each neuron, has a part of its own, by those with which it writes."""
WORK = 10**10
"""Multiplications for one run of the model on the inputs: it decides how many there are."""
FRESH = 2
"""Seed of the inputs on which programs and rules are judged, unless these are all inputs: no other ones have it."""
POSITIONS, READS = 6_000, 1_000
"""Positions, or else reads, on which parts are described."""
AGAIN = 18_000
"""Positions of the second reading, which may be misled by fewer: it is about rare answers."""
JUDGED = 500
"""Number of inputs from the task's own distribution for deciding whether a model has learned its task. If it has not
there, but the task has no more inputs, all of them decide."""
JUDGED_RULES = 10
"""Largest number of rules that are judged on the whole population, cheapest first."""
MOST_SUMS = 4
"""A program that holds sums may have one constant per this many parameters: with more it would repeat the model."""
TENTH = 10
"""A rule may have one constant per this many parameters of the model."""
GIVES = "gives"
"""The first word of what is said of a program that gives too few answers; see misses."""
LEAST = 12
"""Number of constants that any rule may have, however small the model."""


def explain_subject(subject: Subject, name: str, seconds: float = math.inf, share: float = SHARE) -> Explanation:
    """Explain a model under study; see interp.explain. seconds: only stops, after as many steps (STEPS_PER_SECOND)."""
    n_parameters = sum(parameter.numel() for parameter in subject.model.parameters())
    empty = Explanation(name, subject.task.name, n_parameters, subject=subject)
    reason = not_learned(Bench(subject, sample(subject.task, JUDGED)))
    if reason is not None and (subject.task.n_inputs or math.inf) <= JUDGED:
        reason = not_learned(Bench(subject, everything(subject.task)))
    if reason is not None:
        return replace(empty, reason=reason)
    population = inputs_of(subject)
    fresh = population if population.exact else sample(subject.task, population.n, population.split, FRESH)
    explanation = empty
    try:
        with LateBar("explain") as bar:
            steps = Steps(seconds * STEPS_PER_SECOND, bar.step)
            explanation = by_parts(empty, subject, population, FreshInputs(subject, fresh), steps, share)
            if explanation.level in GIVEN:
                return explanation
            return by_rule(explanation, population, Bench(subject, fresh, steps), share)
    except OutOfSteps:
        taken = words.counted(round(seconds * STEPS_PER_SECOND), "step")
        more = "give interp.explain more seconds, or none for no limit"
        return replace(explanation, reason=f"the search was stopped after {taken} ({more})")
    except UnsupportedError as error:
        return replace(explanation, reason=str(error))


def inputs_of(subject: Subject) -> Population:
    """Return all inputs if they are few enough for WORK, otherwise a sample; see populations."""
    task = subject.task
    if task.n_inputs is not None and task.n_inputs <= MOST:
        return everything(task)
    for split in reversed(task.splits):  # where rows are too long, the split with shorter ones
        few = sample(task, FEWEST, split)
        if work(subject, few.batch.tokens.shape[1]) * FEWEST <= WORK:
            break
    n = min(MOST, max(FEWEST, WORK // work(subject, few.batch.tokens.shape[1])))
    return sample(task, n, few.split)


def work(subject: Subject, length: int) -> int:
    """Multiplications for a run on one row, roughly."""
    cfg, size = subject.model.cfg, Size.of(subject)
    if subject.count_space:
        length = min(length, len(subject.task.vocabulary))
    heads = size.heads * (4 * cfg.d_model * cfg.d_head + 2 * length * cfg.d_head)
    return length * (heads + 2 * cfg.d_model * size.neurons) + 1


def size_of(found: Explanation) -> int:
    """The parameters of the model that is explained; see Size."""
    assert found.subject is not None
    return Size.of(found.subject).parameters


@dataclass(frozen=True)
class Size:
    """How large a model is without heads and neurons that write nothing: what is said of it does not hang on those."""

    heads: int
    neurons: int
    parameters: int

    @classmethod
    def of(cls, subject: Subject) -> Size:
        parameters = sum(one.numel() for one in subject.model.parameters())
        writing = {"attn.W_O": 0, "mlp.W_out": 0}
        for layer in subject.model.blocks:
            weights = dict(layer.named_parameters())
            for out in writing.keys() & weights.keys():
                writes = weights[out].flatten(1).any(1)
                own = sum(weights[name].numel() for name in OF_ONE[out] if name in weights) // len(writes)
                writing[out] += int(writes.sum())
                parameters -= own * int((~writes).sum())
            if "attn.W_O" not in weights:
                writing["attn.W_O"] += subject.model.cfg.n_heads
        return cls(writing["attn.W_O"], writing["mlp.W_out"], parameters)


# ---------------------------------------------------------------- the program of the parts


def by_parts(
    empty: Explanation, subject: Subject, population: Population, fresh: FreshInputs, steps: Steps, share: float
) -> Explanation:
    """Describe the parts on inputs of the population, and run the program of them alone on fresh ones.

    Readings come in turn (see read_in_turn); the first that explains the model is taken, or else the best. Where none
    gives a program and all parts are described, the readout is fitted anew, to inputs drawn for it: by limits,
    or by the neurons of a readout that has some (see programs.read_limits and read_neurons).
    """
    tried: list[Explanation] = []
    readings: list[Reading] = []
    programs: list[Program | None] = []
    for reading, program, on in read_in_turn(subject, population, steps, tried):
        if program is not None and program in programs:  # a finer reading may find the same
            tried.append(replace(tried[programs.index(program)], tested_on=on))
        else:
            tried.append(explained(empty, reading, program, population, fresh, share, on, to_the_first=True))
        readings.append(reading)
        programs.append(program)
        if tried[-1].level == "explained":
            return tried[-1]
    best, reading, program = max(zip(tried, readings, programs, strict=True), key=lambda each: fullness(each[0]))
    if best.level not in GIVEN:
        for fitted in (by_limits, by_neurons):
            if best.level != "explained" and (other := fitted(reading, population)) is not None:
                again = explained(empty, reading, other, population, fresh, share, best.tested_on)
                best = max(best, again, key=rank)
    elif any_refuted(best.variables):
        best = with_all_variables(best, reading, fresh)
    return best if best.level in GIVEN else with_inputs_tried(best, reading, program)


def with_inputs_tried(found: Explanation, reading: Reading, program: Program | None) -> Explanation:
    """The same explanation in part, whose descriptions are not tested as a program, with what is said of each part's
    inputs."""
    if not found.count("explained"):
        return found
    drawn = sketch(reading, program and named(reading, program))
    roles = {reading.running.by_name[role.part]: role for role in found.parts}
    return replace(found, more=reads_more(reading, drawn, roles, ()), less=reads_less(reading, drawn))


def with_all_variables(found: Explanation, reading: Reading, fresh: FreshInputs) -> Explanation:
    """The same explanation after a test that ended at the first refuted variable, with the other ones tested, too, and
    in further places of each."""
    assert found.program is not None
    again = judge(reading, found.program, fresh)
    whole = replace(
        found, level=level_of(again), program=again.program, parts=tuple(again.roles.values()),
        variables=again.variables, pairs=again.pairs, more=again.more, rest=again.rest,
        less=reads_less(reading, again.program, again.variables),
    )  # fmt: skip
    return with_shares(whole, reading)


def level_of(judged: Judged) -> Level:
    """The level of a program that gives the answers, by what interchanges say of it."""
    unread = any(role.status == "not read" for role in judged.roles.values())
    return "explained" if judged.shown and not unread else "imitated"


def with_shares(found: Explanation, reading: Reading) -> Explanation:
    """The explanation with the share of answers that stays with all parts that are not used at their means; and, if it
    is not all, with values that they have at other positions."""
    out = [(reading.running.by_name[role.part], role.status) for role in found.parts if role.status in OUT]
    moved = reading.left((part for part, status in out if status != "stands in"), moved=True)
    without = reading.left([part for part, _ in out])
    return replace(found, without=without, moved=moved if moved < 1 - CHANGED else None)


def read_in_turn(
    subject: Subject, population: Population, steps: Steps, found: Sequence[Explanation]
) -> Iterator[tuple[Reading, Program | None, str]]:
    """The strict reading (see `Reading`), then the looser one, on more inputs. With each its program and, in words, its
    inputs.

    If the program is not the model's, or gives too few answers (see may_be_finer), the parts are described anew: finer,
    with values of other rows unless only these parts read more than it says; and then where variables are those of
    other inputs, too (see programs.moved_rows). This is not done again for a program that an earlier reading gave.
    The looser reading leaves out parts that matter only when their values come from other positions. If programs were
    found but none is the model's, a third reading, as loose, describes these parts as well, unless the last program
    left no room for more constants. found: what came of the readings so far; the caller adds to it.
    """
    batch = population.batch
    reads = max(1.0, float(subject.read_mask(batch[:100]).sum()) / len(batch[:100]))
    before: list[Program] = []

    def anew(reading: Reading, on: str) -> Iterator[tuple[Reading, Program | None, str]]:
        program = program_of(reading)
        yield reading, program, on
        if program in before:
            return
        before.extend([] if program is None else [program])
        plain = found[-1]
        if may_be_finer(plain, program):
            shown = plain.level == "imitated" and all(one.interchange.shown for one in plain.variables)
            running = reading.running.original
            finer = decompile(running, steps.check, reading.strict, reading.matter, True, of_other_rows=not shown)
            yield finer, program_of(finer), on
        if may_move(plain):
            yield *described_on_moved_rows(reading), on

    for strict, positions in ((True, POSITIONS), (False, AGAIN)):
        n = int(min(len(batch), max(READS / reads, positions / batch.tokens.shape[1])))
        if subject.count_space:  # a row is a few tokens with their counts
            n = min(len(batch), COUNTED) if strict else len(batch)
        taken = batch if n == len(batch) else subject.shared(f"{n} in order", batch, partial(in_order, batch, n))
        rows = with_edges(subject, taken)
        on = described_on(population, n, len(rows) - n)
        reading = decompile(Running.of(subject, rows), steps.check, strict)
        yield from anew(reading, on)
    if any(explanation.level == "imitated" for explanation in found) and may_grow(found[-1], before[-1]):
        running = reading.running.original
        matter = used(running, reading.kinds, steps.check, pairs=reading.pairs)
        if matter != reading.matter:
            yield from anew(decompile(running, steps.check, False, matter), on)


def may_be_finer(found: Explanation, program: Program | None) -> bool:
    """Whether parts are described anew, so that no answer is lost: where the program is not the model's, or gives too
    few answers.

    After one that loses answers, only if it leaves room (see `may_grow`), even if it holds no sums.
    """
    if program is None:
        return False
    if found.level == "imitated":
        return may_grow(found, program)
    return has_room(found, program) and found.listing.startswith(GIVES)


def may_grow(found: Explanation, program: Program) -> bool:
    """Whether a program of finer, or of more, descriptions may be tried after one that imitates."""
    return has_room(found, program) or not program.fitted


def has_room(found: Explanation, program: Program) -> bool:
    """Whether twice as many constants, as finer programs had, are no more than a program with sums may have (see
    MOST_SUMS)."""
    return 2 * program.constants <= size_of(found) // MOST_SUMS


def may_move(found: Explanation) -> bool:
    """Whether parts are described anew on rows with variables of other rows.

    They are where a variable of the program is refuted, or a part reads more than the program says, but not where the
    program has fitted sums: trained models that were tried (sort, induction, unique reverse) then needed a constant for
    every two to four of their parameters, which is no explanation (see MOST_SUMS). Nor are they where a model depends
    on counts alone: of 392 trained seeds of Count01, one was explained by this, which took a fifth of the time of all.
    """
    if found.level != "imitated" or found.program is None or found.program.fitted:
        return False
    if found.subject is not None and found.subject.count_space:
        return False
    return bool(found.more) or any_refuted(found.variables)


def rank(found: Explanation) -> int:
    """Higher levels have larger numbers."""
    return -LEVELS.index(found.level)


def fullness(found: Explanation) -> tuple[int, int, float]:
    """The level; of programs that give the answers, how few constants they have; else how many parts are described, and
    how many answers stay with them: larger is better."""
    if found.level in GIVEN:
        return rank(found), -found.constants, 0.0
    return rank(found), found.count("explained"), found.joint or 0.0


def explained(
    empty: Explanation, reading: Reading, program: Program | None, population: Population, fresh: FreshInputs,
    share: float, on: str, to_the_first: bool = False,
) -> Explanation:  # fmt: skip
    """The explanation that descriptions of the parts, and the program of them, give. to_the_first: see `judge`."""
    agreement: Agreement | None = None
    listing = "no program"
    if program is not None:
        program = named(reading, program)
        apart = told_apart(reading.running.subject, population.batch)
        listing = lists(program, population, apart, size_of(empty))
        if not listing:
            agreement = agrees(program, fresh)
            listing = "" if min(agreement.share, agreement.least) >= share else misses(agreement)
    alone = program is not None and not listing
    parts = {part: part_role(reading, program, part, alone) for part in reading.running.parts}
    described = any(role.status == "explained" for role in parts.values())
    level: Level = "in part" if described or program is not None else "none"
    found = empty
    if program is not None and agreement is not None and alone:
        judged = least(reading, program, agreement, fresh, to_the_first)
        program, agreement, parts = judged.program, judged.agreement, judged.roles
        found = replace(empty, variables=judged.variables, pairs=judged.pairs, more=judged.more, rest=judged.rest)
        if not any_refuted(judged.variables):  # else of the best reading alone; see with_all_variables
            found = replace(found, less=reads_less(reading, program, judged.variables))
        level = level_of(judged)
    whole = replace(
        found, level=level, parts=tuple(parts.values()), program=program if alone else None,
        agreement=agreement if alone else None,
        stand_ins=tuple(together(reading, group) for group in reading.groups),
        cancelling=tuple(Cancelling(tuple(map(str, pair)), reading.left(pair)) for pair in reading.pairs),
        joint=reading.running.kept({}).share, listing=listing if program is not None else "", tested_on=on,
    )  # fmt: skip
    return with_shares(whole, reading)


def together(reading: Reading, group: Sequence[Part]) -> StandIns:
    """Parts that stand in for each other, and what stays without them."""
    rests = [[other for other in group if other != part] for part in group] if len(group) > 2 else []
    return StandIns(tuple(map(str, group)), reading.left(group), tuple(map(reading.left, rests)))


def misses(agreement: Agreement) -> str:
    """How many answers a program gives, and how many of the frequent one of which it gives fewest, if that is less."""
    least = f", and {words.share(agreement.least)} of one frequent answer" if agreement.least < agreement.share else ""
    return f"{GIVES} {agreement}{least}"


def lists(program: Program, population: Population, apart: int, parameters: int) -> str:
    """Return why a program lists answers, or repeats the model, instead of explaining it; "" if it does neither.

    apart: how many of the inputs the model can tell apart; of a sample in which these are few, as good as all.
    """
    if program.constants >= apart and (population.exact or 2 * apart <= population.n):
        alike = "" if apart == population.n else " that the model can tell apart"
        return f"has {program.constants:,} constants for {apart:,} inputs{alike}"
    if program.fitted and program.constants > parameters // MOST_SUMS:
        return f"has {program.constants:,} constants; the model has {parameters:,} parameters"
    return ""


def told_apart(subject: Subject, batch: Batch) -> int:
    """How many of these inputs a model can tell apart: all, or, without positions, those that differ in the token that
    is read or in how often each token occurs (up to there, if no later ones are seen)."""
    model, tokens = subject.model, batch.tokens
    if not isinstance(model, TaskModel) or model.spec.symmetry not in ("counts", "distinct_tokens"):
        return len(batch)

    def different() -> int:
        # Each token has two random numbers: one is added up over what is seen, the other stands for the token read.
        random = torch.Generator().manual_seed(0)
        seen, read = torch.randint(2**62, (2, len(subject.task.vocabulary)), generator=random)
        sums = seen[tokens].masked_fill(~batch.attention_mask, 0).cumsum(1)
        if model.cfg.attention_dir != "causal":
            sums = sums[:, -1:].expand_as(sums)
        return len(reads_of(subject, batch).pick(sums + read[tokens]).unique())

    return min(len(batch), subject.shared("different inputs", batch, different))


def in_order(batch: Batch, n: int) -> Batch:
    """Some rows of a batch, drawn at random, in their order."""
    return batch[torch.randperm(len(batch), generator=torch.Generator().manual_seed(0))[:n].sort().values]


def with_edges(subject: Subject, batch: Batch) -> Batch:
    """The inputs, and those that a sampler may never draw: with one token at all places of content, where none of the
    inputs has their answer; and with each number of one token, where content has two. Those that the model answers
    rightly and that are not there yet are added; none where the task does not take such rows."""
    setting = Setting.of(subject, batch)
    content = torch.tensor([setting.vocabulary.index(token) for token in setting.content])
    most = len(batch) // 4
    if subject.decision.kind == "set" or batch.counts is not None or not 0 < len(content) <= most:
        return batch
    row = batch.tokens[int(batch.lengths.argmax())]
    places = torch.isin(row, content).nonzero()[:, 0]
    rows = row.repeat(len(content), 1)
    rows[:, places] = content[:, None]
    edges = [rows]
    if len(content) == 2 and len(places) <= most:
        edges.append(numbers_of_one(row, places, content))
    for n, rows in enumerate(edges):
        if (more := as_inputs(subject, rows)) is None:
            continue
        reads = reads_of(subject, more)
        wanted = reads.classes
        new = torch.isin(wanted, subject.classes(batch), invert=True) if n == 0 else torch.ones_like(wanted).bool()
        wrong = reads.rows[Running.of(subject, more).answers != wanted]
        where = reads.rows[new & ~torch.isin(reads.rows, wrong)].unique()
        if len(where):
            there = {*map(tuple, batch.tokens.tolist())}
            where = where[[tuple(row) not in there for row in more.tokens[where].tolist()]]
            batch = concatenate([batch, more[where]], subject.task.pad_id)
    return batch


def numbers_of_one(
    row: Int[Tensor, "length"], places: Int[Tensor, "n"], content: Int[Tensor, "2"]
) -> Int[Tensor, "rows length"]:
    """A row in which the first of two tokens stands at k of some places, drawn at random, for each k."""
    random = torch.Generator().manual_seed(0)
    rows = row.repeat(len(places) + 1, 1)
    for k, copy in enumerate(rows):
        copy[places] = content[1]
        copy[places[torch.randperm(len(places), generator=random)[:k]]] = content[0]
    return rows


def described_on(population: Population, n: int, edges: int = 0) -> str:
    """The inputs on which parts are described: n of a population, and edges."""
    more = f" and {words.counted(edges, 'further input')} of one or two different tokens" if edges else ""
    if n == population.n:
        return population.on + more
    whole = f"all {population.n:,} inputs" if population.exact else population.on.removeprefix("on ")
    return f"on {n:,} of {whole}{more}"


def named(reading: Reading, program: Program) -> Program:
    """The program with names for variables that have none: each the simplest quantity of the library that divides the
    positions as the variable does. Levels of a soft head become the quantity's values.

    They must divide alike on tokens that are exchanged between rows, too: where the first two tokens of each input are
    equal, a head that reads the second does not read the first. Values that are numbers must be those of the quantity.
    Nothing is named where rows hold equal tokens once, because positions are lost there.
    """
    running = reading.running
    if running.counts is not None:
        return program
    bench = Bench(running.subject, Population("given", running.batch))
    names, levels = dict[str, str](), dict[str, dict[str, str]]()
    known = reading.codes()
    codes = {step.name: known[step.name][0] for step in program.steps if step.name in known and step.part}
    needed = {name: reading.needed.get(name.removesuffix(" level"), running.mask) for name in codes}
    mixed = bench.view.mixed()
    made = program.run(mixed.tokens, running.weights)
    sure = {name: needed[name] & (made[name].amax(-1) > ONE_VALUE * made[name].sum(-1)) for name in codes}
    for quantity in candidates(bench.setting) if codes else ():
        values = quantity.values(bench.view)
        for name, code in codes.items():
            here, there = needed[name], sure[name]
            if name in names or not same_partition(code[here], values[here]):
                continue
            met = torch.stack([code[here], values[here]]).unique(dim=1).T.tolist()
            spoken = {program.values[name][at]: quantity.said(value) for at, value in met}
            if any(word.isdecimal() and word != other for word, other in spoken.items()):
                continue
            elsewhere = made[name].argmax(-1)[there], quantity.values(mixed)[there]
            if not bool(there.any()) or same_partition(*elsewhere):
                names[name] = quantity.words
                if all(LEVEL.fullmatch(word) for word in program.values[name]):
                    levels[name] = spoken
    program = replace(program, words={**names, **program.words})
    for name, numbers in levels.items():
        program = with_numbers(program, name, numbers)
    return program


# ---------------------------------------------------------------- a rule for the answers


def by_rule(found: Explanation, population: Population, fresh: Bench, share: float) -> Explanation:
    """Add the cheapest rule that gives the model's answers, or the reason why there is none."""
    wide = fresh if population.exact else replace(fresh, population=widened(population, fresh.subject))
    rule, agreement, reason = find(fresh, wide, share, max(LEAST, size_of(found) // TENTH))
    level: Level = found.level if rule is None or found.level == "in part" else "answers only"
    return replace(found, level=level, rule=rule, agreement=agreement or found.agreement, reason=reason)


def find(bench: Bench, wide: Bench, share: float, most: int) -> tuple[Rule | None, Agreement | None, str]:
    """Return the cheapest rule that gives the model's answers, with its agreement; or None and the reason.

    Rules are searched on widened or reduced inputs (`wide`, to_search), but judged on those of `bench`: on fresh ones.
    """
    data = Data.of(to_search(wide))
    found = [*search(data, share, most)[:JUDGED_RULES], by_automaton(bench, wide, share, most)]
    scored = sorted(filter(None, found), key=lambda option: option.cost)
    tried: list[tuple[Rule, Agreement]] = []
    for option in filter(None, [*scored, whole_table(bench, share)]):
        tried.append((option.rule, agreement := judged(bench, option.rule)))
        if agreement.share >= share:
            return *tried[-1], ""
    if tried:
        rule, agreement = max(tried, key=lambda pair: pair[1].share)
        return None, None, f'the best rule, "{rule.words}", gives {agreement}'
    reason = (
        f"none of the rules tried gives {share:.0%} of the model's answers {bench.population.on} with at most {most:,} "
        f"constants: over each of {len(data.quantities):,} quantities, each two of them with {PER_CELL} inputs or more "
        f"for each combination of values, and the triples that say most{closest(nearest(data, most))}"
    )
    return None, None, reason


def not_learned(bench: Bench) -> str | None:
    """Return why a model is not worth explaining (it has not learned its task), or None."""
    answers, right = bench.answers, float(bench.right.double().mean())
    if len(answers.unique()) == 1:
        word = class_word(bench.subject.task, int(answers[0]))
        return f"the model answers {word} to every input {bench.population.on}"
    classes = bench.where.classes
    base = float(classes.bincount().max()) / len(classes)
    if right < base + LEARNED * (1 - base):
        return (
            f"the model has not learned its task: it is right on {words.share(right)} {bench.population.on}, and "
            f"always giving the same answer is right on {words.share(base)}"
        )
    return None


def closest(scored: Scored | None) -> str:
    """Describe the best rule, which was not good enough."""
    if scored is None or scored.share < NEAR:
        return ""
    return f'; the closest rule, "{scored.rule.words}", gives {words.share(scored.share)}'


def judged(bench: Bench, rule: Rule) -> Agreement:
    """Measure how many of the model's answers a rule gives on a population."""
    outputs = rule.at(View.of(rule.setting, bench.population.batch), bench.where.rows, bench.where.positions)
    return Agreement.of(outputs, bench.answers, bench.population)


STRINGS, SHORTEST = 4_000, 3
"""Largest number of strings of one length for learning, and smallest maximal length of the strings."""
STATES = 10
"""Largest number of states of an automaton that counts as a short rule."""


def by_automaton(bench: Bench, wide: Bench, share: float, most: int) -> Scored | None:
    """Learn a small automaton from the answers to short strings (L*), and test it on the inputs of `wide`.

    Two automata are tried: that of the model's answers, on all strings up to the greatest length at which it is small,
    and that of the right answers, because a model may err too often to have a small automaton.
    """
    try:
        known = Strings.of(bench.subject)
        answered = answers(bench.subject, known, known.longest(bench.subject, STRINGS))
    except InterpError:  # not a string task
        return None
    letters, machines = len(known.letters), []
    for whole in (answered.model, answered.task):
        for length in range(len(whole) - 1, SHORTEST - 1, -1):
            bench.steps.check()
            machine = lstar.learn(whole[: length + 1], letters, STATES)
            if machine is not None:
                machines.append(machine)
                break
    for machine in machines:
        state = Quantity(bench.setting, "state", (tuple(known.alphabet), tuple(map(tuple, machine.following))))
        data = Data.of(wide, [state])
        scored = data.fitted([0], most) if data.quantities else None
        if scored is not None and scored.share >= share:
            return scored
    return None


def whole_table(bench: Bench, share: float) -> Scored | None:
    """Return the model's own table, for table tasks whose inputs are all on the bench."""
    task = bench.subject.task
    if lacks(task, CONDITIONAL_TABLE) is not None or not bench.population.exact:
        return None
    length = int(bench.population.batch.lengths.max())
    data = Data.of(bench, [Quantity(bench.setting, "place", (at,)) for at in range(length)])
    scored = data.fitted(range(len(data.quantities)), len(bench.answers) + 1 + length, listing=True)
    return scored if scored is not None and scored.share >= share else None
