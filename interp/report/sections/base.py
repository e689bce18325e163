"""The sections of a report: their definition, their discovery, and the study that they share.

A section is a function that writes one part of a report. It declares what it needs of the model and its task:

    @section("lengths", title="Accuracy by length", order=150, task="alphabet")
    def lengths(study: Study, report: Report) -> None:
        right = study.subject.right(study.data("test"))
        report.heading("Accuracy by length", "Longer inputs first.")
        report.add_table("lengths", ..., "One row per length.")

The files in this folder are imported automatically; functions elsewhere are added by the same decorator. Sections do
not depend on each other: shared results are computed once, by `Study.once`.

Orders: 0-99 first screen; 100 accuracy and certificate; 200 components; 300 heads; 400 attention; 500 patching and
circuits; 600 embeddings; 700 neurons and variables; 800 faithfulness; 900 sections for few tasks, and training.
"""

import importlib
import inspect
import pkgutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from interp.certificates import Certificate, plan
from interp.certificates.known import find_known
from interp.errors import InterpError, UnsupportedError, as_list, check_one_of, short
from interp.measures.runs import work_of
from interp.models.architecture.task_model import TaskModel
from interp.models.lens import HookedTransformer
from interp.models.spec import ModelSpec
from interp.models.subject import Subject
from interp.report import Report
from interp.report.items import Block
from interp.support.progress import LateBar
from interp.tasks import Batch, Task
from interp.tasks.populations import SPEED, InputsAsked, Population, choose, usual
from interp.tasks.registry import load_plug_ins
from interp.tasks.structure import Member, lacks

Value = TypeVar("Value")
SHORT = {"seconds": 4.0, "most": 1 << 20}
"""Options of certificates in a report: a shorter search than with interp.certify."""
USUAL = 10.0
"""Largest work, in nominal seconds, for which a section takes the inputs that measures take by default."""
FEWER = 3.0
"""The same for a part of them, if they are too many."""
SAMPLED_ROWS = 1000
"""Number of inputs of a split if the task has no fixed data set."""


class Study:
    """One model under study and the results that its sections share, each computed once.

    load: Python code that loads the model, if known: model = interp.load("count01/paper"). asked: the user's number of
    inputs or time limit for every section; asked_of: the same per section. wanted: the sections that the user names.
    explains: whether to search for an explanation where none is shipped.
    populations: the inputs that sections chose, by section.
    """

    def __init__(
        self, subject: Subject, load: str | None = None, asked: InputsAsked | None = None, explains: bool = True
    ) -> None:
        self.subject = subject.remembering()
        self.explains = explains
        self.load = load
        self.asked = asked or InputsAsked()
        self.asked_of: dict[str, InputsAsked] = {}
        self.wanted: frozenset[str] = frozenset()
        self.populations: dict[str, Population] = {}
        self._known: dict[tuple[Any, ...], Any] = {}

    @property
    def model(self) -> HookedTransformer:
        return self.subject.model

    @property
    def task(self) -> Task:
        return self.subject.task

    @property
    def spec(self) -> ModelSpec | None:
        """The spec of a task model; None for external models."""
        return self.model.spec if isinstance(self.model, TaskModel) else None

    # ------------------------------------------------------------ shared

    def once(self, make: Callable[..., Value], *arguments: Any) -> Value:
        """Return make(study, *arguments), computed at the first call and cached. Arguments must be hashable.

        Omitted arguments get their defaults. An InterpError is cached too and raised again.
        """
        return self.remembered(make, self, *arguments)

    def remembered(self, make: Callable[..., Value], of: Any, *arguments: Any) -> Value:
        """Return make(of, *arguments) as `once` does, of this study, its subject or its task."""
        bound = inspect.signature(make).bind(of, *arguments)
        bound.apply_defaults()
        key = (make, *bound.args[1:])
        if key not in self._known:
            try:
                self._known[key] = (make(*bound.args), None)
            except InterpError as error:
                self._known[key] = (None, error)
        value, failure = self._known[key]
        if failure is not None:
            raise failure
        return value

    def measure(self, function: Callable[..., Value], *arguments: Any) -> Value:
        """Return function(subject, *arguments), a measure with hashable arguments, computed once."""
        return self.remembered(function, self.subject, *arguments)

    def data(self, split: str = "test") -> Batch:
        """Return examples from a split: the task's fixed data set, all inputs if they are few, or SAMPLED_ROWS inputs.

        Measures use a population instead.
        """
        return self.once(_data, split)

    def population(
        self,
        section: str,
        passes: float | int = 1,
        fits: int = 0,
        split: str | None = None,
        whole: bool = False,
        **choice: Any,
    ) -> Population:
        """Return the inputs of a section: those that measures take by default if the work on them is at most USUAL
        seconds, so that a report and a measure give the same numbers; else as many as fit in its budget, or as the user
        asks for.

        section: the name of the section; sections that show the same numbers use the same name. passes: the number of
        forward passes for one input, which is its cost. fits: the number of separators that are fitted to the reads.
        whole: whether whole inputs run even if distinct tokens would do. choice: fixed, exact, seconds, most and seed,
        as in populations.choose.
        """
        return self.once(_population, section, passes, fits, split, whole, tuple(sorted(choice.items())))

    @cached_property
    def certificate(self) -> Certificate | str:
        """The certificate, or the reason why the model has none."""
        try:
            if isinstance(self.model, TaskModel) and self.subject.token_ids is None:
                return find_known(self.model) or plan(self.subject).certificate(usual=SHORT)
            return plan(self.subject).certificate()
        except UnsupportedError as error:
            return str(error)


