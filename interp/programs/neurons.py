"""Maps of codes and shares as ReLU neurons.

The neurons of a map read variables that have one value (codes), and at most one number z that is linear in the shares.
relu(sum of the components of k values - (k - 1)) is 1 where all k values are there and 0 elsewhere. Where z decides, a
step from one value to another between the numbers z1 < z2 that occur is relu(u) - relu(u - 1) with
u = (3 z - 2 z1 - z2) / (z2 - z1): 0 below the middle third of the interval and 1 above it. Which numbers occur is taken
from the task's inputs: from all if there are at most EVERY, otherwise from a sample. A product of a code and shares has
one neuron for each value, relu(its component of the code + its share - 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.errors import InterpError
from interp.programs.language import Program
from interp.programs.steps import Head, Linear, Product, Table
from interp.programs.task import ProgramTask

EVERY = 1 << 16
"""Most inputs that are all run; of more, a sample of SAMPLED is."""
SAMPLED = 1 << 13
MOST_NEURONS = 4096
Map: TypeAlias = Table | Linear | Product
SAME = 1e-9
"""Numbers that differ by less are one number."""
APART = 1e-6
"""Numbers between which a map changes its value must be at least this far apart."""


class Observed:
    """What occurs on the task's inputs: the shares that maps read, which heads give codes, and the answers' margin."""

    def __init__(self, task: ProgramTask, program: Program) -> None:
        self.program, self.whole = program, task.n_inputs <= EVERY
        self.rows, self.margin = 0, math.inf
        maps = [step for step in program.steps if not isinstance(step, Head | Product)]
        heads = [step.name for step in program.steps if isinstance(step, Head | Product)]
        self.points: dict[str, Tensor] = {}
        self.codes = set(program.values) - set(heads)
        soft = {step.name: [name for name in step.of if name in heads] for step in maps}
        unsettled = set(heads)
        for batch in task.inputs() if self.whole else [task.sample(SAMPLED)]:
            made, there = program.run(batch.tokens), batch.attention_mask
            self.rows += len(batch)
            unsettled &= {name for name in heads if bool((made[name][there].amax(-1) > 1 - SAME).all())}
            for step in maps:
                if soft[step.name]:
                    here = torch.cat([made[name][there] for name in step.of], -1)
                    known = self.points.get(step.name, here[:0])
                    self.points[step.name] = _distinct(torch.cat([known, here]))
            sums = program.answer.sums(made)
            reads = there if task.readout == "all" else (torch.arange(len(batch)), program.reads(batch.tokens))
            top = sums[reads].topk(2, -1).values
            self.margin = min(self.margin, float((top[:, 0] - top[:, 1]).min()))
        self.codes |= unsettled
        if self.margin < SAME:
            raise InterpError(
                "two answers of the program have the same sum of weights, and rounding would decide: change its bias"
            )

    def of(self, step: Table | Linear) -> tuple[Float[Tensor, "points features"], Int[Tensor, "points"]]:
        """The weights of the step's variables that occur, and the value that the step gives each of them."""
        sizes = [len(self.program.values[name]) for name in step.of]
        if all(name in self.codes for name in step.of):  # every combination of values
            if math.prod(sizes) > MOST_NEURONS:
                raise InterpError(
                    f"{step.name} has {math.prod(sizes):,} combinations of values; at most {MOST_NEURONS:,} compile"
                )
            each = product(*(torch.eye(size, dtype=torch.float64) for size in sizes))
            none = torch.zeros(0, dtype=torch.float64)
            points = torch.stack([torch.cat([*one, none]) for one in each])
        else:
            points = self.points[step.name]
        parts = points[:, None].split(sizes, -1)
        made = {"token": points[:, None], **dict(zip(step.of, parts))}
        return points, step.mapped(made)[:, 0].argmax(-1)


def _distinct(points: Float[Tensor, "points features"]) -> Float[Tensor, "distinct features"]:
    """Keep one of points that are equal up to rounding."""
    _, index = torch.unique((points / SAME).round(), dim=0, return_inverse=True)
    kept = torch.empty(int(index.max()) + 1 if len(index) else 0, dtype=torch.long)
    kept[index] = torch.arange(len(index))
    return points[kept]


# ---------------------------------------------------------------- maps


@dataclass(frozen=True)
class Neurons:
    """relu(features @ into + shift) @ out + base, over the concatenated weights of a step's variables."""

    into: Float[Tensor, "features neurons"]
    shift: Float[Tensor, "neurons"]
    out: Float[Tensor, "neurons values"]
    base: Float[Tensor, "values"]


