"""Which description of a head is taken."""

import pytest

import interp
from interp.measures.runs import Part
from interp.models.subject import Subject
from interp.programs import read_heads, task
from interp.programs.decompile import decompile
from interp.programs.language import Head, Sums
from interp.programs.running import Running
from interp.tasks.populations import everything


@pytest.mark.parametrize(("same", "kind"), [(0.98, Sums), (1.0, Head)])
def test_sums_follow_a_table_that_fails_in_other_rows(same: float, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of attention and values gives way to sums if with its values in other rows the answers differ."""
    monkeypatch.setattr(read_heads, "same_elsewhere", lambda reading, part, value: same)
    subject = Subject.of(interp.compile(task.ENDS))
    reading = decompile(Running.of(subject, everything(subject.task).batch))
    assert isinstance(reading.steps[0], kind)
    assert isinstance(reading.step(str(Part(0, 0))), Head)
