"""Logits of modular addition as sums of cosines, and the loss with only these waves and without them.

Nanda et al. 2023, section 4: if a model adds a and b modulo p, its logit for an answer c is approximately a sum of
cos(2 pi k (a + b - c) / p) over a few key frequencies k. The restricted loss keeps only the constant and the key waves
in a + b. The excluded loss removes these waves.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import InterpError
from interp.support import words

KEY = 0.95
"""Share of the power of all cosines that the key waves must have."""


@dataclass(frozen=True)
class KeyWaves:
    """The key frequencies of logits, strongest first, and their effect.

    share: share of the logits' variance explained by cosines of a + b - c at these frequencies. loss, restricted,
    excluded: mean loss in nats of all logits, of the key waves only, and without them. kept: share of the model's
    answers that the key waves alone give.
    """

    modulus: int
    frequencies: tuple[int, ...]
    share: float
    loss: float
    restricted: float
    excluded: float
    kept: float

    def __str__(self) -> str:
        named = f"cos(2πk(a + b − c)/{self.modulus}) for k = {words.joined(map(str, sorted(self.frequencies)))}"
        share, kept = words.portion(self.share), words.portion(self.kept)
        return (
            f"The output for an answer c is a sum of waves {named}: these cosines explain {share} of the variance of "
            f"the logits. The waves in a + b at these frequencies alone keep {kept} of the model's answers, with a "
            f"loss of {self.restricted:.3g} nats; all logits have {self.loss:.3g}, all but these waves "
            f"{self.excluded:.3g}."
        )


def waves(logits: Float[Tensor, "inputs p"], sums: Int[Tensor, "inputs"], most: int = 12) -> KeyWaves:
    """Find the fewest waves that have the share KEY of the power of all cosines, but at most `most`, and their effect.

    logits: for all pairs of numbers below p, or a sample with every sum. sums: a + b modulo p, the right answers.
    Raises InterpError if a sum is missing.
    """
    p = logits.shape[1]
    often = torch.bincount(sums, minlength=p)
    if len(often) > p or bool((often == 0).any()):
        raise InterpError(f"waves need every sum from 0 to {p - 1} among the inputs")
    values = logits.double() - logits.double().mean(1, keepdim=True)  # a constant over answers has no effect
    means = torch.zeros(p, p, dtype=torch.float64).index_add_(0, sums, values) / often[:, None]
    strength = cosines(means)
    power = strength**2
    order = power.argsort(descending=True, stable=True)
    enough = int((power[order].cumsum(0) < KEY * power.sum()).sum()) + 1
    chosen = tuple(int(k) + 1 for k in order[: min(enough, most)])
    key = key_waves(means, chosen)
    kept = float(((means.mean(0) + key)[sums].argmax(1) == values.argmax(1)).double().mean())
    centered = values - values.mean(0)
    share = float((strength[[k - 1 for k in chosen]] ** 2).sum() / 2 * p / (centered**2).mean(0).sum())
    return KeyWaves(
        p, chosen, min(1.0, share), loss_of(values, sums), loss_of((means.mean(0) + key)[sums], sums),
        loss_of(values - key[sums], sums), kept,
    )  # fmt: skip


def cosines(means: Float[Tensor, "p p"]) -> Float[Tensor, "frequencies"]:
    """Compute the amplitude of cos(2 pi k (s - c) / p), k >= 1, in the mean logits of each sum s and answer c."""
    p = len(means)
    number = torch.arange(p)
    along = torch.stack([means[(number + shift) % p, number].mean() for shift in range(p)])  # by s - c
    return 2 * torch.fft.rfft(along).real[1 : (p - 1) // 2 + 1] / p


def key_waves(means: Float[Tensor, "p p"], frequencies: Sequence[int]) -> Float[Tensor, "p p"]:
    """Keep only the waves in the sum at these frequencies, for each answer."""
    spectrum = torch.fft.rfft(means, dim=0)
    only = torch.zeros_like(spectrum)
    only[list(frequencies)] = spectrum[list(frequencies)]
    return torch.fft.irfft(only, n=len(means), dim=0)


def loss_of(logits: Float[Tensor, "inputs p"], right: Int[Tensor, "inputs"]) -> float:
    return float(torch.nn.functional.cross_entropy(logits, right))
