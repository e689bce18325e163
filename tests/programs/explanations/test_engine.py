"""interp.explain on models whose mechanism is known, and on models without one."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from drawn_weights import hooked, set_to_zero
from same_model import with_dead_parts
from shared.random_programs import random_program
from standins import Recall

import interp
from interp.measures.interchange import Cases, Interchange
from interp.measures.runs import Part, reads_of
from interp.models.subject import Subject
from interp.programs import interchange, quantize
from interp.programs.decompile import decompile, program_of
from interp.programs.explanations import Explanation, causal, engine, explanation
from interp.programs.explanations.bench import STEPS_PER_SECOND, Bench, Steps
from interp.programs.explanations.findings import USED, Cancelling, PartRole, StandIns, VariableRole
from interp.programs.interchange import FreshInputs, Interchanger, interchanged, same_partition
from interp.programs.language import NEVER, Head, Linear, Program, Sums
from interp.programs.relevance import Kinds
from interp.programs.running import Running
from interp.programs.task import ENDS
from interp.programs.words import parts_words
from interp.support import words
from interp.tasks.populations import everything, sample


def at(place: int) -> tuple[float, ...]:
    """Scores that select one of three positions."""
    return tuple(0.0 if key == place else NEVER for key in range(3))


LETTERS = ("a", "b", "c")
EYE = tuple(tuple(float(one == other) for other in LETTERS) for one in LETTERS)
SAME = Linear("answer", ("second",), (EYE,), (0.0,) * 3, LETTERS)


def test_the_program_of_the_parts() -> None:
    model = interp.build("algorithmic/max-of-k-exact", K=3, v=8)
    found = interp.explain(model)
    assert (found.level, found.count("explained")) == ("explained", 1)
    assert found.agreement.changed == 0
    assert Explanation.from_json(found.to_json()) == found
    batch = model.task.sample(30, seed=4)
    words = [[model.task.vocabulary[token] for token in row] for row in batch.tokens.tolist()]
    assert [found.answer(row) for row in words] == [str(answer) for answer in model.predict(batch.tokens).tolist()]


@pytest.mark.parametrize("name", ["algorithmic/brackets", "count01/paper", "algorithmic/induction"])
def test_parts_that_write_nothing_do_not_count(name: str) -> None:
    model = interp.load(name)
    of = model.spec.layers
    size = engine.Size.of(Subject.of(model))
    assert size.parameters == sum(one.numel() for one in model.parameters())
    assert size.heads == sum(layer.n_heads for layer in of)
    assert size.neurons == sum(layer.mlp.d_mlp for layer in of if layer.mlp)
    more = with_dead_parts(model).model
    assert more.spec.layers != of
    assert engine.Size.of(Subject.of(more)) == size


def test_variables_have_names_where_positions_are_known() -> None:
    """Not in count space, where a row holds each of its tokens once."""
    for model, names in ((interp.compile(ENDS), True), (interp.load("count01/minimal"), False)):
        subject = Subject.of(model)
        reading = decompile(Running.of(subject, subject.task.sample(60, seed=0)))
        program = program_of(reading)
        assert program is not None
        assert bool(engine.named(reading, program).words) == names


def test_a_name_is_true_of_tokens_from_other_rows_too() -> None:
    """Where the first two tokens of all inputs are equal, a head that reads the second does not read the first."""
    second = Head("second", "", "position", (at(1),), "token")
    subject = Subject.of(interp.compile(Program(LETTERS, 3, True, (second,), SAME)))
    batch = subject.task.sample(60, seed=0)
    tokens = batch.tokens.clone()
    tokens[:, 0] = tokens[:, 1]
    reading = decompile(Running.of(subject, replace(batch, tokens=tokens)))
    program = program_of(reading)
    assert program is not None
    assert engine.named(reading, program).words == {"head 0.0": "the second token"}


def test_a_name_counts_what_the_values_count() -> None:
    """A head reads the position of the last token '?', which is less than the number of tokens."""
    words = ("[B]", "a", "?", "_")
    where = Head("second", "", "token", (tuple(0.0 if word == "?" else NEVER for word in words),), "position")
    numbers = tuple(map(str, range(5)))
    answer = Linear("answer", ("second",), ((EYE[0], EYE[0], *EYE),), (0.0,) * 3, ("few", "some", "many"))
    program = Program(words, len(numbers), False, (where,), answer, pad="_", read="?")
    subject = Subject.of(interp.compile(program, first="[B]", last="?", shortest=1))
    reading = decompile(Running.of(subject, everything(subject.task).batch))
    found = program_of(reading)
    assert found is not None
    assert {*found.values["head 0.0"]} <= {*numbers}
    assert engine.named(reading, found).words == {"head 0.0": "the position"}  # of the last token itself


@pytest.mark.slow
def test_levels_of_a_soft_head_have_the_values_of_their_quantity() -> None:
    """Of 20 digits, one is a 1: the recognizer's MLP tells 19 zeros from all other numbers."""
    found = interp.explain(interp.load("languages/one"), seconds=600.0)
    assert found.program is not None
    assert "MLP 0 says whether the number of 0s (head 0.0) is '19'." in found.sentence
    assert sorted(found.program.values["head 0.0 level"], key=int) == [str(number) for number in range(21)]
    assert set(found.program.values["MLP 0"]) == {"19", "other"}


