"""Modules that replace parts of a HookedTransformer: attention, blocks, MLPs, positions and readouts.

Attention is TransformerLens's with another forward pass (lens/forward.py), and with what a spec adds: mixing by
positions, constants, positions inside attention, and scores times the logarithm of the length.

Blocks are TransformerLens's pre-norm block with interp's attention, or the original transformer's post-norm block.
Positions are zeros, a learned table, or a formula of (i, n). TransformerLens has no position type "none": with a module
that returns zeros, lengths are unlimited, there is no parameter, and all helpers of TransformerLens work.
"""

import copy
import math
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from interp.models.architecture.formulas import Formula, position_formula
from interp.models.lens import (
    Attention,
    GatedMLP,
    GroupedQueryAttention,
    HookedTransformerConfig,
    HookPoint,
    LayerNorm,
    PlainMLP,
    RMSNorm,
    TransformerBlock,
    Unembed,
)
from interp.models.lens.forward import AttentionForward
from interp.models.relative_positions import alibi_bias
from interp.models.spec import MLP, Layer, ModelSpec

if TYPE_CHECKING:
    Base = Attention
else:
    Base = object


class DescribedAttention(AttentionForward, Base):
    """The attention of a spec's Layer; a mixin for the TransformerLens class that has the parameters."""

    def __init__(self, cfg: HookedTransformerConfig, spec: ModelSpec, layer: Layer, index: int) -> None:
        super().__init__(cfg, "global", index)
        for name in ("mask", "IGNORE"):  # they would limit the length and be in the state dict
            self._buffers.pop(name, None)
        self.layer = layer
        self.causal = spec.direction == "causal"
        self.normalized = layer.normalizer == "softmax"
        self.attn_scale = 1 / layer.factor(spec.d_model)  # TransformerLens divides scores by it

        whole = layer.query_key == "full" or layer.value_output != "learned"
        eye = torch.eye(spec.d_model if whole else 0, dtype=cfg.dtype).expand(layer.n_heads, -1, -1)
        if layer.mixing == "linear":
            length = spec.max_length or 0
            self.W_mix = nn.Parameter(torch.zeros(layer.n_heads, length, length, dtype=cfg.dtype))
            self._fix("W_Q", torch.zeros_like(self.W_Q))
            self._fix("W_K", torch.zeros_like(self.W_K))
        elif layer.query_key == "full":
            self._fix("W_K", eye)
        if layer.value_output in ("full", "identity"):
            self._fix("W_V", eye)
        if layer.value_output == "identity":
            self._fix("W_O", eye)
        for name in "QKVO":
            if not getattr(layer.bias, name.lower()):
                held = f"_b_{name}" if f"_b_{name}" in self._parameters else f"b_{name}"  # grouped
                self._fix(held, torch.zeros_like(getattr(self, held)))
        if spec.positions == "learned" and spec.positions_enter == "attention":
            # In pos_embed, these positions would be in decompositions of the residual stream, which never has them.
            self.W_pos = nn.Parameter(torch.zeros(spec.max_length or 0, spec.d_model, dtype=cfg.dtype))
            self.hook_pos = HookPoint()  # [pos, d_model]
        self.rotary_dim = (spec.rotary_dim or layer.d_head) if spec.positions == "rotary" else 0
        self.rotary_base, self.rotary_adjacent = float(spec.rotary_base), spec.rotary_pairs == "adjacent"
        if self.rotary_dim:
            self.hook_rot_q, self.hook_rot_k = HookPoint(), HookPoint()  # [batch, pos, head_index, d_head]
        self.sloped = spec.positions == "alibi"
        for norm in (self.q_norm, self.k_norm) if layer.query_key_norm else ():
            assert norm is not None
            norm.eps = layer.norm_eps

    def _fix(self, name: str, value: Tensor) -> None:
        """Turn a parameter into a constant that optimizers and state dicts omit, but OV and QK include."""
        delattr(self, name)
        self.register_buffer(name, value.detach().clone(), persistent=False)

    def _entering(self, inputs: tuple[Tensor, ...], past: int) -> tuple[Tensor, ...]:
        if not hasattr(self, "W_pos"):
            return inputs
        here = self.hook_pos(self.W_pos[past : past + inputs[0].shape[1]])
        here = here[:, None] if inputs[0].ndim == 4 else here  # split inputs have a head axis
        return tuple(stream + here for stream in inputs)

    def _places(self, n_keys: int, attention_mask: Tensor | None) -> Int[Tensor, "keys"]:
        return torch.arange(n_keys)  # tasks pad on the right

    def _scaled(self, q: Tensor, n_keys: int, attention_mask: Tensor | None) -> Tensor:
        return q * self._log_length(attention_mask, n_keys, q)

    def pattern_at(
        self,
        q: Float[Tensor, "rows length heads d_head"],
        k: Float[Tensor, "rows length heads d_head"],
        at: Int[Tensor, "rows"],
        attention_mask: Bool[Tensor, "rows length"] | None,
        added: Float[Tensor, "rows length"] | None = None,
    ) -> Float[Tensor, "rows heads length"]:
        """Compute the pattern of one query position per row, from hook_q and hook_k, without building the whole.

        added: to the scores of each key.
        """
        if hasattr(self, "W_mix"):
            scores = self.W_mix[:, at, : k.size(1)].transpose(0, 1)[:, :, None]
        else:
            asking = q[torch.arange(len(q), device=q.device), at][:, None]
            if self.q_norm is not None and self.k_norm is not None:
                asking, k = self._apply_qk_norm(asking, self.q_norm), self._apply_qk_norm(k, self.k_norm)
            if self.rotary_dim:
                asking = self._rotated(asking, at[:, None])
                k = self._rotated(k, torch.arange(k.size(1), device=k.device))
            scores = self.calculate_attention_scores(asking * self._log_length(attention_mask, k.size(1), q), k)
            if self.sloped:
                scores = scores + alibi_bias(at[:, None, None], k.size(1), q.size(2)).to(scores)
        if added is not None:
            scores = scores + added[:, None, None].to(scores)
        keep = self._keep(at[:, None, None, None], k.size(1), attention_mask)
        return self._normalized(self._masked(scores, keep), keep)[:, :, 0]

    def _log_length(self, attention_mask: Tensor | None, n_keys: int, like: Tensor) -> Tensor | float:
        """Return ln(n) for log-length-scaled attention: n is the row's number of tokens, or the training length."""
        choice = self.layer.log_length
        if choice == "none":
            return 1.0
        if choice != "current":
            return math.log(choice)
        n = like.new_tensor([float(n_keys)]) if attention_mask is None else attention_mask.sum(-1).to(like)
        # Rows that are all padding have n = 0. They are not read, but -inf times 0 would make gradients NaN.
        return n.clamp(min=1).log()[:, None, None, None]


