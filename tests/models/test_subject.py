"""Any model with a task: padding, ids of tokens and outputs, positions that are read, and accuracy of small domains."""

import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from drawn_weights import draw_each, hooked
from saved_models import Sums
from standins import Ends, standin

import interp
from interp.errors import InterpError
from interp.families.algorithmic import Addition, MaxOfK
from interp.families.histogram import Histogram
from interp.families.languages import Parity
from interp.families.memorization import LookupTask
from interp.measures import results, runs
from interp.models.lens import HookedTransformer
from interp.models.spec import MLP, Layer, ModelSpec
from interp.models.subject import Subject, no_sum, output_ids_of
from interp.programs.running import Running
from interp.tasks import Batch, make_task


def stock(**changes: Any) -> HookedTransformer:
    fields = {
        "n_layers": 2, "d_model": 8, "n_heads": 2, "d_head": 4, "d_mlp": 12, "act_fn": "gelu", "n_ctx": 9,
        "d_vocab": 4, "d_vocab_out": 1, "normalization_type": "LN", "attention_dir": "bidirectional", "device": "cpu",
    }  # fmt: skip
    model = hooked(**{**fields, **changes})
    draw_each(model, 0.5)
    return model


def test_an_external_bidirectional_model_ignores_padding() -> None:
    model, task = stock(), Parity(length=6, shortest=2)
    batch = task.sample(20, "train", seed=0)
    alone = [model(row[None, :length])[0, 0, 0] for row, length in zip(batch.tokens, batch.lengths.tolist())]
    subject = Subject.external(model, task)
    torch.testing.assert_close(subject.logits(batch)[:, 0], torch.stack(alone).detach(), atol=1e-5, rtol=1e-5)
    attending = Subject.external(model, task, padding="attend").logits(batch)
    assert not torch.allclose(attending, subject.logits(batch), atol=1e-3)
    torch.testing.assert_close(attending[:, 0], model(batch.tokens)[:, 0, 0].detach())
    assert not any(hook.fwd_hooks for hook in model.hook_dict.values())


def test_only_a_task_that_is_a_bare_name_is_fitted_to_the_model() -> None:
    digits, model = {str(n): n for n in range(10)}, stock(d_vocab=10, d_vocab_out=10, n_ctx=40, attention_dir="causal")
    assert Subject.external(model, "addition").task.vocabulary == (*digits,)
    with pytest.raises(InterpError, match="the model has 10 tokens, task addition has 12"):
        Subject.external(model, Addition())
    with pytest.raises(InterpError, match="addition"):  # "+" and "=" have no ids
        Subject.external(model, "addition", tokens=digits)


def test_one_output_decides_by_its_sign_and_two_by_the_larger() -> None:
    task = Parity(length=4)
    batch = task.sample(30, seed=1)
    one, two = Subject.external(stock(), task), Subject.external(stock(d_vocab_out=2), task)
    assert one.answers(batch).equal(one.logits(batch)[:, 0] > 0)
    assert two.answers(batch).equal(two.logits(batch).argmax(1) == 1)
    swapped = Subject.external(two.model, task, outputs={"a member": 0, "not a member": 1})
    assert swapped.answers(batch).equal(two.logits(batch)[:, 0] > two.logits(batch)[:, 1])
    assert one.right(batch).equal(one.answers(batch) == batch.labels)


def test_answers_at_each_position_count_every_one_that_is_read() -> None:
    task = Histogram(T=4, L=5, bos=True, zero_class=True)
    model = stock(d_vocab=5, d_vocab_out=6, attention_dir="causal")
    batch = task.of_sequences(torch.randint(0, 4, (40, 5), generator=torch.Generator().manual_seed(0)))
    said = model(batch.tokens).argmax(-1)[:, 1:]
    subject = Subject.external(model, task)
    assert subject.right(batch).shape == (200,)
    assert torch.equal(subject.right(batch), (said == batch.labels[:, 1:]).flatten())
    assert subject.answers(batch)[:, 0].tolist() == [-1] * 40


def test_ids_that_do_not_fit() -> None:
    with pytest.raises(InterpError, match=r"has 3 outputs, task parity has 2 answers; .*outputs=.'not a member': 0"):
        Subject.external(stock(d_vocab_out=3), "parity")
    with pytest.raises(InterpError, match="has one output: set n_out = 1 in task standin_ends, and a positive output"):
        output_ids_of(1, 5, Ends(), None, None)
    with pytest.raises(InterpError, match="outputs lacks a member of task parity"):
        Subject.external(stock(d_vocab_out=3), "parity", outputs={"not a member": 0})
    with pytest.raises(InterpError, match="answer 'a member' has id 3; the model's outputs are 0 to 2"):
        Subject.external(stock(d_vocab_out=3), "parity", outputs={"not a member": 0, "a member": 3})


