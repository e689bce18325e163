"""Which inputs of a part matter, tried on the model: one input of one part, and nothing else, has its value from
elsewhere.

An input is the direct path from what writes a variable to what reads it: to a head's queries, to its keys, to its
values, to an MLP, or to the readout. It does nothing if no answer changes, wherever the value comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.measures.runs import Part
from interp.programs.readers import runs_before
from interp.programs.relevance import Kinds, mixed
from interp.programs.running import Running
from interp.programs.steps import visible, weights_of

DRAWS = 2
"""How often values are drawn in each way."""
SIDES = {"query": "q", "key": "k", "value": "v"}


@dataclass(frozen=True, eq=False)
class InputsTried:
    """A model on inputs, and where values come from. check: is called before each run."""

    running: Running
    kinds: Kinds
    check: Callable[[], None] = lambda: None

    @cached_property
    def donors(self) -> tuple[tuple[Int[Tensor, "rows length"], ...], ...]:
        """For each position the place (row * length + position) of its value, in four ways: any position of any row, or
        any of its kind; its own place in another row of the same length; and another position of its own row."""
        mask, lengths = self.running.mask, self.running.batch.lengths
        n, length = mask.shape
        itself = torch.arange(n * length).reshape(n, length)
        random = torch.Generator().manual_seed(0)

        def rolled() -> Tensor:
            rows = torch.arange(n)
            for here in ((lengths == size).nonzero()[:, 0] for size in lengths.unique()):
                here = here[torch.randperm(len(here), generator=random)]
                rows[here] = here.roll(1)
            return rows[:, None] * length + torch.arange(length)

        def turned() -> Tensor:
            order = (torch.rand(n, length, generator=random) + ~mask).argsort(1)
            return itself.gather(1, order).where(mask, itself)

        groups = ([mask], [self.kinds.each == kind for kind in self.kinds.present])
        return tuple((*(mixed(group, mask, random) for group in groups), rolled(), turned()) for _ in range(DRAWS))

    @cached_property
    def other_rows(self) -> tuple[tuple[Int[Tensor, "rows length"], Bool[Tensor, "reads"]], ...]:
        """Places in other rows of the same length, and the reads of rows that have one; where no two rows have one
        length, places of the same kind in any row, and all reads."""
        places = []
        for _, kinds, rows, _ in self.donors:
            moved = (rows[:, 0] // rows.shape[1] != torch.arange(len(rows)))[self.running.reads.rows]
            places.append((rows, moved) if bool(moved.any()) else (kinds, torch.ones_like(moved)))
        return tuple(places)

    def values(self, sources: Iterable[str]) -> dict[str, Tensor]:
        """The values of parts, and what "token" and "position" add to the residual stream, if they do."""
        running, parts = self.running, self.running.by_name
        known = [name for name in sources if name in parts or name in running.embedded]
        return {name: running.value(parts[name]) if name in parts else running.embedded[name] for name in known}

    def matters(
        self, reader: Part | None, way: str, sources: Sequence[str], stay: float = 1.0, of_its_kind: bool = False
    ) -> bool:
        """Whether any answer changes if a part (None: the readout) reads these sources from elsewhere; see stay_with.

        stay: the share of answers that must stay.
        """
        return not all(share >= stay for share in self.stay_with(reader, way, sources, of_its_kind))

    def stay_with(
        self, reader: Part | None, way: str, sources: Sequence[str], of_its_kind: bool = False,
        others: Sequence[Part] = (),
    ) -> Iterator[float]:  # fmt: skip
        """The share of answers that stay if a part (None: the readout) reads these sources from elsewhere, by direct
        paths, for each way of drawing where from.

        way: "query", "key" or "value" of a head. of_its_kind: only from positions of the same kind: of the same mark,
        or of content. others: further heads that read so at once. What cannot be tried, such as a position that is not
        added to the stream, counts as 0.
        """
        values = self.values(sources)
        if not self.running.paths or not sources or len(values) < len({*sources}):
            yield 0.0
            return
        ways = () if reader is None or reader.head is None else (SIDES[way],)
        drawn = [kinds for _, kinds, _, _ in self.donors] if of_its_kind else chain(*self.donors)
        for donors in drawn:
            yield float(self._stays(reader, ways, values, dict.fromkeys(values, donors), others).double().mean())

    def stay_without(self, reader: Part | None, said: Collection[str], sides: Sequence[str]) -> float:
        """The share of answers that stay if a part (None: the readout) takes all but the sources said from another row.

        Values come from the same place in a row of the same length; what positions add, from another place of the same
        kind. sides: those of a head that read so, of "q", "k" and "v".
        """
        running = self.running
        if not running.paths:
            return 1.0
        values = self.values(source for source in self.sources(reader) if source not in said)
        if not values:
            return 1.0
        stays = (
            self._stays(reader, sides, values, {**dict.fromkeys(values, rows), "position": kinds})[where]
            for (rows, where), (_, kinds, _, _) in zip(self.other_rows, self.donors, strict=True)
        )
        return min(float(kept.double().mean()) for kept in stays)

    def stay_together(self, reads: Mapping[Part | None, tuple[Collection[str], Sequence[str]]]) -> float:
        """The share of answers that stay if these parts, and the readout (None), take all but the sources said from
        another row, all at once. Parts that are not among them keep their values where these are said to be read.

        reads: the sources, and the sides of a head. Values come from the same row for all; see `stay_without`.
        """
        return min(
            float(self._together(reads, rows, kinds)[where].double().mean())
            for (rows, where), (_, kinds, _, _) in zip(self.other_rows, self.donors, strict=True)
        )

    def _together(
        self, reads: Mapping[Part | None, tuple[Collection[str], Sequence[str]]], rows: Tensor, kinds: Tensor
    ) -> Bool[Tensor, "reads"]:
        """Which answers stay; rows, kinds: where the values of sources, and of positions, come from."""
        running, other, new = self.running, dict[str, Tensor](), dict[str, Tensor]()
        for name, value in self.values(self.sources(None)).items():
            added = running.writes(running.by_name[name], value) if name in running.by_name else value
            other[name] = added.flatten(0, 1)[kinds if name == "position" else rows] - added

        def change(reader: Part | None) -> dict[str, Tensor]:
            """What is added to what its sources write; nothing where these are as in the model."""
            said = reads[reader][0]
            known = {name: new.get(name) if name in said else other.get(name) for name in self.sources(reader)}
            return {name: value for name, value in known.items() if value is not None}

        for part in running.parts:
            if part in reads and (changed := change(part)):
                self.check()
                _, sides = reads[part]
                mlp = part.head is None
                value = running.mlp_on(part.layer, changed) if mlp else running.head_on(part, sides, changed)
                new[str(part)] = running.writes(part, value - running.value(part))
        at = running.reads.pick
        return running.read_out({name: at(value) for name, value in change(None).items()}) == running.answers

    def sources(self, reader: Part | None) -> list[str]:
        """All that may reach a part (None: the readout) by a direct path."""
        before = [str(part) for part in self.running.parts if reader is None or runs_before(part, reader)]
        return ["token", "position", *before]

    def even(self, head: Part) -> bool:
        """Whether no answer changes with even attention of a head."""
        running = self.running
        seen = visible(running.weights, running.subject.model.cfg.attention_dir == "causal")
        z = weights_of(torch.zeros(()), seen, total=False).float() @ running.v(head)
        self.check()
        return torch.equal(running.answers_with({head: z}), running.answers)

    def _stays(
        self, reader: Part | None, sides: Sequence[str], values: Mapping[str, Tensor], donors: Mapping[str, Tensor],
        others: Sequence[Part] = (),
    ) -> Bool[Tensor, "reads"]:  # fmt: skip
        """Which answers stay if a part, and other heads, read these sources from elsewhere, by direct paths. donors: of
        each source."""
        self.check()
        running, change = self.running, dict[str, Tensor]()
        at = running.reads.pick if reader is None else lambda value: value
        for source, value in values.items():
            moved = value.flatten(0, 1)[at(donors[source])] - at(value)
            part = running.by_name.get(source)
            change[source] = moved if part is None else running.writes(part, moved)
        if reader is None:
            answers = running.read_out(change)
        elif reader.head is None:
            answers = running.answers_with({reader: running.mlp_on(reader.layer, change)})
        else:
            answers = running.answers_with({head: running.head_on(head, sides, change) for head in (reader, *others)})
        return answers == running.answers
