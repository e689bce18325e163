"""Every field of a TransformerLens config that changes outputs: what a state dict shows, what is asked for or assumed.

Also a fuzz of random configs by five ways in. The originals are TransformerLens 3's; lens_outputs.json has their
outputs for TransformerLens 4, which has no HookedTransformer.
"""

import collections
import json
import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from closeness import close
from lens_configs import First, one_of_each, outcome, random_weights, silently_wrong
from safetensors import safe_open
from torch import Tensor

import interp
from interp.errors import CheckpointError, InterpError
from interp.models.architecture import settings
from interp.models.lens import HookedTransformer, config, config_fields, quiet_construction
from interp.models.readers.models import inspect

LENS3 = find_spec("transformer_lens.HookedTransformer") is not None
pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
STORED = Path(__file__).with_name("lens_outputs.json")

BASE = {"n_layers": 2, "d_model": 8, "n_heads": 2, "d_head": 4, "d_mlp": 12, "n_ctx": 8, "d_vocab": 6, "act_fn": "relu"}
ROTARY = {"positional_embedding_type": "rotary", "rotary_dim": 4}
LOCAL = {"use_local_attn": True, "window_size": 2, "attn_types": ["local", "global"]}
NTK = {**ROTARY, "use_NTK_by_parts_rope": True, "NTK_original_ctx_len": 8}
YARN = {**ROTARY, "d_head": 8, "rotary_dim": 8, "rotary_base": 10, "use_yarn_rope": True, "yarn_factor": 4.0,
        "yarn_original_max_position_embeddings": 64}  # fmt: skip
EXPERTS = {"num_experts": 3, "experts_per_token": 2, "gated_mlp": True, "act_fn": "silu"}
LONG = {"use_logn_attn": True, "train_seq_length": 4}

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "attn_only": ({}, {"attn_only": True, "d_mlp": None}), "num_experts": (EXPERTS, {"num_experts": 2}),
    "experts_per_token": (EXPERTS, {"experts_per_token": 1}), "norm_topk_prob": (EXPERTS, {"norm_topk_prob": True}),
    "gated_mlp": ({}, {"gated_mlp": True}), "act_fn": ({}, {"act_fn": "gelu_new"}),
    "n_key_value_heads": ({}, {"n_key_value_heads": 1}), "use_qk_norm": ({}, {"use_qk_norm": True}),
    "original_architecture": ({}, {"original_architecture": "Olmo2ForCausalLM"}),
    "normalization_type": ({"normalization_type": "LNPre"}, {"normalization_type": None}),
    "eps": ({}, {"eps": 0.1}),
    "final_rms": ({"normalization_type": "LNPre"}, {"final_rms": True}),
    "use_normalization_before_and_after": ({"normalization_type": "RMS"},
                                           {"use_normalization_before_and_after": True}),
    "post_embedding_ln": ({}, {"post_embedding_ln": True}),
    "attention_dir": ({}, {"attention_dir": "bidirectional"}),
    "positional_embedding_type": ({}, {"positional_embedding_type": "shortformer"}),
    "rotary_dim": (ROTARY, {"rotary_dim": 2}), "rotary_adjacent_pairs": (ROTARY, {"rotary_adjacent_pairs": True}),
    "rotary_base": (ROTARY, {"rotary_base": 50}), "rotary_scaling_factor": (ROTARY, {"rotary_scaling_factor": 3.0}),
    "use_NTK_by_parts_rope": (ROTARY, {"use_NTK_by_parts_rope": True, "NTK_original_ctx_len": 8}),
    "NTK_by_parts_low_freq_factor": (NTK, {"NTK_by_parts_low_freq_factor": 3.0}),
    "NTK_by_parts_high_freq_factor": (NTK, {"NTK_by_parts_high_freq_factor": 1.1}),
    "NTK_by_parts_factor": (NTK, {"NTK_by_parts_factor": 2.0}),
    "NTK_original_ctx_len": (NTK, {"NTK_original_ctx_len": 4000}),
    "use_yarn_rope": (ROTARY, {"use_yarn_rope": True, "yarn_factor": 4.0, "yarn_original_max_position_embeddings": 4}),
    "yarn_factor": (YARN, {"yarn_factor": 9.0}), "yarn_attention_factor": (YARN, {"yarn_attention_factor": 2.0}),
    "yarn_beta_fast": (YARN, {"yarn_beta_fast": 1.5}), "yarn_beta_slow": (YARN, {"yarn_beta_slow": 2.5}),
    "yarn_original_max_position_embeddings": (YARN, {"yarn_original_max_position_embeddings": 4000}),
    "yarn_truncate": (YARN, {"yarn_truncate": False}),
    "yarn_global_attn_only": (YARN | LOCAL, {"yarn_global_attn_only": True}),
    "use_dynamic_ntk_rope": (ROTARY | {"train_seq_length": 2, "rotary_base": 10}, {"use_dynamic_ntk_rope": True}),
    "use_attn_scale": ({}, {"use_attn_scale": False}),
    "attn_scale": ({}, {"attn_scale": 5.0}),
    "scale_attn_by_inverse_layer_idx": ({}, {"scale_attn_by_inverse_layer_idx": True}),
    "attn_scores_soft_cap": ({}, {"attn_scores_soft_cap": 0.5}),
    "output_logits_soft_cap": ({}, {"output_logits_soft_cap": 1.0}),
    "use_attention_sinks": ({}, {"use_attention_sinks": True}),
    "use_logn_attn": ({"train_seq_length": 4}, {"use_logn_attn": True}),
    "train_seq_length": (LONG, {"train_seq_length": 2}), "clip_qkv": ({}, {"clip_qkv": 0.2}),
    "use_local_attn": ({}, LOCAL), "window_size": (LOCAL, {"window_size": 3}),
    "attn_types": (LOCAL, {"attn_types": ["global", "local"]}),
    "rotary_base_local": (LOCAL | ROTARY, {"rotary_base_local": 7}),
    "parallel_attn_mlp": ({}, {"parallel_attn_mlp": True}),
}  # fmt: skip
"""For each field, a model and a change of that field that changes its outputs."""
ELSEWHERE = {"load_in_4bit": "needs bitsandbytes and a GPU; tensors of bytes are refused by name"}


