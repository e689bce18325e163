"""Switched on before anything of interp is imported: shapes and types of every annotated function are checked.

The hook takes a list of modules, not the package: it would wrap compiled kernels as well, which numba then cannot
compile, and a package's name would take all of its modules in. The checker of evidence runs on a bare Python, in
millions of small steps: it is left as it is. tests/mutants.py, which starts over for every mutant, names the one module
that it changed in INTERP_CHECKED: to check all of them takes longer than most of its tests.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path

import jaxtyping

os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the notebooks, studies and commands that tests start, side by side

ROOT = Path(__file__).resolve().parent.parent


def checked_modules() -> list[str]:
    """Every module of interp but those that compile code (they mention numba) and those that only gather names."""
    modules = []
    for file in sorted((ROOT / "interp").rglob("*.py")):
        if (
            file.name not in ("__init__.py", "check.py")
            and "compiled" not in file.parts
            and "numba" not in file.read_text("utf-8")
        ):
            modules.append(".".join(file.relative_to(ROOT).with_suffix("").parts))
    return modules


only = os.environ.get("INTERP_CHECKED")
jaxtyping.install_import_hook([module for module in checked_modules() if only in (None, module)], "beartype.beartype")

import torch  # noqa: E402

torch.set_num_threads(1)  # tests run side by side, and one thread adds up in one order


def pytest_collection_finish() -> None:
    """What was imported stays: not to look through it again and again for garbage saves a twentieth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
