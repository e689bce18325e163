"""Circuit tests: ablate all heads, parts or edges but those of a circuit, and measure the remaining accuracy and loss.

After Wang et al. 2022, section 4: a circuit is *faithful* if it alone performs like the model; *complete* if ablating
some of its parts hurts the circuit as much as the model; *minimal* if it needs every one of its parts. Conmy et al.
2023 apply such tests to edges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

import pandas as pd
import torch
from torch import Tensor

from interp.errors import InterpError, as_list, check_one_of, check_size, quoted
from interp.measures.ablation import AblationSetting, Replacements, scores_without
from interp.measures.edges import (
    BETWEEN,
    EMBEDDING,
    OUTPUT,
    Edge,
    Node,
    check_edges,
    edge_effects,
    edge_hooks,
    edges_by_kind,
    nodes,
    run_edges,
    written,
)
from interp.measures.edges import edges as every_edge
from interp.measures.minimal_pairs import pairs_by_kind
from interp.measures.restart import Run, kept
from interp.measures.results import Figure, Inputs, Result, batch_of, draw
from interp.measures.runs import Part, ScoreWithLoss, check_reads, head_named, heads_of, mlps_of, parts_of, pieces
from interp.models.subject import Model, Subject
from interp.support.progress import LateBar
from interp.support.words import counted, number, share

ROUNDING = 1e-6
"""Changes of a loss, in nats, or relative to a larger loss, that rounding explains."""


Over: TypeAlias = Literal["heads", "heads and MLPs", "edges"]


@dataclass(frozen=True, eq=False, repr=False)
class CircuitTest(Result):
    """Scores of a circuit alone, compared with the whole model and with the circuit ablated as well.

    model, circuit, nothing: accuracy and loss of the whole model, with all of `over` ablated but the circuit, and with
    all of `over` ablated. mode: of ablation. kept: names of the circuit's parts or edges. over: what is ablated where
    it is not in the circuit. untouched: MLPs that no run ablates: all of them, if over is "heads". whole: whether all
    of `over` is in the circuit.
    minimality: part (or edge), accuracy_without, loss_without: scores of the circuit with that part ablated too.
    completeness: taken_out, accuracy_circuit, accuracy_model: accuracies of both with the same parts ablated.
    """

    model: ScoreWithLoss
    circuit: ScoreWithLoss
    nothing: ScoreWithLoss
    mode: str
    kept: tuple[str, ...]
    minimality: pd.DataFrame
    completeness: pd.DataFrame
    over: Over = "heads"
    untouched: tuple[str, ...] = ()
    whole: bool = False

    def plot(self) -> Figure:
        """Draw the accuracy of the model, of the circuit, of nothing, and of the circuit without each of its parts."""
        bars = [("whole model", self.model.accuracy), ("circuit", self.circuit.accuracy)]
        bars += [("all heads ablated" if self.over == "heads" else "all ablated", self.nothing.accuracy)]
        bars += [(f"circuit without {row.part}", row.accuracy_without) for row in self.minimality.itertuples()]
        table = pd.DataFrame(bars, columns=["what", "accuracy"])
        return draw.bars(table, "what", "accuracy", x_title="what is kept", y_title="accuracy")

    @property
    def faithfulness(self) -> float:
        """Share of the loss recovered: 0 if no better than without the circuit, 1 if as good as the whole model.

        NaN if ablating all of `over` does not change the loss, up to rounding.
        """
        lost = self.nothing.loss - self.model.loss
        changed = abs(lost) > ROUNDING * max(1.0, abs(self.model.loss))
        return (self.nothing.loss - self.circuit.loss) / lost if changed else float("nan")

    def to_frame(self) -> pd.DataFrame:
        """Return three rows, model, circuit and nothing, with columns what, accuracy, loss."""
        return ScoreWithLoss.table({"model": self.model, "circuit": self.circuit, "nothing": self.nothing})

    def __str__(self) -> str:
        recovered, kept = self.faithfulness, ", ".join((*self.kept, *self.untouched))
        other = "everything else" if self.over == "heads and MLPs" else f"all other {self.over}"
        rest = other if self.kept else f"all {self.over}"
        ablated = f"{f'{kept} kept and ' if kept else ''}{rest} {self.mode}-ablated"
        return (
            f"With {f'all {self.over} kept' if self.whole else ablated}, accuracy is "
            f"{share(self.circuit.accuracy)} (whole model: {share(self.model.accuracy)}; all {self.over} ablated: "
            f"{share(self.nothing.accuracy)})."
            + ("" if math.isnan(recovered) else f" Faithfulness, the share of the loss recovered: {number(recovered)}.")
        )


def evaluate_circuit(
    model: Model,
    heads: CircuitTest | Iterable[Any] | None = None,
    edges: Iterable[tuple[Any, Any] | str] | None = None,
    mlps: Iterable[int] | None = None,
    mode: str = "mean",
    *,
    inputs: Inputs | None = None,
    reference: Inputs | None = None,
    draws: int = 10,
    seed: int = 0,
) -> CircuitTest:
    """Ablate all heads but those of a circuit (or all heads and MLPs, or edges), and measure accuracy and loss.

    heads: numbers (l * n_heads + h) or names ("1.0", "head 1.0"), or what find_circuit returned. mlps: layers whose MLP
    is kept, all others are ablated (default: no MLP is ablated). edges: in place of heads, pairs (sender, receiver) of
    names, or "head 0.0 -> head 1.1"; all other edges are ablated. mode: mean (over `reference`, by default the training
    data), pooled_mean, resample, or zero (not for edges). inputs: what is measured. draws: number of random sets of
    parts to ablate in the completeness test, in addition to single parts. The result has .faithfulness, .minimality,
    .completeness and .kept; .over says what is ablated, and .untouched which MLPs never are.

    Example:

        >>> model = interp.load("count01/paper")
        >>> found = interp.evaluate_circuit(model, heads=[3, 9], draws=0)
        >>> round(found.circuit.accuracy, 4), round(found.faithfulness, 4)
        (0.502, 0.3015)
    """
    subject = Subject.of(model)
    if (heads is None) == (edges is None):
        raise InterpError("name either the heads of the circuit or its edges: heads=['0.1'] or edges=[(..., ...)]")
    if isinstance(heads, CircuitTest) and heads.over == "edges":
        edges = heads.kept
    setting = AblationSetting(batch_of(subject, inputs), mode, batch_of(subject, reference, "train"), seed)
    if edges is not None:
        return _of_edges(subject, list(edges), setting)
    if isinstance(heads, CircuitTest):
        by_name = {str(part): part for part in parts_of(subject)}
        kept = [by_name[check_one_of("part", name, by_name)] for name in heads.kept]
        every = heads_of(subject) if heads.over == "heads" else parts_of(subject)
        return _of_parts(subject, kept, every, setting, draws)
    kept = [head_named(subject, head) for head in as_list(heads or (), "heads", '["0.1", "1.0"]')]
    everything = heads_of(subject)
    if mlps is not None:
        known = {part.layer: part for part in mlps_of(subject)}
        for layer in (wanted := list(mlps)):
            check_one_of("layer with an MLP", layer, known)
        kept += [known[layer] for layer in wanted]
        everything = everything + mlps_of(subject)
    return _of_parts(subject, kept, everything, setting, draws)


TOLERANCE = 0.01
"""A circuit suffices if its accuracy is at most this much below the model's."""


