"""Options that several commands share, and their conversion from text to Python values."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from functools import partial
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
DeviceOption = Annotated[str, typer.Option("--device", help="cpu or cuda.")]
DtypeOption = Annotated[str, typer.Option("--dtype", help="Number format to run in, e.g. float64.")]
LOADING: dict[str, tuple[Any, Any]] = {
    "task": ("", TaskOption), "config": (None, ConfigOption), "tokens": ("", TokensOption),
    "outputs": ("", OutputsOption), "padding": ("mask", PaddingOption), "device": ("cpu", DeviceOption),
    "dtype": ("", DtypeOption),
}  # fmt: skip
"""The options of every command that loads models: default and type."""

InputsOption = Annotated[
    int | None, typer.Option("--inputs", help="Number of inputs to measure on (all, if there are fewer).")
]
SecondsOption = Annotated[
    float | None, typer.Option("--seconds", help="Work per section, in seconds of a nominal core; sets the inputs.")
]


Loader = Callable[[str], Any]
"""Loads a model by name or path with the options of a command; without any, it returns the name."""


def loads_models(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of interp.load. Its parameter `load` becomes a function that loads with them."""
    signature = inspect.signature(command, eval_str=True)
    parameters = [parameter for name, parameter in signature.parameters.items() if name != "load"]
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (default, annotation) in LOADING.items()
    ]

    def run(**arguments: Any) -> None:
        options = {name: arguments.pop(name) for name in LOADING}
        command(load=partial(_loaded, options), **arguments)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    keyword = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    run.__signature__ = inspect.Signature([*keyword, *options])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in [*keyword, *options]}
    return run


def _loaded(options: Mapping[str, Any], name: str) -> Any:
    """Load a model with the options that are given, or return its name if none is."""
    import interp

    passed = {key: value for key, value in options.items() if value not in ("", None) and value != LOADING[key][0]}
    if "task" in passed:
        passed["task"] = read_task(passed["task"])
    for key in ("tokens", "outputs"):
        if key in passed:
            passed[key] = read_ids(f"--{key}", passed[key])
    if passed.get("padding") not in (None, "attend"):
        raise InterpError(f"--padding {passed['padding']}: give mask or attend")
    return interp.load(name, **passed) if passed else name


def read_task(text: str) -> Task | str:
    """Convert text like "histogram:T=8,L=4" to a task, or return a name without parameters."""
    name, _, settings = text.partition(":")
    if not settings:
        return name
    from interp.models.spec import TaskRef
    from interp.tasks import make_task, registered_tasks

    defaults = registered_tasks()[name].defaults if name in registered_tasks() else {}
    parameters: dict[str, Any] = {}
    for pair in settings.split(","):
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
        ids = json.loads(source)
    except (ValueError, RecursionError):
        raise InterpError(f'{option} {short(text)}: this is not JSON; write {{"a": 0, "b": 1}}') from None
    if not isinstance(ids, dict) or not all(type(value) is int for value in ids.values()):
        raise InterpError(f"{option}: {quoted(ids)} must be a JSON object of integers, such as {{'a': 0, 'b': 1}}")
    return ids
