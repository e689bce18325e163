"""What becomes of parts: needed, spare, explained; and replacements that break the whole are given up."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import interp
from interp.explanations.parts import _together, roles, within
from interp.measures.runs import Part
from interp.measures.subject import Subject
from interp.mechanisms.base import Finding, Proposal
from interp.mechanisms.bench import Bench, Clock, Mean
from interp.mechanisms.quantities import Quantity
from interp.populations import sample

HEAD = Part(0, 0)


def bench(name: str, kind: str, *arguments: object, n: int = 200, **sizes: Any) -> Bench:
    one = Subject.of(interp.build(name, **sizes))
    made = Bench(one, sample(one.task, n))
    return replace(made, hints=(Quantity(made.setting, kind, arguments),))


def test_the_head_of_max_of_k_is_needed_and_explained() -> None:
    made = roles(bench("algorithmic/max-of-k-exact", "extreme", "largest", 1, K=3, v=6), 0.99)
    (role,) = made.roles
    assert (role.part, role.status) == (HEAD, "explained")
    assert role.looks is not None
    assert role.carries is not None
    assert str(role.looks) == "head 0.0 looks at the largest number"
    assert str(role.carries) == "head 0.0 carries the largest number"
    assert (made.joint.share, made.cut.share, made.complete) == (1.0, 1.0, True)
    assert made.empty.share < 0.9


def test_the_spare_heads_of_induction_are_cut() -> None:
    made = roles(bench("algorithmic/induction-exact", "own count", "seen"), 0.99)
    assert {role.part for role in made.of("cut")} == {Part(0, 1), Part(1, 0)}
    assert made.cut.least >= 0.99


def test_without_time_every_part_is_kept() -> None:
    made = bench("algorithmic/max-of-k-exact", "extreme", "largest", 1, K=3, v=6)
    Mean.of(made, HEAD)  # its activations are known already
    made.clock.until = time.monotonic() - 1
    assert within(made, lambda: 1, 2) == 2
    assert within(replace(made, clock=Clock()), lambda: 1, 2) == 1
    found = roles(made, 0.99)
    assert [role.status for role in found.roles] == ["kept"]
    assert not found.complete


def test_a_replacement_that_breaks_the_whole_is_given_up() -> None:
    """Planted: a finding whose form is the head's mean, which loses most answers."""
    made = bench("algorithmic/max-of-k-exact", "extreme", "largest", 1, K=3, v=6)
    mean = Mean.of(made, HEAD)
    wrong = Finding(Proposal("planted", "output", HEAD, "carries nothing", mean), made.kept([mean]))
    used, kept = _together(made, [], [wrong], 0.99)
    assert used == []
    assert kept.share == 1.0