def _population(
    study: Study, section: str, passes: float | int, fits: int, split: str | None, whole: bool, choice: tuple[Any, ...]
) -> Population:
    asked = study.asked_of.get(section, InputsAsked()).or_else(study.asked)

    cost = work_of(study.subject, passes, fits, whole)
    options = {"split": split, "fixed": study.subject.own_split, "once": study.remembered, **dict(choice)}
    population = None
    if asked == InputsAsked() and "seconds" not in options and options.get("exact", True):
        usually = study.once(_usual, split, bool(options["fixed"]), options.get("most"))
        population = usually if usually.n * cost(usually.batch.tokens.shape[1]) <= SPEED * USUAL else None
        options["seconds"] = FEWER
    population = replace(population or choose(study.task, cost, asked, **options), own=study.subject.own_split)
    alike = (other for other in study.populations.values() if other.drawn_like(population))
    study.populations[section] = next(alike, population)  # so that what is cached for a batch serves all sections
    return study.populations[section]


def _usual(study: Study, split: str | None, fixed: bool, most: int | None) -> Population:
    return usual(study.task, split, fixed=fixed, most=most)


def _data(study: Study, split: str) -> Batch:
    return usual(study.task, split, study.asked.inputs or SAMPLED_ROWS, fixed=study.subject.own_split).batch


# ---------------------------------------------------------------- sections


OF_ALL = ("inputs", "seconds")
"""Options of every section: the number of inputs, or the time limit that determines it."""
CHEAP = 5.0
"""Largest estimated time, in seconds, of a section that is made without being requested."""


@dataclass(frozen=True)
class Section:
    """One part of a report; see the module's docstring. block: the block of the page that it belongs to.

    make(study, report, **options) writes it. It applies if the task has all members in `task` (see structure.lacks) and
    needs(study), the reason why it does not apply, is None; `needs` may also raise that reason. cost(study): estimated
    seconds; if they exceed CHEAP, the section is made on request only. request(study): how to ask for the section if,
    without that, it only says that it was not asked for; None if it is made in full.
    """

    name: str
    title: str
    order: int
    make: Callable[..., None]
    needs: Callable[[Study], str | None]
    task: tuple[Member, ...] = ()
    cost: Callable[[Study], float] | None = None
    block: Block = "what"
    request: Callable[[Study], str | None] = lambda study: None

    def why_not(self, study: Study) -> str | None:
        """Return the reason why the section does not apply, or None."""
        try:
            return lacks(study.task, self.task) or self.needs(study)
        except InterpError as error:
            return str(error)

    def on_request(self, study: Study) -> bool:
        """Return whether the section is made on request only."""
        return self.cost is not None and self.cost(study) > CHEAP

    @property
    def options(self) -> dict[str, Any]:
        """The options of `make` with their defaults, plus the options of every section."""
        parameters = list(inspect.signature(self.make).parameters.values())[2:]
        return {parameter.name: parameter.default for parameter in parameters} | dict.fromkeys(OF_ALL)


_SECTIONS: dict[str, Section] = {}
Make = TypeVar("Make", bound=Callable[..., None])


def section(
    name: str,
    *,
    title: str,
    order: int = 950,
    task: str | tuple[Member, ...] = (),
    needs: Callable[[Study], str | None] | None = None,
    cost: Callable[[Study], float] | None = None,
    block: Block = "what",
    request: Callable[[Study], str | None] = lambda study: None,
) -> Callable[[Make], Make]:
    """Register a function (study, report, **options) as a section of every report that it applies to.

    task: members that the task must have, such as "counted" or tasks.structure.STRINGS. block: the block of the
    page: "what" the model computes, "how", "where" (parts and circuit), "proof" or "method". The others: see Section.

    Raises InterpError if another function has the same name.

    Example:

        >>> @interp.section("docs-size", title="Size", order=100)
        ... def size(study, report):
        ...     report.heading("Size", f"{sum(p.numel() for p in study.model.parameters()):,} parameters.")
        >>> report = interp.analyze("count01/minimal", sections=["docs-size"])
    """

    def register(make: Make) -> Make:
        known = _SECTIONS.get(name)
        # Running a notebook cell twice registers the same function again.
        if known is not None and _origin(known.make) != _origin(make):
            raise InterpError(f"a section named {name!r} is registered already, by {known.make.__module__}")
        members = (task,) if isinstance(task, str) else task
        needed = needs or (lambda study: None)
        _SECTIONS[name] = Section(name, title, order, make, needed, members, cost, block, request)
        return make

    return register


