"""Tables of the available models and tasks.

What this package registers is stored in listed.json, so that a list needs neither torch nor the registries' imports. If
the registries are loaded or a plug-in is installed, they are asked instead, because they may hold more.
"""

from __future__ import annotations

import csv
import inspect
import json
import math
import sys
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.errors import InterpError, quoted
from interp.models.architecture.header import read_header
from interp.models.model_files import SPEC_FILE, Folder, default_checkpoint, folders, shipped_root, zoo_table
from interp.models.spec import ModelSpec
from interp.support.words import STATES

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]
ROOM = "interp.tasks"
"""Whatever registers something imports this; also the entry points of plug-ins (see tasks.registry)."""


def stored(what: str) -> Any:
    """Return the stored tasks, exact models or sections of this package; None if the registries may hold more."""
    return None if ROOM in sys.modules or entry_points(group=ROOM) else _file()[what]


@cache
def _file() -> dict[str, Any]:
    listed: dict[str, Any] = json.loads((Path(__file__).parent / "listed.json").read_text("utf-8"))
    return listed


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

    rows = model_rows()
    columns = ["name", "family", "task", "kind", "state", "parameters", "seeds", "about", "path"]
    table = pd.DataFrame(rows, columns=[*columns, *sorted({key for row in rows for key in row} - set(columns))])
    return table.astype({"parameters": "Int64"})


def model_rows() -> list[Row]:
    """Return the rows of list_models."""
    # A folder with an exact model's name has the same spec as TOML.
    states, exact = _states(), exact_rows() if (known := stored("exact")) is None else known
    rows = [{**row, "kind": "exact", "seeds": (), "path": ""} for row in exact]
    rows += [_trained_row(folder) for folder in folders() if folder.name not in {row["name"] for row in exact}]
    for row in rows:
        of_user = row["path"] and not Path(row["path"]).is_relative_to(shipped_root())
        certified = states.get((row["name"], row.pop("checkpoint", "")), "measured")
        there = bool(row["seeds"]) or (row["kind"] == "exact" and "task" in row)
        row["family"] = row["name"].split("/")[0]
        row["state"] = "" if not there else "measured" if of_user else certified
    return sorted(rows, key=lambda row: (row["family"], row["name"]))


def _states() -> dict[tuple[str, str], str]:
    """Read the certificate status of shipped models by name and checkpoint ("" for all variants of exact models)."""
    path = shipped_root() / "certificates.csv"
    states: dict[tuple[str, str], str] = {}
    if not path.is_file():
        return states
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            key = row["name"], "" if row["kind"] == "exact" else row["variant"]
            state: str = STATES.get(row["status"], "measured")
            states[key] = state if states.get(key, state) == state else "refuted"
    return states


def exact_rows() -> list[Row]:
    """Return name, summary, task and number of parameters of the registered constructions with default sizes."""
    from interp.models.constructions import construct, registered_constructions

    rows = []
    for name, entry in registered_constructions().items():
        row: Row = {"name": name, "about": entry.summary}
        if inspect.Parameter.empty not in entry.sizes.values():  # some need the user's table
            construction = construct(name)
            row |= {"task": construction.spec.task.name, "parameters": size_of(construction.spec)}
        rows.append(row)
    return rows


def _trained_row(folder: Folder) -> Row:
    row: Row = {"name": folder.name, "kind": "trained", "seeds": (), "path": str(folder.path)}
    try:
        zoo, spec = zoo_table(folder.path), ModelSpec.from_toml(folder.path / SPEC_FILE)
        row |= {"task": spec.task.name, "about": str(zoo.get("summary", ""))}
        if spec.task.table_sha256 is None:
            row["parameters"] = _file()["parameters"].get(spec.id) or size_of(spec)
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


def size_of(spec: ModelSpec) -> int:
    """Count the parameters."""
    from interp.models.architecture.parameters import parameter_shapes
    from interp.tasks import make_task

    return sum(map(math.prod, parameter_shapes(spec, make_task(spec.task)).values()))


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

    return pd.DataFrame(task_rows()).astype({"tokens": "Int64", "outputs": "Int64"})


def task_rows() -> list[Row]:
    """Return the rows of list_tasks."""
    return registered_rows() if (known := stored("tasks")) is None else known


def registered_rows() -> list[Row]:
    """Return the rows of the registered tasks."""
    from interp.models import constructions as constructions  # registers compiled programs and their task
    from interp.tasks import registered_tasks

    rows = []
    for name, kind in registered_tasks().items():
        task = None if kind.needs_tables else kind()
        rows.append(
            {
                "name": name,
                "family": kind.family,
                "tokens": task.d_vocab if task else None,
                "outputs": task.n_out if task else None,
                "readout": kind.readout,
                "splits": ", ".join(kind.splits),
                "parameters": ", ".join(f"{key} = {quoted(value)}" for key, value in kind.defaults.items()),
                "about": (kind.__doc__ or "").strip().split("\n", 1)[0],
            }
        )
    return sorted(rows, key=lambda row: (row["family"], row["name"]))
