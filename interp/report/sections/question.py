"""The frame of a report: the task, one input with its answer and its attention, and the inputs of each section."""

import re
from collections.abc import Collection, Sequence

import pandas as pd

from interp.measures.attention import attention_patterns
from interp.measures.results import tidy
from interp.models.architecture.answers import find_positions
from interp.models.architecture.task_model import standing_hooks
from interp.report import Report
from interp.report.aim import inputs
from interp.report.aim import tokens as token_ids
from interp.report.sections._shared import WEIGHT, weights
from interp.report.sections.base import Study, all_sections, section
from interp.support import figures as draw
from interp.support import words
from interp.tasks import Batch, Task

LONGEST, SHOWN = 60, 10
"""Largest number of characters of an example on the first screen, and number of tokens shown of a longer one."""


@section("question", title="The task", order=1)
def make(study: Study, report: Report) -> None:
    """Add a sentence to the verdict, after one on the model's hooks, if any."""
    if sentence := hooks_sentence(standing_hooks(study.model)):
        report.say(sentence, "task")
    report.say(describe_task(study.task), "task")


def hooks_sentence(names: Sequence[str]) -> str:
    """Return a sentence that all numbers are for the model with its hooks; "" without hooks."""
    if not names:
        return ""
    where = words.joined([*names[:3], words.counted(len(names) - 3, "more place")] if len(names) > 3 else names)
    hooks, them = ("a hook", "it") if len(names) == 1 else ("hooks", "them")
    return f"This model has {hooks} at {where}: every number here is of the model with {them}."


def describe_task(task: Task) -> str:
    """Return the task's own description, with an example if it has one."""
    asked = task.describe.rstrip(".")
    ended = asked.endswith(("?", "!"))
    text = f"Task {task.name}: {asked}{'' if ended else '.'}" if asked else f"Task {task.name}."
    named = [
        f"{name} is {value}" for name, value in task.parameters.items() if re.search(rf"\b{re.escape(name)}\b", asked)
    ]
    text += f" Here {words.joined(named)}." if named else ""
    example = task.example
    shown = "" if example is None else describe_example(task, example)
    return f"{text} {shown}".strip()


def describe_example(task: Task, example: Batch) -> str:
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
        answer = " ".join(answers)
    else:
        at = find_positions(task, example.tokens, task.readout)
        answer = task.word(int(classes[at]))
    if task.generates is not None and task.example is not None:
        asked = int(classes.ge(0).int().argmax()) + 1
        question, written = task.format(example.tokens[0, :asked]), task.format(example.tokens[0, asked:length])
        if len(question) + len(written) <= LONGEST:
            return f"For example, {question} has the answer '{written}'."
    text = " ".join(tokens)
    if len(text) + len(answer) <= LONGEST:
        return f"For example, {text} has the answer '{answer}'."
    if each:
        if int(classes[:SHOWN].max()) < 0:
            return ""
        answer = f"{' '.join(answers[:SHOWN])} ..."
    return f"For example, {' '.join(tokens[:SHOWN])} ... ({length} tokens) has the answer '{answer}'."


@section("method", title="Inputs of each section", order=990, block="method")
def inputs_of_sections(study: Study, report: Report) -> None:
    """Show the population of each section that chose one."""
    table = inputs_of(study, report.made)
    if table.empty:
        return
    sampled = sum(not inputs.exact for name, inputs in study.populations.items() if name in report.made)
    report.heading(
        "Inputs of each section",
        f"{describe_inputs(sampled, len(table))} Sections that are not in the table name their inputs themselves, or "
        "read weights alone.",
    )
    report.add_table(
        "inputs",
        table,
        "The inputs on which each section measured; interval: half the widest 95% interval of a share.",
        {"interval": lambda margin: words.at_most(margin, 3)},
    )


def describe_inputs(sampled: int, sections: int) -> str:
    """Say how many sections measured on a sample, and what that means for their shares."""
    if not sampled:
        return "These sections used all inputs, so there is no sampling error."
    if sampled == sections:
        return "These sections used a data set or a seeded sample, so their shares have 95% intervals."
    single = sampled == 1
    return (
        f"{words.counted(sampled, 'section')} of {sections} used a data set or a seeded sample, so "
        f"{'its' if single else 'their'} shares have 95% intervals; the "
        f"{'others' if sections - sampled > 1 else 'other'} used all inputs."
    )


def inputs_of(study: Study, made: Collection[str]) -> pd.DataFrame:
    """Return a table of the sections that were made and chose inputs, and these."""
    titles = {candidate.name: candidate.title for candidate in all_sections()}
    rows = [
        (titles.get(name, name), inputs.on.removeprefix("on "), inputs.margin)
        for name, inputs in study.populations.items()
        if name in made
    ]
    return pd.DataFrame(rows, columns=["section", "inputs", "interval"])


WIDEST, MOST_HEADS = 40, 32


def needs_heads(study: Study) -> str | None:
    """Require few enough heads and tokens to draw."""
    heads = study.model.cfg.n_heads * study.model.cfg.n_layers
    if heads > MOST_HEADS:
        return f"the patterns of {heads} heads are too many to draw"
    batch = study.task.example
    if batch is None:
        return f"task {study.task.name} gives no example"
    length = int(batch.lengths[0])
    if length == 1:
        return "the example is a single token, so heads have nothing else to attend to"
    if study.spec is not None and study.spec.max_length is not None and length > WIDEST:
        return f"the shortest example has {length} tokens, too many to draw"
    return None


@section("example", title="Attention on one input", order=450, block="where", needs=needs_heads)
def example_attention(study: Study, report: Report) -> None:
    """Show the attention patterns of every layer and head."""
    batch = study.task.example
    assert batch is not None
    width = min(WIDEST, int(batch.lengths[0]))
    if study.spec is not None and study.spec.max_length is not None:
        width = batch.tokens.shape[1]  # linear mixing has weights for one length
    tokens = batch.tokens[:, :width]
    short = Batch(tokens, batch.lengths.clamp(max=width), batch.labels)
    shown = min(width, int(short.lengths[0]))  # without padding
    words = [f"{i}: {study.task.vocabulary[int(t)]}" for i, t in enumerate(tokens[0, :shown])]
    report.heading("Attention on one input", f"The input is {study.task.format(tokens[0, :shown])}.")
    patterns = attention_patterns(study.subject, short).weights[0, :, :, :shown, :shown]
    heads = [f"{layer}.{head}" for layer in range(len(patterns)) for head in range(patterns.shape[1])]
    kind = weights(study)
    figure = draw.circuit(
        tidy(patterns, "value", head=heads, query=words, key=words), color_title=kind, shares=kind == WEIGHT
    )
    report.add_figure(
        "attention_example",
        inputs(figure, "tokens", token_ids(tokens[0].tolist())),
        "Rows: the query token; columns: the token it attends to; heads of all layers.",
    )
