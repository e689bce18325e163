"""Sets of T unit vectors in d < T dimensions with small overlaps: bounds, algebraic frames, and codes.

A frame is a (T, d) tensor of unit rows. Each construction needs another property of the overlaps (largest absolute
value, largest against smallest, squares): see `frame_search.py` for the criteria and the search. Codes are frames for
a bos-softmax counter; `kappa_threshold` is the inverse temperature that it needs: Behrens et al. (2024), eq. 92, B.3.1.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import InterpError


def welch_bound(T: int, d: int) -> float:
    """Lower bound on the mutual coherence of T unit vectors in d dimensions: sqrt((T - d) / (d (T - 1))), 0 for T <= d.

    Real vectors can reach it only for T <= d (d + 1) / 2, and not always then. Behrens et al. (2024) eq. 8 states the
    condition for complex vectors, T < d^2 (erratum 11).
    """
    return math.sqrt((T - d) / (d * (T - 1))) if d < T else 0.0


@dataclass(frozen=True)
class Overlaps:
    """Inner products between different rows: the smallest, the largest, and the largest absolute value (coherence)."""

    lowest: float
    highest: float

    @property
    def coherence(self) -> float:
        return max(abs(self.lowest), abs(self.highest))


def off_diagonal(frame: Float[Tensor, "T d"]) -> Float[Tensor, " pairs"]:
    """The T (T - 1) / 2 inner products between different rows."""
    gram = frame @ frame.T
    row, column = torch.triu_indices(len(frame), len(frame), 1)
    return gram[row, column]


def overlaps(frame: Float[Tensor, "T d"]) -> Overlaps:
    """One-sided extremes of the overlaps of at least two vectors, the same on every CPU: weights depend on them."""
    gram = frame.new_zeros(len(frame), len(frame))
    for column in frame.T:  # a product of matrices adds up in an order of the CPU's own
        gram += column[:, None] * column
    row, column = torch.triu_indices(len(frame), len(frame), 1)
    pairs = gram[row, column]
    return Overlaps(float(pairs.min()), float(pairs.max()))


def mutual_coherence(frame: Float[Tensor, "T d"]) -> float:
    """Largest absolute inner product between different rows (eq. 7)."""
    return overlaps(frame).coherence


def simplex(m: int) -> Float[Tensor, "m d"]:
    """m unit vectors in m - 1 dimensions with every overlap -1/(m - 1): the corners of a regular simplex."""
    # Helmert rows span the complement of (1, .., 1); the projected unit vectors have equal overlaps there.
    helmert = torch.zeros(m - 1, m, dtype=torch.float64)
    for i in range(1, m):
        helmert[i - 1, :i] = 1.0
        helmert[i - 1, i] = -float(i)
        helmert[i - 1] /= math.sqrt(i * (i + 1))
    return helmert.T * math.sqrt(m / (m - 1))


def simplex_sum(T: int, groups: int) -> Float[Tensor, "T d"]:
    """T unit vectors in T - groups dimensions, overlaps 0 or -1/(m - 1): simplices of near equal size m, stacked.

    The smallest simplex has floor(T / groups) points. groups = 0 is the orthonormal basis.
    Source: erratum 14 on Behrens et al. (2024). Raises InterpError unless 0 <= groups <= T / 2.
    """
    if not 0 <= groups <= T // 2:
        raise InterpError(
            f"{T} vectors split into at most {T // 2} simplices of two points or more, got {groups} groups"
        )
    if groups == 0:
        return torch.eye(T, dtype=torch.float64)
    small, extra = divmod(T, groups)
    return torch.block_diag(*[simplex(small + (g >= groups - extra)) for g in range(groups)])


def simplex_dimension(T: int, L: int) -> int:
    """The smallest dimension of a direct sum of T points in simplices of at least L (and 2) points: T - floor(T/L)."""
    return T - T // max(L, 2)


def simplex_groups(T: int, L: int, d: int) -> int:
    """Return the number of simplices to use in d dimensions.

    Few large simplices are best, because larger simplices have smaller overlaps. If T >= L, each has at least L points.
    """
    return min(T // max(L, 2), max(1, T - d))


def one_sided_bound(T: int, L: int) -> int:
    """Lower bound on the d in which T unit vectors can satisfy (L-1) max c - (L-2) min c < 1 over their overlaps c.

    A Welch bound with signs. Let m be the mean overlap, [low, high] the range, G the Gram matrix, of rank at most d.
    Upper bound on ||G||^2: since (c - low)(c - high) <= 0, the mean of c^2 is at most (low + high) m - low high.
    Lower bound: the largest eigenvalue is at least s = 1 + (T - 1) m, and the others share the trace T - s, so
    ||G||^2 >= s^2 + (T - s)^2 / (d - 1), or T^2 / d if s < T/d. The condition requires low > ((L-1) high - 1)/(L-2).
    The result is the smallest d at which some (high, m) satisfies both bounds. Their difference is concave in m, so the
    best m is computed; high runs over a fine grid. Frames that would succeed by less than about 1e-6 count as excluded.
    Raises InterpError for T < 2 or L < 1.
    """
    if L <= 2:  # any distinct vectors will do
        return 1 if T == 2 else 2
    high = torch.linspace(-1 / (T - 1), 1, 50_001, dtype=torch.float64)
    low = (((L - 1) * high - 1) / (L - 2)).clamp(min=-1)
    least, span = low.clamp(min=-1 / (T - 1)), low + high

    def allowed(d: int) -> bool:
        stationary = ((T * span / 2 + T / (d - 1)) / (1 + 1 / (d - 1)) - 1) / (T - 1)
        best = -math.inf
        for candidate in (stationary, torch.full_like(high, (T / d - 1) / (T - 1)), least, high):
            m = torch.minimum(torch.maximum(candidate, least), high)
            s = 1 + (T - 1) * m
            from_above = T + T * (T - 1) * (span * m - low * high)
            from_below = torch.where(s >= T / d, s**2 + (T - s) ** 2 / (d - 1), T**2 / d)
            best = max(best, float((from_above - from_below).max()))
        return best > 1e-6 * T**2

    return bisect_left(range(2, T), True, key=allowed) + 2


def squared_bound(T: int, L: int) -> int:
    """Lower bound on the d in which T unit vectors can satisfy (L-1) max c^2 - (L-2) min c^2 < 1.

    c^2 is the overlap of the projectors e e^T. Their traceless parts span d (d + 1)/2 - 1 dimensions, and subtracting
    the common trace turns the condition into the one-sided one there. At T = 32, L = 10 this proves d >= 8.
    Errors as in `one_sided_bound`.
    """
    needed = one_sided_bound(T, L)
    return next(d for d in range(2, needed + 3) if d * (d + 1) // 2 - 1 >= needed)


def binary_code(T: int) -> Float[Tensor, "T d"]:
    """Represent token t = 1..T by the bits of t, scaled to unit norm: d = ceil(log2(T + 1)), overlaps in [0, 1).

    Eq. 76 of Behrens et al. (2024) with the norm <bin, bin>^(-1/2) (printed ^(-1): erratum 19). Row t - 1 is token t.
    """
    bits = torch.arange(1, T + 1)[:, None] >> torch.arange(T.bit_length()) & 1
    code = bits.to(torch.float64)
    return code / code.norm(dim=1, keepdim=True)


def circle_points(T: int) -> Float[Tensor, "T 2"]:
    """T unit vectors equally spaced on the full circle; the largest overlap is cos(2 pi / T). Erratum 25."""
    angles = [2 * math.pi * t / T for t in range(T)]  # torch's cosine differs between CPUs
    return torch.tensor([[math.cos(a), math.sin(a)] for a in angles], dtype=torch.float64)


def quarter_circle_points(T: int) -> Float[Tensor, "T 2"]:
    """The published two-dimensional code, eq. 94: (sqrt(t / T), sqrt((T - t) / T)) for t = 1..T."""
    t = torch.arange(1, T + 1, dtype=torch.float64) / T
    return torch.stack([t.sqrt(), (1 - t).sqrt()], 1)


def kappa_threshold(eps: float, L: int, lowest: float = 0.0) -> float:
    """kappa*: with a code of overlaps in [lowest, 1 - eps], bos-softmax always counts correctly iff kappa > kappa*.

    (Eqs. 10 and 74 of the paper should say <= 1 - eps: erratum 18.)

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
