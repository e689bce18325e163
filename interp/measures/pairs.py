"""Activation patching on minimal pairs: at which layer, position and part is the answer decided?

A pair is a clean input and a corrupted one with another answer. One site of the corrupted run gets its value from the
clean run, and everything else runs normally (denoising; Meng et al. 2022, Wang et al. 2022). The effect is the logit
difference of the clean and the corrupted answer, scaled from 0 (as corrupted) to 1 (as clean).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.architecture.answers import correct
from interp.errors import InterpError, UnsupportedError, short
from interp.measures.ablation import aligned
from interp.measures.runs import Hook, Part, activations, forward, heads_of, mlps_of, pieces, reads_of
from interp.measures.subject import Model, Subject
from interp.tasks import Batch, Task
from interp.tasks.batch import Pairs
from interp.tasks.sets import unpack_sets
from interp.tasks.validation import check_batch

if TYPE_CHECKING:
    import pandas as pd

MAX_POSITIONS = 40  # largest length for which positions are patched one by one


@dataclass(frozen=True)
class Compared:
    """The reads at which the two inputs of a pair have different answers."""

    rows: Int[Tensor, "reads"]
    clean_at: Int[Tensor, "reads"]
    at: Int[Tensor, "reads"]
    clean: Int[Tensor, "reads"]
    corrupted: Int[Tensor, "reads"]


def compared(subject: Subject, pairs: Pairs) -> Compared:
    """Select one read per row, or all positions read in both inputs, and keep those whose right outputs differ."""
    mine, theirs = reads_of(subject, pairs.clean), reads_of(subject, pairs.corrupted)
    if subject.read_at != "all":
        here = torch.arange(len(mine))
        there = here
    else:
        place = {(int(r), int(p)): i for i, (r, p) in enumerate(zip(theirs.rows, theirs.positions))}
        found = [
            (i, place[key]) for i, key in enumerate(zip(mine.rows.tolist(), mine.positions.tolist())) if key in place
        ]
        here, there = (torch.tensor([pair[k] for pair in found], dtype=torch.long) for k in (0, 1))
    differ = mine.classes[here] != theirs.classes[there]
    here, there = here[differ], there[differ]
    return Compared(
        mine.rows[here], mine.positions[here], theirs.positions[there], mine.classes[here], theirs.classes[there]
    )


def leaning(subject: Subject, logits: Float[Tensor, "reads n_out"], where: Compared) -> Float[Tensor, "reads"]:
    """Return the logit difference of the clean and the corrupted answer."""
    rule, rows = subject.decision, torch.arange(len(logits))
    if rule.kind == "argmax":
        return logits[rows, where.clean] - logits[rows, where.corrupted]
    if rule.kind == "set":  # summed over the outputs in which the two answers differ
        mine, theirs = (unpack_sets(classes, logits.shape[1]).to(logits) for classes in (where.clean, where.corrupted))
        return (logits * (mine - theirs)).sum(-1)
    s = logits[:, 0] if rule.kind == "sigmoid" else (rule.tolerance or 0.0) - logits[:, 0].abs()
    return torch.where(where.clean == 1, s, -s)


@dataclass(frozen=True)
class Patched:
    """Effects of activation patching at every site.

    clean, corrupted: mean logit difference of the two runs (see `leaning`). reads: number of reads averaged over.
    stream: one row per layer and position: layer, position, recovered, error, flipped, for the residual stream before
    the layer (layer = n_layers: after the last one). parts: one row per head or MLP, patched at all positions: part,
    kind, layer, head, recovered, error, flipped. at_positions: the same for heads patched at one position, with a
    column position. by_index: whether positions are indices, not groups (changed tokens, read position, all others).

    Columns: recovered (0: as corrupted, 1: as clean); error, the standard error of recovered (of a ratio of two means,
    by the delta method, with independent reads); flipped, the share of answers changed to the clean input's right one.
    """

    clean: float
    corrupted: float
    reads: int
    stream: pd.DataFrame
    parts: pd.DataFrame
    at_positions: pd.DataFrame
    by_index: bool


@torch.no_grad()
def patch(model: Model, pairs: Pairs, by_place: bool = False) -> Patched:
    """Patch every site of the corrupted runs, one at a time, from the clean runs.

    by_place: also patch every head at single positions (or groups of positions). Rows of different lengths are aligned
    at their read positions. Raises InterpError for no pairs, and if the two runs do not differ.
    """
    import pandas as pd

    subject = Subject.of(model)
    if not len(pairs):
        raise InterpError("there are no pairs to patch: no change of a token was found that changes the answer")
    n_layers = subject.model.cfg.n_layers
    groups = position_groups(subject, pairs)
    parts = sorted([*heads_of(subject), *mlps_of(subject)], key=lambda part: (part.layer, part.head is None))
    streams = [f"blocks.{layer}.hook_resid_pre" for layer in range(n_layers)]
    streams.append(f"blocks.{n_layers - 1}.hook_resid_post")
    names = [*streams, *dict.fromkeys(part.hook for part in parts)]
    placed = [(part, name) for part in parts if part.head is not None for name in groups] if by_place else []
    sites = 2 + len(streams) * len(groups) + len(parts) + len(placed)
    sums, flips = Leanings(sites), torch.zeros(sites, dtype=torch.float64)
    for piece, masks, where in _pieces(subject, pairs, groups, 2 * len(names) * subject.model.cfg.d_model):
        out, clean = activations(subject, piece.clean, names)
        values = align(subject, clean, piece)
        patches: list[tuple[str | Part, Tensor | None]] = [(name, mask) for name in streams for mask in masks.values()]
        patches += [(part, None) for part in parts]
        patches += [(part, masks[name]) for part, name in placed]
        sums.add(0, leaning(subject, out[where.rows, where.clean_at].double().cpu(), where))
        known: dict[object, tuple[Tensor, Tensor]] = {}  # by effect: logit differences, and which answers are right
        for site, patched in enumerate([None, *patches], start=1):
            key = _effect(*patched, where, n_layers - 1) if patched else ()
            if key not in known:  # one run at a time, because all logits may not fit in memory
                hooks = [_hook(*patched, values)] if patched else []
                logits = forward(subject, piece.corrupted, hooks)[where.rows, where.at].double().cpu()
                known[key] = leaning(subject, logits, where), correct(logits, where.clean, subject.decision)
            leans, right = known[key]
            sums.add(site, leans)
            flips[site] += (right & ~known[()][1]).sum()
    number, before, after = sums.number, sums.mean(0), sums.mean(1)
    if not abs(before - after) > 1e-6 * max(abs(before), abs(after), 1e-30):
        raise InterpError(f"the clean and the corrupted runs both lean by {before:.6g}: there is nothing to recover")
    table = pd.DataFrame(
        {
            "recovered": [sums.recovered(site) for site in range(sites)],
            "error": [sums.error(site) for site in range(sites)],
            "flipped": flips / number,
        }
    )
    cells = [(layer, name) for layer in range(n_layers + 1) for name in groups]
    stream = pd.DataFrame(cells, columns=["layer", "position"])
    named = pd.DataFrame(
        [(str(part), part.kind, part.layer, part.head) for part in parts], columns=["part", "kind", "layer", "head"]
    ).astype({"head": "Int64"})
    by_head = pd.DataFrame(
        [(str(part), part.layer, part.head, name) for part, name in placed],
        columns=["part", "layer", "head", "position"],
    )
    middle = 2 + len(cells) + len(parts)
    return Patched(
        before,
        after,
        number,
        stream.join(table.iloc[2 : 2 + len(cells)].reset_index(drop=True)),
        named.join(table.iloc[2 + len(cells) : middle].reset_index(drop=True)),
        by_head.join(table.iloc[middle:].reset_index(drop=True)),
        by_index="0" in groups,
    )


class Leanings:
    """Sums over reads of the logit differences of every run: site 0 is the clean run, site 1 the corrupted one."""

    def __init__(self, sites: int) -> None:
        self.number = 0
        self.first = torch.zeros(sites, dtype=torch.float64)  # sums of the difference from the corrupted run
        self.square = torch.zeros(sites, dtype=torch.float64)
        self.cross = torch.zeros(sites, dtype=torch.float64)  # products with the clean run's difference
        self.base = 0.0

    def add(self, site: int, found: Float[Tensor, "reads"]) -> None:
        """Add a run; sites must come in order."""
        if site == 0:
            self._clean = found
            return
        if site == 1:
            self._corrupted = found
            self.base += float(found.sum())
            self.number += len(found)
            self.add_difference(0, self._clean - found)
        self.add_difference(site, found - self._corrupted)

    def add_difference(self, site: int, found: Float[Tensor, "reads"]) -> None:
        self.first[site] += found.sum()
        self.square[site] += (found**2).sum()
        self.cross[site] += (found * (self._clean - self._corrupted)).sum()

    def mean(self, site: int) -> float:
        """Return the mean logit difference of a run."""
        return (self.base + float(self.first[site])) / max(1, self.number)

    def recovered(self, site: int) -> float:
        return float(self.first[site] / self.first[0])

    def error(self, site: int) -> float:
        """Return the standard error of `recovered`, a ratio r of the means of x and y: sd(x - r y) / (sqrt(n) |y|)."""
        if self.number < 2:
            return float("nan")
        ratio = float(self.first[site] / self.first[0])
        squares = self.square[site] - 2 * ratio * self.cross[site] + ratio**2 * self.square[0]
        return float((squares.clamp_min(0) / (self.number - 1) * self.number).sqrt() / self.first[0].abs())


def position_groups(subject: Subject, pairs: Pairs) -> dict[str, Bool[Tensor, "rows length"]]:
    """Return the groups of positions that are patched together, as masks of the corrupted inputs.

    These are single positions if all rows have the same, short length. Otherwise they are the changed tokens, the read
    position (unless all are read), and all others.
    """
    batch = pairs.corrupted
    length = batch.tokens.shape[1]
    if (
        length <= MAX_POSITIONS
        and bool((batch.lengths == length).all())
        and bool((pairs.clean.lengths == length).all())
    ):
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


def align(subject: Subject, clean: dict[str, Tensor], pairs: Pairs) -> dict[str, Tensor]:
    """Align clean activations with the positions of the corrupted inputs."""
    index = aligned(subject, pairs.corrupted, pairs.clean).to(subject.model.cfg.device)
    rows = torch.arange(len(pairs), device=index.device)[:, None]
    return {name: value[rows, index] for name, value in clean.items()}


def put_part(part: Part, value: Tensor, mask: Bool[Tensor, "rows length"] | None = None) -> Hook:
    """Return a hook that sets a part to its value in the given activations, everywhere or where the mask is true."""

    def put(activation: Tensor, hook: object) -> Tensor:
        changed, given = activation.clone(), part.get(value)
        if mask is not None:
            given = torch.where(mask.to(activation.device)[..., None], given, part.get(activation))
        part.put(changed, given)
        return changed

    return part.hook, put


def _hook(site: str | Part, mask: Bool[Tensor, "rows length"] | None, values: dict[str, Tensor]) -> Hook:
    """Return a hook that patches a part, or the stream at a hook point, everywhere or where the mask is true."""
    if isinstance(site, Part):
        return put_part(site, values[site.hook], mask)
    value = values[site]

    def put(activation: Tensor, hook: object) -> Tensor:
        return value if mask is None else torch.where(mask.to(value.device)[..., None], value, activation)

    return site, put


def _effect(site: str | Part, mask: Bool[Tensor, "rows length"] | None, where: Compared, last: int) -> object:
    """Return a key that is equal for patches with the same effect, and () for a patch without effect.

    After the attention of the last layer, positions no longer affect each other, so only patches at reads have effects.
    """
    hook = site.hook if isinstance(site, Part) else site
    if not hook.startswith(f"blocks.{last}.") or hook.endswith("hook_resid_pre"):
        return site, id(mask)
    reads = torch.ones(len(where.rows), dtype=torch.bool) if mask is None else mask.cpu()[where.rows, where.at]
    return (site, reads.numpy().tobytes()) if bool(reads.any()) else ()


def _pieces(
    subject: Subject, pairs: Pairs, groups: dict[str, Tensor], kept: int
) -> Iterator[tuple[Pairs, dict[str, Tensor], Compared]]:
    """Yield batches of pairs with their position groups and reads, skipping batches whose answers do not differ."""
    for here, _ in pieces(subject, pairs.corrupted, kept):
        piece = Pairs(subject.trimmed(pairs.clean[here]), subject.trimmed(pairs.corrupted[here]))
        where, length = compared(subject, piece), piece.corrupted.tokens.shape[1]
        if len(where.rows):
            yield piece, {name: mask[here, :length] for name, mask in groups.items()}, where


def make_pairs(
    model: Model, batch_size: int = 200, seed: int = 0, split: str | None = None, batch: Batch | None = None
) -> Pairs:
    """Make minimal pairs of the model's task, from fresh inputs or from those of `batch`.

    Raises UnsupportedError if the task defines neither `corrupt` nor `batch`, and InterpError for invalid pairs.
    """
    subject = Subject.of(model)
    task = subject.task
    batch = task.sample(batch_size, split or task.splits[-1], seed=seed) if batch is None else batch
    pairs = task.corrupt(batch, seed)
    if not len(pairs) and not len(pairs.corrupted):
        raise UnsupportedError(f"task {task.name}: no change of one token was found that changes an answer")
    _check_pairs(task, pairs)
    return pairs


def _check_pairs(task: Task, pairs: Pairs) -> None:
    """Raise InterpError for different numbers of rows, equal answers, or labels that differ from task.batch's."""
    clean, corrupted = pairs.clean, pairs.corrupted
    if len(clean) != len(corrupted):
        raise InterpError(f"task {task.name} corrupts {len(clean)} rows into {len(corrupted)}; return one per row")
    for batch in (clean, corrupted):
        check_batch(task, batch, "corrupt(batch)")
        if task.labels_tokens and not task.batch(batch.tokens).labels.equal(batch.labels):
            raise InterpError(f"task {task.name}: corrupt(batch) labels rows differently from batch(tokens)")
    if clean.labels.shape == corrupted.labels.shape:
        same = (clean.labels == corrupted.labels).reshape(len(clean), -1).all(1)
        if bool(same.any()):
            text = task.format(corrupted.tokens[same][0, : int(corrupted.lengths[same][0])])
            raise InterpError(f"task {task.name} corrupts an input into {short(text)!r}, which has the same answer")
