"""Certificates: is a model right on every input? The result, and the registry of methods.

A method is registered with the fields of a spec that it supports; certify.py chooses a method. Each field is listed
with any value or with some values. A field that is not listed must have its default value. So when a spec gains a
field, every method refuses its new values until the method lists them. A field without a default must be listed.
Changes outside the spec (hooks, replaced modules, changed constants) are always refused; see probes.py.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from pydantic import BaseModel

from interp.certificates.arithmetic import premise_refusal
from interp.certificates.probes import Probes
from interp.errors import InterpError
from interp.models.architecture.task_model import TaskModel
from interp.models.spec import ModelSpec
from interp.support import words
from interp.support.views import view
from interp.tasks import Task
from interp.tasks.scores import CONFIDENCE, clopper_pearson
from interp.tasks.structure import Member, lacks

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Progress = Callable[[int, int], None]
"""Called with the number of things done and the number of all."""
Status = Literal["certified", "refuted", "undecided"]
IN_REALS = "reals, with a rounding bound"
FRESH = "the spec and the parameters, in a fresh model that runs interp's own forward"
AT_HAND = "the model at hand, as it was run"


@dataclass(frozen=True)
class MadeBy:
    """The origin of a certificate: the model, the method's registered name, its options, and its evidence writer."""

    model: TaskModel
    method: str
    options: dict[str, Any]
    write: Callable[[Certificate, MadeBy, str | Path], Path]


