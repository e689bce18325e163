"""The first line of a report: the task, and one input with its answer."""

import re
from collections.abc import Sequence

from interp import words
from interp.architecture.answers import find_positions
from interp.architecture.task_model import standing_hooks
from interp.report import Report
from interp.sections.base import Study, section
from interp.tasks import Batch, Task

LONGEST, SHOWN = 60, 10
"""Largest number of characters of an example on the first screen, and number of tokens shown of a longer one."""


@section("question", title="The task", order=1)
def make(study: Study, report: Report) -> None:
    """Add a sentence to the verdict, after one on the model's hooks, if any."""
    if said := hooks_sentence(standing_hooks(study.model)):
        report.say(said, "task")
    report.say(sentence(study.task), "task")


def hooks_sentence(names: Sequence[str]) -> str:
    """Return a sentence that all numbers are for the model with its hooks; "" without hooks."""
    if not names:
        return ""
    where = words.joined([*names[:3], f"{len(names) - 3} more places"] if len(names) > 3 else names)
    hooks, them = ("a hook", "it") if len(names) == 1 else ("hooks", "them")
    return f"This model has {hooks} at {where}: every number here is of the model with {them}."


def sentence(task: Task) -> str:
    """Return the task's own description, with an example if it has one."""
    asked = task.describe.rstrip(".")
    ended = asked.endswith(("?", "!"))
    text = f"Task {task.name}: {asked}{'' if ended else '.'}" if asked else f"Task {task.name}."
    named = [
        f"{name} is {value}" for name, value in task.parameters.items() if re.search(rf"\b{re.escape(name)}\b", asked)
    ]
    text += f" Here {words.joined(named)}." if named else ""
    example = task.example
    shown = "" if example is None else example_of(task, example)
    return f"{text} {shown}".strip()


def example_of(task: Task, example: Batch) -> str:
    """Return 'For example, INPUT has the answer ANSWER.'

    For a long input: its first tokens, with their answers if each position has one ("-" if it is not read); "" if none
    of these tokens has an answer.
    """
    length = int(example.lengths[0])
    tokens = [task.vocabulary[int(token)] for token in example.tokens[0, :length]]
    if example.labels.dtype.is_floating_point or example.labels.dtype.is_complex:
        return ""
    each, classes = task.readout == "all", task.classes(example)[0, :length]
    if each:
        answers = [task.word(index) if index >= 0 else "-" for index in classes.tolist()]
        said = " ".join(answers)
    else:
        at = find_positions(task, example.tokens, task.readout)
        said = task.word(int(classes[at]))
    if task.generates is not None and task.example is not None:
        asked = int(classes.ge(0).int().argmax()) + 1
        question, written = task.format(example.tokens[0, :asked]), task.format(example.tokens[0, asked:length])
        if len(question) + len(written) <= LONGEST:
            return f"For example, {question} has the answer '{written}'."
    text = " ".join(tokens)
    if len(text) + len(said) <= LONGEST:
        return f"For example, {text} has the answer '{said}'."
    if each:
        if int(classes[:SHOWN].max()) < 0:
            return ""
        said = f"{' '.join(answers[:SHOWN])} ..."
    return f"For example, {' '.join(tokens[:SHOWN])} ... ({length} tokens) has the answer '{said}'."
