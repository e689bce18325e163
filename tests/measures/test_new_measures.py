"""Accuracy by class and position, the lens by token, composition, centered effects; plots of proofs and programs."""

import inspect
from collections.abc import Callable

import pytest
import torch
from standins import standin

import interp
from interp.errors import InterpError, UnsupportedError
from interp.models.subject import Subject
from interp.programs.explanations.explanation import shipped


def test_accuracy_by_class_and_position_adds_up() -> None:
    subject = standin("balance")
    batch = subject.task.sample(300, seed=5)
    found = interp.accuracy(subject, batch)
    right = subject.right(batch).view(300, 8).double()
    labels = batch.labels
    for row in found.by_class.itertuples():
        assert row.accuracy == pytest.approx(float(right[labels == int(row.answer)].mean()))
        assert row.answers == int((labels == int(row.answer)).sum())
    assert found.by_position["accuracy"].tolist() == pytest.approx(right.mean(0).tolist())
    assert found.by_class["answers"].sum() == found.answers == 2400
    assert found.accuracy == pytest.approx(float(right.mean()))
    assert found.plot().data[0].x == ("0", "1", "2")
    assert len(found.plot("position").data[0].x) == 8
    with pytest.raises(InterpError, match="plot of accuracy"):
        found.plot("head")
    assert repr(found).startswith("Accuracy ")


def test_the_lens_names_the_largest_outputs_at_each_position() -> None:
    model = interp.load("algorithmic/max-of-k")
    found = interp.logit_lens(model, "3 1 4 1 =", at="all")
    ids = torch.tensor([[model.task.token_id(word) for word in ["3", "1", "4", "1", "="]]])
    logits = model(ids)[0].double().detach()
    top = found.top(3)
    last = top[top["stage"] == found.stages[-1]]
    for position in range(5):
        values, index = logits[position].topk(3)
        mine = last[last["position"] == position]
        assert mine["answer"].tolist() == [model.task.answer_words[i] for i in index.tolist()]
        assert mine["logit"].tolist() == pytest.approx(values.tolist(), abs=1e-4)
        assert mine["probability"].tolist() == pytest.approx(logits[position].softmax(-1)[index].tolist(), abs=1e-6)
    grid = found.plot().data[0]
    assert grid.y == ("layer 0", "embedding")
    assert grid.x == ("3 (0)", "1 (1)", "4 (2)", "1 (3)", "= (4)")
    assert grid.text[0][4] == "4"
    assert found.plot().layout.coloraxis.cmin == 0
    assert found.plot().layout.coloraxis.cmax == 1
    with pytest.raises(InterpError, match="row 1 does not exist"):
        found.plot(row=1)
    with pytest.raises(UnsupportedError, match="not the logits of a softmax"):
        interp.logit_lens(interp.load("languages/parity"), interp.load("languages/parity").task.sample(2)).top()


def test_composition_scores_have_a_figure() -> None:
    found = interp.composition_scores(standin("recall"))
    assert list(found.to_frame().columns) == ["writer", "reader", "Q", "K", "V"]
    assert found.plot().data[0].y == tuple(f"head 0.{i} -&gt; head 1.{j}" for i in range(2) for j in range(2))
    assert "Composition scores" in found.title


def test_copying_scores_are_those_of_whole_matrices() -> None:
    """Eigenvalues of W_E W_V W_O W_U as TransformerLens multiplies it; a head of zeros copies nothing."""
    model = interp.load("algorithmic/induction-exact")
    found = interp.copying_scores(model)
    shared = [word for word in model.task.vocabulary if word in model.task.answer_words]
    rows = [model.task.token_id(word) for word in shared]
    columns = [[*model.task.answer_words].index(word) for word in shared]
    for layer, head, copying, copied in found.to_frame().itertuples(index=False):
        block = model.blocks[layer].attn
        whole = (model.W_E[rows] @ block.W_V[head] @ block.W_O[head] @ model.W_U[:, columns]).detach().double()
        values = torch.linalg.eigvals(whole)
        assert copying == pytest.approx(float(values.real.sum() / values.abs().sum().clamp_min(1e-9)), abs=1e-6)
        mine = found.eigenvalues[f"head {layer}.{head}"]
        assert float(mine.real.sum()) == pytest.approx(float(whole.trace()), abs=1e-6)
        assert copied == (1.0 if (layer, head) == (1, 1) else 0.0)
    assert found["copying"].tolist() == pytest.approx([0, 0, 0, 1])
    assert found.plot().data[0].x[-1] == "head 1.1"
    with pytest.raises(UnsupportedError, match="fewer than two tokens that are answers"):
        interp.copying_scores(standin("recall"))


