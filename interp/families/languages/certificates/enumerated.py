"""Certify recognizers on every string up to a length, with a bound on rounding; any weights, LayerNorm included.

Without positions, the output at the read position depends only on how often each symbol occurs. Then one string is run
for all of its rearrangements, provided that their labels agree. Labels are compared on every string up to CHECKED
symbols. For longer strings, the language must declare that counts determine the labels; the certificate lists this
declaration as unchecked. With positions, every string is run.
"""

from itertools import combinations_with_replacement
from math import factorial, prod
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.certificates import rounding
from interp.certificates.certificate import Certificate, Progress, Stratum, anything, register_method
from interp.certificates.probes import Probes
from interp.errors import check_size
from interp.families.languages.certificates.strings import (
    CHECKED,
    DRAWN,
    all_labels,
    assume_labels,
    bounded_margins,
    label_strings,
    make_certificate,
    one_label_each,
    string_probes,
)
from interp.families.languages.tasks.language import decided
from interp.models.architecture.answers import right_classes, right_in_run, surely_wrong
from interp.models.architecture.task_model import TaskModel
from interp.support.resources import one_thread
from interp.support.words import ranges
from interp.tasks.structure import LISTED_STRINGS

TAKES = {
    **anything("task", "origin", "dtype", "d_model", "embedding", "positions", "max_length", "readout_bias"),
    **anything("layers", "layers.n_heads", "layers.d_head", "layers.scale", "layers.log_length", "layers.query_key"),
    **anything("layers.value_output", "layers.bias.q", "layers.bias.k", "layers.bias.v", "layers.bias.o"),
    **anything("layers.mlp.d_mlp", "layers.norm", "layers.norm_eps"),
    "layers.mlp.activation": ("gelu",),
    "final_norm": ("layer_norm",),
    "direction": ("bidirectional",),
    "readout": ("scalar",),
    "readout_at": ("[CLS]", "last"),
    "decision": ("sigmoid",),
}

BY_COUNTS = 32
"""Default longest string if counts decide."""
STRINGS = 1 << 13
"""Largest number of strings of one length that is run by default."""
PROBED = 40


def refusal(model: TaskModel) -> str | None:
    """Return the reason why this method does not apply to a model, or None."""
    spec = model.spec
    if spec.decision != "sigmoid" or spec.readout != "scalar" or spec.readout_at not in ("[CLS]", "last"):
        return "strings are judged by the sign of one output, read at [CLS] or at the last token"
    return rounding.refusal(model)


def by_counts(model: TaskModel, length: int) -> bool:
    """Return whether both the model and the language treat all rearrangements of a string of this length alike."""
    task: Any = model.task
    if model.spec.symmetry != "distinct_tokens" or model.spec.readout_at != "[CLS]":
        return False
    if not _compared(task, length):
        declared = decided(task)
        if declared is None or not declared.count or declared.places:
            return False
        generator = torch.Generator().manual_seed(length)
        drawn = torch.randint(len(task.alphabet), (DRAWN, length), generator=generator)
        words = torch.cat([drawn, drawn.gather(1, torch.rand(drawn.shape, generator=generator).argsort(1))])
        labels = label_strings(task, words).labels
    else:
        words, labels = all_labels(task, length)
    return one_label_each(words.sort(1).values, labels)


def _compared(task: Any, length: int) -> bool:
    """Return whether the labels of all strings of a length are compared."""
    return length <= CHECKED and len(task.alphabet) ** length <= 1 << CHECKED


