"""The first screen: whole sentences, at most 80 words for How and 60 for other cards; the rest stands once, below."""

import re
from pathlib import Path

import pandas as pd
import pytest
from browser import Page, find_browser
from standins import NAMES, standin

import interp
from interp.report import Report, items, sections
from interp.support import figures
from interp.support.figures.automata import automaton
from interp.support.words import fitting

CHEAP = ("question", "accuracy", "explanation", "heads", "automaton", "generation")
SHIPPED = ["count01/minimal", "histogram/dot", "languages/parity", "languages/first", "memorization/bigram"]


def counted(report: Report) -> dict[str, int]:
    """Words of each card, as a reader of the page counts them."""
    found: dict[str, int] = {}
    for one in report.first_screen:
        found[one.about] = found.get(one.about, 0) + len(re.findall(r"\S*\w\S*", one.text))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NAMES, *SHIPPED, "count01/paper", "algorithmic/max-of-k", "algorithmic/induction"])
def test_every_card_is_short(name: str) -> None:
    model = standin(name) if name in NAMES else name
    known = interp.analyze(model, sections=["question"]).sections.query("status == 'applies'")["section"]
    report = interp.analyze(model, sections=[one for one in CHEAP if one in set(known)])
    words = counted(report)
    assert {"task", "what", "proof"} <= set(words)
    assert all(n <= items.WORDS[about] for about, n in words.items()), words
    assert report.verdict.split() == [word for one in report.first_screen for word in one.text.split()]
    shown = re.findall(r'<section class="verdict".*?</section>', report.html(), re.DOTALL)
    assert len(shown) == 1


def test_what_does_not_fit_stands_below_and_once() -> None:
    report = Report("t")
    report.block = "where"
    report.heading("Parts", "The section's own words.")
    many = "First it is said briefly. Then " + "more and " * 40 + "more."
    report.say(many, "where")
    report.say("A last sentence of nine words is said here.", "where")
    assert [one.text for one in report.first_screen] == ["First it is said briefly."]
    assert [one.text for one in report.rest] == [many.removeprefix("First it is said briefly. "),
                                                  "A last sentence of nine words is said here."]  # fmt: skip
    page = report.html()
    assert page.count("First it is said briefly.") == page.count("A last sentence of nine words") == 1
    assert page.count("The section&#39;s own words.") == 1


def test_a_text_is_cut_before_a_sentence() -> None:
    text = "Accuracy 0.98 on all. It errs at n = 2. Read more.\n1. One step.\n2. Another step."
    assert fitting(text, 100) == (text, "")
    assert fitting(text, 9) == ("Accuracy 0.98 on all.", text.removeprefix("Accuracy 0.98 on all. "))
    assert fitting(text, 13)[0].endswith("Read more.")
    assert fitting("one two three four", 3) == ("one two ...", "one two three four")


def test_a_section_says_nothing_of_what_is_not_there() -> None:
    """No sentence of the code of sections begins by saying that there is none, or that nothing was found."""
    import inspect

    for one in sections.all_sections():
        source = inspect.getsource(inspect.getmodule(one.make))  # type: ignore[arg-type]
        assert not re.search(
            r'"(No feature explains|No two heads|No explanation has been|The \{which\} has no)', source
        )


def test_a_report_without_a_search_has_no_card_how() -> None:
    model = interp.build("algorithmic/max-of-k-exact", K=3, v=7)
    report = interp.analyze(model, sections=["question", "accuracy"], explain=False)
    assert {one.about for one in report.first_screen} == {"task", "what", "proof"}


@pytest.mark.skipif(find_browser() is None, reason="no Chromium: the page is not drawn")
def test_the_longest_first_screen_fits_a_screen(page: Page, tmp_path: Path) -> None:
    """Cards with as many words as they may have, three with a picture: at most 1,000 pixels high, 1,300 wide."""
    report = Report("A model with a name", "task t")
    report.mark = "proved"
    bars = figures.bars(pd.DataFrame({"x": list("abc"), "y": [1.0, 2.0, 4.0]}), "x", "y")
    pictures = {"what": automaton([[0, 1], [1, 0]], ["no", "yes"], "01"), "where": bars, "proof": bars}
    report.heading("Parts", "Words.")
    for about, most in items.WORDS.items():
        text = " ".join(["A sentence of seven words is here."] * (int(most) // 7))
        if about == "how":
            text = "Explained.\n\n1. " + text.replace(". A", ".\n2. A", 1) + "\n\nThe rest is below."
        if about in pictures:
            report.add_figure(about, pictures[about], "A figure.")
        report.say(text, about, [about] if about in pictures else [])
    page.size(1300, 1000)
    page.open(report.save(tmp_path / "page.html"))
    assert page.run("document.querySelectorAll('.verdict .thumbnail').length") == 3
    assert page.run("document.querySelector('.verdict').getBoundingClientRect().bottom") <= 1000
