from itertools import product

import numpy as np
import pytest
from closeness import close

from interp.errors import InterpError
from interp.families.memorization import as_table, rank_d_optimum
from interp.families.memorization.theory import drawn_tables, kl
from interp.families.memorization.theory.stationarity import (
    advance,
    position_priors,
    proposition1_applies,
    stationary_prior,
)


def sequence_divergence(table, logits, length):
    """d^S of a model that reads only the last k tokens, by enumerating every sequence (erratum 1's formula)."""
    n, k = table.n_tokens, table.order
    index = {context: i for i, context in enumerate(table.contexts)}
    log_q = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    total = 0.0
    for tokens in product(range(n), repeat=length):
        steps = [(index[tokens[i - k : i]], tokens[i]) for i in range(k, length)]
        probability = table.prior[steps[0][0]] * np.prod([table.conditional[step] for step in steps])
        total += probability * np.mean([np.log(table.conditional[step]) - log_q[step] for step in steps])
    return total


@pytest.mark.parametrize(("n", "order", "length"), [(3, 1, 6), (2, 2, 7)])
def test_erratum_1_and_2_divergence_is_that_of_the_mean_prior(n, order, length):
    table = drawn_tables.dirichlet_table(n, n, order=order, prior="zipf", seed=0)
    logits = np.random.default_rng(1).normal(size=(n**order, n))
    averaged = position_priors(table, length).mean(axis=0)
    rows = kl.kl_rows(table.conditional, logits)
    assert averaged @ rows == pytest.approx(sequence_divergence(table, logits, length), abs=1e-12)
    assert abs(table.prior @ rows - averaged @ rows) > 1e-4
    # under stationarity the k-gram divergence is d^S for every S
    still = drawn_tables.dirichlet_table(n, n, order=order, prior="stationary", seed=0)
    assert still.prior @ rows == pytest.approx(sequence_divergence(still, logits, length), abs=1e-12)


def sticky_chain():
    """Three hard rows that are left at once for a row that is nearly never left: uniform start, N = M = 4, k = 1."""
    rows = np.array(
        [[0.3, 0.05, 0.05, 0.6], [0.05, 0.3, 0.05, 0.6], [0.05, 0.05, 0.3, 0.6], [0.004, 0.006, 0.01, 0.98]]
    )
    return as_table(rows)


def test_erratum_2_proposition_1_is_false_without_stationarity():
    # There: min d^{k+1} = 0.01024 at d = 1, but a rank-1 map reaches d^S = 0.00040 at S = 50.
    table = sticky_chain()
    assert not proposition1_applies(table)
    claimed = rank_d_optimum(table, 1).kl
    reached = rank_d_optimum(table, 1, prior=position_priors(table, 50).mean(axis=0)).kl
    assert claimed > 0.01
    assert reached < claimed / 10
    still = as_table(table, stationary_prior(table.conditional, 4, 1))
    assert proposition1_applies(still)
    assert rank_d_optimum(still, 1, prior=position_priors(still, 50).mean(axis=0)).kl == pytest.approx(
        rank_d_optimum(still, 1).kl, abs=1e-9
    )


def test_advance_is_one_step_of_the_chain():
    table = drawn_tables.dirichlet_table(3, 3, order=2, prior="zipf", seed=1)
    moved = advance(table.conditional, table.prior, 3, 2)
    slowly = np.zeros(9)
    for i, (first, second) in enumerate(table.contexts):
        del first
        for token in range(3):
            slowly[3 * second + token] += table.prior[i] * table.conditional[i, token]
    close(moved, slowly, atol=1e-15)
    assert position_priors(table, 3).shape == (1, 9)


def test_bad_input():
    with pytest.raises(InterpError, match="equally many"):
        position_priors(drawn_tables.dirichlet_table(3, 4), 5)
    with pytest.raises(InterpError, match="lacks some contexts"):
        position_priors(as_table(np.full((2, 2), 0.5), contexts=((0,), (2,))), 5)
