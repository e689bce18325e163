"""Minimal pairs: both rows are inputs of the task, and differ as their kind says."""

import pytest
import torch

import interp
from interp.programs.language import Linear, Program, Table
from interp.programs.task import ProgramTask
from interp.tasks.pairs import KINDS, minimal_pairs


class MostOften(interp.Task):
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

    def batch(self, tokens: torch.Tensor) -> interp.Batch:
        counts = torch.stack([(tokens == i).sum(1) for i in range(3)], 1)
        return interp.Batch(tokens, (tokens != 4).sum(1), counts.argmax(1))

    def sample(self, n: int, split: str = "test", seed: int = 0) -> interp.Batch:
        words = self.words()
        return self.batch(words[torch.randint(len(words), (n,), generator=torch.Generator().manual_seed(seed))])


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


def test_where_no_answer_changes_there_are_no_pairs() -> None:
    """Also of a task that labels no rows only if there are some."""

    class Alike(Unlisted):
        name = "most-often-alike-test"

        def batch(self, tokens: torch.Tensor) -> interp.Batch:
            assert len(tokens)
            return interp.Batch(tokens, (tokens != 4).sum(1), torch.zeros(len(tokens), dtype=torch.long))

    task = Alike()
    found = minimal_pairs(task, task.sample(8))
    assert len(found.clean) == len(found.corrupted) == 0


def test_the_token_that_is_read_neither_goes_nor_comes_twice() -> None:
    task = Unlisted()
    for seed in range(5):
        pairs = task.corrupt(task.sample(200, seed=seed), seed)
        assert len(pairs) > 60
        assert ((pairs.clean.tokens == 3) == (pairs.corrupted.tokens == 3)).all()


def test_a_single_input_takes_tokens_of_other_inputs() -> None:
    for task in (MostOften(), Unlisted()):
        pairs = task.corrupt(task.batch(torch.tensor([task.parse("aab?..")])))
        assert task.format(pairs.clean.tokens[0]) == "aab?.."
        assert pairs.corrupted.labels.tolist() != [0]


def test_no_row_becomes_padding_alone() -> None:
    class Last(Unlisted):
        """The last letter."""

        name, vocabulary, readout = "last-letter-test", ("a", "b", "."), "last"
        pad, n_out = ".", 2

        def batch(self, tokens: torch.Tensor) -> interp.Batch:
            lengths = (tokens != 2).sum(1)
            return interp.Batch(tokens, lengths, tokens.gather(1, lengths[:, None] - 1)[:, 0])

        def sample(self, n: int, split: str = "test", seed: int = 0) -> interp.Batch:
            draw = torch.Generator().manual_seed(seed)
            tokens = torch.randint(2, (n, 2), generator=draw)
            tokens[torch.rand(n, generator=draw) < 0.5, 1] = 2
            return self.batch(tokens)

    pairs = minimal_pairs(Last(), Last().sample(50), 0, "shorter")
    assert len(pairs)
    assert pairs.corrupted.lengths.tolist() == [1] * len(pairs)


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_of_each_kind(kind: str) -> None:
    """One token changed, two swapped, or one more or less: marks stay, and the answer is another."""
    seen = Table("seen", ("token", "position"), tuple(at % 6 % 2 ^ (at < 6) for at in range(24)), ("no", "yes"))
    answer = Linear("answer", ("seen",), (((1.0, 0.0), (0.0, 1.0)),), (0.0, 0.0), ("no", "yes"))
    program = Program(("a", "b", "[BOS]", "pad"), 6, True, (seen,), answer, pad="pad")
    task = ProgramTask(program=program.to_json(), first="[BOS]", shortest=2)
    pairs = minimal_pairs(task, task.sample(200, seed=1), 0, kind)
    assert len(pairs) > 40
    assert bool((pairs.clean.labels != pairs.corrupted.labels).all())
    assert bool((pairs.corrupted.tokens[:, 0] == 2).all())
    more = pairs.corrupted.lengths - pairs.clean.lengths
    assert set(more.tolist()) == {{"longer": 1, "shorter": -1}.get(kind, 0)}
    differ = (pairs.clean.tokens != pairs.corrupted.tokens).sum(1)
    assert kind not in ("changed", "swapped") or set(differ.tolist()) == {1 if kind == "changed" else 2}
    letters = [[(side.tokens == letter).sum(1) for letter in (0, 1)] for side in (pairs.clean, pairs.corrupted)]
    assert kind != "swapped" or all(map(torch.equal, *letters))


def test_one_invalid_row_costs_no_other_pair() -> None:
    """A task that labels no row of two 'a's in a row, and has no check of its own, still pairs all others."""

    class Strict(Unlisted):
        name = "most-often-strict-test"

        def batch(self, tokens: torch.Tensor) -> interp.Batch:
            if bool(((tokens[:, 1:] == 0) & (tokens[:, :-1] == 0)).any()):
                raise interp.InterpError("two of the first letter in a row")
            return super().batch(tokens)

        def sample(self, n: int, split: str = "test", seed: int = 0) -> interp.Batch:
            tokens = super(Unlisted, self).words()
            good = tokens[~((tokens[:, 1:] == 0) & (tokens[:, :-1] == 0)).any(1)]
            return self.batch(good[torch.randint(len(good), (n,), generator=torch.Generator().manual_seed(seed))])

    assert len(Strict().corrupt(Strict().sample(100, seed=0), 0)) > 20


def test_the_example_leaves_heads_a_choice_where_one_does() -> None:
    class Short(MostOften):
        """Rows of one token to four, and the answer is read at the last one."""

        name = "short-example-test"
        readout = "last"
        shortest = 1

        def sample(self, n: int, split: str = "test", seed: int = 0) -> interp.Batch:
            tokens = torch.arange(n)[:, None] % 3 + torch.zeros(1, 4, dtype=torch.long)
            lengths = torch.arange(n) % 4 + self.shortest if self.shortest == 1 else torch.ones(n, dtype=torch.long)
            return self.batch(torch.where(torch.arange(4) < lengths[:, None], tokens, 4))

    assert Short().example.lengths.tolist() == [4]
    Short.shortest = 0
    assert Short().example.lengths.tolist() == [1]
