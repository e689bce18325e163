"""Certify that a one-layer histogram model is right at every position of all T^L sequences.

For a given own token and count, logit differences are affine in the mixed token as long as no neuron changes its sign.
Their smallest value over all sequences then occurs when all other slots have the same token (with fixed patterns, when
each slot has its best token). So models with one hidden neuron, and all cases in which the neurons' signs are fixed,
are decided exactly without search. If neurons change sign, ReLUs are bounded by lines, and sequences are split until
every part is decided or a share of the time is used up. If order does not matter, the undecided rest is counted by
multisets (counted.py). A model is refuted only by a sequence that its own forward pass gets wrong. Source:
errata on Behrens et al. (2024), section C.
"""

from math import comb

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float

from interp.certificates.arithmetic import ROUNDOFF
from interp.certificates.certificate import Certificate, Progress, SampledShare, Status, Stratum, register_method
from interp.certificates.probes import Probes
from interp.errors import check_size
from interp.families.histogram.certificates.counted import BOUNDS_A_SECOND, count_rest, counting_refusal
from interp.families.histogram.certificates.search import Ledger, OwnToken, Search, join_open, largest_equal
from interp.families.histogram.certificates.spaces import space_of
from interp.families.histogram.certificates.tables import TAKES, Tables, refusal, rounding_bound, tables_of
from interp.families.histogram.occurrences import declared
from interp.families.histogram.theory.ranges import TokenMixing
from interp.models.architecture.answers import right_in_run, said_in_run
from interp.models.architecture.task_model import TaskModel
from interp.support.resources import Budget, check_seconds
from interp.tasks.structure import compare

SLACK = 4.0  # times the bound for float64, for the arithmetic of this proof itself
EXACT_COUNT = 2.0**53
MOST_CHECKED = 64
STEPS_A_SECOND = 3e8
SPLITTING, ALONE, COUNTING = 1.5, 10.0, 240.0
"""Budgets in seconds of one core: of splitting if multisets can be counted afterwards, and otherwise; of counting."""
PROBED = 300
"""Number of sequences on which the model itself is run, in addition to the suspects."""
ROUNDS = 3
MOST_SUSPECTS = 16
"""Sequences with the smallest margins that the forward pass decides."""
MOST_PAIRS = 20_000


def check(
    model: TaskModel, tables: Tables, sequence: list[int], position: int, slack: Float[np.ndarray, "T L n_out"]
) -> tuple[float, str] | None:
    """Return margin and text of a counterexample: the model errs in exact arithmetic and in its own forward pass."""
    task, row, shape = model.task, np.array([sequence]), declared(model.task)
    if tables.pattern is None:  # equal tokens have equal answers: rounding would decide which one is named
        position = sequence.index(sequence[position])
    token, count = sequence[position], sequence.count(sequence[position])
    active = np.maximum(tables.hidden(row)[0, position], 0)
    lead = tables.lead[count - 1] @ active + tables.lead_bias[count - 1]
    lead[tables.classes[count - 1]] = np.inf
    if not bool((lead < -slack[token, count - 1]).any()):
        return None
    batch, at = task.batch(shape.rows(torch.tensor(row))), position + len(shape.marks)
    out, right = model.read(batch.tokens.to(model.cfg.device))[0, at].detach().cpu(), task.classes(batch)[0, at]
    if bool(right_in_run(out, right, model.spec)):
        return None
    times = "once" if count == 1 else f"{count} times"
    text = f"{task.format(batch.tokens[0])}: token {task.vocabulary[int(batch.tokens[0, at])]} at position {at} occurs "
    answer = said_in_run(task, out, int(right), model.spec)
    text += f"{times}, right is {task.word(int(right))}, the model says {answer}"
    return float(lead.min()), text