@dataclass(frozen=True)
class Certificate:
    """The result of a proof about a model on a whole domain.

    status: "certified" (right on every input), "refuted" (the model itself gets the counterexample wrong), or
    "undecided".
    accuracy: exact share of right answers in exact arithmetic on the numbers which the model holds (its parameters, and
    its codes of positions as rounded to its number format), or an interval (low, high) that contains it. Answers with
    margins up to `rounding` may differ in the model's own arithmetic. confidence: the confidence of an interval that a
    sample has narrowed, such as 0.999; None if the accuracy is proved.
    worst_margin: lower bound on the right answer's logit minus the best wrong one, in exact arithmetic; for a refuted
    model the smallest margin found, which is negative and not always a bound. rounding: bound on the error of that
    difference in the model's arithmetic (None: unknown). A model is certified only if the margin exceeds it.
    n_errors: number of wrong inputs; if inputs have several answers, the number of wrong answers, of n_answers in all.
    arithmetic: "reals, with a rounding bound" (true for any order of evaluation) or "as run: ..." (every input was
    run). tables: further results by name, such as where the errors are. probes: bounds on single inputs that the model
    itself was compared with; probed: number of values compared. on_trust: declarations of the task that were not
    compared with its labels. about: the subject of the claim, either the spec and the parameters in a fresh model, or
    an external model as it was run. on_record: whether it was read from those shipped with interp for these weights.

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
    seconds: float = 0.0
    rounding: float | None = None
    n_errors: int | None = None
    n_answers: int | None = None
    notes: tuple[str, ...] = ()
    tables: dict[str, pd.DataFrame] = field(default_factory=dict, repr=False)
    source: MadeBy | None = field(default=None, repr=False, compare=False)
    arithmetic: str = IN_REALS
    probes: tuple[Probes, ...] = field(default=(), repr=False, compare=False)
    probed: int = 0
    on_trust: tuple[str, ...] = ()
    about: str = FRESH
    confidence: float | None = None
    on_record: bool = False

    def __post_init__(self) -> None:
        """Keep accuracies of models that err below 1, even if one error among 64^10 inputs would round to 1.

        An interval ends at (n - 1) / n at most if one of n answers is wrong.
        """
        below = math.nextafter(1.0, 0.0)
        if self.accuracy == 1.0 and self.n_errors:
            object.__setattr__(self, "accuracy", below)
        elif isinstance(self.accuracy, tuple):
            total = self.n_answers or self.n_inputs
            errs = self.status == "refuted" and not within_rounding(self)
            most = min(below, 1 - 1 / total) if errs and total else 1.0
            ends = (min(self.accuracy[0], below, most), min(self.accuracy[1], most))
            object.__setattr__(self, "accuracy", ends)

    def evidence(self, path: str | Path) -> Path:
        """Write a file that proves the claim to someone who does not trust this package; see certificates/check.

        path: a .json or .json.gz file. Raises UnsupportedError if this certificate's method has no evidence.
        """
        if self.source is None:
            raise InterpError("only certificates made by certify() have evidence: this one does not know its model")
        return self.source.write(self, self.source, path)

    def to_frame(self) -> pd.DataFrame:
        """Return one row with everything except the tables."""
        row: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("model", "status", "accuracy", "n_errors", "n_inputs", "n_answers", "worst_margin", "rounding",
                         "counterexample", "domain", "arithmetic", "method", "seconds", "about", "confidence")
        }  # fmt: skip
        row |= {"on_trust": "; ".join(self.on_trust) or None, "notes": "; ".join(self.notes) or None}
        return pd.DataFrame([row])

    def plot(self) -> Figure:
        """Draw what is proved right, wrong and undecided; or the errors by difference, or the margins by length.

        Example:

            >>> interp.certify("count01/minimal").plot().layout.xaxis.title.text
            "how many more '1' than '0'"
        """
        from interp.certificates.drawing import draw_tables  # plotly takes a second to load

        task = None if self.source is None else self.source.model.task
        return draw_tables(self.tables, self.accuracy, self.n_inputs, task)

    def _repr_html_(self) -> str:
        """Return the claim and its assumptions, one line each, without unknown values."""
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


ANY = object()
"""Marks a field that is supported with every value."""

Takes = Mapping[str, object]
"""Per field: ANY, or a tuple of the supported values. Nested fields are joined by dots."""

WHOLE = ("task", "origin")
"""Nested fields that are supported or refused as a whole: the task, and the origin of the weights."""

NO_DEFAULT = object()


@dataclass(frozen=True)
class Field:
    """One field of a spec. path: its name in Takes (layers.bias.q); where: its name in messages (layer 1: bias.q)."""

    path: str
    where: str
    value: object
    default: object


def anything(*paths: str) -> dict[str, object]:
    """Return Takes for fields that are supported with any value."""
    return dict.fromkeys(paths, ANY)


def fields(part: BaseModel, path: str = "", where: str = "") -> Iterator[Field]:
    """Yield every field of a spec, including nested fields; the value of `layers` is the number of layers."""
    for name, info in type(part).model_fields.items():
        value = getattr(part, name)
        default = NO_DEFAULT if info.is_required() else info.get_default(call_default_factory=True)
        if path + name == "layers":
            yield Field("layers", "number of layers", len(value), NO_DEFAULT)
            for index, layer in enumerate(value):
                yield from fields(layer, "layers.", f"layer {index}: ")
        elif isinstance(value, BaseModel) and path + name not in WHOLE:
            yield from fields(value, f"{path}{name}.", f"{where}{name}.")
        else:
            yield Field(path + name, where + name, value, default)


def unknown(spec: ModelSpec, takes: Takes) -> list[str]:
    """Return one sentence per field whose value a method does not support."""
    sentences = []
    for spec_field in fields(spec):
        allowed = takes.get(spec_field.path, ())
        if allowed is ANY or spec_field.value == spec_field.default or spec_field.value in allowed:  # type: ignore[operator]
            continue
        known = [repr(value) for value in (*allowed, spec_field.default) if value is not NO_DEFAULT]  # type: ignore[misc]
        about = f", only {' or '.join(dict.fromkeys(known))}" if known else ""
        sentences.append(f"the method does not support {spec_field.where} = {spec_field.value!r}{about}")
    return sentences


def refusal_of(spec: ModelSpec, takes: Takes) -> str | None:
    """Return a sentence for the first field that a method does not support, or None."""
    return next(iter(unknown(spec, takes)), None)


@dataclass(frozen=True)
class Method:
    """A method of certification.

    declares: the members that it needs of a task, or a function from a task to the reason why it does not apply, or
    None. why_not(model): the same for a model. run(model, **options): make the certificate.
    takes: the supported fields of a spec; None: the method runs the model itself on every input. order:
    methods of a lower order are tried first (0: those that need few evaluations). names: for a task, the names that an
    option accepts.
    """

    name: str
    declares: tuple[Member, ...] | Callable[[Task], str | None]
    why_not: Callable[[TaskModel], str | None]
    run: Callable[..., Certificate]
    takes: Takes | None
    order: int = 0
    names: Callable[[Task], Mapping[str, Sequence[str]]] = lambda task: {}

    def other_task(self, task: Task) -> str | None:
        """Return the reason why this method does not apply to a task, or None."""
        return lacks(task, self.declares) if isinstance(self.declares, tuple) else self.declares(task)

    def refusal(self, model: TaskModel) -> str | None:
        """Return the reason why this method does not apply to a model, or None."""
        if (reason := self.other_task(model.task) or self.why_not(model)) is not None or self.takes is None:
            return reason
        return premise_refusal(model) or refusal_of(model.spec, self.takes)


_METHODS: dict[str, Method] = {}


def register_method(
    name: str,
    declares: tuple[Member, ...] | Callable[[Task], str | None],
    refusal: Callable[[TaskModel], str | None],
    takes: Takes | None,
    order: int = 0,
    names: Callable[[Task], Mapping[str, Sequence[str]]] = lambda task: {},
) -> Callable[..., Any]:
    """Decorator: register a function from a model (and options) to a Certificate as a method, and measure its time."""

    def add(run: Callable[..., Certificate]) -> Callable[..., Certificate]:
        _METHODS[name] = Method(name, declares, refusal, _timed(run), takes, order, names)
        return _METHODS[name].run

    return add


def _timed(run: Callable[..., Certificate]) -> Callable[..., Certificate]:
    """Fill in the seconds of the certificates that a function makes."""

    @wraps(run)
    def timed(*args: Any, **options: Any) -> Certificate:
        started = time.perf_counter()
        return replace(run(*args, **options), seconds=time.perf_counter() - started)

    return timed


def registered_methods() -> dict[str, Method]:
    """Return all methods by name, in the order in which they are tried; last those that run the model on all inputs."""
    return dict(sorted(_METHODS.items(), key=lambda item: (item[1].takes is None, item[1].order, item[0])))


@dataclass
class Stratum:
    """A part of the inputs.

    inputs: their number; right, wrong: numbers of those decided. drawn, drawn_right: number of independent, uniform
    random ones that were run, and of right answers to them. drawn_open: of them, those whose margin is within rounding
    of 0, which may be right or wrong in exact arithmetic.
    """

    inputs: int
    right: int = 0
    wrong: int = 0
    drawn: int = 0
    drawn_right: int = 0
    drawn_open: int = 0

    @property
    def open(self) -> int:
        return self.inputs - self.right - self.wrong


@dataclass(frozen=True)
class SampledShare:
    """The share of right answers, exact or an interval. confidence: of the interval; None if it is proved."""

    accuracy: float | tuple[float, float]
    confidence: float | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, strata: Sequence[Stratum], drawn_are: str = "answers to random inputs, as run; without them"
    ) -> SampledShare:
        """Add up the strata: exact if all is decided; open ones are narrowed by what was drawn.

        drawn_are: in the note, what was drawn.
        """
        total, wrong = sum(stratum.inputs for stratum in strata), sum(stratum.wrong for stratum in strata)
        if not any(stratum.open for stratum in strata):
            return cls((total - wrong) / total)
        proved = sum(stratum.right for stratum in strata) / total, (total - wrong) / total
        drawn = [stratum for stratum in strata if stratum.open and stratum.drawn]
        if not drawn:
            return cls(proved)
        low = high = 0.0
        for part in (stratum for stratum in strata if stratum.inputs):
            ends = part.right / part.inputs, (part.inputs - part.wrong) / part.inputs
            if part.open and part.drawn:
                confidence = 1 - (1 - CONFIDENCE) / len(drawn)
                least = clopper_pearson(part.drawn_right, part.drawn, confidence)[0]
                most = clopper_pearson(part.drawn_right + part.drawn_open, part.drawn, confidence)[1]
                both = max(ends[0], least), min(ends[1], most)
                ends = both if both[0] <= both[1] else ends
            low, high = low + ends[0] * (part.inputs / total), high + ends[1] * (part.inputs / total)
        note = (
            f"accuracy: {CONFIDENCE:.1%} confidence interval from {sum(part.drawn for part in drawn):,} {drawn_are} "
            f"[{proved[0]:.6g}, {proved[1]:.6g}]"
        )
        return cls((max(low, proved[0]), min(high, proved[1])), CONFIDENCE, (note,))


@dataclass
class MarginCounts:
    """The account of a proof that evaluates margins in float64, each for one or more inputs.

    wrong: number of inputs with a margin of at most 0. tied: of inputs with a margin so close to 0 that the rounding of
    this evaluation hides whether it is above. close: of right inputs with a margin within the model's rounding. worst:
    the smallest margin. need, slack: the largest bounds on rounding, in the model's format and in float64.
    """

    wrong: int = 0
    tied: int = 0
    close: int = 0
    worst: float = math.inf
    need: float = 0.0
    slack: float = 0.0

    def take(
        self,
        margin: Float[np.ndarray, "rows"],
        need: float,
        slack: float,
        inputs: Int[np.ndarray, "rows"] | None = None,
    ) -> int:
        """Count inputs with these margins; return the index of the smallest. inputs: their numbers (default: 1)."""
        least = int(margin.argmin())
        self.worst = min(self.worst, float(margin[least]))
        self.need, self.slack = max(self.need, need), max(self.slack, slack)
        if margin[least] <= need:
            inputs = np.ones(margin.shape, dtype=np.int64) if inputs is None else inputs
            self.wrong += int(inputs[margin <= 0].sum())
            self.tied += int(inputs[np.abs(margin) <= slack].sum()) if slack > 0 else 0
            self.close += int(inputs[(margin > 0) & (margin <= need)].sum())
        return least

    def accuracy(self, n: int) -> float | tuple[float, float]:
        """Return the accuracy on n inputs, or bounds on it, with all tied (undecided) ones wrong or all right."""
        if not self.tied:
            return (n - self.wrong) / n
        return max(0, n - self.wrong - self.tied) / n, (n - max(0, self.wrong - self.tied)) / n

    def status(self, errs: Callable[[], bool]) -> Status:
        """Return the status; errs: whether the model itself is wrong on the input with the smallest margin."""
        if self.worst > self.need:
            return "certified"
        return "refuted" if self.worst <= 0 and errs() else "undecided"

    def notes(self, dtype: object) -> tuple[str, ...]:
        """Return a note on right inputs with a margin within rounding, if there are any."""
        if not self.close:
            return ()
        kind = str(dtype).removeprefix("torch.")
        return (f"{self.close:,} right inputs have a margin within the rounding bound of {kind}: "
                "there the model's own arithmetic may answer otherwise",)  # fmt: skip


def within_rounding(found: Certificate) -> bool:
    """Return whether a model is refuted only by errors within the rounding bound."""
    errs = found.status == "refuted" and found.n_errors != 0
    return errs and found.rounding is not None and found.worst_margin >= -found.rounding


def note_rounding(found: Certificate) -> Certificate:
    """Add a note if a model is refuted within rounding."""
    if not within_rounding(found):
        return found
    note = (
        f"no margin is below {0 - (found.rounding or 0):.3g}, the possible effect of rounding: the model errs on the "
        "counterexample as it was run, but may be right on it in a batch of another shape or order"
    )
    return found if note in found.notes else replace(found, notes=(*found.notes, note))
