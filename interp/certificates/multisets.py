"""Certify models whose answer depends only on token counts, by running one input per multiset of tokens.

Without positions, a one-layer model is a function of the query token and of the counts of the visible tokens (see
architecture/reduced). So one evaluation decides all orders of a multiset: for the maximum of 4 numbers below 64, these
are 766,480 evaluations instead of 16,777,216. In floating point the order matters, so every claim needs a rounding
bound for any order of summation (certificates.rounding).
"""

import math
from collections.abc import Iterator
from functools import cache, partial

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.certificates.certificate import Certificate, MarginCounts, Progress, anything, register_method
from interp.certificates.probes import Probes
from interp.certificates.rounding import margin_errors
from interp.errors import InterpError
from interp.models.architecture.answers import Decision, find_positions, margins, right_in_run, said_in_run
from interp.models.architecture.reduced import (
    CountedRows,
    TokenTables,
    count_space_refusal,
    counted_at,
    reduced_outputs,
)
from interp.models.architecture.task_model import TaskModel
from interp.tasks import Batch, Task
from interp.tasks.domain import Drawn, every_input

TAKES = {
    **anything("task", "origin", "dtype", "d_model", "embedding", "readout_bias", "direction", "n_out"),
    **anything("layers.n_heads", "layers.d_head", "layers.scale", "layers.query_key", "layers.value_output"),
    **anything("layers.bias.q", "layers.bias.k", "layers.bias.v", "layers.bias.o", "layers.norm_eps", "readout_at"),
    "layers": (1,),
    "layers.norm": ("pre",),
}
"""One layer without positions, so that outputs depend only on counts."""

CHUNK = 1 << 15
LISTED = 1000
PROBED = 200
ORDER = "unchecked assumption: the order of tokens does not change the labels of task {}"
COMPARED = 1 << 16
"""Largest number of inputs that are all compared with their multisets."""


def refusal(model: TaskModel) -> str | None:
    """Return the reason why this method does not apply to a model, or None."""
    if model.spec.readout_at == "all":
        return "multisets are certified for models that are read at one token"
    return count_space_refusal(model.spec)


@register_method("every multiset", ("multisets",), refusal, TAKES, order=1)
@torch.no_grad()
def certify_multisets(model: TaskModel, progress: Progress | None = None) -> Certificate:
    """Certify every input by evaluating each multiset of tokens once for all of its orders.

    Margins are computed in float64. The model is certified in its own number format if every margin exceeds the
    rounding bound. n_inputs and n_errors count inputs, not multisets. The certificate's table "errors" has the first
    1000: input, orders, answer, right, margin. Raises InterpError if the task's multisets do not cover its inputs or
    determine its labels.
    """
    task, tables = model.task, model.token_tables()
    every, counts = torch.arange(task.d_vocab), MarginCounts()
    bounds = cache(lambda query, length: margin_errors(model, query, every, length))
    n_multisets = n_inputs = 0
    nearest: tuple[Batch, Tensor] | None = None
    compared, drawn = check_labels(task), Drawn(task)
    lines: list[tuple[object, ...]] = []
    probes: list[tuple[Batch, Tensor, float, int]] = []
    total = task.n_inputs or 0
    for number, (batch, orders) in enumerate(task.multisets(CHUNK)):
        out, rows = _outputs(model, tables, batch)
        margin = margins(out, batch_classes(task, batch), model.spec)
        margin = margin.nan_to_num(nan=-torch.inf)  # overflow even in float64 counts as wrong
        each = [bounds(query, batch.tokens.shape[1]) for query in rows.query.unique().tolist()]
        (need, slack), before = map(max, zip(*each)), counts.worst
        least = counts.take(margin.numpy(), need, slack, orders.numpy())
        if counts.worst < before:
            nearest = batch[least : least + 1], out[least]
        n_multisets, n_inputs = n_multisets + len(batch), n_inputs + int(orders.sum())
        drawn.drop(partial(_listed, task, batch))
        if len(lines) < LISTED:
            lines += list(_lines(task, batch, orders, out, margin))[: LISTED - len(lines)]
        if number % 8 == 0:
            probes.append((batch, margin, slack + need, least))
        if progress is not None:
            progress(n_inputs, total)
    if n_inputs != total:
        raise InterpError(f"task {task.name} lists multisets of {n_inputs:,} inputs, but its n_inputs is {total:,}")
    drawn.finish()
    status = counts.status(lambda: nearest is not None and _errs(model, nearest[0]))
    note = f"{n_multisets:,} multisets stand for {total:,} inputs, {total / n_multisets:.1f} times as many"
    return Certificate(
        model=model.spec.id,
        status=status,
        accuracy=counts.accuracy(total),
        n_inputs=total,
        worst_margin=counts.worst - counts.slack,
        counterexample=_describe_error(task, *nearest) if status == "refuted" and nearest else None,
        method="every multiset of tokens, in count space, float64",
        domain=f"every input of task {task.name}",
        rounding=counts.need,
        n_errors=counts.wrong if not counts.tied else None,
        notes=(note, *counts.notes(model.embed.W_E.dtype)),
        on_trust=() if compared else (ORDER.format(task.name),),
        tables={"errors": pd.DataFrame(lines, columns=["input", "orders", "answer", "right", "margin"])},
        probes=tuple(_probes(task, probes, model.cfg.d_vocab_out)),
    )


