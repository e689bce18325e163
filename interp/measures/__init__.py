"""Measures: functions from models and inputs to small labeled tables. Each file is imported when it is first used."""

import importlib
import pkgutil
from types import ModuleType

_FILES = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def __getattr__(name: str) -> ModuleType:
    if name in _FILES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(_FILES)}")


def __dir__() -> list[str]:
    return list(_FILES)
