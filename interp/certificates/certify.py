"""Plan the certificate of a model, and make it.

A method is chosen by the supported fields of the spec, the spec's symmetry and the task's domain, never by a task's
name. Before a certificate is issued, the proof is compared with the model itself (see probes.py).

If a spec can express a stock HookedTransformer (architecture/stock.py), the proofs for task models apply to it, too.
Such a certificate is about the model built from the spec and the parameters; the given model is run on the probes only.
A model that cannot be converted is run on every input instead.

A method declares its options only as parameters with types and defaults; the command line reads them from its
signature. This file does not know any of them by name.
"""

import copy
import inspect
import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Union, get_args, get_origin

import pandas as pd
import torch
from pydantic import TypeAdapter, ValidationError

from interp.certificates.certificate import FRESH, Certificate, MadeBy, Method, note_rounding, registered_methods
from interp.certificates.enumeration import EVERY_INPUT, name_of
from interp.certificates.evidence import write_evidence
from interp.certificates.probes import compare, compare_with_fresh, hooks_on, probes_of, remake_model
from interp.errors import InterpError, UnsupportedError, one_of, quoted, refuse_if, short
from interp.models.architecture.comparison import compare as compare_logits
from interp.models.architecture.stock import to_task_model
from interp.models.architecture.task_model import TaskModel
from interp.models.subject import Subject
from interp.support.progress import LateBar
from interp.tasks import Batch, Task, registered_tasks
from interp.tasks.domain import check_entry
from interp.tasks.registry import remade


@dataclass(frozen=True)
class Plan:
    """How a model is certified: the method that applies, and a function that makes the certificate from its options."""

    method: Method
    make: Callable[..., Certificate]

    def certificate(self, usual: Mapping[str, Any] | None = None, **options: Any) -> Certificate:
        """Make the certificate. usual: options of those that the method has. Raises InterpError for unknown options.

        Work that takes long shows a bar, unless `progress` (a function of the things done and of all) is given.
        """
        known = options_of(self.method)
        options = {name: value for name, value in (usual or {}).items() if name in known} | options
        check_options(self.method, options)
        with LateBar("certify") as bar:
            if "progress" in inspect.signature(self.method.run).parameters:
                options.setdefault("progress", bar.update)
            return self.make(**options)


def plan(subject: Subject | TaskModel) -> Plan:
    """Plan the certificate of a model. Raises UnsupportedError, with the reasons, if no method applies.

    A task model is certified as a fresh model of its spec and parameters. For an external model, if a spec can express
    it, this is a proof about its config and parameters; otherwise the model is run on every input.
    """
    model = subject if isinstance(subject, TaskModel) else subject.model
    if isinstance(model, TaskModel) and (subject is model or subject.token_ids is None):
        fresh = remake_model(model)
        method = method_for(fresh)
        return Plan(method, partial(_of_task_model, model, fresh, method))
    assert isinstance(subject, Subject)
    if model.cfg.positional_embedding_type == "alibi":  # TransformerLens keeps the longest bias so far
        subject = replace(subject, model=copy.deepcopy(model))
    try:
        converted = converted_subject(subject)
        method = method_for(converted, name_of(model))
        if method.takes is not None:
            return Plan(method, partial(certify_converted, subject, converted, partial(_proof, method)))
        proof = f"{method.name} takes it as it is"
    except InterpError as error:
        proof = str(error)
    method = registered_methods()[EVERY_INPUT]
    if (reason := method.other_task(subject.task)) is None:
        return Plan(method, partial(method.run, subject))
    if reason in proof:
        raise UnsupportedError(proof)
    raise UnsupportedError(f"{name_of(model)} cannot be certified: {reason}; and no proof is about it: {proof}")


def method_for(model: TaskModel, name: str | None = None) -> Method:
    """Return the first registered method that applies to a model. name: the model's in messages (default: its spec's).

    Raises UnsupportedError with the reasons of the methods for such tasks, then the reason why the inputs cannot be
    run. Methods for other kinds of tasks are left out.
    """
    reasons, lacks = [], []
    for method in registered_methods().values():
        if (reason := method.refusal(model)) is None:
            return method
        if method.takes is None:
            lacks.append(f"{method.name}: {reason}")
        elif method.other_task(model.task) is None:
            reasons.append(f"{method.name}: {reason}")
    raise UnsupportedError(f"{name or model.spec.id} cannot be certified: {'; '.join(reasons + lacks)}")


def certify_model(model: TaskModel, **options: Any) -> Certificate:
    """Certify a task model on its task's whole domain, or on the part that options select.

    The certificate is about the model's spec and parameters in a fresh model, and about the task that its class makes
    from its parameters and tables; see probes.py. Before it is issued, the proof, the fresh model
    and the given model are compared on a few hundred inputs. Raises UnsupportedError if no method applies, if the model
    has hooks, or if the given model or its task differ from the fresh ones on these inputs; InterpError for an unknown
    option; and Mismatch if proof and model disagree.
    """
    return plan(model).certificate(**options)


def _proof(method: Method, model: TaskModel, **options: Any) -> Certificate:
    """Return a method's certificate, which knows how it was made."""
    kept = {name: value for name, value in options.items() if name != "progress"}
    return replace(note_rounding(method.run(model, **options)), source=MadeBy(model, method.name, kept, write_evidence))


