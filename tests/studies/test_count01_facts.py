"""The paper's facts, counted anew from the tables of the single measures."""

from itertools import combinations

import pytest
from shared.count01_facts import PAPER, compare, facts

import interp
from interp.families.count01.planes import head_planes
from interp.measures import attention_ratios, heads, separation


@pytest.fixture(scope="module")
def model() -> interp.TaskModel:
    return interp.load("count01/paper/seed-1")


@pytest.mark.slow
def test_facts_are_counts_of_heads_and_pairs(model) -> None:
    found = facts(model).iloc[0]
    assert list(found.index) == list(PAPER)
    metrics = interp.head_metrics(model, "singles+pairs").to_frame().set_index("heads")
    singles = {head: metrics.loc[[(f"0.{head}",)]].iloc[0] for head in range(16)}
    good = [head for head in singles if singles[head].s_acc >= 0.98]
    assert found.successful == len(good) / 16
    assert found.failed == sum(singles[head].s_acc <= 0.6 for head in singles) / 16
    assert found.successful + found.failed + found.mixed == pytest.approx(1)
    assert found.chance_singles == sum(0.45 < singles[head].l_acc < 0.55 for head in singles) / 16
    pairs = [metrics.loc[[tuple(f"0.{head}" for head in pair)]].iloc[0] for pair in combinations(range(16), 2)]
    assert found.good_pairs == sum(pair.l_acc > 0.8 for pair in pairs) / 120
    improved = [
        metrics.loc[[(f"0.{a}", f"0.{b}")]].iloc[0].s_acc - max(singles[a].s_acc, singles[b].s_acc) > 0.01
        for a, b in combinations(range(16), 2)
    ]
    assert found.improved_pairs == sum(improved) / 120
    ratios = attention_ratios.token_ratios(model).loc[good]
    assert (found.w01_low, found.w01_high) == (ratios["w01"].min(), ratios["w01"].max())
    assert found.w02_above_10 == (ratios["w02"] > 10).mean()
    ends = heads.head_outputs(model, model.task.dataset("test"), read=1)
    for size, name in ((1, "singles"), (2, "pairs")):
        groups = list(combinations(range(16), size))
        assert found[f"eos_{name}"] == sum(heads.learned_accuracy(ends, one) == 1 for one in groups) / len(groups), size
    whole = heads.head_outputs(model, model.task.dataset("test"))
    right = whole.contributions.sum(1) + whole.bias + whole.skip
    assert found.accuracy == float((right.argmax(1) == whole.labels).double().mean())
    assert compare(facts(model))["mean"].tolist() == pytest.approx(found.tolist(), nan_ok=True)


def test_planes_hold_outputs_value_vectors_and_separators(model) -> None:
    train, test = model.task.sample(200, "train", seed=1), model.task.sample(50, "train", seed=2)
    fitted, tested = heads.head_outputs(model, train), heads.head_outputs(model, test)
    planes = head_planes(model, fitted, tested)
    mine = planes.points[planes.points["head"] == 3]
    assert mine[["x", "y"]].to_numpy() == pytest.approx(tested.z[:, 3].numpy())
    assert [{5: "4", 6: "5"}[int(label)] for label in tested.labels] == mine["label"].tolist()
    # The value vector of '2' is what the head puts out when it attends to a 2 alone.
    _, cache = model.run_with_cache(test.tokens[:1])
    at = (test.tokens[0] == 3).nonzero()[0, 0]
    vector = planes.values[(planes.values["head"] == 3) & (planes.values["token"] == "2")][["x", "y"]].to_numpy()[0]
    assert vector == pytest.approx(cache["v", 0][0, at, 3].detach().numpy(), abs=1e-5)
    w, b = separation.fit_separator(fitted.z[:, 3].numpy(), fitted.labels.numpy())
    assert planes.lines[3] == pytest.approx((*w, b))