def test_what_would_be_ignored_is_refused(tmp_path: Path) -> None:
    """A model that has its task already is not mapped a second time, nor asked about another task in silence."""
    model = interp.build("histogram/dot-exact", T=5, L=4)
    words = {word: i for i, word in enumerate(model.task.vocabulary)}
    for own in (model, interp.save(model, tmp_path / "own.safetensors")):
        assert interp.load(own, task=Histogram(T=5, L=4)).task.ref == model.task.ref
        for more in ({"tokens": words}, {"outputs": {"1": 0}}, {"padding": "attend"}):
            with pytest.raises(InterpError, match="already has the ids of task histogram: leave out tokens, outputs"):
                interp.load(own, task="histogram", **more)
        with pytest.raises(InterpError, match=r"of task Histogram.*T=5.*, not Histogram.*T=6"):
            interp.load(own, task=Histogram(T=6, L=4))
        with pytest.raises(InterpError, match="of task histogram, not parity"):
            interp.load(own, task="parity")


def test_tasks_and_inputs_that_do_not_fit_a_strangers_model() -> None:
    class Silent(Parity):
        """Its classes are nowhere."""

        name = "subject-silent"

        def classes(self, batch: interp.Batch) -> torch.Tensor:
            return torch.full_like(batch.tokens, -100)

    with pytest.raises(InterpError, match=r"task subject-silent: .*IGNORED everywhere"):
        Subject.external(stock(), Silent(length=4))
    subject = Subject.external(stock(), Parity(length=9))
    with pytest.raises(InterpError, match="inputs of task parity have 10 tokens; the model's n_ctx is 9"):
        subject.right(subject.task.sample(3, seed=0))


@pytest.mark.parametrize(("cap", "said"), [(-1.0, None), (0.0, None), (0.5, "after a soft cap, the outputs are not a")])
def test_a_cap_that_is_not_positive_is_none(cap: float, said: str | None) -> None:
    model = stock()
    model.cfg.output_logits_soft_cap = cap
    assert (no_sum(model) or "").startswith(said) if said else no_sum(model) is None


# ---------------------------------------------------------------- accuracy


def test_few_inputs_are_all_run_and_many_are_sampled_once_each() -> None:
    task = LookupTask(N=6, M=6)
    model = interp.build(
        interp.ModelSpec(task=task.ref, d_model=4, layers=(interp.Layer(d_head=4),), readout_at="last"), seed=0
    )
    whole = interp.Batch(torch.cartesian_prod(*[torch.arange(6)] * 2), torch.full((36,), 2), task.targets)
    right = float((model.predict(whole.tokens) == whole.labels).double().mean())
    found = interp.accuracy(model)
    assert (found.accuracy, found.low, found.high) == (pytest.approx(right),) * 3
    assert (found.rows, found.answers, found.exact) == (36, 36, True)
    sampled = interp.accuracy(model, n=20)
    assert (sampled.rows, sampled.exact) == (20, False)
    assert interp.accuracy(model, n=20, seed=0) == sampled != interp.accuracy(model, n=20, seed=1)


def test_an_input_that_is_half_the_samples_is_half_the_accuracy() -> None:
    model = interp.build("algorithmic/max-of-k-exact", K=2, v=16)
    task = model.task
    zeros = task.of_numbers(torch.zeros(1, 2, dtype=torch.long))
    plain = task.sample

    def half(n: int, split: str = "test", seed: int = 0) -> interp.Batch:
        batch = plain(n, split, seed)
        return task.batch(torch.where(torch.arange(n)[:, None] % 2 == 0, zeros.tokens, batch.tokens))

    task.sample = half  # type: ignore[method-assign]
    with torch.no_grad():
        model.unembed.b_U[0] -= 1e9  # wrong where the answer is 0: one input of 256, and half of what is drawn
    every = interp.accuracy(model)
    drawn = interp.accuracy(model, n=1000, split="test")
    assert (every.accuracy, every.exact, every.rows) == (255 / 256, True, 256)
    assert drawn.accuracy < 0.5
    assert (drawn.rows, drawn.exact) == (1000, False)
    assert drawn.low < 0.5 < drawn.high + 0.01
    silenced = interp.ablate_heads(model, "singles", mode="zero", inputs=half(1000))
    assert silenced["accuracy"][0] == pytest.approx(float(Subject.of(model).right(half(1000)).double().mean()))


def test_weights_that_a_task_declares_give_a_second_number() -> None:
    model = interp.build(interp.load("memorization/bigram").spec, seed=1)
    found = interp.accuracy(model)
    batch = next(iter(model.task.inputs(chunk=10_000)))
    right = Subject.of(model).right(batch).double()
    assert found.accuracy == pytest.approx(float(right.mean()))
    assert found.weighted == pytest.approx(float((right * torch.tensor(model.task.prior)).sum()))


