"""Programs that no search over quantities finds: a small automaton, and the table of a task that is a table."""

from __future__ import annotations

from interp.errors import InterpError
from interp.explanations import lstar
from interp.explanations.search import Data, Scored
from interp.explanations.strings import Strings, answers
from interp.mechanisms.bench import Bench
from interp.mechanisms.quantities import Quantity
from interp.tasks.roles import CONDITIONAL_TABLE, lacks

STRINGS, SHORTEST = 4_000, 3
"""Strings whose answers an automaton is learned from, and the least greatest length of them."""
STATES = 10
"""Larger automata are no short program."""


def by_automaton(bench: Bench, wide: Bench, share: float, most: int) -> Scored | None:
    """A small automaton that gives the model's answers, learned from short strings by L*, judged on all others.

    Two are tried: that of the model on all strings of up to some length, the greatest for which it is small; and that
    of the task, since a model may err too often for an automaton of its own.
    """
    try:
        known = Strings.of(bench.subject)
        said = answers(bench.subject, known, known.longest(bench.subject, STRINGS))
    except InterpError:  # not a task of strings
        return None
    letters, found = len(known.letters), []
    for whole in (said.model, said.task):
        for length in range(len(whole) - 1, SHORTEST - 1, -1):
            bench.clock.check()
            machine = lstar.learn(whole[: length + 1], letters, STATES)
            if machine is not None:
                found.append(machine)
                break
    for machine in found:
        state = Quantity(bench.setting, "state", (tuple(known.alphabet), tuple(map(tuple, machine.following))))
        data = Data.of(wide, [state])
        scored = data.fitted([0], most) if data.quantities else None
        if scored is not None and scored.share >= share:
            return scored
    return None


def whole_table(bench: Bench, share: float) -> Scored | None:
    """For a task that is a table whose inputs are all at hand: the model's own table."""
    task = bench.subject.task
    if lacks(task, CONDITIONAL_TABLE) is not None or not bench.population.exact:
        return None
    length = int(bench.population.batch.lengths.max())
    data = Data.of(bench, [Quantity(bench.setting, "place", (at, "seen")) for at in range(length)])
    found = data.fitted(range(len(data.quantities)), len(bench.answers) + 1 + length, listing=True)
    return found if found is not None and found.share >= share else None
