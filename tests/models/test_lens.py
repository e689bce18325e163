"""What stands in for HookedTransformer on TransformerLens 4, held against the library's own on 3."""

import os
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor

import interp.models.lens.v4 as v4
from interp.errors import InterpError, UnsupportedError
from interp.models.lens.forward import softmax
from interp.models.lens.v4.model import BUILT

needs_3 = pytest.mark.skipif(
    find_spec("transformer_lens.HookedTransformer") is None, reason="TransformerLens 4 has no HookedTransformer"
)
BASE = {"n_layers": 2, "d_model": 6, "d_head": 3, "n_heads": 2, "n_ctx": 12, "d_vocab": 8, "dtype": torch.float64}
CONFIGS: dict[str, dict[str, Any]] = {
    "attention only": {"attn_only": True, "normalization_type": None},
    "layer norms": {"attn_only": True, "normalization_type": "LN", "d_vocab_out": 3},
    "folded": {"act_fn": "gelu_new", "d_mlp": 5, "normalization_type": "LNPre", "eps": 1e-3},
    "encoder": {"act_fn": "gelu", "normalization_type": "LN", "attention_dir": "bidirectional", "d_mlp": 7},
    "root mean square": {"attn_only": True, "normalization_type": "RMS", "eps": 0.1},
    "folded square": {"act_fn": "silu", "d_mlp": 5, "normalization_type": "RMSPre"},
    "rotary": {
        "act_fn": "silu", "d_mlp": 5, "gated_mlp": True, "normalization_type": "RMS", "d_head": 6,
        "positional_embedding_type": "rotary", "rotary_dim": 4, "rotary_base": 30, "use_qk_norm": True,
    },
    "grouped": {
        "act_fn": "gelu", "d_mlp": 5, "normalization_type": "RMSPre", "n_heads": 4, "n_key_value_heads": 2,
        "positional_embedding_type": "rotary", "rotary_dim": 2, "rotary_adjacent_pairs": True,
    },
    "grouped norms": {"attn_only": True, "n_heads": 4, "n_key_value_heads": 1, "use_qk_norm": True, "eps": 0.01},
    "alibi": {"act_fn": "relu", "d_mlp": 5, "gated_mlp": True, "positional_embedding_type": "alibi"},
    "unscaled": {"act_fn": "relu", "d_mlp": 5, "normalization_type": None, "use_attn_scale": False},
}  # fmt: skip
EVERY = pytest.mark.parametrize("name", CONFIGS)
BUFFERS = (".mask", ".IGNORE", ".rotary_sin", ".rotary_cos")


def tokens(rows: int = 3, length: int = 9) -> Tensor:
    return torch.randint(0, 8, (rows, length), generator=torch.Generator().manual_seed(0))


def random_weights(model: Any) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return {name: value for name, value in model.state_dict().items() if not name.endswith(BUFFERS)}


def pair(name: str) -> tuple[Any, Any]:
    """The library's model and ours, of one config and one state dict."""
    from interp.models.lens import v3

    fields = BASE | CONFIGS[name]
    with v3.quiet_construction():
        stock = v3.HookedTransformer(v3.config(**fields))
    ours = v4.HookedTransformer(v4.config(**fields))
    ours.load_state_dict(random_weights(stock), strict=True)
    return stock, ours


def close(one: Tensor, other: Tensor, name: str = "") -> None:
    torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11, msg=lambda text: f"{name}: {text}")


@needs_3
@EVERY
def test_logits_activations_and_gradients_are_the_library_s(name: str) -> None:
    stock, ours = pair(name)
    for model in (stock, ours):
        model.set_use_attn_result(True)
        model.set_use_split_qkv_input(True)
    logits, theirs = stock.run_with_cache(tokens())
    mine, cache = ours.run_with_cache(tokens())
    close(mine, logits)
    assert set(cache) == set(theirs)
    for key in theirs:
        close(cache[key], theirs[key], key)
    for model in (stock, ours):
        (model(tokens()) ** 2).sum().backward()
    gradients = dict(ours.named_parameters())
    for key, parameter in stock.named_parameters():
        if parameter.grad is None:  # the table of positions that ALiBi keeps and does not read
            assert gradients[key].grad is None
            assert key == "pos_embed.W_pos"
            continue
        error = (gradients[key].grad - parameter.grad).abs().max()
        assert error < 1e-10 * max(1.0, float((logits.detach() ** 2).sum())), key  # those of b_K are rounding alone


@needs_3
@EVERY
def test_what_is_read_off_a_cache_is_the_library_s(name: str) -> None:
    stock, ours = pair(name)
    (_, theirs), (_, cache) = stock.run_with_cache(tokens()), ours.run_with_cache(tokens())
    for call in (
        lambda cache: cache.decompose_resid(),
        lambda cache: cache.decompose_resid(layer=1, mlp_input=not stock.cfg.attn_only, apply_ln=True),
        lambda cache: cache.stack_head_results(apply_ln=True),
        lambda cache: cache.accumulated_resid(apply_ln=True),
        lambda cache: cache.logit_attrs(cache.decompose_resid(), 2),
        lambda cache: cache.logit_attrs(cache.decompose_resid(), tokens() % 3, tokens() % 2),
    ):
        close(call(cache), call(theirs))
    whole, wanted = (one.get_full_resid_decomposition(expand_neurons=False) for one in (cache, theirs))
    torch.testing.assert_close(whole, wanted.double(), rtol=1e-6, atol=1e-6)  # the library sums biases in float32