def test_intervals_count_rows_not_positions() -> None:
    found = interp.accuracy(interp.build("histogram/dot-exact", T=32, L=10), n=50)
    assert (found.rows, found.answers, found.accuracy) == (50, 500, 1.0)
    assert found.low == pytest.approx(50 / (50 + 1.959963984540054**2))  # Wilson's bound for 50 of 50


def test_a_sample_to_test_on_repeats_no_input() -> None:
    subject = Subject.external(stock(), Parity(length=4))
    rows = [tuple(row) for row in results.batch_of(subject, None).tokens.tolist()]
    assert len(set(rows)) == len(rows) == 16


def test_accuracy_is_exact_up_to_so_many_inputs() -> None:
    model = interp.load("memorization/bigram")
    n = model.task.n_inputs
    assert interp.accuracy(model, n=n).exact
    assert not interp.accuracy(model, n=n - 1).exact


def test_every_measure_refuses_an_empty_batch_in_one_sentence() -> None:
    task = Parity(length=6, shortest=2)
    subject, batch = Subject.external(stock(), task), task.sample(5)
    strange = replace(batch, tokens=batch.tokens + 7)
    for measure, given in ((interp.ablate_heads, "inputs"), (interp.head_metrics, "test")):
        with pytest.raises(InterpError, match=r"token ids run from 7 to .*task parity has ids 0 to 3"):
            measure(subject, [(0,)], **{given: strange})
        with pytest.raises(InterpError, match="no position of these inputs has an answer of task parity, so there is"):
            measure(subject, [(0,)], **{given: batch[:0]})


UNREAD = {
    "ablate": lambda subject, batch: interp.ablate(subject, ["head 0.0"], batch),
    "accuracy": interp.accuracy,
    "attribution": interp.direct_logit_attribution,
    "logit lens": interp.logit_lens,
    "patching": lambda subject, batch: interp.activation_patching(subject, batch, subject.task.sample(5)),
}


@pytest.mark.parametrize("measure", UNREAD.values(), ids=UNREAD)
def test_rows_need_answers_of_the_task(measure: Any) -> None:
    subject = standin("balance")
    batch = subject.task.sample(5)
    for label, words in ((-1, "no position of these inputs has an answer of task standin_balance"),
                         (9, "a batch has the answer 9; task standin_balance has the answers 0 to 2")):  # fmt: skip
        with pytest.raises(InterpError, match=words):
            measure(subject, replace(batch, labels=torch.full_like(batch.labels, label)))


def test_a_question_alone_is_told_to_write_its_answer_out() -> None:
    task: Any = Sums()
    assert re.search(r"nothing to measure; write answers out, as in '\d\+\d=\d+\$'$", runs.nothing(task))


def test_a_model_without_its_task_is_told_how_to_give_it() -> None:
    with pytest.raises(InterpError, match=r"needs its task: pass interp\.load"):
        interp.ablate_heads(stock())
    mine = interp.load(stock(), task=Parity(length=6, shortest=2))
    assert interp.ablate_heads(mine, [(0,)])["heads"].to_list() == [(), ("0.0",)]


def test_a_report_says_where_some_outputs_are_no_answers() -> None:
    task, words = Parity(length=6, shortest=2), {"not a member": 3, "a member": 0}
    report = interp.analyze(Subject.external(stock(d_vocab_out=4), task=task, outputs=words), sections=["question"])
    assert report.metadata["answer"] == "the largest of its 4 outputs, of which 2 are answers of the task"
    report = interp.analyze(
        Subject.external(stock(d_vocab_out=2), task=task, outputs={"not a member": 1, "a member": 0}),
        sections=["question"],
    )
    assert "answer" not in report.metadata
    report = interp.analyze(Subject.external(stock().double(), task=task), sections=["question"])
    assert report.metadata["run in"] == "float64"


@pytest.mark.skipif(find_spec("transformer_lens.HookedTransformer") is None, reason="TransformerLens 4 has no alibi")
def test_outputs_that_depend_on_what_ran_before_are_refused() -> None:
    """TransformerLens keeps alibi's table of the longest input and reads its last rows for a shorter one."""
    model, row = stock(positional_embedding_type="alibi"), torch.tensor([[1, 2, 3]])
    before = model(row)
    model(torch.tensor([[1, 2, 3, 0, 1, 2, 3, 0]]))
    assert not torch.allclose(model(row), before, atol=1e-3)
    with pytest.raises(InterpError, match="would depend on which inputs ran before"):
        Subject.external(model, Parity(length=6, shortest=2))
    Subject.external(stock(positional_embedding_type="alibi", attention_dir="causal"), Parity(length=6, shortest=2))


