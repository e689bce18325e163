"""The limits that decide what a section draws and says, each tried on both sides, and what work costs."""

import itertools
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch

import interp
from interp.families.count01.sections import head_failures
from interp.families.histogram.measures.counting import CountingModel
from interp.families.histogram.sections.answers import _sequence, answers_sentence, drawn, examples
from interp.measures.heads import HeadOutputs
from interp.models.subject import Subject
from interp.report.sections import (
    _shared,
    attention,
    circuits,
    components,
    embeddings,
    explanation,
    faithfulness,
    heads,
    question,
)
from interp.report.sections.base import Study
from interp.report.sections.live_payload import Inputs


def study(layers: int = 1, heads: int = 1, d_vocab: int = 5, length: int = 3, **more: Any) -> Any:
    """As much of a study as a limit asks for."""
    tokens = torch.zeros(2, length, dtype=torch.long)
    task = SimpleNamespace(d_vocab=d_vocab, cyclic={}, splits=("test",), sample=lambda *_, **__: interp.Batch(
        tokens, torch.full((2,), length), torch.zeros(2, dtype=torch.long)))  # fmt: skip
    model = SimpleNamespace(cfg=SimpleNamespace(n_layers=layers, n_heads=heads, **more))
    return Mock(spec=Study, model=model, task=task, subject=Mock(spec=Subject, model=model, task=task))


@pytest.mark.parametrize(("needs", "last", "first", "number"), [
    (faithfulness.needs, study(20, 10), study(3, 67), "201 heads"),
    (faithfulness.needs, study(2, 1), study(1, 1), "one head"),
    (heads.needs_features, study(6, 8), study(7, 7), "49 heads"),
    (heads.needs, study(20, 9), study(3, 66), "201 parts"),
    (attention.needs, study(4, 6), study(5, 5), "25 heads"),
    (attention.needs, study(length=2), study(length=1), "a single token"),
    (embeddings.needs, study(d_vocab=64), study(d_vocab=65), "65 tokens"),
    (embeddings.needs, study(d_vocab=3), study(d_vocab=2), "two embeddings"),
    (embeddings.needs_variables, study(12, 1, d_model=1024), study(13, 1, d_model=8), "13 layers of width 8"),
    (embeddings.needs_variables, study(12, 1, d_model=1024), study(1, 1, d_model=1025), "1 layers of width 1025"),
])  # fmt: skip
def test_the_last_model_that_is_taken_and_the_first_that_is_not(needs, last, first, number) -> None:
    assert needs(last) is None
    assert number in needs(first)


def test_sites_are_streams_by_place_and_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(circuits, "heads_of", lambda subject: [None] * 6)
    monkeypatch.setattr(circuits, "mlps_of", lambda subject: [None] * 3)
    most = circuits.MAX_POSITIONS
    assert circuits.sites(study(3, 2, length=5).subject) == 4 * 5 + 6 + 3
    assert circuits.sites(study(3, 2, length=most).subject) == 4 * most + 9
    assert circuits.sites(study(3, 2, length=most + 1).subject) == 4 * 3 + 9
    by_place = 4 * 5 + 9 + 6 * 5
    for limit in (by_place, by_place - 1):
        monkeypatch.setattr(circuits, "MOST_SITES", limit)
        assert circuits.places(study(3, 2, length=5)) == (limit == by_place)
    monkeypatch.setattr(circuits, "MOST_SITES", 28)
    assert circuits.needs_pairs(study(3, 2, length=5)) == "29 sites are too many to patch one by one"
    monkeypatch.setattr(circuits, "MOST_SITES", 29)
    assert circuits.needs_pairs(study(3, 2, length=5)) is None


def test_leaders_are_those_that_two_standard_errors_cannot_part() -> None:
    table = pd.DataFrame({"part": list("abcd"), "recovered": [0.5, 0.9, 0.6, 0.7], "error": [0.0, 0.1, 0.05, np.nan]})
    assert circuits.find_leading_rows(table)["part"].tolist() == ["b"]  # 0.9 - 0.196 = 0.704; c reaches 0.698, d 0.7
    assert circuits.find_leading_rows(table.assign(recovered=[0.5, 0.9, 0.61, 0.71]))["part"].tolist() == [
        "b",
        "d",
        "c",
    ]
    equal = table.assign(recovered=[0.5, 1.0, 1.0 + 1e-8, 0.1], error=0.0)
    assert circuits.find_leading_rows(equal)["part"].tolist() == ["b", "c"]  # they differ by rounding alone
    assert circuits.describe_undecided_pairs(1.0, -1.0) == ""
    assert circuits.describe_undecided_pairs(1.0, 0.0)
    assert circuits.describe_undecided_pairs(-1.0, -0.5)


