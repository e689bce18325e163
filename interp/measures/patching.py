"""Activation patching on minimal pairs: at which layer, position and part is the answer decided?

A pair is a clean input and a corrupted one with another answer, aligned where they are read. One site of the corrupted
run gets its value from the clean run, and everything else runs normally (denoising; Meng et al. 2022, Wang et al.
2022). The effect is the logit difference of the clean and the corrupted answer, scaled from 0 (as corrupted) to 1 (as
clean).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.errors import InterpError, UnsupportedError, check_one_of, short
from interp.measures.ablation import align, aligned
from interp.measures.results import Figure, Inputs, Tabular, as_batch, draw, reduced_pairs
from interp.measures.runs import (
    Edit,
    Part,
    activations,
    forward,
    hooks_of,
    parts_of,
    pieces,
    read_last,
    read_out,
    reads_of,
    stream_hook,
    stream_name,
    writes,
)
from interp.models.architecture.answers import correct
from interp.models.subject import Model, Subject
from interp.support.words import counted
from interp.tasks import Batch, Task
from interp.tasks.batch_checks import check_batch
from interp.tasks.pairs import KINDS, Pairs, minimal_pairs
from interp.tasks.sets import unpack_sets

# ---------------------------------------------------------------- minimal pairs

FEWEST = 10
"""Least number of pairs of a kind."""


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


def pairs_from(
    subject: Subject, clean: Inputs | Pairs | None = None, corrupted: Inputs | None = None, n: int = 200
) -> Pairs:
    """Return the given pairs; or pairs of the given inputs, checked; or those that the task makes of `clean`."""
    if isinstance(clean, Pairs):
        return clean
    if corrupted is None:
        return make_pairs(subject, n, batch=None if clean is None else as_batch(subject, clean))
    if clean is None:
        raise InterpError("corrupted inputs are given without clean ones")
    pairs = Pairs(as_batch(subject, clean), as_batch(subject, corrupted))
    if len(pairs.clean) != len(pairs.corrupted):
        raise InterpError(f"{len(pairs.clean)} clean and {len(pairs.corrupted)} corrupted rows do not form pairs")
    if not len(compared(subject, pairs).rows):
        raise InterpError("the clean and the corrupted inputs have the same answers, so nothing can be recovered")
    return pairs


def pairs_by_kind(model: Model, batch_size: int = 64, batch: Batch | None = None) -> dict[str, Pairs]:
    """Make minimal pairs of the kinds that a task allows: "own", if the task makes its own, and each of KINDS.

    Kinds with fewer than FEWEST pairs are left out, but for the task's own. Raises as make_pairs does if there is none.
    """
    subject = Subject.of(model)
    task = subject.task
    batch = task.sample(batch_size, task.splits[-1], seed=0) if batch is None else batch
    made = {kind: minimal_pairs(task, batch, 0, kind) for kind in KINDS} if task.labels_tokens else {}
    found = {kind: pairs for kind, pairs in made.items() if len(pairs) >= FEWEST and len(compared(subject, pairs).rows)}
    if type(task).corrupt is Task.corrupt and found:
        return found
    return {"own": make_pairs(subject, batch=batch), **found}


def make_pairs(model: Model, batch_size: int = 200, seed: int = 0, batch: Batch | None = None) -> Pairs:
    """Make minimal pairs of the model's task, from fresh inputs or from those of `batch`.

    Raises UnsupportedError if the task defines neither `corrupt` nor `batch`, and InterpError for invalid pairs.
    """
    subject = Subject.of(model)
    task = subject.task
    batch = task.sample(batch_size, task.splits[-1], seed=seed) if batch is None else batch

    def make(batch: Batch) -> Pairs:
        pairs = task.corrupt(batch, seed)
        if not len(pairs) and not len(pairs.corrupted):
            raise UnsupportedError(f"task {task.name}: no change of one token was found that changes an answer")
        _check_pairs(task, pairs)
        return pairs

    return subject.once(make, batch, ("pairs", seed))


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


# ---------------------------------------------------------------- patching

MAX_POSITIONS = 40  # largest length for which positions are patched one by one


@dataclass(frozen=True, eq=False, repr=False)
class Patched(Tabular):
    """Effects of activation patching at every site.

    clean, corrupted: mean logit difference of the two runs (see `leaning`). reads: number of reads averaged over.
    by_index: whether positions are indices, not groups (changed tokens, read position, all others).

    Columns of the table: site, kind (stream: the residual stream before a layer or, with layer = n_layers, after the
    last one; head; MLP), layer, head, position ("all" for a part at all positions); recovered (0: as corrupted, 1: as
    clean); error, the standard error of recovered (of a ratio of two means, by the delta method, with independent
    reads); flipped, the share of answers changed to the clean input's right one.
    """

    clean: float
    corrupted: float
    reads: int
    by_index: bool

    @property
    def title(self) -> str:
        return (
            "Activation patching: share of the logit difference that one site of the clean run restores in the "
            f"corrupted run, {counted(self.reads, 'answer')}"
        )

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
        found = self.table
        return found[(found["kind"] == "head") & (found["position"] != "all")].reset_index(drop=True)

    def plot(self, what: Literal["stream", "parts", "heads"] = "stream") -> Figure:
        """Draw the residual stream by layer and position, the parts, or the heads by position."""
        check_one_of("plot of patching", what, ("stream", "parts", "heads"))
        if what == "parts":
            return draw.bars(
                self.parts, "site", "recovered", "kind", x_title="part that is patched", y_title="recovered"
            )
        table = self.stream if what == "stream" else self.at_positions
        if table.empty:
            raise InterpError("heads were not patched at single positions: pass by_position=True")
        grid = table.pivot(index="site", columns="position", values="recovered")
        grid = grid.loc[list(dict.fromkeys(table["site"])), list(dict.fromkeys(self.stream["position"]))]
        rows = [name.removeprefix("stream ") for name in grid.index]
        across, down = "position" if self.by_index else "positions", "residual stream" if what == "stream" else "head"
        return draw.heatmap(grid, list(grid.columns), rows, across, down, "recovered", 0.0, square=False,
                            show_values=grid.size <= 60)  # fmt: skip


@torch.no_grad()
def activation_patching(
    model: Model, clean: Inputs | Pairs | None = None, corrupted: Inputs | None = None, by_position: bool = False
) -> Patched:
    """Patch every site of the corrupted runs, one at a time, from the clean runs, and run the rest of the model.

    Sites are the residual stream by layer and position, every head and every MLP. For any number of layers and classes,
    and answers at one or all positions. clean, corrupted: inputs with different answers, row by row, as text, tokens or
    batches; or Pairs. Without corrupted ones, the task changes each clean input (default: 200 samples) by one token.
    by_position: also patch every head at single positions (or groups of positions). Rows of different lengths are
    aligned at their read positions. Source: Meng et al. 2022; Zhang & Nanda 2024.
    Raises InterpError for no pairs, and if the two runs do not differ.

    Example:

        >>> model = interp.load("count01/minimal")
        >>> found = interp.activation_patching(model, "[BOS]1101=", "[BOS]0101=")
        >>> found.to_frame().query("kind == 'head'")[["site", "recovered"]].round(2).values.tolist()
        [['head 0.0', 1.0]]
    """
    subject = Subject.of(model)
    pairs = pairs_from(subject, clean, corrupted)
    if not len(pairs):
        raise InterpError("there are no pairs to patch: no change of a token was found that changes the answer")
    n_layers = subject.model.cfg.n_layers
    indexed = by_index(pairs)
    pairs = pairs if indexed else reduced_pairs(subject, pairs)
    groups = position_groups(subject, pairs, indexed)
    parts = parts_of(subject)
    streams = [stream_hook(subject, layer) for layer in range(n_layers + 1)]
    patches: list[tuple[Any, str]] = [(name, group) for name in streams for group in groups]
    patches += [(part, "all") for part in parts]
    patches += [(part, group) for part in parts if part.head is not None for group in groups if by_position]
    names = [*streams, *dict.fromkeys(part.hook for part in parts)]
    runs, last = 1 + len(patches), read_last(subject)
    # Of the clean run, the corrupted one and each patch: logit differences, and (but of the clean run) right answers.
    found = [(torch.zeros(1 + runs, 0, dtype=torch.float64), torch.zeros(runs, 0, dtype=torch.bool))]
    for piece, masks, where in _pieces(subject, pairs, groups, 2 * len(names) * subject.model.cfg.d_model):
        out, seen = activations(subject, piece.clean, names)
        values = align(subject, seen, piece.corrupted, piece.clean)
        clean_leans = leaning(subject, out[where.rows, where.clean_at].double().cpu(), where)
        base, unpatched = activations(subject, piece.corrupted, names)
        known: dict[object, tuple[Tensor, Tensor]] = {}  # by effect: logit differences, and which answers are right
        keys = []
        for what, mask in [(None, None), *((what, masks.get(group)) for what, group in patches)]:
            key = () if what is None else _effect(what, mask, where, n_layers - 1)
            if key not in known:  # one run at a time, because all logits may not fit in memory
                if what is None:
                    logits = base[where.rows, where.at]
                elif what in last:  # its change only adds to the last residual stream
                    change = writes(subject, what, values) - writes(subject, what, unpatched)
                    stream = unpatched[streams[-1]] + (change if mask is None else change * mask[..., None])
                    logits = read_out(subject, stream[where.rows, where.at])
                else:
                    value = what.get(values[what.hook]) if isinstance(what, Part) else values[what]
                    put = hooks_of([Edit(what, value, mask)])
                    logits = forward(subject, piece.corrupted, put)[where.rows, where.at]
                logits = logits.double().cpu()
                known[key] = leaning(subject, logits, where), correct(logits, where.clean, subject.decision)
            keys.append(key)
        here, right_here = zip(*(known[key] for key in keys))
        found.append((torch.stack([clean_leans, *here]), torch.stack(right_here)))
    leans, right = (torch.cat(some, 1) for some in zip(*found))
    number = leans.shape[1]
    before, after = (leans[:2].sum(1) / max(1, number)).tolist()
    if not abs(before - after) > 1e-6 * max(abs(before), abs(after), 1e-30):
        raise InterpError(f"the clean and the corrupted runs both lean by {before:.6g}: there is nothing to recover")
    rows = [
        (str(what), what.kind, what.layer, what.head, group)
        if isinstance(what, Part)
        else (f"stream {stream_name(streams.index(what), n_layers)}", "stream", streams.index(what), None, group)
        for what, group in patches
    ]
    table = pd.DataFrame(rows, columns=["site", "kind", "layer", "head", "position"]).astype({"head": "Int64"})
    gained, whole = leans[2:] - leans[1], leans[0] - leans[1]
    recovered = gained.sum(1) / whole.sum()
    rest = gained - recovered[:, None] * whole  # the error of a ratio r of the means of x and y is that of x - r y
    error = rest.std(1) * number**0.5 / whole.sum().abs() if number > 1 else recovered * torch.nan
    flipped = (right[1:] & ~right[0]).double().mean(1)
    table = table.assign(recovered=recovered.numpy(), error=error.numpy(), flipped=flipped.numpy())
    return Patched(table, before, after, number, by_index=indexed)


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