@pytest.mark.slow
@pytest.mark.parametrize("enough", [interchange.ENOUGH, 300])
def test_interchanges_without_an_answer_are_counted(enough: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recognizer of palindromes adds up how two halves differ; with halves of two rows, the sum is often 0. So
    it is where pairs run as they are drawn, and where one is chosen for each row, because few change the answer."""
    monkeypatch.setattr(interchange, "ENOUGH", enough)
    found = interp.explain(interp.load("languages/palindrome"), seconds=600.0)
    shares = [role.interchange.undecided / role.interchange.tried for role in found.variables]
    assert found.level == "explained"
    assert max(shares) > 0.5
    assert f"In up to {words.at_most(max(shares))} of the interchanges, the program has no answer" in found.sentence


def test_all_of_a_judgement_decides_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that ends at the first refuted variable looks in no further places of it."""
    found = interp.explain(interp.compile(ENDS))
    assert found.program is not None
    assert found.agreement is not None
    subject = Subject.of(interp.compile(ENDS))
    fresh, reading = (
        FreshInputs(subject, everything(subject.task)),
        decompile(Running.of(subject, subject.task.sample(9))),
    )
    for status, level in (("explained", "explained"), ("not read", "imitated")):
        roles = {Part(0): PartRole("MLP 0", status)}
        judged = causal.Judged(found.program, found.agreement, roles, found.variables, (), (), 1.0)
        monkeypatch.setattr(engine, "judge", lambda *of, judged=judged: judged)
        assert engine.with_all_variables(replace(found, level="imitated"), reading, fresh).level == level


def test_a_head_may_attend_so_from_some_positions_only() -> None:
    """The first head attends to the position before; what it reads at the last position reaches no answer."""
    before = Head("before", "position", "position", tuple(at(max(0, query - 1)) for query in range(3)), "token")
    second = Head("second", "", "position", (at(1),), "before")
    found = interp.explain(interp.compile(Program(LETTERS, 3, True, (before, second), SAME)))
    assert [role.only_from for role in found.parts if role.status in USED] == [(0, 1), None]
    assert "attends to the first position and reads the token (from positions 0 and 1; from others it" in found.sentence


def test_moved_rows_are_for_refuted_variables_without_sums() -> None:
    found, counted = (
        replace(interp.explain(model), level="imitated")
        for model in (interp.compile(ENDS), interp.build("algorithmic/max-of-k-exact", K=3, v=3))
    )
    refuted, few = (Interchange(Cases(n, 4, n), Cases(100, 100, 100)) for n in (100, 4))
    roles = {one.verdict: (VariableRole("it", ("head 0.0",), "", one),) for one in (refuted, few)}
    assert engine.may_move(replace(found, variables=roles["refuted"]))
    assert not engine.may_move(replace(counted, variables=roles["refuted"]))
    assert not engine.may_move(replace(found, variables=roles["too few cases"]))
    assert not engine.may_move(replace(found, variables=roles["refuted"], level="in part"))
    sums = replace(
        found.program,
        steps=(
            *found.program.steps,
            Sums("sum", ("token",), (((0.0,),) * len(found.program.vocabulary),), (0.0,), False),
        ),
    )
    assert not engine.may_move(replace(found, variables=roles["refuted"], program=sums))


@pytest.mark.parametrize(
    ("level", "room", "n"), [("explained", True, 2), ("imitated", True, 3), ("imitated", False, 2)]
)
def test_parts_that_the_looser_reading_leaves_out_come_last(
    level: str, room: bool, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a program that is not the model's, all parts are read that matter only with values of other positions,
    unless it has too many constants for more of them."""
    monkeypatch.setattr(engine, "may_grow", lambda found, program: room)
    model = interp.compile(ENDS, decoys=1)
    subject = Subject.of(model)
    found = [replace(interp.explain(model), level=level)]
    every = list(Running.of(subject, everything(subject.task).batch).parts)
    monkeypatch.setattr(engine, "used", lambda *args, **pairs: every)
    read = [one for one, *_ in engine.read_in_turn(subject, everything(subject.task), Steps(), found)]
    read = [one for one in read if not one.finer]
    assert len(read) == n
    assert [one.strict for one in read] == [True, False, False][:n]
    assert len(read[1].matter) < len(every)
    assert read[-1].matter == (every if n == 3 else read[1].matter)


@pytest.mark.parametrize("other", [True, False])
@pytest.mark.parametrize("shown", [True, False])
def test_a_finer_reading_follows_one_that_is_imitated(
    shown: bool, other: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the strict reading, and after the looser one, if it gives another program; with values of other rows where
    a variable is not shown. Rows move only where one is refuted."""
    model = interp.compile(ENDS)
    subject, (one, *rest) = Subject.of(model), interp.explain(model).variables
    few = replace(one, interchange=Interchange(Cases(4, 4, 4), Cases(100, 100, 100)))
    found = [replace(interp.explain(model), level="imitated", variables=(one if shown else few, *rest))]
    programs = (replace(ENDS, read=read) for read in ("all", "first", "last", "all", "first"))
    if other:
        monkeypatch.setattr(engine, "program_of", lambda reading: next(programs))
    reading = engine.read_in_turn(subject, everything(subject.task), Steps(), found)
    read = [(one.strict, one.finer, one.of_other_rows) for one, *_ in reading]
    monkeypatch.setattr(engine, "size_of", lambda found: found.parameters)
    program, missing = found[0].program, replace(found[0], level="in part", listing="gives 0.9 of the model's answers")
    assert not engine.may_be_finer(replace(missing, listing=""), program)
    assert not engine.may_be_finer(replace(missing, parameters=8 * program.constants - 1), program)
    assert engine.may_be_finer(replace(missing, parameters=8 * program.constants), program)
    assert not engine.may_be_finer(missing, None)
    fitted = replace(program, steps=(*program.steps, Sums("sums", (), (), (0.0,))))
    assert engine.may_be_finer(replace(found[0], parameters=1), program)
    assert [engine.may_be_finer(replace(found[0], parameters=n), fitted) for n in (1, 10**6)] == [False, True]
    assert [engine.may_grow(replace(found[0], parameters=n), fitted) for n in (1, 10**6)] == [False, True]
    finer = (True, not shown)
    assert read == [(True, False, False), (True, *finer), (False, False, False), (False, *finer)][: 4 if other else 3]
    now = quantize.enough_of(0.999, finer=True), quantize.enough_of(1.0, finer=False)
    assert now == (0.999, quantize.SHARE_KEPT_BY_VALUES)


@pytest.mark.parametrize(("path", "value", "said"), [
    (("parameters",), "many", "parameters = 'many'"), (("joint",), [], "joint = []"),
    (("parts", 0, "part"), "x", "'x' is no head"), (("parts", 0, "without"), {}, "parts.without = "),
    (("variables", 0, "interchange", "stays", "n"), "x", "variables.interchange.stays.n"),
    (("agreement", "share"), "x", "share = 'x'"), (("program", "length"), "x", "length = 'x'"),
    (("program", "steps", 0, "scores"), [["x"]], "scores.0.0 = 'x'"), (("program", "answer", "bias"), 3, "bias = 3"),
])  # fmt: skip
def test_entries_of_other_types_are_refused(path: tuple[Any, ...], value: Any, said: str) -> None:
    data = json.loads(interp.explain(interp.build("algorithmic/max-of-k-exact", K=3, v=3)).to_json())
    inner = data
    for name in path[:-1]:
        inner = inner[name]
    assert path[-1] in inner or isinstance(inner, list)
    inner[path[-1]] = value
    with pytest.raises(interp.InterpError, match=re.escape(said)) as refused:
        Explanation.from_json(json.dumps(data))
    assert "\n" not in str(refused.value)


def test_rows_and_files_that_do_not_fit_are_refused() -> None:
    found = interp.explain(interp.build("algorithmic/max-of-k-exact", K=3, v=3))
    for row, said in ((["z"], "unknown token 'z'; known: 0, 1, 2, ="), ([], "a row without tokens has no answer"),
                      (["0", "1"], "row 0 has no '=', where the answer is read")):  # fmt: skip
        with pytest.raises(interp.InterpError, match=said):
            found.answer(row)
    for text, said in (("{}", "it has no entry 'schema'"), ('{"schema": 0}', "an explanation of schema 0 is not")):
        with pytest.raises(interp.InterpError, match=said):
            Explanation.from_json(text)
    for name in ("program", "parts", "variables"):
        cut = {key: value for key, value in json.loads(found.to_json()).items() if key != name}
        with pytest.raises(interp.InterpError, match=f"it has no entry '{name}'"):
            Explanation.from_json(json.dumps(cut))
    with pytest.raises(interp.InterpError, match=r"answers at one place of a row \(=\): leave out position="):
        found.answer(["0", "1", "2", "="], position=0)
    with pytest.raises(interp.InterpError, match="None is not a program"):
        interp.compile(None)  # type: ignore[arg-type]


def doubled(
    shares: tuple[float, ...], places: tuple[int, ...] | None = None, letters: str = "abcd"
) -> interp.TaskModel:
    """Heads that read one of three letters (by default the first); each votes for it as the answer."""
    eye = tuple(tuple(float(i == j) for j in letters) for i in letters)
    answer = Linear("answer", ("read",), (eye,), (0.0,) * len(letters), tuple(letters))
    made = []
    for place in places or (0,) * len(shares):
        read = Head("read", "", "position", (tuple(0.0 if i == place else NEVER for i in range(3)),), "token")
        made.append(interp.compile(Program(tuple(letters), 3, True, (read,), answer)))
    one, heads = made[0], [dict(each.named_parameters()) for each in made]
    layer = one.spec.layers[0].model_copy(update={"n_heads": len(shares)})
    tensors = dict(heads[0])
    for name in ("W_Q", "W_K", "W_V", "b_Q", "b_K", "b_V"):
        if (at := f"blocks.0.attn.{name}") in tensors:
            tensors[at] = torch.cat([head[at] for head in heads])
    out = "blocks.0.attn.W_O"
    tensors[out] = torch.cat([share * head[out] for share, head in zip(shares, heads, strict=True)])
    return interp.TaskModel(one.spec.model_copy(update={"layers": (layer,)}), one.task, tensors)


@pytest.mark.parametrize("shares", [(0.6, 0.4), (0.4, 0.6), (0.5, 0.5), (0.5, 0.3, 0.4)])
def test_heads_that_stand_in_for_each_other_are_said_to(shares: tuple[float, ...]) -> None:
    """Any of them will do; the program reads one."""
    found = interp.explain(doubled(shares))
    names = tuple(f"head 0.{head}" for head in range(len(shares)))
    but_one = (1.0,) * 3 if len(names) == 3 else ()
    assert found.stand_ins == (StandIns(names, 0.25, but_one),)
    assert [one.without for one in found.parts] == [1.0] * len(shares)
    used = [one for one in found.parts if one.status in USED]
    # Of equal votes for two letters, either may win; where the others outvote one, the variable lives in two.
    assert len(used) == (2 if 0.5 in shares else 1)
    assert [one.part for one in used if not one.like] == [step.part for step in found.program.steps]
    said = (
        f"{parts_words(names).capitalize()} stand in for each other: with one of them at its mean, all of the answers"
    )
    assert said in found.sentence
    with_all = "; with both" if len(names) == 2 else " stay; with all but one, all of the answers stay; with all"
    assert f"{with_all}, 0.2500." in found.sentence


def test_a_head_that_stands_in_but_for_a_few_answers_is_said_to() -> None:
    """The second head votes for all letters but one; without both heads, nothing is known of the answer."""
    model = doubled((0.6, 0.4), letters="abcdefghijklmnopqrst")
    with torch.no_grad():
        vote, writes = model.W_U[:, 3], model.blocks[0].attn.W_O[1]
        writes -= (writes @ vote)[:, None] * vote / vote.square().sum()
    found = interp.explain(model)
    shares = [one.without for one in found.parts]
    assert [one.status for one in found.parts] == ["explained", "stands in"]
    assert shares == [pytest.approx(0.95, abs=0.01), 1]
    assert found.stand_ins == (StandIns(("head 0.0", "head 0.1"), pytest.approx(0.05, abs=0.01)),)
    assert "Heads 0.0 and 0.1 stand in for each other: with one of them at its mean, 0.9" in found.sentence


def test_what_values_read_besides_a_variable_is_a_term_of_a_sum() -> None:
    """FIRST adds 1/2 for a 1 at the first place, and takes 1/2 for a 0 there (Chiang and Cholak 2022, section 3.1). The
    values of its last head read the place, too, which a table of MLP 0 alone left out: the same answers by another way.
    """
    found = interp.explain(interp.build("languages/first"))
    assert (found.level, found.more) == ("explained", ())
    reads = found.program.step("head 1.0 reads")
    assert isinstance(reads, Sums)
    weights = dict(zip(reads.of, reads.weights, strict=True))
    assert [round(row[0], 6) for row in weights["position"][:4]] == [0, -0.5, 0, 0]
    assert sorted(round(row[0], 6) for row in weights["MLP 0"]) == [0, 1]
    head = found.program.step("head 1.0")
    assert isinstance(head, Head)
    assert (head.query, head.key) == ("", "")


def test_shares_are_those_of_the_parts_that_are_said() -> None:
    """What stands in was moved with what is not used, where a later reading had changed which it is."""
    parts = (PartRole("head 0.0", "not used"), PartRole("MLP 0", "stands in"))
    found = replace(interp.explain(interp.compile(ENDS)), parts=parts)
    asked: list[tuple[list[str], bool]] = []

    def left(parts: Any, moved: bool = False) -> float:
        asked.append(([*map(str, parts)], moved))
        return 0.9 if moved else 1.0

    reading: Any = SimpleNamespace(
        running=SimpleNamespace(by_name={"head 0.0": Part(0, 0), "MLP 0": Part(0)}), left=left
    )
    again = engine.with_shares(found, reading)
    assert (again.without, again.moved) == (1.0, 0.9)
    assert sorted(asked) == [(["head 0.0"], True), (["head 0.0", "MLP 0"], False)]


def test_a_part_that_reads_more_is_told() -> None:
    """Two of three votes give the answer: with one of them alone, the readout reads more."""
    subject = Subject.of(doubled((0.4, 0.35, 0.35), (0, 0, 1)))
    reading = decompile(Running.of(subject, everything(subject.task).batch))
    (head, *others) = reading.running.parts
    first = Head("first", "", "position", ((0.0, NEVER, NEVER),), "token", str(head))
    eye = tuple(tuple(float(i == j) for j in range(4)) for i in range(4))
    program = Program(tuple("abcd"), 3, True, (first,), Linear("answer", ("first",), (eye,), (0.0,) * 4, tuple("abcd")))
    (more,) = causal.reads_more(reading, program, {}, ())
    assert more.reader == "the readout"
    assert more.left < 0.9
    assert more.most in map(str, others)
    assert more.left <= more.alone < 1
    role = PartRole(str(others[0]), "stands in", like=str(head))
    assert causal.reads_more(reading, program, {others[0]: role}, ()) == ()
    both = VariableRole("", (str(head), str(others[0])), "", Interchange.none())
    assert causal.reads_more(reading, program, {}, [both]) == ()
    apart = replace(program, steps=(first, replace(first, name="second", part=str(others[0]))))
    assert causal.reads_more(reading, apart, {}, [both]) == (more,)  # the answer does not say that it reads the second


def test_what_misleads_has_several_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """At its mean, the other head gives the answer alone; with another letter, it does not, unless its vote is weak."""
    monkeypatch.setattr(quantize, "separate", lambda *_: 0)  # values are exact here, and would be told apart anyway
    subject = Subject.of(doubled((0.6, 0.4)))
    running = Running.of(subject, everything(subject.task).batch)
    strong, weak, eye = Part(0, 0), Part(0, 1), torch.eye(running.value(Part(0, 0)).shape[-1])
    several = [quantize.quantize(running, Kinds(running), part, eye, strict).size > 1
             for part, strict in ((strong, True), (strong, False), (weak, True))]  # fmt: skip
    assert several == [True, False, False]


@pytest.mark.slow
def test_a_head_that_carries_the_same_is_read_as_the_other() -> None:
    """Two soft heads that give the largest number by half: a sum over both has 8,514 constants."""
    one = interp.load("algorithmic/max-of-k")
    layer = one.spec.layers[0].model_copy(update={"n_heads": 2})
    tensors = {name: parameter.detach().clone() for name, parameter in one.named_parameters()}
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        share = 0.5 if name == "W_O" else 1.0
        tensors[f"blocks.0.attn.{name}"] = torch.cat([share * tensors[f"blocks.0.attn.{name}"]] * 2)
    model = interp.TaskModel(one.spec.replace(layers=(layer,), origin=None), one.task, tensors)
    found, alone = interp.explain(model), interp.explain(one)
    assert found.program is not None
    assert found.agreement == alone.agreement
    assert found.constants == alone.constants
    assert [step.part for step in found.program.steps] == ["head 0.0"]
    assert [(one.status, one.like, one.alike) for one in found.parts] == [
        ("explained", "", None), ("explained", "head 0.0", 1.0),
    ]  # fmt: skip
    assert found.sentence.startswith(
        "Explained. Both parts are used. With one of heads 0.0 and 0.1 alone at its mean, 0."
    )
    assert (
        "The program reads head 0.0 in place of head 0.1: with the attention of head 0.0 in place of its own, all of "
        "the answers stay. " in found.sentence
    )
    assert [one.at for one in found.hypothesis.variables] == [("head 0.0", "head 0.1")]
    assert interp.evaluate_hypothesis(model, found.hypothesis).interchange["stays"].tolist() == [1.0]
    assert Explanation.from_json(found.to_json()) == found


def swapped(model: interp.TaskModel, tokens: torch.Tensor, drawn: torch.Tensor, heads: list[int]) -> torch.Tensor:
    """The answers with the values of some heads from other rows."""

    def swap(z: torch.Tensor, hook: object) -> torch.Tensor:
        z[:, :, heads] = z[drawn][:, :, heads]
        return z

    return model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.attn.hook_z", swap)])[:, -1].argmax(-1)


@pytest.mark.parametrize("shares", [(1.0,), (1.0, 1.0, 1.0)])
def test_variables_are_interchanged_in_all_their_places(shares: tuple[float, ...]) -> None:
    """Of three heads that vote alike, the program reads one in place of two, which outvote the third together."""
    model = doubled(shares)
    found = interp.explain(model)
    tokens = everything(model.task).batch.tokens
    drawn = torch.randperm(len(tokens), generator=torch.Generator().manual_seed(3))
    for one in found.variables:
        heads = [int(part[-1]) for part in one.places]
        assert swapped(model, tokens, drawn, heads).tolist() == tokens[drawn, 0].tolist()
        assert one.interchange.accuracy == 1.0
        assert one.interchange.changes.exact
    assert found.level == "explained"


def test_a_program_that_does_not_read_a_part_does_not_follow_it() -> None:
    """One that gives the first letter from the tokens would answer as the model, but for interchanges."""
    model = doubled((1.0,))
    population = everything(model.task)
    reading = decompile(Running.of(Subject.of(model), population.batch))
    program = program_of(reading)
    (head,) = program.steps
    again = replace(head, name="again", part="")
    wrong = replace(program, steps=(head, again), answer=replace(program.answer, of=("again",)))
    for one, right in ((program, True), (wrong, False)):
        ((_, score),) = interchanged(Interchanger(FreshInputs(Subject.of(model), population), one, {}))
        assert score.shown == right
        assert (score.changes.n > 0) == right


def test_heads_that_read_differently_are_both_read() -> None:
    """Two letters vote: with the first in place of the second, the answers change."""
    model = doubled((1.0, 1.0), (0, 1))
    reading = decompile(Running.of(Subject.of(model), everything(model.task).batch))
    program = program_of(reading)
    assert reading.alike == {}
    assert [step.part for step in program.steps][:2] == ["head 0.0", "head 0.1"]


@pytest.mark.parametrize(("taken_back", "cancel"), [(-5.0, True), (-4.9, True), (-4.0, False)])
def test_heads_that_cancel_are_said_to_and_not_used(taken_back: float, cancel: bool) -> None:
    """One votes five times for the second letter, the other takes this back, so that only the first letter counts."""
    found = interp.explain(doubled((1.0, 5.0, taken_back), (0, 1, 1)))
    assert found.level == "explained"
    if not cancel:  # what is left of the votes for the second letter matters
        assert found.cancelling == ()
        return
    assert found.cancelling == (Cancelling(("head 0.1", "head 0.2"), 1.0),)
    assert [one.status for one in found.parts] == ["explained", "not used", "not used"]
    said = (
        "Heads 0.1 and 0.2 cancel: with either alone at its mean, 0.2500 to 0.7500 of the answers stay; with both, all."
    )
    assert said in found.sentence
    assert [step.part for step in found.program.steps] == ["head 0.0"]
    assert Explanation.from_json(found.to_json()) == found
    data = json.loads(found.to_json())
    del data["cancelling"]  # as in files that were written before there was this entry
    assert Explanation.from_json(json.dumps(data)) == replace(found, cancelling=())


@pytest.mark.slow
def test_a_program_is_judged_on_inputs_drawn_apart() -> None:
    model = interp.build("algorithmic/max-of-k-exact")
    found, batch = interp.explain(model), model.task.sample(5_000, "test", seed=2)
    assert found.program is not None
    assert found.agreement.on.startswith("on a sample of 5,000 inputs (split test, seed 2), drawn apart from those")
    given = found.program.classes(batch.tokens)[:, -1]
    assert found.agreement.changed == int((given != model.predict(batch.tokens)).sum())
    assert "seed 0" in found.tested_on


@pytest.mark.slow
def test_a_rule_is_no_mechanism() -> None:
    """Where no part has a description, the rule for the answers is said to be no more."""
    model = interp.load("algorithmic/addition")
    found = interp.explain(model)
    assert found.level == "answers only"
    assert found.program is None
    assert found.rule is not None
    assert found.sentence.startswith("The answer is the next digit of the sum of the two numbers")
    assert found.sentence.endswith("How the model computes it is not explained.")
    assert "i: the position where the answer is read, from 0." in found.source
    with pytest.raises(interp.InterpError, match="unknown token 'z'"):
        found.answer(["z"])
    batch = model.task.sample(20, seed=4)
    reads = reads_of(Subject.of(model), batch)
    answers = model.predict(batch.tokens)[reads.rows, reads.positions].tolist()
    for row, at, answer in zip(reads.rows.tolist(), reads.positions.tolist(), answers):
        assert found.answer([model.task.vocabulary[t] for t in batch.tokens[row].tolist()], at) == str(answer)


def test_a_listing_is_no_explanation() -> None:
    """A program has fewer constants than there are inputs, and, where it holds sums, a share of the parameters."""
    eye = ((1.0, 0.0), (0.0, 1.0))
    three = ((1.0, 2.0, 3.0), (4.0, 5.0, 6.0))
    answer = Linear("answer", ("sums",), ((*eye, (0.0, 0.0)),), (0.0, 1.0), ("a", "b"))
    program = Program(("a", "b"), 1, True, (Sums("sums", ("token",), (three,), (0.0, 0.0, 0.0)),), answer)
    assert program.constants == 9
    task = interp.build("algorithmic/max-of-k-exact", K=2, v=3).task
    nine, drawn = everything(task), sample(task, 50)
    assert engine.lists(program, nine, nine.n, 10_000) == f"has 9 constants for {nine.n} inputs"
    assert engine.lists(program, drawn, drawn.n, 9 * engine.MOST_SUMS) == ""
    assert (
        engine.lists(program, drawn, drawn.n, 9 * engine.MOST_SUMS - 1)
        == "has 9 constants; the model has 35 parameters"
    )
    apart = "has 9 constants for 5 inputs that the model can tell apart"
    assert engine.lists(program, nine, 5, 10_000) == engine.lists(program, drawn, 5, 10_000) == apart
    assert engine.lists(program, sample(task, 9), 5, 10_000) == ""
    plain = replace(program, steps=(), answer=replace(answer, of=("token",), weights=(eye,)))
    assert engine.lists(plain, drawn, drawn.n, 1) == ""


@pytest.mark.parametrize(("name", "given", "n"), [("algorithmic/max-of-k-exact", {"K": 3, "v": 3}, 10),
                                                  ("histogram/dot-exact", {"T": 2, "L": 3}, 6)])  # fmt: skip
def test_inputs_of_equal_counts_are_one(name: str, given: dict[str, int], n: int) -> None:
    """Of 27 strings of three letters, 10 differ in their counts; of three places in 8 of two letters, 6 in these or in
    the letter that is there."""
    model = interp.build(name, **given)
    inputs = everything(model.task)
    reads = reads_of(Subject.of(model), inputs.batch)
    rows = [tuple(row) for row in inputs.batch.tokens.tolist()]
    here = [(sorted(rows[row]), rows[row][at]) for row, at in zip(reads.rows.tolist(), reads.positions.tolist())]
    assert engine.told_apart(Subject.of(model), inputs.batch) == len({str(one) for one in here}) == n


def test_inputs_at_other_places_are_others() -> None:
    model = interp.compile(ENDS)
    assert engine.told_apart(Subject.of(model), everything(model.task).batch) == 8


def test_a_memorized_table_is_as_long_as_its_inputs() -> None:
    """The heads read the token that is there, so the readout needs one table of it."""
    found = interp.explain("memorization/bigram")
    assert found.level == "in part"
    assert found.listing == "has 100 constants for 100 inputs"
    assert found.sentence.startswith("Explained in part. Both parts are used. ")
    assert "A rule for the answers (a look-up table, no algorithm): " in found.sentence


def test_sums_without_names_are_said_to_be_a_smaller_network() -> None:
    found = interp.explain(interp.compile(random_program(8)))
    assert found.sentence.startswith("Explained. ")
    answer = Linear("answer", ("sums",), (((1.0, 0.0), (0.0, 1.0)),), (0.0, 0.0), ("a", "b"))
    program = Program(("a", "b"), 1, True, (Sums("sums", ("token",), answer.weights, (0.0, 0.0)),), answer)
    begins = "Explained as a smaller network, with 2 weighted sums of which it is not known what they stand for. "
    assert replace(found, program=program).sentence.startswith(begins)


@pytest.mark.slow
def test_an_explanation_does_not_hang_on_the_clock() -> None:
    """The same twice, with and without a limit that is not reached."""
    model = interp.load("count01/paper")
    one, other = interp.explain(model), interp.explain(model, seconds=10_000.0)
    assert one == other
    assert one.level in explanation.GIVEN
    used = {part.part for part in one.parts if part.status != "not used"}
    assert not used & {f"head 0.{head}" for head in (0, 1, 2, 7, 8, 9, 11, 15)}


@pytest.mark.slow
def test_the_variables_of_a_program_are_a_hypothesis() -> None:
    """A table over a head is computed from it, and the model bears the hypothesis out."""
    task = random_program(8)
    model = interp.compile(task)
    hypothesis = interp.explain(model).hypothesis
    assert [one.of != () for one in hypothesis.variables].count(True) >= 1
    result = interp.evaluate_hypothesis(model, hypothesis)
    assert result.scrubbed.accuracy == pytest.approx(result.model.accuracy, abs=0.02)


@pytest.mark.parametrize("seed", range(3))
def test_an_untrained_model_has_no_explanation(seed: int) -> None:
    spec = interp.load("languages/parity-learned").spec
    found = interp.explain(interp.build(spec, seed=seed))
    assert not found.found
    assert not found.parts
    assert found.sentence.startswith("No explanation found: the model ")


def test_a_broken_model_has_no_explanation() -> None:
    model = interp.build("algorithmic/max-of-k-exact", K=3, v=8)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(
                torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0), dtype=parameter.dtype)
            )
    assert not interp.explain(model).found


