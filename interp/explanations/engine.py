"""explain: from weights to a program that a person reads, and how far it is true."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from interp import words
from interp.errors import InterpError
from interp.explanations.explanation import Agreement, Explanation, PartRole
from interp.explanations.parts import Role, Roles, roles
from interp.explanations.program import Program
from interp.explanations.search import Data, Scored, nearest, search
from interp.measures.runs import reads
from interp.measures.subject import Subject
from interp.mechanisms.bench import Bench
from interp.mechanisms.quantities import Quantity, candidates
from interp.mechanisms.setting import Setting
from interp.populations import Asked, Population, choose, sample, wilson
from interp.tasks import Batch
from interp.tasks.returns import TaskError

SHARE = 0.99
"""Of the model's answers, so many must stay."""
SECONDS = 300.0
LEARNED = 0.5
"""A model is worth explaining when it does at least half of what its task asks beyond one answer for everything."""
NEAR = 0.9
"""A rule that gives fewer of the answers is not named."""
JUDGED = 500
"""Inputs from the task's own distribution that say whether a model does its task."""
SEARCHED = 20_000
"""Answers that rules are fitted to and judged on."""
TENTH = 10
"""A program has at most a tenth as many constants as the model has parameters."""
LEAST = 12
"""Constants that every program may have, however small its model."""
BENCH_ROWS, BENCH_CELLS = 1500, 1.5e7
"""Inputs on the bench, and cells of one head's patterns for all of them."""


