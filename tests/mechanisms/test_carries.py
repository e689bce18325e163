"""What a part carries, on constructions where it is known."""

from __future__ import annotations

import re

import torch

import interp
from interp.measures.runs import Part
from interp.measures.subject import Subject
from interp.mechanisms.base import found, mechanisms
from interp.mechanisms.bench import Bench, Mean
from interp.mechanisms.carries import _in_steps, cell_means, coded, explained
from interp.mechanisms.quantities import Quantity
from interp.populations import sample

HEAD = Part(0, 0)


def bench(name: str, hints: tuple[tuple[str, ...], ...] = (), n: int = 400, **sizes: int) -> Bench:
    model = interp.build(name, **sizes)
    made = Bench(Subject.of(model), sample(model.task, n))
    return Bench(made.subject, made.population, tuple(Quantity(made.setting, h[0], h[1:]) for h in hints))


def test_mechanisms_of_both_kinds_are_discovered() -> None:
    assert {"carries", "waves"} <= set(mechanisms("output"))
    assert {"same token", "offset", "extreme number", "by token", "everywhere"} <= set(mechanisms("pattern"))


def test_the_head_of_a_relation_carries_the_count() -> None:
    one = found(bench("histogram/dot-exact", (("own count", "seen"),), T=6, L=6), HEAD, "output", [], 0.99)
    assert one is not None
    assert one.proposal.words == "carries how often the current token occurs"
    assert one.kept.changed == 0


def test_the_head_of_max_of_k_carries_the_largest_number() -> None:
    one = found(bench("algorithmic/max-of-k-exact", K=3, v=6), HEAD, "output", [], 0.99)
    assert one is not None
    assert one.proposal.words == "carries the largest number"


def test_the_wrong_quantity_loses_answers() -> None:
    """A planted hypothesis: the head of max-of-k carries the smallest number."""
    made = bench("algorithmic/max-of-k-exact", K=3, v=6)
    wrong = Quantity(made.setting, "extreme", ("smallest", 1))
    from interp.mechanisms.carries import _proposal

    kept = made.kept([_proposal(made, HEAD, [wrong], made.matters(HEAD)).edit])
    assert kept.share < 0.9


def test_means_and_variance_by_hand() -> None:
    output, codes = torch.tensor([[0.0], [2.0], [10.0], [12.0]]), torch.tensor([0, 0, 1, 1])
    assert cell_means(output[None], codes[None], torch.ones(1, 4, dtype=torch.bool)).tolist() == [[1.0], [11.0]]
    assert abs(explained(output.double(), codes) - 100 / 104) < 1e-12
    assert explained(torch.ones(4, 1).double(), codes) == 0.0


def test_a_number_with_many_values_is_carried_in_steps() -> None:
    """The head of count01/minimal tells 1s from 0s; their difference has too many values to list."""
    made = bench("count01/minimal", (("difference", "1", "0", "seen"),), n=200)
    matters = made.matters(HEAD)
    assert coded(made.hints, made, matters) is None
    one = found(made, HEAD, "output", [], 0.99)
    assert one is not None
    assert re.fullmatch(
        r"carries the number of [01]s minus the number of [01]s, rounded to \d+ levels", one.proposal.words
    )


def test_steps_hold_equally_many_and_equal_values_stay_together() -> None:
    known, codes = _in_steps(torch.tensor([3, 0, 0, 0, 1, 2, 4, 5]), 4)
    assert codes.tolist() == [2, 0, 0, 0, 1, 2, 3, 3]
    assert len(known) == 4


def test_a_head_that_is_not_needed_must_resemble_what_is_said() -> None:
    """Where the mean does as well, any quantity keeps the answers: what is said must give half of the variance."""
    made = bench("languages/parity")
    spare = Part(0, 1)
    assert made.kept([Mean.of(made, spare)]).least >= 0.99
    one = found(made, spare, "output", [], 0.99)
    assert one is None or one.proposal.fit >= 0.5
