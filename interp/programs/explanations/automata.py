"""Learn the smallest automaton that gives the same answers as a model on all strings up to a length.

    found = interp.learn_automaton(model)
    print(found)                         # On every string of 1 to 19 symbols (1,048,574), the model is ...
    found.model.accepts("0110")          # the automaton as a Python object
    found.task                           # the automaton of the task, learned from its labels in the same way

The algorithm is Angluin's L* (see explanations.lstar). Its equivalence queries are answered exactly, by running the
model on all strings.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from interp.errors import InterpError, UnsupportedError, check_size, first_few
from interp.models.architecture.answers import NOT_NAMED
from interp.models.subject import Model, Subject
from interp.programs.explanations import lstar
from interp.programs.explanations.lstar import Word
from interp.programs.explanations.strings import Answers, Strings, answers, check_letters
from interp.support import words
from interp.support.progress import LateBar
from interp.support.views import view
from interp.tasks.sets import set_word

STRINGS = 1_000_000
"""Largest number of strings that are run by default."""
STATES = 64
"""Default limit on the number of states; larger automata are hard to read."""


@dataclass(frozen=True)
class LearnedAutomaton:
    """A deterministic automaton that answers after each string.

    Attributes:
        alphabet: its letters.
        following: following[state][letter] is the next state; the start is state 0.
        answers: the output index of each state; None for a start state that only the empty string reaches.
        answer_words: the words for these answers.
        access: the shortest string that ends in each state.
        longest: the automaton is exact on every string of 1 to this many symbols.
        sets: whether answers are sets of words (see tasks.sets), such as the possible next symbols.
    """

    alphabet: tuple[str, ...]
    following: tuple[tuple[int, ...], ...]
    answers: tuple[int | None, ...]
    answer_words: tuple[str, ...]
    access: tuple[str, ...]
    longest: int
    strings: Strings = field(repr=False, compare=False)
    sets: bool = False

    @property
    def states(self) -> int:
        """Number of states."""
        return len(self.following)

    def answer(self, tokens: Any) -> str:
        """Return the answer to a string, given as text of one-character letters, a list of letters, or token ids.

        Raises InterpError for anything that is not a letter, and for the empty string, which is not an input.
        """
        letters = check_letters(self.strings, tokens)
        if not letters:
            raise InterpError("the empty string is not an input, so it has no answer")
        state = 0
        for letter in letters:
            state = self.following[state][letter]
        return self.word(state)

    def accepts(self, tokens: Any) -> bool:
        """Test whether the answer to a string is "yes". Raises UnsupportedError if answers are not no and yes."""
        if len(self.answer_words) != 2 or self.sets:
            answers = f"{'sets of ' * self.sets}{first_few(self.answer_words)}"
            raise UnsupportedError(f"the answers are not no and yes, but {answers}; see answer()")
        return self.answer(tokens) == self.answer_words[1]

    def word(self, state: int) -> str:
        """Return the answer of a state in words; "" for a start state that only the empty string reaches."""
        answer = self.answers[state]
        if answer is None:
            return ""
        if answer == lstar.NOT_ASKED:
            return "not asked"
        if self.sets and answer >= 0:
            return set_word(answer, self.answer_words)
        if answer >= len(self.answer_words):
            return NOT_NAMED
        return self.answer_words[answer] if answer >= 0 else "no finite output"

    def to_frame(self) -> pd.DataFrame:
        """Return one row per state: state, answer, access (the shortest string to it), next state for each letter."""
        return pd.DataFrame(
            [(state, self.word(state), self.access[state], *self.following[state]) for state in range(self.states)],
            columns=["state", "answer", "access", *(f"on {letter}" for letter in self.alphabet)],
        )

    def __str__(self) -> str:
        return f"automaton of {words.counted(self.states, 'state')} over {', '.join(self.alphabet)}"

    def _repr_html_(self) -> str:
        frame = self.to_frame()
        return view(str(self).capitalize(), frame.values.tolist(), list(map(str, frame.columns)))


@dataclass(frozen=True)
class Learned:
    """A model as an automaton, compared with its task.

    Attributes:
        model: the smallest automaton with the model's answers on every string of 1 to `longest` symbols; None if it has
            more than `most_states` states.
        shorter: if model is None, the automaton for the greatest length for which it is small enough, or None.
        task: the smallest automaton with the right answers; None if it is too large.
        strings: number of strings that are inputs of the task, and were run.
        others: whether other strings are not inputs; they are "not asked".
        inferred: whether letters were inferred from samples, so that some of the strings may be no inputs of the task.
        different: number of strings on which the model is wrong; example: the first of the shortest ones.
        seconds: time taken.
    """

    model: LearnedAutomaton | None
    shorter: LearnedAutomaton | None
    task: LearnedAutomaton | None
    longest: int
    strings: int
    different: int
    example: str
    most_states: int
    seconds: float
    others: bool = False
    inferred: bool = False

    @property
    def shown(self) -> LearnedAutomaton | None:
        """The model's automaton, on all strings or on the shorter ones."""
        return self.model or self.shorter

    @property
    def same(self) -> bool:
        """Whether the model has an automaton and gives the right answer to every string."""
        return self.model is not None and self.different == 0

    def __str__(self) -> str:
        return sentence(self)

    def _repr_html_(self) -> str:
        shown = self.shown
        return f"<p>{sentence(self)}</p>" + ("" if shown is None else shown._repr_html_())


