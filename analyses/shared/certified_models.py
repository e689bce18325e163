"""The models that are asked for, one after another, each with its certificate as a row of a table."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from shared.script import Arguments

import interp
from interp.certificates import Certificate, plan
from interp.errors import UnsupportedError
from interp.measures.accuracy import accuracy
from interp.models.architecture.task_model import TaskModel
from interp.models.constructions import registered_constructions


def models(arguments: Arguments) -> Iterator[tuple[str, str, str, TaskModel]]:
    """Name, variant or checkpoint, kind and model of everything that is asked for."""
    table, asked = interp.list_models().set_index("name"), arguments.checkpoints
    # Compiled programs are made from a user's program: they are certified by name alone.
    names = [name for name in table.index if not name.startswith("programs/")] if asked == ("all",) else list(asked)
    exact = registered_constructions()
    if asked == ("all",) and arguments.mode == "smoke":  # the first exact and the first trained one of each folder
        names = list({(name.split("/")[0], name in exact): name for name in reversed(names)}.values())
    for name in names:
        if name in exact:
            if pd.isna(table.loc[name, "parameters"]):
                continue  # built from a table of the user's own
            variants = tuple(v for v in exact[name].variants if v != "auto") or ("",)
            for variant in variants[:1] if arguments.mode == "smoke" else variants:
                yield name, variant, "exact", interp.build(name, variant=variant or None)
        elif name in table.index:
            seeds = table.loc[name, "seeds"]
            for seed in seeds[:1] if arguments.mode == "smoke" else seeds:
                yield name, f"seed-{seed}", "trained", interp.load(f"{name}/seed-{seed}")
        else:
            yield name, "", "trained", interp.load(name)


def certified(model: TaskModel, arguments: Arguments) -> Certificate | str:
    """The certificate, or why there is none."""
    budget = {"full": 10.0, "quick": 2.0, "smoke": 0.2}[arguments.mode]
    try:
        return plan(model).certificate(usual={"seconds": budget})
    except UnsupportedError as error:
        return str(error)


def row_of(
    name: str, variant: str, kind: str, model: TaskModel, found: Certificate | str, arguments: Arguments
) -> dict[str, object]:
    row: dict[str, object] = {"name": name, "variant": variant, "kind": kind}
    if kind != "exact":
        row["sampled"] = accuracy(model, n=arguments.pick(3000, 3000, 300)).accuracy
    if isinstance(found, str):
        return {**row, "status": "no method", "domain": found}
    low, high = found.accuracy if isinstance(found.accuracy, tuple) else (found.accuracy, found.accuracy)
    return {**row, **found.to_frame().iloc[0].to_dict(), "accuracy low": low, "accuracy high": high, **by_count(found)}


def by_count(found: Certificate) -> dict[str, str]:
    """Histogram models: which counts are right for every sequence, and which err?"""
    counts = found.tables.get("counts")
    if counts is None:
        return {}
    proved = counts.loc[counts["right"] == counts["inputs"], "count"]
    return {
        "proved counts": " ".join(map(str, proved)),
        "wrong counts": " ".join(map(str, counts.loc[counts["wrong"] > 0, "count"])),
    }
