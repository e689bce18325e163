"""Position modules that replace `pos_embed`: zeros, a learned table, or a formula of (i, n).

TransformerLens has no position type "none". With a module that returns zeros, lengths are unlimited, there is no
parameter, and all helpers of TransformerLens work.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from interp._lens import HookedTransformerConfig
from interp.architecture.formulas import Formula, position_formula
from interp.architecture.formulas import register_positions as register_positions
from interp.spec import ModelSpec


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
