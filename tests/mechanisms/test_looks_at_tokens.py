"""Where heads look, on constructions where it is known by proof, and on patterns that are planted."""

from __future__ import annotations

import pytest
import torch

import interp
from interp.explanations.parts import CLOSE
from interp.measures.runs import Part
from interp.measures.subject import Subject
from interp.mechanisms.attention import closeness, sharp
from interp.mechanisms.base import found, mechanisms
from interp.mechanisms.bench import Bench
from interp.populations import sample

BEHIND = "looks at the tokens that followed earlier occurrences of the current one"
LAST = "looks at the token that followed the most recent earlier occurrence of the current one"
KNOWN = {
    ("algorithmic/max-of-k-exact", 0, 0): ("looks at the largest number",),
    ("histogram/dot-exact", 0, 0): (
        "gives all occurrences of the current token one weight and everything else another",
    ),
    ("algorithmic/induction-exact", 0, 0): ("looks at the previous token",),
    ("algorithmic/induction-exact", 1, 0): ("looks evenly at everything it sees",),  # a head of zeros
    ("algorithmic/induction-exact", 1, 1): (BEHIND, LAST),
}


@pytest.mark.parametrize("key", KNOWN, ids=str)
def test_known_patterns_are_found(key: tuple[str, int, int]) -> None:
    name, layer, head = key
    subject = Subject.of(interp.build(name))
    bench = Bench(subject, sample(subject.task, 200))
    one = found(bench, Part(layer, head), "pattern", [], 0.99, CLOSE)
    assert one is not None
    assert one.proposal.words in KNOWN[key]


def test_a_wrong_pattern_is_not_close_and_loses_answers() -> None:
    """Max of k that looked everywhere, or at the smallest number, would not answer the largest."""
    subject = Subject.of(interp.build("algorithmic/max-of-k-exact", K=3, v=8))
    bench = Bench(subject, sample(subject.task, 200))
    proposals = {one.mechanism: one for make in mechanisms("pattern").values() for one in make(bench, Part(0, 0))}
    for wrong in ("everywhere", "smallest number", "first token"):
        assert bench.kept([proposals[wrong].edit]).share < 0.9
        assert proposals[wrong].fit < CLOSE
    assert proposals["largest number"].fit > 0.99


def test_sharp_patterns_and_closeness_by_hand() -> None:
    holds = torch.tensor([[[True, False], [False, False]]])
    visible = torch.tensor([[[True, False], [True, True]]])
    ideal = sharp(holds, visible)
    assert ideal.tolist() == [[[1.0, 0.0], [0.5, 0.5]]]
    every = torch.ones(1, 2, dtype=torch.bool)
    assert closeness(ideal, ideal, every) == 1.0
    assert closeness(1 - ideal, ideal, every) == 0.5  # wrong in the first row, equal in the second
