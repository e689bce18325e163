"""Generation against a loop by hand: what a mistake does to the digits behind it, and which tasks are not generated."""

import pytest
import torch

import interp
from interp.errors import UnsupportedError
from interp.measures.accuracy import generate, generation_accuracy
from interp.tasks import Generates


def exact(digits: int = 4, **options: object) -> interp.TaskModel:
    return interp.build("algorithmic/addition-exact", digits=digits, **options)


def by_hand(model: interp.TaskModel, row: torch.Tensor, start: int, steps: int) -> list[int]:
    """One row, one token at a time."""
    tokens, made = row[: start + 1].tolist(), []
    for _ in range(steps):
        made.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
        tokens.append(made[-1])
    return made


def test_an_exact_adder_generates_every_sum() -> None:
    model = exact()
    batch = model.task.sample(50, seed=1)
    found = generate(model, batch)
    assert found.right.all()
    assert found.teacher_forced.all()
    numbers = model.task.numbers(batch.tokens)
    powers = 10 ** torch.arange(5)
    assert (found.tokens * powers).sum(1).equal(sum((n * powers[:4]).sum(1) for n in numbers))
    both = generation_accuracy(model, n=100)
    assert both.generated.accuracy == both.teacher_forced.accuracy == 1
    assert both.generated.n == both.generated.rows == both.teacher_forced.rows
    assert both.teacher_forced.n == 5 * both.teacher_forced.rows


def test_a_mistake_is_read_by_the_digits_behind_it() -> None:
    """A model that answers 0 where a 7 is right, and 7 for 0, takes its 0 for a carry; given the right digit it does
    not."""
    model = exact()
    with torch.no_grad():
        for weight in (model.unembed.W_U, model.unembed.b_U):
            weight[..., [0, 7]] = weight[..., [7, 0]].clone()
    batch = model.task.sample(400, seed=2)
    found = generate(model, batch)
    for row in range(20):
        assert by_hand(model, batch.tokens[row], found.start, 5) == found.tokens[row].tolist()
    wanted = model.task.classes(batch)[:, found.start :]
    assert found.teacher_forced.equal((wanted != 7) & (wanted != 0))
    assert found.right.all(1).equal(found.teacher_forced.all(1))  # a whole sum is right in either way, or in neither
    assert (found.teacher_forced & ~found.right).any()
    both = generation_accuracy(model, n=400)
    assert both.generated.accuracy < both.teacher_forced.accuracy < 1
    assert both.generated.low < both.generated.accuracy < both.generated.high


def test_outputs_that_are_no_numbers_are_never_right() -> None:
    model = exact(digits=2)
    with torch.no_grad():
        model.unembed.W_U[:] = torch.nan
    assert not generate(model, model.task.sample(5)).right.any()


def test_a_stock_model_with_own_tokens_generates_in_the_task_s() -> None:
    model = exact(digits=2)
    batch = model.task.sample(20, seed=3)
    subject = interp.models.subject.Subject(model, model.task)
    assert generate(subject, batch).tokens.equal(generate(model, batch).tokens)


@pytest.mark.parametrize(("name", "words"), [
    ("count01/minimal", "read at one position"),
    ("algorithmic/max-of-k-exact", "read at one position"),
    ("histogram/dot-exact", "not tokens of its vocabulary"),
    ("algorithmic/induction-exact", "are not at the end"),
])  # fmt: skip
def test_tasks_with_answers_that_are_not_adjacent_are_refused(name: str, words: str) -> None:
    model = interp.build(name)
    with pytest.raises(UnsupportedError, match=words):
        generate(model, model.task.sample(4))


class Copy(interp.Task):
    """Letters, "=", the same letters again, ".": copy what stands before "="."""

    name, vocabulary, pad = "test_copy", ("a", "b", "=", ".", "_"), "_"
    answer_words = ("a", "b", ".")
    n_out = 3
    generates = Generates("=", ".", 4)

    def sample(self, n: int, split: str = "test", seed: int = 0) -> interp.Batch:
        draw = torch.Generator().manual_seed(seed)
        rows = torch.full((n, 8), 4)
        for row, length in zip(rows, torch.randint(1, 4, (n,), generator=draw).tolist()):
            letters = torch.randint(2, (length,), generator=draw)
            row[: 2 * length + 2] = torch.cat([letters, torch.tensor([2]), letters, torch.tensor([3])])
        return self.batch(rows)

    def batch(self, tokens: torch.Tensor) -> interp.Batch:
        following = torch.cat([tokens[:, 1:], torch.full((len(tokens), 1), 4)], 1)
        behind = (tokens == 2).cumsum(1).bool() & (following != 4)
        classes = torch.tensor([0, 1, -1, 2, -1])[following]
        return interp.Batch(tokens, (tokens != 4).sum(1), classes.masked_fill(~behind, -1))


def test_declared_answers_of_several_lengths_stop_correctly() -> None:
    task = Copy()
    layer = interp.Layer(d_head=4, n_heads=2)
    spec = interp.ModelSpec(task=task.ref, d_model=8, layers=(layer,), positions="learned", max_length=8, n_out=3)
    model = interp.TaskModel(spec, task, seed=3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
        model.unembed.b_U[2] += 2.0
    batch = task.sample(60, seed=1)
    found, token = generate(model, batch), (0, 1, 3)
    stops = 0
    for row in range(60):
        length = int(batch.lengths[row])
        start, many = int((batch.tokens[row] == 2).int().argmax()), (length - 2) // 2 + 1
        tokens, made = batch.tokens[row, : start + 1].tolist(), []
        while len(made) < many and 2 not in made:
            made.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
            tokens.append(token[made[-1]])
        wanted = [token.index(t) for t in batch.tokens[row, start + 1 : length].tolist()]
        assert found.tokens[row, : len(made)].tolist() == made
        assert found.asked[row].sum() == many
        assert bool(found.exact[row]) == (made == wanted)
        stops += len(made) < many
    assert stops  # some answers stopped too early
    table = found.by_place()
    assert table["rows"].tolist()[0] == 60
    assert table["generated"][0] == table["teacher_forced"][0]
    both = generation_accuracy(model, n=60)
    assert 0 <= both.generated.accuracy <= both.teacher_forced.accuracy < 1
