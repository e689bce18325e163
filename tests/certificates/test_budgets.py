"""A search ends by steps or by the clock, and says which; random inputs narrow what a proof leaves open."""

import pytest
import torch

import interp
from interp.certificates.certificate import SampledShare, Stratum
from interp.support import resources
from interp.support.resources import Budget


@pytest.mark.parametrize("seconds", [-1, -1e-9, float("nan")])
def test_negative_seconds_are_refused(seconds: float) -> None:
    with pytest.raises(interp.InterpError, match=r"seconds = .* must not be negative"):
        Budget(seconds, 1.0)


def test_a_search_ends_by_steps_or_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(resources.time, "monotonic", lambda: now[0])
    steps, late = Budget(2.0, 10.0), Budget(2.0, 10.0)
    assert steps.steps == 20
    assert not steps.is_over()
    assert not late.is_over()
    steps.steps -= 20
    assert steps.is_over()
    assert steps.ended == "the time limit of 2 seconds was used up"
    now[0] = 6.0
    assert not late.is_over()
    now[0] = 6.5
    assert late.is_over()
    assert late.ended == "it took 6 seconds instead of 2"
    assert Budget(0, 10.0).is_over()


def test_without_seconds_of_the_user_no_clock_ends_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10**9, 10**6))
    monkeypatch.setattr(resources.time, "monotonic", lambda: float(next(clock)))
    free = Budget(None, 10.0, 2.0)
    assert (free.steps, free.is_over(), free.is_over()) == (20, False, False)
    free.steps = 0.0
    assert free.is_over()
    assert free.ended == "the budget was used up"


def large_output(size: float) -> interp.models.architecture.task_model.TaskModel:
    model = interp.build("histogram/dot-exact", T=4, L=3, dtype="float64")
    with torch.no_grad():
        model.unembed.W_out[0, 0] = size
    return model


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("size", [1.7e308, 1e300, 1e200])
def test_extreme_numbers_keep_to_the_clock_and_shares_below_1(size: float) -> None:
    """It took 371 seconds of 10, and left 32.5 of all inputs undecided: parts were cut at tokens that were closed."""
    found = interp.certify(large_output(size), seconds=0.1, samples=0)
    table = found.tables["classes"]
    for name in ("right", "wrong", "close", "tied", "undecided"):
        assert (table[name] <= table["inputs"]).all(), name
    assert (table[["right", "wrong", "close", "tied", "undecided"]].sum(axis=1) == table["inputs"]).all()
    low, high = found.accuracy if isinstance(found.accuracy, tuple) else (found.accuracy, found.accuracy)
    assert 0 <= low <= high <= 1


def test_what_ended_a_search_is_said() -> None:
    found = interp.certify(interp.load("histogram/dot/seed-0", dtype="float64"), seconds=0.01, samples=0)
    assert "since the time limit of 0.01 seconds was used up" in str(found)


@pytest.mark.parametrize(("option", "value"), [("seed", -1), ("samples", -1), ("seconds", -1)])
def test_options_below_zero_are_refused_in_a_sentence(option: str, value: int) -> None:
    with pytest.raises(interp.InterpError, match=rf"{option} = -1 must"):
        interp.certify("histogram/dot-exact", **{option: value})


def test_an_unknown_option_is_refused_with_those_that_there_are() -> None:
    said = "the certificate by count box: unknown option 'secondz'; known: box, question"
    with pytest.raises(interp.InterpError, match=said):
        interp.certify("count01/minimal", secondz=1)


def test_decided_strata_are_exact() -> None:
    assert SampledShare.of([Stratum(8, 6, 2), Stratum(8, 8, 0)]) == SampledShare(0.875)


def test_without_random_inputs_the_interval_is_proved() -> None:
    assert SampledShare.of([Stratum(8, 5, 2), Stratum(8, 8, 0)]) == SampledShare((13 / 16, 14 / 16))


def test_random_inputs_narrow_an_open_stratum_only() -> None:
    found = SampledShare.of([Stratum(50, 49, 1), Stratum(50, drawn=10_000, drawn_right=5_000)])
    low, high = found.accuracy  # type: ignore[misc]
    assert found.confidence == 0.999
    assert 0.49 + 0.24 < low < 0.49 + 0.25 < high < 0.49 + 0.26
    assert "without them [0.49, 0.99]" in found.notes[0]


@pytest.mark.parametrize("drawn_right", [0, 100])
def test_random_inputs_never_contradict_what_is_proved(drawn_right: int) -> None:
    low, high = SampledShare.of([Stratum(100, 40, 50, drawn=100, drawn_right=drawn_right)]).accuracy  # type: ignore[misc]
    assert 0.4 <= low <= high <= 0.5


def test_answers_within_rounding_count_for_neither_side() -> None:
    """The run may get all of them wrong where exact arithmetic gets them right, and the other way round."""
    low, high = SampledShare.of([Stratum(1000, drawn=1000, drawn_right=200, drawn_open=500)]).accuracy  # type: ignore[misc]
    assert 0.15 < low < 0.2
    assert 0.7 < high < 0.75