def check_labels(task: Task) -> bool:
    """Compare all inputs with their multisets; return False if there are more than COMPARED or they are not listed.

    Raises InterpError for an input without a multiset of the same label, and for multisets with a wrong number of
    inputs.
    """
    if (task.n_inputs or math.inf) > COMPARED or type(task).inputs is Task.inputs:
        return False
    left: dict[tuple[int, ...], tuple[int, int]] = {}
    rows: dict[tuple[int, ...], Tensor] = {}
    for batch, orders in task.multisets(CHUNK):
        rights = batch_classes(task, batch).tolist()
        for row, key, right, number in zip(batch.tokens, _keys(task, batch), rights, orders.tolist()):
            if key in left:
                raise InterpError(f"task {task.name} lists the multiset of {task.format(row)!r} twice")
            left[key], rows[key] = (right, number), row
    for batch in every_input(task, CHUNK):
        for row, key, right in zip(batch.tokens, _keys(task, batch), batch_classes(task, batch).tolist()):
            known, number = left.get(key, (None, 0))
            if known != right or not number:
                raise InterpError(
                    f"task {task.name} labels {task.format(row)!r} differently from its multiset, or lists none for it"
                )
            left[key] = (right, number - 1)
    if more := [rows[key] for key, (_, number) in left.items() if number]:
        raise InterpError(f"task {task.name} has fewer inputs like {task.format(more[0])!r} than its multiset says")
    return True


def _listed(task: Task, multisets: Batch, batch: Batch) -> Bool[Tensor, "rows"]:
    """Return a mask of the rows of a batch whose multiset is among these."""
    known = set(_keys(task, multisets))
    return torch.tensor([key in known for key in _keys(task, batch)], dtype=torch.bool)


def _keys(task: Task, batch: Batch) -> list[tuple[int, ...]]:
    """Sort keys that are equal for inputs of the same multiset: the query token, and the sorted tokens up to it."""
    at = find_positions(task, batch.tokens, task.readout).tolist()
    return [(row[end], *sorted(row[: end + 1])) for row, end in zip(batch.tokens.tolist(), at)]


def batch_classes(task: Task, batch: Batch) -> Int[Tensor, "rows"]:
    """Return the right output of each row, for tasks with one answer per row."""
    classes = task.classes(batch)
    return classes[classes >= 0].view(len(batch)).long()


def _outputs(model: TaskModel, tables: TokenTables, batch: Batch) -> tuple[Float[Tensor, "rows n_out"], CountedRows]:
    at = find_positions(model.task, batch.tokens, model.spec.readout_at)
    rows = counted_at(model.spec, model.task.d_vocab, batch.tokens, at, batch.attention_mask)
    return reduced_outputs(tables, rows.stacked(torch.float64))[0], rows


@torch.no_grad()
def _errs(model: TaskModel, batch: Batch) -> bool:
    """Return whether the model itself is wrong on a batch of one input."""
    out = model.read(batch.tokens.to(model.cfg.device)).cpu()
    return not bool(right_in_run(out, batch_classes(model.task, batch), model.spec).all())


def _describe_error(task: Task, batch: Batch, out: Float[Tensor, "n_out"]) -> str:
    right = int(batch_classes(task, batch)[0])
    answer = said_in_run(task, out, right, Decision())
    return f"{task.format(batch.tokens[0])}: the answer is {answer}, right is {task.answer_words[right]}"


def _lines(task: Task, batch: Batch, orders: Tensor, out: Tensor, margin: Tensor) -> Iterator[tuple[object, ...]]:
    """Yield rows (input, orders, answer, right, margin) for the errors."""
    words, right = task.answer_words, batch_classes(task, batch)
    for row in (margin <= 0).nonzero()[:, 0].tolist():
        answer = said_in_run(task, out[row], int(right[row]), Decision())
        yield task.format(batch.tokens[row]), int(orders[row]), answer, words[int(right[row])], float(margin[row])


def _probes(task: Task, seen: list[tuple[Batch, Tensor, float, int]], n_out: int) -> Iterator[Probes]:
    """Yield the inputs with the smallest margins, and a few others, of some chunks."""
    each = max(1, PROBED // (2 * len(seen)))
    for batch, margin, bound, least in seen:
        drawn = torch.randperm(len(batch), generator=torch.Generator().manual_seed(0))[:each]
        index = torch.cat([torch.tensor([least]), drawn])
        part = batch[index]
        right = torch.nn.functional.one_hot(batch_classes(task, part), n_out).bool()
        low = margin[index]
        yield Probes(part, right, low, low, torch.full_like(low, bound))