def strings(model: TaskModel, length: int) -> tuple[Int[Tensor, "strings length"], Float[np.ndarray, "strings"]]:
    """Return the strings of a length that are run, and the number of strings that each represents."""
    task: Any = model.task
    letters = len(task.alphabet)
    if not by_counts(model, length):
        words, _ = all_labels(task, length)
        return words, np.ones(len(words))
    rows = list(combinations_with_replacement(range(letters), length))
    sizes = [factorial(length) // prod(factorial(row.count(letter)) for letter in range(letters)) for row in rows]
    return torch.tensor(rows), np.array(sizes, dtype=float)


@register_method("every string, with a rounding bound", LISTED_STRINGS, refusal, TAKES, order=1)
@one_thread()
def certify_every_string(model: TaskModel, longest: int | None = None, progress: Progress | None = None) -> Certificate:
    """Certify every string of 1 to `longest` symbols, in the model's number format and for any order of evaluation.

    longest: default BY_COUNTS if counts decide, otherwise the largest length with at most STRINGS strings. The
    certificate's table "lengths" has one row per length: strings; right, wrong and tied (within rounding of 0) in exact
    arithmetic; proved (right whatever the rounding in the model's number format); smallest_margin, rounding, status. A
    model is refuted only by a string that its own forward pass gets wrong. Raises InterpError for lengths whose strings
    cannot be listed.
    """
    task: Any = model.task
    longest = _longest(model, task) if longest is None else check_size("longest", longest)
    rows, probes, counterexample = [], [], None
    for length in range(1, longest + 1):
        symbols, sizes = strings(model, length)
        margin, bound, slack = (part.numpy() for part in bounded_margins(model, symbols))
        right, wrong, proved = margin > slack, surely_wrong(margin, slack), margin > bound
        error = _counterexample(model, task, symbols[torch.from_numpy(wrong)])
        counterexample = counterexample or error
        totals = [int(sizes[mask].sum()) for mask in (right, wrong, ~right & ~wrong, proved)]
        status = "certified" if proved.all() else "refuted" if error else "undecided"
        least = float(np.nan_to_num(margin - slack, nan=-np.inf).min())
        rows.append((length, int(sizes.sum()), *totals, least, float(bound.max()), status))
        probes.append(_probes(task, symbols, margin, bound))
        if progress is not None:
            progress(length, longest)
    columns = ["length", "strings", "right", "wrong", "tied", "proved", "smallest_margin", "rounding", "status"]
    table = pd.DataFrame(rows, columns=columns)
    return _conclude(model, table, counterexample, tuple(probes))


def _counterexample(model: TaskModel, task: Any, symbols: Int[Tensor, "strings length"]) -> str | None:
    """Return the first of these strings that the model's own forward pass gets wrong, or None."""
    if not len(symbols):
        return None
    batch = task.of_symbols(symbols, torch.full((len(symbols),), symbols.shape[1]))
    out, right = model.read(batch.tokens), right_classes(task, batch, model.spec.readout_at)
    wrong = torch.nonzero(~right_in_run(out, right, model.spec))[:, 0].tolist()
    return "".join(task.alphabet[s] for s in symbols[wrong[0]].tolist()) if wrong else None


def _longest(model: TaskModel, task: Any) -> int:
    most = model.spec.max_length - task.n_marks if model.spec.max_length is not None else BY_COUNTS
    fits = [n for n in range(1, min(most, BY_COUNTS) + 1)
            if len(task.alphabet) ** n <= STRINGS or by_counts(model, n)]  # fmt: skip
    return max(fits, default=1)


def margins_of(model: TaskModel, length: int) -> tuple[Float[np.ndarray, "strings"], Float[np.ndarray, "strings"]]:
    """Return margins of the strings that are run at a length, and the number of strings that each represents."""
    symbols, sizes = strings(model, length)
    return bounded_margins(model, symbols)[0].numpy(), sizes


def _probes(task: Any, symbols: Int[Tensor, "strings length"], margin: np.ndarray, bound: np.ndarray) -> Probes:
    """Return the strings with the smallest margins."""
    chosen = torch.from_numpy(np.abs(margin).argsort()[:PROBED])
    near, slip = (torch.from_numpy(array)[chosen] for array in (margin, bound))
    return string_probes(task, symbols[chosen], near, near, slip)


def _conclude(
    model: TaskModel, table: pd.DataFrame, counterexample: str | None, probes: tuple[Probes, ...]
) -> Certificate:
    strata = [Stratum(*numbers) for numbers in table[["strings", "right", "wrong"]].astype(object).to_numpy().tolist()]
    good = table.loc[table["status"] == "certified", "length"].tolist()
    exact = table.loc[(table["wrong"] == 0) & (table["tied"] == 0), "length"].tolist()
    notes = [f"right on every string of {ranges(exact)} symbols in exact arithmetic"] if exact else []
    if exact != good:
        proved = f"proved at {ranges(good)} symbols" if good else "proved at no length"
        notes.append(f"as run, in any order of evaluation: {proved}; a float64 copy (dtype = float64) reaches further")
    counted = [n for n in map(int, table["length"]) if by_counts(model, n)]
    compared = max((n for n in map(int, table["length"]) if _compared(model.task, n)), default=0)
    how = "one string for all of its rearrangements" if len(counted) == len(table) else "every string run"
    trust = assume_labels(model.task, max(counted, default=0), compared)
    return make_certificate(model, table, strata, counterexample, how, probes, tuple(notes), trust)
