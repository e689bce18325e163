"""The kinds of memorization tables, by class and by function, and the input that none of them takes."""

import hashlib
import inspect
from typing import Any

import numpy as np
import pytest
import torch

import interp
from interp.families.memorization import ConditionalTable, bigram, kgram, lookup, low_rank, table
from interp.families.memorization.tasks.tables import table_task
from interp.families.memorization.theory.drawn_tables import dirichlet_table, lookup_table, low_rank_table
from interp.tasks import make_task


@pytest.mark.parametrize(("task", "same"), [
    (bigram(7, 5, 0.3, seed=2), dirichlet_table(7, 5, 0.3, prior="zipf", seed=2)),
    (kgram(3, 3, 2, 0.7, "stationary", 1), dirichlet_table(3, 3, 0.7, order=2, prior="stationary", seed=1)),
    (lookup(4, 6, 2, 0.1, seed=3), lookup_table(4, 6, 0.1, order=2, seed=3)),
    (lookup(4, 6, 1, 0.1, 0.5), lookup_table(4, 6, 0.1, noise_concentration=0.5)),
    (low_rank(9, 5, 1, 2, 0.0, seed=5), low_rank_table(9, 5, 2, 0.0, seed=5)),
])  # fmt: skip
def test_tasks_are_their_tables_and_load_from_references(task: Any, same: ConditionalTable) -> None:
    for one in (task, make_task(task.ref)):
        assert np.array_equal(one.conditional, same.conditional)
        assert np.array_equal(one.prior, same.prior)
        assert one.contexts == same.contexts
    assert task.ref.table_sha256 is None


def test_the_default_bigram_is_always_the_same_table() -> None:
    # A shipped model is measured against this table, so another numpy must not draw another one.
    digits = np.round(bigram().conditional, 9).tobytes()
    assert hashlib.sha256(digits).hexdigest()[:16] == "e03aa718ff5d96e9"


def test_a_table_of_your_own() -> None:
    rows = np.random.default_rng(0).dirichlet(np.ones(4), size=9).reshape(3, 3, 4)
    task = table(rows, prior=np.arange(1, 10) / 45)
    assert (task.order, task.d_vocab, task.n_out) == (2, 3, 4)
    again = make_task(task.ref, task.tables())
    assert again.ref == task.ref
    assert again.contexts == task.contexts
    with pytest.raises(interp.InterpError, match="sha256"):
        make_task(task.ref)
    assert table_task(task) is task
    assert np.array_equal(table_task(bigram(3, 2, prior="uniform"), prior=[0.5, 0.25, 0.25]).prior, [0.5, 0.25, 0.25])


def test_priors_of_your_own() -> None:
    prior = [0.7, 0.2, 0.1]
    for task in (
        bigram(3, 4, prior=prior),
        kgram(3, 4, 1, prior=prior),
        lookup(3, 4, 1, prior=prior),
        low_rank(3, 4, prior=prior),
    ):
        assert task.prior == pytest.approx(prior)
        assert task.ref.name == "table"


@pytest.mark.parametrize(("rows", "keywords", "word"), [
    ([[0.3, 0.6]], {}, "do not sum to one"), ([[1.2, -0.2]], {}, "negative"), ([[float("nan"), 1.0]], {}, "nan"),
    ([[0.5, 0.5]], {"prior": [0.5, 0.5]}, "prior has shape"), ([[0.5, 0.5]], {"prior": [-1.0]}, "prior"),
    ([[0.5, 0.5]] * 2, {"contexts": [(0,)]}, "contexts"), ([0.5, 0.5], {}, "shape"),
    (np.ones((2, 3, 2)) / 2, {}, "equally long"), ("abc", {}, "not an array of numbers"),
])  # fmt: skip
def test_bad_tables_are_refused_in_one_sentence(rows: Any, keywords: dict[str, Any], word: str) -> None:
    with pytest.raises(interp.InterpError, match=word) as error:
        table(rows, **keywords)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("make", "arguments", "word"), [
    (bigram, {"N": 0}, "N = 0"), (bigram, {"concentration": 0.0}, "concentration"),
    (bigram, {"prior": "zpif"}, "zipf"), (bigram, {"prior": "stationary"}, "equally many"),
    (bigram, {"seed": -1}, "seed = -1"), (lookup, {"noise": 1.0}, "noise"), (low_rank, {"rank": -1}, "rank"),
    (kgram, {"k": 0}, "k = 0"),
])  # fmt: skip
def test_bad_parameters(make: Any, arguments: dict[str, Any], word: str) -> None:
    with pytest.raises(interp.InterpError, match=word):
        inspect.unwrap(make)(**arguments)


@pytest.mark.parametrize("tables", [
    {},
    {"conditional": torch.ones(1, 2) / 2},
    {"conditional": torch.ones(1, 2) / 2, "prior": torch.ones(1), "contexts": torch.zeros(1)},
    {"conditional": torch.ones(1, 2) / 2, "prior": torch.ones(1), "contexts": -torch.ones(1, 1).long()},
    {"conditional": torch.ones(1, 2), "prior": torch.ones(1), "contexts": torch.zeros(1, 1).long()},
    {"conditional": torch.full((1, 2), torch.nan), "prior": torch.ones(1), "contexts": torch.zeros(1, 1).long()},
])  # fmt: skip
def test_tables_of_a_file_are_checked(tables: dict[str, torch.Tensor]) -> None:
    with pytest.raises(interp.InterpError):
        interp.families.memorization.GivenTable.from_tables(tables)


def test_theory_takes_tasks() -> None:
    task = bigram(N=6, M=4, prior="uniform")
    assert interp.families.memorization.entropy(task) == pytest.approx(
        -float((task.prior[:, None] * task.conditional * np.log(task.conditional)).sum())
    )
    best = interp.families.memorization.rank_d_optimum(task, d=3)
    assert best.exact
    assert "a larger d gains nothing" in best.evidence


def test_listing_needs_no_table() -> None:
    rows = interp.list_tasks().set_index("name")
    assert rows.loc["bigram", "tokens"] == 100
    assert rows.loc["table", ["tokens", "outputs"]].isna().all()
