"""Is each named variable of a task represented, at every layer and position, and is it used?

*Represented*: a linear probe of the residual stream predicts its value. It is a cross-fitted logistic regression:
each input is predicted by a probe that was fitted on other inputs. *Used*: interchange interventions (Geiger et al.
2021) replace the base input's stream at a site by that of a source input. The answer must become the one that the task
gives if only this variable is changed to the source's value. Two kinds are measured. One replaces the whole vector; the
other only the part that the probe reads, and everything uncorrelated with that part stays (Belrose et al. 2023).

The expected answer follows from the task's features. A smallest set of other features is chosen that determines the
answer together with this one; these keep the base's values. Without such features, the interchange is NaN, and `attrs`
has the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.errors import InterpError, check_one_of
from interp.measures import runs
from interp.measures.logistic import logistic
from interp.measures.results import Figure, Inputs, Tabular, batch_of, draw, reduced
from interp.models.architecture.answers import correct
from interp.models.architecture.ties import first_largest
from interp.models.subject import Model, Subject, check_finite
from interp.support.progress import LateBar
from interp.tasks import Batch
from interp.tasks.batch import Reads

Feature: TypeAlias = str | Tensor | Callable[[Batch], Tensor]
"""A feature of the task by its name, its values, or a function that gives them for a batch."""

MAX_VALUES, MAX_POSITIONS = 128, 12
ROWS_A_VALUE = 8  # least number of reads per value for a probe
MOST_PAIRS = 200
FOLDS = 4
FLAT = 1e-3
"""Directions whose spread is below this share of the largest are left out: whitened, float32's rounding would count."""
EQUAL = 1e-3
"""Scores that differ by less than this share of the largest are equal: whitened, rounding changes them by 1e-4."""


class StreamSite(NamedTuple):
    """A layer (n_layers: after the last one) and a position: an index, or None for the read position."""

    layer: int
    position: int | None


def sites(subject: Subject, batch: Batch) -> list[StreamSite]:
    """List every layer at the read position, and also at each position if all rows have the same, short length."""
    length = batch.tokens.shape[1]
    fixed = length <= MAX_POSITIONS and bool((batch.lengths == length).all()) and subject.read_at != "all"
    positions = [*range(length)] if fixed else []
    layers = range(subject.model.cfg.n_layers + 1)
    return [StreamSite(layer, position) for layer in layers for position in [*positions, None]]


@dataclass(frozen=True, eq=False, repr=False)
class VariableProbes(Tabular):
    """Probe and interchange accuracy, one row per feature and site; see `probe`. n_layers: of the model."""

    n_layers: int
    reasons: dict[str, str]

    @property
    def title(self) -> str:
        about = "Linear probes of the residual stream: is a feature there, and is it used?"
        return about if len(self.table) else f"{about} Nothing was probed: {'; '.join(self.reasons.values())}."

    def plot(self, what: Literal["probe", "along_probe", "interchange"] = "probe") -> Figure:
        """Draw the accuracy of the probe, or of interchange, by site (rows: features and positions)."""
        check_one_of("plot of probes", what, ("probe", "along_probe", "interchange"))
        frame = self.table.dropna(subset=[what]) if len(self.table) else self.table
        if frame.empty:
            raise InterpError(
                f"there is nothing to draw: {'; '.join(self.reasons.values()) or 'no feature was probed'}"
            )
        several = frame["position"].nunique() > 1
        site = ["read" if position == "read" else f"position {position}" for position in frame["position"]]
        frame = frame.assign(row=[f"{a}, {b}" if several else a for a, b in zip(frame["feature"], site)])
        grid = frame.pivot(index="row", columns="layer", values=what).loc[list(dict.fromkeys(frame["row"]))]
        columns = [runs.stream_name(layer, self.n_layers) for layer in grid.columns]
        return draw.heatmap(
            grid.to_numpy(), columns, list(grid.index), "residual stream", "variable",
            "probe accuracy" if what == "probe" else "interchange accuracy", ends=(0.0, 1.0), square=False,
            show_values=grid.size <= 80, fixed=True,
        )  # fmt: skip


def input_at_reads(subject: Subject, batch: Batch) -> Int[Tensor, "reads"]:
    """Return a number for the input of each read, equal for equal inputs. Raises InterpError for fewer than 40."""
    if len(batch) < 40:
        raise InterpError(f"{len(batch)} inputs are too few for a probe; give at least 40")
    return torch.unique(batch.tokens, dim=0, return_inverse=True)[1].cpu()[runs.reads_of(subject, batch).rows]


