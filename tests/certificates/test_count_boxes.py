"""Exact accuracy over boxes of counts, against every sentence run through the model itself."""

from __future__ import annotations

import pytest
import torch

import interp
from interp.constructions.count01_minimal import minimal
from interp.errors import InterpError, UnsupportedError
from interp.tasks.count01 import CountBox

BOX = CountBox((0, 4), (0, 4), (0, 3))


@pytest.mark.parametrize("seed", range(3))
def test_a_small_box_agrees_with_running_every_sentence(seed: int) -> None:
    spec = interp.load("count01/paper").spec
    model = interp.load(f"count01/paper/seed-{seed}") if seed else interp.build(spec, seed=3)
    counts = torch.cartesian_prod(torch.arange(5), torch.arange(5), torch.arange(4))
    batch = model.task.sentences(counts)
    with model.hooks([("blocks.0.attn.hook_z", lambda z, hook: z)]):  # a hook: whole sequences are run
        right = model.predict(batch.tokens) == batch.labels
    found = interp.certify(model, box=BOX)
    assert found.n_inputs == 100
    assert found.n_errors == int((~right).sum())
    assert found.accuracy == pytest.approx(float(right.double().mean()))
    assert found.status == ("certified" if right.all() else "refuted")
    errors = found.tables["errors"].set_index("difference")
    difference = counts[:, 1] - counts[:, 0]
    for value in range(-4, 5):
        assert errors.loc[value, "errors"] == int((~right & (difference == value)).sum())
        assert errors.loc[value, "inputs"] == int((difference == value).sum())


def test_a_model_that_is_wrong_on_one_input_only_is_refuted_with_that_input() -> None:
    """N = 7 is right for up to 100 twos; with 101 of them only n1 = n0 + 1 goes wrong, and not everywhere."""
    weights = minimal(N=7, n_max=100)
    model = weights.model()
    assert interp.certify(model, box=CountBox((0, 60), (0, 60), (0, 100))).status == "certified"
    found = interp.certify(model, box=CountBox((5, 5), (6, 6), (99, 101)))
    assert (found.status, found.n_errors, found.counterexample) == ("refuted", 1, "n0 = 5, n1 = 6, n2 = 101")
    assert found.worst_margin < 0


def test_minimal_is_certified_on_the_test_domain_with_its_stated_margin() -> None:
    construct = minimal()
    found = interp.certify(construct.model())
    assert (found.status, found.n_inputs, found.accuracy) == ("certified", 502_500, 1.0)
    whole = interp.certify(construct.model(), box=CountBox((0, 200), (0, 200), (0, 0)))
    assert whole.worst_margin == pytest.approx(construct.weights.margin, rel=1e-6)  # the other tokens have logit 0


@pytest.mark.slow
def test_minimal_is_right_on_the_whole_cube() -> None:
    found = interp.certify("count01/minimal", box="cube")
    assert (found.status, found.n_inputs) == ("certified", 8_120_601)
    assert found.tables["accuracy"]["errors"].to_list() == [0, 0, 0]


def test_where_counts_do_not_decide_there_is_no_certificate() -> None:
    spec = interp.load("count01/paper").spec.replace(positions="learned", max_length=700)
    with pytest.raises(UnsupportedError, match=r"cannot be certified: .*one layer without positions"):
        interp.certify(interp.build(spec))


def test_bad_boxes_are_one_sentence() -> None:
    with pytest.raises(InterpError, match=r"range of n1 is 5\.\.3"):
        CountBox((0, 1), (5, 3), (0, 1))
    with pytest.raises(InterpError, match="unknown split of task count01 'tset'"):
        interp.certify("count01/paper", box="tset")
