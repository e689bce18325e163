"""What a program knows of a task before it reads an input: the tokens, which of them are marks, and what is visible."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.errors import UnsupportedError
from interp.measures.runs import reads_of
from interp.measures.subject import Subject
from interp.tasks import Batch

MOST_FIXED = 64
MOST_MEMBERS = 10
"""Outputs of which a set may be the answer."""


@dataclass(frozen=True)
class Setting:
    """The tokens of a task as a program sees them.

    vocabulary: all tokens, in the order of their ids. marks: tokens that say nothing, because they stand at the same
    place of every input ([BOS], '='), and padding. causal: does a position see only what stands before it?
    answers: a word for each answer, by output index. fixed: positions at which every input has the same token, where
    all inputs have one length, of at most MOST_FIXED tokens.
    """

    vocabulary: tuple[str, ...]
    marks: tuple[str, ...]
    causal: bool
    answers: tuple[str, ...]
    fixed: tuple[int, ...] = ()

    @classmethod
    def of(cls, subject: Subject, batch: Batch) -> Setting:
        """The setting of a model's task, with the marks that these inputs show."""
        task = subject.task
        causal = subject.model.cfg.attention_dir == "causal"
        return cls(tuple(task.vocabulary), _marks(subject, batch), causal, answer_words(subject), _fixed(batch))

    @property
    def content(self) -> tuple[str, ...]:
        """The tokens that are no marks."""
        return tuple(token for token in self.vocabulary if token not in self.marks)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The tokens that are whole numbers, with their values; empty where a token of the content is none."""
        values = {token: int(token) for token in self.content if token.removeprefix("-").isdecimal()}
        return values if len(values) == len(self.content) else {}

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "vocabulary": list(self.vocabulary), "marks": list(self.marks), "causal": self.causal,
            "answers": list(self.answers), "fixed": list(self.fixed),
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Setting:
        """The inverse of to_json."""
        return cls(
            tuple(data["vocabulary"]), tuple(data["marks"]), bool(data["causal"]), tuple(data["answers"]),
            tuple(data.get("fixed", ())),
        )  # fmt: skip


def answer_words(subject: Subject) -> tuple[str, ...]:
    """A word for each output index of a decision; of answers that are sets, their members.

    Raises UnsupportedError for sets of more than MOST_MEMBERS outputs.
    """
    words = tuple(subject.task.answer_words)
    if subject.decision.kind != "set":
        return words
    if len(words) > MOST_MEMBERS:
        raise UnsupportedError(f"answers are sets of {len(words)} outputs; at most {MOST_MEMBERS} can be explained")
    return tuple(
        " ".join(word for bit, word in enumerate(words) if number >> bit & 1) or "nothing"
        for number in range(1 << len(words))
    )


def _fixed(batch: Batch) -> tuple[int, ...]:
    tokens = batch.tokens
    if tokens.shape[1] > MOST_FIXED or len(batch.lengths.unique()) > 1 or len(tokens) < 2:
        return ()
    return tuple((tokens == tokens[0]).all(0).nonzero()[:, 0].tolist())


def _marks(subject: Subject, batch: Batch) -> tuple[str, ...]:
    """Padding, tokens that stand at the same place of every row (from its start or its end, or where it is read), and
    nowhere else, and tokens that no answer sees."""
    tokens, mask, task = batch.tokens, batch.attention_mask, subject.task
    rows = torch.arange(len(tokens))
    shortest = int(batch.lengths.min())
    places = [torch.full((len(tokens),), at) for at in range(shortest)]
    places += [batch.lengths - 1 - at for at in range(shortest)]
    if subject.read_at != "all":
        places.append(reads_of(subject, batch).positions)
    found = set() if task.pad_id is None else {task.pad_id}
    for place in places:
        token = int(tokens[0, place[0]])
        everywhere = bool((tokens[rows, place] == token).all())
        if everywhere and tokens.shape[1] > 1 and int(((tokens == token) & mask).sum()) == len(tokens):
            found.add(token)
    seen = mask
    if subject.model.cfg.attention_dir == "causal":  # what stands behind the last position that is read says nothing
        last = torch.where(reads_of(subject, batch).mask(batch), torch.arange(tokens.shape[1]), -1).amax(1)
        seen = mask & (torch.arange(tokens.shape[1]) <= last[:, None])
    unseen = set(range(len(task.vocabulary))) - set(tokens[seen].unique().tolist())
    return tuple(word for number, word in enumerate(task.vocabulary) if number in found | unseen)


@dataclass(frozen=True)
class View:
    """Inputs as quantities look at them: ids, what is padding, what is content."""

    setting: Setting
    tokens: Int[Tensor, "rows length"]
    mask: Bool[Tensor, "rows length"]

    @classmethod
    def of(cls, setting: Setting, batch: Batch) -> View:
        return cls(setting, batch.tokens, batch.attention_mask)

    @cached_property
    def content(self) -> Bool[Tensor, "rows length"]:
        """Where a token stands that is no mark."""
        marks = torch.tensor([token in self.setting.marks for token in self.setting.vocabulary])
        return self.mask & ~marks[self.tokens]

    @cached_property
    def values(self) -> Int[Tensor, "rows length"]:
        """The number that each token of the content is; 0 at marks."""
        numbers = torch.tensor([self.setting.numbers.get(token, 0) for token in self.setting.vocabulary])
        return torch.where(self.content, numbers[self.tokens], 0)

    @property
    def place(self) -> Int[Tensor, "length"]:
        return torch.arange(self.tokens.shape[1])

    def is_token(self, token: str) -> Int[Tensor, "rows length"]:
        """1 where a token stands, else 0."""
        return ((self.tokens == self.setting.vocabulary.index(token)) & self.mask).long()

    def total(self, each: Int[Tensor, "rows length"], scope: str = "seen") -> Int[Tensor, "rows length"]:
        """The sum over what each position sees ("seen"), up to it and with it ("upto"), or from it on ("from")."""
        if scope == "upto" or (scope == "seen" and self.setting.causal):
            return each.cumsum(1)
        if scope == "from":
            return each.flip(1).cumsum(1).flip(1)
        return each.sum(1, keepdim=True).expand_as(each)

    def least(self, each: Int[Tensor, "rows length"], scope: str = "seen") -> Int[Tensor, "rows length"]:
        """The smallest over what each position sees; see `total`."""
        if scope == "upto" or (scope == "seen" and self.setting.causal):
            return each.cummin(1).values
        if scope == "from":
            return each.flip(1).cummin(1).values.flip(1)
        return each.amin(1, keepdim=True).expand_as(each)
