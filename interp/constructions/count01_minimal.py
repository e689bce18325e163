"""Count01 by one head of dimension one (Zsámboki et al. 2025, appendix A, with its misprints corrected).

Embeddings W_E = (0, N, N+1, 0, 1, N^2, N^2, 0) for ([BOS], 0, 1, 2, =, 4, 5, [EOS]); K = Q = V = 1, scores unscaled.

**At '='** the query is 1, so the scores are the embeddings and the head's output is

    y = (e^N n0 N + e^(N+1) n1 (N+1) + e) / (1 + e^N n0 + e^(N+1) n1 + n2 + e).

With a = (e(N+1) + N) / (1 + e), where y tends for n0 = n1 -> infinity, multiply y - a by the positive denominator:

    sign(y - a) = sign( e^(N+1) (n1 - n0)/(1 + e) + e - a (1 + n2 + e) ).

The logits are y - a on '4', a - y on '5' (the skip connection adds the 1 of '=', the bias takes it off again), 0 on
the other tokens, and 4(y + 1) - 12(N + 1) < 0 on [EOS]. So the answer is '4' if y > a and '5' if y < a, and
- for n1 <= n0, ties and the empty sentence included, y < a, because e < a(1 + n2 + e) always;
- for n1 > n0, y > a if and only if it is so at n1 - n0 = 1, that is **n2 < (e^(N+1)/(1 + e) + e)/a - 1 - e**
  (N = 7: 100.3, N = 8: 246, N = 9: 605, N = 10: 1497).

**At the answer** the query is N^2 and the answer's own score N^4: it takes all weight but e^(N^3 + N^2 - N^4), so
y = N^2, and [EOS] wins with 8 N^2 - 12(N + 1) against 2 N^2 - a - 1 on '4': so for N >= 3, and not for N = 2.
exp(N^4) overflows: the softmax has to subtract its maximum.

The print has nine entries in W_out and b_out, mixes n and N in a, and states the rule the other way round.
"""

from __future__ import annotations

from math import e, exp

import torch

from interp.budget import check_size
from interp.constructions.base import ConstructedWeights
from interp.constructions.registry import Construct, register_construction
from interp.errors import InterpError
from interp.spec import Construction, Layer, ModelSpec
from interp.tasks import Count01

SAFE_MARGIN = 1e-12
"""Below this distance of y from a, rounding in float64 (y is about N, so 1e-15 N) is no longer negligible."""


def threshold(N: int) -> float:
    """a, the value of the head's output that separates the answers."""
    return (e * (N + 1) + N) / (1 + e)


def largest_n2(N: int) -> int:
    """The largest number of 2s for which the construction is right whatever n0 and n1 are (strict bound above)."""
    bound = (exp(N + 1) / (1 + e) + e) / threshold(N) - 1 - e
    return int(bound) - (bound == int(bound))


def margin(N: int, n_max: int) -> float:
    """The smallest |y - a| over all n0, n1, n2 in 0..n_max: at a tie without 2s, or at n1 = n0 + 1 with all of them."""
    a = threshold(N)

    def distance(n0: int, n1: int, n2: int) -> float:
        numerator = exp(N + 1) * (n1 - n0) / (1 + e) + e - a * (1 + n2 + e)
        return abs(numerator) / (1 + exp(N) * n0 + exp(N + 1) * n1 + n2 + e)

    corners = [distance(n_max, n_max, n2) for n2 in (0, n_max)]
    if n_max:
        corners.append(distance(n_max - 1, n_max, n_max))
    return min(corners)


@register_construction("count01/minimal")
def minimal(N: int = 8, n_max: int = 200) -> Construct:
    """One head of dimension one, right on every sentence with at most n_max each of 0s, 1s and 2s (appendix A).

    N: the embedding of '0'; a larger N stands more 2s, and brings ties nearer to the threshold (margin falls like
    e^-N). Raises InterpError if N is too small for n_max 2s, or so large that float64 cannot hold the margin.
    """
    check_size("N", N, least=3)
    check_size("n_max", n_max, least=1)
    if N > 30 or margin(N, n_max) < SAFE_MARGIN:
        raise InterpError(f"N = {N} is too large: at n_max = {n_max} a tie comes within {SAFE_MARGIN} of the threshold")
    if n_max > largest_n2(N):
        raise InterpError(
            f"N = {N} is right for at most {largest_n2(N)} 2s, not n_max = {n_max}; "
            f"the smallest N that is enough is {next(n for n in range(N, 31) if largest_n2(n) >= n_max)}"
        )
    a = threshold(N)
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    out = torch.zeros(1, 8, dtype=torch.float64)
    out[0, 5:] = torch.tensor([1.0, -1.0, 4.0])
    bias = torch.zeros(8, dtype=torch.float64)
    bias[5:] = torch.tensor([-a - 1, a + 1, -12 * (N + 1)], dtype=torch.float64)
    tensors = {
        "embed.W_E": torch.tensor([0, N, N + 1, 0, 1, N**2, N**2, 0], dtype=torch.float64)[:, None],
        **{f"blocks.0.attn.W_{name}": one.clone() for name in "QKVO"},
        "unembed.W_U": out,
        "unembed.b_U": bias,
    }
    task = Count01()
    spec = ModelSpec(
        task=task.ref,
        d_model=1,
        layers=(Layer(n_heads=1, d_head=1, scale=1.0),),
        readout_at="=",
        dtype="float64",
        origin=Construction(name="count01/minimal", arguments=(("N", N), ("n_max", n_max))),
    )
    weights = ConstructedWeights(
        tensors,
        directions={"y": torch.ones(1, dtype=torch.float64)},
        claim=f"right on every sentence with at most {n_max} each of 0s, 1s and 2s, [EOS] included",
        margin=margin(N, n_max),
        notes=(f"largest n2 at N = {N}: {largest_n2(N)}", "errata 1 and appendix A of the Count01 paper"),
    )
    return Construct(spec, task, weights)
