"""The registry of tasks: look up a task by name, and make one from a reference."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from torch import Tensor

from interp.errors import InterpError, one_of, quoted
from interp.spec import TaskRef
from interp.tasks.base import Task
from interp.tasks.checks import check_task
from interp.tasks.hashes import tensors_sha256

T = TypeVar("T", bound=type[Task])
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_/-]{0,99}")
_REGISTRY: dict[str, type[Task]] = {}


def register_task(kind: T) -> T:
    """Register a Task subclass under its name; usable as a decorator.

    Raises InterpError if the name is taken or the task cannot work: a missing member, a token that occurs twice, a
    sample that is not a Batch, classes out of range (see tasks.checks).

    Example:

        >>> @interp.register_task
        ... class Wordless(interp.Task):
        ...     name = "wordless"
        Traceback (most recent call last):
        ...
        interp.tasks.problems.TaskError: task wordless: define sample; ...what each is
    """
    name = getattr(kind, "name", None)
    if not isinstance(kind, type) or not issubclass(kind, Task) or not name:
        raise InterpError(f"{kind!r} must be a subclass of interp.Task with a name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InterpError(
            f"a task's name is made of letters, digits, - and _, with / between families, at most 100 characters: it "
            f"becomes a part of file names; not {quoted(name)}"
        )
    known = _REGISTRY.get(name)
    # A class may replace itself (a notebook cell run twice); another class may not take its name.
    if known is not None and (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise InterpError(f"a task named {name!r} is registered already, by {known.__module__}")
    if not kind.__module__.startswith(f"{__package__}."):  # tests check the tasks of this folder
        check_task(kind)
    _REGISTRY[name] = kind
    return kind


def registered_tasks() -> dict[str, type[Task]]:
    """Return all registered tasks by name."""
    return dict(sorted(_REGISTRY.items()))


def make_task(ref: TaskRef | str, tables: Mapping[str, Tensor] | None = None) -> Task:
    """Make the task that a reference names, with its tables if it has any.

    Raises InterpError for an unknown name or parameter, and for tables whose hash differs from the reference's.
    """
    if isinstance(ref, str):
        ref = TaskRef(name=ref)
    if ref.name not in _REGISTRY:
        unknown = one_of("task", ref.name, _REGISTRY)
        raise InterpError(
            f"{unknown}{'' if unknown.endswith('?') else '.'} A task of your own must be registered first: import the "
            "file that does it; on the command line, --import my_tasks.py"
        )
    found = tensors_sha256(tables) if tables else None
    if found != ref.table_sha256:
        raise InterpError(f"task {ref.name} needs the tables with sha256 {ref.table_sha256}, not {found}")
    kind = _REGISTRY[ref.name]
    make: Callable[..., Task] = partial(kind.from_tables, tables) if tables else kind
    parameters: dict[str, Any] = dict(ref.parameters)
    for name in parameters:  # a parameter named "self" cannot be passed
        if name not in kind.defaults:
            raise InterpError(one_of(f"parameter of task {ref.name}", name, kind.defaults))
    return make(data_seed=ref.data_seed, **parameters)
