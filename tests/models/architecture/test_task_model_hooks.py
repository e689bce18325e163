"""What of HookedTransformer works on task models: hooks, decompositions, a final norm, circuits, generation."""

from typing import Any

import numpy as np
import pytest
import torch
from drawn_weights import draw, hooked
from numpy_forward import forward
from task_models import EVERY, LENGTH, SPECS, make, random_weights, reference, rows
from torch import Tensor

from interp.errors import InterpError, UnsupportedError
from interp.families.count01 import Count01
from interp.families.languages.forward import encoder_refusal
from interp.models.architecture.reduced import count_space_refusal
from interp.models.architecture.task_model import TaskModel
from interp.models.constructions import construct
from interp.tasks import make_task
from interp.training.train import ENGINES

# ---------------------------------------------------------------- hooks


@EVERY
def test_canonical_hooks_have_canonical_shapes(name: str) -> None:
    model, spec = make(name), SPECS[name]
    model.set_use_attn_result(True)
    tokens = rows()
    logits, cache = model.run_with_cache(tokens)
    np.testing.assert_allclose(logits.detach(), reference(name, tokens)[0], rtol=1e-11, atol=1e-12)
    B, L, h, dh, d = 5, LENGTH, spec.layers[0].n_heads, spec.layers[0].d_head, spec.d_model
    for i in range(len(spec.layers)):
        at = f"blocks.{i}."
        assert cache[at + "attn.hook_attn_scores"].shape == (B, h, L, L)
        assert cache[at + "attn.hook_pattern"].shape == (B, h, L, L)
        assert cache[at + "attn.hook_z"].shape == (B, L, h, dh)
        assert cache[at + "attn.hook_result"].shape == (B, L, h, d)
        for key in ("hook_resid_pre", "hook_attn_out", "hook_resid_post"):
            assert cache[at + key].shape == (B, L, d)
        summed = cache[at + "attn.hook_result"].sum(2) + model.blocks[i].attn.b_O
        torch.testing.assert_close(summed, cache[at + "hook_attn_out"], rtol=1e-12, atol=1e-12)
    assert cache["hook_embed"].shape == (B, L, d)
    if spec.readout == "relu_mlp":
        pre = cache["unembed.hook_pre"]
        assert pre.shape == (B, L, 5)
        assert cache["unembed.hook_post"].equal(pre.relu())
    assert set(model.hook_dict) >= set(cache.keys())


@EVERY
@pytest.mark.parametrize("hook", ["hook_attn_scores", "hook_pattern", "hook_z"])
@pytest.mark.thinned(3)
def test_edits_of_hooks_act(name: str, hook: str) -> None:
    """Whoever hooks scores or pattern gets what they wrote, not what the fused kernel would have computed."""
    model, tokens = make(name), rows()
    edited = model.run_with_hooks(tokens, fwd_hooks=[(f"blocks.0.attn.{hook}", lambda value, hook: value * 0.5)])
    assert (edited - model(tokens)).abs().max() > 1e-3
    assert model(tokens).equal(model(tokens))


def test_an_edited_pattern_is_the_pattern() -> None:
    """Uniform attention by hand: each head's output at position t is the mean of the values up to t."""
    model, tokens = make("count01"), rows()
    uniform = torch.tril(torch.ones(LENGTH, LENGTH, dtype=torch.float64))
    uniform /= uniform.sum(1, keepdim=True)
    with model.hooks([("blocks.0.attn.hook_pattern", lambda pattern, hook: uniform.expand_as(pattern))]):
        _, cache = model.run_with_cache(tokens)
    means = torch.stack([cache["blocks.0.attn.hook_v"][:, : t + 1].mean(1) for t in range(LENGTH)], 1)
    torch.testing.assert_close(cache["blocks.0.attn.hook_z"], means, rtol=1e-12, atol=1e-12)


