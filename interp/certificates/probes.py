"""Compare a proof, a fresh model and the given model on a few hundred inputs, before a certificate is issued.

A proof is about weights, a certificate about the model that predict() runs. The inputs with the smallest margins and
some random ones, the probes, go through predict() and through the full forward pass. Every margin must agree with the
proof up to the proof's bound on rounding; otherwise Mismatch is raised.

A given model may have been changed, for example by replaced modules. The fresh model is made again from its spec, its
parameters and the task's tables, so a certificate holds for it whatever was done to the given one. To show that both
are the same, they are run on the same probes and must agree there in outputs and labels (on long inputs, where a proof
asks for few whole forward passes, in the answers).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.modules import module as torch_modules

from interp.errors import InterpError, UnsupportedError, refuse_if, short
from interp.measures.accuracy import layout
from interp.models.architecture.answers import find_positions
from interp.models.architecture.comparison import first_apart, of_two_runs
from interp.models.architecture.task_model import TaskModel, standing_hooks
from interp.models.subject import Subject
from interp.tasks import Batch, Task
from interp.tasks.registry import remade

ROWS_AT_ONCE = 64


PROBED = 256
"""Number of inputs on which both models are compared if a proof has no probes."""
GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks")
FORMATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


class Mismatch(InterpError):
    """The proof and the model disagree on an input, so no certificate is issued."""


@dataclass(frozen=True)
class Probes:
    """A proof's bounds on the margins of a few inputs, at every read position.

    right: mask of the right outputs; a single output s (a recognizer) counts as two, "no" (s <= 0) and "yes" (s > 0).
    Positions without a right output are not compared. low, high: bounds on the margin in exact arithmetic. bound: how
    far rounding can move it. at: the read positions (None: the model's own). among: the outputs that compete (None:
    all). whole: run the full forward pass in addition to predict().
    """

    batch: Batch
    right: Bool[Tensor, "rows *length n_out"]
    low: Float[Tensor, "rows *length"]
    high: Float[Tensor, "rows *length"]
    bound: Float[Tensor, "rows *length"]
    at: Int[Tensor, " rows"] | None = None
    among: Bool[Tensor, " n_out"] | None = None
    whole: bool = True


@torch.no_grad()
def compare(model: TaskModel, probes: Iterable[Probes]) -> int:
    """Run the model on probes and return the number of margins that agreed (answers, if only predict() is run).

    Raises Mismatch at the first that does not agree.
    """
    agreed = 0
    for probe in probes:
        if probe.whole:
            for start in range(0, len(probe.batch), ROWS_AT_ONCE):
                agreed += _compare_margins(model, probe, slice(start, start + ROWS_AT_ONCE))
        if probe.at is None and probe.among is None:
            answers = _compare_answers(model, probe)
            agreed += 0 if probe.whole else answers
    return agreed


def _compare_margins(model: TaskModel, probes: Probes, rows: slice) -> int:
    """Compare the margins of the full forward pass on some rows; return the number compared."""
    batch = probes.batch[rows]
    mask = batch.attention_mask if bool((~batch.attention_mask).any()) and model.task.pad_id is None else None
    out = model(batch.tokens.to(model.cfg.device), attention_mask=mask).double().cpu()
    if probes.right.ndim == 2:
        places = (
            find_positions(model.task, batch.tokens, model.spec.readout_at) if probes.at is None else probes.at[rows]
        )
        out = out[torch.arange(len(batch)), places]
    margin = margins(out, probes.right[rows], probes.among)
    low, high, bound = probes.low[rows], probes.high[rows], probes.bound[rows]
    slip = bound * 1.0 + 2.0**-52 * margin.abs()  # the second term is the rounding of the subtraction in margins()
    compared = probes.right[rows].any(-1) & bound.isfinite() & low.isfinite()
    bad = compared & ~((margin >= low - slip) & (margin <= high + slip))
    if bad.any():
        row, *_ = place = tuple(bad.nonzero()[0].tolist())
        raise Mismatch(
            f"{model.spec.id}: no certificate, because proof and model disagree at {row_text(model.task, batch, row)}: "
            f"the margin is {float(margin[place]):g}, the proof says {float(low[place]):g} to {float(high[place]):g}, "
            f"up to {float(bound[place]):g}"
        )
    return int(compared.sum())


def margins(
    out: Float[Tensor, "*rows n_model_out"], right: Bool[Tensor, "*rows n_out"], among: Bool[Tensor, " n_out"] | None
) -> Float[Tensor, "*rows"]:
    """Return the largest right output minus the largest wrong one."""
    if right.shape[-1] == 2 and out.shape[-1] == 1:
        out = torch.cat([torch.zeros_like(out), out], -1)
    wrong = ~right if among is None else ~right & among
    return out.masked_fill(~right, -torch.inf).amax(-1) - out.masked_fill(~wrong, -torch.inf).amax(-1)


def _compare_answers(model: TaskModel, probes: Probes) -> int:
    """Compare predict() with the proof wherever the margin exceeds rounding; return the number compared."""
    answers = model.predict(probes.batch.tokens).cpu()
    single = probes.right.sum(-1) == 1
    correct = answers == probes.batch.labels
    sure = single & (probes.low > probes.bound)
    false = single & (probes.high < -probes.bound)
    bad = (sure & ~correct) | (false & correct)
    if bad.any():
        row = int(bad.nonzero()[0, 0])
        says = "right" if (sure[row] & ~correct[row]).any() else "wrong"
        raise Mismatch(
            f"{model.spec.id}: no certificate, because the proof says that the answer at "
            f"{row_text(model.task, probes.batch, row)} is {says}, and predict says otherwise"
        )
    return int((sure | false).sum())


def row_text(task: Task, batch: Batch, row: int) -> str:
    """Write a row of a batch as text for a message."""
    return short(repr(task.format(batch.tokens[row, : int(batch.lengths[row])])))


def remake_model(model: TaskModel) -> TaskModel:
    """Make a fresh model with the same spec, parameters and task. Raises UnsupportedError if none can be made."""
    name = f"{model.spec.id} cannot be certified"
    refuse_if(hooks_on(model), f"{name}: ")
    if model.summary.get("outputs_left_out"):  # in checkpoints of earlier versions
        raise UnsupportedError(f"{name}: some of the original's outputs were left out of it; load the original again")
    kinds = {parameter.dtype for parameter in model.parameters()}
    if len(kinds) > 1 or not kinds <= {*FORMATS}:
        raise UnsupportedError(f"{name}: its parameters are stored as {', '.join(sorted(map(str, kinds)))}")
    try:
        task = remade(model.task, model.spec.task)
        tensors = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        device = next(model.parameters()).device
        fresh = TaskModel(model.spec, task, tensors, seed=model.seed, dtype=kinds.pop(), device=device)
    except InterpError as error:
        raise UnsupportedError(f"{name}: {error}") from None
    fresh.length_limit = model.length_limit
    return fresh


def sees_its_answers(subject: Subject, batch: Batch) -> str | None:
    """Return the reason why teacher forcing does not imply right generation, or None.

    In a bidirectional model, the read positions see the answers in the row.
    """
    task = subject.task
    if subject.model.cfg.attention_dir == "causal":
        return None
    places = layout(subject, batch)
    several = places.wanted.shape[1] if not isinstance(places, str) else task.generates.length if task.generates else 1
    return (
        f"the model is bidirectional, and rows of task {task.name} hold the answers that it is to generate"
        if several > 1
        else None
    )


def hooks_on(model: nn.Module) -> str | None:
    """Return a sentence about the first hook of a model, or on a global hook, or None."""
    if any(getattr(torch_modules, name, None) for name in GLOBAL_HOOKS):
        return "a global forward hook of torch is registered, and a certificate is about the model without hooks"
    if names := standing_hooks(model):
        return f"there is a hook at {names[0]}, and a certificate covers only models without hooks"
    return None


def probes_of(task: Task, batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yield at most PROBED inputs of a proof's probes at a time; if there are none, the task's first and samples."""
    found = False
    for batch in batches:
        found = True
        yield from (batch[slice(start, start + PROBED)] for start in range(0, len(batch), PROBED))
    if found:
        return
    if task.n_inputs is not None:
        yield from islice(task.inputs(PROBED), 1)
    for split in task.splits:
        try:
            yield task.sample(PROBED, split, seed=0)
        except UnsupportedError:  # the task has no sampler
            continue


