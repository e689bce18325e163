"""The key of the compiled code on disk.

numba recompiles a function only if the function's own file changed. So a hash of all files enters each compiled
function as a captured value, which is part of numba's cache key.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path


@cache
def sources() -> str:
    """Return the SHA-256 of all files with compiled code or its array layouts."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.stem != "shell" and not path.stem.endswith("_engine"):  # these files only call compiled code
            digest.update(path.read_bytes())
    return digest.hexdigest()
