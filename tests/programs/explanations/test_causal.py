"""Whether a program is the model's: what is asked of it, and which of two programs is taken."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from shared.random_programs import random_program

import interp
from interp.measures.interchange import Interchange
from interp.measures.runs import Part
from interp.models.subject import Subject
from interp.programs.decompile import decompile, program_of
from interp.programs.explanations import causal, findings
from interp.programs.inputs_tried import InputsTried
from interp.programs.interchange import FreshInputs, Placed
from interp.programs.language import NEVER, Head, Linear, Program, Sums, Table
from interp.programs.proof import prove
from interp.programs.reading import Role
from interp.programs.task import ENDS
from interp.tasks.populations import everything


def test_a_program_with_a_wrong_entry_gives_fewer_answers() -> None:
    subject = Subject.of(interp.compile(ENDS))
    fresh = FreshInputs(subject, everything(subject.task))
    same = ENDS.step("same")
    assert isinstance(same, Table)
    wrong = replace(ENDS, steps=(ENDS.steps[0], replace(same, entries=(1, 0, 0, 0))))
    assert causal.agrees(ENDS, fresh).share == 1.0
    assert causal.agrees(wrong, fresh).share == 0.75  # one of four pairs of ends


def test_sums_that_tie_give_no_answer() -> None:
    """A head that reads both ends evenly ties where they differ; the first of two equal answers is often the right one,
    but the program does not say so."""
    both = Head("both", "", "position", ((0.0, NEVER, 0.0),), "token", "head 0.0")
    weights = (((1.0, 0.0), (0.0, 1.0)),)
    ties = Program(("a", "b"), 3, True, (both,), Linear("answer", ("both",), weights, (0.0, 0.0), ("no", "yes")))
    said = replace(ties, answer=replace(ties.answer, bias=(0.1, 0.0)))
    subject = Subject.of(interp.compile(said))
    fresh = FreshInputs(subject, everything(subject.task))
    assert causal.agrees(said, fresh).share == 1.0
    assert causal.agrees(ties, fresh).share == 0.5
    assert not prove(subject, ties).holds


def test_no_answer_of_what_is_explained_ties() -> None:
    """Does the last token equal the one after the mark? A head finds that place by the mark before it. Read as a head
    that attends to the mark, too, it has half of the weight, and a readout that ties there gave the answers by luck."""
    words = ("a", "b", "c", "^")
    before = tuple(tuple(0.0 if k == max(0, q - 1) else NEVER for k in range(4)) for q in range(4))
    first = tuple(int(was == "^" != now) for was in words for now in words)
    same = tuple(int(one == other) for one in words for other in words)
    steps = (
        Head("before", "position", "position", before, "token"),
        Table("first", ("before", "token"), first, ("no", "yes")),
        Head("there", "", "first", ((NEVER, 0.0),), "token"),
        Table("same", ("token", "there"), same, ("no", "yes")),
    )
    answer = Linear("answer", ("same",), (((0.0, 1.0), (1.0, 0.0)),), (0.0, 0.0), ("yes", "no"))
    found = interp.explain(interp.compile(Program(words, 4, True, steps, answer), first="^"))
    assert found.program is not None
    tokens = torch.cartesian_prod(torch.tensor([3]), *[torch.arange(3)] * 3)
    sums = found.program.answer.sums(found.program.run(tokens))[:, -1]
    assert float((sums[:, 0] - sums[:, 1]).abs().min()) > 1e-3
    assert found.agreement is not None
    assert found.agreement.share == 1.0


def test_a_program_is_taken_without_an_input_of_no_effect() -> None:
    """The first token decides; a table that also looks at the position says the same."""
    subject = Subject.of(interp.compile(ENDS, decoys=1))
    fresh = FreshInputs(subject, everything(subject.task))
    reading = decompile(fresh.all)
    program = program_of(reading)
    name, table = next((step.name, step) for step in program.steps if step.part == "MLP 0")
    assert isinstance(table, Table)
    entries = tuple(entry for entry in table.entries for _ in range(program.length))
    fat = replace(table, of=(*table.of, "position"), entries=entries)
    fatter = replace(program, steps=tuple(fat if step.name == name else step for step in program.steps))
    found = causal.least(reading, fatter, causal.agrees(fatter, fresh), fresh)
    assert found.shown
    assert found.program.step(name).of == table.of
    assert causal.reads_less(reading, fatter) == (findings.ReadsLess("MLP 0", "in", ("position",), 1.0),)
    assert causal.reads_less(reading, found.program) == ()


def test_a_program_with_sums_may_lose_answers() -> None:
    """Where it gives all of the model's, a table may lose none: a fitted sum may owe one of them to one more input."""
    subject = Subject.of(interp.compile(ENDS))
    all_given = causal.agrees(ENDS, FreshInputs(subject, everything(subject.task)))
    sums = replace(ENDS, steps=(*ENDS.steps, Sums("sum", ("token",), (((0.0,),) * len(ENDS.vocabulary),), (0.0,))))
    assert [causal.may_lose(one, all_given) for one in (ENDS, sums)] == [0, causal.LOSS]
    assert causal.may_lose(ENDS, replace(all_given, share=0.999)) == causal.LOSS


