"""What a task holds, so that one that was changed after a model was built from it can be told.

A spec names a task and its parameters, and its id is what claims are filed under. A task object is not frozen: with
`model.task.T = 5`, or another dict behind its labels, it asks something else under the old id. So a model keeps what
its task held when it was built, and a claim about it asks whether the task still holds that.

Looked at are plain values (numbers, words, tensors, containers of these) and methods set on the object, of the object
and of the classes of someone else's that it is made of. Private containers and what is there only later are taken for
caches. What a method reads elsewhere, in a global or a file, is not seen here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
from torch import Tensor

from interp.errors import InterpError, quoted
from interp.tasks.base import Task
from interp.tasks.registry import make_task, registered_tasks
from interp.tasks.returns import told

State = Mapping[str, tuple[object, str]]
"""By name of an attribute: a copy of its value that can be compared, and what a sentence shows of it."""

Code = FunctionType | staticmethod | classmethod | property
_ABSENT = (None, "absent")


def state_of(task: Task) -> State:
    """What a task holds now."""
    kinds = [kind for kind in type(task).__mro__ if issubclass(kind, Task) and kind is not Task]
    held: dict[str, Any] = {}
    for owner in (*reversed(kinds), task):
        ours = isinstance(owner, type) and owner.__module__.startswith(f"{__package__}.")
        held |= {name: value for name, value in vars(owner).items()
                 if not name.startswith(("__", "_abc_")) and not (ours and isinstance(value, Code))}  # fmt: skip
    caches = {name for name, value in held.items() if name.startswith("_") and isinstance(value, list | dict | set)}
    caches |= {name for name in held if isinstance(getattr(type(task), name, None), cached_property)}
    parts: dict[str, Any] = {}
    for name, value in held.items():
        if isinstance(value, Mapping) and value:
            parts |= {f"{name}[{key!r}]": one for key, one in value.items() if name not in caches}
        elif name not in caches:
            parts[name] = value
    kept = {name: (_copy(value), _shown(value)) for name, value in parts.items() if _is_plain(value)}
    return {"class": (f"{type(task).__module__}.{type(task).__qualname__}", type(task).__qualname__), **kept}


def changed(before: State, task: Task) -> str | None:
    """How a task differs from what it held before, or None."""
    return _difference(before, state_of(task), "was {} when the model was built, and is {}")


def beyond_ref(task: Task) -> str | None:
    """What a task holds that its name and parameters alone do not make, or None."""
    if task.name not in registered_tasks():
        return f"no task named {task.name!r} is registered"
    try:
        with told(task, "its class, made from these,"):
            alone = make_task(task.ref, task.tables())
    except InterpError as error:
        return str(error).removeprefix(f"task {task.name}: ")
    return _difference(state_of(alone), state_of(task), "would be {} by its name and parameters alone, and is {}")


def _difference(before: State, now: State, words: str) -> str | None:
    for name in sorted({*before, *now}, key=lambda name: (name != "class", name)):
        was, held = before.get(name, _ABSENT), now.get(name, _ABSENT)
        if was[0] != held[0] and not (name.startswith("_") and name not in before):
            same = was[1] == held[1]  # a tensor of other values, another function
            return f"its {name} {words.format(was[1], 'another' if same else held[1])}"
    return None


def _is_plain(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_plain, (*value.keys(), *value.values())))
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(_is_plain, value))
    return value is None or isinstance(
        value, bool | int | float | complex | str | bytes | Tensor | np.ndarray | np.generic | MethodType | Code
    )


def _shown(value: object) -> str:
    return f"a {type(value).__name__}" if isinstance(value, Tensor | np.ndarray | MethodType | Code) else quoted(value)


def _copy(value: Any) -> object:
    """A value that stays as it is now; equal for equal values, NaN included."""
    if isinstance(value, Tensor | np.ndarray):
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        return "array", str(array.dtype), array.shape, hashlib.blake2b(np.ascontiguousarray(array).tobytes()).digest()
    if isinstance(value, Mapping):
        return "dict", tuple((_copy(name), _copy(one)) for name, one in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_copy, value))
    if isinstance(value, set | frozenset):
        return "set", frozenset(map(_copy, value))
    if isinstance(value, MethodType | Code):
        return _code(value, ())
    return type(value).__name__, repr(value)


def _code(value: Any, outer: tuple[Any, ...]) -> object:
    """What a function does, as plain values, which a copied or pickled model takes along: its code, its defaults, and
    what it holds of the functions around it.
    """
    if isinstance(value, MethodType | staticmethod | classmethod):
        return type(value).__name__, _code(value.__func__, outer)
    if isinstance(value, property):
        return "property", tuple(_code(one, outer) for one in (value.fget, value.fset, value.fdel))
    if isinstance(value, CodeType):
        names = (value.co_names, value.co_varnames, value.co_freevars)
        return "code", value.co_code, names, tuple(_code(one, outer) for one in value.co_consts)
    if isinstance(value, FunctionType):
        if value in outer:
            return "function", "itself"
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != CellType()]
        held = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).items(), *cells]
        return "function", _code(value.__code__, outer), tuple(_code(one, (*outer, value)) for one in held)
    if isinstance(value, list | tuple):
        return tuple(_code(one, outer) for one in value)
    if _is_plain(value):
        return _copy(value)
    return type(value).__name__, getattr(value, "__qualname__", None) or getattr(value, "__name__", id(value))
