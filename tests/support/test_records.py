"""Frozen records: what a file may hold, and what is refused in one sentence."""

import subprocess
import sys

import pytest

from interp.errors import SpecError
from interp.support.records import TaskRef


def test_parameters_of_a_task_are_sorted_by_name() -> None:
    given = TaskRef(name="first", parameters={"b": 2, "a": True})
    assert given.parameters == (("a", True), ("b", 2))
    assert given == TaskRef(name="first", parameters=(("b", 2), ("a", True)))


def test_all_problems_of_a_record_come_at_once() -> None:
    with pytest.raises(SpecError) as raised:
        TaskRef(name=3, parameters={"a": float("nan")}, colour="red")
    assert len(raised.value.problems) >= 3
    assert any("colour" in problem for problem in raised.value.problems)


def test_records_need_neither_torch_nor_numpy() -> None:
    code = "import sys, interp.support.records; print({'torch', 'numpy', 'pandas'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"
