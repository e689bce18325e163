"""The readout: answers that are sets of next symbols."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformer_lens import HookedTransformer, HookedTransformerConfig

import interp
from interp.errors import InterpError
from interp.measures.runs import Part
from interp.models.subject import Subject
from interp.programs import decompile, maps, moved_rows
from interp.programs.reading import Reading
from interp.programs.readout import Readout
from interp.programs.running import Running
from interp.programs.steps import Linear
from interp.programs.task import ENDS
from interp.tasks import Batch, NextSymbols


class AfterA(NextSymbols):
    """a may always follow, b only after a, and the end only after b."""

    name, vocabulary, symbols, n_inputs = "after_a", ("<s>", "a", "b"), ("a", "b", "end"), 32

    def rows(self) -> Tensor:
        content = torch.cartesian_prod(*[torch.tensor([1, 2])] * 5)
        return torch.cat([torch.zeros(len(content), 1, dtype=torch.long), content], 1)

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        return self.batch(self.rows()[torch.randint(32, (n,), generator=torch.Generator().manual_seed(seed))])

    def inputs(self, chunk: int = 4096) -> Iterator[Batch]:
        yield self.batch(self.rows())

    def allowed(self, tokens: Tensor) -> Tensor:
        return torch.stack([torch.ones_like(tokens, dtype=torch.bool), tokens == 1, tokens == 2], -1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_sets_of_next_symbols_are_explained() -> None:
    """An MLP that copies the token: the program gives each set, in words."""
    cfg = HookedTransformerConfig(
        n_layers=1, d_model=8, n_heads=1, d_head=8, d_mlp=8, n_ctx=6, d_vocab=3, d_vocab_out=3, act_fn="relu",
        normalization_type=None, attention_dir="causal", seed=0,
    )  # fmt: skip
    made = HookedTransformer(cfg)
    weights = {name: torch.zeros_like(w) if w.is_floating_point() else w for name, w in made.state_dict().items()}
    weights["embed.W_E"], weights["blocks.0.mlp.W_in"] = torch.eye(3, 8), torch.eye(8)
    weights["blocks.0.mlp.W_out"][1, 4] = weights["blocks.0.mlp.W_out"][2, 5] = 1
    weights["unembed.W_U"][4, 1] = weights["unembed.W_U"][5, 2] = 5
    weights["unembed.b_U"] = torch.tensor([3.0, -2.0, -2.0])
    made.load_state_dict(weights)
    found = interp.explain(interp.load(made, task=AfterA()))
    assert found.level == "explained"
    assert found.program.answers == ("{a}", "{a, b}", "{a, end}")
    assert found.program(["<s>", "a", "b"]) == ["{a}", "{a, b}", "{a, end}"]
    tested = interp.evaluate_hypothesis(found.subject, found.hypothesis, AfterA().sample(20)).interchange
    assert tested["changes"].tolist() == [1.0]  # the numbers of sets are not those of the program's answers
    again = interp.Explanation.from_json(found.to_json())
    with pytest.raises(InterpError, match="sets of outputs, which a file does not number"):
        _ = again.hypothesis


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_moved_rows_have_no_set_that_no_input_has() -> None:
    """Of rows of one letter, a position is read as its token and, by even attention, as the first letter: with the
    head of a row of the other letter, the set would be one that no row has."""
    cfg = HookedTransformerConfig(
        n_layers=1, d_model=8, n_heads=1, d_head=8, attn_only=True, n_ctx=6, d_vocab=3, d_vocab_out=3,
        normalization_type=None, attention_dir="causal", seed=0,
    )  # fmt: skip
    made = HookedTransformer(cfg)
    weights = {name: torch.zeros_like(w) for name, w in made.named_parameters()}
    weights["embed.W_E"], weights["blocks.0.attn.W_V"][0] = torch.eye(3, 8), torch.eye(8)
    weights["blocks.0.attn.W_O"][0, 1, 4] = weights["unembed.W_U"][1, 0] = 1
    weights["unembed.W_U"][4, 1] = 10
    weights["unembed.b_U"] = torch.tensor([-0.5, -2.0, 1.0])
    made.load_state_dict(weights, strict=False)
    a, b = [0, 1, 1, 1, 1, 1], [0, 2, 2, 2, 2, 2]
    before = Running.of(Subject.of(interp.load(made, task=AfterA())), AfterA().batch(torch.tensor([a, a, b, b])))
    assert sorted(before.words) == ["{a, b, end}", "{end}"]
    running, head = moved_rows.with_copies(before), Part(0, 0)
    other = moved_rows.other_rows(running.batch.lengths, [head])[head]
    reading = Reading(running, others={head: other})
    reading.made = decompile.given(running)
    assert bool((running.batch.tokens[other] != running.batch.tokens).any())
    reading.move(head)
    assert torch.equal(reading.running.answers, before.answers.repeat(1 + moved_rows.COPIES))
    assert torch.equal(reading.running.logits, running.logits)  # rows of the same letter are the same


def test_a_value_that_is_never_met_speaks_for_no_answer() -> None:
    one = maps.lookup_of(torch.tensor([1, 1, 0]), 2, {"x": (torch.tensor([0, 0, 2]), 3)}, ("x",))
    assert one.met == (True, False, True)
    reading: Any = SimpleNamespace(running=SimpleNamespace(words=("no", "yes")))
    answer, steps = Readout(reading, None, {}).looked_up(one)
    assert answer.weights == (((0.0, 1.0), (0.0, 0.0), (1.0, 0.0)),)
    assert steps == []


def test_of_two_answers_the_sum_of_the_first_is_zero() -> None:
    """Their difference decides: the weights of both would count each number twice."""
    model = interp.compile(ENDS)
    with torch.no_grad():
        model.unembed.b_U += torch.tensor([3.0, 3.0])  # the same for both answers
    subject = Subject.of(model)
    reading = decompile.decompile(Running.of(subject, subject.task.sample(60, seed=0)))
    found = Readout(reading, reading.edges(None), {}).by_model_sum()
    assert found is not None
    answer, _ = found
    assert isinstance(answer, Linear)
    assert answer.bias[0] == 0.0
    assert all(row[0] == 0.0 for weights in answer.weights for row in weights)
    assert any(row[1] != 0.0 for weights in answer.weights for row in weights)
    assert reading.answered(answer).share == 1.0