def original(name: str) -> tuple[dict[str, Any], HookedTransformer, Tensor]:
    """The changed model of a case, and inputs."""
    base, change = CASES[name]
    with quiet_construction():
        model = random_weights(HookedTransformer(config(**{**BASE, **base, **change})))
    return {**base, **change}, model, torch.randint(6, (2, 8), generator=torch.Generator().manual_seed(3))


def test_the_table_has_every_field_of_a_config() -> None:
    """A field of a new TransformerLens is neither in the table nor known to be passive, and fails here."""
    listed = {*settings.BY_NAME, *settings.SIZES, *settings.PASSIVE, "dtype"}
    unused = {"rmsnorm_uses_offset", "scale_embedding", "per_layer_head_dim", "per_layer_num_key_value_heads",
              "qk_norm_after_rope", "rotary_interleaved_cos_sin",
              "is_audio_model", "is_visual_model", "is_stateful", "is_multimodal", "vision_hidden_size",
              "vision_num_layers", "vision_num_heads", "mm_tokens_per_image"}  # fmt: skip
    assert set(config_fields()) <= listed | (set() if LENS3 else unused)
    assert {setting.name for setting in settings.SETTINGS} == set(CASES) | set(ELSEWHERE)


@pytest.mark.skipif(not LENS3, reason="the originals are TransformerLens 3's")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.thinned(10)
def test_a_field_is_shown_asked_for_or_assumed_by_name(name: str) -> None:
    _, model, rows = original(name)
    with quiet_construction():
        other = HookedTransformer(config(**{**BASE, **CASES[name][0]})).eval()
    right = model(rows).detach()
    shared = {n: t for n, t in model.state_dict().items() if not n.endswith(("rotary_sin", "rotary_cos"))}
    if {n: t.shape for n, t in other.named_parameters()} == {n: t.shape for n, t in model.named_parameters()}:
        other.load_state_dict(shared, strict=False)
        assert (other(rows) - right).abs().max() > 1e-5, "this case shows no effect"
    state = {n: tensor.clone() for n, tensor in model.state_dict().items()}
    kind, said = outcome(state, None, rows, right)
    assert kind == "refused", "the direction of attention is always asked for"
    assert f"'{name}'" in said or name != "attention_dir"
    asked = eval(said.split("such as config=")[1])
    whole = model.cfg.to_dict()
    kind, said = outcome(state, {key: whole[key] for key in asked}, rows, right)
    named = name if name not in ("window_size", "attn_types", "train_seq_length") else "use_lo"  # their switches
    assert kind in ("right", "refused") or f"{named}" in said, said
    if kind == "refused":
        assert "whole TransformerLens config" in said
    for given in (whole, model.cfg):
        assert outcome(state, given, rows, right) == ("right", "")
    assert outcome(model, None, rows, right) == ("right", "")


