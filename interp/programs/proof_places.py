"""Does a program whose answers depend on few places give the right one on every input of an automaton?

Each head attends, by positions alone, to some places at most. So an answer depends on the tokens there, and it is
enough to run every combination of these that some input has, with the right answer that the automaton gives for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from interp.errors import UnsupportedError
from interp.programs.language import Program
from interp.programs.steps import Head, Step
from interp.tasks.automata import Paths

MOST_ROWS, MOST_TOKENS = 1 << 19, 1 << 25
"""Most combinations of tokens, with the states of the automaton, that are held at once, and most tokens of them."""
AT_ONCE = 4_000
NOTHING = 800.0
"""A key whose score is so much lower than that of another one has no attention: its exponential is 0 in float64."""

Places = frozenset[int]


def wrong_by_places(program: Program, paths: Paths, check: Callable[[], None]) -> tuple[int, int]:
    """The number of combinations that are run for all answers, and for how many of them the program is wrong.

    Raises UnsupportedError if an answer depends on too many places.
    """
    reached = answer_places(program, paths.length)
    n = wrong = 0
    for at, (after, answers) in sorted(paths.reads.items()):
        check()
        rows, right = combinations(paths, reached[at], after, answers)
        for chunk, wanted in zip(rows.split(AT_ONCE), right.split(AT_ONCE), strict=True):
            wrong += int((program.classes(chunk)[:, at] != wanted).sum())
        n += len(rows)
    return n, wrong


def answer_places(program: Program, length: int) -> list[Places]:
    """The places whose tokens the answer at each position of a row depends on."""
    everywhere = [frozenset([at]) for at in range(length)]
    places: dict[str, list[Places]] = {"token": everywhere, "position": [frozenset()] * length}
    for step in (*program.steps, program.answer):
        places[step.name] = [_of_step(step, places, at, length, program.causal) for at in range(length)]
    return places[program.answer.name]


def _of_step(step: Step, places: Mapping[str, Sequence[Places]], at: int, length: int, causal: bool) -> Places:
    if not isinstance(step, Head):
        return frozenset().union(*(places[name][at] for name in step.of))
    read = frozenset(range(at + 1 if causal else length))
    if step.key in ("", "position") and not step.scaled:
        read &= _attended(step, at, sorted(read))
    of_query = places[step.query][at] if step.query else frozenset()
    return of_query.union(*(places[name][place] for name in (step.key, step.value) if name for place in read))


def _attended(head: Head, at: int, seen: Sequence[int]) -> Places:
    """The keys that may get attention, whatever the query's value is, unless this is its position."""
    scores = torch.tensor(head.scores, dtype=torch.float64)
    rows = scores[at : at + 1] if head.query == "position" else scores
    here = rows[:, seen] if head.key else rows.expand(-1, len(seen))
    there = here != 0 if head.total else here > here.amax(1, keepdim=True) - NOTHING
    return frozenset(place for place, attended in zip(seen, there.any(0).tolist(), strict=True) if attended)


def combinations(
    paths: Paths, places: Places, after: int, answers: Int[np.ndarray, "_"]
) -> tuple[Int[Tensor, "rows length"], Int[Tensor, "rows"]]:
    """Every combination of tokens at these places that some input has, in a row, with every right answer to it.

    after, answers: see `Paths.reads`. Other places have the tokens of some input.
    """
    rows, states, right = paths.draw(1).numpy(), np.zeros(1, dtype=np.int64), np.full(1, -1)
    last = max([after, *(place + 1 for place, at in enumerate(paths.order) if at in places)])
    most = min(MOST_ROWS, MOST_TOKENS // rows.shape[1])
    for place in range(last + 1):
        if place == after:
            right = answers[states]
        if place == last:
            break
        which, token = (paths.following[place][states] >= 0).nonzero()
        states, rows, right = paths.following[place][states[which], token], rows[which], right[which]
        if paths.order[place] in places:
            rows[:, paths.order[place]] = token
        kept = np.unique(np.column_stack([states, right, rows]), axis=0)
        states, right, rows = kept[:, 0], kept[:, 1], kept[:, 2:]
        if len(rows) > most:
            raise UnsupportedError(f"an answer depends on {len(places)} places: more than {most:,} combinations")
    kept = np.unique(np.column_stack([right, rows]), axis=0)
    return torch.from_numpy(kept[:, 1:]), torch.from_numpy(kept[:, 0])
