"""Shared steps of the histogram constructions: size checks, the scaled attention, and the checked readout.

The readout takes one hidden value to a class: thresholds between the counts, and a linear readout that cuts at them.
Appendix A.4 of Behrens et al. (2024) gives no formula; erratum 4 gives one that works.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import InterpError
from interp.families.histogram.theory.frame_search import Criterion, frame_for, frame_slack
from interp.families.histogram.theory.frames import one_sided_bound, squared_bound
from interp.families.histogram.theory.ranges import MixingKind, Ranges, token_mixing
from interp.models.constructions import ConstructedWeights

NEVER = -100.0  # weight and bias of class 0 in the published code: below every other class for hidden values >= 0
ONE_SIDED, SQUARED = "(L-1) max c - (L-2) min c < 1", "(L-1) max c^2 - (L-2) min c^2 < 1"
"""Conditions on the overlaps c of a frame (errata 14 and 16)."""
ROUNDING = 1e-11
"""Smallest gap between counts, relative to the hidden values, for which float64 is accurate enough."""


@dataclass(frozen=True)
class ScalarReadout:
    """logits = hidden * weight + bias."""

    weight: Float[Tensor, " n_out"]
    bias: Float[Tensor, " n_out"]


@dataclass(frozen=True)
class Separation:
    """Distance between the hidden values of neighboring counts.

    `thresholds[i]` is halfway between counts i + 1 and i + 2, see `on_grid`. `gap` is the smallest distance between the
    intervals of neighboring counts, `room` that between an interval and a threshold (both inf for L = 1); `rising`
    tells whether the hidden value grows with the count.
    """

    thresholds: Float[Tensor, " L_minus_1"]
    gap: float
    room: float
    rising: bool


def on_grid(values: Float[Tensor, "*shape"], gap: float) -> Float[Tensor, "*shape"]:
    """Round to multiples of a power of two, about a millionth of the gap in which the values lie.

    Ranges are computed with products that each CPU rounds in its own way; weights should not depend on it. The power
    changes where log2(gap) is halfway between integers, which is so for no rational gap.
    """
    step = 2.0 ** (round(math.log2(gap)) - 20)
    return (values / step).round() * step


def separate(lo: Float[Tensor, " L"], hi: Float[Tensor, " L"]) -> Separation:
    """Return thresholds between the intervals [lo, hi] of counts 1..L, which must be disjoint and rising or falling.

    Raises InterpError, naming two counts, if intervals overlap.
    """
    if len(lo) == 1:
        return Separation(lo.new_zeros(0), math.inf, math.inf, True)
    rising = bool(lo[-1] + hi[-1] >= lo[0] + hi[0])
    below, above = (hi[:-1], lo[1:]) if rising else (hi[1:], lo[:-1])
    gaps = above - below
    worst = int(gaps.argmin())
    if not float(gaps[worst]) > 0:
        raise InterpError(
            f"the hidden values of counts {worst + 1} and {worst + 2} overlap (by {-float(gaps[worst]):.3g}), "
            "so no single threshold tells them apart"
        )
    gap = float(gaps[worst])
    thresholds = on_grid((below + above) / 2, gap)
    room = float(torch.minimum(thresholds - below, above - thresholds).min())
    return Separation(thresholds, gap, room, rising)


def scalar_readout(
    thresholds: Float[Tensor, " L_minus_1"], *, rising: bool = True, n_out: int | None = None
) -> ScalarReadout:
    """Return a linear readout whose argmax is the count, for any hidden value >= 0, given the thresholds.

    For ascending thresholds tau_1 < .. < tau_{L-1}: w_l = -1 + l/(L+1), b_1 = 0,
    b_l = b_{l-1} + (w_{l-1} - w_l) tau_{l-1}. Lines l and l+1 cross at tau_l and slopes rise with l, so line l is on
    top exactly between tau_{l-1} and tau_l; near a threshold the lead is distance / (L+1). If the hidden value falls
    with the count, the thresholds come in descending order (count 1 on top): reverse them, build the lines, then
    reverse the weights and biases.

    `n_out` is L (class c means count c + 1) or L + 1 (published code: class c means count c, class 0 is never right).
    Source: A.4 and A.2.1 eqs. 15-16, errata 3 to 5.
    """
    length = len(thresholds) + 1
    ascending = thresholds if rising else thresholds.flip(0)
    weight = -1 + torch.arange(1, length + 1, dtype=thresholds.dtype) / (length + 1)
    bias = torch.cat([thresholds.new_zeros(1), -(ascending / (length + 1)).cumsum(0)])
    if not rising:
        weight, bias = weight.flip(0), bias.flip(0)
    if n_out is None or n_out == length:
        return ScalarReadout(weight, bias)
    never = thresholds.new_full((1,), NEVER)
    return ScalarReadout(torch.cat([never, weight]), torch.cat([never, bias]))


@dataclass(frozen=True)
class Wanted:
    """The model to construct. d_model, p: its width and number of hidden neurons; None: the smallest that work."""

    model: MixingKind
    variant: str
    T: int
    L: int
    d_model: int | None
    p: int | None
    zero_class: bool

    @property
    def name(self) -> str:
        return f"histogram/{self.model}-exact (variant {self.variant})"

    def sizes(self, d_min: int, p_min: int, why: str) -> tuple[int, int]:
        """Return the width and the number of hidden neurons to use.

        `why` explains the bound on d_model in the error message. Raises InterpError for sizes that are too small.
        """
        d, p = d_min if self.d_model is None else self.d_model, p_min if self.p is None else self.p
        if d < d_min:
            raise InterpError(
                f"{self.name} needs d_model >= {d_min} at T={self.T}, L={self.L} ({why}), got d_model={d}"
            )
        if p < p_min:
            neurons = "one hidden neuron" if p_min == 1 else f"one hidden neuron per token, p >= {p_min}"
            raise InterpError(f"{self.name} needs {neurons}, got p={p}")
        return d, p

    def orthonormal(self, p_min: int) -> tuple[Float[Tensor, "T d"], int]:
        """Return orthonormal embeddings of all tokens, and the number of hidden neurons to use."""
        d, p = self.sizes(self.T, p_min, "orthogonal token embeddings need d >= T")
        return torch.eye(self.T, d, dtype=torch.float64), p

    def frame(
        self, criterion: Criterion, p_min: int, seed: int, shared: int = 0
    ) -> tuple[Float[Tensor, "T width"], float, int, int]:
        """Return a frame that satisfies a condition, its slack, and the width and number of hidden neurons to use.

        shared: number of coordinates besides the frame's. Raises InterpError below a proven bound on d_model (nobody
        searches for a frame that cannot exist), or if the best frame found violates the condition.
        """
        squared = criterion == "squared"
        condition, bound = (SQUARED, squared_bound) if squared else (ONE_SIDED, one_sided_bound)
        least = bound(self.T, self.L) + shared
        none = f"none exist below d_model = {least}"
        if self.d_model is not None and self.d_model < least:
            raise InterpError(
                f"{self.name} needs {self.T} vectors with {condition} at L={self.L}, got d_model={self.d_model}; {none}"
            )
        frame = frame_for(criterion, self.T, self.L, None if self.d_model is None else self.d_model - shared, seed=seed)
        width, slack = frame.shape[1], frame_slack(frame, criterion, self.L)
        more = " and one shared coordinate" if shared else ""
        d, p = self.sizes(width + shared, p_min, f"the smallest frame known for these sizes{more}")
        if slack <= 0:
            raise InterpError(
                f"{self.name} found no {self.T} vectors in {width} dimensions with {condition} at L={self.L}, "
                f"at best {1 - slack:.4g}; {none}"
            )
        return frame, slack, d, p


def pad_columns(rows: Float[Tensor, "n m"], d: int) -> Float[Tensor, "n d"]:
    """Pad rows with zeros to width d. Inner products do not change, so all claims remain true."""
    return torch.nn.functional.pad(rows, (0, d - rows.shape[1]))


def with_silent_bos(want: Wanted, tokens: Float[Tensor, "T d"]) -> Float[Tensor, "rows d"]:
    """Return the embeddings; those of bos models end with one of 0, which has score 0 and adds nothing."""
    return torch.nn.functional.pad(tokens, (0, 0, 0, int(want.model == "bos")))


def dot_attention(d: int, query_scale: float = 1.0) -> dict[str, Tensor]:
    """Return W_Q = query_scale d^(1/4) I and W_K = d^(1/4) I.

    With the division by sqrt(d), a score is then query_scale times the inner product of the embeddings.
    """
    identity = torch.eye(d, dtype=torch.float64)[None] * d**0.25
    return {"blocks.0.attn.W_Q": identity * query_scale, "blocks.0.attn.W_K": identity}


def own_and_foreign(hidden: Ranges) -> tuple[Ranges, Float[Tensor, "pairs L"]]:
    """With one neuron per token, return the ranges (T, L) of each token's own neuron, and the highest foreign values.

    A neuron is foreign when the token at the position is not the neuron's own token.
    """
    lo, hi = hidden.lo.diagonal(dim1=0, dim2=2).T, hidden.hi.diagonal(dim1=0, dim2=2).T
    other = ~torch.eye(len(lo), dtype=torch.bool)
    return Ranges(lo, hi), hidden.hi.movedim(2, 1)[other]


def silencing_bias(hidden: Ranges) -> float:
    """Return the bias halfway between silencing every foreign neuron and starting to clip an own neuron, `on_grid`."""
    own, foreign = own_and_foreign(hidden)
    clips, silent = own.lo.min(), foreign.max()
    return -float(on_grid((clips + silent) / 2, max(float(clips - silent), ROUNDING)))


def finish(
    want: Wanted,
    tensors: Mapping[str, Tensor],
    directions: dict[str, Tensor],
    *,
    p: int,
    W_in: Float[Tensor, "d m"],
    b_in: float,
    claim: str,
    notes: tuple[str, ...],
    numbers: Mapping[str, float] | None = None,
) -> ConstructedWeights:
    """Check the proof on the exact ranges of the hidden values over all T^L sequences, then add the readout.

    W_in has one column (all tokens read their count from it) or T columns (token t reads neuron t, which must be at
    most 0 for every other token). Thresholds are midpoints between the ranges of successive counts. The remaining
    neurons up to p are zero. b_in is the bias of every neuron; claim follows "on all T^L sequences". Raises InterpError
    if a foreign neuron fires or if the ranges of two counts overlap.
    """
    T, L = want.T, want.L
    head: dict[str, Any] = {
        name.rpartition(".")[2]: tensor[0] for name, tensor in tensors.items() if name.startswith("blocks.")
    }
    bias = torch.full(W_in.shape[1:], b_in, dtype=torch.float64)
    ranges = token_mixing(want.model, tensors["embed.W_E"], L, **head).ranges(W_in, bias).over_positions()
    numbers = dict(numbers or {})
    if W_in.shape[1] == 1:
        lo, hi = ranges.lo[..., 0], ranges.hi[..., 0]
    else:
        own, foreign = own_and_foreign(ranges)
        lo, hi = own.lo, own.hi
        numbers["foreign_slack"] = -float(foreign.max())
        if float(foreign.max()) > 1e-9:
            raise InterpError(
                f"{want.name} does not work at T={T}, L={L}: "
                f"the neuron of a different token reaches {float(foreign.max()):.3g} > 0"
            )
    try:
        cut = separate(lo.relu().amin(0), hi.relu().amax(0))
    except InterpError as overlap:
        raise InterpError(f"{want.name} does not work at T={T}, L={L}: {overlap}") from None
    size = float(hi.abs().max())
    if cut.gap < ROUNDING * size:
        raise InterpError(
            f"{want.name} separates the counts by only {cut.gap:.3g}, "
            f"too little for float64 with hidden values of {size:.3g}: choose other scales"
        )
    readout = scalar_readout(cut.thresholds, rising=cut.rising, n_out=L + want.zero_class)
    neurons = W_in.shape[1]
    W_out = torch.zeros(p, len(readout.weight), dtype=torch.float64)
    W_out[:neurons] = readout.weight
    weights = {
        **tensors, "unembed.W_in": pad_columns(W_in, p), "unembed.b_in": pad_columns(bias[None], p)[0],
        "unembed.W_out": W_out, "unembed.b_out": readout.bias,
    }  # fmt: skip
    # Near a threshold the correct line leads by (distance to the threshold) / (L + 1): see scalar_readout.
    margin = cut.room / (L + 1)
    statement = f"counts correctly on all {T}^{L} sequences{claim}"
    return ConstructedWeights(weights, directions, statement, margin, want.variant, notes, {"gap": cut.gap, **numbers})
