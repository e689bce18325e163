"""What figures show, in words, and which figures show nothing."""

import numpy as np
import pandas as pd
import plotly.io
import pytest

from interp.report import Report, reading
from interp.support import figures, words


def bars(values):
    frame = pd.DataFrame({"head": [f"h{i}" for i in range(len(values))], "accuracy": values})
    return figures.bars(frame, "head", "accuracy")


@pytest.mark.parametrize(("figure", "says"), [
    (bars([0.2, 0.9]), "h0: 0.2; h1: 0.9."),
    (bars([1.0, 1.0, 1.0]), "All 3 values of accuracy are 1."),
    (bars([1.0, 1.0 - 1e-9, 1.0]), "All 3 values of accuracy are 1, as far as could be seen."),
    (bars([1.0, 0.999, 1.0]), None),
    (figures.heatmap([[0.5]], "a", "b", "x", "y", "z"), "b, a: 0.5."),
    (figures.heatmap([[1.0, 1.0], [np.nan, 1.0]], "ab", "cd", "x", "y", "z"), "All 3 values of z are 1."),
    (figures.heatmap([[1.0, 2.0], [3.0, 4.0]], "ab", "cd", "x", "y", "z"), None),
    (figures.lines(pd.DataFrame({"x": [1, 2, 3], "y": [0.0, 0.0, 0.0]}), "x", "y"), "All 3 values of y are 0."),
    (figures.scatter(pd.DataFrame({"x": [1, 2, 3], "y": [4, 4, 4]}), "x", "y"), None),  # a cloud, if a flat one
    (figures.scatter(pd.DataFrame({"x": [1.0], "y": [4.0]}), "x", "y"), "1: 4."),
    (
        figures.bars(pd.DataFrame({"x": ["head 0.0", "MLP 0"], "y": [1.00002, 0.5], "z": ["head", "MLP"]}), *"xyz"),
        "head 0.0: 1.00002; MLP 0: 0.5.",
    ),
])  # fmt: skip
def test_figures_that_show_nothing(figure, says):
    assert reading.instead(figure) == says
    packed = plotly.io.from_json(figure.to_json(), skip_invalid=True)  # as a saved figure comes back
    assert reading.instead(packed) == says


def test_what_is_shown():
    assert reading.finding(bars([0.2, 0.9, 0.4])) == "3 bars of accuracy: the least is 0.2 (h0), the largest 0.9 (h1)."
    cells = figures.heatmap([[1.0, -2.0], [3.0, 4.0]], "ab", "cd", "x", "y", "score")
    assert reading.finding(cells) == "4 cells of score: the least is −2 (c, b), the largest 4 (d, b)."
    dots = figures.scatter(pd.DataFrame({"x": [1, 2, 3], "y": [4, 7, 5]}), "x", "y")
    assert reading.finding(dots) == "3 dots; x from 1 to 3, y from 4 to 7."


def test_a_sentence_takes_the_place_of_such_a_figure():
    report = Report("t")
    report.add_figure("ones", bars([1.0, 1.0, 1.0]), "Accuracy.")
    report.add_figure("rest", bars([1.0, 0.5, 1.0]), "Accuracy.")
    report.replace_bare_figures()
    assert list(report.figures) == ["rest"]
    assert report.in_words == {"ones": "All 3 values of accuracy are 1."}
    assert "<p>Accuracy. All 3 values of accuracy are 1.</p>" in report.html()


@pytest.mark.parametrize(("value", "says"), [
    (1.0, "1"), (0.99999, "0.99999"), (1 + 1e-9, "1.000000001"), (-0.5, "−0.5"), (1e-70, "1e-70"),
    (12345.6, "1.235e+04"),
])  # fmt: skip
def test_numbers_are_1_only_if_they_are(value, says):
    assert words.number(value) == says


def test_lists():
    assert [words.joined("a"), words.joined("ab"), words.joined("abc")] == ["a", "a and b", "a, b and c"]
