"""Matrices as colored cells: heat maps and circuits."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from interp.errors import InterpError
from interp.support.figures.heads import circuit, heatmap


def test_heatmap_names_everything():
    figure = heatmap([[1.0, -3.0, 2.0]], ["0", "<s>", "2"], ["a"], "key", "query", "score", center=0, show_values=True)
    cells, layout = figure.data[0], figure.layout
    assert list(cells.x) == ["0", "&lt;s&gt;", "2"]
    assert (layout.xaxis.title.text, layout.yaxis.title.text) == ("key", "query")
    assert layout.xaxis.type == layout.yaxis.type == "category"
    assert layout.coloraxis.colorbar.title.text == "score"
    assert (layout.coloraxis.cmin, layout.coloraxis.cmax) == (-3, 3)
    assert layout.yaxis.autorange == "reversed"


def test_cells_show_0_and_1_only_where_they_are():
    values = [[0.0, 1.0, 0.999997], [-5e-6, -0.25, np.nan]]
    figure = heatmap(values, "abc", "de", "x", "y", "z", center=0, show_values=True)
    assert [list(row) for row in figure.data[0].text] == [["0", "1", "≈1"], ["≈0", "−0.25", ""]]


@pytest.mark.parametrize(("columns", "given", "written"), [
    (17, {"show_values": True}, "0"), (18, {"show_values": True}, None), (2, {}, None),
    (18, {"written": [["a"] * 18]}, "a"), (2, {"written": [["a", "b"]], "show_values": True}, "a"),
])  # fmt: skip
def test_numbers_are_written_where_they_fit(columns: int, given: dict[str, object], written: str | None) -> None:
    text = heatmap([[0.0] * columns], range(columns), "y", "x", "y", "z", **given).data[0].text
    assert (text if text is None else text[0][0]) == written


@pytest.mark.parametrize(("rows", "gap", "named"), [(30, 1, 1), (31, 0, 1), (40, 0, 1), (41, 0, None)])
def test_many_rows_have_no_gaps_and_no_names(rows: int, gap: int, named: int | None) -> None:
    figure = heatmap([[n] for n in range(rows)], "x", range(rows), "x", "y", "z")
    assert (figure.data[0].xgap, figure.data[0].ygap, figure.layout.yaxis.dtick) == (gap, gap, named)


@pytest.mark.parametrize(("values", "written"), [
    ([0.0123, -0.004], ["0.0123", "−0.0040"]), ([1.0, 0.25], ["1", "0.25"]), ([1234.4, 0.6], ["1234", "≈1"]),
])  # fmt: skip
def test_the_largest_number_has_three_digits(values: list[float], written: list[str]) -> None:
    assert [*heatmap([values], "ab", "y", "x", "y", "z", show_values=True).data[0].text[0]] == written


def test_heatmap_refuses_labels_that_do_not_fit():
    with pytest.raises(InterpError, match=r"has shape \(1, 2\); expected \(1, 3\) from its labels"):
        heatmap([[1.0, 2.0]], "abc", "d", "x", "y", "z")
    with pytest.raises(InterpError, match="labels of a heat map must differ"):
        heatmap([[1.0, 2.0]], ["0", 0], "d", "x", "y", "z")


def qk_frame():
    rows = product([4, 0], ["=", "0"], ["0", "1", "2"])
    return pd.DataFrame(
        [{"head": h, "query": q, "key": k, "value": 100 * h + 10 * (q == "=") + int(k)} for h, q, k in rows]
    )


def test_circuit_keeps_the_order_of_heads_and_tokens():
    figure = circuit(qk_frame().sample(frac=1, random_state=0).sort_index())
    assert [note.text for note in figure.layout.annotations] == ["head 0.4", "head 0.0"]
    assert list(figure.data[0].y) == ["=", "0"]
    np.testing.assert_array_equal(figure.data[0].z, [[410, 411, 412], [400, 401, 402]])
    np.testing.assert_array_equal(figure.data[1].z, [[10, 11, 12], [0, 1, 2]])
    assert (figure.layout.coloraxis.cmin, figure.layout.coloraxis.cmax) == (-412, 412)  # 0 is neutral in every figure
    assert figure.layout.coloraxis.colorbar.title.text == "attention score"


def test_ov_circuit_is_known_by_its_columns():
    figure = circuit(qk_frame().rename(columns={"query": "source", "key": "logit"}))
    assert figure.layout.coloraxis.colorbar.title.text == "logit"
    assert figure.layout.yaxis.title.text == "source token"
    assert figure.layout.xaxis.title.text == "token of the logit"


def test_circuit_refuses_missing_and_repeated_cells():
    frame = qk_frame()
    with pytest.raises(InterpError, match="head 0 has 5 rows; expected one for each of 2 x 3 cells"):
        circuit(frame.iloc[:-1])
    with pytest.raises(InterpError, match="head 4 has 6 rows"):
        circuit(pd.concat([frame.iloc[:5], frame.iloc[4:5], frame.iloc[6:]]))
