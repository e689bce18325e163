"""The parts of the evidence: inputs, boxes of counts, and paths of an automaton.

Inputs: a table with their right answers, which the checker runs again. This works for any task whose domain is small
enough for exact arithmetic. The table contains the labels, and the claim names its SHA-256. If the domain is too large
and the model errs, the table contains inputs on which it errs.

A box of counts is split by n1 - n0, then by n0, n1 or n2. On each part, a bound proves that the right output is the
largest, or that another output exceeds it. A part is split if the bound is too weak; single inputs are decided by their
logits.

Paths of an automaton: the order of places, and coordinates of values, both found by numerical measurement, as in the
certificate. The checker derives sets and bounds itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch

from interp.certificates.certificate import Certificate
from interp.certificates.check import Fault, Model
from interp.certificates.check import counts as check
from interp.certificates.check.inputs import one_input, sentence
from interp.certificates.check.places import AUTOMATA
from interp.certificates.check.places import sentence as path_sentence
from interp.certificates.check.tasks import find_task
from interp.certificates.count_boxes import as_box
from interp.certificates.evidence import CLEAR_OF_ROUNDING, Finding, checker_model, register_evidence, round_bound_down
from interp.certificates.places_search import Proof, ReadProof
from interp.errors import InterpError, UnsupportedError
from interp.models.architecture.answers import read_mask, right_classes
from interp.models.architecture.task_model import TaskModel
from interp.tasks import Batch
from interp.tasks.automata import declared
from interp.tasks.counted import CountedShape, shape_of

MOST_WORK = 4e9
"""Largest number of products for the checker, about ten minutes of one process."""

MOST_PARTS = 200_000
"""Largest number of parts of a box of counts."""

Row = tuple[list[int], list[list[Any]]]
"""Tokens, and the right outputs at each read position."""


@register_evidence("every input, as run", "every multiset", "every product of token sets")
def inputs_evidence(model: TaskModel, certificate: Certificate, options: dict[str, Any]) -> Finding:
    """Tabulate every input that the task lists, or, if these are too many, inputs on which a refuted model errs."""
    task = model.task
    if work(model, task.n_inputs or 0, next(iter(task.inputs(1))).tokens.shape[1]) <= MOST_WORK:
        return table(model, (row for batch in task.inputs(4096) for row in rows_of(model, batch)))
    return counterexamples(model, certificate)


def work(model: TaskModel, rows: int, length: int) -> float:
    """Estimate the number of products for these rows; in one layer, keys and values are computed once per token."""
    size = sum(p.numel() for name, p in model.named_parameters() if "embed.W" not in name or "unembed" in name)
    return float(rows) * size * (length if len(model.spec.layers) > 1 else 1)


def counterexamples(model: TaskModel, certificate: Certificate) -> Finding:
    """Tabulate the inputs that a refuted certificate lists as errors, or its counterexample."""
    if certificate.counterexample is None:
        raise UnsupportedError(
            f"{certificate.n_inputs:,} inputs are too many for the checker to run them again, and none is known to be "
            "wrong: there is no evidence"
        )
    errors = certificate.tables.get("wrong inputs", certificate.tables.get("errors"))
    texts = [] if errors is None or "input" not in errors else list(dict.fromkeys(errors["input"]))[:200]
    texts = texts or [certificate.counterexample.split(":")[0]]
    inputs = [torch.tensor([model.task.parse(text)]) for text in texts]
    for tokens in inputs:
        model.task.check_input(tokens)
    return table(model, [row for tokens in inputs for row in rows_of(model, model.task.batch(tokens))])


def rows_of(model: TaskModel, batch: Batch) -> Iterator[Row]:
    """Yield the rows of a batch without padding, with the right outputs at the read positions."""
    at = model.spec.readout_at
    mask = read_mask(model.task, batch, at)
    classes = iter(right_classes(model.task, batch, at).tolist())
    for tokens, length, here in zip(batch.tokens.tolist(), batch.lengths.tolist(), mask):
        places = here.nonzero()[:, 0].tolist()
        last = length if model.spec.direction == "bidirectional" or at == "all" else places[-1] + 1
        yield tokens[:last], [[place, [next(classes)]] for place in places]


@register_evidence("every context of the table")
def contexts_evidence(model: TaskModel, certificate: Certificate, options: dict[str, Any]) -> Finding:
    """Tabulate every context of positive probability, with all its most likely answers."""
    task: Any = model.task
    if model.spec.max_length not in (None, task.order):
        raise InterpError(f"evidence is for inputs of one context, {task.order} tokens, not {model.spec.max_length}")
    rows: list[Row] = []
    for i in np.flatnonzero(task.prior > 0):
        pi = task.conditional[i]
        tokens = [int(token) for token in task.contexts[i]]
        rows.append((tokens, [[len(tokens) - 1, np.flatnonzero(pi == pi.max()).tolist()]]))
    return table(model, rows)


def table(model: TaskModel, rows: Iterable[Row]) -> Finding:
    """Return the finding for some inputs: the wrong answers, and the smallest absolute margin of any answer."""
    task, spec = model.task, model.spec
    parts: list[Row] = list({tuple(tokens): (tokens, reads) for tokens, reads in rows}.values())
    double = TaskModel(spec, task, dict(model.named_parameters()), seed=model.seed, dtype="float64")
    by_length: dict[int, list[int]] = {}
    for number, (tokens, _) in enumerate(parts):
        by_length.setdefault(len(tokens), []).append(number)
    margins: list[dict[int, float]] = [{} for _ in parts]
    for numbers in by_length.values():
        for start in range(0, len(numbers), 1024):
            chunk = numbers[start : start + 1024]
            with torch.no_grad():
                out = double(torch.tensor([parts[number][0] for number in chunk])).numpy()
            for number, outputs in zip(chunk, out):
                margins[number] = {place: _margin(spec, outputs[place], right) for place, right in parts[number][1]}
    wrong = [[number, place] for number, by_place in enumerate(margins) for place, m in by_place.items() if not m > 0]
    least = min(abs(m) for by_place in margins for m in by_place.values())
    token = None if spec.readout_at in ("all", "first", "last") else task.token_id(spec.readout_at)
    plain = [[tokens, reads] for tokens, reads in parts]
    reals = checker_model(model)
    subject = sentence(reals, token, plain, len(wrong), find_task(reals))
    n = len(parts)

    def rounding(read: Model) -> int:
        """Return 1.5 times the bound on some inputs, including those with the smallest margins."""
        nearest = sorted(range(n), key=lambda number: min(map(abs, margins[number].values())))[:4]
        some = {*nearest, *range(0, n, max(1, n // 128))}
        return max(one_input(read, 1, *plain[number])[1] for number in some) * 3 // 2

    return Finding(
        "inputs", {"read": token, "errors": wrong}, plain, float.fromhex(round_bound_down(least)), subject, rounding
    )


def _margin(spec: Any, outputs: np.ndarray, right: list[int]) -> float:
    """Return the largest right output minus the largest other one."""
    if spec.decision == "sigmoid":
        outputs = np.array([0.0, outputs[0]])
    elif spec.decision == "indicator":
        outputs = np.array([abs(outputs[0]), spec.tolerance])
    return float(outputs[right].max() - np.delete(outputs, right).max())


class TightZone(check.Zone):
    """The inputs with low[i] <= x_i <= high[i] for x = (n0, n1, n2, n1 - n0); bounds are integers and attained."""

    @classmethod
    def of(cls, low: list[int], high: list[int]) -> TightZone:
        """Tighten the bounds until they are attained."""
        a, b = [max(low[0], low[1] - high[3]), max(low[1], low[0] + low[3])], [
            min(high[0], high[1] - low[3]), min(high[1], high[0] + high[3]),
        ]  # fmt: skip
        d = max(low[3], a[1] - b[0]), min(high[3], b[1] - a[0])
        return cls((a[0], a[1], low[2], d[0]), (b[0], b[1], high[2], d[1]))

    def halves(self, axis: int, at: int) -> tuple[TightZone, TightZone]:
        first, second = list(self.high), list(self.low)
        first[axis], second[axis] = at, at + 1
        return TightZone.of(list(self.low), first), TightZone.of(second, list(self.high))


class Quotients:
    """Differences of outputs at '=': a constant plus, per head, a quotient of affine functions of the counts."""

    def __init__(self, model: TaskModel, shape: CountedShape) -> None:
        tables = model.token_tables()
        assert tables.scores is not None
        scores = tables.scores[0, :, shape.query]
        seen = [*shape.counted, *shape.marks.nonzero()[:, 0].tolist()]
        shares = torch.zeros_like(scores)
        shares[:, seen] = (scores[:, seen] - scores[:, seen].amax(-1, keepdim=True)).exp()
        weights = shares.numpy()
        assert tables.readout is not None
        logits = (tables.values[0] @ tables.readout[0]).numpy()  # (heads, token, n_out)
        self.offset = tables.offset[0, shape.query].numpy()
        self.weights = self._by_count(weights, shape)
        self.terms = self._by_count(weights[..., None] * logits, shape)

    @staticmethod
    def _by_count(by_token: np.ndarray, shape: CountedShape) -> np.ndarray:
        """Return the coefficients of (1, n0, n1, n2); the marks are the same in every input."""
        often = {token: int(n) for token, n in enumerate(shape.marks) if n}
        once = sum(n * by_token[:, token] for token, n in often.items())
        return np.stack([once, *(by_token[:, token] for token in shape.counted)])

    def least(self, zone: TightZone, right: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return lower bounds on right - j and on j - right for every output j, and right - j at the middle.

        The better of two bounds: each head's quotient separately, smallest at a corner; and the sum of affine parts
        around the middle minus a remainder. See check/counts.py.
        """
        corners = np.array(sorted(zone.corners()), dtype=float)
        bottom = corners @ self.weights  # (corners, heads)
        top = np.einsum("ci,iho->cho", corners, self.terms)
        top = top[..., [right]] - top
        quotient = top / bottom[..., None]
        middle, slope = bottom.mean(0), top.sum(0) / bottom.sum(0)[:, None]
        bend = top - slope * bottom[..., None]
        rest = np.abs(bend).max(0) * (np.abs(bottom - middle).max(0) / (bottom.min(0) * middle))[:, None]
        affine = slope.sum(0) + (bend / middle[:, None]).sum(1)
        offset, rest = self.offset[right] - self.offset, rest.sum(0)
        above = offset + np.maximum(quotient.min(0).sum(0), affine.min(0) - rest)
        below = -offset - np.minimum(quotient.max(0).sum(0), affine.max(0) + rest)
        return above, below, offset + affine.mean(0)


