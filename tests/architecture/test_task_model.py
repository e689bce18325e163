"""Task models of all four families against a forward pass in plain numpy, and what of HookedTransformer works."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import pytest
import torch
from closeness import close
from numpy_forward import forward
from torch import Tensor

import interp
from interp._lens import HookedTransformer, config, quiet_construction
from interp.architecture.answers import find_positions
from interp.architecture.encoder import encoder_refusal
from interp.architecture.parameters import parameter_shapes
from interp.architecture.reduced import count_space_refusal
from interp.architecture.task_model import TaskModel
from interp.constructions import construct
from interp.errors import InterpError, SpecError, UnsupportedError
from interp.spec import MLP, Bias, Layer, ModelSpec, TaskRef
from interp.tasks import Count01, make_task
from interp.training.train import ENGINES

LENGTH = 7
COUNT01 = TaskRef(name="count01")
ALL = Bias(q=True, k=True, v=True, o=True)
SPECS = {
    "count01": ModelSpec(
        task=COUNT01, d_model=6, layers=(Layer(n_heads=3, d_head=2, scale=1.0, norm="pre", bias=Bias(o=True)),)
    ),
    "histogram raw": ModelSpec(
        task=COUNT01,
        d_model=4,
        direction="bidirectional",
        layers=(Layer(d_head=4, normalizer="none", value_output="identity", scale="inv_sqrt_d_model"),),
        readout="relu_mlp",
        readout_width=5,
        n_out=9,
    ),
    "histogram linear": ModelSpec(
        task=COUNT01,
        d_model=4,
        direction="bidirectional",
        layers=(Layer(n_heads=2, d_head=4, mixing="linear", value_output="identity"),),
        max_length=LENGTH,
        readout="relu_mlp",
        readout_width=5,
    ),
    "language": ModelSpec(
        task=COUNT01,
        d_model=6,
        direction="bidirectional",
        layers=(Layer(n_heads=2, d_head=3, mlp=MLP(d_mlp=5), norm="post", bias=ALL, log_length="current"),) * 2,
        positions="sinusoidal",
        readout="scalar",
        decision="sigmoid",
    ),
    "memorization": ModelSpec(
        task=COUNT01,
        d_model=4,
        layers=(Layer(n_heads=3, d_head=4, query_key="full", value_output="full"),),
        positions="learned",
        positions_enter="attention",
        max_length=LENGTH,
        readout_bias=False,
    ),
    "raw causal": ModelSpec(
        task=COUNT01,
        d_model=6,
        layers=(Layer(n_heads=2, d_head=3, normalizer="none", bias=ALL, mlp=MLP(d_mlp=3)),),
        positions="learned",
        max_length=LENGTH + 1,
    ),
    "deep": ModelSpec(
        task=COUNT01,
        d_model=6,
        layers=(
            Layer(n_heads=2, d_head=3, norm="pre"),
            Layer(n_heads=2, d_head=3, norm="pre", mlp=MLP(d_mlp=7, activation="gelu"), log_length=12, norm_eps=0.1),
            Layer(n_heads=2, d_head=3, norm="pre", mlp=MLP(d_mlp=2), bias=Bias(k=True)),
        ),
        positions="sinusoidal",
    ),
    "final norm": ModelSpec(
        task=COUNT01,
        d_model=6,
        layers=(Layer(n_heads=2, d_head=3), Layer(n_heads=2, d_head=3, mlp=MLP(d_mlp=7), norm_eps=0.01)),
        final_norm="layer_norm",
    ),
    "pre and final norm": ModelSpec(
        task=COUNT01,
        d_model=6,
        layers=(Layer(n_heads=2, d_head=3, norm="pre", bias=ALL, mlp=MLP(d_mlp=7)),) * 2,
        positions="learned",
        max_length=LENGTH + 1,
        final_norm="layer_norm",
    ),
}
EVERY = pytest.mark.parametrize("name", SPECS)


def random_weights(spec: ModelSpec, seed: int = 0) -> dict[str, Tensor]:
    """Every parameter random and large, so that nothing is near its special values: norms, biases, all of them."""
    generator = torch.Generator().manual_seed(seed)
    shapes = parameter_shapes(spec, make_task(spec.task))
    return {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}


def make(name: str, **options: Any) -> TaskModel:
    spec = SPECS[name].replace(dtype="float64")
    return TaskModel(spec, tensors=random_weights(spec), **options)


def rows(n: int = 5, length: int = LENGTH, seed: int = 0) -> Tensor:
    """Rows of any tokens but [EOS], which pads."""
    return torch.randint(0, 7, (n, length), generator=torch.Generator().manual_seed(seed))


def reference(name: str, tokens: Tensor) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    found = [forward(SPECS[name], random_weights(SPECS[name]), row.tolist()) for row in tokens]
    return np.stack([logits for logits, _ in found]), {
        key: np.stack([seen[key] for _, seen in found]) for key in found[0][1]
    }


# ---------------------------------------------------------------- the numbers


@EVERY
def test_logits_and_activations_are_the_reference_s(name: str) -> None:
    tokens = rows()
    wanted, seen = reference(name, tokens)
    model = make(name)
    np.testing.assert_allclose(model(tokens).detach(), wanted, rtol=1e-11, atol=1e-12)
    logits, cache = model.run_with_cache(tokens)
    np.testing.assert_allclose(logits.detach(), wanted, rtol=1e-11, atol=1e-12)
    for key, value in seen.items():
        np.testing.assert_allclose(cache[key].detach(), value, rtol=1e-11, atol=1e-12, err_msg=key)


def test_count01_in_twenty_lines() -> None:
    """The paper's model (section 4), written out once more without any options, on padded sentences at '='."""
    spec = SPECS["count01"].replace(dtype="float64", readout_at="=")
    W = {name: tensor.numpy() for name, tensor in random_weights(spec).items()}
    batch = Count01().sentences(torch.tensor([[3, 4, 1], [0, 0, 0], [2, 2, 5], [6, 1, 0]]), seed=1)
    wanted = []
    for tokens in batch.tokens.numpy():
        t = tokens.tolist().index(4)
        x = W["embed.W_E"][tokens[: t + 1]]
        centered = x - x.mean(1, keepdims=True)
        y = centered / np.sqrt(x.var(1, keepdims=True) + 1e-5) * W["blocks.0.ln1.w"] + W["blocks.0.ln1.b"]
        out = x[t] + W["blocks.0.attn.b_O"]
        for head in range(3):
            W_Q, W_K, W_V, W_O = (W[f"blocks.0.attn.W_{name}"][head] for name in "QKVO")
            weights = np.exp((y @ W_K) @ (y[t] @ W_Q))
            out = out + weights / weights.sum() @ (y @ W_V) @ W_O
        wanted.append(out @ W["unembed.W_U"] + W["unembed.b_U"])
    model = TaskModel(spec, tensors=random_weights(spec))
    at = model.answer_positions(batch.tokens)
    close(model(batch.tokens)[range(4), at].detach(), np.stack(wanted), atol=1e-12)
    assert model.predict(batch.tokens).tolist() == np.stack(wanted).argmax(1).tolist()


