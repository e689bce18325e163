"""Does a program give a model's answer on every input? By engines that need no sample.

    listing     every input is run, in the program and in the model as it is
    strings     every string up to a length, for tasks of strings with too many inputs
    multisets   one input stands for all orders of its tokens, where model and program depend on counts alone
    counts      the same for tasks whose inputs are boxes of counts
    extremes    the model is certified right on every input, and the program is right at the extremes of its counts
    places      the model is certified, and the program is right for all tokens at the few places that an answer reads

Extremes: at each position, the program may depend only on the token there and on how often each token occurs. Then its
sums are fractions of linear functions of the counts with one positive denominator: they keep their order on all counts
if they have it at the corners, where all other tokens are equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from interp.certificates.certificate import Certificate
from interp.certificates.certify import certify_model
from interp.certificates.known import find_known
from interp.errors import InterpError, UnsupportedError
from interp.models.architecture.answers import decide
from interp.models.architecture.reduced import CountedRows, count_space_refusal
from interp.models.architecture.task_model import TaskModel
from interp.models.subject import Subject
from interp.programs.language import Program
from interp.programs.proof_places import wrong_by_places
from interp.programs.running import Running, tokens_once
from interp.programs.steps import Head, Linear, Product, Step, Sums, Table
from interp.support import words
from interp.tasks.automata import declared
from interp.tasks.batch import Batch
from interp.tasks.counted import count_box, shape_of
from interp.tasks.domain import every_input
from interp.tasks.structure import COUNTS_OWN_TOKEN, LISTED_STRINGS, lacks

CHUNK = 2_000
MOST_NUMBERS = 2 * 10**11
"""Largest number of multiplications, of program and model together, for a proof by running."""
STRINGS = 1 << 14
"""Most strings that are run where the task has too many inputs."""
APART = 1e-9
"""Least difference of the largest sum from the others, as a share of the largest: what rounding cannot turn."""


@dataclass(frozen=True)
class ProgramProof:
    """How a program compares with a model on every input.

    n: the number of inputs. answers: the number of answers compared. wrong: of how many the program's differs from the
    model's. how: the engine, in words. domain: the inputs, in words, after "on".
    """

    n: int
    answers: int
    wrong: int
    how: str
    domain: str

    @property
    def holds(self) -> bool:
        """Whether the program gives the model's answer on every input."""
        return self.wrong == 0

    def __str__(self) -> str:
        if self.holds:
            return f"proved on {self.domain}"
        same = words.share(1 - self.wrong / self.answers)
        return f"not proved: the program gives exactly {same} of the answers on {self.domain}"


def prove(subject: Subject, program: Program, check: Callable[[], None] = lambda: None) -> ProgramProof:
    """Compare a program with a model on every input.

    Raises UnsupportedError, with the reasons, if no method applies.
    """
    reasons = []
    for engine in (by_counts, by_multisets, by_listing, by_extremes, by_places, by_strings):
        try:
            return engine(subject, program, check)
        except InterpError as error:
            reasons.append(f"{engine.__name__.removeprefix('by_')}: {error}")
    raise UnsupportedError(f"it cannot be proved: {'; '.join(reasons)}")


def _compared(
    subject: Subject, program: Program, batches: Iterator[tuple[Batch, Tensor]], check: Callable[[], None]
) -> tuple[int, int, int]:
    """Run inputs with their multiplicities; return the numbers of inputs, of answers, and of answers that differ."""
    n = answers = wrong = 0
    for batch, times in batches:
        check()
        running = Running.of(subject, batch)
        counts = times[running.reads.rows]
        n, answers = n + int(times.sum()), answers + int(counts.sum())
        wrong += int(counts[running.given_by(program) != running.answers].sum())
    return n, answers, wrong


def _by_counts_alone(subject: Subject, program: Program) -> None:
    """Raise UnsupportedError unless model and program depend on token counts alone."""
    if not subject.count_space:
        spec = subject.model.spec if isinstance(subject.model, TaskModel) else None
        refused = None if spec is None else count_space_refusal(spec)
        raise UnsupportedError(refused or "the model does not run in count space")
    if any("position" in step.of for step in (*program.steps, program.answer)):
        raise UnsupportedError("the program reads positions")


