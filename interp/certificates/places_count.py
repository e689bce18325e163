"""Count exactly the inputs in a union of sets, each given by tokens at places and states between places.

The automaton reads all rows at once, and a bit mask tracks which sets a row may still belong to. Rows with the same
state and mask are counted together.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from interp.tasks.automata import Paths

STEPS = 3_000_000
"""Largest number of steps; they take a few seconds."""
MOST_BYTES = 500_000_000
"""Largest memory for the (state, mask) pairs of one place."""
ENTRY = 250
"""Bytes per pair, in addition to one bit per set."""


@dataclass(frozen=True)
class TokenPattern:
    """The set of inputs with these states (by number of places read) and these tokens (by place)."""

    states: dict[int, int]
    tokens: dict[int, int]

    @property
    def last(self) -> int:
        """Number of places after which the pattern has no more conditions."""
        return max([*self.states, *(place + 1 for place in self.tokens)], default=0)


def union(paths: Paths, patterns: Sequence[TokenPattern], most: int = STEPS) -> int | None:
    """Return the number of inputs that match at least one pattern; None if counting takes more than `most` steps."""
    states = _Conditions(patterns, "states")
    tokens = _Conditions(patterns, "tokens")
    finished = [sum(1 << index for index, one in enumerate(patterns) if one.last <= cut)
                for cut in range(paths.length + 1)]  # fmt: skip
    # Number of prefixes per state and mask of the patterns that are still possible.
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


class _Conditions:
    """Bit masks of the patterns that a state at a cut, or a token at a place, matches."""

    def __init__(self, patterns: Sequence[TokenPattern], name: str) -> None:
        self.all = (1 << len(patterns)) - 1
        self.unconditioned: dict[int, int] = defaultdict(lambda: self.all)
        self.matching: dict[tuple[int, int], int] = defaultdict(int)
        for index, pattern in enumerate(patterns):
            for at, value in getattr(pattern, name).items():
                self.unconditioned[at] &= ~(1 << index)
                self.matching[at, value] |= 1 << index

    def fits(self, at: int, value: int) -> int:
        return self.unconditioned.get(at, self.all) | self.matching.get((at, value), 0)
