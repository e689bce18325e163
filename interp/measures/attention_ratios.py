"""How heads divide their attention among tokens, and what they separate if the ratios are set by hand.

Ratios of three tokens, and shares of all, are measured from the read position. Hooks set the ratios of a trained model
without changing its weights. If the spec's symmetry allows it, this is computed in count space, which equals the hooked
forward pass up to rounding and is fast enough for sweeps over the whole data set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from interp.errors import InterpError, quoted
from interp.measures.attention import attention_by_token
from interp.measures.circuits import circuit_tables
from interp.measures.heads import category, check_layer, counted_from, decompose
from interp.measures.results import Figure, Inputs, Tabular, as_batch, batch_of, draw
from interp.measures.runs import ScoreWithLoss, activations, check_answers, check_reads, pieces, reads_of
from interp.measures.seeds import Models, by_seed, subjects_of
from interp.measures.separation import score_groups
from interp.measures.survey import separation_of_each
from interp.models.architecture.answers import correct, find_positions
from interp.models.architecture.reduced import CountedRows, TokenTables, heads_from_counts
from interp.models.architecture.task_model import TaskModel
from interp.models.subject import Model, Subject
from interp.tasks import Batch


@dataclass(frozen=True, eq=False, repr=False)
class AttentionRatios(Tabular):
    """One row per head of a layer; columns head, layer, w01, w02, s_acc, category. tokens: the three tokens."""

    tokens: tuple[str, ...]

    @property
    def title(self) -> str:
        first, second, third = self.tokens
        return f"Attention to '{first}' over that to '{second}' (w01) and to '{third}' (w02), and separation accuracy"

    def plot(self) -> Figure:
        """Draw one dot per head (Figure 5 of Zsámboki et al. 2025)."""
        return draw.attention_ratios(self.table, self.tokens)


def attention_ratios(
    model: Models,
    inputs: Inputs | None = None,
    *,
    tokens: Sequence[str] | None = None,
    at: str | None = None,
    layer: int = -1,
    C: float = 1000.0,
) -> AttentionRatios:
    """Return each head's attention to one token over that to a second (w01) and a third (w02), and its s-acc.

    inputs: where the ratios are measured if they are not the same in every input (default: 200 test inputs). tokens:
    the three tokens (default: those that the task counts). at: the query token, or "first", "last" or "all" positions
    at which answers are read (default: where the task's are). C: as in head_metrics. category: successful, mixed or
    failed, by s-acc. model: or a list of models of one spec; the table has a column seed then
    (their places, if seeds are equal). Source: Zsámboki et al. 2025, section 5.3, Figure 5.

    Example:

        >>> found = interp.attention_ratios(interp.load("count01/paper"))
        >>> found.to_frame().groupby("category")["w02"].median().round(1).to_dict()
        {'failed': 0.0, 'mixed': 87.0, 'successful': 83.7}
    """
    subjects = subjects_of(model)
    subject = subjects[0]
    tokens = attended(subject, tokens)
    at = subject.read_at if at is None else at
    batch, layer = None if inputs is None else as_batch(subject, inputs), check_layer(subject, layer)
    alone = separation_of_each(subjects, batch_of(subject, None, "train"), batch_of(subject, None), C)
    tables = []
    for member, every in zip(subjects, alone):
        table = token_ratios(member, at, tokens, batch=batch, layer=layer)
        first = layer * member.model.cfg.n_heads
        s_acc = every[first : first + len(table)]
        table.insert(1, "layer", layer)
        tables.append(table.assign(s_acc=s_acc, category=[category(value) for value in s_acc]))
    return AttentionRatios(by_seed(model, subjects, tables), tuple(tokens))


def attended(subject: Subject, tokens: Sequence[str] | None) -> Sequence[str]:
    """Return the three tokens whose ratios are set: the given ones, or those that the task counts."""
    if tokens is not None and len(tokens) != 3:
        raise InterpError(f"attention ratios need three tokens, but tokens= has {len(tokens)}")
    tokens = subject.task.counted if tokens is None else tokens
    if len(tokens) != 3:
        raise InterpError(f"attention ratios need three tokens, but the task counts {len(tokens)}: pass tokens=(...)")
    return tokens


@torch.no_grad()
def token_ratios(
    model: Model, at: str = "=", tokens: Sequence[str] = ("0", "1", "2"), *, batch: Batch | None = None, layer: int = -1
) -> pd.DataFrame:
    """Return w01 and w02 of every head of a layer; columns head, w01, w02.

    If a token has the same score in every input, by its spec or to 1e-4 on a batch (default: 200 samples), the ratio is
    e^(score difference). Otherwise, for example with positions or in later layers, it is the ratio of the mean weights
    per token.
    """
    subject = Subject.of(model)
    ids = [subject.task.token_id(token) for token in tokens]
    if subject.count_space and at not in ("first", "last", "all"):
        logs = circuit_tables(subject).scores[0, :, subject.task.token_id(at)][:, ids]
    else:
        logs = _log_weights(subject, at, ids, batch, layer)
    ratios = (logs[:, :1] - logs).exp().numpy()
    return pd.DataFrame({"head": range(len(ratios)), "w01": ratios[:, 1], "w02": ratios[:, 2]})


def _log_weights(
    subject: Subject, at: str, ids: list[int], batch: Batch | None, layer: int
) -> Float[Tensor, "heads tokens"]:
    """Return the score of each token seen from `at` if it is constant in a head, otherwise ln(mean weight)."""
    batch = subject.task.sample(200, subject.task.splits[-1], seed=0) if batch is None else batch
    part = f"blocks.{layer % subject.model.cfg.n_layers}.attn."
    names = [part + "hook_pattern", part + "hook_attn_scores"]
    n_heads = subject.model.blocks[layer].attn.W_O.shape[0]
    total = torch.zeros(n_heads, len(ids), dtype=torch.float64)
    number = torch.zeros(len(ids), dtype=torch.float64)
    low = torch.full((n_heads, len(ids)), torch.inf, dtype=torch.float64)
    high, largest = -low, torch.zeros(n_heads, dtype=torch.float64)
    for _, piece in pieces(subject, batch, 2 * n_heads * batch.tokens.shape[1]):
        _, seen = activations(subject, piece, names)
        if at == "all":
            rows, position = (reads := reads_of(subject, piece)).rows, reads.positions
        else:
            rows, position = torch.arange(len(piece)), find_positions(subject.task, piece.tokens, at).cpu()
        pattern, scores = (seen[name][rows, :, position].double().cpu() for name in names)
        kinds = torch.stack([(piece.tokens.cpu() == token) & piece.attention_mask.cpu() for token in ids])[:, rows]
        if subject.model.cfg.attention_dir == "causal":  # later tokens are not seen
            kinds = kinds & (torch.arange(kinds.shape[2]) <= position[:, None])
        total += einsum(pattern, kinds.double(), "read head key, token read key -> head token")
        number += kinds.sum((1, 2))
        # Each row's scores may have another offset, so compare them relative to the first token's mean score.
        known = scores.isfinite() & kinds[:, :, None]
        first = known[0].sum(-1) > 0
        mean = torch.where(known[0], scores, 0.0).sum(-1) / known[0].sum(-1).clamp_min(1)
        relative = scores - mean[..., None]
        usable = known & first[None, :, :, None]
        low = low.minimum(torch.where(usable, relative, torch.inf).amin((1, 3)).T)
        high = high.maximum(torch.where(usable, relative, -torch.inf).amax((1, 3)).T)
        largest = largest.maximum(torch.where(scores.isfinite(), scores.abs(), 0.0).amax((0, 2)))
    spread = high - low
    constant = (spread.amax(1) <= 1e-4 * largest.clamp_min(1.0)) & (spread.isfinite() | (number == 0)).all(1)
    if raw_scores(subject):
        constant[:] = False
    return torch.where(constant[:, None], (low + high) / 2, (total / number).log())


def raw_scores(subject: Subject) -> bool:
    """Whether attention weights are raw scores, so that ratios are not e^(score difference)."""
    return isinstance(subject.model, TaskModel) and any(a.normalizer == "none" for a in subject.model.spec.layers)


@torch.no_grad()
def attention_shares(model: Model, batch: Batch) -> pd.DataFrame:
    """Return the share of each head's attention on each type of token; columns layer, head, token, share, least.

    If counts determine the weights, they are computed exactly: share is the mean over the rows and least the minimum,
    for tokens that occur up to the read position. Otherwise the rows are run: share is the mean over the types of query
    token at read positions, and least is NaN.
    """
    subject = Subject.of(model)
    words = list(subject.task.vocabulary)
    if not subject.count_space:
        table = attention_by_token(subject, batch, only_reads=True)
        table = table.groupby(["layer", "head", "key"], as_index=False, sort=False)["value"].mean()
        return table.rename(columns={"key": "token", "value": "share"}).assign(least=float("nan"))
    rows = _rows(subject, batch)
    counts = rows.counts.double()
    scores = circuit_tables(subject).scores[0][:, rows.query]  # heads rows tokens
    weights = (scores + counts.log()).softmax(-1)
    seen = counts.sum(0) > 0
    heads = range(len(weights))
    shares = [
        (0, head, words[token], float(weights[head, :, token].mean()), float(weights[head, :, token].min()))
        for head in heads
        for token in seen.nonzero()[:, 0].tolist()
    ]
    return pd.DataFrame(shares, columns=["layer", "head", "token", "share", "least"])


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
    check_reads(subject, batch)
    name, outputs, score = f"blocks.{layer}.attn.", [], ScoreWithLoss()
    for _, piece in pieces(subject, batch, 3 * batch.tokens.shape[1]):
        hooks = [] if ratios is None else [(name + "hook_pattern", attention_hook(subject, piece, *ratios, tokens))]
        out, seen = activations(subject, piece, [name + "hook_z"], hooks)
        where = reads_of(subject, piece)
        outputs.append(where.pick(seen[name + "hook_z"]).double().cpu())
        score += ScoreWithLoss.of_reads(subject, where, where.pick(out))
    return torch.cat(outputs), score.accuracy


def _rows(subject: Subject, batch: Batch) -> CountedRows:
    """Return the token counts visible from the read positions of a batch."""
    return counted_from(subject, batch, subject.answer_positions(batch.tokens))


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

    w01, w02: ratios, one or several each; None for both keeps the model's attention. Where answers are read at all
    positions, a query that sees none of the tokens with a ratio attends to nothing: its weights are 0. tokens: the
    three tokens (default: those that the task counts). layer: the layer whose attention is set and whose heads are
    measured. C: weight of errors in the separators' objective, as in head_metrics. Columns: head, layer, w01, w02,
    s_acc, accuracy (of the whole model with the intervention).

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
    counted = [_rows(subject, batch).stacked(torch.float64) for batch in (train, test)] if fast else None
    tables = circuit_tables(subject) if fast else None
    labels = [reads_of(subject, batch).classes for batch in (train, test)]
    check_answers(subject, labels[0])
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
        columns = {"head": range(len(singles)), "layer": layer, "w01": first, "w02": second, "s_acc": table["s_acc"]}
        frames.append(pd.DataFrame(columns).assign(accuracy=accuracy))
    return Reweighting(pd.concat(frames, ignore_index=True), tuple(tokens or subject.task.counted))


def _as_list(value: float | Iterable[float]) -> list[float]:
    try:
        values = [float(ratio) for ratio in (value if isinstance(value, Iterable) else [value])]
    except (TypeError, ValueError):
        raise InterpError(f"ratios of attention: {quoted(value)} is not a number above 0 or inf, nor several") from None
    if not values:
        raise InterpError("a sweep of attention ratios is empty; give at least one ratio")
    return values
