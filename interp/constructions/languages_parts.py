"""Weights of encoders in words: a residual stream with named components, heads and neurons that read and write them.

A combination such as {"k/n": 1, "1/n": -2} is a linear form where something reads the stream, and a vector where
something writes to it. With layer norm every component x has a twin -x, so that the mean of a row is zero and the
norm only scales it (Chiang and Cholak 2022, section 5.3): writes go to both, reads look at the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor

from interp.architecture.limits import LengthLimit
from interp.constructions.base import ConstructedWeights
from interp.constructions.registry import Construct
from interp.errors import InterpError
from interp.spec import MLP, Construction, Layer, ModelSpec, Scalar
from interp.tasks import Language

Combination = Mapping[str, int | float]


@dataclass(frozen=True)
class Stream:
    """The components of a residual stream by name; with `doubled`, each has a twin of the other sign."""

    names: tuple[str, ...]
    doubled: bool = False

    @property
    def d_model(self) -> int:
        return len(self.names) * (2 if self.doubled else 1)

    def read(self, combination: Combination) -> Float[Tensor, "d_model"]:
        """The linear form with these coefficients."""
        form = torch.zeros(self.d_model, dtype=torch.float64)
        for name, coefficient in combination.items():
            form[self.names.index(name)] = coefficient
        return form

    def write(self, combination: Combination) -> Float[Tensor, "d_model"]:
        """The vector with these components."""
        vector = self.read(combination)
        if self.doubled:
            vector[len(self.names) :] = -vector[: len(self.names)]
        return vector

    def directions(self) -> dict[str, Float[Tensor, "d_model"]]:
        """Every component as a vector."""
        return {name: self.write({name: 1.0}) for name in self.names}


@dataclass(frozen=True)
class Head:
    """Scores are the sum of query form x key form over `matches`; each of `moves` mixes one form and writes it."""

    matches: Sequence[tuple[Combination, Combination]] = ()
    moves: Sequence[tuple[Combination, Combination]] = ()


@dataclass(frozen=True)
class Neuron:
    """max(0, reads), written along `writes`. No biases: a constant is a component too, and scales with the row."""

    reads: Combination
    writes: Combination


@dataclass(frozen=True)
class Block:
    """One layer: its heads (none: it attends to nothing) and its neurons (none: no feed-forward part)."""

    heads: Sequence[Head] = ()
    neurons: Sequence[Neuron] = ()


@dataclass(frozen=True)
class LayerNorm:
    """Post-layer-norm after every part, with its eps."""

    eps: float

    def __post_init__(self) -> None:
        if not self.eps >= 0:
            raise InterpError(f"eps = {self.eps} must be at least 0")


def norm_of(layer_norm: bool, eps: float) -> LayerNorm | None:
    """The layer norm that the arguments of a construction ask for. Raises InterpError for an eps without a norm."""
    if not layer_norm and eps:
        raise InterpError(f"eps = {eps} goes with layer_norm = True, and only with it")
    return LayerNorm(float(eps)) if layer_norm else None


def everywhere(words: Sequence[str], coefficient: float) -> Combination:
    """A form that is `coefficient` in every row: each row has exactly one word."""
    return dict.fromkeys(words, coefficient)


def positive(name: str, value: float) -> float:
    """value, or an InterpError unless it is a positive number."""
    if not 0 < value < float("inf"):
        raise InterpError(f"{name} = {value!r} must be a positive number")
    return float(value)


def erasers(stream: Stream, keep: str) -> list[Neuron]:
    """Neurons that subtract every component but one: x - max(0, x) + max(0, -x) = 0, without rounding."""
    return [Neuron({name: sign}, {name: -sign}) for name in stream.names if name != keep for sign in (1.0, -1.0)]


def assemble(
    stream: Stream,
    task: Language,
    words: Mapping[str, Combination],
    blocks: Sequence[Block],
    answer: str,
    scale: float = 1.0,
    norm: LayerNorm | None = None,
) -> tuple[dict[str, Tensor], tuple[Layer, ...]]:
    """Parameters by name (float64), and the layers of the spec that they fit.

    words: what each token writes (tokens that are left out write nothing). answer: the component that the readout
    scales by `scale`. norm: then the last block also erases all but the answer, so that what is left is scaled to
    +-sqrt(d/2), or less where eps is not small against it.
    """
    if norm is not None:
        last = blocks[-1]
        blocks = [*blocks[:-1], Block(last.heads, [*last.neurons, *erasers(stream, answer)])]
        # A row of padding must not be all zero, where the norm is 0/0; nobody reads what it holds.
        words = {"[PAD]": words[task.alphabet[0]], **words}
    heads = max(1, *(len(block.heads) for block in blocks))
    width = max(max(len(head.matches), len(head.moves)) for block in blocks for head in block.heads)
    one, zero = torch.ones(stream.d_model, dtype=torch.float64), torch.zeros(stream.d_model, dtype=torch.float64)
    tensors = {"embed.W_E": torch.stack([stream.write(words.get(token, {})) for token in task.vocabulary])}
    layers = []
    for index, block in enumerate(blocks):
        at = f"blocks.{index}."
        if norm is not None:
            tensors |= {f"{at}ln1.w": one, f"{at}ln1.b": zero}
        tensors |= {f"{at}attn.{name}": value for name, value in _attention(stream, block, heads, width).items()}
        if block.neurons:
            if norm is not None:
                tensors |= {f"{at}ln2.w": one, f"{at}ln2.b": zero}
            tensors |= {f"{at}mlp.{name}": value for name, value in _neurons(stream, block).items()}
        layers.append(
            Layer(
                n_heads=heads,
                d_head=width,
                scale=1.0,
                mlp=MLP(d_mlp=len(block.neurons)) if block.neurons else None,
                norm="none" if norm is None else "post",
                norm_eps=1e-5 if norm is None else norm.eps,
            )
        )
    tensors["unembed.W_U"] = scale * stream.read({answer: 1.0})[:, None]
    return tensors, tuple(layers)


@dataclass(frozen=True)
class Proof:
    """A construction in words; `build` turns it into weights and a spec.

    positions: the formula whose code fills the first components. claim, notes, numbers: as in ConstructedWeights.
    margin: a lower bound of |answer| over all strings of up to a length. value: as in ConstructedWeights, where no norm
    scales it. longest: by dtype, as in LengthLimit.
    """

    name: str
    task: Language
    stream: Stream
    words: Mapping[str, Combination]
    blocks: Sequence[Block]
    answer: str
    positions: str
    claim: str
    margin: Callable[[int], float]
    longest: Mapping[str, int]
    notes: tuple[str, ...]
    numbers: Mapping[str, float]
    value: Callable[[Sequence[int]], float] | None = None
    variant: str = ""
    tolerance: float | None = None

    def build(
        self, arguments: Mapping[str, Scalar], output_scale: float, norm: LayerNorm | None, beyond: str
    ) -> Construct:
        """Weights, spec and task. `arguments` are what the spec's origin records."""
        name = " ".join(filter(None, (self.name, self.variant)))
        limit = LengthLimit(name, self.longest, self.task.n_marks, beyond)
        scale = positive("output_scale", output_scale)
        tensors, layers = assemble(self.stream, self.task, self.words, self.blocks, self.answer, scale, norm)
        spec = ModelSpec(
            task=self.task.ref,
            d_model=self.stream.d_model,
            direction="bidirectional",
            layers=layers,
            positions=f"{self.positions}-doubled" if self.stream.doubled else self.positions,
            readout="scalar",
            readout_bias=False,
            readout_at="[CLS]",
            decision="sigmoid" if self.tolerance is None else "indicator",
            tolerance=self.tolerance,
            dtype="float64",
            origin=Construction(name=self.name, variant=self.variant, arguments=tuple(arguments.items())),
        )
        margin, numbers = output_scale * self.margin(limit.in_dtype(torch.float64)), dict(self.numbers)
        if norm is not None:
            # What is left of a row is [0.. s 0.. -s 0..]: at eps = 0 it is scaled to +-sqrt(d/2), whatever n.
            numbers["normalized_logit"] = output_scale * sqrt(self.stream.d_model / 2)
            margin = numbers["normalized_logit"] if norm.eps == 0 else 0.0
        weights = ConstructedWeights(
            tensors, self.stream.directions(), self.claim, margin, notes=self.notes, numbers=numbers,
            value=self.value if norm is None else None, length_limit=limit,
        )  # fmt: skip
        return Construct(spec, self.task, weights)


