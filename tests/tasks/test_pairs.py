"""Pairs that differ in one token: both rows are inputs of the task, read in the same place."""

from __future__ import annotations

import torch

from interp.tasks import IGNORED, Batch, Task


class MostOften(Task):
    """Which of a, b, c stands most often before '?'? No input is a tie; rows have 3 to 5 letters."""

    name = "most-often-test"
    vocabulary = ("a", "b", "c", "?", ".")
    readout, pad, n_out = "?", ".", 3

    @property
    def n_inputs(self) -> int:
        return len(self.words())

    def words(self) -> torch.Tensor:
        rows = []
        for length in (3, 4, 5):
            letters = torch.cartesian_prod(*[torch.arange(3)] * length)
            top = torch.stack([(letters == i).sum(1) for i in range(3)], 1).sort(1).values
            letters = letters[top[:, 2] > top[:, 1]]
            row = torch.full((len(letters), 6), 4)
            row[:, :length], row[:, length] = letters, 3
            rows.append(row)
        return torch.cat(rows)

    def inputs(self, chunk: int = 4096):
        for rows in self.words().split(chunk):
            yield self.batch(rows)

    def batch(self, tokens: torch.Tensor) -> Batch:
        counts = torch.stack([(tokens == i).sum(1) for i in range(3)], 1)
        return Batch(tokens, (tokens != 4).sum(1), counts.argmax(1))

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        words = self.words()
        return self.batch(words[torch.randint(len(words), (n,), generator=torch.Generator().manual_seed(seed))])

    def classes(self, batch: Batch) -> torch.Tensor:
        return torch.where(batch.tokens == 3, batch.labels[:, None], IGNORED)

    def answers(self, classes: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return classes


class Unlisted(MostOften):
    """The same, without a list of the inputs."""

    name = "most-often-unlisted-test"

    @property
    def n_inputs(self) -> None:
        return None


def test_a_changed_row_is_an_input_where_inputs_are_listed() -> None:
    task = MostOften()
    listed = {tuple(row) for row in task.words().tolist()}
    for seed in range(5):
        pairs = task.corrupt(task.sample(100, seed=seed), seed)
        assert len(pairs) > 30
        assert {tuple(row) for row in pairs.corrupted.tokens.tolist()} <= listed


def test_the_token_that_is_read_neither_goes_nor_comes_twice() -> None:
    task = Unlisted()
    for seed in range(5):
        pairs = task.corrupt(task.sample(200, seed=seed), seed)
        assert len(pairs) > 60
        assert ((pairs.clean.tokens == 3) == (pairs.corrupted.tokens == 3)).all()


def test_the_example_leaves_heads_a_choice_where_one_does() -> None:
    class Short(MostOften):
        """Rows of one token to four, and the answer is read at the last one."""

        name = "short-example-test"
        readout = "last"
        shortest = 1

        def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
            tokens = torch.arange(n)[:, None] % 3 + torch.zeros(1, 4, dtype=torch.long)
            lengths = torch.arange(n) % 4 + self.shortest if self.shortest == 1 else torch.ones(n, dtype=torch.long)
            return self.batch(torch.where(torch.arange(4) < lengths[:, None], tokens, 4))

    assert Short().example.lengths.tolist() == [2]
    Short.shortest = 0
    assert Short().example.lengths.tolist() == [1]
