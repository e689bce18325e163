"""Which algorithm a program is: its steps without names, parts and constants, so that two programs can be compared.

A variable is known by what it divides: two variables that divide the same positions of the same inputs into the same
groups are one, whatever their values are called, and whichever head makes them. So programs are compared on common
inputs, at the positions where a variable is read:

    same steps      the same variables, each made by the same kind of step from the same variables, and graded attention
                    with the same weights up to TOLERANCE
    same shape      the same up to thresholds and graded weights: what depends on a graded weight is known by the kind
                    of its step and by what it reads, not by what it divides
    same answers    the same answers, whatever the steps are

Left out: names, the order of heads, constants, inputs of a map that are constant or that what it makes does not depend
on, and maps that only rename the values of one variable, or that prepare one variable for a head. Heads that do the
same are one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from einops import einsum
from jaxtyping import Bool, Float, Int, Num
from torch import Tensor

from interp.programs.language import Program
from interp.programs.steps import Features, Head, Linear, Step, Sums, Table, Weighed, visible
from interp.programs.waves import Cosines

FORM = 3
"""Version of the canonical form: it is made anew from a row's explanation if the row has an earlier one."""
TOLERANCE = 0.05
"""Largest difference of the products of two graded weights that are the same."""
GRADED = 0.01
"""A weight that is further than this from 0 and 1 is graded."""
ATTENDED = 0.01
"""Attention below this share reads nothing that counts as a step."""
MOST = 0.5
"""Attention of at least this share of the largest is where a head with graded attention looks."""
SEEN = 0.05
"""Attention to a value of the key, all of its occurrences together, that counts for where a head looks."""
SLIGHT = 0.01
"""An input that moves sums by at most this share of their spread does not matter."""
POINTS = 48
"""Positions at which graded weights are compared."""


@dataclass(frozen=True)
class Canonical:
    """A program without what does not matter to which algorithm it is.

    steps, shape: keys; programs with the same key have the same steps, or shape. weights: of the heads with graded
    attention, by the key of their steps, the products of a head's weights at pairs of positions, (points, points).
    answers: the program's answers on the common inputs. variables: the names of the variables with the same shape in
    the program, by their key, in the order of the program.
    """

    steps: str
    shape: str
    weights: Mapping[str, Sequence[Float[np.ndarray, "points points"]]]
    answers: Int[np.ndarray, "reads"]
    variables: Mapping[str, Sequence[str]]

    def to_plain(self) -> dict[str, Any]:
        """Return plain data, without the digits that TOLERANCE makes meaningless."""
        weights = {key: [np.round(table, 4).tolist() for table in tables] for key, tables in self.weights.items()}
        return {**vars(self), "weights": weights, "answers": self.answers.tolist()}

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Canonical:
        """Read the result of to_plain."""
        weights = {key: [np.asarray(t, dtype=np.float64) for t in tables] for key, tables in data["weights"].items()}
        return cls(**{**data, "weights": weights, "answers": np.asarray(data["answers"], dtype=np.int64)})

    def same_steps(self, other: Canonical) -> bool:
        """Test whether another program has the same steps, up to TOLERANCE of graded weights."""
        if self.steps != other.steps or {*self.weights} != {*other.weights}:
            return False
        return all(_near(self.weights[key], other.weights[key]) for key in self.weights)

    def same_answers(self, other: Canonical) -> float:
        """Return the share of the common inputs' answers that are the same."""
        return float((self.answers == other.answers).mean()) if len(self.answers) == len(other.answers) else 0.0


def canonical(
    program: Program, tokens: Int[Tensor, "rows length"], counts: Num[Tensor, "rows length"] | None = None
) -> Canonical:
    """Return the canonical form of a program on common inputs (the same for all programs that are compared).

    counts: how often each position counts, as in Program.run.

    Example:

        >>> from interp.programs.task import ENDS
        >>> tokens = torch.tensor([[0, 0, 1], [0, 1, 0], [1, 1, 1], [1, 0, 1]])
        >>> canonical(ENDS, tokens).steps == canonical(Program.from_json(ENDS.to_json()), tokens).steps
        True
    """
    return _Walk(program, tokens, program.weights(tokens) if counts is None else counts).result()


