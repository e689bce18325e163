"""The formal languages: labels against plain Python, samplers against their stated distributions, bad input."""

import itertools
import math

import pytest
import torch
from cases import LANGUAGES as CASES

from interp.errors import InterpError
from interp.families.languages import Brackets, Dyck1, Dyck2, First, Language, One, Palindrome, Parity
from interp.tasks import make_task

LANGUAGES = (First, Parity, One, Palindrome, Dyck1, Dyck2)


def brackets_balance(word: str, depth: int) -> bool:
    open_ones: list[str] = []
    for symbol in word:
        if symbol in "([":
            open_ones.append(symbol)
        elif not open_ones or {"(": ")", "[": "]"}[open_ones.pop()] != symbol:
            return False
        if len(open_ones) > depth:
            return False
    return not open_ones


MEMBERS = {
    "first": lambda w: w.startswith("1"), "parity": lambda w: w.count("1") % 2 == 1,
    "one": lambda w: w.count("1") == 1, "palindrome": lambda w: w == w[::-1],
    "dyck1": lambda w: brackets_balance(w, 5), "dyck2": lambda w: brackets_balance(w, 5),
}  # fmt: skip


def strings_of(task: Language, tokens: torch.Tensor) -> list[str]:
    symbols, lengths = task.symbols(tokens)
    return ["".join(task.alphabet[s] for s in row[:n]) for row, n in zip(symbols.tolist(), lengths.tolist())]


@pytest.mark.parametrize("name", CASES)
def test_cases(name: str) -> None:
    task = make_task(name)
    for string, member in CASES[name].items():
        assert task.is_member(string) is member
        tokens = task.format(task.encode([string]).tokens[0])
        assert tokens.replace(" ", "") == "[CLS]" + string + ("[EOS]" if name == "palindrome" else "")
        assert task.parse(string) == task.parse(tokens) == task.encode([string]).tokens[0].tolist()


@pytest.mark.parametrize("kind", LANGUAGES)
def test_enumeration_is_every_string_with_its_label(kind: type[Language]) -> None:
    task = kind()
    longest = 5 if len(task.alphabet) == 4 else 9
    batch = task.enumerate_up_to(longest)
    words = strings_of(task, batch.tokens)
    wanted = ["".join(w) for n in range(1, longest + 1) for w in itertools.product(task.alphabet, repeat=n)]
    assert words == wanted
    assert batch.labels.tolist() == [MEMBERS[task.name](w) for w in wanted]
    assert batch.lengths.tolist() == [len(w) + (2 if task.name == "palindrome" else 1) for w in wanted]
    assert torch.equal(batch.attention_mask, batch.tokens != task.pad_id)


@pytest.mark.parametrize("kind", LANGUAGES)
def test_samples_have_their_lengths_labels_and_seeds(kind: type[Language]) -> None:
    task = kind(length=9, shortest=3, test_length=14)
    train, test = task.sample(400, "train", 5), task.sample(50, "test", 5)
    words = strings_of(task, train.tokens)
    even = task.name.startswith("dyck")
    assert {len(w) for w in words} == ({4, 6, 8} if even else set(range(3, 10)))
    assert train.labels.tolist() == [MEMBERS[task.name](w) for w in words]
    assert {len(w) for w in strings_of(task, test.tokens)} == {14}
    assert torch.equal(train.tokens, task.sample(400, "train", 5).tokens)
    assert not torch.equal(train.tokens, task.sample(400, "train", 6).tokens)
    assert strings_of(task, task.sample(50, "test", 5).tokens) != strings_of(task, task.strings(50, 14, seed=5).tokens)


def test_sampling_leaves_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    for kind in LANGUAGES:
        kind().sample(20)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize(
    ("kind", "share"),
    [(First, 0.5), (Parity, 0.5), (One, 1.5 * math.exp(-1.5)), (Palindrome, 0.5), (Dyck1, 0.5), (Dyck2, 0.5)],
)
def test_share_of_members(kind: type[Language], share: float) -> None:
    found = kind(length=30).sample(20_000, seed=1).labels.double().mean()
    assert abs(found - share) < 4 * math.sqrt(share * (1 - share) / 20_000)


def test_ones_are_poisson_and_uniform_in_place() -> None:
    symbols, _ = One(length=12).symbols(One(length=12).sample(40_000, seed=2).tokens)
    counts = symbols.sum(1).bincount(minlength=13)[:5] / 40_000
    poisson = torch.tensor([math.exp(-1.5) * 1.5**k / math.factorial(k) for k in range(5)])
    torch.testing.assert_close(counts, poisson, atol=0.01, rtol=0)
    per_place = symbols.double().mean(0)
    torch.testing.assert_close(per_place, torch.full_like(per_place, 1.5 / 12), atol=0.008, rtol=0)


