"""Certify memorization models: exact divergence and accuracy over the whole table, with a rounding bound per context.

A model is certified if, for every context of positive probability, its largest logit is at a most likely next token, by
more than rounding in its own number format. For a look-up table, such a model is right on every input. For a noisy
table, it has memorized every association; the divergence measures how well it fits the distribution, and `max_kl`
limits the divergence, too. A model that takes longer inputs is run on every sequence of k or more tokens.
"""

from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.certificates import rounding
from interp.certificates.arithmetic import format_refusal
from interp.certificates.certificate import Certificate, Status, anything, register_method
from interp.certificates.probes import Probes
from interp.errors import InterpError
from interp.families.memorization.theory.kl import entropy, kl_rows
from interp.families.memorization.theory.table import as_table
from interp.models.architecture.task_model import TaskModel
from interp.tasks.structure import CONDITIONAL_TABLE

MOST_SEQUENCES = 1 << 20
"""Largest number of sequences of one length that are enumerated."""
NUMBERS_AT_ONCE = 1 << 24
PROBED = 300
"""Number of contexts, with the smallest margins, on which the model itself is run."""

TAKES = {
    **anything("task", "origin", "dtype", "d_model", "direction", "embedding", "readout_bias", "max_length"),
    **anything("layers.n_heads", "layers.d_head", "layers.scale", "layers.query_key", "layers.value_output"),
    **anything("layers.log_length", "layers.mlp.d_mlp", "positions_enter"),
    **anything("layers.bias.q", "layers.bias.k", "layers.bias.v", "layers.bias.o"),
    "layers": (1,),
    "layers.mlp.activation": ("gelu",),
    "positions": ("learned",),
    "readout_at": ("last",),
}


def refusal(model: TaskModel) -> str | None:
    """Return the reason why this method does not apply to a model, or None."""
    return format_refusal(model) if model.spec.readout_at == "last" else "a table's outputs are read at the last token"