@pytest.mark.parametrize(
    ("lengths", "swapped", "status"),
    [((4, 4), 0.995, "explained"), ((4, 4), 0.98, "not read"), ((4, 3), 0.995, "not read")],
)
def test_only_the_means_of_a_part_may_matter(lengths: tuple[int, int], swapped: float, status: str) -> None:
    """A position is the same place only where rows have one length. swapped: the answers that stay with the values that
    the other row has there."""
    value = torch.tensor([[[1.0], [2.0]], [[3.0], [2.0]]])
    puts = list[Any]()
    running = SimpleNamespace(
        counts=None, batch=SimpleNamespace(lengths=torch.tensor(lengths)), value=lambda part: value,
        kept=lambda edits: puts.append(edits) or SimpleNamespace(share=0.995 if len(puts) == 1 else swapped),
    )  # fmt: skip
    rows = torch.tensor([[2, 3], [0, 1]])
    reading: Any = SimpleNamespace(
        running=SimpleNamespace(original=running), tried=SimpleNamespace(other_rows=((rows, torch.ones(2).bool()),))
    )
    roles = {
        Part(0, 0): findings.PartRole("head 0.0", "not read", does="attends"),
        Part(0, 1): findings.PartRole("head 0.1", "explained"),
    }
    now = causal.at_means(reading, roles)
    assert now[Part(0, 1)] == roles[Part(0, 1)]
    role = now[Part(0, 0)]
    assert role.status == status
    if status == "explained":
        assert (role.does, role.kept) == (findings.AT_ITS_MEANS, 0.995)
        assert puts[0][Part(0, 0)].tolist() == [[[2.0], [2.0]]] * 2
        assert puts[1][Part(0, 0)].tolist() == [[[3.0], [2.0]], [[1.0], [2.0]]]
        running.kept = lambda edits: SimpleNamespace(share=0.98)
        assert causal.at_means(reading, roles) == roles


@pytest.mark.parametrize(
    ("without", "alone", "status"), [(0.998, True, "minor"), (0.73, True, "not read"), (0.73, False, "kept")]
)
def test_a_part_whose_mean_changes_many_answers_is_not_minor(without: float, alone: bool, status: str) -> None:
    """One value for all positions may keep the answers that means by kind of position change."""
    part = Part(0, 0)
    reading: Any = SimpleNamespace(
        roles={part: Role("head 0.0", "minor")}, without={part: without}, groups=[], moved={}, elsewhere={},
        step=lambda name: None,
    )  # fmt: skip
    assert causal.part_role(reading, ENDS, part, alone).status == status


def test_a_variable_of_alike_parts_is_said_as_the_first() -> None:
    """Heads that carry one variable together do the same: it is said once."""
    first, score = ENDS.steps[0], Interchange.none()
    program = replace(ENDS, steps=(first, replace(first, name="again", part="head 7.7"), *ENDS.steps[1:]))
    both = causal.variable(program, Placed((first.name, "again"), (first.part, "head 7.7")), score)
    assert both.does == causal.variable(program, Placed((first.name,), (first.part,)), score).does
    assert both.places == (first.part, "head 7.7")


@pytest.mark.slow
def test_a_smaller_program_is_not_taken_if_it_is_not_the_models() -> None:
    """Without the query of head 1.1 the answers stay, but not with its value from another input."""
    found = interp.explain(interp.compile(random_program(53), decoys=4, dead=8, noise=1e-6, rotate=53, seed=53))
    assert found.level == "explained"
    head = found.program.step("head 1.1")
    assert isinstance(head, Head)
    assert head.query == "head 0.0"


