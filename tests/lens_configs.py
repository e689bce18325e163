"""Random TransformerLens configs, and the ways in which a model of one comes to interp. Needs TransformerLens 3."""

import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from drawn_weights import draw
from torch import Tensor

import interp
from interp.models.architecture.settings import ASKED, BY_NAME, SETTINGS
from interp.models.lens import HookedTransformer, config, quiet_construction

VOCABULARY = tuple("abcdef")


class First(interp.Task):
    """Repeat the first letter."""

    name, vocabulary, readout = "first-letter-of-any", VOCABULARY, "last"

    def batch(self, tokens: Tensor) -> interp.Batch:
        return interp.Batch(tokens, torch.full((len(tokens),), tokens.shape[1]), tokens[:, 0])

    def sample(self, n: int, split: str = "test", seed: int = 0) -> interp.Batch:
        return self.batch(torch.randint(6, (n, 8), generator=torch.Generator().manual_seed(seed)))


def random_fields(draw: random.Random) -> dict[str, Any]:
    """A small config with any of the fields that change outputs; TransformerLens may refuse it."""
    heads, head = draw.choice((1, 2, 4)), draw.choice((2, 4, 6))
    fields: dict[str, Any] = {
        "n_layers": draw.choice((1, 2, 3)), "d_model": draw.choice((8, 12)), "n_heads": heads, "d_head": head,
        "n_ctx": draw.choice((8, 12)), "d_vocab": 6, "d_vocab_out": draw.choice((6, 6, 9)),
        "attn_only": draw.random() < 0.3, "attention_dir": draw.choice(("causal", "causal", "bidirectional")),
        "normalization_type": draw.choice((None, "LN", "LNPre", "RMS", "RMSPre")),
        "positional_embedding_type": draw.choice(("standard", "standard", "rotary", "rotary", "shortformer", "alibi")),
        "dtype": draw.choice((torch.float32, torch.float32, torch.float64)),
    }  # fmt: skip
    if not fields["attn_only"]:
        kinds = ("relu", "gelu", "silu", "gelu_new", "gelu_fast", "solu_ln", "gelu_pytorch_tanh")
        fields |= {"d_mlp": draw.choice((7, 16)), "act_fn": draw.choice(kinds), "gated_mlp": draw.random() < 0.25}
    if fields["positional_embedding_type"] == "rotary":
        fields |= {"rotary_dim": draw.choice([n for n in (2, 4, 6) if n <= head]),
                   "rotary_base": draw.choice((10000, 10000, 100, 37)),
                   "rotary_adjacent_pairs": draw.random() < 0.5}  # fmt: skip
    odd: dict[str, Callable[[], dict[str, Any]]] = {
        "eps": lambda: {"eps": draw.choice((1e-3, 0.1, 1e-8))}, "scale": lambda: {"use_attn_scale": False},
        "other scale": lambda: {"attn_scale": draw.choice((1.0, 3.5))},
        "by layer": lambda: {"scale_attn_by_inverse_layer_idx": True},
        "score cap": lambda: {"attn_scores_soft_cap": 1.0}, "output cap": lambda: {"output_logits_soft_cap": 1.0},
        "clip": lambda: {"clip_qkv": 0.3}, "parallel": lambda: {"parallel_attn_mlp": True},
        "groups": lambda: {"n_key_value_heads": draw.choice([n for n in (1, 2, 4) if n <= heads])},
        "query-key norm": lambda: {"use_qk_norm": True},
        "final RMS": lambda: {"final_rms": True},
        "both sides": lambda: {"use_normalization_before_and_after": True},
        "sinks": lambda: {"use_attention_sinks": True},
        "log n": lambda: {"use_logn_attn": True, "train_seq_length": 4},
        "dynamic": lambda: {"use_dynamic_ntk_rope": True, "train_seq_length": 4},
        "scaled": lambda: {"rotary_scaling_factor": 2.0},
        "yarn": lambda: {"use_yarn_rope": True, "yarn_factor": 4.0, "yarn_original_max_position_embeddings": 4},
        "by parts": lambda: {"use_NTK_by_parts_rope": True, "NTK_original_ctx_len": 8},
        "local": lambda: {"use_local_attn": True, "window_size": 2, "rotary_base_local": draw.choice((None, 50)),
                          "attn_types": [draw.choice(("global", "local")) for _ in range(fields["n_layers"])]},
        "architecture": lambda: {"original_architecture": draw.choice(("Olmo2ForCausalLM", "GPT2LMHeadModel"))},
        "experts": lambda: {"num_experts": 3, "experts_per_token": 2},
        "split": lambda: {"use_split_qkv_input": True},
        "after": lambda: {"post_embedding_ln": True},
    }  # fmt: skip
    for name in draw.sample(sorted(odd), draw.choice((0, 1, 1, 2, 3))):
        fields |= odd[name]()
    return fields


