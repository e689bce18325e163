"""Head measures against definitions computed by hand, scikit-learn, and the hooked forward."""

import numpy as np
import pytest
import torch
from closeness import close
from drawn_weights import draw_each, hooked
from hooked_heads import from_cache
from short_count01 import sentences
from sklearn.metrics import roc_auc_score
from sklearn.svm import LinearSVC
from standins import Balance, Recall, standin

import interp
from interp.errors import InterpError, UnsupportedError
from interp.measures import heads, subsets
from interp.models.subject import Subject
from interp.tasks import NextSymbols


@pytest.fixture(scope="module")
def model() -> interp.TaskModel:
    return interp.load("count01/paper", dtype="float64")


@pytest.fixture(scope="module")
def batch(model: interp.TaskModel) -> interp.Batch:
    return sentences(model.task, 12, seed=5)


def test_outputs_from_counts_are_those_of_the_hooks(model, batch) -> None:
    found = heads.head_outputs(model, batch)
    at = (batch.tokens == 4).int().argmax(1)
    _, cache = model.run_with_cache(batch.tokens)
    torch.testing.assert_close(found.z, cache["z", 0][torch.arange(12), at].detach(), rtol=1e-10, atol=1e-12)
    assert torch.equal(found.labels, batch.labels)


@pytest.mark.parametrize("read", [0, 1])
def test_all_contributions_and_the_skip_add_up_to_the_logits(model, batch, read) -> None:
    found = heads.head_outputs(model, batch, read=read)
    at = (batch.tokens == 4).int().argmax(1) + read
    whole = model(batch.tokens)[torch.arange(12), at].detach()
    torch.testing.assert_close(found.logits(range(16), with_skip=True), whole, rtol=1e-10, atol=1e-10)


def test_learned_accuracy_zeroes_the_other_heads(model, batch) -> None:
    """Erratum 4: without the skip connection and the projection bias. Here by editing the residual stream."""
    found = heads.head_outputs(model, batch)
    group = (3, 5)
    at, rows = (batch.tokens == 4).int().argmax(1), torch.arange(12)
    _, cache = model.run_with_cache(batch.tokens)
    z = cache["z", 0][rows, at]
    written = sum(z[:, head] @ model.W_O[0, head] for head in group)
    logits = written @ model.W_U + model.b_U
    assert heads.learned_accuracy(found, group) == float((logits.argmax(-1) == batch.labels).double().mean())
    torch.testing.assert_close(found.logits(group), logits.detach(), rtol=1e-10, atol=1e-10)


def test_head_metrics_against_scikit_learn(model) -> None:
    train, test = model.task.sample(300, "train", seed=1), model.task.sample(200, "train", seed=2)
    groups = [(3,), (0, 3), (1, 2, 4)]
    table = interp.head_metrics(model, groups, train=train, test=test).to_frame()
    fitted, tested = heads.head_outputs(model, train), heads.head_outputs(model, test)
    for row, group in zip(table.itertuples(), groups):
        svm = LinearSVC(C=1000.0, tol=1e-8, max_iter=2_000_000, dual=True)
        svm.fit(fitted.z[:, list(group)].flatten(1).numpy(), fitted.labels)
        accuracy = svm.score(tested.z[:, list(group)].flatten(1).numpy(), tested.labels)
        assert row.s_acc == pytest.approx(accuracy, abs=1 / 200 + 1e-12)
        logits = tested.logits(group).numpy()
        by_hand = max(roc_auc_score(tested.labels == answer, logits[:, answer]) for answer in (5, 6))
        assert row.roc_auc == pytest.approx(by_hand)
    assert table["heads"].to_list() == [("0.3",), ("0.0", "0.3"), ("0.1", "0.2", "0.4")]
    assert table["size"].to_list() == [1, 2, 3]


def test_named_groups_have_the_right_numbers() -> None:
    assert len(subsets.select_groups("singles", 16)) == 16
    assert len(subsets.select_groups("pairs", 16)) == 120
    assert len(subsets.select_groups("singles+pairs", 16)) == 136
    assert len(subsets.select_groups("all", 6)) == 63