class _Walk:
    """One program on the common inputs, walked from the answer to what it reads."""

    def __init__(self, program: Program, tokens: Int[Tensor, "rows length"], counts: Num[Tensor, "rows length"]):
        self.program, self.tokens = program, tokens
        self.made: Features = program.run(tokens, counts)
        self.seen = visible(counts, program.causal)
        self.read_at = _read_at(program, tokens)
        self.patterns = {
            step.name: step.attention(self.made, self.seen) for step in program.steps if isinstance(step, Head)
        }
        self.inputs: dict[str, tuple[str, ...]] = {}
        self.needed = self._needed()
        self.graded = self._graded()
        self.keys: dict[str, tuple[str, str]] = {}

    # ------------------------------------------------------------ where variables are read

    def _needed(self) -> dict[str, Bool[Tensor, "rows length"]]:
        """The positions at which each variable is read, by what depends on it."""
        nowhere = torch.zeros_like(self.tokens, dtype=torch.bool)
        needed = {name: nowhere.clone() for name in self.made}
        for step in (self.program.answer, *reversed(self.program.steps)):
            here = needed.get(step.name, self.read_at)
            if not isinstance(step, Head):
                self.inputs[step.name] = self._mattering(step, needed)
                for name in self.inputs[step.name]:
                    needed[name] |= here
                continue
            asked = here[:, :, None]
            if step.query:
                needed[step.query] |= here
            if step.key:
                needed[step.key] |= self._visible_from(here)
            needed[step.value] |= (asked & (self.patterns[step.name] > ATTENDED)).any(1)
        return needed

    def _mattering(self, step: Step, needed: Mapping[str, Bool[Tensor, "rows length"]]) -> tuple[str, ...]:
        """The inputs of a map on which what it makes depends: of weighted sums, those that cannot be at their mean,
        slightest first, without a change of what the sums are for (see `_stays`)."""
        here = needed.get(step.name, self.read_at)
        if not isinstance(step, Weighed) or not here.any():
            return step.of
        whole = step.sums(self.made)
        left, kept = whole.clone(), list(step.of)
        moved = {
            name: sums - sums[here].mean(0)
            for name, matrix in zip(step.of, step.weights, strict=True)
            for sums in [self.made[name] @ torch.tensor(matrix, dtype=torch.float64)]
        }
        for name in sorted(step.of, key=lambda name: float(moved[name][here].std(0, correction=0).max())):
            without = torch.where(here[..., None], left - moved[name], left)
            if self._stays(step, whole, without, needed):
                left, kept = without, [other for other in kept if other != name]
        return tuple(kept)

    def _stays(self, step: Weighed, whole: Tensor, without: Tensor, needed: Mapping[str, Tensor]) -> bool:
        """Whether other sums do as well: no largest one changes, no attention to which they lead does by more than
        ATTENDED, or else they are less than SLIGHT of their spread away."""
        here = needed.get(step.name, self.read_at)
        if isinstance(step, Linear):
            return torch.equal(without.argmax(-1)[here], whole.argmax(-1)[here])
        heads = [head for head in self.program.steps if isinstance(head, Head) and step.name in (head.query, head.key)]
        for head in heads:
            attention = head.attention({**self.made, step.name: without}, self.seen)
            if float((attention - self.patterns[head.name])[needed[head.name]].abs().max()) > ATTENDED:
                return False
        apart = float((without - whole)[here].abs().max())
        return bool(heads) or apart <= SLIGHT * float((whole[here] - whole[here].mean(0)).abs().max())

    def _graded(self) -> dict[str, bool]:
        """Whether a variable is graded, or made of one that is: then what it divides hangs on weights or thresholds."""
        graded: dict[str, bool] = {"token": False, "position": False}
        for step in self.program.steps:
            read = step.of if isinstance(step, Head) else self.inputs[step.name]
            if _prepares(step) and len(read) < 2:
                graded[step.name] = any(graded[name] for name in read)
                continue
            weights = self.made[step.name][self.needed[step.name]]
            between = bool(((weights > GRADED) & (weights < 1 - GRADED)).any() | (weights > 1 + GRADED).any())
            graded[step.name] = between or any(graded[name] for name in read)
        return graded

    # ------------------------------------------------------------ keys

    def groups(self, name: str, here: Bool[Tensor, "rows length"]) -> Int[np.ndarray, "positions"]:
        """The group of each position, numbered in the order in which they occur."""
        return _numbered(self.made[name][here].argmax(-1).numpy())

    def alike(self, name: str) -> str:
        """The variable that a map only renames or prepares for a head, or the variable itself."""
        while name not in ("", "token", "position"):
            step = self.program.step(name)
            here = self.needed[name]
            if isinstance(step, Head):
                return name
            of = self.inputs[name]
            if len(of) == 1 and _prepares(step):
                name = of[0]
                continue
            if self.graded[name]:
                return name
            mine = self.groups(name, here)
            same = [other for other in of if np.array_equal(self.groups(other, here), mine)]
            if not same:
                return name
            name = same[0]
        return name

    def reads(self, step: Step) -> list[str]:
        """What a map depends on: of its inputs, those without which its value is not known from the others."""
        here = self.needed.get(step.name, self.read_at)
        inputs = [name for name in self._inlined(self.inputs[step.name]) if not self._constant(name, here)]
        if any(self.graded[name] for name in inputs) and not isinstance(step, Table):  # a table reads what is largest
            return inputs
        values = self.made[step.name].argmax(-1) if step.name in self.made else self.answered()
        made = values[here].numpy()
        for name in list(inputs):
            others = [other for other in inputs if other != name]
            if len(inputs) > 1 and _depends(made, [self.groups(other, here) for other in others]):
                inputs = others
        return inputs

    def _inlined(self, of: Sequence[str]) -> list[str]:
        """Inputs of a map; in place of a map that describes no part of a model, what that reads."""
        inlined: list[str] = []
        for name in of:
            step = None if name in ("token", "position") else self.program.step(name)
            inner = step is not None and not step.part and not isinstance(step, Head)
            inlined += self._inlined(self.inputs[name]) if inner else [name]
        return list(dict.fromkeys(inlined))

    def answered(self) -> Int[Tensor, "rows length"]:
        return self.program.answer.sums(self.made).argmax(-1)

    def key(self, name: str) -> tuple[str, str]:
        """The keys of a variable: of its steps, and of its shape."""
        name = self.alike(name)
        if name not in self.keys:
            self.keys[name] = self._key(name)
        return self.keys[name]

    def _key(self, name: str) -> tuple[str, str]:
        if name in ("token", "position"):
            return name, name
        here = self.needed[name]
        where = _digest(np.packbits(here.numpy()).tobytes())
        step = self.program.step(name)
        divides = "" if self.graded[name] else _digest(self.groups(name, here).tobytes())
        steps, shapes = (self._made_of(step, grade) for grade in (0, 1))
        return _digest(f"{steps} {where} {divides}"), _digest(f"{shapes} {where} {divides}")

    def _made_of(self, step: Step, grade: int) -> str:
        """How a variable is made, in the keys of what it reads."""
        if isinstance(step, Head):
            here = self.needed[step.name]
            pattern = self.patterns[step.name][here]
            hard = not bool(((pattern > GRADED) & (pattern < 1 - GRADED)).any())
            asked = [(self.alike(step.query), here), (self.alike(step.key), self._visible_from(here))]
            clear = not any(self.graded[name] for name, _ in asked if name)
            if clear and hard:
                chosen, asked = _digest(np.packbits((pattern > ATTENDED).numpy()).tobytes()), []
            else:
                chosen = f"looks {_digest(np.packbits(self._looks(step).numpy()).tobytes())}" if clear else "by levels"
            asks = ["" if not name or self._constant(name, where) else self.key(name)[grade] for name, where in asked]
            return f"attends {chosen} {asks} reads {self.key(step.value)[grade]}"
        kind = "normed" if type(step).__name__ == "Normed" else "maps"
        return f"{kind} {sorted({self.key(name)[grade] for name in self.reads(step)})}"

    def _looks(self, step: Head) -> Bool[Tensor, "asked looked"]:
        """Where a head with graded attention looks: for each value of its query, the values of its key that get SEEN or
        more of the attention, on average over the positions that see them. If its key is nothing, the positions that
        get, each once, at least half of the most."""
        here = self.needed[step.name]
        whole, seen = self.patterns[step.name][here], self.seen.expand(*here.shape, -1)[here]
        query, key = self.alike(step.query), self.alike(step.key)
        if not key:
            once = torch.where(whole > SEEN, whole / seen.exp().clamp(min=1.0), 0.0)
            return once >= once.amax(-1, keepdim=True) * MOST
        rows, of_key = here.nonzero()[:, 0], self._coded(key, self._visible_from(here)).to(whole)
        share = einsum(whole, of_key[rows], "query key, query key value -> query value")
        there = einsum((seen > -torch.inf).to(whole), of_key[rows], "query key, query key value -> query value") > 0
        asked = self._coded(query, here)[here].to(whole) if query else torch.ones(len(rows), 1).to(whole)
        return asked.T @ share >= SEEN * (asked.T @ there.to(whole)).clamp(min=1.0)

    def _coded(self, name: str, here: Bool[Tensor, "rows length"]) -> Bool[Tensor, "rows length groups"]:
        """The group of each of some positions; in no group are the others."""
        groups = torch.from_numpy(self.groups(name, here)).long()
        coded = torch.zeros(*here.shape, int(groups.max()) + 1 if len(groups) else 1, dtype=torch.bool)
        coded[here] = torch.nn.functional.one_hot(groups, coded.shape[-1]).bool()
        return coded

    def _visible_from(self, here: Bool[Tensor, "rows length"]) -> Bool[Tensor, "rows length"]:
        """The positions that some of these positions see."""
        return (here[:, :, None] & (self.seen > -torch.inf)).any(1)

    def _constant(self, name: str, here: Bool[Tensor, "rows length"]) -> bool:
        """Whether a variable has one value at these positions, so that who reads it there reads nothing."""
        if not self.inputs.get(name, name):
            return True
        return not self.graded[name] and not self.groups(name, here).any()

    # ------------------------------------------------------------ the result

    def result(self) -> Canonical:
        answer, at = self.program.answer, self.read_at
        keys = [self.key(name) for name in self.reads(answer)]
        answers = self.answered()[at].numpy()
        graded = any(self.graded[name] for name in self.inputs[answer.name]) or isinstance(answer, Cosines)
        divides = "" if graded else _digest(np.asarray(answers).tobytes())
        steps, shape = (_digest(f"{sorted({key[grade] for key in keys})} {divides}") for grade in (0, 1))
        weights: dict[str, list[Float[np.ndarray, "points points"]]] = {}
        variables: dict[str, list[str]] = {}
        for step in (step for step in self.program.steps if step.name in self.keys):
            steps_of_it, shape_of_it = self.keys[step.name]
            variables.setdefault(shape_of_it, []).append(step.name)
            if isinstance(step, Head) and self.graded[step.name]:
                weights.setdefault(steps_of_it, []).append(self._products(step.name))
        for products in weights.values():
            products.sort(key=np.linalg.norm)
        return Canonical(steps, shape, weights, answers, variables)

    def _products(self, name: str) -> Float[np.ndarray, "points points"]:
        """The products of the weights at pairs of some positions: the same in whatever order the values come."""
        points = self.made[name][self.needed[name]]
        drawn = points[torch.linspace(0, len(points) - 1, min(POINTS, len(points))).long()] if len(points) else points
        return (drawn @ drawn.T).numpy()


