"""Runs in pieces: the same reads as in one go, and inputs that are spread from the first to the last."""

from __future__ import annotations

import pytest
import torch
from standins import standin

from interp.measures import runs


def test_reads_of_pieces_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    subject, names = standin("balance"), ["blocks.0.attn.hook_z", "blocks.0.hook_resid_post"]
    batch = subject.task.sample(7, seed=1)
    whole = runs.at_reads(subject, batch, names)
    assert len(whole[names[0]]) == batch.tokens.numel()  # it is read at every position
    assert len(list(runs.pieces(subject, batch))) == 1
    monkeypatch.setattr(runs, "BUDGET", 1)
    assert [here for here, _ in runs.pieces(subject, batch)] == [slice(row, row + 1) for row in range(7)]
    for name, found in runs.at_reads(subject, batch, names).items():
        torch.testing.assert_close(found, whole[name])


def test_affordable_inputs_are_spread_from_the_first_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = standin("balance")
    batch = subject.task.sample(20, seed=2)
    monkeypatch.setattr(runs, "affordable", lambda subject, length, n_runs: 5)
    assert runs.within(subject, batch).tokens.tolist() == batch.tokens[[0, 5, 10, 14, 19]].tolist()
    monkeypatch.setattr(runs, "affordable", lambda subject, length, n_runs: 20)
    assert runs.within(subject, batch) is batch
