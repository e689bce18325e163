"""Accuracy: on all inputs if a task has few, otherwise on a sample, with a 95% interval. Also of generated answers.

In some tasks, answers have several tokens, each read at the token before it. Other measures use teacher forcing: the
model reads the right tokens so far. In generation, it reads its own tokens, which differ from the first mistake on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import pandas as pd
import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from interp.errors import InterpError, UnsupportedError, check_one_of, check_size
from interp.measures.results import Figure, Inputs, Result, as_batch, draw
from interp.measures.runs import ScoreWithLoss, check_reads, work_of
from interp.models.architecture.answers import find_positions, has_answer, losses
from interp.models.architecture.task_model import TaskModel
from interp.models.subject import Model, Subject
from interp.tasks import IGNORED, Batch, Generates
from interp.tasks.populations import InputsAsked, Population, choose, population_of, sample
from interp.tasks.scores import Score

WORK = 10.0
"""Work, in nominal seconds, that decides on how many inputs accuracy is measured by default."""


@dataclass(frozen=True, repr=False)
class Accuracy(Result):
    """Share of right answers, and its interval among all inputs that the sampler may draw (see tasks.scores.Score).

    score: the answers that were read, how many are right, and their loss. weighted: the accuracy with each input
    weighted by its probability under the task's sampler; None for a sample, whose draws already follow these
    probabilities, and if the task does not declare them.
    by_class: one row per right answer: answer, answers (their number), accuracy, low, high. by_position: the same per
    position at which answers are read. on: the inputs in words. none: answers that are none, since outputs are not
    finite; they are wrong.
    """

    score: ScoreWithLoss
    weighted: float | None = None
    by_class: pd.DataFrame | None = field(default=None, compare=False)
    by_position: pd.DataFrame | None = field(default=None, compare=False)
    on: str = field(default="", compare=False)
    none: int | None = None

    @property
    def accuracy(self) -> float:
        return self.score.accuracy

    @property
    def low(self) -> float:
        return self.score.low

    @property
    def high(self) -> float:
        return self.score.high

    @property
    def rows(self) -> int:
        """Number of inputs run; a sample may repeat inputs."""
        return self.score.rows

    @property
    def answers(self) -> int:
        """Number of answers read in these inputs."""
        return self.score.n

    @property
    def exact(self) -> bool:
        """Whether these are all inputs, each once; then low = high = accuracy."""
        return self.score.exact

    @property
    def loss(self) -> float | None:
        """Mean cross-entropy in nats; None for an indicator."""
        return None if math.isnan(self.score.loss) else self.score.loss

    @property
    def title(self) -> str:
        none = f" ({self.none:,} of the answers are none: outputs are not finite)" if self.none else ""
        return f"Accuracy {self.score} {self.on}".rstrip() + none

    def to_frame(self) -> pd.DataFrame:
        """Return one row: accuracy, low, high, rows, answers, exact; loss, weighted and none if they are known."""
        names = ("accuracy", "low", "high", "rows", "answers", "exact", "loss", "weighted", "none")
        row = {name: getattr(self, name) for name in names}
        return pd.DataFrame([{name: value for name, value in row.items() if value is not None}])

    def plot(self, by: Literal["class", "position"] = "class") -> Figure:
        """Draw the accuracy for each right answer, or for each position at which answers are read."""
        check_one_of("plot of accuracy", by, ("class", "position"))
        table = self.by_class if by == "class" else self.by_position
        if table is None:
            raise InterpError(f"this accuracy was not counted by {by}")
        name = "answer" if by == "class" else "position"
        shown = table.assign(**{name: table[name].astype(str), "half": (table["high"] - table["low"]) / 2})
        title = "right answer" if by == "class" else "position"
        return draw.bars(
            shown, name, "accuracy", x_title=title, y_title="accuracy", error=None if self.exact else "half"
        )


def accuracy(
    model: Model,
    inputs: Inputs | None = None,
    n: int | None = None,
    split: str | None = None,
    seed: int = 0,
) -> Accuracy:
    """Measure accuracy: exact on every input if the task has few enough, otherwise with the 95% interval of a sample.

    inputs: a batch, text or tokens to measure on instead. n: the number of inputs, all if there are no more (default:
    200 to 20,000, the more the smaller the model, or all if that is as little work). A sample is drawn by the task's
    sampler from a split (default: its last, the test split): an input with probability 1/2 counts for half of this
    accuracy. With a split, a sample is drawn (of 1,000, or n) however few inputs there are. The result has .by_class
    and .by_position, tables with their intervals.

    Example:

        >>> found = interp.accuracy(interp.load("algorithmic/modular-addition"))
        >>> found.accuracy, found.exact, found.rows
        (1.0, True, 12769)
    """
    subject, n = Subject.of(model), None if n is None else check_size("n", n)
    if inputs is not None:
        return accuracy_on(subject, population_of(as_batch(subject, inputs)))
    if split is None:
        asked, last = InputsAsked.of(n), subject.task.splits[-1]
        every = choose(subject.task, work_of(subject), asked, split=last, seed=seed, fixed=False, seconds=WORK)
        return accuracy_on(subject, every)
    check_one_of("split", split, subject.task.splits)
    return accuracy_on(subject, sample(subject.task, 1_000 if n is None else n, split, seed))


@torch.no_grad()
def accuracy_on(model: Model, population: Population) -> Accuracy:
    """Measure accuracy on the inputs of a population."""
    subject, batch = Subject.of(model), population.batch
    reads, logits = check_reads(subject, batch), subject.logits(batch)
    good, lost = subject.right_of(logits, batch).cpu(), losses(logits.double(), reads.classes, subject.decision)
    score = ScoreWithLoss(
        len(good), int(good.sum()), len(batch), population.exact, math.nan if lost is None else float(lost.sum())
    )
    weighted = None
    if population.exact and population.weights is not None:
        weight = population.weights[reads.rows]
        weighted = float((good.double() * weight).sum() / weight.sum())
    by_class, by_position = (_apart(good, kinds, population.exact) for kinds in (reads.classes, reads.positions))
    by_class.insert(0, "answer", [subject.task.word(index) for index in by_class.pop("kind")])
    by_position = by_position.rename(columns={"kind": "position"})
    return Accuracy(score, weighted, by_class, by_position, population.on, int((~has_answer(logits)).sum()) or None)


def _apart(good: Bool[Tensor, "reads"], kinds: Int[Tensor, "reads"], exact: bool) -> pd.DataFrame:
    """Return the accuracy for each kind of read: columns kind, answers, accuracy, low, high."""
    values, at = kinds.unique(return_inverse=True)
    n, right = torch.bincount(at), torch.bincount(at, weights=good.double())
    rows = []
    for kind, answers, good_answers in zip(values.tolist(), n.tolist(), right.tolist(), strict=True):
        score = Score(answers, int(good_answers), answers, exact)
        rows.append((kind, score.n, score.accuracy, score.low, score.high))
    return pd.DataFrame(rows, columns=["kind", "answers", "accuracy", "low", "high"])


# ---------------------------------------------------------------- generated answers


@dataclass(frozen=True)
class AnswerLayout:
    """The positions and tokens of the answers in a batch.

    starts: the position at which each row's first answer is read. wanted: the right output indices from there on,
    (rows, answers), IGNORED after a row's last one. tokens: the token of each output index. stop: the output that ends
    an answer, or None. longest: the largest number of tokens that a model writes.
    """

    starts: Int[Tensor, "rows"]
    wanted: Int[Tensor, "rows answers"]
    tokens: Int[Tensor, "n_out"]
    stop: int | None
    longest: int


def not_generated(subject: Subject, batch: Batch) -> str | None:
    """Return the reason why the answers in a batch are not consecutive tokens, or None."""
    answers = layout(subject, batch)
    return answers if isinstance(answers, str) else None


def layout(subject: Subject, batch: Batch) -> AnswerLayout | str:
    """Return the layout of a batch's answers, or the reason why they are not consecutive tokens."""
    task, name, declared = subject.task, subject.task.name, subject.task.generates
    if subject.decision.kind != "argmax":
        return f"task {name} does not answer with one of several tokens"
    if subject.read_at != "all":
        return f"task {name} is read at one position, so nothing is generated from its answers"
    read = subject.read_mask(batch)
    if len(batch) == 0 or not bool(read.any(1).all()) or (declared is None and int(read.sum(1).amin()) < 2):
        return f"task {name} has no rows with several answers"
    missing = [word for word in task.answer_words if word not in task.vocabulary]
    if missing or (declared is None and list(task.answer_words) != list(task.vocabulary[: task.n_out])):
        return f"the answers of task {name} are not tokens of its vocabulary"
    tokens = torch.tensor([task.vocabulary.index(word) for word in task.answer_words])
    if declared is None:
        starts, stop = read.int().argmax(1), None
    else:
        start, stop = declared.start, None  # of generation; the first answer is read one token before
        starts = (
            find_positions(task, batch.tokens, start)
            if isinstance(start, str)
            else torch.full((len(batch),), start - 1)
        )
        if declared.stop is not None:
            stop = task.answer_words.index(check_one_of(f"answer of task {name}", declared.stop, task.answer_words))
    longest = read.shape[1] if declared is None else declared.length
    at = starts[:, None] + torch.arange(min(longest, read.shape[1]))
    inside = at < read.shape[1]
    wanted = task.classes(batch).gather(1, at.clamp_max(read.shape[1] - 1)).masked_fill(~inside, IGNORED)
    wanted = wanted.masked_fill((wanted == IGNORED).cummax(1).values, IGNORED)  # answers follow one another
    wanted = wanted[:, : max(1, int((wanted != IGNORED).sum(1).amax()))]
    if bool((wanted[:, 0] == IGNORED).any()) or (declared is None and bool((wanted == IGNORED).any())):
        return f"the answers of task {name} are not at the end of rows of equal length"
    if declared is not None and (reason := _not_as_declared(name, declared, read, starts, wanted, stop)):
        return reason
    if subject.model.cfg.attention_dir != "causal" and bool((starts != starts[0]).any()):
        return f"a bidirectional model sees the padding after its own text: rows of task {name} differ in length"
    next_tokens = batch.tokens.gather(1, (at + 1).clamp_max(read.shape[1] - 1))[:, : wanted.shape[1]]
    follows = (wanted != IGNORED) & (at[:, : wanted.shape[1]] + 1 < batch.lengths[:, None])
    if bool((tokens[wanted.clamp_min(0)] != next_tokens)[follows].any()):
        return f"the answers of task {name} are not the next tokens"
    return AnswerLayout(starts, wanted.long(), tokens, stop, wanted.shape[1] if declared is None else declared.length)


