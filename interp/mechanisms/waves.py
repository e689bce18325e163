"""Waves on a cyclic group: a part that carries a sum modulo p as cosines and sines of a few frequencies.

The ideal form replaces the output of the part by its mean for each sum, restricted to the constant and the waves of a
few frequencies (Nanda et al. 2023, section 4: the "restricted" model). The finding names the smallest number of
frequencies that keeps the answers, where the strongest are used first.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from interp import words
from interp.measures.runs import Part
from interp.mechanisms.base import Proposal, mechanism
from interp.mechanisms.bench import Bench, Given
from interp.mechanisms.carries import cell_means
from interp.mechanisms.quantities import Quantity

MOST = 12
"""Largest number of frequencies tried."""
LEAST_MODULUS = 5


@mechanism("waves", of="output")
def waves(bench: Bench, part: Part) -> Iterator[Proposal]:
    """Propose a sum modulo p as waves, with one frequency more in each proposal."""
    p = len(bench.setting.numbers)
    if p < LEAST_MODULUS or sorted(bench.setting.numbers.values()) != list(range(p)):
        return
    matters = bench.matters(part)
    quantity = Quantity(bench.setting, "sum modulo", (p, "seen"))
    codes = torch.where(matters, quantity.values(bench.view), 0)
    if len(codes[matters].unique()) < p:
        return
    means = cell_means(bench.output(part), codes, matters)
    strongest = power(means).argsort(descending=True, stable=True) + 1
    output = bench.output(part)[matters].double()
    spread = float(((output - output.mean(0)) ** 2).sum())
    for n in range(1, min(MOST, len(strongest)) + 1):
        chosen = sorted(strongest[:n].tolist())
        values = restricted(means, chosen)
        rest = float(((output - values[codes[matters]].double()) ** 2).sum())
        share = 1 - rest / spread if spread > 0 else 0.0
        frequencies = f"frequenc{'y' if n == 1 else 'ies'} {words.joined(map(str, chosen))}"
        text = f"carries {quantity.words} as waves of {frequencies}"
        facts = {"quantities": [quantity.to_json()], "frequencies": chosen, "variance": share}
        yield Proposal("waves", "output", part, text, Given(part, codes, values, matters), 2 * n, share, facts)


def power(means: Float[Tensor, "p d"]) -> Float[Tensor, "frequencies"]:
    """Return the power of each frequency from 1 to p // 2 in the means, summed over directions."""
    return torch.fft.rfft(means.double(), dim=0)[1:].abs().square().sum(1)


def restricted(means: Float[Tensor, "p d"], frequencies: list[int]) -> Float[Tensor, "p d"]:
    """Keep only the mean and the waves of these frequencies."""
    spectrum = torch.fft.rfft(means.double(), dim=0)
    kept = torch.zeros_like(spectrum)
    for k in (0, *frequencies):
        kept[k] = spectrum[k]
    return torch.fft.irfft(kept, n=len(means), dim=0).float()
