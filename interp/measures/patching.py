"""Activation patching of heads: which head's output at the answer position distinguishes two inputs?

A clean and a corrupted input have different answers. One head's output at one position of the corrupted run is replaced
by its output in the clean run, and the rest runs normally. Uses TransformerLens's patching loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp._lens import HookedTransformer, patch_activations
from interp.errors import InterpError
from interp.measures.any_model import check_tokens, positions_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class HeadPatches:
    """Mean logit differences (right minus wrong answer of the clean input) of the clean, corrupted and patched runs.

    heads: one row per head: layer, head, difference (of the patched run), recovered (0: as corrupted, 1: as clean).
    """

    clean: float
    corrupted: float
    heads: pd.DataFrame

    def to_frame(self) -> pd.DataFrame:
        return self.heads


@torch.no_grad()
def patch_heads(
    model: HookedTransformer,
    clean: Int[Tensor, "rows length"],
    corrupted: Int[Tensor, "corrupted_rows other_length"],
    answers: tuple[int, int] | Tensor,
    position: int | Int[Tensor, "rows"] = -1,
    corrupted_position: int | Int[Tensor, "rows"] | None = None,
) -> HeadPatches:
    """Patch each head's output (hook_z) at the answer position from the clean into the corrupted run, one at a time.

    clean, corrupted: pairs of inputs, row by row. answers: output tokens (right, wrong) of the clean input, one pair
    for all rows or one per row. position: where the answer is read, one for all rows or one per row; negative values
    count from the end. corrupted_position: the same for the corrupted inputs (default: position). Differences are means
    over the rows, in nats. Raises InterpError for invalid or unpaired inputs, and if the two runs do not differ.
    """
    for tokens in (clean, corrupted):
        check_tokens(model, tokens)
    if len(clean) != len(corrupted):
        raise InterpError(f"{len(clean)} clean rows and {len(corrupted)} corrupted rows do not form pairs")
    here = positions_of(clean, position)
    there = positions_of(corrupted, position if corrupted_position is None else corrupted_position)
    right, wrong = _answer_columns(model, answers, len(clean))
    rows = torch.arange(len(clean))

    def difference(logits: Float[Tensor, "rows length n_out"], at: Tensor) -> Tensor:
        read = logits.cpu()[rows, at].double()  # half precision would round the differences and their mean
        return (read[rows, right] - read[rows, wrong]).mean()

    def put(activation: Tensor, index: Sequence[int], clean_activation: Tensor) -> Tensor:
        changed = activation.clone()
        changed[rows, there, index[1]] = clean_activation[rows, here, index[1]]
        return changed

    device = model.cfg.device
    names = [f"blocks.{layer}.attn.hook_z" for layer in range(model.cfg.n_layers)]
    run: Any = model.run_with_cache(clean.to(device), names_filter=names)
    before = float(difference(run[0], here))
    after = float(difference(model.run_with_hooks(corrupted.to(device)), there))
    if abs(before - after) <= 1e-6 * max(abs(before), abs(after), 1e-30):
        raise InterpError(
            f"the clean and the corrupted run both have logit difference {before:.6g}: there is nothing to recover"
        )
    table = patch_activations(model, corrupted.to(device), run[1], lambda out: difference(out, there), put, "z")
    table["recovered"] = (table["difference"] - after) / (before - after)
    return HeadPatches(before, after, table)


def _answer_columns(
    model: HookedTransformer, answers: tuple[int, int] | Tensor, n_rows: int
) -> tuple[Int[Tensor, "rows"], Int[Tensor, "rows"]]:
    pairs = torch.as_tensor(answers).cpu().long()
    if tuple(pairs.shape) not in {(2,), (n_rows, 2)}:
        raise InterpError(f"answers has shape {tuple(pairs.shape)}, but (2,) or ({n_rows}, 2) is needed: right, wrong")
    pairs = pairs.expand(n_rows, 2)
    n_out = model.cfg.d_vocab_out
    if bad := [int(answer) for answer in pairs.flatten() if not 0 <= answer < n_out]:
        raise InterpError(f"answer {bad[0]} is not an output token of the model, which has 0 to {n_out - 1}")
    if (pairs[:, 0] == pairs[:, 1]).any():
        raise InterpError("some row's right and wrong answer are the same token")
    return pairs[:, 0], pairs[:, 1]
