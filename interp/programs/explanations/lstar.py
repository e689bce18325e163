"""Learn the smallest automaton with known answers on every string up to a length: a bounded version of L* (Angluin
1987).

L* keeps one access string per state, and suffixes that distinguish them. It queries the answers to access strings
followed by suffixes, proposes an automaton, and gets a counterexample. Here, answers are known only for strings of at
most n symbols, and the proposal is checked on all of these. So two strings are equivalent unless they are distinguished
by a suffix *that fits after both* (Ipate 2012; Campeanu, Paun and Yu 2001, who call the result a minimal cover
automaton). After each counterexample, access strings are searched again, shortest first, so that no comparison needs
longer strings than n. Each counterexample then adds a state or changes a transition.

No smaller automaton gives these answers, because any two access strings are distinguished and so need different states.

Answers are arrays by length: answers[k][i] is the answer to the i-th string of k symbols in lexicographic order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

UNKNOWN = -2
"""The answer is unknown: the string is too long, or is not an input."""
NOT_ASKED = -3
"""The string is not an input of the task, so that no answer to it is right or wrong."""

Answers = Sequence[Int[np.ndarray, "_"]]
Word = tuple[int, ...]


@dataclass(frozen=True)
class Machine:
    """An automaton. State 0 is the start. following[state][letter]: next state. answers, access: the answer of each
    state and the shortest string to it."""

    following: tuple[tuple[int, ...], ...]
    answers: tuple[int, ...]
    access: tuple[Word, ...]

    def run(self, longest: int) -> list[Int[np.ndarray, "_"]]:
        """Return the answers to all strings of up to `longest` symbols."""
        table, answers = np.array(self.following), np.array(self.answers)
        states, by_length = np.zeros(1, dtype=np.int64), [answers[:1]]
        for _ in range(longest):
            states = table[states].ravel()
            by_length.append(answers[states])
        return by_length


def index_of(word: Word, letters: int) -> int:
    """Return the index of a string among those of its length."""
    index = 0
    for letter in word:
        index = index * letters + letter
    return index


def word_of(index: int, length: int, letters: int) -> Word:
    """Return the string with this index among those of a length."""
    return tuple(index // letters**power % letters for power in reversed(range(length)))


def first_difference(one: Answers, other: Answers, letters: int) -> Word | None:
    """Return the first of the shortest strings with different answers; None if all answers are equal."""
    for length, (a, b) in enumerate(zip(one, other)):
        different = (a != b) & (a != UNKNOWN) & (b != UNKNOWN)
        if different.any():
            return word_of(int(different.argmax()), length, letters)
    return None


def learn(answers: Answers, letters: int, most: int) -> Machine | None:
    """Return the smallest automaton with these answers; None if it has more than `most` states.

    If the empty string is not an input, it gets the answer that makes the automaton smallest.
    """
    if answers[0][0] != UNKNOWN:
        return _learn(answers, letters, most)
    best: Machine | None = None
    for guess in np.unique(np.concatenate([part.astype(np.int64) for part in answers[1:]])):
        limit = most if best is None else len(best.answers) - 1
        machine = _learn([np.array([guess]), *answers[1:]], letters, limit) if limit else None
        best = machine or best
    return best


def _learn(answers: Answers, letters: int, most: int) -> Machine | None:
    suffixes: list[Word] = [()]
    while True:
        machine = _propose(answers, letters, suffixes, most)
        if machine is None:
            return None
        wrong = first_difference(answers, machine.run(len(answers) - 1), letters)
        if wrong is None:
            return machine
        grown = list(dict.fromkeys([*suffixes, *(wrong[i:] for i in range(len(wrong) + 1))]))
        assert len(grown) > len(suffixes), "a wrong string brings a suffix that tells two strings apart"
        suffixes = grown


def _propose(answers: Answers, letters: int, suffixes: Sequence[Word], most: int) -> Machine | None:
    """Return the automaton whose states are the strings that these suffixes distinguish, shortest first."""
    longest = len(answers) - 1
    places = [(len(suffix), index_of(suffix, letters), letters ** len(suffix)) for suffix in suffixes]

    def row(word: Word) -> Int[np.ndarray, "_"]:
        base = index_of(word, letters)
        return np.array(
            [answers[len(word) + n][base * size + i] if len(word) + n <= longest else UNKNOWN for n, i, size in places]
        )

    access: list[Word] = [()]
    rows = np.stack([row(())])
    following: list[list[int]] = []
    while len(following) < len(access):
        word, arrows = access[len(following)], []
        for letter in range(letters):
            longer = (*word, letter)
            if len(longer) > longest:
                arrows.append(len(following))  # no string reaches it
                continue
            mine = row(longer)
            alike = ((rows == mine) | (rows == UNKNOWN) | (mine == UNKNOWN)).all(1)
            if not alike.any():
                if len(access) == most:
                    return None
                access.append(longer)
                rows = np.concatenate([rows, mine[None]])
                alike = np.append(alike, True)
            arrows.append(int(alike.argmax()))
        following.append(arrows)
    outputs = [int(answers[len(word)][index_of(word, letters)]) for word in access]
    return Machine(tuple(map(tuple, following)), tuple(outputs), tuple(access))
