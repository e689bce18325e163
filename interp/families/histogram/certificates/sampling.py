"""Sequences to run on a histogram model: likely counterexamples, and random samples from the undecided classes."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float

from interp.architecture.answers import correct, word_of
from interp.architecture.task_model import TaskModel
from interp.families.histogram.certificates.tables import Tables
from interp.families.histogram.occurrences import declared
from interp.populations import CONFIDENCE, clopper_pearson

MOST_PAIRS = 20_000


@dataclass(frozen=True)
class Counterexample:
    """A sequence, and a position at which the model's own forward pass errs."""

    sequence: list[int]
    position: int
    margin: float
    text: str


def check(
    model: TaskModel, tables: Tables, sequence: list[int], position: int, slack: Float[np.ndarray, "T L n_out"]
) -> Counterexample | None:
    """Return a counterexample if the model errs here in exact arithmetic and in its own forward pass, or None."""
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
    if bool(correct(out, right, model.spec)):
        return None
    times = "once" if count == 1 else f"{count} times"
    text = f"{task.format(batch.tokens[0])}: token {task.vocabulary[int(batch.tokens[0, at])]} at position {at} occurs "
    text += f"{times}, right is {task.word(int(right))}, the model says {word_of(task, out, model.spec)}"
    return Counterexample(sequence, position, float(lead.min()), text)


def suspects(
    tables: Tables, open_classes: Bool[np.ndarray, "T L"], generator: np.random.Generator, best: int = 16
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
    flat = np.argsort(margins, axis=None)[:best]
    places = zip(*np.unravel_index(flat, margins.shape))
    return [(float(margins[row, at]), sequences[row].tolist(), int(at)) for row, at in places]


def sampled_share(
    tables: Tables, weights: Float[np.ndarray, "T L"], n: int, generator: np.random.Generator
) -> tuple[float, float]:
    """Return a confidence interval for the share of right positions, with own token and count drawn by their weights.

    The interval is by Clopper and Pearson, with confidence CONFIDENCE. The other slots are filled independently and
    uniformly with other tokens.
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
    right = int((margins[np.arange(n), at] > 0).sum())
    return clopper_pearson(right, n, CONFIDENCE)
