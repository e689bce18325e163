"""Compiled programs give the answers, the variables and the logits of the programs that they were made of."""

import math
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch

import interp
from interp.programs.language import NEVER, Head, Linear, Program, Table
from interp.programs.task import ENDS, ProgramTask

EYE = ((1.0, 0.0), (0.0, 1.0))
EVENLY = Head("shares", "", "", ((0.0,),), "token")
MORE = Linear("more", ("shares",), (((0.0, 1.0), (0.0, -1.0), (0.0, 0.0)),), (1e-3, 0.0), ("no", "yes"))
OTHER = Table("other", ("token", "shares"), (0, 1, 0, 1, 0, 0, 0, 0, 0), ("no", "yes"))
"""Whether the token is not the more frequent one: a table of a code and of the larger share."""


def majority(step: Linear | Table) -> Program:
    answer = Linear("answer", (step.name,), (EYE,), (0.0, 0.0), ("no", "yes"))
    return Program(("a", "b", "pad"), 5, False, (EVENLY, step), answer, read="all", pad="pad")


def counts(n: int) -> Program:
    """How many a's there are of n tokens, read at "=": thresholds of one share; logits are -(count - k)^2 / n."""
    scores = ((NEVER,) * 3, (NEVER,) * 3, (0.0, 0.0, NEVER))
    weights = tuple(tuple(2.0 * k * (word == "a") for k in range(n + 1)) for word in "ab=")
    steps = (
        Head("share", "token", "token", scores, "token"),
        Linear("count", ("share",), (weights,), tuple(-k * k / n for k in range(n + 1)), tuple("01234567"[: n + 1])),
    )
    same = tuple(tuple(float(i == j) for j in range(n + 1)) for i in range(n + 1))
    answer = Linear("answer", ("count",), (same,), (0.0,) * (n + 1), steps[1].values)
    return Program(("a", "b", "="), n + 1, True, steps, answer, read="=")


def test_dead_neurons_do_something_that_nothing_reads() -> None:
    model = interp.compile(ENDS, dead=8, rotate=3, seed=1)
    (batch,) = model.task.inputs()
    logits, cache = model.run_with_cache(batch.tokens)
    post = cache["blocks.0.mlp.hook_post"]
    assert post.shape[-1] == 8 + interp.compile(ENDS).spec.layers[0].mlp.d_mlp
    assert (post[..., -8:].flatten(0, 1).std(0) > 0.01).sum() >= 4

    def without(value, hook):
        value[..., -8:] = 0.0
        return value

    for layer in range(len(model.spec.layers)):
        found = model.run_with_hooks(batch.tokens, fwd_hooks=[(f"blocks.{layer}.mlp.hook_post", without)])
        assert torch.allclose(found, logits, atol=1e-9)
    spare = interp.compile(ENDS, decoys=0, dead=0)
    assert torch.allclose(spare(batch.tokens), logits, atol=1e-9)


@pytest.mark.parametrize("shift", [0, *(pytest.param(shift, marks=pytest.mark.slow) for shift in (1, 2, 3))])
def test_answers_logits_and_variables(shift: int) -> None:
    """On all inputs, plain, with decoys, and rotated: logits and residual directions, to 1e-9."""
    cases = [
        (ENDS, {}), (majority(MORE), {"shortest": 2}), (majority(OTHER), {"shortest": 1}), (counts(4), {"last": "="}),
    ]  # fmt: skip
    changes = [{}, {"decoys": 5, "seed": 1}, {"rotate": 2, "decoys": 2}, {"rotate": 2, "dead": 3}]
    for (program, given), changed in zip(cases, changes[shift:] + changes[:shift], strict=True):
        model = interp.compile(program, **given, **changed)
        directions = interp.models.constructions.construct(
            "programs/compiled", program=model.task, **dict(model.spec.origin.arguments)
        ).weights.directions
        for batch in model.task.inputs():
            logits, cache = model.run_with_cache(batch.tokens)
            made, there = program.run(batch.tokens), batch.attention_mask
            stream = cache["resid_post", len(model.spec.layers) - 1][there]
            assert torch.allclose(logits[there], program.answer.sums(made)[there], atol=1e-9)
            for name, weights in made.items():
                assert torch.allclose(stream @ directions[name].T, weights[there], atol=1e-9)
            found, known = model.predict(batch.tokens), batch.labels >= 0
            assert bool((found == batch.labels)[known].all())


def test_counts_against_python() -> None:
    model = interp.compile(counts(6), last="=")
    rows = list(product("ab", repeat=6))
    tokens = torch.tensor([model.task.parse("".join(row) + "=") for row in rows])
    assert model.predict(tokens).tolist() == [row.count("a") for row in rows]


