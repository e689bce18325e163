"""All strings of a task, ours or a stranger's: letters, marks, and the answers to each."""

from collections.abc import Iterator

import pytest
import torch
from standins import Balance, Ends, standin

import interp
from interp.errors import InterpError, UnsupportedError
from interp.models.lens import HookedTransformer, config, quiet_construction
from interp.models.subject import Subject
from interp.programs.explanations.strings import Strings, answers, check_letters


def test_a_language_says_its_letters() -> None:
    subject = Subject.of(interp.build("languages/parity"))
    found = Strings.of(subject)
    assert found.alphabet == ("0", "1")
    assert torch.equal(torch.cat([part.tokens for part in found.all(3)]), subject.task.enumerate(3).tokens)
    assert found.longest(subject, 1_000_000) == 19


def test_letters_and_marks_of_a_stranger_are_seen_in_samples() -> None:
    subject = standin("ends")
    found = Strings.of(subject)
    assert (found.alphabet, found.marks, found.before) == (("a", "b", "c"), 1, 1)
    (batch,) = found.all(2)
    assert [subject.task.format(row) for row in batch.tokens][:4] == ["[CLS]aa", "[CLS]ab", "[CLS]ac", "[CLS]ba"]
    assert found.longest(subject, 1_000_000) == 7  # the model has 8 positions
    said = answers(subject, found, 4)
    assert said.strings == 3 + 9 + 27 + 81
    (four,) = found.all(4)
    assert said.model[4].tolist() == subject.answers(four).tolist()
    assert said.task[4].tolist() == four.labels.tolist()


def test_with_answers_per_symbol_long_strings_hold_short_ones() -> None:
    subject = standin("balance")
    found = Strings.of(subject)
    assert (found.alphabet, found.fixed) == (("a", "b"), 8)
    said = answers(subject, found, 8)
    for length in range(1, 9):
        (batch,) = found.all(length)
        last = subject.answers(batch)[:, length - 1]
        assert said.model[length].tolist() == last.tolist()
        assert said.task[length].tolist() == batch.labels[:, length - 1].tolist()


@pytest.mark.parametrize(
    "name", ["algorithmic/max-of-k", "algorithmic/modular-addition", "histogram/dot", "algorithmic/addition"]
)
def test_what_is_no_task_of_strings_is_refused(name) -> None:
    subject = Subject.of(interp.load(name))
    with pytest.raises(UnsupportedError):
        answers(subject, Strings.of(subject), 2)


def test_a_string_is_text_words_or_ids() -> None:
    found = Strings.of(standin("ends"))
    assert check_letters(found, "abc") == check_letters(found, ["a", "b", "c"]) == [0, 1, 2]
    assert check_letters(found, torch.tensor([1, 2, 3])) == [0, 1, 2]
    with pytest.raises(InterpError, match="'d' is not a letter: a, b, c"):
        check_letters(found, "abd")
    with pytest.raises(InterpError, match="5 is not a string"):
        check_letters(found, 5)


class Marked(Balance):
    """The stand-in's task behind a mark: 9 tokens, of which 8 are letters."""

    name = "strings-marked"
    vocabulary = ("^", "a", "b")

    def sample(self, n: int, split: str = "test", seed: int = 0) -> interp.Batch:
        letters = torch.randint(1, 3, (n, 8), generator=self.generator(split, seed))
        return self.batch(torch.nn.functional.pad(letters, (1, 0)))

    def batch(self, tokens: torch.Tensor) -> interp.Batch:
        balance = ((tokens == 1).long() - (tokens == 2).long()).cumsum(1)
        return interp.Batch(tokens, torch.full((len(tokens),), tokens.shape[1]), balance.sign() + 1)


def test_the_length_of_strings_is_without_their_marks() -> None:
    fields = {"n_layers": 1, "d_model": 4, "n_heads": 1, "d_head": 4, "n_ctx": 9, "d_vocab": 3, "d_vocab_out": 3}
    with quiet_construction():
        subject = Subject.external(HookedTransformer(config(**fields, attn_only=True)), Marked())
    found = Strings.of(subject)
    assert (found.alphabet, found.marks, found.fixed) == (("a", "b"), 1, 8)
    assert found.longest(subject, 1_000_000) == 8
    assert answers(subject, found, 2).task[2].tolist() == [2, 1, 1, 0]  # aa, ab, ba, bb behind the mark


