"""Recognizers of any kind, layer norm and learned weights included: every string up to a length, with a rounding bound.

Without positions the output at the place that is read depends on how often each symbol occurs, and not on their order:
then one string stands for all of its rearrangements, if the language's labels agree (they are compared on every string
up to CHECKED symbols; beyond, the language must say that counts decide it, and the certificate says whose word that
is). With positions every string is run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import combinations_with_replacement
from math import factorial, prod
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.architecture.task_model import TaskModel
from interp.budget import check_size
from interp.certificates import rounding
from interp.certificates.base import Certificate, Status, register_method
from interp.certificates.language_strings import (
    CHECKED,
    DRAWN,
    ROWS_AT_ONCE,
    all_labels,
    labelled,
    one_label_each,
    unchecked,
)
from interp.certificates.probes import Probes
from interp.certificates.rounding import forward_with_bound
from interp.certificates.scope import anything
from interp.tasks import Task
from interp.tasks.languages import decided
from interp.tasks.roles import LISTED_STRINGS, lacks
from interp.threads import one_thread

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
"""Up to this length by default where counts decide."""
STRINGS = 1 << 13
"""Lengths with more strings than these are run only if they are asked for."""
PROBED = 40


def other_task(task: Task) -> str | None:
    """Why the task is not a language, or None."""
    reason = lacks(task, LISTED_STRINGS)
    return None if reason is None else f"no language of strings: {reason}"


def refusal(model: TaskModel) -> str | None:
    """Why not every string can be run with a bound, or None."""
    spec = model.spec
    if (reason := other_task(model.task)) is not None:
        return reason
    if spec.decision != "sigmoid" or spec.readout != "scalar" or spec.readout_at not in ("[CLS]", "last"):
        return "strings are judged by the sign of one output, read at [CLS] or at the last token"
    return rounding.refusal(model)


def by_counts(model: TaskModel, length: int) -> bool:
    """Does one string stand for all of its rearrangements, for the model and for the language?"""
    task: Any = model.task
    if model.spec.symmetry != "distinct_tokens" or model.spec.readout_at != "[CLS]":
        return False
    if not _compared(task, length):
        said = decided(task)
        if said is None or not said.count or said.places:
            return False
        generator = torch.Generator().manual_seed(length)
        drawn = torch.randint(len(task.alphabet), (DRAWN, length), generator=generator)
        words = torch.cat([drawn, drawn.gather(1, torch.rand(drawn.shape, generator=generator).argsort(1))])
        labels = labelled(task, words).labels
    else:
        words, labels = all_labels(task, length)
    return one_label_each(words.sort(1).values, labels)


def _compared(task: Any, length: int) -> bool:
    """Are the labels of every string of a length looked at?"""
    return length <= CHECKED and len(task.alphabet) ** length <= 1 << CHECKED


def strings(model: TaskModel, length: int) -> tuple[Int[Tensor, "strings length"], Float[np.ndarray, "strings"]]:
    """The strings that are run, and how many each stands for."""
    task: Any = model.task
    letters = len(task.alphabet)
    if not by_counts(model, length):
        words, _ = all_labels(task, length)
        return words, np.ones(len(words))
    rows = list(combinations_with_replacement(range(letters), length))
    sizes = [factorial(length) // prod(factorial(row.count(letter)) for letter in range(letters)) for row in rows]
    return torch.tensor(rows), np.array(sizes, dtype=float)


@register_method("every string, with a rounding bound", other_task, refusal, TAKES, lists=True)
@one_thread()
def certify_every_string(
    model: TaskModel, longest: int | None = None, progress: Callable[[int, int], None] | None = None
) -> Certificate:
    """Is the model right on every string of 1 to `longest` symbols, in its number format and any order of evaluation?

    longest: by default BY_COUNTS where counts decide, else as far as there are at most STRINGS strings of a length.
    tables: "lengths" (length, strings; right, wrong and tied in exact arithmetic, tied ones too near to tell; proved:
    right beyond what rounding can do in the model's own format; smallest_margin, rounding, status). Refuted by a string
    that the model's own forward pass gets wrong, too. Raises InterpError for lengths whose strings cannot be listed.
    """
    started = time.perf_counter()
    task: Any = model.task
    longest = _longest(model, task) if longest is None else check_size("longest", longest)
    rows, probes, counterexample = [], [], None
    for length in range(1, longest + 1):
        symbols, sizes = strings(model, length)
        margin, bound, slack = (torch.cat(parts).numpy() for parts in zip(*_run(model, task, symbols)))
        right, wrong, proved = margin > slack, margin < -slack, margin > bound
        found = _counterexample(model, task, symbols[torch.from_numpy(wrong)])
        counterexample = counterexample or found
        totals = [int(sizes[mask].sum()) for mask in (right, wrong, ~right & ~wrong, proved)]
        status = "certified" if proved.all() else "refuted" if found else "undecided"
        least = float(np.nan_to_num(margin - slack, nan=-np.inf).min())
        rows.append((length, int(sizes.sum()), *totals, least, float(bound.max()), status))
        probes.append(_probes(task, symbols, margin, bound))
        if progress is not None:
            progress(length, longest)
    columns = ["length", "strings", "right", "wrong", "tied", "proved", "smallest_margin", "rounding", "status"]
    table = pd.DataFrame(rows, columns=columns)
    return _conclude(model, table, counterexample, tuple(probes), started)


def _counterexample(model: TaskModel, task: Any, symbols: Int[Tensor, "strings length"]) -> str | None:
    """The first of some strings that the model's own forward pass gets wrong."""
    if not len(symbols):
        return None
    batch = task.of_symbols(symbols, torch.full((len(symbols),), symbols.shape[1]))
    wrong = torch.nonzero(model.predict(batch.tokens) != batch.labels)[:, 0].tolist()
    return "".join(task.alphabet[s] for s in symbols[wrong[0]].tolist()) if wrong else None


def _longest(model: TaskModel, task: Any) -> int:
    most = model.spec.max_length - task.n_marks if model.spec.max_length is not None else BY_COUNTS
    fits = [n for n in range(1, min(most, BY_COUNTS) + 1)
            if len(task.alphabet) ** n <= STRINGS or by_counts(model, n)]  # fmt: skip
    return max(fits, default=1)


def _run(
    model: TaskModel, task: Any, symbols: Int[Tensor, "strings length"]
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Margins with bounds of their rounding in the model's format and here; outputs that overflow are wrong."""
    length, own = symbols.shape[1], model.embed.W_E.dtype
    for part in symbols.split(max(1, ROWS_AT_ONCE // (length + 2) ** 2)):
        batch = labelled(task, part)
        value, slack = forward_with_bound(model, batch.tokens, dtype=torch.float64)
        bound = slack if own == torch.float64 else forward_with_bound(model, batch.tokens)[1]
        margin = torch.where(batch.labels, value[:, 0], -value[:, 0]).nan_to_num(nan=-torch.inf, neginf=-torch.inf)
        bound, slack = (torch.where(b.isnan(), torch.inf, b)[:, 0] for b in (bound, slack))
        yield margin, bound, slack


def margins_of(model: TaskModel, length: int) -> tuple[Float[np.ndarray, "strings"], Float[np.ndarray, "strings"]]:
    """Margins of the strings of a length, one for all of its rearrangements where that is so, and their numbers."""
    symbols, sizes = strings(model, length)
    return torch.cat([margin for margin, _, _ in _run(model, model.task, symbols)]).numpy(), sizes


def _probes(task: Any, symbols: Int[Tensor, "strings length"], margin: np.ndarray, bound: np.ndarray) -> Probes:
    """The strings of smallest margins."""
    chosen = torch.from_numpy(np.abs(margin).argsort()[:PROBED])
    part = symbols[chosen]
    batch = task.of_symbols(part, torch.full((len(part),), part.shape[1]))
    near, slip = (torch.from_numpy(array)[chosen] for array in (margin, bound))
    return Probes(batch, torch.stack([~batch.labels, batch.labels], 1), near, near, slip)


def _conclude(
    model: TaskModel, table: pd.DataFrame, counterexample: str | None, probes: tuple[Probes, ...], started: float
) -> Certificate:
    total, right, wrong, tied = (int(table[name].sum()) for name in ("strings", "right", "wrong", "tied"))
    good = table.loc[table["status"] == "certified", "length"].tolist()
    status: Status = "refuted" if counterexample else "certified" if len(good) == len(table) else "undecided"
    worst = table.loc[table["smallest_margin"].idxmin()]
    exact = table.loc[(table["wrong"] == 0) & (table["tied"] == 0), "length"].tolist()
    notes = [f"right on every string of {_ranges(exact)} symbols in exact arithmetic"] if exact else []
    if exact != good:
        proved = f"proved at {_ranges(good)} symbols" if good else "proved at no length"
        notes.append(f"as run, in any order of evaluation: {proved}; a float64 copy (dtype = float64) goes further")
    dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
    counted = [n for n in map(int, table["length"]) if by_counts(model, n)]
    compared = max((n for n in map(int, table["length"]) if _compared(model.task, n)), default=0)
    if len(counted) == len(table):
        how = "one string for all of its rearrangements"
    else:
        how = "every string run"
    return Certificate(
        model=model.spec.id,
        status=status,
        accuracy=(right / total, 1 - wrong / total) if tied else right / total,
        n_errors=None if tied else wrong,
        n_inputs=total,
        worst_margin=float(worst["smallest_margin"]),
        rounding=float(worst["rounding"]) if np.isfinite(worst["rounding"]) else None,
        counterexample=counterexample,
        method=f"{how}, {dtype}",
        domain=f"every string of 1 to {int(table['length'].max())} symbols",
        seconds=time.perf_counter() - started,
        notes=tuple(notes),
        on_trust=unchecked(model.task, max(counted, default=0), compared),
        tables={"lengths": table},
        probes=probes,
    )


def _ranges(lengths: list[int]) -> str:
    """1 to 4, 6 and 9: runs of numbers."""
    runs: list[list[int]] = []
    for n in lengths:
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    words = [str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
