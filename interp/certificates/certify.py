"""The method that holds for a model, and the certificate that it gives.

A method is chosen by the fields of the spec that its argument takes into account, by the spec's derived symmetry and by
what the task's domain is, never by a task's name. What it says is compared with the model itself before it is given
(see probes.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from interp.architecture.task_model import TaskModel
from interp.certificates.base import FRESH, Certificate, Method, Source, Status, noted, registered_methods
from interp.certificates.converted import certify_converted, convert
from interp.certificates.evidence import write_evidence
from interp.certificates.frozen import compare_with_fresh, frozen, probes_of
from interp.certificates.options import check_options
from interp.certificates.probes import compare
from interp.errors import InterpError, UnsupportedError
from interp.measures.subject import Subject
from interp.tasks import registered_tasks
from interp.tasks.domain import check_entry


def method_for(model: TaskModel) -> Method:
    """The first registered method that holds for a model.

    Raises UnsupportedError with the reasons: first of the methods that are about such a task, then what the task lacks
    for its inputs to be run; of methods about tasks of another shape there are only the names.
    """
    reasons, lacks, others = [], [], []
    for method in registered_methods().values():
        if (reason := method.refusal(model)) is None:
            return method
        if method.other_task(model.task) is None:
            reasons.append(f"{method.name}: {reason}")
        elif method.takes is None:
            lacks.append(f"{method.name}: {reason}")
        else:
            others.append(method.name)
    said = "; ".join(reasons + lacks)
    if others:
        said += f" (methods for tasks of another shape: {'; '.join(others)})"
    raise UnsupportedError(f"{model.spec.id} cannot be certified: {said}")


def method_for_subject(subject: Subject) -> Method:
    """The first registered method that holds for a model of someone else's with its task.

    A proof about its config and parameters, where a spec expresses them (see converted.py), else a method that knows
    such models. Where none does, the last one, which runs every input: it says why it does not."""
    proof = _of_converted(subject)
    if isinstance(proof, Method):
        return proof
    known = [method for method in registered_methods().values() if method.stranger is not None]
    for method in known:
        assert method.stranger is not None
        if method.stranger[0](subject) is None:
            return method
    last = known[-1]

    def refused(subject: Subject, **options: Any) -> Certificate:
        try:
            return last.of_subject(subject, **options)
        except UnsupportedError as error:
            raise UnsupportedError(f"{error}; and no proof is about it: {proof}") from None

    return replace(last, stranger=(lambda subject: None, refused))


def _of_converted(subject: Subject) -> Method | str:
    """The proof that holds for a stranger's model as a spec, with options of its own; why there is none."""
    try:
        made = convert(subject)
        method = method_for(made)
    except InterpError as error:
        return str(error)
    if method.takes is None or method.stranger is not None:
        return f"{method.name} takes it as it is"

    def run(subject: Subject, **options: Any) -> Certificate:
        def proof(model: TaskModel, **given: Any) -> Certificate:
            return replace(noted(method.run(model, **given)), source=Source(model, method.name, given, write_evidence))

        found: Certificate = certify_converted(subject, made, proof, **options)
        return found

    return replace(method, stranger=(lambda subject: None, run))


def certify_model(model: TaskModel, **options: Any) -> Certificate:
    """Certify a task model on its task's whole domain, or the part that options name.

    It is about the model's spec and parameters in a fresh model, and about the task that its class makes of its
    parameters and tables: see frozen.py and tasks/snapshot.py. Proof, fresh model and the model at hand are compared
    on a few hundred inputs before it is given. Raises UnsupportedError if no method holds or where the model or its
    task is not what its spec describes (hooks, replaced parts, another table), InterpError for an option that the
    method does not have, and Mismatch where proof and model disagree.
    """
    fresh = frozen(model)
    method = method_for(fresh)
    check_options(method, options)
    check_entry(fresh.task)
    found = replace(noted(method.run(fresh, **options)), source=Source(fresh, method.name, options, write_evidence))
    if fresh.task.name not in registered_tasks():
        note = f"no task named {fresh.task.name!r} is registered: the claim is about the class that the model has"
        found = replace(found, notes=(*found.notes, note))
    if model.outputs_left_out and fresh.spec.decision == "argmax":  # signs do not compete with each other
        found = _among_the_named(found, model.outputs_left_out)
    agreed = compare_with_fresh(model, fresh, probes_of(fresh.task, (each.batch for each in found.probes)))
    return replace(found, probed=compare(fresh, found.probes) or agreed, about=FRESH)


def _among_the_named(found: Certificate, left_out: int) -> Certificate:
    """What is known where outputs were left out when the model was converted: its errors, for those are errors among
    all outputs, too; not that it is right."""
    note = (
        f"the model that this was converted from has {left_out:,} more outputs, which the task does not name "
        "and may be larger; interp.certify(the model itself, task=...) looks at all of them"
    )
    high = found.accuracy[1] if isinstance(found.accuracy, tuple) else found.accuracy
    status: Status = "undecided" if found.status == "certified" else found.status
    return replace(found, status=status, accuracy=(0.0, high), n_errors=None, notes=(*found.notes, note))