class TaskAttention(DescribedAttention, Attention):
    """Attention with separate keys and values for each head."""


class GroupedTaskAttention(DescribedAttention, GroupedQueryAttention):
    """Attention in which several query heads share keys and values.

    As in TransformerLens, _W_K and _W_V are the shared weights, hook_k and hook_v see the shared vectors, and W_K and
    W_V repeat the weights for every query head.
    """


def make_attention(spec: ModelSpec, cfg: HookedTransformerConfig, index: int) -> TaskAttention | GroupedTaskAttention:
    """Build the attention of block `index`."""
    layer = spec.layers[index]
    kind = TaskAttention if layer.key_value_heads is None else GroupedTaskAttention
    return kind(cfg, spec, layer, index)


class PostNormBlock(TransformerBlock):
    """y = ln1(x + attn(x)), then ln2(y + mlp(y)), as in Vaswani et al. 2017.

    hook_resid_mid and hook_resid_post see the normalized streams, hook_resid_mid_pre_ln and hook_resid_post_pre_ln the
    sums before the norms. The last residual stream is not the sum of the parts' outputs (`additive_residual`).
    """

    def __init__(self, cfg: HookedTransformerConfig, index: int) -> None:
        super().__init__(cfg, index)
        self.hook_resid_mid_pre_ln = HookPoint()
        if cfg.attn_only:
            self.hook_resid_mid = HookPoint()
        else:
            self.hook_resid_post_pre_ln = HookPoint()

    def forward(
        self,
        resid_pre: Float[Tensor, "rows length d_model"],
        shortformer_pos_embed: Tensor | None = None,
        past_kv_cache_entry: Any = None,
        attention_mask: Tensor | None = None,
    ) -> Float[Tensor, "rows length d_model"]:
        x = self.hook_resid_pre(resid_pre)
        mask, cache = attention_mask, past_kv_cache_entry
        out = self.hook_attn_out(self.attn(x, x, x, past_kv_cache_entry=cache, attention_mask=mask))
        mid = self.hook_resid_mid(self.ln1(self.hook_resid_mid_pre_ln(x + out)))
        if self.cfg.attn_only:
            return self.hook_resid_post(mid)
        out = self.hook_mlp_out(self.mlp(mid))
        return self.hook_resid_post(self.ln2(self.hook_resid_post_pre_ln(mid + out)))


