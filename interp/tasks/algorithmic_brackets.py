"""Balanced brackets: is a string of ( and ) balanced? Read at the start token, by models that see the whole string.

    [CLS] ( ( ) ( ) )            balanced
    [CLS] ( ) ) ( [PAD] [PAD]    not balanced, though it opens as many as it closes

The languages' Dyck-1 without a bound on the depth, at every length, and against harder strings: some of those that
are not balanced have as many ( as ), so that counting alone does not decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn import functional

from interp.spec import Scalar
from interp.tasks.automata import Automaton
from interp.tasks.batch import Batch
from interp.tasks.languages import BITS, Language, string_automata
from interp.tasks.languages_dyck import Dyck
from interp.tasks.registry import register_task


@register_task
class Brackets(Dyck):
    """Balanced or not. Lengths are uniform on shortest..length, odd ones (never balanced) among them.

    A third of the strings are balanced ones (of an odd length: one that lacks its last bracket), a third are such with
    one bracket turned round, a third have the brackets of such in random order.
    """

    name = "brackets"
    family = "algorithmic"
    kinds = 1
    alphabet = ("(", ")")
    defaults: ClassVar[Mapping[str, Scalar]] = {**Language.defaults, "length": 16, "shortest": 1}

    @property
    def depth(self) -> int:
        """How deep the balanced strings of samples nest at most: no bound up to the longest training string."""
        return (self._sizes[0] + 1) // 2

    def _rule(self) -> tuple[Any, ...]:
        """The height after each symbol, however high; -1 once it was below zero."""
        step = ("if", ("<", ("so_far",), 0), -1, ("+", ("so_far",), ("-", 1, ("*", 2, ("item",)))))
        return ("=", ("fold", BITS, 0, step), 0)

    def member(self, symbols: Int[Tensor, "rows width"], lengths: Int[Tensor, "rows"]) -> Bool[Tensor, "rows"]:
        heights = self.heights(symbols, lengths)
        return (heights.amin(1) >= 0) & (heights[:, -1] == 0)

    def automata(self) -> Iterator[Automaton]:
        """The state is the height so far, however high; -1 once it was below zero."""
        yield from string_automata(
            self, 0, lambda height, symbol: -1 if height < 0 else height + 1 - 2 * symbol, lambda height: height == 0
        )

    @staticmethod
    def heights(symbols: Int[Tensor, "rows width"], lengths: Int[Tensor, "rows"]) -> Int[Tensor, "rows width"]:
        """How many more brackets have opened than closed after each symbol; beyond a row's length it stays."""
        inside = torch.arange(symbols.shape[1], device=symbols.device) < lengths[:, None]
        return torch.where(inside, 1 - 2 * symbols, 0).cumsum(1)

    def draw(self, lengths: Int[Tensor, "rows"], generator: torch.Generator) -> Int[Tensor, "rows width"]:
        return super().draw(lengths + lengths % 2, generator)[:, : int(lengths.max()) if len(lengths) else 0]

    def _spoil(self, symbols: Tensor, lengths: Tensor, generator: torch.Generator) -> None:
        """Turn one bracket round in a third of the rows and shuffle another third, in place."""
        kind = torch.randint(0, 3, (len(lengths),), generator=generator)
        at = (torch.rand(len(lengths), generator=generator) * lengths).long()
        turned = kind == 1
        symbols[turned, at[turned]] ^= 1
        keys = torch.rand(symbols.shape, generator=generator)
        keys = keys.masked_fill(torch.arange(symbols.shape[1]) >= lengths[:, None], 2.0)  # the rest stays behind
        mixed = kind == 2
        symbols[mixed] = symbols.gather(1, keys.argsort(1))[mixed]

    def _lengths(self, n: int, shortest: int, longest: int, generator: torch.Generator) -> Int[Tensor, "rows"]:
        return torch.randint(shortest, longest + 1, (n,), generator=generator)

    @property
    def answer_words(self) -> tuple[str, str]:
        """A word for each answer: no, yes."""
        return ("not balanced", "balanced")

    def features(self, batch: Batch) -> dict[str, Tensor]:
        """answer: balanced? even: as many ( as )? never_below: does no prefix close more than it opens? height: after
        each token, [CLS] and padding included."""
        symbols, lengths = self.symbols(batch.tokens)
        heights = self.heights(symbols, lengths)
        return {
            "answer": batch.labels.long(),
            "even": (heights[:, -1] == 0).long(),
            "never_below": (heights.amin(1) >= 0).long(),
            "height": functional.pad(heights, (1, 0)),
        }
