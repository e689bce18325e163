"""Certify any HookedTransformer on any task that lists its inputs, by running every input.

The result is about this number format, device, torch version and batch size. Other batch shapes may round differently.
So some of the inputs are also run in float64, in batches of another shape. Right inputs whose margin is below CLOSE
times the largest difference between the two runs count as close. They might be wrong in another order of evaluation, so
a model with close inputs is not certified. A float64 model is compared with a run in float32 instead, and the
difference is divided by 2^29, the ratio of the two formats' roundings: errors are proportional to the rounding of one
operation. That is an estimate, so the answers with the smallest margins are also computed with 50 digits, where a spec
says what the model computes (digits.py), and if they are further off than estimated, that counts. It is no bound on all
inputs, so the certificate says that it is about this machine.

A certificate counts single answers, each after the right tokens. By induction, a model generates a whole answer right
if and only if each token is right after the right ones, so the same run counts whole answers. For the counterexample,
the model generates the answer to the shortest question that it answers wrongly.
"""

import copy
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from threading import local

import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.certificates.arithmetic import lowered
from interp.certificates.certificate import AT_HAND, Certificate, Progress, Status, note_rounding, register_method
from interp.certificates.digits import DIGITS, Precise, products
from interp.certificates.probes import hooks_on, sees_its_answers
from interp.errors import InterpError, UnsupportedError
from interp.measures.accuracy import generate, layout
from interp.models.architecture.answers import decide, has_answer, margins, said_in_run
from interp.models.architecture.comparison import TOLERANCE
from interp.models.architecture.task_model import TaskModel
from interp.models.lens import HookedTransformer
from interp.models.subject import Subject
from interp.support.resources import one_thread
from interp.tasks import IGNORED, Batch, Task
from interp.tasks.batch_checks import check_batch
from interp.tasks.domain import every_input, n_inputs
from interp.tasks.registry import name_taken

EVERY_INPUT = "every input, as run"
CLOSE = 8.0
ROWS = 4096
COMPARED = 64
"""Approximate number of batches that are also run in float64, evenly spaced from the first on."""

AGAIN, PRODUCTS = 16, 1 << 22
"""Largest number of answers that are computed again with many digits, and of products of numbers that this takes."""

MOST = 1 << 30
"""Largest number of inputs; more would take hours."""

LISTED = 100_000
"""Largest number of errors, and of close inputs, in the tables."""
EXACT_MATCH = "exact match: "
"""The start of the note on whole answers, which a report shows with the accuracy of single tokens."""


def no_domain(task: Task) -> str | None:
    """Return the reason why a task's inputs cannot be listed, or None."""
    if task.n_inputs is None:
        return f"task {task.name} does not list its inputs (define n_inputs and inputs(chunk) in it)"
    return f"{task.n_inputs:,} inputs are more than {MOST:,}" if task.n_inputs > MOST else None


