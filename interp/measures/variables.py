"""Named variables of a task: is each there, at every layer and position, and is it used?

*There*: a linear probe of the residual stream tells its value: logistic regression, cross-fitted, so that every input
is told by a probe that was fitted on others. *Used*: interchange interventions (Geiger et al. 2021): the
stream of a base input is given a source input's at that site, and the answer must be the one the task gives when this
variable alone is the source's. Once the whole vector is interchanged; once only what the probe reads: the vector is
moved so that the probe reads the source's values, and all that does not vary with them stays (Belrose et al. 2023).

What the answer would be is read off the task's own features: the fewest others that with this one determine the answer
are kept as the base's. Where no such set is found there is no interchange (NaN), and the reason is in `attrs`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.architecture.answers import correct
from interp.errors import InterpError
from interp.measures.neurons import feature_at_reads
from interp.measures.runs import Hook, activations, forward, pieces, reads_of
from interp.measures.subject import Model, Subject
from interp.tasks import Batch

if TYPE_CHECKING:
    import pandas as pd

MAX_VALUES, MAX_POSITIONS = 128, 12
ROWS_A_VALUE = 8  # fewer reads than this for each value are no probe
MOST_PAIRS = 200
FOLDS = 4
BUDGET, WEAK = 60, 100.0
"""Steps of a logistic regression on whitened vectors, and the inverse weight of its penalty (scikit-learn's C)."""
FLAT = 1e-5
"""Directions whose spread is less than this part of the largest are rounding."""


class Site(NamedTuple):
    """A layer (n_layers: after the last) and a position: an index, or None for the position that is read."""

    layer: int
    position: int | None


def sites(subject: Subject, batch: Batch) -> list[Site]:
    """Every layer at the position that is read, and at each position where rows are of one short length."""
    length = batch.tokens.shape[1]
    fixed = length <= MAX_POSITIONS and bool((batch.lengths == length).all()) and subject.read_at != "all"
    positions = [*range(length)] if fixed else []
    layers = range(subject.model.cfg.n_layers + 1)
    return [Site(layer, position) for layer in layers for position in [*positions, None]]


def hook_of(subject: Subject, layer: int) -> str:
    last = subject.model.cfg.n_layers
    return f"blocks.{last - 1}.hook_resid_post" if layer == last else f"blocks.{layer}.hook_resid_pre"


@torch.no_grad()
def variables(model: Model, batch: Batch, names: tuple[str, ...] | None = None, seed: int = 0) -> pd.DataFrame:
    """Probe and interchange accuracy of each feature at each site.

    Columns feature, layer, position (an index or "read"), values (how many), chance (share of the most frequent value),
    probe (cross-fitted), fitted (the same of a probe on the inputs that it was fitted on, all of them), interchange
    (whole vector), along_probe (only what the probe reads), pairs. Where inputs are few and no two of them alike, a
    cross-fitted probe may do worse than chance on what it cannot know; `fitted` says what is linearly there.
    Interchange is measured on pairs whose answer must change, and counts the answers that do, so that an
    intervention without effect scores 0. attrs["reasons"]: why a feature has none. Features of more than 128 values,
    or of fewer than 8 reads a value, are left out. Raises InterpError for fewer than 40 inputs.
    """
    import pandas as pd

    subject = Subject.of(model)
    if len(batch) < 40:
        raise InterpError(f"{len(batch)} inputs are too few for a probe; give at least 40")
    known = tuple(subject.task.features(batch[slice(0, 2)])) if names is None else names
    found = {name: feature_at_reads(subject, batch, name) for name in known}
    values = {name: value.long() for name, value in found.items() if bool((value == value.long()).all())}
    most_values = min(MAX_VALUES, len(reads_of(subject, batch)) // ROWS_A_VALUE)
    where, streams = reads_of(subject, batch), _streams(subject, batch)
    inputs = torch.unique(batch.tokens, dim=0, return_inverse=True)[1].cpu()[where.rows]
    reasons = {name: f"{name} has values that are not whole numbers" for name in found if name not in values}
    values = {name: value for name, value in values.items() if 2 <= len(value.unique()) <= most_values}
    rows: list[dict[str, object]] = []
    for name, value in values.items():
        pairs = pairs_of(subject, batch, name, values, MOST_PAIRS, seed)
        if isinstance(pairs, str):
            reasons[name] = pairs
        for site in sites(subject, batch):
            x = _at(streams[site.layer], where, site)
            told = probe(x, value, inputs, seed)
            row = {
                "feature": name,
                "layer": site.layer,
                "position": "read" if site.position is None else str(site.position),
                "values": len(value.unique()),
                "chance": float(value.bincount(minlength=1).max()) / len(value) if value.min() >= 0 else _most(value),
                "probe": told.accuracy,
                "fitted": told.fitted,
                "interchange": float("nan"),
                "along_probe": float("nan"),
                "pairs": 0,
            }
            if not isinstance(pairs, str):
                for column, part in (("interchange", None), ("along_probe", told.projection)):
                    row[column] = _interchanged(subject, batch, streams, site, pairs, part)
                row["pairs"] = len(pairs.base)
            rows.append(row)
    table = pd.DataFrame(rows)
    table.attrs["reasons"] = reasons
    return table


def _most(value: Tensor) -> float:
    return float(value.unique(return_counts=True)[1].max()) / len(value)


def _streams(subject: Subject, batch: Batch) -> list[Float[Tensor, "rows length d_model"]]:
    """The residual stream before each layer and after the last."""
    names = [hook_of(subject, layer) for layer in range(subject.model.cfg.n_layers + 1)]
    found: dict[str, list[Tensor]] = {name: [] for name in names}
    for here, _ in pieces(subject, batch, len(names) * subject.model.cfg.d_model):
        _, seen = activations(subject, batch[here], names)
        for name in names:
            found[name].append(seen[name].cpu())
    return [torch.cat(found[name]) for name in names]


def _at(stream: Tensor, where: object, site: Site) -> Float[Tensor, "reads d_model"]:
    rows, positions = where.rows, where.positions  # type: ignore[attr-defined]
    return stream[rows, positions if site.position is None else torch.full_like(positions, site.position)].double()


# ---------------------------------------------------------------- is it there?


class Probe(NamedTuple):
    """accuracy: cross-fitted; fitted: on all inputs, which it was fitted on; projection: onto what that fit reads."""

    accuracy: float
    fitted: float
    projection: Float[Tensor, "d d"]


def probe(
    x: Float[Tensor, "reads d"], value: Int[Tensor, "reads"], inputs: Int[Tensor, "reads"], seed: int = 0
) -> Probe:
    """A linear probe of a value with few values: multinomial logistic regression on whitened vectors.

    inputs: which reads belong together; reads of one input are in one of the FOLDS, whose values are divided as evenly
    as they can be. A least-squares probe that makes no error is taken as it is, for no probe does better.

    The projection P is oblique: P x has all that the probe reads of x, and of what it does not read only the part that
    varies with it (P = C U (U^T C U)^-1 U^T, C the covariance, U the probe's directions).
    """
    classes, target = value.unique(return_inverse=True)
    centered = (x - x.mean(0)).numpy()
    _, size, axes = np.linalg.svd(centered, full_matrices=False)
    kept = size > FLAT * max(float(size.max(initial=0.0)), 1e-300)
    to_white = (axes[kept] / size[kept, None] * np.sqrt(len(x))).T
    white, right = centered @ to_white, target.numpy()
    said = np.full(len(x), -1)
    for fold in _folds(right, inputs.numpy(), seed):
        said[fold] = _fit(white[~fold], right[~fold], len(classes))[0](white[fold])
    tell, weights = _fit(white, right, len(classes))
    u, s, _ = np.linalg.svd(to_white @ weights, full_matrices=False)
    directions = torch.from_numpy(u[:, s > 1e-8 * max(float(s.max(initial=0.0)), 1e-300)])
    spread = torch.from_numpy(centered.T @ (centered @ directions.numpy()))
    projection = spread @ torch.linalg.pinv(directions.T @ spread, hermitian=True) @ directions.T
    return Probe(float((said == right).mean()), float((tell(white) == right).mean()), projection)


def _folds(value: np.ndarray, inputs: np.ndarray, seed: int) -> Iterator[np.ndarray]:
    """FOLDS masks of reads: inputs are dealt in the order of their values, shuffled among equals."""
    _, first, which = np.unique(inputs, return_index=True, return_inverse=True)
    shuffled = np.random.default_rng(seed).permutation(len(first))
    dealt = np.empty(len(first), dtype=int)
    dealt[shuffled[np.argsort(value[first][shuffled], kind="stable")]] = np.arange(len(first)) % FOLDS
    for fold in range(min(FOLDS, len(first))):
        yield dealt[which] == fold


def _fit(
    x: Float[np.ndarray, "rows d"], value: Int[np.ndarray, "rows"], n: int
) -> tuple[Callable[[np.ndarray], np.ndarray], Float[np.ndarray, "d directions"]]:
    """A classifier of n values and the directions that it reads: least squares if it makes no error, else logistic."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    one = np.concatenate([x, np.ones((len(x), 1))], 1)
    weights = np.linalg.lstsq(one, np.eye(n)[value], rcond=None)[0]
    if bool(((one @ weights).argmax(1) == value).all()) and len(x) > x.shape[1] + n:
        return lambda other: (other @ weights[:-1] + weights[-1]).argmax(1), weights[:-1]
    if not x.shape[1] or len(np.unique(value)) < 2:  # every vector is the same, or every value
        most = int(np.bincount(value).argmax())
        return lambda other: np.full(len(other), most), np.zeros((x.shape[1], 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the budget is fixed
        found = LogisticRegression(C=WEAK, max_iter=BUDGET).fit(x, value)
    return found.predict, found.coef_.T


# ---------------------------------------------------------------- is it used?


class Interchange(NamedTuple):
    """Reads of bases and sources (indices of `reads`), and the answers that must follow."""

    base: Int[Tensor, "pairs"]
    source: Int[Tensor, "pairs"]
    wanted: Int[Tensor, "pairs"]


def pairs_of(
    subject: Subject, batch: Batch, name: str, values: dict[str, Tensor], most: int, seed: int
) -> Interchange | str:
    """One read of each row with another row's, where interchanging the variable must change the answer."""
    where = reads_of(subject, batch)
    kept = others_that_decide(name, values, where.classes)
    if kept is None:
        return f"no set of features needs {name} to determine the answer, so its own effect cannot be measured"
    table = {key: int(c) for key, c in zip(_keys(values, (name, *kept)), where.classes)}
    draw = np.random.default_rng(seed)
    order = draw.permutation(len(where))
    rows = where.rows.numpy()
    _, first = np.unique(rows[order], return_index=True)  # one read a row
    base = order[first]
    found: list[tuple[int, int, int]] = []
    all_values = {key: value.numpy() for key, value in values.items()}
    for _ in range(4):  # several sources a base, until enough pairs demand another answer
        for b, s in zip(base, draw.integers(len(where), size=len(base))):
            key = (int(all_values[name][s]), *(int(all_values[other][b]) for other in kept))
            wanted = table.get(key)
            if wanted is not None and wanted != int(where.classes[b]) and rows[b] != rows[s]:
                found.append((int(b), int(s), wanted))
        if len(found) >= most:
            break
    if len(found) < 8:
        return f"too few inputs with another {name} and the same {', '.join(kept) or 'rest'} demand another answer"
    base_, source, wanted_ = (torch.tensor([triple[i] for triple in found[:most]]) for i in range(3))
    return Interchange(base_, source, wanted_)


def others_that_decide(name: str, values: dict[str, Tensor], classes: Tensor) -> tuple[str, ...] | None:
    """The fewest other features that with this one, but not without it, determine the answer; None without such."""
    rest = [other for other in values if other != name]
    for size in range(min(3, len(rest)) + 1):
        for kept in combinations(rest, size):
            if _determines(values, (name, *kept), classes) and not (kept and _determines(values, kept, classes)):
                return kept
    return None


def _keys(values: dict[str, Tensor], names: tuple[str, ...]) -> list[tuple[int, ...]]:
    return list(zip(*(values[name].tolist() for name in names)))


def _determines(values: dict[str, Tensor], names: tuple[str, ...], classes: Tensor) -> bool:
    known: dict[tuple[int, ...], int] = {}
    return all(known.setdefault(key, c) == c for key, c in zip(_keys(values, names), classes.tolist()))


def _interchanged(
    subject: Subject, batch: Batch, streams: list[Tensor], site: Site, pairs: Interchange, projection: Tensor | None
) -> float:
    """Share of the pairs that are answered as they must be with the site's vector (or its part) interchanged, and are
    not without that."""
    where, name, stream = reads_of(subject, batch), hook_of(subject, site.layer), streams[site.layer]
    read = where.positions[pairs.base]
    at, there = (where.positions[some] if site.position is None else torch.full_like(some, site.position)
                 for some in (pairs.base, pairs.source))  # fmt: skip
    change = stream[where.rows[pairs.source], there] - stream[where.rows[pairs.base], at]
    if projection is not None:
        change = change @ projection.to(change).T
    final = streams[-1][where.rows[pairs.base], read]
    if site.layer == subject.model.cfg.n_layers:  # what stands at the read is all that still counts
        good = _answered(subject, final + change * (at == read)[:, None], pairs.wanted)
    else:
        good = answered_pairs(subject, batch, pairs, lambda here: [_add(name, at[here], change[here])])
    return float((good & ~_answered(subject, final, pairs.wanted)).double().mean())


def _answered(
    subject: Subject, final: Float[Tensor, "pairs d_model"], wanted: Int[Tensor, "pairs"]
) -> Bool[Tensor, "pairs"]:
    """Which vectors after the last layer give the answer that is wanted."""
    cfg = subject.model.cfg
    out = subject.columns(subject.model(final[:, None].to(cfg.device), start_at_layer=cfg.n_layers))
    return correct(out[:, 0].double().cpu(), wanted, subject.decision)


def answered_pairs(
    subject: Subject, batch: Batch, pairs: Interchange, hooks: Callable[[slice], Sequence[Hook]]
) -> Bool[Tensor, "pairs"]:
    """Which pairs are answered as they must be, under hooks on slices of their bases."""
    where, found = reads_of(subject, batch), []
    for here, _ in pieces(subject, batch[where.rows[pairs.base]], 3 * subject.model.cfg.d_model):
        bases = pairs.base[here]
        out = forward(subject, subject.trimmed(batch[where.rows[bases]]), hooks(here))
        logits = out[torch.arange(len(bases)), where.positions[bases]].double().cpu()
        found.append(correct(logits, pairs.wanted[here], subject.decision))
    return torch.cat(found)


def _add(name: str, at: Tensor, change: Float[Tensor, "rows d_model"]) -> Hook:
    def put(stream: Tensor, hook: object) -> Tensor:
        changed = stream.clone()
        changed[torch.arange(len(stream)), at] += change.to(stream)
        return changed

    return name, put
