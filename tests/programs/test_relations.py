"""Relations that say which pairs a head selects, names of values, and what later parts read."""

import pytest
import torch
from torch import Tensor

import interp
from interp.measures.runs import Part
from interp.models.subject import Subject
from interp.programs.language import NEVER, Head, Linear, Program, Table
from interp.programs.naming import with_names
from interp.programs.readers import Readers
from interp.programs.relations import Relation, completed, in_words, inside, relation_of, short
from interp.programs.relevance import Kinds
from interp.programs.running import Running
from interp.tasks.populations import everything


def all_of(chosen: Tensor) -> Tensor:
    return torch.ones_like(chosen)


@pytest.mark.parametrize("kind", ["equal", "different", "smaller", "greater", "at most", "at least"])
def test_a_relation_is_found_with_its_exceptions(kind: str) -> None:
    """A key that is always selected, one that never is, and a single pair."""
    plain = Relation(kind).holds(6, 6)
    found = relation_of(plain, all_of(plain))
    assert (found.kind, found.constants) == (kind, 1)
    one = Relation(kind, always=(5,), never=(2,))
    with_keys = relation_of(one.holds(6, 6), all_of(plain))
    assert bool(with_keys.holds(6, 6).equal(one.holds(6, 6)))
    assert with_keys.constants <= 3
    other = plain.clone()
    other[3, 4] = ~other[3, 4]
    assert relation_of(other, all_of(plain)).constants <= 2


def test_any_table_is_given_back() -> None:
    """Whatever relation is nearest: with its exceptions, it holds for exactly the pairs that are selected."""
    for seed in range(50):
        chosen = torch.rand(5, 5, generator=torch.Generator().manual_seed(seed)) < 0.5
        found = relation_of(chosen, all_of(chosen), places=True)
        there = chosen.any(1)
        assert bool(found.holds(5, 5)[there].equal(chosen[there]))


@pytest.mark.parametrize(
    ("rows", "causal", "edge", "constants", "said"),
    [
        ([[0], [0], [1], [2], [3]], True, "", 1, "to the position before"),
        ([[0], [0], [1], [2], [3]], False, "clamped", 1,
         "to the position before (where there is none, to the first position)"),
        ([[1], [2], [3], [4], [4]], False, "clamped", 1,
         "to the next position (where there is none, to the last position)"),
        ([[4], [0], [1], [2], [3]], False, "around", 2,
         "to the position before (in a circle: the first position follows the last)"),
        ([[0, 1, 2, 3, 4], [0], [1], [2], [3]], False, "evenly", 2,
         "to the position before (where there is none, evenly to all positions)"),
        ([[2], [0], [1], [2], [3]], False, "", 2, "to the position before, from position 0 to position 2"),
        ([[0], [0, 1], [0], [1], [2]], True, "evenly", 2,
         "to the position two before (where there is none, evenly to all positions)"),
        ([[], [0], [1], [2], [3]], False, "", 1, "to the position before"),
    ],
)  # fmt: skip
def test_where_a_place_at_a_distance_is_not_there(
    rows: list[list[int]], causal: bool, edge: str, constants: int, said: str
) -> None:
    """Of queries there, nothing was said: a head that attends around a circle attended "to the position before"."""
    chosen = torch.zeros(5, 5).bool()
    for query, keys in enumerate(rows):
        chosen[query, keys] = True
    occurs = all_of(chosen).tril() if causal else all_of(chosen)
    found = relation_of(chosen, occurs, places=True)
    assert (found.kind, found.edge, found.constants) == ("shift", edge, constants)
    places = [str(place) for place in range(5)]
    assert in_words(found, "position", "its own position", places, places, (True, True)) == said


@pytest.mark.parametrize("rows", [[[0]] * 4 + [[3], [4], [5]], [[0]] * 4 + [[*range(q + 1)] for q in (4, 5, 6)]])
def test_no_place_is_said_that_is_never_seen(rows: list[list[int]]) -> None:
    """A causal head attended "to the position 3 after its own, or position 0"."""
    chosen = torch.zeros(7, 7).bool()
    for query, keys in enumerate(rows):
        chosen[query, keys] = True
    found = relation_of(chosen, all_of(chosen).tril(), places=True)
    assert found.by <= 0