@pytest.mark.parametrize(("groups", "sentence"), [
    ("triples", "neither one of singles"), ([()], "group of heads is empty"),
    ([(16,)], "names head 16, but the heads are 0 to 15"), ([(-1,)], "names head -1, but"),
    ([(1, 1)], "repeats a head"),
])  # fmt: skip
def test_bad_groups_are_one_sentence(model, batch, groups, sentence) -> None:
    with pytest.raises(InterpError, match=sentence):
        interp.head_metrics(model, groups, train=batch, test=batch)


def test_head_metrics_refuse_what_cannot_be_separated(model, batch) -> None:
    one_answer = batch[batch.labels == 5]
    with pytest.raises(InterpError, match="one class only"):
        interp.head_metrics(model, train=one_answer, test=batch)
    with pytest.raises(InterpError, match=r"one class only \('4'\)"):
        interp.head_metrics(model, train=batch, test=one_answer)
    with pytest.raises(InterpError, match="12 rows are fewer than 32 features"):
        interp.head_metrics(model, [range(16)], train=batch, test=batch)
    broken = interp.build(model.spec, seed=1, dtype="float64")
    with torch.no_grad():
        broken.blocks[0].attn.W_V[2] = torch.nan
    with pytest.raises(InterpError, match="24 of 384 head outputs are not finite numbers, the first in head 2"):
        interp.head_metrics(broken, train=batch, test=batch)


def test_a_single_measure_refuses_bad_groups_too(model, batch) -> None:
    outputs = heads.head_outputs(model, batch)
    with pytest.raises(InterpError, match=r"\(1, 1\) repeats a head"):
        heads.learned_accuracy(outputs, (1, 1))
    with pytest.raises(InterpError, match="names head -1"):
        heads.learned_accuracy(outputs, (-1,))


def test_too_many_groups_are_counted_or_drawn(model) -> None:
    train, test = model.task.sample(300, "train", seed=1), model.task.sample(200, "train", seed=2)
    fitted, tested = heads.head_outputs(model, train), heads.head_outputs(model, test)
    drawn = heads.group_metrics(fitted, tested, "all", sample=20)
    assert len(set(drawn["heads"])) == 20
    again = heads.group_metrics(fitted, tested, drawn["heads"].to_list())
    close(again[["s_acc", "l_acc", "roc_auc"]], drawn[["s_acc", "l_acc", "roc_auc"]], atol=1e-6)
    assert drawn["relative_gap"].max() <= 1e-8
    with pytest.raises(InterpError, match=r"'all' are 1,048,575 groups of 20 heads, .*a list of groups"):
        subsets.select_groups("all", 20)
    with pytest.raises(InterpError, match="goes with groups='all'"):
        subsets.select_groups([(0,)], 20, sample=3)


def test_categories_follow_section_5_2() -> None:
    assert [heads.category(s) for s in (1.0, 0.98, 0.979, 0.61, 0.6, 0.3)] == [
        "successful", "successful", "mixed", "mixed", "failed", "failed",
    ]  # fmt: skip


def test_head_weights_sum_to_one_and_follow_the_readout(model) -> None:
    table = heads.head_weights(model)
    by_hand = np.array(
        [float((model.W_O[0, i] @ (model.W_U[:, 5] - model.W_U[:, 6])).norm().detach()) for i in range(16)]
    )
    np.testing.assert_allclose(table["weight"], by_hand / by_hand.sum(), rtol=1e-10)


class Tens(Balance):
    """The balance of letters, a few answers a row, in units that are no output indices."""

    name = "heads_tens"
    n_out = 2

    def batch(self, tokens):
        found = super().batch(tokens)
        return interp.Batch(found.tokens, found.lengths, 10 * (found.labels > 0).long())

    def classes(self, batch):
        return batch.labels // 10

    def answers(self, classes, tokens):
        return 10 * classes


class Yes(Recall):
    """Is the value x?"""

    name = "heads_yes"
    n_out = 1
    contrast = ("yes", "no")

    def batch(self, tokens):
        found = super().batch(tokens)
        return interp.Batch(found.tokens, found.lengths, (found.labels == 0).long())