@EVERY
def test_any_length_where_no_parameter_limits_it(name: str) -> None:
    model, spec = make(name), SPECS[name]
    if spec.max_length is None:
        tokens = rows(2, 1100)  # beyond the nominal n_ctx
        assert tokens.shape[1] > model.cfg.n_ctx
        np.testing.assert_allclose(model(tokens).detach(), reference(name, tokens)[0], rtol=1e-9, atol=1e-9)
    else:
        with pytest.raises(InterpError, match=f"{spec.max_length}"):
            model(rows(2, spec.max_length + 1))
    shorter = rows(2, LENGTH - 1)
    if name == "histogram linear":
        with pytest.raises(InterpError, match="exactly 7"):
            model(shorter)
    else:
        np.testing.assert_allclose(model(shorter).detach(), reference(name, shorter)[0], rtol=1e-11, atol=1e-12)


@EVERY
def test_dtypes(name: str) -> None:
    tokens = rows()
    wanted = reference(name, tokens)[0]
    for dtype, error in (("float32", 1e-4), (torch.float32, 1e-4), ("bfloat16", None), ("float16", None)):
        logits = make(name, dtype=dtype)(tokens).detach()
        assert logits.dtype == (dtype if isinstance(dtype, torch.dtype) else getattr(torch, dtype))
        assert logits.isfinite().all()
        if error is not None:
            assert np.abs(logits.double().numpy() - wanted).max() < error * np.abs(wanted).max()
    with pytest.raises(InterpError, match="int64"):
        make(name, dtype="int64")