@pytest.mark.parametrize(
    ("moved", "alone", "said"),
    [(None, 1.0, ""), (None, 0.5, "its values"), (0.9, 1.0, "its values"), (1.0, 1.0, "and of other parts")],
)
def test_what_is_not_used_may_matter_with_other_values(moved: float | None, alone: float, said: str) -> None:
    """Alone, at values of other positions, or only together with other parts; also where no answer hangs on it."""
    part = Part(0, 0)
    reading: Any = SimpleNamespace(
        roles={part: Role("head 0.0", "not used")}, without={part: 1.0}, moved={} if moved is None else {part: moved},
        elsewhere={}, alike={}, groups=[], step=lambda name: None, left_when_moved=lambda part: alone,
    )  # fmt: skip
    role = causal.part_role(reading, None, part, alone=False)
    assert said in role.note
    assert bool(role.note) == bool(said)
    assert role.moved == (moved if alone == 1.0 else alone)


def asked(sides: dict[str, set[str]]) -> Any:
    """A reading in which each side of head 0.0, and all at once, reads these sources."""
    every = set[str]().union(*sides.values())

    def stay_without(part: Part, said: set[str], ways: str) -> float:
        return 1.0 if (every if ways == "qkv" else sides[ways]) <= {*said} else 0.9 - 0.1 * len(ways)

    tried = SimpleNamespace(stay_without=stay_without, sources=lambda part: ["token", "position"])
    return SimpleNamespace(running=SimpleNamespace(by_name={"head 0.0": Part(0, 0)}), tried=tried)


@pytest.mark.parametrize(
    ("keys", "side", "left"), [({"position"}, "", 1.0), ({"position", "token"}, "k", 0.8), (set(), "", 1.0)]
)
def test_each_side_of_a_head_reads_what_is_said(keys: set[str], side: str, left: float) -> None:
    """What the values read may be what the keys are not said to read: all at once, nothing more was read."""
    head = Head("head 0.0", "", "position", ((0.0, -1.0, -2.0),), "token", "head 0.0")
    program = replace(ENDS, steps=(head,), answer=replace(ENDS.answer, of=("head 0.0",)))
    reading = asked({"q": set(), "k": keys, "v": {"token"}})
    reading.tried.stay_without = lambda part, said, ways, one=reading.tried.stay_without: (
        1.0 if part is None else one(part, said, ways)
    )
    more = causal.reads_more(reading, program, {}, ())
    assert [(one.side, one.left, one.most) for one in more] == ([(side, left, "token")] if side else [])
    found = replace(interp.explain(interp.compile(ENDS)), level="imitated", more=more)
    assert ("with the rest of what its keys read taken from another input, 0.8000 of" in found.sentence) == bool(side)


def test_of_inputs_that_change_as_much_the_first_is_named() -> None:
    """It was the first one of a set, which is another one in each process."""
    names = [f"head 0.{n}" for n in range(9)]
    tried = SimpleNamespace(stay_without=lambda *asked: 0.5, sources=lambda part: names)
    reading: Any = SimpleNamespace(running=SimpleNamespace(by_name={}), tried=tried)
    program = replace(
        ENDS, steps=ENDS.steps[:0], answer=replace(ENDS.answer, of=("token",), weights=(((0.0, 1.0),) * 2,))
    )
    (more,) = causal.reads_more(reading, program, {}, ())
    assert (more.reader, more.most) == (findings.READOUT, "head 0.0")


def test_an_input_that_does_nothing_is_said_beside_others() -> None:
    """Of a sum over the token and the position, each is tried alone, too."""
    sums = Sums("head 0.0 reads", ("token", "position"), (((1.0,), (2.0,)), ((0.5,),) * 3), (0.0,))
    head = Head("head 0.0", "", "", ((0.0,),), "head 0.0 reads", "head 0.0", evened=True)
    program = replace(ENDS, steps=(sums, head), answer=replace(ENDS.answer, of=("head 0.0",), weights=(((0.0, 1.0),),)))
    shares = {("token",): 0.5, ("position",): 1.0, ("token", "position"): 0.4}

    def stay_with(part: Part | None, way: str, sources: list[str], others: list[Part]) -> list[float]:
        return [shares.get(tuple(sources), 0.5)]

    tried = SimpleNamespace(sources=lambda part: ["token", "position", "head 0.0"], stay_with=stay_with)
    reading: Any = SimpleNamespace(running=SimpleNamespace(by_name={"head 0.0": Part(0, 0)}), tried=tried, alike={})
    assert causal.reads_less(reading, program) == (findings.ReadsLess("head 0.0", "value", ("position",), 1.0),)


