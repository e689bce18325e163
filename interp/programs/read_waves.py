"""Describe by waves: heads that attend by a number's points on a few circles, an MLP that holds those of a sum.

Tried where addition modulo p acts on tokens (Task.cyclic) that are the first p of the vocabulary. Key frequencies are
those with the most power, of scores as a function of the number, and of the MLP's output as a function of the sum of
the two numbers that heads read. The description takes the part's place in the running model.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from interp.measures.runs import Part
from interp.programs.quantize import Quantized
from interp.programs.reading import Reading, matrix, regressed
from interp.programs.steps import NEVER, Head, Linear, Step
from interp.programs.waves import Cosines, Waves, wave_matrix

KEY = 0.02
"""Least power of a key frequency of an MLP, as a share of the strongest one's."""
MOST = 8
"""Most key frequencies."""


def attention_by_waves(reading: Reading, found: Quantized, head: Head, mean: Tensor, enough: float) -> list[Step]:
    """A head that attends by the token, as one that attends by the fewest waves of it that keep the answers.

    mean: what it reads of each token. Returns the waves and the head, or nothing.
    """
    period, n = cycle(reading), len(reading.task.vocabulary)
    by_token = (head.query, head.key, head.value) == ("", "token", "token") and not head.hard and not head.total
    if not period or not by_token or NEVER in head.scores[0]:
        return []
    scores = torch.tensor(head.scores[0], dtype=torch.float64)[:, None]
    order = torch.fft.rfft(scores[:period, 0]).abs()[1:].argsort(descending=True, stable=True) + 1
    for few in range(1, MOST + 1):
        frequencies = (0, *sorted(order[:few].tolist()))  # of 0, the cosine tells numbers from other tokens
        waves = Waves(f"{head.name} key", ("token",), period, frequencies)
        weights, _ = regressed(waves.mapped({"token": torch.eye(n).double()}), scores)
        steps: list[Step] = [waves, replace(head, key=waves.name, scores=matrix(weights.T))]
        if sum(step.constants for step in steps) >= head.constants:
            break
        value = (reading.variable(*steps) @ mean.double()).float()
        if reading.stays(found.part, reading.spread(found, value)) >= enough:
            return steps
    return []


def describe_by_waves(reading: Reading, part: Part, found: Quantized) -> bool:
    """Describe an MLP by waves of the sum of the two numbers that heads read, if these keep the answers.

    Of waves of one size, and waves that fade with the distance of the numbers, those are taken that have more of the
    variance of what is read of the output.
    """
    period, of = cycle(reading), heads(reading, part)
    if not period or not of:
        return False
    where, enough = found.needed, reading.enough()
    value, low = reading.running.value(part).double(), reading.low(part).double()
    every = Waves(str(part), of, period, tuple(range(1, period // 2 + 1)), 2, part=str(part))
    tried = [
        with_key_frequencies(reading, wave, value[where] @ low, where) for wave in (every, replace(every, fading=True))
    ]
    share, step = max(tried, key=lambda pair: pair[0])
    if len(step.frequencies) > MOST:
        return False
    numbers = reading.variable(step)
    vectors, constant = regressed(numbers[where], value[where])
    new = (numbers @ vectors + constant).float()
    note = f"these waves have {share:.1%} of the variance of what is read of its output"
    return reading.explain(part, found, [step], vectors.float(), new, enough, note)


def cycle(reading: Reading) -> int:
    """How many numbers there are: the size of the task's cyclic group whose numbers are its first tokens, or 0."""
    groups = map(tuple, reading.task.cyclic.values())
    return next((len(group) for group in groups if tuple(reading.task.vocabulary[: len(group)]) == group), 0)


def heads(reading: Reading, part: Part) -> tuple[str, ...]:
    """The variables of heads that hold tokens, and that reach an MLP by a direct path that matters."""
    sources = reading.edges(part.layer)
    return tuple(
        name
        for name in reading.made
        if name != "token" and reading.holds_tokens(name) and reading.before(name, part)
        and reading.allowed(name, sources)
    )  # fmt: skip


def with_key_frequencies(
    reading: Reading, step: Waves, target: Float[Tensor, "points d"], where: Tensor
) -> tuple[float, Waves]:
    """The waves with key frequencies alone, and their share of the variance."""
    centered = target - target.mean(0)
    waves = reading.variable(step)[where]
    waves = waves - waves.mean(0)
    power = (waves.T @ centered).square().sum(1) / waves.square().sum(0).clamp(min=1e-9)
    power = power.view(-1, 2).sum(1)
    chosen = [k for k, size in zip(step.frequencies, power.tolist(), strict=True) if size >= KEY * float(power.max())]
    step = replace(step, frequencies=tuple(chosen))
    numbers = reading.variable(step)[where]
    vectors, constant = regressed(numbers, target)
    left = (target - numbers @ vectors - constant).square().sum()
    return 1 - float(left / centered.square().sum().clamp(min=1e-30)), step


def as_cosines(reading: Reading, answer: Linear, enough: float) -> Cosines | None:
    """A readout of waves alone as a sum of cosines around each answer, if this gives the answers."""
    step = reading.step(answer.of[0]) if len(answer.of) == 1 else None
    if not isinstance(step, Waves) or answer.values != tuple(reading.task.vocabulary[: step.period]):
        return None
    weights = torch.tensor(answer.weights[0], dtype=torch.float64)
    along = (weights * wave_matrix(step.frequencies, step.period)).mean(1).view(-1, 2).sum(1)
    cosines = Cosines("answer", answer.of, step.frequencies, tuple(along.tolist()), answer.values)
    return cosines if reading.answered(cosines).share >= enough else None
