"""Runs in pieces: the same reads as in one go."""

import pytest
import torch
from standins import padding_hooks, standin

import interp
from interp.measures import minimal_pairs, runs
from interp.measures.ablation import AblationSetting, scores_without
from interp.models import subject as subject_module
from interp.models.subject import Subject


def test_reads_of_pieces_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    subject, names = standin("balance"), ["blocks.0.attn.hook_z", "blocks.0.hook_resid_post"]
    batch = subject.task.sample(7, seed=1)
    whole = runs.at_reads(subject, batch, names)
    assert len(whole[names[0]]) == batch.tokens.numel()  # it is read at every position
    assert len(list(runs.pieces(subject, batch))) == 1
    monkeypatch.setattr(runs, "budget", lambda model: 1)
    assert [here for here, _ in runs.pieces(subject, batch)] == [slice(row, row + 1) for row in range(7)]
    for name, found in runs.at_reads(subject, batch, names).items():
        torch.testing.assert_close(found, whole[name])


@pytest.mark.slow
def test_padding_is_left_out_of_pieces_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row by row and cut to its own length, or all rows in one piece as wide as the longest: the same numbers."""
    subject = standin("ends")
    batch = subject.task.sample(40, seed=3)
    few, pairs = batch[0:6], minimal_pairs.make_pairs(subject, 4)
    parts = [*runs.heads_of(subject), *runs.mlps_of(subject)]
    with torch.no_grad():
        plain = subject.model.run_with_hooks(batch.tokens, fwd_hooks=padding_hooks(subject.model, batch))[:, 0]

    def measured() -> list[torch.Tensor]:
        scores = [
            scores_without(subject, [[part] for part in parts], AblationSetting(few, mode, few))
            for mode in ("mean", "resample")
        ]
        losses = torch.tensor([[score.loss for score in some] for some in scores])
        patched = interp.activation_patching(subject, pairs)
        used = interp.probe(subject, inputs=batch).to_frame()[["probe", "interchange", "along_probe"]]
        looked = interp.head_types(subject, batch).to_frame().to_numpy(dtype=float)
        frames = (patched.stream["recovered"], patched.parts["recovered"], used.fillna(-1))
        found = [torch.tensor(frame.to_numpy(float)) for frame in frames]
        return [subject.logits(batch), losses, torch.tensor(looked), *found]

    whole = measured()
    assert {piece.tokens.shape[1] for _, piece in runs.pieces(subject, batch)} == {8}
    for module in (runs, subject_module):
        monkeypatch.setattr(module, "budget", lambda model: 1)
    assert [piece.tokens.shape[1] for _, piece in runs.pieces(subject, batch)] == batch.lengths.tolist()
    for again, before in zip(measured(), whole):
        torch.testing.assert_close(again, before, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(subject.logits(batch), plain, atol=1e-5, rtol=1e-4)
    attending = Subject.external(subject.model, subject.task, padding="attend")
    assert attending.trimmed(batch[0:1]).tokens.shape[1] == 8