def test_what_does_nothing_is_tried_in_all_places_of_a_variable() -> None:
    """Of a variable of two heads, the readout reads both, and both read the token by their values at once."""
    head = Head("head 0.0", "", "", ((0.0,),), "token", "head 0.0", evened=True)
    program = replace(ENDS, steps=(head,), answer=replace(ENDS.answer, of=("head 0.0",), weights=(((0.0, 1.0),) * 2,)))
    asked = list[tuple[Part | None, tuple[str, ...], tuple[Part, ...]]]()

    def stay_with(part: Part | None, way: str, sources: list[str], others: list[Part]) -> list[float]:
        asked.append((part, tuple(sources), tuple(others)))
        return [1.0]

    parts = {f"head 0.{n}": Part(0, n) for n in range(2)} | {"MLP 0": Part(0)}
    tried = SimpleNamespace(sources=lambda part: ["token", *parts] if part is None else ["token"], stay_with=stay_with)
    reading: Any = SimpleNamespace(running=SimpleNamespace(by_name=parts), tried=tried, alike={})
    held: Any = SimpleNamespace(places=("head 0.0", "head 0.1", "MLP 0"))
    causal.reads_less(reading, program, [held])
    head_, other = parts["head 0.0"], parts["head 0.1"]
    assert asked == [(head_, ("token",), (other,)), (None, ("head 0.0", "MLP 0", "head 0.1"), ())]


@pytest.mark.parametrize(("left", "shown"), [(0.95, True), (0.85, False)])
def test_what_is_read_besides_is_tried_at_once(left: float, shown: bool) -> None:
    """Of all readers, and of a further place of a variable, which reads what its first place does, and this."""
    head, later = Part(0, 0), Part(0)
    asked = list[dict[Part | None, tuple[set[str], str]]]()

    def stay_together(reads: dict[Part | None, tuple[set[str], str]]) -> float:
        asked.append(reads)
        return left if all("position" not in said for said, _ in reads.values()) else 1.0

    tried = SimpleNamespace(stay_together=stay_together, sources=lambda part: ["token", "position"])
    running = SimpleNamespace(by_name={"head 0.0": head, "MLP 0": later}, paths=True)
    reading: Any = SimpleNamespace(running=running, tried=tried)
    one = Head("head 0.0", "", "token", ((0.0, -1.0),), "token", "head 0.0")
    program = replace(ENDS, steps=(one,), answer=replace(ENDS.answer, of=("head 0.0",)))
    roles = {part: findings.PartRole(str(part), "explained") for part in (head, later)}
    held: Any = SimpleNamespace(places=("head 0.0", "MLP 0"))
    rest, more = causal.reads_at_once(reading, program, roles, [held])
    assert (rest, more) == (left, () if shown else (findings.ReadsMore(findings.AT_ONCE, left, "position", left),))
    assert len(asked) == (1 if shown else 3)
    wanted = {head: ({"token"}, "qkv"), None: ({"head 0.0", "MLP 0"}, ""), later: ({"token", "head 0.0", "MLP 0"}, "")}
    assert asked[0] == wanted
    known = replace(interp.explain(interp.compile(ENDS)), rest=left)
    said = f"input at once, {left:.4f} of the answers stay." if shown else f"input, {left:.4f} of the model's answers"
    known = known if shown else replace(known, level="imitated", more=more)
    assert said in known.sentence
    words = "all parts at once read more than the program says: with the rest of what they read taken from"
    assert (words in known.sentence) != shown


@pytest.mark.parametrize(("left", "level"), [(1.0, "explained"), (0.9, "explained"), (0.89, "imitated")])
def test_what_is_read_besides_decides_the_level(left: float, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InputsTried, "stay_together", lambda self, reads: left)
    found = interp.explain(interp.compile(ENDS))
    assert (found.level, found.rest) == (level, left)
    assert [one.reader for one in found.more] == [findings.AT_ONCE] * (level == "imitated")