def explain_subject(subject: Subject, name: str, seconds: float = SECONDS, share: float = SHARE) -> Explanation:
    """The explanation of a model under study; see interp.explain."""
    started = time.monotonic()
    until = started + seconds
    population = choose(
        subject.task, lambda batch: subject.logits(batch), Asked(seconds=seconds / 5), fixed=False, most=5_000
    )
    bench = Bench(subject, population)
    n_parameters = sum(parameter.numel() for parameter in subject.model.parameters())
    empty = Explanation(name, subject.task.name, n_parameters, 0.0)

    def ended(found: Explanation) -> Explanation:
        return replace(found, seconds=round(time.monotonic() - started, 1))

    if (reason := not_learned(Bench(subject, sample(subject.task, JUDGED)))) is not None:
        return ended(replace(empty, reason=reason))
    wide = Bench(subject, widened(population, subject))
    most = max(LEAST, n_parameters // TENTH)
    data = data_of(wide)
    scored = search(data, share, most) or whole_table(bench, share)
    if scored is None:
        reason = (
            f"no rule over at most three known quantities gives {share:.0%} of the model's answers {population.on} "
            f"with a tenth as many constants as it has parameters{closest(nearest(data, most))}"
        )
        return ended(replace(empty, reason=reason))
    program = Program(scored.rule)
    agreement = judged(bench, program)
    if agreement.share < share:
        return ended(replace(empty, reason=f"the best program found gives {agreement}"))
    small = replace(_on_the_bench(wide), hints=program.rule.quantities)
    made = roles(small, share, until)
    return ended(
        replace(
            empty, program=program, agreement=agreement, parts=tuple(map(told, made.roles)), cut=made.cut.share,
            joint=made.joint.share, empty=made.empty.share, recovered=recovered(small, made),
            tested_on=f"{words.counted(small.population.n, 'input')}",
        )
    )  # fmt: skip


def not_learned(bench: Bench) -> str | None:
    """Why a model is not worth explaining: it does not do its task. Or None."""
    answers, right = bench.answers, float(bench.right.double().mean())
    if len(answers.unique()) == 1:
        return f"the model answers {bench.setting.answers[int(answers[0])]} to every input {bench.population.on}"
    classes = bench.where.classes
    base = float(classes.bincount().max()) / len(classes)
    if right < base + LEARNED * (1 - base):
        return (
            f"the model does not do its task: it is right on {words.share(right)} {bench.population.on}, one answer "
            f"for everything on {words.share(base)}"
        )
    return None


# ---------------------------------------------------------------- the program


def data_of(bench: Bench) -> Data:
    """The model's answers with the quantities that they may follow from."""
    read, rows = bench.where, _rows_to_search(bench)
    of = candidates(bench.setting)
    values = [read.pick(one.values(bench.view))[rows].numpy() for one in of]
    of, values = _declared_first(bench, of, values, rows)
    return Data.of(
        bench.setting, of, values, bench.answers[rows].numpy(), read.rows[rows].numpy(), bench.population.exact
    )


def closest(scored: Scored | None) -> str:
    """What the best rule comes to that was not good enough."""
    if scored is None or scored.share < NEAR:
        return ""
    return f'; the closest, "{Program(scored.rule).words}", gives {words.share(scored.share)}'


def whole_table(bench: Bench, share: float) -> Scored | None:
    """Where the task itself is a table of the user's, all inputs of which are at hand: the model's own table."""
    if not bench.subject.task.tables() or not bench.population.exact:
        return None
    length = int(bench.population.batch.lengths.max())
    of = [Quantity(bench.setting, "place", (at, "seen")) for at in range(length)]
    values = [bench.where.pick(one.values(bench.view)).numpy() for one in of]
    data = Data.of(bench.setting, of, values, bench.answers.numpy(), bench.where.rows.numpy(), True)
    found = data.fitted(range(len(data.quantities)), len(bench.answers) + 1 + length, listing=True)
    return found if found is not None and found.share >= share else None


def _rows_to_search(bench: Bench) -> Tensor:
    """Answers that the search looks at: all, or so many; half of those left out are of the most frequent answer."""
    n = len(bench.answers)
    if n <= SEARCHED:
        return torch.arange(n)
    generator = torch.Generator().manual_seed(0)
    common = bench.answers == bench.answers.bincount().argmax()
    rare = (~common).nonzero()[:, 0]
    rare = rare[torch.randperm(len(rare), generator=generator)][: SEARCHED // 2]
    rest = common.nonzero()[:, 0]
    rest = rest[torch.randperm(len(rest), generator=generator)][: SEARCHED - len(rare)]
    return torch.cat([rare, rest]).sort().values


def _declared_first(
    bench: Bench, of: list[Quantity], values: list[np.ndarray], rows: Tensor
) -> tuple[list[Quantity], list[np.ndarray]]:
    """Quantities that are a declared feature of the task, value for value, come first: they are the task's words."""
    batch = bench.population.batch
    try:
        features = bench.subject.task.features(batch)
    except TaskError:
        raise
    except InterpError:
        features = {}
    told: list[np.ndarray] = []
    for name, feature in features.items():
        if name == "answer" or feature.dtype.is_floating_point:
            continue
        each = feature[bench.where.rows] if feature.ndim == 1 else bench.where.pick(feature)
        told.append(each[rows].long().numpy())
    equal = [any(np.array_equal(value, one) for one in told) for value in values]
    named = {a for one, same in zip(of, equal) if same for a in one.arguments if a in bench.setting.content}
    order = sorted(range(len(of)), key=lambda n: 0 if equal[n] else 2 - bool(named & set(of[n].arguments)))
    return [of[n] for n in order], [values[n] for n in order]


def judged(bench: Bench, program: Program) -> Agreement:
    """How many of the model's answers a program gives on a population."""
    given = program.answers(bench.view, bench.where.rows, bench.where.positions)
    kept = bench.agreement(given == bench.answers)
    low, high = (kept.share, kept.share) if bench.population.exact else wilson(kept.share, bench.population.n)
    return Agreement(
        kept.n, kept.changed, kept.share, low, high, None if kept.right != kept.right else kept.right,
        None if kept.wrong != kept.wrong else kept.wrong, bench.population.on,
    )  # fmt: skip


# ---------------------------------------------------------------- inputs


def widened(population: Population, subject: Subject) -> Population:
    """A sample with as many inputs again in which some tokens were changed at random.

    A sampler that draws non-members by one change from members makes a parity of every membership. Not for tasks that
    are read at all positions, and not for rows that the task refuses.
    """
    if population.exact or subject.read_at == "all":
        return population
    batch = population.batch
    setting = Setting.of(subject, batch)
    content = torch.tensor([setting.vocabulary.index(token) for token in setting.content])
    generator = torch.Generator().manual_seed(1)
    inside = torch.isin(batch.tokens, content) & batch.attention_mask
    if setting.causal:
        inside &= torch.arange(inside.shape[1]) < reads(subject, batch).positions[:, None]
    rate = torch.tensor([0.1, 0.3, 0.6])[torch.randint(3, (len(batch), 1), generator=generator)]
    chosen = inside & (torch.rand(batch.tokens.shape, generator=generator) < rate)
    other = content[torch.randint(len(content), batch.tokens.shape, generator=generator)]
    tokens = torch.where(chosen, other, batch.tokens)
    try:
        subject.task.check_input(tokens)
        changed = subject.task.batch(tokens)
        subject.reads(changed)
    except TaskError:
        raise
    except InterpError:
        return population
    if changed.labels.shape[1:] != batch.labels.shape[1:]:
        return population
    both = Batch(
        torch.cat([batch.tokens, changed.tokens]), torch.cat([batch.lengths, changed.lengths]),
        torch.cat([batch.labels, changed.labels.to(batch.labels.dtype)]),
    )  # fmt: skip
    return replace(population, batch=both)


def _on_the_bench(bench: Bench) -> Bench:
    """As many inputs as patterns may be kept of; rare answers first."""
    batch = bench.population.batch
    n = int(max(24, min(BENCH_ROWS, BENCH_CELLS // batch.tokens.shape[1] ** 2)))
    if n >= len(batch):
        return bench
    generator = torch.Generator().manual_seed(2)
    common = bench.answers == bench.answers.bincount().argmax()
    rare = torch.zeros(len(batch), dtype=torch.bool).index_fill_(0, bench.where.rows[~common], True)
    first = rare.nonzero()[:, 0]
    first = first[torch.randperm(len(first), generator=generator)][: n // 2]
    left = torch.ones(len(batch), dtype=torch.bool).index_fill_(0, first, False).nonzero()[:, 0]
    rest = left[torch.randperm(len(left), generator=generator)][: n - len(first)]
    rows = torch.cat([first, rest]).sort().values
    return Bench(bench.subject, replace(bench.population, kind="given", batch=batch[rows]))


# ---------------------------------------------------------------- what is told of parts


def told(role: Role) -> PartRole:
    """A role in words and plain numbers."""
    looks, carries = role.looks, role.carries
    return PartRole(
        str(role.part), role.status,
        None if looks is None else looks.proposal.words, None if looks is None else looks.kept.share,
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