def _not_as_declared(
    name: str, declared: Generates, read: Tensor, starts: Tensor, wanted: Tensor, stop: int | None
) -> str | None:
    """Return the reason why the right answers contradict the task's `generates`, or None.

    Without this check, a model that stops too early or too late would be judged by a part of its answer.
    """
    behind = torch.arange(read.shape[1]) >= (starts + wanted.shape[1])[:, None]
    if wanted.shape[1] >= declared.length and bool((read & behind).any()):
        return f"answers of task {name} are longer than generates.length = {declared.length}"
    if stop is None:
        return None
    asked = wanted != IGNORED
    length = asked.sum(1)
    last = wanted.gather(1, length[:, None] - 1)[:, 0]
    if bool((((wanted == stop) & asked).sum(1) > (last == stop)).any()):
        return f"answers of task {name} contain the stop {declared.stop!r} before their end"
    if bool(((last != stop) & (length < declared.length)).any()):
        return f"answers of task {name} do not end with the stop {declared.stop!r}"
    return None


@dataclass(frozen=True)
class Generated:
    """Generated answers to the question in each row.

    tokens: all that the model writes, as output indices, (rows, written): up to the stop, or to the declared length if
    the model has so many positions, and IGNORED from there on. It may be longer than the right answer. right: mask of
    the answers, (rows, answers), that are right. start: the position at which the first answer is read (in the first
    row, if rows differ). teacher_forced: mask of the answers that are right after the right tokens. asked: mask of the
    answers that exist.
    """

    tokens: Int[Tensor, "rows written"]
    right: Bool[Tensor, "rows answers"]
    start: int
    teacher_forced: Bool[Tensor, "rows answers"]
    asked: Bool[Tensor, "rows answers"]

    @property
    def exact(self) -> Bool[Tensor, "rows"]:
        """Mask of the rows whose whole answer is right, including the stop."""
        return (self.right | ~self.asked).all(1)

    def by_place(self) -> pd.DataFrame:
        """Return one row per answer token: place, teacher_forced and generated (shares of right tokens), rows."""
        rows = self.asked.sum(0)
        forced, made = (((part & self.asked).sum(0) / rows).tolist() for part in (self.teacher_forced, self.right))
        places = range(1, len(rows) + 1)
        return pd.DataFrame({"place": places, "teacher_forced": forced, "generated": made, "rows": rows.tolist()})