def test_the_circuit() -> None:
    """Steps are in the first layer where their variables exist."""
    before = tuple(tuple(0.0 if k == max(0, q - 1) else NEVER for k in range(3)) for q in range(3))
    same = Table("same", ("token", "before"), (1, 0, 0, 1), ("no", "yes"))
    anywhere = Head("last_same", "", "position", ((NEVER, NEVER, 0.0),), "same")
    beside = Head("first", "", "position", ((0.0, NEVER, NEVER),), "token")
    either = Table("either", ("same", "last_same"), (0, 1, 1, 1), ("no", "yes"))
    after = Head("last_either", "", "position", ((NEVER, NEVER, 0.0),), "either")
    answer = Linear("answer", ("last_either",), (EYE,), (0.0, 0.0), ("no", "yes"))
    steps = (Head("before", "position", "position", before, "token"), same, anywhere, beside, either, after)
    model = interp.compile(Program(("a", "b"), 3, True, steps, answer), decoys=3)
    parts = [step.part for step in model.task.program.steps]
    assert parts == ["head 0.0", "MLP 0", "head 1.0", "head 0.1", "MLP 1", "head 2.0"]


def test_unused_parts_change_nothing() -> None:
    """With decoys at noise, the answers stay; with the head at noise, they do not."""
    model = interp.compile(ENDS, decoys=4, rotate=0)
    (batch,) = model.task.inputs()
    answers = model.predict(batch.tokens)
    for head, stays in ((1, True), (0, False)):

        def noisy(z: torch.Tensor, hook: object, head: int = head) -> torch.Tensor:
            z[:, :, head] = torch.randn(z[:, :, head].shape, generator=torch.Generator().manual_seed(0)).double() * 9
            return z

        with model.hooks([("blocks.0.attn.hook_z", noisy)]):
            assert bool((model.predict(batch.tokens) == answers).all()) is stays


def test_decoys_are_in_layers_that_exist_and_only_if_asked() -> None:
    nothing = Program(("a", "b"), 2, True, (), Linear("answer", ("token",), (EYE,), (0.0, 0.0), ("x", "y")))
    for program, heads in ((ENDS, 1), (nothing, 0)):
        assert sum(len(layer) for layer in interp.compile(program).W_Q) == max(1, heads)  # a layer has a head
        for seed in range(3):
            assert interp.compile(program, decoys=6, seed=seed).W_Q.shape[:2] == (1, heads + 3)


def test_saved_and_built_from_its_spec(tmp_path: Path) -> None:
    model = interp.compile(counts(3), last="=", decoys=2, rotate=1, noise=1e-3, seed=4)
    loaded = interp.load(interp.save(model, tmp_path / "counts.safetensors"))
    for other in (loaded, interp.build(model.spec)):
        assert other.task.program == model.task.program
        assert all(a.equal(b) for a, b in zip(model.parameters(), other.parameters()))
    exact = interp.compile(counts(3), last="=", decoys=2, rotate=1, seed=4)
    assert not exact.W_U.equal(model.W_U)
    plain = interp.build("programs/compiled", program=exact.task, decoys=2, rotate=1, draw_seed=4)
    assert plain.W_U.equal(exact.W_U)  # without noise, unless it is asked for


def test_refusals() -> None:
    three = Program(
        ("a", "b", "c"), 3, True,
        (EVENLY, Table("most", ("shares",), (0, 1, 2), ("a", "b", "c"))),
        Linear("answer", ("most",), (((1.0, 0.0), (0.0, 1.0), (0.0, 1.0)),), (0.0, 0.0), ("x", "y")),
    )  # fmt: skip
    tie = Linear("answer", ("token",), (((0.0, 0.0),) * 2,), (0.0, 0.0), ("x", "y"))
    for program, said in ((three, "largest share of shares"), (Program(("a", "b"), 2, True, (), tie), "rounding")):
        with pytest.raises(interp.InterpError, match=said):
            interp.compile(program)
    total = replace(EVENLY, total=True)
    answer = Linear("answer", (total.name,), (((1.0, 0.0), (0.0, 1.0), (0.0, 1.0)),), (0.0, 0.1), ("x", "y"))
    with pytest.raises(interp.InterpError, match="has no softmax"):
        interp.compile(Program(("a", "b", "c"), 3, True, (total,), answer))
    with pytest.raises(interp.InterpError, match="not a program"):
        ProgramTask(program="{}")
    for name, value in (("decoys", -1), ("dead", -1), ("noise", math.nan), ("noise", math.inf), ("sharp", 0)):
        with pytest.raises(interp.InterpError, match=f"{name} = {value}"):
            interp.compile(ENDS, **{name: value})