def test_outputs_that_are_no_answers_compete_everywhere() -> None:
    """One definition: of 7 outputs 4 are answers, the others are never right, whoever asks for the accuracy."""
    task = MaxOfK(K=3, v=4)
    model = stock(n_layers=1, n_ctx=4, d_vocab=5, d_vocab_out=7, normalization_type=None, attention_dir="causal")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(
                torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel() + 2))
            )
    names = {"tokens": {word: i for i, word in enumerate(task.vocabulary)}, "outputs": {"0": 1, "1": 4, "2": 0, "3": 3}}
    subject, every = Subject.external(model, task, **names), next(iter(task.inputs(64)))
    largest, right = model(every.tokens)[:, -1].argmax(-1), torch.tensor([1, 4, 0, 3])[task.classes(every)[:, -1]]
    share = float((largest == right).double().mean())
    assert bool(torch.isin(largest, torch.tensor([2, 5, 6])).any()), "some answers are none"
    assert share < float((subject.logits(every)[:, :4].argmax(-1) == task.classes(every)[:, -1]).double().mean())
    for one in (subject, Subject.of(interp.load(model, task=task, **names))):
        assert interp.accuracy(one, every).accuracy == pytest.approx(share)
        assert interp.certify(one).accuracy == pytest.approx(share)
        assert interp.ablate(one, "head 0.0", inputs=every)["accuracy"][0] == pytest.approx(share)
        assert interp.ablate_heads(one, inputs=every)["accuracy"][0] == pytest.approx(share)
        assert interp.logit_lens(one, every)["accuracy"].iloc[-1] == pytest.approx(share)
        report = interp.analyze(one, sections=["accuracy", "question"])
        assert report.facts["accuracy"] == pytest.approx(share)
        assert "answer" in report.metadata
        assert ((one.answers(every) == -1) == torch.isin(largest, torch.tensor([2, 5, 6]))).all()


@pytest.mark.parametrize(("fields", "norm", "says"), [
    ({}, None, None), ({"output_logits_soft_cap": 0.0}, torch.nn.Identity(), None),
    ({"output_logits_soft_cap": 0.5}, None, "after a soft cap, the outputs are not a sum"),
    ({"original_architecture": "Olmo2ForCausalLM"}, None, "if a norm follows the attention"),
    ({"original_architecture": "OlmoForCausalLM"}, None, None),
    ({"use_normalization_before_and_after": True}, None, "if a norm follows the attention"),
    ({}, torch.nn.LayerNorm(2), "the final norm is a LayerNorm without a hook_scale"),
    ({}, SimpleNamespace(hook_scale=None), None),
])  # fmt: skip
def test_which_outputs_are_a_sum_over_parts(fields: dict[str, Any], norm: Any, says: str | None) -> None:
    model: Any = SimpleNamespace(cfg=SimpleNamespace(**fields), ln_final=norm)
    found = no_sum(model)
    assert found is None if says is None else str(found).startswith(says)


def test_autocast_is_refused_by_every_measure() -> None:
    """Accuracies and logits would be those of another number format, without a word."""
    task_model, external = interp.load("count01/minimal"), standin("ends")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for measure in (interp.accuracy, interp.logit_lens, interp.ablate, interp.explain):
            for model in (task_model, external):
                with pytest.raises(InterpError, match=r"autocast\('cpu'\) is on and runs parts of a model in another"):
                    measure(model)


@pytest.mark.parametrize("mlp", [False, True])
@pytest.mark.parametrize("norm", ["none", "pre", "post"])
@pytest.mark.parametrize("positions", ["none", "learned", "rotary"])
@pytest.mark.parametrize("direction", ["causal", "bidirectional"])
def test_padding_changes_no_output(direction: str, positions: str, norm: str, mlp: bool) -> None:
    """On counts or on rows: the outputs are those of each row alone, cut to its length."""
    task, draw = make_task("one"), torch.Generator().manual_seed(0)
    layer = Layer(n_heads=2, d_head=4, norm=norm, mlp=MLP(d_mlp=6) if mlp else None)
    spec = ModelSpec(
        task=task.ref, d_model=8, direction=direction, layers=(layer,), positions=positions, readout_at=task.readout,
        max_length=12 if positions == "learned" else None,
        positions_enter="attention" if positions == "rotary" else "residual",
    )  # fmt: skip
    model = interp.build(spec)
    for parameter in model.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=draw))
    rows = [torch.tensor(task.parse(text)) for text in ("[CLS] 0 1 1 0 1", "[CLS] 1", "[CLS] 0 0 1")]
    tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=task.pad_id or 0)
    batch = Batch(tokens, torch.tensor([len(row) for row in rows]), torch.zeros(3, dtype=torch.long))
    alone = torch.stack([model(row[None])[0, 0] for row in rows]).detach()
    for found in (model.read(tokens), Subject.of(model).logits(batch), Running.of(Subject.of(model), batch).logits):
        torch.testing.assert_close(found.detach(), alone, rtol=1e-3, atol=1e-3)