@pytest.mark.skipif(not LENS3, reason="the originals are TransformerLens 3's")
def test_passive_fields_change_no_output() -> None:
    values: dict[str, Any] = {
        "seed": 3, "init_mode": "xavier_uniform", "init_weights": False, "initializer_range": 9.0, "n_params": 3,
        "model_name": "other", "use_attn_result": True, "use_split_qkv_input": True, "use_hook_mlp_in": True,
        "use_hook_tokens": True, "default_prepend_bos": False, "tokenizer_prepends_bos": True,
        "trust_remote_code": True, "from_checkpoint": True, "checkpoint_index": 3, "checkpoint_label_type": "step",
        "checkpoint_value": 3, "layer_norm_folding": True, "uses_rms_norm": True, "tie_word_embeddings": True,
        "decoder_start_token_id": 3, "ungroup_grouped_query_attention": True, "quantization_method": "x",
        "relative_attention_max_distance": 3, "relative_attention_num_buckets": 3,
    }  # fmt: skip
    with quiet_construction():
        model = random_weights(HookedTransformer(config(**BASE)))
        rows = torch.randint(6, (2, 8), generator=torch.Generator().manual_seed(3))
        for name, value in values.items():
            fields = {**BASE, name: value} if name not in ("seed", "init_weights") else BASE
            changed = HookedTransformer(config(**fields)).eval()
            changed.load_state_dict(model.state_dict())
            torch.testing.assert_close(changed(rows), model(rows), msg=name)
    left = {"device", "n_devices", "use_attn_in", "tokenizer_name"}  # need a GPU, a network, or another switch
    assert set(values) | left >= settings.PASSIVE & set(config_fields())


def stored() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(STORED.read_text("utf-8"))
    return found


def state_of(case: dict[str, Any]) -> dict[str, Tensor]:
    """The weights of a stored case, drawn again by name and shape."""
    generator = torch.Generator().manual_seed(1)
    return {name: torch.randn(shape, generator=generator) * 0.4 for name, shape in case["shapes"].items()}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.thinned(4)
def test_either_version_loads_what_3_runs_or_refuses(name: str) -> None:
    """On TransformerLens 3, every model loads; on 4, a model that it cannot run is refused with the field's name."""
    case = stored()[name]
    fields = settings.complete(state_of(case), case["fields"], ask=()).fields
    rows = torch.randint(6, (2, 8), generator=torch.Generator().manual_seed(3))
    kind, said = outcome(state_of(case), fields, rows, torch.tensor(case["logits"]))
    assert kind == "right" or (kind == "refused" and not LENS3), said
    if kind == "refused":
        odd = [field for field in case["fields"] if field in settings.BY_NAME and settings.set_to(field, fields)]
        assert any(field in said for field in odd), said


def test_the_table_of_angles_shows_rotary_positions() -> None:
    """case 1: the state dict of a rotary model holds its angles, and neither loses them nor contradicts them."""
    n, base = torch.arange(8.0)[:, None], 50.0
    shapes = stored()["rotary_base"]["shapes"]
    state = state_of({"shapes": shapes})
    for adjacent in (False, True):
        rates = base ** (-torch.tensor([0.0, 0.0, 2.0, 2.0] if adjacent else [0.0, 2.0, 0.0, 2.0]) / 4)
        for index in range(2):
            state[f"blocks.{index}.attn.rotary_sin"] = (n * rates).sin()
            state[f"blocks.{index}.attn.rotary_cos"] = (n * rates).cos()
        asked = {"attention_dir": "causal", "act_fn": "relu"}
        found = settings.complete(state, asked)
        expected = {
            "positional_embedding_type": "rotary", "rotary_dim": 4, "rotary_base": 50,
            "rotary_adjacent_pairs": adjacent, "rotary_scaling_factor": 1, "n_ctx": 8,
        }  # fmt: skip
        assert {name: found.fields[name] for name in expected} == expected
        assert not any("rotary" in name for name in found.assumed)
        with pytest.warns(UserWarning, match="use_local_attn = False"):
            model: Any = interp.load(state, task=First(), config=asked)
        assert (model.spec.positions, model.spec.rotary_base) == ("rotary", 50)
        assert model.spec.rotary_pairs == ("adjacent" if adjacent else "halves")
        with pytest.raises(CheckpointError, match="has tables of rotary angles"):
            interp.load(state, task=First(), config=asked | {"positional_embedding_type": "standard"})
        with pytest.raises(CheckpointError, match="rotary_base"):
            interp.load(state, task=First(), config=asked | {"rotary_base": 49})
    bare = {name: tensor for name, tensor in state.items() if "rotary" not in name}
    with pytest.raises(InterpError, match="'positional_embedding_type': 'rotary'"):
        interp.load(bare, task=First(), config=asked)


