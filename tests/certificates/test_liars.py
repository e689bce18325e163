"""Lies about numbers and files, drawn by seed: see liars.py."""

import liars
import pytest


@pytest.mark.slow
def test_no_lie_changes_what_is_said() -> None:
    done = liars.run(8, 0)
    assert done.total() == 8
    assert {kind for kind, _ in done} == {"numbers", "files"}


@pytest.mark.slow
def test_no_lie_of_300_changes_what_is_said() -> None:
    done = liars.run(300, 1)
    assert sum(n for (_, verdict), n in done.items() if verdict == "refused") > 100


@pytest.mark.soak
def test_no_lie_of_2000_changes_what_is_said() -> None:
    assert liars.run(2000, 2).total() == 2000