def find_circuit(
    model: Model,
    inputs: Inputs | None = None,
    tolerance: float = TOLERANCE,
    edges: bool = False,
    mode: str = "mean",
    *,
    reference: Inputs | None = None,
) -> CircuitTest:
    """Find a small set of heads and MLPs (or of edges) that alone keeps the model's accuracy, and evaluate it.

    Nodes are sorted by the loss (or, without a loss, the accuracy) that ablating each one costs; bisection finds how
    many of the first are enough, and then each is left out for good if the rest still suffices. edges: go on with the
    edges among the embedding, these nodes and the output, sorted by their largest effect in path patching on minimal
    pairs of any kind (`edge_effects`). tolerance: how much accuracy the circuit may lose. inputs: to measure on
    (default: the task's test inputs). mode: of ablation, over the inputs `reference` (default: the training inputs).
    The search is greedy: a smaller circuit may exist.
    The result has .kept, the names of parts or edges, and .faithfulness, the share of the loss that they recover:
    accuracy may be whole where the loss is not. evaluate_circuit takes the result, on other inputs or in another mode.
    Source: Wang et al. 2022; Conmy et al. 2023 (ACDC).

    Example:

        >>> model = interp.load("languages/parity")
        >>> interp.find_circuit(model).kept
        ('MLP 0', 'head 0.0', 'head 1.0')
    """
    if not (isinstance(tolerance, int | float) and 0 <= tolerance <= 1):
        raise InterpError(f"tolerance = {quoted(tolerance)} must be from 0 to 1")
    subject = Subject.of(model)
    setting = AblationSetting(batch_of(subject, inputs), mode, batch_of(subject, reference, "train"))
    every = parts_of(subject)
    with LateBar("find_circuit") as bar:
        whole, *without = scores_without(subject, [[], *([part] for part in every)], setting)
        cost = [score.accuracy if score.loss != score.loss else -score.loss for score in without]
        order = [every[i] for i in sorted(range(len(every)), key=lambda i: cost[i])]

        def enough(kept: Sequence[Part]) -> bool:
            bar.step(f"a circuit of {counted(len(kept), 'part')}")
            rest = [part for part in every if part not in kept]
            return scores_without(subject, [rest], setting)[0].accuracy >= whole.accuracy - tolerance

        kept = _smallest(order, enough)
        if not edges:
            return _of_parts(subject, kept, every, setting, draws=10)
        known = {EMBEDDING, OUTPUT, *map(str, kept)}
        effects = edge_effects(edges_by_kind(subject, pairs_by_kind(subject, batch=setting.test[slice(0, 64)])))
        effects = effects[effects["sender"].isin(known) & effects["receiver"].isin(known)]
        ranked = check_edges(subject, effects[["sender", "receiver"]].itertuples(index=False))

        def enough_edges(kept: Sequence[Edge]) -> bool:
            bar.step(f"a circuit of {counted(len(kept), 'edge')}")
            return _scores_of_edges(subject, [kept], setting)[0].accuracy >= whole.accuracy - tolerance

        needed: list[Edge] = _smallest(ranked, enough_edges)
        return _of_edges(subject, needed, setting)


