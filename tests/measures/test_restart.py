"""Restarted runs give what whole runs with hooks give, for random models, inputs and changes."""

import random
from collections import Counter

import pytest
import torch
from random_models import random_batch, random_edit, random_subject
from standins import standin

import interp
from interp.measures.restart import Run
from interp.measures.restart_blocks import RunBlock, unknown
from interp.measures.runs import Edit, Part, parts_of
from interp.models.subject import Subject


def largest(tensor: torch.Tensor) -> float:
    return float(tensor.abs().max()) if tensor.numel() else 0.0


def check(seed: int) -> bool:
    """Compare a random model's restarted runs with whole ones; return whether it can be restarted."""
    subject, draw = random_subject(seed), random.Random(seed)
    batch, generator = random_batch(subject, seed), torch.Generator().manual_seed(seed)
    changes = [[random_edit(draw, subject, batch, generator) for _ in range(draw.choice([0, 1, 1, 1, 2, 3]))]
               for _ in range(25)]  # fmt: skip
    quick, whole = Run(subject, batch), Run(subject, batch, general=True)
    rounding = 1e-4 if subject.model.cfg.dtype == torch.float32 else 1e-10
    for change, found, right in zip(changes, quick.outputs(changes), whole.outputs(changes)):
        assert largest(found - right) <= rounding * (1 + largest(right)), f"seed {seed}: {change}"
    names = [part.hook for part in parts_of(subject)] + [quick.last]
    some = names[: draw.randint(1, len(names))]
    for change, made, wanted in zip(changes, quick.values(changes, some), whole.values(changes, some)):
        for name in some:
            error = largest(made[name] - wanted[name])
            assert error <= rounding * (1 + largest(wanted[name])), f"seed {seed}: {name} after {change}"
    return unknown(subject) is None


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.thinned(6)
def test_restarted_runs_equal_whole_runs(seed: int) -> None:
    check(seed)


@pytest.mark.soak
def test_500_random_models_equal_whole_runs() -> None:
    known = Counter(check(seed) for seed in range(500))
    assert known[True] > 250
    assert known[False] > 50


def test_only_what_a_change_reaches_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = standin("recall")  # 2 layers, attention only, causal, read at the last of 7 positions
    run = Run(subject, subject.task.sample(5, seed=0))
    ran = []
    own = RunBlock.mix
    monkeypatch.setattr(RunBlock, "mix", lambda block, q, *rest: ran.append(q.shape[1]) or own(block, q, *rest))
    late = torch.arange(7) == 3
    edit = Edit(Part(0, 1), 0.0, late.expand(5, -1))
    run.outputs([[edit]])
    assert ran == [1]  # layer 0 does not attend again, and in layer 1 only the read asks
    ran.clear()
    run.outputs([[Edit("blocks.0.hook_resid_pre", 0.0, late.expand(5, -1))]])
    assert ran == [4, 1]  # four positions see the change in layer 0
    ran.clear()
    run.outputs([[Edit(Part(1, 0), 0.0)], [Edit("blocks.1.hook_resid_post", 0.0)], []])
    assert ran == []


def test_a_change_to_the_same_value_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = standin("recall")
    batch = subject.task.sample(5, seed=0)
    run = Run(subject, batch)
    ran = []
    own = RunBlock.mix
    monkeypatch.setattr(RunBlock, "mix", lambda block, q, *rest: ran.append(q.shape[1]) or own(block, q, *rest))
    stream, z = (run.seen[name] for name in ("blocks.0.hook_resid_pre", "blocks.1.attn.hook_z"))
    same = Edit("blocks.0.hook_resid_pre", stream.clone())
    for found in run.outputs([[same], [Edit(Part(1, 0), z[:, :, 0])]]):
        assert torch.equal(found, run.logits)
    assert ran == []
    later = stream.clone()
    later[:, 5:] = -later[:, 5:]
    pinned = [same, Edit("blocks.0.hook_resid_pre", later), Edit("blocks.1.attn.hook_z", z)]
    (found,) = run.outputs([pinned])  # the unchanged value of a later place is put in all the same
    assert ran == [2, 1]
    whole = Run(subject, batch, general=True).outputs([pinned])[0]
    torch.testing.assert_close(found, whole)
    assert not torch.allclose(found, run.outputs([pinned[:2]])[0])


def test_changes_of_a_layer_run_together(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = standin("ends")
    run, ran = Run(subject, subject.task.sample(4, seed=0)), []
    own = RunBlock.mix
    monkeypatch.setattr(RunBlock, "mix", lambda block, q, *rest: ran.append(len(q)) or own(block, q, *rest))
    run.outputs([[Edit(Part(0, head), 0.0)] for head in range(2)])
    assert ran == [8, 8]  # two changes of four rows in layers 1 and 2


def test_a_model_with_hooks_runs_as_a_whole() -> None:
    subject = Subject.of(interp.build("languages/parity"))
    assert unknown(subject) is None
    subject.model.add_hook("blocks.0.attn.hook_z", lambda z, hook: z * 2)
    assert unknown(subject) == "it has hooks"
    batch = subject.task.sample(3, seed=0)
    run = Run(subject, batch)
    torch.testing.assert_close(run.outputs([[]])[0], run.logits)


def test_a_replaced_part_runs_as_a_whole() -> None:
    subject = Subject.of(interp.build("languages/parity"))
    subject.model.blocks[0].mlp = torch.nn.Linear(4, 4)
    assert unknown(subject) == "a part of a block was replaced"
