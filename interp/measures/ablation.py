"""Ablation: accuracy and loss when heads or MLPs are replaced by zeros, by their mean, or by another input's value.

Works on every model with hooks. Heads are replaced at hook_z, MLPs at hook_mlp_out; later layers run normally. The
replacements (Wang et al. 2022, section 3; Chan et al. 2022 for resampling):

- zero: 0 at every position.
- mean (the default, and what reports use): the mean over reference inputs. If all rows have the same length, it is
  taken separately at each position, which keeps information about the position. Otherwise it is the pooled mean.
- pooled_mean: at read positions, the mean over the read positions of the reference inputs; elsewhere, the mean over all
  their other positions. This also removes information about the position.
- resample: the value on another input, drawn once per row, of the same length if possible. The two rows are aligned at
  their read positions (at their starts if every position is read).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import pandas as pd
import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import as_list, check_one_of, check_size
from interp.measures.heads import HeadOutputs, no_largest, outputs_of_each
from interp.measures.restart import Run, kept
from interp.measures.results import Figure, Inputs, Tabular, batch_of, draw
from interp.measures.runs import (
    Edit,
    Neuron,
    Part,
    ScoreWithLoss,
    activations,
    check_reads,
    heads_of,
    numbered,
    part_named,
    parts_of,
    pieces,
    reads_of,
)
from interp.measures.seeds import Models, by_seed, mean_over_seeds, subjects_of
from interp.measures.subsets import select_groups
from interp.models.architecture.answers import Decision
from interp.models.subject import Model, Subject
from interp.support import words
from interp.tasks import Batch

Mode = Literal["zero", "mean", "pooled_mean", "resample"]


@dataclass(frozen=True)
class AblationSetting:
    """How parts are ablated, and on which inputs this is measured: `test`.

    reference: the inputs for means and resampling (default: the training data). seed: for drawing resampled inputs.
    Raises InterpError for an unknown mode.
    """

    test: Batch
    mode: str = "mean"
    reference: Inputs | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_one_of("mode of ablation", self.mode, get_args(Mode))

    def with_reference(self, subject: Subject) -> AblationSetting:
        """Return the setting with its reference inputs as a batch, or without any if parts are replaced by zeros."""
        reference = None if self.mode == "zero" else batch_of(subject, self.reference, "train")
        return replace(self, reference=reference)


@dataclass(frozen=True, eq=False, repr=False)
class Ablation(Tabular):
    """Accuracy and loss without each group of parts; the first row, without a part, is the unchanged model.

    inputs: on how many they are measured.
    """

    inputs: int

    @property
    def title(self) -> str:
        on = words.counted(self.inputs, "input")
        return f"Accuracy and loss on {on} with parts ablated ({self['mode'].iloc[0]})"

    def plot(self, quantity: Literal["accuracy", "loss"] = "accuracy") -> Figure:
        """Draw a bar per group; of several models, the mean."""
        check_one_of("plot of ablation", quantity, ("accuracy", "loss"))
        table = mean_over_seeds(self.table, ["accuracy", "change", "loss"])
        parts = table["parts" if "parts" in table else "heads"]
        named = table.assign(ablated=[", ".join(group) or "nothing" for group in parts])
        return draw.bars(named, "ablated", quantity, x_title="ablated", y_title=quantity)


def ablate(
    model: Models,
    parts: str | Iterable[Any] | None = None,
    inputs: Inputs | None = None,
    *,
    mode: str = "mean",
    reference: Inputs | None = None,
    seed: int = 0,
) -> Ablation:
    """Measure a model's accuracy and loss when heads, MLPs or neurons are ablated.

    parts: a list of names such as "head 0.3" (or "0.3"), "MLP 1", "neuron 1.7" and "neuron readout.4", each ablated
    alone (default: each head and each MLP). A tuple of names is one group, ablated together: ("0.3", "0.4"), or in the
    list: ["0.3", ("0.3", "0.4")]. mode: "zero"; "mean" over the reference inputs, at each position apart if all have
    one length; "pooled_mean", over all read positions, or over all others; "resample", the value on another input.
    `ablate_heads` takes all single heads, all pairs or all groups of heads.
    inputs: what is measured (default: the task's test inputs). reference: the inputs for means and resampling
    (default: the training inputs). seed: for drawing the resampled inputs.
    model: or a list of models of one spec; the table has a column seed then (their places, if seeds are equal).
    Columns parts, mode, accuracy, change (of the accuracy), loss (in nats; NaN if answers have no loss).
    Raises InterpError for parts that the model does not have. Source: Wang et al. 2022; Chan et al. 2022.

    Example:

        >>> model = interp.load("count01/paper")
        >>> interp.ablate(model, ["head 0.3", ("head 0.0", "head 0.1")])["accuracy"].round(2).tolist()
        [0.98, 0.96, 0.98]
    """
    subjects = subjects_of(model)
    subject = subjects[0]
    parts = parts_of(subject) if parts is None else parts
    alone = (str, int, Part, Neuron)
    together = isinstance(parts, tuple) and bool(parts) and all(isinstance(part, alone) for part in parts)
    listed = [parts] if isinstance(parts, str) or together else as_list(parts, "parts", '["0.3", ("MLP 1", "0.4")]')
    groups = [
        [part_named(subject, part) for part in ([group] if isinstance(group, alone) else group)] for group in listed
    ]
    test = batch_of(subject, inputs)
    each = _scores_of_each(subjects, [[], *groups], AblationSetting(test, mode, reference, seed))
    named = [(), *(tuple(map(str, group)) for group in groups)]
    return Ablation(by_seed(model, subjects, [_table(named, mode, scores) for scores in each]), len(test))


def _table(parts: Sequence[tuple[str, ...]], mode: str, scores: Sequence[ScoreWithLoss]) -> pd.DataFrame:
    """One row for each group of parts; the first one is empty."""
    accuracies = [score.accuracy for score in scores]
    return pd.DataFrame({
        "parts": list(parts),
        "mode": mode,
        "accuracy": accuracies,
        "change": [accuracy - accuracies[0] for accuracy in accuracies],
        "loss": [score.loss for score in scores],
    })  # fmt: skip


def ablate_heads(
    model: Models,
    groups: str | Iterable[str | Iterable[int | str]] = "singles",
    inputs: Inputs | None = None,
    *,
    mode: str = "mean",
    reference: Inputs | None = None,
    seed: int = 0,
) -> Ablation:
    """Measure a model's accuracy and loss when groups of heads, in any layer, are ablated.

    groups: "singles", "pairs", "singles+pairs", "all", or heads and tuples of heads by name ("1.0", "head 1.0"), or
    tuples of numbers (head h of layer l is number l * n_heads + h). All else as in `ablate`. Columns heads (tuples of
    names such as "1.0"), size, layer (only for groups within one layer), mode, accuracy, change, loss.

    Example:

        >>> model = interp.load("count01/paper")
        >>> found = interp.ablate_heads(model, [("0.0",), ("0.0", "0.1", "0.2")])
        >>> found.to_frame()[["heads", "accuracy"]].round(2).to_dict("list")
        {'heads': [(), ('0.0',), ('0.0', '0.1', '0.2')], 'accuracy': [0.98, 0.98, 0.98]}
    """
    subject = subjects_of(model)[0]
    known = heads_of(subject)
    chosen = [[known[i] for i in group] for group in select_groups(numbered(subject, groups, known), len(known))]
    ablation = ablate(model, chosen, inputs, mode=mode, reference=reference, seed=seed)
    table = ablation.to_frame()
    names = [tuple(name.removeprefix("head ") for name in group) for group in table["parts"]]
    layers = [{name.partition(".")[0] for name in group} for group in names]
    table.insert(list(table).index("parts"), "heads", names)
    table.insert(list(table).index("parts"), "size", [len(group) for group in names])
    single = [int(*group_layers) if len(group_layers) == 1 else None for group_layers in layers]
    table.insert(list(table).index("parts"), "layer", pd.array(single, dtype="Int64"))
    return Ablation(table.drop(columns="parts"), ablation.inputs)


@torch.no_grad()
def scores_without(
    model: Model, groups: Sequence[Sequence[Part | Neuron]], setting: AblationSetting
) -> list[ScoreWithLoss]:
    """Measure accuracy and loss with each group of parts ablated; an empty group leaves the model unchanged."""
    return _scores_of_each([Subject.of(model)], groups, setting)[0]


def _scores_of_each(
    subjects: Sequence[Subject], groups: Sequence[Sequence[Part | Neuron]], setting: AblationSetting
) -> list[list[ScoreWithLoss]]:
    """scores_without of several models of one spec."""
    silenced = list(dict.fromkeys(part for group in groups for part in group))
    heads = all(isinstance(part, Part) and part.head is not None for part in silenced)
    # All reads of a head must get the same mean, if the mode uses means.
    positions = check_reads(subjects[0], setting.test).positions.unique()
    alike = setting.mode != "mean" or not one_length(setting.test) or len(positions) == 1
    setting = setting.with_reference(subjects[0])
    if heads and alike and all(_is_sum(subject) for subject in subjects):
        return _from_contributions(subjects, groups, setting)
    return [_from_runs(subject, groups, silenced, setting) for subject in subjects]


def _from_runs(
    subject: Subject,
    groups: Sequence[Sequence[Part | Neuron]],
    silenced: Sequence[Part | Neuron],
    setting: AblationSetting,
) -> list[ScoreWithLoss]:
    values = Replacements(subject, silenced, setting)
    scores = [ScoreWithLoss() for _ in groups]
    for here, piece in pieces(subject, setting.test, values.kept + kept(subject)):
        run, instead = Run(subject, piece), values.of(here, piece)
        piece_scores = run.each(
            [silence(group, instead) for group in groups],
            lambda logits, where=run.where: ScoreWithLoss.of_reads(subject, where, logits),  # type: ignore[misc]
        )
        scores = [score + of_piece for score, of_piece in zip(scores, piece_scores)]
    return scores


def _is_sum(subject: Subject) -> bool:
    """Whether outputs are a sum over the heads of a single layer, plus terms that do not depend on these heads."""
    one_layer = subject.model.cfg.n_layers == 1 and subject.read_at != "all"
    return one_layer and no_largest(subject.decision) is None and subject.no_decomposition() is None


def one_length(*batches: Batch) -> int | None:
    """Return the length that all rows have, or None if their lengths differ."""
    lengths = torch.cat([batch.lengths.cpu() for batch in batches]).unique()
    return int(lengths) if len(lengths) == 1 else None


def by_position(test: Batch, reference: Batch, mode: str) -> bool:
    """Whether means are computed separately for each position."""
    return mode == "mean" and one_length(test, reference) is not None


def _from_contributions(
    subjects: Sequence[Subject], groups: Sequence[Sequence[Any]], setting: AblationSetting
) -> list[list[ScoreWithLoss]]:
    """Compute the same scores as with hooks, up to rounding, from a single run per batch instead of one per group."""
    each = outputs_of_each(subjects, setting.test)
    instead = [torch.zeros_like(outputs.contributions[:1]) for outputs in each]
    if isinstance(other := setting.reference, Batch):
        theirs = [outputs.contributions for outputs in outputs_of_each(subjects, other)]
        donors = draw_donors(setting.test, other, setting.seed) if setting.mode == "resample" else None
        instead = [
            contributions.mean(0, keepdim=True) if donors is None else contributions[donors] for contributions in theirs
        ]
    decision = subjects[0].decision
    rule = decision if decision.kind == "argmax" else Decision()  # head outputs turn one output into two
    return [_scores(outputs, groups, other, rule) for outputs, other in zip(each, instead)]


def _scores(
    outputs: HeadOutputs, groups: Sequence[Sequence[Any]], instead: Tensor, rule: Decision
) -> list[ScoreWithLoss]:
    """The scores with the contributions of each group's heads replaced by those of `instead`."""
    whole, scores = outputs.logits(range(outputs.n_heads), with_skip=True), []
    for group in groups:
        heads = [part.head for part in group]
        logits = whole + (instead[:, heads] - outputs.contributions[:, heads]).sum(1)
        scores.append(ScoreWithLoss.of(logits, outputs.labels, rule, len(logits)))
    return scores


def silence(group: Sequence[Part | Neuron], instead: dict[str, Tensor | float]) -> list[Edit]:
    """Return edits that replace each part of a group by its value in `instead`: per hook point, a number or tensor."""
    values = ((part, instead[part.hook]) for part in group)
    return [Edit(part, part.get(value) if isinstance(value, Tensor) else value) for part, value in values]


class Replacements:
    """Replacement values for ablated parts, per piece of a batch."""

    def __init__(
        self, subject: Subject, parts: Sequence[Part | Neuron], setting: AblationSetting, streams: Sequence[str] = ()
    ) -> None:
        self.subject, self.mode, test = subject, setting.mode, setting.test
        self.names = list(dict.fromkeys([*(part.hook for part in parts), *streams]))
        self.kept = 0 if self.mode == "zero" else 2 * len(self.names) * subject.model.cfg.d_model
        if self.mode == "zero" or not self.names:
            return
        self.reference = batch_of(subject, setting.reference, "train")
        self.by_position = by_position(test, self.reference, self.mode)
        if self.mode == "resample":
            self.donors = draw_donors(test, self.reference, setting.seed)
        else:
            self.means = _means(subject, self.reference, self.names, self.by_position)

    def of(self, here: slice, piece: Batch) -> dict[str, Tensor | float]:
        """Return the values for one piece of the batch, per hook point: a number, or a tensor like the activation."""
        if self.mode == "zero" or not self.names:
            return dict.fromkeys(self.names, 0.0)
        if self.mode != "resample":
            kinds = _kinds(self.subject, piece, self.by_position).to(self.subject.model.cfg.device)
            return {name: mean[kinds] for name, mean in self.means.items()}
        donors = self.subject.trimmed(self.reference[self.donors[here]])
        _, seen = activations(self.subject, donors, self.names)
        return {**align(self.subject, seen, piece, donors)}


def _kinds(subject: Subject, batch: Batch, by_position: bool) -> Int[Tensor, "rows length"]:
    """Return the kind of each position, within which means are taken: its index, or whether it is no read (0 or 1)."""
    if by_position:
        return torch.arange(batch.tokens.shape[1]).expand(len(batch), -1)
    return (~reads_of(subject, batch).mask(batch)).long()


def _means(
    subject: Subject, reference: Batch, names: Sequence[str], by_position: bool
) -> dict[str, Float[Tensor, "kinds *d"]]:
    """Return the mean activation over the positions of each kind; for a kind without any, that of the first kind."""
    cfg, sums = subject.model.cfg, dict[str, Tensor]()
    number = torch.zeros(reference.tokens.shape[1] if by_position else 2, dtype=torch.float64)
    for _, piece in pieces(subject, reference, len(names) * cfg.d_model):
        _, seen = activations(subject, piece, names)
        inside = torch.ones_like(piece.attention_mask.cpu()) if by_position else piece.attention_mask.cpu()
        kinds = _kinds(subject, piece, by_position)[inside]
        number += kinds.bincount(minlength=len(number))
        for name in names:
            values = seen[name].cpu()[inside].double()
            sums.setdefault(name, values.new_zeros(len(number), *values.shape[1:])).index_add_(0, kinds, values)
    known = torch.where(number > 0, torch.arange(len(number)), 0)
    means = {name: (total[known].movedim(0, -1) / number[known]).movedim(-1, 0) for name, total in sums.items()}
    return {name: mean.to(cfg.device, cfg.dtype) for name, mean in means.items()}


def draw_donors(test: Batch, reference: Batch, seed: int) -> Int[Tensor, "rows"]:
    """Draw a row of `reference` for each row of `test`: with other tokens and, if possible, of the same length."""
    draw = torch.Generator().manual_seed(check_size("seed", seed, least=0))
    lengths, theirs = test.lengths.cpu(), reference.lengths.cpu()
    donors = torch.randint(len(reference), (len(test),), generator=draw)
    for length in lengths.unique():
        same = (theirs == length).nonzero()[:, 0]
        rows = (lengths == length).nonzero()[:, 0]
        if len(same):
            donors[rows] = same[torch.randint(len(same), (len(rows),), generator=draw)]
            for _ in range(8):  # avoid drawing the row itself
                again = rows[(_tokens(reference, donors[rows], test) == test.tokens[rows]).all(1)]
                if not len(again):
                    break
                donors[again] = same[torch.randint(len(same), (len(again),), generator=draw)]
                rows = again
    return donors


def _tokens(reference: Batch, rows: Tensor, test: Batch) -> Int[Tensor, "rows length"]:
    """Return rows of the reference, cut or padded to the width of the test batch."""
    width = test.tokens.shape[1]
    tokens = reference.tokens[rows][:, :width]
    return torch.nn.functional.pad(tokens, (0, width - tokens.shape[1]), value=-1)


def aligned(subject: Subject, piece: Batch, donors: Batch) -> Int[Tensor, "rows length"]:
    """Return the donor's position for each position of a piece, shifted so that their read positions coincide."""
    length = piece.tokens.shape[1]
    index = torch.arange(length).expand(len(piece), -1)
    if subject.read_at != "all":
        here, there = (subject.answer_positions(batch.tokens).cpu() for batch in (piece, donors))
        index = index + (there - here)[:, None]
    return index.clamp(min=0).minimum(donors.lengths.cpu()[:, None] - 1)


def align(subject: Subject, seen: dict[str, Tensor], piece: Batch, donors: Batch) -> dict[str, Tensor]:
    """Return the donors' activations at the positions of a piece (see `aligned`)."""
    index = aligned(subject, piece, donors).to(subject.model.cfg.device)
    rows = torch.arange(len(piece), device=index.device)[:, None]

    def moved(name: str, value: Tensor) -> Tensor:
        if not name.endswith("hook_pattern"):
            return value[rows, index]
        # To padding, where no position of the donor belongs, its own padding.
        padding = torch.arange(index.shape[1], device=index.device).clamp(max=value.shape[-1] - 1)
        at = torch.where(piece.attention_mask.to(index.device), index, padding)
        asked = rearrange(value, "row head asking key -> row asking key head")[rows, at]
        keyed = rearrange(asked, "row asking key head -> row key asking head")[rows, at]
        return rearrange(keyed, "row key asking head -> row head asking key")

    return {name: moved(name, value) for name, value in seen.items()}
