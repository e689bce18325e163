"""Programs that are read out of models: compiled ones, whose circuit is known, and the exact models of the zoo."""

from dataclasses import replace
from itertools import permutations, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shared.random_programs import Shape, random_program
from standins import standin

import interp
from interp.measures.runs import Part
from interp.models.subject import Subject
from interp.programs import read_heads
from interp.programs.decompile import decompile, program_of
from interp.programs.language import NEVER, Head, Linear, Program, Step, Table
from interp.programs.readers import Readers, through
from interp.programs.reading import Reading
from interp.programs.relevance import READ, Kinds, backups, stand_ins
from interp.programs.running import Kept, Running
from interp.tasks.populations import everything


def decompiled(model: interp.TaskModel, n: int = 1000) -> Reading:
    whole = everything(model.task).batch if model.task.n_inputs and model.task.n_inputs <= 5000 else None
    batch = model.task.sample(n, seed=0) if whole is None else whole
    return decompile(Running.of(Subject.of(model), batch))


@pytest.mark.parametrize("seed", [5, 6, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, 55, 148))])
def test_compiled_programs_are_read_back(seed: int) -> None:
    """Used parts are the true parts, decoys are not, and the program gives every answer, with a rotated stream."""
    task = random_program(seed)
    model = interp.compile(task, decoys=3, rotate=seed, seed=seed)
    found = decompiled(model)
    assert {str(part) for part in found.matter} == {step.part for step in model.task.program.steps}
    program = program_of(found)
    assert program is not None
    assert found.answered(program.answer, program.steps).share == 1.0
    # By itself, on the task's own rows, without what the decompiler holds.
    batch = everything(task).batch
    same = program.classes(batch.tokens) == task.program.classes(batch.tokens)
    read = found.running.reads
    assert bool(same[read.rows, read.positions].all())


@pytest.mark.slow
@given(seed=st.integers(0, 10**6), layers=st.integers(1, 2), causal=st.booleans(), padding=st.booleans())
@settings(max_examples=3, deadline=None, derandomize=True)
def test_explain_gives_the_function_that_was_compiled(seed: int, layers: int, causal: bool, padding: bool) -> None:
    """On all inputs, by the program alone, against the program that was compiled: not against the model."""
    task = random_program(seed, Shape(layers=layers, heads=2, causal=causal, padding=padding))
    found = interp.explain(interp.compile(task, decoys=2, rotate=seed, seed=seed))
    assert found.level == "explained"
    assert found.program is not None
    batch = everything(task).batch
    read = batch.attention_mask
    if task.readout != "all":
        read = torch.zeros_like(read).scatter(1, task.program.reads(batch.tokens)[:, None], True)
    same = found.program.classes(batch.tokens) == task.program.classes(batch.tokens)
    assert float(same[read].double().mean()) >= 0.995


def test_a_query_that_decides_on_no_input_is_said_all_the_same() -> None:
    """Head 1.0 attends where the token is what head 0.0 has read: that is 'a' wherever one is seen. Without the query,
    "where the token is 'a'" gives the same answers, but not with head 0.0 from another input."""
    never = ((0.0, NEVER), (NEVER, 0.0))
    seen = Head("seen", "", "token", ((0.0, NEVER),), "token", "head 0.0")
    again = Head("again", "seen", "token", never, "token", "head 1.0")
    answer = Linear("answer", ("again",), (((1.0, 0.0), (0.0, 1.0)),), (0.0, 0.0), ("a", "b"))
    subject = Subject.of(interp.compile(Program(("a", "b"), 5, True, (seen, again), answer), rotate=1))
    head = decompile(Running.of(subject, everything(subject.task).batch)).step("head 1.0")
    assert isinstance(head, Head)
    assert head.query == "head 0.0"


def test_a_previous_token_head_and_an_induction_head() -> None:
    found = decompiled(interp.build("algorithmic/induction-exact", length=8), 200)
    program = program_of(found)
    first, second = (step for step in program.steps if isinstance(step, Head))
    assert (first.query, first.key, first.value) == ("position", "position", "token")
    # Each position but the first selects the one before it, as far as rows are long enough to show it.
    chosen = [max(range(len(row)), key=row.__getitem__) for row in first.scores]
    assert chosen[1:8] == list(range(7))
    assert (second.query, second.key, second.value) == ("token", first.name, "token")