def find_suspects(
    tables: Tables, open_classes: Bool[np.ndarray, "T L"], generator: np.random.Generator
) -> list[tuple[float, list[int], int]]:
    """Return (margin, sequence, position) for the smallest margins among sequences of two tokens and random ones."""
    T, L = tables.T, tables.L
    pairs = [(t, k, o) for t, k in zip(*np.nonzero(open_classes)) for o in range(T) if o != t or (k + 1 == L)]
    if len(pairs) > MOST_PAIRS:
        pairs = [pairs[i] for i in generator.choice(len(pairs), MOST_PAIRS, replace=False)]
    rows = [np.where(np.arange(L) <= k, t, o) for t, k, o in pairs]
    # Sequences of few different tokens have large counts, so alphabets of every size up to L are tried.
    few = [generator.choice(T, min(T, size), replace=False) for size in range(1, L + 1)]
    rows += [generator.choice(alphabet, L) for alphabet in few for _ in range(50)]
    rows += list(generator.integers(0, T, (500, L)))
    sequences = np.array(rows)
    if tables.pattern is not None:
        sequences = generator.permuted(sequences, axis=1)
    margins = np.concatenate([tables.margins(part) for part in np.array_split(sequences, 1 + len(rows) // 1000)])
    flat = np.argsort(margins, axis=None)[:MOST_SUSPECTS]
    places = zip(*np.unravel_index(flat, margins.shape))
    return [(float(margins[row, at]), sequences[row].tolist(), int(at)) for row, at in places]


def sampled_right(tables: Tables, weights: Float[np.ndarray, "T L"], n: int, generator: np.random.Generator) -> int:
    """Return how many of n positions are right, with own token and count drawn by their weights.

    The other slots are filled independently and uniformly with other tokens.
    """
    T, L = tables.T, tables.L
    drawn = generator.choice(T * L, n, p=(weights / weights.sum()).ravel())
    token, count = drawn // L, drawn % L + 1
    others = generator.integers(0, max(1, T - 1), (n, L))
    others += others >= token[:, None]
    ordered = np.where(np.arange(L) < count[:, None], token[:, None], others)
    place = generator.permuted(np.tile(np.arange(L), (n, 1)), axis=1)
    sequences = np.take_along_axis(ordered, place, 1)
    at = (place == 0).argmax(1)
    margins = np.concatenate([tables.margins(part) for part in np.array_split(sequences, 1 + n // 1000)])
    return int((margins[np.arange(n), at] > 0).sum())


@register_method("occurrences of every token", ("counted", ("readout", "all")), refusal, TAKES)
def certify_histogram(
    model: TaskModel,
    seconds: float | int | None = None,
    samples: int = 20_000,
    seed: int = 0,
    progress: Progress | None = None,
) -> Certificate:
    """Certify every position's count on all T^L sequences, in exact arithmetic and in the model's own format.

    seconds: limit, in seconds of one core; see resources.py for the default. Splitting takes at most SPLITTING of them
    if multisets can be counted afterwards, otherwise all (default ALONE). Counting takes the others (default COUNTING);
    the rest stays undecided. samples, seed: random sequences that estimate the share of right answers among the
    undecided ones; 0 reports only the proved interval.
    accuracy is the share of right positions over all sequences. The certificate's tables: "classes" (one row per own
    token and count: inputs, right, wrong, close, tied, undecided, margin, rounding) and "counts" (the same over all own
    tokens). Inputs are (sequence, position) pairs, decided in exact arithmetic; close ones are right, but with margins
    within rounding; tied ones have margins too small to decide. Once an error is known, close ones count as right.
    Raises InterpError for negative numbers.
    """
    check_size("samples", samples, least=0)
    check_size("seed", seed, least=0)
    check_seconds(seconds)
    tables, generator = tables_of(model), np.random.default_rng(seed)
    need, slack = _thresholds(model, tables)
    parts = [_bound_roots(tables, token, need, slack) for token in range(tables.T)]
    refutation, least = None, np.inf
    if not _is_right(parts):
        unproved = np.array([part.undecided + part.ledger.wrong + part.ledger.tied > 0 for part in parts])
        tried = find_suspects(tables, unproved, generator)
        least = tried[0][0]
        refutation = _refute(model, tables, parts, slack, tried)
    counted = counting_refusal(tables) is None
    splitting = min(SPLITTING if counted else ALONE, np.inf if seconds is None else seconds)
    budget = Budget(seconds, STEPS_A_SECOND, splitting)
    _branch_and_bound(parts, budget, progress)
    spent = splitting - max(0.0, budget.steps) / STEPS_A_SECOND
    rest = budget.next(BOUNDS_A_SECOND, COUNTING if seconds is None else max(0.0, seconds - spent))
    note = count_rest(tables, parts, need, slack, rest, progress)
    if refutation is None and not _is_right(parts):
        refutation = _refute(model, tables, parts, slack, [])
    return _conclude(model, tables, parts, refutation, least, samples, generator, need, slack, budget, note)


def _thresholds(model: TaskModel, tables: Tables) -> tuple[np.ndarray, np.ndarray]:
    """Return the thresholds for margins, per own token, count and class: in the model's format, and in float64."""
    highest = _highest(tables)
    if tables.T == 1:
        highest[:, :-1] = 0.0  # only the count L occurs
    slack = SLACK * rounding_bound(model, tables, highest, torch.float64, extra=tables.own.shape[1])
    return rounding_bound(model, tables, highest, model.embed.W_E.dtype) + slack, slack


def _highest(tables: Tables) -> np.ndarray:
    """Return the largest pre-activations, per own token and count."""
    own, value = torch.from_numpy(tables.own), torch.from_numpy(tables.value)
    scores, pattern = (None if a is None else torch.from_numpy(a) for a in (tables.scores, tables.pattern))
    mixing = TokenMixing(tables.L, own, value, pattern, scores, tables.softmax)
    ranges = mixing.ranges(torch.eye(own.shape[1], dtype=torch.float64)).over_positions()
    return np.array(ranges.hi.numpy())


def _bound_roots(tables: Tables, token: int, need: np.ndarray, slack: np.ndarray) -> OwnToken:
    space = space_of(tables, token)
    if space is None:
        T, L, ledger = tables.T, tables.L, Ledger.of(tables.L)
        ledger.total[:] = [L * comb(L - 1, k - 1) * (T - 1) ** (L - k) for k in range(1, L + 1)]
        return OwnToken(token, None, ledger, None, {})
    return OwnToken.of(token, Search(tables, space, need[token], slack[token]))


def _branch_and_bound(parts: list[OwnToken], budget: Budget, progress: Progress | None) -> None:
    """Run branch and bound for each own token and count, largest counts first: these have the fewest sequences.

    In each round, they get equal shares of the remaining steps, so that unused steps go to the others.
    """
    for _ in range(ROUNDS):
        jobs = []
        for part in parts:
            if part.search is not None and part.left is not None and not budget.is_over():
                jobs += [(part, part.left[part.left.nodes.count == n]) for n in np.unique(part.left.nodes.count)]
                part.left = part.left[:0]
        jobs.sort(key=lambda job: -int(job[1].nodes.count[0]))
        for number, (part, piece) in enumerate(jobs):
            assert part.search is not None
            assert part.left is not None
            if _has_faults(parts):
                part.search.target = part.search.slack
            before = part.search.steps
            rest = part.search.explore(piece, max(0.0, budget.steps) / (len(jobs) - number), budget)
            budget.steps -= part.search.steps - before
            part.left = join_open([part.left, rest])
            if progress is not None:
                progress(number + 1, len(jobs))


def _is_right(parts: list[OwnToken]) -> bool:
    """Return whether every sequence is right by more than rounding."""
    return not _has_faults(parts) and not any(part.is_open for part in parts)


def _has_faults(parts: list[OwnToken]) -> bool:
    """Return whether any sequence is known to be wrong, or has a margin within rounding."""
    books = [part.ledger for part in parts]
    return any(book.wrong.any() or book.close.any() or book.tied.any() for book in books)


def _refute(
    model: TaskModel, tables: Tables, parts: list[OwnToken], slack: np.ndarray,
    tried: list[tuple[float, list[int], int]],
) -> tuple[float, str] | None:  # fmt: skip
    """Return margin and text of the suspect with the smallest margin that the model gets wrong, or None.

    Sequences that were evaluated come first, with known margins; then those from the search, with lower bounds.
    """
    for suspects in (tried, [candidate for part in parts for candidate in part.ledger.candidates]):
        for margin, sequence, position in sorted(suspects, key=lambda candidate: candidate[0])[:MOST_CHECKED]:
            if margin < 0 and (wrong := check(model, tables, sequence, position, slack)) is not None:
                return wrong
    return None


def _conclude(
    model: TaskModel, tables: Tables, parts: list[OwnToken], refutation: tuple[float, str] | None, least: float,
    samples: int, generator: np.random.Generator, need: np.ndarray, slack: np.ndarray, budget: Budget,
    counted: str | None,
) -> Certificate:  # fmt: skip
    shape = declared(model.task)
    frame = _classes(tables, parts)
    status: Status = "refuted" if refutation else "certified" if _is_right(parts) else "undecided"
    wrong, decided = sum(int(n) for n in frame["wrong"]), not frame[["undecided", "tied"]].to_numpy().any()
    share = _share(tables, frame, samples, generator)
    notes = _notes(model, parts, frame, status, budget) + ((counted,) if counted else ()) + share.notes
    closest = float(frame["margin"].min())
    margin = refutation[0] if refutation else closest if status == "certified" else min(least, closest)
    rounding = float(frame["rounding"][frame["margin"] <= largest_equal(closest)].max())
    numbers = ("inputs", "right", "wrong", "close", "tied", "undecided")
    by_count = frame.groupby("count").agg(dict.fromkeys(numbers, "sum") | {"margin": "min"})
    proved = np.isfinite(rounding) and rounding > 0
    return Certificate(
        model=model.spec.id,
        status=status,
        accuracy=share.accuracy,
        n_errors=wrong if decided and (not wrong or frame["inputs"].max() < EXACT_COUNT) else None,
        n_inputs=shape.n_inputs,
        n_answers=shape.n_inputs * shape.length,
        worst_margin=margin,
        rounding=rounding if proved else None,
        counterexample=refutation[1] if refutation else None,
        method="extremes over multisets" if tables.pattern is None else "extremes over slots",
        domain=f"all {tables.T}^{tables.L} sequences, every position",
        notes=notes,
        on_trust=compare(model.task, [shape]),
        confidence=share.confidence,
        tables={"classes": frame, "counts": by_count.reset_index()},
        probes=(_probes(model, tables, parts, need, slack),),
    )


def _probes(model: TaskModel, tables: Tables, parts: list[OwnToken], need: np.ndarray, slack: np.ndarray) -> Probes:
    """Return suspects of the search, sequences of few different tokens and random ones, with their margins."""
    shape, generator = declared(model.task), np.random.default_rng(0)
    rows = [sequence for part in parts for _, sequence, _ in part.ledger.candidates[:2]]
    few = [generator.choice(tables.T, min(tables.T, 1 + i % tables.L), replace=False) for i in range(PROBED - 100)]
    rows += [generator.choice(alphabet, tables.L).tolist() for alphabet in few]
    rows += generator.integers(0, tables.T, (100, tables.L)).tolist()
    sequences = np.array(rows)
    margin, counts = tables.margins(sequences), (sequences[:, :, None] == sequences[:, None, :]).sum(-1)
    at = (sequences, counts - 1)
    # No margin may be below the bound proved for its own token and count.
    proved = np.array([np.where(part.undecided + part.ledger.wrong + part.ledger.tied > 0, -np.inf, part.ledger.margin)
                       for part in parts])  # fmt: skip
    low = np.maximum(margin, np.where(np.isfinite(proved), proved, -np.inf)[at])
    bound = (need + slack).max(2)[at]
    batch = model.task.batch(shape.rows(torch.from_numpy(sequences)))
    right = np.zeros((*sequences.shape, tables.lead.shape[1]), dtype=bool)
    np.put_along_axis(right, tables.classes[counts - 1][..., None], True, 2)
    tensors = [torch.from_numpy(np.ascontiguousarray(a)) for a in (right, low, margin, bound)]
    if shape.marks:  # [BOS] is not read
        tensors = [torch.nn.functional.pad(a, (0, 0) * (a.ndim - 2) + (1, 0)) for a in tensors]
    return Probes(batch, tensors[0], tensors[1], tensors[2], tensors[3])


def _classes(tables: Tables, parts: list[OwnToken]) -> pd.DataFrame:
    """Return one row per own token and possible count."""
    rows = []
    for part in parts:
        book, undecided = part.ledger, part.undecided
        for k in np.flatnonzero(book.total):
            rows.append({
                "token": part.token, "count": int(k) + 1, "inputs": book.total[k], "right": book.right[k],
                "wrong": book.wrong[k], "close": book.close[k], "tied": book.tied[k], "undecided": undecided[k],
                "margin": book.margin[k], "rounding": book.need[k],
            })  # fmt: skip
    return pd.DataFrame(rows)


def _share(tables: Tables, frame: pd.DataFrame, samples: int, generator: np.random.Generator) -> SampledShare:
    """Return the share of right positions; random sequences narrow it for tokens and counts that are not decided."""
    is_open, strata = frame["undecided"] > 0, []
    for some in (frame[~is_open], frame[is_open]):
        right, wrong, rest = (sum(int(n) for n in some[names].to_numpy().ravel())
                              for names in (["right", "close"], ["wrong"], ["tied", "undecided"]))  # fmt: skip
        strata.append(Stratum(right + wrong + rest, right, wrong))
    if samples and is_open.any():
        weights = np.zeros((tables.T, tables.L))
        weights[frame["token"], frame["count"] - 1] = frame["inputs"].where(is_open, 0.0)
        strata[1].drawn, strata[1].drawn_right = samples, sampled_right(tables, weights, samples, generator)
    return SampledShare.of(strata, "samples of the undecided own tokens and counts; without sampling")


def _notes(
    model: TaskModel, parts: list[OwnToken], frame: pd.DataFrame, status: Status, budget: Budget
) -> tuple[str, ...]:
    dtype = str(model.embed.W_E.dtype).removeprefix("torch.")
    notes = []
    if status == "certified" and not all(part.ledger.exact for part in parts):
        notes.append("worst_margin is a lower bound: some neurons change sign")
    if status == "undecided" and model.embed.W_E.dtype not in ROUNDOFF:
        notes.append(f"rounding is not bounded for {dtype}, so nothing is certified in it")
    elif status == "undecided" and frame[["close", "tied"]].to_numpy().any():
        notes.append(f"some sequences' margins do not exceed the rounding bound of {dtype}")
    if any(part.search is None for part in parts):
        notes.append("an own token's softmax weight underflows next to another's, so this method does not apply")
    if frame["undecided"].any():
        share = frame["undecided"].sum() / frame["inputs"].sum()
        why = f" when the search ended, since {budget.ended}" if budget.ended else ""
        notes.append(f"undecided{why}: {share:.3g} of all")
    return tuple(notes)