@register_evidence("count box")
def counts_evidence(model: TaskModel, certificate: Certificate, options: dict[str, Any]) -> Finding:
    """Split the box of a certificate about the answer at '=', with exact numbers of errors."""
    task = model.task
    shape, box, question = shape_of(task), as_box(task, options.get("box")), options.get("question", "answer")
    if question != "answer":
        raise InterpError(f"evidence is about the question 'answer', not {question!r}")
    if model.spec.direction != "causal":
        raise UnsupportedError("the checker knows boxes of counts for causal models")
    quotients = Quotients(model, shape)
    clear = math.inf if certificate.rounding is None else 2 * CLEAR_OF_ROUNDING * certificate.rounding
    least = certificate.worst_margin / 2 if certificate.worst_margin > 0 else clear if clear < 1e-3 else 0.0
    (a, b), (c, d), (e, g) = box.ranges.values()
    root = TightZone((a, c, e, c - b), (b, d, g, d - a))
    parts: list[Any] = []
    bounds: list[float] = []
    wrong: dict[int, int] = {}
    stack = [root]
    while stack:
        zone = stack.pop()
        cut: list[int] | None = [3, 0]  # between the two answers, if both occur in the zone
        bound = 0.0
        if not zone.low[3] <= 0 < zone.high[3]:
            rival, bound = _decide(quotients, shape, zone)
            cut = None if bound > least else _halve(quotients, shape, zone)
        if len(parts) >= MOST_PARTS:
            raise InterpError(f"evidence would need more than {MOST_PARTS:,} parts")
        parts.append(cut or rival)
        if cut is not None:
            stack += reversed(zone.halves(*cut))
            continue
        bounds.append(bound)
        for z, n in zone.inputs() if rival is not None else ():
            wrong[z] = wrong.get(z, 0) + n
    errors = [[z, wrong[z]] for z in sorted(wrong)]
    marks = [token for token, n in enumerate(shape.marks.tolist()) for _ in range(n)]
    domain = {"box": [[a, b], [c, d], [e, g]], "counted": list(shape.counted), "marks": marks, "read": shape.query,
              "answers": list(shape.answers), "errors": errors}  # fmt: skip
    subject = check.sentence(task.name, domain, root)

    def rounding(checked: Model) -> int:
        rows = [checked.words[token] for token in (*shape.counted, *marks)]
        return checked.drift(checked.words[shape.query], rows, b + d + g + len(marks))

    return Finding("counts", domain, parts, float.fromhex(round_bound_down(min(bounds))), subject, rounding)


