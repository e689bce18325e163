"""PALINDROME: strings over {0, 1} that read the same backwards (Nowak et al. 2022, section 3.2)."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.families.languages.tasks.language import BITS, Language
from interp.tasks.registry import register_task


@register_task
class Palindrome(Language):
    """Does the string read the same backwards? PALINDROME = {w : w is its own reversal}, closed by [EOS].

    Half of the strings are random palindromes; half are palindromes with one symbol flipped, but never the middle one
    (appendix B.3; in the published data, strings of odd length lack their middle symbol, erratum 35). A string of
    length 1 is always a palindrome.
    """

    name = "palindrome"
    ends = True
    rule = ("fold", BITS, 1, ("and", ("so_far",), ("=", ("item",), ("at", BITS, ("-", -1, ("index",))))))

    def member(self, symbols: Int[Tensor, "rows width"], lengths: Int[Tensor, "rows"]) -> Bool[Tensor, "rows"]:
        place = torch.arange(symbols.shape[1], device=symbols.device)
        mirror = (lengths[:, None] - 1 - place).clamp(min=0)
        inside = place < lengths[:, None]
        return ((symbols == symbols.gather(1, mirror)) | ~inside).all(1)

    def draw(self, lengths: Int[Tensor, "rows"], generator: torch.Generator) -> Int[Tensor, "rows width"]:
        bits = super().draw(lengths, generator)
        place = torch.arange(bits.shape[1])
        mirror = (lengths[:, None] - 1 - place).clamp(min=0)
        bits = bits.gather(1, torch.minimum(place.expand_as(bits), mirror))
        half = lengths // 2
        at = (torch.rand(len(lengths), generator=generator, dtype=torch.float64) * 2 * half).long()
        at = torch.where(at < half, at, lengths - 1 - (at - half))  # the second half counts back from the end
        flipped = torch.randint(0, 2, (len(lengths),), generator=generator) * (half > 0)
        rows = torch.arange(len(lengths))
        if bits.shape[1]:
            bits[rows, at.clamp(min=0)] ^= flipped
        return bits
