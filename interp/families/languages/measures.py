"""Formal-language models by length: accuracy, errors of both kinds, the value s, sensitivity to one symbol.

The measures run models beyond their length limits, to show at which length a proof fails in floating point. Lengths are
numbers of symbols, without CLS and EOS.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import log
from typing import Any, cast

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import UnsupportedError
from interp.families.languages.tasks.language import Language
from interp.models.architecture.answers import decide, has_answer
from interp.models.architecture.task_model import TaskModel, as_dtype
from interp.models.architecture.ties import first_largest
from interp.models.constructions import ConstructedWeights, construct
from interp.models.spec import Construction
from interp.models.subject import Subject
from interp.tasks import Batch
from interp.tasks.scores import Score
from interp.tasks.structure import STRINGS, lacks

TOKENS_AT_ONCE = 1 << 17
"""Approximate number of tokens per batch, to limit memory."""


def language_of(model: TaskModel) -> Language:
    """Return the language of a model. Raises UnsupportedError for other tasks and for outputs that are not scalar."""
    reason = lacks(model.task, STRINGS)
    if reason is not None or model.spec.readout != "scalar":
        raise UnsupportedError(
            f"{model.spec.id} does not recognize strings with one scalar output: {reason or model.spec.readout}"
        )
    return cast(Language, model.task)


@contextmanager
def beyond_limits(model: TaskModel) -> Iterator[TaskModel]:
    """Remove the model's length limit within this context."""
    limit, model.length_limit = model.length_limit, None
    try:
        yield model
    finally:
        model.length_limit = limit