@register_method(EVERY_INPUT, no_domain, lambda model: no_domain(model.task), takes=None)
@torch.no_grad()
def certify_inputs(
    model: TaskModel | Subject, batch_size: int = ROWS, most: int = MOST, progress: Progress | None = None
) -> Certificate:
    """Certify any model with a task, by running every input that the task lists.

    batch_size: number of rows per batch. most: largest number of inputs. The certificate's accuracy is the share of
    right answers, one per row or one per read position. Its tables "wrong inputs" and "close inputs" (the first LISTED)
    have input, position, answer, right, margin. Raises UnsupportedError for a task that does not list its inputs, a
    model with hooks, and too many inputs.
    """
    subject = Subject.of(model)
    task, network = subject.task, subject.model
    if (reason := no_domain(task) or name_taken(task) or hooks_on(network)) is not None:
        raise UnsupportedError(f"{name_of(network)} cannot be certified: {reason}")
    if batch_size < 1:
        raise InterpError(f"batch_size = {batch_size} must be at least 1")
    total = n_inputs(task)
    if total > most:
        raise UnsupportedError(
            f"{name_of(network)} cannot be certified: task {task.name} has {total:,} inputs, more than most = {most:,}"
        )
    if (reason := sees_its_answers(subject, next(filter(len, task.inputs(batch_size))))) is not None:
        raise UnsupportedError(f"{name_of(network)} cannot be certified: {reason}")
    slip = _difference(subject, total, batch_size)
    counts = _count(subject, batch_size, CLOSE * slip, total, progress)
    if not counts.answers:
        raise InterpError(f"task {task.name} has no read position in any of its {total:,} inputs")
    parameter = next(network.parameters())
    dtype, device = str(parameter.dtype).removeprefix("torch."), parameter.device.type
    double = parameter.dtype == torch.float64
    again, off, agrees = _computed_again(subject, counts.tightest) if double else (0, 0.0, True)
    if agrees and off > slip:
        slip = off
        counts = _count(subject, batch_size, CLOSE * slip, total, progress)
    status: Status = "refuted" if counts.wrong else "undecided" if counts.close else "certified"
    run = f"as run{' on this machine' * double}: {dtype} on {device}, torch {torch.__version__}"
    notes: tuple[str, ...] = () if counts.whole is None else (counts.whole.note(),)
    notes += (
        f"rounding is estimated, not bounded, from a run of some inputs in float32{_said(again * agrees)}: it changes "
        f"margins by {slip:.3g}"
        if double
        else f"some of the inputs were also run in float64: margins differ by at most {slip:.3g}",
    )
    if not agrees:
        notes += (f"computed from the spec with {DIGITS} digits, a margin differs by {off:.3g}: the model at hand "
                  "computes something else, and the certificate is about what it computes",)  # fmt: skip
    if counts.close:
        notes += (f"{counts.close:,} answers are right by less than {CLOSE:g} times that: another batch shape may "
                  "answer otherwise",)  # fmt: skip
    if counts.beyond:
        notes += (f"{counts.beyond:,} answers are outputs that the task does not name; among those that it names, "
                  f"{counts.among:,} of {counts.answers:,} answers are wrong",)  # fmt: skip
    if max(counts.wrong, counts.close) > LISTED:
        notes += (f"tables hold the first {LISTED:,} errors and close inputs",)
    certificate = Certificate(
        model=name_of(network),
        status=status,
        accuracy=(counts.answers - counts.wrong) / counts.answers,
        n_inputs=counts.rows,
        worst_margin=counts.worst,
        counterexample=counts.counterexample(subject),
        method=EVERY_INPUT,
        domain=f"every input of task {task.name}",
        rounding=CLOSE * slip,
        n_errors=counts.wrong,
        n_answers=counts.answers if counts.answers != counts.rows else None,
        notes=notes,
        tables={"wrong inputs": counts.frame(counts.errors), "close inputs": counts.frame(counts.nearly)},
        arithmetic=f"{run}, batches of {batch_size}, one thread each" + (f", {text}" if (text := lowered()) else ""),
        about=AT_HAND,
    )
    return note_rounding(certificate)


@dataclass(frozen=True)
class Ran:
    """A batch that was run, with outputs, margins and masks at every read position.

    right: right answers. beyond: the largest output is not an answer of the task. among: wrong answers if only the
    task's answers compete.
    """

    batch: Batch
    out: Float[Tensor, "reads n_out"]
    margin: Float[Tensor, "reads"]
    right: Bool[Tensor, "reads"]
    beyond: Bool[Tensor, "reads"]
    among: int


