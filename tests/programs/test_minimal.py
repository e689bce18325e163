"""Inputs of steps that change no answer are left out; each edge of a compiled model is tried against hooks by hand."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import interp
from interp.measures.runs import Part
from interp.models.subject import Subject
from interp.programs.inputs_tried import InputsTried
from interp.programs.language import NEVER, Answer, Head, Linear, Program, Table
from interp.programs.minimal import (
    alike_for_content,
    inputs,
    mean_scores,
    minimal,
    with_step,
    without_idle_columns,
    writers,
)
from interp.programs.relevance import Kinds
from interp.programs.running import Running
from interp.programs.steps import Step
from interp.tasks.populations import everything

EYE = ((1.0, 0.0), (0.0, 1.0))
FIRST = Head("first", "", "position", ((0.0, NEVER, NEVER),), "token", "head 0.0")
LAST = Head("last", "", "position", ((NEVER, NEVER, 0.0),), "token", "head 0.1")
SAME = Table("same", ("first", "last"), (1, 0, 0, 1), ("no", "yes"), "MLP 0")
ANSWER = Linear("answer", ("same",), (EYE,), (0.0, 0.0), ("no", "yes"))
PROGRAM = Program(("a", "b"), 3, True, (FIRST, LAST, SAME), ANSWER)

MINE = tuple(tuple(0.0 if i == k else NEVER for k in range(3)) for i in range(3))
COPIES = tuple(Head(f"copy {n}", "position", "position", MINE, "token", f"head 0.{n}") for n in range(3))
MOST = Table("most", tuple(one.name for one in COPIES), (0, 0, 0, 1, 0, 1, 1, 1), ("a", "b"), "MLP 0")
MAJORITY = Program(("a", "b"), 3, True, (*COPIES, MOST), replace(ANSWER, of=("most",), values=("a", "b")))
"""The majority of three copies of a token."""


def tried(program: Program) -> InputsTried:
    """The inputs of a compiled program, with noise and a rotated stream."""
    subject = Subject.of(interp.compile(program, rotate=1, noise=1e-6))
    running = Running.of(subject, everything(subject.task).batch)
    return InputsTried(running, Kinds(running))


WIDE = replace(SAME, of=("first", "last", "token"), entries=(1, 1, 0, 0, 0, 0, 1, 1))
ASKING = replace(FIRST, query="token", scores=((0.0, NEVER, NEVER), (0.0, NEVER, NEVER)))
WEIGHING = replace(ANSWER, of=("same", "position"), weights=(EYE, ((0.0, 0.0), (0.0, 0.0), (3.0, 3.0))))


@pytest.mark.parametrize("wider", [WIDE, ASKING, WEIGHING], ids=["table", "query", "weights"])
def test_what_was_added_to_a_program_goes(wider: Table | Head | Linear) -> None:
    program = with_step(PROGRAM, wider)
    assert program is not None
    less = minimal(program, tried(PROGRAM), {"head 0.0", "head 0.1", "MLP 0"}, {})
    assert [step.of for step in (*less.steps, less.answer)] == [step.of for step in (*PROGRAM.steps, ANSWER)]
    tokens = everything(interp.compile(PROGRAM).task).batch.tokens
    assert less.classes(tokens)[:, -1].equal(PROGRAM.classes(tokens)[:, -1])


def test_of_one_variable_alone_the_largest_share_is_tried() -> None:
    weights = ((2.0, -1.0), (0.3, 0.9))
    plain = replace(PROGRAM, answer=replace(ANSWER, weights=(weights,)))
    program = with_step(plain, replace(WEIGHING, weights=(weights, WEIGHING.weights[1])))
    assert program is not None
    assert minimal(program, tried(PROGRAM), {"head 0.0", "head 0.1", "MLP 0"}, {}).answer == ANSWER


def wider(*steps: Step | Answer) -> Program:
    """The program with more inputs of its steps."""
    new = {step.name: step for step in steps}
    answer = new.get("answer", ANSWER)
    assert isinstance(answer, Linear)
    return replace(PROGRAM, steps=tuple(new.get(step.name, step) for step in PROGRAM.steps), answer=answer)


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_only_the_input_stays_without_which_it_does_not_hold(kept: int) -> None:
    """Of three inputs that were added, one must stay for something to hold; it is asked of few programs."""
    program, rest = wider(WIDE, ASKING, WEIGHING), [WEIGHING, WIDE, ASKING]
    asked: list[Program] = []

    def holds(one: Program) -> bool:
        asked.append(one)
        return inputs_of(one) >= inputs_of(wider(rest[kept]))

    less = minimal(program, tried(PROGRAM), {"head 0.0", "head 0.1", "MLP 0"}, {}, holds)
    assert inputs_of(less) == inputs_of(wider(rest[kept]))
    assert len(asked) <= 4


def inputs_of(program: Program) -> set[tuple[str, str, str]]:
    return {(step.name, *each) for step in (*program.steps, program.answer) for each in inputs(step)}


def test_inputs_that_go_are_tried_together_on_the_model() -> None:
    """Any one of three copies of a token may come from elsewhere, but not any two."""
    of = tried(MAJORITY)
    assert not any(of.matters(Part(0), "in", [f"head 0.{n}"]) for n in range(3))
    assert of.matters(Part(0), "in", ["head 0.0", "head 0.1"], stay=0.99)
    assert len(minimal(MAJORITY, of, set(), {}).step("most").of) == 2


@pytest.mark.parametrize(("loss", "read"), [(0.0, ("same", "first")), (0.2, ("same", "first")), (0.3, ("same",))])
def test_what_the_model_does_not_read_goes_if_few_answers_do(loss: float, read: tuple[str, ...]) -> None:
    """A program that is wrong of two of eight inputs, because its answer reads what the model's does not."""
    wrong = replace(ANSWER, of=("same", "first"), weights=(EYE, ((0.0, 0.0), (1.5, 0.0))))
    assert minimal(wider(wrong), tried(PROGRAM), set(), {}, loss=loss).answer.of == read


