"""Exact accuracy over boxes of counts, against every sentence run through the model itself."""

import numpy as np
import pytest
import torch

import interp
from interp.certificates import certify, count_boxes, method_for, rounding
from interp.certificates.certificate import MarginCounts
from interp.errors import InterpError, UnsupportedError
from interp.families.count01.constructions import minimal
from interp.families.count01.tasks import EOS, EQUALS, FIVE, FOUR, CountBox

BOX = CountBox((0, 4), (0, 4), (0, 3))
PAPER_LAYER = interp.load("count01/paper").spec.layers[0].model_copy(update={"norm_eps": 1e-12})


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.thinned(2)
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
    for n2, low, high in found.tables["frontier"].itertuples(index=False):
        wrong = difference[~right & (counts[:, 2] == n2)]
        assert (low, high) == (int(wrong.min()), int(wrong.max()))
    assert set(found.tables["frontier"]["n2"]) == set(counts[~right, 2].tolist())


@pytest.mark.slow
def test_one_wrong_input_is_found_and_refutes_the_model() -> None:
    """N = 7 is right for up to 100 twos; with 101 of them only n1 = n0 + 1 goes wrong, and not everywhere."""
    weights = minimal(N=7, n_max=100)
    model = weights.model()
    assert interp.certify(model, box=CountBox((0, 60), (0, 60), (0, 100))).status == "certified"
    found = interp.certify(model, box=CountBox((5, 5), (6, 6), (99, 101)))
    assert (found.status, found.n_errors, found.counterexample) == ("refuted", 1, "n0 = 5, n1 = 6, n2 = 101")
    assert found.worst_margin < 0


@pytest.mark.slow
def test_minimal_is_certified_with_its_stated_margin() -> None:
    construct = minimal()
    found = interp.certify(construct.model())
    assert (found.status, found.n_inputs, found.accuracy) == ("certified", 502_500, 1.0)
    whole = interp.certify(construct.model(), box=CountBox((0, 200), (0, 200), (0, 0)))
    assert whole.worst_margin == pytest.approx(construct.weights.margin, rel=1e-5)  # the other tokens have logit 0
    assert whole.worst_margin <= construct.weights.margin


@pytest.mark.slow
def test_minimal_is_right_on_the_whole_cube() -> None:
    found = interp.certify("count01/minimal", box="cube")
    assert (found.status, found.n_inputs) == ("certified", 8_120_601)
    assert found.tables["accuracy"]["errors"].to_list() == [0, 0, 0]


def whole_sentences(model: interp.TaskModel, box: CountBox) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Counts, logits at '=' and at the answer, all by running whole sentences through a hooked model."""
    counts = torch.cartesian_prod(*(torch.arange(low, high + 1) for low, high in box.ranges.values()))
    tokens = model.task.sentences(counts, seed=5).tokens
    place = (tokens == EQUALS).long().argmax(1)
    with torch.no_grad(), model.hooks([("blocks.0.attn.hook_z", lambda z, hook: z)]):
        out = model(tokens)
    rows = torch.arange(len(tokens))
    return counts, out[rows, place], out[rows, place + 1]


@pytest.mark.parametrize("gain", [1.0, 400.0])
def test_every_question_agrees_with_whole_sentences(gain: float) -> None:
    """With gain 400 on one head's queries and keys, its weights vanish beside others: every row takes a softmax."""
    model = interp.build(interp.load("count01/paper").spec, seed=4, dtype="float64")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "W_Q" in name or "W_K" in name:
                parameter[0] *= gain
    counts, at_equals, at_answer = whole_sentences(model, BOX)
    right = model.task.label_counts(counts)
    true = at_equals.gather(1, right[:, None])[:, 0]
    other = at_equals.gather(1, FOUR + FIVE - right[:, None])[:, 0]
    best = at_equals.scatter(1, right[:, None], -torch.inf).amax(1)
    ends = at_answer[:, EOS] - at_answer[:, :EOS].amax(1)
    for question, margin in (("answer", true - best), ("4 against 5", true - other), ("end", ends)):
        found = count_boxes.sweep(model, BOX, question)  # type: ignore[arg-type]
        assert found.worst == pytest.approx(float(margin.min()), rel=1e-9)
        wrong = counts[margin <= 0]
        assert np.array_equal(np.unique(found.errors, axis=0), wrong.unique(dim=0).numpy().reshape(-1, 3))
        assert found.wrong_between == (int((true <= other).sum()) if question != "end" else 0)
        neither = (true <= best) & (other < best)
        assert found.neither == (int(neither.sum()) if question == "answer" else 0)


