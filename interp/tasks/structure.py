"""What a task may declare about all its inputs and their right answers, and its comparison with the task's labels.

A structure describes many inputs at once, so certificates can prove more about them than they could run: products of
token sets (below), the paths of an automaton (automata.py), or answers that depend on how often tokens occur
(counted.py: the answer compares two counts; occurrences.py: the answer at each token is a function of its count).

A declaration is compared with the task's own labels on every input if there are few, and otherwise on a sample;
`compare` then returns the assumption about the others, which certificates report.

Kinds of tasks are recognized by the members that they have, never by their names or classes.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.errors import InterpError, UnsupportedError, refuse_if, short
from interp.tasks.batch import IGNORED, Batch, find_positions
from interp.tasks.domain import Drawn
from interp.tasks.task import Task

Member = str | tuple[str, object]
"""The name of a member of a task, or the name and the value that it must have."""
COUNTS_OWN_TOKEN = ("T", "L", "bos", "bos_id", "zero_class", "of_sequences")
"""Tasks whose answer at each position is the count of its token; see tasks.Histogram."""
STRINGS = ("alphabet", "n_marks", "strings", "symbols", "of_symbols", "encode")
"""Tasks of strings over an alphabet with the answers yes and no; see tasks.Language."""
LISTED_STRINGS = (*STRINGS, "enumerate")
"""Tasks of strings that can list all strings of a length."""
CONDITIONAL_TABLE = ("conditional", "prior", "contexts", "order", "targets", "all_contexts")
"""Tasks that are a table of next-token probabilities for each context; see tasks.TableTask."""


def lacks(task: Task, members: tuple[Member, ...]) -> str | None:
    """Return a sentence about the members that a task lacks, or None if it has all of them.

    A member that every task has counts if the task sets or overrides it. A pair is a member with a value, such as
    ("readout", "all").
    """
    missing = [
        member if isinstance(member, str) else f"{member[0]} = {member[1]!r}"
        for member in members
        if not _declares(task, member)
    ]
    return f"task {task.name} declares no {', '.join(missing)}" if missing else None


def _declares(task: Task, member: Member) -> bool:
    if not isinstance(member, str):
        return bool(getattr(task, member[0], None) == member[1])
    if not hasattr(Task, member):
        return hasattr(task, member)
    default = getattr(Task, member)
    return getattr(type(task), member) is not default if callable(default) else getattr(task, member) != default


class Structure(ABC):
    """A set of inputs, which are rows of tokens, and their right answers."""

    what: ClassVar[str]
    """The declaration in messages, in the plural."""
    listed: ClassVar[int]
    """Largest number of inputs whose labels are all compared."""
    orders: ClassVar[bool] = False
    """Whether `every` yields one order of the tokens only, and `answers` gives one read position only."""

    @property
    @abstractmethod
    def n_inputs(self) -> int:
        """Number of inputs that `every` yields."""

    @abstractmethod
    def every(self) -> Iterator[Int[Tensor, "rows length"]]:
        """Yield every input once, in batches."""

    @abstractmethod
    def some(self) -> Int[Tensor, "rows length"]:
        """Return the inputs that are compared if there are more than `listed`."""

    @abstractmethod
    def answers(self, task: Task, rows: Int[Tensor, "rows length"]) -> Int[Tensor, "rows length"]:
        """Return the right output index at each read position of inputs, IGNORED elsewhere."""

    @abstractmethod
    def holds(self, batch: Batch) -> Bool[Tensor, "rows"]:
        """Return a mask of the rows of a batch that are inputs."""

    @abstractmethod
    def assumption(self, task: Task) -> str:
        """Return what is assumed about the inputs that were not compared."""


def compare(task: Task, parts: Sequence[Structure]) -> tuple[str, ...]:
    """Compare a declared structure with its task; return the assumptions about labels that were not compared.

    parts: structures without common inputs, for example one per row length. Raises UnsupportedError, with the reason,
    if the number of inputs or a label differs, and InterpError if every split has a sample that is in no part.
    """
    first, total, compared = parts[0], sum(part.n_inputs for part in parts), 0
    if not first.orders and total != task.n_inputs is not None:
        raise UnsupportedError(f"task {task.name} has {task.n_inputs:,} inputs, but {first.what} make {total:,}")
    for part in parts:
        for rows in part.every() if total <= first.listed else [part.some()]:
            compared += len(rows)
            refuse_if(difference(task, part, rows))
    drawn = Drawn(task)
    for part in parts:
        drawn.drop(part.holds)
    drawn.finish()
    if (total <= first.listed and not first.orders) or defines_labels(task):
        return ()
    return (f"labels: compared on {compared:,} inputs; unchecked assumption: {first.assumption(task)}",)


def defines_labels(task: Task) -> bool:
    """Test whether label_counts defines the labels: no subclass of its class labels otherwise."""
    owner = {name: next((kind for kind in type(task).__mro__ if name in vars(kind)), Task)
             for name in ("label_counts", "batch", "classes", "answers")}  # fmt: skip
    return hasattr(task, "label_counts") and all(issubclass(owner["label_counts"], kind) for kind in owner.values())


def difference(task: Task, part: Structure, rows: Int[Tensor, "rows length"]) -> str | None:
    """Return a sentence about the first of these rows that the task labels otherwise than its structure, or None."""
    try:
        task.check_input(rows)
        classes = task.classes(task.batch(rows))
    except InterpError as error:
        return f"{part.what} of task {task.name} make a row that is not an input: {error}"
    right = part.answers(task, rows)
    other = ((classes != right) & (right != IGNORED if part.orders else True)).any(1)
    if not bool(other.any()):
        return None
    text = short(task.format(rows[int(other.int().argmax())]))
    return f"task {task.name} labels {text!r} otherwise than {part.what} declare"


# ---------------------------------------------------------------- products of token sets

SAMPLED = 16
"""Number of rows per product that are compared if there are too many inputs."""
ROWS_AT_ONCE = 1 << 18
MOST_PRODUCTS = 4096
"""Largest number for a task; they are compared in pairs."""


@dataclass(frozen=True)
class ProductOfSets(Structure):
    """A product of token sets. places: the token ids allowed at each position. right: the right output index.

    The products() -> Iterator[ProductOfSets] of a task together hold each of its inputs once. For example, the
    rows of three numbers whose maximum is 4 are three products: 4, then any two up to 4; any number below 4, then 4,
    then any up to 4; any two below 4, then 4.
    """

    places: tuple[Sequence[int], ...]
    right: int
    what = "its products"
    listed = 1 << 25  # takes about two seconds for rows of five tokens

    @property
    def n_inputs(self) -> int:
        return math.prod(map(len, self.places))

    def rows(self, index: Int[Tensor, "rows"]) -> Int[Tensor, "rows length"]:
        """Return the inputs with these indices in lexicographic order."""
        columns = []
        for tokens in reversed(self.places):
            columns.append(torch.tensor(tokens)[index % len(tokens)])
            index = index // len(tokens)
        return torch.stack(columns[::-1], 1)

    def every(self) -> Iterator[Int[Tensor, "rows length"]]:
        return map(self.rows, torch.arange(self.n_inputs).split(ROWS_AT_ONCE))

    def some(self) -> Int[Tensor, "rows length"]:
        """Return SAMPLED independent rows."""
        draw = torch.Generator().manual_seed(0)
        return torch.stack([torch.tensor(x)[torch.randint(len(x), (SAMPLED,), generator=draw)] for x in self.places], 1)

    def answers(self, task: Task, rows: Int[Tensor, "rows length"]) -> Int[Tensor, "rows length"]:
        at = find_positions(task, rows, task.readout)[:, None]
        return torch.full_like(rows, IGNORED).scatter(1, at, self.right)

    def holds(self, batch: Batch) -> Bool[Tensor, "rows"]:
        if batch.tokens.shape[1] != len(self.places):
            return torch.zeros(len(batch), dtype=torch.bool)
        columns = zip(batch.tokens.unbind(1), self.places)
        return torch.stack([torch.isin(column, torch.tensor(tokens)) for column, tokens in columns], 1).all(1)

    def assumption(self, task: Task) -> str:
        return f"all other inputs of each product of task {task.name} have its right answer"


def declared_products(task: Task) -> list[ProductOfSets]:
    """Return the products that a task declares. Raises UnsupportedError, with the reason, if they are invalid."""
    refuse_if(lacks(task, ("products",)))
    products: list[ProductOfSets] = list(islice(task.products(), MOST_PRODUCTS + 1))  # type: ignore[attr-defined]
    if len(products) > MOST_PRODUCTS or not products:
        raise UnsupportedError(f"task {task.name} has {f'more than {MOST_PRODUCTS:,}' if products else 'no'} products")
    if task.readout == "all":
        raise UnsupportedError(f"task {task.name} is read at all positions, and each of its products has one answer")
    length, ids = len(products[0].places), set(range(task.d_vocab))
    for number, product in enumerate(products):
        if not product.n_inputs or len(product.places) != length:
            raise UnsupportedError(
                f"product {number} of task {task.name} is empty, or has another row length than product 0"
            )
        if any(len(set(tokens)) < len(tokens) or not set(tokens) <= ids for tokens in product.places):
            raise UnsupportedError(f"product {number} of task {task.name} has a token id twice, or an unknown one")
    return products


def check_products(task: Task, products: Sequence[ProductOfSets]) -> tuple[str, ...]:
    """Compare products with their task; return the assumptions about labels: see compare.

    Raises UnsupportedError, with the reason, also if two products have a common input.
    """
    shared = torch.ones(len(products), len(products), dtype=torch.bool).tril(-1)
    for place in range(len(products[0].places)):
        holds = torch.zeros(len(products), task.d_vocab)
        for row, product in zip(holds, products):
            row[list(product.places[place])] = 1
        shared &= holds @ holds.T > 0
    if bool(shared.any()):
        second, first = shared.nonzero()[0].tolist()
        raise UnsupportedError(f"products {first} and {second} of task {task.name} contain the same input")
    return compare(task, products)


def read_at(task: Task, products: Sequence[ProductOfSets], where: str) -> int:
    """Return the read position `where` (a token, "first" or "last") in the inputs of the products.

    Raises UnsupportedError unless all inputs have the same read position, with the same token.
    """
    length = len(products[0].places)
    if where in ("first", "last") and task.pad_id is None:
        at = 0 if where == "first" else length - 1
    elif where in task.vocabulary:
        token = task.token_id(where)
        holds = {place for product in products for place in range(length) if token in product.places[place]}
        if len(holds) != 1:
            raise UnsupportedError(f"{where!r}, where the model is read, is not at the same position in every input")
        (at,) = holds
    else:
        raise UnsupportedError(f"products are certified for models that are read at one token, not at {where!r}")
    if len({tuple(product.places[at]) for product in products}) > 1 or len(products[0].places[at]) > 1:
        raise UnsupportedError(f"inputs of task {task.name} have several tokens where the model is read")
    return at
