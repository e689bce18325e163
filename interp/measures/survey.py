"""Tables of the parts of a model: all heads and MLPs, and the neurons that matter.

The survey gives direct effect, effect of ablation, separability, and attention of heads and MLPs. The neurons are those
of every MLP (mlp.hook_post) and of a ReLU readout (unembed.hook_post). Ablation is by the mean, as in `ablate`. Only
the most promising neurons are ablated: those with the largest product of the activation's standard deviation and the
norm of the output weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import InterpError, refuse_if
from interp.measures.ablation import AblationSetting, by_position, scores_without
from interp.measures.components import direct_logit_attribution
from interp.measures.head_types import head_types
from interp.measures.heads import outputs_of_each
from interp.measures.results import batch_of
from interp.measures.runs import Neuron, at_reads, check_answers, has_mlp, heads_of, neuron_layers, parts_of, reads_of
from interp.measures.separation import score_groups
from interp.measures.variables import chance, feature_at_reads
from interp.models.architecture.ties import leveled
from interp.models.subject import Model, Subject, no_sum
from interp.tasks import Batch

MODES = ("zero", "mean", "resample")


@torch.no_grad()
def survey(
    model: Model,
    test: Batch | None = None,
    train: Batch | None = None,
    looked: Batch | None = None,
) -> pd.DataFrame:
    """Measure every head and MLP of any model with hooks, one row per part, layer by layer.

    Columns: part (its name), kind, layer, head; effect, its mean contribution to the right output minus the best wrong
    one (NaN if outputs are not sums); accuracy_* and loss_* of the whole model with the part ablated, for each of zero,
    mean and resample; s_acc, the accuracy of a linear separator of its output at the reads (heads only); and where the
    head attends from the read positions (measures.head_types).

    test: the inputs to measure on. train: the inputs for separators and replacements. Both default to the task's data
    sets, or inputs as in populations.usual. looked: the inputs for effects and attention, which need whole sequences
    (default: `test`).

    The table's attrs: numbers of inputs (test, train, looked); accuracy of the whole model; chance, the accuracy of
    always giving the most frequent answer in `test`; by_position, whether means are per position (see
    measures.ablation); no_s_acc, the reason if s_acc is NaN.
    """
    subject = Subject.of(model)
    test, train = batch_of(subject, test), batch_of(subject, train, "train")
    looked = test if looked is None else looked
    parts = parts_of(subject)
    table = pd.DataFrame(
        {
            "part": [str(part) for part in parts],
            "kind": [part.kind for part in parts],
            "layer": [part.layer for part in parts],
            "head": pd.array([part.head for part in parts], dtype="Int64"),
        }
    )
    effects: dict[str, float] = {}
    if no_sum(subject.model) is None:
        attribution = direct_logit_attribution(subject, looked).to_frame()
        effects = dict(zip(attribution["component"], attribution["effect"]))
    table["effect"] = [effects.get(name, float("nan")) for name in table["part"]]
    for mode in MODES:
        whole, *scores = scores_without(subject, [[], *([part] for part in parts)], AblationSetting(test, mode, train))
        table[f"accuracy_{mode}"] = [score.accuracy for score in scores]
        table[f"loss_{mode}"] = [score.loss for score in scores]
    table["s_acc"], no_s_acc = _separation(subject, train, test)
    where = head_types(subject, looked, "read").to_frame().drop(columns="queries")
    table = table.merge(where.astype({"head": "Int64"}), on=["layer", "head"], how="left")
    table.attrs |= {"test": len(test), "train": len(train), "looked": len(looked)}
    table.attrs |= {"accuracy": whole.accuracy, "chance": chance(reads_of(subject, test).classes)}
    table.attrs |= {"by_position": by_position(test, train, "mean"), "no_s_acc": no_s_acc}
    return table


def separation_of_each(subjects: Sequence[Subject], train: Batch, test: Batch, C: float = 1000.0) -> list[list[float]]:
    """Return s-acc of each head of several models of one spec at the read positions, for two or more classes.

    Separators are fitted on train and measured on test. C: weight of errors in their objective. Raises InterpError for
    a single class, and for fewer reads than a head has dimensions.
    """
    names = [f"blocks.{layer}.attn.hook_z" for layer in range(subjects[0].model.cfg.n_layers)]
    features = []
    for batch in (train, test):
        if all(subject.count_space for subject in subjects) and subjects[0].read_at != "all":
            features.append([outputs.z.numpy() for outputs in outputs_of_each(subjects, batch)])
            continue
        seen = [at_reads(subject, batch, names) for subject in subjects]
        features.append([torch.cat([of_subject[name] for name in names], 1).numpy() for of_subject in seen])
    check_answers(subjects[0], reads_of(subjects[0], train).classes)
    labels = [reads_of(subjects[0], batch).classes.numpy() for batch in (train, test)]
    return [
        list(score_groups(fitted, labels[0], tested, labels[1], [(i,) for i in range(fitted.shape[1])], C=C)["s_acc"])
        for fitted, tested in zip(*features)
    ]


def _separation(subject: Subject, train: Batch, test: Batch) -> tuple[list[float], str | None]:
    """Return s-acc of each part in the order of the table (NaN for MLPs), and the reason if all are NaN."""
    reason = None
    try:
        (s_acc,) = separation_of_each([subject], train, test)
    except InterpError as error:  # one class, too few rows, outputs too badly scaled for a proof
        s_acc, reason = [float("nan")] * len(heads_of(subject)), str(error)
    ordered = iter(s_acc)
    return [float("nan") if part.head is None else next(ordered) for part in parts_of(subject)], reason


# ---------------------------------------------------------------- neurons


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
    refuse_if(no_neurons(subject))
    layers = []
    for layer, module in neuron_layers(subject).items():
        activation = at_neurons(subject, batch, layer)
        spread = activation.std(0, correction=0)
        columns = {
            "layer": pd.array([layer] * activation.shape[1], dtype="Int64"),
            "index": range(activation.shape[1]),
            "active": (leveled(activation) > 0).double().mean(0),
            "mean": activation.mean(0),
            "spread": spread,
            "promise": spread * module.W_out.detach().double().cpu().norm(dim=1),
        }
        layers.append(pd.DataFrame(columns))
    every = pd.concat(layers, ignore_index=True).sort_values("promise", ascending=False, kind="stable")
    table = every[:n].reset_index(drop=True)
    chosen = [
        Neuron(None if pd.isna(layer) else int(layer), int(i)) for layer, i in zip(table["layer"], table["index"])
    ]
    whole, *scores = scores_without(subject, [[], *([neuron] for neuron in chosen)], AblationSetting(batch))
    table = table.assign(
        neuron=[str(neuron).removeprefix("neuron ") for neuron in chosen],
        accuracy=[score.accuracy for score in scores],
        loss=[score.loss for score in scores],
        change=[score.loss - whole.loss for score in scores],
    )[["neuron", "layer", "index", "accuracy", "loss", "change", "active", "mean", "spread"]]
    table = table.sort_values(["accuracy", "loss"], ascending=[True, False], kind="stable").reset_index(drop=True)
    table.attrs |= {"accuracy": whole.accuracy, "loss": whole.loss, "neurons": len(every), "inputs": len(batch)}
    return table


def at_neurons(subject: Subject, batch: Batch, layer: int | None) -> Float[Tensor, "reads neurons"]:
    """Return the activations of all neurons of a layer (None: the readout) at the reads, in float64."""
    name = Neuron(layer, 0).hook
    return at_reads(subject, batch, [name])[name]


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
