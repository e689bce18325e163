"""Options that several commands share, and their conversion from text to Python values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interp.errors import InterpError, quoted, short

if TYPE_CHECKING:
    from interp.tasks import Task

TaskOption = Annotated[
    str, typer.Option("--task", help="Task of an external model, e.g. parity, or with parameters: histogram:T=8,L=4.")
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="TransformerLens config of an external model: a JSON or TOML file.")
]
TokensOption = Annotated[
    str,
    typer.Option("--tokens", help='The model\'s id of each token of the task: a JSON file, or text: {"a": 0, "b": 1}.'),
]
OutputsOption = Annotated[
    str, typer.Option("--outputs", help="The model's output for each answer of the task: a JSON file or text.")
]
PaddingOption = Annotated[
    str, typer.Option("--padding", help="How a bidirectional model treats padding: mask or attend.")
]
InputsOption = Annotated[
    int | None, typer.Option("--inputs", help="Number of inputs to measure on (all, if there are fewer).")
]
SecondsOption = Annotated[
    float | None, typer.Option("--seconds", help="Work per section, in seconds of a nominal core; sets the inputs.")
]


def foreign(task: str, config: Path | None, tokens: str, outputs: str, padding: str) -> dict[str, Any]:
    """Collect the given options for external models as keyword arguments of analyze, certify and list_sections."""
    found: dict[str, Any] = {}
    if task:
        found["task"] = read_task(task)
    if config is not None:
        found["config"] = config
    if tokens:
        found["tokens"] = read_ids("--tokens", tokens)
    if outputs:
        found["outputs"] = read_ids("--outputs", outputs)
    if padding not in ("mask", "attend"):
        raise InterpError(f"--padding {padding}: give mask or attend")
    return found | ({"padding": padding} if padding != "mask" else {})


def read_task(text: str) -> Task | str:
    """Convert text like "histogram:T=8,L=4" to a task, or return a name without parameters."""
    name, _, given = text.partition(":")
    if not given:
        return name
    from interp.models.spec import TaskRef
    from interp.tasks import make_task, registered_tasks

    defaults = registered_tasks()[name].defaults if name in registered_tasks() else {}
    parameters: dict[str, Any] = {}
    for pair in given.split(","):
        key, equals, value = (part.strip() for part in pair.partition("="))
        words = isinstance(defaults.get(key), str)  # keep the token "0" as text; it may be empty
        if not (key and equals and (value or words)):
            raise InterpError(f"--task {short(text)}: give parameters as NAME=VALUE, such as histogram:T=8,L=4")
        parameters[key] = value if words else _scalar(value)
    seed = parameters.pop("data_seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise InterpError(f"--task {short(text)}: data_seed = {seed!r} must be an integer")
    return make_task(TaskRef(name=name, parameters=tuple(sorted(parameters.items())), data_seed=seed))


def _scalar(text: str) -> int | float | bool | str:
    """Convert text to a number or a bool if possible."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def read_ids(option: str, text: str) -> dict[str, int]:
    """Read words and ids from JSON text or a JSON file."""
    source = text
    if not text.lstrip().startswith("{"):
        try:
            source = Path(text).expanduser().read_text("utf-8")
        except (OSError, ValueError, RuntimeError):
            raise InterpError(
                f'{option} {short(text)}: no such JSON file; give a file, or the JSON text itself, such as {{"a": 0}}'
            ) from None
    try:
        found = json.loads(source)
    except (ValueError, RecursionError):
        raise InterpError(f'{option} {short(text)}: this is not JSON; write {{"a": 0, "b": 1}}') from None
    if not isinstance(found, dict) or not all(type(value) is int for value in found.values()):
        raise InterpError(f"{option}: {quoted(found)} must be a JSON object of integers, such as {{'a': 0, 'b': 1}}")
    return found
