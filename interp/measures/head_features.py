"""How each head's output at the read positions depends on each declared feature.

- variance: the share of the variance of the head's output (hook_z) that the feature's values explain, corrected for the
  number of values (epsilon squared: on average 0 for an unrelated feature, and 1 if the output is a function of it).
- probe: held-out accuracy of a logistic regression from the output to the feature's values (fit_probe in
  measures.variables). chance: accuracy of always predicting the most frequent value.
- interchange: replace the head's output by that on another input. The share of pairs for which the answer becomes the
  one expected if only this feature took the other input's value, among pairs whose answer must change (see
  measures.variables).
"""

from collections.abc import Callable

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import InterpError
from interp.measures.counted import reduced
from interp.measures.neurons import feature_at_reads
from interp.measures.runs import Edit, Part, at_reads, heads_of, reads_of
from interp.measures.subject import Model, Subject
from interp.measures.variables import MAX_VALUES, ROWS_A_VALUE, answered_pairs, fit_probe, pairs_of
from interp.tasks import Batch

PAIRS = 200
TOKENS = 1 << 21
"""Largest number of tokens run for all interchanges, which takes a few seconds."""


@torch.no_grad()
def head_features(model: Model, batch: Batch, names: tuple[str, ...] | None = None, seed: int = 0) -> pd.DataFrame:
    """Return one row per head and feature.

    Columns layer, head, feature, values (their number), variance, probe, chance, interchange (NaN if the effect of the
    feature alone is unknown), pairs. attrs["reasons"]: why a feature has no row or no interchange. Left out are
    features with a single value, more than 128 values, fewer than 8 reads per value, or values that are not whole
    numbers. Raises InterpError for fewer than 40 inputs and for unknown features.
    """
    subject = Subject.of(model)
    if len(batch) < 40:
        raise InterpError(f"{len(batch)} inputs are too few for a probe; give at least 40")
    where, reasons = reads_of(subject, batch), {}
    inputs = torch.unique(batch.tokens, dim=0, return_inverse=True)[1].cpu()[where.rows]
    known = tuple(subject.task.features(batch[slice(0, 2)])) if names is None else names
    values: dict[str, Int[Tensor, "reads"]] = {}
    for name in known:
        value = feature_at_reads(subject, batch, name)
        n_values = len(value.unique())
        if not bool((value == value.long()).all()):
            reasons[name] = f"The feature {name} has values that are not whole numbers"
        elif n_values < 2:
            reasons[name] = f"The feature {name} has only one value on these inputs"
        elif n_values > min(MAX_VALUES, len(where) // ROWS_A_VALUE):
            reasons[name] = f"The feature {name} has {n_values} values, too many for {len(where):,} reads"
        else:
            values[name] = value.long()
    heads, batch = heads_of(subject), reduced(subject, batch)
    where, seen = reads_of(subject, batch), at_reads(subject, batch, list(dict.fromkeys(head.hook for head in heads)))
    few = 2 * len(heads) * len(values) * PAIRS * batch.tokens.shape[1] <= TOKENS
    slow = f"Interchanging {len(heads)} heads takes too long on inputs of {batch.tokens.shape[1]} tokens"
    pairs = {name: pairs_of(subject, batch, name, values, PAIRS, seed) if few else slow for name in values}
    rows: list[dict[str, object]] = []
    for name, value in values.items():
        found = pairs[name]
        already = None
        if isinstance(found, str):
            reasons[name] = found
        else:
            already = answered_pairs(subject, batch, found, lambda here: [])
        chance = float(value.unique(return_counts=True)[1].max()) / len(value)
        for head in heads:
            x = seen[head.hook][:, head.head]
            row: dict[str, object] = {
                "layer": head.layer,
                "head": head.head,
                "feature": name,
                "values": len(value.unique()),
                "variance": explained(x, value),
                "probe": fit_probe(x, value, inputs, seed).accuracy if float(x.std(0).max()) > 0 else chance,
                "chance": chance,
                "interchange": float("nan"),
                "pairs": 0,
            }
            if not isinstance(found, str) and already is not None:
                good = answered_pairs(subject, batch, found, _swap(head, x[found.source], where.positions[found.base]))
                row |= {"interchange": float((good & ~already).double().mean()), "pairs": len(found.base)}
            rows.append(row)
    table = pd.DataFrame(rows)
    table.attrs["reasons"] = reasons
    return table


def explained(x: Float[Tensor, "reads d"], value: Int[Tensor, "reads"]) -> float:
    """Return the share of the variance that a feature explains, corrected for what random groups would explain.

    NaN if the output does not vary (up to rounding), or if there are no more reads than values.
    """
    groups, index = value.unique(return_inverse=True)
    n, k = len(x), len(groups)
    sizes = torch.bincount(index, minlength=k).to(x)
    means = torch.zeros(k, x.shape[1], dtype=x.dtype).index_add(0, index, x) / sizes[:, None]
    total = float((x - x.mean(0)).pow(2).sum())
    if n <= k or total <= 1e-10 * float(x.pow(2).sum()) or total == 0:
        return float("nan")
    within = float((x - means[index]).pow(2).sum())
    return 1 - within / (n - k) / (total / (n - 1))


def _swap(head: Part, value: Float[Tensor, "pairs d"], at: Int[Tensor, "pairs"]) -> Callable[[slice], list[Edit]]:
    """Return a function from slices of pairs to edits that give a head the value of the source, at a position."""
    return lambda here: [Edit(head, value[here], at[here])]
