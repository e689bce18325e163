"""Patching of every site against hooks written by hand, on strangers' models and shipped ones."""

import subprocess
import sys
from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch
from standins import NAMES, padding_hooks, read_of, standin

import interp
from interp.errors import InterpError
from interp.measures.metrics import leaning
from interp.measures.minimal_pairs import Compared, compared, make_pairs
from interp.measures.patching import activation_patching, by_index, position_groups
from interp.models.constructions import construct
from interp.models.subject import Subject
from interp.tasks.pairs import Pairs


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", NAMES)
def test_every_site_by_hand(name) -> None:
    subject = standin(name)
    model = subject.model
    pairs = make_pairs(subject, 20, seed=2)
    found = activation_patching(subject, pairs, by_position=True)
    clean: dict[str, torch.Tensor] = {}
    keep = (lambda n: True, lambda act, hook: clean.update({hook.name: act}))
    hidden = padding_hooks(model, pairs.corrupted)  # pairs of one token have the same lengths

    def flips(hook: tuple[object, object]) -> float:
        """Answers of the clean inputs that a patch makes, those left out that stand there without it."""
        right, wrong = (batch.labels.flatten() for batch in (pairs.clean, pairs.corrupted))
        after, before = (
            read_of(name, model.run_with_hooks(pairs.corrupted.tokens, fwd_hooks=[*hidden, *hooks])).flatten(0, -2)
            for hooks in ([hook], [])
        )
        new = (after.argmax(-1) == right) & (before.argmax(-1) != right)
        return float(new[right != wrong].double().mean())

    def lean(hooks: list[tuple[object, object]], tokens: torch.Tensor) -> float:
        logits = read_of(name, model.run_with_hooks(tokens, fwd_hooks=[*hidden, *hooks])).flatten(0, -2)
        right, wrong = (batch.labels.flatten() for batch in (pairs.clean, pairs.corrupted))
        differ = right != wrong
        rows = torch.arange(len(right))
        return float((logits[rows, right] - logits[rows, wrong])[differ].mean())

    before, after = lean([keep], pairs.clean.tokens), lean([], pairs.corrupted.tokens)
    assert (found.clean, found.corrupted) == (pytest.approx(before, rel=1e-5), pytest.approx(after, rel=1e-5))
    groups = position_groups(subject, pairs, by_index(pairs))
    for row in found.stream.itertuples():
        last = row.layer == model.cfg.n_layers
        hook = f"blocks.{model.cfg.n_layers - 1}.hook_resid_post" if last else f"blocks.{row.layer}.hook_resid_pre"
        mask = groups[row.position][:, :, None]
        put = (hook, lambda act, hook, mask=mask: torch.where(mask, clean[hook.name], act))
        wanted = (lean([put], pairs.corrupted.tokens) - after) / (before - after)
        assert row.recovered == pytest.approx(wanted, abs=1e-5)
    for row in found.parts.itertuples():

        def swap(act: torch.Tensor, hook: object, row: object = row) -> torch.Tensor:
            act = act.clone()
            if row.kind == "MLP":
                return clean[hook.name]
            act[:, :, row.head] = clean[hook.name][:, :, row.head]
            return act

        hook = f"blocks.{row.layer}." + ("hook_mlp_out" if row.kind == "MLP" else "attn.hook_z")
        wanted = (lean([(hook, swap)], pairs.corrupted.tokens) - after) / (before - after)
        assert row.recovered == pytest.approx(wanted, abs=1e-5)
        assert row.flipped == pytest.approx(flips((hook, swap)))
    for row in found.at_positions.itertuples():

        def swap_there(act: torch.Tensor, hook: object, row: object = row) -> torch.Tensor:
            act = act.clone()
            mask = groups[row.position][:, :, None]
            act[:, :, row.head] = torch.where(mask, clean[hook.name][:, :, row.head], act[:, :, row.head])
            return act

        there = (f"blocks.{row.layer}.attn.hook_z", swap_there)
        wanted = (lean([there], pairs.corrupted.tokens) - after) / (before - after)
        assert row.recovered == pytest.approx(wanted, abs=1e-5)
        assert row.flipped == pytest.approx(flips(there))


@pytest.mark.parametrize(
    "name", ["languages/palindrome-learned", "histogram/dot", "memorization/bigram", "count01/minimal"]
)
def test_the_whole_stream_at_the_end_recovers_everything(name) -> None:
    model = interp.load(name)
    subject = Subject.of(model)
    if name == "count01/minimal":  # two lengths: rows lie upon each other where they are read
        clean, corrupted = (
            model.task.sentences(torch.tensor(rows)) for rows in ([[2, 3, 1], [4, 2, 0]], [[3, 2, 1], [2, 4, 0]])
        )
        pairs = Pairs(clean, corrupted)
    else:
        pairs = make_pairs(subject, 6)
    found = activation_patching(subject, pairs)
    last = found.stream[found.stream["layer"] == model.cfg.n_layers]
    assert last["recovered"].sum() == pytest.approx(1.0, abs=1e-4)


def test_no_pairs_and_equal_pairs() -> None:
    subject = standin("recall")
    batch = subject.task.sample(5)
    with pytest.raises(InterpError, match="there is nothing to recover"):
        activation_patching(subject, Pairs(batch, batch))
    with pytest.raises(InterpError, match="there are no pairs"):
        activation_patching(subject, Pairs(batch[:0], batch[:0]))


