"""What the package writes of random models holds, and is true of all their inputs: see attack_evidence."""

import random
from collections import Counter
from pathlib import Path

import attack_evidence
import pytest


def test_evidence_of_random_models_holds(tmp_path: Path) -> None:
    found = Counter(attack_evidence.one(random.Random(seed), tmp_path) for seed in (18, 43, 45, *range(5)))
    assert found["refuted, evidence holds"]
    assert found["certified, evidence holds"]


@pytest.mark.slow
def test_evidence_of_300_random_models_holds(tmp_path: Path) -> None:
    found = Counter(attack_evidence.one(random.Random(1000 + seed), tmp_path) for seed in range(300))
    assert {"refuted, evidence holds", "certified, evidence holds", "refused"} <= set(found)