def fewest(n: int, enough: Callable[[int], bool]) -> int:
    """Return by bisection how many of n are enough, as if that were monotonic; n if no smaller number is."""
    low, high = 0, n
    while low < high:
        size = (low + high) // 2 if low else 0
        low, high = (low, size) if enough(size) else (size + 1, high)
    return low


Kept = TypeVar("Kept")


def _smallest(ranked: Sequence[Kept], enough: Callable[[Sequence[Kept]], bool]) -> list[Kept]:
    """Take the first that are enough, and leave out, from the last, every one without which the rest still is."""
    first = ranked[: fewest(len(ranked), lambda n: enough(ranked[:n]))]
    needed = list(first)
    for member in reversed(first):
        rest = [other for other in needed if other != member]
        needed = rest if enough(rest) else needed
    return needed


def _of_parts(
    subject: Subject, kept: Sequence[Part], everything: Sequence[Part], setting: AblationSetting, draws: int
) -> CircuitTest:
    kept = list(dict.fromkeys(kept))
    rest = [part for part in everything if part not in kept]
    taken = _taken_out(kept, draws, setting.seed)
    groups = [[], rest, everything, *([part, *rest] for part in kept)]
    groups += [[*removed, *rest] for removed in taken] + [list(removed) for removed in taken]
    scores = scores_without(subject, groups, setting)
    model, circuit, nothing = scores[:3]
    without, scores = scores[3 : 3 + len(kept)], scores[3 + len(kept) :]
    names = tuple(map(str, kept))
    completeness = pd.DataFrame(
        {
            "taken_out": [", ".join(map(str, removed)) for removed in taken],
            "accuracy_circuit": [score.accuracy for score in scores[: len(taken)]],
            "accuracy_model": [score.accuracy for score in scores[len(taken) :]],
        }
    )
    untouched = tuple(str(part) for part in parts_of(subject) if part not in everything)
    over: Over = "heads" if {part.kind for part in everything} == {"head"} else "heads and MLPs"
    minimality = _minimality(names, without)
    return CircuitTest(
        model, circuit, nothing, setting.mode, names, minimality, completeness, over, untouched, whole=not rest
    )


