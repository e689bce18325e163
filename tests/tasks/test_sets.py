"""Answers that are sets: packing, the decision, a base class for next symbols, and what reports say of them."""

import pytest
import torch

import interp
from interp.models.architecture.answers import Decision, correct, decide, losses, margins
from interp.tasks import IGNORED, Batch, Generates, NextSymbols, sets, task_checks
from interp.training.engines.reference import batch_loss


class EvenOnes(NextSymbols):
    """Rows of zeros and ones: which symbols may follow if the number of ones must be even at the end?"""

    name, vocabulary, symbols, pad = "test_even_ones", ("0", "1", "_"), ("0", "1", "end"), "_"

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        draw = torch.Generator().manual_seed(seed)
        lengths = torch.randint(1, 6, (n, 1), generator=draw)
        return self.batch(torch.randint(2, (n, 5), generator=draw).masked_fill(torch.arange(5) >= lengths, 2))

    def allowed(self, tokens: torch.Tensor) -> torch.Tensor:
        even = (tokens == 1).cumsum(1) % 2 == 0
        return torch.stack([torch.ones_like(even), torch.ones_like(even), even], dim=-1)


def test_sets_are_integers() -> None:
    members = torch.rand(3, 4, 62, generator=torch.Generator().manual_seed(0)) < 0.5
    classes = sets.pack_sets(members)
    assert (classes >= 0).all()
    assert sets.unpack_sets(classes, 62).equal(members)
    assert sets.pack_sets(torch.tensor([[True, False, True]])).tolist() == [5]
    assert sets.set_word(5, ("a", "b", "c")) == "{a, c}"
    assert sets.set_word(0, ("a",)) == "{}"
    with pytest.raises(interp.InterpError, match="sets of 63 outputs"):
        sets.pack_sets(torch.zeros(1, 63, dtype=torch.bool))


def test_a_set_is_right_where_every_sign_is() -> None:
    rule = Decision("set")
    outputs = torch.tensor([[1.0, -2.0, 3.0], [1.0, 2.0, -3.0], [0.0, -1.0, 0.5]])
    classes = torch.tensor([5, 5, 4])  # {0, 2}, {0, 2}, {2}
    assert decide(outputs, rule).tolist() == [5, 3, 4]
    assert correct(outputs, classes, rule).tolist() == [True, False, True]
    assert margins(outputs, classes, rule).tolist() == [1.0, -3.0, 0.0]
    wanted = torch.nn.functional.binary_cross_entropy_with_logits(
        outputs, torch.tensor([[1.0, 0, 1], [1, 0, 1], [0, 0, 1]]), reduction="none"
    )
    found = losses(outputs, classes, rule)
    assert found is not None
    torch.testing.assert_close(found, wanted.mean(1))
    assert not correct(torch.full((1, 3), torch.nan), torch.tensor([0]), rule).any()


def test_next_symbols_of_each_prefix() -> None:
    task = EvenOnes()
    task_checks.check_made(task)
    batch = task.batch(torch.tensor([[0, 1, 1, 2]]))
    assert batch.labels.tolist() == [[7, 3, 7, -1]]
    assert task.classes(batch).tolist() == [[7, 3, 7, IGNORED]]
    assert task.word(3) == "{0, 1}"
    assert task.n_classes == 8


class NoPairOfZeros(EvenOnes):
    name = "test_no_pair_of_zeros"

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        return self.batch(torch.ones(n, 5, dtype=torch.long))

    def allowed(self, tokens: torch.Tensor) -> torch.Tensor:
        one = tokens == 1
        return torch.stack([one, torch.ones_like(one), one], dim=-1)


def test_members_prefixes_are_asked_where_samples_have_no_other() -> None:
    """After 0 comes no other 0: what stands behind one is asked about only if samples hold such rows."""
    task, other = NoPairOfZeros(), type("Random", (NoPairOfZeros,), {"sample": EvenOnes.sample})()
    tokens = torch.tensor([[0, 0, 1, 2], [1, 0, 1, 1]])
    assert task.asked(task.batch(tokens)).tolist() == [[True, False, False, False], [True] * 4]
    assert other.asked(other.batch(tokens)).tolist() == [[True, True, True, False], [True] * 4]


def test_both_general_engines_train_sets_alike() -> None:
    recipe = interp.Training(epochs=2, batch_size=16, data="fresh", samples_per_epoch=48, learning_rate=0.01)
    spec = interp.ModelSpec(
        task=EvenOnes().ref, d_model=8, layers=(interp.Layer(d_head=8),), positions="learned", max_length=5,
        readout_at="all", decision="set", origin=recipe, dtype="float64",
    )  # fmt: skip
    with pytest.raises(interp.InterpError, match="does not fit task test_even_ones: expected set"):
        interp.TaskModel(spec.replace(decision="argmax"), EvenOnes())
    by_hand, vmapped = (
        interp.train(spec, seeds=[0], task=EvenOnes(), engine=engine)[0] for engine in ("reference", "vmap")
    )
    for name, parameter in by_hand.named_parameters():
        torch.testing.assert_close(dict(vmapped.named_parameters())[name], parameter, rtol=1e-9, atol=1e-12)
    start = interp.TaskModel(spec, EvenOnes())
    batch = EvenOnes().sample(200, seed=9)
    assert batch_loss(by_hand, batch) < batch_loss(start, batch)


def test_sets_are_named_by_their_members() -> None:
    task = EvenOnes()
    model = interp.TaskModel(
        interp.ModelSpec(task=task.ref, d_model=4, layers=(interp.Layer(n_heads=1, d_head=4),), decision="set"), task
    )
    with torch.no_grad():
        model.unembed.W_U.zero_()
        model.unembed.b_U.copy_(torch.tensor([1.0, -1.0, 2.0]))
    assert interp.accuracy(model, task.sample(50)).by_class["answer"].tolist() == ["{0, 1}", "{0, 1, end}"]
    assert interp.explain(model).sentence.startswith("No explanation found: the model answers {0, end} to every input")


@pytest.mark.parametrize(
    ("change", "words"),
    [({"decision": "some"}, "decision = 'some'"), ({"symbols": tuple(map(str, range(63)))}, "at most 62 outputs")],
)
def test_wrong_declarations_are_refused(change: dict[str, object], words: str) -> None:
    kind = type("Wrong", (EvenOnes,), change)
    with pytest.raises(interp.InterpError, match=words):
        task_checks.check_made(kind())


@pytest.mark.parametrize("wrong", [(0, None, 3), ("=", None, 0), (True, None, 2)])
def test_what_generates_takes(wrong: tuple) -> None:
    with pytest.raises(interp.InterpError, match="generates"):
        Generates(*wrong)
