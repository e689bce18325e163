"""What single queries look at, against the whole pattern of a stock forward."""

import pytest
import torch
from standins import standin

import interp
from interp.measures.attention import attention_rows
from interp.models.subject import Subject


@pytest.mark.parametrize("name", ["count01/paper", "languages/parity-learned", "histogram/lin", "algorithmic/addition"])
@pytest.mark.parametrize("only_reads", [True, False])
@pytest.mark.thinned(3)
def test_rows_of_attention_are_those_of_the_pattern(name: str, only_reads: bool) -> None:
    """Count01 asks its end alone; the languages have padding, linear mixing has no queries, addition rotates them."""
    subject = Subject.of(interp.load(name))
    batch = subject.task.sample(2 if name == "count01/paper" else 30, seed=1)
    _, cache = subject.model.run_with_cache(batch.tokens)
    queries = batch.attention_mask & subject.read_mask(batch) if only_reads else batch.attention_mask
    seen = torch.zeros_like(queries)
    for found in attention_rows(subject, batch, only_reads):
        assert torch.equal(found.piece.tokens, batch.tokens[found.here, : found.piece.tokens.shape[1]])
        rows = torch.arange(len(batch))[found.here][found.rows]
        seen[rows, found.positions] = True
        assert torch.equal(found.mask.nonzero(), torch.stack([found.rows, found.positions], 1))
        for layer, weights in enumerate(found.weights):
            whole = cache[f"blocks.{layer}.attn.hook_pattern"][rows, :, found.positions, : weights.shape[-1]]
            torch.testing.assert_close(weights, whole, rtol=0, atol=1e-6)
    assert torch.equal(seen, queries)


def test_a_model_of_your_own_shows_its_own_pattern() -> None:
    subject = standin("recall")
    batch = subject.task.sample(4, seed=0)
    _, cache = subject.model.run_with_cache(subject.inputs(batch.tokens))
    for found in attention_rows(subject, batch, only_reads=True):
        whole = cache["blocks.0.attn.hook_pattern"][
            torch.arange(len(batch))[found.here][found.rows], :, found.positions
        ]
        torch.testing.assert_close(found.weights[0], whole[..., : found.weights[0].shape[-1]], rtol=0, atol=1e-6)


def test_without_inputs_the_first_test_input_is_shown() -> None:
    found = interp.attention_patterns(interp.load("algorithmic/max-of-k"))
    assert found.weights.shape == (1, 1, 1, 5, 5)
    assert len(found.words) == 1


def test_hovering_names_head_tokens_weight_and_the_row() -> None:
    found = interp.attention_patterns(interp.load("algorithmic/induction"), "[BOS] 4 1 6 4 1 6")
    (cells,) = found.plot(heads=["1.1"]).data
    said = cells.hovertemplate.split("<br>")
    assert said == ["query token %{y}", "key token %{x}", "attention weight %{z:.4g}",
                    "%{customdata}<extra>head 1.1</extra>"]  # fmt: skip
    words = list(cells.y)
    assert words == [f"{word} ({place})" for place, word in enumerate(found.words[0])]
    weights = found.weights[0, 1, 1]
    assert cells.z == pytest.approx(weights.numpy(), abs=1e-6)
    most = int(weights[-1].argmax())
    assert cells.customdata[-1][0].startswith(f"largest of the row: {words[most]}: {float(weights[-1, most]):.3g}, ")
    assert len(found.plot().data) == 4
    with pytest.raises(interp.InterpError, match=r"head '2\.0'"):
        found.plot(heads=["2.0"])
