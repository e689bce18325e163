"""Evidence of a histogram certificate: for each own token, sequences cut by how often the first other tokens occur.

The parts are those of the certificate's spaces; each gets the best bound of the lines below its ReLUs. A fixed pattern
needs one part for each position and count.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from interp.architecture.task_model import TaskModel
from interp.certificates.base import Certificate
from interp.certificates.check import Model
from interp.certificates.evidence import Finding, register_evidence, stated
from interp.certificates.evidence_inputs import counterexamples
from interp.certificates.histogram_spaces import Multisets, Nodes, Space, space_of
from interp.certificates.histogram_tables import Tables, tables_of
from interp.errors import InterpError
from interp.theory.relu_bounds import Choice, affine_below, interval_below

MOST_PARTS = 500_000
CHUNK = 256


@register_evidence("histogram multisets")
def sequences_evidence(model: TaskModel, certificate: Certificate, options: dict[str, Any]) -> Finding:
    """Parts around every own token, cut until a model without errors is proved right on each."""
    if certificate.status == "refuted":
        return counterexamples(model, certificate)
    if certificate.accuracy != 1.0 or not certificate.worst_margin > 0:
        raise InterpError("evidence of this kind is for a model that is right on every sequence")
    tables, parts, bounds = tables_of(model), [], []
    for token in range(tables.T):
        space = space_of(tables, token)
        if space is None:
            raise InterpError(f"token {token} has a softmax weight that vanishes beside another's: no evidence")
        found, least = _cut(tables, space, certificate.worst_margin / 2)
        bounds.append(least)
        order = [int(t) for t in space.order] if isinstance(space, Multisets) and tables.T > 1 else []
        parts.append(None if tables.pattern is not None else {"order": order, "cuts": found})
        if sum(len(part["cuts"]) for part in parts if part) > MOST_PARTS:
            raise InterpError(f"evidence would need more than {MOST_PARTS:,} parts")
    said = "histogram: every position has its largest output at how often its token occurs"
    margin = float.fromhex(stated(min(bounds)))

    def rounding(checked: Model) -> int:
        layer, words, keys = checked.layers[0], checked.words, tables.L + len(checked.words) - tables.T
        every = [layer.pattern[0] if layer.linear else [layer.scores(0, row, words, 0)] for row in words[: tables.T]]
        return max(checked.drift(row, words, keys, scores) for row, some in zip(words, every) for scores in some)

    said = f"{said}, in all {tables.T}^{tables.L} sequences"
    return Finding("sequences", {}, parts, margin, said, rounding)


def _cut(tables: Tables, space: Space, least: float) -> tuple[str, float]:
    """The parts in the order in which they are cut, 1 for one that is cut on, else 0; and the least of their bounds."""
    roots, smallest = space.roots(), float("inf")
    said = ["0"] * len(roots)
    inside: dict[int, list[int]] = {}
    todo = [(roots, np.arange(len(roots)))]
    while todo:
        nodes, numbers = todo.pop()
        if len(nodes) > CHUNK:
            todo.append((nodes[CHUNK:], numbers[CHUNK:]))
            nodes, numbers = nodes[:CHUNK], numbers[:CHUNK]
        bounds, leaf = _below(tables, space, nodes, least), space.is_leaf(nodes)
        smallest = min(smallest, float(bounds[bounds > least].min(initial=float("inf"))))
        weak = bounds <= least
        if (weak & leaf).any():
            raise InterpError(f"a margin of {bounds[weak & leaf].min():.3g} is too small for evidence")
        if weak.any():
            children, parents = space.children(nodes[weak])
            new = np.arange(len(said), len(said) + len(children))
            said += ["0"] * len(children)
            for number, parent in zip(new, numbers[weak][parents]):
                inside.setdefault(int(parent), []).append(int(number))
                said[parent] = "1"
            todo.append((children, new))
    ordered: list[str] = []
    stack = list(reversed(range(len(roots))))
    while stack:
        at = stack.pop()
        ordered.append(said[at])
        stack += reversed(inside.get(at, []))
    return "".join(ordered), smallest


def _below(tables: Tables, space: Space, nodes: Nodes, least: float) -> np.ndarray:
    """For each node, a bound from below of the right output less any other one."""
    lo, hi = space.interval(nodes)
    row, j = np.nonzero(np.arange(tables.lead.shape[1]) != tables.classes[nodes.count - 1][:, None])
    count = nodes.count[row] - 1
    weight, bias = tables.lead[count, j], tables.lead_bias[count, j]
    best = interval_below(weight, lo[row], hi[row]) + bias
    choices: tuple[Choice, ...] = ("flat_or_steep", "parallel")
    for choice in choices:
        if (todo := np.flatnonzero(best <= least)).size:
            line = affine_below(weight[todo], lo[row[todo]], hi[row[todo]], choice)
            best[todo] = np.maximum(best[todo], space.lowest(nodes[row[todo]], line.slope) + line.offset + bias[todo])
    found = np.full(len(nodes), np.inf)
    np.minimum.at(found, row, best)
    return found
