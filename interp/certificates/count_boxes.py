"""Exact accuracy on every input of a box of counts, by enumeration in count space.

The output of a supported model depends only on the counts (n0, n1, n2), so one evaluation per triple is enough: 502,500
for the Count01 test domain, 8,120,601 for the cube 0..200 (errata of the Count01 paper, "Exact symmetry"). They are
evaluated slab by slab: n0 is fixed, and n1 on one side of it, so the right token is the same everywhere. A head's
output is a ratio of two sums, and each sum has one part that depends only on n1 and one that depends only on n2.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.certificates.certificate import Certificate, MarginCounts, Progress, anything, register_method
from interp.certificates.probes import Probes, margins
from interp.certificates.rounding import margin_errors
from interp.errors import InterpError, UnsupportedError, check_one_of, one_of
from interp.models.architecture.answers import Decision, find_positions, right_in_run
from interp.models.architecture.reduced import (
    SAFE_SPREAD,
    CountedRows,
    TokenTables,
    count_space_refusal,
    reduced_outputs,
)
from interp.models.architecture.task_model import TaskModel
from interp.tasks import Task
from interp.tasks.counted import CountBox, CountedShape, check_box, count_box, count_names, sentences, shape_of

Question = Literal["answer", "4 against 5", "end"]


@dataclass(frozen=True)
class Slab:
    """All inputs of a box with a fixed n0, and n1 in a range on one side of it; they have the same right answer.

    keys: the counts that the query token sees at the slab's smallest n1 and n2. right: index of the right logit, among
    all or among those of the two answers. varied: the tokens counted by n1 and n2.
    """

    n0: int
    n1: Int[np.ndarray, " n1"]
    n2: Int[np.ndarray, " n2"]
    query: int
    keys: Int[Tensor, " d_vocab"]
    right: int
    varied: tuple[int, int]

    def counts(self, index: Int[np.ndarray, " inputs"]) -> Int[np.ndarray, "inputs 3"]:
        """Return (n0, n1, n2) of inputs, numbered with n2 running fastest."""
        first, second = np.divmod(index, len(self.n2))
        return np.stack([np.full_like(first, self.n0), self.n1[first], self.n2[second]], 1)


def slabs(shape: CountedShape, box: CountBox, question: Question) -> Iterator[Slab]:
    (low0, high0), (low1, high1), (low2, high2) = box.ranges.values()
    n2 = np.arange(low2, high2 + 1)
    for n0 in range(low0, high0 + 1):
        for first, last in ((low1, min(n0, high1)), (max(n0 + 1, low1), high1)):
            if first > last:
                continue
            rows = shape.end_rows if question == "end" else shape.answer_rows
            query, keys, right = rows(torch.tensor([[n0, first, low2]]))
            yield Slab(n0, np.arange(first, last + 1), n2, int(query), keys[0], int(right), shape.counted[1:])


def slab_logits(tables: TokenTables, slab: Slab) -> Float[Tensor, "n_out inputs"]:
    """Return the logits of one model on a slab, by a softmax per row if attention weights could underflow."""
    scores, values = tables.scores[0, :, slab.query], tables.values[0]
    first, second = slab.varied
    offset, n_first, n_second = tables.offset[0, slab.query][:, None], len(slab.n1), len(slab.n2)
    if float((scores.amax(-1) - scores.amin(-1)).max()) >= SAFE_SPREAD[torch.float64]:
        keys = slab.keys.double().repeat(n_first * n_second, 1)
        keys[:, first] += torch.arange(n_first).repeat_interleave(n_second)
        keys[:, second] += torch.arange(n_second).repeat(n_first)
        return reduced_outputs(tables, CountedRows(torch.full((1, n_first * n_second), slab.query), keys[None]))[0].T
    weights = (scores - scores.amax(-1, keepdim=True)).exp()  # (heads, d_vocab)
    terms = torch.cat([weights[..., None] * values, weights[..., None]], -1).movedim(1, -1)  # (heads, d_head + 1, key)
    corner = (terms @ slab.keys.double())[..., None]
    by_first = corner + terms[..., first, None] * torch.arange(n_first)
    by_second = terms[..., second, None] * torch.arange(n_second)
    sums = by_first[..., None] + by_second[..., None, :]  # (heads, d_head + 1, n1, n2)
    z = sums[:, :-1] / sums[:, -1:]
    assert tables.readout is not None
    return tables.readout[0].flatten(0, 1).T @ z.flatten(2).flatten(0, 1) + offset


def between(tables: TokenTables, right: int, wrong: int) -> TokenTables:
    """Return tables for the logit difference of two tokens, as the logits (right - wrong, 0)."""
    assert tables.readout is not None
    readout = tables.readout[..., right] - tables.readout[..., wrong]
    folded = tables.values @ readout[..., None]
    eye = torch.tensor([1.0, 0.0], dtype=torch.float64).expand(*readout.shape[:2], 1, 2)
    offset = tables.offset[..., right] - tables.offset[..., wrong]
    return TokenTables(tables.scores, folded, eye, torch.stack([offset, torch.zeros_like(offset)], -1))


QUESTIONS: tuple[Question, ...] = ("answer", "4 against 5", "end")


def question_words(task: Task, shape: CountedShape, question: Question) -> str:
    """Return the question in the task's words."""
    first, second = task.contrast or ("", "")
    if question == "4 against 5":
        return f"{first} against {second}"
    if question == "answer":
        return f"answer at '{task.readout}'"
    return f"{task.answer_words[shape.after[1]] if shape.after else 'nothing'} after the answer"


