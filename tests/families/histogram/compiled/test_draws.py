"""The samplers against their exact distributions, and against a plain reading of the algorithm."""

from __future__ import annotations

import numpy as np
import pytest
from histogram_kernel import Kernel

from interp.errors import InterpError
from interp.families.histogram.tasks import SAMPLERS, count_distribution


def one_sequence(sampler: str, T: int, L: int, generator: np.random.Generator) -> np.ndarray:
    """The published algorithm, one sample at a time."""
    left, unused = L, list(range(T))
    sequence: list[int] = []
    while left:
        k = int(generator.integers(1, left if sampler == "published" and left > 1 else left + 1))
        sequence += [unused.pop(int(generator.integers(len(unused))))] * k
        left -= k
    return generator.permutation(np.array(sequence))


def counts_of(tokens: np.ndarray) -> np.ndarray:
    return np.array([[list(row).count(t) for t in row] for row in tokens])


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_drawn_sequences_have_the_exact_distribution(sampler: str) -> None:
    T, L, n = 12, 6, 20_000
    kernel = Kernel("lin", T, L, 2, 2, L, sampler=sampler)
    tokens = kernel.draw(1, n)
    plain = np.array([one_sequence(sampler, T, L, np.random.default_rng([2, i])) for i in range(4000)])
    for count, share in count_distribution(sampler, L).items():
        for sample in (tokens, plain):
            # Positions with the same token go together: at most L of them are one draw.
            error = 5 * np.sqrt(float(share) * L / len(sample) / L) + 1e-12
            assert abs((counts_of(sample) == count).mean() - float(share)) <= error
    frequency = np.stack([(tokens == t).mean(0) for t in range(T)])  # every token equally often at every position
    assert np.abs(frequency - 1 / T).max() < 5 * np.sqrt(1 / T / n)
    distinct, distinct_plain = ([len(set(row)) for row in sample] for sample in (tokens[:4000], plain))
    assert np.mean(distinct) == pytest.approx(np.mean(distinct_plain), abs=0.1)


def test_positions_are_shuffled_independently_of_the_counts() -> None:
    tokens = Kernel("lin", 10, 5, 2, 2, 5).draw(3, 20_000)
    equal = np.stack([[(tokens[:, i] == tokens[:, j]).mean() for j in range(5)] for i in range(5)])
    off_diagonal = equal[~np.eye(5, dtype=bool)]
    assert np.ptp(off_diagonal) < 0.025
    assert off_diagonal.mean() == pytest.approx(
        float(sum((c - 1) * share for c, share in count_distribution("published", 5).items())) / 4, abs=0.01
    )


def test_seeds_fix_the_sequences_and_neighbors_are_independent() -> None:
    kernel = Kernel("lin", 32, 10, 2, 2, 11)
    assert np.array_equal(kernel.draw(5, 100), kernel.draw(5, 100))
    agreement = (kernel.draw(5, 2000) == kernel.draw(6, 2000)).mean()
    assert agreement == pytest.approx(1 / 32, abs=0.01)
    assert kernel.draw(2**64 - 1, 1).shape == (1, 10)


def test_smallest_alphabet_serves_every_sequence() -> None:
    tokens = Kernel("dot", 4, 4, 2, 2, 5, sampler="paper").draw(1, 3000)
    assert {len(set(row)) for row in tokens.tolist()} == {1, 2, 3, 4}


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(InterpError, match="did you mean 'paper'"):
        count_distribution("papper", 3)
    with pytest.raises(InterpError, match="L = 0"):
        count_distribution("paper", 0)