def _origin(make: Callable[..., Any]) -> tuple[str, str]:
    return make.__module__, make.__qualname__


def all_sections() -> list[Section]:
    """Return all sections in the order of a report, including a user's own."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if not module.name.startswith("_"):  # shared helpers
            importlib.import_module(f"{__package__}.{module.name}")
    load_plug_ins("sections")
    return sorted(_SECTIONS.values(), key=lambda candidate: (candidate.order, candidate.name))


A_DAY = 86_400


def time_needed(seconds: float) -> str:
    """Say how long a section takes, in nominal seconds."""
    return f"about {max(1, round(seconds))} s" if seconds < A_DAY else "out of reach: more than a day"


def availability(study: Study) -> pd.DataFrame:
    """Table: section, title, status ("applies", "on request", "does not apply"), note (time, command or reason)."""
    rows = []
    for candidate in all_sections():
        if (reason := candidate.why_not(study)) is not None:
            rows.append((candidate.name, candidate.title, "does not apply", reason))
        elif candidate.cost is not None and candidate.on_request(study):
            rows.append((candidate.name, candidate.title, "on request", time_needed(candidate.cost(study))))
        elif (how := candidate.request(study)) is not None:
            rows.append((candidate.name, candidate.title, "on request", how))
        else:
            rows.append((candidate.name, candidate.title, "applies", ""))
    return pd.DataFrame(rows, columns=["section", "title", "status", "note"])


def fill(
    study: Study,
    report: Report,
    wanted: Sequence[str] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Write the wanted sections in order; None: all that apply and are not made on request only.

    options: keyword arguments per section. Raises InterpError for unknown sections and options, and UnsupportedError,
    with the reason, if a wanted section does not apply.
    """
    known = {candidate.name: candidate for candidate in all_sections()}
    wanted = None if wanted is None else as_list(wanted, "sections", '["accuracy", "heads"]')
    if wanted == []:
        raise InterpError("sections is empty: name at least one, or leave it out for all that apply")
    options = options or {}
    if not isinstance(options, Mapping) or not all(isinstance(arguments, Mapping) for arguments in options.values()):
        raise InterpError('options are keyword arguments of sections by name, such as {"heads": {...}}')
    for name in [*(wanted or ()), *options]:
        check_one_of("section", name, known)
    for name, arguments in options.items():
        if wanted is not None and name not in wanted:
            raise InterpError(f"options are given for section {name}, but sections does not name it")
        for option in arguments:
            check_one_of(f"option of section {name}", option, known[name].options)
    specific = {
        name: {key: value for key, value in arguments.items() if key not in OF_ALL}
        for name, arguments in options.items()
    }
    for name, arguments in options.items():
        study.asked_of[name] = InputsAsked.of(arguments.get("inputs"), arguments.get("seconds"))
    study.wanted = frozenset(wanted or ())
    chosen = [candidate for candidate in known.values() if wanted is None or candidate.name in wanted]
    with LateBar("report", lines=0.0) as bar:
        for number, candidate in enumerate(chosen):
            asked = wanted is not None or candidate.name in options
            before = len(report.items)
            try:
                if (reason := candidate.why_not(study)) is not None:
                    if not asked:
                        continue
                    raise _DoesNotApply(f"section {candidate.name} does not apply: {reason}")
                if asked or not candidate.on_request(study):
                    bar.update(number, len(chosen), candidate.title)
                    report.block = candidate.block
                    candidate.make(study, report, **specific.get(candidate.name, {}))
            except _DoesNotApply:
                raise
            except InterpError as error:
                _not_shown(report, candidate, before, f"{error}.")
            except Exception as error:  # an error in one section must not lose the others
                failed = f"it failed with {type(error).__name__}: {short(str(error)) or 'no message'}."
                warnings.warn(f"section {candidate.name}: {failed}", RuntimeWarning, stacklevel=3)
                _not_shown(report, candidate, before, failed)
            if len(report.items) > before:
                report.made[candidate.name] = before, len(report.items)


class _DoesNotApply(UnsupportedError):
    """A section that the user names does not apply."""


def _not_shown(report: Report, missing: Section, before: int, reason: str) -> None:
    """Say in a report why a section, or what is left of it, is missing. before: the number of items before it."""
    if len(report.items) == before:
        report.block = missing.block
        report.heading(missing.title, f"Not shown: {reason}")
    else:
        report.add_text(f"The rest is not shown: {reason}")
