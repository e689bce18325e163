"""Base classes of all readers: sources, readings, and access to named weights and settings."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from interp.errors import CheckpointError, first_few, one_of, short
from interp.models.spec import Layer


@dataclass(frozen=True)
class Source:
    """A file, folder, state dict or module before a reader interprets it.

    where: its name in messages. tensors: its weights by name, as saved. config: its settings (config.json, model_args,
    a module's config), possibly empty. vocabulary: token strings to ids, from tokenizer.json or vocab.json. module: the
    original model, if one was given, or the only part that it holds. original: the module that was given.
    """

    where: str
    tensors: Mapping[str, Tensor]
    config: Mapping[str, Any] = field(default_factory=dict)
    vocabulary: Mapping[str, int] | None = None
    module: nn.Module | None = None
    original: nn.Module | None = None

    def any_name(self, *endings: str) -> bool:
        """Test whether any tensor's name ends with one of these."""
        return any(name.endswith(endings) for name in self.tensors)


@dataclass(frozen=True)
class Layers:
    """Blocks that a TransformerLens config cannot express: fields of a ModelSpec, and weights under interp's names."""

    layers: tuple[Layer, ...]
    causal: bool
    final_norm: bool
    max_length: int | None
    """Number of learned positions; None if the model has none."""


@dataclass(frozen=True)
class Conversion:
    """A model as converted by a reader.

    format: the file format, in words. fields: the TransformerLens config. tensors: the weights under TransformerLens
    names. blocks: used instead of fields if only a spec can express the model. vocabulary: token strings to ids. notes:
    the reader's assumptions, one sentence each. facts: what holds of the file in any case. original: builds the other
    library's model, from token ids (rows, length) to logits (rows, length, n_out), if that library is installed.
    module: the model that was given. scored: whether the output layer is a classification head (score.weight), which
    transformers reads at a row's last token; skipped: the token that it skips there. bare: whether the embedding was
    taken as the output layer, of which the source has no word.
    """

    format: str
    fields: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    blocks: Layers | None = None
    vocabulary: Mapping[str, int] | None = None
    notes: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    original: Callable[[], nn.Module] | None = None
    module: nn.Module | None = None
    scored: bool = False
    skipped: int | None = None
    bare: bool = False

    @property
    def n_parameters(self) -> int:
        return sum(t.numel() for name, t in self.tensors.items() if not name.endswith(("rotary_sin", "rotary_cos")))


@dataclass(frozen=True)
class Reader:
    """A reader of one format: recognizes(source) checks the format, read(source, given) converts it.

    given: settings from the user that the file lacks; `settings` lists the supported ones with their meanings. Readers
    are tried by increasing `order`.
    """

    name: str
    recognizes: Callable[[Source], bool]
    read: Callable[[Source, Mapping[str, Any]], Conversion]
    settings: Mapping[str, str] = field(default_factory=dict)
    order: int = 50


class NamedTensors:
    """Named tensors, taken one by one, so that missing and unused ones are detected."""

    def __init__(self, source: Source, prefix: str = "") -> None:
        self.where, self.prefix = source.where, prefix
        self.left = dict(source.tensors)

    def take(self, name: str, *shape: int | None) -> Tensor:
        """Return and remove a tensor. Raises CheckpointError if it is missing or has another shape (None: any size)."""
        full = self.prefix + name
        if full not in self.left:
            raise CheckpointError(f"{self.where} lacks the tensor {full}")
        tensor = self.left.pop(full)
        if not tensor.is_floating_point():
            raise CheckpointError(f"{self.where}: {full} has dtype {tensor.dtype}; weights are floating-point numbers")
        fits = len(tensor.shape) == len(shape) and all(b is None or a == b for a, b in zip(tensor.shape, shape))
        if shape and not fits:
            wanted = tuple("any" if size is None else size for size in shape)
            raise CheckpointError(f"{self.where}: {full} has shape {tuple(tensor.shape)}; its config requires {wanted}")
        return tensor

    def maybe(self, name: str, *shape: int) -> Tensor:
        """Return and remove a tensor, or return zeros of this shape if it is missing."""
        return self.take(name, *shape) if self.prefix + name in self.left else torch.zeros(shape)

    def has(self, name: str) -> bool:
        return self.prefix + name in self.left

    def finish(self, *ignored: str) -> None:
        """Raise CheckpointError for unused tensors, except for names with the endings `ignored`."""
        if extra := [name for name in self.left if not name.endswith(ignored)]:
            raise CheckpointError(f"{self.where} has tensors that do not belong to this format: {first_few(extra)}")


class Config:
    """The settings of a file, with type checks. assumed: the defaults that were taken so far, by name."""

    def __init__(self, where: str, fields: Mapping[str, Any]) -> None:
        self.where, self.fields = where, fields
        self.assumed: dict[str, Any] = {}

    def _first(self, names: tuple[str, ...], default: Any, fits: Callable[[Any], bool], kind: str) -> Any:
        """Return the first of these settings that is set. Raises CheckpointError unless it is of this kind."""
        for name in names:
            if (value := self.fields.get(name)) is not None:
                if not fits(value):
                    raise CheckpointError(f"{self.where}: {name} = {short(value)} must be {kind}")
                return value
        self.assumed[names[0]] = default
        return default

    def size(self, *names: str, default: int | None = None) -> int:
        size = self._first(names, default, lambda v: type(v) is int and 1 <= v <= 10**7, "a positive integer")
        if size is None:
            raise CheckpointError(f"{self.where}: its config lacks {names[0]}")
        return int(size)

    def number(self, *names: str, default: float) -> float:
        return float(
            self._first(names, default, lambda v: type(v) in (int, float) and 0 < v < 1e30, "a positive number")
        )

    def flag(self, name: str, default: bool) -> bool:
        return bool(self._first((name,), default, lambda v: isinstance(v, bool), "true or false"))

    def word(self, *names: str, default: str) -> str:
        return str(self._first(names, default, lambda v: isinstance(v, str), "a word"))

    def refuse(self, **unset: Any) -> None:
        """Raise CheckpointError if a field has any value except its neutral one."""
        for name, neutral in unset.items():
            value = self.fields.get(name, neutral)
            if value not in (neutral, None):
                raise CheckpointError(
                    f"{self.where}: {name} = {short(value)} is not supported, only {name} = {neutral}"
                )


_WEIGHT = re.compile(r"(?<![a-zA-Z])[Ww](eight)?(?=(_\w+)?$)")
"""The part of a tensor's name by which a weight differs from its bias: W_in, ln1.w, c_fc.weight, in_proj_weight."""
_LAYER = re.compile(r"(?<=\.)\d+(?=\..+\.)")


def check_biases(source: Source) -> None:
    """Raise CheckpointError if some layers lack a bias that other layers have: the file is not whole."""
    names = set(source.tensors)
    known = {_LAYER.sub("*", name, count=1) for name in names}
    biases = [_WEIGHT.sub(lambda match: "bias" if match[1] else "b", name) for name in source.tensors]
    lacking = [name for name in biases if name not in names and _LAYER.sub("*", name, count=1) in known]
    if lacking:
        raise CheckpointError(f"{source.where} lacks biases that it has in other layers: {first_few(lacking)}")


def no_biases(source: Source, *endings: str) -> tuple[str, ...]:
    """Say which of these biases, by the endings of their names, a source lacks in all layers."""
    lacking = [ending for ending in endings if not source.any_name(ending)]
    return (f"There are no biases {', '.join(lacking)}: they are taken as 0.",) if lacking else ()


NO_FACTOR = "The first block is assumed to read the embedding plus positions, without a factor or a norm."
"""What no setting says of formats whose files hold tensors alone."""

ACTIVATIONS = {
    "relu": "relu", "gelu": "gelu", "gelu_python": "gelu", "gelu_new": "gelu_new", "gelu_fast": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new", "silu": "silu", "swish": "silu",
}  # fmt: skip
"""Names of activations in other libraries, with TransformerLens's names."""


def activation(where: str, word: str) -> str:
    """Return TransformerLens's name of an activation. Raises CheckpointError for unknown activations."""
    if word not in ACTIVATIONS:
        raise CheckpointError(f"{where}: {one_of('activation', word, ACTIVATIONS)}")
    return ACTIVATIONS[word]


def head_size(where: str, d_model: int, n_heads: int) -> int:
    """Return d_model / n_heads. Raises CheckpointError if it is not an integer."""
    if d_model % n_heads:
        raise CheckpointError(f"{where}: {n_heads} heads do not divide a width of {d_model}")
    return d_model // n_heads


def split_heads(matrix: Tensor, n_heads: int) -> Tensor:
    """Reshape a linear layer's weight (heads * d_head, d_model) to (heads, d_model, d_head)."""
    return matrix.reshape(n_heads, -1, matrix.shape[-1]).transpose(1, 2)


def join_heads(matrix: Tensor, n_heads: int) -> Tensor:
    """Reshape an output layer's weight (d_model, heads * d_head) to (heads, d_head, d_model)."""
    return matrix.T.reshape(n_heads, -1, matrix.shape[0])


CLASSIFIERS = ("score", "classifier")
"""Names of classification heads: a matrix (n_labels, d_model), with a bias or without."""


def unembedding(weights: NamedTensors, embedding: Tensor, head: str, tied: bool) -> dict[str, Tensor]:
    """Return the readout: a classification head, the output layer over the vocabulary, or the transposed embedding.

    A bare model without a head (AutoModel) counts as tied only if its config says so.
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
            "does not tie it to the embedding; save the model with its head"
        )
    return {"unembed.W_U": embedding.T, "unembed.b_U": torch.zeros(len(embedding))}
