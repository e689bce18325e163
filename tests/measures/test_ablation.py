"""Ablation of every model of the zoo and of strangers' models, against hooks written by hand."""

from importlib.util import find_spec

import pytest
import torch
from drawn_weights import draw_each, hooked
from standins import NAMES, padding_hooks, read_of, standin

import interp
from interp.errors import InterpError
from interp.measures.ablation import AblationSetting, aligned, by_position, draw_donors, scores_without
from interp.measures.runs import Part, heads_of, parts_of
from interp.measures.survey import survey
from interp.models.subject import Subject

SHIPPED = interp.list_models()["name"].to_list()


def zoo(name: str) -> interp.TaskModel:
    try:
        return interp.load(name)
    except InterpError as error:
        pytest.skip(str(error))


def short(subject: Subject, n: int) -> interp.Batch:
    """Inputs of a test's length."""
    task = subject.task
    if task.name == "count01":
        return task.sentences(torch.randint(1, 9, (n, 3), generator=torch.Generator().manual_seed(0)))
    return task.sample(n, task.splits[-1], seed=4)


def accuracy_by_hand(
    subject: Subject, batch: interp.Batch, layer: int, head: int, value: float | torch.Tensor
) -> float:
    """predict (or the argmax of a stranger's outputs) with one head's output set to a value everywhere."""

    def put(z: torch.Tensor, hook: object) -> torch.Tensor:
        z = z.clone()
        z[:, :, head] = value
        return z

    hooks = [(f"blocks.{layer}.attn.hook_z", put)]
    model = subject.model
    if isinstance(model, interp.TaskModel):
        with model.hooks(fwd_hooks=hooks):
            answers = model.predict(batch.tokens)
    else:
        name = subject.task.name.removeprefix("standin_")
        logits = model.run_with_hooks(batch.tokens, fwd_hooks=[*padding_hooks(model, batch), *hooks])
        answers = read_of(name, logits).argmax(-1)
    counted = torch.ones_like(answers, dtype=torch.bool) if batch.labels.dtype == torch.bool else batch.labels >= 0
    return float((answers == batch.labels)[counted].double().mean())


@pytest.mark.parametrize("name", [*SHIPPED, *NAMES])
@pytest.mark.thinned(4)
def test_no_ablation_is_predict_and_zero_is_a_hook(name) -> None:
    subject = standin(name) if name in NAMES else Subject.of(zoo(name))
    batch = short(subject, 24 if name in NAMES else 6)
    table = interp.ablate_heads(subject, "singles", mode="zero", inputs=batch)
    n_heads = subject.model.cfg.n_heads
    n_layers = subject.model.cfg.n_layers
    assert list(table["heads"]) == [(), *((f"{i}.{j}",) for i in range(n_layers) for j in range(n_heads))]
    assert table["accuracy"][0] == pytest.approx(accuracy_by_hand(subject, batch, 0, slice(0, 0), 0.0), abs=1e-12)
    for number, (layer, accuracy) in enumerate(zip(table["layer"][1:], table["accuracy"][1:])):
        assert layer == number // n_heads
        wanted = accuracy_by_hand(subject, batch, layer, number % n_heads, 0.0)
        assert accuracy == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("name", ["recall", "balance"])
def test_means_are_per_position_for_rows_of_one_length(name) -> None:
    subject = standin(name)
    batch, reference = subject.task.sample(40, seed=1), subject.task.sample(50, "train", seed=2)
    _, cache = subject.model.run_with_cache(reference.tokens)
    mean = cache["blocks.0.attn.hook_z"][:, :, 1].mean(0)  # (length, d_head)

    def put(z: torch.Tensor, hook: object) -> torch.Tensor:
        z = z.clone()
        z[:, :, 1] = mean
        return z

    logits = read_of(name, subject.model.run_with_hooks(batch.tokens, fwd_hooks=[("blocks.0.attn.hook_z", put)]))
    wanted = torch.nn.functional.cross_entropy(logits.flatten(0, -2), batch.labels.flatten())
    by_place, pooled = (
        interp.ablate_heads(subject, [(1,)], mode=mode, inputs=batch, reference=reference)
        for mode in ("mean", "pooled_mean")
    )
    assert by_place["accuracy"][1] == pytest.approx(float((logits.argmax(-1) == batch.labels).double().mean()))
    assert by_place["loss"][1] == pytest.approx(float(wanted), rel=1e-5)
    assert pooled["loss"][1] != pytest.approx(float(wanted), rel=1e-3)


