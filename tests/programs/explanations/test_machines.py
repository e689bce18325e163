"""Programs that are automata or tables of a task that is a table."""

from typing import Any

import interp
from interp.models.subject import Subject
from interp.programs.explanations.bench import Bench
from interp.programs.explanations.engine import by_automaton, whole_table
from interp.tasks.populations import everything, sample


def bench(name: str, n: int = 200, **sizes: Any) -> Bench:
    one = Subject.of(interp.build(name, **sizes) if sizes else interp.load(name))
    return Bench(one, sample(one.task, n))


def test_the_automaton_of_parity_has_two_states() -> None:
    made = bench("languages/parity")
    scored = by_automaton(made, made, 0.99, 100)
    assert scored.share == 1.0
    (state,) = scored.rule.quantities
    assert state.kind == "state"
    letters, following = state.arguments
    assert sorted(letters) == ["0", "1"]
    zero, one = letters.index("0"), letters.index("1")
    assert [row[zero] for row in following] == [0, 1]
    assert [row[one] for row in following] == [1, 0]
    agreed = scored.rule.at(made.view, made.where.rows, made.where.positions) == made.answers
    assert bool(agreed.all())


def test_a_task_without_strings_has_no_automaton() -> None:
    made = bench("algorithmic/max-of-k-exact", K=3, v=6)
    assert by_automaton(made, made, 0.99, 100) is None


def test_a_task_that_is_no_table_gets_no_table() -> None:
    one = Subject.of(interp.build("algorithmic/max-of-k-exact", K=3, v=6))
    assert whole_table(Bench(one, everything(one.task)), 0.99) is None


def test_a_task_that_is_a_table_gets_the_models_own() -> None:
    one = Subject.of(interp.load("memorization/bigram"))
    made = Bench(one, everything(one.task))
    scored = whole_table(made, 0.99)
    assert scored.share == 1.0
    assert scored.rule.constants <= len(made.answers) + 2
    assert whole_table(Bench(one, sample(one.task, 20)), 0.99) is None  # not all inputs are at hand