def test_places_have_distances_and_sums() -> None:
    before = Relation("shift", -1).holds(6, 6)
    assert relation_of(before, all_of(before), places=True) == Relation("shift", -1)
    mirror = Relation("sum", 5).holds(6, 6)
    assert relation_of(mirror, all_of(mirror), places=True) == Relation("sum", 5)
    assert short(before, all_of(before), places=False) is None


def test_pairs_that_never_occur_follow_the_relation() -> None:
    """A causal model sees no later place: that each earlier one is selected is all that it says."""
    chosen = Relation("at most").holds(5, 5)
    assert bool(completed(chosen, Relation("at most").holds(5, 5), places=True).all())
    assert bool(completed(chosen, all_of(chosen), places=True).equal(chosen))


def test_values_are_named_by_what_they_stand_for() -> None:
    """By the place that a head attends to, and by the tokens that a table maps to each."""
    turned = tuple(tuple(0.0 if k == 2 - q else NEVER for k in range(3)) for q in range(3))
    program = Program(("a", "b", "c"), 3, False, (
        Table("place", ("position",), (1, 0, 2), ("v0", "v1", "v2")),
        Head("there", "place", "position", turned, "token"),
        Table("kind", ("there",), (0, 1, 1), ("v0", "v1")),
    ), Linear("answer", ("kind", "token"), (((0.0, 1.0), (1.0, 0.0)), ((0.0, 0.1),) * 3), (0.0, 0.0),
              ("x", "y")))  # fmt: skip
    named = with_names(program)
    assert named.values["place"] == ("2", "1", "0")
    assert named.values["kind"] == ("a", "b or c")


def test_a_count_is_named_by_its_share_of_a_mark() -> None:
    """Limits between 1/2, 1/3 and 1/4 are a count; others are none."""
    words = ("[BOS]", "a", "b")

    def values(limits: tuple[float, float]) -> tuple[str, ...]:
        rows = tuple(tuple(-level * float(word == "x") for level in range(3)) for word in ("x", "others"))
        count = Linear("n", ("same",), (rows,), (0.0, limits[0], sum(limits)), ("v0", "v1", "v2"))
        answer = Linear("answer", ("n", "token"), (((1.0, 0.0),) * 3, ((0.0, 0.1),) * 3), (0.0, 0.0), ("x", "y"))
        program = Program(words, 4, False, (
            Table("mark", ("token",), (0, 1, 1), ("[BOS]", "others")),
            Head("same", "", "token", ((0.0, 0.0, NEVER),), "mark"), count,
        ), answer)  # fmt: skip
        return with_names(program, ["[BOS]"]).values["n"]

    assert values((5 / 12, 7 / 24)) == ("1", "2", "3")
    assert values((0.9, 0.8)) == ("v0", "v1", "v2")


def test_dead_neurons_and_decoys_read_nothing() -> None:
    """What is read of a part's output has as many dimensions with eight dead neurons in each layer as without."""
    before = tuple(tuple(0.0 if k == max(0, q - 1) else NEVER for k in range(4)) for q in range(4))
    program = Program(("a", "b", "c"), 4, False, (
        Head("before", "position", "position", before, "token"),
        Table("differs", ("token", "before"), (0, 1, 1, 1, 0, 1, 1, 1, 0), ("no", "yes")),
        Head("share", "", "", ((0.0,),), "differs"),
    ), Linear("answer", ("share",), (((0.0, 1.0), (1.0, 0.0)),), (0.1, 0.0), ("no", "yes")), read="all")  # fmt: skip

    def read(dead: int) -> tuple[int, int]:
        model = interp.compile(program, dead=dead, rotate=1)
        running = Running.of(Subject.of(model), everything(model.task).batch)
        readers = Readers(running, [Part(0, 0), Part(0), Part(1, 0)], Kinds(running).mean, lambda: None)
        return readers.of(Part(0)).shape[1], len(readers.neurons(Part(0)))

    assert read(0) == read(8)


def test_a_distance_says_something_where_its_place_is_there() -> None:
    for by, there in ((1, [True, True, False]), (-2, [False, False, True]), (0, [True] * 3)):
        assert inside(Relation("shift", by=by), 3, 3)[:, 0].tolist() == there
        assert inside(Relation("equal", by=by), 3, 3).all()
