"""Certificates: is a model right on every input? The result, and the open list of methods.

A method is registered with the fields of a spec that its argument takes into account (see scope.py); certify.py chooses
among them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from interp import words
from interp.architecture.task_model import TaskModel
from interp.certificates.arithmetic import premise_refusal
from interp.certificates.probes import Probes
from interp.certificates.scope import Takes, refusal_of
from interp.errors import InterpError, UnsupportedError
from interp.measures.subject import Subject
from interp.tasks import Task
from interp.views import view

Status = Literal["certified", "refuted", "undecided"]
IN_REALS = "reals, with a rounding bound"
FRESH = "the spec and the parameters, in a fresh model that runs interp's own forward"
AT_HAND = "the model at hand, as it was run"


@dataclass(frozen=True)
class Source:
    """What a certificate was made from: the model, the method's registered name, the options that were given; and what
    writes its evidence."""

    model: TaskModel
    method: str
    options: dict[str, Any]
    write: Callable[[Certificate, Source, str | Path], Path]


@dataclass(frozen=True)
class Certificate:
    """What was proved about a model on a whole domain.

    status: "certified" (right on every input), "refuted" (a counterexample is given, which the model itself gets wrong
    when it is run on it) or "undecided".
    accuracy: exact share of right answers, or the interval (low, high) that holds it, of the model in exact arithmetic;
    where margins do not exceed `rounding`, the model's own arithmetic may answer otherwise. confidence: how sure an
    interval is that a sample has narrowed, such as 0.999; None if the accuracy is proved. worst_margin: no right
    answer's logit is nearer to the best wrong one than this, in exact arithmetic; negative where the model errs.
    rounding: bound on the error of that distance in the arithmetic the model runs in; no certificate is given where the
    margin does not exceed it; None if none is known. n_errors: wrong inputs; where inputs have several answers each,
    n_answers says how many in all, and n_errors counts wrong answers. arithmetic: what was proved, "reals, with a
    rounding bound" (then it holds in any order of evaluation) or "as run: ..." (every input was run, in that way).
    tables: by name, what else was learned on the way, such as where the errors lie. probes: what the proof says of
    single inputs, which the model itself was compared with; `probed` counts them. on_trust: what the claim takes from
    the task that nobody compared with its labels, in words; empty where everything was. about: what the claim is true
    of: the spec and the parameters in a fresh model, or a model of someone else's as it was run. on_record: it was read
    from the certificates that came with interp for just these weights, and not made anew.

    Example:

        >>> print(interp.certify("histogram/dot-exact"))
        histogram-...: certified on 1,125,899,906,842,624 inputs (all 32^10 sequences, every position), accuracy 1.0
    """

    model: str
    status: Status
    accuracy: float | tuple[float, float]
    n_inputs: int
    worst_margin: float
    counterexample: str | None
    method: str
    domain: str
    seconds: float
    rounding: float | None = None
    n_errors: int | None = None
    n_answers: int | None = None
    notes: tuple[str, ...] = ()
    tables: dict[str, pd.DataFrame] = field(default_factory=dict, repr=False)
    source: Source | None = field(default=None, repr=False, compare=False)
    arithmetic: str = IN_REALS
    probes: tuple[Probes, ...] = field(default=(), repr=False, compare=False)
    probed: int = 0
    on_trust: tuple[str, ...] = ()
    about: str = FRESH
    confidence: float | None = None
    on_record: bool = False

    def __post_init__(self) -> None:
        """One error among 64^10 inputs rounds to an accuracy of 1, which no model that errs may have; nor does a model
        of which something is open have at least 1."""
        below = math.nextafter(1.0, 0.0)
        if self.accuracy == 1.0 and self.n_errors:
            object.__setattr__(self, "accuracy", below)
        elif isinstance(self.accuracy, tuple) and self.accuracy[0] == 1.0:
            object.__setattr__(self, "accuracy", (below, self.accuracy[1]))

    def evidence(self, path: str | Path) -> Path:
        """Write what makes the claim checkable by someone who trusts none of this package: see certificates/check.

        path: a .json or .json.gz file. Raises UnsupportedError if this certificate's method has no evidence.
        """
        if self.source is None:
            raise InterpError("a certificate that certify() did not make does not know its model")
        return self.source.write(self, self.source, path)

    def to_frame(self) -> pd.DataFrame:
        """One row with everything but the tables, for printing: it may be all that is read."""
        row: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("model", "status", "accuracy", "n_errors", "n_inputs", "n_answers", "worst_margin", "rounding",
                         "counterexample", "domain", "arithmetic", "method", "seconds", "about", "confidence")
        }  # fmt: skip
        row |= {"on_trust": "; ".join(self.on_trust) or None, "notes": "; ".join(self.notes) or None}
        return pd.DataFrame([row])

    def _repr_html_(self) -> str:
        """The claim and what it rests on, a line each; what is not known is left out."""
        row = self.to_frame().iloc[0].to_dict() | {"n_inputs": f"{self.n_inputs:,}", "seconds": f"{self.seconds:.2g}"}
        apart = ("model", "status", "on_trust", "notes")
        rows = [(name, value) for name, value in row.items() if value is not None and name not in apart]
        rows += [("note", note) for note in (*self.notes, *self.on_trust)]
        if self.tables:
            rows.append(("tables", ", ".join(self.tables)))
        return view(f"{self.model}: {self.status}", rows)

    def __str__(self) -> str:
        share = self.accuracy if isinstance(self.accuracy, float) else f"in {self.accuracy}"
        share = f"{share} with confidence {self.confidence:.1%}" if self.confidence is not None else share
        trust = ", if the task labels its inputs as it declares" if self.on_trust else ""
        tail = f"; wrong at {self.counterexample}" if self.counterexample else ""
        domain = f"{words.counted(self.n_inputs, 'input')} ({self.domain})"
        first = f"{self.model}: {self.status} on {domain}{trust}, accuracy {share}{tail}"
        return "\n  ".join([first, *self.notes, *self.on_trust])


@dataclass(frozen=True)
class Method:
    """One way to certify. other_task(task): why a task is not of the shape that it is about, or None; why_not(model):
    why it does not hold for a model, or None; run(model, **options).

    stranger: the same two for a model of someone else's with its task (a Subject), where the method knows such.
    takes: the fields of a spec that the argument knows; a model in which any other field is used is refused. None: the
    method runs the model itself on every input, whatever it is. lists: it evaluates input after input, so that an
    argument about all of them at once goes further.
    """

    name: str
    other_task: Callable[[Task], str | None]
    why_not: Callable[[TaskModel], str | None]
    run: Callable[..., Certificate]
    takes: Takes | None
    lists: bool = False
    stranger: tuple[Callable[[Subject], str | None], Callable[..., Certificate]] | None = None

    def of_subject(self, subject: Subject, **options: Any) -> Certificate:
        """The certificate of any model with a task. Raises UnsupportedError for a method of task models alone."""
        if self.stranger is None:
            raise UnsupportedError(f"{self.name}: only for models built from a spec")
        return self.stranger[1](subject, **options)

    def refusal(self, model: TaskModel) -> str | None:
        """Why this method does not hold for a model, or None."""
        if self.takes is None:
            return self.why_not(model)
        return self.why_not(model) or premise_refusal(model) or refusal_of(model.spec, self.takes)


_METHODS: dict[str, Method] = {}


def register_method(
    name: str,
    other_task: Callable[[Task], str | None],
    refusal: Callable[[TaskModel], str | None],
    takes: Takes | None,
    lists: bool = False,
    stranger: tuple[Callable[[Subject], str | None], Callable[..., Certificate]] | None = None,
) -> Callable[..., Any]:
    """Decorator: make a function from a model (and options) to a Certificate a method of certification."""

    def add(run: Callable[..., Certificate]) -> Callable[..., Certificate]:
        _METHODS[name] = Method(name, other_task, refusal, run, takes, lists, stranger)
        return run

    return add


def registered_methods() -> dict[str, Method]:
    """All methods by name, in the order in which they are tried, whatever was imported first: arguments about many
    inputs at once, then those that list inputs, then those that run every one; of each the more special ones first,
    which are not about a stranger's model."""

    def order(item: tuple[str, Method]) -> tuple[bool, bool, bool, str]:
        name, method = item
        return method.takes is None, method.lists, method.stranger is not None, name

    return dict(sorted(_METHODS.items(), key=order))


def within_rounding(found: Certificate) -> bool:
    """Is a model refuted by errors (and not by a divergence alone) that are no larger than what rounding may do?"""
    errs = found.status == "refuted" and found.n_errors != 0
    return errs and found.rounding is not None and found.worst_margin >= -found.rounding


def noted(found: Certificate) -> Certificate:
    """With a note where a model is refuted within rounding."""
    if not within_rounding(found):
        return found
    note = (
        f"no margin is below {0 - (found.rounding or 0):.3g}, as far as rounding may move one: the model errs on the "
        "counterexample as it was run, and may be right on it in a batch of another shape or order"
    )
    return found if note in found.notes else replace(found, notes=(*found.notes, note))