def test_what_is_assumed_is_said_in_full_everywhere(tmp_path: Path) -> None:
    """In the warning, in the repr, in the report, and after saving: all fields, not a few of them."""
    state = state_of(stored()["parallel_attn_mlp"])
    asked = {"attention_dir": "causal", "act_fn": "relu"}
    with pytest.warns(UserWarning, match="are assumed") as caught:
        model: Any = interp.load(state, task=First(), config=asked)
    said = str(caught[0].message)
    for name in ("positional_embedding_type = 'standard'", "eps = 1e-05", "parallel_attn_mlp = False",
                 "attn_scale = sqrt(d_head)", "attn_scores_soft_cap = -1.0", "output_logits_soft_cap = -1.0",
                 "use_local_attn = False", "scale_attn_by_inverse_layer_idx = False", "clip_qkv = None",
                 "use_logn_attn = False"):  # fmt: skip
        assert name in said
        assert name in repr(model)
    assert "rotary" not in said
    with safe_open(interp.save(model, tmp_path / "m.safetensors"), "pt") as file:
        assert json.loads(file.metadata()["interp"])["summary"]["notes"] == list(model.notes)
    report = interp.analyze(model, sections=["accuracy"])
    assert "parallel_attn_mlp = False" in report.metadata["loaded with"]


def test_a_whole_config_of_an_older_version_leaves_nothing_open() -> None:
    """It does not name the fields of later versions, and its model cannot have used them."""
    state = state_of(stored()["parallel_attn_mlp"])
    old = {
        setting.name: setting.default for setting in settings.SETTINGS if setting.name in settings.IN_EVERY_CONFIG
    } | {"n_ctx": 8}
    assert settings.complete(state, old).assumed == {}
    assert settings.complete(state, old).fields["clip_qkv"] is None
    del old["parallel_attn_mlp"]
    assert {"parallel_attn_mlp", "clip_qkv", "use_logn_attn"} <= settings.complete(state, old).assumed.keys()


def test_inspect_takes_the_config_that_load_takes() -> None:
    state = state_of(stored()["parallel_attn_mlp"])
    found = dict(inspect(state, {**BASE, "attention_dir": "causal"}).rows)
    assert (found["d_model"], found["attention_dir"]) == ("8", "causal")
    assert "parallel_attn_mlp = False" in found["assumed"]
    assert dict(inspect(state, {"attention_dir": "causal"}).rows)["missing"].count("act_fn") == 1


@pytest.mark.slow
@pytest.mark.skipif(not LENS3, reason="the originals are TransformerLens 3's")
@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 300), marks=pytest.mark.soak)], ids=["6", "all"])
def test_no_load_of_a_random_config_is_silently_wrong(seeds: range) -> None:
    """Five ways in for each config: the state dict alone, some settings, the config, the model, a native bridge."""
    ends: collections.Counter[tuple[str, str]] = collections.Counter()
    for seed in seeds:
        for way, fields, ending in one_of_each(seed):
            assert not silently_wrong(way, fields, ending), (seed, way, fields, ending)
            ends[way, ending[0]] += 1
    for way in ("config", "HookedTransformer", "bridge"):
        assert ends[way, "right"] > 0.6 * len(seeds), ends


def write() -> None:
    """Write lens_outputs.json, with TransformerLens 3."""
    found = {}
    for name in CASES:
        fields, model, rows = original(name)
        shapes = {n: list(p.shape) for n, p in model.named_parameters()}
        weights = state_of({"shapes": shapes})
        model.load_state_dict(weights, strict=False)
        logits = [[[round(x, 6) for x in at] for at in row] for row in model(rows).tolist()]
        found[name] = {"fields": {**BASE, **fields}, "shapes": shapes, "logits": logits}
    STORED.write_text(json.dumps(found, separators=(",", ":")) + "\n", "utf-8")


if __name__ == "__main__":
    write()


@pytest.mark.parametrize("adjacent", [True, False])
def test_plain_angles_are_a_rate_for_each_pair(adjacent: bool) -> None:
    fields = {"rotary_dim": 4, "d_head": 8, "rotary_base": 100, "rotary_adjacent_pairs": adjacent}
    sines, cosines = settings.plain_angles(fields, 3)
    rates = [1.0, 1.0, 0.1, 0.1] if adjacent else [1.0, 0.1, 1.0, 0.1]
    for place in range(3):
        close(sines[place], [math.sin(place * rate) for rate in rates], atol=1e-12)
        close(cosines[place], [math.cos(place * rate) for rate in rates], atol=1e-12)
