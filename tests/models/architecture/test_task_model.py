"""Task models of all four families against a forward pass in plain numpy; their parameters and inputs."""

import copy
import random
from typing import Any

import numpy as np
import pytest
import torch
from closeness import close
from task_models import EVERY, LENGTH, SPECS, make, random_weights, reference, rows

import interp
from interp.errors import InterpError, SpecError, UnsupportedError
from interp.families.count01 import Count01
from interp.models.architecture.answers import find_positions
from interp.models.lens import HookedTransformer

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
    model = interp.TaskModel(spec, tensors=random_weights(spec))
    at = model.answer_positions(batch.tokens)
    close(model(batch.tokens)[range(4), at].detach(), np.stack(wanted), atol=1e-12)
    assert model.predict(batch.tokens).tolist() == np.stack(wanted).argmax(1).tolist()


@EVERY
@pytest.mark.thinned(4)
def test_any_length_where_no_parameter_limits_it(name: str) -> None:
    model, spec = make(name), SPECS[name]
    if spec.max_length is None:
        tokens = rows(1, 1100)  # beyond the nominal n_ctx
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
@pytest.mark.thinned(2)
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
    fresh = interp.TaskModel(SPECS[name].replace(dtype="float64"), seed=1)
    fresh.load_state_dict(state, strict=True)
    assert fresh(rows()).equal(model(rows()))


@EVERY
def test_every_parameter_gets_a_gradient(name: str) -> None:
    model = make(name)
    (model(rows()) ** 2).sum().backward()
    silent = [key for key, parameter in model.named_parameters() if parameter.grad is None or not parameter.grad.any()]
    assert silent == []


@EVERY
@pytest.mark.thinned(3)
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
    model = interp.TaskModel(SPECS["count01"].replace(embedding="frozen"))
    model(rows()).sum().backward()
    assert model.embed.W_E.grad is None
    assert "embed.W_E" in model.state_dict()
    assert model.unembed.W_U.grad is not None


@EVERY
@pytest.mark.thinned(3)
def test_a_seed_fixes_all_weights_and_no_global_generator(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = SPECS[name]
    states = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    monkeypatch.setattr(random, "seed", None)  # its state moves all the same: the checks of types draw from it
    one, again, other = (interp.TaskModel(spec, seed=seed) for seed in (5, 5, 6))
    one(rows())
    assert torch.get_rng_state().equal(states[0])
    assert (np.random.get_state()[1] == states[1]).all()  # noqa: NPY002
    for (key, x), y, z in zip(one.named_parameters(), again.parameters(), other.parameters(), strict=True):
        assert x.equal(y)
        constant = key.rsplit(".", 1)[-1].startswith(("b", "_b")) or key.endswith(".w")  # 0 and 1, whatever the seed
        assert x.equal(z) == constant
    twin = interp.TaskModel(spec, seed=5, dtype="float64")
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


@pytest.mark.parametrize(("change", "word"), [
    (lambda W: W.pop("unembed.W_U"), "missing unembed.W_U"),
    (lambda W: W.update({"unembed.W": torch.zeros(1)}), "unexpected unembed.W"),
    (lambda W: W.update({"unembed.b_U": torch.zeros(7)}), "(7,)"),
    (lambda W: W["embed.W_E"].fill_(torch.nan), "not finite"),
])  # fmt: skip
def test_weights_that_do_not_fit(change: Any, word: str) -> None:
    weights = random_weights(SPECS["count01"])
    change(weights)
    with pytest.raises(InterpError) as error:
        interp.TaskModel(SPECS["count01"], tensors=weights)
    assert word in str(error.value)


# ---------------------------------------------------------------- inputs


@pytest.mark.parametrize(("tokens", "word"), [
    (torch.tensor([[0, 8]]), "8"),
    (torch.tensor([[-1, 3]]), "-1"),
    (torch.tensor([[0.0, 1.0]]), "float32"),
    (torch.zeros(2, 3, 4, dtype=torch.long), "(2, 3, 4)"),
    ("[BOS]01=", "str"),
    ([0, 1], "list"),
])  # fmt: skip
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


@EVERY
def test_the_config_says_how_scores_are_scaled(name: str) -> None:
    """In blocks, attn_scale is what scores are divided by, which the reference above confirms."""
    model = make(name)
    assert model.cfg.attn_scale == model.blocks[0].attn.attn_scale
    assert model.cfg.use_attn_scale == (model.cfg.attn_scale != 1)


def test_a_spec_with_problems_is_refused_with_all_of_them() -> None:
    with pytest.raises(SpecError) as error:
        interp.TaskModel(SPECS["count01"].replace(readout_at="?", positions="spiral", direction="bidirectional"))
    assert len(error.value.problems) == 2


def test_no_rows_have_no_answers() -> None:
    for name in ("languages/one", "count01/minimal"):
        model = interp.build(name)
        batch = model.task.sample(2, model.task.splits[-1], seed=0)
        assert len(model.predict(batch.tokens[:0])) == 0
