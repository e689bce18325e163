"""Import the files that register things: this package's families, a user's file, and those of installed packages.

A family is a folder of interp/families: one paper or group, which extends this package as a user's plug-in does. The
packages of registries (tasks, constructions, certificates, ...) import their parts of all families from here.

A package registers its tasks in its pyproject.toml: [project.entry-points."interp.tasks"] mine = "my_package.tasks".
They are imported together with interp.tasks. A checkpoint only names its task and never causes an import.
"""

import importlib.util
import inspect
import sys
import warnings
from importlib.metadata import entry_points
from pathlib import Path

from interp.errors import InterpError

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


def load_families(part: str) -> None:
    """Import a part of every family that has it, such as "tasks" or "compiled/engine", so that it is registered."""
    families = importlib.import_module("interp.families")
    for root in families.__path__:
        for family in sorted(Path(root).iterdir()):
            if (family / f"{part}.py").is_file() or (family / part / "__init__.py").is_file():
                importlib.import_module(f"{families.__name__}.{family.name}.{part.replace('/', '.')}")


def load_installed() -> None:
    """Import the tasks of installed packages; warn about a package that fails and continue with the others."""
    for entry in entry_points(group=GROUP):
        try:
            entry.load()
        except Exception as error:
            where = f"the {GROUP} entry point {entry.name} = {entry.value}"
            warnings.warn(f"{where} could not be imported: {type(error).__name__}: {error}", stacklevel=2)
