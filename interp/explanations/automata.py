"""A recognizer as an automaton: the smallest one that gives the model's answer on every string up to a length.

    found = interp.learn_automaton(model)
    print(found)                         # On every string of 1 to 19 symbols (1,048,574), the model is ...
    found.model.accepts("0110")          # the automaton as a Python object
    found.task                           # the language's own, learned from its labels in the same way

Learned by Angluin's L* (see explanations.lstar); the question whether an automaton is right is answered by running the
model on all strings.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from interp import words
from interp.budget import check_size
from interp.errors import InterpError, UnsupportedError, first_few
from interp.explanations import lstar
from interp.explanations.lstar import Machine, Word
from interp.explanations.strings import Answers, Strings, answers, check_letters
from interp.measures.subject import Model, Subject
from interp.progress import LateBar
from interp.tasks.sets import set_word
from interp.views import view

if TYPE_CHECKING:
    import pandas as pd

STRINGS = 1_000_000
"""Lengths with more strings than these are not run."""
STATES = 64
"""Larger automata are not looked for: nobody reads them."""


@dataclass(frozen=True)
class Automaton:
    """A deterministic automaton that answers after each string.

    Attributes:
        alphabet: its letters.
        following: following[state][letter] is the next state; it starts in state 0.
        answers: an output index for each state; None for a start that no string but the empty one ends in.
        answer_words: the words of these answers.
        access: the shortest string that ends in each state.
        longest: it is what it is of on every string of 1 to so many symbols.
        sets: are answers sets of words (see tasks.sets), such as the symbols that may follow?
    """

    alphabet: tuple[str, ...]
    following: tuple[tuple[int, ...], ...]
    answers: tuple[int | None, ...]
    answer_words: tuple[str, ...]
    access: tuple[str, ...]
    longest: int
    strings: Strings = field(repr=False, compare=False)
    sets: bool = False

    @classmethod
    def of(
        cls, strings: Strings, machine: Machine, longest: int, answer_words: Sequence[str], sets: bool = False
    ) -> Automaton:
        entered = {state for row in machine.following for state in row}
        return cls(
            strings.alphabet,
            machine.following,
            tuple(said if state or 0 in entered else None for state, said in enumerate(machine.answers)),
            tuple(answer_words),
            tuple(spelled(strings, word) for word in machine.access),
            longest,
            strings,
            sets,
        )

    @property
    def states(self) -> int:
        """How many states it has."""
        return len(self.following)

    def answer(self, tokens: Any) -> str:
        """Its answer to a string: text of one-character letters, a list of letters, or token ids.

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
        """Is the answer to a string the second of two, yes? Raises UnsupportedError if there are more answers."""
        if len(self.answer_words) != 2 or self.sets:
            answers = f"{'sets of ' * self.sets}{first_few(self.answer_words)}"
            raise UnsupportedError(f"the answers are not no and yes, but {answers}; see answer()")
        return self.answer(tokens) == self.answer_words[1]

    def word(self, state: int) -> str:
        """The answer of a state in words; nothing for a start that no string ends in."""
        said = self.answers[state]
        if said is None:
            return ""
        if self.sets and said >= 0:
            return set_word(said, self.answer_words)
        return self.answer_words[said] if 0 <= said < len(self.answer_words) else "no finite output"

    def to_frame(self) -> pd.DataFrame:
        """One row a state: state, answer, access (the shortest string to it), and the next state by letter."""
        import pandas as pd

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
    """What is known of a model as an automaton.

    Attributes:
        model: the smallest automaton with its answers on every string of 1 to `longest` symbols; None if it has more
            than `most_states` states.
        shorter: then, the one of the greatest length for which there is one; None if there is none.
        task: the smallest automaton with the right answers; None if it is too large.
        strings: how many strings were run.
        different: strings on which the model errs; example: the first of the shortest ones.
        seconds: what it took.
    """

    model: Automaton | None
    shorter: Automaton | None
    task: Automaton | None
    longest: int
    strings: int
    different: int
    example: str
    most_states: int
    seconds: float

    @property
    def shown(self) -> Automaton | None:
        """The model's automaton, on all strings or on the shorter ones."""
        return self.model or self.shorter

    @property
    def same(self) -> bool:
        """Is the model's automaton the task's own?"""
        return self.model is not None and self.different == 0

    def __str__(self) -> str:
        return sentence(self)

    def _repr_html_(self) -> str:
        shown = self.shown
        return f"<p>{sentence(self)}</p>" + ("" if shown is None else shown._repr_html_())


