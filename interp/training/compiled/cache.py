"""The key of the compiled code on disk.

numba recompiles a function only if the function's own file changed. So a hash of its module, of all compiled code that
this imports, and of the layouts of its arguments enters each compiled function as a captured value, which is part of
numba's cache key.
"""

import hashlib
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
IMPORT = re.compile(r"^from (interp\.(?:\w+\.)*compiled\.\w+) import", re.MULTILINE)


def file_of(module: str) -> Path:
    """Return the file of one of interp's modules, without importing it."""
    return (ROOT / module.replace(".", "/")).with_suffix(".py")


@cache
def sources(module: str) -> str:
    """Return the SHA-256 of a module, of the compiled ones that it imports, directly or not, and of its layouts."""
    texts: dict[str, str] = {}
    left = [module, f"{__package__}.layout", f"{module.rpartition('.')[0]}.layout"]
    while left:
        if (name := left.pop()) not in texts and file_of(name).is_file():
            texts[name] = file_of(name).read_text("utf-8")
            left += IMPORT.findall(texts[name])
    return hashlib.sha256("".join(texts[name] for name in sorted(texts)).encode()).hexdigest()