@EVERY
@pytest.mark.parametrize(("switch", "hook"), [
    ("set_use_split_qkv_input", "blocks.0.hook_q_input"),
    ("set_use_attn_in", "blocks.0.hook_attn_in"),
    ("set_use_hook_mlp_in", "blocks.0.hook_mlp_in"),
])  # fmt: skip
@pytest.mark.thinned(3)
def test_switches_of_hooks_reach_the_blocks_and_change_nothing(name: str, switch: str, hook: str) -> None:
    model, tokens = make(name), rows()
    before = model(tokens)
    layer, refusal = SPECS[name].layers[0], None
    if layer.norm == "post":
        refusal = "post-layer-norm"
    elif layer.key_value_heads is not None and switch == "set_use_attn_in":
        refusal = "share keys and values"
    if refusal is not None:
        with pytest.raises(UnsupportedError, match=refusal):
            getattr(model, switch)(True)
        return
    if switch == "set_use_hook_mlp_in" and model.cfg.attn_only:
        return
    getattr(model, switch)(True)
    after, cache = model.run_with_cache(tokens)
    assert hook in cache
    torch.testing.assert_close(after, before, rtol=1e-11, atol=1e-12)


def test_a_cache_without_its_batch_axis() -> None:
    model = make("pre and final norm")
    _, whole = model.run_with_cache(rows(1))
    _, cache = model.run_with_cache(rows(1), remove_batch_dim=True)
    assert cache.decompose_resid().equal(whole.decompose_resid()[:, 0])
    torch.testing.assert_close(cache.decompose_resid(apply_ln=True), whole.decompose_resid(apply_ln=True)[:, 0])


def test_names_filter_and_plain_caches() -> None:
    model = make("count01")
    _, cache = model.run_with_cache(rows(), names_filter="blocks.0.attn.hook_z", return_cache_object=False)
    assert type(cache) is dict
    assert list(cache) == ["blocks.0.attn.hook_z"]


# ---------------------------------------------------------------- helpers that are right, and those that refuse


@EVERY
def test_decompositions_sum_or_refuse(name: str) -> None:
    model, spec = make(name), SPECS[name]
    logits, cache = model.run_with_cache(rows())
    last = cache[f"blocks.{len(spec.layers) - 1}.hook_resid_post"]
    if not spec.additive_residual:
        for helper in (
            cache.decompose_resid,
            cache.get_full_resid_decomposition,
            lambda: cache.logit_attrs(last[None]),
        ):
            with pytest.raises(UnsupportedError, match="post-layer-norm"):
                helper()
        return
    parts, labels = cache.decompose_resid(return_labels=True)
    torch.testing.assert_close(parts.sum(0), last, rtol=1e-11, atol=1e-11)
    assert len(labels) == len(parts)
    heads = cache.get_full_resid_decomposition(expand_neurons=False)
    torch.testing.assert_close(heads.sum(0), last, rtol=1e-6, atol=1e-6)  # stock sums the biases in float32
    answers = torch.zeros(5, dtype=torch.long)
    if spec.readout == "relu_mlp":
        with pytest.raises(UnsupportedError, match="ReLU"):
            cache.logit_attrs(parts, answers)
        return
    attributed = cache.logit_attrs(parts[:, :, -1], answers, pos_slice=-1, has_batch_dim=True).sum(0)
    centered = spec.final_norm == "layer_norm"  # an RMS norm has no bias
    constant = model.b_U[0] + model.ln_final.b @ model.W_U[:, 0] if centered else model.b_U[0]
    torch.testing.assert_close(attributed + constant, logits[:, -1, 0], rtol=1e-10, atol=1e-10)


@EVERY
def test_head_results_are_those_of_the_hook(name: str) -> None:
    model, spec = make(name), SPECS[name]
    _, without = model.run_with_cache(rows())
    model.set_use_attn_result(True)
    _, cache = model.run_with_cache(rows())
    wanted = torch.cat([cache[f"blocks.{i}.attn.hook_result"].movedim(2, 0) for i in range(len(spec.layers))])
    for stack in (without.stack_head_results(), cache.stack_head_results()):
        torch.testing.assert_close(stack, wanted, rtol=1e-12, atol=1e-12)