@torch.no_grad()
def generate(model: Model, batch: Batch) -> Generated:
    """Generate the answer to each row of a batch, token by token, from the model's own tokens.

    If a task declares `generates`, each row starts and stops as declared. Raises UnsupportedError if a task's answers
    are not consecutive tokens.
    """
    subject = Subject.of(model)
    answers = layout(subject, batch)
    if isinstance(answers, str):
        raise UnsupportedError(answers)
    asked, width = answers.wanted != IGNORED, batch.tokens.shape[1]
    positions = _positions(subject, width)
    steps = max(asked.shape[1], min(answers.longest, positions - int(answers.starts.min())))
    behind = max(0, min(positions, int(answers.starts.max()) + steps) - width)
    rows = nn.functional.pad(batch.tokens, (0, behind), value=subject.task.pad_id or 0)
    made = torch.full((len(rows), steps), IGNORED)
    running = torch.ones(len(rows), dtype=torch.bool)
    for step in range(steps):
        at = (answers.starts + step).clamp_max(rows.shape[1] - 1)
        answered = _answers(subject, rows[:, : int(at.max()) + 1], at)
        running &= answers.starts + step < positions
        made[:, step] = torch.where(running, answered, IGNORED)
        running &= answered != answers.stop if answers.stop is not None else running
        if step + 1 >= asked.shape[1] and not bool(running.any()):
            break
        here = (at + 1 < rows.shape[1]).nonzero()[:, 0]
        # An output that is not finite is a wrong answer; continue with output 0's token.
        rows[here, at[here] + 1] = answers.tokens[answered[here].clamp_min(0)]
    right = (made[:, : asked.shape[1]] == answers.wanted) & asked
    return Generated(made, right, int(answers.starts[0]), _forced(subject, batch, answers, asked), asked)


