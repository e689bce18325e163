"""Causal scrubbing (Chan et al. 2022): everything that a hypothesis says does not matter is resampled.

To score one input, the model runs on *another* input (any: nothing but the named places is said to matter; those that
agree on the variables without a place, if there are such). Each place that the answer is computed from is given its
value from an input that agrees with the first one on the place's variable. That value is its plain activation there
where the variable is computed from the tokens, and else is made the same way again: on another input, with the places
of the variables that it is computed from given theirs. What lies between two places is part of the model's own
function from one to the other and runs on.

Where a place stands at each position, every position draws its own donor, which agrees at that position, and the input
that the model runs on has the same length and is read at the same position.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.measures.hypothesis import Hypothesis, Units, Value, Values, Variable
from interp.measures.hypothesis_places import Place
from interp.measures.runs import Hook, activations, forward, pieces
from interp.measures.subject import Subject, budget

Patch = tuple[Place, Tensor]


class Groups:
    """Units, or positions of units, that agree on something, to draw from."""

    def __init__(self, keys: Int[Tensor, "units *columns"]):
        self.of = torch.unique(keys, dim=0, return_inverse=True)[1]
        self.order = self.of.argsort(stable=True)
        self.sizes = self.of.bincount()
        self.starts = self.sizes.cumsum(0) - self.sizes

    def draw(self, units: Int[Tensor, "wanted"], generator: torch.Generator) -> Int[Tensor, "wanted"]:
        """For each unit one that agrees with it, itself among them."""
        group = self.of[units]
        chance = torch.rand(len(units), generator=generator, dtype=torch.float64)
        return self.order[self.starts[group] + (chance * self.sizes[group]).long()]

    def members(self, group: int) -> Int[Tensor, "members"]:
        """All units of one group."""
        return self.order[int(self.starts[group]) : int(self.starts[group] + self.sizes[group])]

    @property
    def alone(self) -> float:
        """Share of the units that agree with no other: swapping them changes nothing."""
        return float((self.sizes == 1).sum()) / len(self.of)


class Scrubber:
    """One hypothesis on one model and the units that donors come from."""

    def __init__(self, subject: Subject, hypothesis: Hypothesis, places: Mapping[str, Sequence[Place]], values: Values):
        self.subject, self.hypothesis, self.places, self.values = subject, hypothesis, places, values
        self.units: Units = values.units
        self.each = any(place.each for some in places.values() for place in some)
        self.groups = {one.name: self._groups(one) for one in hypothesis.variables if places[one.name]}
        self._rest: dict[tuple[str, ...], Groups] = {}
        self.logits, self.natural = self._prepare()

    def _groups(self, one: Variable) -> Groups:
        value = self.values.known[one.name]
        if value.ndim == 1:
            return Groups(value)
        positions = torch.arange(value.shape[1]).expand_as(value)
        padding = positions >= self.units.batch.lengths[:, None]
        itself = torch.where(padding, torch.arange(value.numel()).view_as(value), -1)  # padding stays as it is
        return Groups(torch.stack([value.masked_fill(padding, 0), positions, itself], -1).flatten(0, 1))

    # ------------------------------------------------------------ what the model does without any change

    def _prepare(self) -> tuple[Float[Tensor, "units n_out"], dict[Place, Tensor]]:
        """The model's own outputs where it is read, and every place's value: one run of all units."""
        places = [place for some in self.places.values() for place in some]
        names = list(dict.fromkeys(place.hook(self.subject) for place in places))
        at = {place: self.units.at(place) for place in places}
        logits: list[Tensor] = []
        found: dict[Place, list[Tensor]] = {place: [] for place in places}
        for here, _ in pieces(self.subject, self.units.batch, len(names) * self.subject.model.cfg.d_model):
            out, seen = activations(self.subject, self.units.batch[here], names)
            rows = torch.arange(len(out))
            logits.append(out[rows, self.units.read_at[here]].double().cpu())
            for place in places:
                value = place.get(seen[place.hook(self.subject)]).detach().cpu()
                found[place].append(value.clone() if place.each else value[rows, at[place][here]])
        return torch.cat(logits), {place: torch.cat(parts) for place, parts in found.items()}

    def donated(self, place: Place, donors: Int[Tensor, "wanted *length"]) -> Tensor:
        """Values of a place on other units; donors at each position are numbers unit * length + position."""
        natural = self.natural[place]
        if not place.each:
            return natural[donors]
        return natural[donors] if donors.ndim == 1 else natural.flatten(0, 1)[donors]

    # ------------------------------------------------------------ scrubbing

    def _donors(self, one: Variable, units: Int[Tensor, "wanted"], generator: torch.Generator) -> Tensor:
        groups = self.groups[one.name]
        if self.values.known[one.name].ndim == 1:
            return groups.draw(units, generator)
        if one.of:
            return units  # its places at all positions are made of the same input's variables
        length = self.units.batch.tokens.shape[1]
        cells = units[:, None] * length + torch.arange(length)
        return groups.draw(cells.flatten(), generator).view_as(cells)

    def _value(self, one: Variable, units: Int[Tensor, "wanted"], generator: torch.Generator) -> list[Patch]:
        """Each place of a variable with its scrubbed value for some units."""
        donors, places = self._donors(one, units, generator), self.places[one.name]
        if not one.of:
            return [(place, self.donated(place, donors)) for place in places]
        return list(zip(places, self._run(one.of, donors, generator, places)))

    def _sources(self, names: Sequence[str]) -> tuple[list[Variable], list[str]]:
        """The variables with places that stand behind some names, and those that have none and are given by tokens."""
        placed: list[Variable] = []
        free: list[str] = []
        for name in names:
            one = self.hypothesis[name]
            if self.places[name]:
                placed.append(one)
            elif one.of:
                more, others = self._sources(one.of)
                placed += [other for other in more if other not in placed]
                free += [other for other in others if other not in free]
            else:
                free.append(name)
        return list(dict.fromkeys(placed)), list(dict.fromkeys(free))

    def rest(self, names: tuple[str, ...]) -> Groups:
        """Units by the variables without a place, and by length and position where places stand at each position."""
        if names not in self._rest:
            columns: list[Value] = [self.values.known[name] for name in names]
            columns = [one if one.ndim == 2 else one[:, None] for one in columns]
            if self.each:
                columns += [self.units.batch.lengths[:, None], self.units.read_at[:, None]]
            columns = columns or [torch.zeros(len(self.units), 1, dtype=torch.long)]
            self._rest[names] = Groups(torch.cat(columns, 1))
        return self._rest[names]

    def _run(
        self,
        names: Sequence[str],
        units: Int[Tensor, "wanted"],
        generator: torch.Generator,
        read: Sequence[Place] = (),
    ) -> list[Tensor]:
        """What a node puts out whose variables are `names`: the values of some places, or (none given) the logits."""
        placed, free = self._sources(names)
        rest = self.rest(tuple(free)).draw(units, generator)
        patches = [patch for one in placed for patch in self._value(one, units, generator)]
        return self.run(rest, patches, read)

    def run(self, rest: Int[Tensor, "wanted"], patches: Sequence[Patch], read: Sequence[Place] = ()) -> list[Tensor]:
        """The model on some units with places given values: its logits where it is read, or the values of places."""
        units, subject, found = self.units, self.subject, []
        read_at = units.read_at[rest]
        at = {place: units.at(place)[rest] for place in [*read, *(place for place, _ in patches)]}
        names = [place.hook(subject) for place in read]
        for here, _ in pieces(subject, units.batch[rest], subject.model.cfg.d_model * (1 + len(patches))):
            batch = units.batch[rest[here]]
            hooks = [put(subject, place, value[here], at[place][here]) for place, value in patches]
            rows = torch.arange(len(batch))
            if not read:
                out = forward(subject, batch, hooks)
                found.append([out[rows, read_at[here]].double().cpu()])
                continue
            _, seen = activations(subject, batch, list(dict.fromkeys(names)), hooks)
            values = [place.get(seen[name]).detach().cpu() for place, name in zip(read, names)]
            found.append([v.clone() if p.each else v[rows, at[p][here]] for p, v in zip(read, values)])
        return [torch.cat(parts) for parts in zip(*found)]

    @torch.no_grad()
    def scrubbed(self, units: Int[Tensor, "wanted"], seed: int) -> Float[Tensor, "wanted n_out"]:
        """The scrubbed model's outputs for some units, one draw of all donors each."""
        generator, found = torch.Generator().manual_seed(seed), []
        cfg, length = self.subject.model.cfg, self.units.batch.tokens.shape[1]
        size = max(64, budget(self.subject.model) // (8 * length * max(1, cfg.d_model)))
        for some in units.split(size):
            found.append(self._run(self.hypothesis.of, some, generator)[0])
        return torch.cat(found)

    # ------------------------------------------------------------ every draw

    def all_draws(self) -> int | None:
        """How many runs all draws of all donors take; None if they are not listed."""
        plan = self._flat()
        if plan is None:
            return None
        groups, tuples = plan
        return sum(prod(int(one.sizes[i]) for one, i in zip(groups, row)) for row in tuples.keys)

    def _flat(self) -> tuple[list[Groups], _Tuples] | None:
        """Groups to draw from, the rest's first, where the answer is computed from plain variables alone."""
        placed, free = self._sources(self.hypothesis.of)
        if any(one.of or self.values.known[one.name].ndim > 1 for one in placed):
            return None
        groups = [self.rest(tuple(free)), *(self.groups[one.name] for one in placed)]
        return groups, _Tuples.of(torch.stack([one.of for one in groups], 1), self.units.classes)

    @torch.no_grad()
    def every_draw(self) -> Iterator[tuple[Float[Tensor, "runs n_out"], list[tuple[int, float]]]]:
        """Outputs of all draws for units that share donors, with the chance of one such run and each right class.

        The chances of everything yielded add up to 1: of one block, its runs times the sum of the chances listed.
        """
        plan = self._flat()
        assert plan is not None
        groups, tuples = plan
        placed, _ = self._sources(self.hypothesis.of)
        for row, classes in zip(tuples.keys, tuples.classes):
            members = [one.members(i) for one, i in zip(groups, row)]
            index = torch.cartesian_prod(*members).view(-1, len(members))
            for some in index.split(1 << 16):
                patches = [
                    (place, self.donated(place, some[:, k + 1]))
                    for k, one in enumerate(placed)
                    for place in self.places[one.name]
                ]
                chances = [(c, n / len(self.units) / len(index)) for c, n in classes.items()]
                yield self.run(some[:, 0], patches)[0], chances


@dataclass(frozen=True)
class _Tuples:
    """The combinations of groups that occur, and how many units of each right class have them."""

    keys: list[list[int]]
    classes: list[dict[int, int]]

    @classmethod
    def of(cls, index: Int[Tensor, "units groups"], classes: Int[Tensor, "units"]) -> _Tuples:
        rows, numbers = torch.cat([index, classes[:, None]], 1).unique(dim=0, return_counts=True)
        found: dict[tuple[int, ...], dict[int, int]] = {}
        for row, number in zip(rows.tolist(), numbers.tolist()):
            found.setdefault(tuple(row[:-1]), {})[row[-1]] = number
        return cls([list(key) for key in found], list(found.values()))


def put(subject: Subject, place: Place, value: Tensor, at: Int[Tensor, "rows"]) -> Hook:
    """A hook that gives a place its value, at one position of each row or at each."""

    def hook(activation: Tensor, hook: object) -> Tensor:
        where = None if place.each else at.to(activation.device)
        return place.put(activation, value.to(activation.device), where)

    return place.hook(subject), hook
