"""Activation patching on minimal pairs: at which layer and position, and in which part, is what decides the answer?

A clean input and a corrupted one with another answer; the value of one site of the corrupted run is replaced by the
clean run's, all else runs on (denoising; Meng et al. 2022, Wang et al. 2022). What is measured is the difference of
the clean and the corrupted answer's logits, on a scale from 0 (as corrupted) to 1 (as clean).
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
from interp.measures.runs import Hook, Part, activations, forward, heads_of, mlps_of, pieces, reads
from interp.measures.subject import Model, Subject
from interp.tasks import Task
from interp.tasks.batch import Pairs
from interp.tasks.checks import check_batch

if TYPE_CHECKING:
    import pandas as pd

MAX_POSITIONS = 40  # up to so many positions are patched one by one


@dataclass(frozen=True)
class Compared:
    """The reads at which the two inputs of some pairs have different answers."""

    rows: Int[Tensor, "reads"]
    clean_at: Int[Tensor, "reads"]
    at: Int[Tensor, "reads"]
    clean: Int[Tensor, "reads"]
    corrupted: Int[Tensor, "reads"]


def compared(subject: Subject, pairs: Pairs) -> Compared:
    """One read a row, or all positions that are read in both inputs; those with different right outputs."""
    mine, theirs = reads(subject, pairs.clean), reads(subject, pairs.corrupted)
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
    """How far outputs lean to the clean answer rather than the corrupted one, in units of logits."""
    rule, rows = subject.decision, torch.arange(len(logits))
    if rule.kind == "argmax":
        return logits[rows, where.clean] - logits[rows, where.corrupted]
    s = logits[:, 0] if rule.kind == "sigmoid" else (rule.tolerance or 0.0) - logits[:, 0].abs()
    return torch.where(where.clean == 1, s, -s)


@dataclass(frozen=True)
class Patched:
    """clean, corrupted: mean leaning of the two runs (see `leaning`); reads: how many they are means over.

    stream: one row a layer and position: layer, position, recovered, flipped. The residual stream before that layer
    (after the last one: layer = n_layers). parts: one row a head or MLP, patched at all positions: part, kind, layer,
    head, recovered, flipped. recovered: 0 as corrupted, 1 as clean. flipped: share of the answers that become the clean
    input's right ones, and were not without the patch. by_index: whether positions are indices (else: changed tokens,
    the position that is read, all other ones).
    """

    clean: float
    corrupted: float
    reads: int
    stream: pd.DataFrame
    parts: pd.DataFrame
    by_index: bool


@torch.no_grad()
def patch(model: Model, pairs: Pairs) -> Patched:
    """Patch every site of the corrupted runs of some pairs, one at a time, from the clean runs.

    Rows of different lengths lie upon each other where they are read. Raises InterpError for no pairs, and where the
    two runs do not differ.
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
    sites = 2 + len(streams) * len(groups) + len(parts)
    leanings, flips, number = torch.zeros(sites, dtype=torch.float64), torch.zeros(sites, dtype=torch.float64), 0
    for piece, masks, where in _pieces(subject, pairs, groups, 2 * len(names) * subject.model.cfg.d_model):
        out, clean = activations(subject, piece.clean, names)
        values = align(subject, clean, piece)
        hooks: list[list[Hook]] = [[_put(name, values[name], mask)] for name in streams for mask in masks.values()]
        hooks += [[put_part(part, values[part.hook])] for part in parts]
        unpatched = torch.zeros(0, dtype=torch.bool)
        for site, hook in enumerate([None, [], *hooks]):  # one run at a time: of large vocabularies, all do not fit
            at, run = (where.clean_at, out) if hook is None else (where.at, forward(subject, piece.corrupted, hook))
            logits = run[where.rows, at].double().cpu()
            leanings[site] += leaning(subject, logits, where).sum()
            right = correct(logits, where.clean, subject.decision)
            unpatched = right if site < 2 else unpatched
            flips[site] += (right & ~unpatched).sum()
        number += len(where.rows)
    means = (leanings / max(1, number)).tolist()
    before, after = means[0], means[1]
    if not abs(before - after) > 1e-6 * max(abs(before), abs(after), 1e-30):
        raise InterpError(f"the clean and the corrupted runs both lean by {before:.6g}: there is nothing to recover")
    table = pd.DataFrame(
        {"recovered": [(mean - after) / (before - after) for mean in means], "flipped": flips / number}
    )
    cells = [(layer, name) for layer in range(n_layers + 1) for name in groups]
    stream = pd.DataFrame(cells, columns=["layer", "position"])
    named = pd.DataFrame(
        [(str(part), part.kind, part.layer, part.head) for part in parts], columns=["part", "kind", "layer", "head"]
    ).astype({"head": "Int64"})
    return Patched(
        before,
        after,
        number,
        stream.join(table.iloc[2 : 2 + len(cells)].reset_index(drop=True)),
        named.join(table.iloc[2 + len(cells) :].reset_index(drop=True)),
        by_index="0" in groups,
    )


