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

PRODUCTS = ("products",)
"""Declared by tasks whose inputs are products of sets of tokens, with one answer each: see tasks.products."""


def lacks(task: Task, names: tuple[str, ...]) -> str | None:
    """The reason, where a task lacks some of these; None where it has all."""
    missing = [name for name in names if not hasattr(task, name)]
    return f"task {task.name} declares no {', '.join(missing)}" if missing else None
