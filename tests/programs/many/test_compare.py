"""Models are the same by what their programs divide, not by names; the table lasts; variables move between models."""

import json
from dataclasses import replace
from typing import Any

import pytest
import same_model
import torch
from shared.random_programs import random_program

import interp
from interp.models.subject import Subject
from interp.programs.explanations.causal import RULES
from interp.programs.language import NEVER, Program
from interp.programs.many import compare as room
from interp.programs.many.canonical import FORM, Canonical, canonical
from interp.programs.many.compare import ComparedModels, letters, sources_of
from interp.programs.many.one_model import Tasks, learned, right_of, sharing
from interp.programs.many.table import FILE
from interp.programs.steps import Head, Linear, Sums, Table
from interp.programs.task import ENDS, ProgramTask
from interp.report.compared import comparison_page
from interp.support.figures.algorithms import accuracies, phases
from interp.training.train import spec_of

TOKENS = torch.cartesian_prod(*[torch.arange(2)] * 3)
DIFFERS = replace(ENDS, steps=(ENDS.steps[0], replace(ENDS.steps[1], entries=(0, 1, 0, 0))))
"""Whether the row begins with b and ends with a."""


def renamed(program: Program) -> Program:
    """The same program with other names, and with the values of its table the other way round."""
    first, same = program.steps
    assert isinstance(first, Head)
    assert isinstance(same, Table)
    answer = program.answer
    table = replace(same, name="x", of=("token", "head"), entries=tuple(1 - one for one in same.entries),
                    values=same.values[::-1])  # fmt: skip
    swapped = replace(answer, of=("x",), weights=(answer.weights[0][::-1],))
    return replace(program, steps=(replace(first, name="head"), table), answer=swapped)


def twin(turn: int, program: Program = ENDS) -> interp.TaskModel:
    return interp.compile(program, rotate=turn, decoys=1, seed=turn)


def test_names_and_the_order_of_values_do_not_count() -> None:
    one, other = canonical(ENDS, TOKENS), canonical(renamed(ENDS), TOKENS)
    assert one.same_steps(other)
    assert one.shape == other.shape
    assert one.same_answers(other) == 1.0


def test_other_answers_are_another_algorithm() -> None:
    one, other = canonical(ENDS, TOKENS), canonical(DIFFERS, TOKENS)
    assert not one.same_steps(other)
    assert one.shape != other.shape
    assert one.same_answers(other) == 0.25  # by hand: both say no to a?b, and differ on all others


def test_a_map_that_only_renames_is_left_out() -> None:
    first, same = ENDS.steps[0], replace(ENDS.steps[1], part="MLP 0")
    again = Table("again", ("same",), (1, 0), ("x", "y"), part="MLP 1")
    answer = replace(ENDS.answer, of=("again",), weights=(ENDS.answer.weights[0][::-1],))
    longer = replace(ENDS, steps=(first, same, again), answer=answer)
    assert canonical(longer, TOKENS).same_steps(canonical(replace(ENDS, steps=(first, same)), TOKENS))


def counting(*of: str, scores: tuple[float, ...], weights: tuple[tuple[float, float], ...]) -> Program:
    """Whether a row has more 1s than 0s, from attention to both; read at =."""
    head = Head("head", "", "token", (scores,), "token")
    answer = Linear("answer", of, tuple(weights if name == "head" else ((0.0, 1.0),) * 4 for name in of), (0.5, 0.0),
                    ("no", "yes"))  # fmt: skip
    return Program(("0", "1", "2", "="), 4, True, (head,), answer, "=")


def test_constants_and_graded_weights_do_not_count_for_shape() -> None:
    """Heads look at 0 and 1 alike; one answer also reads the token at =, which is always =."""
    rows = torch.cat([torch.cartesian_prod(*[torch.arange(3)] * 3), torch.full((27, 1), 3)], 1)
    ways = ((0.0, -3.0), (0.0, 3.0), (0.0, 0.0), (0.0, 0.0))
    one = canonical(counting("head", scores=(0.0, 0.0, -9.0, -9.0), weights=ways), rows)
    other = canonical(counting("token", "head", scores=(-0.7, 0.0, -8.0, -7.0), weights=ways), rows)
    both = canonical(counting("head", scores=(0.0, 0.0, 0.0, -9.0), weights=ways), rows)
    assert one.shape == other.shape
    assert not one.same_steps(other)
    assert one.shape != both.shape  # it looks at 2, too


