"""What scores a hypothesis about a model: causal scrubbing, and interchange interventions.

Causal scrubbing (Chan et al. 2022) resamples everything that a hypothesis declares irrelevant. To score one input, the
model runs on *another*, random input. (It must agree with the first one on variables without a place.) Each place that
the answer is computed from gets its value from a donor, an input that agrees with the first one on the place's
variable. If the variable is computed from tokens, the value is the donor's activation. Otherwise it is computed
recursively: on yet another input, with scrubbed values at the places of the variable's parents. The parts of the model
between two places run normally. If a place covers all positions, every position draws its own donor, which agrees at
that position. The input that the model runs on then has the same length and read position.

Interchange: see measures.interchange. The expected answer is the one that the hypothesis computes with one variable
from the source and all others from the base.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.errors import InterpError, check_size
from interp.measures.hypothesis import AtRead, CodeTable, Place, Units, Value, Values, Variable
from interp.measures.interchange import Interchange, split
from interp.measures.runs import ScoreWithLoss, activations, hooks_of, pieces
from interp.models.architecture.answers import answers_of, decide
from interp.models.subject import Subject, budget
from interp.support.words import either, share

Patch = tuple[Place, Tensor]


class Groups:
    """Units, or positions of units, grouped by equal keys."""

    def __init__(self, keys: Int[Tensor, "units *columns"]):
        self.group_of = torch.unique(keys, dim=0, return_inverse=True)[1]
        self.order = self.group_of.argsort(stable=True)
        self.sizes = self.group_of.bincount()
        self.starts = self.sizes.cumsum(0) - self.sizes

    def draw(self, units: Int[Tensor, "wanted"], generator: torch.Generator) -> Int[Tensor, "wanted"]:
        """Draw a random member of each unit's group, possibly the unit itself."""
        group = self.group_of[units]
        chance = torch.rand(len(units), generator=generator, dtype=torch.float64)
        return self.order[self.starts[group] + (chance * self.sizes[group]).long()]

    def members(self, group: int) -> Int[Tensor, "members"]:
        """Return all units of one group."""
        return self.order[int(self.starts[group]) : int(self.starts[group] + self.sizes[group])]

    @property
    def single(self) -> Bool[Tensor, "units"]:
        """Which units are alone in their group: resampling cannot change them."""
        return self.sizes[self.group_of] == 1

    @property
    def alone(self) -> float:
        """Share of the units that are alone in their group."""
        return float(self.single.sum()) / len(self.group_of)


