"""Probes and interchange interventions on a model whose variables are known, and against loops."""

import pytest
import torch
from closeness import close
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from standins import standin

import interp
from interp.measures.runs import reads_of, stream_hook
from interp.measures.variables import MOST_PAIRS, fit_probe, others_that_decide, pairs_of, probe
from interp.models.subject import Subject


def _mixture(n: int = 400) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(n, 6, generator=draw, dtype=torch.float64)
    return x, (x[:, 0] + 0.3 * torch.randn(n, generator=draw) > 0).long() + 2 * (x[:, 1] > 0).long()


def test_a_probe_is_a_logistic_regression_fitted_on_other_inputs() -> None:
    x, value = _mixture()
    found = fit_probe(x, value, torch.arange(400))
    theirs = LogisticRegression(C=100.0, max_iter=2000)
    folds = StratifiedKFold(4, shuffle=True, random_state=0)
    assert found.accuracy == pytest.approx(float(cross_val_score(theirs, x, value, cv=folds).mean()), abs=0.02)
    assert found.fitted == pytest.approx(theirs.fit(x, value).score(x, value), abs=0.01)
    p = found.projection
    torch.testing.assert_close(p @ p, p, rtol=0, atol=1e-9)
    moved = x + (x.roll(1, 0) - x) @ p.T  # what the fitted probe reads is now the row above's
    close(theirs.decision_function(moved.numpy()), theirs.decision_function(x.roll(1, 0).numpy()), atol=0.05)


def test_linear_content_is_found_where_least_squares_finds_less() -> None:
    """Ten values along a line are no largest of ten linear functions by least squares, which masks those between."""
    place = torch.arange(300, dtype=torch.float64) % 10
    x = (
        torch.stack([place, place**2], 1)
        + 0.05 * torch.randn(300, 2, generator=torch.Generator().manual_seed(1)).double()
    )
    indicators = torch.nn.functional.one_hot(place.long()).double()
    one = torch.cat([x, torch.ones(300, 1)], 1)
    least = (one @ torch.linalg.lstsq(one, indicators).solution).argmax(1)
    assert float((least == place).double().mean()) < 0.7
    found = fit_probe(x, place.long(), torch.arange(300))
    assert found.fitted > 0.97
    assert found.accuracy > 0.95


def test_inputs_that_come_twice_are_in_one_fold() -> None:
    """100 random vectors, each with a random value, each twice: only an input that was seen can be told."""
    draw = torch.Generator().manual_seed(2)
    x, value = torch.randn(100, 150, generator=draw).double(), torch.randint(0, 2, (100,), generator=draw)
    twice = fit_probe(x.repeat(2, 1), value.repeat(2), torch.arange(100).repeat(2))
    apart = fit_probe(x.repeat(2, 1), value.repeat(2), torch.arange(200))
    assert twice.fitted == 1
    assert twice.accuracy < 0.75
    assert apart.accuracy > twice.accuracy + 0.05


def test_without_variation_only_the_most_frequent_value_is_said() -> None:
    value = (torch.arange(90) % 3 > 0).long()
    found = fit_probe(torch.ones(90, 4).double(), value, torch.arange(90))
    assert (found.accuracy, found.fitted) == (pytest.approx(2 / 3), pytest.approx(2 / 3))
    assert found.projection.abs().max() == 0


def test_each_linearly_present_value_of_a_domain_is_told() -> None:
    """All 7 x 7 pairs, one-hot: the first number is there; their sum modulo 7 is not, and a probe may guess worse."""
    a, b = torch.arange(49) // 7, torch.arange(49) % 7
    x = torch.cat([torch.nn.functional.one_hot(a), torch.nn.functional.one_hot(b)], 1).double()
    assert fit_probe(x, a, torch.arange(49)).accuracy == 1
    table = fit_probe(x, (a + b) % 7, torch.arange(49))
    assert table.accuracy <= 1 / 7 + 0.1
    assert table.fitted >= 1 / 7


