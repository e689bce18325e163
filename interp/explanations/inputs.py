"""The inputs on which rules are searched: a widened sample, and parts of it."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from interp.errors import InterpError
from interp.explanations.bench import Bench
from interp.explanations.setting import Setting
from interp.measures.runs import reads_of
from interp.measures.subject import Subject
from interp.populations import Population
from interp.tasks import Batch

SEARCHED, SEARCHED_CELLS = 50_000, 2_000_000
"""Largest number of answers, and of input tokens, for fitting rules."""
FEWEST_SEARCHED = 1_000


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