# ---------------------------------------------------------------- parameters


@EVERY
def test_state_dict_holds_the_parameters_and_nothing_else(name: str) -> None:
    model = make(name)
    state = model.state_dict()
    assert set(state) == set(random_weights(SPECS[name])) == {key for key, _ in model.named_parameters()}
    model(rows())
    fresh = TaskModel(SPECS[name].replace(dtype="float64"), seed=1)
    fresh.load_state_dict(state, strict=True)
    assert fresh(rows()).equal(model(rows()))


@EVERY
def test_every_parameter_gets_a_gradient(name: str) -> None:
    model = make(name)
    (model(rows()) ** 2).sum().backward()
    silent = [key for key, parameter in model.named_parameters() if parameter.grad is None or not parameter.grad.any()]
    assert silent == []


@EVERY
def test_gradients_are_finite_differences(name: str) -> None:
    model, tokens, step = make(name), rows(2), 1e-6
    loss = model(tokens).square().mean()
    loss.backward()
    generator = torch.Generator().manual_seed(3)
    for key, parameter in model.named_parameters():
        direction = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        with torch.no_grad():
            parameter += step * direction
            above = model(tokens).square().mean()
            parameter -= 2 * step * direction
            below = model(tokens).square().mean()
            parameter += step * direction
        slope = float((parameter.grad * direction).sum())
        assert abs(float(above - below) / (2 * step) - slope) < 1e-5 * (abs(slope) + loss.item()), key


def test_a_frozen_embedding_is_not_trained() -> None:
    spec = SPECS["count01"].replace(embedding="frozen")
    model = TaskModel(spec)
    model(rows()).sum().backward()
    assert model.embed.W_E.grad is None
    assert "embed.W_E" in model.state_dict()
    assert model.unembed.W_U.grad is not None


@EVERY
def test_one_seed_fixes_all_weights_and_no_global_generator_moves(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = SPECS[name]
    states = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    monkeypatch.setattr(random, "seed", None)  # its state moves all the same: the checks of types draw from it
    one, again, other = (TaskModel(spec, seed=seed) for seed in (5, 5, 6))
    one(rows())
    assert torch.get_rng_state().equal(states[0])
    assert (np.random.get_state()[1] == states[1]).all()  # noqa: NPY002
    pairs = zip(one.named_parameters(), again.parameters(), other.parameters(), strict=True)
    for (key, x), y, z in pairs:
        assert x.equal(y)
        constant = key.rsplit(".", 1)[-1].startswith("b") or key.endswith(".w")  # zeros and ones, whatever the seed
        assert x.equal(z) == constant
    twin = TaskModel(spec, seed=5, dtype="float64")
    assert all(x.double().equal(y) for x, y in zip(one.parameters(), twin.parameters(), strict=True))


@EVERY
def test_deep_copies_are_independent(name: str) -> None:
    model, tokens = make(name), rows()
    before = model(tokens)
    twin = copy.deepcopy(model)
    assert twin(tokens).equal(before)
    assert (twin.spec, twin.task.name) == (model.spec, model.task.name)
    with torch.no_grad():
        twin.embed.W_E += 1
    assert model(tokens).equal(before)
    assert not twin(tokens).equal(before)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda W: W.pop("unembed.W_U"), "missing unembed.W_U"),
        (lambda W: W.update({"unembed.W": torch.zeros(1)}), "unexpected unembed.W"),
        (lambda W: W.update({"unembed.b_U": torch.zeros(7)}), "(7,)"),
        (lambda W: W["embed.W_E"].fill_(torch.nan), "not finite"),
    ],
)
def test_weights_that_do_not_fit(change: Any, word: str) -> None:
    weights = random_weights(SPECS["count01"])
    change(weights)
    with pytest.raises(InterpError) as error:
        TaskModel(SPECS["count01"], tensors=weights)
    assert word in str(error.value)


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
@pytest.mark.parametrize(
    ("switch", "hook"),
    [
        ("set_use_split_qkv_input", "blocks.0.hook_q_input"),
        ("set_use_attn_in", "blocks.0.hook_attn_in"),
        ("set_use_hook_mlp_in", "blocks.0.hook_mlp_in"),
    ],
)
def test_switches_of_hooks_reach_the_blocks_and_change_nothing(name: str, switch: str, hook: str) -> None:
    model, tokens = make(name), rows()
    before = model(tokens)
    if name == "language":
        with pytest.raises(UnsupportedError, match="post-layer-norm"):
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
    tokens = rows()
    logits, cache = model.run_with_cache(tokens)
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
    constant = model.b_U[0] if spec.final_norm == "none" else model.b_U[0] + model.ln_final.b @ model.W_U[:, 0]
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
    with quiet_construction():
        stock = HookedTransformer(config(**fields, act_fn="relu", normalization_type="LN", dtype=torch.float64))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in stock.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
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


