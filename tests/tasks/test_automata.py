"""Declared automata against the tasks that declare them: equal ones are taken, every other one is refused."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from interp.errors import InterpError, UnsupportedError
from interp.families.algorithmic import Addition, MaxOfK, ModularAddition
from interp.tasks import Batch, structure
from interp.tasks.automata import SAMPLED, Automaton, Read, declared


class Changed(Addition):
    """Addition of two digits in base 3, whose automaton is changed."""

    def __init__(self, change: Callable[[Automaton], Automaton]) -> None:
        super().__init__(digits=2, base=3)
        self.change = change

    def automata(self) -> Iterator[Automaton]:
        yield from map(self.change, super().automata())


def test_tables_hold_every_input_once_with_its_labels() -> None:
    task = Addition(digits=2, base=4)
    (paths,) = declared(task)
    assert structure.compare(task, [paths]) == ()
    rows = torch.cat(list(paths.every()))
    listed = torch.cat([batch.tokens for batch in task.inputs()])
    assert sorted(rows.tolist()) == sorted(listed.tolist())
    assert paths.right(rows).equal(task.classes(task.batch(rows)))
    assert paths.holds(task.batch(rows)).all()
    wrong = rows.clone()
    wrong[:, 7] = (wrong[:, 7] + 1) % 4
    assert not paths.holds(Batch(wrong, torch.full((len(rows),), 8), torch.zeros(len(rows), dtype=torch.long))).any()


def test_draws_are_inputs_and_about_equally_likely() -> None:
    (paths,) = declared(Addition(digits=1, base=3))
    rows, often = paths.draw(9000, seed=1).unique(dim=0, return_counts=True)
    assert len(rows) == 9
    assert 1000 - 150 < int(often.min()) <= int(often.max()) < 1000 + 150  # five standard deviations


def test_what_was_not_compared_is_said() -> None:
    (said,) = structure.compare(Addition(), declared(Addition()))
    assert f"{SAMPLED:,}" in said


def step_of(change: Callable[[Any, int, int, Any], Any]) -> Callable[[Automaton], Automaton]:
    """An automaton whose steps are changed."""
    return lambda one: replace(one, step=lambda s, p, t: change(s, p, t, one.step(s, p, t)))


@pytest.mark.parametrize(("change", "reason"), [
    (lambda one: replace(one, order=one.order[1:]), "each of a row once"),
    (lambda one: replace(one, order=(*one.order[:-1], 0)), "each of a row once"),
    (lambda one: replace(one, reads=()), "gives no answer"),
    (lambda one: replace(one, reads=one.reads[:1] * 2), "two answers"),
    (lambda one: replace(one, reads=(*one.reads[:-1], replace(one.reads[-1], after=99))), "rows have 8"),
    (lambda one: replace(one, reads=(*one.reads[:-1], replace(one.reads[-1], answer=lambda s: 7))), "an output"),
    (lambda one: replace(one, reads=(*one.reads[:-1], replace(one.reads[-1], answer=lambda s: 1))), "otherwise"),
    (lambda one: replace(one, reads=one.reads[:-1]), "otherwise"),
    (step_of(lambda s, p, t, then: None), "no row to the end"),
    (step_of(lambda s, p, t, then: None if p == 0 and t == 2 else then), "81 inputs, but its automata make 54"),
    (step_of(lambda s, p, t, then: 0 if p == 2 and t == 4 else then), "162"),
    (step_of(lambda s, p, t, then: 1 if p == 0 and t == 2 else then), "not an input"),
])  # fmt: skip
def test_an_automaton_that_is_not_the_task_is_refused(change: Callable[[Automaton], Automaton], reason: str) -> None:
    task = Changed(change)
    with pytest.raises((UnsupportedError, InterpError), match=reason):
        structure.compare(task, declared(task))


def test_a_task_without_an_automaton_says_so() -> None:
    with pytest.raises(UnsupportedError, match="declares no automata"):
        declared(ModularAddition(p=7, share=0.4))


def test_too_many_states_are_refused() -> None:
    class Long(MaxOfK):
        def automata(self) -> Iterator[Automaton]:
            yield Automaton((0, 1, 2, 3), (), lambda s, p, t: (*s, t), (Read(3, 4, lambda s: 0),))

    with pytest.raises(UnsupportedError, match="more than 4,096 states"):
        declared(Long(K=3, v=30))


def test_a_walk_ends_inside_for_inputs_and_no_other_rows() -> None:
    (paths,) = declared(Addition(digits=2, base=3))
    inputs = {tuple(row) for batch in paths.every() for row in batch.tolist()}
    width = paths.following[0].shape[1]
    changed = torch.tensor(sorted(inputs)).repeat(20, 1)
    rng = torch.Generator().manual_seed(0)
    at = torch.randint(paths.length, (len(changed),), generator=rng)
    changed[torch.arange(len(changed)), at] = torch.randint(-1, width + 1, at.shape, generator=rng)
    inside = (paths.walk(changed) >= 0).all(1).tolist()
    assert inside == [tuple(row) in inputs for row in changed.tolist()]
    assert 0 < sum(inside) < len(inside)
