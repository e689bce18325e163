"""Questions in text: rows, labels and samples against strings written out."""

from __future__ import annotations

import pytest

from interp.errors import InterpError
from interp.tasks import Generates, Questions
from interp.tasks.checks import check_made


class Doubled(Questions):
    """'ab>' is answered 'aabb.'."""

    name, vocabulary, pad = "test_doubled", ("_", "a", "b", ">", "."), "_"
    generates: Generates | None = Generates(start=">", stop=".", length=5)

    def questions(self) -> list[str]:
        return ["a>", "ab>"]

    def answer(self, question: str) -> str:
        return "".join(2 * letter for letter in question[:-1]) + "."


@pytest.mark.parametrize("start", [">", 3])
def test_rows_are_questions_and_answers_and_labels_what_follows(start: str | int) -> None:
    class Some(Doubled):
        generates = Generates(start=start, stop=".", length=5)

        def questions(self) -> list[str]:
            return ["a>", "ab>"] if start == ">" else ["ab>"]

    task = Some()
    check_made(task)
    batch = next(iter(task.inputs()))
    assert [task.format(row[:n].tolist()) for row, n in zip(batch.tokens, batch.lengths)][-1] == "ab>aabb."
    said = ["".join("-" if c < 0 else task.answer_words[c] for c in row) for row in task.classes(batch).tolist()]
    assert said == (["-aa.----", "--aabb.-"] if start == ">" else ["--aabb.-"])
    assert task.n_inputs == len(said)
    assert len(task.sample(7, seed=3)) == 7


def test_the_padding_need_not_be_the_last_token() -> None:
    assert Doubled().answer_words == ("a", "b", ">", ".")
    assert Doubled().n_out == 4


def test_a_task_says_where_its_answers_start() -> None:
    class Silent(Doubled):
        generates = None

    with pytest.raises(InterpError, match="must state pad and generates"):
        Silent().sample(3)
