"""The inputs of an explanation: samples made wider, and parts of them that keep what is rare."""

from typing import Any

import pytest
import torch

import interp
from interp.models.subject import Subject
from interp.programs.explanations.bench import Bench, part_of, to_search, widened
from interp.tasks.populations import Population, everything, sample


def subject(name: str, **sizes: Any) -> Subject:
    return Subject.of(interp.build(name, **sizes))


def test_a_sample_of_strings_is_doubled_and_labeled_anew() -> None:
    one = subject("languages/parity")
    drawn = sample(one.task, 300)
    wide = widened(drawn, one).batch
    assert len(wide) == 2 * len(drawn.batch)
    assert torch.equal(wide.tokens[:300], drawn.batch.tokens)
    changed, ones = wide[slice(300, None)], one.task.vocabulary.index("1")
    odd = (changed.tokens == ones).sum(1) % 2
    assert torch.equal(changed.labels.flatten().long(), odd)
    assert len(odd.unique()) == 2


def test_marks_and_padding_stay_where_they_are() -> None:
    one = subject("languages/parity")
    drawn = sample(one.task, 300)
    first, second = drawn.batch, widened(drawn, one).batch[slice(300, None)]
    content = torch.tensor([one.task.vocabulary.index(digit) for digit in "01"])
    assert torch.equal(torch.isin(first.tokens, content), torch.isin(second.tokens, content))
    moved = (first.tokens != second.tokens).any(1).double().mean()
    assert 0.5 < moved < 1.0


@pytest.mark.parametrize(
    ("name", "population"),
    [("algorithmic/max-of-k-exact", everything), ("histogram/dot-exact", lambda task: sample(task, 50))],
    ids=["all inputs", "read at all positions"],
)
def test_what_needs_no_widening_stays_as_it_is(name: str, population: object) -> None:
    one = subject(name, **({"K": 3, "v": 6} if "max" in name else {"T": 6, "L": 5}))
    assert callable(population)
    drawn: Population = population(one.task)
    assert widened(drawn, one) is drawn


def test_a_part_keeps_a_quarter_for_rare_answers() -> None:
    """The largest of six numbers below 3 is not 2 for 64 of 729 inputs: a part of 40 keeps 10 of them, at least."""
    one = subject("algorithmic/max-of-k-exact", K=6, v=3)
    bench = Bench(one, everything(one.task))
    assert int((bench.answers != 2).sum()) == 64
    part = part_of(bench, 40)
    assert part.population.n == 40
    assert part.population.kind == "given"  # no longer all inputs
    assert int((part.answers != 2).sum()) >= 10
    whole = {tuple(row) for row in bench.population.batch.tokens.tolist()}
    rows = {tuple(row) for row in part.population.batch.tokens.tolist()}
    assert len(rows) == 40
    assert rows <= whole


def test_a_part_as_large_as_the_whole_is_the_whole() -> None:
    one = subject("algorithmic/max-of-k-exact", K=3, v=6)
    bench = Bench(one, everything(one.task))
    assert part_of(bench, 216) is bench
    assert to_search(bench) is bench
