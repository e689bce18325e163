"""What a package answers by name: its public names and its files, each imported when it is first used."""

from collections.abc import Callable, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any


def exports(
    package: str, files: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return __getattr__ and __dir__ of a package, from its files and the names that each has for the package's users.

    A file is imported when one of its names is first used, and so are the package's other files, by their own names.
    Without `files`, __dir__ lists the files.
    """
    names = {name: file for file, listed in (files or {}).items() for name in listed.split()}

    def find(name: str) -> Any:
        if name in names:
            return getattr(import_module(f"{package}.{names[name]}"), name)
        try:
            return import_module(f"{package}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{package}.{name}":
                raise
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def listed() -> list[str]:
        return sorted(names) or sorted(file.name for file in iter_modules(import_module(package).__path__))

    return find, listed