def test_tokens_of_content_may_get_one_score() -> None:
    key = Head("h", "", "token", ((-0.1, -0.3, -2.0),), "token", "head 0.0")
    met = torch.tensor([3.0, 1.0, 4.0])
    (less,) = alike_for_content(key, "key", met, [0, 1])
    assert less.scores == (pytest.approx((-0.15, -0.15, -2.0)),)
    asking = replace(key, query="token", key="", scores=((-0.1,), (-0.3,), (-2.0,)))
    (less,) = alike_for_content(asking, "query", met, [0, 1])
    assert [row[0] for row in less.scores] == pytest.approx([-0.15, -0.15, -2.0])
    assert alike_for_content(less, "query", met, [0, 1]) == []  # they are alike already
    assert alike_for_content(key, "key", met, [0, 1, 2]) == []  # there are no others
    assert alike_for_content(replace(key, scores=((0.0, NEVER, -2.0),)), "key", met, [0, 1]) == []


def test_scores_without_queries_are_the_mean() -> None:
    head = replace(FIRST, query="token", scores=((1.0, NEVER, NEVER), (4.0, 2.0, NEVER)))
    assert mean_scores(head, torch.tensor([2.0, 1.0])) == (2.0, 2.0, NEVER)


def test_a_program_whose_inputs_all_matter_stays() -> None:
    assert minimal(PROGRAM, tried(PROGRAM), set(), {}) == PROGRAM


def test_an_input_that_only_the_model_reads_stays() -> None:
    """A head that looks at another place for another token of its own."""
    other = replace(FIRST, query="token", scores=((0.0, NEVER, NEVER), (NEVER, NEVER, 0.0)))
    mine = replace(PROGRAM, causal=False, steps=(other, LAST, SAME))
    assert tried(mine).matters(Part(0, 0), "query", ["token"])
    assert not tried(PROGRAM).matters(Part(0, 0), "query", ["token"])