def _all_run(subject: Subject, batch_size: int) -> Iterator[Ran]:
    """Run every batch in as many workers as torch has threads, each with one thread and its own copy of the model."""
    mine, pending, workers = local(), deque[Future[Ran]](), torch.get_num_threads()

    def run(batch: Batch) -> Ran:
        if not hasattr(mine, "subject"):
            torch.set_num_threads(1)
            mine.subject = replace(subject, model=copy.deepcopy(subject.model)) if workers > 1 else subject
        with torch.no_grad():
            out = mine.subject.logits(batch, chunk=len(batch))
            right, beyond = subject.right_of(out, batch), decide(out, subject.decision) >= subject.task.n_classes
            among = subject.right_of(out[:, : subject.task.n_classes], batch) if bool(beyond.any()) else right
            return Ran(batch, out, _margins(subject, batch, out), right, beyond, int((~among).sum()))

    with one_thread(), ThreadPoolExecutor(workers) as pool:
        for batch in every_input(subject.task, batch_size):
            pending.append(pool.submit(run, batch))
            if len(pending) > 2 * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


@dataclass
class Whole:
    """Counts of whole answers and of wrong ones, and the shortest question with a wrong answer."""

    rows: int = 0
    wrong: int = 0
    shortest: Batch | None = None
    length: int = 0
    reason: str | None = None
    """The reason why the task has no generated answers, or None."""

    def take(self, subject: Subject, batch: Batch, right: Bool[Tensor, "reads"]) -> None:
        """Count the rows of a batch. right: mask of the right single answers, at the read positions."""
        answers = layout(subject, batch)
        if isinstance(answers, str):
            self.reason = answers
            return
        places = subject.read_mask(batch)
        single = torch.ones(places.shape, dtype=torch.bool)
        single[places] = right
        asked = answers.wanted != IGNORED
        at = (answers.starts[:, None] + torch.arange(asked.shape[1])).clamp_max(places.shape[1] - 1)
        wrong = (~single.gather(1, at) & asked).any(1)
        self.rows, self.wrong = self.rows + len(batch), self.wrong + int(wrong.sum())
        if bool(wrong.any()):
            lengths = torch.where(wrong, answers.starts, places.shape[1])
            row = int(lengths.argmin())
            if self.shortest is None or int(lengths[row]) < self.length:
                self.shortest, self.length = batch[row : row + 1], int(lengths[row])

    def note(self) -> str:
        """Return one sentence on whole answers."""
        if self.reason is not None:
            return f"answers are not generated: {self.reason}"
        right = self.rows - self.wrong
        return (
            f"{EXACT_MATCH}generated token by token, {right:,} of {self.rows:,} answers are right as a whole (a model "
            "generates an answer right if and only if each token is right after the right ones before it)"
        )

    def counterexample(self, subject: Subject) -> str | None:
        """Return the shortest question that is answered wrongly, with the generated answer.

        None if there is none, or if the model, run on this row alone, generates the right answer; the error is then
        within rounding.
        """
        if self.shortest is None:
            return None
        batch, task = self.shortest, subject.task
        answers, generated = layout(subject, batch), generate(subject, batch)
        if isinstance(answers, str) or bool(generated.exact.all()):
            return None
        question = task.format(batch.tokens[0, : int(answers.starts[0]) + 1])
        return (
            f"{question}: the generated answer is {_written(subject, generated.tokens[0])}, right is "
            f"{_written(subject, answers.wanted[0])}"
        )


def _written(subject: Subject, answer: Tensor) -> str:
    """Return the tokens of an answer as text."""
    words = [subject.task.word(int(output)) for output in answer.tolist() if output != IGNORED]
    return ("" if all(len(word) == 1 for word in words) else " ").join(words) or "nothing"


@dataclass(frozen=True)
class Tight:
    """A right answer with a small margin: the row without padding, the position, and the right output."""

    margin: float
    tokens: Tensor
    place: int
    right: Tensor


