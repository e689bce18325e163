"""The gallery: a page for each model, an index whose links lead to them, and reasons if there is no page."""

import re
from pathlib import Path

import pytest

from interp.errors import InterpError
from interp.report.gallery import Card, _first_sentences, _index, gallery


@pytest.mark.slow
def test_pages_and_index(tmp_path: Path) -> None:
    names = ["languages/first", "memorization/theorem1"]
    index = gallery(tmp_path / "new" / "site", names, sections=["accuracy"]).read_text("utf-8")
    assert {path.name for path in (tmp_path / "new" / "site").iterdir()} == {"index.html", "languages-first.html"}
    assert re.findall('href="([^"]+)"', index) == ["languages-first.html"]
    assert "<script" not in index
    asked = gallery(tmp_path / "asked", names, sections=["question", "accuracy"]).read_text("utf-8")
    assert ">Task first" not in asked  # it has a column of its own
    assert '<td data-label="what it computes">Always right' in asked
    first, second = (row for row in index.splitlines() if row.startswith("<tr><td "))
    assert "proved" in first
    assert "needs table" in second
    assert "no report" in second


def test_columns_that_say_something_and_states_in_words() -> None:
    made = [Card("a", "a.html", "asked", "computes", "", state) for state in ("certified", "undecided", "none")]
    index = _index(made)
    assert [word for word in ("proved", "undecided", "measured") if f'">{word}</span>' in index] == [
        "proved", "undecided", "measured"
    ]  # fmt: skip
    assert ">how<" not in index
    assert ">3 models, 3 reports.<" in index
    assert ">1 model, 0 reports.<" in _index([Card("a", "", "", "needs table", "", "none")])
    assert 'data-label="how"' not in index
    assert 'data-label="how">by counting.<' in _index([*made, Card("b", "b.html", "asked", "", "by counting", "none")])


def test_an_unknown_model_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InterpError, match="languages/frist"):
        gallery(tmp_path / "site", ["languages/frist"])
    assert not (tmp_path / "site").exists()


def test_whole_sentences() -> None:
    assert _first_sentences("One. Two. Three.", 9) == "One. Two."
    assert _first_sentences("A sentence without end", 3) == "A sentence without end."
    assert _first_sentences("") == ""
