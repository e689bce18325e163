"""The shipped specs of learned recognizers are the published architecture with the recipes that they say."""

from pathlib import Path

import pytest

from interp.families.languages import Dyck1, Dyck2, First, One, Palindrome, Parity
from interp.families.languages.constructions.learned import BATCHES, PUBLISHED, learned_spec
from interp.models.spec import ModelSpec
from interp.training.sweeps.grid import read_grid

ROOT = Path(__file__).resolve().parents[4] / "models" / "languages"
VARIED = {"length": 100, "shortest": 2, "test_length": 1000}
SHIPPED = {
    "first-learned": (First(length=100, test_length=1000), "first", "current", PUBLISHED, 1000),
    "one-learned": (One(**VARIED), "first", "none", PUBLISHED, 400),
    "one-learned-batches": (One(**VARIED), "first", "current", BATCHES, 60),
    "parity-learned": (Parity(length=10), "none", "none", BATCHES, 60),
    "palindrome-learned": (Palindrome(length=8), "halves", "none", BATCHES, 60),
    "dyck1-learned": (Dyck1(length=12), "fraction", "none", BATCHES, 30),
    "dyck2-learned": (Dyck2(length=12), "sinusoidal", "none", BATCHES, 30),
}


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_specs(name: str) -> None:
    task, positions, log_length, recipe, epochs = SHIPPED[name]
    origin = recipe.model_copy(update={"epochs": epochs})
    assert ModelSpec.from_toml(ROOT / name / "model.toml") == learned_spec(task, positions, log_length, origin=origin)


def test_the_published_shape() -> None:
    spec = learned_spec(First(), "first")
    assert spec.problems() == []
    assert (spec.d_model, len(spec.layers), spec.layers[0].mlp.d_mlp, spec.layers[0].n_heads) == (16, 2, 64, 1)
    assert (spec.training.learning_rate, spec.training.batch_size, spec.training.samples_per_epoch) == (3e-4, 1, 100)
    assert learned_spec(First(), "first", eps=0.1).layers[1].norm_eps == 0.1


def test_the_sweep_of_first_over_lengths_is_figure_4() -> None:
    grid = read_grid(ROOT.parents[1] / "analyses" / "sweeps" / "first_lengths.toml")
    wanted = {
        learned_spec(First(length=length, test_length=1000), "first", log).id
        for length in (10, 30, 100, 300)
        for log in ("none", "current")
    }
    assert {cell.spec.id for cell in grid.cells} == wanted
    assert list(grid.seeds) == list(range(20))
