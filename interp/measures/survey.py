"""One table of all heads and MLPs: direct effect, effect of ablation, separability, and attention."""

import pandas as pd
import torch

from interp.errors import InterpError
from interp.measures.ablation import by_position, scores_without
from interp.measures.components import direct_logit_attribution
from interp.measures.head_types import head_types
from interp.measures.outputs import head_outputs
from interp.measures.runs import at_reads, data, heads_of, parts_of, reads_of
from interp.measures.separation import SeparatorPath, score_groups
from interp.measures.subject import Model, Subject, no_sum
from interp.tasks import Batch

MODES = ("zero", "mean", "resample")


@torch.no_grad()
def survey(
    model: Model,
    test: Batch | None = None,
    train: Batch | None = None,
    seed: int = 0,
    C: float = 1000.0,
    looked: Batch | None = None,
) -> pd.DataFrame:
    """Measure every head and MLP of any model with hooks, one row per part, layer by layer.

    Columns: part (its name), kind, layer, head; effect, its mean contribution to the right output minus the best wrong
    one (NaN if outputs are not sums); accuracy_* and loss_* of the whole model with the part ablated, for each of zero,
    mean and resample; s_acc, the accuracy of a linear separator of its output at the reads (heads only); and where the
    head attends from the read positions (measures.head_types).

    test: the inputs to measure on. train: the inputs for separators and replacements. Both default to the task's data
    sets, or inputs as in populations.usual. looked: the inputs for effects and attention, which need whole sequences
    (default: `test`). C: weight of errors in the separators' objective.

    The table's attrs: numbers of inputs (test, train, looked); accuracy of the whole model; chance, the accuracy of
    always giving the most frequent answer in `test`; by_position, whether means are per position (see
    measures.ablation); no_s_acc, the reason if s_acc is NaN.
    """
    SeparatorPath(C)  # an invalid C raises here
    subject = Subject.of(model)
    test = data(subject, "test") if test is None else test
    train = data(subject, "train") if train is None else train
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
        found = direct_logit_attribution(subject, looked).to_frame()
        effects = dict(zip(found["component"], found["effect"]))
    table["effect"] = [effects.get(name, float("nan")) for name in table["part"]]
    for mode in MODES:
        whole, *scores = scores_without(subject, [[], *([part] for part in parts)], test, mode, train, seed)
        table[f"accuracy_{mode}"] = [score.accuracy for score in scores]
        table[f"loss_{mode}"] = [score.loss for score in scores]
    table["s_acc"], no_s_acc = _separation(subject, train, test, C)
    where = head_types(subject, looked, "read").to_frame()
    table = table.merge(where.astype({"head": "Int64"}), on=["layer", "head"], how="left")
    classes = reads_of(subject, test).classes
    chance = float(classes.bincount().max()) / len(classes)
    table.attrs |= {
        "test": len(test),
        "train": len(train),
        "looked": len(looked),
        "accuracy": whole.accuracy,
        "chance": chance,
    }
    table.attrs |= {"by_position": by_position(test, train, "mean"), "no_s_acc": no_s_acc}
    return table


def head_separation(model: Model, train: Batch, test: Batch, C: float = 1000.0) -> list[float]:
    """Return s-acc of each head at the read positions, fitted on train and measured on test, for two or more classes.

    Raises InterpError for a single class, and for fewer reads than a head has dimensions.
    """
    subject = Subject.of(model)
    names = [f"blocks.{layer}.attn.hook_z" for layer in range(subject.model.cfg.n_layers)]
    z = []
    for batch in (train, test):
        if subject.count_space and subject.read_at != "all":
            z.append(head_outputs(subject, batch).z.numpy())
            continue
        seen = at_reads(subject, batch, names)
        z.append(torch.cat([seen[name] for name in names], 1).numpy())
    labels = [reads_of(subject, batch).classes.numpy() for batch in (train, test)]
    singles = [(i,) for i in range(z[0].shape[1])]
    return list(score_groups(z[0], labels[0], z[1], labels[1], singles, C=C)["s_acc"])


def _separation(subject: Subject, train: Batch, test: Batch, C: float) -> tuple[list[float], str | None]:
    """Return s-acc of each part in the order of the table (NaN for MLPs), and the reason if all are NaN."""
    reason = None
    try:
        found = head_separation(subject, train, test, C)
    except InterpError as error:  # one class, too few rows, outputs too badly scaled for a proof
        found, reason = [float("nan")] * len(heads_of(subject)), str(error)
    ordered = iter(found)
    return [float("nan") if part.head is None else next(ordered) for part in parts_of(subject)], reason
