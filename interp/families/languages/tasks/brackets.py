"""Balanced brackets: is a string of ( and ) balanced? Read at the start token of bidirectional models.

    [CLS] ( ( ) ( ) )            balanced
    [CLS] ( ) ) ( [PAD] [PAD]    not balanced, despite equal numbers of ( and )

Unlike task dyck1, this one has no bound on the depth and includes odd lengths. Its strings are harder: some unbalanced
strings have equal numbers of ( and ), so counting is not sufficient.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn import functional

from interp.families.languages.tasks.dyck import Dyck
from interp.families.languages.tasks.language import BITS, Language, string_automata
from interp.spec import Scalar
from interp.tasks.automata import Automaton
from interp.tasks.batch import Batch
from interp.tasks.registry import register_task


@register_task
class Brackets(Dyck):
    """Balanced or not. Lengths are uniform on shortest..length, including odd lengths, which are never balanced.

    A third of the strings are balanced (for odd lengths: balanced without the last bracket), a third are balanced
    strings with one bracket reversed, and a third are balanced strings with their brackets in random order.
    """

    name = "brackets"
    family = "algorithmic"
    kinds = 1
    alphabet = ("(", ")")
    defaults: ClassVar[Mapping[str, Scalar]] = {**Language.defaults, "length": 16, "shortest": 1}

    @property
    def depth(self) -> int:
        """The largest depth that a balanced training string can have."""
        return (self._sizes[0] + 1) // 2

    def _rule(self) -> tuple[Any, ...]:
        """Compute the height (the number of open brackets) after each symbol; -1 once it has been negative."""
        step = ("if", ("<", ("so_far",), 0), -1, ("+", ("so_far",), ("-", 1, ("*", 2, ("item",)))))
        return ("=", ("fold", BITS, 0, step), 0)

    def member(self, symbols: Int[Tensor, "rows width"], lengths: Int[Tensor, "rows"]) -> Bool[Tensor, "rows"]:
        heights = self.heights(symbols, lengths)
        return (heights.amin(1) >= 0) & (heights[:, -1] == 0)

    def automata(self) -> Iterator[Automaton]:
        """Yield automata whose state is the height so far; -1 once it has been negative."""
        yield from string_automata(
            self, 0, lambda height, symbol: -1 if height < 0 else height + 1 - 2 * symbol, lambda height: height == 0
        )

    @staticmethod
    def heights(symbols: Int[Tensor, "rows width"], lengths: Int[Tensor, "rows"]) -> Int[Tensor, "rows width"]:
        """Return the number of open brackets after each symbol; constant beyond the end of the string."""
        inside = torch.arange(symbols.shape[1], device=symbols.device) < lengths[:, None]
        return torch.where(inside, 1 - 2 * symbols, 0).cumsum(1)

    def draw(self, lengths: Int[Tensor, "rows"], generator: torch.Generator) -> Int[Tensor, "rows width"]:
        return super().draw(lengths + lengths % 2, generator)[:, : int(lengths.max()) if len(lengths) else 0]

    def _spoil(self, symbols: Tensor, lengths: Tensor, generator: torch.Generator) -> None:
        """Reverse one bracket in a third of the rows and shuffle another third, in place."""
        kind = torch.randint(0, 3, (len(lengths),), generator=generator)
        at = (torch.rand(len(lengths), generator=generator) * lengths).long()
        turned = kind == 1
        symbols[turned, at[turned]] ^= 1
        keys = torch.rand(symbols.shape, generator=generator)
        keys = keys.masked_fill(torch.arange(symbols.shape[1]) >= lengths[:, None], 2.0)  # padding stays at the end
        mixed = kind == 2
        symbols[mixed] = symbols.gather(1, keys.argsort(1))[mixed]

    def _lengths(self, n: int, shortest: int, longest: int, generator: torch.Generator) -> Int[Tensor, "rows"]:
        return torch.randint(shortest, longest + 1, (n,), generator=generator)

    @property
    def answer_words(self) -> tuple[str, str]:
        """One word per answer: no, yes."""
        return ("not balanced", "balanced")

    def features(self, batch: Batch) -> dict[str, Tensor]:
        """Return the features. answer: whether the string is balanced. even: whether it has equal numbers of ( and ).
        never_below: whether no prefix has more ) than (. height: number of open brackets after each token, including
        [CLS] and padding."""
        symbols, lengths = self.symbols(batch.tokens)
        heights = self.heights(symbols, lengths)
        return {
            "answer": batch.labels.long(),
            "even": (heights[:, -1] == 0).long(),
            "never_below": (heights.amin(1) >= 0).long(),
            "height": functional.pad(heights, (1, 0)),
        }
