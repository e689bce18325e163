"""The histogram task: how often does each token of a sequence occur in it? (Behrens et al. 2024, section 4)

1 2 4 4 2 2        ->  1 3 2 2 3 3
[BOS] 1 2 4 4 2 2  ->  - 1 3 2 2 3 3        with bos

There are two samplers. Both build a sequence of length L from blocks. With n positions left, draw the size k of the
next block, draw its token uniformly from the unused ones, and continue with n - k positions. At the end, shuffle.
  "paper"      k uniform on 1..n. Behrens et al., appendix C, corrected: its step 4 must set K = k - 1, or it never
               ends. Every count 1..L has the share 1/L of the positions.
  "published"  k uniform on 1..n-1 (k = 1 when n = 1): the authors' code. A sequence of one token never occurs; count 1
               has the share 2/L, the counts 2..L-1 have 1/L each, count L has none (if L = 1, count 1 has all).
There are at most L blocks, so an alphabet of T >= L tokens is needed. Source: errata of Behrens et al. (2024), item 28.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from interp.errors import InterpError, UnsupportedError, check_one_of, check_size
from interp.models.spec import Scalar
from interp.tasks.batch import IGNORED, Batch, digits_of
from interp.tasks.registry import register_task
from interp.tasks.task import Task

BOS_TOKEN = "[BOS]"
SAMPLERS = ("published", "paper")


def largest_block(sampler: str, n: int) -> int:
    """Return the largest block size when n positions are left."""
    return n - 1 if sampler == "published" and n > 1 else n


def count_distribution(sampler: str, L: int) -> dict[int, Fraction]:
    """Return the exact share of positions with each count 1..L, for `sampler` "published" or "paper".

    With n positions left, the expected number of blocks of size c satisfies f_n(c) = mean over k of ([k = c] +
    f_{n-k}(c)); the share is c f_L(c) / L. Raises InterpError for an unknown sampler.
    """
    check_one_of("sampler", sampler, SAMPLERS)
    blocks: list[list[Fraction]] = [[Fraction(0)] * (L + 1)]
    for n in range(1, L + 1):
        last = largest_block(sampler, n)
        blocks.append(
            [sum((blocks[n - k][c] + (k == c) for k in range(1, last + 1)), Fraction(0)) / last for c in range(L + 1)]
        )
    return {c: c * blocks[L][c] / L for c in range(1, L + 1)}


@register_task
class Histogram(Task):
    """The number of occurrences of each position's token among L tokens from an alphabet of T.

    T: size of the alphabet, tokens "0" to "T-1". L: length of the sequences. bos: whether every sequence begins with
    [BOS], which has the last id and is neither counted nor read (label -1).
    sampler: "published" (as in the authors' code: no sequence is one repeated token, and count 1 is twice as frequent
    as each other count) or "paper" (appendix C, corrected: each count 1..L has the share 1/L); see the module. Both
    need T >= L.
    zero_class: True for L + 1 output classes, with class c for count c (as in the authors' code); False for L classes,
    with class c for count c + 1.
    """

    name = "histogram"
    family = "histogram"
    separated = True
    readout = "all"
    defaults: ClassVar[Mapping[str, Scalar]] = {
        "T": 32,
        "L": 10,
        "bos": False,
        "sampler": "published",
        "zero_class": False,
    }

    def __init__(self, data_seed: int = 0, **parameters: Scalar) -> None:
        super().__init__(data_seed, **parameters)
        self.T = check_size("T", self.parameters["T"])
        self.L = check_size("L", self.parameters["L"])
        self.bos, self.zero_class = bool(self.parameters["bos"]), bool(self.parameters["zero_class"])
        self.sampler = check_one_of("sampler", str(self.parameters["sampler"]), SAMPLERS)
        self.vocabulary = (*map(str, range(self.T)), *([BOS_TOKEN] if self.bos else []))
        self.counted = self.vocabulary[: self.T]
        occurrences = ("-", ("count", ("tokens",), ("own",)), 0 if self.zero_class else 1)
        self.rule = ("if", ("=", ("own",), self.T), -1, occurrences)

    @property
    def n_out(self) -> int:
        return self.L + self.zero_class

    @property
    def bos_id(self) -> int | None:
        return self.T if self.bos else None

    # ------------------------------------------------------------ samples

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        """Draw n sequences from the sampler, the same for both splits. Raises UnsupportedError for L > T."""
        if self.L > self.T:
            raise UnsupportedError(
                f"the {self.sampler} sampler gives each block of equal tokens a token of its own, so sequences of "
                f"L = {self.L} tokens need an alphabet of T >= {self.L}, not T = {self.T}"
            )
        generator = self.generator(split, seed)
        block = self._blocks(n, generator)
        # Block i gets token i of a random order of the alphabet, so blocks have distinct, uniform tokens.
        alphabet = torch.rand(n, self.T, generator=generator).argsort(1)
        ordered = alphabet.gather(1, block)
        return self.of_sequences(ordered.gather(1, torch.rand(n, self.L, generator=generator).argsort(1)))

    def _blocks(self, n: int, generator: torch.Generator) -> Int[Tensor, "n L"]:
        """Return the index of the block at each position, before shuffling."""
        largest = torch.tensor([0] + [largest_block(self.sampler, left) for left in range(1, self.L + 1)])
        left = torch.full((n,), self.L)
        ends = torch.zeros(n, self.L + 1, dtype=torch.long)
        while int(left.max()) if n else 0:
            draw = torch.rand(n, generator=generator, dtype=torch.float64)
            size = torch.where(left > 0, 1 + (draw * largest[left]).long(), 0)
            left = left - size
            ends[torch.arange(n), self.L - left] = 1  # a new block begins here
        return ends.cumsum(1)[:, : self.L]

    def of_sequences(self, sequences: Int[Tensor, "rows L"]) -> Batch:
        """Label sequences over the alphabet, after adding [BOS] if the task has it."""
        return self.batch(torch.nn.functional.pad(sequences, (1, 0), value=self.T) if self.bos else sequences)

    def batch(self, tokens: Int[Tensor, "rows length"]) -> Batch:
        """Label rows as a model reads them, including [BOS]."""
        return Batch(tokens, torch.full((len(tokens),), tokens.shape[1]), self.counts(tokens))

    @property
    def example(self) -> Batch:
        """A sequence with several different counts: each block takes about half of the remaining length."""
        row: list[int] = []
        while left := self.L - len(row):
            token = len(set(row))
            row += [token] * (left if token == self.T - 1 else (left + 1) // 2)
        return self.of_sequences(torch.tensor([row]))

    def features(self, batch: Batch) -> dict[str, Tensor]:
        """Return the count at each position, and for each row the number of distinct tokens and the largest count."""
        tokens = batch.tokens[:, int(self.bos) :].sort(1).values
        distinct = 1 + (tokens[:, 1:] != tokens[:, :-1]).sum(1)
        return {"count": batch.labels, "distinct tokens": distinct, "largest count": batch.labels.max(1).values}

    # ------------------------------------------------------------ the whole domain

    @property
    def n_inputs(self) -> int:
        return int(self.T**self.L)

    def inputs(self, chunk: int = 4096) -> Iterator[Batch]:
        """Yield each of the T^L sequences."""
        for start in range(0, self.n_inputs, chunk):
            index = torch.arange(start, min(start + chunk, self.n_inputs))
            yield self.of_sequences(digits_of(index, self.T, self.L))

    @property
    def answer_words(self) -> tuple[str, ...]:
        """The counts."""
        return tuple(str(c + (0 if self.zero_class else 1)) for c in range(self.n_out))

    # ------------------------------------------------------------ labels, classes, answers

    def counts(self, tokens: Int[Tensor, "rows length"]) -> Int[Tensor, "rows length"]:
        """Count the occurrences of each position's token in its row; -1 at [BOS]."""
        counts = (tokens[:, :, None] == tokens[:, None, :]).sum(-1)
        return counts.masked_fill(tokens == self.T, -1) if self.bos else counts

    def label_counts(self, counts: Int[Tensor, "*rows"]) -> Int[Tensor, "*rows"]:
        """Return the right class for tokens with these counts."""
        return counts - (0 if self.zero_class else 1)

    def classes(self, batch: Batch) -> Int[Tensor, "rows length"]:
        """Return the class of each count, IGNORED at [BOS]. Raises InterpError for counts above L."""
        if len(batch) and int(batch.labels.max()) > self.L:
            raise InterpError(f"a count of {int(batch.labels.max())} has no class: task {self!r} counts up to {self.L}")
        return self.label_counts(batch.labels.long()).masked_fill(batch.labels < 0, IGNORED)

    def answers(
        self, classes: Int[Tensor, "rows length"], tokens: Int[Tensor, "rows length"]
    ) -> Int[Tensor, "rows length"]:
        """Convert classes to counts; -1 at [BOS]."""
        counts = classes.long() + (0 if self.zero_class else 1)
        return counts.masked_fill(tokens == self.T, -1) if self.bos else counts

    # ------------------------------------------------------------ text and bad input

    def check_input(self, tokens: Int[Tensor, "rows length"]) -> None:
        """Raise InterpError for tokens outside the alphabet, and for a [BOS] that is missing or in the wrong place."""
        if tokens.numel() == 0:
            raise InterpError(f"tokens of shape {tuple(tokens.shape)} contain no sequence of task histogram")
        if not 0 <= int(tokens.min()) <= int(tokens.max()) < self.d_vocab:
            raise InterpError(
                f"token ids run from {int(tokens.min())} to {int(tokens.max())}; the alphabet of T = {self.T} tokens"
                f"{' and [BOS]' if self.bos else ''} has ids 0 to {self.d_vocab - 1}"
            )
        if self.bos and not (tokens[:, 0] == self.T).all():
            row = int((tokens[:, 0] != self.T).int().argmax())
            raise InterpError(f"row {row} begins with token {int(tokens[row, 0])}, not with [BOS] (id {self.T})")
        if self.bos and (tokens[:, 1:] == self.T).any():
            row = int((tokens[:, 1:] == self.T).any(1).int().argmax())
            raise InterpError(f"row {row} has a [BOS] (id {self.T}) after its first position")
