"""The value s at CLS that the proofs for the formal languages predict, computed from each string's symbols alone.

Symbols are 0s and 1s, at least one; c is the score that FIRST and PARITY choose.

n = number of symbols + 1 for ONE, FIRST and PARITY (CLS), + 2 for PALINDROME (CLS and EOS); erratum 30.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import exp


def one(symbols: Sequence[int]) -> float:
    """(I[k = 1] - 1/2) / n (Nowak et al. 2022, section 3.1.2)."""
    return ((sum(symbols) == 1) - 0.5) / (len(symbols) + 1)


def first(symbols: Sequence[int], c: float) -> float:
    """e^c / (e^c + n - 1) (I[w_1 = 1] - 1/2) (Chiang and Cholak 2022, section 3.1)."""
    return exp(c) / (exp(c) + len(symbols)) * (symbols[0] - 0.5)


def parity(symbols: Sequence[int], c: float) -> float:
    """(weight of position k in the odd positions' head - in the even positions' head) / n (Chiang and Cholak, 3.2)."""
    n, k = len(symbols) + 1, sum(symbols)
    even, odd = (n + 1) // 2, n // 2
    sign = -1 if k % 2 == 0 else 1  # -cos(k pi)
    return (exp(c * sign) / (odd * exp(c) + even * exp(-c)) - exp(-c * sign) / (even * exp(c) + odd * exp(-c))) / n


def exact_palindrome(symbols: Sequence[int]) -> Fraction:
    """The binary code (Nowak et al. 2022, section 3.2, with erratum 32), exactly.

    s = 1/(2^n - 1) sum_{i=1}^{floor((n-1)/2)} (I[w_i = 1] - I[w_(n-1-i) = 1]) 2^i. Its numerator is 0 if and only if
    the string is a palindrome, otherwise at least 2 in absolute value.
    """
    length = len(symbols)
    terms = ((symbols[i - 1] - symbols[length - i]) << i for i in range(1, (length + 1) // 2 + 1))
    return Fraction(sum(terms), 2 ** (length + 2) - 1)


def palindrome(symbols: Sequence[int]) -> float:
    """The binary code, rounded once."""
    return float(exact_palindrome(symbols))
