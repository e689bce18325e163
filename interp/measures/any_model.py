"""Head outputs of any HookedTransformer, on any tokens labeled with at least two classes.

Even with a final layer norm, MLPs and several layers, the logits are an exact sum of a bias and of the contributions of
all heads and other parts, each divided by the row's layer-norm scale. This is direct logit attribution with the scale
of the full run (Elhage et al. 2021); without a final norm it is Zsámboki et al.'s z_{t,i} (2025, section 5). A head's
indirect effect through later layers is not included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp._lens import HookedTransformer
from interp.errors import InterpError, UnsupportedError, of_type
from interp.measures.components import through_norm
from interp.measures.outputs import HeadOutputs, check_finite
from interp.measures.subject import budget, final_scale, no_sum


@torch.no_grad()
def from_model(
    model: HookedTransformer,
    tokens: Int[Tensor, "rows length"],
    labels: Tensor | Sequence[Any],
    position: int | Int[Tensor, "rows"] = -1,
    *,
    answers: Sequence[int] | None = None,
    layer: int | None = None,
) -> HeadOutputs:
    """Return the heads' outputs at one position per row, in float64, as input to the measures of heads.

    labels: one per row, with at least two different values. position: where the answer is read, one for all rows or one
    per row; negative values count from the end. layer: the layer of the heads (default: all heads of the model; head h
    of layer l has number l * n_heads + h). answers: the output token of each label, in increasing order of the labels
    (default: the labels are token ids). Only these logits are kept: n_out is their number, labels become 0, 1, ..., and
    learned accuracy measures the choice among them.

    Raises InterpError for tokens, labels, positions or answers that do not fit the model, and for outputs that are not
    finite; UnsupportedError if logits are not a sum over heads even with the norm's scale fixed.
    """
    check_tokens(model, tokens)
    at = positions_of(tokens, position)
    classes, index = _classes(labels, len(tokens))
    chosen = _answers(model, classes, answers)
    layers = range(model.cfg.n_layers) if layer is None else [_layer(model, layer)]
    final = f"blocks.{model.cfg.n_layers - 1}.hook_resid_post"
    kept = _run(model, tokens, at, [f"blocks.{i}.attn.hook_z" for i in layers], final)
    z = torch.cat([kept[f"blocks.{i}.attn.hook_z"] for i in layers], dim=1)
    check_finite(z)
    readout, bias = _readout(model, chosen)
    scale = kept.get("ln_final.hook_scale", torch.ones(len(z), 1, dtype=torch.float64))
    written = [model.blocks[i].attn.W_O.detach().double().cpu() @ readout for i in layers]
    contributions = torch.einsum("bhk,hkt->bht", z, torch.cat(written)) / scale[:, None]
    skip = kept[final] @ readout / scale - contributions.sum(1)
    return HeadOutputs(z, contributions, bias, skip, index)


def check_tokens(model: HookedTransformer, tokens: Tensor) -> None:
    """Raise InterpError unless these are rows of the model's token ids."""
    if not isinstance(model, HookedTransformer):
        raise InterpError(f"{of_type(model)} is not a HookedTransformer; see interp.load and interp.build")
    if tokens.ndim != 2 or 0 in tokens.shape:
        raise InterpError(f"tokens has shape {tuple(tokens.shape)}; it must be (rows, length) with at least one token")
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= model.cfg.d_vocab:
        raise InterpError(
            f"tokens has the id {low if low < 0 else high}; the model's ids are 0 to {model.cfg.d_vocab - 1}"
        )


def positions_of(tokens: Int[Tensor, "rows length"], position: int | Int[Tensor, "rows"]) -> Int[Tensor, "rows"]:
    """Return one position per row, counted from 0; a negative `position` counts from the end of the (padded) row."""
    length = tokens.shape[1]
    at = torch.as_tensor(position).cpu().long().expand(len(tokens)).clone()
    if bad := [int(p) for p in at if not -length <= p < length]:
        raise InterpError(f"position {bad[0]} is outside the rows, which have {length} tokens")
    return at % length


def _run(
    model: HookedTransformer, tokens: Tensor, at: Tensor, z_names: Sequence[str], final: str
) -> dict[str, Float[Tensor, "rows *shape"]]:
    """Return activations at hook points, at one position per row, without computing logits."""
    names = [*z_names, final, *final_scale(model)]
    cfg, length = model.cfg, tokens.shape[1]
    row_bytes = 4 * length * (cfg.n_heads * length + 4 * cfg.d_model + (cfg.d_mlp or 0))
    chunk = max(1, budget(model) // row_bytes)
    found: dict[str, list[Tensor]] = {name: [] for name in names}
    for start in range(0, len(tokens), chunk):
        here = at[start : start + chunk]
        hooks: list[Any] = [(name, _keep(found[name], here)) for name in names]
        model.run_with_hooks(tokens[start : start + chunk].to(cfg.device), return_type=None, fwd_hooks=hooks)
    return {name: torch.cat(parts) for name, parts in found.items()}


def _keep(into: list[Tensor], at: Int[Tensor, "rows"]) -> Callable[..., None]:
    def hook(activation: Tensor, hook: Any) -> None:
        rows = torch.arange(len(at), device=activation.device)
        into.append(activation[rows, at.to(activation.device)].detach().double().cpu())

    return hook


def _readout(
    model: HookedTransformer, chosen: Sequence[int]
) -> tuple[Float[Tensor, "d_model n_out"], Float[Tensor, "n_out"]]:
    """Return the matrix and bias that map the residual stream, divided by the final norm's scale, to chosen logits."""
    if (reason := no_sum(model)) is not None:
        raise UnsupportedError(reason)
    columns = model.unembed.W_U.detach()[:, list(chosen)].double().cpu()
    bias = model.unembed.b_U.detach()[list(chosen)].double().cpu()
    rows, bias = through_norm(model, columns.T, bias)
    return rows.T, bias


# ---------------------------------------------------------------- checks of arguments


def _classes(labels: Tensor | Sequence[Any], n_rows: int) -> tuple[list[Any], Int[Tensor, "rows"]]:
    """Return the different labels in order, and the index of each row's label."""
    from interp.measures.separation_data import class_indices

    index, classes = class_indices(labels, n_rows)
    return list(classes), torch.from_numpy(index).long()


def _answers(model: HookedTransformer, classes: list[Any], answers: Sequence[int] | None) -> list[int]:
    chosen = classes if answers is None else list(answers)
    named = ", ".join(map(repr, classes[:8])) + ", ..." * (len(classes) > 8)
    if len(chosen) != len(classes):
        raise InterpError(f"{len(chosen)} answers for the {len(classes)} labels {named}: give one per label")
    for answer in chosen:
        if isinstance(answer, bool) or not isinstance(answer, int) or not 0 <= answer < model.cfg.d_vocab_out:
            raise InterpError(
                f"answer {answer!r} is not an output token of the model, which has 0 to {model.cfg.d_vocab_out - 1}; "
                f"give one for each of the labels {named}: answers=(id, id, ...)"
            )
    if len(set(chosen)) < len(chosen):
        raise InterpError(f"answers = {tuple(chosen)} names one output token twice")
    return chosen


def _layer(model: HookedTransformer, layer: int) -> int:
    n_layers = model.cfg.n_layers
    if not -n_layers <= layer < n_layers:
        raise InterpError(f"layer {layer} does not exist: the model has layers 0 to {n_layers - 1}")
    return layer % n_layers
