"""What bounds leave open is counted: exact errors, whatever the number of threads, and never a false word."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from drawn_weights import draw

import interp
from interp.families.histogram import Histogram
from interp.families.histogram.certificates import certify as histogram
from interp.families.histogram.certificates import counted as histogram_counted
from interp.families.histogram.certificates import walk as histogram_walk
from interp.families.histogram.certificates.certify import _bound_roots, _thresholds
from interp.families.histogram.certificates.counted import BOUNDS_A_SECOND, count_rest, counting_refusal, table_bytes
from interp.families.histogram.certificates.search import OwnToken
from interp.families.histogram.certificates.tables import Tables, tables_of
from interp.families.histogram.certificates.walk import Walk
from interp.families.histogram.constructions.models import histogram_spec
from interp.families.histogram.theory.ranges import MixingKind
from interp.support import resources
from interp.support.resources import Budget

KINDS: tuple[MixingKind, ...] = ("dot", "dot-softmax", "bos", "bos-softmax")


def random_model(kind: MixingKind, T: int = 6, L: int = 5, p: int = 6, seed: int = 3) -> interp.TaskModel:
    task = Histogram(T=T, L=L, bos=kind.startswith("bos"), zero_class=True)
    model = interp.build(histogram_spec(kind, task, 3, p, "float64"), seed=seed)
    draw(model, seed, dtype=torch.float64)
    return model


def start(model: interp.TaskModel) -> tuple[Tables, list[OwnToken], np.ndarray, np.ndarray]:
    tables = tables_of(model)
    need, slack = _thresholds(model, tables)
    return tables, [_bound_roots(tables, token, need, slack) for token in range(tables.T)], need, slack


def budget(seconds: float, clock: float | None = None) -> Budget:
    return Budget(clock, BOUNDS_A_SECOND, seconds)


def books(parts: list[OwnToken]) -> list[Any]:
    return [[getattr(part.ledger, name).tolist() for name in ("right", "wrong", "close", "tied")] for part in parts]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_an_accuracy_is_exact_where_nothing_was_split(kind: MixingKind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histogram, "SPLITTING", 0.0)
    model = random_model(kind)
    found = interp.certify(model, seconds=60)
    batch = next(model.task.inputs(chunk=model.task.n_inputs))
    wrong = int(((model.predict(batch.tokens) != batch.labels) & (batch.labels >= 0)).sum())
    assert (found.n_errors, found.status) == (wrong, "refuted")
    assert found.accuracy == (6**5 * 5 - wrong) / (6**5 * 5)
    assert any("multisets of other tokens were counted" in note for note in found.notes)


@pytest.mark.compiles
def test_threads_give_the_same_whole_numbers() -> None:
    model = random_model("dot-softmax", 8, 6)
    found = []
    for threads in (1, 2, 5):
        tables, parts, need, slack = start(model)
        assert sum(part.undecided.sum() for part in parts) > 0
        count_rest(tables, parts, need, slack, budget(60), threads=threads)
        assert not any(part.is_open for part in parts)
        found.append(books(parts))
    assert found[0] == found[1] == found[2]


def test_without_time_nothing_is_counted() -> None:
    tables, parts, need, slack = start(random_model("dot"))
    before = [part.undecided.tolist() for part in parts]
    assert count_rest(tables, parts, need, slack, budget(0)) is None
    assert [part.undecided.tolist() for part in parts] == before


@pytest.mark.compiles
def test_what_the_budget_cuts_off_stays_undecided_on_any_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a clock that runs at any speed: the default has none."""
    monkeypatch.setattr(histogram_walk, "WORK", 10.0)
    monkeypatch.setattr(histogram_counted, "HOPELESS", np.inf)
    clock = iter(range(0, 10**9, 1000))
    monkeypatch.setattr(resources.time, "monotonic", lambda: float(next(clock)))
    told: list[int] = []
    found = []
    for threads in (1, 2, 5):
        told.clear()
        tables, parts, need, slack = start(random_model("dot", 8, 6, seed=4))
        before = [part.undecided.copy() for part in parts]
        note = count_rest(tables, parts, need, slack, budget(4e-4), lambda done, total: told.append(done), threads)
        assert note is not None
        assert "raise the limit" in note
        done = sum(int((then > 0).sum() - (part.undecided > 0).sum()) for then, part in zip(before, parts))
        assert done == len(told) > 0
        for then, part in zip(before, parts):
            left, book = part.undecided, part.ledger
            assert ((left == then) | (left == 0)).all()
            assert (book.right + book.wrong + book.close + book.tied + left == book.total).all()
        found.append((note, books(parts)))
    assert found[0] == found[1] == found[2]