def learn_automaton(
    model: Model, longest: int | None = None, *, strings: int = STRINGS, most_states: int = STATES
) -> Learned:
    """Learn the smallest automaton that gives the same answers as a model on all strings up to a length.

    Args:
        model: a model of a task of strings, with one answer per string, or one after each symbol if it is causal.
        longest: largest number of symbols (default: the greatest length that fits the model's positions and has at most
            `strings` strings; no longer than the inputs that the task lists).
        most_states: largest number of states.

    Returns:
        The automaton, the task's automaton, and how often they differ. All are exact, because every string is run.

    Raises UnsupportedError if the task's inputs are not strings, and InterpError for a length that is too great.

    Example:

        >>> found = interp.learn_automaton(interp.build("languages/parity"), longest=8)
        >>> print(found)
        On every string of 1 to 8 symbols (510), the model is an automaton of 2 states, the task's own.
        >>> found.model.accepts("0111")
        True
    """
    started = time.perf_counter()
    subject = Subject.of(model)
    known = Strings.of(subject)
    most = known.longest(subject, check_size("strings", strings), listed=False)
    length = known.longest(subject, strings) if longest is None else check_size("longest", longest)
    check_size("most_states", most_states)
    if length > most:
        raise InterpError(
            f"longest = {length} must be at most {most}, by the model's positions and the limit of {strings:,} strings"
        )
    if length < 1:
        raise UnsupportedError("the model has no position for a symbol")
    with LateBar("strings") as bar:
        answered = answers(subject, known, length, lambda done, total: bar.update(done, total, "strings"))
    sets = subject.decision.kind == "set"
    return learned(known, answered, subject.task.answer_words, most_states, started, sets)


def learned(
    strings: Strings, said: Answers, answer_words: Sequence[str], most_states: int, started: float, sets: bool = False
) -> Learned:
    """Learn automata from known answers."""
    letters, longest = len(strings.letters), len(said.model) - 1
    two = ("no", "yes") if len(answer_words) == 1 else tuple(answer_words)

    def machine(table: Sequence[Any]) -> LearnedAutomaton | None:
        found = lstar.learn(table, letters, most_states)
        if found is None:
            return None
        entered = {state for row in found.following for state in row}
        given = tuple(answer if state or 0 in entered else None for state, answer in enumerate(found.answers))
        access = tuple(spelled(strings, word) for word in found.access)
        return LearnedAutomaton(strings.alphabet, found.following, given, two, access, len(table) - 1, strings, sets)

    whole = machine(said.model)
    lengths = range(longest - 1, 0, -1) if whole is None else ()
    shorter = next((automaton for n in lengths if (automaton := machine(said.model[: n + 1])) is not None), None)
    differ = sum(int((a != b).sum()) for a, b in zip(said.model, said.task))
    first = lstar.first_difference(said.model, said.task, letters)
    return Learned(
        model=whole, shorter=shorter, task=machine(said.task), longest=longest, strings=said.strings, different=differ,
        example="" if first is None else spelled(strings, first), most_states=most_states,
        seconds=time.perf_counter() - started, others=said.others,
        inferred=not strings.declared and (strings.most is None or longest > strings.most),
    )  # fmt: skip


def spelled(strings: Strings, word: Word) -> str:
    """Write a string as text."""
    letters = [strings.alphabet[letter] for letter in word]
    return ("" if all(len(letter) == 1 for letter in strings.alphabet) else " ").join(letters)


def sentence(found: Learned) -> str:
    """Describe the result in one to three sentences."""
    which = " that is an input" if found.others else ""
    number = f"{found.strings:,}"
    unsure = found.inferred and not found.others
    if unsure:
        number = f"{words.counted(found.strings, 'string')}, inputs of the task or not"
    every = f"every string of {_lengths(found.longest)}{which} ({number})"
    task_states = found.task and words.counted(found.task.states, "state")
    wrong = ""
    if found.different:
        which = "one of them," if found.different == 1 else f"{found.different:,} of them, such as"
        doubt = "it may not be an input" if found.different == 1 else "they may not be inputs"
        wrong = f" The model is wrong on {which} {found.example!r}{f' ({doubt} of the task)' * unsure}."
    if found.model is None:
        shorter = ""
        if found.shorter is not None:
            states = words.counted(found.shorter.states, "state")
            shorter = f"; on every string of {_lengths(found.shorter.longest)} one of {states} does"
        right = f" The smallest with the right answers has {task_states}." if task_states else ""
        return (
            f"No automaton of at most {words.counted(found.most_states, 'state')} gives the model's answers on "
            f"{every}{shorter}.{right}{wrong}"
        )
    if found.model.states == 1:
        other = f" The task's own automaton has {task_states}." if task_states and found.different else ""
        return f"On {every}, the model gives one answer, {found.model.word(0)}.{other}{wrong}"
    text = f"On {every}, the model is an automaton of {words.counted(found.model.states, 'state')}"
    if found.different == 0:
        return f"{text}, the task's own."
    return f"{text}. The task's own has {task_states or f'more than {found.most_states}'}.{wrong}"


def _lengths(longest: int) -> str:
    return "1 symbol" if longest == 1 else f"1 to {longest} symbols"
