"""What every reader of other libraries' files shares: what was found, what it becomes, and taking weights by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from interp.errors import CheckpointError, InterpError, first_few, one_of, short
from interp.spec import Layer


@dataclass(frozen=True)
class Source:
    """A file, folder, state dict or module before any reader interprets it.

    where: its name in sentences. tensors: its weights by name, as saved. config: the settings saved with it
    (config.json, model_args, a module's config), empty if there are none. vocabulary: token strings to ids, from
    tokenizer.json or vocab.json. module: the original model, when that is what was given.
    """

    where: str
    tensors: Mapping[str, Tensor]
    config: Mapping[str, Any] = field(default_factory=dict)
    vocabulary: Mapping[str, int] | None = None
    module: nn.Module | None = None

    def any_name(self, *endings: str) -> bool:
        """Does any tensor's name end with one of these?"""
        return any(name.endswith(endings) for name in self.tensors)


@dataclass(frozen=True)
class Layers:
    """Blocks that no TransformerLens config expresses, as the fields of a ModelSpec, with weights under our names."""

    d_model: int
    layers: tuple[Layer, ...]
    causal: bool
    final_norm: bool
    max_length: int | None
    """Rows of the table of positions; None if the model has no positions."""


@dataclass(frozen=True)
class Reading:
    """A model that a reader understood.

    format: what the file is, in words. fields: the TransformerLens config. tensors: the weights under TransformerLens
    names. blocks: set instead of fields where only a spec expresses the model. vocabulary: token strings to ids.
    notes: what the reader assumed, one sentence each. original: the other library's own logits for token ids, (rows,
    length) to (rows, length, n_out), where that library is installed.
    """

    format: str
    fields: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    blocks: Layers | None = None
    vocabulary: Mapping[str, int] | None = None
    notes: tuple[str, ...] = ()
    original: Callable[[Tensor], Tensor] | None = None

    @property
    def n_parameters(self) -> int:
        return sum(tensor.numel() for tensor in self.tensors.values())


@dataclass(frozen=True)
class Reader:
    """One format: recognizes(source) says whether it is this one, read(source, given) converts it.

    given: settings that the user adds because the file lacks them; `settings` names those that the reader takes, with
    what each means. Readers are tried in order of `order`.
    """

    name: str
    recognizes: Callable[[Source], bool]
    read: Callable[[Source, Mapping[str, Any]], Reading]
    settings: Mapping[str, str] = field(default_factory=dict)
    order: int = 50

    def check_given(self, given: Mapping[str, Any]) -> None:
        """Raise InterpError for a setting that this reader does not take."""
        for name in given:
            if name not in self.settings:
                raise InterpError(one_of(f"setting of a {self.name} file", name, self.settings))


class Weights:
    """Named tensors that a reader takes one by one, so that missing and left-over ones are found."""

    def __init__(self, source: Source, prefix: str = "") -> None:
        self.where, self.prefix = source.where, prefix
        self.left = dict(source.tensors)

    def take(self, name: str, *shape: int | None) -> Tensor:
        """The tensor of this name, which must have this shape (None: any size). Raises CheckpointError."""
        full = self.prefix + name
        if full not in self.left:
            raise CheckpointError(f"{self.where} lacks the tensor {full}")
        tensor = self.left.pop(full)
        if not tensor.is_floating_point():
            raise CheckpointError(f"{self.where}: {full} has dtype {tensor.dtype}; weights are floating-point numbers")
        fits = len(tensor.shape) == len(shape) and all(b is None or a == b for a, b in zip(tensor.shape, shape))
        if shape and not fits:
            wanted = tuple("any" if size is None else size for size in shape)
            raise CheckpointError(f"{self.where}: {full} has shape {tuple(tensor.shape)}; its config asks for {wanted}")
        return tensor

    def maybe(self, name: str, *shape: int) -> Tensor:
        """The tensor of this name, or zeros of this shape where the file has none."""
        return self.take(name, *shape) if self.prefix + name in self.left else torch.zeros(shape)

    def has(self, name: str) -> bool:
        return self.prefix + name in self.left

    def finish(self, *ignored: str) -> None:
        """Raise CheckpointError for tensors that nobody took; `ignored` are endings of names that hold no weights."""
        if extra := [name for name in self.left if not name.endswith(ignored)]:
            raise CheckpointError(f"{self.where} has tensors for which this format has no place: {first_few(extra)}")


class Config:
    """The settings of a file, read with their types checked."""

    def __init__(self, where: str, fields: Mapping[str, Any]) -> None:
        self.where, self.fields = where, fields

    def size(self, *names: str, default: int | None = None) -> int:
        """A positive integer under the first of these names that is set. Raises CheckpointError."""
        for name in names:
            value = self.fields.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**7:
                raise CheckpointError(f"{self.where}: {name} = {short(value)} must be a positive integer")
            return value
        if default is None:
            raise CheckpointError(f"{self.where}: its config lacks {names[0]}")
        return default

    def number(self, *names: str, default: float) -> float:
        """A positive finite number under the first of these names that is set. Raises CheckpointError."""
        for name in names:
            value = self.fields.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e30:
                raise CheckpointError(f"{self.where}: {name} = {short(value)} must be a positive number")
            return float(value)
        return default

    def flag(self, name: str, default: bool) -> bool:
        value = self.fields.get(name, default)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise CheckpointError(f"{self.where}: {name} = {short(value)} must be true or false")
        return value

    def word(self, *names: str, default: str) -> str:
        for name in names:
            value = self.fields.get(name)
            if value is not None:
                if not isinstance(value, str):
                    raise CheckpointError(f"{self.where}: {name} = {short(value)} must be a word")
                return value
        return default

    def refuse(self, **unset: Any) -> None:
        """Raise CheckpointError where a field is set to anything but its neutral value."""
        for name, neutral in unset.items():
            value = self.fields.get(name, neutral)
            if value not in (neutral, None):
                raise CheckpointError(
                    f"{self.where}: {name} = {short(value)} cannot be expressed; only {name} = {neutral} can"
                )


ACTIVATIONS = {
    "relu": "relu", "gelu": "gelu", "gelu_python": "gelu", "gelu_new": "gelu_new", "gelu_fast": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new", "silu": "silu", "swish": "silu",
}  # fmt: skip
"""Names of activations in other libraries, and TransformerLens's."""


def activation(where: str, word: str) -> str:
    """TransformerLens's name of an activation. Raises CheckpointError for one that it does not have."""
    if word not in ACTIVATIONS:
        raise CheckpointError(f"{where}: {one_of('activation', word, ACTIVATIONS)}")
    return ACTIVATIONS[word]


def head_size(where: str, d_model: int, n_heads: int) -> int:
    """d_model / n_heads. Raises CheckpointError if the heads do not divide it."""
    if d_model % n_heads:
        raise CheckpointError(f"{where}: {n_heads} heads do not divide a width of {d_model}")
    return d_model // n_heads


def split_heads(matrix: Tensor, n_heads: int) -> Tensor:
    """A linear layer's (heads * d_head, d_model) weight as (heads, d_model, d_head)."""
    return matrix.reshape(n_heads, -1, matrix.shape[-1]).transpose(1, 2)


def join_heads(matrix: Tensor, n_heads: int) -> Tensor:
    """An output layer's (d_model, heads * d_head) weight as (heads, d_head, d_model)."""
    return matrix.T.reshape(n_heads, -1, matrix.shape[0])


CLASSIFIERS = ("score", "classifier")
"""Names of classification heads: a matrix (n_labels, d_model), with a bias or without."""


def unembedding(weights: Weights, embedding: Tensor, head: str, tied: bool) -> dict[str, Tensor]:
    """The readout: a classification head if there is one, else the vocabulary's, else the embedding transposed.

    A bare model without any head (AutoModel) is read as tied only where its config says so.
    """
    width = embedding.shape[1]
    for name in (*CLASSIFIERS, head):
        for prefix in ("", weights.prefix):
            full = f"{prefix}{name}.weight"
            if full in weights.left:
                matrix = weights.left.pop(full)
                bias = weights.left.pop(f"{prefix}{name}.bias", torch.zeros(len(matrix)))
                if matrix.ndim != 2 or matrix.shape[1] != width or bias.shape != matrix.shape[:1]:
                    raise CheckpointError(f"{weights.where}: {full} has shape {tuple(matrix.shape)}; width is {width}")
                return {"unembed.W_U": matrix.T, "unembed.b_U": bias}
    if not tied:
        raise CheckpointError(
            f"{weights.where} has no output layer ({head}.weight, score.weight or classifier.weight) and its config "
            "does not tie it to the embedding: save the model with its head"
        )
    return {"unembed.W_U": embedding.T, "unembed.b_U": torch.zeros(len(embedding))}
