"""What a task is: tokens, labels, a seeded sampler, and, where finite, the exact input domain."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.budget import SEED_LIMIT, most
from interp.errors import InterpError, UnsupportedError, one_of, quoted
from interp.spec import Scalar, TaskRef
from interp.views import view

IGNORED = -100
"""The class of a position whose output nobody reads (torch's own convention for cross_entropy)."""


@dataclass(frozen=True)
class Batch:
    """Inputs with their labels: tokens padded on the right to one length.

    labels are in the task's own units: one answer a row, or one a position (then -1 where there is none).

    Example:

        >>> task = interp.build("languages/parity").task
        >>> batch = task.batch(task.encode(["101", "1"]).tokens)
        >>> batch.lengths.tolist(), batch.labels.tolist()  # an odd number of ones?
        ([4, 2], [False, True])
    """

    tokens: Int[Tensor, "rows length"]
    lengths: Int[Tensor, "rows"]
    labels: Int[Tensor, "rows *length"] | Bool[Tensor, "rows"]

    @property
    def attention_mask(self) -> Bool[Tensor, "rows length"]:
        """True at tokens, False at padding."""
        return torch.arange(self.tokens.shape[1], device=self.tokens.device) < self.lengths[:, None]

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: slice | Tensor) -> Batch:
        return Batch(self.tokens[rows], self.lengths[rows], self.labels[rows])

    def to(self, device: str | torch.device) -> Batch:
        return replace(
            self, tokens=self.tokens.to(device), lengths=self.lengths.to(device), labels=self.labels.to(device)
        )

    def _repr_html_(self) -> str:
        """The first rows, as ids: a batch does not know its task, whose `format` writes them as text."""
        first = self[:8]
        rows = [
            (
                " ".join(map(str, tokens[:length])),
                length,
                label if isinstance(label, bool | int) else " ".join(map(str, label)),
            )
            for tokens, length, label in zip(first.tokens.tolist(), first.lengths.tolist(), first.labels.tolist())
        ]
        more = f", the first {len(first)} shown" if len(self) > len(first) else ""
        return view(f"Batch of {len(self):,} rows{more}", rows, ("token ids", "length", "label"))


@dataclass(frozen=True)
class Pairs:
    """Minimal pairs: row i of `corrupted` is row i of `clean` with a small change that changes the answer.

    Example:

        >>> task = interp.build("languages/parity").task
        >>> pairs = task.corrupt(task.sample(4, seed=0))
        >>> bool((pairs.clean.labels != pairs.corrupted.labels).all())
        True
    """

    clean: Batch
    corrupted: Batch

    def __len__(self) -> int:
        return len(self.clean)

    def __getitem__(self, rows: slice | Tensor) -> Pairs:
        return Pairs(self.clean[rows], self.corrupted[rows])


