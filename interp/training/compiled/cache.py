"""What the compiled code on disk is keyed by.

numba notices a change in the file of a function only, so what the other files hold enters the compiled functions as a
captured value, which is part of the cache's key.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path


@cache
def sources() -> str:
    """The SHA-256 of all files of compiled code and of the arrays it works on."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.stem != "shell" and not path.stem.endswith("_engine"):  # these only call it
            digest.update(path.read_bytes())
    return digest.hexdigest()
