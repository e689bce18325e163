import numpy as np
import pytest
import torch
from closeness import close

from interp.errors import InterpError
from interp.families.memorization.theory.drawn_tables import dirichlet_table, lookup_table, low_rank_table, named_prior
from interp.families.memorization.theory.table import ConditionalTable, as_table

GOOD = np.array([[0.5, 0.5], [0.25, 0.75]])


@pytest.mark.parametrize(("conditional", "prior", "says"), [
    ([[0.5, 0.6], [0.5, 0.5]], None, "row 0 sums to 1.1"),
    ([[1.5, -0.5], [0.5, 0.5]], None, "cannot be negative"),
    ([[np.nan, 1.0], [0.5, 0.5]], None, "entry (0, 0) of the table is nan"),
    ([0.5, 0.5], None, "shape (2,)"),
    ([[1.0], [1.0]], None, "one output"),
    (np.zeros((0, 3)), None, "neither empty"),
    (GOOD, [0.5, 0.25, 0.25], "the prior has shape (3,) but the table has 2 contexts"),
    (GOOD, [0.5, 0.4], "the prior sums to 0.9"), (GOOD, [1.5, -0.5], "entry 1 of the prior is -0.5"),
    (GOOD, [np.nan, 1.0], "entry 0 of the prior is nan"), ([["a", "b"]], None, "not an array of numbers"),
    (np.full((2, 3, 2), 0.5), None, "must be equally long"),
])  # fmt: skip
def test_bad_tables_get_one_clear_sentence(conditional, prior, says):
    with pytest.raises(InterpError) as problem:
        as_table(conditional, prior)
    assert says in str(problem.value)
    assert "\n" not in str(problem.value)


def test_contexts_must_fit():
    for contexts, says in [
        ([(0,)], "1 contexts"),
        ([(0,), (0,)], "different"),
        ([(0,), (0, 1)], "same number"),
        ([(0,), (-1,)], "negative"),
    ]:
        with pytest.raises(InterpError, match=says):
            as_table(GOOD, None, contexts)


def test_a_table_made_directly_is_checked_too():
    with pytest.raises(InterpError, match="row 0 sums to 2"):
        ConditionalTable(2 * GOOD, np.full(2, 0.5), ((0,), (1,)))


def test_a_table_is_checked_copied_and_frozen():
    source = GOOD.copy()
    table = as_table(source)
    source[0, 0] = 9
    assert table.conditional[0, 0] == 0.5
    np.testing.assert_array_equal(table.prior, [0.5, 0.5])
    assert table.contexts == ((0,), (1,))
    with pytest.raises(ValueError):
        table.conditional[0, 0] = 1
    assert as_table(table) is table
    assert as_table(table, [1.0, 0.0]).prior[0] == 1


def test_float32_rounding_is_accepted_and_rows_then_sum_to_one():
    table = as_table(torch.softmax(torch.randn(7, 50, generator=torch.Generator().manual_seed(0)), dim=1))
    close(table.conditional.sum(axis=1), 1, atol=1e-15)


def test_kgram_arrays_and_table_like_objects():
    rows = np.random.default_rng(0).dirichlet(np.ones(5), size=(3, 3))
    table = as_table(rows, np.full((3, 3), 1 / 9))
    assert (table.n_contexts, table.n_outputs, table.n_tokens, table.order) == (9, 5, 3, 2)
    assert table.contexts[5] == (1, 2)
    np.testing.assert_allclose(table.conditional[5], rows[1, 2])

    class Task:
        conditional = rows
        prior = np.full(9, 1 / 9)

    assert as_table(Task()).complete
    assert not as_table(GOOD, contexts=((0,), (3,))).complete


def test_log_conditional_floors_zeros_only_below_the_floor():
    table = as_table([[1.0, 0.0], [0.5, 0.5]])
    assert table.has_zeros
    np.testing.assert_allclose(table.log_conditional(1e-6)[0], [0, np.log(1e-6)])
    with pytest.raises(InterpError, match=r"floor is 0\.0"):
        table.log_conditional(0.0)


