"""Count exactly how often a histogram model is right on the (sequence, position) pairs that bounds leave undecided.

The answer at a position depends on its own token and on the multiset of the other tokens. At T = 32, L = 10 there are
273,438,880 multisets per own token, so the walk over them (walk.py) is compiled and skips subtrees that a
bound decides. Own tokens are distributed over threads; the counts do not depend on the number of threads.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from math import comb

import numpy as np

from interp.families.histogram.certificates.search import OwnToken
from interp.families.histogram.certificates.tables import Tables
from interp.families.histogram.certificates.walk import Listed, Walk, group_sizes, multisets_around
from interp.support import resources
from interp.support.resources import Budget, cores

EXACT_COUNT = 2.0**53
BOUNDS_A_SECOND = 2e6
"""Bounds per second of a walk, for resources."""
SHARES = (1 / 16, 1.0, 1.0)
"""Largest shares of the budget, per round. In each round all walks that are left get equal numbers of bounds, so that
what is counted depends neither on the number of threads nor on the clock."""
HOPELESS = 20.0
"""A count ends after a round if all of it is projected to take more than this many times the budget."""
SPREAD = 600.0
"""Largest difference between two scores of a query for which float64 can add their softmax weights. e^-600 is about
1e-261, and even the last of its 52 bits is above the smallest normal number, 2e-308."""


def counting_refusal(tables: Tables) -> str | None:
    """The reason why multisets cannot be counted, or None."""
    if tables.pattern is not None:
        return "with linear mixing, answers depend on the order of tokens, and not only on the multiset"
    if tables.softmax and tables.scores is not None and np.ptp(tables.scores, axis=1).max() > SPREAD:
        return f"scores of one query differ by more than {SPREAD:.0f}, too much to add softmax weights in float64"
    if find_spec("numba") is None:
        return "counting every multiset needs numba: pip install numba"
    if (tables.T - 1) ** (tables.L - 1) >= EXACT_COUNT:
        return f"{tables.T - 1}^{tables.L - 1} sequences per own token are too many to count exactly in float64"
    if table_bytes(tables) > resources.MEMORY:
        return f"tables of multisets of {tables.L - 1} tokens would take {table_bytes(tables) / 1e9:,.1f} GB"
    return None


def table_bytes(tables: Tables) -> float:
    """Memory of one walk, in bytes."""
    columns, slots = tables.own.shape[1] + 1, tables.L - 1
    rows = sum(comb(size + slots, slots) for size in group_sizes(tables.T - 1)[1:])
    return rows * (16.0 * columns + 10.0 * slots + 8.0 * tables.T)


@dataclass
class Progress:
    """Progress of a count: the number of multisets done and their total number. stopped: whether an error ended it."""

    total: int
    tell: Callable[[int, int], None] | None
    done: int = 0
    stopped: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, multisets: int) -> None:
        with self.lock:
            self.done += multisets
            if self.tell is not None:
                self.tell(self.done, self.total)

    def projected(self, spent: float | int) -> float:
        """Project the number of bounds that all multisets take, from the number spent so far."""
        return spent * self.total / max(1, self.done)


@dataclass
class CountsLeft:
    """The counts of one own token that are left, largest first. again, close: see Found."""

    part: OwnToken
    counts: list[int]
    again: int = 0
    close: int = 0


def count_rest(
    tables: Tables, parts: list[OwnToken], need: np.ndarray, slack: np.ndarray, budget: Budget,
    progress: Callable[[int, int], None] | None = None, threads: int | None = None,
) -> str | None:  # fmt: skip
    """Decide the undecided parts by walking all their multisets; return a note on the result.

    need, slack: thresholds as in Search, per own token, count and class. budget: what remains undecided when it is used
    up stays so.
    """
    jobs = [CountsLeft(part, counts) for part in parts if (counts := _open_counts(part, slack))]
    if not jobs or budget.steps <= 0:
        return None
    if (reason := counting_refusal(tables)) is not None:
        return None if tables.pattern is not None else reason
    sizes = {n: multisets_around(tables.T - 1, tables.L - n) for n in range(1, tables.L + 1)}
    listed = {size: Listed.of(size, tables.L - 1) for size in set(group_sizes(tables.T - 1)[1:])}
    # A walk on a single multiset, so that compiling it (about 15 s) does not count as work.
    none, every = np.zeros(tables.lead.shape[1]), np.ones(tables.lead.shape[1], bool)
    Walk(tables, jobs[0].part.token, dict(listed)).count(tables.L, every, none, none)
    state = Progress(sum(sizes[n] for job in jobs for n in job.counts), progress)

    def work(job: CountsLeft, most: float | int) -> float:
        """Walk one own token's counts, at most about `most` bounds; return how many it took."""
        walk, part, spent = Walk(tables, job.part.token, dict(listed)), job.part, 0.0
        while job.counts and spent < most:
            n, before = job.counts[0], spent

            def go_on(before: float | int = before) -> bool:
                return before + walk.bounds < most and not state.stopped and not budget.is_over()

            counted = walk.count(n, part.rivals[n], need[part.token, n - 1], slack[part.token, n - 1], go_on)
            spent += walk.bounds
            if counted is None:
                break
            part.decide(n, counted, need[part.token, n - 1], slack[part.token, n - 1])
            for sequence in counted.examples:
                margin = float(tables.margins(np.array([sequence]))[0, 0])
                part.ledger.suspect(margin, (sequence, 0))
            job.again, job.close = job.again + counted.again, job.close + counted.close + counted.tied
            job.counts = job.counts[1:]
            state.add(sizes[n])
        return spent

    most = max(1, min(len(jobs), threads or cores(), int(resources.MEMORY / table_bytes(tables))))
    whole = budget.steps
    with ThreadPoolExecutor(most) as pool:
        for share in SHARES:
            left = [job for job in jobs if job.counts]
            if not left or budget.is_over() or state.projected(whole - budget.steps) > HOPELESS * whole:
                break
            each = min(share * whole, budget.steps) / len(left)
            try:
                budget.steps -= sum(pool.map(partial(work, most=each), left))
            except BaseException:
                state.stopped = True  # so that the threads return; the pool waits for them
                raise
    if state.done < state.total:
        guess = state.projected(whole - budget.steps) / BOUNDS_A_SECOND
        why = f"; {budget.ended}" if budget.ended and budget.steps > 0 else ""
        return (f"{state.done:,} of {state.total:,} multisets of other tokens were counted; all of them would take "
                f"about {guess:,.0f} s of one core, so raise the limit (seconds=){why}")  # fmt: skip
    again, close = (sum(getattr(job, name) for job in jobs) for name in ("again", "close"))
    return (f"{state.total:,} multisets of other tokens were counted, {again:,} of them again in float64; right "
            f"answers whose margin does not exceed the rounding bound: {close:,}")  # fmt: skip


def _open_counts(part: OwnToken, slack: np.ndarray) -> list[int]:
    """Return the undecided counts of one own token, largest first, because they leave the fewest multisets."""
    if part.search is None:
        return []
    open_ = np.flatnonzero(part.undecided > 0) + 1
    return [int(n) for n in open_[::-1] if np.isfinite(slack[part.token, n - 1][part.rivals[int(n)]]).all()]