@dataclass
class RunCounts:
    """Results so far: numbers of rows, answers, errors and close answers, the first errors and close answers, the error
    after the fewest tokens, the AGAIN right answers with the smallest margins, and the number of whole answers if the
    task generates them."""

    rows: int = 0
    answers: int = 0
    wrong: int = 0
    close: int = 0
    beyond: int = 0
    among: int = 0
    worst: float = float("inf")
    first: str | None = None
    shortest: int = 0
    whole: Whole | None = None
    tightest: list[Tight] = field(default_factory=list)
    errors: list[tuple[object, ...]] = field(default_factory=list)
    nearly: list[tuple[object, ...]] = field(default_factory=list)

    def take(self, subject: Subject, ran: Ran, near: float) -> None:
        """Count a batch that was run. Outputs that are not finite are wrong answers."""
        batch, out, finite, right = ran.batch, ran.out, has_answer(ran.out), ran.right
        margin = torch.where(finite, ran.margin, -torch.inf)
        if bool((shared := right & (margin < -near)).any()):
            output = int(decide(out[shared][:1], subject.decision))
            raise UnsupportedError(
                f"task {subject.task.name} counts output {output} as right where its classes name another one: "
                "margins are about tasks with one right output for each label"
            )
        right = right & (margin > 0)  # see right_in_run
        nearly = right & (margin <= near)
        self.rows, self.answers = self.rows + len(batch), self.answers + len(right)
        self.worst = min(self.worst, float(margin.min()))
        for mask, kept in ((~right, self.errors), (nearly, self.nearly)):
            if bool(mask.any()) and len(kept) < LISTED:
                kept += islice(_lines(subject, ran, margin, mask), LISTED - len(kept))
        self.wrong, self.close = self.wrong + int((~right).sum()), self.close + int(nearly.sum())
        self.beyond, self.among = self.beyond + int(ran.beyond.sum()), self.among + ran.among
        if self.whole is not None:
            self.whole.take(subject, batch, right)
        if bool((~right).any()):
            self._shortest(subject, ran, margin, right)
        if batch.counts is None:
            self._tightest(subject, batch, margin.where(right, torch.inf))

    def _tightest(self, subject: Subject, batch: Batch, margin: Tensor) -> None:
        """Keep the right answers with the smallest margins, which only a float64 model needs."""
        if next(subject.model.parameters()).dtype != torch.float64:
            return
        places, classes = subject.read_mask(batch).nonzero(), subject.classes(batch)
        for at in margin.argsort(stable=True)[:AGAIN].tolist():
            row, place = places[at].tolist()
            if margin[at] < torch.inf and (len(self.tightest) < AGAIN or margin[at] < self.tightest[-1].margin):
                causal = subject.model.cfg.attention_dir == "causal"
                tokens = batch.tokens[row, : place + 1 if causal else int(batch.lengths[row])]
                answer = Tight(float(margin[at]), tokens, place, classes[at])
                self.tightest = sorted([*self.tightest, answer], key=lambda tight: tight.margin)[:AGAIN]

    def _shortest(self, subject: Subject, ran: Ran, margin: Tensor, right: Bool[Tensor, "reads"]) -> None:
        """Keep the first error after the fewest tokens."""
        row, position = subject.read_mask(ran.batch).nonzero().unbind(1)
        causal = subject.model.cfg.attention_dir == "causal"
        length = torch.where(right, torch.iinfo(torch.long).max, position + 1 if causal else ran.batch.lengths[row])
        at = int(length.argmin())
        if self.first is None or int(length[at]) < self.shortest:
            chosen = torch.zeros_like(right)
            chosen[at] = True
            text, place, answer, label, _ = next(_lines(subject, ran, margin, chosen))
            self.first = f"{text}: the answer at position {place} is {answer}, right is {label}"
            self.shortest = int(length[at])

    def counterexample(self, subject: Subject) -> str | None:
        """Return the shortest question with a wrong generated answer, otherwise the error after the fewest tokens."""
        return (self.whole and self.whole.counterexample(subject)) or self.first

    @staticmethod
    def frame(lines: list[tuple[object, ...]]) -> pd.DataFrame:
        return pd.DataFrame(lines, columns=["input", "position", "answer", "right", "margin"])


def _count(subject: Subject, batch_size: int, near: float, total: int, progress: Progress | None = None) -> RunCounts:
    """Run every input, and count answers; right ones by at most `near` are close."""
    counts = RunCounts(whole=None if subject.task.generates is None else Whole())
    for ran in _all_run(subject, batch_size):
        counts.take(subject, ran, near)
        if progress is not None:
            progress(counts.rows, total)
    return counts