class Task(ABC):
    """One task. A subclass states its words as class attributes and implements the abstract methods.

    name: how specs call it. family: which of the papers' families it belongs to, or a word of your own.
    vocabulary: the tokens in the order of their ids. pad: the token that fills up short rows, or None.
    splits: the names that sample(split=) understands.
    readout: whose outputs are read: "all" positions, the "first", the "last", or the position of a token.
    defaults: parameters with their default values; anything else is refused.
    needs_tables: there is no such task without tables of the user's (see `tables`).

    What follows "what a task may declare" below is optional: each declaration opens more of a report. Four of them are
    plain attributes, of the class or set in __init__:

    counted: the tokens whose numbers alone decide the answer, e.g. counted = ("0", "1", "2").
    contrast: the two answers of a difference of logits, e.g. contrast = ("4", "5").
    count_ranges: with three counted tokens and a contrast, how often each occurs, by split: see tasks.counted; e.g.
    count_ranges = {"train": ((0, 9),) * 3, "test": ((0, 20),) * 3}.
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
    rule: Any = None
    cyclic: Mapping[str, tuple[str, ...]] = {}

    def __init__(self, data_seed: int = 0, **parameters: Scalar) -> None:
        for name in parameters:
            if name not in self.defaults:
                raise InterpError(one_of(f"parameter of task {self.name}", name, self.defaults))
        for name, value in parameters.items():
            wanted = type(self.defaults[name])
            if wanted is not type(value) and not (wanted is float and type(value) is int):
                raise InterpError(f"{self.name}: {name} = {quoted(value)} must be a {wanted.__name__}")
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

    @property
    @abstractmethod
    def n_out(self) -> int:
        """Number of outputs of a model of this task."""

    @abstractmethod
    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        """n fresh inputs from the distribution of a split; equal arguments give equal batches."""

    @abstractmethod
    def classes(self, batch: Batch) -> Int[Tensor, "rows length"]:
        """What the model is trained to put out at each position, as an output index; IGNORED where nobody reads."""

    @abstractmethod
    def answers(
        self, classes: Int[Tensor, "rows *length"], tokens: Int[Tensor, "rows length"]
    ) -> Int[Tensor, "rows *length"] | Bool[Tensor, "rows"]:
        """Output indices at the positions that are read, turned into the units of Batch.labels."""

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
        Raises UnsupportedError where a task does not define it.
        """
        raise UnsupportedError(f"task {self.name} does not label given tokens; define batch(tokens) -> Batch in it")

    @property
    def n_inputs(self) -> int | None:
        """How many inputs `inputs` yields, known before they are made; None where they are not finitely many.

        Example: return self.p**2
        """
        return None

    def inputs(self, chunk: int = 4096) -> Iterator[Batch]:
        """Every input once, in batches of at most `chunk` rows.

        Example: for rows in torch.cartesian_prod(a, b).split(chunk): yield self.batch(rows)
        Raises UnsupportedError where a task does not define it.
        """
        raise UnsupportedError(f"task {self.name} cannot list its inputs; define n_inputs and inputs(chunk) in it")

    def multisets(self, chunk: int = 4096) -> Iterator[tuple[Batch, Int[Tensor, "rows"]]]:
        """One input for every set of inputs that differ only in the order of what stands before the token that is read,
        with how many inputs it stands for.

        Example: yield self.batch(sorted_rows), orders_of(sorted_rows)
        Raises UnsupportedError where a task does not define it.
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

    def features(self, batch: Batch) -> dict[str, Tensor]:
        """Named variables of an input, one value a row, (rows,), or a position, (rows, length).

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
        """One short input for the first screen of a report; here the shortest of 20 samples."""
        batch = self.sample(20, self.splits[-1], seed=0)
        row = int(batch.lengths.argmin())
        return batch[row : row + 1]

    @property
    def describe(self) -> str:
        """One sentence on what is asked; here the first line of the class's docstring."""
        text = type(self).__dict__.get("__doc__") or ""
        return text.strip().split("\n\n")[0].replace("\n", " ").strip()

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
        """Token ids of a string, longest token first. Raises InterpError for what is no token.

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
                f"{squeezed[end]!r} at position {end} is no token of task {self.name}: {', '.join(self.vocabulary)}"
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
        """Raise InterpError for a row that is no input of this task; here every row of tokens is one."""

    def check_split(self, split: str) -> str:
        if split not in self.splits:
            raise InterpError(one_of(f"split of task {self.name}", split, self.splits))
        return split

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.parameters.items())
        return f"{type(self).__name__}({arguments})"


def one_token_pairs(
    task: Task, batch: Batch, seed: int = 0, tries: int = 16, places: Int[Tensor, "places"] | None = None
) -> Pairs:
    """Pairs that differ in one token, for any task with `batch`: see Task.corrupt. places: where it may be."""
    check_size("seed", seed, least=0)
    generator = torch.Generator().manual_seed(seed)
    clean, tokens, mask = task.batch(batch.tokens), batch.tokens, batch.attention_mask
    changed, found = tokens.clone(), torch.zeros(len(tokens), dtype=torch.bool)
    for _ in range(tries):
        rows = (~found).nonzero()[:, 0]
        if not len(rows):
            break
        # A place of the row, and what another row has in that place: marks that all rows share stay as they are.
        draw = torch.rand(len(rows), generator=generator, dtype=torch.float64)
        at = (draw * batch.lengths[rows]).long() if places is None else places[(draw * len(places)).long()]
        donor = torch.randint(len(tokens), (len(rows),), generator=generator)
        new = tokens[donor, at]
        good = mask[donor, at] & (new != tokens[rows, at])
        rows, at, new = rows[good], at[good], new[good]
        if not len(rows):
            continue
        tried = tokens[rows].clone()
        tried[torch.arange(len(rows)), at] = new
        allowed = _accepted(task, tried)
        rows, tried = rows[allowed], tried[allowed]
        if not len(rows):
            continue
        other = (task.batch(tried).labels != clean.labels[rows]).reshape(len(rows), -1).any(1)
        changed[rows[other]], found[rows[other]] = tried[other], True
    return Pairs(clean[found], task.batch(changed[found]))


def _accepted(task: Task, tokens: Int[Tensor, "rows length"]) -> Bool[Tensor, "rows"]:
    """Which rows are inputs of the task."""
    try:
        task.check_input(tokens)
    except InterpError:
        if len(tokens) == 1:
            return torch.zeros(1, dtype=torch.bool)
        half = len(tokens) // 2
        return torch.cat([_accepted(task, tokens[:half]), _accepted(task, tokens[half:])])
    return torch.ones(len(tokens), dtype=torch.bool)


def find_first(tokens: Int[Tensor, "rows length"], token: int) -> Int[Tensor, "rows"]:
    """Where a token stands first in each row; -1 where it does not occur."""
    here = tokens == token
    return torch.where(here.any(1), here.int().argmax(1), -1)


def find_positions(task: Task, tokens: Int[Tensor, "rows length"], token: str) -> Int[Tensor, "rows"]:
    """Where `token` stands first in each row; "first" and "last" are the first position and the last without padding.

    Raises InterpError where a row has no such token.
    """
    if token == "first":
        return torch.zeros(len(tokens), dtype=torch.long, device=tokens.device)
    if token == "last":
        if task.pad_id is None:
            return torch.full((len(tokens),), tokens.shape[1] - 1, device=tokens.device)
        return (tokens != task.pad_id).sum(1) - 1
    at = find_first(tokens, task.token_id(token))
    if (at < 0).any():
        row = int((at < 0).int().argmax())
        raise InterpError(f"row {row} has no {token!r}, where the answer of task {task.name} is read")
    return at


def check_size(name: str, value: object, least: int = 1) -> int:
    """value, or an InterpError that says it must be an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InterpError(f"{name} = {quoted(value)} must be an integer of at least {least}")
    if value >= SEED_LIMIT:
        raise InterpError(f"{name} = {quoted(value)} must be below 2^58")
    return value