def neurons(step: Map, found: Observed) -> Neurons:
    """Write a map as ReLU neurons. Raises InterpError if it has no exact form."""
    if isinstance(step, Product):
        return _product(step, found)
    points, classes = found.of(step)
    values = torch.eye(len(step.values), dtype=torch.float64)
    gated, number = _form(step, found, points)
    z = points @ number
    default = int(classes.mode().values)
    base = values[default]
    into: list[Tensor] = []
    shift: list[float] = []
    out: list[Tensor] = []
    n_gates = sum(name in found.codes for name in step.of) if bool(gated.any()) else 0
    keys, group = torch.zeros(1, 0, dtype=torch.float64), torch.zeros(len(points), dtype=torch.long)
    if n_gates:
        keys, group = torch.unique(points[:, gated].round(), dim=0, return_inverse=True)
    for at, key in enumerate(keys):
        here = group == at
        order = z[here].argsort()
        numbers, wanted = z[here][order], classes[here][order]
        gate = torch.zeros(points.shape[1], dtype=torch.float64)
        gate[gated] = key
        if not n_gates:
            base = values[int(wanted[0])]
        elif int(wanted[0]) != default:
            into.append(gate)
            shift.append(1.0 - n_gates)
            out.append(values[int(wanted[0])] - base)
        for i in (wanted[1:] != wanted[:-1]).nonzero()[:, 0].tolist():
            low, high = float(numbers[i]), float(numbers[i + 1])
            if high - low < APART:
                raise InterpError(
                    f"{step.name} has no exact form: two sums that differ by {high - low:.1g} have different values"
                )
            slope, start = 3 / (high - low), (2 * low + high) / (high - low)
            reach = float((slope * z - start).amax().clamp(min=0)) + 1
            change = values[int(wanted[i + 1])] - values[int(wanted[i])]
            for minus, sign in ((0.0, 1.0), (1.0, -1.0)):
                into.append(slope * number + reach * gate)
                shift.append(-start - minus - reach * n_gates)
                out.append(sign * change)
    if len(into) > MOST_NEURONS:
        raise InterpError(f"{step.name} needs {len(into):,} neurons; at most {MOST_NEURONS:,} compile")
    if not into:  # a constant
        into, shift, out = [torch.zeros_like(number)], [0.0], [torch.zeros_like(base)]
    return Neurons(torch.stack(into).T, torch.tensor(shift, dtype=torch.float64), torch.stack(out), base)


def _product(step: Product, found: Observed) -> Neurons:
    if not set(step.of) & found.codes:
        raise InterpError(
            f"{step.name} multiplies shares by shares: only products with one value at each position compile"
        )
    each = torch.eye(len(found.program.values[step.name]), dtype=torch.float64)
    return Neurons(torch.cat([each, each]), -each.sum(0), each, 0.0 * each[0])


def _form(
    step: Table | Linear, found: Observed, points: Float[Tensor, "points features"]
) -> tuple[Bool[Tensor, "features"], Float[Tensor, "features"]]:
    """Return which features the neurons read as codes, and the number that they compare: its weight of each feature."""
    sizes = [len(found.program.values[name]) for name in step.of]
    code = torch.cat(
        [torch.full((n,), name in found.codes) for n, name in zip(sizes, step.of)] or [torch.zeros(0).bool()]
    )
    nothing = torch.zeros(len(code), dtype=torch.float64)
    if isinstance(step, Linear) and step.of:
        blocks = [torch.tensor(matrix, dtype=torch.float64) for matrix in step.weights]
        weights = torch.cat([block - block.mean(0) for block in blocks])  # what all values have is a constant
        if (number := _one_number(weights)) is not None:
            return torch.zeros_like(code), number
    if bool(code.all()):
        return code, nothing
    if isinstance(step, Linear):
        if (number := _one_number(weights * ~code[:, None])) is not None:
            return code, number
        raise InterpError(f"{step.name} compares several sums of shares: only thresholds of one sum have exact weights")
    live = ~code & (points > SAME).any(0)
    shared = [name for name in step.of if name not in found.codes]
    if len(shared) > 1 or int(live.sum()) > 2:
        raise InterpError(
            f"{step.name} is a table of the largest share of {' and '.join(shared)}, which mixes values: tables "
            "have exact weights over variables with one value at each position, and over the shares of two values; let "
            "the head attend to one position (if it is causal, not to a later one), or compare sums of shares"
        )
    low, high = live.nonzero()[:, 0].tolist()
    nothing[low], nothing[high] = -1.0, 1.0
    return code, nothing


def _one_number(weights: Float[Tensor, "features values"]) -> Float[Tensor, "features"] | None:
    """Return the direction along which all differences of sums lie, or None if there are several."""
    u, s, _ = torch.linalg.svd(weights - weights[:, :1], full_matrices=False)
    if len(s) > 1 and s[1] > SAME * s[0]:
        return None
    return u[:, 0] / u[:, 0].abs().max()