class NoMLP(nn.Module):
    """An MLP that returns zeros, for a block without an MLP in a model whose other blocks have one.

    TransformerLens's decompositions need an MLP output in every block.
    """

    def forward(self, x: Float[Tensor, "rows length d_model"]) -> Float[Tensor, "rows length d_model"]:
        return torch.zeros_like(x)


def make_final_norm(spec: ModelSpec, cfg: HookedTransformerConfig) -> LayerNorm | RMSNorm:
    """Build the norm between the last block and the readout."""
    norm_cfg = copy.copy(cfg)
    norm_cfg.eps = spec.layers[-1].norm_eps
    return RMSNorm(norm_cfg) if spec.final_norm == "rms_norm" else LayerNorm(norm_cfg)


def make_block(spec: ModelSpec, cfg: HookedTransformerConfig, index: int) -> TransformerBlock:
    """Build block `index` of a spec. It shares the model's config, so that switches like use_attn_result affect it."""
    layer = spec.layers[index]
    block = PostNormBlock(cfg, index) if layer.norm == "post" else TransformerBlock(cfg, index)
    block.attn = make_attention(spec, cfg, index)
    layer_cfg = copy.copy(cfg)
    layer_cfg.eps = layer.norm_eps

    def norm() -> nn.Module:
        if layer.norm == "none":
            return nn.Identity()
        return RMSNorm(layer_cfg) if layer.norm_kind == "rms" else LayerNorm(layer_cfg)

    # If the model has a final norm, TransformerLens has built norms into the block; replace them.
    block.ln1 = norm()
    if layer.mlp is not None:
        block.mlp = make_mlp(layer.mlp, layer_cfg)
        block.ln2 = norm()
    elif not cfg.attn_only:
        block.mlp, block.ln2 = NoMLP(), nn.Identity()  # type: ignore[assignment]
    return block


def make_mlp(mlp: MLP, cfg: HookedTransformerConfig) -> PlainMLP | GatedMLP:
    """Build the MLP. Missing biases are constant zeros."""
    mlp_cfg = copy.copy(cfg)
    mlp_cfg.d_mlp, mlp_cfg.act_fn, mlp_cfg.gated_mlp = mlp.d_mlp, mlp.activation, mlp.gated
    module = GatedMLP(mlp_cfg) if mlp.gated else PlainMLP(mlp_cfg)
    for name in () if mlp.bias else ("b_in", "b_out"):
        zero = torch.zeros_like(getattr(module, name).detach())
        delattr(module, name)
        module.register_buffer(name, zero, persistent=False)
    return module


