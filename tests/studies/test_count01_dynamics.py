"""The figure of the study count01_dynamics: what each line shows."""

import numpy as np
import pandas as pd
import pytest
from count01_dynamics import THICKEST, THINNEST, head_evolution

from interp.support.figures import theme


@pytest.fixture
def frame() -> pd.DataFrame:
    """Three heads, out of order; head 2 weighs most."""
    rows = [
        (0, 10, 0.99, 0.1), (0, 0, 0.7, 0.1), (1, 0, 0.8, 0.2), (1, 10, 0.5, 0.2), (2, 0, 0.5, 0.7), (2, 10, 0.8, 0.9),
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["head", "epoch", "s_acc", "weight"])


def test_a_line_for_each_head_in_the_order_of_the_epochs(frame) -> None:
    drawn = head_evolution(frame)
    assert [list(map(float, line.x)) for line in drawn.data] == [[0.0, 10.0]] * 3
    np.testing.assert_allclose([line.y for line in drawn.data], [[0.7, 0.99], [0.8, 0.5], [0.5, 0.8]], rtol=1e-6)
    assert (drawn.layout.xaxis.title.text, drawn.layout.yaxis.title.text) == ("epoch", "separation accuracy")


def test_width_is_weight_and_color_is_how_the_head_ends(frame) -> None:
    drawn = head_evolution(frame)
    assert [line.line.width for line in drawn.data] == pytest.approx(
        [THINNEST, THINNEST + (THICKEST - THINNEST) * 0.1 / 0.7, THICKEST]
    )
    assert [line.name for line in drawn.data] == ["ends above .98", "ends at .6 or below", "ends in between"]
    colors = [theme.fade(color, 0.75) for color in (theme.BLUE, theme.VERMILLION, theme.GREY)]
    assert [line.line.color for line in drawn.data] == colors


@pytest.mark.parametrize(("last", "name"), [
    (0.98, "ends above .98"), (0.979, "ends in between"), (0.6, "ends at .6 or below"), (0.601, "ends in between"),
])  # fmt: skip
def test_a_head_at_the_edge_of_a_category(last: float, name: str) -> None:
    frame = pd.DataFrame([(0, 0, 0.7, 1.0), (0, 10, last, 1.0)], columns=["head", "epoch", "s_acc", "weight"])
    assert [line.name for line in head_evolution(frame).data] == [name]


def test_one_head_of_one_weight(frame) -> None:
    assert len(head_evolution(frame[frame["head"] == 0]).data) == 1
