"""Roles of tasks, recognized by members of the task, never by its name or class."""

from __future__ import annotations

from interp.tasks.base import Task

COUNTS_OWN_TOKEN = ("T", "L", "bos", "bos_id", "zero_class", "of_sequences")
"""Tasks whose answer at each position is the count of its token; see tasks.Histogram."""
STRINGS = ("alphabet", "n_marks", "strings", "symbols", "of_symbols", "encode")
"""Tasks of strings over an alphabet with the answers yes and no; see tasks.Language."""
LISTED_STRINGS = (*STRINGS, "enumerate")
"""Tasks of strings that can list all strings of a length."""
CONDITIONAL_TABLE = ("conditional", "prior", "contexts", "order", "targets", "all_contexts")
"""Tasks that are a table of next-token probabilities for each context; see tasks.TableTask."""

AUTOMATA = ("automata",)
"""Tasks whose labels an automaton computes; see tasks.automata."""
PRODUCTS = ("products",)
"""Tasks whose inputs are products of token sets, with one answer each; see tasks.products."""


FREE_TO_CHANGE = ("sample", "dataset", "features", "corrupt", "example", "describe", "weights", "check_input")
"""Members of a task that do not affect the right answers."""


def defines_labels(task: Task) -> bool:
    """Test whether label_counts defines the labels: no subclass of its class overrides members that affect them."""
    for kind in type(task).__mro__:
        if "label_counts" in vars(kind):
            return True
        if any(
            callable(member) or isinstance(member, property | staticmethod | classmethod)
            for name, member in vars(kind).items()
            if not name.startswith("__") and name not in FREE_TO_CHANGE
        ):
            return False  # fmt: skip
    return False


def lacks(task: Task, names: tuple[str, ...]) -> str | None:
    """Return a sentence about the members that a task lacks, or None if it has all of them."""
    missing = [name for name in names if not hasattr(task, name)]
    return f"task {task.name} declares no {', '.join(missing)}" if missing else None