class ReluReadout(nn.Module):
    """An MLP from the residual stream to the outputs, with one hidden ReLU layer.

    hook_in, hook_pre, hook_post and hook_out see its input, the neurons before and after ReLU, and its output.
    """

    def __init__(self, cfg: HookedTransformerConfig, width: int) -> None:
        super().__init__()
        self.W_in = nn.Parameter(torch.zeros(cfg.d_model, width, dtype=cfg.dtype))
        self.b_in = nn.Parameter(torch.zeros(width, dtype=cfg.dtype))
        self.W_out = nn.Parameter(torch.zeros(width, cfg.d_vocab_out, dtype=cfg.dtype))
        self.b_out = nn.Parameter(torch.zeros(cfg.d_vocab_out, dtype=cfg.dtype))
        self.hook_in, self.hook_pre, self.hook_post, self.hook_out = (HookPoint() for _ in range(4))

    def forward(self, residual: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows n_out"]:
        hidden = self.hook_pre(self.hook_in(residual) @ self.W_in + self.b_in)
        return self.hook_out(self.hook_post(hidden.relu()) @ self.W_out + self.b_out)


class LinearReadout(Unembed):
    """TransformerLens's unembedding. Without a bias, b_U is a constant zero."""

    def __init__(self, cfg: HookedTransformerConfig, bias: bool) -> None:
        super().__init__(cfg)
        if not bias:
            zero = torch.zeros_like(self.b_U.detach())
            del self.b_U
            self.register_buffer("b_U", zero, persistent=False)


class TiedReadout(LinearReadout):
    """The transposed embedding as unembedding. Its only parameter is the bias."""

    def __init__(self, cfg: HookedTransformerConfig, bias: bool, embed: nn.Module) -> None:
        super().__init__(cfg, bias)
        del self._parameters["W_U"]
        # Bypasses nn.Module, so that the embedding is not registered as a submodule twice.
        object.__setattr__(self, "_embed", embed)

    @property
    def W_U(self) -> Float[Tensor, "d_model n_out"]:  # type: ignore[override]
        embed: Any = self._embed
        transposed: Tensor = embed.W_E.T
        return transposed


class NoPositions(nn.Module):
    """Position embeddings of zeros, without a parameter or a length limit."""

    W_pos: Tensor

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        self.d_model = cfg.d_model
        self.register_buffer("W_pos", torch.zeros(0, cfg.d_model, dtype=cfg.dtype), persistent=False)

    def forward(
        self, tokens: Int[Tensor, "rows length"], past_kv_pos_offset: int = 0, attention_mask: Tensor | None = None
    ) -> Float[Tensor, "rows length d_model"]:
        return self.W_pos.new_zeros(1, 1, self.d_model).expand(*tokens.shape, self.d_model)


class FormulaPositions(NoPositions):
    """Position codes from a formula of i and n. n excludes padding if an attention mask is given."""

    def __init__(self, cfg: HookedTransformerConfig, formula: Formula) -> None:
        super().__init__(cfg)
        self.formula = formula

    def forward(
        self, tokens: Int[Tensor, "rows length"], past_kv_pos_offset: int = 0, attention_mask: Tensor | None = None
    ) -> Float[Tensor, "rows length d_model"]:
        rows, length = tokens.shape
        i = torch.arange(past_kv_pos_offset, past_kv_pos_offset + length, device=tokens.device).expand(rows, -1)
        if attention_mask is None:
            n = i.new_full((rows, 1), past_kv_pos_offset + length)
        else:
            n = attention_mask.sum(1, keepdim=True).to(i).clamp(min=1)  # a row may be all padding
        # Evaluate in float64: float32 angles are inaccurate at lengths in the thousands.
        return self.formula(i.double(), n.double(), self.d_model).to(self.W_pos.dtype)


class LearnedPositions(NoPositions):
    """A learned table with max_length rows."""

    def __init__(self, cfg: HookedTransformerConfig, max_length: int) -> None:
        super().__init__(cfg)
        del self._buffers["W_pos"]
        self.W_pos = nn.Parameter(torch.zeros(max_length, cfg.d_model, dtype=cfg.dtype))

    def forward(
        self, tokens: Int[Tensor, "rows length"], past_kv_pos_offset: int = 0, attention_mask: Tensor | None = None
    ) -> Float[Tensor, "rows length d_model"]:
        rows = self.W_pos[past_kv_pos_offset : past_kv_pos_offset + tokens.shape[1]]
        return rows.expand(len(tokens), -1, -1)


def make_positions(spec: ModelSpec, cfg: HookedTransformerConfig) -> NoPositions:
    """Build the module that replaces `pos_embed`."""
    if spec.positions == "none" or spec.positions_enter == "attention":
        return NoPositions(cfg)
    if spec.positions == "learned":
        return LearnedPositions(cfg, spec.max_length or 0)
    return FormulaPositions(cfg, position_formula(spec.positions))
