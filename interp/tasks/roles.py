"""Roles of tasks, recognized by members of the task, never by its name or class."""

from interp.tasks.base import Task

COUNTS_OWN_TOKEN = ("T", "L", "bos", "bos_id", "zero_class", "of_sequences")
"""Tasks whose answer at each position is the count of its token; see tasks.Histogram."""
STRINGS = ("alphabet", "n_marks", "strings", "symbols", "of_symbols", "encode")
"""Tasks of strings over an alphabet with the answers yes and no; see tasks.Language."""
LISTED_STRINGS = (*STRINGS, "enumerate")
"""Tasks of strings that can list all strings of a length."""
CONDITIONAL_TABLE = ("conditional", "prior", "contexts", "order", "targets", "all_contexts")
"""Tasks that are a table of next-token probabilities for each context; see tasks.TableTask."""


def lacks(task: Task, names: tuple[str, ...]) -> str | None:
    """Return a sentence about the members that a task lacks, or None if it has all of them."""
    missing = [name for name in names if not hasattr(task, name)]
    return f"task {task.name} declares no {', '.join(missing)}" if missing else None