def _margins(subject: Subject, batch: Batch, out: Float[Tensor, "reads n_out"]) -> Float[Tensor, "reads"]:
    """Return the margins over all outputs of the model, in float64."""
    return margins(out.double(), subject.classes(batch), subject.decision).nan_to_num(nan=-torch.inf)


def _lines(subject: Subject, ran: Ran, margin: Tensor, mask: Bool[Tensor, "reads"]) -> Iterator[tuple[object, ...]]:
    """Yield rows (input, position, answer, right, margin) for the answers in a mask."""
    batch, out = ran.batch, ran.out
    places, task = subject.read_mask(batch).nonzero(), subject.task
    classes = subject.classes(batch)
    for at in mask.nonzero()[:, 0].tolist():
        row, position = places[at].tolist()
        text = task.format(batch.tokens[row, : int(batch.lengths[row])])
        answer = said_in_run(task, out[at], int(classes[at]), subject.decision)
        yield text, position, answer, task.word(int(classes[at])), float(margin[at])


@torch.no_grad()
def _difference(subject: Subject, total: int, batch_size: int) -> float:
    """Return how far rounding moves a margin: the largest change on some inputs in another format and batch shape.

    The other format is float64, or float32 for a float64 model, with the change scaled to the rounding of float64. The
    result is at least one rounding of the outputs.
    """
    dtype = next(subject.model.parameters()).dtype
    other = torch.float64 if dtype != torch.float64 else torch.float32
    control, eps = subject.in_format(other), torch.finfo(dtype).eps
    scale = min(1.0, eps / torch.finfo(other).eps)
    step, worst = max(1, -(-total // (batch_size * COMPARED))), 0.0
    for batch in islice(filter(len, subject.task.inputs(batch_size)), 0, None, step):
        check_batch(subject.task, batch, f"inputs({batch_size})")
        out = subject.logits(batch, chunk=len(batch))
        again = control.logits(batch, chunk=max(1, len(batch) // 2 + 1))
        if not bool((finite := has_answer(out)).any()):
            continue  # these answers are wrong in any case
        here, there = _margins(subject, batch, out), _margins(control, batch, again)
        moved = scale * torch.where(here == there, 0.0, here - there)[finite].abs()  # equal where both are infinite
        worst = max(worst, float(moved.nan_to_num(nan=torch.inf).max()), eps * float(out[finite].abs().max()))
    return worst


def _computed_again(subject: Subject, tightest: list[Tight]) -> tuple[int, float, bool]:
    """Compute answers again with DIGITS digits: return of how many, how far their margins are off at most, and whether
    that can be rounding, or the model computes something else than its spec says.

    Of none, if the model has no spec or is too large.
    """
    model, worst, left, number = subject.model, 0.0, PRODUCTS, 0
    if not isinstance(model, TaskModel):
        return 0, 0.0, True
    for answer in tightest:
        left -= products(model, len(answer.tokens))
        if left < 0:
            break
        out = Precise(model).outputs_at(subject.inputs(answer.tokens[None])[0].tolist(), answer.place)
        out = out if subject.output_ids is None else out[subject.output_ids.numpy()]
        size = float(abs(out).max())
        out = out - out[int(answer.right)] if subject.decision.kind == "argmax" else out  # without another rounding
        margin = margins(torch.tensor(out.astype(float)), answer.right, subject.decision)
        worst, number = max(worst, abs(float(margin) - answer.margin)), number + 1
        if worst > TOLERANCE * max(1.0, size):
            return number, worst, False
    return number, worst, True


def _said(again: int) -> str:
    return f" and of the {again} smallest margins with {DIGITS} digits" if again else ""


def name_of(model: HookedTransformer) -> str:
    if isinstance(model, TaskModel):
        return model.spec.id
    cfg = model.cfg
    return f"{cfg.n_layers}-layer HookedTransformer of {cfg.n_heads} heads and d_model {cfg.d_model}"
