"""Switched on before anything of interp is imported: shapes and types of annotated functions are checked, if asked.

INTERP_CHECKED names the modules that are checked: "all" (make test-long), or one module. Without it nothing is checked:
in `make test` the checks took a third of the time.

The hook takes a list of modules, not the package: it would wrap compiled kernels as well, which numba then cannot
compile, and a package's name would take all of its modules in. The checker of evidence runs on a bare Python, in
millions of small steps: it is left as it is. tests/mutants.py, which starts over for every mutant, names the one module
that it changed: to check all of them takes longer than most of its tests.

A function is checked on its first calls in every test. What is called a hundred thousand times within one test, in a
search or a sum over a domain, took five times as long when each call was checked, and shows nothing new.
"""

import functools
import gc
import inspect
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jaxtyping
import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the notebooks, studies and commands that tests start, side by side

ROOT = Path(__file__).resolve().parent.parent
CHECKER = ROOT / "interp" / "certificates" / "check"


def checked_modules() -> list[str]:
    """Every module of interp but those that compile code (they mention numba) and those that only gather names."""
    modules = []
    for file in sorted((ROOT / "interp").rglob("*.py")):
        if (
            file.name != "__init__.py"
            and file.parent != CHECKER
            and "compiled" not in file.parts
            and "numba" not in file.read_text("utf-8")
        ):
            modules.append(".".join(file.relative_to(ROOT).with_suffix("").parts))
    return modules


CHECKED_CALLS = 200
calls: Counter[str] = Counter()
"""Of every function, in the present test."""


def first_calls(thing: Any = None, *, typechecker: Any, decorate: Callable[..., Any] = jaxtyping.jaxtyped) -> Any:
    """jaxtyped, which the hook puts before every function and class, for the first calls of a test."""
    if thing is None:
        return functools.partial(first_calls, typechecker=typechecker)
    if inspect.isclass(thing):
        plain = thing.__init__
        decorate(thing, typechecker=typechecker)  # puts a dataclass' __init__ in place of its own
        if thing.__init__ is not plain:
            thing.__init__ = alternating(thing.__init__, plain)  # type: ignore[misc]
        return thing
    name = f"{thing.__module__}.{thing.__qualname__}"
    calls[name] += 1  # a function within a function is made anew, and decorated, in every call of the outer one
    return thing if calls[name] > CHECKED_CALLS else alternating(decorate(thing, typechecker=typechecker), thing)


def alternating(checked: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    name = f"{plain.__module__}.{plain.__qualname__}"

    @functools.wraps(plain)
    def call(*args: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        calls[name] += 1
        return (checked if calls[name] <= CHECKED_CALLS else plain)(*args, **options)

    return call


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    calls.clear()
    random.seed(0)  # beartype looks at one random item of a tuple or list: the same in every run


if only := os.environ.get("INTERP_CHECKED"):
    jaxtyping.jaxtyped = first_calls
    chosen = [module for module in checked_modules() if only in ("all", module)]
    jaxtyping.install_import_hook(chosen, "beartype.beartype")

import torch  # noqa: E402

torch.set_num_threads(1)  # tests run side by side, and one thread adds up in one order


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a thinned test's cases those between are slow, and so is what waits for a compiler. The longest first, or one
    of two workers waits for it at the end: a fresh environment, notebooks."""
    cases: Counter[str] = Counter()
    for item in items:
        if item.get_closest_marker("compiles"):
            item.add_marker(pytest.mark.slow)
        if thinned := item.get_closest_marker("thinned"):
            name = item.nodeid.partition("[")[0]
            if cases[name] % thinned.args[0]:
                item.add_marker(pytest.mark.slow)
            cases[name] += 1
    first = ["test_wheel.py", "test_notebooks.py"]
    items.sort(key=lambda item: first.index(item.path.name) if item.path.name in first else len(first))


def pytest_collection_finish() -> None:
    """What was imported stays: not to look through it again and again for garbage saves a twentieth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
