"""Random sequences inside the compiled loop (algorithms and distributions: theory/block_samplers.py)."""

from typing import Any

import numpy as np

from interp.training.compiled.vectors import get, inner, put

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_A, MIX_B = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@inner
def scramble(z: Any) -> Any:
    """Apply the output function of splitmix64 (Steele, Lea, Flood 2014), a bijection of the 64-bit numbers."""
    z = (z ^ (z >> np.uint64(30))) * MIX_A
    z = (z ^ (z >> np.uint64(27))) * MIX_B
    return z ^ (z >> np.uint64(31))


@inner
def below(state: Any, n: int) -> int:
    """Draw a number from 0..n-1; `state` is an array of one uint64. The bias is at most n / 2^32."""
    state[0] += GOLDEN
    return np.int64((scramble(state[0]) >> np.uint64(32)) * np.uint64(n) >> np.uint64(32))  # type: ignore[return-value]


@inner
def draw_sequence(state: Any, token: Any, count: Any, first: int, T: int, L: int, published: bool) -> int:
    """Draw a sequence's distinct tokens and multiplicities into token and count from `first`; return their number."""
    left, i = L, first
    while left > 0:
        k = 1 + below(state, left - 1 if published and left > 1 else left)
        fresh = False
        while not fresh:
            t = below(state, T)
            fresh = True
            for j in range(first, i):
                if get(token, j) == t:
                    fresh = False
        put(token, i, t)
        put(count, i, k)
        left -= k
        i += 1
    return i - first


@inner
def shuffle_places(state: Any, place: Any, at: int, count: Any, first: int, distinct: int) -> None:
    """Shuffle a sequence uniformly (Fisher-Yates, inside out).

    Writes the index of the distinct token at each position to `place`, from flat position `at`. The sequence's
    multiplicities are in `count` from flat position `first`.
    """
    n = 0
    for i in range(distinct):
        for _ in range(get(count, first + i)):
            j = below(state, n + 1)
            put(place, at + n, get(place, at + j))
            put(place, at + j, i)
            n += 1


@inner
def compress(sequence: Any, token: Any, count: Any, place: Any) -> int:
    """Write a given sequence in the same form, with its distinct tokens in order of appearance; return their number."""
    distinct = 0
    for position in range(len(sequence)):
        i = 0
        while i < distinct and token[i] != sequence[position]:
            i += 1
        if i == distinct:
            token[i], count[i] = sequence[position], 0
            distinct += 1
        count[i] += 1
        place[position] = i
    return distinct
