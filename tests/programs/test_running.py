"""Runs with parts replaced: what is known from earlier runs equals what a whole run gives."""

import pytest
import torch
from torch import Tensor

import interp
from interp.measures.runs import Part
from interp.models.subject import Subject
from interp.programs.running import Running

NAMES = ("algorithmic/induction", "count01/paper", "languages/parity-learned")


@pytest.fixture(params=NAMES)
def running(request: pytest.FixtureRequest) -> Running:
    subject = Subject.of(interp.load(request.param))
    return Running.of(subject, subject.task.sample(30, seed=0))


def other(running: Running, part: Part) -> Tensor:
    """A part's value with the rows in another order."""
    return running.value(part).flip(0)


def test_replaced_one_by_one_equals_all_at_once(running: Running) -> None:
    done: dict[Part, Tensor] = {}
    for part in running.parts[::2]:
        done[part] = other(running.original, part)
        running = running.after({part: done[part]})
        running.value(running.parts[-1])  # some are known before more is replaced, and some are not
    whole = Running(running.subject, running.batch, running.reads, running.counts, done)
    assert (whole.logits - running.original.logits).abs().max() > 1e-3
    assert torch.allclose(running.logits, whole.logits, atol=1e-4)
    for part in running.parts:
        assert torch.allclose(running.value(part), whole.value(part), atol=1e-4)
        if part.head is not None:
            assert torch.allclose(running.v(part), whole.v(part), atol=1e-4)
            assert torch.allclose(running.scores(part)[2], whole.scores(part)[2], atol=1e-4)
    for layer in range(len(running.blocks)):
        assert torch.allclose(running.before(layer), whole.before(layer), atol=1e-4)
        assert torch.allclose(running.between(layer), whole.between(layer), atol=1e-4)


def test_more_edits_equal_replacing_them(running: Running) -> None:
    first, last = running.parts[0], running.parts[-1]
    edits = {first: other(running, first)}
    running = running.after({last: other(running, last)})
    whole = Running(running.subject, running.batch, running.reads, running.counts, running.replaced | edits)
    assert torch.allclose(running.logits_with(edits), whole.logits, atol=1e-4)


def test_what_comes_before_is_not_run_again(running: Running) -> None:
    last = running.parts[-1]
    after = running.after({last: other(running, last)})
    assert running.logits.shape == after.logits.shape
    assert after.value(running.parts[0]).equal(running.value(running.parts[0]))
    assert "_seen" not in vars(after)


def test_scores_on_keys_in_another_order() -> None:
    """Against queries and keys by hand: a key that follows a query is not seen, wherever it comes from."""
    model = interp.load("algorithmic/induction")
    running = Running.of(Subject.of(model), model.task.sample(20, seed=0))
    order = torch.randperm(running.batch.tokens.numel(), generator=torch.Generator().manual_seed(0))
    head = Part(0, 1)
    found = running.scores_of_keys(head, lambda value: value.flatten(0, 1)[order].reshape(value.shape))
    _, cache = model.run_with_cache(running.batch.tokens)
    q, k = cache["q", 0][:, :, 1], cache["k", 0][:, :, 1].flatten(0, 1)[order].reshape(20, -1, model.cfg.d_head)
    scores = torch.einsum("rqd,rkd->rqk", q, k) / model.cfg.d_head**0.5
    scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
    rows, positions, before = running.scores(head)
    assert torch.allclose(found, scores[rows, positions], atol=1e-4)
    assert not torch.allclose(before, found, atol=1.0)


@pytest.mark.parametrize("side", "qkv")
@pytest.mark.parametrize("name", ["count01/paper", "languages/first-learned"])
def test_a_head_at_the_reads_is_what_it_is_everywhere(name: str, side: str) -> None:
    """One side reads the embeddings of other places: against the head run at all positions; rows of counts, too."""
    subject = Subject.of(interp.load(name))
    running = Running.of(subject, subject.task.sample(30, seed=0))
    head, own = Part(len(running.blocks) - 1, 0), running.embedded["token"]
    assert own is not None
    change = {"token": own.flip(0, 1) - own}
    found = running.reads.pick(running.head_on(head, side, change))
    changed = running.stream(change, head.layer, reads=False, attention=True)
    everywhere = running.reads.pick(running._in_head(head, "z", side, changed).float())
    assert torch.allclose(found, everywhere, atol=1e-5)
    assert not torch.allclose(found, running.reads.pick(running.value(head)), atol=1e-2)


def test_scores_of_counted_rows_on_other_keys() -> None:
    model = interp.load("count01/paper")
    running = Running.of(Subject.of(model), model.task.sample(30, seed=0))
    head = Part(0, 1)
    found = running.scores_of_keys(head, lambda keys: keys.flip(0))
    q, k = (running._in_head(head, side) for side in "qk")
    scores = torch.einsum("rqd,rkd->rqk", q, k.flip(0)) / model.blocks[0].attn.attn_scale
    assert torch.allclose(found, running.reads.pick(scores).float(), atol=1e-4)
    assert not torch.allclose(found, running.scores(head)[2], atol=0.1)


@pytest.mark.parametrize("added", ["none", "zeros", "some"])
def test_positions_are_written_only_where_they_are_added(added: str) -> None:
    spec = interp.load("languages/parity-learned").spec
    positions = {"positions": "none"} if added == "none" else {"positions": "learned", "max_length": 12}
    model = interp.build(spec.replace(**positions))
    if added == "zeros":
        torch.nn.init.zeros_(model.pos_embed.W_pos)
    subject = Subject.of(model)
    found = Running.of(subject, subject.task.sample(5, seed=0)).embedded.get("position")
    assert (found is not None) == (added == "some")


def test_two_answers_that_are_equally_good_are_none() -> None:
    running = Running.of(subject := Subject.of(interp.load("count01/paper")), subject.task.sample(3, seed=0))
    outputs = torch.zeros(2, subject.task.n_out).index_fill_(1, torch.tensor([1, 2]), 5.0)
    outputs[1, 2] -= 0.01
    assert running.undecided(outputs).tolist() == [True, False]
