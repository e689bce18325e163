"""The state of a training run on disk, for resuming: engine state, snapshots and history.

It is one safetensors file, replaced atomically. Reading it executes no code.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from interp.errors import InterpError
from interp.files import write_atomically

FILE = "training-state.safetensors"


@dataclass
class RunState:
    """Completed epochs, the engine's tensors, snapshots by epoch (stacked parameters), and history rows."""

    epoch: int = 0
    engine: dict[str, Tensor] = field(default_factory=dict)
    snapshots: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)


def save_state(folder: Path, key: dict[str, Any], run: RunState) -> None:
    """Write a run's state. key: identifies the run (spec id, seeds, engine, dtype)."""
    tensors = {f"engine/{name}": tensor for name, tensor in run.engine.items()}
    for epoch, parameters in run.snapshots.items():
        tensors |= {f"snapshot/{epoch}/{name}": tensor for name, tensor in parameters.items()}
    header = {"key": key, "epoch": run.epoch, "history": run.history}
    data = save({n: t.detach().cpu().contiguous() for n, t in tensors.items()}, {"interp": json.dumps(header)})
    write_atomically(folder / FILE, data)


def load_state(folder: Path, key: dict[str, Any]) -> RunState | None:
    """Read the state of the run `key` from a folder, if any. Raises InterpError for another run's or a bad file."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads(file.metadata()["interp"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise InterpError(f"{path} is not a training state of interp ({error}); remove it to start anew") from None
    if header["key"] != key:
        different = [name for name in key if header["key"].get(name) != key[name]]
        raise InterpError(
            f"{path} belongs to another run: {different[0]} was {header['key'].get(different[0])!r}, "
            f"now {key[different[0]]!r}; choose another folder or remove it"
        )
    run = RunState(epoch=header["epoch"], history=header["history"])
    for name, tensor in tensors.items():
        kind, rest = name.split("/", 1)
        if kind == "engine":
            run.engine[rest] = tensor
        else:
            epoch, parameter = rest.split("/", 1)
            run.snapshots.setdefault(int(epoch), {})[parameter] = tensor
    return run


def saved_engine(folder: Path) -> str | None:
    """Return the engine that began the run in a folder, or None if there is no readable run."""
    try:
        with safe_open(folder / FILE, framework="pt") as file:
            name = json.loads(file.metadata()["interp"])["key"]["engine"]
    except (OSError, SafetensorError, KeyError, TypeError, json.JSONDecodeError):
        return None
    return str(name)


def run_key(spec_id: str, seeds: Sequence[int], engine: str, dtype: str, snapshots: Sequence[int]) -> dict[str, Any]:
    """Return the key that must match for a run to be continued."""
    return {"spec": spec_id, "seeds": list(seeds), "engine": engine, "dtype": dtype, "snapshots": sorted(snapshots)}
