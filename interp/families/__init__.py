"""Families: each folder holds one paper or group whole, and extends the rest of the package as a user's plug-in does.

A family registers its tasks, constructions, methods of certification, training engines and sections; the packages of
the registries import these files (interp.tasks.registry). No other package imports a family, and no family another.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def exports(package: str, files: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return __getattr__ and __dir__ of a package, from its files and the names that each has for the package's users.

    A file is imported when one of its names is first used, and so are the package's other files, by their own names.
    """
    names = {name: file for file, listed in files.items() for name in listed.split()}

    def find(name: str) -> Any:
        if name in names:
            return getattr(import_module(f"{package}.{names[name]}"), name)
        try:
            return import_module(f"{package}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{package}.{name}":
                raise
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find, lambda: sorted(names)


__getattr__, _ = exports(__name__, {})
