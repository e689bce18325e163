"""The state of a training run on disk: it comes back whole, and only to the run that it belongs to."""

import re
from pathlib import Path

import pytest
import torch

from interp.errors import InterpError
from interp.training.results import FILE, RunState, load_state, run_key, save_state, saved_engine


def run(**tensors: float) -> RunState:
    state = {name: torch.full((2, 3), value) for name, value in tensors.items()}
    return RunState(epoch=3, engine=state, snapshots={2: {"embed.W_E": torch.ones(2)}}, history=[{"epoch": 1}])


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    key = run_key("one", [0, 1], "vmap", "float32", [2])
    assert load_state(tmp_path, key) is None
    assert saved_engine(tmp_path) is None
    save_state(tmp_path, key, run(w=0.5))
    found = load_state(tmp_path, key)
    assert (found.epoch, found.history, list(found.snapshots)) == (3, [{"epoch": 1}], [2])
    assert found.engine["w"].equal(torch.full((2, 3), 0.5))
    assert found.snapshots[2]["embed.W_E"].equal(torch.ones(2))
    assert saved_engine(tmp_path) == "vmap"
    assert [file.name for file in tmp_path.iterdir()] == [FILE]


KEY = {"spec_id": "one", "seeds": [0, 1], "engine": "vmap", "dtype": "float32", "snapshots": [2, 5]}


@pytest.mark.parametrize(
    ("name", "other"),
    [("spec_id", "two"), ("seeds", [1, 0]), ("engine", "reference"), ("dtype", "float64"), ("snapshots", [2])],
)
def test_a_run_that_differs_in_one_thing_is_another_run(name: str, other: object, tmp_path: Path) -> None:
    save_state(tmp_path, run_key(**KEY), run(w=1.0))
    was, now = run_key(**KEY), run_key(**{**KEY, name: other})
    said = name.removesuffix("_id")
    with pytest.raises(InterpError, match=re.escape(f"another run: {said} was {was[said]!r}, now {now[said]!r};")):
        load_state(tmp_path, now)


@pytest.mark.slow
def test_the_order_in_which_snapshots_are_named_does_not_matter(tmp_path: Path) -> None:
    save_state(tmp_path, run_key(**KEY), run(w=1.0))
    assert load_state(tmp_path, run_key(**{**KEY, "snapshots": [5, 2]})) is not None
