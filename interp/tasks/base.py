"""What a task is: tokens, labels, a seeded sampler, and, where finite, the exact input domain."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from types import FunctionType
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.budget import check_size, most
from interp.errors import InterpError, UnsupportedError, one_of, quoted
from interp.spec import Scalar, TaskRef
from interp.tasks.batch import IGNORED, Batch, Pairs, find_positions
from interp.tasks.generation import Generates
from interp.tasks.hashes import tensors_sha256
from interp.tasks.pairs import one_token_pairs
from interp.tasks.returns import affordable, watch
from interp.tasks.sets import set_word


class Task(ABC):
    """One task. A subclass needs a name, a vocabulary and sample(); with batch(tokens), most of a report applies.

    name: its name in specs. family: one of the papers' families, or a word of your own.
    vocabulary: the tokens in the order of their ids. pad: the token that fills up short rows, or None.
    splits: the names that sample(split=) understands.
    readout: whose outputs are read: "all" positions, the "first", the "last", or the position of a token.
    defaults: parameters with their default values; anything else is refused.
    needs_tables: the task cannot be made without tables from the user (see `tables`).

    What follows "what a task may declare" below is optional: each declaration adds sections to the report. Some of them
    are plain attributes, of the class or set in __init__:

    counted: the tokens whose numbers alone decide the answer, e.g. counted = ("0", "1", "2").
    contrast: the two answers of a difference of logits, e.g. contrast = ("4", "5").
    count_ranges: with three counted tokens and a contrast, how often each occurs, by split: see tasks.counted; e.g.
    count_ranges = {"train": ((0, 9),) * 3, "test": ((0, 20),) * 3}.
    label_counts: not an attribute but a method, where a function of counts defines what is right: see tasks.counted and
    tasks.occurrences. Without it, what counted says is compared with the labels as far as that can be done, and
    certificates say how far.
    products: also a method: it splits all inputs into products of token sets with one answer each; see tasks.products.
    automata: also a method: for labels that a finite automaton computes position by position; see tasks.automata.
    decision: "set" where an answer is a set of outputs, each of them above 0 or not; see tasks.sets.
    generates: where an answer is generated token by token, see tasks.generation.
    rule: the right answer as plain data, so that the live panel can judge any input; see interp.tasks.rules.
    cyclic: token groups, in order, on which addition modulo their length acts, e.g. {"a": tuple("0123456")}.

    Example:

        >>> task = interp.build("count01/minimal").task
        >>> task.describe
        "Answer '4' if there are more 1s than 0s before '=', else '5' (a tie is '5'), then [EOS]; 2s are noise."
        >>> task.format(task.sample(2, seed=0).tokens[0])[:12]
        '[BOS]1100101'
    """

    name: ClassVar[str]
    family: ClassVar[str] = "custom"
    defaults: ClassVar[Mapping[str, Scalar]] = {}
    splits: ClassVar[tuple[str, ...]] = ("train", "test")
    readout: ClassVar[str] = "all"
    needs_tables: ClassVar[bool] = False
    vocabulary: tuple[str, ...]
    pad: str | None = None
    counted: tuple[str, ...] = ()
    count_ranges: Mapping[str, tuple[tuple[int, int], ...]] = {}
    contrast: tuple[str, str] | None = None
    decision: ClassVar[Literal["set"] | None] = None
    generates: Generates | None = None
    rule: Any = None
    cyclic: Mapping[str, tuple[str, ...]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Wrap the methods of classes outside this package, to check what they return: see tasks.returns."""
        super().__init_subclass__(**kwargs)
        if isinstance(own := vars(cls).get("sample"), FunctionType):
            cls.sample = affordable(own)  # type: ignore[method-assign]
        if not cls.__module__.startswith(f"{__package__}."):
            watch(cls)

    def __init__(self, data_seed: int = 0, **parameters: Scalar) -> None:
        for name in parameters:
            if name not in self.defaults:
                raise InterpError(one_of(f"parameter of task {self.name}", name, self.defaults))
        for name, value in parameters.items():
            wanted = type(self.defaults[name])
            if wanted is not type(value) and not (wanted is float and type(value) is int):
                raise InterpError(
                    f"{self.name}: {name} = {quoted(value)} must be {'an' if wanted is int else 'a'} {wanted.__name__}"
                )
            if type(value) is int and abs(value) > most(2**20):
                raise InterpError(
                    f"{self.name}: {name} = {quoted(value)} is beyond {most(2**20):,}; "
                    "the environment variable INTERP_MAX_GB raises this limit"
                )
        check_size("data_seed", data_seed, least=0)
        self.data_seed = data_seed
        self.parameters: dict[str, Scalar] = {**self.defaults, **parameters}

    # ------------------------------------------------------------ what every task says

    @property
    def d_vocab(self) -> int:
        """Number of tokens."""
        return len(self.vocabulary)

    @abstractmethod
    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        """n fresh inputs from the distribution of a split; equal arguments give equal batches."""

    # ------------------------------------------------------------ what follows from labels, where a task is silent

    @property
    def n_out(self) -> int:
        """Number of outputs of a model of this task: one per answer word where those are stated, else one per token."""
        stated = type(self).answer_words is not Task.answer_words
        return len(self.answer_words) if stated else self.d_vocab

    def classes(self, batch: Batch) -> Int[Tensor, "rows length"]:
        """What the model is trained to put out at each position, as an output index; IGNORED where nobody reads.

        Here the labels themselves: one per row stands where `readout` is; one per position stands where it is, and a
        label below 0 asks nothing. Raises InterpError for one label per row of a task that is read at all positions.
        """
        labels = batch.labels.long()
        if labels.ndim == 2:
            return labels.masked_fill(labels < 0, IGNORED)
        if self.readout == "all":
            raise InterpError(
                f"task {self.name} is read at all positions, and its labels are one per row: set readout to the token, "
                "'first' or 'last' where its answer is read, or give labels of shape (rows, length)"
            )
        classes = torch.full_like(batch.tokens, IGNORED)
        at = find_positions(self, batch.tokens, self.readout)
        return classes.scatter(1, at[:, None], labels[:, None])

    def answers(
        self, classes: Int[Tensor, "rows *length"], tokens: Int[Tensor, "rows length"]
    ) -> Int[Tensor, "rows *length"] | Bool[Tensor, "rows"]:
        """Output indices at the positions that are read, turned into the units of Batch.labels; here they are those."""
        return classes

    def dataset(self, split: str) -> Batch:
        """The paper's fixed data set of a split, where the paper has one."""
        raise InterpError(f"task {self.name} has no fixed data set; use sample(n, split, seed)")

    def tables(self) -> dict[str, Tensor]:
        """Data that no parameter generates, such as a user's own table: a checkpoint carries it, a ref its hash."""
        return {}

    @classmethod
    def from_tables(cls, tables: Mapping[str, Tensor], data_seed: int = 0, **parameters: Scalar) -> Task:
        """The task with these tables; the inverse of tables()."""
        raise InterpError(f"task {cls.name} has no tables")

    # ------------------------------------------------------------ what a task may declare

    def batch(self, tokens: Int[Tensor, "rows length"]) -> Batch:
        """Given rows of tokens, as a model reads them, with their labels: the base of most of what follows.

        Example: return Batch(tokens, torch.full((len(tokens),), 3), (tokens[:, 0] + tokens[:, 1]) % self.p)
        Raises UnsupportedError if a task does not define it.
        """
        raise UnsupportedError(f"task {self.name} does not label given tokens; define batch(tokens) -> Batch in it")

    @property
    def labels_tokens(self) -> bool:
        """Whether the task defines `batch`, and so labels given tokens."""
        return type(self).batch is not Task.batch

    @property
    def n_inputs(self) -> int | None:
        """How many inputs `inputs` yields, known before they are made; None if they are not finitely many.

        Example: return self.p**2
        """
        return None

    def inputs(self, chunk: int = 4096) -> Iterator[Batch]:
        """Every input once, in batches of at most `chunk` rows.

        Example: for rows in torch.cartesian_prod(a, b).split(chunk): yield self.batch(rows)
        Raises UnsupportedError if a task does not define it.
        """
        raise UnsupportedError(f"task {self.name} cannot list its inputs; define n_inputs and inputs(chunk) in it")

    def weights(self, batch: Batch) -> Float[Tensor, "rows"] | None:
        """How likely the sampler draws each of these inputs, up to one factor; None if a task does not say.

        A share of all inputs can then be given twice: each input once, and as the sampler draws them.
        Example: return 0.5 ** batch.lengths.double()
        """
        return None

    def multisets(self, chunk: int = 4096) -> Iterator[tuple[Batch, Int[Tensor, "rows"]]]:
        """One input for every set of inputs that differ only in the order of what stands before the token that is read,
        with how many inputs it stands for.

        Example: yield self.batch(sorted_rows), orders_of(sorted_rows)
        Raises UnsupportedError if a task does not define it.
        """
        raise UnsupportedError(f"task {self.name} cannot list its inputs up to order; define multisets(chunk) in it")

    @property
    def answer_words(self) -> tuple[str, ...]:
        """A word for each answer, by output index: the tokens where outputs are tokens; two words for one output.

        Example: return ("even", "odd")
        """
        if self.n_out == 1:
            return ("no", "yes")
        return self.vocabulary if self.n_out == self.d_vocab else tuple(map(str, range(self.n_out)))

    @property
    def n_classes(self) -> int:
        """How many answers there are to tell apart: two for a single output, every subset of the outputs for sets."""
        return 2**self.n_out if self.decision == "set" else max(2, self.n_out)

    def word(self, answer: int) -> str:
        """The word for an answer, a class as `classes` gives it; for a set of outputs, its words in braces."""
        if self.decision == "set":
            return set_word(answer, self.answer_words)
        return self.answer_words[answer]

    def features(self, batch: Batch) -> dict[str, Tensor]:
        """Named variables of an input, one value per row, (rows,), or a position, (rows, length).

        Example: return {"a": batch.tokens[:, 0], "b": batch.tokens[:, 1], "sum": batch.labels}
        """
        return {"answer": batch.labels}

    def corrupt(self, batch: Batch, seed: int = 0) -> Pairs:
        """Minimal pairs whose answers differ; rows for which none was found are left out.

        The default changes one token into another that the batch has at the same position, up to 16 times, and needs
        `batch`. Example: return Pairs(batch, self.batch(flip_one_bit(batch.tokens)))
        """
        return one_token_pairs(self, batch, seed)

    @property
    def example(self) -> Batch | None:
        """One short input for the first screen of a report; here the shortest of 20 samples, one of several tokens
        if there is one: a single token gives heads no choice where to look.
        """
        batch = self.sample(20, self.splits[-1], seed=0)
        row = int(torch.where(batch.lengths > 1, batch.lengths, batch.tokens.shape[1] + 1).argmin())
        return batch[row : row + 1]

    @property
    def describe(self) -> str:
        """One sentence on what is asked; here the first paragraph of the class's docstring."""
        text = type(self).__dict__.get("__doc__") or ""
        return text.strip().split("\n\n")[0].replace("\n", " ").strip()

    def for_vocabulary(self, d_vocab: int) -> Task:
        """The form of this task that a model with so many tokens is asked, where it is known by name alone.

        Here as it is.

        Example: signs are digits for a model that has tokens for digits alone.
        """
        return self

    # ------------------------------------------------------------ shared by all

    @property
    def ref(self) -> TaskRef:
        """The reference to this task that a spec holds: only parameters that differ from the defaults."""
        changed = {name: value for name, value in self.parameters.items() if value != self.defaults[name]}
        tables = self.tables()
        return TaskRef(
            name=self.name,
            parameters=tuple(changed.items()),
            data_seed=self.data_seed,
            table_sha256=tensors_sha256(tables) if tables else None,
        )

    @property
    def pad_id(self) -> int | None:
        return None if self.pad is None else self.token_id(self.pad)

    def token_id(self, token: str) -> int:
        """The id of a token. Raises InterpError for a token outside the vocabulary."""
        try:
            return self.vocabulary.index(token)
        except ValueError:
            raise InterpError(one_of(f"token of task {self.name}", token, self.vocabulary)) from None

    def parse(self, text: str) -> list[int]:
        """Token ids of a string, longest token first. Raises InterpError for anything that is not a token.

        Spaces are ignored, unless a token begins another, such as "1" and "12": then they part tokens.
        """
        if self._spaced and len(parts := text.split()) > 1:
            return [token for part in parts for token in self.parse(part)]
        words = sorted(self.vocabulary, key=len, reverse=True)
        pattern = re.compile("|".join(re.escape(word) for word in words))
        squeezed = re.sub(r"\s+", "", text)
        ids, end = [], 0
        for match in pattern.finditer(squeezed):
            if match.start() != end:
                break
            ids.append(self.token_id(match.group()))
            end = match.end()
        if end != len(squeezed):
            raise InterpError(
                f"{squeezed[end]!r} at position {end} is not a token of task {self.name}: {', '.join(self.vocabulary)}"
            )
        return ids

    def format(self, tokens: Sequence[int] | Int[Tensor, "length"]) -> str:
        """The string of a row of token ids; the inverse of parse."""
        return (" " if self._spaced else "").join(self.vocabulary[int(token)] for token in tokens)

    @cached_property
    def _spaced(self) -> bool:
        """Does a token begin another one, so that text without spaces could be read in two ways?"""
        return any(a != b and b.startswith(a) for a in self.vocabulary for b in self.vocabulary)

    def check_input(self, tokens: Int[Tensor, "rows length"]) -> None:  # noqa: B027  (not every task has to refuse)
        """Raise InterpError for a row that is not an input of this task; here every row of tokens is one."""

    def check_split(self, split: str) -> str:
        if split not in self.splits:
            raise InterpError(one_of(f"split of task {self.name}", split, self.splits))
        return split

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.parameters.items())
        return f"{type(self).__name__}({arguments})"