def _attention(stream: Stream, block: Block, heads: int, width: int) -> dict[str, Tensor]:
    """Heads that a block lacks are zero: TransformerLens has one number of heads for all layers."""
    d = stream.d_model
    tensors = {name: torch.zeros(heads, d, width, dtype=torch.float64) for name in ("W_Q", "W_K", "W_V")}
    tensors["W_O"] = torch.zeros(heads, width, d, dtype=torch.float64)
    for h, head in enumerate(block.heads):
        for at, (query, key) in enumerate(head.matches):
            tensors["W_Q"][h, :, at], tensors["W_K"][h, :, at] = stream.read(query), stream.read(key)
        for at, (value, output) in enumerate(head.moves):
            tensors["W_V"][h, :, at], tensors["W_O"][h, at] = stream.read(value), stream.write(output)
    return tensors


def _neurons(stream: Stream, block: Block) -> dict[str, Tensor]:
    zeros = torch.zeros(len(block.neurons), dtype=torch.float64)
    return {
        "W_in": torch.stack([stream.read(neuron.reads) for neuron in block.neurons], 1),
        "b_in": zeros,
        "W_out": torch.stack([stream.write(neuron.writes) for neuron in block.neurons]),
        "b_out": torch.zeros(stream.d_model, dtype=torch.float64),
    }
