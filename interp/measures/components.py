"""What parts write to the outputs, and what the model would answer after each of them.

Direct logit attribution (Elhage et al. 2021) gives each part's contribution to the right output minus the best wrong
one. The last residual stream is the sum of what the embedding, the positions, every head, every MLP and the biases
write. With the final norm's scale and the best wrong output fixed to those of the run, the difference is linear in the
stream. So the contributions add up to the difference at every read. This is checked here.

The logit lens (nostalgebraist 2020) is what the model would answer if it stopped after each layer or sublayer: the
residual stream after the embedding, after each attention and after each MLP goes through the final norm, with the scale
of that stream, and the readout. The last row is the model's own output.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Literal

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import InterpError, UnsupportedError, check_one_of, check_size, refuse_if
from interp.measures import runs
from interp.measures.results import Figure, Inputs, Result, as_batch, batch_of, draw, reduced
from interp.models.architecture.answers import decide
from interp.models.architecture.task_model import TaskModel
from interp.models.architecture.ties import first_largest, leveled
from interp.models.lens import HookedTransformer
from interp.models.subject import Model, Subject, check_finite, final_scale, no_sum
from interp.support.words import counted
from interp.tasks.batch import Reads
from interp.tasks.sets import unpack_sets


@dataclass(frozen=True)
class Contrast:
    """A difference of outputs at each read: sign * (output[plus] - output[minus]) + constant, with fixed coefficients.

    argmax: the right output minus the largest wrong one. set: the output closest to being wrong, signed. sigmoid: the
    single output, or its negative if the answer is no. indicator: how far the output is inside the tolerance (or
    outside, if the answer is no).
    """

    plus: Int[Tensor, "reads"]
    minus: Int[Tensor, "reads"] | None
    sign: Float[Tensor, "reads"]
    constant: Float[Tensor, "reads"]

    def of(self, outputs: Float[Tensor, "reads n_out"]) -> Float[Tensor, "reads"]:
        rows = torch.arange(len(outputs))
        difference = outputs[rows, self.plus]
        if self.minus is not None:
            difference = difference - outputs[rows, self.minus]
        return self.sign * difference + self.constant

    def direction(self, columns: Float[Tensor, "d n_out"]) -> Float[Tensor, "reads d"]:
        """Return the direction along which the difference is measured before the readout, per read, in float64."""
        directions = columns[:, self.plus].double()
        if self.minus is not None:
            directions = directions - columns[:, self.minus].double()
        return self.sign[:, None] * directions.T


def named_answers(
    subject: Subject, classes: Int[Tensor, "reads"], answer: str | None, rival: str | None
) -> tuple[Int[Tensor, "reads"], Int[Tensor, "reads"] | None]:
    """Return the output of `answer` at each read (None: the right one), and of `rival` (None: the best other one).

    Raises InterpError for words that are no answers of the task, and UnsupportedError if outputs are not answers.
    """
    if answer is None and rival is None:
        return classes, None
    if subject.decision.kind != "argmax":
        raise UnsupportedError("answer and rival need a model that gives the largest of its outputs as its answer")
    if answer == rival:
        raise InterpError(f"answer and rival are both {answer!r}")
    words = list(subject.task.answer_words)
    mine, other = (
        None if word is None else torch.full_like(classes, words.index(check_one_of("answer", word, words)))
        for word in (answer, rival)
    )
    return classes if mine is None else mine, other


def contrast(
    subject: Subject,
    logits: Float[Tensor, "reads n_out"],
    classes: Int[Tensor, "reads"],
    rivals: Int[Tensor, "reads"] | None = None,
) -> Contrast:
    """Choose the contrast between one output and another, `rivals` or the largest, from the clean run's outputs."""
    rows, rule = torch.arange(len(logits)), subject.decision
    ones, zeros = torch.ones(len(logits), dtype=torch.float64), torch.zeros(len(logits), dtype=torch.float64)
    if rule.kind == "argmax":
        if logits.shape[1] < 2:
            raise UnsupportedError("the model has one output, but no rule that turns it into an answer")
        if rivals is not None:
            return Contrast(classes, rivals, ones, zeros)
        wrong = logits.clone()
        if rule.among is not None:
            wrong[:, [c for c in range(logits.shape[1]) if c not in rule.among]] = -torch.inf
        wrong[rows, classes] = -torch.inf
        return Contrast(classes, first_largest(wrong), ones, zeros)
    if rule.kind == "set":  # the output closest to being wrong, signed so that positive is right
        signs = 2 * unpack_sets(classes, logits.shape[1]).double() - 1
        weakest = first_largest(-signs * logits.double())
        return Contrast(weakest, None, signs[rows, weakest], zeros)
    first = torch.zeros_like(classes)
    yes = 2.0 * classes.double() - 1
    if rule.kind == "sigmoid":
        return Contrast(first, None, yes, zeros)
    tolerance = rule.tolerance or 0.0
    return Contrast(first, None, -yes * torch.where(logits[:, 0] < 0, -ones, ones), yes * tolerance)


