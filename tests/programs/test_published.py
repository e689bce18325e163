"""Programs as published for the language of Weiss et al. 2021, compiled and read back: kinds beside the random ones."""

from itertools import pairwise, product

import pytest

import interp
from interp.programs.explanations import Explanation
from interp.programs.language import NEVER, Head, Linear, Program, Table, Values
from interp.programs.steps import Matrix

LETTERS = ("a", "b", "c", "d")


def chosen(queries: Values, keys: Values, selects: object) -> Matrix:
    return tuple(tuple(0.0 if selects(q, k) else NEVER for k in keys) for q in queries)  # type: ignore[operator]


def itself(values: Values) -> tuple[Matrix, ...]:
    return (tuple(tuple(float(i == j) for j in range(len(values))) for i in range(len(values))),)


def limits(name: str, of: str, weights: list[float], limits: list[float], values: Values) -> Linear:
    """The number of limits that a sum of weights is above."""
    rows = tuple(tuple(level * weight for level in range(len(values))) for weight in weights)
    bias = tuple(-sum(limits[:level], 0.0) for level in range(len(values)))
    return Linear(name, (of,), (rows,), bias, values)


def answered(of: str, values: Values) -> Linear:
    return Linear("answer", (of,), itself(values), (0.0,) * len(values), values)


def widths(name: str, of: str, words: Values, longest: int) -> Linear:
    """How many keys a head selects next to [BOS], whose share of the attention is 1 / (1 + n)."""
    weights = [-float(word == "[BOS]") for word in words]
    return limits(name, of, weights, [-1 / (n + 0.5) for n in range(1, longest + 1)], tuple("012345678"[: longest + 1]))


def explained(program: Program, noise: float = 0.0, **rows: object) -> Explanation:
    """The explanation, which must be of the true parts, and give every answer on inputs of the task."""
    model = interp.compile(program, decoys=4, rotate=3, noise=noise, seed=1, **rows)  # type: ignore[arg-type]
    found = interp.explain(model)
    assert found.level == "explained"
    assert {one.part for one in found.parts if one.status == "explained"} == {s.part for s in model.task.program.steps}
    assert {one.status for one in found.parts} <= {"explained", "not used"}
    assert found.agreement.changed == 0
    return found


def step(found: Explanation, part: str) -> Head | Table | Linear:
    assert found.program is not None
    return next(step for step in found.program.steps if step.part == part)


@pytest.mark.slow
def test_the_share_of_a_token_is_one_sum_with_limits() -> None:
    """13 fractions: a sum of weights of the head alone, with as many values as there are, which compiles again."""
    fractions = sorted({a / b for b in range(1, 7) for a in range(b + 1)})
    between = [(low + high) / 2 for low, high in pairwise(fractions)]
    values = tuple(f"{one:.2f}" for one in fractions)
    program = Program(("x", "y", "z"), 6, True, (
        Head("before", "", "", ((0.0,),), "token"), limits("share", "before", [1.0, 0.0, 0.0], between, values),
    ), answered("share", values), read="all")  # fmt: skip
    found = explained(program, noise=1e-4)
    read = step(found, "MLP 0")
    assert isinstance(read, Linear)
    assert read.of == ("head 0.0",)
    assert len(read.values) == len(fractions)
    again = interp.compile(found.program)
    assert again.task.n_inputs == 3**6


@pytest.mark.slow
def test_noise_makes_no_values() -> None:
    """Whether "abc" occurs: the MLP has two values, not one for each level of noise on three tokens."""
    shifts = [
        Head(f"back {by}", "position", "position", chosen(tuple("012345"), tuple("012345"),
             lambda q, k, by=by: int(k) == max(int(q) - by, 0)), "token")
        for by in (1, 2)
    ]  # fmt: skip
    here = tuple(int(word == ("a", "b", "c")) for word in product(LETTERS, repeat=3))
    program = Program(LETTERS, 6, True, (
        *shifts, Table("here", ("back 2", "back 1", "token"), here, ("no", "yes")),
        Head("some", "", "here", ((0.0, 40.0),), "here"),
    ), answered("some", ("no", "yes")))  # fmt: skip
    read = step(explained(program, noise=1e-4), "MLP 0")
    assert isinstance(read, Table)
    assert set(read.of) == {"head 0.0", "head 0.1", "token"}
    assert len(read.values) == 2