@pytest.mark.compiles
def test_compiling_the_walk_takes_none_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first walk of a machine takes 100 s here, as a compiler on a slow one; the clock of 5 s starts after it."""
    clock = [0.0]
    plain = Walk.count

    def slow_at_first(self: Walk, *arguments: Any, **named: Any) -> Any:
        if not clock[0]:
            clock[0] = 100.0
        return plain(self, *arguments, **named)

    monkeypatch.setattr(Walk, "count", slow_at_first)
    monkeypatch.setattr(resources.time, "monotonic", lambda: clock[0])
    tables, parts, need, slack = start(random_model("dot"))
    note = count_rest(tables, parts, need, slack, budget(5, clock=5), threads=1)
    assert clock[0] == 100.0
    assert note is not None
    assert "raise the limit" not in note
    assert not any(part.is_open for part in parts)


@pytest.mark.compiles
def test_a_walk_that_would_take_much_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a sixteenth of the budget: what all multisets would take is said, and the rest of the budget is kept."""
    monkeypatch.setattr(histogram_walk, "WORK", 10.0)
    monkeypatch.setattr(histogram_counted, "HOPELESS", 0.01)
    tables, parts, need, slack = start(random_model("dot", 8, 6, seed=4))
    given = budget(4e-4)
    whole = given.steps
    note = count_rest(tables, parts, need, slack, given, threads=1)
    assert note is not None
    assert "s of one core, so raise the limit" in note
    assert given.steps > whole / 2


def test_reasons() -> None:
    assert counting_refusal(tables_of(random_model("dot"))) is None
    assert "order of tokens" in str(counting_refusal(tables_of(interp.build("histogram/lin-exact", T=4, L=3))))
    large = tables_of(interp.build("histogram/dot-exact", T=64, L=10))
    assert "63^9" in str(counting_refusal(large))


def test_tables_that_do_not_fit_in_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = tables_of(random_model("dot"))
    monkeypatch.setattr("interp.support.resources.MEMORY", table_bytes(tables) / 2)
    assert "would take" in str(counting_refusal(tables))


def test_without_numba_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histogram_counted, "find_spec", lambda name: None)
    tables, parts, need, slack = start(random_model("dot"))
    assert "pip install numba" in str(count_rest(tables, parts, need, slack, budget(60)))
    assert any(part.is_open for part in parts)


@pytest.mark.compiles
def test_without_a_bound_of_rounding_nothing_is_right_beyond_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half precision: errors are found all the same."""
    monkeypatch.setattr(histogram, "SPLITTING", 0.0)
    found = interp.certify(random_model("bos").to(torch.bfloat16), seconds=60)
    assert found.status == "refuted"
    assert found.counterexample is not None
    assert found.tables["classes"]["right"].sum() == 0
    assert found.tables["classes"]["close"].sum() > 0


@pytest.mark.compiles
def test_a_count_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    tables, parts, need, slack = start(random_model("dot"))
    with pytest.raises(KeyboardInterrupt):
        count_rest(tables, parts, need, slack, budget(60), stop, threads=2)
    assert not list(tmp_path.iterdir())
