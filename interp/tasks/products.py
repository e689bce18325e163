"""Tasks whose inputs are products of token sets: each place may have any token of its set, and the answer is the same.

Such a task defines products() -> Iterator[Product]. For example, the rows of three numbers whose maximum is 4 are three
products: 4, then any two up to 4; any number below 4, then 4, then any up to 4; any two below 4, then 4.

The products must cover each of the task's inputs once. This is checked by the number of inputs and by comparing the
products with each other. Their answers are compared with the task's own labels on every input if there are at most
LISTED inputs. Otherwise they are compared on a sample, and `unchecked` reports the assumption about the other inputs.
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
from interp.tasks.roles import PRODUCTS, lacks
from interp.tasks.validation import check_labels

LISTED = 1 << 25
"""Largest number of inputs that are all compared, which takes about two seconds for rows of five tokens."""
SAMPLED = 16
"""Number of rows per product that are compared if there are more inputs."""
ROWS_AT_ONCE = 1 << 18
COMPARED = 1 << 26
"""Largest number of comparisons of an input with a product, which take about two seconds."""
MOST = 4096
"""Largest number of products; they are compared in pairs."""


@dataclass(frozen=True)
class Product:
    """A product of token sets. places: the token ids allowed at each position. right: the right output index."""

    places: tuple[Sequence[int], ...]
    right: int

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

    def holds(self, batch: Batch) -> Bool[Tensor, "rows"]:
        """Return a mask of the rows of a batch that are in the product."""
        rows = batch.tokens
        if rows.shape[1] != len(self.places):
            return torch.zeros(len(rows), dtype=torch.bool)
        columns = zip(rows.unbind(1), self.places)
        return torch.stack([torch.isin(column, torch.tensor(tokens)) for column, tokens in columns], 1).all(1)

    def drawn(self, n: int, generator: torch.Generator) -> Int[Tensor, "n length"]:
        """Draw n independent inputs uniformly."""
        columns = [torch.tensor(x)[torch.randint(len(x), (n,), generator=generator)] for x in self.places]
        return torch.stack(columns, 1)


def undeclared(task: Task) -> str | None:
    """Return a sentence that names the missing method `products`, or None if the task defines it."""
    return lacks(task, PRODUCTS)


def declared(task: Task) -> list[Product]:
    """Return the products that a task declares. Raises UnsupportedError, with the reason, if they are invalid."""
    if (reason := undeclared(task)) is not None:
        raise UnsupportedError(reason)
    found: list[Product] = list(islice(task.products(), MOST + 1))  # type: ignore[attr-defined]
    if len(found) > MOST or not found:
        raise UnsupportedError(f"task {task.name} has {f'more than {MOST:,}' if found else 'no'} products")
    own = set(range(task.d_vocab))
    for number, product in enumerate(found):
        if not product.n_inputs or len(product.places) != len(found[0].places):
            raise UnsupportedError(
                f"product {number} of task {task.name} is empty, or has another row length than product 0"
            )
        if any(len(set(tokens)) < len(tokens) or not set(tokens) <= own for tokens in product.places):
            raise UnsupportedError(f"product {number} of task {task.name} has a token id twice, or an unknown one")
    return found


def products_of(task: Task) -> list[Product]:
    """Return the products that a task declares, after checking that they cover each input once, with its right label.

    Raises UnsupportedError, with the reason, if a check fails, and InterpError if labels depend on other rows of a
    batch, or if an input that the task lists, or a sample of every split, is outside all products.
    """
    found = declared(task)
    total = sum(product.n_inputs for product in found)
    if total != task.n_inputs:
        raise UnsupportedError(f"task {task.name} has {task.n_inputs or 0:,} inputs, but its products have {total:,}")
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
    """Raise InterpError if an input that the task lists is outside all products; checks only the first of many."""
    if type(task).inputs is Task.inputs:
        return
    # A list of 10^18 inputs cannot be checked completely.
    many = (task.n_inputs or 0) * len(products) > COMPARED
    rows = max(1, COMPARED // (16 if many else 1) // len(products))
    chunk = min(ROWS_AT_ONCE, rows)
    for batch in islice(task.inputs(chunk), -(-rows // chunk)):
        missing = ~torch.stack([product.holds(batch) for product in products]).any(0)
        if bool(missing.any()):
            row = int(missing.int().argmax())
            text = task.format(batch.tokens[row, : int(batch.lengths[row])])
            raise InterpError(f"task {task.name} lists {text!r} among its inputs, but none of its products contains it")


def unchecked(task: Task, products: Sequence[Product]) -> tuple[str, ...]:
    """Return the unchecked assumptions about labels; empty if all labels were compared."""
    if (task.n_inputs or 0) <= LISTED:
        return ()
    return (f"labels: compared on {SAMPLED * len(products):,} inputs; unchecked assumption: all other inputs of each "
            f"product of task {task.name} have its right answer",)  # fmt: skip


def _disjoint(task: Task, products: Sequence[Product]) -> None:
    """Raise UnsupportedError if two products have a common row, that is, a common token at every place."""
    shared = torch.ones(len(products), len(products), dtype=torch.bool).tril(-1)
    for place in range(len(products[0].places)):
        holds = torch.zeros(len(products), task.d_vocab)
        for row, product in zip(holds, products):
            row[list(product.places[place])] = 1
        shared &= holds @ holds.T > 0
    if bool(shared.any()):
        second, first = shared.nonzero()[0].tolist()
        raise UnsupportedError(f"products {first} and {second} of task {task.name} contain the same input")


def _labeled(task: Task, number: int, product: Product, every: bool) -> None:
    """Raise UnsupportedError unless the task's own labels give each row the product's answer, at one position only."""
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
                f"product {number} of task {task.name} contains a row that is not an input: {error}"
            ) from None
        read = classes >= 0
        wrong = (read.sum(1) != 1) | (classes.amax(1) != product.right)
        if bool(wrong.any()):
            text = task.format(rows[int(wrong.int().argmax())])
            raise UnsupportedError(f"task {task.name} labels {text!r} differently from its product {number}")


def read_at(task: Task, products: Sequence[Product], where: str) -> int:
    """Return the read position `where` (a token, "first" or "last") in the inputs of the products.

    Raises UnsupportedError unless all inputs have the same read position, with the same token.
    """
    length = len(products[0].places)
    if where in ("first", "last") and task.pad_id is None:
        at = 0 if where == "first" else length - 1
    elif where in task.vocabulary:
        token = task.token_id(where)
        at = next((place for place in range(length) if token in products[0].places[place]), -1)
        holds = {place for product in products for place in range(length) if token in product.places[place]}
        if holds != {at}:
            raise UnsupportedError(f"{where!r}, where the model is read, is not at the same position in every input")
    else:
        raise UnsupportedError(f"products are certified for models that are read at one token, not at {where!r}")
    if len({tuple(product.places[at]) for product in products}) > 1 or len(products[0].places[at]) > 1:
        raise UnsupportedError(f"inputs of task {task.name} have several tokens where the model is read")
    return at
