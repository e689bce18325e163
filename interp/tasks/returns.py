"""Check the return values of a task's methods at every call (see Task.__init_subclass__).

Measures, engines and certificates rely on the shapes and dtypes of these tensors and do not check them again. Only
classes outside this package are checked here; this package's tests check its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from interp.budget import need
from interp.errors import of_type, quoted
from interp.tasks.batch import Batch, Pairs
from interp.tasks.problems import (
    CPU,
    TaskError,
    batch_problems,
    class_problems,
    errors_named,
    index_problems,
    is_tensor,
    kind_of,
    refuse,
)

Look = Callable[[Any, str, Any, Any], Any]
"""A check: (task, the call in words, returned value, first argument) -> the returned value. Raises TaskError."""


def watch(kind: type) -> None:
    """Wrap the methods that a class defines, so that every return value is checked."""
    for what, look in LOOKS.items():
        member = vars(kind).get(what.partition("(")[0])
        if isinstance(member, FunctionType):
            setattr(kind, what.partition("(")[0], _watched(what, member, look))


def _watched(what: str, member: FunctionType, look: Look) -> Any:
    name = member.__code__.co_varnames[1] if member.__code__.co_argcount > 1 else ""

    @wraps(member)
    def called(task: Any, *args: Any, **kwargs: Any) -> Any:
        first = args[0] if args else kwargs.get(name)
        here = f"{what.partition('(')[0]}({first})" if isinstance(first, int) else what
        with errors_named(task, here):
            given = member(task, *args, **kwargs)
        return look(task, here, given, first)

    return called


def affordable(sample: FunctionType) -> Any:
    """Wrap Task.sample to refuse numbers of inputs that do not fit in memory."""

    @wraps(sample)
    def called(task: Any, n: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(n, int):
            need(f"{n:,} inputs of task {task.name}", 8.0 * min(n, 10**15))  # at least 8 bytes each
        return sample(task, n, *args, **kwargs)

    return called


# ---------------------------------------------------------------- one check per method


def _device(value: object) -> torch.device:
    return value.device if isinstance(value, Tensor) else CPU


def _sample(task: Any, what: str, given: Any, n: Any) -> Any:
    refuse(task, batch_problems(task, given, what))
    if isinstance(n, int) and not min(n, 1) <= len(given) <= n:
        raise TaskError(f"task {task.name}: {what} gives {len(given)} rows")
    return given


def _dataset(task: Any, what: str, given: Any, split: Any) -> Any:
    refuse(task, batch_problems(task, given, what))
    return given


def _batch(task: Any, what: str, given: Any, tokens: Any) -> Any:
    refuse(task, batch_problems(task, given, what, _device(tokens)))
    if isinstance(tokens, Tensor) and not (given.tokens.shape == tokens.shape and bool((given.tokens == tokens).all())):
        raise TaskError(f"task {task.name}: {what} changes the tokens; it must only label them")
    return given


def _inputs(task: Any, what: str, given: Any, chunk: Any) -> Iterator[Any]:
    for batch in _iterated(task, what, given, "interp.Batch"):
        refuse(task, batch_problems(task, batch, what))
        yield batch


def _multisets(task: Any, what: str, given: Any, chunk: Any) -> Iterator[Any]:
    for pair in _iterated(task, what, given, "(interp.Batch, orders)"):
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TaskError(f"task {task.name}: {what} yields {of_type(pair)}; it must yield (interp.Batch, orders)")
        batch, orders = pair
        refuse(task, batch_problems(task, batch, what))
        expected = (len(batch),)
        if not is_tensor(orders, CPU, torch.long) or tuple(orders.shape) != expected or bool((orders < 1).any()):
            raise TaskError(
                f"task {task.name}: {what} has orders of {kind_of(orders)}; they must be {expected} of torch.long, "
                "1 or more each"
            )
        yield pair


def _products(task: Any, what: str, given: Any, first: Any) -> Iterator[Any]:
    for number, product in enumerate(_iterated(task, what, given, "interp.tasks.products.Product")):
        refuse(task, _product_problems(task, f"{what} number {number}", product))
        yield product


def _product_problems(task: Any, what: str, product: Any) -> Iterator[str]:
    places, right = getattr(product, "places", None), getattr(product, "right", None)
    if type(right) is not int or not isinstance(places, tuple):
        yield f"{what} is {quoted(product)}; it must be a Product(places, right), a tuple of token sets and an integer"
    elif not 0 <= right < task.n_classes:
        yield f"{what} has right = {right}, outside 0 to {task.n_classes - 1}"
    elif odd := [p for p in places if not isinstance(p, tuple | list | range) or any(type(t) is not int for t in p)]:
        yield f"{what} has the place {quoted(odd[0])}; each must be a tuple, list or range of token ids"


def _iterated(task: Any, what: str, given: Any, of: str) -> Iterator[Any]:
    """Yield from an iterable; its errors name the method. Raises TaskError for a value that is not an iterable."""
    if not isinstance(given, Iterable) or isinstance(given, Batch | Tensor | str | Mapping):
        raise TaskError(f"task {task.name}: {what} gives {of_type(given)}; it must be an iterator of {of}")
    iterator = iter(given)
    while True:
        with errors_named(task, what):
            try:
                one = next(iterator)
            except StopIteration:
                return
        yield one


def _classes(task: Any, what: str, given: Any, batch: Any) -> Any:
    if isinstance(batch, Batch):
        refuse(task, class_problems(task, what, given, batch))
    return given


def _answers(task: Any, what: str, given: Any, classes: Any) -> Any:
    if not is_tensor(given, _device(classes), torch.long, torch.bool) or given.shape != classes.shape:
        raise TaskError(
            f"task {task.name}: answers(...) gives {kind_of(given)} for classes of shape {tuple(classes.shape)}; it "
            "must have the same shape, and the dtype of labels, torch.long or torch.bool"
        )
    return given


def _features(task: Any, what: str, given: Any, batch: Any) -> Any:
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise TaskError(f"task {task.name}: {what} gives {of_type(given)}; it must be a dict from names to tensors")
    n, width = batch.tokens.shape
    for name, value in given.items():
        real = (
            isinstance(value, Tensor)
            and not value.is_complex()
            and is_tensor(value, _device(batch.tokens), value.dtype)
        )
        if not real or tuple(value.shape) not in ((n,), (n, width)):
            raise TaskError(
                f"task {task.name}: {what} has {quoted(name)} of {kind_of(value)}; it must be a tensor of real "
                f"numbers of shape ({n},) or {(n, width)}"
            )
        if value.is_floating_point() and not bool(value.isfinite().all()):
            raise TaskError(f"task {task.name}: {what} has values of {quoted(name)} that are not finite")
    return given


def _corrupt(task: Any, what: str, given: Any, batch: Any) -> Any:
    if not isinstance(given, Pairs):
        raise TaskError(
            f"task {task.name}: {what} gives {of_type(given)}; it must be an interp.tasks.Pairs(clean, corrupted)"
        )
    for part in (given.clean, given.corrupted):
        refuse(task, batch_problems(task, part, what))
    return given


def _label_counts(task: Any, what: str, given: Any, counts: Any) -> Any:
    expected = tuple(counts.shape[:1])
    if not is_tensor(given, _device(counts), torch.long) or tuple(given.shape) != expected:
        raise TaskError(
            f"task {task.name}: {what} gives {kind_of(given)} for counts of shape {tuple(counts.shape)}; it must be "
            f"{expected} of torch.long, the right output index for each row of counts"
        )
    if len(given):
        refuse(task, index_problems(task, what, given))
    return given


def _tables(task: Any, what: str, given: Any, first: Any) -> Any:
    if not isinstance(given, Mapping) or not all(isinstance(value, Tensor) for value in given.values()):
        raise TaskError(f"task {task.name}: {what} gives {quoted(given)}; it must be a dict from names to tensors")
    return given


def _check_input(task: Any, what: str, given: Any, tokens: Any) -> None:
    if given is not None:
        raise TaskError(
            f"task {task.name}: {what} gives {quoted(given)}; it must return None, and raise interp.InterpError for "
            "rows that are not inputs"
        )


LOOKS: dict[str, Look] = {
    "sample(n)": _sample,
    "dataset(split)": _dataset,
    "batch(tokens)": _batch,
    "inputs(chunk)": _inputs,
    "multisets(chunk)": _multisets,
    "products()": _products,
    "classes(batch)": _classes,
    "answers(classes, tokens)": _answers,
    "features(batch)": _features,
    "corrupt(batch)": _corrupt,
    "label_counts(counts)": _label_counts,
    "tables()": _tables,
    "check_input(tokens)": _check_input,
}