@pytest.mark.parametrize("length", [1, 2])
def test_a_task_that_refuses_one_length_is_none_of_strings(length: int) -> None:
    class Other(Ends):
        def batch(self, tokens: torch.Tensor) -> interp.Batch:
            batch = super().batch(tokens)
            if bool((batch.lengths == length + 1).all()):
                raise InterpError("no strings of this length")
            return batch

    with pytest.raises(UnsupportedError, match=f"does not take every string of {length} of its letters"):
        Strings.of(Subject.external(standin("ends").model, Other()))


class Sorted(interp.Task):
    """Two digits, a mark, and the same in order: rows of 5 tokens, all of which are listed."""

    name = "strings-sorted"
    vocabulary = ("0", "1", "2", "=")
    readout = "all"
    n_inputs: int | None = 9

    def pairs(self, pairs: torch.Tensor) -> interp.Batch:
        return self.batch(torch.cat([pairs, torch.full((len(pairs), 1), 3), pairs.sort(1).values], 1))

    def sample(self, n: int, split: str = "test", seed: int = 0) -> interp.Batch:
        return self.pairs(torch.randint(3, (n, 2), generator=self.generator(split, seed)))

    def inputs(self, chunk: int = 4096) -> Iterator[interp.Batch]:
        for some in torch.cartesian_prod(torch.arange(3), torch.arange(3)).split(chunk):
            yield self.pairs(some)

    def batch(self, tokens: torch.Tensor) -> interp.Batch:
        assert tokens.shape[1] == 5, "rows of 5 tokens"
        assert bool((tokens[:, 2] == 3).all()), "the mark is in the middle"
        labels = torch.full_like(tokens, -1)
        labels[:, 2:4] = tokens[:, 3:]
        return interp.Batch(tokens, torch.full((len(tokens),), 5), labels)


def small(task: interp.Task, length: int) -> Subject:
    fields = {"n_layers": 1, "d_model": 4, "n_heads": 1, "d_head": 4, "attn_only": True}
    n, random = len(task.vocabulary), torch.Generator().manual_seed(0)
    with quiet_construction():
        model = HookedTransformer(config(**fields, n_ctx=length, d_vocab=n, d_vocab_out=n))
    for parameter in model.parameters():
        parameter.data.normal_(generator=random)
    return Subject.external(model, task)


def test_a_task_is_asked_for_no_row_that_it_does_not_list() -> None:
    """Its own code may fail there in any way, as here."""
    with pytest.raises(
        UnsupportedError, match=r"lists 9 inputs, which are not all strings of 5 symbols \(0, 1, 2, =\)"
    ):
        Strings.of(small(Sorted(), 5))
    task = Sorted()
    task.n_inputs = None
    with pytest.raises(UnsupportedError, match="does not take every string of 5 of its letters"):
        Strings.of(small(task, 5))
    assert interp.explain(small(Sorted(), 5)).level == "none"


class Listed(Balance):
    """The stand-in's task, which lists its inputs and takes no others."""

    name = "strings-listed"
    n_inputs = 2**8

    def inputs(self, chunk: int = 4096) -> Iterator[interp.Batch]:
        yield from (self.batch(some) for some in torch.cartesian_prod(*[torch.arange(2)] * 8).split(chunk))

    def batch(self, tokens: torch.Tensor) -> interp.Batch:
        assert tokens.shape[1] == 8
        return super().batch(tokens)


def test_short_strings_are_the_starts_of_inputs_of_one_length() -> None:
    subject = Subject.external(standin("balance").model, Listed())
    found = Strings.of(subject)
    assert found.longest(subject, 40) == 5
    said, every = answers(subject, found, 5), answers(subject, found, 8)
    assert [part.tolist() for part in said.model] == [part.tolist() for part in every.model[:6]]
    assert [part.tolist() for part in said.task] == [part.tolist() for part in every.task[:6]]
