"""The two samplers of the histogram task: their algorithms and exact count distributions.

Both build a sequence of length L from blocks. With n positions left, draw the size k of the next block, draw its token
uniformly from the unused ones, and continue with n - k positions. At the end, shuffle the positions.
  "paper"      k uniform on 1..n. Behrens et al., appendix C, corrected: its step 4 must set K = k - 1, or it never
               ends. Every count 1..L has the share 1/L of the positions.
  "published"  k uniform on 1..n-1 (k = 1 when n = 1): the authors' code. A sequence of one token never occurs; count 1
               has the share 2/L, the counts 2..L-1 have 1/L each, count L has none (if L = 1, count 1 has all).
There are at most L blocks, so an alphabet of T >= L tokens is needed. Source: errata of Behrens et al. (2024), item 28.
"""

from fractions import Fraction

from interp.errors import InterpError, one_of

SAMPLERS = ("published", "paper")


def check_sampler(sampler: str) -> str:
    """Return the sampler's name, or raise InterpError for an unknown one."""
    if sampler not in SAMPLERS:
        raise InterpError(one_of("sampler", sampler, SAMPLERS))
    return sampler


def largest_block(sampler: str, n: int) -> int:
    """Return the largest block size when n positions are left."""
    return n - 1 if sampler == "published" and n > 1 else n


def count_distribution(sampler: str, L: int) -> dict[int, Fraction]:
    """Return the exact share of positions with each count 1..L, for `sampler` "published" or "paper".

    With n positions left, the expected number of blocks of size c satisfies f_n(c) = mean over k of ([k = c] +
    f_{n-k}(c)); the share is c f_L(c) / L. Raises InterpError for an unknown sampler or L < 1.
    """
    check_sampler(sampler)
    if L < 1:
        raise InterpError(f"a sequence of length L = {L} has no counts; L must be at least 1")
    blocks: list[list[Fraction]] = [[Fraction(0)] * (L + 1)]
    for n in range(1, L + 1):
        last = largest_block(sampler, n)
        blocks.append(
            [sum((blocks[n - k][c] + (k == c) for k in range(1, last + 1)), Fraction(0)) / last for c in range(L + 1)]
        )
    return {c: c * blocks[L][c] / L for c in range(1, L + 1)}