def test_means_per_position_need_rows_of_one_length() -> None:
    ends, recall = standin("ends"), standin("recall")
    assert by_position(recall.task.sample(3), recall.task.sample(3), "mean")
    assert not by_position(recall.task.sample(3), recall.task.sample(3), "pooled_mean")
    assert not by_position(ends.task.sample(9), ends.task.sample(9), "mean")
    batch = ends.task.sample(30, seed=1)
    loss = [interp.ablate_heads(ends, [(0,)], mode=mode, inputs=batch)["loss"][1] for mode in ("mean", "pooled_mean")]
    assert loss[0] == loss[1]


def test_heads_have_the_same_names_in_every_measure() -> None:
    subject = standin("recall")
    batch = subject.task.sample(60, seed=1)
    by_number = interp.ablate_heads(subject, [(2,), (0, 2)], inputs=batch)
    by_name = interp.ablate_heads(subject, ["1.0", ("head 0.0", "head 1.0")], inputs=batch)
    assert by_name["heads"].tolist() == by_number["heads"].tolist() == [(), ("1.0",), ("0.0", "1.0")]
    assert by_name["loss"].tolist() == by_number["loss"].tolist()
    assert interp.ablate_heads(subject, [(1, 0)], inputs=batch)["heads"][1] == ("0.1", "0.0")  # heads 0.1 and 0.0
    with pytest.raises(InterpError, match=r"\(1, 0\) is a group of two heads; head 1.0 is 'head 1.0' or its number, 2"):
        interp.evaluate_circuit(subject, heads=[(1, 0)], inputs=batch)
    for head in (2, "1.0", "head 1.0", "L1H0"):
        assert interp.evaluate_circuit(subject, heads=[head], inputs=batch, draws=0).kept == ("head 1.0",)
    with pytest.raises(InterpError, match="there is no MLP 0: this model has no MLPs"):
        interp.ablate(interp.load("count01/minimal"), "MLP 0")
    with pytest.raises(InterpError, match=r"unknown head '7.7'"):
        interp.ablate_heads(subject, [("7.7",)], inputs=batch)


