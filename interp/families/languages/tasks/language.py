"""The base class of formal languages: strings over an alphabet after [CLS], in some languages followed by [EOS].

    [CLS] 0 1 1 0                  a string of FIRST, PARITY or ONE: n = length + 1 tokens
    [CLS] 0 1 1 0 [EOS]            a string of PALINDROME: n = length + 2 tokens

The label is True if and only if the string is in the language. The papers' n includes [CLS] and [EOS], but the lengths
in their plots do not (erratum 30); here `length` is always the number of symbols.
"""

import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.errors import InterpError, check_size
from interp.models.spec import Scalar
from interp.tasks.automata import Automaton, Read
from interp.tasks.batch import Batch, concatenate, digits_of
from interp.tasks.pairs import Pairs, minimal_pairs
from interp.tasks.task import Task

BITS = ("only", ("tokens",), ("list", 0, 1))
"""The symbols of a row over {0, 1}, as a rule (see interp.tasks.rules)."""

ENUMERATION_LIMIT = 1 << 22
"""Largest number of strings that `enumerate` makes at once."""

M = TypeVar("M", bound=Callable[..., Any])


@dataclass(frozen=True)
class Decided:
    """What determines membership among strings of one length: the number of ones (`count`) or symbols at `places`."""

    count: bool
    places: tuple[int, ...]


def decided_by(*, count: bool = False, places: tuple[int, ...] = ()) -> Callable[[M], M]:
    """Declare, as a decorator of member(), what alone determines membership among strings of one length.

    A subclass that overrides member() must repeat the decorator.

    @decided_by(places=(0,))
    def member(self, symbols, lengths): ...
    """

    def mark(member: M) -> M:
        member.decided = Decided(count, places)  # type: ignore[attr-defined]
        return member

    return mark


def decided(language: Task) -> Decided | None:
    """Return the language's declaration by @decided_by, or None."""
    return getattr(getattr(type(language), "member", None), "decided", None)


