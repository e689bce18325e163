"""Attention: masks, the fused path, stored keys. The numbers themselves are held to numpy in test_task_model.py."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np
import pytest
import torch
from closeness import close
from numpy_forward import forward
from torch import Tensor

from interp.families.count01 import Count01
from interp.models.architecture import blocks, parameters
from interp.models.architecture.task_model import TaskModel
from interp.models.lens import forward as hooked
from interp.models.spec import MLP, Bias, Layer, ModelSpec, TaskRef
from interp.tasks import make_task

ALL = Bias(q=True, k=True, v=True, o=True)
SOFTMAX = Layer(n_heads=2, d_head=3, bias=ALL, scale=1.0)
CAUSAL = ModelSpec(task=TaskRef(name="count01"), d_model=6, layers=(SOFTMAX,) * 2, dtype="float64")
BOTH = CAUSAL.replace(direction="bidirectional")
RAW = BOTH.replace(layers=(SOFTMAX.model_copy(update={"normalizer": "none"}),) * 2)
LOG = BOTH.replace(layers=(SOFTMAX.model_copy(update={"log_length": "current", "mlp": MLP(d_mlp=4)}),) * 2)
SPECS = {"causal": CAUSAL, "bidirectional": BOTH, "raw": RAW, "log length": LOG}
SPECS["sinusoidal"] = BOTH.replace(positions="sinusoidal")
SPECS["post norm"] = BOTH.replace(layers=(SOFTMAX.model_copy(update={"norm": "post"}),) * 2)
SPECS["alibi"] = CAUSAL.replace(positions="alibi", positions_enter="attention")
SPECS["formula"] = BOTH.replace(positions="fraction")
EVERY = pytest.mark.parametrize("name", SPECS)
PAD = 7


def weights(spec: ModelSpec) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = parameters.parameter_shapes(spec, make_task(spec.task))
    return {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}


def make(name: str) -> TaskModel:
    return TaskModel(SPECS[name], tensors=weights(SPECS[name]))


def ragged(seed: int = 0) -> tuple[Tensor, list[int]]:
    """Rows of 1 to 9 tokens, padded on the right to 11."""
    lengths = [9, 1, 4, 7, 2]
    tokens = torch.randint(0, PAD, (5, 11), generator=torch.Generator().manual_seed(seed))
    for row, length in zip(tokens, lengths, strict=True):
        row[length:] = PAD
    return tokens, lengths


@contextmanager
def explicitly(really: bool = True) -> Iterator[None]:
    """Scores and patterns are always materialized."""
    if not really:
        yield
        return
    with mock.patch.object(blocks.TaskAttention, "_can_fuse", return_value=False):
        yield


# ---------------------------------------------------------------- padding


@EVERY
@pytest.mark.parametrize("given", [True, False], ids=["mask given", "mask from the padding"])
def test_padding_changes_nothing(name: str, given: bool) -> None:
    """Each row's logits are those of the row alone: stock bidirectional attention lets padding leak."""
    model, (tokens, lengths) = make(name), ragged()
    mask = (tokens != PAD).long() if given else None
    for logits in (model(tokens, attention_mask=mask), model.run_with_cache(tokens, attention_mask=mask)[0]):
        for row, own, length in zip(logits, tokens, lengths, strict=True):
            torch.testing.assert_close(row[:length], model(own[None, :length])[0], rtol=1e-11, atol=1e-11)


@EVERY
def test_a_padded_row_is_the_reference_s(name: str) -> None:
    if name == "formula":
        return  # numpy_forward knows sinusoids only; positions have their own tests
    tokens, lengths = ragged()
    for row, own, length in zip(make(name)(tokens).detach(), tokens, lengths, strict=True):
        wanted, _ = forward(SPECS[name], weights(SPECS[name]), own[:length].tolist())
        np.testing.assert_allclose(row[:length], wanted, rtol=1e-10, atol=1e-10)


@EVERY
def test_what_the_padding_is_changes_nothing(name: str) -> None:
    model, (tokens, lengths) = make(name), ragged()
    mask = torch.arange(11) < torch.tensor(lengths)[:, None]
    other = torch.where(mask, tokens, 3)
    before, after = model(tokens, attention_mask=mask.long()), model(other, attention_mask=mask.long())
    for length, x, y in zip(lengths, before, after, strict=True):
        assert x[:length].equal(y[:length])


