"""Measures of several models give, seed by seed, what they give of each one alone."""

from collections.abc import Callable
from functools import partial

import pandas as pd
import pytest

import interp
from interp.measures import heads
from interp.measures.results import Result

GROUPS = [("0.0",), ("0.0", "0.1")]
MEASURES: dict[str, Callable[..., Result]] = {
    "head_metrics": partial(interp.head_metrics, groups=GROUPS),
    "ablate": interp.ablate,
    "resample": partial(interp.ablate, mode="resample"),
    "ablate_heads": partial(interp.ablate_heads, groups=GROUPS, mode="zero"),
    "attention_ratios": interp.attention_ratios,
}
INPUTS = dict.fromkeys(("ablate", "resample", "ablate_heads"), ("inputs", "reference")) | {
    "head_metrics": ("train", "test")
}
SLOW = ("attention_ratios",)
"""It fits separators to whole data sets."""


def of_spec(name: str, n: int = 3) -> list[interp.TaskModel]:
    spec = interp.load(name).spec
    return [interp.build(spec, seed=seed) for seed in range(4, 4 + n)]


def check_as_alone(measure: Callable[..., Result], models: list[interp.TaskModel]) -> None:
    found = measure(models).to_frame()
    assert found.columns[0] == "seed"
    assert found["seed"].unique().tolist() == [model.seed for model in models]
    for model in models:
        mine = found[found["seed"] == model.seed].drop(columns="seed").reset_index(drop=True)
        pd.testing.assert_frame_equal(mine, measure(model).to_frame(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in MEASURES])
@pytest.mark.thinned(3)
def test_seeds_in_count_space(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "TOGETHER", 2)  # three models are two stacks
    models = [interp.load(f"count01/paper/seed-{seed}") for seed in (0, 2, 3)]
    drawn = [models[0].task.sample(200, "train", seed=seed) for seed in (0, 1)]
    given = dict(zip(INPUTS.get(name, ()), drawn))
    check_as_alone(partial(MEASURES[name], **given), models)


@pytest.mark.parametrize("name", ["ablate", "resample", "ablate_heads"])
@pytest.mark.thinned(2)
def test_seeds_that_run_one_after_the_other(name: str) -> None:
    measure = interp.ablate if name == "ablate" else partial(interp.ablate, mode="resample")
    if name == "ablate_heads":
        measure = partial(interp.ablate_heads, groups="singles")
    model = of_spec("languages/parity-learned", 1)[0]
    inputs = model.task.sample(20, seed=0)
    check_as_alone(partial(measure, inputs=inputs, reference=inputs), of_spec("languages/parity-learned", 2))


def test_models_of_one_seed_are_told_apart_by_their_place() -> None:
    """As those of other libraries, of which no seed is known."""
    models = of_spec("count01/minimal", 2)
    models[1].seed = models[0].seed
    found = interp.ablate(models, inputs=models[0].task.sample(20, seed=0)).to_frame()
    assert found["seed"].unique().tolist() == [0, 1]


@pytest.mark.slow
def test_figures_draw_the_mean_over_seeds() -> None:
    models = [interp.load(f"count01/paper/seed-{seed}") for seed in (0, 1)]
    found = interp.head_metrics(models, GROUPS[:1])
    assert list(found.plot().data[0].y) == pytest.approx([found["s_acc"].mean()])
    drawn = interp.ablate_heads(models, GROUPS)
    means = drawn.to_frame().groupby("heads", sort=False)["accuracy"].mean()
    assert list(drawn.plot().data[0].y) == pytest.approx(means.tolist())


def test_only_seeds_of_one_spec() -> None:
    with pytest.raises(interp.InterpError, match="models of one call must have one spec"):
        interp.ablate([interp.load("count01/paper"), interp.load("languages/parity-learned")])
    with pytest.raises(interp.InterpError, match="the list of models is empty"):
        interp.head_metrics([])
