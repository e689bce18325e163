"""Which places an answer depends on, and every combination of tokens there."""

from dataclasses import replace

import pytest

import interp
from interp.errors import UnsupportedError
from interp.models.subject import Subject
from interp.programs import proof_places
from interp.programs.language import NEVER, Program
from interp.programs.proof import by_listing, by_places
from interp.programs.proof_places import answer_places, combinations
from interp.programs.steps import Head, Linear, Table
from interp.tasks.automata import declared

LENGTH = 4
BEFORE = tuple(tuple(0.0 if key == query - 1 else NEVER for key in range(LENGTH)) for query in range(LENGTH))


def program(scores: tuple[tuple[float, ...], ...], key: str = "position") -> Program:
    """A head that reads tokens by position, a table of what it reads and the token, and the answer from it."""
    steps = (
        Head("read", "position", key, scores, "token", "head 0.0"),
        Table("both", ("read", "token"), (0, 1, 1, 0), ("no", "yes"), "MLP 0"),
    )
    answer = Linear("answer", ("both",), (((1.0, 0.0), (0.0, 1.0)),), (0.0, 0.0), ("no", "yes"))
    return Program(("0", "1"), LENGTH, True, steps, answer, read="all")


def test_an_answer_depends_on_the_places_that_are_read() -> None:
    """At the first position, no key is selected: attention is even over what is seen, the position itself."""
    assert answer_places(program(BEFORE), LENGTH) == [{0}, {0, 1}, {1, 2}, {2, 3}]


def test_graded_attention_reads_all_that_is_seen() -> None:
    graded = tuple(tuple(0.0 if score == 0 else -5.0 for score in row) for row in BEFORE)
    assert answer_places(program(graded), LENGTH)[3] == {0, 1, 2, 3}


def test_attention_by_tokens_reads_all_that_is_seen() -> None:
    by_token = tuple((0.0, NEVER) for _ in range(LENGTH))
    assert answer_places(program(by_token, key="token"), LENGTH)[2] == {0, 1, 2}


def test_combinations_are_those_of_all_inputs() -> None:
    """Sums of two numbers of two digits, base 3: what stands at three places, with the right answer at a fourth."""
    task = interp.build("algorithmic/addition-exact", digits=2, base=3).task
    (paths,) = declared(task)
    at, (after, answers) = sorted(paths.reads.items())[1]
    places = frozenset([0, 1, at])
    rows, right = combinations(paths, places, after, answers)
    found = {(*row[[0, 1, at]].tolist(), int(one)) for row, one in zip(rows, right, strict=True)}
    wanted = {
        (*row[[0, 1, at]].tolist(), int(one))
        for every in paths.every()
        for row, one in zip(every, paths.right(every)[:, at], strict=True)
    }
    assert found == wanted
    assert len(rows) == len(found)


def test_long_rows_are_refused_before_they_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is one of tokens: of long rows, fewer are held."""
    (paths,) = declared(interp.build("algorithmic/addition-exact", digits=2, base=3).task)
    at, (after, answers) = sorted(paths.reads.items())[1]
    monkeypatch.setattr(proof_places, "MOST_TOKENS", 8 * paths.length)
    with pytest.raises(UnsupportedError, match="more than 8 combinations"):
        combinations(paths, frozenset([0, 1, at]), after, answers)


@pytest.mark.slow
def test_addition_is_proved_by_places() -> None:
    """The same as by running all 10,000 pairs; and a program with another bias is refused."""
    model = interp.build("algorithmic/addition-exact", digits=2, base=10)
    found = interp.explain(model)
    assert found.level == "explained"
    subject = Subject.of(model)
    proof = by_places(subject, found.program, lambda: None)
    listed = by_listing(subject, found.program, lambda: None)
    assert (proof.n, proof.answers, proof.wrong) == (listed.n, listed.answers, 0)
    bias = list(found.program.answer.bias)
    bias[0] += 1e3
    wrong = replace(found.program, answer=replace(found.program.answer, bias=tuple(bias)))
    with pytest.raises(UnsupportedError, match="the program is wrong on an input"):
        by_places(subject, wrong, lambda: None)
