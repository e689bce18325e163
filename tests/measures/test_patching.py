"""Patching of heads, against forward passes with the head's output edited by hand."""

from __future__ import annotations

import pytest
import torch

import interp
from interp._lens import HookedTransformer, config, patching, quiet_construction
from interp.errors import InterpError
from interp.measures import heads
from interp.measures.patching import patch_heads


@pytest.fixture(scope="module")
def model() -> HookedTransformer:
    with quiet_construction():
        made = HookedTransformer(
            config(n_layers=2, d_model=12, n_heads=3, d_head=4, d_mlp=16, act_fn="relu", n_ctx=10, d_vocab=9,
                   normalization_type="LN", device="cpu", dtype=torch.float64)
        )  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.4)
    return made


def test_each_row_is_a_forward_pass_with_one_head_replaced(model) -> None:
    generator = torch.Generator().manual_seed(2)
    clean, corrupted = (
        torch.randint(0, 9, (5, 7), generator=generator),
        torch.randint(0, 9, (5, 6), generator=generator),
    )
    here, there = torch.tensor([6, 5, 3, 6, 2]), torch.tensor([5, 2, 4, 0, 1])
    answers = torch.tensor([[1, 2], [3, 1], [0, 8], [4, 5], [2, 1]])
    found = patch_heads(model, clean, corrupted, answers, here, there)
    rows = torch.arange(5)
    outputs, cache = model.run_with_cache(clean)
    right, wrong = answers.T

    def difference(logits: torch.Tensor, at: torch.Tensor) -> float:
        return float((logits[rows, at, right] - logits[rows, at, wrong]).mean().detach())

    assert found.clean == pytest.approx(difference(outputs, here))
    assert found.corrupted == pytest.approx(difference(model(corrupted), there))
    assert found.heads[["layer", "head"]].to_numpy().tolist() == [[a, b] for a in range(2) for b in range(3)]
    for row in found.heads.itertuples():

        def edit(z: torch.Tensor, hook: object, layer: int = row.layer, head: int = row.head) -> torch.Tensor:
            z[rows, there, head] = cache["z", layer][rows, here, head]
            return z

        by_hand = difference(
            model.run_with_hooks(corrupted, fwd_hooks=[(f"blocks.{row.layer}.attn.hook_z", edit)]), there
        )
        assert row.difference == pytest.approx(by_hand, rel=1e-5)
        assert row.recovered == pytest.approx((by_hand - found.corrupted) / (found.clean - found.corrupted), abs=1e-5)


def test_where_logits_are_a_sum_a_patch_exchanges_one_share() -> None:
    """Count01's model: the difference moves by the head's own contribution, and nothing else."""
    model = interp.load("count01/paper", dtype="float64")
    counts = torch.tensor([[40, 60, 10], [20, 30, 50]])
    swapped = counts[:, [1, 0, 2]]
    clean, corrupted = model.task.sentences(counts), model.task.sentences(swapped)
    at = (clean.tokens == 4).int().argmax(1)
    found = patch_heads(model, clean.tokens, corrupted.tokens, (5, 6), at)
    shares = [heads.head_outputs(model, batch).contributions for batch in (clean, corrupted)]
    moved = ((shares[0] - shares[1])[..., 5] - (shares[0] - shares[1])[..., 6]).mean(0)
    assert found.heads["difference"].to_numpy() - found.corrupted == pytest.approx(moved.numpy(), abs=1e-5)
    assert found.heads["recovered"].sum() == pytest.approx(1, abs=1e-4)


def test_bad_pairs_are_one_sentence(model) -> None:
    tokens = torch.zeros(3, 4, dtype=torch.long)
    other = tokens + 1
    for arguments, sentence in [
        ((tokens, other[:2], (1, 2)), "3 clean rows and 2 corrupted rows do not form pairs"),
        ((tokens, tokens, (1, 2)), "there is nothing to recover"),
        ((tokens, other, (1, 9)), "answer 9 is not an output token of the model, which has 0 to 8"),
        ((tokens, other, (1, 1)), "the same token"),
        ((tokens, other, torch.tensor([1, 2, 3])), r"answers has shape \(3,\)"),
        ((tokens, other, (1, 2), 4), "position 4 is outside the rows"),
        ((tokens, other + 8, (1, 2)), "tokens has the id 9"),
    ]:
        with pytest.raises(InterpError, match=sentence):
            patch_heads(model, *arguments)


def test_the_librarys_bar_is_back_after_a_failure(model, monkeypatch, capsys) -> None:
    tokens = torch.zeros(3, 4, dtype=torch.long)
    patch_heads(model, tokens, tokens + 1, (1, 2))
    assert capsys.readouterr().err == ""
    bar = patching.tqdm
    monkeypatch.setattr(patching, "make_df_from_ranges", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        patch_heads(model, tokens, tokens + 1, (1, 2))
    assert patching.tqdm is bar is not iter
