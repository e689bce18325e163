"""Questions in text: rows, labels and samples against strings written out."""

import pytest
import torch

from interp.errors import InterpError
from interp.tasks import Questions, task_checks
from interp.tasks.generates import Generates


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
    task_checks.check_made(task)
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

    with pytest.raises(InterpError, match="generates is None; set where an answer starts"):
        Silent().sample(3)


@pytest.mark.parametrize(("said", "reason"), [
    ({"answer": "aa"}, r"the answer 'aa' to 'a>' must end with the stop '\.' and contain it only there"),
    ({"answer": "a.a."}, r"must end with the stop '\.' and contain it only there"),
    ({"answer": ""}, r"must end with the stop '\.'"),
    ({"answer": "aaaaa."}, "has 6 tokens, more than the 5 of generates.length"),
    ({"answer": "a a."}, "gives 'a a.'; a space is not in the vocabulary"),
    ({"answer": 3}, r"answer\('a>'\) gives 3, expected text"),
    ({"question": "a"}, "'a' must end with '>' and contain it only there"),
    ({"question": "a>a>"}, "'a>a>' must end with '>' and contain it only there"),
    ({"question": 7}, r"questions\(\) gives 7, expected text"),
])  # fmt: skip
def test_answers_are_what_generates_describes(said: dict[str, object], reason: str) -> None:
    """An answer without its end would be called right where the model writes on behind it."""

    class Said(Doubled):
        def questions(self) -> list[str]:
            return [said.get("question", "a>")]  # type: ignore[list-item]

        def answer(self, question: str) -> str:
            return said.get("answer", "aa.")  # type: ignore[return-value]

    with pytest.raises(InterpError, match=reason):
        Said().sample(3)


@pytest.mark.parametrize("start", [">", 3])
def test_a_wrong_answer_in_a_row_is_refused(start: str | int) -> None:
    class Some(Doubled):
        generates = Generates(start=start, stop=".", length=5)

        def questions(self) -> list[str]:
            return ["ab>", "ba>"]

    task = Some()
    for text in ("ab>", "ab>aab", "ab>aabb.", "ab>aabb.__"):  # the answer, or its beginning
        assert task.batch(torch.tensor([task.parse(text)])).tokens.shape == (1, len(text))
    for text in ("ab>aaab", "ab>aabb.a", "ab>aabb..", "aa>", "ab"):
        rows = torch.tensor([task.parse(row.ljust(9, "_")) for row in ("ba>bbaa.", text)])
        with pytest.raises(InterpError, match=f"row 1, '{text}_*', is not an input of .*: it must be a question with"):
            task.batch(rows)
