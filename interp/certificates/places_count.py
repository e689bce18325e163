"""How many inputs lie in any of some sets, each given by tokens at places and states between places: exactly.

An automaton reads a row while a second one follows along which of the sets it may still be in. Inputs that it cannot
tell apart are counted together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from interp.tasks.automata import Paths

STEPS = 3_000_000
"""So many steps are taken at most: some seconds."""
MOST_BYTES = 500_000_000
"""What may be remembered between two places takes so much at most."""
ENTRY = 250
"""Bytes of one thing remembered, beside one bit for each set."""


@dataclass(frozen=True)
class Pattern:
    """All inputs with these states after so many places, and these tokens at places of the automaton's order."""

    states: dict[int, int]
    tokens: dict[int, int]

    @property
    def last(self) -> int:
        """After so many places nothing more is asked."""
        return max([*self.states, *(place + 1 for place in self.tokens)], default=0)


def union(paths: Paths, patterns: Sequence[Pattern], most: int = STEPS) -> int | None:
    """How many inputs some pattern holds; None if that takes more than so many steps."""
    states = _Asked(patterns, "states")
    tokens = _Asked(patterns, "tokens")
    finished = [sum(1 << index for index, one in enumerate(patterns) if one.last <= cut)
                for cut in range(paths.length + 1)]  # fmt: skip
    # How many ways lead to a state with these patterns still possible.
    layer: dict[tuple[int, int], int] = {(0, (1 << len(patterns)) - 1): 1}
    found = steps = 0
    for cut in range(paths.length + 1):
        kept: dict[tuple[int, int], int] = defaultdict(int)
        for (state, alive), ways in layer.items():
            alive &= states.fits(cut, state)
            if alive & finished[cut]:
                found += ways * paths.completions[cut][state]
            elif alive:
                kept[state, alive] += ways
        if cut == paths.length:
            break
        layer = defaultdict(int)
        for (state, alive), ways in kept.items():
            for token, then in enumerate(paths.following[cut][state].tolist()):
                if then >= 0:
                    steps += 1
                    if still := alive & tokens.fits(cut, token):
                        layer[then, still] += ways
            if steps > most or len(layer) * (ENTRY + len(patterns) // 8) > MOST_BYTES:
                return None
    return found


class _Asked:
    """Which patterns a state at a cut, or a token at a place, fits: as bits."""

    def __init__(self, patterns: Sequence[Pattern], name: str) -> None:
        self.all = (1 << len(patterns)) - 1
        self.silent: dict[int, int] = defaultdict(lambda: self.all)
        self.those: dict[tuple[int, int], int] = defaultdict(int)
        for index, pattern in enumerate(patterns):
            for at, value in getattr(pattern, name).items():
                self.silent[at] &= ~(1 << index)
                self.those[at, value] |= 1 << index

    def fits(self, at: int, value: int) -> int:
        return self.silent.get(at, self.all) | self.those.get((at, value), 0)