def test_inputs_that_change_no_answer_are_left_out() -> None:
    """Whether the ends agree, and from the tokens, too little to matter; then enough to matter."""
    one, some = ENDS.answer, ((0.0, 0.1), (0.1, 0.0))
    little = replace(one, of=("token", "same"), weights=(some, *one.weights))
    much = replace(little, weights=(((0.0, 3.0), (3.0, 0.0)), *one.weights))
    plain = canonical(ENDS, TOKENS)
    assert canonical(replace(ENDS, answer=little), TOKENS).same_steps(plain)
    assert canonical(replace(ENDS, answer=much), TOKENS).shape != plain.shape


def test_sums_that_only_prepare_a_head_are_left_out() -> None:
    """The first position is found by a sum of the position, to which the token adds too little to matter."""
    first, same = ENDS.steps
    assert isinstance(first, Head)
    place = ((40.0,), (0.0,), (0.0,))

    def prepared(by_token: float) -> Program:
        key = Sums("key", ("position", "token"), (place, ((0.0,), (by_token,))), (0.0,))
        return replace(ENDS, steps=(key, replace(first, key="key", scores=((1.0,),)), same))

    assert canonical(prepared(0.1), TOKENS).same_steps(canonical(ENDS, TOKENS))
    assert canonical(prepared(60.0), TOKENS).shape != canonical(ENDS, TOKENS).shape


def test_the_class_that_a_head_reads_is_left_out() -> None:
    """Of all tokens, the head's reader only asks for the share of 0s."""
    rows = torch.cat([torch.cartesian_prod(*[torch.arange(3)] * 3), torch.full((27, 1), 3)], 1)
    ways = ((0.0, -3.0), (0.0, 1.5), (0.0, 1.5), (0.0, 1.5))
    whole = counting("head", scores=(0.0, 0.0, 0.0, -9.0), weights=ways)
    of_token = Table("class", ("token",), (0, 1, 1, 1), ("0", "others"))
    answer = replace(whole.answer, weights=(ways[:2],))
    classed = replace(whole, steps=(of_token, replace(whole.steps[0], value="class")), answer=answer)
    assert torch.equal(classed.classes(rows), whole.classes(rows))
    assert canonical(classed, rows).shape == canonical(whole, rows).shape


def test_canonical_forms_are_plain_data() -> None:
    form = canonical(random_program(0).program, next(random_program(0).inputs()).tokens)
    again = Canonical.from_plain(json.loads(json.dumps(form.to_plain())))
    assert form.weights
    assert again.same_steps(form)


def test_programs_that_differ_are_told_apart() -> None:
    """Six random programs on inputs of their own task: no two have the same form."""
    forms = []
    for seed in range(6):
        task = random_program(seed)
        forms.append(canonical(task.program, task.sample(64).tokens))
    assert len({form.shape for form in forms}) == 6


def test_twins_are_one_and_others_are_not() -> None:
    task = ProgramTask(program=DIFFERS.to_json())
    found = interp.compare([twin(1), twin(2)], progress=False)
    assert found.algorithms == ["A", "A"]
    assert found.same("model 0", "model 1")
    tests = found.to_frame("transplants")
    assert {*tests["source"]} == {"model 0", "model 1"}
    assert tests[["changes", "stays"]].min().min() == 1.0
    assert tests["changes_n"].min() > 0
    with pytest.raises(interp.InterpError, match="only models of one task can be compared, but model 0 is of program"):
        interp.compare([twin(1), interp.compile(task)], progress=False)


def test_rare_changes_are_counted_on_common_inputs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row of 256 is answered "yes"; of 100 rows that are interchanged, few change their answer."""
    monkeypatch.setattr("interp.programs.interchange.ROWS", 100)
    heads = [Head(f"at {n}", "", "position", (tuple(0.0 if n == k else NEVER for k in range(4)),), "token")
             for n in range(4)]  # fmt: skip
    is_a = ((0.0, 1.0), *[(0.0, 0.0)] * 3)
    answer = Linear("answer", tuple(head.name for head in heads), (is_a,) * 4, (3.5, 0.0), ("no", "yes"))
    task = interp.compile(Program(tuple("abcd"), 4, True, tuple(heads), answer)).task
    found = interp.compare([interp.compile(task, rotate=turn, seed=turn) for turn in (1, 2)], progress=False)
    tests = found.to_frame("transplants")
    assert len(tests) == 2 * 4
    assert tests["changes_n"].between(1, 34).all()
    assert (tests["changes"] == 1.0).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["count01/paper", "algorithmic/max-of-k", "algorithmic/max-of-k-positions", "algorithmic/modular-addition"]
)
def test_trained_twins_are_the_same(name: str) -> None:
    """Heads and neurons in another order, and the stream turned where the model has no norms."""
    model = interp.load(name)
    other = same_model.permuted(model, seed=1).model
    if "rotated" in same_model.changes(model):
        other = same_model.rotated(other, seed=2).model
    found = interp.compare([model, other], progress=False)
    assert found.rows[0]["canonical"] is not None
    assert found.by("steps").same("model 0", "model 1")


def test_a_broken_variable_does_not_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the source's places say nothing about the variable, the target does not answer as its program."""
    from interp.programs.many import transplant

    right = transplant.nearest

    def wrong(*given: Any) -> torch.Tensor:
        found = right(*given)
        return found[torch.randperm(len(found), generator=torch.Generator().manual_seed(0))]

    monkeypatch.setattr(transplant, "nearest", wrong)
    found = interp.compare([twin(1), twin(2)], progress=False)
    assert found.to_frame("transplants")["changes"].min() < 0.9


