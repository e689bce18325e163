"""The parts of a transformer: embeddings, attention, MLPs, norms, block, unembedding.

Parameters, hook points, shapes and the order of operations are those of TransformerLens 3.x, so that its state dicts
load strictly and its tutorials work.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from interp.errors import UnsupportedError, one_of
from interp.models.lens.common import FactoredMatrix, HookPoint
from interp.models.lens.forward import AttentionForward

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from transformer_lens.config import TransformerBridgeConfig as HookedTransformerConfig

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_new": lambda x: functional.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
}


def activation(name: str | None) -> Callable[[Tensor], Tensor]:
    if name not in ACTIVATIONS:
        raise UnsupportedError(one_of("activation", name, ACTIVATIONS))
    return ACTIVATIONS[name]


def matrix(cfg: Any, *shape: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(shape, dtype=cfg.dtype))


class Embed(nn.Module):
    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        self.cfg = cfg
        self.W_E = matrix(cfg, cfg.d_vocab, cfg.d_model)

    def forward(self, tokens: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length d_model"]:
        return self.W_E[tokens]


class PosEmbed(nn.Module):
    """A table of n_ctx learned positions. In rows that start with padding, the first token has position 0."""

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        self.cfg = cfg
        self.W_pos = matrix(cfg, cfg.n_ctx, cfg.d_model)

    def forward(
        self, tokens: Int[Tensor, "rows length"], past_kv_pos_offset: int = 0, attention_mask: Tensor | None = None
    ) -> Float[Tensor, "rows length d_model"]:
        length = tokens.shape[1]
        if attention_mask is None:
            return self.W_pos[past_kv_pos_offset : past_kv_pos_offset + length].expand(len(tokens), -1, -1)
        place = (attention_mask.cumsum(1) - 1).masked_fill(attention_mask == 0, 0)[:, past_kv_pos_offset:]
        rows = self.W_pos[place.long()]
        return rows.masked_fill((attention_mask[:, past_kv_pos_offset:] == 0)[..., None], 0.0)


class Unembed(nn.Module):
    W_U: Tensor
    b_U: Tensor

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        self.cfg: Any = cfg
        self.W_U = matrix(cfg, cfg.d_model, self.cfg.d_vocab_out)
        self.b_U = matrix(cfg, self.cfg.d_vocab_out)
        self.hook_in, self.hook_out = HookPoint(), HookPoint()

    def forward(self, residual: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows outputs"]:
        return self.hook_out(functional.linear(self.hook_in(residual), self.W_U.T.contiguous(), self.b_U))


class LayerNormPre(nn.Module):
    """A layer norm whose gain and bias were folded into the next weights."""

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        self.cfg = cfg
        self.eps = cfg.eps
        self.hook_scale = HookPoint()  # [..., 1]
        self.hook_normalized = HookPoint()

    def forward(self, x: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_model"]:
        wide = x if self.cfg.dtype in (torch.float32, torch.float64) else x.float()
        centered = wide - wide.mean(-1, keepdim=True)
        scale = self.hook_scale((centered.pow(2).mean(-1, keepdim=True) + self.eps).sqrt())
        return self.hook_normalized(centered / scale).to(self.cfg.dtype)


class LayerNorm(LayerNormPre):
    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__(cfg)
        self.w = nn.Parameter(torch.ones(cfg.d_model, dtype=cfg.dtype))
        self.b = matrix(cfg, cfg.d_model)

    def forward(self, x: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_model"]:
        return super().forward(x) * self.w + self.b


class RMSNormPre(LayerNormPre):
    """Division by the root of the mean square, without centering."""

    def forward(self, x: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_model"]:
        wide = x if self.cfg.dtype in (torch.float32, torch.float64) else x.float()
        scale = self.hook_scale((wide.pow(2).mean(-1, keepdim=True) + self.eps).sqrt())
        return self.hook_normalized(wide / scale).to(self.cfg.dtype)


class RMSNorm(RMSNormPre):
    def __init__(self, cfg: HookedTransformerConfig, length: int | None = None) -> None:
        super().__init__(cfg)
        self.w = nn.Parameter(torch.ones(length or cfg.d_model, dtype=cfg.dtype))

    def forward(self, x: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_model"]:
        return super().forward(x) * self.w


NORMS: dict[str | None, Callable[[Any], nn.Module]] = {
    None: lambda cfg: nn.Identity(),
    "LN": LayerNorm,
    "LNPre": LayerNormPre,
    "RMS": RMSNorm,
    "RMSPre": RMSNormPre,
}


class PlainMLP(nn.Module):
    """An MLP with one hidden layer: d_model -> d_mlp -> d_model."""

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        self.cfg = cfg
        width = cfg.d_mlp or 4 * cfg.d_model
        self.act_fn = activation(cfg.act_fn)
        self.W_in, self.b_in = matrix(cfg, cfg.d_model, width), matrix(cfg, width)
        self.W_out, self.b_out = matrix(cfg, width, cfg.d_model), matrix(cfg, cfg.d_model)
        self.hook_pre, self.hook_post = HookPoint(), HookPoint()

    def forward(self, x: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_model"]:
        hidden = self.hook_pre(functional.linear(x, self.W_in.T, self.b_in))
        return functional.linear(self.hook_post(self.act_fn(hidden)), self.W_out.T, self.b_out)


class GatedMLP(PlainMLP):
    """(activation(x W_gate) * (x W_in) + b_in) W_out + b_out; hook_pre sees x W_gate, hook_pre_linear x W_in."""

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__(cfg)
        self.W_gate = matrix(cfg, *self.W_in.shape)
        self.hook_pre_linear = HookPoint()

    def forward(self, x: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_model"]:
        gate = self.act_fn(self.hook_pre(functional.linear(x, self.W_gate.T)))
        hidden = gate * self.hook_pre_linear(functional.linear(x, self.W_in.T)) + self.b_in
        return functional.linear(self.hook_post(hidden), self.W_out.T, self.b_out)


class Attention(AttentionForward, nn.Module):
    """Softmax attention with cfg.n_heads heads, causal or bidirectional, that respects the attention mask."""

    attn_scale: float
    q_norm: RMSNorm | None
    k_norm: RMSNorm | None
    W_Q: Tensor
    W_K: Tensor
    W_V: Tensor
    W_O: Tensor
    b_Q: Tensor
    b_K: Tensor
    b_V: Tensor
    b_O: Tensor

    def __init__(self, cfg: HookedTransformerConfig, attn_type: str = "global", layer_id: int | None = None) -> None:
        super().__init__()
        self.cfg: Any = cfg
        self.layer_id = layer_id
        for name in "QKV":
            self._make_projection(name)
        self.q_norm, self.k_norm = (RMSNorm(cfg, cfg.d_head) if self.cfg.use_qk_norm else None for _ in range(2))
        self.W_O, self.b_O = matrix(cfg, cfg.n_heads, cfg.d_head, cfg.d_model), matrix(cfg, cfg.d_model)
        scale = self.cfg.attn_scale
        self.attn_scale = (scale if scale > 0 else math.sqrt(cfg.d_head)) if self.cfg.use_attn_scale else 1.0
        for name in ("k", "q", "v", "z", "attn_scores", "pattern", "result"):
            setattr(self, f"hook_{name}", HookPoint())
        self.causal = self.cfg.attention_dir == "causal"
        self.sloped = self.cfg.positional_embedding_type == "alibi"
        if self.cfg.positional_embedding_type == "rotary":
            self.rotary_dim = self.cfg.rotary_dim or self.cfg.d_head
            self.rotary_base, self.rotary_adjacent = float(self.cfg.rotary_base), self.cfg.rotary_adjacent_pairs
            self.hook_rot_q, self.hook_rot_k = HookPoint(), HookPoint()

    def _make_projection(self, name: str) -> None:
        setattr(self, f"W_{name}", matrix(self.cfg, self.cfg.n_heads, self.cfg.d_model, self.cfg.d_head))
        setattr(self, f"b_{name}", matrix(self.cfg, self.cfg.n_heads, self.cfg.d_head))

    @property
    def OV(self) -> FactoredMatrix:
        return FactoredMatrix(self.W_V, self.W_O)

    @property
    def QK(self) -> FactoredMatrix:
        return FactoredMatrix(self.W_Q, self.W_K.transpose(-2, -1))

    def calculate_qkv_matrices(
        self, query_input: Tensor, key_input: Tensor, value_input: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute q, k and v: (rows, length, heads, d_head). Split inputs have a head axis."""

        def project(x: Tensor, name: str) -> Tensor:
            of = "row position head d_model" if x.ndim == 4 else "row position d_model"
            weight, bias = self._projection(name)
            out = einsum(x, weight, f"{of}, head d_model d_head -> row position head d_head") + bias
            hook: HookPoint = getattr(self, f"hook_{name.lower()}")
            return hook(out)

        q, k, v = project(query_input, "Q"), project(key_input, "K"), project(value_input, "V")
        if self.cfg.use_qk_norm:
            q, k = self._apply_qk_norm(q, self.q_norm), self._apply_qk_norm(k, self.k_norm)
        return q, k, v

    def _projection(self, name: str) -> tuple[Tensor, Tensor]:
        """Return a weight and bias with the heads that hook_q, hook_k or hook_v sees."""
        return getattr(self, f"W_{name}"), getattr(self, f"b_{name}")

    def _apply_qk_norm(self, x: Tensor, norm: RMSNorm | None) -> Float[Tensor, "rows length heads d_head"]:
        assert norm is not None
        out: Tensor = norm(x.reshape(-1, x.shape[-1])).reshape(x.shape)
        return out

    def calculate_attention_scores(self, q: Tensor, k: Tensor) -> Float[Tensor, "rows heads queries keys"]:
        return q.transpose(1, 2) @ k.permute(0, 2, 3, 1) / self.attn_scale

    def calculate_z_scores(self, v: Tensor, pattern: Tensor) -> Float[Tensor, "rows length heads d_head"]:
        hook: Any = self.hook_z
        return hook((pattern @ v.transpose(1, 2)).transpose(1, 2))


