import csv

import pytest

from interp.errors import InterpError
from interp.families.memorization.theory.capacity import (
    accuracy_lower_bound,
    attention_parameters,
    memorized_associations,
    mlp_width,
)


def test_published_formulas():
    assert memorized_associations(n_heads=20, d_head=10, d=10) == 210
    assert accuracy_lower_bound(50, 1, 3, 3) == pytest.approx(1 / 50 + 49 / 50 * 6 / 2500)
    assert accuracy_lower_bound(4, 100, 10, 10) == 1.0


def test_published_accuracies_of_the_first_rows_meet_the_bound():
    # dana_capacity.csv, experiment 1, d = d_h = 3, vocabulary 50: means of five runs
    published = csv.reader(["1,0.058625", "6,0.065211", "11,0.075781", "16,0.085641"])
    for heads, accuracy in published:
        assert float(accuracy) > accuracy_lower_bound(50, int(heads), 3, 3)


def test_parameters_of_table_c():
    # erratum table C: N = M = 8, d = 4, P = 4 heads: 200; P = 8: 328; P = 16: 584; N = 12, P = 9: 392
    for n, heads, count in [(8, 4, 200), (8, 8, 328), (8, 16, 584), (12, 9, 392), (12, 18, 680), (12, 36, 1256)]:
        assert attention_parameters(n, n, 2, 4, heads) == count


def test_bad_sizes():
    with pytest.raises(InterpError, match="heads is 0"):
        memorized_associations(0, 1, 1)
    with pytest.raises(InterpError, match="tokens is 0"):
        accuracy_lower_bound(0, 1, 1, 1)


@pytest.mark.parametrize(("d", "heads"), [(2, 1), (2, 5), (4, 8), (10, 31)])
def test_an_mlp_of_as_many_parameters(d, heads):
    width = mlp_width(d, heads)
    mlp = width * (2 * d + 1) + d if width else 0  # W_in, b_in, W_out, b_out
    assert abs(mlp - 2 * (heads - 1) * d * d) <= d + (2 * d + 1) / 2
