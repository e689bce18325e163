"""The readout: how the answer follows from the variables, found in six ways from the simplest on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from interp.measures.runs import Part
from interp.models.subject import no_sum
from interp.programs import maps
from interp.programs.language import Answer
from interp.programs.read_cells import fill_unmet_cells
from interp.programs.read_own import limits_of, products
from interp.programs.read_waves import as_cosines
from interp.programs.reading import Reading, matrix
from interp.programs.steps import Head, Linear, Step, Table
from interp.programs.words import same_word
from interp.tasks.sets import unpack_sets

ANSWER, FITTED = 0.998, 0.9
"""Share of the model's answers that a table of the readout must give, and a fitted sum (a program is judged later)."""
MOST_ANSWERS = 64
"""Most different answers to which a sum is fitted."""
Reached: TypeAlias = tuple[Answer, list[Step]]
"""The answer, and further steps before it."""


def readout(reading: Reading) -> Reached | None:
    """The answer as a table over a few variables, as the sum that the model makes, or as a fitted sum.

    It reads only what reaches the readout by a direct path that matters, and leaves none of these out: first paths that
    cannot carry the values of other positions, so that parts that stand in for each other are all read; then those that
    cannot carry the mean. Of heads that carry the same, it reads one if this gives as many answers.
    """
    first = [reading.edges(None, shuffled=True)] if reading.strict else []
    scored: list[tuple[tuple[float, float], Reached]] = []
    tried: list[list[str] | None] = []
    for sources in (*first, reading.edges(None)):
        if sources in tried:
            continue
        tried.append(sources)
        copies = {} if sources is None else alike(reading, sources)
        reading.alike |= copies
        for merged in [copies, {}] if copies else [{}]:
            if (reached := Readout(reading, sources, merged).simplest()) is not None:
                kept = reading.answered(*reached)
                scored.append(((kept.share, kept.least), reached))
        if scored and (best := max(scored, key=lambda pair: pair[0]))[0][0] >= ANSWER:
            return best[1]
    return max(scored, key=lambda pair: pair[0])[1] if scored else None


def alike(reading: Reading, sources: Sequence[str]) -> dict[str, str]:
    """Heads among the sources that carry what another one does, and which: with its values there, the answers stay.

    Both select by the same variables and read the same. The values are put in place all at once. The head that matters
    less is read as the other, if this can be.
    """
    order = sorted(reading.matter, key=lambda part: (*reading.precedence(part), part.layer))
    heads = {str(part): part for part in order if selects(reading.step(str(part))) and str(part) in sources}
    copies: dict[str, str] = {}
    edits: dict[Part, Tensor] = {}
    for name, other in product(reversed(heads), heads):
        free = name not in copies and other not in copies and name not in copies.values()
        if free and name != other and selects(reading.step(name)) == selects(reading.step(other)):
            new = {**edits, heads[name]: reading.in_place(heads[name], other)}
            if reading.kept(new).share >= reading.enough():
                copies[name], edits = other, new
    return copies


def selects(step: Step | None) -> tuple[str, str, str] | None:
    """The variables by which a head selects, and the one that it reads; None for other steps."""
    return (step.query, step.key, step.value) if isinstance(step, Head) else None


