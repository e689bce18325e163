"""Count exactly how often a histogram model is right on the (sequence, position) pairs that bounds leave undecided.

The answer at a position depends on its own token and on the multiset of the other tokens. At T = 32, L = 10 there are
273,438,880 multisets per own token, so the walk over them (walk.py) is compiled and skips subtrees that a
bound decides. Own tokens are distributed over threads; the counts do not depend on the number of threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.util import find_spec
from math import comb

import numpy as np

from interp.budget import gigabytes
from interp.families.histogram.certificates.search import OwnToken
from interp.families.histogram.certificates.tables import Tables
from interp.families.histogram.certificates.walk import Listed, Walk, group_sizes, multisets_around
from interp.threads import cores

EXACT_COUNT = 2.0**53
TRIAL = 2.0
"""Seconds after which a walk is stopped if it is projected to take more than HOPELESS times its time limit."""
HOPELESS = 20.0
SPREAD = 600.0
"""Largest difference between two scores of a query for which float64 can add their softmax weights. e^-600 is about
1e-261, and even the last of its 52 bits is above the smallest normal number, 2e-308."""


def why_not(tables: Tables) -> str | None:
    """The reason why multisets cannot be counted, or None."""
    if tables.pattern is not None:
        return "with linear mixing, answers depend on the order of tokens, and not only on the multiset"
    if tables.softmax and tables.scores is not None and np.ptp(tables.scores, axis=1).max() > SPREAD:
        return f"scores of one query differ by more than {SPREAD:.0f}, too much to add softmax weights in float64"
    if find_spec("numba") is None:
        return "counting every multiset needs numba: pip install numba"
    if (tables.T - 1) ** (tables.L - 1) >= EXACT_COUNT:
        return f"{tables.T - 1}^{tables.L - 1} sequences per own token are too many to count exactly in float64"
    if table_bytes(tables) > gigabytes() * 1e9:
        return (f"tables of multisets of {tables.L - 1} tokens would take {table_bytes(tables) / 1e9:,.1f} GB; "
                "the environment variable INTERP_MAX_GB raises the budget")  # fmt: skip
    return None


def table_bytes(tables: Tables) -> float:
    """Memory of one walk, in bytes."""
    columns, slots = tables.own.shape[1] + 1, tables.L - 1
    rows = sum(comb(size + slots, slots) for size in group_sizes(tables.T - 1)[1:])
    return rows * (16.0 * columns + 10.0 * slots + 8.0 * tables.T)


@dataclass
class Progress:
    """Progress of a count: the number of multisets done, their total number, and the deadline."""

    total: int
    deadline: float
    tell: Callable[[int, int], None] | None
    started: float = field(default_factory=time.monotonic)
    done: int = 0
    stopped: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, multisets: int) -> None:
        with self.lock:
            self.done += multisets
            if self.tell is not None:
                self.tell(self.done, self.total)

    def go_on(self) -> bool:
        """Whether there is time left, and enough to make real progress."""
        now = time.monotonic()
        spent, allowed = now - self.started, self.deadline - self.started
        hopeless = spent > TRIAL and spent * self.total > HOPELESS * allowed * max(1, self.done)
        self.stopped |= now > self.deadline or hopeless
        return not self.stopped


def count_rest(
    tables: Tables, parts: list[OwnToken], need: np.ndarray, slack: np.ndarray, seconds: float,
    progress: Callable[[int, int], None] | None = None, threads: int | None = None,
) -> str | None:  # fmt: skip
    """Decide the undecided parts by walking all their multisets for at most `seconds`; return a note on the result.

    need, slack: thresholds as in Search, per own token, count and class. If time runs out, the rest stays undecided.
    """
    jobs = [(part, counts) for part in parts if (counts := _open_counts(part, slack))]
    if not jobs or seconds <= 0:
        return None
    if (reason := why_not(tables)) is not None:
        return None if tables.pattern is not None else reason
    sizes = {n: multisets_around(tables.T - 1, tables.L - n) for n in range(1, tables.L + 1)}
    listed = {size: Listed.of(size, tables.L - 1) for size in set(group_sizes(tables.T - 1)[1:])}
    _compile(Walk(tables, jobs[0][0].token, dict(listed)))
    started = time.monotonic()
    state = Progress(sum(sizes[n] for _, counts in jobs for n in counts), started + seconds, progress)
    again, close = [], []

    def work(job: tuple[OwnToken, list[int]]) -> None:
        part, counts = job
        if not state.go_on():
            return
        walk = Walk(tables, part.token, dict(listed))
        for n in counts:
            found = walk.count(n, part.rivals[n], need[part.token, n - 1], slack[part.token, n - 1], state.go_on)
            if found is None:
                return
            part.decide(n, found, need[part.token, n - 1], slack[part.token, n - 1])
            for sequence in found.examples:
                margin = float(tables.margins(np.array([sequence]))[0, 0])
                part.ledger.suspect(margin, (sequence, 0))
            again.append(found.again)
            close.append(found.close + found.tied)
            state.add(sizes[n])

    most = max(1, min(len(jobs), threads or cores(), int(gigabytes() * 1e9 / table_bytes(tables))))
    if most == 1:
        for job in jobs:
            work(job)
    else:
        with ThreadPoolExecutor(most) as pool:
            try:
                list(pool.map(work, jobs))
            except BaseException:
                state.stopped = True  # so that the threads return; the pool waits for them
                raise
    spent = time.monotonic() - started
    if state.done < state.total:
        guess = spent * state.total / max(1, state.done)
        return (f"{state.done:,} of {state.total:,} multisets of other tokens were counted in {spent:.0f} s; all of "
                f"them would take about {guess:,.0f} s on this machine, so raise the limit (seconds=)")  # fmt: skip
    return (f"{state.total:,} multisets of other tokens were counted in {spent:.1f} s, {sum(again):,} of them again in "
            f"float64; right answers whose margin does not exceed the rounding bound: {sum(close):,}")  # fmt: skip


def _compile(walk: Walk) -> None:
    """Run the walk on a single multiset, so that compiling it (about 15 s) does not use up the time limit."""
    n_out = walk.tables.lead.shape[1]
    walk.count(walk.tables.L, np.ones(n_out, bool), np.zeros(n_out), np.zeros(n_out))


def _open_counts(part: OwnToken, slack: np.ndarray) -> list[int]:
    """Return the undecided counts of one own token, largest first, because they leave the fewest multisets."""
    if part.search is None:
        return []
    open_ = np.flatnonzero(part.undecided > 0) + 1
    return [int(n) for n in open_[::-1] if np.isfinite(slack[part.token, n - 1][part.rivals[int(n)]]).all()]