def test_a_final_norm_is_in_the_spec_s_identity_only_where_there_is_one() -> None:
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
        assert model.W_U.equal(W["unembed.W_U"])
        assert model.b_U.shape == W["unembed.W_U"].shape[1:]
    else:
        for read in (lambda: model.W_U, lambda: model.b_U):
            with pytest.raises(UnsupportedError, match="ReLU"):
                read()
    h, d = spec.layers[0].n_heads, spec.d_model
    eye = torch.eye(d, dtype=torch.float64).expand(h, -1, -1)
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


def test_generation_refuses_padding_that_stock_code_would_attend_to() -> None:
    model = TaskModel(SPECS["count01"].replace(direction="bidirectional"))
    with pytest.raises(UnsupportedError, match="padding"):
        model.generate(torch.tensor([[0, 1, 7]]), max_new_tokens=1)


# ---------------------------------------------------------------- inputs


@pytest.mark.parametrize(
    ("tokens", "word"),
    [
        (torch.tensor([[0, 8]]), "8"),
        (torch.tensor([[-1, 3]]), "-1"),
        (torch.tensor([[0.0, 1.0]]), "float32"),
        (torch.zeros(2, 3, 4, dtype=torch.long), "(2, 3, 4)"),
        ("[BOS]01=", "str"),
        ([0, 1], "list"),
    ],
)
def test_bad_tokens(tokens: Any, word: str) -> None:
    with pytest.raises(InterpError) as error:
        make("count01")(tokens)
    assert word in str(error.value)


def test_a_single_row_is_a_batch_of_one() -> None:
    model, row = make("count01"), rows(1)[0]
    assert model(row).equal(model(row[None]))


def test_answer_positions() -> None:
    task = Count01()
    batch = task.sentences(torch.tensor([[1, 2, 0], [0, 0, 0]]))
    assert find_positions(task, batch.tokens, "=").tolist() == [4, 1]
    assert find_positions(task, batch.tokens, "last").tolist() == [5, 2]  # the answer: [EOS] pads
    with pytest.raises(InterpError, match="row 1"):
        find_positions(task, torch.tensor([[0, 4], [0, 1]]), "=")
    with pytest.raises(UnsupportedError, match="all positions"):
        make("count01").answer_positions(batch.tokens)


def test_it_is_a_hooked_transformer_with_a_task_and_a_spec() -> None:
    model = make("count01", seed=4)
    assert isinstance(model, HookedTransformer)
    assert isinstance(model.task, Count01)
    assert (model.spec.d_model, model.seed, model.summary, model.snapshots) == (6, 4, {}, {})


def test_a_spec_with_problems_is_refused_with_all_of_them() -> None:
    with pytest.raises(SpecError) as error:
        TaskModel(SPECS["count01"].replace(readout_at="?", positions="spiral", direction="bidirectional"))
    assert len(error.value.problems) == 2


def test_no_rows_have_no_answers() -> None:
    for name in ("languages/one", "count01/minimal"):
        model = interp.build(name)
        batch = model.task.sample(2, model.task.splits[-1], seed=0)
        assert len(model.predict(batch.tokens[:0])) == 0
