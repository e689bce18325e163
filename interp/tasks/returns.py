"""What the methods of a task give, looked at where they give it: one sentence for what nobody above could use.

Measures, engines and certificates take a task at its word for shapes and kinds of tensors. So the methods of a class
from outside are looked at whenever they are called (Task.__init_subclass__), and nothing above has to: labels of
another shape in `inputs` than in `sample`, classes that are NaN, an answer that is None. Tests look at our own tasks.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from interp.budget import need
from interp.errors import InterpError, UnsupportedError, of_type, quoted, short
from interp.tasks.batch import IGNORED, Batch, Pairs

CPU = torch.device("cpu")
PACKAGE = str(Path(__file__).parents[1])


class TaskError(InterpError):
    """A method of a task gave what it must not, or failed; never "this task has no such thing"."""


Look = Callable[[Any, str, Any, Any], Any]
"""From a task, a method as it was called, what it gave and its first argument to what it gave. Raises TaskError."""


def watch(kind: type) -> None:
    """Have the methods that a class itself defines looked at whenever they are called."""
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
    """Task.sample with one sentence for a number of inputs that no memory holds."""

    @wraps(sample)
    def called(task: Any, n: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(n, int):
            need(f"{n:,} inputs of task {task.name}", 8.0 * min(n, 10**15))  # 8 bytes each, at least
        return sample(task, n, *args, **kwargs)

    return called


@contextmanager
def errors_named(task: Any, what: str) -> Iterator[None]:
    """An error in someone's own code as one sentence that says where it is. Names that are missing are left as they
    are, for a class may be checked before they exist."""
    try:
        yield
    except (InterpError, NameError, MemoryError):
        raise
    except NotImplementedError as error:
        raise UnsupportedError(f"task {task.name} has no {what}: it is not implemented") from error
    except Exception as error:
        places = traceback.extract_tb(error.__traceback__)
        own = [place for place in places if not any(part in place.filename for part in ("site-packages", PACKAGE))]
        place = (own or places)[-1]
        said = short(" ".join(str(error).split()), 150)
        file = place.filename.replace("\\", "/").rsplit("/", 1)[-1]
        raise TaskError(
            f"task {task.name}: {what} raises {type(error).__name__}: {said} ({file}, line {place.lineno})"
        ) from error


def refuse(task: Any, problems: Iterable[str]) -> None:
    """Raise TaskError for the first problem."""
    for problem in problems:
        raise TaskError(f"task {task.name}: {problem}")


# ---------------------------------------------------------------- tensors


def kind_of(value: object) -> str:
    """What a value is, for a sentence: the shape and dtype of a tensor, its device where that is not the usual one."""
    if not isinstance(value, Tensor):
        return of_type(value)
    odd = "" if value.device.type == "cpu" else f" on {value.device}"
    odd += "" if value.layout == torch.strided else f" ({str(value.layout).removeprefix('torch.')})"
    return f"shape {tuple(value.shape)} and {value.dtype}{odd}"


def _is(value: object, device: torch.device, *dtypes: torch.dtype) -> bool:
    """Is a value a plain tensor of one of these dtypes where it is expected?"""
    return (
        isinstance(value, Tensor)
        and value.layout == torch.strided
        and value.device.type == device.type
        and value.device.type != "meta"
        and value.dtype in dtypes
    )


def _device(value: object) -> torch.device:
    return value.device if isinstance(value, Tensor) else CPU


def batch_problems(task: Any, batch: Any, what: str, device: torch.device = CPU) -> Iterator[str]:
    """What is wrong with the shapes, kinds and tokens of a batch."""
    if not isinstance(batch, Batch):
        yield f"{what} gives {of_type(batch)}; it must be an interp.Batch(tokens, lengths, labels)"
        return
    tokens, lengths, labels = batch.tokens, batch.lengths, batch.labels
    if not _is(tokens, device, torch.long) or tokens.ndim != 2 or (len(tokens) and not tokens.shape[1]):
        yield f"{what} has tokens of {kind_of(tokens)}; they must be (rows, length) of torch.long"
        return
    n, width = tokens.shape
    if not _is(lengths, device, torch.long) or lengths.shape != (n,):
        yield f"{what} has lengths of {kind_of(lengths)}; they must be ({n},) of torch.long"
    elif n and not 1 <= int(lengths.min()) <= int(lengths.max()) <= width:
        yield f"{what} has lengths from {int(lengths.min())} to {int(lengths.max())}; they must be 1 to {width}"
    wanted = (n, width) if task.readout == "all" else (n,)
    if not _is(labels, device, torch.long, torch.bool) or tuple(labels.shape) != wanted:
        yield (
            f"{what} has labels of {kind_of(labels)}; answers are read at {task.readout!r}, so they must be {wanted} "
            "of torch.long or torch.bool"
        )
    if n and not 0 <= int(tokens.min()) <= int(tokens.max()) < task.d_vocab:
        yield f"{what} has token ids outside 0 to {task.d_vocab - 1}"


def class_problems(task: Any, what: str, classes: Any, batch: Batch) -> Iterator[str]:
    """What is wrong with the shape, kind and range of classes."""
    wanted = tuple(batch.tokens.shape)
    if not _is(classes, batch.tokens.device, torch.long) or tuple(classes.shape) != wanted:
        yield (
            f"{what} gives {kind_of(classes)}; it must be {wanted} of torch.long, an output index at each position "
            f"that is read and IGNORED ({IGNORED}) elsewhere"
        )
    elif len(read := classes[classes != IGNORED]):
        yield from _outside(task, what, read)


def _outside(task: Any, what: str, indices: Tensor) -> Iterator[str]:
    low, high, top = int(indices.min()), int(indices.max()), task.n_classes - 1
    if not 0 <= low <= high <= top:
        yield f"{what} runs from {low} to {high}, outside 0 to {top}"


# ---------------------------------------------------------------- a look at what each method gives


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
        raise TaskError(f"task {task.name}: {what} gives other tokens than it is given; it must only label them")
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
        wanted = (len(batch),)
        if not _is(orders, CPU, torch.long) or tuple(orders.shape) != wanted or bool((orders < 1).any()):
            raise TaskError(
                f"task {task.name}: {what} has orders of {kind_of(orders)}; they must be {wanted} of torch.long, "
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
    """What an iterator yields, with errors in it told; a batch, a tensor or a text is none."""
    if not isinstance(given, Iterable) or isinstance(given, Batch | Tensor | str | Mapping):
        raise TaskError(f"task {task.name}: {what} gives {of_type(given)}; it must be an iterator of {of}")
    found = iter(given)
    while True:
        with errors_named(task, what):
            try:
                one = next(found)
            except StopIteration:
                return
        yield one


def _classes(task: Any, what: str, given: Any, batch: Any) -> Any:
    if isinstance(batch, Batch):
        refuse(task, class_problems(task, what, given, batch))
    return given


def _answers(task: Any, what: str, given: Any, classes: Any) -> Any:
    if not _is(given, _device(classes), torch.long, torch.bool) or given.shape != classes.shape:
        raise TaskError(
            f"task {task.name}: answers(...) gives {kind_of(given)} for classes of shape {tuple(classes.shape)}; they "
            "must be of the same shape, of torch.long or torch.bool as labels are"
        )
    return given


def _features(task: Any, what: str, given: Any, batch: Any) -> Any:
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise TaskError(f"task {task.name}: {what} gives {of_type(given)}; it must be a dict from names to tensors")
    n, width = batch.tokens.shape
    for name, value in given.items():
        real = isinstance(value, Tensor) and not value.is_complex() and _is(value, _device(batch.tokens), value.dtype)
        if not real or tuple(value.shape) not in ((n,), (n, width)):
            raise TaskError(
                f"task {task.name}: {what} has {quoted(name)} of {kind_of(value)}; it must be a tensor of real "
                f"numbers, ({n},) or {(n, width)}"
            )
        if value.is_floating_point() and not bool(value.isfinite().all()):
            raise TaskError(f"task {task.name}: {what} has values of {quoted(name)} that are not finite")
    return given


def _corrupt(task: Any, what: str, given: Any, batch: Any) -> Any:
    if not isinstance(given, Pairs):
        raise TaskError(
            f"task {task.name}: {what} gives {of_type(given)}; it must be an interp.Pairs(clean, corrupted)"
        )
    for part in (given.clean, given.corrupted):
        refuse(task, batch_problems(task, part, what))
    return given


def _label_counts(task: Any, what: str, given: Any, counts: Any) -> Any:
    wanted = tuple(counts.shape[:1])
    if not _is(given, _device(counts), torch.long) or tuple(given.shape) != wanted:
        raise TaskError(
            f"task {task.name}: {what} gives {kind_of(given)} for counts of shape {tuple(counts.shape)}; it must be "
            f"{wanted} of torch.long, the right output index at each"
        )
    if len(given):
        refuse(task, _outside(task, what, given))
    return given


def _tables(task: Any, what: str, given: Any, first: Any) -> Any:
    if not isinstance(given, Mapping) or not all(isinstance(value, Tensor) for value in given.values()):
        raise TaskError(f"task {task.name}: {what} gives {quoted(given)}; it must be a dict from names to tensors")
    return given


def _check_input(task: Any, what: str, given: Any, tokens: Any) -> None:
    if given is not None:
        raise TaskError(
            f"task {task.name}: {what} gives {quoted(given)}; it must raise interp.InterpError for anything else, "
            "and give nothing"
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
