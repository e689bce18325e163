"""Restart a run of a model from here, for many changes at once.

A change of one activation changes nothing before it: no earlier layer, and in a causal model no earlier position. So
`Run` keeps what a model computes on a batch, and for each change computes only the later layers, at the later
positions, with the unchanged keys and values of the others, and the last layer only where answers are read. Changes
that start at the same place run as one batch, and what a head or an MLP writes enters the stream as a difference.

Models whose structure `restart_blocks.unknown` does not know, and places that are not listed in STAGES, run the general
way: as a whole, with hooks. Both ways give the same numbers up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from interp.measures import runs
from interp.measures.restart_changes import PRE, Change, Restarted, Start, Unchanged
from interp.models.subject import Subject

Found = TypeVar("Found")
TOGETHER = 2**20
"""Numbers of the residual stream that changes of the same place may fill in one batch."""
SMALL = 2**17
"""The same for changes that start at different positions, of which some are then run for nothing."""


def kept(subject: Subject) -> int:
    """Return how many numbers per position a run keeps, for `runs.pieces`."""
    cfg = subject.model.cfg
    return (cfg.n_layers + 1) * (2 * cfg.d_model + 4 * cfg.n_heads * cfg.d_head)


class Run(Unchanged):
    """A run of a model on one batch, which fits into memory as `runs.pieces` makes it, and its restarts.

    where: the reads, at which outputs are given (default: those of the batch). names: further activations to keep.
    general: whether every change runs as a whole, with hooks. logits: the outputs at the reads, (reads, n_out). seen:
    activations of the unchanged run by name of the hook point.

    Example:

        >>> from interp.measures.restart import Run
        >>> from interp.measures.runs import Edit, heads_of
        >>> from interp.models.subject import Subject
        >>> subject = Subject.of(interp.load("count01/minimal"))
        >>> run = Run(subject, subject.task.sample(5, seed=0))
        >>> [tuple(found.shape) for found in run.outputs([[Edit(head, 0.0)] for head in heads_of(subject)])]
        [(5, 5)]
    """

    # ------------------------------------------------------------ what users ask

    def outputs(self, changes: Iterable[Change]) -> list[Float[Tensor, "reads n_out"]]:
        """Return the outputs at the reads after each change."""
        return self.each(changes, lambda logits: logits)

    @torch.no_grad()
    def each(self, changes: Iterable[Change], measure: Callable[[Float[Tensor, "reads n_out"]], Found]) -> list[Found]:
        """Return what `measure` makes of the outputs at the reads after each change, in the order of the changes.

        So the outputs of all changes need not fit into memory.
        """
        listed = [[self._spread(edit) for edit in change] for change in changes]
        results: dict[int, Found] = {}
        for start, numbers in self._batches(listed):
            if start is None:
                out = runs.forward(self.subject, self.batch, runs.hooks_of(listed[numbers[0]]))
                results[numbers[0]] = measure(self.where.pick(out))
                continue
            x, columns = Restarted(self, [listed[i] for i in numbers]).stream(start)
            results |= {number: measure(logits) for number, logits in zip(numbers, self._read_out(x, columns))}
        return [results[number] for number in range(len(listed))]

    @torch.no_grad()
    def values(self, changes: Iterable[Change], names: Sequence[str]) -> list[dict[str, Tensor]]:
        """Return the named activations, (rows, length, ...), after each change; later layers do not run."""
        listed = [[self._spread(edit) for edit in change] for change in changes]
        results: dict[int, dict[str, Tensor]] = {}
        known = all(self.place(name) is not None and not name.endswith("hook_pattern") for name in names)
        for start, numbers in self._batches(listed, known):
            if start is None:
                results[numbers[0]] = runs.activations(
                    self.subject, self.batch, names, runs.hooks_of(listed[numbers[0]])
                )[1]
                continue
            self.need(names)
            restarted = Restarted(self, [listed[i] for i in numbers], names)
            restarted.stream(start)
            for index, number in enumerate(numbers):
                noted = {name: value[index] for name, value in restarted.noted.items()}
                results[number] = {name: noted.get(name, self.seen[name]) for name in names}
        return [results[number] for number in range(len(listed))]

    @torch.no_grad()
    def apart(
        self, parts: Sequence[runs.Part], streams: Sequence[Float[Tensor, "rows length d_model"]]
    ) -> list[Float[Tensor, "rows length d_model"]]:
        """Return what all heads of a layer, or its MLP, write if each reads a stream of its own (heads: no biases)."""
        layer, heads = parts[0].layer, parts[0].head is not None
        if self.restarts and heads:
            block = self.blocks[layer]
            z = block.heads_apart(torch.stack([*streams]), self.every)
            return list(einsum(z, block.W_O, "row place head d_head, head d_head d_model -> head row place d_model"))
        hook = f"blocks.{layer}.hook_resid_{'pre' if heads else 'mid'}"
        outputs = self.values([[runs.Edit(hook, stream)] for stream in streams], [parts[0].hook])
        return [runs.writes(self.subject, part, seen) for part, seen in zip(parts, outputs)]

    # ------------------------------------------------------------ which changes run together

    def _spread(self, edit: runs.Edit) -> runs.Edit:
        """Return the same edit with a mask instead of one position per row."""
        if not isinstance(edit.at, Tensor) or edit.at.ndim == 2:
            return edit
        at = edit.at.cpu().long()
        mask = torch.zeros(self.rows, self.length, dtype=torch.bool)
        mask.scatter_(1, torch.where(at < 0, at + self.length, at)[:, None], True)
        value = edit.value[:, None] if isinstance(edit.value, Tensor) and edit.value.ndim == 2 else edit.value
        return replace(edit, value=value, at=mask)

    def _batches(self, changes: Sequence[Change], known: bool = True) -> Iterator[tuple[Start | None, list[int]]]:
        """Yield the numbers of changes that run together, and where they start; None if one runs as a whole."""
        starts = list[tuple[Start, int]]()
        for number, change in enumerate(changes):
            places = [self.place(edit.hook) for edit in change]
            placed = [place for place in places if place is not None]
            if not known or not self.restarts or len(placed) < len(places):
                yield None, [number]
                continue
            columns = [self._columns(edit) for edit in change]
            layer, stage = min(
                (place for place, edited in zip(placed, columns) if edited), default=(self.n_layers, PRE)
            )
            starts.append((Start(layer, stage, tuple(sorted(set[int]().union(*columns)))), number))
        batch: list[int] = []
        now = Start(0, 0, ())
        for start, number in sorted(starts):
            union = tuple(sorted({*now.columns, *start.columns})) if batch else start.columns
            size = (len(batch) + 1) * self.rows * len(self.reached(union)) * self.width
            limit = TOGETHER if start.columns == now.columns else SMALL
            if batch and ((start.layer, start.stage) != (now.layer, now.stage) or size > limit):
                yield now, batch
                batch, union = [], start.columns
            batch.append(number)
            now = replace(start, columns=union)
        if batch:
            yield now, batch

    def _columns(self, edit: runs.Edit) -> Sequence[int]:
        """Return the positions at which an edit may change the run: with a value that is the same there, none."""
        value = self.seen.get(edit.hook)
        if value is not None and not (isinstance(edit.place, str) and edit.hook.endswith("hook_pattern")):
            return edit.changed(value).any(0).nonzero()[:, 0].tolist()
        return range(self.length) if edit.at is None else edit.at.any(0).nonzero()[:, 0].tolist()

    # ------------------------------------------------------------ the restart

    def _read_out(
        self, x: Float[Tensor, "changes rows columns d_model"], columns: Int[Tensor, "_columns"]
    ) -> Iterable[Float[Tensor, "reads n_out"]]:
        """Return the outputs at the reads for the last stream, given at the read positions that change."""
        if not len(columns):
            return [self.logits] * len(x)
        rows, at = self.where.rows.to(self.device), self.where.positions.to(self.device)
        index = torch.searchsorted(columns, at).clamp(max=len(columns) - 1)
        inside = columns[index] == at
        logits = self.logits.expand(len(x), -1, -1).clone()
        logits[:, inside] = runs.read_out(self.subject, x[:, rows[inside], index[inside]].flatten(0, 1)).unflatten(
            0, (len(x), -1)
        )
        return logits