class Language(Task):
    """A language of strings. A subclass defines the alphabet, membership, and how strings are drawn.

    length: number of symbols in a training string. shortest: if not 0, training lengths are uniform on
    shortest..length. test_length: number of symbols in a test string; 0 draws test strings like training strings.
    """

    family = "languages"
    readout = "[CLS]"
    pad = "[PAD]"
    n_out = 1
    answer_words = ("not a member", "a member")
    defaults: ClassVar[Mapping[str, Scalar]] = {"length": 20, "shortest": 0, "test_length": 0}
    alphabet: ClassVar[tuple[str, ...]] = ("0", "1")
    ends: ClassVar[bool] = False
    """Whether [EOS] ends the string."""

    def __init__(self, data_seed: int = 0, **parameters: Scalar) -> None:
        super().__init__(data_seed, **parameters)
        self.vocabulary = (*self.alphabet, "[CLS]", *(["[EOS]"] if self.ends else []), "[PAD]")
        longest, shortest, test = self._sizes
        check_size("length", longest)
        check_size("shortest", shortest, least=0)
        check_size("test_length", test, least=0)
        if shortest > longest:
            raise InterpError(f"{self.name}: shortest = {shortest} must not exceed length = {longest}")

    @property
    def _sizes(self) -> tuple[int, int, int]:
        return tuple(int(self.parameters[key]) for key in ("length", "shortest", "test_length"))  # type: ignore[return-value]

    # ------------------------------------------------------------ defined by a language

    @abstractmethod
    def member(self, symbols: Int[Tensor, "rows width"], lengths: Int[Tensor, "rows"]) -> Bool[Tensor, "rows"]:
        """Test whether each string is in the language. symbols: indices into the alphabet, 0 after the string."""

    def draw(self, lengths: Int[Tensor, "rows"], generator: torch.Generator) -> Int[Tensor, "rows width"]:
        """Draw one random string of each length from the task's distribution; symbols after the string are ignored.

        By default, symbols are independent and uniform.
        """
        width = int(lengths.max()) if len(lengths) else 0
        return torch.randint(0, len(self.alphabet), (len(lengths), width), generator=generator)

    # ------------------------------------------------------------ strings and tokens

    @property
    def n_marks(self) -> int:
        """Number of tokens in a row that are not symbols: n - length."""
        return 1 + self.ends

    def of_symbols(self, symbols: Int[Tensor, "rows width"], lengths: Int[Tensor, "rows"]) -> Batch:
        """Make rows of tokens with labels from symbols (indices into the alphabet) and lengths of at least 1."""
        if len(lengths) and int(lengths.min()) < 1:
            raise InterpError(f"the empty string is not an input of task {self.name}: lengths start at 1")
        width = symbols.shape[1]
        inside = torch.arange(width) < lengths[:, None]
        symbols = torch.where(inside, symbols, 0)
        tokens = torch.full((len(symbols), width + self.n_marks), self.token_id("[PAD]"))
        tokens[:, 0] = self.token_id("[CLS]")
        tokens[:, 1 : width + 1] = torch.where(inside, symbols, self.token_id("[PAD]"))
        if self.ends:
            tokens[torch.arange(len(tokens)), lengths + 1] = self.token_id("[EOS]")
        return Batch(tokens, lengths + self.n_marks, self.member(symbols, lengths))

    def batch(self, tokens: Int[Tensor, "rows width"]) -> Batch:
        """Label rows of tokens as a model reads them, with [CLS], [EOS] and padding."""
        symbols, lengths = self.symbols(tokens)
        return Batch(tokens, lengths + self.n_marks, self.member(symbols, lengths))

    def features(self, batch: Batch) -> dict[str, Tensor]:
        """Return the answer, the string's length and first symbol, and the count of the alphabet's last symbol."""
        symbols, lengths = self.symbols(batch.tokens)
        inside = torch.arange(symbols.shape[1]) < lengths[:, None]
        last = len(self.alphabet) - 1
        number = ((symbols == last) & inside).sum(1)
        return {
            "answer": batch.labels,
            "length": lengths,
            "first symbol": symbols[:, 0],
            f"number of {self.alphabet[last]}": number,
        }

    def corrupt(self, batch: Batch, seed: int = 0) -> Pairs:
        """Change one symbol; if the language is declared `decided_by` places, at one of these."""
        rule = decided(self)
        places = torch.tensor(rule.places) + 1 if rule and rule.places and not rule.count else None  # after [CLS]
        return minimal_pairs(self, batch, seed, places=places)

    def encode(self, strings: Sequence[str]) -> Batch:
        """Convert strings over the alphabet, such as "0110", to rows of tokens with labels.

        Raises InterpError for an empty string or a symbol outside the alphabet.
        """
        for string in strings:
            if odd := [at for at, letter in enumerate(string) if letter not in self.alphabet]:
                raise InterpError(
                    f"{string[odd[0]]!r} at position {odd[0]} of a string of {self.name} is outside its alphabet "
                    f"{', '.join(self.alphabet)}"
                )
        rows = [[*map(self.alphabet.index, string)] for string in strings]
        lengths = torch.tensor([len(row) for row in rows], dtype=torch.long)
        symbols = torch.zeros(len(rows), max((len(row) for row in rows), default=0), dtype=torch.long)
        for row, values in zip(symbols, rows):
            row[: len(values)] = torch.tensor(values, dtype=torch.long)
        return self.of_symbols(symbols, lengths)

    def symbols(self, tokens: Int[Tensor, "rows width"]) -> tuple[Int[Tensor, "rows symbols"], Int[Tensor, "rows"]]:
        """Return the symbols (0 after the string) and lengths of rows of tokens; the inverse of of_symbols.

        Raises InterpError unless a row is [CLS], at least one symbol, [EOS] if the language has it, and padding.
        """
        self.check_input(tokens)
        lengths = (tokens < len(self.alphabet)).sum(1)
        inner = tokens[:, 1 : 1 + int(lengths.max())] if len(tokens) else tokens[:, 1:]
        return torch.where(inner < len(self.alphabet), inner, 0), lengths

    def check_input(self, tokens: Int[Tensor, "rows width"]) -> None:
        """Raise InterpError unless every row is [CLS], symbols, [EOS] if the language has it, and padding."""
        is_symbol = tokens < len(self.alphabet)
        lengths = is_symbol.sum(1)
        place = torch.arange(tokens.shape[1], device=tokens.device)
        wanted = torch.full_like(tokens, self.token_id("[PAD]"))
        wanted[:, :1] = self.token_id("[CLS]")
        if self.ends:
            wanted[place == lengths[:, None] + 1] = self.token_id("[EOS]")
        inside = (place >= 1) & (place <= lengths[:, None])
        right = torch.where(inside, is_symbol, tokens == wanted)
        # The last condition refuses a row that fills the whole width and so has no [EOS].
        good = right.all(1) & (lengths >= 1) & (lengths + self.n_marks <= tokens.shape[1])
        end = ", [EOS]" if self.ends else ""
        self.check_rows(good, tokens, f"[CLS], at least one symbol{end}, then only [PAD]")

    def parse(self, text: str) -> list[int]:
        """Return the token ids of a string, such as "0110", or of a row, such as "[CLS]0110", with any [EOS].

        Raises InterpError for other text.
        """
        squeezed = re.sub(r"\s+", "", text)
        if not squeezed.startswith("[CLS]"):
            return self.encode([squeezed]).tokens[0].tolist()
        ids = super().parse(squeezed)
        self.check_input(torch.tensor([ids]))
        return ids

    def is_member(self, text: str) -> bool:
        """Test whether a string over the alphabet is in the language."""
        return bool(self.encode([re.sub(r"\s+", "", text)]).labels[0])

    # ------------------------------------------------------------ classes and answers

    def answers(self, classes: Int[Tensor, "rows"], tokens: Int[Tensor, "rows width"]) -> Bool[Tensor, "rows"]:
        """Convert classes to booleans: whether each string is in the language."""
        return classes == 1

    # ------------------------------------------------------------ samples and domains

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        """Draw n strings with the lengths of a split from the distribution of the paper (appendix B)."""
        longest, shortest, test = self._sizes
        if self.check_split(split) == "test" and test:
            longest, shortest = test, 0
        return self.strings(n, longest, shortest or longest, seed=seed, stream=self.splits.index(split))

    def strings(self, n: int, length: int, shortest: int | None = None, *, seed: int = 0, stream: int = 2) -> Batch:
        """Draw n strings of one length, or with lengths uniform on shortest..length."""
        shortest = length if shortest is None else shortest
        generator = torch.Generator().manual_seed(seed * 16 + stream)
        lengths = self._lengths(n, shortest, length, generator)
        return self.of_symbols(self.draw(lengths, generator), lengths)

    def _lengths(self, n: int, shortest: int, longest: int, generator: torch.Generator) -> Int[Tensor, "rows"]:
        return torch.randint(shortest, longest + 1, (n,), generator=generator)

    @property
    def test_lengths(self) -> range:
        """The lengths of test strings."""
        longest, shortest, test = self._sizes
        return range(test, test + 1) if test else range(shortest or longest, longest + 1)

    @property
    def n_inputs(self) -> int:
        """Number of strings that have the length of a test string."""
        return sum(len(self.alphabet) ** length for length in self.test_lengths)

    def inputs(self, chunk: int = 4096) -> Iterator[Batch]:
        """Yield all strings that have the length of a test string: short ones first, then in lexicographic order."""
        base = len(self.alphabet)
        for length in self.test_lengths:
            for start in range(0, base**length, chunk):
                index = torch.arange(start, min(start + chunk, base**length))
                yield self.of_symbols(digits_of(index, base, length), torch.full((len(index),), length))

    def enumerate(self, length: int) -> Batch:
        """Return all strings of one length, in lexicographic order. Raises InterpError if there are too many."""
        base = len(self.alphabet)
        if base**length > ENUMERATION_LIMIT:
            raise InterpError(
                f"length = {length}: {base}^{length} strings are more than the limit of {ENUMERATION_LIMIT}"
            )
        symbols = digits_of(torch.arange(base**length), base, length)
        return self.of_symbols(symbols, torch.full((len(symbols),), length))

    def enumerate_up_to(self, length: int) -> Batch:
        """Return all strings of the lengths from 1 to `length`, padded to one width."""
        return concatenate([self.enumerate(each) for each in range(1, length + 1)], self.pad_id)


def string_automata(
    language: Language, start: Any, step: Callable[[Any, int], Any], accepts: Callable[[Any], bool]
) -> Iterator[Automaton]:
    """Yield an automaton for each test length.

    step: from a state and a symbol to the next state. accepts: whether a string that ends in this state is a member.
    """
    first, close = language.token_id("[CLS]"), language.token_id("[EOS]") if language.ends else -1

    def read(length: int) -> Callable[[Any, int, int], Any]:
        def next_state(state: Any, position: int, token: int) -> Any:
            if position in (0, length + 1):
                return state if token == (close if position else first) else None
            return step(state, token) if token < len(language.alphabet) else None

        return next_state

    for length in language.test_lengths:
        n = length + language.n_marks
        yield Automaton(tuple(range(n)), start, read(length), (Read(0, n, lambda state: int(accepts(state))),))
