"""Certify recognizers on all 2^length strings, by classes: the number of ones, and the symbols at "seen" positions.

If layer 1 gives all pairs the same score, its output depends on the number k of ones, not on their order. The residual
stream of position i after layer 1 is then a function of i, its own symbol, k and n. Position i is *seen* if the two
possible streams differ in anything that a later layer's queries, keys or values read. The output at CLS depends only on
the symbols at seen positions and on k (if the values of layer 1 distinguish the symbols). So one string represents all
strings that agree in these:

    ONE, PARITY: no position is seen and k matters, which gives length + 1 classes.
    FIRST: only position 1 is seen and k does not matter, which gives 2 classes.

Differences are computed with the error bounds of certificates/rounding.py: a difference that could be nonzero counts as
seen. Each class is evaluated once, and certified if its margin exceeds the rounding bound for any order of evaluation
in the model's number format.
"""

import itertools
import math
from collections.abc import Sequence
from math import comb
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.certificates import rounding
from interp.certificates.certificate import (
    Certificate,
    SampledShare,
    Status,
    Stratum,
    anything,
    refusal_of,
    register_method,
)
from interp.certificates.probes import Probes
from interp.certificates.rounding import ROUNDOFF, Arithmetic, forward_with_bound
from interp.errors import InterpError, check_size
from interp.families.languages.tasks.language import Decided, decided
from interp.models.architecture.answers import surely_wrong
from interp.models.architecture.task_model import TaskModel
from interp.support.resources import one_thread
from interp.tasks import Batch
from interp.tasks.structure import LISTED_STRINGS, lacks

TAKES = {
    **anything("task", "origin", "dtype", "d_model", "embedding", "positions", "readout_bias"),
    **anything("layers.n_heads", "layers.d_head", "layers.scale", "layers.log_length", "layers.mlp.d_mlp"),
    "layers": (1, 2),
    "direction": ("bidirectional",),
    "readout": ("scalar",),
    "readout_at": ("[CLS]",),
    "decision": ("sigmoid",),
}

CHECKED = 14
"""Largest length at which labels are compared on every string; for longer strings the language must declare classes."""
DRAWN = 64
"""Number of pairs of longer strings, each from one class, whose labels are compared."""

MOST_SEEN = 8
"""Largest number of seen positions; more would give too many classes."""

ROWS_AT_ONCE = 1 << 18
SAMPLED, LENGTHS = 1024, 4
"""Number of random strings that are run of each length that is not decided, and of how many lengths, longest first."""
PROBES = 24
"""Number of strings of a length whose margins are kept as probes, of the classes with the smallest margins."""
PROBED = 10
"""The model itself is run on strings of each length up to this one, and of the last length."""


def refusal(model: TaskModel) -> str | None:
    """Return the reason why this method does not apply to a model, or None."""
    spec, alphabet = model.spec, getattr(model.task, "alphabet", ())
    if tuple(alphabet) != ("0", "1"):
        return f"task {model.task.name} is a language over {', '.join(alphabet)}, not 0, 1"
    if spec.decision != "sigmoid" or spec.readout_at != "[CLS]" or len(spec.layers) > 2:
        return "the method is for at most two layers, read at [CLS], with answers decided by the sign of the output"
    if (reason := rounding.refusal(model)) is not None:
        return reason
    if spec.positions in ("learned", "sinusoidal"):
        return f"positions must be a formula or none, not {spec.positions!r}"
    if (unknown := refusal_of(spec, TAKES)) is not None:
        return unknown
    if not rounding.attends_to_nothing(model, 0):
        return "layer 1 does not score all pairs alike"
    try:
        seen = seen_positions(model, 12)
    except InterpError as error:
        return str(error)
    return None if int(seen.sum()) <= MOST_SEEN else f"{int(seen.sum())} of 12 positions are seen: too many classes"


def counts_matter(model: TaskModel) -> bool:
    """Return whether layer 1 writes different values for the two symbols."""
    parts: Any = model
    difference = (parts.embed.W_E[1] - parts.embed.W_E[0]).detach().double()
    attn = parts.blocks[0].attn
    moved = torch.einsum("d,hdk,hke->he", difference, attn.W_V.double(), attn.W_O.double())
    return bool((moved != 0).any())


