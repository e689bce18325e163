from collections import Counter
from math import comb

import pytest

from interp.errors import InterpError
from interp.measures.subsets import all_subsets, check_groups, sample_subsets


def test_all_subsets() -> None:
    assert all_subsets(3) == [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]
    assert len(set(all_subsets(10))) == 2**10 - 1


@pytest.mark.parametrize(("n_heads", "n"), [(16, 1), (16, 10), (16, 500), (30, 200), (4, 15), (4, 14), (1, 1)])
def test_sample_is_even_over_sizes(n_heads: int, n: int) -> None:
    sample = sample_subsets(n_heads, n, seed=3)
    assert len(sample) == len(set(sample)) == n
    assert all(group == tuple(sorted(group)) and set(group) <= set(range(n_heads)) for group in sample)
    sizes = Counter(map(len, sample))
    most = max(sizes.values())
    # A size may fall behind the most drawn one only because it has no more subsets (or by one).
    assert all(sizes[size] >= min(comb(n_heads, size), most - 1) for size in range(1, n_heads + 1))


def test_sample_depends_on_the_seed_only() -> None:
    assert sample_subsets(16, 50, seed=1) == sample_subsets(16, 50, seed=1) != sample_subsets(16, 50, seed=2)


@pytest.mark.parametrize("n", [0, -1, 16])
def test_impossible_sample(n: int) -> None:
    with pytest.raises(InterpError, match=f"a sample of {n} subsets was asked for, but 4 heads have 15"):
        sample_subsets(4, n, seed=0)


@pytest.mark.parametrize(
    ("group", "sentence"), [(3, "3 is not a group of heads"), ("01", "'01' is not a group of heads")]
)
def test_what_is_no_group(group: object, sentence: str) -> None:
    with pytest.raises(InterpError, match=sentence):
        check_groups([group], 4)
