"""The Count01 language: are there more 1s than 0s? (Zsámboki et al. 2025, Definition 3.1)

    [BOS] 0 1 1 2 0 1 = 4 [EOS]        three 1s, two 0s: the answer is 4
    [BOS] 0 1 2 =     5 [EOS]          a tie: the answer is 5

Section 4.1 and appendix A of the paper state the rule the other way round; Definition 3.1 is right (erratum 1).
"""

import re
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from interp.errors import InterpError, check_size
from interp.tasks.batch import IGNORED, Batch, find_first
from interp.tasks.counted import CountBox, mixed
from interp.tasks.pairs import Pairs
from interp.tasks.registry import register_task
from interp.tasks.task import Task

BOS, ZERO, ONE, TWO, EQUALS, FOUR, FIVE, EOS = range(8)
LANGUAGE = re.compile(r"\[BOS\][012]*=[45]\[EOS\]")
"""The regular expression of Definition 3.1; a string is in the language if its answer is also correct."""


@register_task
class Count01(Task):
    """Answer '4' if there are more 1s than 0s before '=', else '5' (a tie is '5'), then [EOS]; 2s are noise.

    Splits and sizes are those of the paper (section 3). In train, validation and test, counts of 0s and 1s are uniform
    on 0..100, 101..150 and 151..200, and counts of 2s on 0..100, 0..150 and 0..200; there are 7000, 1500 and 1500
    sentences. Short rows are padded on the right with [EOS], which a causal model never sees at '='.
    """

    name = "count01"
    family = "count01"
    splits = ("train", "validation", "test")
    readout = "="
    vocabulary = ("[BOS]", "0", "1", "2", "=", "4", "5", "[EOS]")
    pad = "[EOS]"
    rule = ("if", ("<", ("count", ("tokens",), ZERO), ("count", ("tokens",), ONE)), FOUR, FIVE)
    counted = ("0", "1", "2")
    contrast = ("4", "5")

    boxes: ClassVar[dict[str, CountBox]] = {
        "train": CountBox((0, 100), (0, 100), (0, 100)),
        "validation": CountBox((101, 150), (101, 150), (0, 150)),
        "test": CountBox((151, 200), (151, 200), (0, 200)),
    }
    count_ranges = {split: tuple(box.ranges.values()) for split, box in boxes.items()}  # noqa: RUF012
    sizes: ClassVar[dict[str, int]] = {"train": 7000, "validation": 1500, "test": 1500}

    # ------------------------------------------------------------ counts

    def domain(self, split: str = "test") -> CountBox:
        """Return all inputs of a split, without regard to the order of their tokens (502,500 for test)."""
        return self.boxes[self.check_split(split)]

    def sample_counts(self, n: int, split: str = "test", seed: int = 0) -> Int[Tensor, "rows 3"]:
        """Draw the counts (n0, n1, n2) of n sentences, each uniform on its range."""
        box, generator = self.domain(split), _generator(seed, self.splits.index(split))
        return torch.stack([torch.randint(lo, hi + 1, (n,), generator=generator) for lo, hi in box.ranges.values()], 1)

    def dataset_counts(self, split: str) -> Int[Tensor, "rows 3"]:
        """Return the counts of a split's fixed data set, which data_seed determines."""
        return self.sample_counts(self.sizes[self.check_split(split)], split, self.data_seed)

    @staticmethod
    def label_counts(counts: Int[Tensor, "*rows 3"]) -> Int[Tensor, "*rows"]:
        """Return the correct answer token of count triples: '4' if and only if n1 > n0."""
        return torch.where(counts[..., 1] > counts[..., 0], FOUR, FIVE)

    def counts(self, tokens: Int[Tensor, "rows length"]) -> Int[Tensor, "rows 3"]:
        """Count the 0s, 1s and 2s before '='."""
        return torch.stack([(tokens == token).sum(1) for token in (ZERO, ONE, TWO)], 1)

    # ------------------------------------------------------------ sentences

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        return self.sentences(self.sample_counts(n, split, seed), seed)

    def dataset(self, split: str) -> Batch:
        return self.sentences(self.dataset_counts(split), self.data_seed)

    def sentences(self, counts: Int[Tensor, "rows 3"], seed: int = 0) -> Batch:
        """Make complete sentences with these counts and tokens in random order: [BOS] ... = answer [EOS]."""
        lengths = counts.sum(1)
        body = mixed(counts, torch.tensor([ZERO, ONE, TWO]), EOS, _generator(seed, 10))
        width = body.shape[1]
        labels = self.label_counts(counts)
        tokens = torch.full((len(counts), width + 4), EOS)
        tokens[:, 0] = BOS
        tokens[:, 1 : width + 1] = body
        rows = torch.arange(len(counts))
        tokens[rows, lengths + 1] = EQUALS
        tokens[rows, lengths + 2] = labels
        return Batch(tokens, lengths + 4, labels)

    def batch(self, tokens: Int[Tensor, "rows length"]) -> Batch:
        """Label sentences that include '='. The [EOS] right after the answer is a token; all others are padding."""
        if not len(tokens):
            return Batch(tokens, tokens.new_zeros(0), tokens.new_zeros(0))
        at = find_first(tokens, EQUALS)
        if (at < 0).any():
            raise InterpError(f"row {int((at < 0).int().argmax())} has no '=', at which the answer of count01 is read")
        before = torch.where(torch.arange(tokens.shape[1]) < at[:, None], tokens, EOS)
        return Batch(tokens, (at + 3).clamp(max=tokens.shape[1]), self.label_counts(self.counts(before)))

    @property
    def example(self) -> Batch:
        """Return a sentence with two 0s, four 1s and one 2."""
        return self.batch(torch.tensor([self.parse("[BOS]0112011=4[EOS]")]))

    def features(self, batch: Batch) -> dict[str, Tensor]:
        """Return the answer, the difference n1 - n0 that determines it, and the number of 2s (noise)."""
        at = find_first(batch.tokens, EQUALS)
        counts = self.counts(torch.where(torch.arange(batch.tokens.shape[1]) < at[:, None], batch.tokens, EOS))
        return {"answer": batch.labels, "n1 - n0": counts[:, 1] - counts[:, 0], "n2": counts[:, 2]}

    def corrupt(self, batch: Batch, seed: int = 0) -> Pairs:
        """Pair a tie with the same sentence after changing one 0 to a 1; which of the two is clean is random.

        A row that is not a tie is first made one: its surplus 0s or 1s become 2s. Rows without a 0 or without a 1 are
        left out.
        """
        counts = self.features(batch)["n1 - n0"], self.counts(batch.tokens)
        low = counts[1][:, :2].min(1).values
        usable = low >= 1
        ties = torch.stack([low, low, counts[1][:, 2] + counts[0].abs()], 1)[usable]
        first = self.sentences(ties, seed)
        rows, tokens = torch.arange(len(first)), first.tokens.clone()
        tokens[rows, find_first(tokens, ZERO)] = ONE
        tokens[rows, find_first(tokens, EQUALS) + 1] = FOUR
        swap = torch.randint(0, 2, (len(rows), 1), generator=_generator(seed, 11)) == 1
        both = (torch.where(swap, *pair) for pair in ((tokens, first.tokens), (first.tokens, tokens)))
        return Pairs(*map(self.batch, both))

    def classes(self, batch: Batch) -> Int[Tensor, "rows length"]:
        """Return the answer at '=', [EOS] at the answer (section 3), and IGNORED elsewhere."""
        at = (batch.tokens == EQUALS).int().argmax(1)
        rows = torch.arange(len(batch), device=at.device)
        classes = torch.full_like(batch.tokens, IGNORED)
        classes[rows, at] = batch.labels.long()
        whole = at + 1 < batch.lengths  # a sentence may be cut off after '='
        classes[rows[whole], at[whole] + 1] = EOS
        return classes

    def parse(self, text: str) -> list[int]:
        """Return the token ids of a sentence, or of one cut off after '='. Raises InterpError for other text."""
        ids = super().parse(text)
        whole = self.format(ids)
        if not LANGUAGE.fullmatch(whole) and not re.fullmatch(r"\[BOS\][012]*=", whole):
            raise InterpError(
                f"{text!r} is neither a sentence of Count01 ([BOS], then 0, 1 and 2, then = 4|5 [EOS]) nor one cut off "
                "after '='"
            )
        return ids

    def is_member(self, text: str) -> bool:
        """Test whether a string is in the language: its form and its answer must be correct."""
        squeezed = re.sub(r"\s+", "", text)
        if not LANGUAGE.fullmatch(squeezed):
            return False
        return ("4" in squeezed) == (squeezed.count("1") > squeezed.count("0"))


def _generator(seed: int, stream: int) -> torch.Generator:
    """Return a separate generator for each (seed, stream), so that counts and shuffling never share random numbers."""
    check_size("seed", seed, least=0)
    return torch.Generator().manual_seed(seed * 16 + stream)