TAKES = {
    **anything("task", "origin", "dtype", "d_model", "embedding", "readout_bias", "n_out"),
    **anything("layers.n_heads", "layers.d_head", "layers.scale", "layers.query_key", "layers.value_output"),
    **anything("layers.bias.q", "layers.bias.k", "layers.bias.v", "layers.bias.o", "layers.norm_eps"),
    "layers": (1,),
    "layers.norm": ("pre",),
    **anything("readout_at"),
}
"""Causal attention without positions, so that the read position sees only counts."""

PROBED, PROBED_WHOLE = 240, 40
"""Number of inputs on which the model itself is run (smallest margins, and random ones), and how many of these are run
as whole sentences."""


def refusal(model: TaskModel) -> str | None:
    """Return the reason why this method does not apply to a model, or None."""
    try:
        shape_of(model.task)
    except UnsupportedError as error:
        return str(error)
    if model.spec.readout_at != model.task.readout:
        return f"the answer is read at {model.spec.readout_at!r}, but the task's counts are for {model.task.readout!r}"
    return count_space_refusal(model.spec)


def as_box(task: Task, box: CountBox | str | None) -> CountBox:
    """Convert a box, a split's name, "cube" (0..200 each), or None (the last split's domain) to a box.

    Its counts are named after the task's tokens.
    """
    box = CountBox((0, 200), (0, 200), (0, 200)) if box == "cube" else box
    if isinstance(box, CountBox):
        return replace(box, names=count_names(task.counted))
    if box is not None and box not in (known := boxes(task)["box"]):
        raise InterpError(one_of(f"box of task {task.name}", box, known))
    return count_box(task, box)


def boxes(task: Task) -> dict[str, tuple[str, ...]]:
    """Return the names that the option box accepts."""
    return {"box": (*task.count_ranges, "cube")}


@dataclass
class Sweep(MarginCounts):
    """The account of a box.

    errors: counts of the wrong inputs. wrong_between: number of inputs on which the other answer of the task's contrast
    (Count01: '4' against '5') is at least as large as the right one. near: counts at the smallest margins of the box's
    slabs, smallest first. neither: for the question "answer", number of errors whose answer is not in the contrast.
    """

    errors: Int[np.ndarray, "errors 3"] = field(default_factory=lambda: np.zeros((0, 3), dtype=int))
    wrong_between: int = 0
    near: Int[np.ndarray, "near 3"] = field(default_factory=lambda: np.zeros((0, 3), dtype=int))
    neither: int = 0


