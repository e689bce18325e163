"""The base class of tasks: a vocabulary, labels, a seeded sampler and, for finite tasks, a list of all inputs."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.errors import InterpError, UnsupportedError, check_one_of, check_size, one_of, quoted, short
from interp.support.records import Scalar, TaskRef
from interp.tasks.batch import IGNORED, Batch, find_positions
from interp.tasks.batch_checks import checked_batch, checked_sample
from interp.tasks.generates import Generates
from interp.tasks.pairs import Pairs, minimal_pairs
from interp.tasks.sets import set_word

if TYPE_CHECKING:
    derived = property
else:

    class derived:
        """A property that an attribute set in __init__ replaces, as one set in the class does."""

        def __init__(self, compute: Callable[[Any], Any]) -> None:
            self.compute, self.__doc__ = compute, compute.__doc__

        def __get__(self, task: Task | None, kind: type[Task]) -> Any:
            return self if task is None else self.compute(task)


class Task(ABC):
    """A task. A subclass must define name, vocabulary and sample(); most report sections also need batch(tokens).

    name: its name in specs. family: "count01", "languages", ..., or any other word.
    vocabulary: the tokens in the order of their ids. pad: the padding token, or None.
    splits: the valid values of sample(split=).
    readout: where answers are read: at "all" positions, the "first", the "last", or at a token.
    defaults: the parameters with their default values.
    needs_tables: whether the task needs tables from the user (see `tables`).
    separated: whether text has spaces or commas between all tokens, such as "3 1 4".

    All other members are optional, and may add sections to the report. These are plain attributes of the class, or set
    in __init__ (so may be n_out, n_inputs, answer_words, example and describe):

    counted: the tokens whose counts determine the answer, e.g. counted = ("0", "1", "2").
    contrast: the two answers compared in logit differences, e.g. contrast = ("4", "5").
    count_ranges: with three counted tokens and a contrast, the range of each count per split (see tasks.counted), e.g.
    count_ranges = {"train": ((0, 9),) * 3, "test": ((0, 20),) * 3}.
    decision: "set" if an answer is a set of outputs: those with a logit above 0; see tasks.sets.
    generates: how an answer is generated token by token; see tasks.generates.
    rule: the right answer as a formula, with which the live panel can check any input; see interp.tasks.rules.
    cyclic: ordered groups of tokens for addition modulo the group's length, e.g. {"a": tuple("0123456")}.

    These methods exist only in some tasks:

    label_counts: the right answer as a function of counts; see tasks.counted and tasks.structure. Without it,
    `counted` is compared with the labels, on all inputs or on a sample, and certificates report on how many.
    products: all inputs as products of token sets with one answer each; see tasks.structure.
    automata: a finite automaton that computes the labels position by position; see tasks.automata.

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
    separated: ClassVar[bool] = False
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
        """Check what `sample` and `batch` of classes outside this package return: see tasks.batch_checks."""
        super().__init_subclass__(**kwargs)
        members = vars(cls)
        if isinstance(sample := members.get("sample"), FunctionType):
            cls.sample = checked_sample(cls, sample)  # type: ignore[method-assign]
        if isinstance(label := members.get("batch"), FunctionType):
            cls.batch = checked_batch(cls, label)  # type: ignore[method-assign]

    def __init__(self, data_seed: int = 0, **parameters: Scalar) -> None:
        for name in parameters:
            check_one_of(f"parameter of task {self.name}", name, self.defaults)
        for name, value in parameters.items():
            kind = type(self.defaults[name])
            if kind is not type(value) and not (kind is float and type(value) is int):
                raise InterpError(
                    f"{self.name}: {name} = {quoted(value)} must be {'an' if kind is int else 'a'} {kind.__name__}"
                )
        self.data_seed = TaskRef(name=self.name, data_seed=data_seed).data_seed  # one that a checkpoint can hold
        self.parameters: dict[str, Scalar] = {**self.defaults, **parameters}

    # ------------------------------------------------------------ required

    @property
    def d_vocab(self) -> int:
        """Number of tokens."""
        return len(self.vocabulary)

    @abstractmethod
    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        """Draw n inputs from the distribution of a split. The same arguments always give the same batch."""

    # ------------------------------------------------------------ derived from the labels by default

    @derived
    def n_out(self) -> int:
        """Number of model outputs: one per answer word if the task defines answer_words, otherwise one per token."""
        stated = type(self).answer_words is not Task.answer_words or "answer_words" in vars(self)
        return len(self.answer_words) if stated else self.d_vocab

    def classes(self, batch: Batch) -> Int[Tensor, "rows length"]:
        """Return the right output index at each position; IGNORED at positions that are not read.

        By default, these are the labels. One label per row goes to the readout position; labels per position become
        IGNORED where they are negative. Raises InterpError for one label per row if the task is read at all positions.
        """
        labels = batch.labels.long()
        if labels.ndim == 2:
            return labels.masked_fill(labels < 0, IGNORED)
        if self.readout == "all":
            raise InterpError(
                f"task {self.name} is read at all positions but has one label per row: set readout to 'first', 'last' "
                "or the token at which its answer is read, or give labels of shape (rows, length)"
            )
        classes = torch.full_like(batch.tokens, IGNORED)
        at = find_positions(self, batch.tokens, self.readout)
        return classes.scatter(1, at[:, None], labels[:, None])

    def answers(
        self, classes: Int[Tensor, "rows *length"], tokens: Int[Tensor, "rows length"]
    ) -> Int[Tensor, "rows *length"] | Bool[Tensor, "rows"]:
        """Convert output indices at the read positions to the units of Batch.labels; by default, leave them as is."""
        return classes

    def asked(self, batch: Batch) -> Bool[Tensor, "rows length"]:
        """Return the read positions whose answer counts; by default, all that have one.

        At the others, no input of the task ends or goes on. Example: after a bracket that closes none.
        """
        return self.classes(batch) != IGNORED

    def dataset(self, split: str) -> Batch:
        """Return the fixed data set of a split, as in the task's paper. Raises UnsupportedError if there is none."""
        raise UnsupportedError(f"task {self.name} has no fixed data set; use sample(n, split, seed)")

    def tables(self) -> dict[str, Tensor]:
        """Return data that parameters do not determine, such as a user's table.

        Checkpoints store the data; a TaskRef stores its hash.
        """
        return {}

    @classmethod
    def from_tables(cls, tables: Mapping[str, Tensor], data_seed: int = 0, **parameters: Scalar) -> Task:
        """Make the task that has these tables; the inverse of tables()."""
        raise InterpError(f"task {cls.name} has no tables")

    # ------------------------------------------------------------ optional declarations

    def batch(self, tokens: Int[Tensor, "rows length"]) -> Batch:
        """Label given rows of tokens, as a model reads them. Most of the optional members need this method.

        Example: return Batch(tokens, torch.full((len(tokens),), 3), (tokens[:, 0] + tokens[:, 1]) % self.p)
        Raises UnsupportedError if a task does not define it.
        """
        raise UnsupportedError(f"task {self.name} does not label given tokens; define batch(tokens) -> Batch in it")

    @property
    def labels_tokens(self) -> bool:
        """Whether the task defines `batch`, so that it can label given tokens."""
        return type(self).batch is not Task.batch

    @derived
    def n_inputs(self) -> int | None:
        """Number of inputs that `inputs` yields; None if it is infinite or unknown.

        Example: return self.p**2
        """
        return None

    def inputs(self, chunk: int = 4096) -> Iterator[Batch]:
        """Yield every input once, in batches of at most `chunk` rows.

        Example: for rows in torch.cartesian_prod(a, b).split(chunk): yield self.batch(rows)
        Raises UnsupportedError if a task does not define it.
        """
        raise UnsupportedError(f"task {self.name} cannot list its inputs; define n_inputs and inputs(chunk) in it")

    def weights(self, batch: Batch) -> Float[Tensor, "rows"] | None:
        """Return the sampler's probability of each input, up to a common factor; None if it is unknown.

        If it is known, a share of all inputs is reported both with equal weights and with these weights.
        Example: return 0.5 ** batch.lengths.double()
        """
        return None

    def multisets(self, chunk: int = 4096) -> Iterator[tuple[Batch, Int[Tensor, "rows"]]]:
        """Yield one input per set of inputs that differ only in the order of the tokens before the read position, with
        the number of inputs in the set.

        Example: yield self.batch(sorted_rows), orders_of(sorted_rows)
        Raises UnsupportedError if a task does not define it.
        """
        raise UnsupportedError(
            f"task {self.name} cannot list its inputs up to token order; define multisets(chunk) in it"
        )

    @derived
    def answer_words(self) -> tuple[str, ...]:
        """One word per answer, by output index. By default, the tokens, or "no" and "yes" for a single output.

        Example: return ("even", "odd")
        """
        if self.n_out == 1:
            return ("no", "yes")
        return self.vocabulary if self.n_out == self.d_vocab else tuple(map(str, range(self.n_out)))

    @derived
    def n_classes(self) -> int:
        """Number of possible answers: two for a single output; for sets, every subset of the outputs."""
        return 2**self.n_out if self.decision == "set" else max(2, self.n_out)

    def word(self, answer: int) -> str:
        """Return the word for a class; for a set of outputs, its words in braces."""
        if self.decision == "set":
            return set_word(answer, self.answer_words)
        return self.answer_words[answer]

    def features(self, batch: Batch) -> dict[str, Tensor]:
        """Return named variables of the inputs, of shape (rows,) or (rows, length).

        Example: return {"a": batch.tokens[:, 0], "b": batch.tokens[:, 1], "sum": batch.labels}
        """
        return {"answer": batch.labels}

    def corrupt(self, batch: Batch, seed: int = 0) -> Pairs:
        """Make minimal pairs whose answers differ; rows without such a pair are left out.

        By default, tries up to 16 times to replace one token by one that another row has at the same position; this
        needs `batch`. Example: return Pairs(batch, self.batch(flip_one_bit(batch.tokens)))
        """
        return minimal_pairs(self, batch, seed)

    @derived
    def example(self) -> Batch | None:
        """One short input for the start of a report.

        By default, the shortest of 20 samples with five tokens or more, or one of the longest if none has five.
        """
        batch = self.sample(20, self.splits[-1], seed=0)
        least = min(5, int(batch.lengths.max()))
        row = int(torch.where(batch.lengths >= least, batch.lengths, batch.tokens.shape[1] + 1).argmin())
        return batch[row : row + 1]

    @derived
    def describe(self) -> str:
        """One sentence that describes the task; by default, the first paragraph of the class's docstring."""
        text = type(self).__dict__.get("__doc__") or ""
        return text.strip().split("\n\n")[0].replace("\n", " ").strip()

    def for_vocabulary(self, d_vocab: int) -> Task:
        """Return the variant of this task that fits a model with `d_vocab` tokens, if only the task's name is given.

        By default, this is the task itself. Example: addition writes signs as digits if there are only digit tokens.
        """
        return self

    # ------------------------------------------------------------ shared by all tasks

    @property
    def ref(self) -> TaskRef:
        """The reference to this task in a spec, with the parameters that differ from the defaults."""
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
        """Return the token ids of a string; longer tokens are matched first. Raises InterpError for other text.

        Spaces are ignored, unless one token is a prefix of another, such as "1" of "12"; then spaces separate tokens.
        """
        if self.separated:
            return [self.token_id(word) for word in text.replace(",", " ").split()]
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
        """Write a row of token ids as text; the inverse of parse."""
        return (" " if self.separated or self._spaced else "").join(self.vocabulary[int(token)] for token in tokens)

    @cached_property
    def _spaced(self) -> bool:
        """Whether a token is a prefix of another, so that text without spaces would be ambiguous."""
        return any(a != b and b.startswith(a) for a in self.vocabulary for b in self.vocabulary)

    def check_input(self, tokens: Int[Tensor, "rows length"]) -> None:  # noqa: B027  (by default, nothing is refused)
        """Raise InterpError for rows that are not inputs of this task; by default, accept all rows of tokens."""

    def check_rows(self, good: Bool[Tensor, "rows"], tokens: Int[Tensor, "rows length"], form: str) -> None:
        """Raise InterpError for the first row that is not good. form: what a row must be, for the message."""
        if not good.all():
            row = int((~good).int().argmax())
            shown = short(self.format([token for token in tokens[row].tolist() if 0 <= token < self.d_vocab]))
            raise InterpError(f"row {row}, {shown!r}, is not an input of task {self.name}: it must be {form}")

    def generator(self, split: str, seed: int) -> torch.Generator:
        """Return the random generator for a split and seed."""
        check_size("seed", seed, least=0)
        return torch.Generator().manual_seed(seed * 16 + self.splits.index(self.check_split(split)))

    def check_split(self, split: str) -> str:
        return check_one_of(f"split of task {self.name}", split, self.splits)

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.parameters.items())
        return f"{type(self).__name__}({arguments})"


def tensors_sha256(tensors: Mapping[str, Tensor], salt: str = "") -> str:
    """Hash named tensors: `salt`, then names, dtypes, shapes and bytes in the order of the names."""
    digest = hashlib.sha256(salt.encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
