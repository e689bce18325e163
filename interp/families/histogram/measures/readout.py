"""The readout of histogram models: artificial mixtures, singular values, logits, and single neurons.

Supports the same models as `counting.py`. Source: Behrens et al. (2024), Figures 3 to 6, 8, 9, 15.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import InterpError, UnsupportedError
from interp.families.histogram.measures.counting import Counting, CountingModel, flat_sample
from interp.families.histogram.measures.relation_or_inventory import cell_means, count_response

# ---------------------------------------------------------------- artificial mixtures


def probe_two(model: Counting, own: str = "1", other: str = "2", steps: int = 101) -> pd.DataFrame:
    """Return the readout's answer to e_own + total (alpha v_key + (1 - alpha) v_other), for alpha from 0 to 1.

    Columns alpha, answer, own, key, other. key is [BOS] if the task has it (Figures 3 and 15 test whether the answer
    depends only on its share), otherwise the own token. total: see `total_attention`. Raises InterpError for tokens
    outside the alphabet or equal tokens.
    """
    counter = CountingModel.of(model)
    key = "[BOS]" if counter.task.bos else own
    ids = [_letter(counter, token) for token in (own, other)]
    _distinct(own, other)
    alpha = torch.linspace(0, 1, steps, dtype=torch.float64)
    key_value = counter.value[counter.task.token_id(key)]
    mixture = alpha[:, None] * key_value + (1 - alpha[:, None]) * counter.value[ids[1]]
    answers = counter.counts(counter.embedding[ids[0]] + total_attention(counter) * mixture)
    return pd.DataFrame({"alpha": alpha.numpy(), "answer": answers.numpy(), "own": own, "key": key, "other": other})


def probe_three(model: Counting, own: str = "1", others: tuple[str, str] = ("2", "3"), steps: int = 41) -> pd.DataFrame:
    """Return the readout's answer to e_own + total (a v_own + b v_1 + c v_2), a + b + c = 1 (Figures 4 and 5, right).

    Columns own_share (a), other_share (b), answer, on a grid with a + b <= 1. With an inventory, the answer depends on
    a, but hardly on b. Raises InterpError for tokens outside the alphabet or equal tokens.
    """
    counter = CountingModel.of(model)
    ids = [_letter(counter, token) for token in (own, *others)]
    _distinct(own, *others)
    grid = torch.linspace(0, 1, steps, dtype=torch.float64)
    a, b = (axis.flatten() for axis in torch.meshgrid(grid, grid, indexing="ij"))
    inside = a + b <= 1 + 1e-9
    shares = torch.stack([a, b, 1 - a - b], 1)[inside]
    answers = counter.counts(counter.embedding[ids[0]] + total_attention(counter) * (shares @ counter.value[ids]))
    return pd.DataFrame({"own_share": shares[:, 0], "other_share": shares[:, 1], "answer": answers})


def total_attention(counter: CountingModel) -> float:
    """Return the total attention of a position: 1 with softmax; with linear mixing, the mean row sum of its matrix.

    Raises UnsupportedError for raw scores, whose sum depends on the count.
    """
    layer = counter.model.spec.layers[0]
    if layer.normalizer == "softmax":
        return 1.0
    if layer.mixing == "linear":
        mix: Any = counter.model.blocks[0].attn.W_mix
        return float(mix.detach().double().sum(-1).mean())
    raise UnsupportedError("raw scores have no fixed sum, so there are no artificial mixtures with given shares")


def _letter(counter: CountingModel, token: str) -> int:
    number = counter.task.token_id(token)
    if number >= counter.task.T:
        raise InterpError(f"{token!r} is not a token of the alphabet 0 to {counter.task.T - 1}")
    return number


def _distinct(*tokens: str) -> None:
    if len(set(tokens)) < len(tokens):
        raise InterpError(f"a mixture needs different tokens, not {', '.join(tokens)}")


# ---------------------------------------------------------------- singular values of W_in


@dataclass(frozen=True)
class Spectrum:
    """Singular values of the readout's first matrix (the paper's W1) in decreasing order, and the dip after the T-th.

    dip: s_T / s_(T+1). usual: the median of the other ratios s_i / s_(i+1). Both are NaN if there are at most T values.
    Inventories have a dip far above the usual ratio (Figure 6), but a dip does not prove an inventory.
    """

    values: Float[Tensor, "n"]
    T: int
    dip: float
    usual: float

    def to_frame(self) -> pd.DataFrame:
        """Return columns index (from 1) and value."""
        return pd.DataFrame({"index": np.arange(1, len(self.values) + 1), "value": self.values.numpy()})


def readout_spectrum(model: Counting) -> Spectrum:
    """Compute the singular values of W_in, (d_model, p)."""
    counter = CountingModel.of(model)
    values, T = torch.linalg.svdvals(counter.W_in), counter.task.T
    if len(values) <= T:
        return Spectrum(values, T, float("nan"), float("nan"))
    ratios = values[:-1] / values[1:].clamp(min=1e-300)
    usual = values[1:] > 1e-12 * values[0]  # ratios of rounding errors are meaningless
    usual[T - 1] = False
    return Spectrum(values, T, float(ratios[T - 1]), float(ratios[usual].median()) if usual.any() else float("nan"))


# ---------------------------------------------------------------- logits and hidden values by count


def logits_by_count(model: Counting, tokens: Sequence[str] = ("1", "2", "3"), other: str | None = None) -> pd.DataFrame:
    """Return logits at the first position of [t, ..., t, v, ..., v] with k copies of t, for k = 1..L (Figures 8, 9).

    other: the token v (default: the token before t in the alphabet). Columns token, other, count (k), answer (the count
    of the class), logit.
    """
    counter, frames = CountingModel.of(model), []
    task = counter.task
    for token in tokens:
        t = _letter(counter, token)
        v = (t - 1) % task.T if other is None else _letter(counter, other)
        if task.L > 1:
            _distinct(token, task.vocabulary[v])
        rows = torch.where(torch.arange(task.L) < torch.arange(1, task.L + 1)[:, None], t, v)
        run = counter.run(task.of_sequences(rows))
        logits = counter.logits(run.mixed[:, int(task.bos)])
        count, classes = (index.ravel() for index in np.indices(logits.shape))
        answers = classes + (0 if task.zero_class else 1)
        frames.append(
            pd.DataFrame({"token": token, "other": task.vocabulary[v], "count": count + 1, "answer": answers,
                          "logit": logits.ravel().numpy()})
        )  # fmt: skip
    return pd.concat(frames, ignore_index=True)


def hidden_by_count(model: Counting, n: int = 1000, seed: int = 0) -> pd.DataFrame:
    """Return each hidden neuron's mean activation after the ReLU, over n flat-sampled sequences.

    Columns token, count, neuron, activation; pairs of token and count that do not occur are left out.
    """
    counter = CountingModel.of(model)
    run = counter.run(flat_sample(counter.task, n, seed))
    hidden = counter.hidden(run.mixed[run.read])
    means, seen = cell_means(counter, hidden, run.tokens[run.read], run.labels[run.read])
    token, count, neuron = (index.numpy() for index in (seen[..., None] > 0).expand_as(means).nonzero().T)
    words, activation = np.array(counter.task.vocabulary), means[seen > 0].ravel().numpy()
    return pd.DataFrame({"token": words[token], "count": count + 1, "neuron": neuron, "activation": activation})


# ---------------------------------------------------------------- neurons


def neuron_selectivity(model: Counting, n: int = 2000, seed: int = 0) -> pd.DataFrame:
    """Measure which tokens' counts each neuron responds to (`count_response`): one row per neuron, largest first.

    Columns: neuron; response (summed over tokens); tokens, the effective number of tokens, (sum r)^2 / sum r^2, which
    is 1 for a response to a single token and T for equal responses to all; favorite, the token with the largest
    response; share, the favorite's part of the sum. A neuron without any response has NaN for tokens and share.
    """
    counter = CountingModel.of(model)
    run = counter.run(flat_sample(counter.task, n, seed))
    hidden = counter.hidden(run.mixed[run.read])
    response = count_response(counter, hidden, run.tokens[run.read], run.labels[run.read])
    total = response.sum(0)
    live = total > 1e-9 * total.max().clamp(min=1e-300)
    shares = torch.where(live, response / total.clamp(min=1e-300), torch.nan)
    favorites = response.argmax(0)
    frame = pd.DataFrame(
        {
            "neuron": np.arange(response.shape[1]),
            "response": total.numpy(),
            "tokens": (1 / (shares**2).sum(0)).numpy(),
            "favorite": np.where(live, np.array(counter.task.vocabulary)[favorites], "none"),
            "share": shares.gather(0, favorites[None])[0].numpy(),
        }
    )
    return frame.sort_values("response", ascending=False, ignore_index=True, kind="stable")


def tokens_per_neuron(selectivity: pd.DataFrame) -> float:
    """Return the neurons' mean effective number of tokens, weighted by response."""
    live = selectivity.dropna(subset=["tokens"])
    return float(np.average(live["tokens"], weights=live["response"])) if len(live) else float("nan")