def _prepares(step: Step) -> bool:
    """Whether a map describes no part, and gives a head the values or sums of what it reads."""
    return not step.part and (isinstance(step, Table) or (isinstance(step, Sums) and not step.ramps))


def _read_at(program: Program, tokens: Int[Tensor, "rows length"]) -> Bool[Tensor, "rows length"]:
    """Where answers are read."""
    if program.read == "all":
        return program.weights(tokens) > 0
    return torch.zeros_like(tokens, dtype=torch.bool).scatter(1, program.reads(tokens)[:, None], True)


def _numbered(values: Int[np.ndarray, "positions"]) -> Int[np.ndarray, "positions"]:
    """Number the groups of equal values in the order in which they occur."""
    _, first, back = np.unique(values, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[back].astype(np.int32)


def _near(matrices: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> bool:
    """Test whether matrices are the same up to TOLERANCE, one by one."""
    if [matrix.shape for matrix in matrices] != [other.shape for other in others]:
        return False
    return all(float(np.abs(matrix - other).max(initial=0.0)) <= TOLERANCE for matrix, other in zip(matrices, others))


def _depends(made: np.ndarray, others: list[np.ndarray]) -> bool:
    """Test whether the other variables determine what is made."""
    cells = np.unique(np.stack(others, 1), axis=0, return_inverse=True)[1].ravel()
    return len(np.unique(np.stack([cells, made], 1), axis=0)) == len(np.unique(cells))


def _digest(data: str | bytes) -> str:
    return sha256(data.encode() if isinstance(data, str) else data).hexdigest()[:16]
