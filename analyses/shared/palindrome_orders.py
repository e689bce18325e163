"""PALINDROME's binary code in floats: the strings on which it goes wrong first, and four orders of evaluation.

The code, s, is in interp.families.languages.theory.values. Symbols are rows of 0 and 1 without CLS and EOS, so symbol j
is at i = j + 1, and n = length + 2.
"""

from collections.abc import Callable
from math import log

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.errors import InterpError


def share_of_false_accepts(length: int, base: float, tolerance: float) -> float:
    """Return the share of appendix B's strings with |s| <= `tolerance` that are not palindromes.

    Half of the strings have one wrong pair, at i uniform on 1..length // 2, and then |s| = b^i (b - 1) / (b^n - 1)
    (erratum 34, where i counts tokens).
    """
    n, pairs = length + 2, length // 2
    if not pairs:
        return 0.0
    values = [base**i * (base - 1) / (base**n - 1) for i in range(1, pairs + 1)]
    return 0.5 * sum(value <= tolerance for value in values) / pairs


# ---------------------------------------------------------------- strings that are hard in floating point


def hard_strings(length: int, palindromes: int = 16, seed: int = 0) -> Int[Tensor, "rows length"]:
    """Return random palindromes, some with one symbol of the left half flipped, and carries (1000 against 0111).

    A flip next to the ends gives the smallest |s| of a single error, 2/(2^n - 1). A carry gives the same |s|, and all
    its higher bits must cancel.
    """
    if length < 1:
        raise InterpError(f"length = {length} must be at least 1")
    generator = torch.Generator().manual_seed(seed)
    half, place = length // 2, torch.arange(length)
    left = torch.randint(0, 2, (palindromes, length), generator=generator)
    left = torch.cat([left, torch.zeros(1, length, dtype=torch.long), torch.ones(1, length, dtype=torch.long)])
    mirrored = left[:, torch.minimum(place, length - 1 - place)]
    parts = [mirrored]
    # A flip of each place of the left half, in four of the palindromes and the two constant strings.
    for row in torch.cat([mirrored[:4], mirrored[-2:]]):
        parts.append(row ^ torch.eye(length, dtype=torch.long)[:half])
    # Left half ..1000.. against right half ..0111..: from place `low` up to place `high`, the rest a palindrome.
    for high in range(1, half):
        for low in {0, high // 2, high - 1}:
            row = mirrored[high % palindromes].clone()
            row[low:high], row[high] = 0, 1
            row[length - 1 - high], row[length - high : length - low] = 0, 1
            parts += [row[None], row.flip(0)[None]]
    return torch.cat(parts)


def is_palindrome(symbols: Int[Tensor, "rows length"]) -> Bool[Tensor, "rows"]:
    return (symbols == symbols.flip(1)).all(1)


# ---------------------------------------------------------------- orders of evaluation


def _tokens(symbols: Int[Tensor, "rows length"], dtype: torch.dtype) -> Float[Tensor, "rows n"]:
    """I[w_i = 1] for every token; 0 for CLS and EOS."""
    return torch.nn.functional.pad(symbols, (1, 1)).to(dtype)


def two_softmaxes(symbols: Int[Tensor, "rows length"], dtype: torch.dtype) -> Float[Tensor, "rows"]:
    """Compute s as printed: a softmax of ln2 i for the left half, one of ln2 (n-1-i) for the right, and two sums."""
    ones = _tokens(symbols, dtype)
    n = ones.shape[1]
    i = torch.arange(n)
    left, right = ones * (2 * i <= n - 1), ones * (2 * i >= n - 1)
    rising, falling = (log(2) * i.to(dtype)).softmax(0), (log(2) * (n - 1 - i).to(dtype)).softmax(0)
    return (left * rising).sum(1) - (right * falling).sum(1)


def one_softmax(symbols: Int[Tensor, "rows length"], dtype: torch.dtype) -> Float[Tensor, "rows"]:
    """Reverse the right half onto the left one, so that both sums use the same weights in the same order."""
    ones = _tokens(symbols, dtype)
    n = ones.shape[1]
    i = torch.arange(n)
    marks, weights = (2 * i <= n - 1), (log(2) * i.to(dtype)).softmax(0)
    return (ones * marks * weights).sum(1) - (ones.flip(1) * marks * weights).sum(1)


def powers_of_two(symbols: Int[Tensor, "rows length"], dtype: torch.dtype) -> Float[Tensor, "rows"]:
    """Use one softmax with base 2: the weights exp2(i - n) are powers of two, so sums are exact while they fit."""
    ones = _tokens(symbols, dtype)
    n = ones.shape[1]
    i = torch.arange(n)
    marks, powers = (2 * i <= n - 1), torch.exp2((i - n).to(dtype))
    left, right = (ones * marks * powers).sum(1), (ones.flip(1) * marks * powers).sum(1)
    return (left - right) / powers.sum()


def one_signed_head(symbols: Int[Tensor, "rows length"], dtype: torch.dtype) -> Float[Tensor, "rows"]:
    """Use one head with key min(i, n-1-i) and values +1 left, -1 right: the smallest |s| is of order 2^(-n/2)."""
    ones = _tokens(symbols, dtype)
    n = ones.shape[1]
    i = torch.arange(n)
    weights = (log(2) * torch.minimum(i, n - 1 - i).to(dtype)).softmax(0)
    return (ones * torch.sign(n - 1 - 2 * i).to(dtype) * weights).sum(1)


def _whole(n: int) -> int:
    """2^n - 1, the sum of all weights over the smallest one."""
    return 2**n - 1


def _folded(n: int) -> int:
    """sum_i 2^min(i, n-1-i)."""
    return sum(2 ** min(i, n - 1 - i) for i in range(n))


ORDERS: dict[str, tuple[Callable[[Tensor, torch.dtype], Tensor], Callable[[int], int]]] = {
    "two softmaxes (paper)": (two_softmaxes, _whole),
    "one softmax, right half reversed": (one_softmax, _whole),
    "base 2 by exp2": (powers_of_two, _whole),
    "one head, values +-1": (one_signed_head, _folded),
}
"""Name: (s of rows of symbols in a dtype, total(n)); the smallest nonzero |s| is 2/total, half of it the tolerance."""


def accepts(
    order: str, symbols: Int[Tensor, "rows length"], dtype: torch.dtype, exact_zero: bool = False
) -> Bool[Tensor, "rows"]:
    """Whether s is 0, up to half of its smallest nonzero absolute value. Raises InterpError for an unknown order."""
    if order not in ORDERS:
        raise InterpError(f"unknown order {order!r}; known: {', '.join(ORDERS)}")
    value, total = ORDERS[order]
    s = value(symbols, dtype).double().abs()
    return s == 0 if exact_zero else s <= 1 / total(symbols.shape[1] + 2)


def largest_exact_length(order: str, dtype: torch.dtype, exact_zero: bool = False, longest: int = 130) -> int:
    """The largest length up to which every hard string is classified correctly; at most `longest`."""
    for length in range(1, longest + 1):
        symbols = hard_strings(length)
        if not torch.equal(accepts(order, symbols, dtype, exact_zero), is_palindrome(symbols)):
            return length - 1
    return longest
