"""The drawing of an explanation: every part that is left, in the order of layers, with words that cannot break out."""

from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import interp
from interp.programs.explanations import PartRole
from interp.programs.explanations.findings import WIDTH, in_order, svg

LONG = "reads " + "a long quantity " * 20
PARTS = (
    PartRole("head 1.0", "explained", "attends to <its> own", "attends to <its> own"),
    PartRole("MLP 0", "kept"), PartRole("head 0.0", "not used"), PartRole("head 0.1", "explained", LONG, LONG),
    PartRole("head 0.2", "explained", LONG, LONG),
)  # fmt: skip
SVG, RECT = "{http://www.w3.org/2000/svg}text", "{http://www.w3.org/2000/svg}rect"


def test_parts_stand_in_order_and_share_boxes() -> None:
    words = [text.text or "" for text in ElementTree.fromstring(svg(PARTS, "it follows")).iter(SVG)]
    titles = [word for word in words if word.startswith(("head", "MLP", "the "))]
    assert titles == ["the tokens", "heads 0.1 and 0.2", "MLP 0", "head 1.0", "the answer"]
    assert "attends to <its> own" in words
    assert "what it does is not described" in words


def test_no_text_leaves_its_box() -> None:
    """About 7 units a letter of 13 pixels, from where the box starts."""
    for text in ElementTree.fromstring(svg(PARTS)).iter(SVG):
        assert float(text.attrib["x"]) + 6.9 * len(text.text or "") < WIDTH


def test_every_box_is_within_the_drawing() -> None:
    drawing = ElementTree.fromstring(svg(PARTS, "it follows"))
    _, _, width, height = map(float, drawing.attrib["viewBox"].split())
    boxes = [[float(box.attrib[name]) for name in ("x", "y", "width", "height")] for box in drawing.iter(RECT)]
    assert len(boxes) == 5
    assert all(min(x, y) > 0 and x + across < width and y + down < height for x, y, across, down in boxes)
    assert all(y + down < below for (_, y, _, down), (_, below, _, _) in pairwise(boxes))


def test_nothing_is_drawn_without_a_description() -> None:
    assert svg(PARTS[1:3]) == ""
    assert svg(()) == ""


def test_layers_come_first() -> None:
    names = ["MLP 1", "head 10.0", "head 1.12", "head 1.2", "MLP 0"]
    assert sorted(names, key=lambda name: in_order(PartRole(name, "kept"))) == [
        "MLP 0", "head 1.2", "head 1.12", "MLP 1", "head 10.0",
    ]  # fmt: skip


def test_a_notebook_shows_sentence_drawing_and_source() -> None:
    found = interp.explain(interp.build("algorithmic/max-of-k-exact", K=3, v=5))
    page = replace(found, parts=(*found.parts, PARTS[0]))._repr_html_()
    assert page.index("Explained.") < page.index("<svg") < page.index("def answer(tokens)")
    assert "attends to &lt;its&gt; own" in page