def by_counts(subject: Subject, program: Program, check: Callable[[], None]) -> ProgramProof:
    """Every box of counts, whatever the order of the tokens."""
    _by_counts_alone(subject, program)
    if not getattr(subject.task, "count_ranges", None):
        raise UnsupportedError("the task has no box of counts")
    model = subject.model
    if subject.read_at != subject.task.readout or subject.token_ids is not None or not isinstance(model, TaskModel):
        raise UnsupportedError("the model does not read the task's tokens where the task says")
    box, shape = count_box(subject.task), shape_of(subject.task)
    wrong = 0
    for start in range(0, len(box), CHUNK):
        check()
        query, counts, classes = shape.answer_rows(box.counts(start, start + CHUNK))
        running = Running(subject, *tokens_once(query, counts.float(), classes, classes))
        with torch.no_grad():
            answers = decide(subject.columns(model.read_counts(CountedRows(query, counts))), subject.decision)
        wrong += int((running.given_by(program) != answers).sum())
    return ProgramProof(len(box), len(box), wrong, "every count, in count space", f"all {len(box):,} inputs ({box})")


def by_multisets(subject: Subject, program: Program, check: Callable[[], None]) -> ProgramProof:
    """Every multiset of tokens."""
    _by_counts_alone(subject, program)
    compared = _compared(subject, program, subject.task.multisets(CHUNK), check)
    if compared[0] != subject.task.n_inputs:
        raise UnsupportedError(f"the multisets are those of {compared[0]:,} inputs of {subject.task.n_inputs:,}")
    return ProgramProof(*compared, "every multiset of tokens, in count space", f"all {compared[0]:,} inputs")


def by_listing(subject: Subject, program: Program, check: Callable[[], None]) -> ProgramProof:
    """Every input."""
    n = subject.task.n_inputs
    if n is None:
        raise UnsupportedError("the task does not list its inputs")
    length, widths = program.length, [len(values) for values in program.values.values()]
    weights = sum(parameter.numel() for parameter in subject.model.parameters())
    if n * length * (weights + sum(widths) * (length + max(widths))) > MOST_NUMBERS:
        raise UnsupportedError(f"there are {n:,} inputs")
    batches = ((batch, torch.ones(len(batch), dtype=torch.long)) for batch in every_input(subject.task, CHUNK))
    compared = _compared(subject, program, batches, check)
    return ProgramProof(*compared, "every input, as run", f"all {compared[0]:,} inputs")


def by_strings(subject: Subject, program: Program, check: Callable[[], None]) -> ProgramProof:
    """Every string up to a length, if the program gives the model's answer to each: not all need be inputs."""
    task: Any = subject.task
    if (reason := lacks(task, LISTED_STRINGS)) is not None:
        raise UnsupportedError(reason)
    longest = int(math.log(STRINGS, len(task.alphabet))) - 1
    whole = task.enumerate_up_to(min(longest, max(task.test_lengths)))
    parts = (whole[start : start + CHUNK] for start in range(0, len(whole), CHUNK))
    batches = ((batch, torch.ones(len(batch), dtype=torch.long)) for batch in parts)
    compared = _compared(subject, program, batches, check)
    symbols = f"at most {int(whole.lengths.max()) - task.n_marks} symbols"
    if compared[2]:
        raise UnsupportedError(f"it does not give all answers to strings of {symbols}")
    return ProgramProof(*compared, "every string up to a length, as run", f"all {compared[0]:,} strings of {symbols}")


# ---------------------------------------------------------------- a certified model, and a program that is right


def _certified(subject: Subject) -> Certificate:
    """The certificate of a model that is right on every input. Raises UnsupportedError for others."""
    model = subject.model
    if not isinstance(model, TaskModel) or subject.token_ids is not None:
        raise UnsupportedError("only a task model of interp is certified")
    certificate = find_known(model) or certify_model(model)
    if certificate.status != "certified":
        raise UnsupportedError(f"the model is {certificate.status}, so the right answers are not all its own")
    return certificate


def by_places(subject: Subject, program: Program, check: Callable[[], None]) -> ProgramProof:
    """The model is certified, and the program is right for every combination of the tokens that an answer reads."""
    automata = declared(subject.task)
    if subject.read_at != subject.task.readout:
        raise UnsupportedError("the model is not read where the task says")
    tried = [wrong_by_places(program, paths, check) for paths in automata]
    if any(wrong for _, wrong in tried):
        raise UnsupportedError("the program is wrong on an input")
    certificate = _certified(subject)
    n = sum(paths.n_inputs for paths in automata)
    answers = sum(paths.n_inputs * len(paths.reads) for paths in automata)
    how = (
        f"model and program give the right answer on every input: {certificate.method}; the program by "
        f"{sum(n for n, _ in tried):,} combinations of the tokens on which an answer depends"
    )
    return ProgramProof(n, answers, 0, how, f"all {n:,} inputs")


