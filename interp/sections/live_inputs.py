"""A task's inputs for the live panel: samples, fixed tokens at both ends, examples, and right answers.

Everything is inferred from samples and from the task's declarations, never from its name.
"""

from functools import cached_property
from typing import Any

import torch

from interp.architecture.answers import right_classes
from interp.errors import InterpError, UnsupportedError, short
from interp.measures.subject import Subject
from interp.tasks import Batch
from interp.tasks.rules import evaluate

RULED = 10
"""Number of samples per split on which a task's rule is compared with its labels."""
REFERENCES = 20
KNOWN_INPUTS = 5_000
KNOWN_LENGTH = 64
SAMPLES = 200
SHORT = 40
"""Largest number of tokens of an example, so that each can be read and clicked."""


class Inputs:
    """Samples of the task's inputs, without padding and, for causal models, up to the read position."""

    def __init__(self, subject: Subject) -> None:
        self.subject, self.task = subject, subject.task
        self.causal = subject.model.cfg.attention_dir == "causal"
        at = subject.read_at
        self.readout: str | int = at if at in ("all", "first", "last") else self.task.token_id(at)
        self.splits = [self.task.sample(SAMPLES, split, seed=3) for split in self.task.splits]
        self.batches = [self.cut(batch, row) for batch in self.splits for row in range(len(batch))]
        if not self.batches:
            raise UnsupportedError(f"task {self.task.name} has no samples")
        self.rows = [batch.tokens[0] for batch in self.batches]

    def cut(self, batch: Batch, row: int) -> Batch:
        """Return one row without padding and, for a causal model, without the tokens after its read position."""
        one = batch[row : row + 1]
        length = int(one.lengths[0])
        if self.causal and self.readout != "all":
            length = int(self.subject.answer_positions(one.tokens)[0]) + 1
        labels = one.labels[:, :length] if one.labels.ndim == 2 else one.labels
        return Batch(one.tokens[:, :length], torch.tensor([length]), labels)

    @cached_property
    def frame(self) -> dict[str, Any]:
        """The tokens with which every sample begins and ends, the tokens in between, and the only length, if any."""
        rows = [row.tolist() for row in self.rows]
        shortest = min(map(len, rows))
        same = [len({row[i] for row in rows}) == 1 for i in range(shortest)]
        ends = [len({row[-1 - i] for row in rows}) == 1 for i in range(shortest)]
        before = next((i for i, equal in enumerate(same) if not equal), 0)
        after = next((i for i, equal in enumerate(ends) if not equal), 0)
        first = rows[0]
        prefix, suffix = first[:before], first[len(first) - after :]
        alphabet = sorted({token for row in rows for token in row[before : len(row) - after]})
        return {"prefix": prefix, "suffix": suffix, "alphabet": alphabet, "only": self._only_length()}

    def _only_length(self) -> int | None:
        """Return the number of tokens of every input, if the task refuses rows with one token repeated."""
        if len({len(row) for row in self.rows}) > 1:
            return None
        row = self.rows[0]
        middle = len(row) // 2
        try:
            self.task.check_input(torch.cat([row[: middle + 1], row[middle:]])[None])
        except InterpError:
            return len(row)
        return None

    def references(self) -> list[Batch]:
        """Return twenty different inputs from the shorter half of the samples, of all lengths."""
        by_tokens = {
            tuple(batch.tokens[0].tolist()): batch for batch in sorted(self.batches, key=lambda b: int(b.lengths[0]))
        }
        different = list(by_tokens.values())
        shorter = different[: max(REFERENCES, len(different) // 2)]
        return [shorter[i * len(shorter) // REFERENCES] for i in range(min(REFERENCES, len(shorter)))]

    def examples(self) -> list[list[int]]:
        """Return a few inputs to start with: first the task's own example, if any."""
        own, rows = self.task.example, [batch.tokens[0] for batch in self.references()]
        first = [] if own is None else [self.cut(own, 0).tokens[0]]
        found = [row.tolist() for row in [*first, *rows]]
        short = [row for row in found if len(row) <= SHORT]
        return short or [row for row in map(self._shortened, found) if row] or found[:1]

    def _shortened(self, row: list[int]) -> list[int]:
        """Remove tokens between the fixed ends of a long input; [] if the task or the model does not accept that."""
        frame, spec = self.frame, getattr(self.subject.model, "spec", None)
        if frame["only"] is not None or self.task.rule is None or (spec is not None and spec.max_length is not None):
            return []
        start, end = len(frame["prefix"]), len(frame["suffix"])
        return row[: start + SHORT // 4] + row[len(row) - end :]

    def check_rule(self) -> None:
        """Raise InterpError if the task's rule contradicts its labels on a few samples per split."""
        for batch in self.splits if self.task.rule is not None else ():
            part = batch[:RULED]
            at, rights = self.subject.read_mask(part), self._rights(part)
            for row in range(len(part)):
                tokens = self.cut(part, row).tokens[0].tolist()
                places = at[row].nonzero()[:, 0].tolist() if self.readout != "all" else range(len(tokens))
                self._compare(tokens, dict(zip(places, rights[row])))

    def _compare(self, tokens: list[int], rights: dict[int, int]) -> None:
        for place, right in rights.items():
            try:
                said: object = evaluate(self.task.rule, tokens, place)
            except (InterpError, KeyError, TypeError, ValueError, IndexError, ZeroDivisionError) as error:
                said = f"{type(error).__name__}: {error}"
            if said != right:
                raise InterpError(
                    f"the rule of task {self.task.name} gives {said!r} at position {place} of "
                    f"{short(self.task.format(tokens))!r}, its classes {right}"
                )

    def known(self) -> list[list[list[int]]]:
        """Return inputs with the right outputs at their read positions: the whole domain if it is small, or samples."""
        total = self.task.n_inputs
        batches = self.task.inputs() if total is not None and total <= KNOWN_INPUTS else iter(self.splits)
        found = []
        for batch in batches:
            rights = self._rights(batch)
            for row in range(len(batch)):
                tokens = self.cut(batch, row).tokens[0].tolist()
                if len(tokens) <= KNOWN_LENGTH:
                    found.append([tokens, rights[row][: len(tokens)]])
        return found

    def _rights(self, batch: Batch) -> list[list[int]]:
        """Return the right output index at the read position, or at every position, with -1 where it is not read."""
        if self.readout != "all":
            return right_classes(self.task, batch, self.subject.read_at)[:, None].tolist()
        return self.task.classes(batch).masked_fill(~self.subject.read_mask(batch), -1).tolist()