@torch.no_grad()
def test_all_but_what_is_said_comes_from_another_row_at_once() -> None:
    """Against sums by hand: head 0.0 reads the token, head 1.0 head 0.0, the readout the token and head 1.0."""
    layer = interp.Layer(n_heads=2, d_head=4)
    spec = interp.ModelSpec(
        task="max-of-k", d_model=8, layers=(layer, layer), readout_at="=", positions="learned", max_length=5
    )
    model, draw = interp.build(spec), torch.Generator().manual_seed(0)
    for tensor in model.parameters():
        tensor.data.copy_(torch.randn(tensor.shape, generator=draw))
    subject = Subject.of(model)
    running = Running.of(subject, model.task.sample(200))
    of = InputsTried(running, Kinds(running))
    said = {Part(0, 0): ({"token"}, "qkv"), Part(1, 0): ({"head 0.0"}, "qkv"), None: ({"token", "head 1.0"}, "")}
    seen = running.mask[:, None] & torch.ones(running.mask.shape[1], running.mask.shape[1]).tril().bool()

    def head(layer: int, n: int, stream: torch.Tensor) -> torch.Tensor:
        attn = model.blocks[layer].attn
        q, k, v = (stream @ getattr(attn, f"W_{side}")[n] + getattr(attn, f"b_{side}")[n] for side in "QKV")
        scores = (q @ k.transpose(1, 2) / 2).masked_fill(~seen, -1e9)
        return scores.softmax(-1) @ v @ attn.W_O[n]

    x, at = model.embed(running.batch.tokens), model.pos_embed(running.batch.tokens)
    first, second = (model.blocks[n].attn.b_O for n in range(2))
    h00, h01 = (head(0, n, x + at) for n in range(2))
    h11 = head(1, 1, x + at + h00 + h01 + first)
    shares = []
    for (rows, where), (_, kinds, _, _) in zip(of.other_rows, of.donors, strict=True):
        x_, h00_, h01_, h11_ = (value.flatten(0, 1)[rows] for value in (x, h00, h01, h11))
        at_ = at.flatten(0, 1)[kinds]
        h10 = head(1, 0, x_ + at_ + head(0, 0, x + at_) + h01_ + first)
        last = x + at_ + h00_ + h01_ + first + h10 + h11_ + second
        answers = running.read(running.reads.pick(last))
        shares.append(float((answers == running.answers)[where].double().mean()))
    assert of.stay_together(said) == pytest.approx(min(shares))
    assert min(shares) < 0.9
    every = dict.fromkeys(said, ({*of.sources(None)}, "qkv"))
    assert of.stay_together(every) == 1.0


def test_heads_that_read_the_same_are_tried_at_once() -> None:
    """One of the three heads that copy a token may read another one, but not two of them."""
    of = tried(MAJORITY)
    assert min(of.stay_with(Part(0, 0), "value", ["token"])) == 1.0
    assert min(of.stay_with(Part(0, 0), "value", ["token"], others=[Part(0, 1)])) < 0.9


def test_a_head_of_one_value_may_attend_evenly() -> None:
    """What head 0.0 has copied from the first position is the same at all: where head 1.0 attends does nothing."""
    again = replace(FIRST, name="again", value="first", part="head 1.0")
    program = Program(
        ("a", "b"), 3, False, (FIRST, again), Linear("answer", ("again",), (EYE,), (0.0, 0.0), ("no", "yes"))
    )
    of = tried(program)
    assert of.even(Part(1, 0))
    assert not of.even(Part(0, 0))
    less = minimal(program, of, {"head 0.0", "head 1.0"}, {})
    head = less.step("again")
    assert isinstance(head, Head)
    assert (head.query, head.key, head.value, head.evened) == ("", "", "first", True)
    assert less.step("first") == FIRST


@pytest.mark.parametrize("side", ["query", "key", "value"])
def test_an_edge_is_what_hooks_give(side: str) -> None:
    """One side of head 0.0 reads the positions of another order, by hand: the head's output is the same."""
    of = tried(PROGRAM)
    running, model = of.running, of.running.subject.model
    tokens, at = running.batch.tokens, f"blocks.0.attn.hook_{side[0]}"
    _, cache = model.run_with_cache(tokens)
    own = cache["hook_pos_embed"].expand(*tokens.shape, -1)
    other = own[:, [2, 0, 1]]
    moved = {}
    model.run_with_hooks(
        tokens,
        fwd_hooks=[("blocks.0.hook_resid_pre", lambda stream, hook: stream + other - own),
                   (at, lambda value, hook: moved.update({at: value.clone()}))],
    )  # fmt: skip

    def put(value: torch.Tensor, hook: object) -> torch.Tensor:
        return torch.cat([moved[at][:, :, :1], value[:, :, 1:]], 2)

    found = {}
    keep = ("blocks.0.attn.hook_z", lambda z, hook: found.update(z=z[:, :, 0].clone()))
    model.run_with_hooks(tokens, fwd_hooks=[(at, put), keep])
    z = running.head_on(Part(0, 0), side[0], {"position": (other - own).float()})
    z, by_hand, before = map(running.reads.pick, (z, found["z"].float(), running.value(Part(0, 0))))
    assert torch.allclose(z, by_hand, atol=1e-5)
    assert torch.allclose(z, before, atol=1e-3) == (side != "key")


