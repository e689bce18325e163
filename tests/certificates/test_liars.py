"""Lies about tasks, models and files, drawn by seed: see liars.py."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import liars

sys.path.pop(0)


def test_no_lie_changes_what_is_said() -> None:
    done = liars.run(14, 0)
    assert done.total() == 14
    assert {kind for kind, _ in done} == {"tasks", "models", "numbers", "files"}


@pytest.mark.slow
def test_no_lie_of_300_changes_what_is_said() -> None:
    done = liars.run(300, 1)
    assert sum(n for (_, verdict), n in done.items() if verdict == "refused") > 100


@pytest.mark.soak
def test_no_lie_of_2000_changes_what_is_said() -> None:
    assert liars.run(2000, 2).total() == 2000


def test_a_lie_that_is_not_refused_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interp.tasks.snapshot._difference", lambda task, fresh: None)
    monkeypatch.setattr("interp.certificates.frozen.snapshot", lambda task: task)
    with pytest.raises(AssertionError, match="and without the lie"):
        [liars.tasks(random.Random(seed)) for seed in range(20)]