@pytest.mark.slow
def test_a_count_that_one_input_has() -> None:
    """Ones modulo 3: eight ones stand in a single row of 510, and are a value of their own all the same."""
    words = ("0", "1", "[BOS]", "=", "pad")
    counted = widths("ones", "head", words, 8)
    program = Program(words, 10, True, (
        Head("head", "", "token", ((NEVER, 0.0, 0.0, NEVER, NEVER),), "token"), counted,
        Table("rest", ("ones",), tuple(n % 3 for n in range(9)), ("0", "1", "2")),
    ), answered("rest", ("0", "1", "2")), read="=", pad="pad")  # fmt: skip
    found = explained(program, noise=1e-4, first="[BOS]", last="=", shortest=1)
    assert len(step(found, "MLP 0").values) == 9  # type: ignore[union-attr]
    assert len(step(found, "MLP 1").values) == 3  # type: ignore[union-attr]


@pytest.mark.slow
def test_a_mark_has_a_value_of_its_own() -> None:
    """Sorting: the place of a token is 1 + its rank, and that of [BOS] is 0, though its rank is 0, too."""
    words, size = ("[BOS]", "0", "1", "2"), 6
    pairs = tuple(f"{word} {place}" for word in words for place in range(size + 1))
    places = tuple(map(str, range(size + 1)))

    def before(query: str, key: str) -> bool:
        return key.startswith("[") or (not query.startswith("[") and key.split() < query.split())

    place = tuple(0 if word == "[BOS]" else min(rank + 1, size) for word in words for rank in range(size + 1))
    program = Program(words, size + 1, False, (
        Table("pair", ("token", "position"), tuple(range(len(pairs))), pairs),
        Head("before", "pair", "pair", chosen(pairs, pairs, before), "token"), widths("rank", "before", words, size),
        Table("place", ("token", "rank"), place, places),
        Head("out", "position", "place", chosen(places, places, str.__eq__), "token"),
    ), answered("out", words), read="all")  # fmt: skip
    found = explained(program, first="[BOS]")
    assert set(step(found, "MLP 2").of) == {"token", "MLP 1"}


def test_an_order_says_which_value_comes_next() -> None:
    """The largest of six tokens out of three is nearly always 'c': the program knows the others, too."""
    program = Program(("a", "b", "c"), 6, True, (
        Head("largest", "", "token", ((0.0, 40.0, 80.0),), "token"),
    ), answered("largest", ("a", "b", "c")))  # fmt: skip
    read = step(explained(program), "head 0.0")
    assert isinstance(read, Head)
    assert read.scores[0] == pytest.approx((-80.0, -40.0, 0.0), abs=1e-3)


def test_a_head_is_described_where_it_does_not_matter() -> None:
    """The query of '=' reads nothing that decides, but what is described there must not stand in the way of others."""
    words = ("a", "b", "c", "=")
    program = Program(words, 5, False, (
        Head("b", "", "token", ((NEVER, 0.0, NEVER, 0.0),), "token"),
        limits("many", "b", [0.0, 1.0, 0.0, -1.0], [-0.1], ("no", "yes")),
    ), Linear("answer", ("many",), itself(("no", "yes")), (0.0, 0.1), ("no", "yes")), read="all")  # fmt: skip
    read = step(explained(program, last="="), "head 0.0")
    assert isinstance(read, Head)
    assert read.scores == program.steps[0].scores  # type: ignore[union-attr]
