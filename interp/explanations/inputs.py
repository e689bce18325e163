"""The inputs on which an explanation is searched and tested: a widened sample, and parts of it that fit the time."""

from __future__ import annotations

import time
from dataclasses import replace

import torch
from torch import Tensor

from interp.errors import InterpError
from interp.measures.runs import reads_of
from interp.measures.subject import Subject
from interp.mechanisms.bench import Bench
from interp.mechanisms.setting import Setting
from interp.populations import Population, sample
from interp.tasks import Batch

SEARCHED, SEARCHED_CELLS = 50_000, 2_000_000
"""Largest number of answers, and of input tokens, for fitting rules."""
FEWEST_SEARCHED = 1_000
BENCH_ROWS, BENCH_CELLS, ENOUGH = 1_500, 30_000_000, 200
"""Largest number of inputs for tests, largest number of cells of one head's patterns, and smallest number of inputs."""
RUNS_A_HEAD, RUNS_AN_MLP, RUNS = 40, 15, 20
"""Approximate number of runs for trying every mechanism: per head, per MLP, and in addition."""
OVERHEAD = 2.0
"""Cost of a run with ideal forms, relative to a plain run."""


def widened(population: Population, subject: Subject) -> Population:
    """Double a sample by adding inputs in which some tokens are changed at random.

    Otherwise, if a sampler makes non-members by one change to a member, membership could look like a parity. The sample
    is returned unchanged if the task is read at all positions, or if it refuses a changed row.
    """
    if population.exact or subject.read_at == "all":
        return population
    batch = population.batch
    tokens = _changed(batch, Setting.of(subject, batch), reads_of(subject, batch).positions)
    try:
        subject.task.check_input(tokens)
        changed = subject.task.batch(tokens)
        reads_of(subject, changed)
    except InterpError:  # the task may refuse rows that its sampler never draws
        return population
    if changed.labels.shape[1:] != batch.labels.shape[1:] or changed.tokens.shape != batch.tokens.shape:
        return population
    both = Batch(
        torch.cat([batch.tokens, changed.tokens]), torch.cat([batch.lengths, changed.lengths]),
        torch.cat([batch.labels, changed.labels.to(batch.labels.dtype)]),
    )  # fmt: skip
    return replace(population, batch=both)


def _changed(batch: Batch, setting: Setting, read_at: Tensor) -> Tensor:
    """Replace each content token of a row by a random one with probability .1, .3 or .6, drawn per row."""
    content = torch.tensor([setting.vocabulary.index(token) for token in setting.content])
    generator = torch.Generator().manual_seed(1)
    inside = torch.isin(batch.tokens, content) & batch.attention_mask
    if setting.causal:
        inside &= torch.arange(inside.shape[1]) < read_at[:, None]
    rate = torch.tensor([0.1, 0.3, 0.6])[torch.randint(3, (len(batch), 1), generator=generator)]
    chosen = inside & (torch.rand(batch.tokens.shape, generator=generator) < rate)
    other = content[torch.randint(len(content), batch.tokens.shape, generator=generator)]
    return torch.where(chosen, other, batch.tokens)


def to_search(bench: Bench) -> Bench:
    """Return a bench with the inputs for the search."""
    batch = bench.population.batch
    answers = max(1.0, len(bench.answers) / len(batch))
    return part_of(bench, int(min(SEARCHED / answers, max(FEWEST_SEARCHED, SEARCHED_CELLS // batch.tokens.shape[1]))))


def to_test(wide: Bench) -> Bench | None:
    """Return a bench with the inputs for testing mechanisms, limited by the memory for patterns and the remaining time.

    If fewer than ENOUGH inputs fit, uses the split with the shortest inputs; returns None if these are too few as well.
    """
    if (n := _affordable(wide)) < ENOUGH and wide.population.n > n and wide.population.kind == "sample":
        task = wide.subject.task
        splits = [sample(task, ENOUGH, split) for split in task.splits]
        shortest = min(splits, key=lambda one: one.batch.tokens.shape[1])
        if shortest.batch.tokens.shape[1] < wide.population.batch.tokens.shape[1]:
            drawn = sample(task, BENCH_ROWS, shortest.split)
            wide = replace(wide, population=widened(drawn, wide.subject))
            n = _affordable(wide)
    return part_of(wide, n) if n >= min(ENOUGH, wide.population.n) else None


def _affordable(bench: Bench) -> int:
    """Return the number of inputs on which every mechanism can be tried in the remaining time."""
    batch, cfg = bench.population.batch, bench.subject.model.cfg
    few = batch[slice(0, ENOUGH)]
    bench.subject.logits(few)
    started = time.monotonic()
    bench.subject.logits(few)
    each = (time.monotonic() - started) / len(few)
    runs = RUNS + cfg.n_layers * (RUNS_A_HEAD * cfg.n_heads + (0 if cfg.attn_only else RUNS_AN_MLP))
    return int(min(BENCH_ROWS, BENCH_CELLS // batch.tokens.shape[1] ** 2, bench.clock.left / (OVERHEAD * runs * each)))


def part_of(bench: Bench, n: int) -> Bench:
    """Return a bench with n of the inputs (or all). Up to a quarter of them are chosen to have rare answers."""
    batch = bench.population.batch
    if n >= len(batch):
        return bench
    generator = torch.Generator().manual_seed(2)
    common = bench.answers == bench.answers.bincount().argmax()
    rare = torch.zeros(len(batch), dtype=torch.bool).index_fill_(0, bench.where.rows[~common], True)
    first = rare.nonzero()[:, 0]
    first = first[torch.randperm(len(first), generator=generator)][: n // 4]
    rest = torch.ones(len(batch), dtype=torch.bool).index_fill_(0, first, False).nonzero()[:, 0]
    rest = rest[torch.randperm(len(rest), generator=generator)][: n - len(first)]
    rows = torch.cat([first, rest]).sort().values
    kind = "given" if bench.population.exact else bench.population.kind
    return replace(bench, population=replace(bench.population, kind=kind, batch=batch[rows]))
