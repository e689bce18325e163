import pandas as pd
import pytest

from interp.support.figures.algorithms import accuracies, phases


def test_each_model_stands_in_its_own_cell_of_a_phase_diagram() -> None:
    frame = pd.DataFrame({"d": [4, 4, 4, 8, 16], "p": [2, 2, 2, 2, 1], "algorithm": ["A", "B", "A", "none", "B"]})
    drawn = phases(frame.assign(model=[*"abcde"]), "d", "p")
    marks = {name: place for trace in drawn.data for name, *place in zip(trace.text, trace.x, trace.y)}
    assert [(round(x), y) for _, (x, y) in sorted(marks.items())] == [(0, 1), (0, 1), (0, 1), (1, 1), (2, 0)]
    assert len({x for x, _ in marks.values()}) == 5
    assert (drawn.layout.xaxis.ticktext, drawn.layout.yaxis.ticktext) == (("4", "8", "16"), ("1", "2"))


@pytest.mark.parametrize(("models", "across"), [(1, 1), (2, 2), (9, 9), (12, 9)])
def test_models_of_one_algorithm_stand_side_by_side(models: int, across: int) -> None:
    frame = pd.DataFrame({"model": [*map(str, range(models))], "algorithm": "none", "accuracy": 0.5})
    (trace,) = accuracies(frame).data
    assert len(set(trace.x)) == across
    assert sum(trace.x[:across]) == pytest.approx(0)
    assert max(trace.x) < 0.5