def _of_task_model(model: TaskModel, fresh: TaskModel, method: Method, **options: Any) -> Certificate:
    """Certify the fresh model, and compare the given one with it."""
    check_entry(fresh.task)
    certificate = _proof(method, fresh, **options)
    if fresh.task.name not in registered_tasks():
        note = f"no task named {fresh.task.name!r} is registered: the claim is about the class that the model has"
        certificate = replace(certificate, notes=(*certificate.notes, note))
    whole = probes_of(fresh.task, (probe.batch for probe in certificate.probes if probe.whole))
    agreed = compare_with_fresh(model, fresh, whole, (probe.batch for probe in certificate.probes if not probe.whole))
    return replace(certificate, probed=compare(fresh, certificate.probes) or agreed, about=FRESH)


CONVERTED = "the config and the parameters, as a spec in a fresh model; the model at hand was run on the probes alone"


def converted_subject(subject: Subject) -> TaskModel:
    """Build a task model from an external model's config and parameters. Raises InterpError if that is impossible."""
    model = subject.model
    if isinstance(model, TaskModel):
        raise UnsupportedError("a task model with token ids of its own is run as it is")
    refuse_if(hooks_on(model))
    return to_task_model(model, remade(subject.task), subject.token_ids, subject.output_ids, subject.padding)


def certify_converted(subject: Subject, made: TaskModel, run: Callable[..., Any], **options: Any) -> Any:
    """Return the certificate of a converted model, after comparing it with the given model on its probes.

    Raises UnsupportedError if their outputs differ, or if the domain has rows that the given model cannot take.
    """
    check_entry(made.task)
    certificate = run(made, **options)
    batches = probes_of(made.task, [probe.batch for probe in certificate.probes])
    agreed = sum(_agree(subject, Subject.of(made), part) for part in batches)
    return replace(certificate, probed=compare(made, certificate.probes) or agreed, about=CONVERTED)


@torch.no_grad()
def _agree(subject: Subject, converted: Subject, batch: Batch) -> int:
    """Compare the outputs of both models at every read position of a batch; return the number of positions compared."""
    try:
        apart = compare_logits(
            lambda dtype: converted.in_format(dtype).logits(batch), lambda dtype: subject.in_format(dtype).logits(batch)
        )
    except InterpError as error:
        raise UnsupportedError(f"the model at hand cannot be certified on this domain: {error}") from None
    if not apart.same:
        raise UnsupportedError(
            f"the model at hand has other outputs than its config and parameters, so something else runs: {apart}"
        )
    return int(subject.read_mask(batch).sum())


WORDS: dict[type, str] = {int: "an integer", float: "a number", str: "a name", bool: "true or false"}


def options_of(method: Method) -> dict[str, inspect.Parameter]:
    """Return the options for the command line: all parameters except the model and the progress callback."""
    parameters = inspect.signature(method.run, eval_str=True).parameters
    return {name: parameter for name, parameter in parameters.items() if name not in ("model", "progress")}


def options_table(method: Method, task: Task) -> pd.DataFrame:
    """Return a table with one row per option: its spelling, its accepted values for a task, and its default."""
    names = method.names(task)
    rows = [
        {
            "option": f"--{name.replace('_', '-')}",
            "takes": " or ".join([*map(repr, names[name])] if name in names else _takes(parameter)),
            "default": "" if parameter.default is None else str(parameter.default),
        }
        for name, parameter in options_of(method).items()
    ]
    return pd.DataFrame(rows, columns=["option", "takes", "default"])


def parse_options(method: Method, words: Sequence[str]) -> dict[str, Any]:
    """Convert words of a command line, ["--longest", "20"] or ["--longest=20"], to keyword arguments.

    Raises InterpError for an unknown option, a missing value, or a value of the wrong type.
    """
    known = options_of(method)
    options: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        if not word.startswith("--"):
            raise InterpError(f"{short(word)!r} follows no option; write --option value")
        written, equals, value = word[2:].partition("=")
        name = written.replace("-", "_")
        if name not in known:
            raise InterpError(
                f"the certificate by {method.name}: "
                + one_of("option", f"--{written}", [f"--{option.replace('_', '-')}" for option in known])
            )
        if not equals and (value := next(rest, "--")).startswith("--"):
            raise InterpError(f"--{written} needs a value: {' or '.join(_takes(known[name]))}")
        try:
            options[name] = TypeAdapter(known[name].annotation).validate_strings(value)
        except ValidationError:
            raise InterpError(f"--{written} {short(value)}: give {' or '.join(_takes(known[name]))}") from None
    return options


def check_options(method: Method, given: Mapping[str, Any]) -> None:
    """Raise InterpError for an unknown option, or for a value of the wrong type or out of range."""
    known = options_of(method)
    for name, value in given.items():
        if name == "progress":
            continue
        if name not in known:
            raise InterpError(f"the certificate by {method.name}: " + one_of("option", name, known))
        try:
            TypeAdapter(known[name].annotation).validate_python(value, strict=True)
        except ValidationError:
            raise InterpError(f"{name} = {quoted(value)}: give {' or '.join(_takes(known[name]))}") from None
        if isinstance(value, float) and not math.isfinite(value):
            raise InterpError(f"{name} = {value} must be a finite number")


def _takes(option: inspect.Parameter) -> list[str]:
    """Describe the accepted values in words."""
    hint = option.annotation
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else [hint]
    words = [repr(choice) for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
    words += [word for kind, word in WORDS.items() if kind in kinds and not (kind is int and float in kinds)]
    return words