def test_a_title_says_how_many_matrices_it_does_not_name() -> None:
    assert interp.singular_values(interp.load("algorithmic/induction-exact")).title.endswith("head 1.0 OV and 2 more")


def test_a_part_that_is_the_same_for_all_inputs_has_no_effect() -> None:
    subject = standin("recall")
    batch = subject.task.sample(200, seed=1)
    found = interp.direct_logit_attribution(subject, batch)
    assert float(found.values[:, -1].abs().max()) > 0
    assert float(found.centered[:, -1].abs().max()) == 0  # biases
    head = list(found.parts["component"]).index("head 1.0")
    seen = {}
    subject.model.run_with_hooks(
        batch.tokens, fwd_hooks=[("blocks.1.attn.hook_z", lambda z, hook: seen.update(z=z.detach().double()))]
    )
    wrote = seen["z"][:, 6, 0] @ subject.model.blocks[1].attn.W_O[0].double()
    share = found.centered[:, head] / found.values[:, head]
    assert float((share - 1).abs().max()) > 0.01  # the mean is not zero, ...
    assert float((wrote - wrote.mean(0)).mean(0).abs().max()) < 1e-9  # ... and is taken out
    twice = interp.direct_logit_attribution(subject, batch[torch.arange(200).repeat(2)])
    assert twice.centered[:200] == pytest.approx(found.centered, abs=1e-6)


def test_a_certificate_and_an_explanation_draw_themselves(tmp_path) -> None:
    assert {one.name for one in interp.certify("languages/one", longest=6).plot().data} == {
        "smallest margin",
        "rounding",
    }
    proved = interp.certify(interp.build("algorithmic/max-of-k-exact", K=3, v=8)).plot()
    assert [one.name for one in proved.data] == ["right", "wrong", "undecided"]
    assert set(proved.data[0].y) == {1.0}
    found = interp.explain(interp.build("algorithmic/max-of-k-exact", K=3, v=8))
    assert found.plot().save(tmp_path / "flow.svg").read_text().startswith("<svg")
    assert found.plot()._repr_html_() == found.plot().svg


@pytest.mark.parametrize("name", ["count01/paper", "algorithmic/max-of-k", "histogram/dot", "languages/parity"])
def test_an_explanation_is_forty_lines_long_at_most(name: str) -> None:
    found = shipped(Subject.of(interp.load(name)))
    lines = repr(found).splitlines()
    assert 2 < len(lines) <= 40
    assert max(map(len, lines)) <= 120
    assert len(str(found)) >= len(repr(found)) - 200


def test_signatures_name_models_and_inputs() -> None:
    for name in ("logit_lens", "probe", "ablate", "head_types", "accuracy", "find_circuit", "direct_logit_attribution"):
        parameters = inspect.signature(getattr(interp, name)).parameters
        assert parameters["model"].annotation in ("Model", "Models"), name
        assert parameters["inputs"].annotation == "Inputs | None", name


def hypothesized(model: interp.TaskModel) -> object:
    first = interp.Variable("first", at="head 0.0", function=lambda tokens: tokens[:, 0])
    return interp.evaluate_hypothesis(model, interp.Hypothesis([first]))


@pytest.mark.parametrize(
    "measure",
    [
        interp.copying_scores, interp.composition_scores, interp.singular_values, interp.logit_lens, interp.head_types,
        interp.attention_patterns, interp.probe, hypothesized,
    ],
)  # fmt: skip
def test_weights_that_are_not_finite_have_no_measures(measure: Callable[[interp.TaskModel], object]) -> None:
    """They gave scores of 0, answers that all agree, or numpy's error."""
    model = interp.load("algorithmic/induction-exact")
    with torch.no_grad():
        model.blocks[1].attn.W_V[0, 0, 0] = torch.nan
    with pytest.raises(interp.InterpError, match=r"1 of the [0-9,]+ weights of blocks.1.attn.W_V is not finite"):
        measure(model)


def test_answers_that_are_none_are_said() -> None:
    """Of a model with a NaN weight, accuracy was 0 without a word. A comparison goes on."""
    model, whole = interp.load("count01/minimal"), interp.load("count01/minimal")
    assert interp.accuracy(model, n=20).none is None
    with torch.no_grad():
        model.unembed.b_U[1] = torch.nan
    found = interp.accuracy(model, n=20)
    assert (found.accuracy, found.none) == (0, 20)
    assert "(20 of the answers are none: outputs are not finite)" in found.title
    assert interp.compare([whole, model]).to_frame("models")["accuracy"].tolist() == [1, 0]
