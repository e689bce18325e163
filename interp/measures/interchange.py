"""Interchange interventions (Geiger et al. 2021): does the model use a variable at the places of a hypothesis?

A base input runs with the variable's places set to their values on a source input. The expected answer is the one that
the hypothesis computes with this variable from the source and all others from the base. The score is the share of pairs
with the expected answer. A second score covers only pairs whose answer must *change*: there, an intervention without
effect scores 0.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from interp.architecture.answers import answers_of, decide
from interp.errors import InterpError
from interp.measures.hypothesis import CodeTable, Units, Values, Variable
from interp.measures.scrubbing import Scrubber
from interp.measures.subject import Subject
from interp.populations import wilson

CANDIDATES = 1 << 16
"""Number of random pairs to choose from, if not all pairs are run."""


@dataclass(frozen=True)
class Interchange:
    """Number of pairs, share of expected answers and its interval, for all pairs and for pairs that must change."""

    pairs: int
    agree: float
    low: float
    high: float
    changing: int
    changed: float
    changed_low: float
    changed_high: float
    exact: bool


_NAN = float("nan")
NO_PAIRS = Interchange(0, _NAN, _NAN, _NAN, 0, _NAN, _NAN, _NAN, False)


class HypothesisAnswers:
    """The answers of a hypothesis and of the model, in the units of Batch.labels."""

    def __init__(self, subject: Subject, values: Values, outputs: Tensor):
        self.subject, self.values, self.units = subject, values, values.units
        everyone = torch.arange(len(self.units))
        self.model = labels_of(subject, self.units, everyone, decide(outputs, subject.decision))
        self.table = None if values.hypothesis.answer else CodeTable(self._roots(values.known, None), self.model)
        self.answers = self.of(values.known)

    def _roots(self, known: dict[str, Tensor], which: Tensor | None) -> list[Tensor]:
        """The values that the answer is computed from; for a table, those at the read position, or a number for each
        row of values."""
        found = [known[name] for name in self.values.hypothesis.of]
        if self.values.hypothesis.answer:
            return found
        return [self._as_number(self.units.at_read(one, self.subject, which)) for one in found]

    def _as_number(self, value: Tensor) -> Tensor:
        """Hash each row of values to one number."""
        if value.ndim == 1:
            return value
        found = torch.zeros(len(value), dtype=torch.long)
        for column in value.T:
            found = found * 1_000_003 + column + 7  # wraps; collisions have probability 2^-64
        return found

    def of(self, known: dict[str, Tensor], which: Tensor | None = None) -> Int[Tensor, "units"]:
        """Compute the answers of (some) units from the values of the variables."""
        roots = self._roots(known, which)
        if self.table is not None:
            return self.table(*roots)
        assert self.values.hypothesis.answer is not None
        found = torch.as_tensor(self.values.hypothesis.answer(*roots)).cpu().long()
        if found.shape != roots[0].shape[:1]:
            raise InterpError(
                f"the answer of the hypothesis has shape {tuple(found.shape)}; it must be ({len(roots[0])},), one for "
                "each input"
            )
        return found


def labels_of(
    subject: Subject, units: Units, which: Int[Tensor, "wanted"], classes: Int[Tensor, "wanted"]
) -> Int[Tensor, "wanted"]:
    """Convert output indices of some units to answers in the units of Batch.labels."""
    tokens = units.batch.tokens[which]
    if subject.read_at != "all":
        return answers_of(subject.task, classes, tokens).long()
    rows, at = torch.arange(len(which)), units.read_at[which]
    spread = torch.zeros_like(tokens)
    spread[rows, at] = classes
    return answers_of(subject.task, spread, tokens).long()[rows, at]


@torch.no_grad()
def interchange(
    scrubber: Scrubber, program: HypothesisAnswers, one: Variable, most: int, pairs: int, seed: int
) -> Interchange | str:
    """Interchange one variable on all pairs of units if there are at most `most`, otherwise on random ones.

    A pair must change if its expected answer differs from both the hypothesis's and the model's answer to the base.
    From random pairs, this takes the first `pairs`, and the first `pairs` of those that must change (or as many as
    there are). Returns a sentence instead if no two inputs can be paired, or if no pair must change.
    """
    units = scrubber.units
    n, exact = len(units), len(units) ** 2 <= most
    base, source = _pairs(scrubber, n, exact, seed)
    if not len(base):
        return "no two inputs have the same length, so values at all positions cannot be interchanged"
    wanted = program.of(program.values.interchanged(one.name, base, source), base)
    known = wanted != CodeTable.NONE
    base, source, wanted = base[known], source[known], wanted[known]
    must = (wanted != program.model[base]) & (wanted != program.answers[base])
    if not bool(must.any()):
        return f"no pair of inputs with another {one.name} must have another answer"
    keep = torch.ones_like(must)
    if not exact:
        keep = (must & (must.cumsum(0) <= pairs)) | (torch.arange(len(must)) < pairs)
    uniform = torch.arange(len(must))[keep] < (len(must) if exact else pairs)
    base, source, wanted, must = base[keep], source[keep], wanted[keep], must[keep]
    patches = [(place, scrubber.donated(place, source)) for place in scrubber.places[one.name]]
    answers = decide(scrubber.run(base, patches)[0], scrubber.subject.decision)
    good = labels_of(scrubber.subject, units, base, answers) == wanted
    inputs = len(scrubber.units.rows.unique())
    return Interchange(
        int(uniform.sum()),
        *_share(good[uniform], exact, inputs),
        int(must.sum()),
        *_share(good[must], exact, inputs),
        exact,
    )


def _pairs(scrubber: Scrubber, n: int, exact: bool, seed: int) -> tuple[Tensor, Tensor]:
    """Return all or random pairs of units, with equal lengths and read positions if places cover all positions."""
    alike = scrubber.rest(()).of
    if exact:
        base, source = torch.cartesian_prod(torch.arange(n), torch.arange(n)).unbind(1)
        fits = alike[base] == alike[source]
        return base[fits], source[fits]
    generator = torch.Generator().manual_seed(seed)
    base = torch.randint(n, (CANDIDATES,), generator=generator)
    return base, scrubber.rest(()).draw(base, generator)


def _share(good: Tensor, exact: bool, inputs: int) -> tuple[float, float, float]:
    """Return a share with its interval, assuming at most as many independent answers as inputs."""
    value = float(good.double().mean())
    return (value, value, value) if exact else (value, *wilson(value, min(len(good), inputs)))