class Sets(NextSymbols):
    """Letters: which may follow, if there is one b at most?"""

    name, vocabulary, symbols = "heads_sets", ("a", "b"), ("a", "b", "end")
    sample = Balance.sample

    def allowed(self, tokens):
        none = tokens.cumsum(1) == 0
        return torch.stack([torch.ones_like(none), none, torch.ones_like(none)], -1)


def one_layer(task, n_out: int) -> Subject:
    fields = {"n_layers": 1, "d_model": 8, "d_head": 4, "n_heads": 2, "n_ctx": 8, "d_vocab": task.d_vocab}
    own = hooked(**fields, d_vocab_out=n_out, attn_only=True, normalization_type=None)
    draw_each(own, 0.4)
    return Subject.external(own, task)


@pytest.mark.parametrize(("task", "n_out"), [(Tens(), 2), (Yes(), 1)])
def test_head_weights_with_answers_everywhere_and_one_output(task, n_out) -> None:
    subject = one_layer(task, n_out)
    own = subject.model
    toward = own.W_U[:, 1] - own.W_U[:, 0] if n_out == 2 else own.W_U[:, 0]
    lengths = (own.W_O[0] @ toward).norm(dim=-1).detach()
    np.testing.assert_allclose(heads.head_weights(subject)["weight"], lengths / lengths.sum(), rtol=1e-5)


def test_one_output_has_the_area_of_its_own_ranks() -> None:
    subject = one_layer(Yes(), 1)
    batch = subject.task.sample(200)
    _, cache = subject.in_format(torch.float64).model.run_with_cache(batch.tokens)
    toward = (subject.model.W_O[0].double() @ subject.model.W_U.double())[..., 0].detach()
    scores = [(cache["z", 0][:, -1, head] @ toward[head]).numpy() for head in (0, 1)]
    areas = [roc_auc_score(batch.labels, of_head) for of_head in scores]
    assert min(areas) < 0.5
    close(interp.head_metrics(subject, test=batch)["roc_auc"], areas, atol=1e-12)


def test_heads_do_not_answer_with_sets() -> None:
    subject = one_layer(Sets(), 3)
    with pytest.raises(UnsupportedError, match="depends on which outputs are above 0, not on the largest logit"):
        interp.head_metrics(subject)
    assert len(interp.ablate(subject, ["head 0.0"])) == 2


def test_head_weights_are_those_of_the_last_of_three_layers() -> None:
    fields = {"n_layers": 3, "d_model": 8, "d_head": 4, "n_heads": 2, "n_ctx": 8, "d_vocab": Tens().d_vocab}
    own = hooked(**fields, d_vocab_out=2, attn_only=True, normalization_type=None)
    with torch.no_grad():
        for n, parameter in enumerate(own.parameters()):
            parameter.normal_(generator=torch.Generator().manual_seed(n))
    lengths = (own.W_O[2] @ (own.W_U[:, 1] - own.W_U[:, 0])).norm(dim=-1).detach()
    found = heads.head_weights(Subject.external(own, Tens()))
    np.testing.assert_allclose(found["weight"], lengths / lengths.sum(), rtol=1e-5)


def test_end_accuracy_is_one_if_the_model_ends_its_sentences(model) -> None:
    test = model.task.sample(100, "test", seed=0)
    assert heads.learned_accuracy(heads.head_outputs(model, test, read=1), range(16), with_skip=True) == 1.0


def test_logit_distributions_hold_the_models_own_logits(model, batch) -> None:
    table = heads.logit_distributions(model, batch)
    assert set(table["head"]) == {*range(16), "model"}
    whole = table[(table["head"] == "model") & (table["current"] == "=") & (table["token"] == "4")]
    at = (batch.tokens == 4).int().argmax(1)
    expected = model(batch.tokens)[torch.arange(12), at, 5].detach().numpy()
    np.testing.assert_allclose(whole["logit"], expected, rtol=1e-9)
    assert set(table["next"]) == {"4", "5", "[EOS]"}


def test_what_is_no_sum_over_heads_is_refused() -> None:
    spec = interp.ModelSpec(
        task={"name": "count01"}, d_model=8, readout="relu_mlp", readout_width=4, readout_at="=",
        layers=[{"n_heads": 2, "d_head": 4}],
    )  # fmt: skip
    model = interp.build(spec)
    with pytest.raises(UnsupportedError, match="ReLU readout, the outputs are not a sum over the parts"):
        heads.head_outputs(model, model.task.sample(4, "train", seed=0))
    with pytest.raises(InterpError, match="not a HookedTransformer"):
        Subject.of("count01/paper")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["recall", "ends"])