def test_a_model_of_one_answer_is_said_to_give_one_answer() -> None:
    model = interp.build("algorithmic/max-of-k-exact", K=3, v=4)
    set_to_zero(model)
    assert interp.explain(model).reason == "the model answers 0 to every input on all 64 inputs"


def test_one_answer_may_be_none_of_the_task() -> None:
    task, fields = Recall(), {"n_layers": 1, "d_model": 8, "d_head": 4, "n_heads": 2, "n_ctx": 8, "d_vocab": 6}
    own = hooked(**fields, d_vocab_out=4, attn_only=True, normalization_type=None)
    with torch.no_grad():
        set_to_zero(own)
        own.b_U[3] = 1.0
    subject = Subject.of(interp.load(own, task=task, outputs={word: i for i, word in enumerate(task.answer_words)}))
    reason = engine.not_learned(Bench(subject, sample(task, 50)))
    assert reason == f"the model answers an output that the task does not name to every input {sample(task, 50).on}"


def test_a_stopped_search_says_how_to_give_it_more() -> None:
    found = interp.explain(interp.build("algorithmic/max-of-k-exact", K=3, v=8), seconds=1 / STEPS_PER_SECOND)
    assert found.sentence == (
        "No explanation found: the search was stopped after 1 step (give interp.explain more seconds, or none for no "
        "limit)."
    )


