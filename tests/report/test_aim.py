"""What a point of a figure stands for: heads by their names, wherever they stand; inputs as they are given."""

import json

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from interp.families.count01.planes import head_plane, head_planes_grid
from interp.report.aim import aimed, counts, inputs, tokens
from interp.support import figures

FRAME = pd.DataFrame({"part": ["embedding", "head 0.0", "head 1.2"], "value": [1.0, 2.0, 3.0]})
CELLS = pd.DataFrame(
    [
        {"head": head, "query": q, "key": k, "value": i}
        for head in ("0.3", "1.0")
        for i, (q, k) in enumerate(["aa", "ab"])
    ]
)
PLANE = pd.DataFrame({"x": [0.0, 1.0], "y": [0.0, 1.0], "label": ["4", "5"], "head": [7, 7]})
NONE = pd.DataFrame({"head": [], "token": [], "x": [], "y": []})


def metas(figure: go.Figure) -> list[dict[str, str]]:
    content = aimed(json.loads(figure.to_json()))
    return [trace.get("meta", {}) for trace in content["data"]]


@pytest.mark.parametrize(("figure", "wanted"), [
    (figures.bars(FRAME, "part", "value"), [{"heads": "x"}]),
    (figures.heatmap(np.eye(2), "ab", ["head 0.1", "head 0.2"], "key", "head", "v"), [{"heads": "y"}]),
    (figures.heatmap(np.eye(2), [3, 1], [3, 1], "head", "head", "v"), [{"heads": "y"}]),
    (figures.bars(pd.DataFrame({"head": ["3 failed", "1 mixed"], "v": [1, 2]}), "head", "v"), [{"heads": "x"}]),
    (figures.bars(pd.DataFrame({"head": [0, 1], "v": [1, 2]}), "head", "v"), [{"heads": "x"}]),
    (figures.circuit(CELLS), [{"head": "0.3"}, {"head": "1.0"}]),
    (figures.lines(FRAME.assign(of="QK of head 0.1"), "part", "value", "of"), [{"head": "0.1"}]),
    (head_plane(PLANE, NONE, None, 7), [{"head": "0.7"}, {"head": "0.7"}]),
    (head_planes_grid(PLANE, NONE, notes={7: "s-acc 1"}), [{"head": "0.7"}, {"head": "0.7"}]),
    (figures.bars(pd.DataFrame({"size": [1, 2], "v": [1, 2]}), "size", "v", x_title="heads in a group"), [{}]),
    (figures.heatmap(np.eye(2), "ab", "ab", "token", "token", "cosine"), [{}]),
])  # fmt: skip
def test_heads_are_known_by_name(figure: go.Figure, wanted: list[dict[str, str]]) -> None:
    assert metas(figure) == wanted


def test_a_head_of_a_whole_trace_is_named_under_the_pointer() -> None:
    first = aimed(json.loads(figures.circuit(CELLS).to_json()))["data"][0]
    assert first["hovertemplate"].endswith("<extra>head 0.3</extra>")


def test_inputs_go_with_all_or_with_each() -> None:
    assert (tokens([0, 11, 4]), counts([160, 2])) == ("0.11.4", "160,2")
    cells = figures.heatmap(np.eye(2), "ab", "ab", "token", "token", "cosine")
    assert metas(inputs(go.Figure(cells), "tokens", "0.1")) == [{"input": "tokens:0.1"}]
    each = inputs(go.Figure(cells), "counts", [["1,2", ""], ["", "3,4"]])
    assert metas(each) == [{"inputs": "counts"}]
    assert each.data[0].customdata[1][1] == "3,4"


def test_what_is_given_is_not_overwritten() -> None:
    figure = figures.bars(FRAME, "part", "value")
    figure.data[0].meta = {"head": "0.0"}
    assert metas(figure)[0]["head"] == "0.0"
