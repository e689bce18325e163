"""Rows with counts: each distinct token of an input once, with how often it occurs.

In one layer of softmax attention without positions, equal tokens have equal scores and values. So what a head gives at
the read position stays the same if a token that occurs c times is held once, with ln c added to its score (see
architecture.reduced). Inputs of 500 tokens then run as six, with all hooks at their places, and edits of positions mean
what they mean in whole inputs: positions that an edit tells apart are held apart, and so is the read position.
"""

from dataclasses import replace

import torch

from interp.architecture.reduced import counted_refusal
from interp.architecture.task_model import TaskModel, hooked
from interp.measures.subject import Subject
from interp.tasks import Batch
from interp.tasks.batch import Pairs

KINDS = 4096
"""Largest number of kinds of positions to count."""


def reduces(subject: Subject) -> bool:
    """Test whether inputs may be run as distinct tokens with counts: what is read depends on the counts alone."""
    if not isinstance(subject.model, TaskModel) or counted_refusal(subject.model.spec) is not None:
        return False
    return subject.read_at not in ("all", "first") and not hooked(subject.model)


def reduced(subject: Subject, batch: Batch) -> Batch:
    """Return the inputs with each distinct token once, or as they are if outputs depend on more or nothing is gained.

    The read position is held apart. In a study, the last results are kept.
    """
    if not reduces(subject):
        return batch
    return subject.once(lambda batch: _reduced(subject, batch)[0], batch, "reduced")


def reduced_pairs(subject: Subject, pairs: Pairs) -> Pairs:
    """Return pairs with each pair of tokens (clean, corrupted) at one position once, at the same place in both inputs.

    Pairs stay as they are if outputs depend on more than counts, or if the two are read at different positions.
    """
    if not reduces(subject):
        return pairs
    return Pairs(*_reduced(subject, pairs.clean, pairs.corrupted))


def _reduced(subject: Subject, *batches: Batch) -> tuple[Batch, ...]:
    first, kinds = batches[0], subject.task.d_vocab ** len(batches)
    read = [subject.answer_positions(batch.tokens) for batch in batches]
    filler = _filler(subject)
    alike = all(
        torch.equal(at, read[0]) and batch.tokens.shape == first.tokens.shape for at, batch in zip(read, batches)
    )
    single = all(batch.labels.ndim == 1 and batch.counts is None for batch in batches)
    if not alike or not single or filler is None or not len(first) or kinds > KINDS:
        return batches
    code = torch.zeros_like(first.tokens)
    for batch in batches:
        code = code * subject.task.d_vocab + batch.tokens
    seen = torch.stack([batch.attention_mask for batch in batches]).all(0)
    if subject.model.cfg.attention_dir == "causal":
        seen = seen & (torch.arange(code.shape[1]) <= read[0][:, None])
    elif not all(torch.equal(batch.lengths, first.lengths) for batch in batches):
        return batches
    rows = torch.arange(len(code))
    asked = code[rows, read[0]]
    counts = torch.zeros(len(code), kinds, dtype=torch.long).scatter_add_(1, code, seen.long())
    counts[rows, asked] -= 1
    present = counts.sum(0).nonzero()[:, 0]  # kinds that occur at all
    counts = counts[:, present]
    width = int((counts > 0).sum(1).max()) + 1
    if width >= code.shape[1]:
        return batches
    # Present kinds go to the right, in order; the read position is the last.
    order = (counts > 0).byte().argsort(dim=1, stable=True)[:, counts.shape[1] - width + 1 :]
    held = counts.gather(1, order)
    kind = torch.cat([present[order], asked[:, None]], 1)
    often = torch.cat([held, torch.ones(len(code), 1, dtype=torch.long)], 1)
    found = []
    for place, batch in enumerate(batches):
        tokens = kind // subject.task.d_vocab ** (len(batches) - 1 - place) % subject.task.d_vocab
        tokens = torch.where(often > 0, tokens, filler)
        lengths = torch.full_like(batch.lengths, width)
        found.append(replace(batch, tokens=tokens, lengths=lengths, counts=often))
    same = all(
        bool((subject.answer_positions(short.tokens) == width - 1).all())
        and torch.equal(subject.classes(short), subject.classes(batch))
        for short, batch in zip(found, batches)
    )
    return tuple(found) if same else batches  # a task may find its answers in tokens that are left out


def _filler(subject: Subject) -> int | None:
    """Return a token to fill rows with: neither padding nor the one at which answers are read."""
    task = subject.task
    return next((i for i, word in enumerate(task.vocabulary) if i != task.pad_id and word != subject.read_at), None)
