"""What heads move, on constructions where it is known, and on values that are planted."""

from __future__ import annotations

import pytest
import torch

import interp
from interp.measures.runs import Part
from interp.measures.subject import Subject
from interp.mechanisms.base import found, mechanisms
from interp.mechanisms.bench import Bench
from interp.mechanisms.moves import Values, linear, moves
from interp.populations import sample


def bench_of(name: str, **sizes: int) -> Bench:
    subject = Subject.of(interp.build(name, **sizes))
    return Bench(subject, sample(subject.task, 300))


@pytest.mark.parametrize(
    ("name", "part", "words"),
    [
        ("algorithmic/max-of-k-exact", Part(0, 0), "reads the attended number along one direction"),
        ("histogram/bos-softmax-exact", Part(0, 0), "reads the same from every token of the string"),
        ("algorithmic/induction-exact", Part(0, 0), "reads the attended token"),
        ("algorithmic/induction-exact", Part(1, 1), "reads the attended token"),
    ],
)
def test_known_values_are_found(name: str, part: Part, words: str) -> None:
    one = found(bench_of(name), part, "inside", [], 0.99, 0.5)
    assert one is not None
    assert one.proposal.words == words
    assert one.kept.share > 0.99


def test_what_a_head_does_not_move_is_not_said() -> None:
    """Max of k moves numbers: the mean of each position in their place leaves few answers."""
    bench = bench_of("algorithmic/max-of-k-exact", K=3, v=8)
    proposals = {one.words: one for one in moves(bench, Part(0, 0))}
    wrong = proposals["reads the attended position"]
    assert bench.kept([wrong.edit]).share < 0.5
    assert wrong.fit < 0.5


def test_a_straight_line_by_hand() -> None:
    bench = bench_of("algorithmic/max-of-k-exact", K=3, v=8)
    direction = torch.tensor([1.0, -2.0])
    planted = (3 + 0.5 * bench.view.values.float())[:, :, None] * direction
    found_line = linear(bench, planted)
    assert torch.allclose(found_line[bench.view.content], planted[bench.view.content], atol=1e-5)
    bent = planted + (bench.view.values == 4).float()[:, :, None]
    assert not torch.allclose(linear(bench, bent)[bench.view.content], bent[bench.view.content], atol=0.1)


def test_the_edit_reaches_the_answers() -> None:
    bench = bench_of("algorithmic/max-of-k-exact", K=3, v=8)
    none = torch.zeros_like(bench.activation("blocks.0.attn.hook_v")[:, :, 0])
    assert bench.kept([Values(Part(0, 0), none)]).share < 0.9


def test_it_is_a_mechanism_that_every_explanation_tries() -> None:
    assert "moves" in mechanisms("inside")
