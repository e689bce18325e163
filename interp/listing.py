"""Tables of the available models and tasks."""

from __future__ import annotations

import csv
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from interp.architecture.checkpoint import read_header
from interp.architecture.parameters import parameter_shapes
from interp.constructions import construct, registered_constructions
from interp.errors import InterpError, quoted
from interp.model_files import SPEC_FILE, Folder, default_checkpoint, folders, shipped_root, zoo_table
from interp.programs import compile as compile  # registers compiled programs and their task
from interp.spec import ModelSpec
from interp.tasks import Task, make_task, registered_tasks

if TYPE_CHECKING:
    import pandas as pd


def list_models() -> pd.DataFrame:
    """List all models, one row per model: exact ones with default sizes, trained ones with their default checkpoint.

    Columns: name, family, task, kind (exact or trained), state, parameters (their number), seeds (of the checkpoints),
    about, path, and the summary of the default checkpoint (accuracy, ...). state: the status of the certificate of a
    model shipped with interp (proved, refuted or undecided), "measured" without a certificate, "" without weights. If a
    folder cannot be read, its `about` gives the reason.

    Example:

        >>> models = interp.list_models().set_index("name")
        >>> models.loc[["count01/minimal", "count01/paper"], "kind"].tolist()
        ['exact', 'trained']
    """
    import pandas as pd

    exact = registered_constructions()
    # A folder with an exact model's name has the same spec as TOML.
    states = _states()
    rows = [_exact_row(name) for name in exact] + [_trained_row(f) for f in folders() if f.name not in exact]
    for row in rows:
        own = row["path"] and not Path(row["path"]).is_relative_to(shipped_root())
        certified = states.get((row["name"], row.pop("checkpoint", "")), "measured")
        there = bool(row["seeds"]) or (row["kind"] == "exact" and "task" in row)
        row["state"] = "" if not there else "measured" if own else certified
    columns = ["name", "family", "task", "kind", "state", "parameters", "seeds", "about", "path"]
    table = pd.DataFrame(rows, columns=[*columns, *sorted({key for row in rows for key in row} - set(columns))])
    return table.astype({"parameters": "Int64"}).sort_values(["family", "name"], ignore_index=True)


STATES = {"certified": "proved", "refuted": "refuted", "undecided": "undecided"}


def _states() -> dict[tuple[str, str], str]:
    """Read the certificate status of shipped models by name and checkpoint ("" for all variants of exact models)."""
    path = shipped_root() / "certificates.csv"
    found: dict[tuple[str, str], str] = {}
    if not path.is_file():
        return found
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            key = row["name"], "" if row["kind"] == "exact" else row["variant"]
            state = STATES.get(row["status"], "measured")
            found[key] = state if found.get(key, state) == state else "refuted"
    return found


def _exact_row(name: str) -> dict[str, Any]:
    entry = registered_constructions()[name]
    row: dict[str, Any] = {
        "name": name,
        "family": name.split("/")[0],
        "kind": "exact",
        "seeds": (),
        "about": entry.summary,
        "path": "",
    }
    if inspect.Parameter.empty not in entry.sizes.values():  # some need the user's table
        made = construct(name)
        row |= {"task": made.spec.task.name, "parameters": _size(made.spec, made.task)}
    return row


def _trained_row(folder: Folder) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": folder.name,
        "family": folder.name.split("/")[0],
        "kind": "trained",
        "seeds": (),
        "path": str(folder.path),
    }
    try:
        zoo, spec = zoo_table(folder.path), ModelSpec.from_toml(folder.path / SPEC_FILE)
        row |= {"task": spec.task.name, "about": str(zoo.get("summary", ""))}
        if spec.task.table_sha256 is None:
            row["parameters"] = _size(spec, make_task(spec.task))
        headers = {file: read_header(file) for file in folder.checkpoints}
        row["seeds"] = tuple(header.seed for header in headers.values())
        if headers:
            row["checkpoint"] = default_checkpoint(folder.path).stem
            facts = headers[default_checkpoint(folder.path)].summary
            row |= {
                key: value for key, value in facts.items() if key not in row and isinstance(value, int | float | str)
            }
    except InterpError as error:
        row["about"] = str(error)
    return row


def _size(spec: ModelSpec, task: Task) -> int:
    """Count the parameters."""
    return sum(torch.Size(shape).numel() for shape in parameter_shapes(spec, task).values())


def list_tasks() -> pd.DataFrame:
    """List all registered tasks.

    Columns: name, family, tokens (size of the vocabulary), outputs, readout, splits, parameters (name = default),
    about. Tokens and outputs are missing if they depend on the user's table.

    Example:

        >>> tasks = interp.list_tasks().set_index("name")
        >>> tasks.loc["count01", ["family", "readout"]].tolist()
        ['count01', '=']
    """
    import pandas as pd

    rows = []
    for name, kind in registered_tasks().items():
        task = None if kind.needs_tables else kind()
        rows.append(
            {
                "name": name,
                "family": kind.family,
                "tokens": task.d_vocab if task else pd.NA,
                "outputs": task.n_out if task else pd.NA,
                "readout": kind.readout,
                "splits": ", ".join(kind.splits),
                "parameters": ", ".join(f"{key} = {quoted(value)}" for key, value in kind.defaults.items()),
                "about": (kind.__doc__ or "").strip().split("\n", 1)[0],
            }
        )
    table = pd.DataFrame(rows).astype({"tokens": "Int64", "outputs": "Int64"})
    return table.sort_values(["family", "name"], ignore_index=True)
