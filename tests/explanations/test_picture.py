"""The drawing of an explanation: every part that is left, in the order of layers, with words that cannot break out."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

import interp
from interp.explanations import Explanation, PartRole
from interp.explanations.picture import WIDTH, in_order, svg

PARTS = (
    PartRole("head 1.0", "explained", "looks at <its> own position", 1.0, None, None, "carries the number of 1s", 1.0),
    PartRole("MLP 0", "kept"),
    PartRole("head 0.0", "cut"),
    PartRole("head 0.1", "explained", carries="carries " + "a long quantity " * 20),
)


@pytest.fixture(scope="module")
def found() -> Explanation:
    return replace(interp.explain(interp.build("algorithmic/max-of-k-exact", K=3, v=5), seconds=20.0), parts=PARTS)


def test_parts_stand_in_order_and_cut_ones_are_left_out(found: Explanation) -> None:
    words = [
        text.text or ""
        for text in ElementTree.fromstring(svg(found.program, found.parts)).iter("{http://www.w3.org/2000/svg}text")
    ]
    titles = [word for word in words if word.startswith(("head", "MLP", "the "))]
    assert titles[:4] == ["the tokens", "head 0.1", "MLP 0", "head 1.0"]
    assert "head 0.0" not in words
    assert "looks at <its> own position" in words
    assert "its output is not explained" in words


def test_no_text_leaves_its_box(found: Explanation) -> None:
    """About 7 units a letter of 13 pixels, from where the box starts."""
    root = ElementTree.fromstring(svg(found.program, found.parts))
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        assert float(text.attrib["x"]) + 6.9 * len(text.text or "") < WIDTH


def test_nothing_is_drawn_without_a_program(found: Explanation) -> None:
    assert svg(None, found.parts) == ""
    assert svg(found.program, ()) == ""


def test_layers_come_first() -> None:
    names = ["MLP 1", "head 10.0", "head 1.12", "head 1.2", "MLP 0"]
    assert sorted(names, key=lambda name: in_order(PartRole(name, "kept"))) == [
        "MLP 0", "head 1.2", "head 1.12", "MLP 1", "head 10.0",
    ]  # fmt: skip


def test_a_notebook_shows_sentence_drawing_and_source(found: Explanation) -> None:
    page = found._repr_html_()
    assert page.index("The answer is the largest number.") < page.index("<svg") < page.index("def answer(tokens, i)")
    assert "looks at &lt;its&gt; own position" in page