def _minimality(names: Sequence[str], without: Sequence[ScoreWithLoss]) -> pd.DataFrame:
    scores = [(name, score.accuracy, score.loss) for name, score in zip(names, without)]
    return pd.DataFrame(scores, columns=["part", "accuracy_without", "loss_without"])


def _taken_out(kept: Sequence[Part], draws: int, seed: int) -> list[tuple[Part, ...]]:
    """Return each part of the circuit alone, and random sets of parts."""
    check_size("draws", draws, least=0)
    draw = torch.Generator().manual_seed(check_size("seed", seed, least=0))
    taken: list[tuple[Part, ...]] = [(part,) for part in kept]
    for _ in range(draws if len(kept) > 2 else 0):
        member = torch.rand(len(kept), generator=draw) < 0.5
        drawn = tuple(part for part, is_in in zip(kept, member.tolist()) if is_in)
        if drawn and drawn not in taken:
            taken.append(drawn)
    return taken


def _of_edges(subject: Subject, wanted: Sequence[tuple[Any, Any] | str], setting: AblationSetting) -> CircuitTest:
    """Test a circuit of edges; minimality ablates one edge at a time, and completeness is empty."""
    if setting.mode == "zero":
        raise InterpError("edges cannot be ablated with mode = 'zero': use mode = 'mean', 'pooled_mean' or 'resample'")
    kept_edges = check_edges(subject, wanted)
    circuits = [kept_edges, [], *([edge for edge in kept_edges if edge != kept_edge] for kept_edge in kept_edges)]
    alone, nothing, *without = _scores_of_edges(subject, circuits, setting)
    whole = scores_without(subject, [[]], AblationSetting(setting.test))[0]
    names = tuple(f"{edge.sender}{BETWEEN}{edge.receiver}" for edge in kept_edges)
    empty = pd.DataFrame({"taken_out": [], "accuracy_circuit": [], "accuracy_model": []})
    minimality = _minimality(names, without)
    every = {*kept_edges} == {*every_edge(subject)}
    return CircuitTest(whole, alone, nothing, setting.mode, names, minimality, empty, "edges", whole=every)


def _scores_of_edges(
    subject: Subject, circuits: Sequence[Sequence[Edge]], setting: AblationSetting
) -> list[ScoreWithLoss]:
    """Return the scores of circuits of edges, with all other edges ablated."""
    check_reads(subject, setting.test)
    scores, known = [ScoreWithLoss() for _ in circuits], nodes(subject)
    parts = [node for node in known if isinstance(node, Part)]
    values = Replacements(subject, parts, setting, streams=("blocks.0.hook_resid_pre",))
    for here, piece in pieces(
        subject, setting.test, values.kept + kept(subject) + 5 * len(known) * subject.model.cfg.d_model
    ):
        seen = values.of(here, piece)
        full = {name: value for name, value in seen.items() if isinstance(value, Tensor)}
        senders: list[Node] = [EMBEDDING, *parts]
        instead = {node: written(subject, node, full) for node in senders}
        run = Run(subject, piece, names=edge_hooks(subject))
        for i, circuit in enumerate(circuits):
            outputs = run_edges(subject, piece, circuit, instead, run)
            scores[i] += ScoreWithLoss.of_reads(subject, run.where, outputs)
    return scores
