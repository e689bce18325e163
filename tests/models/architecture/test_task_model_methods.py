"""Every public method of a task model and of its cache, on shipped models: it works, or refuses in one sentence."""

import inspect
from typing import Any

import pytest
import torch

import interp

FEW = ("algorithmic/induction", "algorithmic/addition", "count01/paper", "count01/minimal", "languages/first",
       "histogram/lin-exact", "memorization/kgram", "languages/parity")  # fmt: skip
ELSEWHERE = {"mps", "cuda", "cpu", "to"}
"""Methods of torch.nn.Module by nature: they need the device."""


def arguments(function: Any, cache: Any, tokens: Any) -> dict[str, Any] | None:
    """What a method is called with, or None if a required argument is not known."""
    stack = cache["resid_post", -1][None]
    known = {"layer": 0, "tokens": tokens, "residual_stack": stack, "mode": "Q", "input": tokens, "string": "=",
             "int_token": 0, "logits": None, "use_attn_result": False, "use_attn_in": False,
             "use_split_qkv_input": False, "use_hook_mlp_in": False, "device": "cpu"}  # fmt: skip
    given: dict[str, Any] = {}
    if function.__name__ == "logit_attrs":
        return {"residual_stack": stack[:, :, -1], "tokens": torch.zeros(2, dtype=torch.long), "pos_slice": -1}
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        required = parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
        if parameter.kind is parameter.VAR_POSITIONAL or not required:
            continue
        if known.get(parameter.name) is None:
            return None
        given.setdefault(parameter.name, known[parameter.name])
    return given


def is_there(name: str) -> bool:
    """Whether a model's weights are shipped."""
    try:
        interp.load(name)
    except interp.InterpError as error:
        return "are not shipped" not in str(error) and "no default" not in str(error)
    return True


@torch.enable_grad()  # restores the caller's setting, which a method of the cache switches off for good
def walk(name: str) -> tuple[list[str], int]:
    """The raw errors of a model's methods and properties, and how many were called."""
    model = interp.load(name)
    try:
        tokens = model.task.sample(2, model.task.splits[-1], seed=0).tokens
    except interp.InterpError:
        return [], 0
    _, cache = model.run_with_cache(tokens)
    found, called = sums(model, cache), 0  # before methods that change weights
    for owner in (cache, model):
        for member, function in inspect.getmembers(type(owner)):
            wrapped = member.startswith("_") or member in ELSEWHERE or hasattr(torch.nn.Module, member)
            if wrapped or not (inspect.isfunction(function) or isinstance(function, property)):
                continue
            given = {} if isinstance(function, property) else arguments(function, cache, tokens)
            if member == "to_tokens":
                given = {"input": model.task.format(tokens[0])}
            if given is None or member in ("run_with_cache", "run_with_hooks", "stack_neuron_results"):
                continue
            called += 1
            try:
                getattr(owner, member) if isinstance(function, property) else getattr(owner, member)(**given)
            except interp.InterpError as error:
                found += [str(error)] * ("\n" in str(error))
            except Exception as error:
                found.append(f"{name}: {member}: {type(error).__name__}: {str(error)[:120]}")
    return found, called


def sums(model: Any, cache: Any) -> list[str]:
    """Where a decomposition does not add up to the stream that it decomposes, or biases to their sum."""
    spec, found, n = model.spec, [], len(model.spec.layers)
    bias = sum((block.attn.b_O for block in model.blocks), torch.zeros(spec.d_model, dtype=model.W_E.dtype))
    bias = bias + sum(block.mlp.b_out for block, layer in zip(model.blocks, spec.layers) if layer.mlp is not None)
    if not (model.accumulated_bias(n).dtype == model.W_E.dtype and model.accumulated_bias(n).allclose(bias)):
        found.append("accumulated_bias is not the sum of the biases")
    if not spec.additive_residual:
        return found
    last = cache["resid_post", n - 1]
    whole = all(layer.mlp is not None for layer in spec.layers)
    stacks = {
        "decompose_resid": cache.decompose_resid(),
        "get_full_resid_decomposition": cache.get_full_resid_decomposition(expand_neurons=whole),
    }
    for method, stack in stacks.items():
        if (stack.sum(0) - last).abs().max() > 1e-4 * last.abs().max().clamp_min(1):
            found.append(f"{method} does not add up to the stream")
    return found


@pytest.mark.parametrize("name", FEW)
def test_every_public_method_works_or_refuses(name: str) -> None:
    raw, called = walk(name)
    assert not raw, "\n".join(raw)
    assert called > 30


@pytest.mark.slow
def test_every_public_method_on_every_shipped_model() -> None:
    listed = interp.list_models()
    found = [walk(name) for name in listed["name"] if is_there(name)]
    assert [error for raw, _ in found for error in raw] == []
    assert len(found) > 30