def test_one_layer_s_heads_are_those_rows_of_the_whole_table(name) -> None:
    """s-acc needs the layer's own outputs, l-acc and AUC its own contributions: each is looked at."""
    subject = standin(name)
    train, test = subject.task.sample(80, "train", seed=1), subject.task.sample(60, seed=2)
    per_layer, n_layers = subject.model.cfg.n_heads, subject.model.cfg.n_layers
    whole = heads.head_metrics(subject, train=train, test=test).to_frame()
    assert list(whole["layer"]) == [head // per_layer for head in range(per_layer * n_layers)]
    for layer in range(n_layers):
        part = heads.head_metrics(subject, train=train, test=test, layer=layer).to_frame()
        own = whole[whole["layer"] == layer]
        assert list(part["layer"]) == [layer] * per_layer
        assert list(part["heads"]) == [(f"{layer}.{head}",) for head in range(per_layer)]
        close(part[["l_acc", "roc_auc"]].to_numpy(), own[["l_acc", "roc_auc"]].to_numpy(), atol=1e-12)
        close(part["s_acc"].to_numpy(), own["s_acc"].to_numpy(), atol=1e-6)
    last = heads.head_metrics(subject, train=train, test=test, layer=-1)
    assert last["layer"].to_list() == [n_layers - 1] * per_layer


@pytest.mark.parametrize("rows", [31, 32, 33, 65])
def test_pieces_of_a_batch_end_where_they_should(model, rows, monkeypatch) -> None:
    """Pieces of 32 rows: one row less, exactly one piece, one row more, two pieces and a row."""
    batch = model.task.sentences(torch.randint(1, 4, (rows, 3), generator=torch.Generator().manual_seed(0)), seed=1)
    at = (batch.tokens == 4).int().argmax(1)
    _, cache = model.run_with_cache(batch.tokens)
    chunks = Subject.chunks
    monkeypatch.setattr(Subject, "chunks", lambda self, batch: chunks(self, batch, 32))
    close(from_cache(model, batch, at), cache["z", 0][torch.arange(rows), at], atol=1e-12)


def test_with_the_skip_connection_the_rest_of_the_model_is_added(model, batch) -> None:
    found, group = heads.head_outputs(model, batch), (0, 7)
    logits = found.contributions[:, list(group)].sum(1) + found.bias + found.skip
    accuracy = float((logits.argmax(-1) == batch.labels).double().mean())
    alone = float(((logits - found.skip).argmax(-1) == batch.labels).double().mean())
    assert heads.learned_accuracy(found, group, with_skip=True) == accuracy
    assert heads.group_metrics(found, found, [group], with_skip=True)["l_acc"].tolist() == [accuracy]
    far = torch.nn.functional.one_hot(batch.labels, 8) * 1e3 + found.skip  # where the rest alone decides
    rest = heads.HeadOutputs(found.z, found.contributions, found.bias, far.double(), found.labels)
    assert heads.learned_accuracy(rest, group, with_skip=True) == 1 > alone
    assert heads.group_metrics(rest, rest, [group], with_skip=True)["l_acc"].tolist() == [1.0]
    assert heads.group_metrics(rest, rest, [group])["l_acc"].tolist() == [alone]


def test_shares_are_taken_at_the_scale_of_the_final_norm() -> None:
    subject = standin("recall")
    batch = subject.task.sample(9, seed=4)
    _, cache = subject.model.run_with_cache(batch.tokens)
    scale = (cache["resid_post", 1][:, -1].double().var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
    written = cache["z", 1][:, -1, 0].double() @ subject.model.W_O[1, 0].double()
    centered = (written - written.mean(-1, keepdim=True)) / scale * subject.model.ln_final.w.double()
    found = heads.head_outputs(subject, batch).contributions[:, 2]
    torch.testing.assert_close(found, centered @ subject.model.W_U.double(), rtol=1e-5, atol=1e-5)