@pytest.mark.parametrize("name", NAMES)
def test_pooled_mean_ablation_and_its_loss(name) -> None:
    """At the reads the mean over the reads, elsewhere the mean over all other tokens."""
    subject = standin(name)
    batch, reference = subject.task.sample(40, seed=1), subject.task.sample(50, "train", seed=2)
    cache: dict[str, torch.Tensor] = {}
    hooks = [("blocks.0.attn.hook_z", lambda z, hook: cache.update(z=z))]
    subject.model.run_with_hooks(reference.tokens, fwd_hooks=[*padding_hooks(subject.model, reference), *hooks])
    where = {"recall": slice(6, 7), "ends": slice(0, 1), "balance": slice(0, 8)}[name]
    read = torch.zeros(reference.tokens.shape, dtype=torch.bool)
    read[:, where] = True
    rest = reference.attention_mask & ~read
    at_read, elsewhere = cache["z"][read][:, 1].mean(0), cache["z"][rest][:, 1].mean(0)

    def put(z: torch.Tensor, hook: object) -> torch.Tensor:
        z = z.clone()
        z[:, :, 1] = elsewhere
        z[:, where, 1] = at_read
        return z

    fixed = [*padding_hooks(subject.model, batch), ("blocks.0.attn.hook_z", put)]
    logits = read_of(name, subject.model.run_with_hooks(batch.tokens, fwd_hooks=fixed))
    wanted = torch.nn.functional.cross_entropy(logits.flatten(0, -2), batch.labels.flatten())
    table = interp.ablate_heads(subject, [(1,)], mode="pooled_mean", inputs=batch, reference=reference)
    assert table["accuracy"][1] == pytest.approx(float((logits.argmax(-1) == batch.labels).double().mean()))
    assert table["loss"][1] == pytest.approx(float(wanted), rel=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_resampling_is_the_value_of_the_donor(name) -> None:
    subject = standin(name)
    batch = subject.task.sample(30, seed=1)
    donors = draw_donors(batch, batch, seed=3)
    assert (batch.lengths[donors] == batch.lengths).all()
    assert (donors != torch.arange(30)).all()
    other = batch[donors]
    cache: dict[str, torch.Tensor] = {}
    hooks = [("blocks.0.attn.hook_z", lambda z, hook: cache.update(z=z))]
    subject.model.run_with_hooks(other.tokens, fwd_hooks=[*padding_hooks(subject.model, other), *hooks])

    def put(z: torch.Tensor, hook: object) -> torch.Tensor:
        z = z.clone()
        z[:, :, 0] = cache["z"][:, :, 0]
        return z

    fixed = [*padding_hooks(subject.model, batch), ("blocks.0.attn.hook_z", put)]
    logits = read_of(name, subject.model.run_with_hooks(batch.tokens, fwd_hooks=fixed))
    (score,) = scores_without(subject, [[Part(0, 0)]], AblationSetting(batch, "resample", batch, seed=3))
    wanted = torch.nn.functional.cross_entropy(logits.flatten(0, -2), batch.labels.flatten())
    assert score.loss == pytest.approx(float(wanted), rel=1e-5)


def test_silenced_everything_leaves_a_guess() -> None:
    """Without heads and MLPs the stream is the embedding alone, the same for every row that is read at [CLS]."""
    subject = standin("ends")
    batch = subject.task.sample(400, seed=1)
    parts = [Part(layer, head) for layer in range(3) for head in (None, 0, 1)]
    (score,) = scores_without(subject, [parts], AblationSetting(batch))
    share = float(batch.labels.double().mean())
    assert score.accuracy in (pytest.approx(share), pytest.approx(1 - share))


def test_count_space_and_hooks_agree_in_every_mode(monkeypatch) -> None:
    subject = Subject.of(interp.load("count01/paper"))
    batch, reference = short(subject, 40), short(subject, 30)
    fast = {mode: interp.ablate_heads(subject, [(0, 3), (7,)], mode=mode, inputs=batch, reference=reference, seed=5)
            for mode in ("zero", "mean", "resample")}  # fmt: skip
    monkeypatch.setattr("interp.measures.ablation._is_sum", lambda subject: False)
    for mode, table in fast.items():
        slow = interp.ablate_heads(subject, [(0, 3), (7,)], mode=mode, inputs=batch, reference=reference, seed=5)
        assert table["accuracy"].to_list() == slow["accuracy"].to_list()
        assert table["loss"].to_list() == pytest.approx(slow["loss"].to_list(), rel=1e-4)


def test_rows_of_different_lengths_align_at_their_read_positions() -> None:
    task = interp.load("count01/minimal").task
    subject = Subject.of(interp.load("count01/minimal"))
    here, there = task.sentences(torch.tensor([[1, 1, 1]])), task.sentences(torch.tensor([[2, 2, 2]]))
    index = aligned(subject, here, there)[0]
    at, far = (int(subject.answer_positions(batch.tokens)) for batch in (here, there))
    assert index[at] == far
    assert index[0] == far - at


def test_a_tuple_of_names_is_one_group() -> None:
    """In place of the list, and in it; the table says on how many inputs it is."""
    subject = standin("ends")
    batch = subject.task.sample(50, seed=3)
    both = ("head 0.0", "MLP 1")
    alone, listed = (interp.ablate(subject, parts, batch, mode="zero") for parts in (both, [both]))
    assert alone.to_frame().equals(listed.to_frame())
    assert alone["parts"].tolist() == [(), both]
    assert interp.ablate(subject, [*both], batch, mode="zero")["parts"].tolist() == [(), ("head 0.0",), ("MLP 1",)]
    assert "on 50 inputs" in alone.title
    assert "on 50 inputs" in interp.ablate_heads(subject, [("0.0", "0.1")], batch, mode="zero").title


def test_unknown_mode() -> None:
    with pytest.raises(InterpError, match="unknown mode of ablation 'noise'; known: zero, mean, pooled_mean, resample"):
        interp.ablate_heads(standin("recall"), mode="noise")


def test_means_come_from_the_reference_and_not_from_the_test() -> None:
    """Mean ablation of all heads by hand, with a reference whose mean is another than the test's."""
    subject = Subject.of(interp.load("count01/paper"))
    task, group = subject.task, tuple(range(16))
    test, reference = short(subject, 20), task.sentences(torch.tensor([[9, 1, 1], [8, 2, 5], [7, 1, 0]]), seed=1)
    mine = interp.ablate_heads(subject, [group], mode="mean", inputs=test, reference=reference)
    _, cache = subject.model.run_with_cache(reference.tokens)
    mean = cache["z", 0][reference.tokens == 4].mean(0)  # where '=' stands
    at = (test.tokens == 4).int().argmax(1)
    hooks = [("blocks.0.attn.hook_z", lambda z, hook: mean.expand_as(z))]
    logits = subject.model.run_with_hooks(test.tokens, fwd_hooks=hooks)[torch.arange(20), at].detach()
    wanted = torch.nn.functional.cross_entropy(logits, task.classes(test).gather(1, at[:, None])[:, 0])
    assert mine["loss"][1] == pytest.approx(float(wanted), rel=1e-4)
    own = interp.ablate_heads(subject, [group], mode="mean", inputs=test, reference=test)
    assert abs(own["loss"][1] - mine["loss"][1]) > 0.1


def test_donors_depend_on_the_seed_alone() -> None:
    batch = standin("ends").task.sample(40, seed=1)
    first, again, other = (draw_donors(batch, batch, seed=seed) for seed in (3, 3, 4))
    assert first.equal(again)
    assert int((first != other).sum()) > 20
    assert (batch.tokens[first] != batch.tokens).any(1).all()


@pytest.mark.skipif(find_spec("transformer_lens.HookedTransformer") is None, reason="TransformerLens 4 has no caps")
def test_a_single_layer_behind_a_soft_cap_is_run_and_not_summed() -> None:
    fields = {"n_layers": 1, "d_model": 8, "d_head": 4, "n_heads": 2, "n_ctx": 8, "d_vocab": 6, "d_vocab_out": 3}
    model = hooked(**fields, attn_only=True, normalization_type=None, output_logits_soft_cap=0.5)
    draw_each(model)
    subject = Subject.external(model, standin("recall").task)
    batch = subject.task.sample(30, seed=1)
    table = interp.ablate_heads(subject, mode="zero", inputs=batch, reference=batch)

    def zero(z: torch.Tensor, hook: object) -> torch.Tensor:
        return torch.cat([z[:, :, :1], torch.zeros_like(z[:, :, 1:])], 2)

    out = model.run_with_hooks(batch.tokens, fwd_hooks=[("blocks.0.attn.hook_z", zero)])[:, -1].detach()
    assert table["loss"][2] == pytest.approx(float(torch.nn.functional.cross_entropy(out, batch.labels)), abs=1e-5)
    assert table["loss"][2] != pytest.approx(table["loss"][0], abs=1e-3)


def test_one_ablation_is_the_default_everywhere() -> None:
    subject = standin("recall")
    test, train = subject.task.sample(60, seed=1), subject.task.sample(80, seed=2)
    alone = interp.ablate(subject, ["head 0.0"], inputs=test, reference=train)
    heads = interp.ablate_heads(subject, [("0.0",)], inputs=test, reference=train)
    surveyed = survey(subject, test, train).set_index("part").loc["head 0.0", "accuracy_mean"]
    rest = [str(part) for part in heads_of(subject) if str(part) != "head 0.0"]
    circuit = interp.evaluate_circuit(subject, heads=rest, inputs=test, reference=train, draws=0)
    assert {alone["mode"][1], heads["mode"][1]} == {"mean"}
    assert alone["accuracy"][1] == heads["accuracy"][1] == surveyed == circuit.circuit.accuracy
    assert alone["change"].tolist() == [0.0, alone["accuracy"][1] - alone["accuracy"][0]]
    assert alone["change"][1] < 0  # what a loss of accuracy is
    assert alone["accuracy"][1] != interp.ablate(subject, ["head 0.0"], mode="zero", inputs=test)["accuracy"][1]


def test_inputs_come_after_parts_and_all_parts_are_the_default() -> None:
    subject = standin("recall")
    batch = subject.task.sample(50, seed=0)
    named = [str(part) for part in parts_of(subject)]
    every = interp.ablate(subject, inputs=batch, mode="zero")
    assert every["parts"].tolist() == [(), *((name,) for name in named)]
    assert every.table.equals(interp.ablate(subject, named, batch, mode="zero").table)
    assert interp.ablate_heads(subject, "singles", batch, mode="zero")["accuracy"][1] == every["accuracy"][1]