def test_what_is_not_said_to_be_read_is_told_by_hooks() -> None:
    """The MLP reads one head from the next row, by hand: where the two letters differ, its answer is another one."""
    of = tried(PROGRAM)
    running, model = of.running, of.running.subject.model
    tokens = running.batch.tokens
    _, cache = model.run_with_cache(tokens)
    written = cache["blocks.0.attn.hook_z"][:, :, 1] @ model.blocks[0].attn.W_O[1]
    _, _, donors, _ = of.donors[0]
    other = written.flatten(0, 1)[donors]
    out = {}
    model.run_with_hooks(
        tokens,
        fwd_hooks=[("blocks.0.hook_resid_mid", lambda stream, hook: stream + other - written),
                   ("blocks.0.hook_mlp_out", lambda value, hook: out.update(mlp=value.clone()))],
    )  # fmt: skip
    logits = model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.hook_mlp_out", lambda value, hook: out["mlp"])])
    stay = (logits[:, -1].argmax(-1) == model(tokens)[:, -1].argmax(-1)).double().mean().item()
    assert of.stay_without(Part(0), ["head 0.0"], "") <= stay < 1
    assert of.stay_without(Part(0), ["head 0.0", "head 0.1"], "") == 1
    assert of.stay_without(None, ["MLP 0"], "") == 1
    assert of.stay_without(Part(0, 0), ["token", "position"], "qkv") == 1
    assert of.stay_without(Part(0, 0), ["token"], "qkv") < 1  # it attends by position
    assert of.stay_without(Part(0, 0), [], "v") < 1


@pytest.mark.parametrize(
    ("lengths", "where"), [([3, 3, 3], [True] * 3), ([3, 3, 2], [True, True, False]), ([3, 2, 1], [True] * 3)]
)
def test_rows_alone_in_their_length_do_not_count_as_stays(lengths: list[int], where: list[bool]) -> None:
    """Where no two have one length, places of the same kind are taken, and all rows count."""
    mask = torch.arange(3) < torch.tensor(lengths)[:, None]
    rows = SimpleNamespace(mask=mask, batch=SimpleNamespace(lengths=torch.tensor(lengths)),
                           reads=SimpleNamespace(rows=torch.arange(3)))  # fmt: skip
    of = InputsTried(rows, SimpleNamespace(each=mask.long() - 1, present=(0,)))  # type: ignore[arg-type]
    for donors, counted in of.other_rows:
        assert counted.tolist() == where
        assert mask.flatten()[donors[mask]].all()
        moved = donors[:, 0] // 3 != torch.arange(3)
        assert moved[counted].all() or len(set(lengths)) == 3


def test_a_variable_is_written_by_parts() -> None:
    inner = Table("kind", ("first",), (0, 1), ("a", "b"))
    program = Program(("a", "b"), 3, True, (FIRST, inner), replace(ANSWER, of=("kind",)))
    assert writers(program, "kind", "") == ["head 0.0"]
    assert writers(program, "position", "") == ["position"]


def test_a_table_is_over_what_its_entries_differ_by() -> None:
    """With 24 entries over the token and the position, a table was said to be of the position alone."""
    by_position = Table("place", ("token", "position"), (0, 1, 1) * 2, ("v0", "v1"))
    answer = Linear("answer", ("place",), (((0.0, 1.0), (1.0, 0.0)),), (0.0, 0.0), ("x", "y"))
    program = Program(("a", "b"), 3, True, (by_position,), answer)
    (step,) = without_idle_columns(program).steps
    assert (step.of, step.entries) == (("position",), (0, 1, 1))
    (by_both,) = without_idle_columns(replace(program, steps=(replace(by_position, entries=(0, 1, 1, 0, 1, 0)),))).steps
    assert by_both.of == ("token", "position")
    (of_none,) = without_idle_columns(replace(program, steps=(replace(by_position, entries=(1,) * 6),))).steps
    assert (of_none.of, of_none.entries) == (("token",), (1, 1))
