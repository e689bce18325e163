"""Remake the task that a certificate is about from its class, parameters and tables.

A task object can be changed: with another `task.table` or `task.batch`, it is a different task under the same name and
spec id. So a certificate does not take labels from the given object. It makes the task again, as loading a checkpoint
does, and is about this new task. If the given object differs from the new one, it is refused with a message that names
the difference, because the user might think that the certificate is about the given object.

Private attributes that only one of the two has (caches) are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from interp.errors import UnsupportedError, of_type, quoted
from interp.tasks.base import Task
from interp.tasks.problems import errors_named
from interp.tasks.registry import make_task, registered_tasks

PLAIN = bool | int | float | complex | str | bytes | None | np.generic | torch.dtype | torch.device | type
ABSENT = object()
ADDED = {"smart_apply"}
"""Attributes that transformers adds to torch.nn.Module when it makes a model; no forward pass calls them."""


class Uncomparable(Exception):
    """A value of a type that cannot be compared; the message names it."""


def snapshot(task: Task) -> Task:
    """Make a new task of the same class, parameters, data seed and tables.

    Raises UnsupportedError if this fails, if the new task differs from the given one, or if the given one has
    attributes that cannot be compared.
    """
    if (reason := patched(type(task))) is not None:
        raise UnsupportedError(f"task {task.name}: {reason}")
    fresh = _made(task)
    if (reason := _difference(task, fresh)) is not None:
        raise UnsupportedError(
            f"a certificate is about the task that a class makes from parameters and tables, but the given task "
            f"{task.name} differs from it: {reason}"
        )
    return fresh


def impostor(task: Task) -> str | None:
    """Return a sentence if another class is registered under the task's name, otherwise None.

    A claim names the task, so the name must be right.
    """
    known, kind = registered_tasks().get(task.name), type(task)
    if known is None or known is kind:
        return None
    return (
        f"the given task has the class {kind.__module__}.{kind.__qualname__}, but {task.name!r} is the name of "
        f"{known.__module__}.{known.__qualname__}; give your class another name"
    )


def patched(kind: type) -> str | None:
    """Return a sentence if a function of this package's or a library's class was replaced, otherwise None."""
    for owner in kind.__mro__:
        home = owner.__module__.partition(".")[0]
        if home not in ("interp", "transformer_lens", "torch"):
            continue  # a user's class may contain anything
        for name, member in vars(owner).items():
            if name in ADDED or (name.startswith(("__", "_abc_")) and name != "__call__"):
                continue
            for code in _functions(member):
                if str(getattr(code, "__module__", None) or home).partition(".")[0] not in (home, "functools", "torch"):
                    return f"{owner.__name__}.{name} was replaced by {quoted(code)}"
    return None


def _functions(member: Any) -> list[Any]:
    """Return the functions of a class member."""
    if isinstance(member, staticmethod | classmethod):
        return [member.__func__]
    if isinstance(member, property):
        return [part for part in (member.fget, member.fset, member.fdel) if part is not None]
    if isinstance(member, cached_property):
        return [member.func]
    if isinstance(member, partial):
        return [member.func]
    return [member] if isinstance(member, FunctionType) else []


def _made(task: Task) -> Task:
    """Make the task from its class, reference and tables."""
    kind, ref = type(task), task.ref
    tables = {name: tensor.detach().clone() for name, tensor in task.tables().items()}
    with errors_named(task, "its class, made from its parameters,"):
        try:
            if registered_tasks().get(task.name) is kind:
                return make_task(ref, tables)
            if tables:
                return kind.from_tables(tables, data_seed=ref.data_seed, **dict(ref.parameters))
            make: Any = kind
            return make(**({"data_seed": ref.data_seed} if ref.data_seed else {}), **dict(ref.parameters))
        except TypeError as error:
            raise UnsupportedError(
                f"a certificate is about the task that a class makes from parameters and tables, but "
                f"{kind.__name__} cannot make task {task.name} from them: {error}; declare all that it needs in "
                "`defaults`, or in tables() and from_tables()"
            ) from None


def _difference(task: Task, fresh: Task) -> str | None:
    """Describe the first difference between the given task and the new one, or None."""
    mine, made = vars(task), vars(fresh)
    for name in sorted({*mine, *made}):
        held, wanted = mine.get(name, ABSENT), made.get(name, ABSENT)
        if wanted is ABSENT and _is_cache(task, name):
            continue
        if held is ABSENT and _is_cache(task, name):
            continue
        if wanted is ABSENT and callable(held):
            return f"its {name} was replaced by a {type(held).__name__}"
        try:
            if not same(held, wanted, {}):
                shown, right = _shown(held), _shown(wanted)
                return f"its {name} is {shown}" + (f", not {right}" if right != shown else "")
        except Uncomparable as kind:
            return f"its {name} contains {kind}, which cannot be compared"
    return None


def _is_cache(task: Task, name: str) -> bool:
    return name.startswith("_") or isinstance(getattr(type(task), name, None), cached_property)


def _shown(value: object) -> str:
    if value is ABSENT:
        return "absent"
    return quoted(value) if isinstance(value, PLAIN | list | tuple | dict) else f"another {type(value).__name__}"


def same(one: Any, other: Any, seen: dict[tuple[int, int], bool]) -> bool:
    """Test whether two values are equal. Raises Uncomparable for unknown types."""
    if one is other or seen.get((id(one), id(other))):
        return True
    if type(one) is not type(other):
        return False
    seen[id(one), id(other)] = True  # a value that contains itself is equal if the rest is
    if isinstance(one, PLAIN):
        return bool(one == other) or (one != one and other != other)
    if isinstance(one, Tensor):
        alike = one.dtype == other.dtype and one.shape == other.shape
        return alike and bool(((one == other) | ((one != one) & (other != other))).all())
    if isinstance(one, np.ndarray):
        alike = one.dtype == other.dtype and one.shape == other.shape
        return alike and all(same(a, b, seen) for a, b in zip(one.ravel().tolist(), other.ravel().tolist()))
    if isinstance(one, Mapping):
        return list(one) == list(other) and all(same(one[name], other[name], seen) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(same(a, b, seen) for a, b in zip(one, other))
    if isinstance(one, set | frozenset | range | slice):
        return bool(one == other)
    if isinstance(one, FunctionType):
        held = [[cell.cell_contents for cell in code.__closure__ or ()] for code in (one, other)]
        defaults = [(code.__defaults__, code.__kwdefaults__) for code in (one, other)]
        code = one.__code__ is other.__code__ and same(held[0], held[1], seen)
        return code and same(defaults[0], defaults[1], seen)
    if isinstance(one, MethodType):
        return one.__func__ is other.__func__ and same(one.__self__, other.__self__, seen)
    if isinstance(one, partial):
        return same([one.func, one.args, one.keywords], [other.func, other.args, other.keywords], seen)
    if isinstance(one, torch.Generator):
        return bool((one.get_state() == other.get_state()).all())
    if isinstance(one, BuiltinFunctionType) or not hasattr(one, "__dict__"):
        raise Uncomparable(of_type(one))
    return same(vars(one), vars(other), seen)