def random_weights(model: Any, seed: int = 1) -> Any:
    draw(model, seed, 0.4, torch.float32)
    return model.eval()


def originals(draw: random.Random) -> Iterator[tuple[dict[str, Any], HookedTransformer, Tensor, Tensor]]:
    """Configs that TransformerLens runs, with a random model of each, inputs, and the model's outputs."""
    while True:
        fields = random_fields(draw)
        try:
            with quiet_construction():
                model = random_weights(HookedTransformer(config(**fields)))
            rows = torch.randint(6, (4, fields["n_ctx"]), generator=torch.Generator().manual_seed(3))
            right = model(rows).detach()
        except Exception:  # TransformerLens refuses this config, or fails on it
            continue
        if right.isfinite().all():
            yield fields, model, rows, right


def bridges(draw: random.Random) -> Iterator[tuple[dict[str, Any], Any, Tensor, Tensor]]:
    """The same for native bridges."""
    from transformer_lens.config import TransformerBridgeConfig
    from transformer_lens.model_bridge import TransformerBridge

    while True:
        fields = random_fields(draw)
        fields |= {"normalization_type": draw.choice(("LN", "RMS", "LNPre", "RMSPre", None)), "dtype": torch.float32}
        fields["positional_embedding_type"] = draw.choice(("standard", "rotary"))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                bridge = random_weights(TransformerBridge.boot_native(TransformerBridgeConfig(**fields)))
            rows = torch.randint(6, (4, fields["n_ctx"]), generator=torch.Generator().manual_seed(3))
            right = bridge(rows).detach()
        except Exception:
            continue
        yield fields, bridge, rows, right


def deviating(fields: dict[str, Any]) -> set[str]:
    """The fields of the table that this config sets to something else than the default."""
    return {name for name, value in fields.items() if name in BY_NAME and value != BY_NAME[name].default}


def partial(fields: dict[str, Any], state: dict[str, Tensor], draw: random.Random) -> dict[str, Any]:
    """What a refusal asks for, and a few of the other settings."""
    given = {name: fields[name] for name in ASKED if name in fields}
    if draw.random() < 0.5:  # what the file shows need not be said
        given.pop("positional_embedding_type")
        given |= {"positional_embedding_type": "rotary"} if "pos_embed.W_pos" not in state else {}
    more = [name for name in deviating(fields) if name not in given and name in BY_NAME]
    return given | {name: fields[name] for name in more if draw.random() < 0.3}


def outcome(source: Any, given: Any, rows: Tensor, right: Tensor) -> tuple[str, str]:
    """("right" | "wrong" | "refused" | "raw", text): how a load ends; the text is the warnings, or the error's."""
    ids = {letter: number for number, letter in enumerate(VOCABULARY)}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model: Any = interp.load(source, task=First(), config=given, tokens=ids, outputs=ids)
            found = model(rows).detach()
        except interp.InterpError as error:
            return ("refused" if "\n" not in str(error) else "raw"), str(error)
        except Exception as error:
            return "raw", f"{type(error).__name__}: {error}"
    said = " ".join(str(one.message) for one in caught)
    scale = float(right.abs().max().clamp_min(1))
    wrong = found.shape != right.shape or float((found - right).abs().max()) > 1e-4 * scale
    return ("wrong" if wrong else "right"), said


def silently_wrong(way: str, fields: dict[str, Any], ending: tuple[str, str]) -> bool:
    """Whether a load is wrong without a warning that names a field in which the model differs, or ends in a raw error.

    With the whole config, or with the model itself, any difference counts.
    """
    kind, text = ending
    if kind in ("right", "refused"):
        return False
    return kind == "raw" or way not in ("alone", "partial") or not any(name in text for name in deviating(fields))


WAYS = ("alone", "partial", "config", "HookedTransformer", "bridge")
ALL = {setting.name for setting in SETTINGS}


def one_of_each(seed: int) -> Iterator[tuple[str, dict[str, Any], tuple[str, str]]]:
    """One random model each, by every way in: (way, its config, how the load ended)."""
    draw = random.Random(seed)
    fields, model, rows, right = next(originals(draw))
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    yield "alone", fields, outcome(state, None, rows, right)
    yield "partial", fields, outcome(state, partial(fields, state, draw), rows, right)
    yield "config", fields, outcome(state, model.cfg, rows, right)
    yield "HookedTransformer", fields, outcome(model, None, rows, right)
    fields, bridge, rows, right = next(bridges(draw))
    yield "bridge", fields, outcome(bridge, None, rows, right)
