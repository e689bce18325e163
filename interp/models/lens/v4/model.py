"""HookedTransformer with the interface of 3.x, for the architectures listed in the package's docstring."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from interp.errors import InterpError, UnsupportedError
from interp.models.lens.common import ActivationCache, FactoredMatrix, HookedRootModule, HookPoint
from interp.models.lens.v4.parts import (
    NORMS,
    Embed,
    HookedTransformerConfig,
    PosEmbed,
    TransformerBlock,
    Unembed,
    activation,
)

SWITCHES = {
    "attn.hook_result": "use_attn_result",
    "hook_q_input": "use_split_qkv_input",
    "hook_k_input": "use_split_qkv_input",
    "hook_v_input": "use_split_qkv_input",
    "hook_mlp_in": "use_hook_mlp_in",
    "hook_attn_in": "use_attn_in",
}
"""Hooks that exist only while a switch of the config is on (set_use_attn_result, ...)."""

BUILT: dict[str, tuple[Any, ...]] = {
    "positional_embedding_type": ("standard", "rotary", "alibi"),
    "normalization_type": tuple(NORMS),
    "attention_dir": ("causal", "bidirectional"),
    "parallel_attn_mlp": (False,),
    "use_local_attn": (False,),
    "post_embedding_ln": (False,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "use_normalization_before_and_after": (False,),
    "final_rms": (False,),
    "num_experts": (None,),
    "rotary_scaling_factor": (1.0,),
    "rotary_base_local": (None,),
    "use_NTK_by_parts_rope": (False,),
    "use_yarn_rope": (False,),
    "use_dynamic_ntk_rope": (False,),
    "use_logn_attn": (False,),
    "clip_qkv": (None,),
    "use_attention_sinks": (False,),
    "rmsnorm_uses_offset": (False,),
    "scale_embedding": (None, False),
    "qk_norm_after_rope": (False,),
    "rotary_interleaved_cos_sin": (False,),
    "per_layer_head_dim": (None,),
    "per_layer_num_key_value_heads": (None,),
}
"""Config fields with their supported values."""


@contextmanager
def quiet_construction() -> Iterator[None]:
    """Do nothing: these classes emit no warnings."""
    yield


def config_fields() -> dict[str, Any]:
    """Return the fields of a config and their defaults; None if there is no default."""
    fields: dict[str, Any] = {}
    for kind in reversed(HookedTransformerConfig.__mro__[:-1]):
        fields |= {
            name: None if parameter.default is inspect.Parameter.empty else parameter.default
            for name, parameter in inspect.signature(kind).parameters.items()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        }
    return fields


def config(**fields: Any) -> HookedTransformerConfig:
    """Build a config without initializing weights or reseeding the global generators.

    Raises UnsupportedError for a field with an unsupported value.
    """
    for name, values in BUILT.items():
        if name in fields and fields[name] not in values:
            raise UnsupportedError(
                f"{name} = {fields[name]!r}: with TransformerLens 4, which has no HookedTransformer, only "
                f"{' or '.join(repr(value) for value in values)} is supported; use transformer-lens < 4 for others"
            )
    for name, disabled in (("attn_scores_soft_cap", -1.0), ("output_logits_soft_cap", -1.0)):
        if fields.get(name, disabled) > 0:
            raise UnsupportedError(f"{name} = {fields[name]!r}: soft caps are not supported; use transformer-lens < 4")
    if str(fields.get("original_architecture")).startswith(("Olmo", "GptOss")):
        raise UnsupportedError(f"original_architecture = {fields['original_architecture']!r}: use transformer-lens < 4")
    fields.setdefault("device", "cpu")
    cfg: Any = HookedTransformerConfig(**fields, init_weights=False, seed=None)
    if not cfg.attn_only:
        activation(cfg.act_fn)  # raises for unknown names
    return cfg


class HookedTransformer(HookedRootModule):
    """Embedding, positions, blocks, final norm (if in the config) and unembedding; returns logits at every position."""

    tokenizer = None
    ln_final: nn.Module

    def __init__(self, cfg: HookedTransformerConfig, tokenizer: Any = None, move_to_device: bool = True) -> None:
        super().__init__()
        self.cfg: Any = cfg
        if self.cfg.d_vocab_out == -1:
            self.cfg.d_vocab_out = cfg.d_vocab
        self.embed = Embed(cfg)
        self.hook_embed = HookPoint()
        if self.cfg.positional_embedding_type != "rotary":  # as in 3.x, ALiBi has an unused table
            self.pos_embed = PosEmbed(cfg)
            self.hook_pos_embed = HookPoint()
        self.blocks = nn.ModuleList([TransformerBlock(cfg, index) for index in range(cfg.n_layers)])
        if cfg.normalization_type is not None:
            self.ln_final = NORMS[cfg.normalization_type](cfg)
        self.unembed = Unembed(cfg)
        if move_to_device:
            self.to(cfg.device, print_details=False)
        self.setup()

    # ------------------------------------------------------------ forward

    def input_to_embed(
        self,
        input: Any,
        prepend_bos: Any = None,
        padding_side: Any = None,
        attention_mask: Tensor | None = None,
        past_kv_cache: Any = None,
    ) -> tuple[Tensor, Tensor, None, Tensor | None]:
        """Return the first residual stream, the tokens, None (unused, as in 3.x) and the mask of all keys."""
        if not isinstance(input, Tensor):
            raise InterpError(f"tokens must be a tensor of token ids, not {type(input).__name__}")
        tokens = (input[None] if input.ndim == 1 else input).to(self.embed.W_E.device)
        past = 0
        if past_kv_cache is not None:
            past = past_kv_cache[0].past_keys.shape[1]
            mask = torch.ones_like(tokens) if attention_mask is None else attention_mask
            attention_mask = past_kv_cache.append_attention_mask(mask.to(tokens.device))
        elif attention_mask is not None:
            attention_mask = attention_mask.to(tokens.device)
        residual = self.hook_embed(self.embed(tokens))
        if self.cfg.positional_embedding_type == "standard":
            residual = residual + self.hook_pos_embed(self.pos_embed(tokens, past, attention_mask))
        return residual, tokens, None, attention_mask

    def forward(
        self,
        input: Any,
        return_type: Literal["logits", "loss", "both"] | None = "logits",
        loss_per_token: bool = False,
        prepend_bos: Any = None,
        padding_side: Any = None,
        start_at_layer: int | None = None,
        tokens: Tensor | None = None,
        shortformer_pos_embed: Tensor | None = None,
        attention_mask: Tensor | None = None,
        stop_at_layer: int | None = None,
        past_kv_cache: Any = None,
    ) -> Any:
        """Compute logits (rows, length, outputs), or the residual stream if stop_at_layer is given.

        start_at_layer: input is the residual stream before that layer. return_type "loss" is next-token cross-entropy.
        """
        residual = input
        if start_at_layer is None:
            residual, tokens, _, attention_mask = self.input_to_embed(
                input, attention_mask=attention_mask, past_kv_cache=past_kv_cache
            )
        chosen = slice(start_at_layer or 0, stop_at_layer)
        for index, block in list(enumerate(self.blocks))[chosen]:
            entry = None if past_kv_cache is None else past_kv_cache[index]
            residual = block(residual, past_kv_cache_entry=entry, attention_mask=attention_mask)
        if stop_at_layer is not None:
            return residual
        if self.cfg.normalization_type is not None:
            residual = self.ln_final(residual)
        if return_type is None:
            return None
        logits = self.unembed(residual)
        if return_type == "logits":
            return logits
        loss = self.loss_fn(logits, tokens, attention_mask, per_token=loss_per_token)
        return loss if return_type == "loss" else (logits, loss)

    def loss_fn(
        self, logits: Tensor, tokens: Tensor | None, attention_mask: Tensor | None = None, per_token: bool = False
    ) -> Tensor:
        from transformer_lens.utilities.lm_utils import lm_cross_entropy_loss

        if tokens is None:
            raise InterpError("a loss needs the tokens: pass tokens= if the input is a residual stream")
        return lm_cross_entropy_loss(logits, tokens.to(logits.device), attention_mask, per_token)

    def run_with_cache(
        self, *args: Any, return_cache_object: bool = True, remove_batch_dim: bool = False, **kwargs: Any
    ) -> Any:
        out, cache = super().run_with_cache(*args, remove_batch_dim=remove_batch_dim, **kwargs)
        return out, ActivationCache(cache, self, has_batch_dim=not remove_batch_dim) if return_cache_object else cache

    @torch.inference_mode()
    def generate(
        self,
        input: Int[Tensor, "rows length"],
        max_new_tokens: int = 10,
        stop_at_eos: bool = True,
        eos_token_id: int | None = None,
        do_sample: bool = True,
        top_k: int | None = None,
        top_p: float | None = None,
        temperature: float = 1.0,
        freq_penalty: float = 0.0,
        use_past_kv_cache: bool = True,
        prepend_bos: Any = None,
        padding_side: Any = None,
        return_type: Literal["input", "tokens"] = "input",
        verbose: bool = True,
    ) -> Int[Tensor, "rows longer"]:
        """Extend rows by max_new_tokens tokens, or until every row has an eos_token_id."""
        from transformer_lens import TransformerLensKeyValueCache
        from transformer_lens.utilities.logits_utils import sample_logits

        if return_type not in ("input", "tokens") or not isinstance(input, Tensor):
            raise UnsupportedError("generate takes and returns tokens: there is no tokenizer")
        if stop_at_eos and eos_token_id is None:
            raise InterpError("stop_at_eos needs eos_token_id; or pass stop_at_eos=False")
        tokens = (input[None] if input.ndim == 1 else input).to(self.embed.W_E.device)
        cache: Any = None
        if use_past_kv_cache:
            cache = TransformerLensKeyValueCache.init_cache(self.cfg, tokens.device, len(tokens))
        done = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
        for step in range(max_new_tokens):
            new = tokens if cache is None or step == 0 else tokens[:, -1:]
            logits = self.forward(new, past_kv_cache=cache)[:, -1]
            if do_sample:
                chosen = sample_logits(logits, top_k, top_p, temperature, freq_penalty, tokens=tokens)
            else:
                chosen = logits.argmax(-1)
            if stop_at_eos:
                chosen = torch.where(done, torch.full_like(chosen, eos_token_id or 0), chosen)
                done = done | (chosen == eos_token_id)
            tokens = torch.cat([tokens, chosen[:, None]], 1)
            if stop_at_eos and bool(done.all()):
                break
        return tokens

    # ------------------------------------------------------------ hooks

    def check_hooks_to_add(self, hook_point: HookPoint, hook_point_name: str, *args: Any, **kwargs: Any) -> None:
        for ending, switch in SWITCHES.items():
            if hook_point_name.endswith(ending) and not getattr(self.cfg, switch):
                raise AssertionError(f"Cannot add hook {hook_point_name} if {switch} is False")

    def set_use_attn_result(self, use_attn_result: bool) -> None:
        self.cfg.use_attn_result = use_attn_result

    def set_use_split_qkv_input(self, use_split_qkv_input: bool) -> None:
        self.cfg.use_split_qkv_input = use_split_qkv_input

    def set_use_attn_in(self, use_attn_in: bool) -> None:
        assert self.cfg.n_key_value_heads is None, (
            "Can't use attn_in with GroupedQueryAttention, please use split_qkv_input instead"
        )
        self.cfg.use_attn_in = use_attn_in

    def set_use_hook_mlp_in(self, use_hook_mlp_in: bool) -> None:
        assert not self.cfg.attn_only, "Can't use hook_mlp_in with attn_only model"
        self.cfg.use_hook_mlp_in = use_hook_mlp_in

    # ------------------------------------------------------------ tokens

    def to_tokens(self, *args: Any, **kwargs: Any) -> Tensor:
        raise UnsupportedError("this model has no tokenizer: pass tensors of token ids")

    def to_single_token(self, string: str) -> int:
        raise UnsupportedError("this model has no tokenizer: pass token ids")

    def tokens_to_residual_directions(self, tokens: str | int | Tensor) -> Float[Tensor, "*tokens d_model"]:
        """Return the columns of W_U for these tokens."""
        if isinstance(tokens, str):
            tokens = self.to_single_token(tokens)
        if isinstance(tokens, Tensor) and tokens.numel() == 1:
            tokens = int(tokens)
        return self.W_U[:, tokens] if isinstance(tokens, int) else self.W_U[:, tokens].movedim(0, -1)

    # ------------------------------------------------------------ weights

    def to(self, device_or_dtype: Any, print_details: bool = True) -> HookedTransformer:  # type: ignore[override]
        if isinstance(device_or_dtype, torch.dtype):
            self.cfg.dtype = device_or_dtype
        else:
            self.cfg.device = str(torch.device(device_or_dtype))
        return nn.Module.to(self, device_or_dtype)

    def cuda(self, device: int | str | torch.device | None = None) -> HookedTransformer:
        return self.to("cuda" if device is None else f"cuda:{device}" if isinstance(device, int) else device)

    def cpu(self) -> HookedTransformer:
        return self.to("cpu")

    def process_weights_(self, *args: Any, **kwargs: Any) -> None:
        raise UnsupportedError("folding weights is not supported; fold them before loading")

    def load_and_process_state_dict(self, *args: Any, **kwargs: Any) -> None:
        raise UnsupportedError("folding weights is not supported; use load_state_dict")

    @property
    def n_params_total(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def W_U(self) -> Tensor:
        return self.unembed.W_U

    @property
    def b_U(self) -> Tensor:
        return self.unembed.b_U

    @property
    def W_E(self) -> Tensor:
        return self.embed.W_E

    @property
    def W_pos(self) -> Tensor:
        return self.pos_embed.W_pos

    @property
    def W_E_pos(self) -> Tensor:
        return torch.cat([self.W_E, self.W_pos])

    @property
    def W_gate(self) -> Tensor | None:
        if not self.cfg.gated_mlp:
            return None
        parts: list[Any] = list(self.blocks)
        return torch.stack([block.mlp.W_gate for block in parts])

    def accumulated_bias(
        self, layer: int, mlp_input: bool = False, include_mlp_biases: bool = True
    ) -> Float[Tensor, "d_model"]:
        """Sum all b_O and b_out before the input of a layer (or of its MLP)."""
        total = torch.zeros(self.cfg.d_model, device=self.embed.W_E.device, dtype=self.embed.W_E.dtype)
        parts: list[Any] = list(self.blocks)
        for block in parts[:layer]:
            total = total + block.attn.b_O
            if include_mlp_biases:
                total = total + block.mlp.b_out
        return total + parts[layer].attn.b_O if mlp_input else total

    @property
    def QK(self) -> FactoredMatrix:
        weights: Any = self
        return FactoredMatrix(weights.W_Q, weights.W_K.transpose(-2, -1))

    @property
    def OV(self) -> FactoredMatrix:
        weights: Any = self
        return FactoredMatrix(weights.W_V, weights.W_O)

    def all_composition_scores(
        self, mode: Literal["Q", "K", "V"]
    ) -> Float[Tensor, "n_layers n_heads n_layers n_heads"]:
        """Compute composition scores of pairs of heads (Elhage et al. 2021); 0 unless the first is earlier."""
        from transformer_lens.utilities import composition_scores

        scores = composition_scores(self.OV, {"Q": self.QK, "K": self.QK.T, "V": self.OV}[mode], broadcast_dims=True)
        layers = torch.arange(self.cfg.n_layers, device=scores.device)
        earlier = layers[:, None, None, None] < layers[None, None, :, None]
        return torch.where(earlier, scores, torch.zeros_like(scores))

    def all_head_labels(self) -> list[str]:
        return [f"L{layer}H{head}" for layer in range(self.cfg.n_layers) for head in range(self.cfg.n_heads)]


def _stacked(name: str, part: str) -> property:
    """Make a property that stacks a parameter of all blocks: (n_layers, ...)."""
    return property(lambda self: torch.stack([getattr(getattr(block, part), name) for block in self.blocks]))


for _name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O"):
    setattr(HookedTransformer, _name, _stacked(_name, "attn"))
for _name in ("W_in", "W_out", "b_in", "b_out"):
    setattr(HookedTransformer, _name, _stacked(_name, "mlp"))
