"""The result of a construction: exact weights, named residual directions, and the proved claim."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from interp.architecture.limits import LengthLimit


@dataclass(frozen=True)
class ConstructedWeights:
    """Exact weights of one model.

    tensors:    parameters by name, float64.
    directions: named residual-stream directions, (d,) each, or (n, d) for a named family such as one per token.
    claim:      one sentence: what the model does, and on which inputs.
    margin:     the smallest margin over all inputs in the claim. For argmax readouts, this is the lead of the right
                logit (inf with a single class).
    variant:    the variant, if the construction has several.
    notes:      sources, errata and limits, one sentence each.
    numbers:    chosen scales and quantities from the proof by name, such as kappa, alpha or gap.
    value:      a function from an input's symbols to the component along direction `s` at the read position; None if
                the proof gives only its sign or a bound.
    length_limit: the length up to which a proof for all lengths is valid in finite precision; None if unlimited.
    """

    tensors: dict[str, Tensor]
    directions: dict[str, Tensor]
    claim: str
    margin: float
    variant: str = ""
    notes: tuple[str, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    value: Callable[[Sequence[int]], float] | None = field(default=None, compare=False)
    length_limit: LengthLimit | None = None
