"""The measures as users call them: on two layers, several classes, answers at each position and padding, with plots."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from closeness import close
from standins import NAMES, Ends, read_of, standin

import interp
from interp.measures.results import Result, as_batch
from interp.measures.runs import reads_of
from interp.models.subject import Subject
from interp.training.train import spec_of

CALLS = {
    "direct_logit_attribution": lambda subject, batch: interp.direct_logit_attribution(subject, batch),
    "logit_lens": lambda subject, batch: interp.logit_lens(subject, batch),
    "activation_patching": lambda subject, batch: interp.activation_patching(subject, batch),
    "path_patching": lambda subject, batch: interp.path_patching(subject, batch[:3]),
    "attention_patterns": lambda subject, batch: interp.attention_patterns(subject, batch[:2]),
    "head_types": lambda subject, batch: interp.head_types(subject, batch),
    "singular_values": lambda subject, batch: interp.singular_values(subject, ["0.0 OV", "MLP 0 in", "unembedding"]),
    "ablate": lambda subject, batch: interp.ablate(
        subject, ["0.0", "MLP 0"], mode="mean", inputs=batch, reference=batch
    ),
    "find_circuit": lambda subject, batch: interp.find_circuit(subject, batch, 0.2, reference=batch),
}

NEED_MLP = ("ablate", "singular_values")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("measure", CALLS)
@pytest.mark.thinned(5)
def test_each_gives_a_table_and_a_figure(measure: str, name: str) -> None:
    subject = standin(name)
    if name == "recall" and measure in NEED_MLP:
        pytest.skip("recall has no MLP")
    found = CALLS[measure](subject, subject.task.sample(40, seed=1))
    assert isinstance(found, Result)
    assert len(found.to_frame()) == len(found) > 0
    found.to_frame().insert(0, "mine", 1)  # the table is the reader's; the result stays
    assert "mine" not in found.to_frame()
    assert len(found.plot().data) > 0
    assert found.title.split()[0] in found._repr_html_()
    assert len(repr(found).splitlines()) < 16


@pytest.mark.parametrize("name", NAMES)
def test_the_logit_lens_by_hand(name: str) -> None:
    subject = standin(name)
    batch = subject.task.sample(20, seed=2)
    model, where = subject.model, reads_of(subject, batch)
    norm = getattr(model, "ln_final", torch.nn.Identity())
    found = interp.logit_lens(subject, batch)
    _, cache = subject.run_with_cache(batch)
    for stage, hook in (("embedding", "blocks.0.hook_resid_pre"), ("layer 0", "blocks.0.hook_resid_post")):
        by_hand = subject.columns(model.unembed(norm(where.pick(cache[hook])[:, None])))[:, 0]
        lens = found.logits[found.stages.index(stage)]
        close(lens, by_hand, atol=1e-4)
    last = found.to_frame().iloc[-1]
    assert last["agrees"] == 1
    assert last["accuracy"] == pytest.approx(float(subject.right(batch).double().mean()))
    close(found.logits[-1], subject.logits(batch), atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_attention_patterns_are_those_of_the_model(name: str) -> None:
    subject = standin(name)
    batch = subject.task.sample(6, seed=3)
    found = interp.attention_patterns(subject, batch)
    _, cache = subject.run_with_cache(batch)
    table = found.to_frame()
    for row in range(6):
        n = int(batch.lengths[row])
        own = table[table["row"] == row]
        assert len(own) == subject.model.cfg.n_layers * subject.model.cfg.n_heads * n * n
        last = own[(own["layer"] == subject.model.cfg.n_layers - 1) & (own["head"] == 0)]["weight"].to_numpy()
        pattern = cache["pattern", subject.model.cfg.n_layers - 1][row, 0, :n, :n]
        close(last, pattern.flatten(), atol=1e-5)
    assert found.plot(1).data[0].x[0].endswith("(0)")


def test_parts_are_ablated_by_name_alone_and_together() -> None:
    subject = next(one for one in map(standin, NAMES) if one.model.cfg.d_mlp and not one.model.cfg.attn_only)
    name, batch = next(name for name in NAMES if standin(name) is subject), subject.task.sample(30, seed=4)
    neuron = "neuron 0.2"
    found = interp.ablate(subject, [neuron, ("head 0.1", "MLP 0")], mode="zero", inputs=batch)
    assert found["parts"].tolist() == [(), (neuron,), ("head 0.1", "MLP 0")]

    def silence(act: torch.Tensor, hook: object) -> torch.Tensor:
        act = act.clone()
        act[..., 2] = 0.0
        return act

    with subject.masked(batch):
        out = subject.model.run_with_hooks(batch.tokens, fwd_hooks=[("blocks.0.mlp.hook_post", silence)])
    wanted = read_of(name, out).argmax(-1) == batch.labels
    assert found["accuracy"][1] == pytest.approx(float(wanted.double().mean()))
    for wrong, said in (
        ("MLP 9", "unknown part 'MLP 9'"),
        ("neuron 0.99999", "neuron 0.99999 does not exist"),
        ("everything", "unknown part 'everything'"),
    ):
        with pytest.raises(interp.InterpError, match=said):
            interp.ablate(subject, [wrong], inputs=batch)


def test_inputs_are_text_tokens_ids_or_batches() -> None:
    model = interp.load("algorithmic/max-of-k")
    wanted = as_batch(Subject.of(model), "3 1 4 1 =")
    ids = wanted.tokens[0].tolist()
    for given in (["3", "1", "4", "1", "="], ids, wanted.tokens, wanted.tokens[0], ["3 1 4 1 ="], [ids], wanted):
        found = as_batch(Subject.of(model), given)
        assert found.tokens.tolist() == [ids]
        assert found.labels.tolist() == [4]
    for wrong, said in (([], "there is no input"), ([2.5], "2.5 is neither a token"),
                        (wanted.tokens[None], r"inputs of shape \(1, 1, 5\): give one row")):  # fmt: skip
        with pytest.raises(interp.InterpError, match=said):
            interp.logit_lens(model, wrong)
    count01 = interp.load("count01/minimal")
    rows = as_batch(Subject.of(count01), ["[BOS]011=", "[BOS]0=5[EOS]"])
    assert rows.lengths.tolist() == [5, 5]
    assert count01.task.classes(rows)[0].tolist()[:4] == [-100] * 4


def test_a_batch_made_by_hand_is_checked() -> None:
    model = interp.load("count01/minimal")
    good = model.task.sample(2, seed=0)
    tokens, lengths, labels = good.tokens, good.lengths, good.labels
    assert interp.accuracy(model, interp.Batch(tokens, lengths, labels)).accuracy == 1
    for wrong, said in (
        (interp.Batch(tokens.int(), lengths, labels), "tokens of shape .* and torch.int32"),
        (interp.Batch(tokens, lengths + 500, labels), "lengths from .*; they must be 1 to"),
        (interp.Batch(tokens, lengths, labels[:, None]), r"labels of shape \(2, 1\)"),
        (interp.Batch(tokens, lengths, labels + 0.5), "the batch given has labels of shape .* and torch.float32"),
    ):
        for look in (interp.accuracy, interp.head_types):
            with pytest.raises(interp.InterpError, match=said):
                look(model, wrong)


WRONG = {
    "a seed of a sample": (lambda model: interp.accuracy(model, n=10, seed="a"), "seed = 'a' must be an integer"),
    "a seed of donors": (lambda model: interp.ablate(model, ["0.0"], mode="resample", seed=1.5), "seed = 1.5 must be"),
    "a tolerance": (lambda model: interp.find_circuit(model, tolerance=float("nan")), "tolerance = nan must be from 0"),
    "a number of draws": (lambda model: interp.evaluate_circuit(model, ["0.0"], draws=-1), "draws = -1 must be an"),
    "a number of outputs": (lambda model: interp.logit_lens(model, PAIR[0]).top(0), "k = 0 must be an integer of at"),
    "a number of pairs": (lambda model: interp.evaluate_hypothesis(model, ANSWER, pairs=0), "pairs = 0 must be an in"),
    "a metric of numbers": (
        lambda model: interp.activation_patching(model, *PAIR, metric=lambda logits, where: [1.0]),
        "must return a tensor, one number",
    ),
    "a metric without a gradient": (
        lambda model: interp.activation_patching(
            model, *PAIR, metric=lambda logits, where: logits.argmax(-1), method="both"
        ),
        "has no gradient, which attribution needs",
    ),
    "a forward without logits": (
        lambda model: interp.check_conversion(lambda tokens: {"hidden": tokens}, model),
        "the model returns a dict, where logits are expected",
    ),
    "tokens as a list": (
        lambda model: interp.load({}, task=model.task, tokens=[0, 1]),  # type: ignore[arg-type]
        r"tokens = \[0, 1\] must be a mapping",
    ),
}
PAIR = "[BOS]1101=", "[BOS]0101="
ANSWER = interp.Hypothesis([interp.Variable("answer", at="head 0.0")])


@pytest.mark.parametrize("what", WRONG)
def test_an_argument_of_the_wrong_kind_is_one_sentence(what: str) -> None:
    call, said = WRONG[what]
    with pytest.raises(interp.InterpError, match=said):
        call(interp.load("count01/minimal"))


def test_short_rows_are_filled_with_the_padding_token() -> None:
    class Padded(interp.Task):
        name, vocabulary, pad, n_out = "padded-by-its-first-token", ("[PAD]", "a", "b"), "[PAD]", 2
        sample = Ends.sample

    rows = as_batch(SimpleNamespace(task=Padded()), [["a", "b"], ["b", "b", "a"]], labeled=False)
    assert (rows.tokens.tolist(), rows.lengths.tolist()) == ([[1, 2, 0], [2, 2, 1]], [2, 3])


@pytest.mark.parametrize("given", ["0 1", ["0", "1"], torch.tensor([[0, 1]])], ids=["text", "tokens", "ids"])
def test_given_inputs_pass_the_check_of_the_task(given: object) -> None:
    for look in (interp.accuracy, interp.attention_patterns):
        with pytest.raises(interp.InterpError, match=r"row 0 begins with token 0, not with \[BOS\]"):
            look(interp.build("histogram/bos-all-counts"), inputs=given)


def test_singular_values_of_named_matrices() -> None:
    model = interp.load("histogram/dot")
    for name, matrix in (("W1", model.unembed.W_in), ("embedding", model.embed.W_E)):
        found = interp.singular_values(model, name)
        close(found["value"], np.linalg.svd(matrix.detach().numpy())[1], atol=1e-4)
    with pytest.raises(interp.InterpError, match="unknown matrix 'MLP 0 in'; known: "):
        interp.singular_values(model, "MLP 0 in")


def test_a_circuit_is_small_and_sufficient_and_its_edges_too() -> None:
    model = interp.build("languages/parity")
    batch = model.task.sample(60, seed=5)
    nodes = interp.find_circuit(model, batch, reference=batch)
    assert nodes.circuit.accuracy >= nodes.model.accuracy - 0.01
    assert (nodes.minimality["accuracy_without"] < nodes.circuit.accuracy).all()
    edges = interp.find_circuit(model, batch, edges=True, reference=batch)
    assert edges.circuit.accuracy >= edges.model.accuracy - 0.01
    ends = {end for name in edges.kept for end in name.split(" -> ")}
    assert ends <= {*nodes.kept, "embedding", "output"}


@pytest.mark.slow
def test_the_papers_three_plots() -> None:
    model = interp.load("count01/paper")
    batch = model.task.sample(60, "train", seed=1)
    ratios = interp.attention_ratios(model)
    assert {"w01", "w02", "s_acc", "category", "layer"} <= set(ratios.to_frame())
    assert ratios.plot().layout.xaxis.type == "log"
    curve = interp.reweight_attention(model, w01=[0.1, 10.0], train=batch, test=batch)
    assert len(curve.plot().data) == 3
    both = interp.reweight_attention(model, w01=[0.1, 1.0], w02=[1.0, 2.0], train=batch, test=batch)
    with pytest.raises(interp.InterpError, match="both ratios vary"):
        both.plot()
    for groups, kind in (("singles", "bar"), ([("0.0",), ("0.0", "0.1")], "heatmap"), ([("0.0", "0.1", 2)], "box")):
        found = interp.head_metrics(model, groups, train=batch, test=batch)
        assert found.plot().data[0].type == kind
    assert found["heads"].tolist() == [("0.0", "0.1", "0.2")]


def test_a_model_is_trained_by_the_name_of_its_task() -> None:
    spec = spec_of("count01", d_model=8, n_heads=4, n_layers=2, epochs=0)
    assert [(one.n_heads, one.d_head) for one in spec.layers] == [(4, 2)] * 2
    assert spec.training.epochs == 0
    for given, said in (
        ({"d_model": 8, "epoch": 1}, "unknown size 'epoch'.*did you mean 'epochs'"),
        ({}, "d_model is missing"),
        ({"d_model": 8, "n_heads": 3}, "d_model = 8 is not a multiple of n_heads = 3: give d_head, too"),
        ({"d_model": 8, "n_layers": 0}, "n_layers = 0 must be an integer of at least 1"),
    ):
        with pytest.raises(interp.InterpError, match=said):
            interp.train("count01", **given)
    with pytest.raises(interp.InterpError, match="d_model: give sizes with a task's name"):
        interp.train(spec, d_model=8)
