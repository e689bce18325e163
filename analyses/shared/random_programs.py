"""Random programs in which each step matters, for tests of techniques on models whose circuit is known.

Steps are drawn layer by layer and run on all inputs as they are drawn: heads that look at the previous or a fixed
position, at the largest value, at what matches, evenly at some values, or by soft scores; tables of codes; thresholds
of shares between numbers that occur; products, if asked for; and weights of the answers. A program is kept if no
variable is constant, several answers are frequent, no answer is close to a tie, and the mean in place of any one
variable changes answers.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from interp.errors import InterpError
from interp.programs.language import Program
from interp.programs.steps import NEVER, Head, Linear, Matrix, Product, Step, Table, Values
from interp.programs.task import ProgramTask

MOST_INPUTS = 4096
CHECKED = 1000
"""Inputs on which variables are replaced by their mean."""
MATTERS = 0.02
"""Least share of answers that change when a variable is replaced by its mean."""
RARE = 0.05
"""Least share of the second most frequent answer."""
LEAD = 1e-3
"""Least lead of an answer over the next, and half the least distance between a threshold and the numbers that occur."""
TRIES = 400
FAR = 40.0
"""Difference of scores that decides which value is attended to."""


@dataclass(frozen=True)
class Shape:
    """What a random program is like; None is drawn.

    layers: 1 to 4. heads: most heads of a layer, 1 to 3. maps: whether there are MLPs. marks: whether rows begin or end
    with marks. products: whether MLPs multiply the token with shares of tokens, where a head of their layer has these.
    """

    layers: int | None = None
    heads: int | None = None
    maps: bool | None = None
    causal: bool | None = None
    padding: bool | None = None
    marks: bool | None = None
    products: bool = False


def random_program(seed: int, shape: Shape = Shape()) -> ProgramTask:
    """Draw a program with its inputs, at most MOST_INPUTS; the same for the same arguments.

    Raises InterpError if TRIES draws are not enough.

    Example:

        >>> task = random_program(0)
        >>> interp.compile(task, decoys=2).task.program.answers == task.program.answers
        True
    """
    rng = random.Random(f"program {seed}")
    likely = {"layers": rng.randint(1, 4), "heads": rng.randint(1, 3)}
    likely |= {
        name: rng.random() < p for name, p in (("maps", 0.75), ("causal", 0.5), ("padding", 0.3), ("marks", 0.5))
    }
    given = {name: value for name, value in vars(shape).items() if value is not None}
    for _ in range(TRIES):
        if (task := _draw(rng, **{**likely, **given})) is not None:
            return task
    raise InterpError(f"no program of {shape} in {TRIES} draws from seed {seed}: try another seed")


def _draw(
    rng: random.Random, layers: int, heads: int, maps: bool, causal: bool, padding: bool, marks: bool,
    products: bool,
) -> ProgramTask | None:  # fmt: skip
    first = "[BOS]" if marks and rng.random() < 0.6 else ""
    last = "=" if marks and (not first or rng.random() < 0.6) else ""
    letters, size = rng.randint(3, 5), rng.randint(4, 7)
    while letters**size > MOST_INPUTS // (1 + padding):
        size -= 1
    words = (*"abcde"[:letters], *filter(None, (first, last)), *(("pad",) if padding else ()))
    read = rng.choice(("all", last or "last", *(() if causal else ("first",))))
    length = size + bool(first) + bool(last)
    blank = Program(words, length, causal, (), _blank(words), read, "pad" if padding else None)
    rows: dict[str, Any] = {"shortest": max(1, size - 2) if padding else 0, "first": first, "last": last}
    draft = _Draft(rng, blank, ProgramTask(program=blank.to_json(), **rows), products)
    for layer in range(layers):
        if not draft.layer(layer, heads if layer < layers - 1 else min(heads, 2), maps):
            return None
    program = draft.finished()
    return None if program is None else ProgramTask(program=program.to_json(), **rows)


def _blank(words: Values) -> Linear:
    return Linear("answer", ("token",), (tuple((0.0, 0.0) for _ in words),), (0.0, 1.0), ("0", "1"))


@dataclass
class _Draft:
    rng: random.Random
    program: Program
    task: ProgramTask
    products: bool
    steps: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        batches = list(self.task.inputs())
        self.tokens = torch.cat([batch.tokens for batch in batches])
        self.there = torch.cat([batch.attention_mask for batch in batches])
        self.made = self.program.run(self.tokens)
        self.values = dict(self.program.values)
        self.age = {"token": 0, "position": 0}

    # ------------------------------------------------------------ variables

    def is_code(self, name: str) -> bool:
        return bool((self.made[name][self.there].amax(-1) > 1 - 1e-9).all())

    def codes(self, at: int) -> list[str]:
        """Codes that exist at a time: 2 l in attention of layer l, 2 l + 1 in its MLP."""
        return [name for name, age in self.age.items() if age <= at and self.is_code(name)]

    def leaves(self) -> list[str]:
        read = {name for step in self.steps for name in step.of}
        return [step.name for step in self.steps if step.name not in read]

    def add(self, step: Head | Table | Linear | Product, age: int) -> bool:
        """Run a step, and keep it unless it is constant or equals another variable."""
        longer = replace(self.program, steps=(*self.steps, step))
        made = longer.run(self.tokens, given=self.made)[step.name]
        here = made[self.there]
        if float((here - here[0]).abs().max()) < 1e-6:
            return False
        if any(self.made[name][self.there].equal(here) for name in self.made):
            return False
        self.made[step.name], self.age[step.name] = made, age
        self.values[step.name] = longer.values[step.name]
        self.steps.append(step)
        return True

    # ------------------------------------------------------------ steps

    def layer(self, layer: int, most: int, maps: bool) -> bool:
        """Add heads and perhaps a map; False if none of several draws will do."""
        wanted, before = self.rng.randint(1, most), len(self.steps)
        for _ in range(6 * wanted):
            step = self.head(layer, f"h{layer}{len(self.steps) - before}")
            if step is not None:
                self.add(step, 2 * layer + 1)
            if len(self.steps) - before == wanted:
                break
        else:
            return False
        if maps and (layer == 0 or self.rng.random() < 0.7):
            return any(self.map(layer, f"m{layer}") for _ in range(4))
        return True

    def head(self, layer: int, name: str) -> Head | None:
        rng, codes = self.rng, self.codes(2 * layer)
        new = [name for name, age in self.age.items() if 2 * layer - 1 <= age <= 2 * layer]
        query, key, value = "", rng.choice(codes), rng.choice(new if layer else ["token"])
        kind = rng.choice(("shift", "fixed", "largest", "largest", "match", "match", "some", "soft"))
        n = self.program.length
        if kind == "shift":
            step = rng.choice((-1, -1, -2, 1)) if self.program.pad is None and not self.program.causal else -1
            query = key = "position"
            scores = [[0.0 if k == min(max(q + step, 0), n - 1) else NEVER for k in range(n)] for q in range(n)]
            return Head(name, query, key, _matrix(scores), value)
        if kind == "fixed":
            at = rng.randrange(2 if self.program.causal else n - 2)
            return Head(name, "", "position", _matrix([[0.0 if k == at else NEVER for k in range(n)]]), value)
        if kind == "largest":
            own = [one for one in new if one in codes and one != "position"]
            if not own:
                return None
            key = rng.choice(own)
            order = _shuffled(rng, len(self.values[key]))
            return Head(name, "", key, _matrix([[FAR * rank for rank in order]]), key)
        query, value = rng.choice(codes), rng.choice([one for one in codes if one != "position"])
        if kind == "some" or (kind == "soft" and rng.random() < 0.5):
            query = ""
        if not {query, key, value} & set(new):  # it would be in an earlier layer
            return None
        keys = len(self.values[key])
        if kind == "some":
            chosen = set(_shuffled(rng, keys)[: rng.randint(1, max(1, keys - 1))])
            return Head(name, "", key, _matrix([[0.0 if k in chosen else NEVER for k in range(keys)]]), value)
        if kind == "soft":
            rows = len(self.values[query]) if query else 1
            soft = [[math.log(rng.randint(1, 4)) for _ in range(keys)] for _ in range(rows)]
            return Head(name, query, key, _matrix(soft), value)
        pairs = _shuffled(rng, keys)
        same = self.values[query] == self.values[key]
        scores = [[0.0 if k == (q if same else pairs[q % keys]) else NEVER for k in range(keys)]
                  for q in range(len(self.values[query]))]  # fmt: skip
        return Head(name, query, key, _matrix(scores), value)

    def map(self, layer: int, name: str) -> bool:
        own = [step.name for step in self.steps if self.age[step.name] == 2 * layer + 1]
        tokens = [one for one in own if not self.is_code(one) and self.values[one] == self.program.vocabulary]
        if self.products and tokens:
            return self.add(Product(name, ("token", self.rng.choice(tokens))), 2 * layer + 2)
        chosen = [own[at] for at in _shuffled(self.rng, len(own))][: self.rng.randint(1, 2)]
        if all(map(self.is_code, chosen)):
            return self.add(self.table(chosen, name, 2 * layer + 1), 2 * layer + 2)
        found = self.threshold(chosen, name)
        return found is not None and self.add(found, 2 * layer + 2)

    def table(self, of: list[str], name: str, at: int) -> Table:
        rng = self.rng
        if len(of) == 1 and rng.random() < 0.7:
            of = list(dict.fromkeys([*of, rng.choice(self.codes(at))]))
        sizes = [len(self.values[one]) for one in of]
        n = rng.randint(2, 4)
        kind = rng.choice(("equal", "sum", "random"))
        if kind == "equal" and len(of) == 2:
            entries = [
                int(self.values[of[0]][i] == self.values[of[1]][j]) for i in range(sizes[0]) for j in range(sizes[1])
            ]
            return Table(name, tuple(of), tuple(entries), ("0", "1"))
        if kind == "sum" and len(of) == 2:
            entries = [(i + j) % n for i in range(sizes[0]) for j in range(sizes[1])]
        else:
            entries = [rng.randrange(n) for _ in range(math.prod(sizes))]
        return Table(name, tuple(of), tuple(entries), tuple(map(str, range(n))))

    def threshold(self, of: list[str], name: str) -> Linear | None:
        """Two or three levels of a sum of shares, with limits amid numbers that occur."""
        rng = self.rng
        sizes = [len(self.values[one]) for one in of]
        weights = [[float(rng.choice((-1, 0, 0, 1))) for _ in range(size)] for size in sizes]
        z = sum(self.made[one] @ torch.tensor(row).double() for one, row in zip(of, weights))
        numbers = torch.as_tensor(z)[self.there]
        order = numbers.sort().values
        gaps = ((order[1:] - order[:-1]) > 2 * LEAD).nonzero()[:, 0]
        inner = gaps[(gaps > 0.1 * len(order)) & (gaps < 0.9 * len(order))]
        if not len(inner):
            return None
        levels = min(rng.randint(1, 2), len(inner))
        at = sorted(int(inner[i]) for i in _shuffled(rng, len(inner))[:levels])
        limits = [float(order[i] + order[i + 1]) / 2 for i in at]
        matrices = tuple(_matrix([[level * w for level in range(levels + 1)] for w in row]) for row in weights)
        bias = tuple(0.0 - sum(limits[:level]) for level in range(levels + 1))
        return Linear(name, tuple(of), matrices, bias, tuple(map(str, range(levels + 1))))

    # ------------------------------------------------------------ the answer

    def finished(self) -> Program | None:
        """The program with an answer that depends on each step, or None."""
        rng, leaves = self.rng, self.leaves()
        if len(leaves) > 3:
            return None
        for _ in range(4):
            sizes = [len(self.values[one]) for one in leaves]
            if len(leaves) == 1 and self.is_code(leaves[0]) and rng.random() < 0.7:
                n = sizes[0]
                matrices: tuple[Matrix, ...] = (_matrix([[float(i == j) for j in range(n)] for i in range(n)]),)
            else:
                n = rng.randint(2, 4)
                matrices = tuple(
                    _matrix([[float(rng.randint(-3, 3)) for _ in range(n)] for _ in range(size)]) for size in sizes
                )
            bias = tuple(0.13 * (at * at % 5) for at in range(n))
            answer = Linear("answer", tuple(leaves), matrices, bias, tuple(f"y{at}" for at in range(n)))
            if self.fair(answer):
                program = replace(self.program, steps=tuple(self.steps), answer=answer)
                return program if self.matter(program) else None
        return None

    @cached_property
    def reads(self) -> Tensor:
        """Mask of the positions at which answers are read."""
        if self.program.read == "all":
            return self.there
        at = self.program.reads(self.tokens)
        return torch.zeros_like(self.there).scatter(1, at[:, None], True)

    def fair(self, answer: Linear) -> bool:
        """Whether two answers or more are frequent, and none is close to a tie."""
        sums = answer.sums(self.made)[self.reads]
        top = sums.topk(2, -1)
        shares = top.indices[:, 0].bincount(minlength=2).double().sort(descending=True).values / len(sums)
        return float((top.values[:, 0] - top.values[:, 1]).min()) > LEAD and float(shares[1]) >= RARE

    def matter(self, program: Program) -> bool:
        """Whether the mean of a variable, over all positions or those that are read, changes answers."""
        some = torch.tensor(_shuffled(self.rng, len(self.tokens))[:CHECKED])
        tokens, reads = self.tokens[some], self.reads[some]
        right = program.classes(tokens)[reads]
        for step in program.steps:
            for where in (self.there, self.reads):
                mean = self.made[step.name][where].mean(0).expand(*tokens.shape, -1)
                made = program.run(tokens, given={step.name: mean})
                changed = program.answer.sums(made).argmax(-1)[reads] != right
                if float(changed.double().mean()) < MATTERS:
                    return False
        return True


def _matrix(rows: list[list[float]]) -> Matrix:
    return tuple(map(tuple, rows))


def _shuffled(rng: random.Random, n: int) -> list[int]:
    order = list(range(n))
    rng.shuffle(order)
    return order