def test_a_share_out_of_range_is_refused() -> None:
    with pytest.raises(interp.InterpError, match=r"share = 1.5 must be from 0.5 to 1"):
        interp.explain("algorithmic/max-of-k-exact", share=1.5)


@pytest.mark.parametrize(
    ("other", "alike"), [([5, 5, 2], True), ([1, 0, 0], False), ([3, 4, 5], False), ([1, 1, 1], False)]
)
def test_variables_are_the_same_if_they_divide_points_alike(other: list[int], alike: bool) -> None:
    one, constant = torch.tensor([0, 0, 1]), torch.tensor([0, 0, 0])
    assert same_partition(one, torch.tensor(other)) is same_partition(torch.tensor(other), one) is alike
    assert not same_partition(constant, torch.tensor(other))  # a constant says nothing, and no quantity names it


def test_answers_that_are_never_drawn_are_among_the_inputs() -> None:
    """The largest of four numbers below 64 is below 9 once in 2,600 rows; a row of one number each has all answers."""
    subject = Subject.of(interp.build("algorithmic/max-of-k-exact", K=4, v=64))
    batch = sample(subject.task, 300).batch
    rows = engine.with_edges(subject, batch)
    assert len(subject.classes(batch).unique()) < 64
    assert subject.classes(rows).unique().tolist() == list(range(64))