def test_rounding_in_float32_decides_no_probe() -> None:
    """Tokens in three directions, one position a token: rounding fills the other directions, and tells nothing."""
    draw = torch.Generator().manual_seed(3)
    token = torch.arange(240) % 4
    tokens = torch.nn.functional.one_hot(token, 20).float() @ torch.randn(20, 20, generator=draw)
    for value in ((torch.arange(240) // 4) % 3, token % 2, (token + torch.arange(240) // 80) % 4):
        rounded = [tokens * (1 + 1e-7 * torch.randn(240, 20, generator=draw)) for _ in range(2)]
        one, other = (fit_probe(x.double(), value, torch.arange(240)) for x in rounded)
        assert (one.accuracy, one.fitted) == (other.accuracy, other.fitted)


def test_which_others_decide() -> None:
    a, b = torch.arange(60) % 5, torch.arange(60) // 12
    known = {"a": a, "b": b, "sum": (a + b) % 5}
    assert others_that_decide("a", known, (a + b) % 5) == ("b",)
    assert others_that_decide("sum", known, (a + b) % 5) == ()
    assert others_that_decide("a", {"a": a}, (a + b) % 5) is None


@pytest.mark.parametrize("name", [pytest.param("recall", marks=pytest.mark.slow), "ends", "balance"])
def test_the_answer_is_present_and_used_at_the_end_only(name) -> None:
    subject = standin(name)
    batch = subject.task.sample(300, seed=2)
    table = probe(subject, inputs=batch).to_frame()
    read = table[(table["position"] == "read") & (table["feature"] == "answer")].set_index("layer")
    last = subject.model.cfg.n_layers
    assert read.loc[last, "interchange"] > 0.97  # what the readout sees is the source's, so the answer is
    assert read.loc[last, "probe"] > 0.95
    assert read.loc[last, "along_probe"] > 0.85
    assert read.loc[0, "interchange"] < 0.5  # the token at the readout alone does not decide
    assert (table["pairs"] > 0).all()
    assert read.loc[last - 1, "interchange"] == pytest.approx(interchanged_by_hand(subject, batch, last - 1))


def interchanged_by_hand(subject: Subject, batch: interp.Batch, layer: int) -> float:
    """The share of pairs whose answer becomes the expected one if the read position's vector is the source's."""
    where, hook = reads_of(subject, batch), stream_hook(subject, layer)
    pairs = pairs_of(subject, batch, "answer", {"answer": where.classes}, MOST_PAIRS, 0)
    assert not isinstance(pairs, str)
    here, there = ((where.rows[some], where.positions[some]) for some in (pairs.base, pairs.source))
    rows, bases = torch.arange(len(pairs.base)), batch[here[0]]
    given = subject.run_with_cache(batch, names_filter=[hook])[1][hook][there]

    def put(stream: torch.Tensor, hook: object) -> torch.Tensor:
        return stream.index_put((rows, here[1]), given)

    before = subject.answers(bases)
    with subject.model.hooks(fwd_hooks=[(hook, put)]):
        after = subject.answers(bases)
    if subject.read_at == "all":
        before, after = before[rows, here[1]], after[rows, here[1]]
    return float(((after == pairs.wanted) & (before != pairs.wanted)).double().mean())


def test_too_few_inputs() -> None:
    with pytest.raises(interp.InterpError, match="39 inputs are too few for a probe"):
        probe(standin("recall"), inputs=standin("recall").task.sample(39))


@pytest.mark.parametrize("answer", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_an_interchange_without_effect_scores_nothing(answer: int) -> None:
    """A model that always gives one answer: half of all pairs demand just that one."""
    model = interp.build(interp.load("languages/parity-learned").spec, seed=1)
    with torch.no_grad():
        model.unembed.W_U.zero_()
        model.unembed.b_U.fill_(answer - 0.5)
    table = probe(model, inputs=model.task.sample(60, seed=2)).to_frame()
    assert (table["pairs"] > 0).any()
    assert (table["interchange"].dropna() == 0).all()
    assert (table["along_probe"].dropna() == 0).all()


def test_a_probe_of_any_value_for_each_row_or_position() -> None:
    """A function of the batch and its values find what the declared feature of the same values finds."""
    model = interp.load("languages/parity")
    batch = model.task.sample(200)

    def ones(batch: interp.Batch) -> torch.Tensor:
        return model.task.features(batch)["number of 1"]

    declared, by_function = (probe(model, one, batch).to_frame() for one in ("number of 1", ones))
    assert set(by_function["feature"]) == {"ones"}
    assert by_function["fitted"].tolist() == declared["fitted"].tolist()
    for values in (ones(batch)[:, None].expand(batch.tokens.shape), ones(batch).numpy()):
        given = probe(model, values, batch).to_frame()
        assert given["probe"].tolist() == declared["probe"].tolist()
    with pytest.raises(interp.InterpError, match=r"the feature given has shape \(7,\); it must be \(200,\)"):
        probe(model, torch.zeros(7), batch)


def test_features_of_wrong_shape_or_not_finite_are_refused() -> None:
    """Halves were cut to whole numbers."""
    model = interp.build("languages/parity")
    batch = model.task.sample(200)
    halves = (torch.arange(200) % 3).double() / 2
    model.task.features = lambda batch: {"half": halves[: len(batch)], "whole": 2 * halves[: len(batch)]}  # type: ignore[method-assign]
    table = probe(model, inputs=batch)
    assert set(table["feature"]) == {"whole"}
    assert table.reasons["half"] == "The feature half has values that are not whole numbers"
    model.task.features = lambda batch: {"short": batch.labels[:1]}  # type: ignore[method-assign]
    with pytest.raises(interp.InterpError, match=r"feature short of task parity has shape \(1,\); it must be \(200,\)"):
        probe(model, inputs=batch)


def test_the_reason_is_true_where_another_feature_alone_decides() -> None:
    """`bit` and `sum` together determine the answer, but so does `sum` alone: nothing says what `bit` would change."""
    subject = standin("ends")
    batch = subject.task.sample(60, seed=1)
    values = {"bit": torch.arange(60) % 2, "sum": reads_of(subject, batch).classes}
    assert pairs_of(subject, batch, "bit", values, 20, 0) == (
        "No set of features needs bit to determine the answer, so an effect of its own cannot be measured"
    )


def test_where_nothing_is_probed_the_reason_is_shown() -> None:
    subject = standin("recall")
    batch = subject.task.sample(60)
    found = probe(subject, lambda batch: torch.zeros(len(batch), dtype=torch.long), batch)
    assert repr(found).endswith("Nothing was probed: The feature <lambda> has only one value on these inputs.")
    assert "only one value" in found._repr_html_()
