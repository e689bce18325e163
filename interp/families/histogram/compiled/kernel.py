"""The compiled entry points of a histogram model: an epoch of training, and the accuracy.

A step of dot+sftm (T = 32, L = 10, batch 32) at (d, p) = (8, 8), (32, 32), (128, 128) takes 0.85, 7.8, 102 MFLOP if
each position is computed, but only 0.18, 1.1, 11.7 MFLOP here, for two reasons:
  - Without positions, scores and values depend only on token ids, so each step makes one T x T table of scores and one
    T x p table of E W_in.
  - Equal tokens of a sequence have equal outputs, so there is one row per distinct token (on average 3.8 for 10
    positions), weighted by its count.
Linear mixing has one row per position and uses only the table of E W_in. Random sequences are drawn inside the loop
(algorithms and distributions: tasks.py).
"""

from typing import Any

import numpy as np
from numba import njit

from interp.families.histogram.compiled.arrays import adam_step, clear, multiply, multiply_column, transpose
from interp.families.histogram.compiled.layout import sources
from interp.families.histogram.compiled.mixing import (
    batch_loss,
    count_right,
    dot_coefficients,
    dot_gradient,
    lay_out,
    linear_coefficients,
    linear_gradient,
)
from interp.families.histogram.compiled.vectors import get, inner, lanes_of, put

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_A, MIX_B = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@inner
def scramble(z: Any) -> Any:
    """Apply the output function of splitmix64 (Steele, Lea, Flood 2014), a bijection of the 64-bit numbers."""
    z = (z ^ (z >> np.uint64(30))) * MIX_A
    z = (z ^ (z >> np.uint64(27))) * MIX_B
    return z ^ (z >> np.uint64(31))


@inner
def draw_below(state: Any, n: int) -> int:
    """Draw a number from 0..n-1; `state` is an array of one uint64. The bias is at most n / 2^32."""
    state[0] += GOLDEN
    return np.int64((scramble(state[0]) >> np.uint64(32)) * np.uint64(n) >> np.uint64(32))  # type: ignore[return-value]


@inner
def draw_sequence(state: Any, token: Any, count: Any, first: int, T: int, L: int, published: bool) -> int:
    """Draw a sequence's distinct tokens and multiplicities into token and count from `first`; return their number."""
    left, i = L, first
    while left > 0:
        k = 1 + draw_below(state, left - 1 if published and left > 1 else left)
        fresh = False
        while not fresh:
            t = draw_below(state, T)
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
            j = draw_below(state, n + 1)
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


@inner
def whole_vectors(s: Any, w: Any) -> int:
    """Return how many columns of the token tables to fill by vectors: all, except BOS's if it would start a new one."""
    return s.T if s.bos and s.T % lanes_of(w.table) == 0 else s.vocab


@inner
def forward_tables(s: Any, params: Any, w: Any) -> None:
    """Compute token tables and scores."""
    V, wide = s.vocab, whole_vectors(s, w)
    transpose(w.embed_t, params.embed, V, s.d)
    multiply(w.table, params.project, w.embed_t, len(params.project), s.d, wide, False)
    if wide < V:
        multiply_column(w.table, s.T, params.project, params.embed, s.T, len(params.project))
    transpose(w.values, w.values_t, s.p, V)
    transpose(w.out_t, params.out, s.classes, s.p)
    if s.dot:
        multiply(w.scores, w.query.T, w.key, V, s.d, V, False)


@inner
def coefficients(s: Any, params: Any, w: Any, batch: int) -> None:
    """Compute the mixing coefficients of the batch in w."""
    lay_out(s, w, batch)
    if s.dot:
        dot_coefficients(s, w, batch)
    else:
        linear_coefficients(s, params, w, batch)


@inner
def step_gradient(s: Any, params: Any, grads: Any, w: Any, batch: int) -> float:
    """Return the mean loss over the batch's positions; overwrite all blocks of `grads` except a frozen embedding's."""
    V, wide = s.vocab, whole_vectors(s, w)
    forward_tables(s, params, w)
    coefficients(s, params, w, batch)
    clear(grads.out)
    clear(grads.b_out)
    clear(grads.b_in)
    clear(w.d_values)
    loss = batch_loss(s, params, grads, w, batch)
    if s.dot:
        dot_gradient(s, w, batch)
        multiply(w.d_query, w.key, w.d_scores_t, s.d, V, wide, False)  # BOS has no query: its column stays 0
        multiply(w.d_key, w.query, w.d_scores, s.d, s.T, wide, False)
        if wide < V:
            multiply_column(w.d_key, s.T, w.query, w.d_scores_t, s.T, s.d)
        multiply(grads.query_key, w.d_query_key, params.embed, 2 * s.d, V, s.d, False)
    else:
        linear_gradient(s, grads, w, batch)
    multiply(grads.w_in, w.d_values.T, params.embed, s.p, V, s.d, False)
    if not s.frozen:
        multiply(grads.embed, w.d_values, params.w_in, V, s.p, s.d, False)
        if s.dot:
            multiply(grads.embed, w.d_query_key.T, params.query_key, V, 2 * s.d, s.d, True)
    return loss


@inner
def describe(w: Any, tokens: Any) -> None:
    for b in range(len(tokens)):
        w.distinct[b] = compress(tokens[b], w.token[b], w.count[b], w.place[b])


@inner
def take(s: Any, w: Any, data: Any, first: int, last: int) -> None:
    """Put sequences first..last-1 into w: the given ones, or new ones."""
    if len(data.tokens) > 0:
        describe(w, data.tokens[first:last])
        return
    for b in range(last - first):
        at = b * w.token.shape[1]
        distinct = draw_sequence(data.state, w.token, w.count, at, s.T, s.L, data.published)
        if not s.dot:
            shuffle_places(data.state, w.place, b * s.L, w.count, at, distinct)
        w.distinct[b] = distinct


def _entry_points(sources: str) -> tuple[Any, Any]:
    """Compile once and cache on disk; `sources` is part of the cache key (see layout.py)."""

    @njit(cache=True, nogil=True, error_model="numpy")
    def accuracy(s: Any, params: Any, w: Any, tokens: Any) -> float:
        _ = sources
        size, right = len(w.distinct), 0.0
        forward_tables(s, params, w)
        for first in range(0, len(tokens), size):
            part = tokens[first : first + size]
            describe(w, part)
            coefficients(s, params, w, len(part))
            right += count_right(s, params, w, len(part))
        return right / (len(tokens) * s.L)

    @njit(cache=True, nogil=True, error_model="numpy")
    def train(
        s: Any, params: Any, grads: Any, w: Any, data: Any, flat: Any, grad: Any, m: Any, v: Any, skip: int,
        step: int, batch: int, rates: Any, beta1: float, beta2: float, eps: float,
    ) -> float:  # fmt: skip
        _ = sources
        data.state[0] = scramble(data.state[0])
        loss = 0.0
        for at in range(len(rates)):
            first, last = at * batch, min((at + 1) * batch, data.n)
            take(s, w, data, first, last)
            loss += (last - first) * step_gradient(s, params, grads, w, last - first)
            adam_step(flat, grad, m, v, skip, step + at + 1, rates[at], beta1, beta2, eps)
        return loss / data.n

    return accuracy, train


accuracy, train = _entry_points(sources())
