"""Proofs that a program gives a model's answers on every input, and what they refuse."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

import interp
from interp.errors import InterpError, UnsupportedError
from interp.models.spec import MLP
from interp.models.subject import Subject
from interp.programs.explanations import Explanation
from interp.programs.language import Linear, Program
from interp.programs.proof import ProgramProof, by_extremes, corners, prove
from interp.programs.steps import Matrix
from interp.tasks import Batch, NextSymbols

EYE = ((1.0, 0.0), (0.0, 1.0))


def shipped(name: str) -> tuple[Subject, Program]:
    found = interp.explain(interp.load(name))
    assert found.program is not None
    return Subject.of(interp.load(name)), found.program


def test_every_input_is_run() -> None:
    found = interp.explain(interp.build("algorithmic/max-of-k-exact", K=2, v=8))
    assert found.proved is None
    assert found.scores.endswith("not proved")
    again = found.certify()
    assert (again.proved.n, again.proved.answers, again.proved.wrong) == (64, 64, 0)
    assert again.sentence.startswith("Explained, and proved on all 64 inputs. ")
    assert again.scores.endswith("proved on all 64 inputs")
    assert Explanation.from_json(again.to_json()) == again
    assert "subject" not in json.loads(again.to_json())


def test_a_program_that_errs_once_is_not_proved() -> None:
    """With another answer to one of 64 rows: the share is exact."""
    model = interp.build("algorithmic/max-of-k-exact", K=2, v=8)
    found = interp.explain(model)
    (head,) = found.program.steps
    scores = list(head.scores[0])
    scores[0], scores[1] = scores[1], scores[0]  # 0 now wins against 1
    wrong = replace(found.program, steps=(replace(head, scores=(tuple(scores),)),))
    proof = prove(Subject.of(model), wrong)
    tokens = next(iter(model.task.inputs(64))).tokens
    at = wrong.reads(tokens)
    differs = wrong.classes(tokens)[torch.arange(64), at] != model.predict(tokens)
    assert 0 < proof.wrong == int(differs.sum())
    assert not proof.holds
    assert str(proof).startswith("not proved: the program gives exactly 0.9")
    assert ", and" not in replace(found, program=wrong, proved=proof).sentence.split(".")[0]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", ["histogram/dot-exact", "histogram/bos-softmax-exact", "histogram/lin-exact"])
@pytest.mark.parametrize(("T", "L"), [(8, 5), pytest.param(32, 10, marks=pytest.mark.slow)])
def test_extremes_of_counts_decide_all_inputs(name: str, T: int, L: int) -> None:
    """No list of T^L inputs: one corner for each count of the own token and each other token."""
    model = interp.build(name, T=T, L=L)
    found = interp.explain(model)
    proof = by_extremes(Subject.of(model), found.program, lambda: None)
    assert proof.holds
    assert proof.n == T**L
    assert sum(map(len, corners(model.task))) == T * ((L - 1) * (T - 1) + 1)


@pytest.mark.slow
def test_a_wrong_limit_is_found_at_an_extreme() -> None:
    """One answer's sum is raised by half a token's weight: on the sampled inputs this need not show."""
    model = interp.build("histogram/lin-exact")
    program = interp.explain(model).program
    bias = list(program.answer.bias)
    bias[9] += 1e6
    wrong = replace(program, answer=replace(program.answer, bias=tuple(bias)))
    with pytest.raises(UnsupportedError, match="the program is wrong at an extreme of counts"):
        by_extremes(Subject.of(model), wrong, lambda: None)


@pytest.mark.slow
def test_extremes_need_what_they_use() -> None:
    """A certified model, and a program whose sums are linear in what one head reads."""
    subject, program = shipped("histogram/dot-softmax")
    with pytest.raises(UnsupportedError, match="evened is not linear in the counts"):
        by_extremes(subject, program, lambda: None)
    exact = interp.explain(interp.build("histogram/dot-exact")).program
    with pytest.raises(UnsupportedError, match="the model is refuted, so the right answers are not all its own"):
        by_extremes(subject, exact, lambda: None)


def test_multisets_stand_for_their_orders() -> None:
    """Two numbers below 4: 10 multisets of 16 inputs."""
    model = interp.build("algorithmic/max-of-k-exact", K=2, v=4)
    found = interp.explain(model).certify()
    assert found.proved.how == "every multiset of tokens, in count space"
    assert found.proved.n == 16


def test_what_count_space_lacks_is_said() -> None:
    """With an MLP, a model without positions depends on counts alone all the same."""
    layer = interp.Layer(n_heads=1, d_head=4, mlp=MLP(d_mlp=4))
    model = interp.build(interp.ModelSpec(task="count01", d_model=4, layers=(layer,), readout_at="="))
    assert model.spec.symmetry == "counts"
    program = Program(model.task.vocabulary, 9, True, (), Linear("answer", (), (), (0.0,), ("4",)))
    with pytest.raises(UnsupportedError, match="multisets: count space needs a linear readout, without an MLP"):
        prove(Subject.of(model), program)


class Following(NextSymbols):
    """After a letter, this letter; each batch of inputs has one letter, so each knows another set."""

    name = "proof-following"
    vocabulary = symbols = ("a", "b")

    def allowed(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.stack([tokens == 0, tokens == 1], -1)

    @property
    def n_inputs(self) -> int:
        return 2

    def inputs(self, chunk: int = 4096) -> Iterator[Batch]:
        yield from (self.batch(torch.tensor([[letter, letter]])) for letter in (0, 1))

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        return self.batch(torch.arange(n)[:, None] % 2 * torch.ones(1, 2).long())


@pytest.mark.parametrize(("weights", "wrong"), [(EYE, 0), (((1.0, 0.0), (1.0, 0.0)), 2)])
def test_sets_are_compared_by_their_members(weights: Matrix, wrong: int) -> None:
    """The second program always answers {a}: the first set of each batch, but of one of them only the right one."""
    interp.register_task(Following)
    layer = interp.Layer(n_heads=1, d_head=2)
    model = interp.build(interp.ModelSpec(task="proof-following", d_model=2, layers=(layer,), decision="set"))
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            tensor.copy_(torch.eye(2) if name in ("embed.W_E", "unembed.W_U") else torch.zeros_like(tensor))
    program = Program(
        ("a", "b"), 2, True, (), Linear("answer", ("token",), (weights,), (0.0, 0.0), ("{a}", "{b}")), "all"
    )
    proof = prove(Subject.of(model), program)
    assert (proof.n, proof.answers, proof.wrong) == (2, 4, wrong)


def test_what_has_no_program_is_not_certified() -> None:
    with pytest.raises(InterpError, match="a has no program of its parts, so there is nothing to prove"):
        Explanation("a", "b", 9).certify()


def test_shares_are_said() -> None:
    assert str(ProgramProof(8, 8, 0, "", "all 8 inputs")) == "proved on all 8 inputs"
    said = "not proved: the program gives exactly 0.7500 of the answers on all 8 inputs"
    assert str(ProgramProof(8, 8, 2, "", "all 8 inputs")) == said
