"""What a head reads at the attended position: the token, its number, the position, or token and position.

The ideal form replaces the head's value vectors by their means over all positions with the same token (or position, or
both), or, for number tokens, by a linear fit. If the answers stay the same, the model uses nothing else of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.measures.runs import Hook, Part
from interp.mechanisms.base import Proposal, mechanism
from interp.mechanisms.bench import Bench
from interp.mechanisms.carries import cell_means, coded, explained
from interp.mechanisms.quantities import Quantity


@dataclass(frozen=True)
class Values:
    """Value vectors of one head at all positions."""

    part: Part
    values: Float[Tensor, "rows length d"]

    def hooks(self, bench: Bench, rows: slice) -> list[Hook]:
        def put(activation: Tensor, hook: Any) -> Tensor:
            activation = activation.clone()
            activation[:, :, self.part.head] = self.values[rows].to(activation)
            return activation

        return [(hook_of(self.part), put)]


def hook_of(part: Part) -> str:
    return f"blocks.{part.layer}.attn.hook_v"


@mechanism("moves", of="inside")
def moves(bench: Bench, part: Part) -> Iterator[Proposal]:
    """Propose what a head reads: a constant, the token, its number, the position, or token and position."""
    model, setting = bench.subject.model, bench.setting
    if part.head is None or hook_of(part) not in model.hook_dict:
        return
    every = bench.activation(hook_of(part))
    if every.ndim != 4 or every.shape[2] != model.cfg.n_heads:  # several query heads share these values
        return
    values, mask = every[:, :, part.head], bench.view.mask
    content = bench.view.content
    if content.any():  # if this keeps the answers, the model uses no other variation, so the fit does not matter
        alike = torch.where(content[:, :, None], values[content].mean(0), token_means(bench, values))
        words, constants = "reads the same from every token of the string", 1 + len(setting.marks)
        yield Proposal("moves, constant", "inside", part, words, Values(part, alike), constants)
    own, position = Quantity(setting, "own"), Quantity(setting, "position")
    for of, words in (
        ((own,), "reads the attended token"),
        ((position,), "reads the attended position"),
        *(((one,), f"reads {one.brief}, as known at the attended position") for one in bench.hints if one != own),
        ((own, position), "reads the attended token and its position"),
    ):
        codes = coded(of, bench, mask)
        if codes is None:
            continue
        means = cell_means(values, codes, mask)
        ideal = torch.where(mask[:, :, None], means[codes], values)
        fit = explained(values[mask].double(), codes[mask])
        yield Proposal("moves", "inside", part, words, Values(part, ideal), len(means), fit)
    if setting.numbers:
        ideal = linear(bench, values)
        rest = float(((values - ideal)[mask] ** 2).sum())
        spread = float(((values - values[mask].mean(0))[mask] ** 2).sum())
        words = "reads the attended number along one direction"
        yield Proposal("moves, linear", "inside", part, words, Values(part, ideal), 2 + len(setting.marks),
                       1 - rest / spread if spread > 0 else 0.0)  # fmt: skip


def linear(bench: Bench, values: Float[Tensor, "rows length d"]) -> Float[Tensor, "rows length d"]:
    """Fit the values as a linear function of each token's number; marks get their mean."""
    view = bench.view
    content, mask = view.content, view.mask
    numbers, targets = view.values[content].double(), values[content].double()
    centered = numbers - numbers.mean()
    slope = (centered[:, None] * targets).sum(0) / (centered**2).sum().clamp(min=1e-12)
    line = targets.mean(0) + (view.values.double() - numbers.mean())[:, :, None] * slope
    return torch.where(
        content[:, :, None], line.float(), torch.where(mask[:, :, None], token_means(bench, values), values)
    )


def token_means(bench: Bench, values: Float[Tensor, "rows length d"]) -> Float[Tensor, "rows length d"]:
    """Return the mean value vector of each token."""
    codes = bench.view.tokens.masked_fill(~bench.view.mask, 0)
    return cell_means(values, codes, bench.view.mask)[codes]
