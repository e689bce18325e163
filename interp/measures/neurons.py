"""Neurons that matter: the effect of ablating each, and its response to features.

The neurons are those of every MLP (mlp.hook_post) and of a ReLU readout (unembed.hook_post). Ablation is by the mean,
as in `ablate`. Only the most promising neurons are ablated: those with the largest product of the activation's standard
deviation and the norm of the output weights.
"""

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import InterpError, UnsupportedError, one_of
from interp.measures.ablation import scores_without
from interp.measures.runs import Neuron, at_reads, has_mlp, neuron_layers, reads_of
from interp.measures.subject import Model, Subject
from interp.tasks import Batch


def no_neurons(subject: Subject) -> str | None:
    """Return the reason why the model has no neurons to measure, or None."""
    if neuron_layers(subject):
        return None
    if any(map(has_mlp, subject.model.blocks)):
        return "the model's MLPs choose among experts, whose neurons do not run on every input"
    return "the model has neither an MLP nor a readout with neurons"


@torch.no_grad()
def neurons_that_matter(model: Model, batch: Batch, n: int = 24) -> pd.DataFrame:
    """Ablate the n most promising neurons one by one; the most important one comes first.

    Columns: neuron (its name), layer, index, accuracy and loss (of the whole model without it), change (of the loss),
    active (share of the reads where its activation is above 0), mean and spread of its activation at the reads.
    Raises UnsupportedError for a model without neurons.
    """
    subject = Subject.of(model)
    if (reason := no_neurons(subject)) is not None:
        raise UnsupportedError(reason)
    stats = {layer: _statistics(subject, batch, layer) for layer in neuron_layers(subject)}
    candidates = []
    for layer, module in neuron_layers(subject).items():
        _mean, spread, _ = stats[layer]
        length = module.W_out.detach().double().cpu().norm(dim=1)
        candidates += [(float(s * w), Neuron(layer, i)) for i, (s, w) in enumerate(zip(spread, length))]
    candidates.sort(key=lambda pair: -pair[0])
    chosen = [neuron for _, neuron in candidates[:n]]
    whole, *scores = scores_without(subject, [[], *([neuron] for neuron in chosen)], batch)
    table = pd.DataFrame(
        {
            "neuron": [str(neuron).removeprefix("neuron ") for neuron in chosen],
            "layer": pd.array([neuron.layer for neuron in chosen], dtype="Int64"),
            "index": [neuron.index for neuron in chosen],
            "accuracy": [score.accuracy for score in scores],
            "loss": [score.loss for score in scores],
            "change": [score.loss - whole.loss for score in scores],
            "active": [float(stats[neuron.layer][2][neuron.index]) for neuron in chosen],
            "mean": [float(stats[neuron.layer][0][neuron.index]) for neuron in chosen],
            "spread": [float(stats[neuron.layer][1][neuron.index]) for neuron in chosen],
        }
    )
    table = table.sort_values(["accuracy", "loss"], ascending=[True, False], kind="stable").reset_index(drop=True)
    table.attrs |= {"accuracy": whole.accuracy, "loss": whole.loss, "neurons": len(candidates), "inputs": len(batch)}
    return table


def _statistics(subject: Subject, batch: Batch, layer: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mean, standard deviation and share above 0 of each neuron of a layer, over the reads."""
    found = at_neurons(subject, batch, layer)
    return found.mean(0), found.std(0, correction=0), (found > 0).double().mean(0)


def at_neurons(subject: Subject, batch: Batch, layer: int | None) -> Float[Tensor, "reads neurons"]:
    """Return the activations of all neurons of a layer (None: the readout) at the reads, in float64."""
    name = Neuron(layer, 0).hook
    return at_reads(subject, batch, [name])[name]


def feature_at_reads(subject: Subject, batch: Batch, name: str) -> Tensor:
    """Return a named feature of the task at every read: the value for its row, or for its position."""
    known = subject.task.features(batch)
    if name not in known:
        raise InterpError(one_of(f"feature of task {subject.task.name}", name, known))
    return value_at_reads(subject, batch, f"feature {name} of task {subject.task.name}", known[name])


def value_at_reads(subject: Subject, batch: Batch, what: str, value: Tensor) -> Tensor:
    """Return a value at every read, given for each row or for each position. Raises InterpError for other shapes."""
    where, value = reads_of(subject, batch), value.cpu()
    if value.shape not in ((len(batch),), tuple(batch.tokens.shape)):
        raise InterpError(
            f"{what} has shape {tuple(value.shape)}; it must be ({len(batch)},), a value for each row, or "
            f"{tuple(batch.tokens.shape)}, one for each position"
        )
    return value[where.rows] if value.ndim == 1 else value[where.rows, where.positions]


@torch.no_grad()
def response(model: Model, batch: Batch, neuron: Neuron, features: tuple[str, ...]) -> pd.DataFrame:
    """Average a neuron's activation over the reads with each value of one or more features.

    Columns: the features, activation, spread (standard deviation), reads.
    """
    subject = Subject.of(model)
    frame = pd.DataFrame({name: feature_at_reads(subject, batch, name).numpy() for name in features})
    frame["activation"] = at_neurons(subject, batch, neuron.layer)[:, neuron.index].numpy()
    grouped = frame.groupby(list(features))["activation"]
    spread = grouped.std(ddof=0).to_numpy()
    return grouped.mean().reset_index().assign(spread=spread, reads=grouped.size().to_numpy())