@pytest.mark.parametrize("concentration", [1e-3, 0.1, 1.0, 50.0])
def test_dirichlet_rows_have_the_dirichlet_moments(concentration):
    table = dirichlet_table(20_000, 4, concentration, seed=1)
    assert np.isfinite(table.conditional).all()
    variance = (1 / 4) * (3 / 4) / (4 * concentration + 1)
    close(table.conditional.mean(axis=0), 0.25, atol=5 * np.sqrt(variance / 20_000))
    np.testing.assert_allclose(table.conditional.var(axis=0), variance, rtol=0.06)


def test_rows_of_a_tiny_concentration_have_one_output_each():
    """Every draw underflows there; in the limit all of a row's probability is on one output."""
    rows = dirichlet_table(50, 6, concentration=1e-4, seed=0).conditional
    close(rows.sum(1), 1, atol=1e-12)
    assert (rows.max(1) > 1 - 1e-6).sum() >= 45
    assert len(set(rows.argmax(1))) > 1


def test_generators_are_seeded_and_spare_the_global_generator():
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    for make in (lambda s: dirichlet_table(5, 4, 0.3, seed=s), lambda s: low_rank_table(5, 4, 2, 0.1, seed=s)):
        np.testing.assert_array_equal(make(3).conditional, make(3).conditional)
        assert not np.array_equal(make(3).conditional, make(4).conditional)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


def test_lookup_tables():
    table = lookup_table(4, 5, 0.2, targets=[4, 0, 0, 2])
    np.testing.assert_allclose(table.conditional[0], [0.05, 0.05, 0.05, 0.05, 0.8])
    uneven = lookup_table(4, 5, 0.2, targets=[4, 0, 0, 2], noise_concentration=0.5)
    np.testing.assert_array_equal(uneven.conditional.argmax(axis=1), [4, 0, 0, 2])
    np.testing.assert_allclose(uneven.conditional.max(axis=1), 0.8)
    assert lookup_table(3, 3, 0.0, order=2).conditional.shape == (9, 3)
    for arguments in ({"noise": 1.0}, {"targets": [0, 1]}, {"targets": [0, 1, 2, 5]}, {"noise_concentration": 0.0}):
        with pytest.raises(InterpError):
            lookup_table(4, 5, **arguments)


def test_low_rank_table_has_the_rank_of_its_logits():
    logs = np.log(low_rank_table(30, 12, 3, seed=0).conditional)
    values = np.linalg.svd(logs - logs.mean(axis=1, keepdims=True), compute_uv=False)
    assert values[2] > 1
    assert values[3] < 1e-12


def test_priors():
    np.testing.assert_allclose(named_prior("zipf", 4) * 25 / 12, [1, 1 / 2, 1 / 3, 1 / 4])
    np.testing.assert_allclose(dirichlet_table(4, 3, prior="zipf").prior, named_prior("zipf", 4))
    with pytest.raises(InterpError, match="did you mean 'zipf'"):
        named_prior("zip", 4)
    stationary = dirichlet_table(3, 3, order=2, prior="stationary", seed=2)
    # Independent reference: walk the chain for long from any start.
    distribution = np.eye(9)[4].reshape(3, 3)
    for _ in range(500):
        distribution = np.einsum("ab,abc->bc", distribution, stationary.conditional.reshape(3, 3, 3))
    close(stationary.prior, distribution.reshape(-1), atol=1e-12)


def test_how_far_a_sum_may_be_from_one():
    """float32 rounding is accepted and divided out, a hundred times as much is refused, of rows and of the prior."""
    rows = np.array([[0.25, 0.75], [0.5, 0.5 + 5e-7]])
    assert as_table(rows).conditional[1].tolist() == (rows[1] / rows[1].sum()).tolist()
    with pytest.raises(InterpError, match="row 1 sums to"):
        as_table(rows + np.array([[0, 0], [0, 1e-5]]))
    with pytest.raises(InterpError, match="the prior sums to"):
        as_table(rows, [0.5, 0.5 + 1e-5])