@EVERY
def test_masked_positions_in_the_middle_are_not_seen(name: str) -> None:
    """An attention mask may hide any token, not only padding at the end."""
    model, tokens = make(name), ragged()[0][:1, :9]
    mask = torch.tensor([[1, 1, 0, 1, 1, 0, 1, 1, 1]])
    other = torch.where(mask.bool(), tokens, (tokens + 1) % PAD)
    seen = mask[0].bool()
    before, after = (model(rows, attention_mask=mask)[0][seen] for rows in (tokens, other))
    assert before.equal(after)


@EVERY
def test_masks_give_finite_values_and_gradients_everywhere(name: str) -> None:
    """A row may be all padding, and a causal query may see nothing: nobody reads them, but no NaN may spread."""
    for explicit in (False, True):
        model, (tokens, _) = make(name), ragged()
        tokens[1] = PAD
        mask = (tokens != PAD).long()
        mask[0, 0] = 0  # hidden on the left: the first causal query sees nothing
        with explicitly(explicit):
            logits = model(tokens, attention_mask=mask)
            assert logits.isfinite().all()
            logits[mask.bool()].sum().backward()
        assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


# ---------------------------------------------------------------- fused and explicit


@EVERY
@pytest.mark.parametrize("masked", [True, False])
def test_fused_is_explicit(name: str, masked: bool) -> None:
    tokens, _ = ragged()
    mask = (tokens != PAD).long() if masked else None
    tokens = tokens if masked else tokens.clamp(max=PAD - 1)
    results = []
    for explicit in (False, True):
        model = make(name)
        with explicitly(explicit):
            logits = model(tokens, attention_mask=mask)
            read = logits if mask is None else logits[mask.bool()]
            read.square().sum().backward()
        results.append([read, *(parameter.grad for parameter in model.parameters())])
    scale = max(value.abs().max().item() for value in results[0])  # some gradients are zero but for rounding
    for fused, materialized in zip(*results, strict=True):
        assert (fused - materialized).abs().max() < 1e-11 * scale


def test_the_fused_kernel_runs_only_while_nobody_looks() -> None:
    model, tokens = make("causal"), ragged()[0].clamp(max=PAD - 1)
    with mock.patch.object(
        hooked.functional, "scaled_dot_product_attention", wraps=hooked.functional.scaled_dot_product_attention
    ) as kernel:
        model(tokens)
        assert kernel.call_count == 2
        model.run_with_cache(tokens, names_filter=lambda name: name.endswith("hook_z"))
        assert kernel.call_count == 4
        for hook in ("hook_attn_scores", "hook_pattern"):
            model.run_with_cache(tokens, names_filter=f"blocks.1.attn.{hook}")
        assert kernel.call_count == 6  # block 0 fused, block 1 not
        model.add_hook("blocks.0.attn.hook_pattern", lambda gradient, hook: None, dir="bwd")
        model(tokens)
        assert kernel.call_count == 7
        model.reset_hooks()
        make("raw")(tokens)
        assert kernel.call_count == 7


def test_hooks_act_on_fused_models() -> None:
    """hook_z and hook_v keep their place in the fused path."""
    model, tokens = make("causal"), ragged()[0].clamp(max=PAD - 1)
    double = [("blocks.1.attn.hook_v", lambda value, hook: 2 * value)]
    fused = model.run_with_hooks(tokens, fwd_hooks=double)
    with explicitly():
        torch.testing.assert_close(model.run_with_hooks(tokens, fwd_hooks=double), fused, rtol=1e-11, atol=1e-11)
    assert (fused - model(tokens)).abs().max() > 1e-3


# ---------------------------------------------------------------- patterns


@EVERY
def test_patterns_are_distributions_over_what_may_be_seen(name: str) -> None:
    model, (tokens, lengths) = make(name), ragged()
    _, cache = model.run_with_cache(tokens, attention_mask=(tokens != PAD).long())
    for block in range(2):
        for row, length in zip(cache[f"blocks.{block}.attn.hook_pattern"].detach(), lengths, strict=True):
            assert (row[..., length:] == 0).all()
            if SPECS[name].direction == "causal":
                assert (row.triu(1) == 0).all()
            if name != "raw":
                torch.testing.assert_close(row[:, :length].sum(-1), torch.ones(2, length, dtype=torch.float64))


