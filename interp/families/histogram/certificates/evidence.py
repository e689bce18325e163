"""Evidence that a histogram model is right: for each own token, sequences split by the counts of other tokens.

Parts are split where the certificate's bound is lowest; the checker derives the same bound again. A fixed attention
pattern needs one part per position and count.
"""

from typing import Any

import numpy as np

from interp.architecture.task_model import TaskModel
from interp.certificates.base import Certificate
from interp.certificates.check.model import Model
from interp.certificates.check.sequences import sentence
from interp.certificates.evidence import Finding, register_evidence, stated
from interp.certificates.evidence_parts import counterexamples
from interp.errors import InterpError
from interp.families.histogram.certificates.spaces import (
    Multisets,
    Nodes,
    Slots,
    Space,
    affine_below,
    interval_below,
    space_of,
)
from interp.families.histogram.certificates.tables import Tables, tables_of
from interp.families.histogram.occurrences import declared

MOST_PARTS = 500_000
CHUNK = 256


@register_evidence("occurrences of every token")
def sequences_evidence(model: TaskModel, certificate: Certificate, options: dict[str, Any]) -> Finding:
    """Make parts for every own token, split until the model is proved right on each."""
    if certificate.status == "refuted":
        return counterexamples(model, certificate)
    if certificate.accuracy != 1.0 or not certificate.worst_margin > 0:
        raise InterpError("evidence of this kind is for a model that is right on every sequence")
    if not np.isfinite(certificate.worst_margin):
        raise InterpError("a model of one output has no margin: no evidence")
    tables, parts, bounds = tables_of(model), [], []
    for token in range(tables.T):
        space = space_of(tables, token)
        if space is None:
            raise InterpError(f"no evidence: the softmax weight of token {token} underflows next to another's")
        found, least = _cut(tables, space, certificate.worst_margin / 2)
        bounds.append(least)
        parts.append(found if isinstance(space, Multisets) else None)
        if sum(len(part) for part in parts if part) > MOST_PARTS:
            raise InterpError(f"evidence would need more than {MOST_PARTS:,} parts")
    shape = declared(model.task)
    ids = [*shape.tokens, *shape.marks]
    margin = float.fromhex(stated(min(bounds)))

    def rounding(checked: Model) -> int:
        layer, words, keys = checked.layers[0], [checked.words[token] for token in ids], tables.L + len(shape.marks)
        every = [layer.pattern[0] if layer.linear else [layer.scores(0, row, words, 0)] for row in words[: tables.T]]
        return max(checked.drift(row, words, keys, scores) for row, some in zip(words, every) for scores in some)

    domain = {"counted": list(shape.tokens), "marks": list(shape.marks), "length": shape.length,
              "classes": list(shape.classes)}  # fmt: skip
    said = sentence(model.task.name, shape.tokens, shape.marks, tables.L, shape.classes)
    return Finding("sequences", domain, parts, margin, said, rounding)


def _cut(tables: Tables, space: Space, least: float) -> tuple[list[int | None], float]:
    """Return the parts in order, each as the token by which it is split (None: not split), and the smallest bound."""
    roots, smallest = space.roots(), float("inf")
    said: list[int | None] = [None] * len(roots)
    inside: dict[int, list[int]] = {}
    todo = [(roots, np.arange(len(roots)))]
    while todo:
        nodes, numbers = todo.pop()
        if len(nodes) > CHUNK:
            todo.append((nodes[CHUNK:], numbers[CHUNK:]))
            nodes, numbers = nodes[:CHUNK], numbers[:CHUNK]
        bounds, at = _below(tables, space, nodes, least)
        leaf, weak = space.is_leaf(nodes), bounds <= least
        smallest = min(smallest, float(bounds[~weak].min(initial=float("inf"))))
        if (weak & leaf).any() or (weak.any() and not isinstance(space, Multisets)):
            raise InterpError(f"a margin of {bounds[weak].min():.3g} is too small for evidence")
        if weak.any():
            assert isinstance(space, Multisets)
            children, parents = space.children(nodes[weak], at[weak])
            new = np.arange(len(said), len(said) + len(children))
            said += [None] * len(children)
            for number, token in zip(numbers[weak], at[weak]):
                said[number] = int(space.others[token])
            for number, parent in zip(new, numbers[weak][parents]):
                inside.setdefault(int(parent), []).append(int(number))
            todo.append((children, new))
    ordered: list[int | None] = []
    stack = list(reversed(range(len(roots))))
    while stack:
        number = stack.pop()
        ordered.append(said[number])
        stack += reversed(inside.get(number, []))
    return ordered, smallest


def _below(tables: Tables, space: Space, nodes: Nodes, least: float) -> tuple[np.ndarray, np.ndarray]:
    """Return, per node, a lower bound on the right output minus any other one, and the token by which to split it."""
    lo, hi, ends = space.interval(nodes)
    row, j = np.nonzero(np.arange(tables.lead.shape[1]) != tables.classes[nodes.count - 1][:, None])
    count = nodes.count[row] - 1
    weight, bias = tables.lead[count, j], tables.lead_bias[count, j]
    best, at = interval_below(weight, lo[row], hi[row]) + bias, np.zeros(len(nodes), dtype=int)
    if (todo := np.flatnonzero(best <= least)).size:
        found, guide = space.below(nodes, row[todo], weight[todo], lo[row[todo]], hi[row[todo]], ends)
        best[todo] = np.maximum(best[todo], found + bias[todo])
        weak = best[todo] <= least
        at = space.where(nodes, row[todo[weak]], guide[weak])
    if isinstance(space, Slots) and (todo := np.flatnonzero(best <= least)).size:
        slope, offset = affine_below(weight[todo], lo[row[todo]], hi[row[todo]], parallel=True)
        best[todo] = np.maximum(best[todo], space.lowest(nodes[row[todo]], slope) + offset + bias[todo])
    found = np.full(len(nodes), np.inf)
    np.minimum.at(found, row, best)
    return found, at
