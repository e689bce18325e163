"""Geometry of embeddings: principal components, cosines, and Fourier power of tokens that form a cycle.

If a task adds its tokens modulo p, a model may represent them as waves (Nanda et al. 2023). Each dimension of the
embedding is then a function of the token with its power at few frequencies; likewise for the readout and for neurons.
The mean over the cycle is subtracted first, and power is given as shares that sum to 1 over frequencies 1 to p // 2.
"""

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from interp.errors import UnsupportedError
from interp.measures.components import readout_map
from interp.measures.runs import at_reads, neuron_layers, reads_of
from interp.models.architecture.task_model import TaskModel
from interp.models.subject import Model, Subject
from interp.tasks import Batch


def token_vectors(model: Model) -> Float[Tensor, "tokens d_model"]:
    """Return the embeddings of the task's tokens, in the task's order, in float64."""
    subject = Subject.of(model)
    table = subject.model.embed.W_E.detach().double().cpu()
    return table if subject.token_ids is None else table[subject.token_ids.cpu()]


def principal_components(vectors: Float[Tensor, "rows d"], n: int = 3) -> tuple[Float[ndarray, "rows n"], ndarray]:
    """Return coordinates along the first n principal components, and every component's share of the variance."""
    centered = (vectors - vectors.mean(0)).numpy()
    u, s, _ = np.linalg.svd(centered, full_matrices=False)
    total = float((s**2).sum())
    coordinates = np.pad(u[:, :n] * s[:n], ((0, 0), (0, max(0, n - len(s)))))
    return coordinates, s**2 / total if total > 0 else np.zeros_like(s)


def cosines(vectors: Float[Tensor, "rows d"]) -> Float[ndarray, "rows rows"]:
    """Return the cosine of the angle between every two rows; NaN for rows of zeros."""
    lengths = vectors.norm(dim=1, keepdim=True)
    unit = torch.where(lengths > 0, vectors / lengths, torch.nan)
    return (unit @ unit.T).numpy()


def fourier_power(rows: Float[Tensor, "p features"]) -> Float[ndarray, "frequencies features"]:
    """Return the shares of each feature's power, without its mean, at frequencies 1 to p // 2; zeros for a constant."""
    centered = (rows - rows.mean(0)).numpy()
    power = np.abs(np.fft.rfft(centered, axis=0)) ** 2
    if len(rows) % 2 == 0:
        power[-1] /= 2  # the highest frequency has no partner of the opposite sign
    total = power[1:].sum(0)
    constant = total <= 1e-20 * max(1.0, float((rows**2).sum()))
    return np.where(constant, 0.0, power[1:] / np.where(constant, 1.0, total))