@pytest.mark.slow
def test_exchanges_load_each_model_once(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    for turn in (1, 2, 3):
        interp.save(twin(turn), tmp_path / f"seed-{turn}.safetensors")
    asked = []
    load = room.ModelSource.load
    monkeypatch.setattr(room.ModelSource, "load", lambda source: asked.append(source.name) or load(source))
    found = interp.compare(tmp_path, progress=False)
    assert len(found.pairs(3)) == 4
    assert asked == ["seed-1", "seed-2", "seed-3"] * 2  # to be explained, then for exchanges


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    for turn in (1, 2):
        interp.save(twin(turn), tmp_path / f"seed-{turn}.safetensors")
    whole = interp.compare(tmp_path, tmp_path / "out", progress=False)
    lines = (tmp_path / "out" / FILE).read_bytes().splitlines(keepends=True)
    (tmp_path / "out" / FILE).write_bytes(lines[0] + lines[1][: len(lines[1]) // 2])  # killed while it wrote
    asked = []
    learned = room.learned
    monkeypatch.setattr(room, "learned", lambda model, name, *more: asked.append(name) or learned(model, name, *more))
    again = interp.compare(tmp_path, tmp_path / "out", progress=False)
    assert asked == ["seed-2"]
    assert again.to_frame().equals(whole.to_frame())
    assert again.to_frame("transplants").equals(whole.to_frame("transplants"))
    earlier = (tmp_path / "out" / FILE).read_bytes().replace(b'"form":%d' % FORM, b'"form":1', 1)
    (tmp_path / "out" / FILE).write_bytes(earlier)
    later = interp.compare(tmp_path, tmp_path / "out", progress=False)
    assert asked == ["seed-2"]  # the row with an earlier form has its explanation
    assert later.to_frame().equals(whole.to_frame())
    assert {row["form"] for row in later.rows} == {FORM}
    stale = (tmp_path / "out" / FILE).read_bytes().replace(b'"rules":%d' % RULES, b'"rules":1')
    (tmp_path / "out" / FILE).write_bytes(stale)
    assert interp.compare(tmp_path, tmp_path / "out", progress=False).to_frame().equals(whole.to_frame())
    assert asked == ["seed-2", "seed-1", "seed-2"]  # what was explained by other rules is explained anew
    (tmp_path / "out" / FILE).write_text("mine\n")
    with pytest.raises(interp.InterpError, match="is not the table of a comparison"):
        interp.compare(tmp_path, tmp_path / "out", progress=False)


@pytest.mark.slow
def test_accuracy_is_exact_if_a_certificate_knows_it() -> None:
    """Shipped: 0.9804 on all counts of the domain. One that only knows an interval is not taken."""
    model = interp.load("count01/paper")
    by_sample, proved = right_of(model, False), right_of(model, True)
    assert not by_sample["exact"]
    assert by_sample["low"] < by_sample["accuracy"] < by_sample["high"]
    assert proved["exact"]
    assert proved["n"] == 502_500
    assert proved["low"] == proved["accuracy"] == pytest.approx(0.9804, abs=1e-4)
    assert proved["on"].startswith("by a certificate")
    between = interp.load("histogram/lin")  # its certificate knows an interval
    assert not right_of(between, True)["exact"]


def test_a_certificate_is_asked_for_rows_of_an_earlier_run(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, out = interp.build("count01/minimal"), tmp_path / "out"
    sampled = interp.compare([model], out, progress=False).rows[0]
    assert not sampled["exact"]
    monkeypatch.setattr(room, "learned", None)  # it is not explained anew
    proved = interp.compare([model], out, certify=True, progress=False).rows[0]
    assert proved["on"].startswith("by a certificate")
    assert proved["explanation"] == sampled["explanation"]
    monkeypatch.setattr(room, "right_of", None)  # nor proved anew, whether or not that is asked for
    for certify in (True, False):
        assert interp.compare([model], out, certify=certify, progress=False).rows == [proved]


def test_models_of_one_task_share_its_samples() -> None:
    first, second, other = twin(1), twin(2), interp.build("count01/minimal")
    tasks: Tasks = {}
    one, two, three = (sharing(model, tasks) for model in (first, second, other))
    assert one.task is two.task is not three.task
    assert one.task.sample(5, seed=1) is two.task.sample(5, seed=1) is not one.task.sample(5, seed=2)
    batch = one.task.sample(5, seed=1)
    assert one.classes(batch) is two.classes(batch) is not two.classes(two.task.sample(5, seed=2))
    assert one.read_mask(batch) is two.read_mask(batch)
    assert torch.equal(one.read_mask(batch), Subject.of(first).read_mask(batch))
    assert torch.equal(batch.tokens, first.task.sample(5, seed=1).tokens)
    assert first.task.sample(5) is not first.task.sample(5)  # the given model's own task stays as it is


def test_how_an_algorithm_attends_is_told_with_its_weights() -> None:
    model = interp.build("algorithmic/max-of-k-exact", K=3, v=4)
    assert "(weights '3' 1, '2' " in learned(model, "model")["how"]
    assert "(weights" not in interp.explain(model).how


def test_shares_have_their_interval() -> None:
    rows = [{"model": str(n), "canonical": None, "accuracy": 1.0, "constants": None, "how": "", "axes": {}, "task": "t",
             **dict.fromkeys(("seed", "low", "high", "exact", "on", "level", "answers", "interchange", "parts", "used",
                              "reason"))} for n in range(4)]  # fmt: skip
    shares = ComparedModels(rows).to_frame("algorithms")
    assert shares["algorithm"].tolist() == ["none"]
    assert shares["low"].iloc[0] == pytest.approx(0.5101, abs=1e-4)  # Wilson, 4 of 4: 4 / (4 + 1.96^2)


def test_a_row_is_of_its_weights_not_of_its_name(tmp_path) -> None:
    """Files are trained anew, and models in memory are called model 0, model 1, ..."""
    spec, file = spec_of("max-of-k", d_model=4, n_heads=1, epochs=1), tmp_path / "seed-0.safetensors"
    for seed in (0, 1):
        model = interp.build(spec, seed=seed)
        for given in (interp.save(model, file), model):
            found = interp.compare([given], tmp_path / "out", progress=False)
            assert found.rows[0]["seed"] == seed
            assert found.title.startswith("1 model of task max-of-k")


def test_which_models_are_compared(tmp_path) -> None:
    assert [one.name for one in sources_of("count01/minimal")] == ["count01/minimal"]
    with pytest.raises(interp.InterpError, match=r"models = .*: give several, such as"):
        sources_of(interp.build("count01/minimal"))  # type: ignore[arg-type]
    assert [one.name for one in sources_of("count01/paper")] == [f"count01/paper/seed-{n}" for n in range(4)]
    with pytest.raises(interp.InterpError, match="there is no checkpoint to compare"):
        sources_of(tmp_path)
    with pytest.raises(interp.InterpError, match="count01/paper is given twice"):
        sources_of(["count01/paper", "count01/paper"])


def test_names_of_algorithms() -> None:
    assert [letters(n) for n in (0, 25, 26, 27, 701, 702)] == ["A", "Z", "AA", "AB", "ZZ", "AAA"]


def test_the_page_shows_each_algorithm(tmp_path) -> None:
    for turn, d in ((1, 4), (2, 8)):
        folder = tmp_path / f"d={d}" / "p=2"
        folder.mkdir(parents=True)
        interp.save(twin(turn), folder / f"seed-{turn}.safetensors")
    found = interp.compare(tmp_path, progress=False)
    assert found.to_frame()[["d", "p"]].to_numpy().tolist() == [[4, 2], [8, 2]]
    assert [trace.name for trace in found.plot().data] == ["A"]
    drawn = accuracies(found.to_frame().assign(algorithm=["A", "B"]))
    assert [trace.x for trace in drawn.data] == [(0.0,), (1.0,)]  # each in the column of its name, and all are in sight
    assert (drawn.layout.xaxis.ticktext, drawn.layout.xaxis.range) == (("A", "B"), (-0.5, 1.5))
    assert [trace.name for trace in phases(found.to_frame(), "d", "p").data] == ["A"]
    page = comparison_page(found)
    assert {"algorithms", "transplants", "models"} <= {*page.tables}
    assert "Algorithm A" in page.html()