@pytest.mark.parametrize(
    ("before", "after"),
    [("not read", "explained"), ("minor", "explained"), ("stands in", "explained"), ("not used", "stands in")],
)
def test_what_carries_a_variable_is_used_if_it_matters(before: str, after: str) -> None:
    held: Any = SimpleNamespace(places=("head 0.0", "head 1.0"))
    role = causal.placed(findings.PartRole("head 1.0", before), [held])
    assert (role.status, role.like) == (after, "head 0.0")
    assert findings.lines(replace(role, status="explained")) == ["carries what head 0.0 does, too"]


@pytest.mark.parametrize(
    ("needed", "carrying"), [({"MLP 0"}, {"MLP 0"}), ({"head 0.1", "MLP 0"}, {"head 0.1", "MLP 0"}), ({"MLP 1"}, set())]
)
def test_a_variable_lives_where_nothing_else_is_read(needed: set[str], carrying: set[str]) -> None:
    """The readout needs these besides head 0.0. Head 0.1 stands in for it; MLP 0 reads it alone, and MLP 1 more."""
    head, other, later, mixed = (Part(0, 0), Part(0, 1), Part(0), Part(1))
    own = {later: {"head 0.0"}, mixed: {"head 0.0", "token"}, None: {"head 0.0", *needed}, head: {"token", "position"}}
    reading: Any = SimpleNamespace(
        groups=[(head, other)],
        running=SimpleNamespace(by_name={str(part): part for part in (head, other, later, mixed)}),
        tried=SimpleNamespace(stay_without=lambda part, said, sides: float(own.get(part, {"x"}) <= {*said})),
    )  # fmt: skip
    roles = {
        part: findings.PartRole(str(part), "explained" if part == head else "not used", "") for part in own if part
    } | {other: findings.PartRole("head 0.1", "stands in", "")}
    first = replace(ENDS.steps[0], part="head 0.0")
    program = replace(ENDS, steps=(first,), answer=replace(ENDS.answer, of=("first",)))
    held = findings.VariableRole("the first token", ("head 0.0",), "", Interchange.none())
    more = (findings.ReadsMore(findings.READOUT, 0.5),)
    judged = causal.Judged(program, findings.Agreement(1, 0, 1.0, 1.0, 1.0, 1.0, ""), roles, (held,), (), more)
    assert causal.carriers(reading, judged) == dict.fromkeys(carrying, "head 0.0")
    if carrying == {"MLP 0"}:  # one that matters is always taken, if it stands in for a place
        reading.running.original = SimpleNamespace(counts=torch.ones(1))
        again = replace(judged, roles={**roles, other: findings.PartRole("head 0.1", "not read", "")})
        assert causal.carriers(reading, again) == dict.fromkeys(["MLP 0", "head 0.1"], "head 0.0")


@pytest.mark.parametrize(("needed", "carrying"), [("head 0.1", {"head 0.1"}), ("MLP 1", set())])
def test_what_is_read_at_once_may_be_carried_too(
    needed: str, carrying: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All parts at once read more, unless heads that stand in for a place of the variable are places of it, too: as few
    as are needed."""
    head, other, third = (Part(0, n) for n in range(3))
    reading: Any = SimpleNamespace(
        groups=[(head, other, third)], tried=SimpleNamespace(),
        running=SimpleNamespace(by_name={str(part): part for part in (head, other, third)}),
    )  # fmt: skip
    roles = {part: findings.PartRole(str(part), "stands in", "") for part in (other, third)}
    held = findings.VariableRole("the first token", ("head 0.0",), "", Interchange.none())
    more = (findings.ReadsMore(findings.AT_ONCE, 0.5),)
    program = replace(ENDS, steps=(), answer=replace(ENDS.answer, of=(), weights=()))
    judged = causal.Judged(program, findings.Agreement(1, 0, 1.0, 1.0, 1.0, 1.0, ""), roles, (held,), (), more)
    monkeypatch.setattr(
        causal, "reads_at_once",
        lambda reading, program, roles, variables: (1.0 if needed in variables[0].places else 0.5, ()),
    )  # fmt: skip
    assert causal.carriers(reading, judged) == dict.fromkeys(carrying, "head 0.0")