def test_places_that_are_always_there_are_selected() -> None:
    """The digits of two numbers that are added, and those before them: no other place gets attention in their stead."""
    found = decompiled(interp.build("algorithmic/addition-exact", digits=3), 300)
    heads = [step for step in found.steps if isinstance(step, Head)]
    assert [(head.query, head.key, head.hard) for head in heads] == [("position", "position", True)] * 2
    # Numbers of three digits, '+', and the sum: digit i of the sum is asked for at place 7 + i.
    chosen = [{k for k, score in enumerate(heads[0].scores[q]) if score == 0.0} for q in range(7, 10)]
    assert chosen == [{i, 4 + i} for i in range(3)]


def test_nearly_even_attention_is_even() -> None:
    """Scores that differ by a hundredth for each pair of places: more than half a's of six."""
    scores = tuple(tuple(0.01 * ((3 * q + 5 * k) % 7) for k in range(6)) for q in range(6))
    most = Linear("answer", ("h",), (((0.0, 1.0), (0.0, -1.0)),), (0.1, 0.0), ("no", "yes"))
    nearly = Head("h", "position", "position", scores, "token")
    program = program_of(decompiled(interp.compile(Program(("a", "b"), 6, False, (nearly,), most))))
    (head,) = program.steps
    assert isinstance(head, Head)
    assert (head.query, head.key, head.scores) == ("", "", ((0.0,),))


def at(name: str, place: int, length: int, value: str = "token") -> Head:
    """What stands at one place."""
    return Head(name, "", "position", (tuple(0.0 if i == place else NEVER for i in range(length)),), value)


def test_false_descriptions_of_parts_change_answers() -> None:
    """In the running model: another place to attend to, another key variable, other weights of an MLP."""

    def stays(found: Reading, step: Step) -> float:
        (part,) = (part for part in found.matter if str(part) == step.name)
        value = step.applied(found.made, found.seen) @ found.vectors[step.name].double()
        return found.running.original.kept({part: value.float()}).share  # later parts run on it

    found = decompiled(interp.build("algorithmic/induction-exact", length=8), 200)
    first, second = (step for step in found.steps if isinstance(step, Head) and step.part)
    assert all(role.kept == 1.0 for part, role in found.roles.items() if part in found.matter)
    assert stays(found, first) == stays(found, second) == 1.0
    own = tuple(tuple(0.0 if i == j else NEVER for j in range(len(row))) for i, row in enumerate(first.scores))
    assert max(stays(found, replace(first, scores=own)), stays(found, replace(second, key="token"))) < 0.9
    used = [share for part, share in found.without.items() if part in found.matter]
    assert max(used) < 0.9

    found = decompiled(interp.build("programs/compiled"))
    step = found.step("MLP 0")
    assert isinstance(step, Table)
    other = replace(step, entries=step.entries[1:] + step.entries[:1])
    assert stays(found, step) == 1.0 > 0.9 > stays(found, other)


def test_attention_that_goes_elsewhere_is_measured() -> None:
    """A description that says each position attends to itself leaves out all that the model gives to others."""
    found = decompiled(interp.build("algorithmic/induction-exact", length=8), 200)
    part = found.matter[0]
    assert max(found.elsewhere.values()) < 1e-3
    own = tuple(tuple(0.0 if i == j else NEVER for j in range(9)) for i in range(9))
    (head,) = (one for one in found.steps if isinstance(one, Head) and one.name == str(part))
    found.steps = [replace(head, scores=own) if one is head else one for one in found.steps]
    _, cache = found.running.subject.model.run_with_cache(found.running.batch.tokens)
    given = cache[f"blocks.{part.layer}.attn.hook_pattern"][:, part.head].diagonal(dim1=1, dim2=2)
    missed = float((1 - given)[found.needed[str(part)]].mean())
    assert read_heads.elsewhere(found, part) == pytest.approx(missed, abs=1e-4)
    assert missed > 0.5


def test_queries_that_find_nothing_are_counted() -> None:
    """Of 16 rows of a and b, one has no a; where each position finds itself, none is without."""
    for scores, none in ((((0.0, NEVER),), 1 / 16), (((0.0, NEVER), (NEVER, 0.0)), 0.0)):
        head = Head("h", "token" * (len(scores) > 1), "token", scores, "position", "head 0.0")
        weights = ((0.0, 1.0),) + ((0.0, 0.0),) * 3
        answer = Linear("answer", ("h",), (weights,), (0.3, 0.0), ("no", "yes"))
        found = decompiled(interp.compile(Program(("a", "b"), 4, True, (head,), answer)))
        (step,) = (one for one in found.steps if isinstance(one, Head))
        assert (step.hard, step.key, len(step.scores)) == (True, "token", len(scores))
        assert read_heads.finds_none(found, Part(0, 0)) == none