@torch.no_grad()
def probe(
    model: Model, feature: Feature | Sequence[str] | None = None, inputs: Inputs | None = None, seed: int = 0
) -> VariableProbes:
    """Measure, at each layer and position, whether a feature can be read linearly, and whether the model uses it.

    feature: one or several features that the task declares (default: all); or a function of a Batch, or a tensor, that
    gives whole numbers for each row (rows,) or position (rows, length), which the table calls by the function's name or
    "given". inputs: at least 40 (default: at most 1,000 test inputs).
    Columns: feature, layer (0: before layer 0; n_layers: after the last one), position (an index or "read"), values
    (their number), chance (share of the most frequent value), probe (cross-fitted accuracy), half (the same if fitted
    on half as many inputs: where it is much lower, more inputs would raise the probe), fitted (accuracy of a probe
    fitted and tested on all inputs), interchange (whole vector), along_probe (only the part that the probe reads),
    pairs. With few different inputs, or where some come often (equal inputs are predicted by probes that were fitted on
    none of them), a cross-fitted probe may be worse than chance; `fitted` then shows what is linearly represented.
    Interchange is the share of answers that change as expected, on pairs whose answer must change, so an intervention
    without effect scores 0. reasons: why a feature has no score. Features with more than 128 values, or fewer than 8
    reads per value, are left out. Source: Alain & Bengio 2016 (probes); Geiger et al. 2021 (interchange). Raises
    InterpError for fewer than 40 inputs and for unknown features.

    Example:

        >>> model = interp.load("languages/parity")
        >>> found = interp.probe(model, "number of 1", model.task.sample(200))
        >>> found.to_frame().query("position == 'read'")[["layer", "fitted"]].round(2).values.tolist()
        [[0.0, 0.18], [1.0, 0.98], [2.0, 1.0]]
    """
    subject = Subject.of(model)
    check_finite(subject)
    batch = batch_of(subject, inputs, most=1_000)
    same = input_at_reads(subject, batch)
    values, reasons = to_probe(features_at_reads(subject, batch, feature))
    places = sites(subject, batch)
    if all(site.position is None for site in places):
        batch = reduced(subject, batch)
    where, streams = runs.reads_of(subject, batch), _streams(subject, batch)
    alone = where.positions.unique()  # one position at which all inputs are read is also a site by its index
    rows: list[dict[str, object]] = []
    with LateBar("probe") as bar:
        for name, value in values.items():
            known: dict[StreamSite, dict[str, object]] = {}
            pairs = pairs_of(subject, batch, name, values, MOST_PAIRS, seed)
            if isinstance(pairs, str):
                reasons[name] = pairs
            for site in places:
                bar.update(len(rows), len(values) * len(places), name)
                same_site = None if site.position is not None or len(alone) > 1 else StreamSite(site.layer, int(alone))
                if same_site in known:
                    rows.append({"feature": name, **known[same_site], "position": "read"})
                    continue
                known[site] = _probed(subject, batch, streams, site, pairs, value, same, seed)
                rows.append({"feature": name, **known[site]})
    return VariableProbes(pd.DataFrame(rows), subject.model.cfg.n_layers, reasons)


def _probed(
    subject: Subject, batch: Batch, streams: list[Tensor], site: StreamSite, pairs: InterchangePairs | str,
    value: Tensor, same: Tensor, seed: int,
) -> dict[str, object]:  # fmt: skip
    """Return the row of a feature at a site, without the feature's name. same: a number for the input of each read."""
    told = fit_probe(_at(streams[site.layer], runs.reads_of(subject, batch), site), value, same, seed)
    whole = along = float("nan")
    if not isinstance(pairs, str):
        whole, along = (_interchanged(subject, batch, streams, site, pairs, part) for part in (None, told.projection))
    return {
        "layer": site.layer,
        "position": "read" if site.position is None else str(site.position),
        "values": len(value.unique()),
        "chance": chance(value),
        "probe": told.accuracy,
        "half": told.half,
        "fitted": told.fitted,
        "interchange": whole,
        "along_probe": along,
        "pairs": 0 if isinstance(pairs, str) else len(pairs.base),
    }