T = TypeVar("T", bound=type[Task])
_REGISTRY: dict[str, type[Task]] = {}


def register_task(kind: T) -> T:
    """Make a Task subclass known by its name; usable as a decorator.

    Raises InterpError on a name that is taken, and, one sentence, for what keeps the task from working: members that
    are missing, tokens that occur twice, a sample that is no Batch, classes out of range (see tasks.checks).

    Example:

        >>> @interp.register_task
        ... class Wordless(interp.Task):
        ...     name = "wordless"
        Traceback (most recent call last):
        ...
        interp.errors.InterpError: task wordless: define answers, classes, n_out, sample; ...what each is
    """
    from interp.tasks.checks import check_task

    name = getattr(kind, "name", None)
    if not isinstance(kind, type) or not issubclass(kind, Task) or not name:
        raise InterpError(f"{kind!r} must be a subclass of interp.Task with a name")
    known = _REGISTRY.get(name)
    # The same class again (a notebook cell run twice) replaces itself; another class may not take the name.
    if known is not None and (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise InterpError(f"a task named {name!r} is registered already, by {known.__module__}")
    if not kind.__module__.startswith(f"{__package__}."):  # tests check those of this folder
        check_task(kind)
    _REGISTRY[name] = kind
    return kind


def registered_tasks() -> dict[str, type[Task]]:
    """All known tasks by name."""
    return dict(sorted(_REGISTRY.items()))


def make_task(ref: TaskRef | str, tables: Mapping[str, Tensor] | None = None) -> Task:
    """The task that a reference names, with its tables where it has some.

    Raises InterpError for an unknown name or parameter, and for tables that are not the ones the reference hashes.
    """
    if isinstance(ref, str):
        ref = TaskRef(name=ref)
    if ref.name not in _REGISTRY:
        raise InterpError(
            f"{one_of('task', ref.name, _REGISTRY)}. A task of your own must be registered first: import the file that "
            "does it; on the command line, --import my_tasks.py"
        )
    found = tensors_sha256(tables) if tables else None
    if found != ref.table_sha256:
        raise InterpError(f"task {ref.name} needs the tables with sha256 {ref.table_sha256}, not {found}")
    kind = _REGISTRY[ref.name]
    make: Callable[..., Task] = partial(kind.from_tables, tables) if tables else kind
    parameters: dict[str, Any] = dict(ref.parameters)
    for name in parameters:  # "self" is a name that no call could take
        if name not in kind.defaults:
            raise InterpError(one_of(f"parameter of task {ref.name}", name, kind.defaults))
    return make(data_seed=ref.data_seed, **parameters)


def tensors_sha256(tensors: Mapping[str, Tensor], salt: str = "") -> str:
    """The hash of named tensors: names, dtypes, shapes and bytes, in the order of the names, after `salt`."""
    digest = hashlib.sha256(salt.encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
