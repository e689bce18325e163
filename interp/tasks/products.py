"""Tasks whose inputs are a few products: at each place any token of a set, and one right answer for all of them.

A task of this shape defines products() -> Iterator[Product]. Inputs with 4 the largest of three numbers, for one: 4
first, then any two up to 4; any below 4, then 4, then any up to 4; any two below 4, then 4.

Products must be the task's inputs, each once: they are compared with the task's number of inputs and with each other.
Their answers are compared with the task's own labels on every input if there are at most LISTED, else on a sample,
and `unchecked` says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.errors import InterpError, UnsupportedError
from interp.tasks.base import Task
from interp.tasks.batch import Batch
from interp.tasks.domain import Drawn
from interp.tasks.problems import check_labels
from interp.tasks.roles import PRODUCTS, lacks

LISTED = 1 << 25
"""Inputs: about two seconds for rows of five tokens."""
SAMPLED = 16
"""Rows of each product that are compared if there are more."""
ROWS_AT_ONCE = 1 << 18
COMPARED = 1 << 26
"""Comparisons of a listed input with a product: about two seconds."""
MOST = 4096
"""More products than these are refused: they are compared in pairs."""


@dataclass(frozen=True)
class Product:
    """places: token ids, for each position of a row. right: the one right output index."""

    places: tuple[Sequence[int], ...]
    right: int

    @property
    def n_inputs(self) -> int:
        return math.prod(map(len, self.places))

    def rows(self, index: Int[Tensor, "rows"]) -> Int[Tensor, "rows length"]:
        """The inputs with these places in lexicographic order."""
        columns = []
        for tokens in reversed(self.places):
            columns.append(torch.tensor(tokens)[index % len(tokens)])
            index = index // len(tokens)
        return torch.stack(columns[::-1], 1)

    def holds(self, batch: Batch) -> Bool[Tensor, "rows"]:
        """Which rows of a batch are inputs of the product?"""
        rows = batch.tokens
        if rows.shape[1] != len(self.places):
            return torch.zeros(len(rows), dtype=torch.bool)
        columns = zip(rows.unbind(1), self.places)
        return torch.stack([torch.isin(column, torch.tensor(tokens)) for column, tokens in columns], 1).all(1)

    def drawn(self, n: int, generator: torch.Generator) -> Int[Tensor, "n length"]:
        """Independent uniform inputs."""
        columns = [torch.tensor(x)[torch.randint(len(x), (n,), generator=generator)] for x in self.places]
        return torch.stack(columns, 1)


def undeclared(task: Task) -> str | None:
    """What a task would have to declare to have this shape, or None."""
    return lacks(task, PRODUCTS)


def declared(task: Task) -> list[Product]:
    """The products that a task declares, of rows of one length that hold its tokens.

    Raises UnsupportedError with the reason where they are not; InterpError for labels that depend on other rows of a
    batch, and where every split has a sample that no product holds.
    """
    if (reason := undeclared(task)) is not None:
        raise UnsupportedError(reason)
    found: list[Product] = list(islice(task.products(), MOST + 1))  # type: ignore[attr-defined]
    if len(found) > MOST or not found:
        raise UnsupportedError(f"task {task.name} has {f'more than {MOST:,}' if found else 'no'} products")
    own = set(range(task.d_vocab))
    for number, product in enumerate(found):
        if not product.n_inputs or len(product.places) != len(found[0].places):
            raise UnsupportedError(f"product {number} of task {task.name} is empty, or its rows have another length")
        if any(len(set(tokens)) < len(tokens) or not set(tokens) <= own for tokens in product.places):
            raise UnsupportedError(f"product {number} of task {task.name} names a token twice, or none of its own")
    return found


def products_of(task: Task) -> list[Product]:
    """The products that a task declares: all its inputs, each once, with the answers that its labels say.

    Raises UnsupportedError with the reason where they are not.
    """
    found = declared(task)
    total = sum(product.n_inputs for product in found)
    if total != task.n_inputs:
        raise UnsupportedError(f"task {task.name} has {task.n_inputs or 0:,} inputs, its products {total:,}")
    _disjoint(task, found)
    for number, product in enumerate(found):
        _labeled(task, number, product, every=total <= LISTED)
    check_labels(task, task.batch(torch.cat([product.rows(torch.tensor([0])) for product in found])))
    _listed_too(task, found)
    drawn = Drawn(task)
    for product in found:
        drawn.drop(product.holds)
    drawn.finish()
    return found


def _listed_too(task: Task, products: Sequence[Product]) -> None:
    """Raise InterpError for an input that a task lists and none of its products holds; a part, where they are many."""
    if type(task).inputs is Task.inputs:
        return
    # The first ones, where they are many: a list of 10^18 inputs has no end that anybody reaches.
    many = (task.n_inputs or 0) * len(products) > COMPARED
    rows = max(1, COMPARED // (16 if many else 1) // len(products))
    chunk = min(ROWS_AT_ONCE, rows)
    for batch in islice(task.inputs(chunk), -(-rows // chunk)):
        missing = ~torch.stack([product.holds(batch) for product in products]).any(0)
        if bool(missing.any()):
            row = int(missing.int().argmax())
            text = task.format(batch.tokens[row, : int(batch.lengths[row])])
            raise InterpError(f"task {task.name} lists {text!r} among its inputs, and none of its products holds it")


def unchecked(task: Task, products: Sequence[Product]) -> tuple[str, ...]:
    """What a certificate must say of labels that were not compared; nothing where all were."""
    if (task.n_inputs or 0) <= LISTED:
        return ()
    return (f"labels: compared on {SAMPLED * len(products):,} inputs; unchecked assumption: each product of task "
            f"{task.name} has one right answer on the others",)  # fmt: skip


def _disjoint(task: Task, products: Sequence[Product]) -> None:
    """Is there no row that two products hold? They would share a token at every place."""
    shared = torch.ones(len(products), len(products), dtype=torch.bool).tril(-1)
    for place in range(len(products[0].places)):
        holds = torch.zeros(len(products), task.d_vocab)
        for row, product in zip(holds, products):
            row[list(product.places[place])] = 1
        shared &= holds @ holds.T > 0
    if bool(shared.any()):
        second, first = shared.nonzero()[0].tolist()
        raise UnsupportedError(f"products {first} and {second} of task {task.name} hold the same input")


def _labeled(task: Task, number: int, product: Product, every: bool) -> None:
    """Do the task's own labels say what a product says, at one position of a row?"""
    generator = torch.Generator().manual_seed(number)
    if every:
        parts = (product.rows(index) for index in torch.arange(product.n_inputs).split(ROWS_AT_ONCE))
    else:
        parts = (product.drawn(SAMPLED, generator) for _ in range(1))
    for rows in parts:
        try:
            task.check_input(rows)
            classes = task.classes(task.batch(rows))
        except InterpError as error:
            raise UnsupportedError(
                f"product {number} of task {task.name} holds a row that is not an input: {error}"
            ) from None
        read = classes >= 0
        wrong = (read.sum(1) != 1) | (classes.amax(1) != product.right)
        if bool(wrong.any()):
            text = task.format(rows[int(wrong.int().argmax())])
            raise UnsupportedError(f"task {task.name} labels {text!r} otherwise than its product {number}")


def read_at(task: Task, products: Sequence[Product], where: str) -> int:
    """The position at which `where` (a token, "first" or "last") reads every input of the products, which all have the
    same token there. Raises UnsupportedError if there is none."""
    length = len(products[0].places)
    if where in ("first", "last") and task.pad_id is None:
        at = 0 if where == "first" else length - 1
    elif where in task.vocabulary:
        token = task.token_id(where)
        at = next((place for place in range(length) if token in products[0].places[place]), -1)
        holds = {place for product in products for place in range(length) if token in product.places[place]}
        if holds != {at}:
            raise UnsupportedError(f"{where!r}, where the model is read, does not stand at one position of every input")
    else:
        raise UnsupportedError(f"products are certified for models that are read at one token, not {where!r}")
    if len({tuple(product.places[at]) for product in products}) > 1 or len(products[0].places[at]) > 1:
        raise UnsupportedError(f"inputs of task {task.name} have several tokens where the model is read")
    return at
