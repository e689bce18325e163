"""Base classes of two kinds of tasks: questions as text with generated answers, and sets of symbols that may follow."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.errors import InterpError, quoted
from interp.tasks.batch import Batch, find_positions
from interp.tasks.sets import pack_sets
from interp.tasks.task import Task


class Questions(Task):
    """Questions as text with generated answers, as in character-level language models.

    A subclass sets `vocabulary`, `pad` (the padding token) and `generates`, and defines `questions` and `answer`. A row
    is a question and its correct answer; the inputs are the rows of all questions.

    Example:

        class Sums(Questions):
            name, vocabulary, pad = "sums", (*"0123456789+=$_",), "_"
            generates = Generates(start="=", stop="$", length=3)

            def questions(self):
                return [f"{a}+{b}=" for a in range(10) for b in range(10)]

            def answer(self, question):
                return str(sum(map(int, question[:-1].split("+")))) + "$"
    """

    @abstractmethod
    def questions(self) -> Sequence[str]:
        """Return every question, including the token after which the answer starts."""

    @abstractmethod
    def answer(self, question: str) -> str:
        """Return the correct answer to a question, including the stop token if there is one."""

    @property
    def answer_words(self) -> tuple[str, ...]:
        return tuple(word for word in self.vocabulary if word != self.pad)

    @cached_property
    def rows(self) -> Int[Tensor, "questions length"]:
        """One row of tokens per question, padded on the right."""
        if self.pad is None:
            raise InterpError(f"task {self.name}: pad is None; set it to the padding token")
        if self.generates is None:
            raise InterpError(f"task {self.name}: generates is None; set where an answer starts and ends")
        ids = [self._row(question) for question in self.questions()]
        width = max(map(len, ids), default=0)
        return torch.tensor([row + [self.token_id(self.pad)] * (width - len(row)) for row in ids])

    def _row(self, question: Any) -> list[int]:
        """Return the tokens of a question and its answer. Raises InterpError if they do not fit `generates`."""
        asked = self._tokens(question, "questions()")
        answer = self.answer(question)
        wanted = self._tokens(answer, f"answer({quoted(question)})")
        assert self.generates is not None
        start, stop, length = self.generates.start, self.generates.stop, self.generates.length
        prefix = f"task {self.name}: the answer {quoted(answer)} to {quoted(question)}"
        if isinstance(start, int) and len(asked) != start:
            raise InterpError(f"task {self.name}: {quoted(question)} has {len(asked)} tokens; answers start at {start}")
        if isinstance(start, str) and not self._ends_once(asked, start):
            raise InterpError(f"task {self.name}: {quoted(question)} must end with {start!r} and contain it only there")
        if len(wanted) > length:
            raise InterpError(f"{prefix} has {len(wanted)} tokens, more than the {length} of generates.length")
        if stop is not None and not self._ends_once(wanted, stop):
            raise InterpError(f"{prefix} must end with the stop {stop!r} and contain it only there")
        return asked + wanted

    @cached_property
    def _row_of(self) -> dict[tuple[int, ...], list[int]]:
        """The row of each question."""
        return {self._question(row): row for row in self.rows.tolist()}

    def _question(self, row: list[int]) -> tuple[int, ...]:
        """Return the tokens of a row after which its answer starts, or all if the start is missing."""
        start = self.generates.start if self.generates is not None else 0
        if isinstance(start, str):
            token = self.token_id(start)
            start = row.index(token) + 1 if token in row else len(row)
        return (*row[:start],)

    def check_input(self, tokens: Int[Tensor, "rows length"]) -> None:
        """Raise InterpError unless every row is a question with its right answer, or with the beginning of it."""
        lengths, good = tokens.ne(int(self.pad_id or 0)).sum(1).tolist(), []
        for row, length in zip(tokens.tolist(), lengths):
            right = self._row_of.get(self._question(row), [])
            good.append(length <= len(right) and right[:length] == row[:length])
        self.check_rows(torch.tensor(good, dtype=torch.bool), tokens, "a question with its right answer")

    def _tokens(self, text: Any, source: str) -> list[int]:
        """Return a text's tokens, one per character."""
        if not isinstance(text, str):
            raise InterpError(f"task {self.name}: {source} gives {quoted(text)}, expected text")
        if not self._spaced and any(map(str.isspace, text)):
            raise InterpError(f"task {self.name}: {source} gives {quoted(text)}; a space is not in the vocabulary")
        return self.parse(text)

    def _ends_once(self, tokens: list[int], word: str) -> bool:
        return word in self.vocabulary and tokens.count(self.token_id(word)) == 1 and tokens[-1] == self.token_id(word)

    @property
    def n_inputs(self) -> int:
        return len(self.rows)

    def inputs(self, chunk: int = 4096) -> Iterator[Batch]:
        for part in self.rows.split(chunk):
            yield self.batch(part)

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        drawn = torch.randint(len(self.rows), (n,), generator=torch.Generator().manual_seed(seed))
        return self.batch(self.rows[drawn])

    def batch(self, tokens: Int[Tensor, "rows length"]) -> Batch:
        """Label rows with the next token at each position whose next token is in the answer, -1 elsewhere.

        Raises InterpError for a row that is no question, or has a wrong answer.
        """
        assert self.generates is not None
        self.check_input(tokens)
        start, places = self.generates.start, torch.arange(tokens.shape[1])
        first = find_positions(self, tokens, start)[:, None] if isinstance(start, str) else start - 1
        following = torch.cat([tokens[:, 1:], torch.full_like(tokens[:, :1], int(self.pad_id or 0))], 1)
        output = {word: i for i, word in enumerate(self.answer_words)}
        outputs = torch.tensor([output.get(word, -1) for word in self.vocabulary])
        labels = torch.where(places >= first, outputs[following], -1)
        return Batch(tokens, tokens.ne(int(self.pad_id or 0)).sum(1), labels)


