"""Twelve small models in the shapes that others train: stock HookedTransformers, plain torch, minutes in all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Int
from safetensors.torch import load_file, save_file
from shared.small_tasks import DIGITS, LETTERS, Rows, Small, UniqueCopy
from torch import Tensor
from transformer_lens import HookedTransformer, HookedTransformerConfig

import interp
from interp.models.architecture.task_model import TaskModel
from interp.tasks import NextSymbols


class UniqueReverse(UniqueCopy):
    """Write a row of different letters from its end to its start after the mark."""

    name = "outside-unique-reverse"

    def row(self, content: Rows) -> Rows:
        return torch.cat([content, torch.full_like(content[:, :1], self.token_id(">")), content.flip(1)[:, :-1]], 1)

    def label(self, content: Rows) -> Tensor:
        return torch.cat([torch.full_like(content, -1), content.flip(1)], 1)


class SortDigits(Small):
    """Sort five digits."""

    name, content, length = "outside-sort", DIGITS[:5], 5

    def label(self, content: Rows) -> Tensor:
        return content.sort(1).values


class Count(Small):
    """How many a's are there?"""

    name, content, length, after, readout = "outside-count", LETTERS[:3], 8, ("=",), "="
    answer_words = DIGITS[:9]

    def label(self, content: Rows) -> Tensor:
        return (content == 0).sum(1)


class More(Small):
    """Are there more 1's than 0's?"""

    name, content, length, after, readout = "outside-more", ("0", "1"), 11, ("=",), "="
    answer_words = ("no", "yes")

    def label(self, content: Rows) -> Tensor:
        return (content.sum(1) > self.length / 2).long()


class Recall(Small):
    """Three keys, each followed by its number, and then one of them: which number?"""

    name, content, length, readout, listed = "outside-recall", (*LETTERS[:4], *DIGITS[:4]), 7, "last", False
    answer_words = DIGITS[:4]

    def draw(self, n: int, generator: torch.Generator) -> Rows:
        keys = torch.rand(n, 4, generator=generator).topk(3).indices
        values = torch.randint(4, (n, 3), generator=generator) + 4
        asked = keys.gather(1, torch.randint(3, (n, 1), generator=generator))
        return torch.cat([torch.stack([keys, values], 2).flatten(1), asked], 1)

    def label(self, content: Rows) -> Tensor:
        at = (content[:, :6:2] == content[:, 6:]).int().argmax(1, keepdim=True)
        return content[:, 1:6:2].gather(1, at)[:, 0] - 4


class Rank(Small):
    """How many digits are smaller than the own one?"""

    name, content, length = "outside-rank", DIGITS[:6], 5

    def label(self, content: Rows) -> Tensor:
        return (content[:, :, None] > content[:, None, :]).sum(2)

    answer_words = DIGITS[:5]


class TwoBefore(Small):
    """The letter two before; the first letter at the first two positions."""

    name, content, length = "outside-two-before", LETTERS[:5], 6

    def label(self, content: Rows) -> Tensor:
        return torch.cat([content[:, :1], content[:, :1], content[:, :-2]], 1)


class Seen(Small):
    """Has the letter occurred before?"""

    name, content, length, before = "outside-seen", LETTERS[:6], 5, ("[BOS]",)
    answer_words = ("no", "yes")

    def label(self, content: Rows) -> Tensor:
        again = (content[:, :, None] == content[:, None, :]).tril(-1).any(2).long()
        return torch.cat([torch.full_like(again[:, :1], -1), again], 1)


class Language(NextSymbols):
    """Which symbols may follow each prefix of a string, or its end? Subclasses define `follow`."""

    letters: tuple[str, ...]
    length: int

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.vocabulary, cls.symbols = ("[BOS]", *cls.letters), (*cls.letters, "end")

    def follow(self, prefix: list[str]) -> set[str]:
        raise NotImplementedError

    def allowed(self, tokens: Int[Tensor, "rows length"]) -> Bool[Tensor, "rows length n_out"]:
        known: dict[tuple[int, ...], list[bool]] = {}
        for row in tokens.tolist():
            for n in range(1, len(row) + 1):
                prefix = tuple(row[:n])
                if prefix not in known:
                    may = self.follow([self.vocabulary[at] for at in prefix[1:]])
                    known[prefix] = [symbol in may for symbol in self.symbols]
        return torch.tensor([[known[tuple(row[:n])] for n in range(1, len(row) + 1)] for row in tokens.tolist()])

    def rows(self, index: Int[Tensor, "rows"]) -> Rows:
        digits = index[:, None] // len(self.letters) ** torch.arange(self.length).flip(0) % len(self.letters)
        return torch.cat([torch.zeros_like(index[:, None]), digits + 1], 1)

    @property
    def n_inputs(self) -> int:
        return len(self.letters) ** self.length

    def sample(self, n: int, split: str = "test", seed: int = 0) -> interp.Batch:
        draw = torch.Generator().manual_seed(2 * seed + self.splits.index(self.check_split(split)))
        return self.batch(self.rows(torch.randint(self.n_inputs, (n,), generator=draw)))

    def inputs(self, chunk: int = 4096) -> Iterator[interp.Batch]:
        for index in torch.arange(self.n_inputs).split(chunk):
            yield self.batch(self.rows(index))


