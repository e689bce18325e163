"""Count01 by one head of dimension one (Zsámboki et al. 2025, appendix A, with its misprints corrected).

A sentence has n0, n1 and n2 copies of '0', '1' and '2', then '=' and the answer, which is '4' if n1 > n0 and '5'
otherwise. Embeddings W_E = (0, N, N+1, 0, 1, N^2, N^2, 0) for ([BOS], 0, 1, 2, =, 4, 5, [EOS]); K = Q = V = 1, and
scores are unscaled.

**At '='** the query is 1. The scores are therefore the embeddings, and the head's output is

    y = (e^N n0 N + e^(N+1) n1 (N+1) + e) / (1 + e^N n0 + e^(N+1) n1 + n2 + e).

Let a = (e(N+1) + N) / (1 + e), the limit of y as n0 = n1 -> infinity. Multiply y - a by the positive denominator:

    sign(y - a) = sign( e^(N+1) (n1 - n0)/(1 + e) + e - a (1 + n2 + e) ).

The logits are y - a on '4', a - y on '5', 4(y + 1) - 12(N + 1) < 0 on [EOS] and 0 on the other tokens. (The skip
connection adds the 1 of '=' to y, and the bias subtracts it.) So the answer is '4' if y > a and '5' if y < a.
- For n1 <= n0, including ties and the empty sentence, y < a, because e < a(1 + n2 + e) always.
- y > a for all n1 > n0 iff it is true at n1 - n0 = 1, that is, iff **n2 < (e^(N+1)/(1 + e) + e)/a - 1 - e**
  (N = 7: 100.3, N = 8: 246, N = 9: 605, N = 10: 1497).

**At the answer** the query is N^2, and the answer's score with itself is N^4. It takes all weight except about
e^(N^3 + N^2 - N^4), so y = N^2. The logit is 8 N^2 - 12(N + 1) on [EOS] and 2 N^2 - a - 1 on '4', so [EOS] wins for
N >= 3 (but not for N = 2). exp(N^4) overflows, so the softmax must subtract its maximum.

The paper prints nine entries in W_out and b_out, mixes n and N in a, and states the rule the other way round.
"""

from math import e, exp

import torch

from interp.errors import InterpError, check_size
from interp.families.count01.tasks import Count01
from interp.models.constructions import Construct, ConstructedWeights, register_construction
from interp.models.spec import Layer

SAFE_MARGIN = 1e-12
"""Smallest |y - a| that is accepted: below it, the rounding of y in float64 (about 1e-15 N) is no longer negligible."""


def threshold(N: int) -> float:
    """Return a, the value of the head's output that separates the answers."""
    return (e * (N + 1) + N) / (1 + e)


def largest_n2(N: int) -> int:
    """Return the largest n2 for which the construction is right for all n0 and n1 (the strict bound above)."""
    bound = (exp(N + 1) / (1 + e) + e) / threshold(N) - 1 - e
    return int(bound) - (bound == int(bound))


def margin(N: int, n_max: int) -> float:
    """Return the smallest |y - a| over n0, n1, n2 in 0..n_max, attained at a tie or at n1 = n0 + 1 with n_max 2s."""
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

    N: the embedding of '0'. A larger N tolerates more 2s but brings ties nearer to the threshold: the margin falls
    like e^-N. Raises InterpError if N is too small for n_max 2s, or so large that the margin is lost in float64.
    """
    check_size("N", N, least=3)
    check_size("n_max", n_max, least=1)
    if N > 30 or margin(N, n_max) < SAFE_MARGIN:
        raise InterpError(f"N = {N} is too large: at n_max = {n_max} a tie comes within {SAFE_MARGIN} of the threshold")
    if n_max > largest_n2(N):
        raise InterpError(
            f"N = {N} works for at most {largest_n2(N)} 2s, not n_max = {n_max}; "
            f"the smallest N that is enough is {next(n for n in range(N, 31) if largest_n2(n) >= n_max)}"
        )
    a = threshold(N)
    unit = torch.ones(1, 1, 1, dtype=torch.float64)
    out = torch.zeros(1, 8, dtype=torch.float64)
    out[0, 5:] = torch.tensor([1.0, -1.0, 4.0])
    bias = torch.zeros(8, dtype=torch.float64)
    bias[5:] = torch.tensor([-a - 1, a + 1, -12 * (N + 1)], dtype=torch.float64)
    tensors = {
        "embed.W_E": torch.tensor([0, N, N + 1, 0, 1, N**2, N**2, 0], dtype=torch.float64)[:, None],
        **{f"blocks.0.attn.W_{name}": unit.clone() for name in "QKVO"},
        "unembed.W_U": out,
        "unembed.b_U": bias,
    }
    task = Count01()
    weights = ConstructedWeights(
        tensors,
        directions={"y": torch.ones(1, dtype=torch.float64)},
        claim=f"right on every sentence with at most {n_max} each of 0s, 1s and 2s, [EOS] included",
        margin=margin(N, n_max),
        notes=(f"largest n2 at N = {N}: {largest_n2(N)}", "errata 1 and appendix A of the Count01 paper"),
    )
    return Construct.of(
        "count01/minimal", task, weights, {"N": N, "n_max": n_max},
        d_model=1, layers=(Layer(n_heads=1, d_head=1, scale=1.0),), readout_at="=",
    )  # fmt: skip
