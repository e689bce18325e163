"""FIRST, PARITY and ONE: three regular languages over {0, 1} (Chiang and Cholak 2022; Nowak et al. 2022)."""

from collections.abc import Iterator

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.families.languages.tasks.language import BITS, Language, decided_by, string_automata
from interp.tasks.automata import Automaton
from interp.tasks.registry import register_task

POISSON_RATE = 1.5
"""Mean number of 1s in the strings of ONE (appendix B.2)."""


@register_task
class First(Language):
    """Does the string begin with 1? FIRST = {w : w_1 = 1}; strings are uniform (appendix B.1)."""

    name = "first"
    rule = ("=", ("at", BITS, 0), 1)

    @decided_by(places=(0,))
    def member(self, symbols: Int[Tensor, "rows width"], lengths: Int[Tensor, "rows"]) -> Bool[Tensor, "rows"]:
        return symbols[:, :1].sum(1) == 1

    def automata(self) -> Iterator[Automaton]:
        """Yield automata whose state is the first symbol, once it has been read."""
        yield from string_automata(self, -1, lambda first, symbol: symbol if first < 0 else first, lambda s: s == 1)


@register_task
class Parity(Language):
    """Is the number of 1s odd? PARITY = {w : w has an odd number of 1s}; strings are uniform (appendix B.1).

    True means odd, as in the paper; in the published code, True means even (erratum 37).
    """

    name = "parity"
    rule = ("%", ("count", BITS, 1), 2)

    @decided_by(count=True)
    def member(self, symbols: Int[Tensor, "rows width"], lengths: Int[Tensor, "rows"]) -> Bool[Tensor, "rows"]:
        return symbols.sum(1) % 2 == 1

    def automata(self) -> Iterator[Automaton]:
        """Yield automata whose state is the parity so far."""
        yield from string_automata(self, 0, lambda odd, symbol: odd ^ symbol, bool)


@register_task
class One(Language):
    """Is there exactly one 1? ONE = {w : w has exactly one 1}; the number of ones is Poisson(1.5) (appendix B.2).

    The number of ones is at most the length. A share of .335 of the strings is in the language, so a model that always
    answers no is right on .665 (language_data, item 9).
    """

    name = "one"
    rule = ("=", ("count", BITS, 1), 1)

    @decided_by(count=True)
    def member(self, symbols: Int[Tensor, "rows width"], lengths: Int[Tensor, "rows"]) -> Bool[Tensor, "rows"]:
        return symbols.sum(1) == 1

    def automata(self) -> Iterator[Automaton]:
        """Yield automata whose state is the number of ones so far: 0, 1, or 2 for two or more."""
        yield from string_automata(self, 0, lambda ones, symbol: min(2, ones + symbol), lambda ones: ones == 1)

    def draw(self, lengths: Int[Tensor, "rows"], generator: torch.Generator) -> Int[Tensor, "rows width"]:
        ones = torch.poisson(torch.full((len(lengths),), POISSON_RATE), generator=generator).long()
        ones = torch.minimum(ones, lengths)
        width = int(lengths.max()) if len(lengths) else 0
        # Sorting random keys gives a random order of places; keys of 2 put places after the string last.
        keys = torch.rand(len(lengths), width, generator=generator, dtype=torch.float64)
        keys = keys.masked_fill(torch.arange(width) >= lengths[:, None], 2.0)
        return (keys.argsort(1).argsort(1) < ones[:, None]).long()