SAMPLED = 200
"""Number of samples per split that show whether a task asks about prefixes of members only."""


class NextSymbols(Task):
    """The answer at each position is the set of outputs that may follow, which may be empty.

    A subclass sets `vocabulary` (and `symbols` if the outputs differ from it) and defines `sample` and `allowed`. A
    model is right at a position if exactly the outputs that may follow are above 0.

    Example:

        class EvenOnes(NextSymbols):
            name, vocabulary, symbols = "even_ones", ("0", "1"), ("0", "1", "end")

            def sample(self, n, split="test", seed=0):
                draw = torch.Generator().manual_seed(seed)
                return self.batch(torch.randint(2, (n, 10), generator=draw))

            def allowed(self, tokens):
                even = tokens.cumsum(1) % 2 == 0
                return torch.stack([torch.ones_like(even), torch.ones_like(even), even], dim=-1)
    """

    decision = "set"
    symbols: tuple[str, ...] = ()

    @abstractmethod
    def allowed(self, tokens: Int[Tensor, "rows length"]) -> Bool[Tensor, "rows length n_out"]:
        """Return which outputs may follow each prefix; values at padding are ignored."""

    @property
    def answer_words(self) -> tuple[str, ...]:
        return self.symbols or self.vocabulary

    def batch(self, tokens: Int[Tensor, "rows length"]) -> Batch:
        """Label rows with the set that may follow each prefix, as an integer; -1 at padding."""
        length = tokens.shape[1]
        lengths = torch.full((len(tokens),), length) if self.pad_id is None else (tokens != self.pad_id).sum(1)
        labels = pack_sets(self.allowed(tokens).bool())
        return Batch(tokens, lengths, labels.masked_fill(torch.arange(length) >= lengths[:, None], -1))

    def asked(self, batch: Batch) -> Bool[Tensor, "rows length"]:
        """Return the positions after prefixes of members; all labelled positions if samples hold other prefixes."""
        labelled = super().asked(batch)
        return labelled & self._after_members(batch.tokens) if self._samples_members else labelled

    def _after_members(self, tokens: Int[Tensor, "rows length"]) -> Bool[Tensor, "rows length"]:
        """Return whether each symbol was among those that could follow, and something can follow the first."""
        allowed = self.allowed(tokens).bool()
        outputs = torch.tensor([self.answer_words.index(w) if w in self.answer_words else -1 for w in self.vocabulary])
        next_one = outputs[tokens[:, 1:]]
        went_on = allowed[:, :-1].gather(2, next_one.clamp(min=0)[..., None])[..., 0] | (next_one < 0)
        return torch.cat([allowed[:, :1].any(-1), went_on], 1).cummin(1).values

    @cached_property
    def _samples_members(self) -> bool:
        """Whether the prefixes of all samples are prefixes of members."""
        for split in self.splits:
            batch = self.sample(SAMPLED, split, seed=0)
            if bool((super().asked(batch) & ~self._after_members(batch.tokens)).any()):
                return False
        return True