def position_groups(subject: Subject, pairs: Pairs) -> dict[str, Bool[Tensor, "rows length"]]:
    """Positions of the corrupted inputs that are patched together: each by itself where all rows have one short length.

    Else by what they are: changed tokens, the one that is read, and all others.
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
        read = reads(subject, batch).mask(batch)
        groups["where it is read"] = read & ~changed
        return groups | {"all other tokens": mask & ~read & ~changed}
    return groups | {"all other tokens": mask & ~changed}


def align(subject: Subject, clean: dict[str, Tensor], pairs: Pairs) -> dict[str, Tensor]:
    """Clean activations as seen from the positions of the corrupted inputs."""
    index = aligned(subject, pairs.corrupted, pairs.clean).to(subject.model.cfg.device)
    rows = torch.arange(len(pairs), device=index.device)[:, None]
    return {name: value[rows, index] for name, value in clean.items()}


def put_part(part: Part, value: Tensor) -> Hook:
    """A hook that gives one part its value from activations of the same hook point."""

    def put(activation: Tensor, hook: object) -> Tensor:
        changed = activation.clone()
        part.put(changed, part.get(value))
        return changed

    return part.hook, put


def _put(name: str, value: Tensor, mask: Bool[Tensor, "rows length"]) -> Hook:
    where = mask.to(value.device)

    def put(activation: Tensor, hook: object) -> Tensor:
        return torch.where(where[..., None], value, activation)

    return name, put


def _pieces(
    subject: Subject, pairs: Pairs, groups: dict[str, Tensor], kept: int
) -> Iterator[tuple[Pairs, dict[str, Tensor], Compared]]:
    """Pairs that run together, with their positions and reads; rows without a read that differs are left out."""
    for here, _ in pieces(subject, pairs.corrupted, kept):
        piece = Pairs(subject.trimmed(pairs.clean[here]), subject.trimmed(pairs.corrupted[here]))
        where, length = compared(subject, piece), piece.corrupted.tokens.shape[1]
        if len(where.rows):
            yield piece, {name: mask[here, :length] for name, mask in groups.items()}, where


def make_pairs(model: Model, batch_size: int = 200, seed: int = 0, split: str | None = None) -> Pairs:
    """Minimal pairs of the model's task, from fresh inputs.

    Raises UnsupportedError where the task says neither `corrupt` nor `batch`, InterpError where its pairs are none.
    """
    subject = Subject.of(model)
    task = subject.task
    batch = task.sample(batch_size, split or task.splits[-1], seed=seed)
    pairs = task.corrupt(batch, seed)
    if not len(pairs) and not len(pairs.corrupted):
        raise UnsupportedError(f"task {task.name}: no change of one token was found that changes an answer")
    _check_pairs(task, pairs)
    return pairs


def _check_pairs(task: Task, pairs: Pairs) -> None:
    """Raise InterpError for rows that are no pairs: of another number, of one answer, or labelled as batch does not."""
    clean, corrupted = pairs.clean, pairs.corrupted
    if len(clean) != len(corrupted):
        raise InterpError(f"task {task.name} corrupts {len(clean)} rows into {len(corrupted)}; give one for each")
    for batch in (clean, corrupted):
        check_batch(task, batch, "corrupt(batch)")
        if type(task).batch is not Task.batch and not task.batch(batch.tokens).labels.equal(batch.labels):
            raise InterpError(f"task {task.name}: corrupt(batch) labels rows otherwise than batch(tokens)")
    if clean.labels.shape == corrupted.labels.shape:
        same = (clean.labels == corrupted.labels).reshape(len(clean), -1).all(1)
        if bool(same.any()):
            text = task.format(corrupted.tokens[same][0, : int(corrupted.lengths[same][0])])
            raise InterpError(f"task {task.name} corrupts an input into {short(text)!r}, which has the same answer")
