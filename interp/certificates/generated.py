"""Count whole generated answers, for certificates that run every input.

A certificate counts single answers, each after the right tokens. By induction, a model generates a whole answer right
if and only if each token is right after the right ones, so the same run counts whole answers. For the counterexample,
the model generates the answer to the shortest question that it answers wrongly.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from interp.measures.accuracy import generate, layout
from interp.measures.subject import Subject
from interp.tasks import IGNORED, Batch

EXACT_MATCH = "exact match: "
"""The start of the note on whole answers, which a report shows with the accuracy of single tokens."""


@dataclass
class Whole:
    """Counts of whole answers and of wrong ones, and the shortest question with a wrong answer."""

    rows: int = 0
    wrong: int = 0
    shortest: Batch | None = None
    length: int = 0
    reason: str | None = None
    """The reason why the task has no generated answers, or None."""

    def take(self, subject: Subject, batch: Batch, right: Bool[Tensor, "reads"]) -> None:
        """Count the rows of a batch. right: mask of the right single answers, at the read positions."""
        found = layout(subject, batch)
        if isinstance(found, str):
            self.reason = found
            return
        places = subject.read_mask(batch)
        single = torch.ones(places.shape, dtype=torch.bool)
        single[places] = right
        asked = found.wanted != IGNORED
        at = (found.starts[:, None] + torch.arange(asked.shape[1])).clamp_max(places.shape[1] - 1)
        wrong = (~single.gather(1, at) & asked).any(1)
        self.rows, self.wrong = self.rows + len(batch), self.wrong + int(wrong.sum())
        if bool(wrong.any()):
            lengths = torch.where(wrong, found.starts, places.shape[1])
            row = int(lengths.argmin())
            if self.shortest is None or int(lengths[row]) < self.length:
                self.shortest, self.length = batch[row : row + 1], int(lengths[row])

    def note(self) -> str:
        """Return one sentence on whole answers."""
        if self.reason is not None:
            return f"answers are not generated: {self.reason}"
        right = self.rows - self.wrong
        return (
            f"{EXACT_MATCH}generated token by token, {right:,} of {self.rows:,} answers are right as a whole (a model "
            "generates an answer right if and only if each token is right after the right ones before it)"
        )

    def counterexample(self, subject: Subject) -> str | None:
        """Return the shortest question that is answered wrongly, with the generated answer.

        None if there is none, or if the model, run on this row alone, generates the right answer; the error is then
        within rounding.
        """
        if self.shortest is None:
            return None
        batch, task = self.shortest, subject.task
        found, made = layout(subject, batch), generate(subject, batch)
        if isinstance(found, str) or bool(made.exact.all()):
            return None
        question = task.format(batch.tokens[0, : int(found.starts[0]) + 1])
        return (
            f"{question}: the generated answer is {_written(subject, made.tokens[0])}, right is "
            f"{_written(subject, found.wanted[0])}"
        )


def sees_its_answers(subject: Subject, batch: Batch) -> str | None:
    """Return the reason why teacher forcing does not imply right generation, or None.

    In a bidirectional model, the read positions see the answers in the row.
    """
    task = subject.task
    if subject.model.cfg.attention_dir == "causal":
        return None
    found = layout(subject, batch)
    several = found.wanted.shape[1] if not isinstance(found, str) else task.generates.length if task.generates else 1
    return (
        f"the model is bidirectional, and rows of task {task.name} hold the answers that it is to generate"
        if several > 1
        else None
    )


def _written(subject: Subject, answer: Tensor) -> str:
    """Return the tokens of an answer as text, without an end that the model did not reach."""
    words = [subject.task.word(int(output)) for output in answer.tolist() if output != IGNORED]
    return ("" if all(len(word) == 1 for word in words) else " ").join(words) or "nothing"
