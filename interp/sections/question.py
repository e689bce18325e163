"""The first line of a report: what is asked, and one input with its answer."""

from __future__ import annotations

import re

from interp.report import Report, words
from interp.sections.base import Study, section
from interp.tasks import Batch, Task

LONGEST, SHOWN = 60, 10
"""Characters of an example on the first screen; tokens of a longer one that are shown."""


@section("question", title="The task", order=1)
def make(study: Study, report: Report) -> None:
    """One sentence of the verdict; no section of its own."""
    report.say(sentence(study.task), "task")


def sentence(task: Task) -> str:
    """What is asked, in the task's own words, with one example where it has a short one."""
    asked = task.describe.rstrip(".")
    ended = asked.endswith(("?", "!"))
    text = f"Task {task.name}: {asked}{'' if ended else '.'}" if asked else f"Task {task.name}."
    named = [
        f"{name} is {value}" for name, value in task.parameters.items() if re.search(rf"\b{re.escape(name)}\b", asked)
    ]
    text += f" Here {words.listed(named)}." if named else ""
    example = task.example
    shown = "" if example is None else example_of(task, example)
    return f"{text} {shown}".strip()


def example_of(task: Task, example: Batch) -> str:
    """'For example, INPUT has the answer ANSWER.'; of a long one its first tokens, "" where each has an answer."""
    length = int(example.lengths[0])
    tokens = [task.vocabulary[int(token)] for token in example.tokens[0, :length]]
    answer = example.labels[0]
    if answer.ndim:
        said = " ".join(str(int(one)) if int(one) >= 0 else "-" for one in answer[:length])
    elif answer.dtype.is_floating_point or answer.dtype.is_complex:
        return ""
    elif str(answer.dtype) == "torch.bool":
        said = task.answer_words[int(answer)] if len(task.answer_words) == 2 else str(bool(answer)).lower()
    else:
        said = task.answer_words[int(answer)] if 0 <= int(answer) < len(task.answer_words) else str(int(answer))
    text = " ".join(tokens)
    if len(text) + len(said) <= LONGEST:
        return f"For example, {text} has the answer '{said}'."
    if answer.ndim:
        return ""
    return f"For example, {' '.join(tokens[:SHOWN])} ... ({length} tokens) has the answer '{said}'."
