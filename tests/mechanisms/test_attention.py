"""Ideal patterns of a relation, graded and sharp, by hand and on a head whose pattern is planted."""

from __future__ import annotations

import torch
from torch import Tensor

import interp
from interp.measures.runs import Part
from interp.measures.subject import Subject
from interp.mechanisms.attention import Relation, closeness, explained, graded, proposals
from interp.mechanisms.bench import Bench
from interp.populations import everything

HEAD = Part(0, 0)


def planted(weights: Tensor | None = None) -> Bench:
    """Max of three numbers below 4; its head is seen with these weights on the keys, at each position."""
    subject = Subject.of(interp.build("algorithmic/max-of-k-exact", K=3, v=4))
    bench = Bench(subject, everything(subject.task))
    if weights is not None:
        bench.activation("blocks.0.attn.hook_pattern")[:, 0] = spread(bench, weights)
    return bench


def spread(bench: Bench, weights: Tensor) -> Tensor:
    """Weights on the first keys, none on the others, as a pattern of all rows."""
    row = torch.zeros(bench.visible.shape[-1])
    row[: len(weights)] = weights
    return (row / row.sum()).expand(bench.visible.shape).clone()


def at(bench: Bench, key: int) -> Relation:
    holds = torch.zeros_like(bench.visible)
    holds[:, :, key] = True
    return Relation(f"at place {key}", holds)


def test_a_planted_pattern_is_close_to_its_relation_alone() -> None:
    bench = planted(torch.tensor([1.0]))
    fits = [next(proposals(bench, HEAD, "place", at(bench, key))).fit for key in (0, 1)]
    assert fits == [1.0, 0.0]


def test_half_of_the_attention_is_half_as_close() -> None:
    bench = planted(torch.tensor([1.0, 1.0]))
    sharp, form = proposals(bench, HEAD, "place", at(bench, 0))
    assert sharp.fit == 0.5
    assert sharp.words == "looks at place 0"
    assert form.words == "gives place 0 one weight and everything else another (marks a third)"


def test_the_graded_form_of_a_graded_pattern_is_itself() -> None:
    """One weight each for the place, the other numbers and the mark behind them: 4 to 1 to 1, but not 4 to 2 to 1."""
    bench = planted()
    matters, holds = bench.matters(HEAD), at(bench, 0).holds
    for weights, same in (([4.0, 1.0, 1.0], True), ([4.0, 2.0, 1.0], False)):
        actual = spread(bench, torch.tensor(weights))
        form, constants = graded(bench, actual, holds, matters, softmax=True)
        assert constants == 3
        assert (closeness(actual, form, matters) > 1 - 1e-6) is same


def test_a_relation_that_never_or_always_holds_is_not_proposed() -> None:
    bench = planted()
    never = Relation("nowhere", torch.zeros_like(bench.visible))
    assert list(proposals(bench, HEAD, "never", never)) == []
    assert list(proposals(bench, HEAD, "always", Relation("anywhere", bench.visible))) == []
    assert list(proposals(bench, Part(0, None), "place", at(bench, 0))) == []  # an MLP looks nowhere


def test_variance_of_scores_and_closeness_by_hand() -> None:
    actual, judged = torch.tensor([[[1.0, 3.0]]]), torch.ones(1, 1, 2, dtype=torch.bool)
    assert explained(actual, actual, judged) == 1.0
    assert explained(actual, torch.full_like(actual, 2.0), judged) == 0.0
    assert explained(actual, torch.tensor([[[1.0, 2.0]]]), judged) == 0.5
    assert explained(torch.ones(1, 1, 2), actual, judged) == 0.0  # nothing varies
    nothing = torch.zeros(1, 1, dtype=torch.bool)
    assert closeness(actual, actual, nothing) == 0.0
