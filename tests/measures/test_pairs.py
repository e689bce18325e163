"""Patching of every site against hooks written by hand, on strangers' models and shipped ones."""

from __future__ import annotations

import pytest
import torch
from standins import NAMES, padding_hooks, read_of, standin

import interp
from interp.errors import InterpError
from interp.measures.pairs import make_pairs, patch, position_groups
from interp.measures.subject import Subject
from interp.tasks.base import Pairs


@pytest.mark.parametrize("name", NAMES)
def test_every_site_by_hand(name) -> None:
    subject = standin(name)
    model = subject.model
    pairs = make_pairs(subject, 20, seed=2)
    found = patch(subject, pairs)
    clean: dict[str, torch.Tensor] = {}
    keep = (lambda n: True, lambda act, hook: clean.update({hook.name: act}))
    hidden = padding_hooks(model, pairs.corrupted)  # pairs of one token have the same lengths

    def lean(hooks: list[tuple[object, object]], tokens: torch.Tensor) -> float:
        logits = read_of(name, model.run_with_hooks(tokens, fwd_hooks=[*hidden, *hooks])).flatten(0, -2)
        right, wrong = (batch.labels.flatten() for batch in (pairs.clean, pairs.corrupted))
        differ = right != wrong
        rows = torch.arange(len(right))
        return float((logits[rows, right] - logits[rows, wrong])[differ].mean())

    before, after = lean([keep], pairs.clean.tokens), lean([], pairs.corrupted.tokens)
    assert (found.clean, found.corrupted) == (pytest.approx(before, rel=1e-5), pytest.approx(after, rel=1e-5))
    groups = position_groups(subject, pairs)
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
    found = patch(subject, pairs)
    last = found.stream[found.stream["layer"] == model.cfg.n_layers]
    assert last["recovered"].sum() == pytest.approx(1.0, abs=1e-4)


def test_no_pairs_and_equal_pairs() -> None:
    subject = standin("recall")
    batch = subject.task.sample(5)
    with pytest.raises(InterpError, match="there is nothing to recover"):
        patch(subject, Pairs(batch, batch))
    with pytest.raises(InterpError, match="there are no pairs"):
        patch(subject, Pairs(batch[:0], batch[:0]))