def _decide(quotients: Quotients, shape: CountedShape, zone: TightZone) -> tuple[int | None, float]:
    """Return (None, bound on the right answer's lead), or another output and a bound on its lead on the whole zone."""
    right = shape.answers[0 if zone.low[3] >= 1 else 1]
    above, below, _ = quotients.least(zone, right)
    above[right], below[right] = np.inf, -np.inf
    good, rival = float(above.min()), int(below.argmax())
    return (None, good) if good >= below[rival] else (rival, float(below[rival]))


def _halve(quotients: Quotients, shape: CountedShape, zone: TightZone) -> list[int]:
    """Return the cut whose halves have the best bounds."""
    cuts = []
    for axis in range(4):
        if zone.low[axis] < zone.high[axis]:
            at = (zone.low[axis] + zone.high[axis]) // 2
            values = [_decide(quotients, shape, half)[1] for half in zone.halves(axis, at)]
            cuts.append((sum(values), [axis, at]))
    if not cuts:
        raise InterpError(f"outputs at the counts {zone.low[:3]} are too close to each other for evidence")
    return max(cuts, key=lambda item: item[0])[1]


@register_evidence("every path of an automaton, by places and states")
def places_evidence(model: TaskModel, certificate: Certificate, options: dict[str, Any]) -> Finding:
    """Make evidence from which the checker can redo the proof over the reals."""
    if certificate.status == "refuted":
        return counterexamples(model, certificate)
    if certificate.status != "certified" or not certificate.worst_margin > 0:
        raise InterpError("evidence of this kind is for a model that is right on every input")
    name = model.task.name
    if name not in AUTOMATA:
        raise UnsupportedError(f"task {name} has no automaton that the checker knows: it knows {', '.join(AUTOMATA)}")
    mine = checker_model(model)
    try:
        mine.as_decoder()
    except Fault as fault:
        raise UnsupportedError(f"the checker does not read {model.spec.id} by places: {fault}") from None
    rows = AUTOMATA[name](mine)
    (paths,) = declared(model.task)
    if tuple(rows.order) != tuple(paths.order) or set(rows.reads) != set(paths.reads):
        raise UnsupportedError(f"the checker reads rows of task {name} in another order")
    proof = Proof.of(model, paths)
    parts = [[read.at, read.order, _coordinates(read)] for read in proof.reads]
    margin = float.fromhex(round_bound_down(certificate.worst_margin / 2))
    return Finding("places", {}, parts, margin, path_sentence(name, rows.claim), _reals)


def _coordinates(read: ReadProof) -> list[list[str]]:
    """Return the main directions of each head's values, as rows, in float32."""
    seen = read.real.values.value.shape[1]
    coordinates = []
    for head, values in enumerate(read.real.values.value.numpy()):
        tables = [pair for pair in zip(read.paths.order, read.paths.following) if pair[0] < seen]
        used = np.concatenate([values[position, np.flatnonzero((table >= 0).any(0))] for position, table in tables])
        write = read.proof.net.write[head].numpy()
        _, _, turned = np.linalg.svd((used - used.mean(0)) @ write, full_matrices=False)
        along = write @ turned[: write.shape[0]].T  # coordinates of a value in the stream's main directions
        along = along / max(np.abs(along).max(), 1e-30)
        if not np.linalg.cond(along) < 1e6:
            along = np.eye(write.shape[0])
        coordinates.append([float(x).hex() for x in along.T.astype(np.float32).ravel()])
    return coordinates


def _reals(model: Model) -> int:
    raise Fault("claims of this kind are over the reals")
