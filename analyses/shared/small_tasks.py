"""Twelve small tasks, with recipes for models that learn them in minutes: models that were trained, to be explained."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.functional import one_hot

import interp
from interp.models.spec import MLP, Layer, ModelSpec, Training

LETTERS, DIGITS = tuple("abcdefghijklmnopqrstuvwxyz"), tuple("0123456789")
Rows = Int[Tensor, "rows length"]


class Small(interp.Task):
    """Rows of `length` content tokens, with marks before and after. Subclasses define `label`, and often `draw`."""

    family = "small"
    content: tuple[str, ...]
    length: int
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    listed = True
    """Whether all rows of content are inputs."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.vocabulary = tuple(dict.fromkeys((*cls.content, *cls.before, *cls.after)))
        interp.register_task(cls)

    def draw(self, n: int, generator: torch.Generator) -> Rows:
        """Draw rows of content."""
        return torch.randint(len(self.content), (n, self.length), generator=generator)

    def label(self, content: Rows) -> Tensor:
        """The answer to each row, or the answers at each position of the whole row (-1: none)."""
        raise NotImplementedError

    def row(self, content: Rows) -> Rows:
        """The whole rows of tokens, with marks."""
        sides = [torch.tensor([self.token_id(mark) for mark in marks]).long() for marks in (self.before, self.after)]
        return torch.cat([sides[0].expand(len(content), -1), content, sides[1].expand(len(content), -1)], 1)

    def batch(self, tokens: Rows) -> interp.Batch:
        first = len(self.before)
        labels = self.label(tokens[:, first : first + self.length])
        return interp.Batch(tokens, torch.full((len(tokens),), tokens.shape[1]), labels)

    def sample(self, n: int, split: str = "test", seed: int = 0) -> interp.Batch:
        return self.batch(self.row(self.draw(n, self.generator(split, seed))))

    @property
    def n_inputs(self) -> int | None:
        return len(self.content) ** self.length if self.listed else None

    def inputs(self, chunk: int = 4096) -> Iterator[interp.Batch]:
        if not self.listed:
            yield from super().inputs(chunk)  # raises UnsupportedError
        base, places = len(self.content), torch.arange(self.length).flip(0)
        for numbers in torch.arange(base**self.length).split(chunk):
            yield self.batch(self.row(numbers[:, None] // base**places % base))


class Reverse(Small):
    """Write the row from its end to its start."""

    name, content, length = "small-reverse", LETTERS[:8], 6

    def label(self, content: Rows) -> Tensor:
        return content.flip(1)


class Sort(Small):
    """Sort the row."""

    name, content, length = "small-sort", DIGITS[:6], 6

    def label(self, content: Rows) -> Tensor:
        return content.sort(1).values


class SecondLargest(Small):
    """The second largest of five digits; the largest counts twice if it occurs twice."""

    name, content, length, after, readout = "small-second-largest", DIGITS[:8], 5, ("=",), "="

    def label(self, content: Rows) -> Tensor:
        return content.sort(1).values[:, -2]


class Duplicates(Small):
    """Does a letter occur twice?"""

    name, content, length, before, readout = "small-duplicates", LETTERS[:10], 5, ("[CLS]",), "first"
    answer_words = ("no", "yes")

    def label(self, content: Rows) -> Tensor:
        return (content.sort(1).values.diff(dim=1) == 0).any(1).long()


class Majority(Small):
    """The letter that occurs most often; the inputs have only one."""

    name, content, length, after, readout, listed = "small-majority", LETTERS, 12, ("?",), "?", False
    answer_words = LETTERS

    def draw(self, n: int, generator: torch.Generator) -> Rows:
        found = torch.zeros(0, self.length).long()
        while len(found) < n:  # few letters in each row, so that several of them occur often
            some = torch.rand(n, len(self.content), generator=generator).topk(6).indices
            rows = some.gather(1, torch.randint(6, (n, self.length), generator=generator))
            most = self.counts(rows).topk(2).values
            found = torch.cat([found, rows[most[:, 0] > most[:, 1]]])
        return found[:n]

    def counts(self, rows: Rows) -> Tensor:
        return one_hot(rows, len(self.vocabulary)).sum(1)

    def label(self, content: Rows) -> Tensor:
        return self.counts(content).argmax(1)

    def check_input(self, tokens: Rows) -> None:
        most = self.counts(tokens[:, :-1]).topk(2).values
        if bool((most[:, 0] == most[:, 1]).any()) or bool((tokens[:, :-1] == self.token_id("?")).any()):
            raise interp.InterpError("two letters occur most often")


class Copy(Small):
    """Write the row again after the mark."""

    name, content, length, after = "small-copy", LETTERS[:8], 6, (">",)

    def row(self, content: Rows) -> Rows:
        return torch.cat([super().row(content), content[:, :-1]], 1)

    def label(self, content: Rows) -> Tensor:
        return torch.cat([torch.full_like(content, -1), content], 1)


class UniqueCopy(Copy):
    """Write a row of different letters again after the mark."""

    name, content, length, listed = "small-unique-copy", LETTERS[:10], 6, False

    def draw(self, n: int, generator: torch.Generator) -> Rows:
        return torch.rand(n, len(self.content), generator=generator).topk(self.length).indices


class Palindrome(Small):
    """Is the row of 20 bits the same from its end to its start?"""

    name, content, length, before, readout = "small-palindrome", ("0", "1"), 20, ("[CLS]",), "first"
    answer_words = ("no", "yes")

    def draw(self, n: int, generator: torch.Generator) -> Rows:
        half = torch.randint(2, (n, self.length // 2), generator=generator)
        rate = torch.tensor([0.0, 0.0, 0.15, 0.5])[torch.randint(4, (n, 1), generator=generator)]
        other = torch.rand(half.shape, generator=generator) < rate
        one = torch.arange(half.shape[1]) == torch.randint(half.shape[1], (n, 1), generator=generator)
        changed = half ^ (other | (one & (torch.rand(n, 1, generator=generator) < 0.3))).long()
        return torch.cat([half, changed.flip(1)], 1)

    def label(self, content: Rows) -> Tensor:
        return (content == content.flip(1)).all(1).long()


class Brackets(Small):
    """Is the string of 12 brackets balanced?"""

    name, content, length, before, readout = "small-brackets", ("(", ")"), 12, ("[CLS]",), "first"
    answer_words = ("no", "yes")

    def draw(self, n: int, generator: torch.Generator) -> Rows:
        free = torch.randint(2, (n, self.length), generator=generator)
        equal = torch.rand(n, self.length, generator=generator).argsort(1) % 2  # as many of each
        near = self.balanced(equal)
        kind = torch.randint(4, (n, 1), generator=generator)
        return torch.where(kind == 0, free, torch.where(kind == 1, equal, near))

    def balanced(self, rows: Rows) -> Rows:
        """Exchange the brackets wherever the depth is below 0: with as many of each, the string is then balanced."""
        depth = (1 - 2 * rows).cumsum(1)
        below = torch.where(rows == 0, depth <= 0, depth < 0)
        return torch.where(below, 1 - rows, rows)

    def label(self, content: Rows) -> Tensor:
        depth = (1 - 2 * content).cumsum(1)
        return ((depth >= 0).all(1) & (depth[:, -1] == 0)).long()


class Between(Small):
    """The number of letters between < and >."""

    name, content, length, after, readout, listed = "small-between", ("a", "b", "<", ">"), 10, ("=",), "=", False
    answer_words = DIGITS[:9]

    def draw(self, n: int, generator: torch.Generator) -> Rows:
        rows = torch.randint(2, (n, self.length), generator=generator)
        ends = torch.rand(n, self.length, generator=generator).topk(2).indices.sort(1).values
        return rows.scatter(1, ends, torch.tensor([2, 3]).expand(n, 2))

    def label(self, content: Rows) -> Tensor:
        return (content == 3).long().argmax(1) - (content == 2).long().argmax(1) - 1

    def check_input(self, tokens: Rows) -> None:
        if bool(
            ((tokens == 2).sum(1) != 1).any()
            | ((tokens == 3).sum(1) != 1).any()
            | (self.batch(tokens).labels < 0).any()
        ):
            raise interp.InterpError("a row needs one < and then one >")


class FirstRepeated(Small):
    """The first letter of the row that has occurred before; "none" if there is none."""

    name, content, length, after, readout = "small-first-repeated", LETTERS[:6], 5, ("?",), "?"
    answer_words = (*LETTERS[:6], "none")

    def label(self, content: Rows) -> Tensor:
        same = content[:, :, None] == content[:, None, :]
        again = same.tril(-1).any(2)
        first = content.gather(1, again.long().argmax(1, keepdim=True))[:, 0]
        return torch.where(again.any(1), first, 6)


class Difference(Small):
    """The difference of two numbers modulo 11."""

    name, content, length, after, readout = "small-difference", tuple(map(str, range(11))), 2, ("=",), "="

    def label(self, content: Rows) -> Tensor:
        return (content[:, 0] - content[:, 1]) % 11


def spec(
    task: type[Small], epochs: int, n_layers: int = 1, d_model: int = 32, heads: int = 2, mlp: int = 0,
    norm: Literal["none", "pre"] = "none", causal: bool = True, positions: bool = True, rate: float = 3e-3,
    decay: float = 0.01,
) -> ModelSpec:  # fmt: skip
    """A model's spec: all layers alike. An epoch is 20 steps on 512 new inputs each."""
    made = task()
    layer = Layer(n_heads=heads, d_head=d_model // heads, mlp=MLP(d_mlp=mlp) if mlp else None, norm=norm)
    final: Literal["none", "layer_norm"] = "layer_norm" if norm == "pre" else "none"
    recipe = Training(
        epochs=epochs, data="fresh", samples_per_epoch=10_240, batch_size=512, optimizer="adamw", learning_rate=rate,
        schedule="cosine", warmup_epochs=2, weight_decay=decay, init="torch",
    )  # fmt: skip
    return ModelSpec(
        task=made.ref, d_model=d_model, direction="causal" if causal else "bidirectional", layers=(layer,) * n_layers,
        positions="learned" if positions else "none", max_length=made.sample(1).tokens.shape[1] if positions else None,
        final_norm=final, readout_at=task.readout, origin=recipe,
    )  # fmt: skip


RECIPES: dict[str, Callable[[], ModelSpec]] = {
    "reverse": lambda: spec(Reverse, 20, causal=False),
    "sort": lambda: spec(Sort, 50, mlp=64, norm="pre", causal=False),
    "second largest": lambda: spec(SecondLargest, 60, n_layers=2, mlp=64),
    "has duplicates": lambda: spec(Duplicates, 60, n_layers=2, heads=1, mlp=64, causal=False),
    "majority of 26": lambda: spec(Majority, 100, d_model=64, heads=1, positions=False, rate=1e-2, decay=0.0),
    "copy": lambda: spec(Copy, 20, norm="pre"),
    "palindrome of 20": lambda: spec(
        Palindrome, 100, n_layers=2, d_model=64, heads=4, mlp=64, norm="pre", causal=False, rate=1e-3
    ),
    "balanced brackets": lambda: spec(Brackets, 100, n_layers=2, heads=2, mlp=32, norm="pre", causal=False, rate=2e-3),
    "unique copy": lambda: spec(UniqueCopy, 30, n_layers=3),
    "count between": lambda: spec(Between, 40, n_layers=2, mlp=64),
    "first repeated": lambda: spec(FirstRepeated, 60, n_layers=2, mlp=64),
    "modular difference": lambda: spec(Difference, 80, mlp=64, decay=1.0),
}
"""The models, by name."""