@torch.no_grad()
def answer_logits(model: TaskModel, tokens: Int[Tensor, "rows width"]) -> Float[Tensor, "rows"]:
    """Return the scalar output for each string at the read position, in the model's own number format."""
    language_of(model)
    outputs = []
    for part in tokens.split(max(1, TOKENS_AT_ONCE // max(1, tokens.shape[1]))):
        part = part.to(model.cfg.device)
        logits = model(part)[torch.arange(len(part)), model.answer_positions(part)]
        outputs.append(logits[:, 0].cpu())
    return torch.cat(outputs) if outputs else torch.zeros(0)


# ---------------------------------------------------------------- accuracy against length


def length_curve(
    model: TaskModel,
    lengths: Iterable[int],
    dtypes: Sequence[str | torch.dtype] | None = None,
    n: int = 200,
    seed: int = 0,
) -> pd.DataFrame:
    """Measure accuracy, loss and errors on n sampled strings, per length and number format.

    dtypes: number formats to which the weights are rounded; None keeps the model's own. Columns: length, dtype, n,
    accuracy with its 95% interval (low, high), cross_entropy_bits (see `cross_entropy`), false_accepts, false_rejects,
    their rates (NaN without such strings), smallest_logit (the smallest absolute output).
    """
    task, rows = language_of(model), []
    batches = {length: task.strings(n, length, seed=seed) for length in lengths}
    for dtype in [None] if dtypes is None else dtypes:
        used = model if dtype is None else Subject.of(model).in_format(as_dtype(dtype)).task_model
        name = str(used.embed.W_E.dtype).removeprefix("torch.")
        with beyond_limits(used):
            for length, batch in batches.items():
                rows.append({"length": length, "dtype": name, **errors(used, batch)})
    return pd.DataFrame(rows)


def errors(model: TaskModel, batch: Batch, logits: Float[Tensor, "rows"] | None = None) -> dict[str, int | float]:
    """Compute the columns of length_curve for one batch. logits: the model's outputs, if already computed."""
    logits = (answer_logits(model, batch.tokens) if logits is None else logits).double()
    accepts = decide(logits[:, None], model.spec) == 1
    wrong = (accepts != batch.labels) | ~has_answer(logits[:, None])
    members, others = int(batch.labels.sum()), int((~batch.labels).sum())
    false_accepts, false_rejects = int((wrong & ~batch.labels).sum()), int((wrong & batch.labels).sum())
    sampled = Score(len(batch), len(batch) - int(wrong.sum()), len(batch))
    return {
        "n": len(batch),
        "accuracy": sampled.accuracy,
        "low": sampled.low,
        "high": sampled.high,
        "cross_entropy_bits": float(cross_entropy(model, logits, batch.labels)),
        "false_accepts": false_accepts,
        "false_rejects": false_rejects,
        "false_accept_rate": false_accepts / others if others else float("nan"),
        "false_reject_rate": false_rejects / members if members else float("nan"),
        "smallest_logit": float(logits.abs().min()),
    }


def cross_entropy(model: TaskModel, logits: Float[Tensor, "rows"], labels: Tensor) -> Tensor:
    """Return the mean loss in bits, or NaN for models whose decision is not sigmoid.

    The published figures say bits but are in nats (language_data item 10).
    """
    if model.spec.decision != "sigmoid":
        return torch.tensor(float("nan"))
    return torch.nn.functional.softplus(torch.where(labels, -logits, logits)).mean() / log(2)


# ---------------------------------------------------------------- the value s


def value_against_proof(model: TaskModel, batch: Batch) -> pd.DataFrame:
    """Compare the component s at CLS with its value in the proof, string by string.

    Columns: string (cut to 40 symbols), length, label, s, proof, error. Raises UnsupportedError for trained models and
    for proofs that do not give the value of s.
    """
    task, weights = language_of(model), proof_of(model)
    if (proved := weights.value) is None:
        raise UnsupportedError(f"the proof of {model.spec.id} says where s is 0 or what its sign is, not its value")
    direction, last = weights.directions["s"], f"blocks.{len(model.spec.layers) - 1}.hook_resid_post"
    values = []
    with beyond_limits(model), torch.no_grad():
        for part in batch.tokens.split(max(1, TOKENS_AT_ONCE // max(1, batch.tokens.shape[1]))):
            _, cache = model.run_with_cache(part.to(model.cfg.device), names_filter=last)
            values.append(cache[last][:, 0].double().cpu() @ direction / (direction @ direction))
    symbols, lengths = task.symbols(batch.tokens)
    words = [row[:length] for row, length in zip(symbols.tolist(), lengths.tolist())]
    frame = pd.DataFrame(
        {
            "string": ["".join(map(str, word[:40])) + ("..." if len(word) > 40 else "") for word in words],
            "length": lengths.tolist(),
            "label": batch.labels.tolist(),
            "s": torch.cat(values).tolist(),
            "proof": [proved(word) for word in words],
        }
    )
    return frame.assign(error=frame["s"] - frame["proof"])


def proof_of(model: TaskModel) -> ConstructedWeights:
    """Return the proof that the model's spec names. Raises UnsupportedError for a trained model."""
    origin = model.spec.origin
    if not isinstance(origin, Construction):
        raise UnsupportedError(f"{model.spec.id} is not exact: there is no proof to compare it with")
    return construct(origin.name, origin.variant or None, **dict(origin.arguments)).weights


# ---------------------------------------------------------------- attention and sensitivity


@torch.no_grad()
def attention_from_answer(model: TaskModel, tokens: Int[Tensor, "rows width"]) -> pd.DataFrame:
    """Compute every head's attention from the read position, without storing full patterns.

    Columns: row, layer, head, position, token, weight; masked positions are left out.
    """
    wanted = [f"blocks.{at}.attn.hook_{name}" for at in range(len(model.spec.layers)) for name in ("q", "k")]
    with beyond_limits(model):
        _, cache = model.run_with_cache(tokens.to(model.cfg.device), names_filter=lambda name: name in wanted)
    read, pad, frames = model.answer_positions(tokens), model.task.pad_id, []
    present = torch.ones_like(tokens, dtype=torch.bool) if pad is None else tokens != pad
    behind = torch.arange(tokens.shape[1]) > read[:, None]
    keep = present & ~behind if model.spec.direction == "causal" else present
    for at in range(len(model.spec.layers)):
        attention: Any = model.blocks[at].attn
        q, k = (cache[f"blocks.{at}.attn.hook_{name}"] for name in ("q", "k"))
        weights = attention.pattern_at(q, k, read.to(q.device), present.to(q.device)).cpu()
        row, head, position = torch.nonzero(keep[:, None].expand_as(weights), as_tuple=True)
        frames.append(
            pd.DataFrame(
                {
                    "row": row.tolist(),
                    "layer": at,
                    "head": head.tolist(),
                    "position": position.tolist(),
                    "token": [model.task.vocabulary[t] for t in tokens[row, position].tolist()],
                    "weight": weights[row, head, position].double().tolist(),
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


def sensitivity(
    model: TaskModel, lengths: Iterable[int], strings: int = 10, places: int = 16, seed: int = 0
) -> pd.DataFrame:
    """Measure how much the output changes if one symbol changes.

    Hahn (2020) bounds the change by O(1/n) for a fixed softmax transformer. For each length, `strings` strings are
    sampled. One symbol at a time is replaced by the next in the alphabet, at up to `places` positions. Columns: length,
    n, mean_change, max_change, max_at (the position, from 1), and max_change_times_n, bounded if the bound is valid.
    """
    task, rows = language_of(model), []
    for length in lengths:
        batch = task.strings(strings, length, seed=seed)
        symbols, sizes = task.symbols(batch.tokens)
        at = torch.linspace(0, length - 1, min(places, length)).round().long().unique()
        flipped = symbols[:, None].repeat(1, len(at), 1)
        flipped[:, torch.arange(len(at)), at] = (flipped[:, torch.arange(len(at)), at] + 1) % len(task.alphabet)
        other = task.of_symbols(flipped.flatten(0, 1), sizes.repeat_interleave(len(at)))
        with beyond_limits(model):
            base = answer_logits(model, batch.tokens).double()
            change = (answer_logits(model, other.tokens).double().view(len(batch), -1) - base[:, None]).abs()
        n = length + task.n_marks
        largest = float(change.max())
        rows.append(
            {
                "length": length,
                "n": n,
                "mean_change": float(change.mean()),
                "max_change": largest,
                "max_at": int(at[first_largest(change.amax(0))]) + 1,
                "max_change_times_n": largest * n,
            }
        )
    return pd.DataFrame(rows)


# ---------------------------------------------------------------- components that heads read and write


def components_read(model: TaskModel, directions: dict[str, Tensor] | None = None) -> pd.DataFrame:
    """Compute the QK and OV circuits of every head between named directions of the residual stream.

    directions: named vectors of the residual stream (default: the proof's, for exact models). Columns: layer, head,
    circuit ("QK": from the query's direction to the key's; "OV": from the direction read to the one written), source,
    target, coefficient. Coefficients of absolute value up to 1e-9 are left out.
    """
    named = proof_of(model).directions if directions is None else directions
    names, vectors = list(named), torch.stack([vector.double() for vector in named.values()])
    sizes, rows = (vectors**2).sum(1), []
    for layer, block in enumerate(model.blocks):
        attn = block.attn
        for head in range(model.spec.layers[layer].n_heads):
            q, k, v, o = (getattr(attn, f"W_{name}")[head].detach().double().cpu() for name in "QKVO")
            circuits = {
                "QK": (vectors @ q) @ (vectors @ k).T / attn.attn_scale,
                "OV": vectors @ v @ o @ vectors.T / sizes,
            }
            for circuit, table in circuits.items():
                for source, target in (table.abs() > 1e-9).nonzero().tolist():
                    rows.append((layer, head, circuit, names[source], names[target], float(table[source, target])))
    return pd.DataFrame(rows, columns=["layer", "head", "circuit", "source", "target", "coefficient"])
