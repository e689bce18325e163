"""What a part carries, on constructions where it is known."""

from __future__ import annotations

import torch

import interp
from interp.measures.runs import Part
from interp.measures.subject import Subject
from interp.mechanisms.base import found, mechanisms
from interp.mechanisms.bench import Bench
from interp.mechanisms.carries import cell_means, explained
from interp.mechanisms.quantities import Quantity
from interp.populations import sample

HEAD = Part(0, 0)


def bench(name: str, hints: tuple[tuple[str, ...], ...] = (), **sizes: int) -> Bench:
    model = interp.build(name, **sizes)
    made = Bench(Subject.of(model), sample(model.task, 400))
    return Bench(made.subject, made.population, tuple(Quantity(made.setting, h[0], h[1:]) for h in hints))


def test_mechanisms_of_both_kinds_are_discovered() -> None:
    assert {"carries", "waves"} <= set(mechanisms("output"))
    assert {"same token", "offset", "extreme number", "by token", "everywhere"} <= set(mechanisms("pattern"))


def test_the_head_of_a_relation_carries_the_count() -> None:
    one = found(bench("histogram/dot-exact", (("own count", "seen"),), T=6, L=6), HEAD, "output", [], 0.99)
    assert one is not None
    assert one.proposal.words == "carries how often its own token occurs"
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