def learn_automaton(
    model: Model, longest: int | None = None, *, strings: int = STRINGS, most_states: int = STATES
) -> Learned:
    """The smallest automaton that a recognizer of strings is on every string up to a length.

    Args:
        model: of a task of strings, with one answer a string, or one after each symbol where it is causal.
        longest: symbols; by default the greatest length with at most `strings` strings that the model has positions
            for.
        most_states: larger automata are not looked for.

    Returns:
        The automaton, the language's own, and the strings on which they differ, all exact: every string is run.

    Raises UnsupportedError if the task is not one of strings, InterpError for a length that is too great.

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
    most = known.longest(subject, check_size("strings", strings))
    length = most if longest is None else check_size("longest", longest)
    check_size("most_states", most_states)
    if length > most:
        raise InterpError(
            f"longest = {length}: the model has positions for, and {strings:,} strings reach, {most} symbols"
        )
    if length < 1:
        raise UnsupportedError("the model has no position for a symbol")
    with LateBar("strings") as bar:
        said = answers(subject, known, length, lambda done, total: bar.update(done, total, "strings"))
    sets = subject.decision.kind == "set"
    return learned(known, said, subject.task.answer_words, most_states, started, sets)


def learned(
    strings: Strings,
    said: Answers,
    answer_words: Sequence[str],
    most_states: int,
    started: float,
    sets: bool = False,
) -> Learned:
    """Automata of known answers."""
    letters, longest = len(strings.letters), len(said.model) - 1
    two = ("no", "yes") if len(answer_words) == 1 else tuple(answer_words)

    def machine(table: Sequence[Any]) -> Automaton | None:
        found = lstar.learn(table, letters, most_states)
        return None if found is None else Automaton.of(strings, found, len(table) - 1, two, sets)

    whole, shorter, below = machine(said.model), None, longest - 1
    while whole is None and shorter is None and below > 0:
        shorter = machine(said.model[: below + 1])
        below -= 1
    differ = sum(int((a != b).sum()) for a, b in zip(said.model, said.task))
    first = lstar.first_difference(said.model, said.task, letters)
    return Learned(
        whole,
        shorter,
        machine(said.task),
        longest,
        said.strings,
        differ,
        "" if first is None else spelled(strings, first),
        most_states,
        time.perf_counter() - started,
    )


def spelled(strings: Strings, word: Word) -> str:
    """A string as text."""
    letters = [strings.alphabet[letter] for letter in word]
    return ("" if all(len(letter) == 1 for letter in strings.alphabet) else " ").join(letters)


def sentence(found: Learned) -> str:
    """What an automaton says of a model, in words."""
    every = f"every string of {_lengths(found.longest)} ({found.strings:,})"
    own = "" if found.task is None else f"the task's own, of {words.counted(found.task.states, 'state')}"
    example = f"{found.example!r}"
    if found.different == 0:
        errs = ""
    elif found.different == 1:
        errs = f" It is wrong on one of them, {example}."
    else:
        errs = f" It is wrong on {found.different:,} of them, such as {example}."
    if found.model is None:
        upto = (
            ""
            if found.shorter is None
            else f"; on every string of {_lengths(found.shorter.longest)} one of "
            f"{words.counted(found.shorter.states, 'state')} does"
        )
        task = (
            f" The smallest with the right answers has {words.counted(found.task.states, 'state')}."
            if found.task
            else ""
        )
        return (
            f"No automaton of at most {words.counted(found.most_states, 'state')} gives the model's answers on "
            f"{every}{upto}.{task}{errs.replace('It is', 'The model is')}"
        )
    states = words.counted(found.model.states, "state")
    if found.model.states == 1:
        only = found.model.word(0)
        said = f"On {every}, the model gives one answer, {only}."
        return (
            said
            + (
                f" The task's own automaton has {words.counted(found.task.states, 'state')}."
                if found.task and found.different
                else ""
            )
            + errs
        )
    if found.different == 0:
        return f"On {every}, the model is an automaton of {states}, the task's own."
    beside = (
        f" The task's own has {words.counted(found.task.states, 'state')}."
        if own and found.task is not None
        else (f" The task's own has more than {found.most_states}.")
    )
    return f"On {every}, the model is an automaton of {states}.{beside}{errs}"


def _lengths(longest: int) -> str:
    return "1 symbol" if longest == 1 else f"1 to {longest} symbols"
