"""Position parts: none, a learned table, sinusoids, or a formula of (i, n). Each replaces `pos_embed`.

TransformerLens has no position type "none"; a module of zeros in the place of the table is the one way of several
tried in which lengths are unlimited, weight decay sees nothing, and every helper keeps working.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from interp._lens import HookedTransformerConfig
from interp.architecture.formulas import Formula, position_formula
from interp.architecture.formulas import register_positions as register_positions
from interp.spec import ModelSpec


class NoPositions(nn.Module):
    """Zeros: there are no positions, no parameter, and no limit on the length."""

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
    """positions(i, n), with n the true length of each row where a mask says it."""

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
        # Formulas are evaluated in float64 and rounded once: float32 angles are wrong at lengths in the thousands.
        return self.formula(i.double(), n.double(), self.d_model).to(self.W_pos.dtype)


class LearnedPositions(NoPositions):
    """A table of max_length rows."""

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
    """The module that takes the place of `pos_embed`."""
    if spec.positions == "none" or spec.positions_enter == "attention":
        return NoPositions(cfg)
    if spec.positions == "learned":
        return LearnedPositions(cfg, spec.max_length or 0)
    return FormulaPositions(cfg, position_formula(spec.positions))
