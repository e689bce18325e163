"""The answer by the neurons of a readout that is itself an MLP: ramps of sums over what reaches it, as few as will do.

Neurons are left out while enough answers stay, those that add least first, and what the others add to each answer is
fitted anew. Answers must stay with the value of each part from other positions, too: inputs as they are show only what
a readout does with values that go together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from interp.models.architecture.task_model import TaskModel
from interp.programs.decompile import program_of, sketch
from interp.programs.language import Program
from interp.programs.read_sums import fewest
from interp.programs.reading import Reading, matrix
from interp.programs.readout import vectors_of
from interp.programs.relevance import Kinds
from interp.programs.running import Kept, Running
from interp.programs.steps import Linear, Sums
from interp.tasks.populations import Population, sample

FITTED, SEED = 50_000, 3
"""Most positions to which weights are fitted, and the seed of their inputs, on which nothing else is tried."""
STAYS = 0.997
"""Share of the answers, of each frequent one, and of those with values from other positions, that must stay. It is more
than a program must give in the end, since fewer stay on other inputs."""


def by_neurons(reading: Reading, population: Population) -> Program | None:
    """The program whose answer follows from a readout's neurons; None where it has none, or a part has no description.

    population: on which the program is judged; others are drawn, unless it holds all inputs.
    """
    if (every := readout_neurons(reading)) is None:
        return None
    running = inputs(reading, population)
    numbers, logits = (torch.cat(pieces) for pieces in zip(*points(reading, every, running), strict=True))
    chosen, weights = fewest_neurons(numbers, logits, len(running.reads))
    if not chosen:
        return None
    blocks = (matrix(torch.tensor(block, dtype=torch.float64)[:, chosen]) for block in every.weights)
    few = replace(every, weights=tuple(blocks), bias=tuple(every.bias[n] for n in chosen))
    *each, bias = weights.tolist()
    answer = Linear("answer", (few.name,), (tuple(map(tuple, each)),), tuple(bias), reading.running.words)
    return program_of(reading, (answer, [few]))


def readout_neurons(reading: Reading) -> Sums | None:
    """All neurons of a readout, as sums over the variables that reach it; None where these are not all known."""
    running, model = reading.running, reading.running.subject.model
    if not isinstance(model, TaskModel) or model.spec.readout != "relu_mlp" or model.spec.final_norm != "none":
        return None
    if running.subject.decision.kind != "argmax" or running.counts is not None:
        return None
    sources = reading.edges(None) or []
    vectors = [one for name in sources if (one := vectors_of(reading, name)) is not None]
    kept = any(role.status == "kept" for role in reading.roles.values())
    if kept or not sources or len(vectors) < len(sources):
        return None
    w_in, b_in = (getattr(model.unembed, name).detach().double().cpu() for name in ("W_in", "b_in"))
    read = [running.reads.pick(reading.made[name]) @ one for name, one in zip(sources, vectors, strict=True)]
    rest = (running.stream({}, None, reads=True).double().cpu() - torch.stack(read).sum(0)).mean(0)
    weights = tuple(matrix(one @ w_in) for one in equal_once(vectors))
    return Sums("neurons of the readout", tuple(sources), weights, tuple((rest @ w_in + b_in).tolist()), ramps=True)


def equal_once(vectors: Sequence[Float[Tensor, "values d"]]) -> list[Float[Tensor, "values d"]]:
    """The same vectors; what equals an earlier one up to rounding is that one."""
    kept: list[Tensor] = []
    for one in vectors:
        same = (other for other in kept if other.shape == one.shape and torch.allclose(one, other, atol=1e-5))
        kept.append(next(same, one))
    return kept


def inputs(reading: Reading, population: Population) -> Running:
    """The inputs to which weights are fitted."""
    batch = population.batch
    batch = batch if population.exact else sample(reading.task, len(batch), population.split, seed=SEED).batch
    return Running.of(reading.running.subject, batch[: max(1, FITTED // batch.tokens.shape[1])])


def points(reading: Reading, every: Sums, running: Running) -> Iterator[tuple[Tensor, Tensor]]:
    """The neurons and the logits at the reads: as they are, and with the value of each part from other positions."""
    program, tokens, shuffled = sketch(reading, None), running.batch.tokens, Kinds(running).shuffled
    program = replace(program, steps=(*program.steps, every), pad=reading.task.pad)
    made = program.run(tokens)
    for part in (None, *reading.matter):
        given = {step.name: shuffled(made[step.name]) for step in program.steps if part and step.part == str(part)}
        logits = running.logits_with({part: shuffled(running.value(part))} if part else {})
        numbers = running.reads.pick(program.run(tokens, given=given)[every.name])
        yield numbers, logits[:, : reading.task.n_out].double().cpu()


def fewest_neurons(
    numbers: Float[Tensor, "points neurons"], logits: Float[Tensor, "points answers"], first: int
) -> tuple[list[int], Float[Tensor, "weights answers"]]:
    """Neurons whose weighted sums give the answers, and these weights, with the constants last; none if all do not.

    first: how many points are of inputs as they are.
    """
    points = torch.cat([numbers, torch.ones(len(numbers), 1).double()], 1)
    axes, inner = torch.linalg.qr(points)
    target, answers = axes.T @ logits, logits.argmax(1)

    def fit(kept: Sequence[int]) -> Tensor:
        return torch.linalg.lstsq(inner[:, [*kept, -1]], target, driver="gelsd").solution

    def good(kept: Sequence[int]) -> bool:
        new = (points[:, [*kept, -1]] @ fit(kept)).argmax(1)
        same = float((new == answers)[first:].double().mean())
        return min(Kept.of(new[:first], answers[:first]).both, same) >= STAYS

    every = list(range(numbers.shape[1]))
    if not good(every):
        return [], target[:0]
    size = numbers.std(0) * fit(every)[:-1].norm(dim=1)
    kept = sorted(fewest(size.argsort().tolist(), good))
    return kept, fit(kept)
