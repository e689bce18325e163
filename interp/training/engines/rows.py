"""One-layer models on the rows that differ, many models at once: what the stacked engine trains on.

Without positions equal tokens of a sequence have equal outputs (spec.symmetry = "distinct_tokens"), so a row is a
distinct token of a sequence; where mixing is linear ("slots") a row is a position. Either way an output is a function
of the row's coefficients over the vocabulary: how much of each token's value is mixed in. So one table of all tokens'
values, already multiplied by the readout's first matrix, is made per step, and no position ever meets a d_model x p
product. All tensors carry a leading axis of models; losses and gradients equal the sequence model's to rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from interp.spec import ModelSpec
from interp.tasks import IGNORED, Batch, Task


def rows_refusal(spec: ModelSpec) -> str | None:
    """Why this spec has no forward pass on rows of coefficients, or None."""
    layer = spec.layers[0]
    if spec.symmetry not in ("distinct_tokens", "slots") or len(spec.layers) != 1:
        return f"rows are built for one bidirectional layer without positions, not for symmetry {spec.symmetry!r}"
    if layer.mlp is not None or layer.norm == "post" or layer.log_length != "none":
        return "rows are built without MLP block, post-layer-norm and log-length scaling"
    if spec.final_norm != "none":
        return "rows are built without a final layer norm"
    return None


@dataclass(frozen=True)
class Rows:
    """The rows of an epoch, step by step, padded to the widest step; padding has no weight.

    tokens: of the sequences, padded with sequences of token 0. mask: which positions are tokens. query, sequence: a
    row's own token and its sequence in the step. position: where it stands (slots only). target: how many positions
    of the row have each class. A step's rows are rows[step].
    """

    tokens: Int[Tensor, "*steps models batch length"]
    mask: Float[Tensor, "*steps models batch length"]
    query: Int[Tensor, "*steps models rows"]
    sequence: Int[Tensor, "*steps models rows"]
    position: Int[Tensor, "*steps models rows"]
    target: Float[Tensor, "*steps models rows n_out"]

    def __getitem__(self, step: int) -> Rows:
        return Rows(*(getattr(self, name)[step] for name in self.__dataclass_fields__))

    def to(self, device: torch.device, dtype: torch.dtype) -> Rows:
        fields = {name: getattr(self, name).to(device) for name in self.__dataclass_fields__}
        return Rows(**{name: t.to(dtype) if t.is_floating_point() else t for name, t in fields.items()})


def rows_of(spec: ModelSpec, task: Task, n_out: int, batches: Sequence[Batch], batch_size: int) -> Rows:
    """The rows of an epoch of each model; every batch holds one model's sequences in the order of training."""
    n, steps = len(batches[0]), -(-len(batches[0]) // batch_size)
    parts = [_rows_of_one(spec, task, n_out, batch, batch_size) for batch in batches]
    width = max(int(part["width"]) for part in parts)

    def by_step(values: Tensor) -> Tensor:
        """(sequences, ...) -> (steps, batch, ...), with zeros after the last sequence."""
        filled = values.new_zeros(steps * batch_size, *values.shape[1:])
        filled[:n] = values
        return filled.unflatten(0, (steps, batch_size))

    def padded(part: Mapping[str, Tensor], name: str) -> Tensor:
        """(all rows, ...) -> (steps, width, ...)."""
        values = part[name]
        filled = values.new_zeros(steps, width, *values.shape[1:])
        filled[part["step"], part["place"]] = values
        return filled

    return Rows(
        tokens=torch.stack([by_step(batch.tokens) for batch in batches], 1),
        mask=torch.stack([by_step(batch.attention_mask.float()) for batch in batches], 1),
        query=torch.stack([padded(part, "query") for part in parts], 1),
        sequence=torch.stack([padded(part, "sequence") for part in parts], 1),
        position=torch.stack([padded(part, "position") for part in parts], 1),
        target=torch.stack([padded(part, "target") for part in parts], 1),
    )


def _rows_of_one(spec: ModelSpec, task: Task, n_out: int, batch: Batch, batch_size: int) -> dict[str, Tensor]:
    """All rows of one model's epoch, in the order of their sequences, with the step and the place in it of each."""
    classes = task.classes(batch).long()
    sequence, position = (classes != IGNORED).nonzero(as_tuple=True)
    token, kind = batch.tokens[sequence, position], classes[sequence, position]
    # Equal keys, equal rows: the token in its sequence, or the position in its sequence.
    length = batch.tokens.shape[1]
    key = sequence * length + position if spec.symmetry == "slots" else sequence * task.d_vocab + token
    keys, row = key.unique(return_inverse=True)
    target = torch.zeros(len(keys), n_out)
    target.index_put_((row, kind), torch.ones(len(row)), accumulate=True)
    of_row = torch.empty(len(keys), dtype=torch.long)
    of_row[row] = torch.arange(len(row))  # one position that stands for the row
    step = sequence[of_row] // batch_size
    sizes = torch.bincount(step)
    place = torch.arange(len(keys)) - (sizes.cumsum(0) - sizes)[step]
    return {
        "width": sizes.max(), "step": step, "place": place, "query": token[of_row],
        "sequence": sequence[of_row] % batch_size, "position": position[of_row], "target": target,
    }  # fmt: skip


# ---------------------------------------------------------------- the forward pass


def losses(spec: ModelSpec, tensors: Mapping[str, Tensor], rows: Rows) -> Float[Tensor, "models"]:
    """The mean cross-entropy of each model over the positions that are read in one step (nats)."""
    log_probabilities = logits(spec, tensors, rows).log_softmax(-1)
    return -(rows.target * log_probabilities).sum((1, 2)) / rows.target.sum((1, 2))


def logits(spec: ModelSpec, tensors: Mapping[str, Tensor], rows: Rows) -> Float[Tensor, "models rows n_out"]:
    """Logits of every row of one step."""
    first = "unembed.W_in" if spec.readout == "relu_mlp" else "unembed.W_U"
    inner = _normed(spec, tensors)
    own = functional.one_hot(rows.query, inner.shape[1]).to(inner.dtype)
    mixed = _coefficients(spec, tensors, inner, own, rows)  # (models, heads, rows, vocabulary)
    table, by_head = _values(spec, tensors, inner, tensors[first])
    if by_head is None:  # every head mixes the residual stream itself
        hidden = (own + mixed.sum(1)) @ table
    else:
        hidden = own @ table + (mixed @ by_head).sum(1)
    bias = tensors.get("unembed.b_in" if spec.readout == "relu_mlp" else "unembed.b_U")
    if "blocks.0.attn.b_O" in tensors:
        written = (tensors["blocks.0.attn.b_O"][:, None] @ tensors[first])[:, 0]
        bias = written if bias is None else bias + written
    if bias is not None:
        hidden = hidden + bias[:, None]
    if spec.readout != "relu_mlp":
        return hidden
    return hidden.relu() @ tensors["unembed.W_out"] + tensors["unembed.b_out"][:, None]


def _normed(spec: ModelSpec, tensors: Mapping[str, Tensor]) -> Float[Tensor, "models vocabulary d_model"]:
    """What attention sees of each token."""
    x, layer = tensors["embed.W_E"], spec.layers[0]
    if layer.norm == "none":
        return x
    normed = functional.layer_norm(x, x.shape[-1:], eps=layer.norm_eps)
    return normed * tensors["blocks.0.ln1.w"][:, None] + tensors["blocks.0.ln1.b"][:, None]


def _project(tensors: Mapping[str, Tensor], inner: Tensor, name: str) -> Tensor:
    """(models, heads or 1, vocabulary, d_head)"""
    weight, bias = tensors.get(f"blocks.0.attn.W_{name}"), tensors.get(f"blocks.0.attn.b_{name}")
    projected = inner[:, None] if weight is None else inner[:, None] @ weight
    return projected if bias is None else projected + bias[:, :, None]


def _coefficients(
    spec: ModelSpec, tensors: Mapping[str, Tensor], inner: Tensor, own: Tensor, rows: Rows
) -> Float[Tensor, "models heads rows vocabulary"]:
    """How much of each token's value each head mixes into each row."""
    layer, vocabulary = spec.layers[0], inner.shape[1]
    softmax = layer.normalizer == "softmax"
    if layer.mixing == "linear":
        pattern = tensors["blocks.0.attn.W_mix"]
        pattern = pattern.softmax(-1) if softmax else pattern
        present = functional.one_hot(rows.tokens, vocabulary).to(inner.dtype)  # (models, batch, length, vocabulary)
        mixed = pattern[:, None] @ present[:, :, None]  # (models, batch, heads, length, vocabulary)
        models = torch.arange(len(mixed), device=mixed.device)[:, None]
        return mixed[models, rows.sequence, :, rows.position].transpose(1, 2)
    counts = inner.new_zeros(*rows.tokens.shape[:2], vocabulary).scatter_add_(2, rows.tokens, rows.mask)
    keys = counts.gather(1, rows.sequence[..., None].expand(-1, -1, vocabulary))[:, None]
    table = _project(tensors, inner, "Q") @ _project(tensors, inner, "K").mT * layer.factor(spec.d_model)
    scores = own[:, None] @ table
    return (scores + keys.log()).softmax(-1) if softmax else scores * keys


def _values(
    spec: ModelSpec, tensors: Mapping[str, Tensor], inner: Tensor, first: Tensor
) -> tuple[Tensor, Tensor | None]:
    """What a token itself adds to the readout's first products, and what each head adds per unit of its value."""
    table = tensors["embed.W_E"] @ first
    if spec.layers[0].value_output == "identity" and spec.layers[0].norm == "none":
        return table, None
    out = tensors.get("blocks.0.attn.W_O")
    readout = first[:, None] if out is None else out @ first[:, None]
    return table, _project(tensors, inner, "V") @ readout
