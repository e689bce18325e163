"""The registry of tasks: register a task, look it up by name, make it from a reference; and import what registers.

A family is a folder of interp/families: one paper or group, which extends this package as a user's plug-in does. The
packages of registries (tasks, constructions, certificates, sections, training engines) import their part of each
family. A package registers its tasks in its pyproject.toml: [project.entry-points."interp.tasks"] mine =
"my_package.tasks". They are imported together with interp.tasks. A checkpoint only names its task and never causes an
import.
"""

import importlib.util
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from interp.errors import InterpError, UnsupportedError, check_one_of, one_of, quoted, refuse_if
from interp.support.records import TaskRef
from interp.tasks.batch_checks import OWN
from interp.tasks.task import Task, tensors_sha256
from interp.tasks.task_checks import check_task

T = TypeVar("T", bound=type[Task])
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_/-]{0,99}")
_REGISTRY: dict[str, type[Task]] = {}


def register_task(kind: T) -> T:
    """Register a Task subclass under its name; usable as a decorator.

    Raises InterpError if the name is taken or a check of tasks.task_checks fails: a missing member, a token that occurs
    twice, a sample that is not a Batch, or classes out of range.

    Example:

        >>> @interp.register_task
        ... class Wordless(interp.Task):
        ...     name = "wordless"
        Traceback (most recent call last):
        ...
        interp.errors.InterpError: task wordless: define sample; ...describes each member
    """
    name = getattr(kind, "name", None)
    if not isinstance(kind, type) or not issubclass(kind, Task) or not name:
        raise InterpError(f"{kind!r} must be a subclass of interp.Task with a name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InterpError(
            f"the task name {quoted(name)} must be at most 100 letters, digits, -, _ and /, and begin with a letter or "
            "digit, because it becomes a part of file names"
        )
    known = _REGISTRY.get(name)
    # A class may replace itself (a notebook cell that runs twice), but no other class may take its name.
    if known is not None and (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise InterpError(f"a task named {name!r} is already registered by {known.__module__}")
    if not kind.__module__.startswith(OWN):  # the tests check our own tasks
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
            f"{unknown}{'' if unknown.endswith('?') else '.'} A task of your own must be registered first: import its "
            "file, or use --import my_tasks.py on the command line"
        )
    return _make(_REGISTRY[ref.name], ref, tables)


def remade(task: Task, ref: TaskRef | None = None) -> Task:
    """Make a task again from its class, its parameters and its tables, as loading a checkpoint does.

    ref: the parameters, such as those of a model's spec (None: the task's own). A certificate is about this new task,
    whatever was set on the given object. Raises UnsupportedError if the class cannot make it, or if another class has
    its name.
    """
    ref, kind = task.ref if ref is None else ref, type(task)
    refuse_if(name_taken(task))
    tables = {name: tensor.detach().clone() for name, tensor in task.tables().items()}
    try:
        return _make(kind, ref, tables)
    except TypeError as error:
        raise UnsupportedError(
            f"a certificate is about the task that a class makes from parameters and tables, but {kind.__name__} "
            f"cannot make task {task.name} from them: {error}; declare all that it needs in `defaults`, or in tables() "
            "and from_tables()"
        ) from error


def name_taken(task: Task) -> str | None:
    """Return a sentence if another class is registered under the task's name, by which a claim names it, or None."""
    known, kind = _REGISTRY.get(task.name), type(task)
    if known is None or known is kind:
        return None
    return (
        f"the given task has the class {kind.__module__}.{kind.__qualname__}, but {task.name!r} is the name of "
        f"{known.__module__}.{known.__qualname__}; give your class another name"
    )


def _make(kind: type[Task], ref: TaskRef, tables: Mapping[str, Tensor] | None) -> Task:
    """Make a task of a class. Raises InterpError for an unknown parameter and for tables other than the reference's."""
    digest = tensors_sha256(tables) if tables else None
    if digest != ref.table_sha256:
        raise InterpError(f"task {ref.name} needs the tables with sha256 {ref.table_sha256}, not {digest}")
    make: Callable[..., Task] = partial(kind.from_tables, tables) if tables else kind
    parameters: dict[str, Any] = dict(ref.parameters)
    for name in parameters:  # a parameter named "self" cannot be passed
        check_one_of(f"parameter of task {ref.name}", name, kind.defaults)
    return make(**({"data_seed": ref.data_seed} if ref.data_seed else {}), **parameters)


GROUP = "interp.tasks"


def import_file(path: str | Path) -> None:
    """Run a Python file that registers tasks or sections. Raises InterpError if the file fails."""
    path = Path(path)
    if not path.is_file() or path.suffix != ".py":
        raise InterpError(f"--import {path}: {'not a .py file' if path.exists() else 'no such file'}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # dataclasses and pickle look up modules by name
    try:
        spec.loader.exec_module(module)
    except InterpError as error:
        raise InterpError(f"--import {path}: {error}") from None
    except Exception as error:
        raise InterpError(f"--import {path} fails with {type(error).__name__}: {error}") from error


def file_of(kind: type) -> Path | None:
    """Return the file that another process must import to know a user's task; None for this package's tasks.

    Raises InterpError for a class that is not defined in a file.
    """
    if kind.__module__.partition(".")[0] == __package__.partition(".")[0]:
        return None
    try:
        return Path(inspect.getfile(kind)).resolve(strict=True)
    except (OSError, TypeError):
        raise InterpError(
            f"task {getattr(kind, 'name', kind.__name__)} is defined at a prompt or in a notebook, where other "
            "processes cannot find it. Put the class in a file and import it (on the command line, with --import)."
        ) from None


def load_plug_ins(part: str) -> None:
    """Import a part of every plug-in that has it, such as "tasks" or "compiled/engine", so that it is registered.

    Plug-ins are the families, and the programs, which bring a construction of their own.
    """
    families, programs = importlib.import_module("interp.families"), importlib.import_module("interp.programs")
    folders = [(programs.__name__, Path(root)) for root in programs.__path__]
    for root in families.__path__:
        folders += [(f"{families.__name__}.{folder.name}", folder) for folder in sorted(Path(root).iterdir())]
    for package, folder in folders:
        if (folder / f"{part}.py").is_file() or (folder / part / "__init__.py").is_file():
            importlib.import_module(f"{package}.{part.replace('/', '.')}")


def load_installed() -> None:
    """Import the tasks of installed packages; warn about a package that fails and continue with the others."""
    for entry in entry_points(group=GROUP):
        try:
            entry.load()
        except Exception as error:
            where = f"the {GROUP} entry point {entry.name} = {entry.value}"
            warnings.warn(f"{where} could not be imported: {type(error).__name__}: {error}", stacklevel=2)
