"""The checker as a copy of its folder: a package of its own, in which nothing of interp is imported."""

import importlib.util
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "interp" / "certificates" / "check"

if "bare_check" not in sys.modules:
    _spec = importlib.util.spec_from_file_location("bare_check", FOLDER / "__init__.py")
    assert _spec.loader is not None
    sys.modules["bare_check"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["bare_check"])

check = sys.modules["bare_check"]