def test_an_answer_by_a_sum_of_three_is_no_table_of_them() -> None:
    """Two of three b's: the sum that the model makes says it, and a table of eight rows would, too."""
    answer = Linear("answer", ("x", "y", "z"), (((0.0, 0.0), (0.0, 1.0)),) * 3, (1.5, 0.0), ("no", "yes"))
    heads = tuple(at(name, place, 3) for place, name in enumerate("xyz"))
    program = program_of(decompiled(interp.compile(Program(("a", "b"), 3, True, heads, answer))))
    assert [type(step) for step in program.steps] == [Head] * 3
    assert program.answer.of == ("head 0.0", "head 0.1", "head 0.2")


def test_an_mlp_reads_the_heads_of_its_layer_and_not_itself() -> None:
    found = decompiled(interp.build("programs/compiled"))
    assert [str(part) for part in found.matter] == ["head 0.0", "MLP 0"]
    assert set(found.sources(Part(0))) == {"token", "position", "head 0.0"}
    assert set(found.sources(None)) == {"token", "position", "head 0.0", "MLP 0"}


def test_values_are_limited_in_number_and_not_rows_in_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shares of two letters up to the third place, moved by a second head, in rows of five."""
    monkeypatch.setattr(read_heads, "MOST_VALUES", 3)
    evenly = Head("shares", "", "", ((0.0,),), "token")
    more = Linear("answer", ("third",), (((0.0, 1.0), (0.0, -1.0)),), (1e-3, 0.0), ("no", "yes"))
    program = Program(("a", "b"), 5, True, (evenly, at("third", 2, 5, "shares")), more)
    read = program_of(decompiled(interp.compile(program)))
    assert [step.value for step in read.steps if isinstance(step, Head)] == ["token", "head 0.0"]


def test_counts_stand_for_equal_tokens() -> None:
    """Rows of count01 hold each token once, and the outputs are those of the model on whole rows."""
    model = interp.load("count01/paper")
    subject, batch = Subject.of(model), model.task.sample(50, seed=3)
    running = Running.of(subject, batch)
    assert running.batch.tokens.shape[1] <= 6
    assert torch.allclose(running.logits, subject.logits(batch), atol=1e-4)


@pytest.mark.slow
def test_the_heads_of_count01_that_do_nothing() -> None:
    """Eight heads attend to '=' alone: they are not used, whatever they correlate with. Head 0.3 matters most."""
    found = decompiled(interp.load("count01/paper"), 800)
    used = {str(part) for part in found.matter}
    assert not used & {f"head 0.{head}" for head in (0, 1, 2, 7, 8, 9, 11, 15)}
    assert "head 0.3" in used
    program = program_of(found)
    assert program is not None
    assert found.answered(program.answer, program.steps).both > 0.99


@pytest.mark.slow
def test_a_head_without_softmax() -> None:
    """Equal tokens have another weight than others; the answer is the level of the total, not a position."""
    model = interp.build("histogram/dot-exact")
    found = interp.explain(model)
    assert found.level == "explained"
    head, level = found.program.steps
    assert isinstance(head, Head)
    assert (head.total, head.query, head.key, head.value, head.constants) == (True, "token", "token", "token", 33)
    assert level.of == (head.name,)
    batch = model.task.sample(50, seed=4)
    assert found.program.classes(batch.tokens).tolist() == (model.predict(batch.tokens) - 1).tolist()


@pytest.mark.slow
def test_a_head_reads_no_positions_that_its_values_lack() -> None:
    """[BOS] is always the first token, but this model has no positions: its head reads whether the token is this."""
    found = interp.explain(interp.build("histogram/bos-exact"))
    kind, head = found.program.steps[:2]
    assert isinstance(kind, Table)
    assert (kind.of, sum(entry == kind.entries[-1] for entry in kind.entries)) == (("token",), 1)
    assert isinstance(head, Head)
    assert head.value == kind.name


@pytest.mark.slow
def test_scores_of_pairs_that_never_meet() -> None:
    """On inputs as they are, two of the query's values meet no 'e'; with values of other inputs they do."""
    model = interp.compile(random_program(63, Shape()), rotate=63, seed=63)
    true = next(step for step in model.task.program.steps if step.part == "head 2.0")
    found = program_of(decompiled(model))
    step = found.step("head 2.0")
    assert isinstance(step, Head)
    assert isinstance(true, Head)
    assert (step.query, step.key) == ("MLP 1", "token")
    chosen = {tuple(score == max(row) for score in row) for row in step.scores}
    assert chosen == {tuple(score == max(row) for score in row) for row in true.scores}


