"""What a construction returns: exact weights, the residual directions they speak of, and the claim they prove."""

from __future__ import annotations

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
    margin:     the smallest distance from a wrong decision over all inputs of the claim: for argmax readouts the lead
                of the right logit (inf with a single class).
    variant:    which variant was built, where the construction has several.
    notes:      sources, errata and limits, one sentence each.
    numbers:    the scales chosen and the quantities of the proof by name, such as kappa, alpha or gap.
    value:      what direction `s` holds where the answer is read, from an input's symbols alone; None if the proof
                says its sign or a bound, not its value.
    length_limit: where a proof for every length meets finite precision; None if there is no such limit.
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