def spectra(model: Model) -> pd.DataFrame:
    """Measure Fourier power of embedding and readout on every cyclic group; columns group, what, frequency, power.

    power: summed over dimensions, as a share of the total power of the group's vectors. Raises UnsupportedError if the
    task declares no cyclic group.
    """
    subject = Subject.of(model)
    if not subject.task.cyclic:
        raise UnsupportedError(f"task {subject.task.name} declares no tokens on which addition acts (Task.cyclic)")
    frames = []
    tables = {"embedding": (token_vectors(subject), list(subject.task.vocabulary))}
    has_neurons = isinstance(subject.model, TaskModel) and subject.model.spec.readout == "relu_mlp"
    if not has_neurons and len(outputs := readout_map(subject)[0].T) == len(subject.task.answer_words):
        tables["readout"] = (outputs, list(subject.task.answer_words))
    for group, words in subject.task.cyclic.items():
        for what, (vectors, names) in tables.items():
            if any(word not in names for word in words):
                continue
            rows = vectors[[names.index(word) for word in words]]
            centered = rows - rows.mean(0)
            weight = (centered**2).sum(0).numpy()
            total = weight.sum()
            power = fourier_power(rows) @ weight / total if total > 0 else np.zeros(len(words) // 2)
            frequencies = range(1, len(power) + 1)
            frames.append(pd.DataFrame({"group": group, "what": what, "frequency": frequencies, "power": power}))
    return pd.concat(frames, ignore_index=True)


@torch.no_grad()
def output_spectra(model: Model, batch: Batch) -> pd.DataFrame:
    """Measure the share of the outputs' variance that waves around the right answer explain.

    Columns group, frequency, power. The outputs of each read, minus their mean, are a function of x = (output - right
    answer) mod p. The power at frequency k is the variance of the wave a cos(2 pi k x / p) + b sin(2 pi k x / p), with
    a and b shared by all reads, as a share of the variance over all reads. On all pairs of modular addition, this is
    the share of the logits at cos(2 pi k (a + b - c) / p) (Nanda et al. 2023). Groups whose tokens are not the answers
    are left out. Raises UnsupportedError if no group is left.
    """
    subject = Subject.of(model)
    groups = {g: words for g, words in subject.task.cyclic.items() if tuple(words) == tuple(subject.task.answer_words)}
    if not groups:
        raise UnsupportedError(f"the answers of task {subject.task.name} are not tokens on which addition acts")
    p = subject.task.n_out
    k = torch.arange(1, p // 2 + 1)
    outputs, classes = subject.logits(batch).double()[:, :p], reads_of(subject, batch).classes
    transforms = torch.fft.fft(outputs - outputs.mean(1, keepdim=True))[:, k]
    wave = (transforms * torch.exp(2j * torch.pi * (k * classes[:, None]).double() / p)).sum(0)
    total = float(_both(transforms, p).sum())
    power = (_both(wave, p) / len(classes) / total).numpy() if total > 0 else np.zeros(len(k))
    return pd.concat(
        [pd.DataFrame({"group": group, "frequency": k.numpy(), "power": power}) for group in groups], ignore_index=True
    )


def _both(transform: Tensor, p: int) -> Float[Tensor, "... frequencies"]:
    """Return the summed power at frequencies 1 to p // 2 and their negatives; p / 2 equals its negative."""
    power = 2 * transform.abs() ** 2
    if p % 2 == 0:
        power[..., -1] /= 2
    return power


def cycle_place(model: Model, batch: Batch, group: str) -> int | None:
    """Return the first position at which every token of a cycle occurs in the batch, or None; None without an MLP."""
    subject = Subject.of(model)
    ids = torch.tensor([subject.task.token_id(word) for word in subject.task.cyclic[group]])
    if not _layers(subject):
        return None
    seen = ((batch.tokens[..., None].cpu() == ids) & batch.attention_mask.cpu()[..., None]).any(0).all(-1)
    return int(seen.int().argmax()) if bool(seen.any()) else None


def _layers(subject: Subject) -> list[int]:
    """Return the layers whose MLP has neurons."""
    return [layer for layer in neuron_layers(subject) if layer is not None]


@torch.no_grad()
def neuron_spectra(model: Model, batch: Batch, group: str, position: int) -> pd.DataFrame:
    """Measure the Fourier power of each neuron's mean activation as a function of the token at one position.

    Columns layer, neuron, frequency (the strongest), power (its share), size (the mean activation's standard deviation
    over the cycle). The mean is over the reads of rows with that token at the position. Raises UnsupportedError if some
    tokens of the group do not occur at the position, and if there is no MLP.
    """
    subject = Subject.of(model)
    words = subject.task.cyclic[group]
    layers = _layers(subject)
    if not layers:
        raise UnsupportedError("the model has no MLP, so it has no neurons")
    ids = torch.tensor([subject.task.token_id(word) for word in words])
    names = [f"blocks.{layer}.mlp.hook_post" for layer in layers]
    seen = at_reads(subject, batch, names)
    of = (batch.tokens[:, position].cpu()[reads_of(subject, batch).rows][:, None] == ids).double()
    number = of.sum(0)
    if bool((number == 0).any()):
        missing = words[int((number == 0).int().argmax())]
        raise UnsupportedError(f"token {missing!r} of the cycle {group} does not occur at position {position}")
    frames = []
    for layer, name in zip(layers, names):
        mean = of.T @ seen[name] / number[:, None]
        power = fourier_power(mean)
        best = power.argmax(0)
        frames.append(
            pd.DataFrame(
                {
                    "layer": layer,
                    "neuron": range(mean.shape[1]),
                    "frequency": best + 1,
                    "power": power[best, np.arange(mean.shape[1])],
                    "size": mean.std(0, correction=0).numpy(),
                }
            )
        )
    return pd.concat(frames, ignore_index=True)
