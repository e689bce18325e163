"""Edges between parts: the exact direct effect of one part on another, by path patching.

Nodes are the embedding (with positions), every head, every MLP, and the output. Each node reads the sum of what earlier
nodes wrote into the residual stream, so an edge is one summand of a node's input. Nothing is linearized: layer norms
see the changed input, and the receiver's change propagates to the output.

- `path_patching`: in the corrupted run, put a sender's clean output into the input of a single receiver
  (Goldowsky-Dill et al. 2023; Wang et al. 2022).
- `run_edges`: keep some edges, and replace the values on all others (Conmy et al. 2023).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import InterpError, UnsupportedError, check_one_of, refuse_if
from interp.measures import runs
from interp.measures.ablation import align
from interp.measures.metrics import leaning
from interp.measures.minimal_pairs import Compared, compared, pairs_from
from interp.measures.restart import Run, kept
from interp.measures.results import Figure, Inputs, Tabular, draw, reduced_pairs
from interp.models.subject import Model, Subject
from interp.support.progress import LateBar
from interp.support.words import counted
from interp.tasks import Batch
from interp.tasks.pairs import Pairs

EMBEDDING, OUTPUT = "embedding", "output"
MAX_NODES = 64
DIGITS = 4
"""Decimal digits of effects that rank edges."""
Node = runs.Part | str


class Edge(NamedTuple):
    """An edge between two nodes; a node is a part, "embedding" or "output"."""

    sender: Node
    receiver: Node


def nodes(subject: Subject) -> list[Node]:
    """Return all nodes in the order of computation. Raises UnsupportedError if inputs are not sums over edges."""
    refuse_if(runs.not_summed(subject))
    parts = runs.parts_of(subject)
    if len(parts) + 2 > MAX_NODES:
        raise UnsupportedError(f"{len(parts) + 2} nodes are more than the limit of {MAX_NODES} for edges")
    return [EMBEDDING, *parts, OUTPUT]


def edges(subject: Subject) -> list[Edge]:
    """Return every edge, from each node to every later one; heads of one layer have no edges between them."""
    known = nodes(subject)
    return [Edge(a, b) for j, b in enumerate(known) for a in known[:j] if _before(a, b)]


def _before(sender: Node, receiver: Node) -> bool:
    if isinstance(sender, str) or isinstance(receiver, str):
        return sender == EMBEDDING or receiver == OUTPUT
    if sender.layer != receiver.layer:
        return sender.layer < receiver.layer
    return sender.head is not None and receiver.head is None  # a head and the MLP of its block


BETWEEN = " -> "
"""Between sender and receiver in the name of an edge."""


def check_edges(subject: Subject, wanted: Iterable[tuple[Any, Any] | str]) -> list[Edge]:
    """Convert pairs of parts or names ("head 0.1", "MLP 2", "embedding", "output"), or "head 0.1 -> output", to edges.

    Raises InterpError for anything else.
    """
    by_name = {str(node): node for node in nodes(subject)}
    known, checked = set(edges(subject)), []
    for pair in wanted:
        names = [str(end) for end in (pair.split(BETWEEN) if isinstance(pair, str) else pair)]
        if len(names) != 2:
            raise InterpError(f"{pair!r} is no edge; give ('head 0.1', 'output') or 'head 0.1{BETWEEN}output'")
        edge = Edge(*(by_name[check_one_of("part", name, by_name)] for name in names))
        if edge not in known:
            raise InterpError(f"there is no edge from {edge.sender} to {edge.receiver}, which does not read its output")
        checked.append(edge)
    return checked


# ---------------------------------------------------------------- inputs and outputs of nodes


def _input_hook(subject: Subject, node: Node) -> str:
    """Return the hook point of the residual stream that a node reads."""
    if isinstance(node, str):
        return runs.stream_hook(subject, subject.model.cfg.n_layers)
    return f"blocks.{node.layer}." + ("hook_resid_pre" if node.head is not None else "hook_resid_mid")


def written(subject: Subject, node: Node, seen: dict[str, Tensor]) -> Float[Tensor, "rows length d_model"]:
    """Return what a node writes into the residual stream, without attention biases, from activations."""
    if isinstance(node, str):
        return seen["blocks.0.hook_resid_pre"]
    return runs.writes(subject, node, seen)


def _names(subject: Subject, known: Sequence[Node]) -> list[str]:
    names = [node.hook for node in known if isinstance(node, runs.Part)]
    return list(dict.fromkeys([*names, *(_input_hook(subject, node) for node in known), "blocks.0.hook_resid_pre"]))


# ---------------------------------------------------------------- path patching


@dataclass(frozen=True, eq=False, repr=False)
class Edges(Tabular):
    """The effect of every edge; columns sender, receiver, recovered. order: names of all nodes. pairs: their number."""

    order: tuple[str, ...]
    pairs: int

    @property
    def title(self) -> str:
        return (
            "Path patching: share of the logit difference that one clean edge restores in the corrupted run, "
            f"{counted(self.pairs, 'pair')}"
        )

    def plot(self) -> Figure:
        """Draw what every part (rows) passes on to every later part (columns)."""
        matrix = self.table.pivot(index="sender", columns="receiver", values="recovered")
        matrix = matrix.reindex(index=self.order[:-1], columns=self.order[1:])
        return draw.heatmap(matrix, list(matrix.columns), list(matrix.index), "reads", "writes", "recovered", 0.0,
                            square=False, show_values=matrix.size <= 100)  # fmt: skip


@torch.no_grad()
def path_patching(
    model: Model, clean: Inputs | Pairs | None = None, corrupted: Inputs | None = None, *, split: bool = False
) -> Edges:
    """Measure the exact effect of every edge on minimal pairs: a sender's clean output in the input of one receiver.

    recovered: share of the logit difference between the two answers that the edge restores: 0 as in the corrupted run,
    1 as in the clean run, negative if the clean value makes the clean answer less likely. clean, corrupted: as in
    activation_patching (default: pairs made of 64 samples). split: whether the queries, keys and values of a head are
    receivers of their own ("q of head 1.0"); heads that share keys and values share these receivers.
    Source: Goldowsky-Dill et al. 2023; Wang et al. 2022.
    Raises UnsupportedError for more than 64 nodes, and if inputs are not sums over edges.

    Example:

        >>> model = interp.load("count01/minimal")
        >>> found = interp.path_patching(model, "[BOS]1101=", "[BOS]0101=")
        >>> found.to_frame().round(2).values.tolist()
        [['embedding', 'head 0.0', 1.0], ['embedding', 'output', 0.0], ['head 0.0', 'output', 1.0]]
    """
    subject = Subject.of(model)
    known = nodes(subject)
    receivers = _receivers(subject, known, split)
    pairs = reduced_pairs(subject, pairs_from(subject, clean, corrupted, 64))
    with LateBar("path_patching") as bar:
        return _patched_paths(subject, known, receivers, pairs, bar)


def _patched_paths(
    subject: Subject, known: Sequence[Node], receivers: Sequence[Receiver], pairs: Pairs, bar: LateBar
) -> Edges:
    sums = {
        (sender, receiver): 0.0 for receiver in receivers for sender in known[:-1] if _before(sender, _owner(receiver))
    }
    clean_sum, corrupted_sum, number = 0.0, 0.0, 0
    names = _names(subject, known)
    stored = kept(subject) + 3 * (len(names) + len(known)) * subject.model.cfg.d_model
    for here, _ in runs.pieces(subject, pairs.corrupted, stored):
        piece = pairs[here]
        where = compared(subject, piece)

        def lean(logits: Float[Tensor, "reads n_out"], where: Compared = where) -> float:
            return float(leaning(subject, logits.double().cpu(), where).sum())

        out, seen = runs.activations(subject, piece.clean, names)
        seen = align(subject, seen, piece.corrupted, piece.clean)
        run = Run(subject, piece.corrupted, where.reads, names)
        clean_sum += lean(out[where.rows, where.clean_at])
        corrupted_sum += lean(run.logits)
        number += len(where.rows)
        changes = {sender: written(subject, sender, seen) - written(subject, sender, run.seen) for sender in known[:-1]}
        for hook, reading in groupby(receivers, lambda receiver: _input_hook(subject, _owner(receiver))):
            readers = list(reading)
            bar.update(here.start, len(pairs), f"into {_owner(readers[0])}")
            for edge, effect in _effects(run, hook, readers, changes, lean).items():
                sums[edge] += effect
    if not number or not abs(clean_sum - corrupted_sum) > 1e-6 * abs(clean_sum):
        raise InterpError("the clean and the corrupted runs do not differ, so there is nothing to recover")
    rows = [
        (str(sender), str(receiver), (total - corrupted_sum) / (clean_sum - corrupted_sum))
        for (sender, receiver), total in sums.items()
    ]
    table = pd.DataFrame(rows, columns=["sender", "receiver", "recovered"])
    order = dict.fromkeys([*map(str, known[:-1]), *map(str, receivers)])
    return Edges(table, tuple(order), len(pairs))


Receiver = runs.Part | runs.Site | str


def _receivers(subject: Subject, known: Sequence[Node], split: bool) -> list[Receiver]:
    """Return the nodes that read others, in order; with `split`, queries, keys and values in place of heads."""
    if not split:
        return [*known[1:]]
    inputs = [site for site in runs.sites_of(subject) if site.what != "pattern"]
    receivers: list[Receiver] = []
    for node in known[1:]:
        whole = isinstance(node, str) or node.head is None
        receivers += [node] if whole else [site for site in inputs if _owner(site) == node]
    return receivers


def _owner(receiver: Receiver) -> Node:
    return runs.Part(receiver.layer, receiver.head) if isinstance(receiver, runs.Site) else receiver


def _effects(
    run: Run,
    hook: str,
    receivers: Sequence[Receiver],
    changes: Mapping[Node, Tensor],
    lean: Callable[[Tensor], float],
) -> dict[tuple[Node, Receiver], float]:
    """Return what `lean` makes of the outputs if one sender changes what one of the receivers reads at a hook point."""
    senders = [change for change in changes if _before(change, _owner(receivers[0]))]
    inputs = [[runs.Edit(hook, changes[sender], add=True)] for sender in senders]
    if receivers == [OUTPUT]:
        return {(sender, OUTPUT): effect for sender, effect in zip(senders, run.each(inputs, lean))}
    makes = [receiver for receiver in receivers if not isinstance(receiver, str)]
    values = run.values(inputs, list(dict.fromkeys(make.hook for make in makes)))
    pairs = [(i, make) for i in range(len(senders)) for make in makes]
    effects = run.each([[runs.Edit(make, make.get(values[i][make.hook]))] for i, make in pairs], lean)
    return {(senders[i], make): effect for (i, make), effect in zip(pairs, effects)}


def edges_by_kind(subject: Subject, kinds: Mapping[str, Pairs]) -> dict[str, Edges]:
    """Measure every edge on minimal pairs of each kind apart (see measures.minimal_pairs.pairs_by_kind).

    Kinds whose inputs the model does not tell apart are left out. Raises InterpError if it tells none apart.
    """
    by_kind = dict[str, Edges]()
    for kind, pairs in kinds.items():
        try:
            by_kind[kind] = path_patching(subject, pairs)
        except InterpError as error:
            if kind == [*kinds][-1] and not by_kind:
                raise error
    return by_kind


def edge_effects(by_kind: Mapping[str, Edges]) -> pd.DataFrame:
    """The effects of edges by kind of pair, largest first: columns sender, receiver, and one for each kind.

    Edges whose largest effects are equal up to rounding stay in the order of the model's parts.
    """
    first = next(iter(by_kind.values()))
    effects = first.table[["sender", "receiver"]].assign(
        **{kind: of_kind.table["recovered"] for kind, of_kind in by_kind.items()}
    )
    largest = effects[[*by_kind]].abs().max(axis=1).round(DIGITS)
    return effects.loc[largest.sort_values(ascending=False, kind="stable").index].reset_index(drop=True)


def largest(by_kind: Mapping[str, Edges]) -> Edges:
    """For each edge the effect, over all kinds of pairs, whose size is largest."""
    first = next(iter(by_kind.values()))
    size = first.table["recovered"]
    for of_kind in by_kind.values():
        size = size.where(size.abs() >= of_kind.table["recovered"].abs(), of_kind.table["recovered"])
    return Edges(first.table.assign(recovered=size), first.order, sum(of_kind.pairs for of_kind in by_kind.values()))


# ---------------------------------------------------------------- circuits of edges


@torch.no_grad()
def run_edges(
    subject: Subject, piece: Batch, kept: Iterable[Edge], instead: dict[Node, Tensor], run: Run | None = None
) -> Float[Tensor, "reads n_out"]:
    """Run one piece with the computed values on the kept edges only, and return the outputs at the reads.

    instead: what each node passes on along all other edges, (rows, length, d_model). run: the unchanged run of the
    piece, with activations at `edge_hooks`, if it is known.
    """
    known, keep = nodes(subject), set(kept)
    run = Run(subject, piece, names=edge_hooks(subject)) if run is None else run
    unchanged = {node: written(subject, node, run.seen) for node in known[:-1]}
    now: dict[Node, Tensor] = {EMBEDDING: unchanged[EMBEDDING]}
    for hook, reading in groupby(known[1:], lambda node: _input_hook(subject, node)):
        receivers, streams = list(reading), []
        for node in receivers:
            stream = run.seen[hook]
            for sender in now:
                if _before(sender, node):
                    carried = now[sender] if Edge(sender, node) in keep else instead[sender]
                    stream = stream + (carried - unchanged[sender])
            streams.append(stream)
        if receivers == [OUTPUT]:
            return run.outputs([[runs.Edit(hook, streams[0])]])[0]
        parts = [receiver for receiver in receivers if isinstance(receiver, runs.Part)]
        now |= dict(zip(parts, run.apart(parts, streams)))
    raise AssertionError("the output is the last node")


def edge_hooks(subject: Subject) -> list[str]:
    """Return the hook points of what nodes read and write."""
    return _names(subject, nodes(subject))
