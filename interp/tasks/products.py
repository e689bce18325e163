"""Tasks whose inputs are products of token sets: each place may have any token of its set, and the answer is the same.

Such a task defines products() -> Iterator[ProductOfSets], which together hold each of its inputs once. For example, the
rows of three numbers whose maximum is 4 are three products: 4, then any two up to 4; any number below 4, then 4, then
any up to 4; any two below 4, then 4.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.errors import UnsupportedError
from interp.tasks.base import Task
from interp.tasks.batch import IGNORED, Batch, find_positions
from interp.tasks.structure import Structure, compare, lacks

SAMPLED = 16
"""Number of rows per product that are compared if there are too many inputs."""
ROWS_AT_ONCE = 1 << 18
MOST = 4096
"""Largest number of products; they are compared in pairs."""


@dataclass(frozen=True)
class ProductOfSets(Structure):
    """A product of token sets. places: the token ids allowed at each position. right: the right output index."""

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


def declared(task: Task) -> list[ProductOfSets]:
    """Return the products that a task declares. Raises UnsupportedError, with the reason, if they are invalid."""
    if (reason := lacks(task, ("products",))) is not None:
        raise UnsupportedError(reason)
    found: list[ProductOfSets] = list(islice(task.products(), MOST + 1))  # type: ignore[attr-defined]
    if len(found) > MOST or not found:
        raise UnsupportedError(f"task {task.name} has {f'more than {MOST:,}' if found else 'no'} products")
    if task.readout == "all":
        raise UnsupportedError(f"task {task.name} is read at all positions, and each of its products has one answer")
    length, own = len(found[0].places), set(range(task.d_vocab))
    for number, product in enumerate(found):
        if not product.n_inputs or len(product.places) != length:
            raise UnsupportedError(
                f"product {number} of task {task.name} is empty, or has another row length than product 0"
            )
        if any(len(set(tokens)) < len(tokens) or not set(tokens) <= own for tokens in product.places):
            raise UnsupportedError(f"product {number} of task {task.name} has a token id twice, or an unknown one")
    return found


def check_products(task: Task, products: Sequence[ProductOfSets]) -> tuple[str, ...]:
    """Compare products with their task; return the assumptions about labels: see structure.compare.

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
