"""Random, trained and damaged adders of every architecture, certified, and every statement compared with all inputs."""

from collections import Counter

import pytest
from small_adders import one_case


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.thinned(4)
def test_some_adders(seed: int) -> None:
    one_case(seed)


@pytest.mark.parametrize("cases", [pytest.param(60, marks=pytest.mark.slow), pytest.param(500, marks=pytest.mark.soak)])
def test_many_adders(cases: int) -> None:
    """No false certificate, no false counterexample, exact numbers equal: see small_adders.compare."""
    found = Counter((kind, status) for kind, status, _, _ in map(one_case, range(1000, 1000 + cases)))
    assert found.total() == cases
    assert found["exact", "certified"] > 0
    assert found["damaged", "certified"] > 0
    assert found["damaged", "refuted"] > 0
