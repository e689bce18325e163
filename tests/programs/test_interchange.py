"""Interchanges of a program's variables, on compiled models whose circuit is known, against hooks."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from shared.random_programs import random_program
from short_count01 import Short

import interp
from interp.measures.interchange import UNDECIDED, Interchange, split
from interp.models.subject import Subject
from interp.programs.interchange import (
    TIED,
    FreshInputs,
    Interchanger,
    Placed,
    carried,
    in_pairs,
    interchanged,
)
from interp.programs.language import NEVER, Head, Linear, Program, Table, largest
from interp.tasks.populations import Population, everything, sample

LIMIT = 0.5
EYE = ((1.0, 0.0), (0.0, 1.0))
FIRST = Head("first", "", "position", ((0.0, NEVER, NEVER),), "token", "head 0.0")
LAST = Head("last", "", "position", ((NEVER, NEVER, 0.0),), "token", "head 0.1")
SAME = Table("same", ("first", "last"), (1, 0, 0, 1), ("no", "yes"), "MLP 0")
PROGRAM = Program(
    ("a", "b"), 3, True, (FIRST, LAST, SAME), Linear("answer", ("same",), (EYE,), (0.0, 0.0), ("no", "yes"))
)


def scores(program: Program, claimed: Program | None = None) -> dict[tuple[str, ...], Interchange]:
    """The interchanges of what is claimed of a compiled program."""
    subject = Subject.of(interp.compile(program))
    of = Interchanger(FreshInputs(subject, everything(subject.task)), claimed or subject.task.program, {})
    return {one.parts: score for one, score in interchanged(of)}


def test_each_variable_of_a_compiled_program_is_its_own() -> None:
    """Of 8 rows, each with each of the 7 others: half of the others have another first, and another last letter."""
    found = scores(PROGRAM)
    assert [*found] == [("head 0.0",), ("head 0.1",), ("MLP 0",)]
    for score in found.values():
        assert (score.changes.n, score.stays.n) == (32, 24)
        assert score.changes.exact
        assert score.changes.accuracy == score.stays.accuracy == 1.0
        assert score.shown


def test_a_swapped_claim_is_not_shown() -> None:
    """Where the two heads are taken for each other, the answer changes with the other letter."""
    claimed = replace(PROGRAM, steps=(replace(FIRST, part="head 0.1"), replace(LAST, part="head 0.0"), SAME))
    found = scores(PROGRAM, claimed)
    assert found["MLP 0",].shown
    assert not found["head 0.0",].shown
    assert found["head 0.0",].changes.accuracy == pytest.approx(16 / 32)
    subject = Subject.of(interp.compile(PROGRAM))
    of = Interchanger(FreshInputs(subject, everything(subject.task)), claimed, {})
    assert [one.parts for one, _ in interchanged(of, to_the_first=True)] == [("head 0.1",)]  # it ends there


def test_it_is_what_hooks_give() -> None:
    """Head 0.0 from another row, in a model that answers something else than the claim where both letters are b."""
    model = interp.compile(PROGRAM)
    subject = Subject.of(model)
    batch = everything(model.task).batch
    wrong = replace(model.task.program, steps=(FIRST, LAST, replace(SAME, entries=(1, 0, 0, 0))))
    of = Interchanger(FreshInputs(subject, everything(model.task)), wrong, {})
    own = wrong.classes(batch.tokens)[:, -1]
    before, cache = model.run_with_cache(batch.tokens)
    before = before[:, -1].argmax(-1)
    n, right = {True: 0, False: 0}, {True: 0, False: 0}
    made = wrong.run(batch.tokens)
    for base in range(8):
        for source in range(8):
            swapped = {"first": made["first"][source : source + 1]}
            row = batch.tokens[base : base + 1]
            wanted = int(wrong.answer.sums(wrong.run(row, given=swapped)).argmax(-1)[0, -1])

            def put(z: torch.Tensor, hook: object, source: int = source) -> torch.Tensor:
                z[:, :, 0] = cache["blocks.0.attn.hook_z"][source, :, 0]
                return z

            answer = int(model.run_with_hooks(row, fwd_hooks=[("blocks.0.attn.hook_z", put)])[0, -1].argmax())
            change = wanted != int(own[base])
            if base != source and not (change and wanted == int(before[base])):
                n[change] += 1
                right[change] += answer == wanted
    (score,) = [score for one, score in interchanged(of) if one.parts == ("head 0.0",)]
    assert (score.changes.n, score.stays.n) == (n[True], n[False])
    assert (score.changes.right, score.stays.right) == (right[True], right[False])
    assert right != n


def test_pairs_come_from_two_inputs() -> None:
    """First and last letter from different rows meet in the table as the program says."""
    subject = Subject.of(interp.compile(PROGRAM))
    of = Interchanger(FreshInputs(subject, everything(subject.task)), subject.task.program, {})
    pairs = in_pairs(of, of.variables)
    assert [(one.parts[0], other.parts[0]) for one, other, _ in pairs] == [
        ("head 0.0", "head 0.1"), ("head 0.0", "MLP 0"), ("head 0.1", "MLP 0"),
    ]  # fmt: skip
    assert all(score.shown for _, _, score in pairs)


def test_what_depends_on_position_is_swapped_across_positions() -> None:
    """At one length and one position it has one value: without another pairing there would be no case."""
    parity = Table("odd", ("position",), (0, 1, 0), ("even", "odd"), "MLP 0")
    pick = Head("pick", "", "odd", ((0.0, NEVER),), "token", "head 1.0")
    program = Program(("a", "b"), 3, True, (parity, pick), Linear("answer", ("pick",), (EYE,), (0.0, 0.1), ("a", "b")))
    found = scores(program)
    assert found["MLP 0",].how == "at other positions"
    assert found["MLP 0",].changes.n > 0
    assert found["MLP 0",].changes.accuracy == 1.0


def test_values_of_heads_that_read_alike_may_follow() -> None:
    """Whether there is an "a" follows from the share of them, which says more."""
    some = replace(FIRST, name="some", key="token", scores=((0.0, NEVER),))
    share = replace(some, name="share", scores=((0.0, 0.0),), part="head 0.1")
    vote = Linear("answer", ("some", "share"), (EYE, EYE), (0.0, 0.1), ("a", "b"))
    subject = Subject.of(interp.compile(replace(PROGRAM, steps=(some, share), answer=vote)))
    of = Interchanger(FreshInputs(subject, everything(subject.task)), subject.task.program, {})
    assert of.parallel(*of.variables)


def test_heads_that_carry_one_variable_are_interchanged_together() -> None:
    """Two heads that read the same letter, of which the readout needs both to agree, meet no mixture."""
    other = replace(FIRST, name="again", part="head 0.1")
    both = Table("both", ("first", "again"), (0, 1, 1, 0), ("no", "yes"), "MLP 0")
    vote = Linear("answer", ("first", "again"), (EYE, EYE), (0.0, 0.0), ("a", "b"))
    program = replace(PROGRAM, steps=(FIRST, other, both), answer=vote)
    subject = Subject.of(interp.compile(program))
    of = Interchanger(FreshInputs(subject, everything(subject.task)), subject.task.program, {})
    one, again = of.variables[:2]
    assert of.parallel(one, again)
    assert not of.parallel(one, Placed(("both",), ("MLP 0",)))
    assert of.score(Placed((*one.steps, *again.steps), (*one.parts, *again.parts))).shown


@pytest.mark.slow
def test_a_sample_has_an_interval_of_its_base_inputs() -> None:
    model = interp.load("algorithmic/max-of-k")
    found = interp.explain(model)
    assert found.program is not None
    of = Interchanger(FreshInputs(Subject.of(model), sample(model.task, 300, seed=3)), found.program, {})
    ((_, score),) = interchanged(of)
    assert not score.changes.exact
    assert score.changes.rows <= 300
    assert score.changes.low < score.changes.accuracy <= score.changes.high
    assert score.changes.low >= 0.9


def test_a_variable_may_live_in_parts_the_program_lacks() -> None:
    """Three heads carry the first letter and vote; a claim of one of them holds only with another one, of two spare
    ones the one that is enough, and a head that reads another letter is not taken."""
    again, third = replace(FIRST, name="again", part="head 0.1"), replace(LAST, name="third", part="head 0.2")
    vote = Linear("answer", ("first", "again"), (EYE, EYE), (0.0, 0.1), ("a", "b"))
    odd = Table("odd", ("first", "third"), (0, 1, 1, 0), ("no", "yes"), "MLP 0")
    program = replace(PROGRAM, steps=(FIRST, again, third, odd), answer=vote)
    model = interp.compile(program)
    subject = Subject.of(model)
    claim = replace(model.task.program, steps=(FIRST,), answer=replace(vote, of=("first",), weights=(EYE,)))
    of = Interchanger(FreshInputs(subject, everything(model.task)), claim, {})
    ((alone, before),) = interchanged(of)
    assert alone.parts == ("head 0.0",)
    assert not before.shown
    ((both, after),) = interchanged(of, ["head 0.1", "head 0.2", "MLP 0"])
    assert both.parts == ("head 0.0", "head 0.1")
    assert after.shown
    assert [score.shown for _, score in interchanged(of, ["head 0.2"])] == [False]


def test_a_variable_lives_in_spare_parts_of_its_own_layer_first() -> None:
    """Two heads copy the first letter, and one of the next layer each of them; the answer is what these two say."""
    again = [Head(f"again {n}", "", "position", FIRST.scores, name, f"head 1.{n}") for n, name in enumerate("ab")]
    copies = [replace(FIRST, name=name, part=f"head 0.{n}") for n, name in enumerate("ab")]
    answer = Linear("answer", ("again 0", "again 1"), (EYE, EYE), (0.0, 0.5), ("no", "yes"))
    model = interp.compile(Program(("a", "b"), 3, True, (*copies, *again), answer))
    claimed = Program(
        ("a", "b"), 3, True, (copies[0], again[0]), Linear("answer", ("again 0",), (EYE,), (0.0, 0.0), ("no", "yes"))
    )
    of = Interchanger(FreshInputs(Subject.of(model), everything(model.task)), claimed, {})
    found = interchanged(of, ["head 0.1", "head 1.1"])
    assert [one.parts for one, _ in found] == [("head 0.0", "head 0.1"), ("head 1.0", "head 1.1")]
    assert all(score.shown for _, score in found)


@pytest.mark.slow
def test_a_head_may_carry_how_often_its_own_token_occurs() -> None:
    """histogram/bos-all-counts: with another position's output, the model answers that position's count."""
    found = interp.explain(interp.load("histogram/bos-all-counts"))
    assert found.level == "explained"
    assert [step.part for step in found.program.steps if step.part] == ["head 0.0", "head 0.0"]
    read = replace(found.program, steps=tuple(
        step if isinstance(step, Head) or not step.part else replace(step, part="") for step in found.program.steps
    ))  # fmt: skip
    assert carried(read) == found.program
    shipped = Subject.of(interp.load("histogram/bos-all-counts"))
    of = Interchanger(FreshInputs(shipped, sample(shipped.task, 300, seed=3)), read, {})
    ((_, score),) = interchanged(of)
    assert score.accuracy < 0.3


def of_random_program(population: Callable[[interp.Task], Population]) -> Interchanger:
    """A program of 81 inputs whose last head changes few answers."""
    subject = Subject.of(interp.compile(random_program(0), decoys=4, dead=8))
    return Interchanger(FreshInputs(subject, population(subject.task)), subject.task.program, {})


def either_says_a(length: int, population: Callable[[interp.Task], Population]) -> Interchanger:
    """The model says "yes" if one of two heads reads an a first; the claim, if head 0.0 does."""
    is_a = ((0.0, 1.0), *[(0.0, 0.0)] * 3)
    first = Head("first", "", "position", ((0.0, *[NEVER] * (length - 1)),), "token", "head 0.0")
    again = replace(first, name="again", part="head 0.1")
    answer = Linear("answer", ("first", "again"), (is_a, is_a), (0.5, 0.0), ("no", "yes"))
    model = interp.compile(Program(tuple("abcd"), length, True, (first, again), answer))
    claim = replace(model.task.program, steps=(first,), answer=replace(answer, of=("first",), weights=(is_a,)))
    return Interchanger(FreshInputs(Subject.of(model), population(model.task)), claim, {})


def test_pairs_count_as_they_are_drawn() -> None:
    """With the other head kept, the model is right where the answer becomes "yes", and wrong where it becomes "no".
    Three quarters of the sources do this for a quarter of the bases, and a quarter does that for three quarters."""
    of = either_says_a(3, lambda task: sample(task, 800, seed=3))
    found = of.score(of.variables[0])
    tokens = of.running.batch.tokens
    _, donors = next(of.pairings(16))
    base = (tokens[:, 0] == 0).repeat(2)
    source = torch.cat([tokens[one[:, 0] // 3, 0] == 0 for one in donors[:2]])
    assert (found.changes.n, found.changes.right) == (int((source != base).sum()), int((source & ~base).sum()))
    assert found.changes.rows <= 800 < found.changes.n + found.stays.n


def test_where_few_cases_tell_all_known_inputs_are_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interp.programs.interchange.ROWS", 100)
    of = either_says_a(4, everything)
    assert (len(of.running.batch), of.listed) == (100, False)
    assert of.wider is not None
    assert (len(of.wider.running.batch), of.wider.listed, of.wider.wider) == (256, True, None)


def test_more_inputs_are_drawn_where_sources_are_too_few() -> None:
    of = of_random_program(lambda task: sample(task, 40, seed=1))
    narrow = replace(of, most=1)
    assert narrow.score(of.variables[-1]).verdict == "too few cases"
    found = of.score(of.variables[-1])
    assert found.verdict == "shown"
    assert found.stays.rows > 40
    assert of.wider is not None
    assert of.wider.wider is not None
    assert [len(one.running.batch) for one in (of.wider, of.wider.wider)] == [2 * 40, 8 * 40]
    assert of.wider.wider.wider is narrow.wider is of_random_program(everything).wider is None


def test_where_drawn_cases_are_few_all_pairs_are_run() -> None:
    """16 sources of each of 81 rows give cases of 18 rows at most; of all 80, the share is exact."""
    of = of_random_program(everything)
    assert of.drawn == (16, None)
    drawn, found = of._score(of.variables[-1], 16), of.score(of.variables[-1])
    assert not drawn.changes.exact
    assert drawn.verdict == "too few cases"
    assert found.changes.exact
    assert found.changes.n + found.stays.n == 81 * 80
    assert found.changes.n > drawn.changes.n
    assert found.verdict == "shown"


def test_of_a_sample_more_sources_are_drawn() -> None:
    of = of_random_program(lambda task: sample(task, 70, seed=3))
    assert of.drawn == (16, 128)
    drawn, found = of._score(of.variables[-1], 16), of.score(of.variables[-1])
    assert (drawn.changes.exact, found.changes.exact) == (False, False)
    assert found.changes.n > drawn.changes.n


def test_a_variable_without_a_case_is_left_open() -> None:
    """No answer depends on it, so no interchange changes one."""
    vote = replace(PROGRAM.answer, of=("first",), weights=(EYE,))
    assert scores(replace(PROGRAM, answer=vote))["head 0.1",].verdict == "too few cases"


def test_equal_sums_are_no_case() -> None:
    """A head that reads two letters evenly says nothing where they differ; the first answer is no claim then."""
    head = Head("read", "", "position", ((0.0, NEVER, 0.0),), "token", "head 0.0")
    claimed = Program(("a", "b"), 3, True, (head,), Linear("answer", ("read",), (EYE,), (0.0, 0.0), ("no", "yes")))
    subject = Subject.of(interp.compile(replace(claimed, answer=replace(claimed.answer, bias=(0.0, 0.1)))))
    of = Interchanger(FreshInputs(subject, everything(subject.task)), claimed, {})
    (one,) = of.variables
    donors = torch.arange(8).roll(1)[:, None] * 3 + torch.arange(3)
    tokens = of.running.batch.tokens[torch.arange(8).roll(1)]
    undecided = of.wanted([(one, donors[None])])[0] == UNDECIDED
    assert undecided.tolist() == (tokens[:, 0] != tokens[:, 2]).tolist()
    changes, stays = split(of.wanted([(one, donors[None])])[0], of.own_answers, of.running.answers)
    assert not bool(((changes | stays) & undecided).any())


def test_sums_are_equal_up_to_noise_of_the_weights() -> None:
    sums = torch.tensor([[1.0, 1.0 + 1e-5, 0.0], [1.0, 1.0 + 1e-3, 0.0], [3.0, 2.0, 3.0]]).double()
    assert largest(sums, TIED).tolist() == [UNDECIDED, 1, UNDECIDED]
    assert largest(sums[:, :1], TIED).tolist() == [0, 0, 0]


def test_of_rows_as_counts_more_are_drawn_and_not_more_sources() -> None:
    """A model that says yes up to a share of 0s. Few rows change, and with more sources these are the same ones."""
    spec = interp.ModelSpec(
        task=Short().ref, d_model=2, direction="causal", layers=(interp.Layer(d_head=1, norm="none"),),
        positions="none", readout_at=Short.readout, final_norm="none",
    )  # fmt: skip
    model = interp.build(spec)
    for name, parameter in model.named_parameters():
        parameter.data.zero_()
        if name.endswith(("W_V", "W_O", "W_U")):
            parameter.data.flatten()[0] = 1.0
    model.embed.W_E.data[1, 0], model.unembed.b_U.data[1] = 1.0, LIMIT
    share = Head("share", "", "", ((0.0,),), "token", "head 0.0")
    weights = tuple((float(token == "0"), 0.0) for token in model.task.vocabulary)
    answer = Linear("answer", ("share",), (weights,), (0.0, LIMIT), ("no", "yes"))
    claimed = Program(tuple(model.task.vocabulary), 20, True, (share,), answer, read=Short.readout)
    of = Interchanger(FreshInputs(Subject.of(model), sample(model.task, 40, "test", 3)), claimed, {})
    found = of.score(of.variables[0])
    assert of.wider is not None
    assert found.verdict == "shown"
    assert found.changes.rows > 40
    assert {(times, drawn) for times, drawn, _ in of.fresh.pairings} == {(1, 16), (2, 16)}