@needs_3
@EVERY
def test_weights_by_name_are_the_library_s(name: str) -> None:
    stock, ours = pair(name)
    rotary = stock.cfg.positional_embedding_type == "rotary"
    names = [
        "W_E", *([] if rotary else ["W_pos", "W_E_pos"]), "W_U", "b_U",
        *(f"{kind}_{at}" for kind in "Wb" for at in "QKVO"),
    ]  # fmt: skip
    for key in (
        names if stock.cfg.attn_only else [*names, "W_in", "b_in", "W_out", "b_out"] + ["W_gate"] * stock.cfg.gated_mlp
    ):
        close(getattr(ours, key), getattr(stock, key), key)
    for mode in "QKV":
        close(ours.all_composition_scores(mode), stock.all_composition_scores(mode))
    close(ours.OV.AB, stock.OV.AB)
    close(ours.QK.AB, stock.QK.AB)
    assert ours.all_head_labels() == stock.all_head_labels()
    assert ours.n_params_total == stock.n_params_total
    if not stock.cfg.attn_only:
        wanted = stock.accumulated_bias(1, mlp_input=True).double()  # which the library sums in float32
        torch.testing.assert_close(ours.accumulated_bias(1, mlp_input=True), wanted, rtol=1e-6, atol=1e-6)


@needs_3
@EVERY
@pytest.mark.thinned(2)
def test_runs_of_other_kinds_are_the_library_s(name: str) -> None:
    stock, ours = pair(name)
    halved = [("blocks.1.attn.hook_attn_scores", lambda value, hook: value * 0.5)]
    close(ours.run_with_hooks(tokens(), fwd_hooks=halved), stock.run_with_hooks(tokens(), fwd_hooks=halved))
    resid = stock(tokens(), stop_at_layer=1)
    close(ours(tokens(), stop_at_layer=1), resid)
    close(ours(resid, start_at_layer=1), stock(resid, start_at_layer=1))
    if stock.cfg.d_vocab_out == stock.cfg.d_vocab:
        close(ours(tokens(), return_type="loss"), stock(tokens(), return_type="loss"))
        chosen = {"max_new_tokens": 3, "do_sample": False, "stop_at_eos": False, "verbose": False}
        start = tokens(2, 4)
        plain = {"use_past_kv_cache": False}  # with keys the library asks for a tokenizer
        assert ours.generate(start, **chosen, **plain).equal(stock.generate(start, **chosen, **plain))
        if stock.cfg.attention_dir == "causal":
            assert ours.generate(start, **chosen).equal(ours.generate(start, **chosen, **plain))
    if stock.cfg.attention_dir == "causal":  # stock bidirectional attention ignores the mask
        mask = torch.ones_like(tokens())
        mask[0, :3], mask[1, 6:] = 0, 0
        close(ours(tokens(), attention_mask=mask), stock(tokens(), attention_mask=mask))


def test_a_mask_hides_tokens_from_a_bidirectional_model() -> None:
    model = v4.HookedTransformer(v4.config(**(BASE | CONFIGS["encoder"])))
    random_weights(model)
    mask = torch.ones_like(tokens())
    mask[:, 6:] = 0
    changed = tokens().index_fill(1, torch.tensor([6, 7, 8]), 5)
    close(model(changed, attention_mask=mask)[:, :6], model(tokens(), attention_mask=mask)[:, :6])
    close(model(tokens(), attention_mask=mask)[:, :6], model(tokens()[:, :6]))


def test_switched_off_hooks_are_refused_and_devices_move() -> None:
    model = v4.HookedTransformer(v4.config(**(BASE | CONFIGS["folded"])))
    with pytest.raises(AssertionError, match="use_attn_result"):
        model.add_hook("blocks.0.attn.hook_result", lambda value, hook: None)
    assert model.to(torch.float32).W_E.dtype == model.cfg.dtype == torch.float32
    assert model.cpu().cfg.device == "cpu"
    for refused in (model.process_weights_, model.load_and_process_state_dict, lambda: model.to_tokens("a")):
        with pytest.raises(UnsupportedError):
            refused()
    with pytest.raises(InterpError, match="eos_token_id"):
        model.generate(tokens())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("normalization_type", "QK"), ("positional_embedding_type", "shortformer"), ("rotary_scaling_factor", 2.0),
        ("act_fn", "solu_ln"), ("attn_scores_soft_cap", 3.0), ("output_logits_soft_cap", 3.0),
        *((name, True) for name, (built, *_) in BUILT.items() if built is None or isinstance(built, bool)),
    ],
)  # fmt: skip
def test_what_is_not_built_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(UnsupportedError) as error:
        v4.config(**{**BASE, "act_fn": "relu", field: value})
    assert str(value) in str(error.value)


@pytest.mark.slow
def test_nothing_is_announced_in_a_fresh_python() -> None:
    code = "import interp; interp.build('count01/minimal')"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    run = subprocess.run([sys.executable, "-W", "always", "-c", code], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "transformer" not in run.stderr.lower(), run.stderr
    assert run.stdout == ""


@pytest.mark.parametrize("keys", [1, 3, 15, 16])
def test_softmax_over_few_keys(keys: int) -> None:
    scores = torch.randn(5, 2, 4, keys, generator=torch.Generator().manual_seed(0)).double()
    scores[0, :, :, 1:] = -torch.inf
    torch.testing.assert_close(softmax(scores), scores.softmax(-1), rtol=1e-14, atol=0.0)
