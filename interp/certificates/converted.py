"""Certify an external model by a proof about its config and parameters, and run the model itself on the probes.

A proof is about weights in a known architecture. If a spec can express a stock HookedTransformer, the proofs for task
models apply to it, too (see architecture/stock.py). The certificate is about the model built from the spec and the
parameters; the given model is run only on the probes, for comparison. A model that cannot be converted is run on every
input instead.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from interp.architecture.stock import expressed
from interp.architecture.task_model import TaskModel
from interp.certificates.frozen import PROBED, STEPS, first_apart, hooks_on, probes_of
from interp.certificates.probes import compare
from interp.errors import InterpError, UnsupportedError
from interp.measures.subject import Subject
from interp.tasks import Batch
from interp.tasks.domain import check_entry
from interp.tasks.registry import remade

CONVERTED = "the config and the parameters, as a spec in a fresh model; the model at hand was run on the probes alone"


def convert(subject: Subject) -> TaskModel:
    """Build a task model from an external model's config and parameters. Raises InterpError if that is impossible."""
    model = subject.model
    if isinstance(model, TaskModel):
        raise UnsupportedError("a task model with token ids of its own is run as it is")
    if (reason := hooks_on(model)) is not None:
        raise UnsupportedError(reason)
    return expressed(model, remade(subject.task), subject.token_ids, subject.output_ids, subject.padding)


def certify_converted(subject: Subject, made: TaskModel, run: Callable[..., Any], **options: Any) -> Any:
    """Return the certificate of a converted model, after comparing it with the given model on its probes.

    Raises UnsupportedError if their outputs differ, or if the domain has rows that the given model cannot take.
    """
    check_entry(made.task)
    found = run(made, **options)
    batches = [each.batch for each in found.probes]
    agreed = sum(map(partial(_agree, subject, Subject.of(made)), probes_of(made.task, batches)))
    return replace(found, probed=compare(made, found.probes) or agreed, about=CONVERTED)


@torch.no_grad()
def _agree(subject: Subject, made: Subject, batch: Batch) -> int:
    """Compare the outputs of both models at every read position of a batch; return the number of positions compared."""
    agreed = 0
    for start in range(0, len(batch), PROBED):
        part = batch[slice(start, start + PROBED)]
        try:
            found = subject.logits(part)
        except InterpError as error:
            raise UnsupportedError(f"the model at hand cannot be certified on this domain: {error}") from None
        wanted = made.logits(part)
        scale = float(wanted.abs().max()) + sum(float(p.abs().max()) for p in subject.model.parameters())
        if first_apart(found, wanted, STEPS * torch.finfo(wanted.dtype).eps * scale) is not None:
            raise UnsupportedError(
                "the model at hand has other outputs than its config and parameters: something else runs"
            )
        agreed += len(wanted)
    return agreed
