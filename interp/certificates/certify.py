"""Choose the method for a model and make its certificate.

A method is chosen by the supported fields of the spec, the spec's symmetry and the task's domain, never by a task's
name. Before a certificate is issued, the proof is compared with the model itself (see probes.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from interp.architecture.task_model import TaskModel
from interp.certificates.base import FRESH, Certificate, Method, Source, noted, registered_methods
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
    """Return the first registered method that applies to a model.

    Raises UnsupportedError with the reasons of the methods for such tasks, then the reason why the inputs cannot be
    run. Methods for other kinds of tasks are only named.
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
        said += f" (methods for other kinds of tasks: {'; '.join(others)})"
    raise UnsupportedError(f"{model.spec.id} cannot be certified: {said}")


def method_for_subject(subject: Subject) -> Method:
    """Return the first registered method that applies to an external model with its task.

    If a spec can express the model, this is a proof about its config and parameters (see converted.py); otherwise it is
    a method that supports external models. If no method applies, it is the last one, which raises its reason when run.
    """
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
    """Return the method for an external model converted to a spec, or the reason why there is none."""
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
    """Certify a task model on its task's whole domain, or on the part that options select.

    The certificate is about the model's spec and parameters in a fresh model, and about the task that its class makes
    from its parameters and tables; see frozen.py. Before it is issued, the proof, the fresh model
    and the given model are compared on a few hundred inputs. Raises UnsupportedError if no method applies, if the model
    has hooks, or if the given model or its task differ from the fresh ones on these inputs; InterpError for an unknown
    option; and Mismatch if proof and model disagree.
    """
    fresh = frozen(model)
    method = method_for(fresh)
    check_options(method, options)
    check_entry(fresh.task)
    found = replace(noted(method.run(fresh, **options)), source=Source(fresh, method.name, options, write_evidence))
    if fresh.task.name not in registered_tasks():
        note = f"no task named {fresh.task.name!r} is registered: the claim is about the class that the model has"
        found = replace(found, notes=(*found.notes, note))
    agreed = compare_with_fresh(model, fresh, probes_of(fresh.task, (each.batch for each in found.probes)))
    return replace(found, probed=compare(fresh, found.probes) or agreed, about=FRESH)
