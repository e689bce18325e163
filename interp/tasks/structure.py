"""What a task may declare about all its inputs and their right answers, and its comparison with the task's labels.

A structure describes many inputs at once, so certificates can prove more about them than they could run: products of
token sets (products.py), the paths of an automaton (automata.py), or answers that depend on how often tokens occur
(counted.py: the answer compares two counts; occurrences.py: the answer at each token is a function of its count).

A declaration is compared with the task's own labels on every input if there are few, and otherwise on a sample;
`compare` then returns the assumption about the others, which certificates report.

Kinds of tasks are recognized by the members that they have, never by their names or classes.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

from jaxtyping import Bool, Int
from torch import Tensor

from interp.errors import InterpError, UnsupportedError, short
from interp.tasks.base import Task
from interp.tasks.batch import IGNORED, Batch
from interp.tasks.domain import Drawn

COUNTS_OWN_TOKEN = ("T", "L", "bos", "bos_id", "zero_class", "of_sequences")
"""Tasks whose answer at each position is the count of its token; see tasks.Histogram."""
STRINGS = ("alphabet", "n_marks", "strings", "symbols", "of_symbols", "encode")
"""Tasks of strings over an alphabet with the answers yes and no; see tasks.Language."""
LISTED_STRINGS = (*STRINGS, "enumerate")
"""Tasks of strings that can list all strings of a length."""
CONDITIONAL_TABLE = ("conditional", "prior", "contexts", "order", "targets", "all_contexts")
"""Tasks that are a table of next-token probabilities for each context; see tasks.TableTask."""


def lacks(task: Task, names: tuple[str, ...]) -> str | None:
    """Return a sentence about the members that a task lacks, or None if it has all of them.

    Of members that every task has, those count that it sets or overrides.
    """
    missing = [name for name in names if not hasattr(task, name) or _is_default(task, name)]
    return f"task {task.name} declares no {', '.join(missing)}" if missing else None


def _is_default(task: Task, name: str) -> bool:
    if not hasattr(Task, name):
        return False
    default = getattr(Task, name)
    return getattr(type(task), name) is default if callable(default) else bool(getattr(task, name) == default)


class Structure(ABC):
    """A set of inputs, which are rows of tokens, and their right answers."""

    what: ClassVar[str]
    """The declaration in messages, in the plural."""
    listed: ClassVar[int]
    """Largest number of inputs whose labels are all compared."""
    orders: ClassVar[bool] = False
    """Whether `every` yields one order of the tokens only, and `answers` gives one read position only."""

    @property
    @abstractmethod
    def n_inputs(self) -> int:
        """Number of inputs that `every` yields."""

    @abstractmethod
    def every(self) -> Iterator[Int[Tensor, "rows length"]]:
        """Yield every input once, in batches."""

    @abstractmethod
    def some(self) -> Int[Tensor, "rows length"]:
        """Return the inputs that are compared if there are more than `listed`."""

    @abstractmethod
    def answers(self, task: Task, rows: Int[Tensor, "rows length"]) -> Int[Tensor, "rows length"]:
        """Return the right output index at each read position of inputs, IGNORED elsewhere."""

    @abstractmethod
    def holds(self, batch: Batch) -> Bool[Tensor, "rows"]:
        """Return a mask of the rows of a batch that are inputs."""

    @abstractmethod
    def assumption(self, task: Task) -> str:
        """Return what is assumed about the inputs that were not compared."""


def compare(task: Task, parts: Sequence[Structure]) -> tuple[str, ...]:
    """Compare a declared structure with its task; return the assumptions about labels that were not compared.

    parts: structures without common inputs, for example one per row length. Raises UnsupportedError, with the reason,
    if the number of inputs or a label differs, and InterpError if every split has a sample that is in no part.
    """
    first, total, compared = parts[0], sum(part.n_inputs for part in parts), 0
    if not first.orders and total != task.n_inputs is not None:
        raise UnsupportedError(f"task {task.name} has {task.n_inputs:,} inputs, but {first.what} make {total:,}")
    for part in parts:
        for rows in part.every() if total <= first.listed else [part.some()]:
            compared += len(rows)
            if (reason := difference(task, part, rows)) is not None:
                raise UnsupportedError(reason)
    drawn = Drawn(task)
    for part in parts:
        drawn.drop(part.holds)
    drawn.finish()
    if (total <= first.listed and not first.orders) or defines_labels(task):
        return ()
    return (f"labels: compared on {compared:,} inputs; unchecked assumption: {first.assumption(task)}",)


def defines_labels(task: Task) -> bool:
    """Test whether label_counts defines the labels: no subclass of its class labels otherwise."""
    owner = {name: next((kind for kind in type(task).__mro__ if name in vars(kind)), Task)
             for name in ("label_counts", "batch", "classes", "answers")}  # fmt: skip
    return hasattr(task, "label_counts") and all(issubclass(owner["label_counts"], kind) for kind in owner.values())


def difference(task: Task, part: Structure, rows: Int[Tensor, "rows length"]) -> str | None:
    """Return a sentence about the first of these rows that the task labels otherwise than its structure, or None."""
    try:
        task.check_input(rows)
        classes = task.classes(task.batch(rows))
    except InterpError as error:
        return f"{part.what} of task {task.name} make a row that is not an input: {error}"
    right = part.answers(task, rows)
    other = ((classes != right) & (right != IGNORED if part.orders else True)).any(1)
    if not bool(other.any()):
        return None
    text = short(task.format(rows[int(other.int().argmax())]))
    return f"task {task.name} labels {text!r} otherwise than {part.what} declare"
