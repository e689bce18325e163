"""Readouts that replace `unembed`."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp._lens import HookedTransformerConfig, HookPoint, Unembed


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
