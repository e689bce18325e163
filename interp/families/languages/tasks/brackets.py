"""Balanced brackets: is a string of ( and ) balanced? Read at the start token of bidirectional models.

    [CLS] ( ( ) ( ) )            balanced
    [CLS] ( ) ) ( [PAD] [PAD]    not balanced, despite equal numbers of ( and )

Dyck-1 and Dyck-2 have one or two kinds of brackets, nested at most `depth` deep, and even lengths. Task brackets has no
bound on the depth and includes odd lengths. Its strings are harder: some unbalanced strings have equal numbers of ( and
), so counting is not sufficient.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from interp.errors import UnsupportedError, check_size
from interp.families.languages.tasks.language import BITS, Language, string_automata
from interp.models.spec import Scalar
from interp.tasks.automata import Automaton
from interp.tasks.batch import Batch
from interp.tasks.registry import register_task


class Dyck(Language):
    """Balanced strings over `kinds` pairs of brackets, never more than `depth` open at once.

    Symbol 2k opens kind k and symbol 2k + 1 closes it. Strings have even length, since odd ones are never balanced.
    Half of them are members: the shape is uniform over all balanced shapes of that length and depth, and the kind of
    each pair is uniform. The others are members in which one bracket is reversed or, with two kinds, changed in kind.
    """

    kinds: ClassVar[int]
    defaults: ClassVar[Mapping[str, Scalar]] = {**Language.defaults, "depth": 5}

    def __init__(self, data_seed: int = 0, **parameters: Scalar) -> None:
        super().__init__(data_seed, **parameters)
        check_size("depth", self.depth)
        self.rule = self._rule()

    @property
    def depth(self) -> int:
        return int(self.parameters["depth"])

    def _rule(self) -> tuple[Any, ...]:
        """Return the rule. Its stack of open brackets is a number with digits 1..kinds, or -1 after a mismatch."""
        base, stack, symbol = self.kinds + 1, ("so_far",), ("item",)
        kind, room = ("+", ("//", symbol, 2), 1), ("<", stack, base ** (self.depth - 1))
        closed = ("if", ("=", ("%", stack, base), kind), ("//", stack, base), -1)
        opened = ("if", room, ("+", ("*", stack, base), kind), -1)
        step = ("if", ("<", stack, 0), -1, ("if", ("%", symbol, 2), closed, opened))
        symbols = ("only", ("tokens",), ("list", *range(2 * self.kinds)))
        return ("=", ("fold", symbols, 0, step), 0)

    def member(self, symbols: Int[Tensor, "rows width"], lengths: Int[Tensor, "rows"]) -> Bool[Tensor, "rows"]:
        rows = torch.arange(len(symbols), device=symbols.device)
        height = torch.zeros_like(lengths)
        kind_at = symbols.new_zeros(len(symbols), self.depth + 1)  # the open kind at each height
        good = torch.ones_like(lengths, dtype=torch.bool)
        for place in range(symbols.shape[1]):
            inside = place < lengths
            kind, closes = symbols[:, place] // 2, symbols[:, place] % 2 == 1
            fits = torch.where(closes, (height > 0) & (kind_at[rows, height] == kind), height < self.depth)
            good &= fits | ~inside
            moves = inside & good
            height = torch.where(moves, torch.where(closes, height - 1, height + 1), height)
            opened = moves & ~closes
            kind_at[rows[opened], height[opened]] = kind[opened]
        return good & (height == 0)

    def draw(self, lengths: Int[Tensor, "rows"], generator: torch.Generator) -> Int[Tensor, "rows width"]:
        width = int(lengths.max()) if len(lengths) else 0
        symbols = torch.zeros(len(lengths), width, dtype=torch.long)
        rows, height = torch.arange(len(lengths)), torch.zeros_like(lengths)
        open_kinds = torch.zeros(len(lengths), self.depth + 2, dtype=torch.long)
        opening = self._opening_chances(width)
        for place in range(width):
            left = (lengths - place).clamp(min=0)
            opens = torch.rand(len(lengths), generator=generator, dtype=torch.float64) < opening[left, height]
            fresh = torch.randint(0, self.kinds, (len(lengths),), generator=generator)
            inside = left > 0
            kind = torch.where(opens, fresh, open_kinds[rows, height])
            symbols[:, place] = torch.where(inside, 2 * kind + ~opens, 0)
            height = torch.where(inside, torch.where(opens, height + 1, height - 1), height)
            now_open = inside & opens
            open_kinds[rows[now_open], height[now_open]] = kind[now_open]
        self._spoil(symbols, lengths, generator)
        return symbols

    def _spoil(self, symbols: Tensor, lengths: Tensor, generator: torch.Generator) -> None:
        """Change one bracket in half of the rows, in place."""
        at = (torch.rand(len(lengths), generator=generator, dtype=torch.float64) * lengths).long()
        spoiled = torch.randint(0, 2, (len(lengths),), generator=generator) == 1
        # A reversed bracket (flipped lowest bit) makes the numbers of ( and ) unequal; another kind has no partner.
        change = torch.randint(1, 2 * self.kinds, (len(lengths),), generator=generator)
        rows = torch.arange(len(lengths))[spoiled]
        symbols[rows, at[spoiled]] ^= change[spoiled]

    def _opening_chances(self, width: int) -> Float[Tensor, "left heights"]:
        """Return the probability that the next bracket opens, by the number of brackets to come and the height.

        It is computed by counting all ways to complete the string.
        """
        ways = torch.zeros(width + 1, self.depth + 3, dtype=torch.float64)  # heights -1..depth+1, borders always 0
        ways[0, 1] = 1.0
        chances = torch.zeros(width + 1, self.depth + 2, dtype=torch.float64)
        for left in range(1, width + 1):
            up, down = ways[left - 1, 2:], ways[left - 1, :-2]
            total = up + down
            ways[left, 1:-1] = total / total.max()  # only ratios matter; the numbers would overflow
            chances[left, : self.depth + 1] = torch.where(total > 0, up / total.clamp(min=1e-300), 0.0)
        return chances

    def _lengths(self, n: int, shortest: int, longest: int, generator: torch.Generator) -> Int[Tensor, "rows"]:
        low, high = (shortest + 1) // 2, longest // 2
        if low > high:
            raise UnsupportedError(
                f"{self.name}: no even length in {shortest}..{longest}, and odd strings are never balanced"
            )
        return 2 * torch.randint(low, high + 1, (n,), generator=generator)


@register_task
class Dyck1(Dyck):
    """Balanced strings of ( and )."""

    name = "dyck1"
    kinds = 1
    alphabet = ("(", ")")


@register_task
class Dyck2(Dyck):
    """Balanced strings of ( and ), [ and ]."""

    name = "dyck2"
    kinds = 2
    alphabet = ("(", ")", "[", "]")


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
    answer_words = ("not balanced", "balanced")
    _lengths = Language._lengths  # odd ones, too
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
