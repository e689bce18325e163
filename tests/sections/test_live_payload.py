"""What the live panel is told of a task is what the task says; the page itself is tested in tests/report."""

from __future__ import annotations

import re

import pytest

import interp
from interp.errors import InterpError
from interp.measures.subject import Subject
from interp.sections.live_payload import payload


@pytest.mark.parametrize(("rule", "said"), [(1, "1"), (("=", ("item",), 0), "KeyError: 'item'")])
def test_a_rule_that_says_otherwise_than_the_labels_is_refused(rule: object, said: str) -> None:
    """The page judged every answer by it."""
    model = interp.build("languages/parity")
    model.task.rule = rule
    with pytest.raises(InterpError, match=re.escape(said) + r".* at position 0 of '.*', its classes [01]"):
        payload(Subject.of(model))