@pytest.mark.parametrize(("layers", "each"), [(2, 1e6), (3, 1e7)])
def test_edges_cost_a_run_for_each_edge_and_sender(layers: int, each: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(circuits, "edges", lambda subject: [None] * 11)
    monkeypatch.setattr(circuits, "nodes", lambda subject: [None] * 5)
    monkeypatch.setattr(circuits, "operations", lambda subject, length: each * length)
    assert circuits.cost_of_edges(study(layers, length=3)) == pytest.approx(
        4 * 200 * (11 + 5 * layers) * each * 3 / circuits.SPEED
    )


@pytest.mark.parametrize(("letters", "each"), [("ab", 5e8), ("ab", 10.0), ("abc", 1e8), ("ab", 1e11)])
def test_strings_are_as_long_as_the_budget_allows(letters: str, each: float, monkeypatch: pytest.MonkeyPatch) -> None:
    known = SimpleNamespace(letters=letters, fixed=None, marks=2, longest=lambda subject, n: 9)
    monkeypatch.setattr(explanation, "operations", lambda subject, length: each)
    its = study()
    its.measure, its.once = lambda what: known, lambda what: what(its)
    run = [sum(len(letters) ** n for n in range(1, length + 1)) * each / explanation.SPEED for length in range(1, 10)]
    length = max([1, *(n for n, seconds in enumerate(run, 1) if seconds <= explanation.SECONDS)])
    assert explanation.affordable(its) == length
    assert explanation.cost(its) == pytest.approx(len(letters) ** max(4, length) * each / explanation.SPEED)
    known.fixed = 7
    assert explanation.affordable(its) == 7


@pytest.mark.parametrize(("n", "groups"), [(1, 320), (3, 320), (4, 15), (4, 14), (7, 30)])
def test_no_group_of_heads_is_fitted_twice(n: int, groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fitted(train: Any, test: Any, wanted: list[tuple[int, ...]]) -> pd.DataFrame:
        return pd.DataFrame({"heads": wanted})

    monkeypatch.setattr(_shared, "group_metrics", fitted)
    its = study()
    its.once = lambda *_: SimpleNamespace(n_heads=n)
    table = _shared.metrics(its, groups)
    made = table["heads"].tolist()
    assert len(set(made)) == len(made)
    small = [group for size in (1, 2) for group in itertools.combinations(range(n), size)]
    assert set(small) <= set(made)
    every = {group for size in range(1, n + 1) for group in itertools.combinations(range(n), size)}
    assert set(made) <= every
    if len(every) <= groups:
        assert set(made) == every
        assert table["sampled"].all()
    else:
        assert set(table["heads"][~table["sampled"]]) <= set(small)
        assert table["sampled"].sum() <= len(every)
        assert any(len(group) > 2 for group in made)


def test_a_sequence_for_each_count_and_the_answer_to_it() -> None:
    labels = torch.tensor([[1, 2, 2, 0], [3, 1, 3, 3]])
    answers = torch.tensor([[1, 3, 2, 0], [3, 2, 3, 1]])
    tokens = torch.tensor([[5, 6, 6, 7], [8, 9, 8, 8]])
    by_cell, worst = examples(interp.Batch(tokens, torch.full((2,), 4), labels), answers)
    assert by_cell.keys() == {(1, 1), (2, 3), (2, 2), (3, 3), (1, 2), (3, 1)}  # nothing where no count is asked for
    for (count, answer), text in by_cell.items():
        row, place = next((row, place) for row in range(2) for place in range(4)
                          if (labels[row, place], answers[row, place]) == (count, answer))  # fmt: skip
        assert text.endswith(f";at:{place}")
        assert text.startswith(".".join(map(str, tokens[row].tolist())))
    assert worst == {1: by_cell[1, 2], 2: by_cell[2, 3], 3: by_cell[3, 1]}
    assert "uniform" in drawn(3, 4, "")
    assert "from 1 to 3" in drawn(3, 3, "")
    assert "never draws" in drawn(3, 3, "published")


def test_counts_that_are_answered_the_same() -> None:
    said = answers_sentence(pd.Series([0.25, 0.5, 0.25], index=[1, 2, 3]), 1, evenly=False)
    assert said.startswith("In a sample of 1 sequence, it is most accurate for count 2 (0.5")
    assert "least accurate for counts 1 and 3 (0.25" in said


@pytest.mark.parametrize(("values", "reads", "found"), [
    ({"a": 2, "answer": 3}, 1000, ("a",)), ({"a": 1, "answer": 3}, 1000, ("answer",)),
    ({"a": 128, "b": 129}, 1000, ("a",)), ({"a": 5, "b": 10, "c": 3}, 200, ("a", "b")),
    ({"a": 5, "b": 10, "c": 3}, 199, ("a",)), ({"a": 1}, 10, ()),
])  # fmt: skip
def test_neurons_are_drawn_against_few_values(values, reads, found, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(components, "feature_at_reads", lambda subject, batch, name: torch.arange(reads) % values[name])
    its = study()
    its.task.features = lambda batch: dict.fromkeys(values)
    row = torch.zeros(2, dtype=torch.long)
    assert components._features(its, interp.Batch(row[:, None], row + 1, row)) == found


@pytest.mark.parametrize(("rows", "prefix", "suffix", "alphabet"), [
    ([[9, 1, 2, 8], [9, 3, 8], [9, 2, 1, 1, 8]], [9], [8], [1, 2, 3]),
    ([[1, 2, 7, 8], [2, 2, 7, 8]], [], [2, 7, 8], [1, 2]),
    ([[5, 6, 1], [5, 6, 2]], [5, 6], [], [1, 2]),
    ([[1, 2], [3, 4]], [], [], [1, 2, 3, 4]),
])  # fmt: skip
def test_what_all_rows_begin_and_end_with(rows, prefix, suffix, alphabet) -> None:
    inputs = object.__new__(Inputs)
    inputs.rows = [torch.tensor(row) for row in rows]
    inputs.task = Mock(check_input=lambda batch: None)
    assert inputs.frame == {"prefix": prefix, "suffix": suffix, "alphabet": alphabet, "only": None}


@pytest.mark.parametrize(("heads", "d_head", "drawn"), [(1, 1, False), (2, 1, False), (1, 2, True)])
def test_singular_values_are_drawn_where_there_are_two(heads: int, d_head: int, drawn: bool) -> None:
    spec = interp.build("count01/minimal").spec
    spec = spec.replace(origin=None, d_model=d_head, layers=(interp.Layer(n_heads=heads, d_head=d_head),))
    report = interp.analyze(interp.build(spec), sections=["circuits"])
    assert ("circuits_singular" in report.figures) == drawn
    assert len(report.tables["circuits"]) == heads


def test_a_head_s_spread_is_the_distance_from_its_mean() -> None:
    z = np.random.default_rng(0).normal(5.0, 1.0, size=(7, 3, 2))
    far = np.linalg.norm(z - z.mean(axis=0, keepdims=True), axis=2)
    found = head_failures.spreads(Mock(spec=HeadOutputs, z=torch.from_numpy(z)))
    assert found == pytest.approx(np.sqrt((far**2).mean(axis=0)))


@pytest.mark.parametrize("bos", [False, True])
def test_a_point_s_sequence_has_its_count(bos: bool) -> None:
    task = Mock(L=5, T=9, bos=bos, token_id=lambda word: int(word))
    text = _sequence(Mock(spec=CountingModel, task=task), "4", 2)
    assert text.split(";")[0] == ".".join([*(["9"] if bos else []), "4", "4", "3", "3", "3"])


def test_patterns_of_so_many_heads_are_drawn() -> None:
    last, first = study(1, question.MOST_HEADS), study(1, question.MOST_HEADS + 1)
    last.task.name, last.task.example = "some", None
    assert "heads" not in str(question.needs_heads(last))
    assert question.needs_heads(first) == "the patterns of 33 heads are too many to draw"


@pytest.mark.parametrize("by_place", [True, False])
def test_a_row_is_cut_with_its_labels(by_place: bool) -> None:
    """Without its padding; labels by place are cut with it."""
    inputs = object.__new__(Inputs)
    inputs.causal, inputs.readout = False, "first"
    labels = torch.arange(8).view(2, 4) if by_place else torch.tensor([5, 6])
    found = inputs.cut(interp.Batch(torch.arange(8).view(2, 4) + 1, torch.tensor([2, 3]), labels), 1)
    assert found.tokens.tolist() == [[5, 6, 7]]
    assert found.lengths.tolist() == [3]
    assert found.labels.tolist() == ([[4, 5, 6]] if by_place else [6])