class AfterA(Language):
    """a and the end may follow anything, b only an a."""

    name, letters, length = "outside-after-a", ("a", "b"), 6

    def follow(self, prefix: list[str]) -> set[str]:
        return {"a", "end", *["b"] * (prefix[-1:] == ["a"])}


class AsThenBs(Language):
    """a's and then b's: nothing may follow where this is broken."""

    name, letters, length = "outside-as-then-bs", ("a", "b"), 7

    def follow(self, prefix: list[str]) -> set[str]:
        if "ba" in "".join(prefix):
            return set()
        return {"b", "end", *["a"] * ("b" not in prefix)}


class Depth(Language):
    """Brackets of depth at most 2; the end may follow where they are balanced."""

    name, letters, length = "outside-depth", ("(", ")"), 6

    def follow(self, prefix: list[str]) -> set[str]:
        depth = 0
        for one in prefix:
            depth += 1 if one == "(" else -1
            if not 0 <= depth <= 2:
                return set()
        return {*["("] * (depth < 2), *[")"] * (depth > 0), *["end"] * (depth == 0)}


for language in (AfterA, AsThenBs, Depth):
    interp.register_task(language)


@dataclass(frozen=True)
class Recipe:
    """A task, what differs from the default model, and the number of training steps."""

    task: type[interp.Task]
    steps: int
    shape: dict[str, Any] = field(default_factory=dict)
    rate: float = 4e-3

    def blank(self) -> HookedTransformer:
        task = self.task()
        shape: dict[str, Any] = {
            "n_layers": 1, "d_model": 32, "n_heads": 2, "d_head": 16, "attn_only": "d_mlp" not in self.shape,
            "act_fn": "relu", "normalization_type": None, "attention_dir": "causal", **self.shape,
        }  # fmt: skip
        length = task.sample(1).tokens.shape[1]
        n_out = len(task.answer_words)
        return HookedTransformer(
            HookedTransformerConfig(n_ctx=length, d_vocab=len(task.vocabulary), d_vocab_out=n_out, seed=0, **shape)
        )

    def trained(self) -> HookedTransformer:
        task, model = self.task(), self.blank()
        optimizer = torch.optim.AdamW(model.parameters(), lr=self.rate, weight_decay=0.01)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.rate, total_steps=self.steps)
        pool = task.sample(16_384, "train", seed=1)
        draw = torch.Generator().manual_seed(0)
        for _ in range(self.steps):
            some = torch.randint(len(pool.tokens), (128,), generator=draw)
            tokens, labels = pool.tokens[some], pool.labels[some]
            loss = self.loss(task, model(tokens), tokens, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        return model

    def loss(self, task: interp.Task, logits: Tensor, tokens: Tensor, labels: Tensor) -> Tensor:
        if task.decision == "set":
            sets = (labels[..., None] // 2 ** torch.arange(logits.shape[-1]) % 2).float()
            return torch.nn.functional.binary_cross_entropy_with_logits(logits, sets)
        if labels.dim() == 1:
            at = -1 if task.readout == "last" else int((tokens[0] == task.token_id(task.readout)).nonzero()[0])
            return torch.nn.functional.cross_entropy(logits[:, at], labels)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-1)


RECIPES: dict[str, Recipe] = {
    "unique copy": Recipe(UniqueCopy, 1500, {"n_layers": 2}),
    "unique reverse": Recipe(UniqueReverse, 1500, {"n_layers": 2}),
    "sort digits": Recipe(
        SortDigits, 1000, {"d_mlp": 128, "attention_dir": "bidirectional", "normalization_type": "LN"}
    ),
    "how many": Recipe(Count, 800, {"d_mlp": 256}),
    "more ones": Recipe(More, 500, {"d_mlp": 128}),
    "recall": Recipe(Recall, 2000, {"n_layers": 2}),
    "rank among digits": Recipe(Rank, 1000, {"d_mlp": 128, "attention_dir": "bidirectional"}),
    "two before": Recipe(TwoBefore, 500, {"normalization_type": "LN"}),
    "seen": Recipe(Seen, 1200, {"d_mlp": 64}),
    "after a": Recipe(AfterA, 400, {"d_mlp": 32}),
    "as then bs": Recipe(AsThenBs, 600, {"d_mlp": 64, "normalization_type": "LN"}),
    "depth": Recipe(Depth, 1200, {"n_layers": 2, "d_mlp": 64}),
}
"""The models, by name."""


def trained(name: str, folder: Path) -> TaskModel:
    """The model of this name, trained if the folder does not have it."""
    recipe, file = RECIPES[name], folder / f"{name.replace(' ', '-')}.safetensors"
    if file.is_file():
        model = recipe.blank()
        model.load_state_dict(load_file(file), strict=False)
    else:
        model = recipe.trained()
        folder.mkdir(parents=True, exist_ok=True)
        save_file({key: value.contiguous() for key, value in model.state_dict().items()}, file)
    return interp.load(model.eval(), task=recipe.task())