LARGE = """
import torch
from interp.models.lens import HookedTransformer, config, quiet_construction
from interp.measures.patching import activation_patching
from interp.models.subject import Subject
from interp.tasks import IGNORED, Batch, Task
from interp.tasks.pairs import Pairs

def peak():
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 2**10

class First(Task):
    name, readout, vocabulary, n_out = "first-of-many", "last", tuple(map(str, range(50257))), 50257
    def sample(self, n, split="test", seed=0):
        return self.batch(torch.randint(0, 50257, (n, 8), generator=torch.Generator().manual_seed(seed)))
    def batch(self, tokens):
        return Batch(tokens, torch.full((len(tokens),), tokens.shape[1]), tokens[:, 0])
    def classes(self, batch):
        classes = torch.full_like(batch.tokens, IGNORED)
        classes[:, -1] = batch.labels
        return classes
    def answers(self, classes, tokens):
        return classes

with quiet_construction():
    model = HookedTransformer(config(
        n_layers=2, d_model=768, n_heads=12, d_head=64, d_mlp=3072, act_fn="gelu_new", n_ctx=1024, d_vocab=50257,
        normalization_type="LN", device="cpu",
    ))
generator = torch.Generator().manual_seed(0)
with torch.no_grad():
    for name, parameter in model.named_parameters():
        if "W_" in name:
            parameter.uniform_(-0.03, 0.03, generator=generator)
task = First()
pairs = Pairs(task.sample(24, seed=1), task.sample(24, seed=2))
before = peak()
found = activation_patching(Subject(model, task), pairs)
assert len(found.stream) == 24 and len(found.parts) == 26, found
print(peak() - before)
"""


@pytest.mark.slow
def test_a_vocabulary_of_gpt2_in_little_memory() -> None:
    """Kept together, the logits of 24 pairs at 52 sites would take 250 MB, and grow with the sites."""
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1000  # MB above the model itself


def test_no_sites_are_refused() -> None:
    with pytest.raises(InterpError, match="no sites to patch were given; give at least one of stream, head, MLP"):
        activation_patching(interp.load("memorization/bigram"), sites=[])


def test_one_read_is_its_own_mean() -> None:
    model = interp.load("memorization/bigram")
    subject = Subject.of(model)
    several = make_pairs(subject, 6)
    pairs = Pairs(several.clean[:1], several.corrupted[:1])
    (right,), (wrong,) = (batch.labels.flatten().tolist() for batch in (pairs.clean, pairs.corrupted))
    with torch.no_grad():
        logits = model(pairs.clean.tokens)[0, -1]
    found = activation_patching(subject, pairs)
    assert found.reads == 1
    assert found.clean == pytest.approx(float(logits[right] - logits[wrong]), rel=1e-5)


def test_an_indicator_leans_to_yes_within_its_tolerance() -> None:
    """'Yes' is an output within .001 of 0: at .0004 it is .0006 from 'no', at .003 the other way by .002."""
    subject = Subject.of(construct("languages/palindrome", tolerance=1e-3).model())
    some = torch.zeros(3, dtype=torch.long)
    where = Compared(some, some, some, torch.tensor([1, 1, 0]), torch.tensor([0, 0, 1]))
    found = leaning(subject, torch.tensor([[4e-4], [-3e-3], [3e-3]], dtype=torch.float64), where)
    assert found.tolist() == pytest.approx([6e-4, -2e-3, 2e-3])


@pytest.mark.parametrize(
    ("corrupt", "sentence"),
    [
        (lambda batch, seed: Pairs(batch, batch), "corrupts an input into '.*', which has the same answer"),
        (lambda batch, seed: Pairs(batch, batch[:3]), "corrupts 8 rows into 3; return one per row"),
        (
            lambda batch, seed: Pairs(batch, replace(batch, labels=~batch.labels)),
            r"corrupt\(batch\) labels rows differently from batch\(tokens\)",
        ),
    ],
)
def test_rows_that_are_no_pairs_are_refused(corrupt: object, sentence: str) -> None:
    """The runs of pairs with one answer both "leaned by 0"."""
    model = interp.build("languages/parity")
    model.task.corrupt = corrupt  # type: ignore[method-assign, assignment]
    with pytest.raises(InterpError, match=sentence):
        make_pairs(model, 8)


def test_sets_lean_by_the_outputs_in_which_they_differ() -> None:
    """{0, 2} against {1, 2}: output 0 for, output 1 against, output 2 not at all."""
    subject, two = Mock(decision=Mock(kind="set")), torch.zeros(2, dtype=torch.long)
    where = Compared(two, two, two, torch.tensor([0b101, 0b110]), torch.tensor([0b110, 0b101]))
    found = leaning(subject, torch.tensor([[2.0, 0.5, 9.0], [2.0, 0.5, 9.0]]), where)
    assert found.tolist() == [1.5, -1.5]


def test_pairs_without_an_answer_are_left_out() -> None:
    subject = standin("recall")
    batch = subject.task.sample(20, seed=0)
    moved = (batch.labels + 1) % 3
    assert len(compared(subject, Pairs(batch, replace(batch, labels=moved))).rows) == 20
    without = moved.clone()
    without[:5] = -2
    assert compared(subject, Pairs(batch, replace(batch, labels=without))).rows.tolist() == [*range(5, 20)]
