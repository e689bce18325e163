"""Plan the certificate of a model, and make it.

A method is chosen by the supported fields of the spec, the spec's symmetry and the task's domain, never by a task's
name. Before a certificate is issued, the proof is compared with the model itself (see probes.py).

If a spec can express a stock HookedTransformer (architecture/stock.py), the proofs for task models apply to it, too.
Such a certificate is about the model built from the spec and the parameters; the given model is run on the probes only.
A model that cannot be converted is run on every input instead.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from interp.architecture.stock import expressed
from interp.architecture.task_model import TaskModel
from interp.certificates.base import FRESH, Certificate, MadeBy, Method, noted, registered_methods
from interp.certificates.enumeration import EVERY_INPUT, name_of
from interp.certificates.evidence import write_evidence
from interp.certificates.frozen import PROBED, STEPS, compare_with_fresh, first_apart, frozen, hooks_on, probes_of
from interp.certificates.options import check_options, options_of
from interp.certificates.probes import compare
from interp.errors import InterpError, UnsupportedError
from interp.measures.subject import Subject
from interp.tasks import Batch, registered_tasks
from interp.tasks.domain import check_entry
from interp.tasks.registry import remade


@dataclass(frozen=True)
class Plan:
    """How a model is certified: the method that applies, and a function that makes the certificate from its options."""

    method: Method
    make: Callable[..., Certificate]

    def certificate(self, usual: Mapping[str, Any] | None = None, **options: Any) -> Certificate:
        """Make the certificate. usual: options of those that the method has. Raises InterpError for unknown options."""
        known = options_of(self.method)
        options = {name: value for name, value in (usual or {}).items() if name in known} | options
        check_options(self.method, options)
        return self.make(**options)


def plan(subject: Subject | TaskModel) -> Plan:
    """Plan the certificate of a model. Raises UnsupportedError, with the reasons, if no method applies.

    A task model is certified as a fresh model of its spec and parameters. For an external model, if a spec can express
    it, this is a proof about its config and parameters (see converted.py); otherwise the model is run on every input.
    """
    model = subject if isinstance(subject, TaskModel) else subject.model
    if isinstance(model, TaskModel) and (subject is model or subject.token_ids is None):
        fresh = frozen(model)
        method = method_for(fresh)
        return Plan(method, partial(_of_task_model, model, fresh, method))
    assert isinstance(subject, Subject)
    if model.cfg.positional_embedding_type == "alibi":  # TransformerLens keeps the longest bias so far
        subject = replace(subject, model=copy.deepcopy(model))
    try:
        made = convert(subject)
        method = method_for(made)
        if method.takes is not None:
            return Plan(method, partial(certify_converted, subject, made, partial(_proof, method)))
        proof = f"{method.name} takes it as it is"
    except InterpError as error:
        proof = str(error)
    method = registered_methods()[EVERY_INPUT]
    if (reason := method.other_task(subject.task)) is None:
        return Plan(method, partial(method.run, subject))
    raise UnsupportedError(f"{name_of(model)} cannot be certified: {reason}; and no proof is about it: {proof}")


def method_for(model: TaskModel) -> Method:
    """Return the first registered method that applies to a model.

    Raises UnsupportedError with the reasons of the methods for such tasks, then the reason why the inputs cannot be
    run. Methods for other kinds of tasks are only named.
    """
    reasons, lacks, others = [], [], []
    for method in registered_methods().values():
        if (reason := method.refusal(model)) is None:
            return method
        if method.takes is None:
            lacks.append(f"{method.name}: {reason}")
        elif method.other_task(model.task) is None:
            reasons.append(f"{method.name}: {reason}")
        else:
            others.append(method.name)
    said = "; ".join(reasons + lacks)
    if others:
        said += f" (methods for other kinds of tasks: {'; '.join(others)})"
    raise UnsupportedError(f"{model.spec.id} cannot be certified: {said}")


def certify_model(model: TaskModel, **options: Any) -> Certificate:
    """Certify a task model on its task's whole domain, or on the part that options select.

    The certificate is about the model's spec and parameters in a fresh model, and about the task that its class makes
    from its parameters and tables; see frozen.py. Before it is issued, the proof, the fresh model
    and the given model are compared on a few hundred inputs. Raises UnsupportedError if no method applies, if the model
    has hooks, or if the given model or its task differ from the fresh ones on these inputs; InterpError for an unknown
    option; and Mismatch if proof and model disagree.
    """
    return plan(model).certificate(**options)


def _proof(method: Method, model: TaskModel, **options: Any) -> Certificate:
    """Return a method's certificate, which knows how it was made."""
    return replace(noted(method.run(model, **options)), source=MadeBy(model, method.name, options, write_evidence))


def _of_task_model(model: TaskModel, fresh: TaskModel, method: Method, **options: Any) -> Certificate:
    """Certify the fresh model, and compare the given one with it."""
    check_entry(fresh.task)
    found = _proof(method, fresh, **options)
    if fresh.task.name not in registered_tasks():
        note = f"no task named {fresh.task.name!r} is registered: the claim is about the class that the model has"
        found = replace(found, notes=(*found.notes, note))
    whole = probes_of(fresh.task, (each.batch for each in found.probes if each.whole))
    agreed = compare_with_fresh(model, fresh, whole, (each.batch for each in found.probes if not each.whole))
    return replace(found, probed=compare(fresh, found.probes) or agreed, about=FRESH)


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
