"""Set attention ratios of a trained model by hooks, without changing its weights.

If the spec's symmetry allows it, the intervention is computed in count space. The result equals the hooked forward pass
up to rounding and is fast enough for sweeps over the whole data set.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from interp.architecture.answers import correct
from interp.architecture.reduced import CountedRows, TokenTables, counted_at, heads_from_counts
from interp.errors import InterpError, quoted
from interp.measures.attention_ratios import attended
from interp.measures.circuits import circuit_tables
from interp.measures.outputs import check_layer, decompose
from interp.measures.results import Figure, Inputs, Tabular, batch_of
from interp.measures.runs import Tally, activations, pieces, reads_of
from interp.measures.separation import score_groups
from interp.measures.subject import Model, Subject
from interp.tasks import Batch

# ---------------------------------------------------------------- attention ratios (section 5.4)


def token_weights(subject: Subject, w01: float, w02: float, tokens: Sequence[str]) -> Float[Tensor, "d_vocab"]:
    """Return unnormalized attention per token, with w01 = a0/a1 and w02 = a0/a2 (inf: a2 = 0); 0 for other tokens."""
    for name, ratio in (("w01", w01), ("w02", w02)):
        if not ratio > 0:
            raise InterpError(f"{name} = {ratio!r} must be a ratio above 0 (inf: no attention to the other token)")
    if w01 == float("inf") and w02 == float("inf"):
        raise InterpError("w01 and w02 cannot both be inf: at least two tokens must be attended to")
    weights = torch.zeros(subject.task.d_vocab, dtype=torch.float64)
    for token, weight in zip(tokens, (1.0, 1 / w01, 1 / w02)):
        weights[subject.task.token_id(token)] = weight
    return weights


def attention_hook(
    model: Model, batch: Batch, w01: float, w02: float, tokens: Sequence[str] | None = None
) -> Callable[[Tensor, Any], Tensor]:
    """Return a hook for hook_pattern that makes every head attend only to the given tokens, in the given ratios.

    It changes the rows of the read positions. Each sums to one, or is zero if none of the tokens is visible.
    """
    subject = Subject.of(model)
    weights = token_weights(subject, w01, w02, attended(subject, tokens))[batch.tokens.cpu()]
    weights = (weights * batch.attention_mask.cpu())[:, None].expand(-1, batch.tokens.shape[1], -1)
    if subject.model.cfg.attention_dir == "causal":
        weights = weights.tril()
    row = weights / weights.sum(-1, keepdim=True).clamp_min(1e-300)
    read = reads_of(subject, batch).mask(batch)[:, None, :, None]

    def set_ratios(pattern: Float[Tensor, "rows heads length length"], hook: Any) -> Tensor:
        return torch.where(read.to(pattern.device), row[:, None].to(pattern), pattern)

    return set_ratios


def _hooked(
    subject: Subject, batch: Batch, ratios: tuple[float, float] | None, tokens: Sequence[str] | None, layer: int
) -> tuple[Float[Tensor, "reads heads d_head"], float]:
    """Return head outputs at the reads and the accuracy, from a pass with hooks; ratios = None changes nothing."""
    layer = check_layer(subject, layer)
    name, found, tally = f"blocks.{layer}.attn.", [], Tally()
    for _, piece in pieces(subject, batch, 3 * batch.tokens.shape[1]):
        hooks = [] if ratios is None else [(name + "hook_pattern", attention_hook(subject, piece, *ratios, tokens))]
        out, seen = activations(subject, piece, [name + "hook_z"], hooks)
        where = reads_of(subject, piece)
        found.append(where.pick(seen[name + "hook_z"]).double().cpu())
        tally.add(subject, where.pick(out).double().cpu(), where.classes)
    return torch.cat(found), tally.score.accuracy


def _rows(subject: Subject, batch: Batch) -> CountedRows:
    """Return the token counts visible from the read positions of a batch."""
    positions = subject.answer_positions(batch.tokens)
    spec, d_vocab = subject.task_model.spec, subject.task.d_vocab
    return counted_at(spec, d_vocab, batch.tokens, positions, batch.attention_mask).stacked(torch.float64)


def _from_rows(
    tables: TokenTables, rows: CountedRows, weights: Float[Tensor, "d_vocab"] | None
) -> Float[Tensor, "rows heads d_head"]:
    """Return head outputs for attention weights per token (None: the model's own); 0 if no attended token occurs."""
    if weights is None:
        return heads_from_counts(tables, rows)[0]
    # All heads and query tokens attend alike, so there is one mixture per row and one product for all heads.
    shares = rows.counts[0] * (weights / weights.max())
    shares = (shares / shares.sum(-1, keepdim=True)).nan_to_num(0.0)
    return (shares @ tables.values[0]).transpose(0, 1)


SWEEP = tuple(10 ** (exponent / 2) for exponent in range(-6, 7))
"""The ratios of Figure 8: from 1/1000 to 1000."""


@dataclass(frozen=True, eq=False, repr=False)
class Reweighting(Tabular):
    """s-acc of every head by attention ratio; columns head, layer, w01, w02, s_acc, accuracy. tokens: the three."""

    tokens: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"Separation accuracy of heads with their attention to {', '.join(self.tokens)} set by hand"

    def plot(self, x: str | None = None) -> Figure:
        """Draw the mean s-acc of the heads against a ratio, w01 or w02 (default: the one that varies; Figures 8, 9)."""
        from interp.report import figures as draw

        varied = [name for name in ("w01", "w02") if self.table[name].nunique() > 1]
        if len(varied) > 1:
            raise InterpError("both ratios vary: a curve needs one value of the other, such as w01=1.0")
        along = x or [*varied, "w01"][0]
        return draw.intervention_curve(self.table.rename(columns={along: "ratio"}), along, tokens=self.tokens)


def reweight_attention(
    model: Model,
    w01: float | Iterable[float] | None = SWEEP,
    w02: float | Iterable[float] | None = float("inf"),
    *,
    train: Inputs | None = None,
    test: Inputs | None = None,
    tokens: Sequence[str] | None = None,
    layer: int = -1,
    C: float = 1000.0,
) -> Reweighting:
    """Measure s-acc of every head with attention at the read positions set to given ratios (section 5.4).

    Figure 8 sweeps w01 at w02 = inf, and Figure 9 sweeps w02 at w01 = 1. Both depend on C.

    w01, w02: ratios, one or several each; None for both keeps the model's attention. tokens: the three tokens (default:
    those that the task counts). layer: the layer whose attention is set and whose heads are measured. C: weight of
    errors in the separators' objective, as in head_metrics. Columns: head, layer, w01, w02, s_acc, accuracy (of the
    whole model with the intervention).

    Example:

        >>> model = interp.load("count01/paper")
        >>> found = interp.reweight_attention(model, w01=[0.1, 1.0, 10.0])
        >>> [len(found), round(float(found["s_acc"].max()), 3)]
        [48, 0.981]
    """
    subject = Subject.of(model)
    train, test = batch_of(subject, train, "train"), batch_of(subject, test)
    layer = check_layer(subject, layer)
    if (w01 is None) != (w02 is None):
        raise InterpError("w01 and w02 must both be None (no change) or both be ratios")
    fast = subject.count_space and subject.read_at != "all" and subject.decision.kind == "argmax"
    counted = [_rows(subject, batch) for batch in (train, test)] if fast else None
    tables = circuit_tables(subject) if fast else None
    labels = [reads_of(subject, batch).classes for batch in (train, test)]
    frames = []
    for pair in [None] if w01 is None or w02 is None else [(a, b) for a in _as_list(w01) for b in _as_list(w02)]:
        if counted is None or tables is None:
            (fitted, _), (tested, accuracy) = (_hooked(subject, batch, pair, tokens, layer) for batch in (train, test))
        else:
            weights = None if pair is None else token_weights(subject, *pair, attended(subject, tokens))
            fitted, tested = (_from_rows(tables, rows, weights) for rows in counted)
            parts = decompose(subject, test, subject.answer_positions(test.tokens), labels[1], tested)
            logits = parts.logits(range(parts.n_heads), with_skip=True)
            accuracy = float(correct(logits, labels[1], subject.decision).double().mean())
        singles = [(head,) for head in range(fitted.shape[1])]
        table = score_groups(fitted.numpy(), labels[0].numpy(), tested.numpy(), labels[1].numpy(), singles, C=C)
        first, second = pair or (float("nan"), float("nan"))
        found = {"head": range(len(singles)), "layer": layer, "w01": first, "w02": second, "s_acc": table["s_acc"]}
        frames.append(pd.DataFrame(found).assign(accuracy=accuracy))
    return Reweighting(pd.concat(frames, ignore_index=True), tuple(tokens or subject.task.counted))


def _as_list(value: float | Iterable[float]) -> list[float]:
    try:
        values = [float(value)] if isinstance(value, (int, float)) else [float(v) for v in value]
    except (TypeError, ValueError):
        raise InterpError(f"ratios of attention: {quoted(value)} is not a number above 0 or inf, nor several") from None
    if not values:
        raise InterpError("a sweep of attention ratios is empty; give at least one ratio")
    return values