class Scrubber:
    """A hypothesis about a model, with the units that donors come from."""

    def __init__(self, values: Values):
        self.values, self.units, self.subject = values, values.units, values.subject
        self.hypothesis, self.places = values.hypothesis, values.places
        self.each = any(place.each for of_variable in self.places.values() for place in of_variable)
        self.groups = {
            variable.name: self._groups(variable)
            for variable in self.hypothesis.variables
            if self.places[variable.name]
        }
        self._rest: dict[tuple[tuple[str, ...], bool], Groups] = {}
        self.logits, self.natural = self._prepare()

    def _groups(self, variable: Variable) -> Groups:
        value = self.values.known[variable.name]
        if value.ndim == 1:
            return Groups(value)
        positions = torch.arange(value.shape[1]).expand_as(value)
        padding = positions >= self.units.batch.lengths[:, None]
        itself = torch.where(padding, torch.arange(value.numel()).view_as(value), -1)  # padding stays as it is
        return Groups(torch.stack([value.masked_fill(padding, 0), positions, itself], -1).flatten(0, 1))

    @property
    def alone(self) -> float:
        """Share of the units that are alone in their groups at every place."""
        every = [group.single.view(len(self.units), -1).all(1) for group in self.groups.values()]
        return float(torch.stack(every).all(0).double().mean())

    def score(
        self, outputs: Float[Tensor, "units n_out"], classes: Int[Tensor, "units"] | None = None
    ) -> ScoreWithLoss:
        """Score outputs on all units, with their right answers or with these."""
        wanted = self.units.classes if classes is None else classes
        return ScoreWithLoss.of(outputs, wanted, self.subject.decision, len(self.units.rows.unique()))

    # ------------------------------------------------------------ the unchanged model

    def _prepare(self) -> tuple[Float[Tensor, "units n_out"], dict[Place, Tensor]]:
        """Run the model on all units; return the logits at the read positions and the value of every place."""
        places = [place for of_variable in self.places.values() for place in of_variable]
        logits, *values = self.run(torch.arange(len(self.units)), (), places)
        return logits, dict(zip(places, values))

    def donated(self, place: Place, donors: Int[Tensor, "wanted *length"]) -> Tensor:
        """Return a place's values on the donors. A donor for one position is given as unit * length + position."""
        natural = self.natural[place]
        if not place.each:
            return natural[donors]
        return natural[donors] if donors.ndim == 1 else rearrange(natural, "unit place ... -> (unit place) ...")[donors]

    # ------------------------------------------------------------ scrubbing

    def _donors(self, variable: Variable, units: Int[Tensor, "wanted"], generator: torch.Generator) -> Tensor:
        groups = self.groups[variable.name]
        if self.values.known[variable.name].ndim == 1:
            return groups.draw(units, generator)
        if variable.of:
            return units  # its places at all positions are computed from the same input's variables
        length = self.units.batch.tokens.shape[1]
        cells = units[:, None] * length + torch.arange(length)
        return groups.draw(cells.flatten(), generator).view_as(cells)

    def _value(self, variable: Variable, units: Int[Tensor, "wanted"], generator: torch.Generator) -> list[Patch]:
        """Return the places of a variable with their scrubbed values for some units."""
        donors, places = self._donors(variable, units, generator), self.places[variable.name]
        if not variable.of:
            return [(place, self.donated(place, donors)) for place in places]
        return list(zip(places, self._run(variable.of, donors, generator, places)[1:]))

    def _sources(self, names: Sequence[str]) -> tuple[list[Variable], list[str]]:
        """Split variables by whether they have places; one without places is replaced by its parents, if any."""
        placed: list[Variable] = []
        free: list[str] = []
        for name in names:
            variable = self.hypothesis[name]
            if self.places[name]:
                placed.append(variable)
            elif variable.of:
                more, others = self._sources(variable.of)
                placed += [other for other in more if other not in placed]
                free += [other for other in others if other not in free]
            else:
                free.append(name)
        return list(dict.fromkeys(placed)), list(dict.fromkeys(free))

    def grouped_by(self, names: tuple[str, ...], final: bool = False) -> Groups:
        """Group units by the named variables, and by length and read position if these or places have all positions.

        final: the answer is computed from them, so only their values at the read position count where each position is
        read for itself.
        """
        if (names, final) not in self._rest:
            columns: list[Value] = [self.values.known[name] for name in names]
            each = self.each or any(column.ndim == 2 for column in columns)
            if final:
                columns = [self.units.at_read(column, self.subject) for column in columns]
            columns = [column if column.ndim == 2 else column[:, None] for column in columns]
            if each:
                columns += [self.units.batch.lengths[:, None], self.units.read_at[:, None]]
            columns = columns or [torch.zeros(len(self.units), 1, dtype=torch.long)]
            self._rest[names, final] = Groups(torch.cat(columns, 1))
        return self._rest[names, final]

    def _run(
        self, names: Sequence[str], units: Int[Tensor, "wanted"], generator: torch.Generator, read: Sequence[Place] = ()
    ) -> list[Tensor]:
        """Scrub the variables `names`; return the logits, and the values of the places `read`."""
        placed, free = self._sources(names)
        rest = self.grouped_by(tuple(free), final=not read).draw(units, generator)
        patches = [patch for variable in placed for patch in self._value(variable, units, generator)]
        return self.run(rest, patches, read)

    def run(self, rest: Int[Tensor, "wanted"], patches: Sequence[Patch], read: Sequence[Place] = ()) -> list[Tensor]:
        """Run the model on some units with patched places; return the logits, and the values of the places `read`."""
        units, subject, per_piece = self.units, self.subject, []
        at = {place: units.at(place)[rest] for place in [*read, *(place for place, _ in patches)]}
        names = [place.hook(subject) for place in read]
        for here, _ in pieces(subject, units.batch[rest], subject.model.cfg.d_model * (1 + len(patches) + len(names))):
            chosen = rest[here]
            hooks = hooks_of(place.edit(subject, value[here], at[place][here]) for place, value in patches)
            out, seen = activations(subject, units.batch[chosen], list(dict.fromkeys(names)), hooks)
            rows = torch.arange(len(chosen))
            values = [place.get(seen[name]).detach().cpu() for place, name in zip(read, names)]
            values = [v.clone() if p.each else v[rows, at[p][here]] for p, v in zip(read, values)]
            per_piece.append([out[rows, units.read_at[chosen]].double().cpu(), *values])
        return [torch.cat(parts) for parts in zip(*per_piece)]

    @torch.no_grad()
    def scrubbed(self, units: Int[Tensor, "wanted"], seed: int) -> Float[Tensor, "wanted n_out"]:
        """Return the scrubbed model's outputs for some units, with one draw of all donors per unit."""
        generator, outputs = torch.Generator().manual_seed(seed), []
        cfg, length = self.subject.model.cfg, self.units.batch.tokens.shape[1]
        size = max(64, budget(self.subject.model) // (8 * length * max(1, cfg.d_model)))
        for block in units.split(size):
            outputs.append(self._run(self.hypothesis.of, block, generator)[0])
        return torch.cat(outputs)

    # ------------------------------------------------------------ every draw

    def all_draws(self) -> int | None:
        """Return the number of runs for all combinations of donors, or None if they cannot be listed."""
        if (plan := self._flat()) is None:
            return None
        groups, combinations = plan
        return sum(prod(int(group.sizes[i]) for group, i in zip(groups, row)) for row in combinations)

    def _flat(self) -> tuple[list[Groups], dict[tuple[int, ...], dict[int, int]]] | None:
        """Return the groups to draw from, first those of the model's input, or None if donors cannot be listed.

        Also the combinations of groups that occur, with the number of units per right class. Donors can be listed if
        all placed variables that the answer needs have no parents and one value per input.
        """
        placed, free = self._sources(self.hypothesis.of)
        if any(variable.of or self.values.known[variable.name].ndim > 1 for variable in placed):
            return None
        groups = [self.grouped_by(tuple(free), final=True), *(self.groups[variable.name] for variable in placed)]
        index = torch.stack([*(each.group_of for each in groups), self.units.classes], 1)
        combinations: dict[tuple[int, ...], dict[int, int]] = {}
        for (*row, c), n in zip(*(tensor.tolist() for tensor in index.unique(dim=0, return_counts=True))):
            combinations.setdefault(tuple(row), {})[c] = n
        return groups, combinations

    @torch.no_grad()
    def every_draw(self) -> Iterator[tuple[Float[Tensor, "runs n_out"], list[tuple[int, float]]]]:
        """Yield the outputs for all combinations of donors, in blocks, with (right class, probability) pairs.

        Each pair applies to every run of its block; over all runs and pairs, the probabilities add up to 1.
        """
        plan = self._flat()
        assert plan is not None
        groups, combinations = plan
        placed, _ = self._sources(self.hypothesis.of)
        for row, classes in combinations.items():
            members = [group.members(i) for group, i in zip(groups, row)]
            index = torch.cartesian_prod(*members).view(-1, len(members))
            for block in index.split(1 << 16):
                patches = [
                    (place, self.donated(place, block[:, k + 1]))
                    for k, variable in enumerate(placed)
                    for place in self.places[variable.name]
                ]
                chances = [(c, n / len(self.units) / len(index)) for c, n in classes.items()]
                yield self.run(block[:, 0], patches)[0], chances


CANDIDATES = 1 << 16
"""Number of random pairs to choose from, if not all pairs are run."""


class HypothesisAnswers:
    """The answers of a hypothesis and of the model, in the units of Batch.labels."""

    def __init__(self, values: Values, outputs: Tensor):
        self.values, self.units, self.subject = values, values.units, values.subject
        everyone = torch.arange(len(self.units))
        self.model = labels_of(self.subject, self.units, everyone, decide(outputs, self.subject.decision))
        self.table = None if values.hypothesis.answer else CodeTable(self._roots(values.known, None), self.model)
        self.answers = self.answers_for(values.known)
        possible = torch.cat([self.units.batch.labels.flatten().cpu(), self.model]).unique()
        if not bool(torch.isin(self.answers, possible).any()):
            words = either(map(str, self.answers.unique().tolist()))
            raise InterpError(
                f"the hypothesis answers {words}, which no input of task {self.subject.task.name} has as its answer: "
                "answer= returns what Batch.labels holds"
            )

    def _roots(self, known: dict[str, Tensor], which: Tensor | None) -> list[Tensor]:
        """The values that the answer is computed from; for a table, those at the read position, or a number for each
        row of values."""
        roots = [known[name] for name in self.values.hypothesis.of]
        if self.values.hypothesis.answer:
            return roots
        return [self._as_number(self.units.at_read(value, self.subject, which)) for value in roots]

    def _as_number(self, value: Tensor) -> Tensor:
        """Hash each row of values to one number."""
        if value.ndim == 1:
            return value
        hashes = torch.zeros(len(value), dtype=torch.long)
        for column in value.T:
            hashes = hashes * 1_000_003 + column + 7  # wraps; collisions have probability 2^-64
        return hashes

    def answers_for(self, known: dict[str, Tensor], which: Tensor | None = None) -> Int[Tensor, "units"]:
        """Compute the answers of (some) units from the values of the variables."""
        roots, answer = self._roots(known, which), self.values.hypothesis.answer
        if self.table is not None:
            return self.table(*roots)
        assert answer is not None
        if isinstance(answer, AtRead):
            which = torch.arange(len(self.units)) if which is None else which
            at = self.units.read_at[which]
            there = [value if value.ndim == 1 else value.gather(1, at[:, None])[:, 0] for value in roots]
            return labels_of(self.subject, self.units, which, answer.function(at, *there))
        answers = torch.as_tensor(answer(*roots)).cpu().long()
        if answers.shape != roots[0].shape[:1]:
            raise InterpError(
                f"the answer of the hypothesis has shape {tuple(answers.shape)}; it must be ({len(roots[0])},), one "
                "for each answer that is read"
            )
        return answers


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
    scrubber: Scrubber, program: HypothesisAnswers, variable: Variable, most: int, pairs: int, seed: int
) -> Interchange | str:
    """Interchange one variable on all pairs of units if there are at most `most`, otherwise on random ones.

    From random pairs, this takes the first `pairs` whose answer changes and the first `pairs` whose answer stays.
    Returns a sentence instead if no two inputs can be paired, or if no pair must change of those whose expected answer
    is known, and others are not.
    """
    units = scrubber.units
    n, exact = len(units), len(units) ** 2 <= most
    base, source = _pairs(scrubber, n, exact, seed)
    if not len(base):
        return "no two inputs have the same length, so values at all positions cannot be interchanged"
    wanted = program.answers_for(program.values.interchanged(variable.name, base, source), base)
    known = wanted != CodeTable.NONE
    base, source, wanted = base[known], source[known], wanted[known]
    changes, stays = split(wanted, program.answers[base], program.model[base])
    if not bool(changes.any() | known.all()):
        return (
            f"not tested: for {share(1 - float(known.double().mean()))} of the pairs the hypothesis has no answer, "
            "because its values then meet in no input (give it an answer to compute), and none of the others must have "
            "another answer"
        )
    keep = changes | stays
    if not exact:
        keep = (changes & (changes.cumsum(0) <= pairs)) | (stays & (stays.cumsum(0) <= pairs))
    base, source, wanted = base[keep], source[keep], wanted[keep]
    patches = [(place, scrubber.donated(place, source)) for place in scrubber.places[variable.name]]
    answers = decide(scrubber.run(base, patches)[0], scrubber.subject.decision)
    labels = labels_of(scrubber.subject, units, base, answers)
    return Interchange.of(labels, wanted, program.answers[base], program.model[base], units.rows[base], exact)


def _pairs(scrubber: Scrubber, n: int, exact: bool, seed: int) -> tuple[Tensor, Tensor]:
    """Return all or random pairs of units, with equal lengths and read positions if places cover all positions."""
    alike = scrubber.grouped_by(()).group_of
    if exact:
        base, source = torch.cartesian_prod(torch.arange(n), torch.arange(n)).unbind(1)
        fits = alike[base] == alike[source]
        return base[fits], source[fits]
    generator = torch.Generator().manual_seed(check_size("seed", seed, least=0))
    base = torch.randint(n, (CANDIDATES,), generator=generator)
    return base, scrubber.grouped_by(()).draw(base, generator)
