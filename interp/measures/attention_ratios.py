"""How heads divide their attention among tokens: ratios of three tokens, and shares of all, from the read position."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from interp.architecture.reduced import counted_at
from interp.errors import InterpError
from interp.measures.attention import attention_by_token
from interp.measures.circuits import circuit_tables
from interp.measures.heads import category
from interp.measures.outputs import check_layer
from interp.measures.results import Figure, Inputs, Tabular, as_batch
from interp.measures.runs import activations, data, pieces
from interp.measures.subject import Model, Subject
from interp.measures.survey import head_separation
from interp.tasks import Batch


@dataclass(frozen=True, eq=False, repr=False)
class AttentionRatios(Tabular):
    """One row per head of a layer; columns head, layer, w01, w02, s_acc, category. tokens: the three tokens."""

    tokens: tuple[str, ...]

    @property
    def title(self) -> str:
        one, two, three = self.tokens
        return f"Attention to '{one}' over that to '{two}' (w01) and to '{three}' (w02), and separation accuracy"

    def plot(self) -> Figure:
        """Draw one dot per head (Figure 5 of Zsámboki et al. 2025)."""
        from interp.report import figures as draw

        return draw.attention_ratios(self.table, self.tokens)


def attention_ratios(
    model: Model,
    inputs: Inputs | None = None,
    *,
    tokens: Sequence[str] | None = None,
    at: str | None = None,
    layer: int = -1,
    C: float = 1000.0,
) -> AttentionRatios:
    """Return each head's attention to one token over that to a second (w01) and a third (w02), and its s-acc.

    inputs: where the ratios are measured if they are not the same in every input (default: 200 test inputs). tokens:
    the three tokens (default: those that the task counts). at: the query token (default: where answers are read). C: as
    in head_metrics. category: successful, mixed or failed, by s-acc.
    Source: Zsámboki et al. 2025, section 5.3, Figure 5.

    Example:

        >>> found = interp.attention_ratios(interp.load("count01/paper"))
        >>> found.to_frame().groupby("category")["w02"].median().round(1).to_dict()
        {'failed': 0.0, 'mixed': 87.0, 'successful': 83.7}
    """
    subject = Subject.of(model)
    tokens = attended(subject, tokens)
    at = subject.read_at if at is None else at
    table = token_ratios(subject, at, tokens, batch=None if inputs is None else as_batch(subject, inputs), layer=layer)
    layer = check_layer(subject, layer)
    alone = head_separation(subject, data(subject, "train"), data(subject, "test"), C)
    per_layer = subject.model.cfg.n_heads
    s_acc = alone[layer * per_layer : layer * per_layer + len(table)]
    table.insert(1, "layer", layer)
    table = table.assign(s_acc=s_acc, category=[category(value) for value in s_acc])
    return AttentionRatios(table, tuple(tokens))


def attended(subject: Subject, tokens: Sequence[str] | None) -> Sequence[str]:
    """Return the three tokens whose ratios are set: the given ones, or those that the task counts."""
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
    if subject.count_space:
        logs = circuit_tables(subject).scores[0, :, subject.task.token_id(at)][:, ids]
    else:
        logs = _log_weights(subject, at, ids, batch, layer)
    ratios = (logs[:, :1] - logs).exp().numpy()
    return pd.DataFrame({"head": range(len(ratios)), "w01": ratios[:, 1], "w02": ratios[:, 2]})


def _log_weights(
    subject: Subject, at: str, ids: list[int], batch: Batch | None, layer: int
) -> Float[Tensor, "heads tokens"]:
    """Return the score of each token seen from `at` if it is constant in a head, otherwise ln(mean weight)."""
    from interp.architecture.answers import find_positions

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
        position = find_positions(subject.task, piece.tokens, at)
        pattern, scores = (seen[name][torch.arange(len(piece)), :, position].double().cpu() for name in names)
        kinds = torch.stack([(piece.tokens.cpu() == token) & piece.attention_mask.cpu() for token in ids])
        total += torch.einsum("bhk,tbk->ht", pattern, kinds.double())
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
    spread = (high - low).amax(1)
    constant = (spread <= 1e-4 * largest.clamp_min(1.0)) & spread.isfinite()
    if raw_scores(subject):
        constant[:] = False
    return torch.where(constant[:, None], (low + high) / 2, (total / number).log())


def raw_scores(subject: Subject) -> bool:
    """Whether attention weights are raw scores, so that ratios are not e^(score difference)."""
    from interp.architecture.task_model import TaskModel

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
    tokens, mask = batch.tokens, batch.attention_mask
    rows = counted_at(subject.task_model.spec, len(words), tokens, subject.answer_positions(tokens), mask)
    counts = rows.counts.double()
    scores = circuit_tables(subject).scores[0][:, rows.query]  # heads rows tokens
    weights = (scores + counts.log()).softmax(-1)
    seen = counts.sum(0) > 0
    heads = range(len(weights))
    found = [
        (0, head, words[token], float(weights[head, :, token].mean()), float(weights[head, :, token].min()))
        for head in heads
        for token in seen.nonzero()[:, 0].tolist()
    ]
    return pd.DataFrame(found, columns=["layer", "head", "token", "share", "least"])