class GroupedQueryAttention(Attention):
    """Attention with shared keys and values: _W_K, _W_V, _b_K, _b_V are parameters, W_K etc. repeat them per head."""

    def _make_projection(self, name: str) -> None:
        if name == "Q":
            return super()._make_projection(name)
        groups = self.cfg.n_key_value_heads
        setattr(self, f"_W_{name}", matrix(self.cfg, groups, self.cfg.d_model, self.cfg.d_head))
        setattr(self, f"_b_{name}", matrix(self.cfg, groups, self.cfg.d_head))

    def _projection(self, name: str) -> tuple[Tensor, Tensor]:
        shown = name == "Q" or _ungrouped(self.cfg)
        return super()._projection(name) if shown else (getattr(self, f"_W_{name}"), getattr(self, f"_b_{name}"))

    def calculate_attention_scores(self, q: Tensor, k: Tensor) -> Float[Tensor, "rows heads queries keys"]:
        return super().calculate_attention_scores(q, self._repeated(k, 2))

    def calculate_z_scores(self, v: Tensor, pattern: Tensor) -> Float[Tensor, "rows length heads d_head"]:
        return super().calculate_z_scores(self._repeated(v, 2), pattern)

    def _repeated(self, x: Tensor, axis: int) -> Tensor:
        """Repeat entries along an axis, one per query head."""
        return x.repeat_interleave(self.cfg.n_heads // x.shape[axis], dim=axis)


def _ungrouped(cfg: Any) -> bool:
    """Test whether hooks see keys and values per head, not per group; TransformerLens 4 configs may lack the field."""
    return bool(getattr(cfg, "ungroup_grouped_query_attention", False))


def _repeated(held: str) -> property:
    """Make a property that repeats a stored parameter, one entry per query head."""
    return property(lambda self: self._repeated(getattr(self, held), 0))


for _name in ("W_K", "W_V", "b_K", "b_V"):
    setattr(GroupedQueryAttention, _name, _repeated(f"_{_name}"))


class TransformerBlock(nn.Module):
    """y = x + attn(ln1(x)), then y + mlp(ln2(y))."""

    ln1: nn.Module
    ln2: nn.Module
    mlp: Any

    def __init__(self, cfg: HookedTransformerConfig, block_index: int) -> None:
        super().__init__()
        self.cfg: Any = cfg
        self.ln1 = NORMS[cfg.normalization_type](cfg)
        if not cfg.attn_only:
            self.ln2 = NORMS[cfg.normalization_type](cfg)
        attention = Attention if self.cfg.n_key_value_heads is None else GroupedQueryAttention
        self.attn = attention(cfg, "global", block_index)
        if not cfg.attn_only:
            self.mlp = GatedMLP(cfg) if self.cfg.gated_mlp else PlainMLP(cfg)
        names = ["attn_in", "q_input", "k_input", "v_input", "mlp_in", "attn_out", "mlp_out", "resid_pre", "resid_post"]
        for name in names if cfg.attn_only else [*names, "resid_mid"]:
            setattr(self, f"hook_{name}", HookPoint())

    def forward(
        self,
        resid_pre: Float[Tensor, "rows length d_model"],
        shortformer_pos_embed: Tensor | None = None,
        past_kv_cache_entry: Any = None,
        attention_mask: Tensor | None = None,
    ) -> Float[Tensor, "rows length d_model"]:
        hooks: Any = self
        x = hooks.hook_resid_pre(resid_pre)
        inputs = [x, x, x]
        if self.cfg.use_attn_in:
            inputs = [hooks.hook_attn_in(self._for_each_head(x))] * 3
        if self.cfg.use_split_qkv_input:
            at = (hooks.hook_q_input, hooks.hook_k_input, hooks.hook_v_input)
            grouped = None if _ungrouped(self.cfg) else self.cfg.n_key_value_heads
            inputs = [hook(self._for_each_head(x, heads)) for hook, heads in zip(at, (None, grouped, grouped))]
        normed = [self.ln1(value) for value in inputs]
        written = self.attn(*normed, past_kv_cache_entry=past_kv_cache_entry, attention_mask=attention_mask)
        x = x + hooks.hook_attn_out(written)
        if self.cfg.attn_only:
            return hooks.hook_resid_post(x)
        x = hooks.hook_resid_mid(x)
        inner = hooks.hook_mlp_in(x.clone()) if self.cfg.use_hook_mlp_in else x
        return hooks.hook_resid_post(x + hooks.hook_mlp_out(self.mlp(self.ln2(inner))))

    def _for_each_head(self, x: Tensor, heads: int | None = None) -> Float[Tensor, "rows length heads d_model"]:
        return x[:, :, None].expand(-1, -1, heads or self.cfg.n_heads, -1).clone()
