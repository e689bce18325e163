"""The smallest automaton against brute force over all automata, and on languages whose size is known."""

from itertools import product

import numpy as np
import pytest

from interp.programs.explanations.lstar import UNKNOWN, Machine, first_difference, learn, word_of


def table(member, longest: int, letters: int = 2, empty: bool = False) -> list[np.ndarray]:
    """Answers by length, of a function on words."""
    found = [np.array([int(member(word_of(i, n, letters))) for i in range(letters**n)]) for n in range(longest + 1)]
    return found if empty else [np.array([UNKNOWN]), *found[1:]]


def smallest(answers: list[np.ndarray], most: int) -> int:
    """The number of states of the smallest automaton with these answers, by trying all."""
    for n in range(1, most + 1):
        for flat in product(range(n), repeat=2 * n):
            following = tuple(tuple(flat[2 * s : 2 * s + 2]) for s in range(n))
            for said in product((0, 1), repeat=n):
                if first_difference(answers, Machine(following, said, ((),) * n).run(len(answers) - 1), 2) is None:
                    return n
    return most + 1


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.thinned(3)
def test_no_smaller_automaton_gives_random_answers(seed, empty) -> None:
    draw = np.random.default_rng(seed)
    answers = table(lambda word: draw.random() < 0.4, 2, empty=empty)
    found = learn(answers, 2, 64)
    assert first_difference(answers, found.run(2), 2) is None
    assert len(found.answers) == smallest(answers, 3)


KNOWN = {
    "parity": (lambda word: sum(word) % 2, 2),
    "begins with 1": (lambda word: word[:1] == (1,), 3),
    "exactly one 1": (lambda word: sum(word) == 1, 3),
    "third from the end is 1": (lambda word: len(word) > 2 and word[-3], 8),
    "ones divisible by 5": (lambda word: sum(word) % 5 == 0, 5),
    "everything": (lambda word: True, 1),
}


@pytest.mark.parametrize("name", KNOWN)
def test_languages_of_known_size(name) -> None:
    member, states = KNOWN[name]
    found = learn(table(member, 9), 2, 64)
    assert len(found.answers) == states
    beyond = table(member, 12)
    assert first_difference(beyond, found.run(12), 2) is None  # learned on 9 symbols, right on 12


def test_a_language_that_is_not_regular_needs_a_state_a_height() -> None:
    def balanced(word):
        heights = np.cumsum([0, *(1 - 2 * np.array(word, dtype=int))])
        return heights.min() >= 0 and heights[-1] == 0

    assert [len(learn(table(balanced, n), 2, 64).answers) for n in (4, 6, 8, 10)] == [4, 5, 6, 7]
    assert learn(table(balanced, 10), 2, 6) is None


def test_more_than_two_answers_and_letters() -> None:
    found = learn(table(lambda word: sum(word) % 3, 6, letters=3), 3, 9)
    assert len(found.answers) == 3
    assert found.following[1] == tuple(found.following[0][(letter + 1) % 3] for letter in range(3))


def test_each_state_is_reached_by_its_string_and_no_shorter_one() -> None:
    found = learn(table(KNOWN["third from the end is 1"][0], 8), 2, 64)
    for state, word in enumerate(found.access):
        here = 0
        for letter in word:
            here = found.following[here][letter]
        assert here == state
    lengths = [len(word) for word in found.access]
    assert lengths == sorted(lengths)


def test_the_first_difference_is_the_shortest() -> None:
    one = table(lambda word: False, 4)
    other = table(lambda word: word in {(1, 1, 0), (0, 1, 1), (1, 0, 1, 0)}, 4)
    assert first_difference(one, other, 2) == (0, 1, 1)
    assert first_difference(one, one, 2) is None
