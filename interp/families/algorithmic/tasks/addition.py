"""Addition of two numbers, digit by digit, with the carry: the answer is generated one digit at a time.

    4 3 2 1 + 9 9 9 0 = 3 3 2 2          1234 + 999 = 2233, least significant digit first; the last digit, 0, is read
                                         at the last 2

Numbers have a fixed number of digits, padded with zeros; the answer has one digit more. A row contains the right digits
of the answer up to the last read position (teacher forcing). So a model generates the sum of a pair correctly if and
only if every answer in its row is right.

Published models write the signs and the start token differently: as extra tokens, as the digit 0 at a fixed position,
or not at all. The parameters cover these formats.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from interp.errors import InterpError, check_one_of, check_size, quoted
from interp.families.algorithmic.tasks.numbers import NumberTask
from interp.models.spec import Scalar
from interp.tasks.automata import Automaton, Read
from interp.tasks.batch import Batch
from interp.tasks.pairs import Pairs
from interp.tasks.registry import register_task

ORDERS = ("least", "most")
MARKS = ("end", "lead", "plus", "equals")


def _tokens(word: str, digits: tuple[str, ...]) -> tuple[str, ...]:
    """Return the tokens of a word: itself, or its letters if they are several digits that are no digit together."""
    return tuple(word) if not word or ({*word} <= {*digits} and word not in digits) else (word,)


@register_task
class Addition(NumberTask):
    """The sum of two numbers with the same number of digits; each digit of it is read at the token before it.

    order, answer_order: whether the least or the most significant digit comes first ("least" or "most"), in the numbers
    and in the answer.
    lead, plus, equals, end: the tokens before the first number, between the numbers, after the second number, and after
    the answer. A word such as "+" is an extra token, a digit such as "0" is that digit, several digits such as "00" are
    that many tokens, and "" means no token. The model must also generate the end, which is one token or "".
    chains: the share of training pairs that are given a long chain of carries, which is rare among uniform pairs. From
    a random digit on, pairs of digits add up to base - 1 and propagate a carry.
    """

    name = "addition"
    readout = "all"
    defaults: ClassVar[Mapping[str, Scalar]] = {
        "base": 10, "digits": 10, "order": "least", "answer_order": "least",
        "lead": "", "plus": "+", "equals": "=", "end": "", "chains": 0.0,
    }  # fmt: skip

    def __init__(self, data_seed: int = 0, **parameters: Scalar) -> None:
        digits_as_words = {name: str(value) for name, value in parameters.items()
                           if name in MARKS and isinstance(value, int) and not isinstance(value, bool)}  # fmt: skip
        super().__init__(data_seed, **(parameters | digits_as_words))
        self.base = check_size("base", self.parameters["base"], least=2)
        self.n_digits = check_size("digits", self.parameters["digits"])
        for name in ("order", "answer_order"):
            check_one_of(f"{name} of task {self.name}", str(self.parameters[name]), ORDERS)
        self.chains = float(self.parameters["chains"])
        if not 0 <= self.chains <= 1:
            raise InterpError(f"{self.name}: chains = {self.chains} must be a share of training pairs between 0 and 1")
        digits = tuple(map(str, range(self.base)))
        self._marks = {name: _tokens(str(self.parameters[name]), digits) for name in MARKS}
        marks = [mark for tokens in self._marks.values() for mark in tokens]
        if odd := [mark for mark in marks if any(letter.isspace() for letter in mark)]:
            raise InterpError(f"{self.name}: the token {quoted(odd[0])} contains a space, so text could not be parsed")
        if len(self._marks["end"]) > 1:
            raise InterpError(f"{self.name}: end = {quoted(self.parameters['end'])} must be one token")
        # The outputs are the first tokens of the vocabulary: the digits and, if it is an extra token, the end.
        self.vocabulary = tuple(dict.fromkeys((*digits, *marks)))

    def for_vocabulary(self, d_vocab: int) -> Addition:
        """Return the task with signs written as the digit 0 if the model has only digit tokens."""
        if d_vocab != self.base or self.d_vocab == self.base:
            return self
        zeros = {name: "0" * len(tokens) for name, tokens in self._marks.items()}
        return Addition(self.data_seed, **(self.parameters | zeros))

    # ------------------------------------------------------------ positions

    @cached_property
    def fixed(self) -> dict[int, int]:
        """Position -> token, for the tokens that are the same in every row."""
        n, at = self.n_digits, 0
        tokens = {}
        for name, after in (("lead", n), ("plus", n), ("equals", 0)):
            for token in self._marks[name]:
                tokens[at] = self.token_id(token)
                at += 1
            at += after
        return tokens

    @cached_property
    def digit_places(self) -> Int[Tensor, "3 digits"]:
        """Positions of the digits of the first number, the second number and the answer, least significant first.

        The last digit of the answer is in the row only if an end token follows; otherwise its position is -1.
        """
        n, lead, plus, equals = self.n_digits, *(len(self._marks[name]) for name in ("lead", "plus", "equals"))
        place = torch.arange(n)
        number = place if self.parameters["order"] == "least" else place.flip(0)
        first, start = lead, lead + n + plus + n + equals
        answer = torch.arange(n + 1) + start
        if not self._marks["end"]:
            answer[-1] = -1
        if self.parameters["answer_order"] == "most":
            answer = answer.flip(0)
        pad = torch.full((1,), -1)
        return torch.stack([torch.cat([number + first, pad]), torch.cat([number + first + n + plus, pad]), answer])

    @property
    def answer_starts(self) -> int:
        """The position of the first digit of the answer."""
        return len(self.fixed) + 2 * self.n_digits

    @property
    def length(self) -> int:
        """Number of tokens per row."""
        return self.answer_starts + self.n_digits + len(self._marks["end"])

    @cached_property
    def read_places(self) -> Int[Tensor, "digits"]:
        """The read position of each digit of the answer (the position before it), least significant digit first."""
        order = torch.arange(self.n_digits + 1)
        if self.parameters["answer_order"] == "most":
            order = order.flip(0)
        return order + self.answer_starts - 1

    @property
    def n_out(self) -> int:
        return self.base + len({*self._marks["end"]} - {*self.vocabulary[: self.base]})

    @property
    def answer_words(self) -> tuple[str, ...]:
        """One word per output: the digits, and the end if it is an extra token."""
        return self.vocabulary[: self.n_out]

    # ------------------------------------------------------------ rows and labels

    def of_numbers(self, first: Int[Tensor, "rows digits"], second: Int[Tensor, "rows digits"]) -> Batch:
        """Make rows for pairs of numbers, given as digits, least significant first."""
        rows = torch.zeros(len(first), self.length, dtype=torch.long)
        for at, token in self.fixed.items():
            rows[:, at] = token
        a, b, s = self.digit_places
        rows[:, a[:-1]], rows[:, b[:-1]] = first.long(), second.long()
        shown = s >= 0
        rows[:, s[shown]] = self.sums(first, second)[:, shown]
        return self.batch(rows)

    def numbers(
        self, tokens: Int[Tensor, "rows length"]
    ) -> tuple[Int[Tensor, "rows digits"], Int[Tensor, "rows digits"]]:
        """Return the digits of the two numbers in each row, least significant first."""
        return tokens[:, self.digit_places[0, :-1]], tokens[:, self.digit_places[1, :-1]]

    def carries(
        self, first: Int[Tensor, "rows digits"], second: Int[Tensor, "rows digits"]
    ) -> Int[Tensor, "rows carries"]:
        """Return the carry into each digit of the answer, least significant first; the first carry is 0."""
        carry = torch.zeros(len(first), self.n_digits + 1, dtype=torch.long, device=first.device)
        for place in range(self.n_digits):
            carry[:, place + 1] = first[:, place] + second[:, place] + carry[:, place] >= self.base
        return carry

    def sums(self, first: Int[Tensor, "rows digits"], second: Int[Tensor, "rows digits"]) -> Int[Tensor, "rows more"]:
        """Return the digits of each sum, least significant first: one digit more than the numbers have."""
        return (torch.nn.functional.pad(first + second, (0, 1)) + self.carries(first, second)) % self.base

    def batch(self, tokens: Int[Tensor, "rows length"]) -> Batch:
        """Label rows of tokens: the right output at each read position, -1 elsewhere.

        Raises InterpError for a row that has another format or wrong digits in the answer.
        """
        self.check_input(tokens)
        lengths = torch.full((len(tokens),), self.length, device=tokens.device)
        labels = torch.full_like(tokens, -1)
        labels[:, self.read_places] = self.sums(*self.numbers(tokens)).to(tokens.dtype)
        if self._marks["end"]:
            labels[:, -1] = self.token_id(*self._marks["end"])
        return Batch(tokens, lengths, labels)

    def check_input(self, tokens: Int[Tensor, "rows length"]) -> None:
        """Raise InterpError unless every row has two numbers with their signs and the right digits of their sum."""
        form = f"{self.length} tokens: two numbers of {self.n_digits} digits, then the right digits of their sum"
        if tokens.shape[1] != self.length:
            raise InterpError(f"rows of {tokens.shape[1]} tokens are not inputs of task {self.name}: give {form}")
        first, second = self.numbers(tokens)
        good = ((first >= 0) & (first < self.base) & (second >= 0) & (second < self.base)).all(1)
        for at, token in self.fixed.items():
            good &= tokens[:, at] == token
        places = self.digit_places[2]
        shown = places >= 0
        good &= (tokens[:, places[shown]] == self.sums(first, second)[:, shown]).all(1)
        self.check_rows(good, tokens, form)

    def answers(
        self, classes: Int[Tensor, "rows length"], tokens: Int[Tensor, "rows length"]
    ) -> Int[Tensor, "rows length"]:
        """Return the output at each read position, -1 elsewhere."""
        read = torch.zeros(self.length, dtype=torch.bool, device=classes.device)
        read[self.read_places] = True
        read[-1] |= bool(self._marks["end"])
        return classes.masked_fill(~read, -1)

    # ------------------------------------------------------------ samples and the whole domain

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        """Draw n pairs of independent uniform numbers; in the training split, a share `chains` has long carries."""
        generator = self.generator(split, seed)
        first, second = torch.randint(0, self.base, (2, n, self.n_digits), generator=generator)
        if split == "train" and self.chains:
            second = self._chained(first, second, generator)
        return self.of_numbers(first, second)

    def _chained(
        self, first: Int[Tensor, "rows digits"], second: Int[Tensor, "rows digits"], generator: torch.Generator
    ) -> Int[Tensor, "rows digits"]:
        """Change some second numbers so that the digit pairs of a run of places add up to base - 1."""
        rows, places = len(first), torch.arange(self.n_digits)
        start, length = (torch.randint(1, self.n_digits + 1, (rows, 1), generator=generator) for _ in range(2))
        chosen = torch.rand(rows, 1, generator=generator) < self.chains
        return torch.where(chosen & (places >= start) & (places < start + length), self.base - 1 - first, second)

    def features(self, batch: Batch) -> dict[str, Tensor]:
        """Return features of each position's digit place; -1 at positions that have none.

        The digit place of a read position is that of the answer's digit read there. answer: the right output.
        digit_sum: the sum of the two digits at the place, without the carry. carry_in, carry_out: 0 or 1.
        chain_length: the length of the carry chain that ends here: 0 without a carry, 1 if the carry arises one place
        before, and one more for each pair of digits that propagates it.
        """
        first, second = self.numbers(batch.tokens)
        carries, n = self.carries(first, second), self.n_digits
        digit_sum = torch.nn.functional.pad(first + second, (0, 1))
        chain = torch.zeros_like(carries)
        for place in range(n):
            passed = digit_sum[:, place] == self.base - 1
            chain[:, place + 1] = carries[:, place + 1] * torch.where(passed, chain[:, place] + 1, 1)
        by_place = {
            "digit_sum": digit_sum,
            "carry_in": carries,
            "carry_out": torch.nn.functional.pad(carries[:, 1:], (0, 1)),
            "chain_length": chain,
        }
        features = {"answer": batch.labels.long()}
        for name, values in by_place.items():
            features[name] = torch.full_like(batch.tokens, -1)
            for numbers in self.digit_places[:2, :n]:
                features[name][:, numbers] = values[:, :n]
            features[name][:, self.read_places] = values
        return features

    @property
    def n_inputs(self) -> int:
        """Number of pairs; 10^20 by default."""
        return int(self.base ** (2 * self.n_digits))

    def inputs(self, chunk: int = 4096) -> Iterator[Batch]:
        """Every pair once, in lexicographic order of the digits, least digit first."""
        powers = [self.base**power for power in reversed(range(2 * self.n_digits))]
        for start in range(0, self.n_inputs, chunk):
            index = range(start, min(start + chunk, self.n_inputs))
            digits = torch.tensor([[place // power % self.base for power in powers] for place in index])
            yield self.of_numbers(digits[:, : self.n_digits], digits[:, self.n_digits :])

    def corrupt(self, batch: Batch, seed: int = 0) -> Pairs:
        """Replace one digit of one of the two numbers, and update the digits of the sum."""
        generator = torch.Generator().manual_seed(seed)
        digits = torch.cat(self.numbers(batch.tokens), 1)
        at = torch.randint(0, digits.shape[1], (len(digits), 1), generator=generator)
        step = torch.randint(1, self.base, (len(digits), 1), generator=generator)
        digits = digits.scatter(1, at, (digits.gather(1, at) + step) % self.base)
        return Pairs(batch, self.of_numbers(digits[:, : self.n_digits], digits[:, self.n_digits :]))

    # ------------------------------------------------------------ the automaton

    def automata(self) -> Iterator[Automaton]:
        """Yield one automaton, which reads the digits of both numbers and of the sum, least significant first.

        Its state is the carry plus the digits read at the current place. After the digit of the sum, the state is the
        new carry times the base.
        """
        a, b, s = self._kinds
        order, reads = [*self.fixed], []
        for place in range(self.n_digits):
            order += [a[place], b[place]]
            reads.append(Read(int(self.read_places[place]), len(order), self._digit))
            order += [s[place]] * (s[place] >= 0)
        reads.append(Read(int(self.read_places[-1]), len(order), self._carry))
        order += [s[-1]] * (s[-1] >= 0)
        if self._marks["end"]:
            end = self.token_id(*self._marks["end"])
            reads.append(Read(self.length - 1, len(order), lambda state: end))
        yield Automaton(tuple(order), 0, self._step, tuple(reads))

    def _step(self, state: int, position: int, token: int) -> int | None:
        """Return the next state, or None if the row is not an input."""
        if position in self.fixed:
            return state if token == self.fixed[position] else None
        if token >= self.base:
            return None
        first, second, answer = self._kinds
        if position in first:
            return self._carry(state) + token
        if position in second:
            return state + token
        right = self._carry(state) if position == answer[-1] else self._digit(state)
        return self._carry(state) * self.base if token == right else None

    @cached_property
    def _kinds(self) -> list[list[int]]:
        return self.digit_places.tolist()

    def _digit(self, state: int) -> int:
        return state % self.base

    def _carry(self, state: int) -> int:
        return state // self.base
