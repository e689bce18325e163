"""Activation patching on minimal pairs: at which layer, position and part is the answer decided?

A pair is a clean input and a corrupted one with another answer, aligned where they are read. One site of the corrupted
run gets its value from the clean run, and everything else runs normally (denoising), or the other way round (noising;
Meng et al. 2022, Wang et al. 2022). The effect is the logit difference of the clean and the corrupted answer, or
another metric, scaled from 0 (as corrupted) to 1 (as clean).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import pandas as pd
import torch
from einops import reduce
from jaxtyping import Bool, Float
from torch import Tensor

from interp.errors import InterpError, as_list, check_one_of
from interp.measures.ablation import align, aligned
from interp.measures.metrics import Metric, measured
from interp.measures.minimal_pairs import Compared, compared, pairs_from
from interp.measures.restart import Run, kept
from interp.measures.results import Figure, Inputs, Tabular, draw, reduced_pairs
from interp.measures.runs import (
    Edit,
    Part,
    Site,
    activations,
    gradients,
    parts_of,
    pieces,
    reads_of,
    sites_of,
    stream_hook,
    stream_name,
)
from interp.models.architecture.answers import correct
from interp.models.subject import Model, Subject
from interp.support.words import counted
from interp.tasks.pairs import Pairs

MAX_POSITIONS = 40
"""Largest length for which positions are patched one by one."""


@dataclass(frozen=True, eq=False, repr=False)
class Patched(Tabular):
    """Effects of activation patching at every site.

    clean, corrupted: mean metric of the two runs. reads: number of reads averaged over. by_index: whether positions are
    indices, not groups (changed tokens, read position, all others). metric, direction: as in activation_patching.

    Columns of the table: site, kind (stream: the residual stream before a layer or, with layer = n_layers, after the
    last one; head; MLP; q, k, v or pattern of a head), layer, head, position ("all" for a part at all positions);
    recovered (0: as corrupted, 1: as clean, in either direction: what the patch restores of the clean score or, with
    direction "noise", what it leaves of it); error, the standard error of recovered (of a ratio of two means, by the
    delta method, with independent reads); flipped, the share of answers changed to the clean input's
    right one, or, with direction "noise", from it. With method "attribution", the only effect is attributed, an
    estimate of recovered to first order; with "both", off is the estimate minus the exact number.
    """

    clean: float
    corrupted: float
    reads: int
    by_index: bool
    metric: str = "logit difference"
    direction: str = "denoise"

    @property
    def title(self) -> str:
        if self.direction == "denoise":
            how = "one site of the clean run restores in the corrupted run"
        else:
            how = "is left if one site of the clean run is as in the corrupted run"
        what = (
            "Activation patching" if self.value == "recovered" else "Attribution patching, an estimate to first order"
        )
        return f"{what}: share of the {self.metric} that {how}, {counted(self.reads, 'answer')}"

    @property
    def value(self) -> str:
        """Column of the effect: recovered or, if there are estimates alone, attributed."""
        return "recovered" if "recovered" in self.table else "attributed"

    @property
    def stream(self) -> pd.DataFrame:
        """The sites in the residual stream."""
        return self.table[self.table["kind"] == "stream"].reset_index(drop=True)

    @property
    def parts(self) -> pd.DataFrame:
        """Heads and MLPs, patched at all positions."""
        return self.table[self.table["position"] == "all"].reset_index(drop=True)

    @property
    def at_positions(self) -> pd.DataFrame:
        """Heads patched at one position (or group of positions)."""
        table = self.table
        return table[(table["kind"] == "head") & (table["position"] != "all")].reset_index(drop=True)

    def plot(self, what: Literal["stream", "parts", "heads"] = "stream") -> Figure:
        """Draw the residual stream by layer and position, the parts, or the heads by position."""
        check_one_of("plot of patching", what, ("stream", "parts", "heads"))
        if what == "parts":
            return draw.bars(self.parts, "site", self.value, "kind", x_title="part that is patched", y_title=self.value)
        table = self.stream if what == "stream" else self.at_positions
        if table.empty:
            raise InterpError("heads were not patched at single positions: pass by_position=True")
        grid = table.pivot(index="site", columns="position", values=self.value)
        grid = grid.loc[list(dict.fromkeys(table["site"])), list(dict.fromkeys(self.stream["position"]))]
        rows = [name.removeprefix("stream ") for name in grid.index]
        across, down = "position" if self.by_index else "positions", "residual stream" if what == "stream" else "head"
        return draw.heatmap(grid, list(grid.columns), rows, across, down, self.value, 0.0, square=False,
                            show_values=grid.size <= 60)  # fmt: skip


SITES = ("stream", "head", "MLP", "q", "k", "v", "pattern")
Kind: TypeAlias = Literal["stream", "head", "z", "MLP", "q", "k", "v", "pattern"]
METHODS = ("exact", "attribution", "both")


@torch.inference_mode(False)  # which allows no gradients
def activation_patching(
    model: Model,
    clean: Inputs | Pairs | None = None,
    corrupted: Inputs | None = None,
    by_position: bool = False,
    *,
    metric: Metric = "logit difference",
    direction: Literal["denoise", "noise"] = "denoise",
    sites: Sequence[Kind] = ("stream", "head", "MLP"),
    method: Literal["exact", "attribution", "both"] = "exact",
) -> Patched:
    """Patch every site of one run from another, one at a time, and run the rest of the model.

    For any number of layers and classes, and answers at one or all positions.

    Args:
        clean, corrupted: inputs with different answers, row by row, as text, tokens or batches; or Pairs. Without
            corrupted ones, the task changes each clean input (default: 200 samples) by one token. Rows of different
            lengths are aligned at their read positions.
        by_position: also patch what heads make at single positions (or groups of positions); of a pattern, its queries.
        metric: "logit difference" of the clean and the corrupted answer; "loss" and "probability" of the clean answer;
            "KL", the divergence from the clean run; or a function of logits (reads, n_out), in the task's order, and
            the answers compared (`Compared`) that returns one number for each read.
        direction: "denoise" puts clean values into the corrupted run, "noise" corrupted values into the clean run; the
            column recovered is then what is left of the clean score: 1 where the patch changes nothing.
        sites: "stream" (the residual stream by layer and position), "head" (its output; also called "z"), "MLP", and
            the "q", "k", "v" and "pattern" of each head. The result has .stream, .parts and .at_positions.
        method: "exact"; "attribution": the change of the metric to first order, from one backward pass for all sites
            (attribution patching); "both": the exact numbers, with the estimates and their errors beside them.

    Source: Meng et al. 2022; Wang et al. 2022; Zhang & Nanda 2024; Syed et al. 2023 (attribution).
    Raises InterpError for no pairs, and if the two runs do not differ.

    Example:

        >>> model = interp.load("count01/minimal")
        >>> found = interp.activation_patching(model, "[BOS]1101=", "[BOS]0101=")
        >>> found.to_frame().query("kind == 'head'")[["site", "recovered"]].round(2).values.tolist()
        [['head 0.0', 1.0]]
    """
    subject = Subject.of(model)
    check_one_of("direction of patching", direction, ("denoise", "noise"))
    check_one_of("method of patching", method, METHODS)
    pairs = pairs_from(subject, clean, corrupted)
    if not len(pairs):
        raise InterpError("there are no pairs to patch: no change of a token was found that changes the answer")
    indexed = by_index(pairs)
    pairs = pairs if indexed else reduced_pairs(subject, pairs)
    moved = pairs if direction == "denoise" else Pairs(pairs.corrupted, pairs.clean)
    groups = position_groups(subject, moved, indexed)
    patches = _patches(subject, sites, [*groups], by_position)
    scores = [
        _scores(subject, piece, where, patches, masks, metric, direction, method)
        for piece, masks, where in _pieces(subject, moved, groups, patches)
    ]
    clean_mean, corrupted_mean, number, effects = _effects(scores, direction)
    rows = [(patch.name, patch.kind, patch.layer, patch.head, patch.group) for patch in patches]
    table = pd.DataFrame(rows, columns=["site", "kind", "layer", "head", "position"]).astype({"head": "Int64"})
    named = metric if isinstance(metric, str) else getattr(metric, "__name__", "metric")
    return Patched(table.assign(**effects), clean_mean, corrupted_mean, number, indexed, named, direction)


@dataclass(frozen=True)
class _Patch:
    """A site and the group of positions at which it is patched ("all": everywhere)."""

    kind: str
    place: Part | Site | str
    name: str
    layer: int
    head: int | None = None
    group: str = "all"

    @property
    def hook(self) -> str:
        return self.place if isinstance(self.place, str) else self.place.hook

    def edit(self, values: dict[str, Tensor], masks: dict[str, Tensor]) -> Edit:
        """Return the edit that puts in a value of another run."""
        value = values[self.hook]
        return Edit(self.place, value if isinstance(self.place, str) else self.place.get(value), masks.get(self.group))


def _patches(subject: Subject, sites: Sequence[str], groups: Sequence[str], by_position: bool) -> list[_Patch]:
    """List what is patched: the stream at each group of positions, parts at all positions, then heads by position."""
    kinds = ["head" if kind == "z" else kind for kind in as_list(sites, "sites", '("stream", "head")')]
    if not kinds:
        raise InterpError(f"no sites to patch were given; give at least one of {', '.join(SITES)}")
    for kind in kinds:
        check_one_of("site of patching", kind, SITES)
    n_layers = subject.model.cfg.n_layers
    streams = [
        _Patch("stream", stream_hook(subject, layer), f"stream {stream_name(layer, n_layers)}", layer, group=group)
        for layer in range(n_layers + 1)
        for group in groups
        if "stream" in kinds
    ]
    parts = [_Patch(part.kind, part, str(part), part.layer, part.head) for part in parts_of(subject)]
    parts += [_Patch(site.what, site, str(site), site.layer, site.head) for site in sites_of(subject)]
    parts = [part for part in parts if part.kind in kinds]
    placed = [replace(part, group=group) for part in parts if part.head is not None for group in groups if by_position]
    return [*streams, *parts, *placed]


@dataclass(frozen=True)
class _Scores:
    """Of the clean, the corrupted and the patched runs of some pairs: the metric of each read, and which are right.

    attributed: how much each patch changes the sum of the metric, to first order.
    """

    clean: Float[Tensor, "reads"]
    corrupted: Float[Tensor, "reads"]
    right: Bool[Tensor, "reads"]
    patched: Float[Tensor, "patches reads"] | None
    right_patched: Bool[Tensor, "patches reads"] | None
    attributed: Float[Tensor, "patches"] | None


@torch.no_grad()
def _scores(
    subject: Subject,
    pairs: Pairs,
    where: Compared,
    patches: Sequence[_Patch],
    masks: dict[str, Tensor],
    metric: Metric,
    direction: str,
    method: str,
) -> _Scores:
    """Put values of the first inputs of pairs, which fit into memory, into runs of the second ones, and score these."""
    hooks = list(dict.fromkeys(patch.hook for patch in patches))
    out, seen = activations(subject, pairs.clean, hooks)
    values = align(subject, seen, pairs.corrupted, pairs.clean)
    run = Run(subject, pairs.corrupted, where.reads, hooks)
    edits = [patch.edit(values, masks) for patch in patches]
    ends = [out[where.rows, where.clean_at].double().cpu(), run.logits.double().cpu()]
    if direction == "noise":
        where, ends = where.swapped, ends[::-1]

    def score(logits: Tensor) -> tuple[Tensor, Tensor]:
        logits = logits.double().cpu()
        return measured(subject, metric, logits, where, ends[0]), correct(logits, where.clean, subject.decision)

    (clean, _), (corrupted, _) = map(score, ends)
    patched = right = attributed = None
    if method != "attribution":
        patched, right = map(torch.stack, zip(*run.each([[edit] for edit in edits], score)))
    if method != "exact":

        def total(out: Tensor) -> Tensor:
            return measured(subject, metric, run.where.pick(out).double().cpu(), where, ends[0]).sum()

        slopes = gradients(subject, pairs.corrupted, hooks, total)
        attributed = torch.stack([_along(edit, run.seen[edit.hook], slopes[edit.hook]) for edit in edits])
    return _Scores(clean, corrupted, score(run.logits)[1], patched, right, attributed)


def _along(edit: Edit, value: Tensor, slope: Tensor) -> Float[Tensor, ""]:
    """Return how much an edit changes a sum to first order. slope: its gradient with respect to the activation."""
    changed = value.clone()
    edit.apply(changed)
    return reduce((changed - value) * slope, "... -> ", "sum").double().cpu()


def _effects(scores: Sequence[_Scores], direction: str) -> tuple[float, float, int, dict[str, Any]]:
    """Return the mean metric of both runs, the number of reads, and the columns with the effects of the patches."""
    none = torch.zeros(0, dtype=torch.float64)
    clean, corrupted = (torch.cat([none, *(getattr(piece, end) for piece in scores)]) for end in ("clean", "corrupted"))
    number = len(clean)
    before, after = (float(end.sum()) / max(1, number) for end in (clean, corrupted))
    if not abs(before - after) > 1e-6 * max(abs(before), abs(after), 1e-30):
        raise InterpError(f"the clean and the corrupted runs both lean by {before:.6g}: there is nothing to recover")
    whole = clean - corrupted
    effects: dict[str, Tensor] = {}
    if scores[0].patched is not None:
        gained = torch.cat([piece.patched - piece.corrupted for piece in scores], 1)  # type: ignore[operator]
        recovered = gained.sum(1) / whole.sum()
        rest = gained - recovered[:, None] * whole  # the error of a ratio r of the means of x and y is that of x - r y
        error = rest.std(1) * number**0.5 / whole.sum().abs() if number > 1 else recovered * torch.nan
        denoise = direction == "denoise"
        flips = [(piece.right_patched == denoise) & (piece.right != denoise) for piece in scores]
        effects = {"recovered": recovered, "error": error, "flipped": torch.cat(flips, 1).double().mean(1)}
    if scores[0].attributed is not None:
        start = 0.0 if direction == "denoise" else 1.0
        estimate = start + torch.stack([piece.attributed for piece in scores]).sum(0) / whole.sum()  # type: ignore[misc]
        off = {"off": estimate - effects["recovered"]} if effects else {}
        effects |= {"attributed": estimate, **off}
    return before, after, number, {name: effect.numpy() for name, effect in effects.items()}


def by_index(pairs: Pairs) -> bool:
    """Return whether positions are patched one by one: all rows have the same, short length."""
    length = pairs.corrupted.tokens.shape[1]
    equal = all(bool((batch.lengths == length).all()) for batch in (pairs.clean, pairs.corrupted))
    return length <= MAX_POSITIONS and equal


def position_groups(subject: Subject, pairs: Pairs, indexed: bool) -> dict[str, Bool[Tensor, "rows length"]]:
    """Return the groups of positions that are patched together, as masks of the corrupted inputs.

    These are single positions (see by_index), or the changed tokens, the read position (unless all are read), and all
    others.
    """
    batch = pairs.corrupted
    length = batch.tokens.shape[1]
    if indexed:
        order = torch.arange(length)
        return {str(i): (order == i).expand(len(batch), -1) for i in range(length)}
    index = aligned(subject, batch, pairs.clean)
    mask = batch.attention_mask.cpu()
    changed = (batch.tokens.cpu() != pairs.clean.tokens.cpu().gather(1, index)) & mask
    groups = {"changed tokens": changed}
    if subject.read_at != "all":
        read = reads_of(subject, batch).mask(batch)
        groups["where it is read"] = read & ~changed
        return groups | {"all other tokens": mask & ~read & ~changed}
    return groups | {"all other tokens": mask & ~changed}


def _pieces(
    subject: Subject, pairs: Pairs, groups: dict[str, Tensor], patches: Sequence[_Patch]
) -> Iterator[tuple[Pairs, dict[str, Tensor], Compared]]:
    """Yield batches of pairs with their position groups and reads, skipping batches whose answers do not differ."""
    stored = kept(subject) + 2 * len({patch.hook for patch in patches}) * subject.model.cfg.d_model
    for here, _ in pieces(subject, pairs.corrupted, stored):
        piece = Pairs(subject.trimmed(pairs.clean[here]), subject.trimmed(pairs.corrupted[here]))
        where, length = compared(subject, piece), piece.corrupted.tokens.shape[1]
        if len(where.rows):
            yield piece, {name: mask[here, :length] for name, mask in groups.items()}, where