@EVERY
def test_parts_behind_a_layer_norm_add_up_to_what_is_read(name: str) -> None:
    """At the norm's own scale, with its gain and without its bias; for attention, MLP and readout."""
    model, spec = make(name), SPECS[name]
    read: dict[str, Tensor] = {}
    parts: Any = model
    where = {(i, False): (f"blocks.{i}.ln1", block.attn) for i, block in enumerate(parts.blocks)}
    where |= {(i, True): (f"blocks.{i}.ln2", parts.blocks[i].mlp) for i, layer in enumerate(spec.layers) if layer.mlp}
    where[len(spec.layers), False] = ("ln_final", parts.unembed)
    for name_, module in where.values():
        module.register_forward_pre_hook(
            lambda module, args, kwargs, name=name_: read.update({name: (*args, *kwargs.values())[0].detach()}),
            with_kwargs=True,
        )
    _, cache = model.run_with_cache(rows())
    if not spec.additive_residual:
        return
    for (layer, mlp_input), (norm, _) in where.items():
        stack = cache.decompose_resid(layer, mlp_input=mlp_input, apply_ln=True)
        bias = dict(model.named_parameters()).get(f"{norm}.b", torch.zeros(spec.d_model, dtype=torch.float64))
        torch.testing.assert_close(stack.sum(0) + bias, read[norm], rtol=1e-10, atol=1e-10)
        one = cache.decompose_resid(layer, mlp_input=mlp_input, apply_ln=True, pos_slice=2)
        torch.testing.assert_close(one, stack[:, :, 2])
    lens = cache.accumulated_resid(apply_ln=True)[-1]
    torch.testing.assert_close(lens, read["ln_final"], rtol=1e-10, atol=1e-10)


def test_what_a_norm_cannot_say() -> None:
    model = make("pre and final norm")
    _, cache = model.run_with_cache(rows(), names_filter=lambda name: not name.endswith("hook_scale"))
    with pytest.raises(InterpError, match=r"ln_final\.hook_scale"):
        cache.apply_ln_to_stack(cache["hook_embed"][None])
    with pytest.raises(InterpError, match="layer 5"):
        cache.apply_ln_to_stack(cache["hook_embed"][None], 5)
    with pytest.raises(UnsupportedError, match="gain"):
        cache.stack_neuron_results(-1, apply_ln=True, project_output_onto=model.W_U)


# ---------------------------------------------------------------- a final layer norm


def test_a_final_norm_is_that_of_a_stock_model() -> None:
    """Stock weights under normalization_type = "LN", which norms before every part and before the readout."""
    fields = {"n_layers": 2, "d_model": 6, "d_head": 3, "n_heads": 2, "n_ctx": LENGTH + 1, "d_vocab": 8, "d_mlp": 7}
    stock = hooked(**fields, act_fn="relu", normalization_type="LN", dtype=torch.float64)
    draw(stock, 1, dtype=torch.float64)
    spec = SPECS["pre and final norm"].replace(dtype="float64")
    layers = tuple(layer.model_copy(update={"scale": "inv_sqrt_d_head"}) for layer in spec.layers)
    model = TaskModel(spec.replace(layers=layers))
    weights = {name: value for name, value in stock.state_dict().items() if not name.endswith(("mask", "IGNORE"))}
    model.load_state_dict(weights, strict=True)
    torch.testing.assert_close(model(rows()), stock(rows()), rtol=1e-12, atol=1e-12)
    _, ours = model.run_with_cache(rows())
    _, theirs = stock.run_with_cache(rows())
    assert set(theirs) == set(ours)
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value, rtol=1e-11, atol=1e-11, msg=name)


def test_a_final_norm_enters_the_spec_id_only_if_present() -> None:
    spec = SPECS["count01"]
    assert "final_norm" not in spec.to_dict()
    assert spec.replace(final_norm="layer_norm").id != spec.id
    assert not spec.replace(final_norm="layer_norm").linear_readout


def test_no_fast_path_leaves_a_final_norm_out() -> None:
    """Everything that computes logits without the model refuses, or predict would go past the norm."""
    plain = SPECS["count01"].replace(readout_at="=")
    spec = plain.replace(final_norm="layer_norm", dtype="float64")
    batch = Count01().sentences(torch.tensor([[3, 4, 1], [0, 0, 0], [2, 2, 5], [6, 1, 0]]), seed=1)
    weights = random_weights(spec)
    model = TaskModel(spec, tensors=weights)
    wanted = [forward(spec, weights, row.tolist())[0][row.tolist().index(4)].argmax() for row in batch.tokens]
    assert model.predict(batch.tokens).tolist() == [int(output) for output in wanted]
    cpu = torch.device("cpu")
    for spec_ in (plain, SPECS["histogram raw"], SPECS["histogram linear"], SPECS["language"], SPECS["memorization"]):
        normed = spec_.replace(final_norm="layer_norm")
        refused = {engine.name: engine.refusal(normed, make_task(normed.task), cpu) for engine in ENGINES.values()}
        assert {name for name, reason in refused.items() if reason is None} <= {"reference", "vmap"}, refused
    assert count_space_refusal(normed) is not None
    assert encoder_refusal(SPECS["language"].replace(final_norm="layer_norm", readout_at="last")) is not None


