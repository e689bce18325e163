"""What a room at the top needs of a task, asked by the names of what it declares, never by its own name or class."""

from __future__ import annotations

from interp.tasks.base import Task

COUNTS_OWN_TOKEN = ("T", "L", "bos", "bos_id", "zero_class", "of_sequences")
"""Declared by tasks whose answer at each position is how often its token occurs: see tasks.Histogram."""
STRINGS = ("alphabet", "n_marks", "strings", "symbols", "of_symbols", "encode")
"""Declared by tasks of strings over an alphabet, one yes or no for each: see tasks.Language."""
LISTED_STRINGS = (*STRINGS, "enumerate")
"""Of these, tasks that list all strings of a length, too."""
CONDITIONAL_TABLE = ("conditional", "prior", "contexts", "order", "targets", "all_contexts")
"""Declared by tasks that are a table of next tokens for every context: see tasks.TableTask."""

AUTOMATA = ("automata",)
"""Declared by tasks whose labels an automaton computes that reads the row place by place: see tasks.automata."""
PRODUCTS = ("products",)
"""Declared by tasks whose inputs are products of sets of tokens, with one answer each: see tasks.products."""


FREE_TO_CHANGE = ("sample", "dataset", "features", "corrupt", "example", "describe", "weights", "check_input")
"""Members of a task that do not say what is right."""


def defines_labels(task: Task) -> bool:
    """Does label_counts define what is right? Not where a subclass of the one that defines it says more of labels."""
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
    """The reason, where a task lacks some of these; None if it has all."""
    missing = [name for name in names if not hasattr(task, name)]
    return f"task {task.name} declares no {', '.join(missing)}" if missing else None