def test_no_input_is_added_that_is_there() -> None:
    subject = Subject.of(interp.build("languages/parity"))
    batch = sample(subject.task, 300).batch
    rows = engine.with_edges(subject, batch)
    assert len(rows) > 300
    assert len(engine.with_edges(subject, rows[100:])) == len(rows) - 100


def test_each_number_of_one_of_two_tokens_is_among_the_inputs() -> None:
    """Of 300 strings of twenty symbols, none has fewer than three ones; the edges have 0 to 20."""
    subject = Subject.of(interp.build("languages/parity"))
    batch = sample(subject.task, 300).batch
    one = subject.task.vocabulary.index("1")
    edges = engine.with_edges(subject, batch)[300:]
    assert (edges.tokens == one).sum(1).sort().values.tolist() == list(range(21))
    rows = engine.numbers_of_one(torch.tensor([2, 0, 1, 0]), torch.tensor([1, 2, 3]), torch.tensor([0, 1]))
    assert (rows[:, 0] == 2).all()
    assert (rows[:, 1:] == 0).sum(1).tolist() == [0, 1, 2, 3]


@pytest.mark.slow
def test_values_of_one_effect_are_read_apart_where_they_matter() -> None:
    """Of its last table's four values, three give the same answers on all inputs, but not with another variable
    interchanged."""
    found = interp.explain(interp.compile(random_program(20)))
    assert found.level == "explained"
    assert [len(found.program.values[step.name]) for step in found.program.steps if step.part == "MLP 2"] == [4]