@pytest.mark.parametrize("name", ["count01/paper", "count01/minimal"])
def test_float32_rounding_stays_below_a_bound_that_is_not_absurd(name: str) -> None:
    model, box = interp.load(name).to(torch.float32), CountBox((3, 4), (0, 40), (20, 21))
    _, small, _ = whole_sentences(model, box)
    _, large, _ = whole_sentences(model.to(torch.float64), box)
    difference = small.double() - large
    moved = float((difference.amax(1) - difference.amin(1)).max())
    seen = torch.arange(FOUR)
    bound = rounding.logit_error(model, EQUALS, seen, 4 + 40 + 21 + 2, torch.float32)
    assert 0 < moved < bound < 0.5


def test_layer_norm_of_near_equal_embeddings_is_not_certified() -> None:
    """The spread of the embedding is all rounding error: the scale is unknown, and so is everything after it."""
    model = interp.build(interp.load("count01/paper").spec.replace(layers=(PAPER_LAYER,)), seed=0)
    with torch.no_grad():
        model.embed.W_E.fill_(1e4).add_(torch.arange(32) * 1e-3)
    assert rounding.logit_error(model, EQUALS, torch.arange(FOUR), 10, torch.float32) == float("inf")
    assert interp.certify(model, box=BOX).status != "certified"


def test_a_model_whose_margins_are_below_rounding_is_undecided() -> None:
    in_float32 = interp.build("count01/minimal", dtype="float32")
    found = interp.certify(in_float32, box=CountBox((190, 200), (190, 200), (190, 200)))
    assert (found.status, found.n_errors, found.counterexample) == ("undecided", 0, None)
    assert found.rounding is not None
    assert found.worst_margin < found.rounding
    assert "within the rounding bound of float32" in found.notes[0]


def test_ties_leave_an_interval() -> None:
    model = interp.build(interp.load("count01/paper").spec, seed=4)
    with torch.no_grad():
        model.unembed.W_U.zero_()
        model.unembed.b_U.zero_()
    found = interp.certify(model, box=BOX)
    assert (found.accuracy, found.n_errors) == ((0.0, 1.0), None)
    assert found.status == "refuted"  # argmax of equal logits is token 0, a wrong one
    assert interp.certify(model, box=BOX, question="4 against 5").status == "refuted"  # neither is above the other
    walked = count_boxes.sweep(model, BOX)
    assert (walked.wrong, walked.tied, walked.close) == (found.n_inputs, found.n_inputs, 0)  # at margin 0: wrong


def test_errors_and_ties_widen_the_interval() -> None:
    """Of 10 inputs 3 have a margin of at most 0, and 2 one that this evaluation cannot tell from 0, on either side."""
    assert MarginCounts(wrong=3, tied=2).accuracy(10) == (0.5, 0.9)
    assert MarginCounts(wrong=3, tied=0).accuracy(10) == 0.7


@pytest.mark.slow
def test_the_question_between_the_answers_is_asked_alone() -> None:
    found = interp.certify("count01/paper", question="4 against 5")
    assert list(found.tables["accuracy"]["question"]) == ["4 against 5"]
    assert found.n_errors == interp.certify("count01/paper").tables["accuracy"]["errors"][1]


def test_where_counts_do_not_decide_there_is_no_certificate() -> None:
    spec = interp.load("count01/paper").spec.replace(positions="learned", max_length=700)
    with pytest.raises(UnsupportedError, match=r"cannot be certified: .*one layer without positions"):
        interp.certify(interp.build(spec))


def test_a_cube_has_up_to_200_of_each_token() -> None:
    counts = count_boxes.as_box(interp.build("count01/minimal").task, "cube").counts()
    assert [counts.min(0).values.tolist(), counts.max(0).values.tolist()] == [[0] * 3, [200] * 3]


def test_bad_boxes_are_one_sentence() -> None:
    with pytest.raises(InterpError, match=r"range of n1 is 5\.\.3"):
        CountBox((0, 1), (5, 3), (0, 1))
    with pytest.raises(InterpError, match="unknown box of task count01 'tset'; known: train, validation, test, cube"):
        interp.certify("count01/paper", box="tset")
    model = interp.build("count01/minimal")
    takes = certify.options_table(method_for(model), model.task).set_index("option")["takes"]
    assert takes["--box"] == "'train' or 'validation' or 'test' or 'cube'"