def by_extremes(subject: Subject, program: Program, check: Callable[[], None]) -> ProgramProof:
    """The model is certified, and the program is right at the corners of the counts of the other tokens."""
    task = subject.task
    if (reason := lacks(task, COUNTS_OWN_TOKEN)) is not None:
        raise UnsupportedError(reason)
    _linear_in_counts(program)
    certificate = _certified(subject)
    n = 0
    for batch in corners(task):
        check()
        n += len(batch)
        _right(subject, program, batch)
    assert task.n_inputs is not None
    answers = task.n_inputs * int(subject.read_mask(batch[:1]).sum())
    how = f"model and program give the right answer on every input: {certificate.method}; {n:,} extremes of counts"
    return ProgramProof(task.n_inputs, answers, 0, how, f"all {task.n_inputs:,} inputs")


def _linear_in_counts(program: Program) -> None:
    """Raise UnsupportedError unless the steps are those of one head over tokens, and linear in what it reads."""
    heads = [step for step in program.steps if isinstance(step, Head)]
    of_token = {"token"}  # and what is looked up by it
    of_token |= {step.name for step in program.steps if isinstance(step, Table) and set(step.of) == {"token"}}
    if len(heads) != 1 or program.causal or heads[0].value not in of_token or heads[0].query not in ("", *of_token):
        raise UnsupportedError("the program is not one head over the tokens of a row")
    if heads[0].key not in ("", *of_token) and any(len(set(row)) > 1 for row in heads[0].scores):
        raise UnsupportedError("the program's attention depends on the position")
    for step in (*program.steps, program.answer):
        if step is not heads[0] and not _linear(step, program):
            raise UnsupportedError(f"{step.name} is not linear in the counts")


def _linear(step: Step, program: Program) -> bool:
    """Whether a step is linear in what the head reads, given the token; or a function of codes."""
    if isinstance(step, Product):
        return step.of[0] == "token"
    if isinstance(step, Sums):
        return not step.ramps
    if isinstance(step, Table):
        return all(name == "token" or isinstance(program.step(name), Linear | Table) for name in step.of)
    return isinstance(step, Linear)


def corners(task: Any) -> Iterator[Batch]:
    """Rows in which one token occurs k times, and one other token otherwise, for each k and each two tokens."""
    length = int(task.L)
    tokens = [token for token in range(task.d_vocab) if token != task.bos_id][: int(task.T)]
    for own in tokens:
        rows = [
            [own] * k + [other] * (length - k)
            for k in range(1, length + 1)
            for other in (tokens if k < length else [own])
            if other != own or k == length
        ]
        inputs = torch.tensor(rows)
        if task.bos:
            inputs = torch.cat([torch.full((len(inputs), 1), int(task.bos_id)), inputs], 1)
        yield task.batch(inputs)


def _right(subject: Subject, program: Program, batch: Batch) -> None:
    """Raise UnsupportedError unless the program is right at the corners with one own token, at its positions, by the
    same steps at all corners of one count."""
    reads = subject.read_mask(batch)
    classes = torch.full(batch.tokens.shape, -1)
    classes[reads] = subject.classes(batch)
    task: Any = subject.task
    first = int(bool(task.bos))
    made = program.run(batch.tokens)
    if not bool((program.answer.sums(made).argmax(-1)[:, first] == classes[:, first]).all()):
        raise UnsupportedError("the program is wrong at an extreme of counts")
    count = (batch.tokens == batch.tokens[:, first : first + 1]).sum(1)
    for step in (*program.steps, program.answer):
        if not isinstance(step, Linear):
            continue
        sums = step.sums(made)[:, first]
        top = sums.topk(min(2, sums.shape[1]), dim=1)
        code = top.indices[:, 0]
        if sums.shape[1] > 1 and bool((top.values[:, 0] - top.values[:, 1] <= APART * sums.abs().amax(1)).any()):
            raise UnsupportedError(f"two sums of {step.name} are equal at an extreme of counts")
        if any(len(code[count == k].unique()) > 1 for k in count.unique()):
            raise UnsupportedError(f"{step.name} has several values at the extremes of one count")
