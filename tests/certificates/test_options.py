"""What options of certificates may be."""

import inspect
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from interp.certificates import certify
from interp.errors import InterpError


def test_an_option_that_is_one_of_some_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other words are refused, and those that fit are named."""
    order = inspect.Parameter("order", inspect.Parameter.KEYWORD_ONLY, annotation=Literal["breadth", "depth"])
    monkeypatch.setattr(certify, "options_of", lambda method: {"order": order})
    trees: Any = SimpleNamespace(name="trees")
    certify.check_options(trees, {"order": "depth"})
    with pytest.raises(InterpError, match="order = 'width': give 'breadth' or 'depth'"):
        certify.check_options(trees, {"order": "width"})