@dataclass(frozen=True, eq=False)
class Readout:
    """What the answer may follow from: the variables that reach the readout by a direct path that matters.

    every: these sources (None: not known which). copies: sources that are read as another one, and which.
    """

    reading: Reading
    every: Sequence[str] | None
    copies: Mapping[str, str]

    @cached_property
    def mask(self) -> Tensor:
        """The positions at which answers are read."""
        return self.reading.running.reads.mask(self.reading.running.batch)

    @property
    def words(self) -> tuple[str, ...]:
        return self.reading.running.words

    @property
    def target(self) -> Tensor:
        """The model's answers."""
        return self.reading.running.answers

    @cached_property
    def above_minor(self) -> list[str] | None:
        """The sources but for parts that matter for next to no answers."""
        minor = {str(part) for part, role in self.reading.roles.items() if role.status == "minor"}
        return None if self.every is None else [name for name in self.every if name not in minor]

    @cached_property
    def sources(self) -> list[str] | None:
        """The sources that are read, each as itself."""
        return None if self.above_minor is None else [name for name in self.above_minor if name not in self.copies]

    @cached_property
    def readable(self) -> list[str]:
        """The variables that may be read; positions are none where equal tokens are held once."""
        reading, counted = self.reading, self.reading.running.counts is not None
        return [name for name in reading.made if name not in reading.given and reading.allowed(name, self.sources)
                and not (name == "position" and counted)]  # fmt: skip

    @cached_property
    def codes(self) -> maps.Codes:
        """The readable variables that have one value at each position."""
        return {name: code for name, code in self.reading.codes(self.mask).items() if name in self.readable}

    @cached_property
    def different(self) -> list[str] | None:
        """The sources that must be read: without those that say no more than an earlier one."""
        return None if self.sources is None else without_copies(self.sources, self.reading.codes(self.mask))

    def whole(self, of: Sequence[str]) -> bool:
        """Whether variables leave out none of the sources."""
        return self.reading.whole(of, self.different)

    def by_small_table(self) -> Reached | None:
        """A table over one variable, or a small one over two, of values that are no levels of soft heads."""
        plain = {name: code for name, code in self.codes.items() if not name.endswith(" level")}
        for table in maps.tables(self.target, plain, most=2, enough=ANSWER):
            if self.whole(table.of) and (len(table.of) == 1 or table.cells <= 16):
                return self.looked_up(table)
        return None

    def by_largest_share(self) -> Reached | None:
        """The token that has the largest share of what a soft head reads."""
        for name in self.readable:
            if name not in self.codes and self.reading.holds_tokens(name) and self.whole((name,)):
                same = same_word(tuple(self.reading.task.vocabulary), self.words)
                largest = Linear("answer", (name,), (same,), (0.0,) * len(self.words), self.words)
                if self.reading.answered(largest).share >= ANSWER:
                    return largest, []
        return None

    def by_model_sum(self) -> Reached | None:
        """The sum of logits that the model makes itself; of waves, as a sum of cosines."""
        direct = self._model_sum()
        cosines = None if direct is None else as_cosines(self.reading, direct[0], ANSWER)
        return direct if cosines is None else (cosines, [])

    def _model_sum(self) -> tuple[Linear, list[Step]] | None:
        """The logits as the model adds them up, where it has no norm before the readout and a linear one."""
        reading, running, model = self.reading, self.reading.running, self.reading.running.subject.model
        kind, n_out = running.subject.decision.kind, reading.task.n_out
        norm = getattr(model, "ln_final", None)
        if self.above_minor is None or no_sum(model) or kind not in ("argmax", "sigmoid", "set"):
            return None
        unembed = model.unembed.W_U.detach().double()
        logits = running.logits[:, :n_out].double()
        if norm is not None:  # its divisor is one for all logits
            centered = torch.eye(len(unembed)).double()
            centered -= 0.0 if "RMS" in type(norm).__name__ else 1 / len(unembed)
            unembed = centered * getattr(norm, "w", torch.ones(())).detach().double() @ unembed
            stream = running.stream({}, None, reads=True).double()
            scale = ((stream @ centered).square().mean(1) + norm.eps).sqrt()
            logits = logits * scale[:, None]
        weights: dict[str, Tensor] = {}
        for name in self.above_minor:
            if (out := vectors_of(reading, name)) is None:
                return None
            weights[name] = running.subject.columns(out @ unembed)[:, :n_out]
        for name, other in self.copies.items():  # which has their weights, too
            weights[other] = weights[other] + weights.pop(name)
        total = sum(reading.made[name][self.mask] @ weight for name, weight in weights.items())
        bias = (logits - total).mean(0)
        if kind == "set":  # a set has the sum of the logits of its members, which is largest for those above 0
            members = unpack_sets(running.original.sets, n_out).double().T
            weights, bias = {name: weight @ members for name, weight in weights.items()}, bias @ members
        if kind == "sigmoid":
            weights = {name: torch.cat([torch.zeros_like(weight), weight], 1) for name, weight in weights.items()}
            bias = torch.cat([torch.zeros(1).double(), bias])
        elif len(bias) == 2:  # of two answers, the difference decides
            weights, bias = {name: weight - weight[:, :1] for name, weight in weights.items()}, bias - bias[:1]
        step = Linear("answer", tuple(weights), tuple(map(matrix, weights.values())), tuple(bias.tolist()), self.words)
        return (step, []) if reading.answered(step).share >= 0.99 else None

    def by_table(self) -> Reached | None:
        """A table over up to three variables."""
        fitting = maps.tables(self.target, self.codes, most=3, enough=ANSWER)
        return next((self.looked_up(table) for table in fitting if self.whole(table.of)), None)

    def looked_up(self, one: maps.Lookup) -> Reached:
        """A table as the readout, with what the model answers to combinations that never occur."""
        eye, zero = matrix(torch.eye(len(self.words))), (0.0,) * len(self.words)
        if len(one.of) == 1:  # a value that was never met speaks for no answer: a share of it changes none
            weights = tuple(eye[entry] if met else zero for entry, met in zip(one.entries, one.met, strict=True))
            return Linear("answer", one.of, (weights,), zero, self.words), []
        step = Table("result", one.of, one.entries, self.words)
        step = fill_unmet_cells(self.reading, step, self.codes, self.mask, None, self.reading.running.read)
        return Linear("answer", ("result",), (eye,), zero, self.words), [step]

    def by_own_weight(self) -> Reached | None:
        """Limits of the weight that the own value has in what is read."""
        if not 2 <= len(self.target.unique()) <= maps.MOST_LIMITS + 1:
            return None
        own = products(self.reading, self.sources, self.mask)
        return next(filter(None, (limits_of(self.reading, one, self.mask, self.words) for one in own)), None)

    def by_fitted_sum(self) -> Reached | None:
        """A fitted sum of weights, over one variable for each source: its level, where it has one."""
        features = {name: self.reading.made[name][self.mask] for name in self.readable}
        if self.sources is not None:
            names = [f"{name} level" if f"{name} level" in features else name for name in self.sources]
            if not set(names) <= set(features):
                return None  # the answer follows from a part that is not described, too
            features = {name: features[name] for name in names}
        if not features or len(self.target.unique()) > MOST_ANSWERS:
            return None
        fit = maps.weighed(self.target, features, len(self.words), ANSWER, whole=self.sources is not None)
        if fit.share < FITTED:
            return None
        return Linear("answer", fit.of, tuple(map(matrix, fit.weights)), tuple(fit.bias.tolist()), self.words), []

    def simplest(self) -> Reached | None:
        """The first of these that gives the answers, simplest first."""
        ways = (self.by_small_table, self.by_largest_share, self.by_model_sum, self.by_table, self.by_own_weight,
                self.by_fitted_sum)  # fmt: skip
        return next((reached for way in ways if (reached := way()) is not None), None)


def without_copies(sources: Sequence[str], codes: maps.Codes) -> list[str]:
    """The sources but for those that have the value of an earlier one at each position, and so say no more."""
    kept: list[str] = []
    for name in sources:
        if not any(name in codes and earlier in codes and codes[name][0].equal(codes[earlier][0]) for earlier in kept):
            kept.append(name)
    return kept


def vectors_of(reading: Reading, name: str) -> Float[Tensor, "values d_model"] | None:
    """What each value of a variable adds to the residual stream; None where the part has no description."""
    running, model = reading.running, reading.running.subject.model
    if name == "token":
        ids = torch.arange(len(reading.task.vocabulary))
        ids = ids if running.subject.token_ids is None else running.subject.token_ids[ids]
        return model.embed.W_E[ids].detach().double()
    if name == "position":
        return model.pos_embed.W_pos[: reading.made["position"].shape[-1]].detach().double()
    if name not in reading.vectors:
        return None
    return running.writes(running.by_name[name], reading.vectors[name].double())
