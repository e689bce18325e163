"""What sections share is computed once for each split: counted where the work is done, not where it is asked for."""

from typing import Any

import pytest

import interp
from interp.families.histogram.measures.counting import CountingModel
from interp.measures import heads
from interp.measures.separation import SeparatorPath
from interp.models.subject import Subject
from interp.report import Report
from interp.report.sections import Study, fill
from interp.tasks.populations import InputsAsked


def _counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[Any]:
    """Calls of a function from now on, by what tells them apart."""
    calls: list[Any] = []
    plain = getattr(owner, name)

    def counting(*arguments: Any, **named: Any) -> Any:
        calls.append(arguments)
        return plain(*arguments, **named)

    monkeypatch.setattr(owner, name, counting)
    return calls


def _distinct(calls: list[Any]) -> int:
    """Of calls of `counted_from`: how many, when none has the inputs and positions of another."""
    asked = [(batch.tokens.numpy().tobytes(), tuple(positions.tolist())) for _, batch, positions in calls]
    assert len(asked) == len(set(asked))
    return len(asked)


def test_head_sections_compute_outputs_once_per_split_and_read(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = interp.ModelSpec(task="count01", d_model=6, layers=(interp.Layer(n_heads=2, d_head=2),), dtype="float64")
    study = Study(Subject.of(interp.build(spec, seed=1)), asked=InputsAsked(inputs=60))
    taken = _counted(monkeypatch, heads, "counted_from")
    fitted = _counted(monkeypatch, SeparatorPath, "fit")
    report = Report("two heads")
    fill(study, report, ["separation", "attention_ratios", "head_planes", "head_logits"])
    assert {"separation", "groups"} <= set(report.tables)
    assert {"attention_ratios", "best_head", "logit_distributions"} <= set(report.figures)
    assert len(fitted) == 1 + 2  # all groups, and the line of each head
    fill(study, report, ["heads"])
    assert _distinct(taken) == 3  # train and test at '=', test at the answer


@pytest.mark.slow
def test_a_whole_report_takes_head_outputs_once_for_each_split(monkeypatch: pytest.MonkeyPatch) -> None:
    study = Study(Subject.of(interp.load("count01/paper")), asked=InputsAsked(inputs=40))
    taken = _counted(monkeypatch, heads, "counted_from")
    fill(study, Report("count01/paper"))
    assert _distinct(taken) == 4  # train and test at '=', test at the answer, and what fixes the live panel's planes


def test_sections_on_counting_take_the_model_apart_once(monkeypatch: pytest.MonkeyPatch) -> None:
    study = Study(Subject.of(interp.build("histogram/bos-softmax-exact", T=5, L=4)), asked=InputsAsked(inputs=200))
    made = _counted(monkeypatch, CountingModel, "__init__")
    wanted = [
        "counting_answers", "counting_attention", "counting_embeddings", "counting_logits", "counting_mechanism",
        "counting_neurons", "counting_probes",
    ]  # fmt: skip
    fill(study, Report("bos"), wanted)
    assert len(made) == 1


@pytest.mark.slow
def test_inputs_of_a_section_are_chosen_once_by_its_runs() -> None:
    study = Study(Subject.of(interp.load("count01/paper")))
    one, many = study.population("one", 1, fixed=False), study.population("many", 10_000, fixed=False)
    assert study.population("one", 1, fixed=False) is one
    assert max(many.n, study.population("whole", 1, fixed=False, whole=True).n) < one.n
    assert set(study.populations) == {"one", "many", "whole"}