@EVERY
def test_weights_are_never_folded(name: str) -> None:
    model = make(name)
    before = model(rows())
    for call in (model.process_weights_, lambda: model.load_and_process_state_dict(model.state_dict())):
        with pytest.raises(UnsupportedError):
            call()
    assert model(rows()).equal(before)


@EVERY
def test_circuits(name: str) -> None:
    """W_U, QK and OV as stock code sees them, constants included."""
    model, spec = make(name), SPECS[name]
    W = random_weights(spec)
    if spec.readout != "relu_mlp":
        unembedding = W["embed.W_E"].T if spec.tied_embeddings else W["unembed.W_U"]
        assert model.W_U.equal(unembedding)
        assert model.b_U.shape == unembedding.shape[1:]
    else:
        for read in (lambda: model.W_U, lambda: model.b_U):
            with pytest.raises(UnsupportedError, match="ReLU"):
                read()
    h, d = spec.layers[0].n_heads, spec.d_model
    eye = torch.eye(d, dtype=torch.float64).expand(h, -1, -1)
    for name in [name for name in W if "attn._" in name]:  # each key and value head serves several queries
        W[name.replace("._", ".")] = W[name].repeat_interleave(h // len(W[name]), 0)
    W_V, W_O = (W.get(f"blocks.0.attn.W_{letter}", eye) for letter in "VO")
    torch.testing.assert_close(model.blocks[0].attn.OV.AB, W_V @ W_O)
    if spec.layers[0].mixing == "dot":
        W_Q, W_K = W["blocks.0.attn.W_Q"], W.get("blocks.0.attn.W_K", eye)
        torch.testing.assert_close(model.blocks[0].attn.QK.AB, W_Q @ W_K.mT)
    assert model.W_E.equal(W["embed.W_E"])


# ---------------------------------------------------------------- generation


@pytest.mark.parametrize("keys", [True, False])
def test_the_exact_model_generates_the_answer(keys: bool) -> None:
    model, task = construct("count01/minimal").model(), Count01()
    for body, answer in (("0112012", "4"), ("2220", "5"), ("", "5"), ("10", "5")):
        start = torch.tensor([task.parse(f"[BOS]{body}=")])
        out = model.generate(start, max_new_tokens=2, use_past_kv_cache=keys, do_sample=False, verbose=False)
        assert task.format(out[0]) == f"[BOS]{body}={answer}[EOS]"


@EVERY
def test_generation_is_the_argmax_of_the_forward_pass(name: str) -> None:
    model, spec = make(name), SPECS[name]
    if spec.readout == "scalar" or spec.n_out == 9:
        with pytest.raises(UnsupportedError, match="outputs"):
            model.generate(rows(2, 3), max_new_tokens=2)
        return
    if name == "histogram linear":
        with pytest.raises(UnsupportedError, match="one length"):
            model.generate(rows(1, LENGTH), max_new_tokens=1)
        return
    start = rows(1, 4)
    wanted = start
    for _ in range(3):
        wanted = torch.cat([wanted, model(wanted)[:, -1:].argmax(-1)], 1)
    for keys in (True, False):
        out = model.generate(start, max_new_tokens=3, use_past_kv_cache=keys, do_sample=False, verbose=False)
        assert out.equal(wanted)


def test_generation_stops_where_the_positions_end() -> None:
    with pytest.raises(InterpError, match="10 more tokens make 13 positions; this model has 8"):
        make("raw causal").generate(rows(1, 4), max_new_tokens=10)


def test_generation_refuses_padding_that_would_be_attended_to() -> None:
    model = TaskModel(SPECS["count01"].replace(direction="bidirectional"))
    with pytest.raises(UnsupportedError, match="padding"):
        model.generate(torch.tensor([[0, 1, 7]]), max_new_tokens=1)
