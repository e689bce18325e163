"""Rules against the tasks' own labels, and the operations against hand-made values."""

import pytest

from interp.errors import InterpError
from interp.models.spec import TaskRef
from interp.tasks import make_task
from interp.tasks.rules import evaluate

TASKS = [
    TaskRef(name="count01"),
    TaskRef(name="histogram", parameters=(("T", 9), ("L", 6))),
    TaskRef(name="histogram", parameters=(("T", 9), ("L", 6), ("bos", True), ("zero_class", True))),
    *(TaskRef(name=name, parameters=(("length", 12), ("shortest", 1))) for name in ("first", "parity", "one")),
    TaskRef(name="palindrome", parameters=(("length", 9), ("shortest", 1))),
    TaskRef(name="dyck1", parameters=(("length", 12), ("shortest", 2), ("depth", 3))),
    TaskRef(name="dyck2", parameters=(("length", 10), ("shortest", 2), ("depth", 3))),
    TaskRef(name="brackets", parameters=(("length", 7), ("shortest", 1))),
    TaskRef(name="max-of-k", parameters=(("K", 3), ("v", 7))),
    TaskRef(name="max-at-last", parameters=(("K", 3), ("v", 7))),
    TaskRef(name="modular-addition", parameters=(("p", 11),)),
    TaskRef(name="induction", parameters=(("v", 9), ("length", 12), ("shortest", 3), ("longest", 6))),
]


@pytest.mark.parametrize("ref", TASKS, ids=lambda ref: f"{ref.name}-{len(ref.parameters)}")
def test_a_rule_gives_the_right_output_at_every_read_position(ref: TaskRef) -> None:
    task = make_task(ref)
    batch = task.sample(60, task.splits[-1], seed=5)
    classes = task.classes(batch)
    seen = set()
    for row, length, right in zip(batch.tokens, batch.lengths, classes):
        tokens = row[: int(length)].tolist()
        if task.name == "count01":
            places = [tokens.index(task.token_id("="))]
            tokens = tokens[: places[0] + 1]  # the answer itself is not part of the question
        else:
            places = [place for place in range(len(tokens)) if int(right[place]) >= 0]
        for place in places:
            seen.add(int(right[place]))
            assert evaluate(task.rule, tokens, place) == int(right[place]), tokens
        if task.readout == "all":
            unread = [place for place in range(len(tokens)) if place not in places]
            assert all(evaluate(task.rule, tokens, place) == -1 for place in unread)
    assert len(seen) > 1, "only one answer was tried"


def test_all_short_brackets() -> None:
    """Every string, not only those near the language, whose depth never exceeds its bound."""
    task = make_task(TaskRef(name="dyck2", parameters=(("length", 4), ("depth", 2))))
    batch = task.enumerate_up_to(6)  # type: ignore[attr-defined]
    members = batch.labels.nonzero()[:, 0]
    for row in [*range(0, len(batch), 17), *members.tolist()]:
        tokens = batch.tokens[row, : int(batch.lengths[row])].tolist()
        assert evaluate(task.rule, tokens, 0) == int(batch.labels[row]), task.format(tokens)


def test_brackets_may_nest_deeper_than_the_samples_do() -> None:
    task = make_task(TaskRef(name="brackets", parameters=(("length", 4),)))
    for text in ("(" * 9 + ")" * 9, "(" * 9 + ")" * 8, "()" * 9, ")("):
        batch = task.encode([text])  # type: ignore[attr-defined]
        assert evaluate(task.rule, batch.tokens[0].tolist(), 0) == int(batch.labels[0])


def test_an_unknown_operation_is_refused_by_name() -> None:
    with pytest.raises(InterpError, match="cuont"):
        evaluate(["cuont", ["tokens"], 1], [1], 0)
