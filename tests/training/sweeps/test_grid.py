"""Grids: cells from axes of three forms, the published grid, all problems at once with their cells."""

from datetime import date
from pathlib import Path

import pytest
import tomli_w
from sweep_work import small_grid

import interp
from interp.families.histogram import Histogram
from interp.families.histogram.constructions.models import histogram_spec
from interp.training.sweeps.grid import Grid, GridError, make_grid, read_grid
from interp.training.train import train_parameters

ROOT = Path(__file__).resolve().parent.parent.parent.parent


@pytest.fixture(scope="module")
def published() -> Grid:
    """1,176 cells, each checked: a few seconds."""
    return read_grid(ROOT / "analyses" / "sweeps" / "histogram_T32.toml")


def test_each_cell_of_the_published_grid_is_the_right_model(published: Grid) -> None:
    grid = published
    assert (len(grid.cells), grid.seeds, grid.n_runs) == (6 * 14 * 14, (0, 1, 2, 3, 4), 5880)
    recipe = interp.Training(
        epochs=500, batch_size=32, data="fresh", samples_per_epoch=10_000, betas=(0.9, 0.98), eps=1e-9, init="torch"
    )
    for cell in grid.cells:
        model, d, p = cell.axes.values()
        task = Histogram(bos=model.startswith("bos"), zero_class=True)
        assert cell.spec == histogram_spec(model, task, d, p, origin=recipe)


def test_axes_of_the_published_grid_are_the_published_ones(published: Grid) -> None:
    import pandas as pd

    printed = pd.read_csv(ROOT / "analyses" / "published" / "behrens_T32_L10_mean.csv")
    theirs = {(m.replace("+sftm", "-softmax"), d, p) for m, d, p in printed[["model", "d", "p"]].to_numpy()}
    assert {tuple(cell.axes.values()) for cell in published.cells} == theirs


def test_axes_have_three_forms_and_the_last_one_changes_fastest() -> None:
    axes = {
        "readout_width": [3, 5],
        "d": {"fields": ["d_model", "layers.0.d_head"], "values": [2, 4]},
        "data": {"choices": {"short": {"origin.samples_per_epoch": 10}, "bos": {"task.parameters.bos": True}}},
    }
    grid = make_grid(small_grid(axes=axes, seeds=[7, 3]))
    assert grid.seeds == (7, 3)
    assert [tuple(cell.axes.values()) for cell in grid.cells[:3]] == [(3, 2, "short"), (3, 2, "bos"), (3, 4, "short")]
    spec = grid.cells[3].spec
    assert (spec.readout_width, spec.d_model, spec.layers[0].d_head) == (3, 4, 4)
    assert dict(spec.task.parameters)["bos"] is True
    assert spec.training.samples_per_epoch == 200  # the choice before it has left nothing behind
    assert grid.cells[2].spec.training.samples_per_epoch == 10
    assert {cell.spec.training.epochs for cell in grid.cells} == {3}


def test_a_base_may_be_a_model_file(tmp_path: Path) -> None:
    (tmp_path / "model.toml").write_text(tomli_w.dumps({**small_grid()["base"], "zoo": {"default": "seed-0"}}))
    (tmp_path / "grid.toml").write_text(tomli_w.dumps(small_grid(base="model.toml")))
    assert read_grid(tmp_path / "grid.toml").cells == make_grid(small_grid()).cells


def test_a_grid_without_axes_is_one_cell() -> None:
    (cell,) = make_grid(small_grid(axes={})).cells
    assert cell.spec.d_model == 8
    assert cell.label == cell.spec.id


@pytest.mark.parametrize(("given", "read"), [({}, "="), ({"readout_at": "last"}, "last")])
def test_cells_are_the_specs_that_train_gives_its_models(given: dict[str, str], read: str) -> None:
    recipe = {"kind": "training", "epochs": 0, "data": "fresh", "samples_per_epoch": 8}
    base = {"task": {"name": "count01"}, "d_model": 4, "layers": [{"d_head": 2}], "origin": recipe, **given}
    (cell,) = make_grid({"base": base}).cells
    assert cell.spec.readout_at == read
    engine, _ = train_parameters(interp.ModelSpec.from_dict(base), progress=False)
    assert cell.spec == engine.spec