@pytest.mark.slow
def test_attention_that_is_scaled_by_the_length() -> None:
    """Fixed scores would be wrong at other lengths, by a tenth of the attention and more."""
    model = interp.load("languages/one-learned-batches")
    found = decompile(Running.of(Subject.of(model), model.task.sample(200, split="train", seed=0)))
    head = found.step("head 0.0")
    assert isinstance(head, Head)
    assert (head.scaled, head.query, head.key, head.value) == (True, "", "token", "token")


def test_a_table_beside_tables_that_nothing_reads() -> None:
    """How often neighbors differ: the MLP's own table is found, though the noise of an even head reads decoys."""
    before = tuple(tuple(0.0 if k == max(0, q - 1) else NEVER for k in range(4)) for q in range(4))
    steps = (
        Head("before", "position", "position", before, "token"),
        Table("differs", ("token", "before"), (0, 1, 1, 1, 0, 1, 1, 1, 0), ("no", "yes")),
        Head("share", "", "", ((0.0,),), "differs"),
    )
    most = Linear(
        "answer", ("share",), (((0.0,) * 4, (0.0, 0.5, 1.0, 1.5)),), (0.0, -0.06, -0.24, -0.56), tuple("0123")
    )
    model = interp.compile(Program(("a", "b", "c"), 4, True, steps, most), decoys=4, rotate=1, noise=0.001)
    found = decompiled(model)
    step = found.step("MLP 0")
    assert isinstance(step, Table)
    assert (step.of, len(step.values)) == (("token", "head 0.0"), 2)


def test_what_moves_two_answers_alike_is_not_read() -> None:
    subject = standin("ends")
    running = Running.of(subject, subject.task.sample(8))
    readout = through(subject.model.ln_final, subject.model.unembed.W_U.detach().double()).float()
    alike, apart = torch.tensor([[1.0, 1.0], [1.0, -1.0]]) @ torch.linalg.pinv(readout)
    read = Readers(running, (), Kinds(running).mean, lambda: None).of(Part(2))
    size = (readout[:, 0] - readout[:, 1]).norm() / 2**0.5  # of the difference from the mean of both
    torch.testing.assert_close((alike @ read).norm(), torch.tensor(0.0), rtol=0, atol=1e-5)
    torch.testing.assert_close((apart @ read).norm(), 2**0.5 / size, rtol=1e-4, atol=0)


def test_of_rare_answers_those_given_most_often_are_frequent() -> None:
    """Each of 200 answers once but one twice, of which one is kept."""
    old = torch.cat([torch.arange(200), torch.tensor([7])])
    new = old.clone()
    new[-1] = new[0] = 3
    found = Kept.of(new, old)
    assert (found.share, found.least) == (199 / 201, 0.5)


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ([], []), (["ab"], ["ab"]), (["abc"], ["abc"]),
        (["ab", "bc", "ac"], ["abc"]),  # two of three are needed
        (["ab", "cd"], ["ab", "cd"]),
        (["ad", "bd"], ["abd"]),
    ],
)  # fmt: skip
def test_names_that_stand_in_for_each_other(tables: list[str], expected: list[str]) -> None:
    """In any order of the names; what is in no group can go together. tables: what cannot go together."""
    for order in permutations("abcde"):
        found = stand_ins(order, lambda out: not any(set(one) <= set(out) for one in tables))
        assert sorted("".join(sorted(group)) for group in found) == expected


