"""The setting of a program: the task's tokens, which of them are marks, and whether attention is causal."""

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
"""Largest number of outputs if answers are sets."""


@dataclass(frozen=True)
class Setting:
    """The tokens of a task as a program sees them.

    vocabulary: all tokens, in the order of their ids. marks: padding, and tokens without information, because they are
    at the same place in every input ([BOS], '=') or no answer sees them. causal: whether attention is causal. answers:
    one word per output index. fixed: positions with the same token in every input, if all inputs have the same length
    of at most MOST_FIXED tokens.
    """

    vocabulary: tuple[str, ...]
    marks: tuple[str, ...]
    causal: bool
    answers: tuple[str, ...]
    fixed: tuple[int, ...] = ()

    @classmethod
    def of(cls, subject: Subject, batch: Batch) -> Setting:
        """Return the setting of a model's task, with the marks found in these inputs."""
        task = subject.task
        causal = subject.model.cfg.attention_dir == "causal"
        return cls(tuple(task.vocabulary), _marks(subject, batch), causal, answer_words(subject), _fixed(batch))

    @property
    def content(self) -> tuple[str, ...]:
        """The tokens that are not marks."""
        return tuple(token for token in self.vocabulary if token not in self.marks)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The values of the content tokens; empty unless all of them are whole numbers."""
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
    """Return one word per answer index; for sets, the words of their members.

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
    """Return padding, tokens that no answer sees, and tokens that every row has at the same place and nowhere else.

    A place is a position counted from the start or from the end, or the read position.
    """
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
    if subject.model.cfg.attention_dir == "causal":  # tokens after the last read position have no effect
        last = torch.where(reads_of(subject, batch).mask(batch), torch.arange(tokens.shape[1]), -1).amax(1)
        seen = mask & (torch.arange(tokens.shape[1]) <= last[:, None])
    unseen = set(range(len(task.vocabulary))) - set(tokens[seen].unique().tolist())
    return tuple(word for number, word in enumerate(task.vocabulary) if number in found | unseen)


@dataclass(frozen=True)
class View:
    """Inputs from which quantities are computed: token ids, and masks of tokens and content."""

    setting: Setting
    tokens: Int[Tensor, "rows length"]
    mask: Bool[Tensor, "rows length"]

    @classmethod
    def of(cls, setting: Setting, batch: Batch) -> View:
        return cls(setting, batch.tokens, batch.attention_mask)

    @cached_property
    def content(self) -> Bool[Tensor, "rows length"]:
        """Mask of the tokens that are not marks."""
        marks = torch.tensor([token in self.setting.marks for token in self.setting.vocabulary])
        return self.mask & ~marks[self.tokens]

    @cached_property
    def values(self) -> Int[Tensor, "rows length"]:
        """The numeric value of each content token; 0 at marks."""
        numbers = torch.tensor([self.setting.numbers.get(token, 0) for token in self.setting.vocabulary])
        return torch.where(self.content, numbers[self.tokens], 0)

    @property
    def place(self) -> Int[Tensor, "length"]:
        return torch.arange(self.tokens.shape[1])

    def is_token(self, token: str) -> Int[Tensor, "rows length"]:
        """Return 1 at the positions of a token, otherwise 0."""
        return ((self.tokens == self.setting.vocabulary.index(token)) & self.mask).long()

    def total(self, each: Int[Tensor, "rows length"]) -> Int[Tensor, "rows length"]:
        """Sum over the positions that each position sees."""
        return each.cumsum(1) if self.setting.causal else each.sum(1, keepdim=True).expand_as(each)

    def least(self, each: Int[Tensor, "rows length"]) -> Int[Tensor, "rows length"]:
        """Return the minimum over the positions that each position sees."""
        return each.cummin(1).values if self.setting.causal else each.amin(1, keepdim=True).expand_as(each)
