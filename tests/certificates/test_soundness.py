"""What stands between a proof and a false certificate, piece by piece: each of these lines was once broken unseen."""

import numpy as np
import pytest
import torch

import interp
from interp.certificates import count_boxes, rounding
from interp.certificates.count_boxes import rounding_bounds, sweep
from interp.families.count01.tasks import EQUALS, CountBox
from interp.families.histogram.certificates import certify as histogram
from interp.families.memorization import certificates, lookup

BOX = CountBox((0, 4), (0, 4), (0, 3))


def silent() -> interp.TaskModel:
    """Every logit is 0."""
    model = interp.build(interp.load("count01/paper").spec, seed=4)
    with torch.no_grad():
        model.unembed.W_U.zero_()
        model.unembed.b_U.zero_()
    return model


def test_a_tie_is_an_error() -> None:
    found = sweep(silent(), BOX)
    assert found.wrong == len(found.errors) == len(BOX) == found.wrong_between
    assert interp.certify(silent(), box=BOX).tables["errors"]["errors"].sum() == len(BOX)
    found = sweep(silent(), BOX, "4 against 5")
    assert found.wrong == len(BOX)


def test_bounds_are_for_the_longest_sentence_of_the_box() -> None:
    model = interp.load("count01/paper")
    shape = count_boxes.shape_of(model.task)
    boxes = CountBox((1, 30), (2, 50), (0, 20)), CountBox((1, 50), (0, 0), (0, 0))
    long, short = (rounding_bounds(model, shape, box)(EQUALS) for box in boxes)
    seen = torch.tensor(sorted({*shape.counted, *shape.marks.nonzero()[:, 0].tolist(), EQUALS}))
    all_tokens = rounding.margin_errors(model, EQUALS, seen, 30 + 50 + 20 + 2)  # all digits, [BOS] and '='
    assert long[0] >= all_tokens[0] > short[0]
    assert long[1] >= all_tokens[1] > short[1]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_two_logits_are_off_by_twice_as_much_as_one(dtype: str) -> None:
    task = lookup(N=3, M=4, seed=2)
    model = interp.build("memorization/theorem1", table=task, d_model=4, dtype=dtype)
    found = interp.certify(model)
    _, bound = certificates.last_logits_with_bound(model, task.all_contexts().tokens)
    np.testing.assert_allclose(found.tables["contexts"]["rounding"], 2 * bound.amax(1).numpy())
    assert found.rounding in set(2 * bound.amax(1).numpy())


@pytest.mark.slow
def test_subnormal_numbers_are_not_certified_in_float32() -> None:
    """Logits that differ by 1e-36 or so, by way of products that float32 cannot hold in some order."""
    wrong = 0
    for power in range(8, 26):
        model = interp.build("count01/minimal", dtype="float32")
        with torch.no_grad():
            model.blocks[0].attn.W_V.mul_(10.0**power)
            model.blocks[0].attn.W_O.mul_(10.0**-power)
            model.unembed.W_U.mul_(10.0**-power)
        found = interp.certify(model, box=BOX)
        batch = model.task.sentences(BOX.counts())
        errors = int((model.predict(batch.tokens) != batch.labels).sum())
        wrong += errors > 0
        assert not (found.status == "certified" and errors)
    assert wrong


def test_a_token_that_is_not_there_may_take_the_whole_scale() -> None:
    """The largest score is subtracted also where its token is absent: what is left of float32 is exp(-spread)."""
    model = interp.build("count01/minimal", dtype="float32")
    bounds = []
    for score in (0.0, 40.0):
        with torch.no_grad():
            model.embed.W_E.zero_()
            model.embed.W_E[EQUALS] = 1.0
            model.embed.W_E[7] = score
            model.blocks[0].attn.W_Q.fill_(1.0)
            model.blocks[0].attn.W_K.fill_(1.0)
        bounds.append(rounding.logit_error(model, EQUALS, torch.arange(4), 10, torch.float32))
    assert bounds[1] > bounds[0]


@pytest.mark.parametrize("power", [-30, 0, 12])
@pytest.mark.parametrize("kind", ["lin", "dot"])
def test_the_worst_margin_of_a_histogram_certificate_is_a_bound(kind: str, power: int) -> None:
    """At every size of the margins: compared with the same weights in numbers of 60 digits, by what float64 loses."""
    model = interp.build(f"histogram/{kind}-exact", T=3, L=3, p=3)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + 1e-3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        model.unembed.W_out.mul_(10.0**power)
        model.unembed.b_out.mul_(10.0**power)
    found = interp.certify(model)
    out = model(next(model.task.inputs(chunk=model.task.n_inputs)).tokens).detach()
    right = model.task.classes(next(model.task.inputs(chunk=model.task.n_inputs)))
    others = out.scatter(2, right[..., None], -torch.inf).amax(2)
    least = float((out.gather(2, right[..., None])[..., 0] - others).min())
    assert found.status == "certified"
    assert found.worst_margin < least
    assert found.worst_margin == pytest.approx(least, rel=0.1) or found.notes


def test_nothing_proved_has_no_rounding() -> None:
    model = interp.build("histogram/dot-exact", T=3, L=3)
    with torch.no_grad():
        model.unembed.W_out.mul_(-1)
    found = interp.certify(model)
    assert found.status == "refuted"
    assert found.rounding is None or found.rounding > 0
    assert histogram.SLACK >= 1
