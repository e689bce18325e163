"""Evidence for a box of counts: the box is split by n1 - n0, then by n0, n1 or n2.

On each part, a bound proves that the right output is the largest, or that another output exceeds it. A part is split if
the bound is too weak; single inputs are decided by their logits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from interp.architecture.task_model import TaskModel
from interp.certificates.base import Certificate
from interp.certificates.check import counts as check
from interp.certificates.check.model import Model
from interp.certificates.count_boxes import as_box
from interp.certificates.evidence import CLEAR_OF_ROUNDING, Finding, register_evidence, stated
from interp.errors import InterpError, UnsupportedError
from interp.tasks.counted import CountedShape, shape_of

MOST_PARTS = 200_000


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
        seen = self._seen(shape)
        shares = torch.zeros_like(scores)
        shares[:, seen] = (scores[:, seen] - scores[:, seen].amax(-1, keepdim=True)).exp()
        weights = shares.numpy()
        assert tables.readout is not None
        logits = (tables.values[0] @ tables.readout[0]).numpy()  # (heads, token, n_out)
        self.offset = tables.offset[0, shape.query].numpy()
        self.weights = self._by_count(weights, shape)
        self.terms = self._by_count(weights[..., None] * logits, shape)

    @staticmethod
    def _seen(shape: CountedShape) -> list[int]:
        return [*shape.counted, *shape.marks.nonzero()[:, 0].tolist()]

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
        cut, bound = _cut_at_tie(zone), 0.0
        if cut is None:
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
    said = check.sentence(task.name, domain, root)

    def rounding(checked: Model) -> int:
        rows = [checked.words[token] for token in (*shape.counted, *marks)]
        return checked.drift(checked.words[shape.query], rows, b + d + g + len(marks))

    return Finding("counts", domain, parts, float.fromhex(stated(min(bounds))), said, rounding)


def _cut_at_tie(zone: TightZone) -> list[int] | None:
    """Return the cut between the two answers, if both occur in the zone."""
    return [3, 0] if zone.low[3] <= 0 < zone.high[3] else None


def _decide(quotients: Quotients, shape: CountedShape, zone: TightZone) -> tuple[int | None, float]:
    """Return (None, bound on the right answer's lead), or another output and a bound on its lead on the whole zone."""
    right = shape.answers[0 if zone.low[3] >= 1 else 1]
    above, below, _ = quotients.least(zone, right)
    above[right], below[right] = np.inf, -np.inf
    good, rival = float(above.min()), int(below.argmax())
    return (None, good) if good >= below[rival] else (rival, float(below[rival]))


def _halve(quotients: Quotients, shape: CountedShape, zone: TightZone) -> list[int]:
    """Return the cut whose halves have the best bounds."""
    found = []
    for axis in range(4):
        if zone.low[axis] < zone.high[axis]:
            at = (zone.low[axis] + zone.high[axis]) // 2
            values = [_decide(quotients, shape, half)[1] for half in zone.halves(axis, at)]
            found.append((sum(values), [axis, at]))
    if not found:
        raise InterpError(f"outputs at (n0, n1, n2) = {zone.low[:3]} are too close to each other for evidence")
    return max(found, key=lambda item: item[0])[1]