def features_at_reads(
    subject: Subject, batch: Batch, feature: Feature | Sequence[str] | None = None
) -> dict[str, Tensor]:
    """Return the values at the reads of the features that are asked for (default: all of the task), by name."""
    if callable(feature) or hasattr(feature, "__array__"):  # as tensors, and arrays and columns of other libraries
        name = getattr(feature, "__name__", "given")
        value = feature(batch) if callable(feature) else feature
        return {name: value_at_reads(subject, batch, f"the feature {name}", value)}
    names = [feature] if isinstance(feature, str) else feature
    declared = subject.task.features(batch[slice(0, 2)])
    return {name: feature_at_reads(subject, batch, name) for name in (declared if names is None else names)}


def to_probe(found: Mapping[str, Tensor]) -> tuple[dict[str, Int[Tensor, "reads"]], dict[str, str]]:
    """Return the features with whole numbers, at least two and not too many, and why each other one is left out."""
    values, reasons = {}, {}
    for name, value in found.items():
        n_values = len(value.unique())
        if not bool((value == value.long()).all()):
            reasons[name] = f"The feature {name} has values that are not whole numbers"
        elif n_values < 2:
            reasons[name] = f"The feature {name} has only one value on these inputs"
        elif n_values > min(MAX_VALUES, len(value) // ROWS_A_VALUE):
            reasons[name] = f"The feature {name} has {n_values} values, too many for {len(value):,} reads"
        else:
            values[name] = value.long()
    return values, reasons


def feature_at_reads(subject: Subject, batch: Batch, name: str) -> Tensor:
    """Return a named feature of the task at every read: the value for its row, or for its position."""
    known = subject.task.features(batch)
    check_one_of(f"feature of task {subject.task.name}", name, known)
    return value_at_reads(subject, batch, f"feature {name} of task {subject.task.name}", known[name])


def value_at_reads(subject: Subject, batch: Batch, what: str, value: Any) -> Tensor:
    """Return a value at every read, given for each row or for each position. Raises InterpError for other shapes."""
    where, value = runs.reads_of(subject, batch), torch.as_tensor(value).cpu()
    if value.shape not in ((len(batch),), tuple(batch.tokens.shape)):
        raise InterpError(
            f"{what} has shape {tuple(value.shape)}; it must be ({len(batch)},), a value for each row, or "
            f"{tuple(batch.tokens.shape)}, one for each position"
        )
    return value[where.rows] if value.ndim == 1 else value[where.rows, where.positions]


def chance(value: Tensor) -> float:
    """Return the share of the most frequent value, the accuracy of always predicting it."""
    return float(value.unique(return_counts=True)[1].max()) / len(value)


def _streams(subject: Subject, batch: Batch) -> list[Float[Tensor, "rows length d_model"]]:
    """Return the residual stream before each layer and after the last."""
    names = [runs.stream_hook(subject, layer) for layer in range(subject.model.cfg.n_layers + 1)]
    streams: dict[str, list[Tensor]] = {name: [] for name in names}
    for here, _ in runs.pieces(subject, batch, len(names) * subject.model.cfg.d_model):
        _, seen = runs.activations(subject, batch[here], names)
        for name in names:
            streams[name].append(seen[name].cpu())
    return [torch.cat(streams[name]) for name in names]


def _at(stream: Tensor, where: Reads, site: StreamSite) -> Float[Tensor, "reads d_model"]:
    at = where.positions if site.position is None else torch.full_like(where.positions, site.position)
    return stream[where.rows, at].double()


# ---------------------------------------------------------------- probes


class LinearProbe(NamedTuple):
    """A linear probe. accuracy: cross-fitted. half: the same, of probes fitted on half as many inputs. fitted: on its
    own inputs. projection: onto the part that it reads."""

    accuracy: float
    half: float
    fitted: float
    projection: Float[Tensor, "d d"]


def fit_probe(
    x: Float[Tensor, "reads d"], value: Int[Tensor, "reads"], inputs: Int[Tensor, "reads"], seed: int = 0
) -> LinearProbe:
    """Fit a linear probe of a discrete variable: multinomial logistic regression on whitened vectors.

    inputs: the input of each read; all reads of an input are in the same of the FOLDS, which have similar shares of
    each value. If a least-squares probe makes no errors, it is used instead.

    The projection P is oblique: P x contains the part of x that the probe reads, plus the part of the rest that
    covaries with it (P = C U (U^T C U)^-1 U^T, with the covariance C and the probe's directions U).
    """
    centered, to_white = _whitened(x)
    white, right = centered @ to_white, value.unique(return_inverse=True)[1].numpy()
    all_others, half = _cross_fitted(white, right, inputs, seed, halves=True)
    tell, weights = _fit(white, right, int(right.max()) + 1)
    u, s, _ = np.linalg.svd(to_white @ weights, full_matrices=False)
    directions = torch.from_numpy(u[:, s > 1e-8 * max(float(s.max(initial=0.0)), 1e-300)])
    spread = torch.from_numpy(centered.T @ (centered @ directions.numpy()))
    projection = spread @ torch.linalg.pinv(directions.T @ spread, hermitian=True) @ directions.T
    return LinearProbe(all_others, half, float((tell(white) == right).mean()), projection)


def probe_accuracy(x: Float[Tensor, "reads d"], value: Int[Tensor, "reads"], inputs: Int[Tensor, "reads"]) -> float:
    """The cross-fitted accuracy of fit_probe, from fewer fits than the rest takes."""
    centered, to_white = _whitened(x)
    right = value.unique(return_inverse=True)[1].numpy()
    return _cross_fitted(centered @ to_white, right, inputs, 0, halves=False)[0]


def _whitened(x: Float[Tensor, "reads d"]) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors around their mean, and the map to directions of variance 1."""
    centered = (x - x.mean(0)).numpy()
    _, size, axes = np.linalg.svd(centered, full_matrices=False)
    kept = size > FLAT * max(float(size.max(initial=0.0)), 1e-300)
    return centered, (axes[kept] / size[kept, None] * np.sqrt(len(x))).T


def _cross_fitted(
    white: Float[np.ndarray, "reads r"], right: Int[np.ndarray, "reads"], inputs: Int[Tensor, "reads"], seed: int,
    halves: bool,
) -> list[float]:  # fmt: skip
    """Return the accuracy of probes on each fold that are fitted on the others, and with `halves` on half of these."""
    predicted = np.full((1 + halves, len(right)), -1)
    for fold, others in _folds(right, inputs.numpy(), seed):
        for row, fit_on in zip(predicted, (~fold, others), strict=False):
            row[fold] = _fit(white[fit_on], right[fit_on], int(right.max()) + 1)[0](white[fold])
    accuracy: list[float] = (predicted == right).mean(1).tolist()
    return accuracy


def _folds(value: np.ndarray, inputs: np.ndarray, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield FOLDS masks of reads, each with a mask of half of the reads outside it.

    Inputs are shuffled, sorted by value, and assigned to folds, and to halves of these, in turn.
    """
    _, first, which = np.unique(inputs, return_index=True, return_inverse=True)
    shuffled = np.random.default_rng(seed).permutation(len(first))
    dealt = np.empty(len(first), dtype=int)
    dealt[shuffled[np.argsort(value[first][shuffled], kind="stable")]] = np.arange(len(first))
    dealt = dealt[which]
    for fold in range(min(FOLDS, len(first))):
        inside = dealt % FOLDS == fold
        yield inside, ~inside & (dealt // FOLDS % 2 == 0)


def _fit(
    x: Float[np.ndarray, "rows d"], value: Int[np.ndarray, "rows"], n: int
) -> tuple[Callable[[np.ndarray], np.ndarray], Float[np.ndarray, "d directions"]]:
    """Fit a classifier of n values by least squares, or logistic regression if that errs; also return directions."""

    def classifier(weights: np.ndarray, constants: np.ndarray, names: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Return what tells a vector's value: that of the largest score, or the first of those that are equal."""
        within = float(EQUAL * np.abs(x @ weights + constants).max())
        return lambda other: names[first_largest(torch.from_numpy(other @ weights + constants), within).numpy()]

    extended = np.concatenate([x, np.ones((len(x), 1))], 1)
    weights = np.linalg.lstsq(extended, np.eye(n)[value], rcond=FLAT)[0]
    tell = classifier(weights[:-1], weights[-1], np.arange(n))
    if bool((tell(x) == value).all()) and len(x) > x.shape[1] + n:
        return tell, weights[:-1]
    if not x.shape[1] or len(np.unique(value)) < 2:  # every vector is the same, or every value
        most = int(np.bincount(value).argmax())
        return lambda other: np.full(len(other), most), np.zeros((x.shape[1], 1))
    weights, constants, names = logistic(x, value)
    return classifier(weights, constants, names), weights


# ---------------------------------------------------------------- interchange interventions


class InterchangePairs(NamedTuple):
    """The reads of bases and sources (indices into the batch's reads), and the expected answers."""

    base: Int[Tensor, "pairs"]
    source: Int[Tensor, "pairs"]
    wanted: Int[Tensor, "pairs"]


def pairs_of(
    subject: Subject, batch: Batch, name: str, values: dict[str, Tensor], most: int, seed: int
) -> InterchangePairs | str:
    """Pair one read of each row with another row's, such that interchanging the variable must change the answer."""
    where = runs.reads_of(subject, batch)
    kept = others_that_decide(name, values, where.classes)
    if kept is None:
        return f"No set of features needs {name} to determine the answer, so an effect of its own cannot be measured"
    table = {key: int(c) for key, c in zip(_keys(values, (name, *kept)), where.classes)}
    draw = np.random.default_rng(seed)
    order = draw.permutation(len(where))
    rows = where.rows.numpy()
    _, first = np.unique(rows[order], return_index=True)  # one read per row
    base = order[first]
    triples: list[tuple[int, int, int]] = []
    all_values = {key: value.numpy() for key, value in values.items()}
    for _ in range(4):  # several sources per base, until enough pairs require another answer
        for b, s in zip(base, draw.integers(len(where), size=len(base))):
            key = (int(all_values[name][s]), *(int(all_values[other][b]) for other in kept))
            wanted = table.get(key)
            if wanted is not None and wanted != int(where.classes[b]) and rows[b] != rows[s]:
                triples.append((int(b), int(s), wanted))
        if len(triples) >= most:
            break
    if len(triples) < 8:
        return f"Too few inputs with another {name} and the same {', '.join(kept) or 'rest'} require another answer"
    base_, source, wanted_ = (torch.tensor([triple[i] for triple in triples[:most]]) for i in range(3))
    return InterchangePairs(base_, source, wanted_)


def others_that_decide(name: str, values: dict[str, Tensor], classes: Tensor) -> tuple[str, ...] | None:
    """Return a smallest set of other features that determines the answer with this one but not without it, or None."""
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
    subject: Subject,
    batch: Batch,
    streams: list[Tensor],
    site: StreamSite,
    pairs: InterchangePairs,
    projection: Tensor | None,
) -> float:
    """Return the share of pairs whose answer becomes the expected one if the site's vector (or its part) is changed."""
    where, name, stream = runs.reads_of(subject, batch), runs.stream_hook(subject, site.layer), streams[site.layer]
    read = where.positions[pairs.base]
    at, there = (where.positions[reads] if site.position is None else torch.full_like(reads, site.position)
                 for reads in (pairs.base, pairs.source))  # fmt: skip
    change = stream[where.rows[pairs.source], there] - stream[where.rows[pairs.base], at]
    if projection is not None:
        change = change @ projection.to(change).T
    final = streams[-1][where.rows[pairs.base], read]
    if site.layer == subject.model.cfg.n_layers:  # after the last layer, only the read position matters
        good = _answered(subject, final + change * (at == read)[:, None], pairs.wanted)
    else:
        good = answered_pairs(subject, batch, pairs, lambda here: [runs.Edit(name, change[here], at[here], add=True)])
    return float((good & ~_answered(subject, final, pairs.wanted)).double().mean())


def _answered(
    subject: Subject, final: Float[Tensor, "pairs d_model"], wanted: Int[Tensor, "pairs"]
) -> Bool[Tensor, "pairs"]:
    """Return the mask of the vectors after the last layer that give the expected answer."""
    out = runs.read_out(subject, final.to(subject.model.cfg.device))
    return correct(out.double().cpu(), wanted, subject.decision)


def answered_pairs(
    subject: Subject, batch: Batch, pairs: InterchangePairs, edits: Callable[[slice], Sequence[runs.Edit]]
) -> Bool[Tensor, "pairs"]:
    """Run the bases with edits for each slice of pairs; return the mask of pairs with the expected answer."""
    where, outputs = runs.reads_of(subject, batch), []
    bases, at = batch[where.rows[pairs.base]], where.positions[pairs.base]
    for here, piece in runs.pieces(subject, bases, 3 * subject.model.cfg.d_model):
        out = runs.forward(subject, piece, runs.hooks_of(edits(here)))
        outputs.append(out[torch.arange(len(piece)), at[here]].double().cpu())
    return correct(torch.cat(outputs), pairs.wanted, subject.decision)