@torch.no_grad()
def compare_with_fresh(
    model: TaskModel, fresh: TaskModel, batches: Iterable[Batch], answered: Iterable[Batch] = ()
) -> int:
    """Run both models on some inputs; return the number of equal outputs.

    answered: more inputs, on which only the answers of predict() are compared. Raises UnsupportedError if an output or
    answer differs, or a label by the two models' tasks.
    """
    agreed = sum(_compare(model, fresh, part) for part in batches)
    for batch in answered:
        answers, right = (run.predict(batch.tokens).long() for run in (model, fresh))
        _refuse(model, fresh, batch, first_apart(answers, right, 0.0))
        _compare_labels(model, fresh, batch)
        agreed += len(batch)
    return agreed


def _compare(model: TaskModel, fresh: TaskModel, batch: Batch) -> int:
    tokens = batch.tokens.to(fresh.cfg.device)
    mask = batch.attention_mask if bool((~batch.attention_mask).any()) and fresh.task.pad_id is None else None
    wanted, outputs = fresh(tokens, attention_mask=mask), model(tokens, attention_mask=mask)
    _refuse(model, fresh, batch, first_apart(outputs, wanted, of_two_runs(wanted)))
    _compare_labels(model, fresh, batch)
    return int(wanted.shape[:-1].numel())


def _refuse(model: TaskModel, fresh: TaskModel, batch: Batch, row: int | None) -> None:
    """Raise UnsupportedError if there is a row on which the two models differ."""
    if row is not None:
        raise UnsupportedError(
            f"{model.spec.id} cannot be certified: on {row_text(fresh.task, batch, row)} its outputs are not those "
            "that its spec and its parameters give in a fresh model"
        )


def _compare_labels(model: TaskModel, fresh: TaskModel, batch: Batch) -> None:
    if fresh.task.labels_tokens:
        labels, right = (task.batch(batch.tokens).labels.long() for task in (model.task, fresh.task))
        if (row := first_apart(labels, right, 0.0)) is not None:
            raise UnsupportedError(
                f"{model.spec.id} cannot be certified: its task labels {row_text(fresh.task, batch, row)} differently "
                "from the task that its class makes from its parameters and tables"
            )
