"""The table of all parts: its rows, its columns, and separation of many classes against scikit-learn."""

import numpy as np
import pytest
from sklearn.svm import LinearSVC
from standins import NAMES, standin

import interp
from interp.measures import runs, separation
from interp.measures.heads import head_outputs
from interp.measures.survey import survey
from interp.report.sections.heads import describe_separation


@pytest.mark.parametrize("name", sorted(NAMES))
@pytest.mark.thinned(2)
def test_all_parts_of_a_strangers_model(name) -> None:
    subject = standin(name)
    test, train = subject.task.sample(150, seed=1), subject.task.sample(200, "train", seed=1)
    table = survey(subject, test, train).set_index("part")
    cfg = subject.model.cfg
    assert len(table) == cfg.n_layers * (cfg.n_heads + (not cfg.attn_only))
    heads = table.loc[table["kind"] == "head"]
    scores = ["previous_token", "same_token", "induction"]  # of queries that have a match
    assert heads.drop(columns=scores).notna().all(axis=None)
    for score in scores:
        assert (heads[score].notna() == (heads[f"{score}_queries"] > 0)).all()
    singles = interp.ablate_heads(subject, "singles", mode="mean", inputs=test, reference=train)
    assert table.loc[table["kind"] == "head", "accuracy_mean"].to_list() == singles["accuracy"][1:].to_list()
    assert (table["loss_zero"] > 0).all()


@pytest.mark.slow
def test_a_model_whose_outputs_are_no_sum_has_no_effects() -> None:
    model = interp.load("languages/first-learned")
    table = survey(model, model.task.sample(10), model.task.sample(30, "train"))
    assert table["effect"].isna().all()
    assert table["accuracy_zero"].notna().all()


def test_one_against_the_rest_is_scikit_learn_s() -> None:
    subject = standin("recall")
    train, test = subject.task.sample(250, "train", seed=1), subject.task.sample(300, seed=2)
    name = "blocks.1.attn.hook_z"
    x, y = (runs.at_reads(subject, batch, [name])[name].numpy() for batch in (train, test))
    labels, wanted = (runs.reads_of(subject, batch).classes.numpy() for batch in (train, test))
    table = separation.score_groups(x, labels, y, wanted, [(0,), (1,), (0, 1)])
    for group, found in zip(table["heads"], table["s_acc"]):
        svc = LinearSVC(C=1000.0, tol=1e-8, max_iter=200_000, dual=False)
        svc.fit(x[:, list(group)].reshape(len(x), -1), labels)
        theirs = svc.score(y[:, list(group)].reshape(len(y), -1), wanted)
        assert found == pytest.approx(theirs, abs=0.004)
    assert (table["relative_gap"] <= 1e-4).all()


def test_head_metrics_of_three_classes_all_layers_all_positions() -> None:
    for name in NAMES:
        subject = standin(name)
        train, test = subject.task.sample(80, "train", seed=1), subject.task.sample(60, seed=2)
        table = interp.head_metrics(subject, train=train, test=test)
        outputs = head_outputs(subject, test)
        assert list(table["layer"]) == [i // subject.model.cfg.n_heads for i in range(outputs.n_heads)]
        for head, l_acc in enumerate(table["l_acc"]):
            logits = outputs.contributions[:, head] + outputs.bias
            assert l_acc == pytest.approx(float((logits.argmax(-1) == outputs.labels).double().mean()))
        last = interp.head_metrics(subject, train=train, test=test, layer=-1)
        assert last["s_acc"].to_list() == table["s_acc"].to_list()[-len(last) :]


def test_head_outputs_add_up_to_the_logits_of_one_output() -> None:
    model = interp.load("languages/first")
    batch = model.task.sample(20)
    outputs = head_outputs(model, batch)
    assert outputs.bias.shape == (2,)
    answers = outputs.logits(range(outputs.n_heads), with_skip=True).argmax(-1).bool()
    assert np.array_equal(answers.numpy(), model.predict(batch.tokens).numpy())


def test_why_heads_have_no_s_acc_is_said() -> None:
    subject = standin("recall")
    table = survey(subject, subject.task.sample(20, seed=1), subject.task.sample(15, "train", seed=2))
    assert table["s_acc"].isna().all()
    assert "15 rows are fewer than 16 features" in table.attrs["no_s_acc"]
    assert "There is no s_acc: 15 rows are fewer" in describe_separation(table)


def test_a_single_answer_is_named_by_its_word() -> None:
    model = interp.load("languages/parity")
    batch = model.task.sample(60, seed=1)
    members = batch[batch.labels]
    table = survey(model, batch, members)
    assert "one class only ('a member')" in table.attrs["no_s_acc"]
    for train, test in ((members, batch), (batch, members)):
        with pytest.raises(interp.InterpError, match=r"one class only \('a member'\)"):
            interp.head_metrics(model, train=train, test=test)
