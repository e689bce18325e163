"""The forward pass of a bidirectional encoder on distinct rows with counts, for many models at once.

Positions with equal tokens and position codes have equal residual streams in every layer (spec.symmetry =
"position_codes" or "distinct_tokens"). So each distinct row is computed once, and a row that occurs c times has scores
s + ln c before the softmax. With the code I[i = 1], a binary string of any length has at most four rows: [CLS], its
first symbol, and the two symbols elsewhere. With the code i/n, every position is a distinct row. In the last layer,
only the read row is a query. Tensors have a leading axis of models. Logits and gradients equal those of sequence.py,
which this module uses, up to rounding. It works without transformer_lens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import InterpError
from interp.models.architecture.formulas import position_codes
from interp.models.architecture.sequence import sequence_logits
from interp.models.spec import RELATIVE_POSITIONS, ModelSpec
from interp.tasks import Batch, Task
from interp.tasks.batch import find_positions


def encoder_refusal(spec: ModelSpec) -> str | None:
    """Return the reason why a spec has no forward pass on distinct rows, or None."""
    if spec.direction != "bidirectional" or spec.readout_at == "all" or not spec.linear_readout:
        return "distinct rows need a bidirectional model that is read at one position by a linear readout"
    if spec.positions in RELATIVE_POSITIONS:
        return f"{spec.positions} positions act on pairs of positions, so equal tokens have different rows"
    if spec.positions == "learned":
        return "learned positions have no formula: the code of every position is trained"
    for layer in spec.layers:
        if layer.mixing != "dot" or layer.normalizer != "softmax" or layer.query_key != "learned":
            return "distinct rows need softmax attention with learned queries and keys"
        if layer.value_output != "learned":
            return "distinct rows need learned values"
    return None


@dataclass(frozen=True)
class DistinctRows:
    """Strings as distinct rows. The leading axis is models, or 1 if all models get the same strings.

    codes: index of each row's position code in `table`. counts: how often a row occurs in its string; 0 for padding.
    read: the row at which the answer is read. lengths: number of tokens per string.
    """

    tokens: Int[Tensor, "models strings rows"]
    codes: Int[Tensor, "models strings rows"]
    counts: Float[Tensor, "models strings rows"]
    read: Int[Tensor, "models strings"]
    lengths: Float[Tensor, "models strings"]
    table: Float[Tensor, "codes d_model"]

    def to(self, device: str | torch.device, dtype: torch.dtype) -> DistinctRows:
        numbers = {name: getattr(self, name).to(device, dtype) for name in ("counts", "lengths", "table")}
        return replace(
            self, tokens=self.tokens.to(device), codes=self.codes.to(device), read=self.read.to(device), **numbers
        )

    def view(self, *shape: int) -> DistinctRows:
        """Reshape the leading axes, for example to (models, strings per model)."""
        wide = {name: getattr(self, name).view(*shape, -1) for name in ("tokens", "codes", "counts")}
        return replace(self, read=self.read.view(shape), lengths=self.lengths.view(shape), **wide)

    def __getitem__(self, strings: slice) -> DistinctRows:
        """A slice of every model's strings, cut to the largest number of rows; padding rows are at the end."""
        counts = self.counts[:, strings]
        width = int((counts > 0).sum(-1).max()) if counts.numel() else 0
        kept = {name: getattr(self, name)[:, strings, :width] for name in ("tokens", "codes", "counts")}
        return replace(self, read=self.read[:, strings], lengths=self.lengths[:, strings], **kept)


def distinct_rows(spec: ModelSpec, task: Task, batch: Batch) -> DistinctRows:
    """Find the distinct (token, position code) pairs of each string of a batch; the result's leading axis has size 1.

    Raises InterpError for a spec without a forward pass on distinct rows.
    """
    if (reason := encoder_refusal(spec)) is not None:
        raise InterpError(f"{spec.id}: {reason}")
    read = find_positions(task, batch.tokens, spec.readout_at)
    index, table, repeats = _code_indices(spec, batch)
    lengths, mask = batch.lengths.double()[None], batch.attention_mask
    if not repeats:  # every position is a distinct row
        return DistinctRows(batch.tokens[None], index[None], mask.double()[None], read[None], lengths, table)
    keys = batch.tokens * len(table) + index
    counts = torch.zeros(len(batch), task.d_vocab * len(table), dtype=torch.float64)
    counts.scatter_add_(1, keys, mask.double())
    width = int((counts > 0).sum(1).max()) if len(batch) else 0
    chosen = (counts > 0).int().argsort(dim=1, descending=True, stable=True)[:, :width]
    return DistinctRows(
        tokens=(chosen // len(table))[None],
        codes=(chosen % len(table))[None],
        counts=counts.gather(1, chosen)[None],
        read=(chosen == keys.gather(1, read[:, None])).int().argmax(1)[None],
        lengths=lengths,
        table=table,
    )


def _code_indices(
    spec: ModelSpec, batch: Batch
) -> tuple[Int[Tensor, "strings width"], Float[Tensor, "codes d_model"], bool]:
    """Return each position's code index, the table of codes for all lengths, and whether any string repeats a code."""
    index = torch.zeros_like(batch.tokens)
    if spec.positions == "none":
        return index, torch.zeros(1, spec.d_model, dtype=torch.float64), True
    tables, start, repeats = [], 0, False
    for n in batch.lengths.unique().tolist():
        table, of = _position_codes(spec.positions, n, spec.d_model)
        mine = (batch.lengths == n).nonzero()[:, 0]
        index[mine[:, None], torch.arange(n)] = of + start
        tables.append(table)
        start += len(table)
        repeats = repeats or len(table) < n
    codes = torch.cat(tables)
    if not repeats:
        return index, codes, False
    codes, merged = codes.unique(dim=0, return_inverse=True)
    return merged[index], codes, True


@lru_cache(maxsize=4096)
def _position_codes(name: str, n: int, d_model: int) -> tuple[Tensor, Tensor]:
    return position_codes(name, n, d_model)


def encoder_logits(
    spec: ModelSpec, tensors: Mapping[str, Tensor], rows: DistinctRows
) -> Float[Tensor, "models strings n_out"]:
    """Compute logits at the read positions. Every tensor has a leading axis of models."""
    inputs = {"tokens": rows.tokens, "codes": rows.table[rows.codes], "at": rows.read[..., None],
              "weight": rows.counts.log(), "length": rows.lengths}  # fmt: skip
    return sequence_logits(spec, tensors, inputs)[:, :, 0]
