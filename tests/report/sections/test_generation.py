"""The section on generated answers: a right adder, a broken one, and tasks that generate nothing."""

import pytest
import torch

import interp
from interp.report.analyze import list_sections
from interp.report.sections.accuracy import generated_sentence as sentence


def test_an_exact_adder_is_right_when_generating() -> None:
    model = interp.build("algorithmic/addition-exact", digits=2)
    report = interp.analyze(model, sections=["generation"], inputs=100)
    assert report.facts["exact_match"] == 1
    table = report.tables["generation"]
    assert table["place"].tolist() == [1, 2, 3]
    assert (table[["teacher_forced", "generated"]] == 1).all(axis=None)


def test_a_broken_adder_is_not() -> None:
    model = interp.build("algorithmic/addition-exact", digits=2)
    with torch.no_grad():
        model.unembed.b_U[7] -= 1e6
    report = interp.analyze(model, sections=["generation"], inputs=200)
    batch = model.task.sample(1000, seed=3)
    share = float((batch.labels != 7).where(batch.labels >= 0, torch.tensor(True)).all(1).double().mean())
    assert report.facts["exact_match"] == pytest.approx(share, abs=0.1)
    assert report.facts["exact_match"] < 1


def test_a_task_without_generated_answers_says_why() -> None:
    listed = list_sections("count01/minimal").set_index("section")
    assert "read at one position" in listed.loc["generation", "note"]


@pytest.mark.parametrize(
    ("forced", "words"),
    [(1.0, "is 1 on the same"), (0.5, "is 0.5000 on the same"), (0.99999, "is 0.99999 on the same")],
)
def test_the_sentence(forced: float, words: str) -> None:
    assert words in sentence("1", forced, "on all 100 inputs")