BAD = {
    "seeds = 0: the grid has no runs": {"seeds": 0},
    "must be a number of seeds": {"seeds": [0, -1]},
    "holds a seed twice": {"seeds": [4, 4]},
    "axis readout_width is empty: the grid has no cells": {"axes": {"readout_width": []}},
    "axis d_model = 3 must be a list of values": {"axes": {"d_model": 3}},
    "axis d = .* must be a list of values": {"axes": {"d": {"fields": [], "values": [1]}}},
    "axis seed: the table of runs has a column of that name": {"axes": {"seed": [1]}},
    "unknown field 'axis'; .*did you mean 'axes'": {"axis": {}}, "axes = 3 must be a table": {"axes": 3},
    "base is missing": {"base": None}, "no such file: nowhere.toml": {"base": "nowhere.toml"},
    "cell d_modl=1 and 1 more: unknown field 'd_modl'": {"axes": {"d_modl": [1, 2]}},
    r"axis x: layers.1.d_head: layers has the indices 0 to 0": {
        "axes": {"x": {"fields": ["layers.1.d_head"], "values": [1]}}
    },
    r"axis x: layers.1: layers has the indices 0 to 0": {
        "axes": {"x": {"fields": ["layers.1"], "values": [{"d_head": 8}]}}
    },
    "axis x: readout.width: readout is 'relu_mlp', not a table": {
        "axes": {"x": {"fields": ["readout.width"], "values": [1]}}
    },
    "axis spec.d: the table of runs has a column of that name": {"axes": {"spec.d": [1]}},
    "cell a=5, readout_width=6: axis a: another axis changes readout_width, too": {
        "axes": {"a": {"fields": ["readout_width"], "values": [5]}, "readout_width": [6]}
    },
    r"readout_width = datetime.date\(1979, 5, 27\): input should": {"axes": {"readout_width": [date(1979, 5, 27)]}},
    "cell readout_width=5: the same model as readout_width=5": {"axes": {"readout_width": [5, 5]}},
    r"cell origin.learning_rate=-1.0: origin.*learning_rate = -1.0": {"axes": {"origin.learning_rate": [0.1, -1.0]}},
    "cell task.name=histogran: unknown task": {"axes": {"task.name": ["histogran"]}},
    "unknown engine 'warp'": {"engine": "warp"},
    "its origin is a construction": {"axes": {"origin": [{"kind": "construction", "name": "histogram/dot-exact"}]}},
}  # fmt: skip


@pytest.mark.parametrize("sentence", BAD)
def test_bad_grids_are_refused_in_one_sentence(sentence: str) -> None:
    grid = small_grid(**BAD[sentence])
    if BAD[sentence].get("axes", {}) != 3 and "origin" in BAD[sentence].get("axes", {}):
        del grid["epochs"]
    with pytest.raises(interp.InterpError, match=sentence):
        make_grid(grid)


def test_all_problems_come_at_once_with_their_cells() -> None:
    axes = {"readout_width": [0, 4], "layers.0.d_head": [8, 9]}  # identity values need d_head = d_model
    with pytest.raises(GridError) as caught:
        make_grid(small_grid(axes=axes))
    assert caught.value.problems == [
        "cell readout_width=0, layers.0.d_head=8 and 1 more: readout_width = 0: input should be greater than or equal "
        "to 1",
        "cell readout_width=4, layers.0.d_head=9: layer 0: value_output = 'identity' needs d_head = d_model = 8, not 9",
    ]
    with pytest.raises(GridError) as caught:
        make_grid(small_grid(seeds=[], axes={"a": 1, "b": []}))
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize("text", ["seeds = ", "[base\n"])
def test_a_file_that_is_no_toml_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(text)
    with pytest.raises(interp.InterpError, match="is not a readable TOML file"):
        read_grid(tmp_path / "grid.toml")


def test_parts_of_a_grid_are_apart_and_together_the_grid(published: Grid) -> None:
    grid = published
    part = grid.part(["model=dot", "d=32", "d=8"], [3])
    assert {tuple(cell.axes.values())[:2] for cell in part.cells} == {("dot", 8), ("dot", 32)}
    assert (len(part.cells), part.seeds) == (2 * 14, (3,))
    models = [grid.part([f"model={model}"]) for model in ("lin", "lin-softmax", "dot", "dot-softmax", "bos")]
    rest = grid.part(["model=bos-softmax"])
    assert [cell for some in [*models, rest] for cell in some.cells] == list(grid.cells)
    for only, seeds, message in ((["modle=dot"], None, "model"), (["d=5"], None, "d: value"), ([], [7], "seed 7")):
        with pytest.raises(interp.InterpError, match=message):
            grid.part(only, seeds)