WHAT_DECIDES = {
    "set": "the output that is nearest to being wrong (its negative if it must be below 0)",
    "sigmoid": "the output (its negative where the right answer needs it below 0)",
    "indicator": "the distance of the output from its tolerance (negative on the wrong side)",
}
"""What `contrast` takes of the outputs of models whose answer is not the largest one."""
SHOWN = 40
"""Largest number of parts in a figure."""
TOLD = 5
"""Number of outputs that hovering over the logit lens names."""


def quantity_of(kind: str, answer: str = "the right answer", rival: str = "its best rival") -> str:
    """What `contrast` measures at a read, in words."""
    return WHAT_DECIDES.get(kind, f"the logit of {answer} minus that of {rival}")


@dataclass(frozen=True, eq=False, repr=False)
class Attribution(Result):
    """values[i, c]: contribution of component c to the difference at read i, in logits. difference: their sum.

    parts: name, kind (embedding, positions, head, MLP, biases), layer and head of each component. word: the task's word
    for an output. centered: the values without what the component's mean over these reads contributes, so that a
    component that writes the same for every input has 0.
    """

    values: Float[Tensor, "reads components"]
    centered: Float[Tensor, "reads components"]
    difference: Float[Tensor, "reads"]
    classes: Int[Tensor, "reads"]
    parts: pd.DataFrame
    word: Callable[[int], str] = str
    answer: str = "the right answer"
    rival: str = "its best rival"
    decision: str = "argmax"

    @property
    def of(self) -> str:
        """What the parts add up to: the difference of two logits, or what decides about answers of another kind."""
        return quantity_of(self.decision, self.answer, self.rival)

    @property
    def title(self) -> str:
        return (
            f"Direct logit attribution: what each part adds to {self.of}, "
            f"mean over {counted(len(self.difference), 'answer')}"
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row per component: component, kind, layer, head, effect (mean over the reads), spread, negative.

        spread: standard deviation over the reads. negative: share of the reads at which the contribution is negative.
        """
        return self.parts.assign(
            effect=_rounded(self.values.mean(0)).numpy(),
            spread=self.values.std(0, correction=0).numpy(),
            negative=(leveled(self.values) < 0).double().mean(0).numpy(),
        )

    def plot(self, by_answer: bool = False) -> Figure:
        """Draw the largest effects, with one standard deviation; by_answer: a row per part, a column per answer, of the
        centered effects."""
        if by_answer:
            effects = self.by_answer(centered=True)
            matrix = effects.pivot(index="component", columns="answer", values="effect").loc[self.parts["component"]]
            matrix = matrix[list(dict.fromkeys(effects["answer"]))]  # in the order of the task's outputs
            return draw.heatmap(matrix, list(matrix.columns), list(matrix.index), "right answer", "part", "logits", 0.0,
                                square=False)  # fmt: skip
        table = self.to_frame()
        shown = table.loc[sorted(table["effect"].abs().sort_values(ascending=False).index[:SHOWN])]
        return draw.bars(shown, "component", "effect", "kind", x_title="part", y_title="logits", error="spread")

    def by_answer(self, centered: bool = False) -> pd.DataFrame:
        """Return the mean effect per right answer: columns component, answer, effect."""
        frames, values = [], self.centered if centered else self.values
        for index in self.classes.unique().tolist():
            means = values[self.classes == index].mean(0).numpy()
            frames.append(
                pd.DataFrame({"component": self.parts["component"], "answer": self.word(index), "effect": means})
            )
        return pd.concat(frames, ignore_index=True)


def _rounded(effects: Float[Tensor, "components"]) -> Float[Tensor, "components"]:
    """Set effects to 0 that are rounding errors of the largest one."""
    return torch.where(effects.abs() > 1e-13 * effects.abs().max(), effects, 0.0)


@torch.no_grad()
def direct_logit_attribution(
    model: Model, inputs: Inputs | None = None, *, answer: str | None = None, rival: str | None = None
) -> Attribution:
    """Compute each part's contribution to the right output minus the best wrong one, per read, in float64 logits.

    Where the answer is not the largest output, to what decides (see `Contrast`): of a set of outputs, the one that is
    nearest to being wrong; of a single output, its side of 0, or of its tolerance. Positive is right.
    For any number of layers and classes, and answers at one or all positions. inputs: a batch, text or tokens (default:
    the task's test inputs). answer, rival: words of the task that take the place of the right output and of the best
    other one; answers that are the rival are left out.
    Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".
    Raises UnsupportedError if outputs are not a sum over parts even with the final norm's scale fixed, and InterpError
    if the contributions do not add up to the outputs (the model then has an unknown part).

    Example:

        >>> found = interp.direct_logit_attribution(interp.load("count01/minimal"), "[BOS]1101=")
        >>> found.to_frame()[["component", "effect"]].round(2).values.tolist()
        [['embedding', 1.0], ['head 0.0', 8.89], ['biases', -9.73]]
    """
    subject = Subject.of(model)
    batch = reduced(subject, batch_of(subject, inputs))
    runs.check_reads(subject, batch)
    refuse_if(no_sum(subject.model))
    hooks = subject.model.hook_dict
    streams = {"embedding": "hook_embed", "positions": "hook_pos_embed"}
    if "hook_pos_embed" not in hooks or not _positions_in_stream(subject):
        del streams["positions"]
    heads, mlps = runs.heads_of(subject), runs.mlps_of(subject)
    final = f"blocks.{subject.model.cfg.n_layers - 1}.hook_resid_post"
    norm = final_scale(subject.model)
    names = [*streams.values(), *dict.fromkeys(part.hook for part in (*heads, *mlps)), final, *norm]
    kept = len(names) * subject.model.cfg.d_model
    contributions, differences, classes, directions = [], [], [], []
    written: list[Tensor] = []
    named = {name: f"'{word}'" for name, word in (("answer", answer), ("rival", rival)) if word is not None}
    for _, piece in runs.pieces(subject, batch, kept):
        out, cache = runs.activations(subject, piece, names)
        where = runs.reads_of(subject, piece)
        mine, other = named_answers(subject, where.classes, answer, rival)
        if other is not None:  # an answer minus itself tells nothing
            apart = mine != other
            where = Reads(where.rows[apart], where.positions[apart], where.classes[apart])
            mine, other = mine[apart], other[apart]
        logits = where.pick(out).double().cpu()
        chosen = contrast(subject, logits, mine, other)
        seen = {name: where.pick(value).double().cpu() for name, value in cache.items()}
        scale = seen[norm[0]] if norm else torch.ones(len(logits), 1, dtype=torch.float64)
        toward, bias = readout(subject, chosen)
        toward = toward / scale
        vectors = [seen[name].expand_as(toward) for name in streams.values()]
        vectors += [runs.writes(subject, part, seen) for part in (*heads, *mlps)]
        columns = [(vector * toward).sum(-1) for vector in vectors]
        biases = sum((block.attn.b_O.double().cpu() for block in subject.model.blocks), torch.zeros(()))
        columns.append((biases * toward).sum(-1) + bias)
        contributions.append(torch.stack(columns, 1))
        written.append(torch.stack([vector.sum(0) for vector in vectors]))
        directions.append(toward)
        differences.append(chosen.of(logits))
        classes.append(where.classes)
    values, difference = torch.cat(contributions), torch.cat(differences)
    if not len(difference):
        raise InterpError(f"the right answer is {rival!r} throughout, so there is nothing to compare it with")
    means = torch.stack(written).sum(0) / len(difference)
    constant = torch.cat([torch.cat(directions) @ means.T, values[:, -1:]], 1)  # biases are the same for every input
    centered = (values - constant).where((values - constant).abs() > 1e-12 * values.abs().max(), 0.0)
    _check_sum(values, difference, torch.finfo(next(subject.model.parameters()).dtype).eps)
    rows: list[tuple[str, str, int | None, int | None]] = [(name, name, None, None) for name in streams]
    rows += [(str(part), part.kind, part.layer, part.head) for part in (*heads, *mlps)]
    rows.append(("biases", "biases", None, None))
    parts = pd.DataFrame(rows, columns=["component", "kind", "layer", "head"])
    parts = parts.astype({"layer": "Int64", "head": "Int64"})
    named["decision"] = subject.decision.kind
    return Attribution(values, centered, difference, torch.cat(classes), parts, subject.task.word, **named)


def _positions_in_stream(subject: Subject) -> bool:
    """Whether the position part writes into the residual stream and is not all zero."""
    if subject.model.cfg.positional_embedding_type not in ("standard",):
        return False
    if isinstance(subject.model, TaskModel):
        return subject.model.spec.positions != "none" and subject.model.spec.positions_enter == "residual"
    return True


def readout(subject: Subject, chosen: Contrast) -> tuple[Float[Tensor, "reads d_model"], Float[Tensor, "reads"]]:
    """Return directions and constants that map the last residual stream, divided by the norm's scale, to contrasts."""
    toward = chosen.direction(subject.columns(subject.model.unembed.W_U.detach().cpu()))
    bias = chosen.of(subject.columns(subject.model.unembed.b_U.detach().cpu()).double().expand(len(toward), -1))
    return through_norm(subject.model, toward, bias)


def readout_map(subject: Subject) -> tuple[Float[Tensor, "d_model n_out"], Float[Tensor, "n_out"]]:
    """Return the matrix and bias that map the last residual stream, divided by the norm's scale, to all outputs."""
    columns = subject.columns(subject.model.unembed.W_U.detach().double().cpu())
    bias = subject.columns(subject.model.unembed.b_U.detach().double().cpu())
    rows, bias = through_norm(subject.model, columns.T, bias)
    return rows.T, bias


def through_norm(
    model: HookedTransformer, toward: Float[Tensor, "rows d_model"], bias: Float[Tensor, "rows"]
) -> tuple[Float[Tensor, "rows d_model"], Float[Tensor, "rows"]]:
    """Convert directions after the final norm to directions before it, up to its scale, and add its bias to `bias`."""
    norm = getattr(model, "ln_final", None)
    if norm is None or isinstance(norm, torch.nn.Identity):
        return toward, bias
    if (shift := getattr(norm, "b", None)) is not None:
        bias = bias + toward @ shift.detach().double().cpu()
    if (gain := getattr(norm, "w", None)) is not None:
        toward = toward * gain.detach().double().cpu()
    if "RMS" not in type(norm).__name__:
        toward = toward - toward.mean(1, keepdim=True)  # centering the stream is equivalent to centering the directions
    return toward, bias


def _check_sum(values: Float[Tensor, "reads components"], difference: Float[Tensor, "reads"], eps: float) -> None:
    """Raise InterpError unless the parts add up to the difference, up to rounding in a format with this eps."""
    off = (values.sum(1) - difference).abs()
    size = values.abs().sum(1).max().clamp_min(1.0)
    if not bool((off <= max(1e-4, 16 * eps) * size).all()):
        raise InterpError(
            f"the parts add up to {float(values.sum(1)[off.argmax()]):.6g}, but the outputs differ by "
            f"{float(difference[off.argmax()]):.6g}: direct attribution misses a part of this model"
        )


# ---------------------------------------------------------------- logit lens


@dataclass(frozen=True, eq=False, repr=False)
class LogitLens(Result):
    """logits[stage, read, output]: outputs after each stage, in the order of the task's answers.

    stages: their names. table: one row per stage (and position, if all are read); columns stage, position, agrees
    (share of the reads whose answer is the model's final one), accuracy and loss (NaN where the task has no answer).
    rows, positions: of the reads. words: the tokens of each input. outputs: the words of the outputs. chances: whether
    the outputs are the logits of a softmax.
    """

    logits: Float[Tensor, "stages reads n_out"]
    stages: tuple[str, ...]
    table: pd.DataFrame
    rows: Int[Tensor, "reads"]
    positions: Int[Tensor, "reads"]
    words: tuple[tuple[str, ...], ...]
    outputs: tuple[str, ...]
    chances: bool

    @property
    def title(self) -> str:
        return f"Logit lens: the outputs after each part of the model, {counted(self.logits.shape[1], 'read')}"

    def to_frame(self) -> pd.DataFrame:
        return self.table.copy()

    def top(self, k: int = 1) -> pd.DataFrame:
        """Return the k largest outputs after each stage at each read, the largest first.

        Columns: row, position, token (of the input), stage, rank (from 1), answer, logit, probability (of the softmax).
        Raises UnsupportedError if the outputs are not the logits of a softmax.
        """
        if not self.chances:
            raise UnsupportedError("the outputs are not the logits of a softmax, so none of them is the top one")
        k = min(check_size("k", k), self.logits.shape[-1])
        logit, index = self.logits.sort(stable=True, dim=-1, descending=True)
        chance = self.logits.softmax(-1).gather(-1, index)
        reads = list(zip(self.rows.tolist(), self.positions.tolist()))
        rows = [
            (row, at, self.words[row][at], stage, rank + 1, self.outputs[int(index[s, i, rank])],
             float(logit[s, i, rank]), float(chance[s, i, rank]))
            for i, (row, at) in enumerate(reads) for s, stage in enumerate(self.stages) for rank in range(k)
        ]  # fmt: skip
        columns = ["row", "position", "token", "stage", "rank", "answer", "logit", "probability"]
        return pd.DataFrame(rows, columns=columns)

    def plot(self, row: int | None = None) -> Figure:
        """Draw, on one input, the top token after each stage (rows, from below) at each position, colored by its
        probability; on several inputs, accuracy and agreement by stage, or agreement by stage and position.

        row: the input to draw (default: the only one, if there is one).
        """
        if row is None and len(self.words) == 1 and self.chances:
            row = 0
        if row is not None:
            return self._tokens(row)
        if self.table["position"].nunique() > 1:
            grid = self.table.pivot(index="stage", columns="position", values="agrees").loc[list(self.stages)]
            return draw.heatmap(grid.to_numpy(), list(grid.columns), list(self.stages), "position", "after",
                                "share with the final answer", ends=(0.0, 1.0), square=False)  # fmt: skip
        names = {"accuracy": "right answer", "agrees": "the model's final answer"}
        long = self.table.rename(columns=names).melt(["stage"], list(names.values()), "which", "share").dropna()
        return draw.bars(long, "stage", "share", "which", x_title="after", y_title="share of the reads")

    def _tokens(self, row: int) -> Figure:
        """Draw the grid of top tokens on one input."""
        if not 0 <= row < len(self.words):
            raise InterpError(f"row {row} does not exist: there are rows 0 to {len(self.words) - 1}")
        best = self.top(1).query("row == @row")
        told = {
            place: "<br>".join(f"{escape(guess.answer)}: {guess.probability:.3f}" for guess in few.itertuples())
            for place, few in self.top(TOLD).query("row == @row").groupby(["stage", "position"])
        }
        stages = [*reversed(self.stages)]
        grid = {name: best.pivot(index="stage", columns="position", values=name).loc[stages]
                for name in ("probability", "answer")}  # fmt: skip
        places = list(grid["answer"].columns)
        return draw.heatmap(
            grid["probability"].to_numpy(float), [f"{self.words[row][at]} ({at})" for at in places], stages,
            "input token (position)", "after", "probability", ends=(0.0, 1.0), square=False,
            written=grid["answer"].to_numpy(), fixed=True,
            more=[[told[stage, at] for at in places] for stage in stages],
        )  # fmt: skip


@torch.no_grad()
def logit_lens(model: Model, inputs: Inputs | None = None, at: Literal["read", "all"] = "read") -> LogitLens:
    """Read the answer out of the residual stream after the embedding, each attention and each MLP.

    For any number of layers and classes, and any norm and readout. inputs: a batch, text or tokens (default: the task's
    test inputs). at: the "read" positions, where the task has answers, or "all" positions of inputs of one length.
    On one input, .plot() draws the top token after each layer at each position, and .top(k) lists the k largest.
    Logits are in float64, (stages, reads, n_out). Source: nostalgebraist 2020, "interpreting GPT: the logit lens".

    Example:

        >>> model = interp.load("algorithmic/max-of-k")
        >>> found = interp.logit_lens(model, "3 1 4 1 =")
        >>> found.to_frame()[["stage", "accuracy"]].values.tolist()
        [['embedding', 0.0], ['layer 0', 1.0]]
        >>> found.top()[["stage", "answer"]].values.tolist()
        [['embedding', '57'], ['layer 0', '4']]
    """
    subject = Subject.of(model)
    check_finite(subject)
    check_one_of("at", at, ("read", "all"))
    batch = batch_of(subject, inputs) if at == "read" or inputs is None else as_batch(subject, inputs, labeled=False)
    if at == "read":
        runs.check_reads(subject, batch)
    if at == "all" and bool((batch.lengths != batch.lengths[0]).any()):
        raise InterpError("at='all' needs inputs of one length")
    cfg = subject.model.cfg
    hooks = {"embedding": runs.stream_hook(subject, 0)}
    for layer, block in enumerate(subject.model.blocks):
        middle = f"blocks.{layer}.hook_resid_mid"
        if runs.has_mlp(block) and middle in subject.model.hook_dict:
            hooks[f"attention {layer}"] = middle
        hooks[f"layer {layer}"] = f"blocks.{layer}.hook_resid_post"
    by_stage: dict[str, list[Tensor]] = {name: [] for name in hooks}
    classes, positions, numbers = [], [], []
    for start, piece in runs.pieces(subject, batch, (len(hooks) + 1) * cfg.d_model):
        _, seen = runs.activations(subject, piece, list(hooks.values()))
        if at == "read":
            where = runs.reads_of(subject, piece)
            at_rows, places = where.rows, where.positions
            classes.append(where.classes)
        else:
            at_rows, places = piece.attention_mask.cpu().nonzero(as_tuple=True)
        positions.append(places)
        numbers.append(at_rows.cpu() + start.start)
        for name, hook in hooks.items():
            stream = seen[hook][at_rows.to(cfg.device), places.to(cfg.device)]
            by_stage[name].append(runs.read_out(subject, stream).double().cpu())
    logits = torch.stack([torch.cat(parts) for parts in by_stage.values()])
    place, right = torch.cat(positions), torch.cat(classes) if classes else None
    answers = [decide(logit, subject.decision) for logit in logits]
    groups = place.unique().tolist() if at == "all" else ["read"]
    rows = []
    for stage, out, answer in zip(hooks, logits, answers):
        agrees = (answer == answers[-1]).double()
        for group in groups:
            here = torch.ones_like(place, dtype=torch.bool) if group == "read" else place == group
            score = runs.ScoreWithLoss()
            if right is not None:
                score = runs.ScoreWithLoss.of(out[here], right[here], subject.decision, len(batch))
            rows.append((stage, group, float(agrees[here].mean()), score.accuracy, score.loss))
    table = pd.DataFrame(rows, columns=["stage", "position", "agrees", "accuracy", "loss"])
    known = tuple(subject.task.answer_words)[: logits.shape[-1]]
    outputs = (*known, *(f"output {i}" for i in range(len(known), logits.shape[-1])))
    chances = subject.decision.kind == "argmax" and logits.shape[-1] > 1
    return LogitLens(logits, tuple(hooks), table, torch.cat(numbers), place, subject.words(batch), outputs, chances)