def _positions(subject: Subject, width: int) -> int:
    """Return the length up to which a model's text may grow: rows of a batch have `width` tokens, and always fit."""
    model = subject.model
    if not isinstance(model, TaskModel):
        return max(width, model.cfg.n_ctx)
    limit = width if model.length_limit is not None else model.spec.max_length
    return 2**31 if limit is None else max(width, limit)


def _forced(subject: Subject, batch: Batch, answers: AnswerLayout, asked: Tensor) -> Bool[Tensor, "rows answers"]:
    """Return the mask of the answers that are right after the right tokens so far."""
    places = subject.read_mask(batch)
    whole = torch.zeros(places.shape, dtype=torch.bool)
    whole[places] = subject.right(batch).cpu()
    at = (answers.starts[:, None] + torch.arange(asked.shape[1])).clamp_max(places.shape[1] - 1)
    return whole.gather(1, at) & asked


def _answers(subject: Subject, tokens: Int[Tensor, "rows length"], at: Int[Tensor, "rows"]) -> Int[Tensor, "rows"]:
    """Return the model's output index at one position per row; rows need not be inputs of the task."""
    indices, size = [], max(1, 2**22 // (tokens.shape[1] ** 2 * subject.model.cfg.n_heads))
    for part, places in zip(tokens.split(size), at.split(size)):
        whole = subject.columns(subject.model(subject.inputs(part).to(subject.model.cfg.device))).cpu()
        out = whole[torch.arange(len(part)), places]
        largest = out.argmax(-1)
        named = out.isfinite().all(-1) & (largest < subject.n_classes)  # NaN is no answer, nor are other outputs
        indices.append(torch.where(named, largest, IGNORED))
    return torch.cat(indices)


@dataclass(frozen=True)
class GenerationAccuracy:
    """teacher_forced: share of answer tokens right after the right ones. generated: share of whole answers right."""

    teacher_forced: Score
    generated: Score


def generation_accuracy(model: Model, n: int = 1000, split: str | None = None, seed: int = 0) -> GenerationAccuracy:
    """Measure both accuracies on a sample of n inputs of a split (default: the task's last).

    A generated answer is right if and only if all its teacher-forced tokens are (by induction). So if all answers have
    the same length, `generated` is never larger. Raises UnsupportedError as `generate` does.
    """
    subject = Subject.of(model)
    drawn = population_of(subject.task.sample(n, split or subject.task.splits[-1], seed))
    generated = generate(subject, drawn.batch)
    return GenerationAccuracy(drawn.score(generated.teacher_forced[generated.asked]), drawn.score(generated.exact))