@torch.no_grad()
def seen_positions(model: TaskModel, length: int) -> Bool[Tensor, "length"]:
    """Return a mask of the seen positions (see the module's docstring) of strings of a length, however many ones."""
    if len(model.spec.layers) == 1:
        return torch.zeros(length, dtype=torch.bool)
    task: Any = model.task
    if (reason := lacks(task, LISTED_STRINGS)) is not None:
        raise InterpError(reason)
    numbers = Arithmetic(ROUNDOFF[model.embed.W_E.dtype])
    counts = range(length + 1) if counts_matter(model) else (length,)
    symbols = torch.stack([(torch.arange(length) < k).long() for k in counts])
    tokens = task.of_symbols(symbols, torch.full((len(symbols),), length)).tokens
    rows = rounding.embed(numbers, model, tokens)
    added = rounding.attention(numbers, model, 0, rows)
    after = []
    for symbol in (0, 1):
        swapped = tokens.clone()
        swapped[:, 1 : length + 1] = symbol
        stream = numbers.add(rounding.embed(numbers, model, swapped), added)
        after.append(rounding.behind_attention(numbers, model, 0, stream))
    attn: Any = model.blocks[1].attn
    seen = torch.zeros(length, dtype=torch.bool)
    for weight in (attn.W_Q, attn.W_K, attn.W_V):
        reads = (weight.detach() != 0).any(0).any(-1)  # the components that any head reads
        with_zeros, with_ones = (state.value[:, 1 : length + 1][..., reads] for state in after)
        seen |= (with_zeros != with_ones).any(-1).any(0)
    return seen


def classes(model: TaskModel, length: int, seen: Bool[Tensor, "length"] | None = None) -> Int[Tensor, "classes length"]:
    """Return one string per class: the symbols at seen positions, and the number of ones if it matters."""
    seen = seen_positions(model, length) if seen is None else seen
    at = seen.nonzero()[:, 0].tolist()
    if len(at) > MOST_SEEN:
        raise InterpError(f"{len(at)} positions of strings of length {length} are seen: more than {MOST_SEEN}")
    free = [place for place in range(length) if place not in at]
    rows = []
    for chosen in itertools.product((0, 1), repeat=len(at)):
        for extra in range(len(free) + 1) if counts_matter(model) else (0,):
            row = [0] * length
            for place, symbol in zip(at, chosen):
                row[place] = symbol
            for place in free[:extra]:
                row[place] = 1
            rows.append(row)
    return torch.tensor(rows)


@register_method("strings by counts and seen positions", LISTED_STRINGS, refusal, TAKES)
@one_thread()
def certify_strings(model: TaskModel, longest: int | None = None, progress: Any = None) -> Certificate:
    """Certify every string of 1 to `longest` symbols, in the model's number format and for any order of evaluation.

    "undecided" if a class is right by a margin within rounding. The certificate's table "lengths": length, classes,
    smallest_margin, rounding, status. All strings of a class must have the same label. This is compared on every string
    up to length CHECKED. For longer strings, the language must declare what its labels depend on (`decided_by`).
    longest: default 64, or CHECKED without such a declaration. Raises InterpError if the method does not apply, if
    labels cannot be compared, or if they contradict the declaration.
    """
    rows, wrong, probes, strata = [], None, [], []
    task: Any = model.task
    declared = decided(task)
    longest = (64 if declared else CHECKED) if longest is None else check_size("longest", longest)
    if declared is None and longest > CHECKED:
        raise InterpError(
            f"longest = {longest}: labels of task {task.name} are compared on every string up to {CHECKED} symbols; "
            "for longer ones the language must say what decides them: @decided_by(...) at its member()"
        )
    for length in range(1, longest + 1):
        seen = seen_positions(model, length)
        symbols = classes(model, length, seen)
        _labels_follow(model, task, seen, declared)
        margin, bound, slack = bounded_margins(model, symbols)
        sure, false = bool((margin > bound).all()), bool(surely_wrong(margin, bound).any())
        if wrong is None and false:
            wrong = "".join(map(str, symbols[int((margin + bound).argmin())].tolist()))
        status = "certified" if sure else "refuted" if false else "undecided"
        least = float((margin - slack).nan_to_num(nan=-torch.inf, posinf=torch.inf).min())
        rows.append((length, len(symbols), least, float(bound.max()), status))
        sizes = class_sizes(model, length, seen)
        decided_ = (margin > slack, surely_wrong(margin, slack))
        strata.append(Stratum(2**length, *(sum(sizes[i] for i in mask.nonzero()[:, 0].tolist()) for mask in decided_)))
        if length <= PROBED or length == longest:
            probes.append(_probes(model, task, symbols, seen, margin, bound))
        if progress is not None:
            progress(length, longest)
    table = pd.DataFrame(rows, columns=["length", "classes", "smallest_margin", "rounding", "status"])
    how = "one string of each class of counts and seen positions"
    notes = (*note_lengths(table, strata), *([] if declared else [f"labels compared on every string up to {longest}"]))
    trust = assume_labels(task, longest) if declared else ()
    return make_certificate(model, table, strata, wrong, how, tuple(probes), notes, trust)