@torch.no_grad()
def last_logits_with_bound(
    model: TaskModel, tokens: Int[Tensor, "rows length"], dtype: torch.dtype | None = None
) -> tuple[Float[Tensor, "rows n_out"], Float[Tensor, "rows n_out"]]:
    """Return the logits at the last token (float64), and a bound on the error in `dtype` (default: the model's)."""
    size = model.cfg.n_heads * tokens.shape[1] * (tokens.shape[1] + 4 * model.cfg.d_head) + model.task.n_out
    parts = tokens.split(max(1, NUMBERS_AT_ONCE // size))
    values, bounds = zip(*(rounding.forward_with_bound(model, part, dtype=dtype) for part in parts))
    return torch.cat(values), torch.cat(bounds)


@register_method("every context of the table", CONDITIONAL_TABLE, refusal, TAKES)
def certify_table(model: TaskModel, max_kl: float | None = None, longest: int | None = None) -> Certificate:
    """Certify that for every context the largest logit is at a most likely next token; also compute the divergence.

    max_kl: in nats; if given, a certified model's divergence must be at most this. longest: the longest enumerated
    inputs, for models of inputs longer than a context (default: the longest that the model supports, up to about a
    million sequences). The certificate's tables: "divergence" (one row per length: kl and a bound on its rounding
    error, entropy, cross-entropy, in nats, accuracy, memorized contexts) and "contexts" (one row per context, at length
    k: margin, divergence and answer). Raises InterpError for a `longest` that cannot be enumerated, an invalid table,
    and labels that are not among the most likely next tokens.
    """
    if max_kl is not None and max_kl < 0:
        raise InterpError(f"max_kl = {max_kl} must not be negative")
    task: Any = model.task
    as_table(task)  # raises InterpError for invalid tables
    lengths = range(task.order, _longest(model, task, longest) + 1)
    runs = [_run(model, task, length) for length in lengths]
    table = pd.DataFrame([run["summary"] for run in runs])
    margins = np.concatenate([run["margin"] for run in runs])
    rounded = np.concatenate([run["rounding"] for run in runs])
    low, high = (float(table[name].mean()) for name in ("accuracy_low", "accuracy_high"))
    least, most, notes = margins - rounded, margins + rounded, []
    if max_kl is not None:
        spare, off = max_kl - table["kl"].to_numpy(), table["kl_rounding"].to_numpy()
        least, most = np.append(least, spare - off), np.append(most, spare + off)
        notes = [f"asked for a divergence of at most {max_kl:g} nats"]
    worst = next((run for run in runs if (run["margin"] < -run["rounding"]).any()), None)
    widths = "" if len(lengths) == 1 else f", {lengths[0]} to {lengths[-1]} tokens"
    return Certificate(
        model=model.spec.id,
        status=_status(least, most),
        accuracy=low if low == high else (low, high),
        n_inputs=len(margins),
        worst_margin=min(run["least"] for run in runs),
        counterexample=None if worst is None else _example(task, worst),
        method=f"every context run, {str(model.embed.W_E.dtype).removeprefix('torch.')}",
        domain=f"every context of positive probability{widths}",
        rounding=float(rounded[margins.argmin()]),
        n_errors=int((margins < 0).sum()) if (np.abs(margins) > rounded).all() else None,
        notes=(
            f"divergence {table['kl'].mean():.6g} nats, entropy {entropy(task):.6g} nats",
            "right: the largest logit is at a most likely next token",
            *notes,
        ),
        tables={"divergence": table.drop(columns=["accuracy_low", "accuracy_high"]), "contexts": runs[0]["contexts"]},
        probes=tuple(_probes(task, run) for run in runs),
    )


def _probes(task: Any, run: dict[str, Any]) -> Probes:
    """Return the contexts with the smallest margins; every most likely next token is right."""
    chosen = run["margin"].argsort()[:PROBED]
    margin, bound = (torch.from_numpy(run[name][chosen]) for name in ("margin", "rounding"))
    return Probes(task.batch(run["tokens"][chosen]), torch.from_numpy(run["modes"][chosen]), margin, margin, bound)


def _longest(model: TaskModel, task: Any, asked: int | None) -> int:
    """Return the length of the longest inputs that are enumerated."""
    if asked is None:
        limit = model.spec.max_length or task.order
        while limit > task.order and task.d_vocab**limit > MOST_SEQUENCES:
            limit -= 1
        return limit
    if asked < task.order or (model.spec.max_length is not None and asked > model.spec.max_length):
        raise InterpError(f"longest = {asked}: the model takes {task.order} to {model.spec.max_length} tokens")
    if asked > task.order and task.d_vocab**asked > MOST_SEQUENCES:
        raise InterpError(f"longest = {asked}: {task.d_vocab}^{asked} sequences are more than {MOST_SEQUENCES:,}")
    return asked


def _run(model: TaskModel, task: Any, length: int) -> dict[str, Any]:
    """Run every input of one length: margins, rounding bounds, and statistics of the table."""
    likely = torch.from_numpy(task.prior > 0)
    contexts = torch.tensor(task.contexts)[likely]
    more = length - task.order
    powers = task.d_vocab ** torch.arange(more)
    before = torch.arange(task.d_vocab**more)[:, None] // powers % task.d_vocab  # the tokens before the context
    tokens = torch.cat([before.repeat_interleave(len(contexts), 0), contexts.repeat(len(before), 1)], 1)
    rows = np.tile(np.flatnonzero(likely.numpy()), len(before))
    values, bounds = (part.numpy() for part in last_logits_with_bound(model, tokens))
    pi, weight = task.conditional[rows], task.prior[rows] / len(before)
    slack = last_logits_with_bound(model, tokens, torch.float64)[1].numpy()
    modes = pi == pi.max(axis=1, keepdims=True)
    labels = task.batch(tokens).labels.numpy()
    if not (likeliest := modes[np.arange(len(labels)), labels]).all():
        row = int(likeliest.argmin())
        raise InterpError(
            f"task {task.name} labels {task.format(tokens[row])!r} {labels[row]}, which is "
            "not a most likely next token "
            "of its table"
        )
    best, other = np.where(modes, values, -np.inf).max(axis=1), np.where(modes, -np.inf, values).max(axis=1)
    margin, rounded = best - other, 2 * bounds.max(axis=1)
    least = float(np.nan_to_num(margin - 2 * slack.max(axis=1), nan=-np.inf).min())  # a lower bound
    kl = kl_rows(pi, values)
    right = margin > 0
    summary = {
        "length": length,
        "inputs": len(tokens),
        "kl": float(weight @ kl),
        # A divergence changes by at most the largest change of a logit difference.
        "kl_rounding": float(weight @ rounded),
        "entropy": entropy(task),
        "cross_entropy": entropy(task) + float(weight @ kl),
        "accuracy": float(weight @ right),
        "memorized": int(right.sum()),
        "accuracy_low": min(1.0, float(weight @ (margin > rounded))),
        "accuracy_high": min(1.0, float(weight @ (margin >= -rounded))),
    }
    if (margin > rounded).all():
        summary["accuracy_low"] = summary["accuracy_high"] = summary["accuracy"] = 1.0
    frame = pd.DataFrame(
        {
            "context": [task.format(row) for row in tokens],
            "prior": task.prior[rows],
            "most likely": pi.argmax(axis=1),
            "answer": values.argmax(axis=1),
            "right": right,
            "margin": margin,
            "rounding": rounded,
            "kl": kl,
        }
    ) if length == task.order else None  # fmt: skip
    return {"summary": summary, "least": least, "margin": margin, "rounding": rounded, "tokens": tokens, "modes": modes,
            "contexts": frame}  # fmt: skip


def _status(least: np.ndarray, most: np.ndarray) -> Status:
    """Return the status of a claim that some numbers are positive, from bounds on them."""
    return "certified" if (least > 0).all() else "refuted" if (most < 0).any() else "undecided"


def _example(task: Any, run: dict[str, Any]) -> str:
    return task.format(run["tokens"][int((run["margin"] + run["rounding"]).argmin())])