@pytest.mark.parametrize("length", [8, 9])
def test_palindromes_are_uniform_others_differ_in_one_pair(length: int) -> None:
    task = Palindrome(length=length)
    words = strings_of(task, task.sample(30_000, seed=3).tokens)
    palindromes = [w for w in words if w == w[::-1]]
    assert len(set(palindromes)) == 2 ** ((length + 1) // 2)
    wrong = [[i for i in range(length // 2) if w[i] != w[-1 - i]] for w in words if w != w[::-1]]
    assert {len(pairs) for pairs in wrong} == {1}
    share = torch.tensor([i for (i,) in wrong]).bincount(minlength=length // 2) / len(wrong)
    torch.testing.assert_close(share, torch.full_like(share, 1 / (length // 2)), atol=0.015, rtol=0)


def test_balanced_shapes_are_uniform() -> None:
    task = Dyck1(length=8, depth=3)
    words = [w for w in strings_of(task, task.sample(40_000, seed=4).tokens) if brackets_balance(w, 3)]
    shapes = [w for w in map("".join, itertools.product("()", repeat=8)) if brackets_balance(w, 3)]
    share = torch.tensor([words.count(w) for w in shapes]) / len(words)
    assert len(shapes) == 13
    torch.testing.assert_close(share, torch.full_like(share, 1 / 13), atol=0.01, rtol=0)


@pytest.mark.parametrize(("length", "deepest"), [(2, 1), (6, 3), (7, 4)])
def test_brackets_are_as_deep_as_they_can_be(length: int, deepest: int) -> None:
    """By hand: ((())) of six, and (((()))) of seven, whose last one is missing."""
    assert Brackets(length=length).depth == deepest


@pytest.mark.slow
def test_long_brackets_do_not_overflow() -> None:
    task = Dyck2(length=3000)
    batch = task.sample(6, seed=1)
    words = strings_of(task, batch.tokens)
    assert [brackets_balance(w, 5) for w in words] == batch.labels.tolist()
    assert batch.labels.any()


def test_classes_sit_at_cls_and_answers_are_bools() -> None:
    task = Parity(length=4)
    batch = task.sample(7)
    classes = task.classes(batch)
    assert classes[:, 0].tolist() == batch.labels.int().tolist()
    assert (classes[:, 1:] == -100).all()
    assert torch.equal(task.answers(classes[:, 0], batch.tokens), batch.labels)


@pytest.mark.parametrize(("name", "string", "message"), [
    ("one", "", "empty string"), ("one", "0120", "'2' at position 2"), ("dyck1", "([", r"'\[' at position 1"),
    ("palindrome", "[CLS]0110", r"\[EOS\]"), ("palindrome", "[CLS][EOS]", "at least one symbol"),
    ("first", "[CLS]", "at least one symbol"), ("first", "[CLS]0[CLS]1", "only"),
])  # fmt: skip
def test_strings_that_are_no_input(name: str, string: str, message: str) -> None:
    with pytest.raises(InterpError, match=message):
        make_task(name).parse(string)


def test_rows_that_are_no_input() -> None:
    task = Palindrome()
    good = task.encode(["0110", "0"]).tokens
    task.check_input(good)
    cls, eos, pad = (task.token_id(mark) for mark in ("[CLS]", "[EOS]", "[PAD]"))
    for at, value in (((0, 0), 1), ((0, 5), pad), ((1, 2), pad), ((1, 4), eos), ((0, 3), eos), ((1, 1), cls)):
        bad = good.clone()
        bad[at] = value
        with pytest.raises(InterpError, match=f"row {at[0]}"):
            task.check_input(bad)


@pytest.mark.parametrize(("make", "message"), [
    (lambda: One(length=0), "length = 0"), (lambda: One(length=5, shortest=6), "shortest = 6"),
    (lambda: One(test_length=-1), "test_length = -1"), (lambda: One().enumerate(40), "length = 40"),
    (lambda: One().sample(3, "validation"), "unknown split"),
    (lambda: Dyck1(length=5).sample(3), "no even length"), (lambda: Dyck1(depth=0), "depth = 0"),
    (lambda: One(depth=3), "unknown parameter"),
])  # fmt: skip
def test_sizes_that_make_no_sense(make, message: str) -> None:
    with pytest.raises(InterpError, match=message):
        make()


def test_strings_too_many_for_64_bits_are_listed_too() -> None:
    task = First(length=100)
    assert strings_of(task, next(task.inputs(3)).tokens) == ["0" * 100, "0" * 99 + "1", "0" * 98 + "10"]
