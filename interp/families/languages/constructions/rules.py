"""Write encoder weights symbolically: a residual stream with named components, and heads and neurons that use them.

A combination such as {"k/n": 1, "1/n": -2} is a linear form when reading the stream, and a vector when writing to it.
With layer norm, every component x has a twin -x, so that the mean over the components is zero and the norm only scales
them (Chiang and Cholak 2022, section 5.3). Every write goes to both twins, and reads use only the first.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import InterpError
from interp.families.languages.tasks.language import Language
from interp.models.architecture.limits import LengthLimit
from interp.models.constructions import Construct, ConstructedWeights
from interp.models.spec import MLP, Layer, Scalar

Combination = Mapping[str, int | float]


@dataclass(frozen=True)
class Stream:
    """The named components of a residual stream; with `doubled`, each has a twin with the opposite sign."""

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
class HeadRule:
    """A head. Its score is the sum over `matches` of query form times key form.

    moves: pairs of a form that is averaged over the keys and a vector along which the average is written.
    """

    matches: Sequence[tuple[Combination, Combination]] = ()
    moves: Sequence[tuple[Combination, Combination]] = ()


@dataclass(frozen=True)
class NeuronRule:
    """A neuron: max(0, reads), written along `writes`. Instead of a bias it reads a constant component."""

    reads: Combination
    writes: Combination


@dataclass(frozen=True)
class Block:
    """One layer. Without heads, attention adds nothing; without neurons, there is no MLP."""

    heads: Sequence[HeadRule] = ()
    neurons: Sequence[NeuronRule] = ()


@dataclass(frozen=True)
class PostNorm:
    """Post-layer-norm after attention and MLP, with its eps."""

    eps: float

    def __post_init__(self) -> None:
        if not self.eps >= 0:
            raise InterpError(f"eps = {self.eps} must be at least 0")


def norm_of(layer_norm: bool, eps: float) -> PostNorm | None:
    """The layer norm for a construction's arguments. Raises InterpError for an eps without a norm."""
    if not layer_norm and eps:
        raise InterpError(f"eps = {eps} requires layer_norm = True")
    return PostNorm(float(eps)) if layer_norm else None


def everywhere(words: Sequence[str], coefficient: float) -> Combination:
    """Return a form that equals `coefficient` at every position, because each position has exactly one of the words."""
    return dict.fromkeys(words, coefficient)


def positive(name: str, value: float) -> float:
    """Return the value. Raises InterpError unless it is a positive number."""
    if not 0 < value < float("inf"):
        raise InterpError(f"{name} = {value!r} must be a positive number")
    return float(value)


def erasers(stream: Stream, keep: str) -> list[NeuronRule]:
    """Neurons that subtract every component but one: x - max(0, x) + max(0, -x) = 0, without rounding."""
    return [NeuronRule({name: sign}, {name: -sign}) for name in stream.names if name != keep for sign in (1.0, -1.0)]


def assemble(
    stream: Stream,
    task: Language,
    words: Mapping[str, Combination],
    blocks: Sequence[Block],
    answer: str,
    scale: float = 1.0,
    norm: PostNorm | None = None,
) -> tuple[dict[str, Tensor], tuple[Layer, ...]]:
    """Return the parameters by name, in float64, and the matching layers of the spec.

    words: the components that each token writes (default: none). answer: the component that the readout reads, times
    `scale`. norm: if set, the last block also erases all components except the answer, so that the norm scales the
    answer to +-sqrt(d_model/2), or to less if eps is not negligible.
    """
    if norm is not None:
        last = blocks[-1]
        blocks = [*blocks[:-1], Block(last.heads, [*last.neurons, *erasers(stream, answer)])]
        # A padding position must not be all zeros, because the norm would be 0/0. Its content is never read.
        words = {"[PAD]": words[task.alphabet[0]], **words}
    heads = max(1, *(len(block.heads) for block in blocks))
    width = max(max(len(head.matches), len(head.moves)) for block in blocks for head in block.heads)
    ones, zeros = torch.ones(stream.d_model, dtype=torch.float64), torch.zeros(stream.d_model, dtype=torch.float64)
    tensors = {"embed.W_E": torch.stack([stream.write(words.get(token, {})) for token in task.vocabulary])}
    layers = []
    for index, block in enumerate(blocks):
        at = f"blocks.{index}."
        if norm is not None:
            tensors |= {f"{at}ln1.w": ones, f"{at}ln1.b": zeros}
        tensors |= {f"{at}attn.{name}": value for name, value in _attention(stream, block, heads, width).items()}
        if block.neurons:
            if norm is not None:
                tensors |= {f"{at}ln2.w": ones, f"{at}ln2.b": zeros}
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
class Recognizer:
    """A symbolic construction; `build` turns it into weights and a spec.

    positions: the formula of the position code in the first components. claim, notes, numbers: as in
    ConstructedWeights. margin: a lower bound on |answer| over all strings up to a length. value: as in
    ConstructedWeights, dropped if there is a norm. longest: by dtype, as in LengthLimit.
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
        self, arguments: Mapping[str, Scalar], output_scale: float, norm: PostNorm | None, beyond: str
    ) -> Construct:
        """Make weights, spec and task. arguments: the others, recorded in the spec's origin."""
        name = " ".join(filter(None, (self.name, self.variant)))
        limit = LengthLimit(name, self.longest, self.task.n_marks, beyond)
        scale = positive("output_scale", output_scale)
        tensors, layers = assemble(self.stream, self.task, self.words, self.blocks, self.answer, scale, norm)
        margin, numbers = output_scale * self.margin(limit.in_dtype(torch.float64)), dict(self.numbers)
        if norm is not None:
            # Only the answer s and its twin -s are left; with eps = 0 the norm makes them +-sqrt(d/2) at every length.
            numbers["normalized_logit"] = output_scale * sqrt(self.stream.d_model / 2)
            margin = numbers["normalized_logit"] if norm.eps == 0 else 0.0
        weights = ConstructedWeights(
            tensors, self.stream.directions(), self.claim, margin, notes=self.notes, numbers=numbers,
            value=self.value if norm is None else None, length_limit=limit,
        )  # fmt: skip
        arguments = {**arguments, "output_scale": float(output_scale), "beyond": beyond}
        return Construct.of(
            self.name, self.task, weights, arguments, self.variant,
            d_model=self.stream.d_model, direction="bidirectional", layers=layers,
            positions=f"{self.positions}-doubled" if self.stream.doubled else self.positions, readout="scalar",
            readout_bias=False, readout_at="[CLS]", decision="sigmoid" if self.tolerance is None else "indicator",
            tolerance=self.tolerance,
        )  # fmt: skip


def _attention(stream: Stream, block: Block, heads: int, width: int) -> dict[str, Tensor]:
    """Attention weights of a block, padded with zero heads: TransformerLens needs the same number in all layers."""
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