@torch.no_grad()
def sweep(model: TaskModel, box: CountBox, question: Question = "answer", progress: Progress | None = None) -> Sweep:
    """Evaluate the model in float64 on all counts of a box."""
    tables = model.token_tables()
    shape = shape_of(model.task)
    bounds, both = rounding_bounds(model, shape, box), sum(shape.answers)
    folded = {right: between(tables, right, both - right) for right in shape.answers}
    swept, errors, done = Sweep(), [np.zeros((0, 3), dtype=int)], 0
    near: list[tuple[float, np.ndarray]] = []
    for slab in slabs(shape, box, question):
        if question == "4 against 5":
            margin = slab_logits(folded[slab.right], slab)[0].numpy()
        else:
            out = slab_logits(tables, slab)
            true = out[slab.right].clone()
            other = out[both - slab.right]
            out[slab.right] = -torch.inf
            rival = out.amax(0)
            if question == "answer":
                swept.wrong_between += int((other >= true).sum())
                swept.neither += int((~(true > rival) & ~(other >= rival)).sum())
            margin = (true - rival).numpy()
        margin = np.nan_to_num(margin, nan=-np.inf, posinf=np.inf)  # overflow even in float64 counts as wrong
        least = swept.take(margin, *bounds(slab.query))
        near.append((float(margin[least]), slab.counts(np.array([least]))[0]))
        if margin[least] <= 0:
            errors.append(slab.counts(np.flatnonzero(margin <= 0)))
        done += len(margin)
        if progress is not None:
            progress(done, len(box))
    swept.errors = np.concatenate(errors)
    if question == "4 against 5":
        swept.wrong_between = swept.wrong
    near.sort(key=lambda pair: pair[0])
    swept.near = np.stack([counts for _, counts in near[: PROBED // 2]])
    return swept


def rounding_bounds(model: TaskModel, shape: CountedShape, box: CountBox) -> Callable[[int], tuple[float, float]]:
    """Return rounding bounds on margins by query token: in the model's own format, and in float64."""
    n = sum(high for _, high in box.ranges.values()) + int(shape.marks.sum()) + 1
    seen = {*shape.marks.nonzero()[:, 0].tolist(), *shape.counted}
    return cache(lambda query: margin_errors(model, query, torch.tensor(sorted({*seen, query})), n))


@register_method("count box", ("counted", "contrast", "count_ranges"), refusal, TAKES, names=boxes)
def certify_box(
    model: TaskModel, box: CountBox | str | None = None, question: Question = "answer", progress: Progress | None = None
) -> Certificate:
    """Certify the answer on every input of a box of counts.

    box: a CountBox, a split's name, or "cube" (0..200 each) (default: the last split's box, in Count01 the paper's test
    set). question: "answer" (the right token beats all others), "4 against 5" (it beats the other answer of the
    contrast; faster) or "end" (the token after the right answer). Margins are computed in float64 on every input. The
    model is certified in its own number format if every margin exceeds the rounding bound. The certificate's tables:
    "errors" (difference n1 - n0, errors, inputs; attrs["neither"]: see Sweep), "frontier" (the third count by its name,
    min_difference, max_difference of the errors), "accuracy" (for the question; with "answer" also for the others).
    Raises InterpError for an unknown box or question, and for a task whose labels contradict its declarations.
    """
    task, shape = model.task, shape_of(model.task)
    check_one_of("question", question, QUESTIONS)
    whole = as_box(task, box)
    trust = check_box(task, shape, whole)
    swept = sweep(model, whole, question, progress)
    errors: dict[Question, int] = {question: swept.wrong}
    if question == "answer":
        errors["4 against 5"] = swept.wrong_between
        if shape.after is not None:
            errors["end"] = sweep(model, whole, "end").wrong
    accuracies = pd.DataFrame(
        {
            "question": [question_words(task, shape, name) for name in errors],
            "errors": list(errors.values()),
            "accuracy": [(len(whole) - wrong) / len(whole) for wrong in errors.values()],
        }
    )
    by_difference = _by_difference(swept.errors, whole)
    by_difference.attrs["neither"] = swept.neither
    status = swept.status(lambda: _errs(model, swept.near[0], question))
    return Certificate(
        model=model.spec.id,
        status=status,
        accuracy=swept.accuracy(len(whole)),
        n_errors=None if swept.tied else swept.wrong,
        n_inputs=len(whole),
        worst_margin=swept.worst - swept.slack if np.isfinite(swept.slack) else swept.worst,
        rounding=swept.need if np.isfinite(swept.need) else None,
        counterexample=_counts_in_words(swept.near[0], whole) if status == "refuted" else None,
        method="every input, in count space, float64",
        domain=str(whole),
        notes=_notes(model, swept),
        on_trust=trust,
        tables={"errors": by_difference, "frontier": _frontier(swept.errors, whole),
                "accuracy": accuracies},
        probes=tuple(_probes(model, whole, question, swept)),
    )  # fmt: skip


@torch.no_grad()
def _probes(model: TaskModel, box: CountBox, question: Question, swept: Sweep) -> Iterator[Probes]:
    """Yield margins at the inputs with the smallest margins and at random ones, each from its own row of counts."""
    task, shape = model.task, shape_of(model.task)
    bounds = rounding_bounds(model, shape, box)
    index = torch.randint(len(box), (PROBED - len(swept.near),), generator=torch.Generator().manual_seed(0))
    drawn = torch.cat([box.counts(int(i), int(i) + 1) for i in index]) if len(index) else torch.zeros(0, 3).long()
    counts = torch.cat([torch.from_numpy(swept.near), drawn])
    order = torch.randperm(len(counts), generator=torch.Generator().manual_seed(1))
    order = torch.cat([torch.arange(1), order[order > 0]])  # the input with the smallest margin first
    tables = model.token_tables()
    rows = shape.end_rows if question == "end" else shape.answer_rows
    for chosen, whole in ((order[:PROBED_WHOLE], True), (order[PROBED_WHOLE:], False)):
        query, keys, right = rows(counts[chosen])
        out = reduced_outputs(tables, CountedRows(query[None], keys.double()[None]))[0]
        mask = torch.nn.functional.one_hot(right, out.shape[-1]).bool()
        among = torch.ones(out.shape[-1], dtype=torch.bool)
        if question == "4 against 5":
            among = torch.nn.functional.one_hot(torch.tensor(shape.answers), out.shape[-1]).sum(0).bool()
        margin = margins(out, mask, among)
        bound = torch.tensor([sum(bounds(int(q))) for q in query], dtype=torch.float64)
        batch = sentences(task, counts[chosen], seed=2)
        at = find_positions(task, batch.tokens, task.readout) + (question == "end")
        plain = question == "answer"
        yield Probes(batch, mask, margin, margin, bound, None if plain else at, None if plain else among, whole)


@torch.no_grad()
def _errs(model: TaskModel, counts: np.ndarray, question: Question) -> bool:
    """Return whether the model itself is wrong on a sentence with these counts."""
    rows, shape = torch.from_numpy(counts)[None], shape_of(model.task)
    sentence = sentences(model.task, rows).tokens.to(model.embed.W_E.device)
    place = int(find_positions(model.task, sentence, model.task.readout)) + (question == "end")
    out = model(sentence)[0, place]
    right = int((shape.end_rows if question == "end" else shape.answer_rows)(rows)[2])
    if question == "4 against 5":
        return bool(out[right] <= out[sum(shape.answers) - right])
    return not bool(right_in_run(out, torch.tensor(right), Decision()))


def _notes(model: TaskModel, swept: Sweep) -> tuple[str, ...]:
    if not np.isfinite(swept.need):
        dtype = str(model.embed.W_E.dtype).removeprefix("torch.")
        return (f"rounding is not bounded for this model in {dtype}, so nothing is certified in it",)
    return swept.notes(model.embed.W_E.dtype)


def _counts_in_words(counts: np.ndarray, box: CountBox) -> str:
    return ", ".join(f"{name} = {int(n)}" for name, n in zip(box.names, counts, strict=True))


def _by_difference(wrong: np.ndarray, box: CountBox) -> pd.DataFrame:
    """Return errors and inputs by n1 - n0, for every difference that occurs in the box."""
    (low0, high0), (low1, high1), (low2, high2) = box.ranges.values()
    n0, n1 = np.arange(low0, high0 + 1), np.arange(low1, high1 + 1)
    differences, pairs = np.unique(n1[:, None] - n0[None, :], return_counts=True)
    errors = pd.Series(wrong[:, 1] - wrong[:, 0]).value_counts()
    return pd.DataFrame(
        {
            "difference": differences,
            "errors": errors.reindex(differences, fill_value=0).to_numpy(),
            "inputs": pairs * (high2 - low2 + 1),
        }
    )


def _frontier(wrong: np.ndarray, box: CountBox) -> pd.DataFrame:
    """Return the range of n1 - n0 with errors for each n2 with errors."""
    noise = box.names[2]
    frame = pd.DataFrame({noise: wrong[:, 2], "difference": wrong[:, 1] - wrong[:, 0]})
    grouped = frame.groupby(noise)["difference"].agg(["min", "max"]).reset_index()
    return grouped.rename(columns={"min": "min_difference", "max": "max_difference"})