def test_parts_of_one_exception_do_not_stand_in_for_each_other() -> None:
    """The first letter, but "?" where the next two are "ba": with either head at its mean, the exception is lost. With
    both at their means, which no row has, other rows have it; with values of other rows, next to none do."""
    values = tuple("abcdefgh=?")
    heads = [
        Head(name, "", "position", (tuple(0.0 if k == n else NEVER for k in range(4)),), "token")
        for n, name in enumerate(("first", "second", "third"))
    ]
    entries = tuple(9 if row[1:] == (1, 0) else row[0] for row in product(range(9), repeat=3))
    table = Table("table", ("first", "second", "third"), entries, values)
    answer = Linear("answer", ("table",), (tuple(map(tuple, torch.eye(10).tolist())),), (0.0,) * 10, values)
    program = Program(values[:9], 4, False, (*heads, table), answer, read="=")
    subject = Subject.of(interp.compile(program, last="="))
    reading = decompile(Running.of(subject, everything(subject.task).batch))
    parts = [Part(0, 1), Part(0, 2)]
    assert min(reading.left([part]) for part in parts) > 0.97
    assert reading.left(parts) < 0.5 < 0.96 < reading.left_without(*parts)
    assert reading.groups == []


@pytest.mark.parametrize(
    ("lost", "tables", "expected"),
    [
        (0.01, [], ""), (0.01, ["ab"], "b"), (0.01, ["ab", "ad"], "bd"), (0.01, ["abd"], "bd"),
        (0.01, ["abd", "ac"], "c"), (0.01, ["bd"], ""), (0.01, ["bd", "abcd"], ""), (0.11, ["ab"], ""),
        (0.0, ["ab"], "b"),
    ],
)  # fmt: skip
def test_names_that_stand_in_for_one_that_is_needed(lost: float, tables: list[str], expected: str) -> None:
    """lost: what is lost without "a". tables: without which names much is."""

    def left(*out: str) -> float:
        return 1 - lost * ("a" in out) - 0.3 * any({*one} <= {*out} for one in tables)

    for order in permutations("bcd"):
        assert "".join(sorted(backups("a", order, left))) == expected


@pytest.mark.parametrize(("lost", "expected"), [(0.029, []), (0.031, ["b"])])
def test_a_backup_changes_more_than_both_would_apart(lost: float, expected: list[str]) -> None:
    alone = {"a": 0.99, "b": 1.0}
    assert backups("a", ["b"], lambda *out: alone[out[0]] if len(out) == 1 else 1 - lost) == expected


def test_without_all_parts_nothing_of_the_input_is_left() -> None:
    """Not even in how sums are rounded, which decides between answers that tie."""
    model = interp.build("algorithmic/max-of-k-exact", K=3, v=8)
    running = Running.of(Subject.of(model), everything(model.task).batch)
    given = running.logits_with({part: Kinds(running).means(part) for part in running.parts})
    assert given.equal(given[:1].expand_as(given))


def test_positions_that_are_read_are_a_kind() -> None:
    """Answers about sums are read from '=' on: what stands before is of another kind."""
    subject = Subject.of(interp.build("algorithmic/addition-exact", digits=2))
    running = Running.of(subject, subject.task.sample(20))
    kinds = Kinds(running).each
    read = torch.zeros_like(running.mask)
    read[running.reads.rows, running.reads.positions] = True
    assert kinds[read].unique().tolist() == [READ]
    assert READ not in kinds[~read]


@pytest.mark.slow
def test_an_induction_head_is_explained_and_proved() -> None:
    """Where no key fits, attention is even: equal shares are no claim, and what is never read speaks for no answer."""
    found = interp.explain(interp.load("algorithmic/induction-exact")).certify()
    assert found.level == "explained"
    assert found.proved.holds
    assert found.proved.n == 8736


def test_what_a_head_reads_by_the_value_of_a_variable() -> None:
    """The weighted means of each value, and the share of the weighted variance that they leave out, by loops."""
    v, weight = torch.arange(24.0).mul(1.7).sin().view(2, 4, 3), torch.arange(1.0, 9.0).view(2, 4)
    code, low = torch.tensor([[0, 1, 1, 0], [2, 1, 0, 2]]), torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    rows = [(v[r, i], float(weight[r, i]), int(code[r, i])) for r in range(2) for i in range(4)]
    means = [sum(w * x for x, w, c in rows if c == n) / sum(w for _, w, c in rows if c == n) for n in range(3)]
    middle = sum(w * x for x, w, _ in rows) / sum(w for _, w, _ in rows)
    left, whole = (sum(w * float((((x - (means[c] if parted else middle)) @ low) ** 2).sum()) for x, w, c in rows)
                   for parted in (True, False))  # fmt: skip
    found, share = read_heads.values_by(v, weight, code, 4, low)
    assert found[:3].allclose(torch.stack(means), atol=1e-6)
    assert found[3].tolist() == [0.0] * 3  # a value that does not occur
    assert share == pytest.approx(left / whole, rel=1e-5)
