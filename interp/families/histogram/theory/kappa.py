"""The inverse temperature that a bos-softmax counter needs: Behrens et al. (2024), eq. 92, B.3.1."""

import math

from jaxtyping import Float
from torch import Tensor

from interp.errors import InterpError
from interp.families.histogram.theory.frames import overlaps


def code_separation(code: Float[Tensor, "T d"]) -> float:
    """eps = 1 - the largest overlap of different unit vectors. Eqs. 10 and 74 should say <= 1 - eps: erratum 18."""
    return 1.0 - overlaps(code).highest


def kappa_threshold(eps: float, L: int, lowest: float = 0.0) -> float:
    """kappa*: with a code of overlaps in [lowest, 1 - eps], bos-softmax always counts correctly iff kappa > kappa*.

    The attention on BOS is e^kappa / (e^kappa + sum_m e^(kappa <e_t, e_m>)) up to a factor common to all counts, so it
    falls with the count k of the own token. It is lowest for count k if the other L - k tokens have overlap 1 - eps,
    and highest for count k + 1 if they have overlap `lowest`. With u = e^kappa and n = L - k, the two values are equal
    if n u^(1 - eps) = u + (n - 1) u^lowest. The largest n, at k = 1, needs the largest u. For lowest = 0 this is eq.
    92, (L - 1) u^(1 - eps) - u - (L - 2) = 0, which is exact for codes with an orthogonal pair, such as the binary code
    of four tokens or more. It has one root u > 1 (u = 1 always solves it), independent of alpha, and kappa* < ln(L - 1)
    / eps. Returns 0 if every kappa > 0 works. Source: erratum 21. The term for lowest < 0 is added here: without it,
    the threshold of a code with negative overlaps is too small. Raises InterpError unless 0 < eps <= 2, L >= 1 and
    lowest <= 1 - eps.
    """
    if not 0 < eps <= 2 or L < 1 or lowest > 1 - eps:
        raise InterpError(
            f"kappa* needs a separation 0 < eps <= 2, L >= 1 and a lowest overlap of at most 1 - eps, "
            f"got eps={eps}, L={L}, lowest={lowest}"
        )
    near, far = eps, 1.0 - lowest
    if L <= 2 or (L - 1) * near >= (L - 2) * far:
        return 0.0

    def balance(kappa: float) -> float:  # the equation divided by u: positive below kappa*, negative above
        return (L - 1) * math.exp(-kappa * near) - 1 - (L - 2) * math.exp(-kappa * far)

    low = math.log((L - 2) * far / ((L - 1) * near)) / (far - near)  # where balance is largest
    high = math.log(L - 1) / near
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if balance(middle) > 0 else (low, middle)
    return (low + high) / 2
