"""Rules beyond the search over quantities: small automata, and lookup tables for tasks that are tables."""

from __future__ import annotations

from interp.errors import InterpError
from interp.explanations import lstar
from interp.explanations.bench import Bench
from interp.explanations.quantities import Quantity
from interp.explanations.search import Data, Scored
from interp.explanations.strings import Strings, answers
from interp.tasks.structure import CONDITIONAL_TABLE, lacks

STRINGS, SHORTEST = 4_000, 3
"""Largest number of strings of one length for learning, and smallest maximal length of the strings."""
STATES = 10
"""Largest number of states of an automaton that counts as a short rule."""


def by_automaton(bench: Bench, wide: Bench, share: float, most: int) -> Scored | None:
    """Learn a small automaton from the answers to short strings (L*), and test it on the inputs of `wide`.

    Two automata are tried: that of the model's answers, on all strings up to the greatest length at which it is small,
    and that of the right answers, because a model may err too often to have a small automaton.
    """
    try:
        known = Strings.of(bench.subject)
        said = answers(bench.subject, known, known.longest(bench.subject, STRINGS))
    except InterpError:  # not a string task
        return None
    letters, found = len(known.letters), []
    for whole in (said.model, said.task):
        for length in range(len(whole) - 1, SHORTEST - 1, -1):
            bench.steps.check()
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
    """Return the model's own table, for table tasks whose inputs are all on the bench."""
    task = bench.subject.task
    if lacks(task, CONDITIONAL_TABLE) is not None or not bench.population.exact:
        return None
    length = int(bench.population.batch.lengths.max())
    data = Data.of(bench, [Quantity(bench.setting, "place", (at,)) for at in range(length)])
    found = data.fitted(range(len(data.quantities)), len(bench.answers) + 1 + length, listing=True)
    return found if found is not None and found.share >= share else None
