"""What options of certificates may be."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from interp.certificates import options
from interp.errors import InterpError


def test_an_option_that_is_one_of_some_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other words are refused, and those that fit are named."""
    order = inspect.Parameter("order", inspect.Parameter.KEYWORD_ONLY, annotation=Literal["breadth", "depth"])
    monkeypatch.setattr(options, "options_of", lambda method: {"order": order})
    trees: Any = SimpleNamespace(name="trees")
    options.check_options(trees, {"order": "depth"})
    with pytest.raises(InterpError, match="order = 'width': give 'breadth' or 'depth'"):
        options.check_options(trees, {"order": "width"})