@EVERY
def test_the_pattern_at_one_position_equals_the_whole_pattern(name: str) -> None:
    model, (tokens, lengths) = make(name), ragged()
    with torch.no_grad(), explicitly():
        _, cache = model.run_with_cache(tokens, attention_mask=(tokens != PAD).int())
    at = torch.tensor([length // 2 for length in lengths])
    for index, block in enumerate(model.blocks):
        q, k, pattern = (cache[f"blocks.{index}.attn.hook_{part}"] for part in ("q", "k", "pattern"))
        found = block.attn.pattern_at(q, k, at, tokens != PAD)
        close(found, pattern[torch.arange(len(tokens)), :, at], atol=1e-12)


def test_a_hidden_token_does_not_move_the_positions_after_it() -> None:
    spec = BOTH.replace(positions="rotary", positions_enter="attention", rotary_dim=2)
    model, tokens = TaskModel(spec, tensors=weights(spec)), ragged()[0].clamp(max=PAD - 1)
    seen = torch.ones_like(tokens)
    seen[:, 3] = 0
    with torch.no_grad(), explicitly():
        _, cache = model.run_with_cache(tokens, attention_mask=seen)
    q, k, pattern = (cache[f"blocks.0.attn.hook_{part}"] for part in ("q", "k", "pattern"))
    at = torch.full((len(tokens),), 5)
    close(model.blocks[0].attn.pattern_at(q, k, at, seen.bool()), pattern[:, :, 5], atol=1e-12)


@pytest.mark.parametrize("edited", ["hook_q", "hook_k"])
def test_scores_come_from_queries_and_keys_by_hook(edited: str) -> None:
    model, tokens = make("bidirectional"), ragged()[0].clamp(max=PAD - 1)
    with model.hooks([(f"blocks.0.attn.{edited}", lambda value, hook: torch.zeros_like(value))]):
        _, cache = model.run_with_cache(tokens)
    assert (cache["blocks.0.attn.hook_pattern"] - 1 / 11).abs().max() < 1e-12


def test_log_length_multiplies_the_scores_by_ln_n() -> None:
    model, tokens = make("log length"), ragged()[0].clamp(max=PAD - 1)
    for n in (1, 2, 7, 11):
        _, cache = model.run_with_cache(tokens[:, :n])
        q, k = cache["blocks.0.attn.hook_q"], cache["blocks.0.attn.hook_k"]
        wanted = torch.einsum("bqhe,bkhe->bhqk", q, k) * np.log(n)
        torch.testing.assert_close(cache["blocks.0.attn.hook_attn_scores"], wanted, rtol=1e-12, atol=1e-12)


def test_a_fixed_log_length_is_the_same_at_every_length() -> None:
    layer = SOFTMAX.model_copy(update={"log_length": 20})
    fixed = TaskModel(BOTH.replace(layers=(layer,)), tensors=weights(BOTH.replace(layers=(layer,))))
    scaled = SOFTMAX.model_copy(update={"scale": float(np.log(20))})
    plain = TaskModel(BOTH.replace(layers=(scaled,)), tensors=weights(BOTH.replace(layers=(scaled,))))
    for n in (1, 5, 11):
        tokens = ragged()[0].clamp(max=PAD - 1)[:, :n]
        torch.testing.assert_close(fixed(tokens), plain(tokens), rtol=1e-12, atol=1e-12)


def test_huge_scores_do_not_overflow() -> None:
    """count01/minimal at N = 12 has scores of 12^4: exp of them is infinite, softmax is not."""
    from interp.models.constructions import construct

    model, task = construct("count01/minimal", N=12).model(), Count01()
    batch = task.sentences(torch.tensor([[3, 4, 5], [200, 199, 200], [0, 0, 0]]))
    assert model(batch.tokens).isfinite().all()
    assert model.predict(batch.tokens).equal(batch.labels)
    with explicitly():
        assert model(batch.tokens).isfinite().all()