def class_sizes(model: TaskModel, length: int, seen: Bool[Tensor, "length"]) -> list[int]:
    """Return the number of strings of each of the `classes`."""
    free = length - int(seen.sum())
    each = [comb(free, ones) for ones in range(free + 1)] if counts_matter(model) else [2**free]
    return each * 2 ** int(seen.sum())


def run_some(model: TaskModel, strata: Sequence[Stratum]) -> None:
    """Run random strings of the longest undecided lengths. strata: one per length, from 1 on."""
    task: Any = model.task
    for length in [n for n, stratum in enumerate(strata, 1) if stratum.open][-LENGTHS:]:
        generator = torch.Generator().manual_seed(length)
        symbols = torch.randint(len(task.alphabet), (SAMPLED, length), generator=generator)
        margin, _, slack = bounded_margins(model, symbols)
        strata[length - 1].drawn_right = int((margin > slack).sum())
        strata[length - 1].drawn_open = int((~((margin > slack) | surely_wrong(margin, slack))).sum())
        strata[length - 1].drawn = SAMPLED


def bounded_margins(
    model: TaskModel, symbols: Int[Tensor, "strings length"]
) -> tuple[Float[Tensor, "strings"], Float[Tensor, "strings"], Float[Tensor, "strings"]]:
    """Return margins in float64, with bounds on rounding in the model's number format and in float64.

    Overflow counts as wrong.
    """
    dtype, bounded = model.embed.W_E.dtype, []
    for part in symbols.split(max(1, ROWS_AT_ONCE // (symbols.shape[1] + 2) ** 2)):
        batch = label_strings(model.task, part)
        value, slack = forward_with_bound(model, batch.tokens, dtype=torch.float64)
        bound = slack if dtype == torch.float64 else forward_with_bound(model, batch.tokens)[1]
        margin = torch.where(batch.labels, value[:, 0], -value[:, 0]).nan_to_num(nan=-torch.inf, neginf=-torch.inf)
        bounded.append((margin, *(torch.where(b.isnan(), torch.inf, b)[:, 0] for b in (bound, slack))))
    margins, bounds, slacks = map(torch.cat, zip(*bounded))
    return margins, bounds, slacks


def label_strings(task: Any, symbols: Int[Tensor, "strings length"]) -> Batch:
    """Label strings of one length. Raises InterpError if of_symbols and batch give different labels."""
    batch: Batch = task.of_symbols(symbols, torch.full((len(symbols),), symbols.shape[1]))
    if bool((other := task.batch(batch.tokens).labels != batch.labels).any()):
        raise InterpError(
            f"task {task.name} labels {task.format(batch.tokens[other][0])!r} in two ways, by of_symbols and by batch"
        )
    return batch


def all_labels(task: Any, length: int) -> tuple[Int[Tensor, "strings length"], Bool[Tensor, "strings"]]:
    """List every string of a length with its label. Raises InterpError if `enumerate` does not list each once."""
    base = len(task.alphabet)
    words, lengths = task.symbols(task.enumerate(length).tokens)
    if (
        words.shape != (base**length, length)
        or bool((lengths != length).any())
        or len(words.unique(dim=0)) < len(words)
    ):
        raise InterpError(f"task {task.name}: enumerate({length}) is not every string of {length} symbols once")
    return words, label_strings(task, words).labels


def assume_labels(task: Any, longest: int, compared: int = CHECKED) -> tuple[str, ...]:
    """Return the unchecked assumption about labels of strings that are longer than those compared."""
    if longest <= compared:
        return ()
    return (
        f"labels: compared on every string of up to {compared} symbols and on some longer ones; unchecked assumption: "
        f"what task {task.name} declares decides the others",
    )


def _probes(model: TaskModel, task: Any, symbols: Tensor, seen: Tensor, margin: Tensor, bound: Tensor) -> Probes:
    """Draw random strings from the classes with the smallest margins."""
    generator = torch.Generator().manual_seed(symbols.shape[1])
    chosen = margin.argsort()[:PROBES].repeat(PROBES)[:PROBES]
    free = torch.nonzero(~seen)[:, 0]
    rows = symbols[chosen].clone()
    for row in rows:
        any_order = free[torch.randperm(len(free), generator=generator)]
        row[free] = row[any_order] if counts_matter(model) else torch.randint(0, 2, (len(free),), generator=generator)
    return string_probes(task, rows, margin[chosen], margin[chosen], bound[chosen])


def _labels_follow(model: TaskModel, task: Any, seen: Bool[Tensor, "length"], declared: Decided | None) -> None:
    """Raise InterpError unless strings of a class have the same label, by declaration or by comparing all strings."""
    length, counted = len(seen), counts_matter(model)
    at = seen.nonzero()[:, 0]
    follows = declared is not None and (counted or not declared.count)
    if length <= CHECKED:
        words, labels = all_labels(task, length)
    elif declared is not None and follows and {p for p in declared.places if p < length} <= {*at.tolist()}:
        words, labels = _pairs(task, seen, counted)
    else:
        raise InterpError(
            f"task {task.name} does not say that what decides labels of {length} symbols is what {model.spec.id} sees"
        )
    keys = torch.cat([words[:, at], words.sum(1, keepdim=True) * int(counted)], 1)
    if not one_label_each(keys, labels):
        raise InterpError(f"strings of length {length} that {model.spec.id} cannot tell apart have different labels")


def one_label_each(keys: Int[Tensor, "strings columns"], labels: Bool[Tensor, "strings"]) -> bool:
    """Return whether strings with equal keys have equal labels."""
    labeled = torch.cat([keys, labels[:, None].long()], 1)
    return len(labeled.unique(dim=0)) == len(keys.unique(dim=0))


def _pairs(
    task: Any, seen: Bool[Tensor, "length"], counted: bool
) -> tuple[Int[Tensor, "strings length"], Bool[Tensor, "strings"]]:
    """Draw random strings with many and few ones, each paired with another string of its class."""
    length, generator = len(seen), torch.Generator().manual_seed(len(seen))
    share = torch.rand(DRAWN, 1, generator=generator)
    words = (torch.rand(DRAWN, length, generator=generator) < share).long()
    others, free = words.clone(), torch.nonzero(~seen)[:, 0]
    for row in others:
        if counted:
            row[free] = row[free[torch.randperm(len(free), generator=generator)]]
        else:
            row[free] = torch.randint(0, 2, (len(free),), generator=generator)
    both = torch.cat([words, others])
    return both, label_strings(task, both).labels


def make_certificate(
    model: TaskModel, table: pd.DataFrame, strata: Sequence[Stratum], wrong: str | None, method: str,
    probes: tuple[Probes, ...], notes: tuple[str, ...] | None = None, on_trust: tuple[str, ...] = (),
) -> Certificate:  # fmt: skip
    """Make a certificate from a table of lengths and a stratum for each; certified if every length is."""
    whole: Status = "certified" if (table["status"] == "certified").all() else "refuted" if wrong else "undecided"
    run_some(model, strata)
    share = SampledShare.of(strata)
    worst = table.loc[table["smallest_margin"].idxmin()]
    return Certificate(
        model=model.spec.id,
        status=whole,
        accuracy=share.accuracy,
        confidence=share.confidence,
        n_inputs=sum(stratum.inputs for stratum in strata),
        worst_margin=float(worst["smallest_margin"]),
        counterexample=wrong,
        method=f"{method}, {str(next(model.parameters()).dtype).removeprefix('torch.')}",
        domain=f"every string of 1 to {int(table['length'].max())} symbols",
        rounding=float(worst["rounding"]) if math.isfinite(worst["rounding"]) else None,
        n_errors=None if any(stratum.open for stratum in strata) else sum(stratum.wrong for stratum in strata),
        notes=(*(note_lengths(table, strata) if notes is None else notes), *share.notes),
        on_trust=on_trust,
        tables={"lengths": table},
        probes=probes,
    )


def note_lengths(table: pd.DataFrame, strata: Sequence[Stratum]) -> tuple[str, str]:
    """Return notes on the lengths that are certified, and on the number of strings."""
    good = table["status"] == "certified"
    least = int(table["length"].max()) if good.all() else int(table.loc[~good, "length"].min()) - 1
    n = sum(stratum.inputs for stratum in strata)
    return f"certified at every length up to {least}", f"about 10^{math.log10(n):.0f} strings"


def string_probes(task: Any, symbols: Tensor, low: Tensor, high: Tensor, bound: Tensor) -> Probes:
    """Return strings of one length, with bounds on their margins, as probes."""
    batch = task.of_symbols(symbols, torch.full((len(symbols),), symbols.shape[1]))
    return Probes(batch, torch.stack([~batch.labels, batch.labels], 1), low, high, bound)
