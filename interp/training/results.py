"""What a training run leaves: its state on disk, from which it resumes, which models diverged, and checkpoints.

The state is one safetensors file, replaced atomically: the engine's tensors, snapshots and history. Reading it executes
no code. Final checkpoints have a few kB of training curve.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from interp.errors import InterpError
from interp.models.architecture.checkpoint import save_checkpoint
from interp.models.spec import ModelSpec
from interp.models.training_curves import compact
from interp.support.files import write_atomically
from interp.training.engines.engine import Engine

if TYPE_CHECKING:
    from interp.models.architecture.task_model import TaskModel

FILE = "training-state.safetensors"


@dataclass
class RunState:
    """Completed epochs, the engine's tensors, snapshots by epoch (stacked parameters), and history rows.

    The history has one row per model and epoch, from epoch 0 on, in the order of the engine's seeds.
    """

    epoch: int = 0
    engine: dict[str, Tensor] = field(default_factory=dict)
    snapshots: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)

    def of(self, engine: Engine, index: int) -> list[dict[str, Any]]:
        """Return one model's rows of the history: seed, epoch, loss and accuracy."""
        return self.history[index :: len(engine.seeds)]

    def summary(self, engine: Engine, index: int) -> dict[str, Any]:
        """Return what a model's checkpoint says of its training."""
        last = self.of(engine, index)[-1]
        return {"epochs": last["epoch"], "loss": last["loss"], "accuracy": last["accuracy"], "engine": engine.name}


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


class Diverged(InterpError):
    """Raised if seeds end with a loss or weights that are not finite.

    models: the models of the other seeds, in order. The constructor's `lost` has `describe_divergence`'s message by
    seed.
    """

    def __init__(self, spec: ModelSpec, lost: Mapping[int, str], models: Sequence[TaskModel]) -> None:
        seed, reason = next(iter(lost.items()))
        many = f"; so did seeds {', '.join(map(str, [*lost][1:]))}" if len(lost) > 1 else ""
        others = "the other one" if len(models) == 1 else f"the {len(models)} others"
        rest = f"; this error's .models holds {others}" if models else ""
        super().__init__(f"seed {seed} of {spec.id} {reason}{many}{rest}")
        self.models = list(models)


def describe_divergence(engine: Engine, run: RunState, index: int) -> str | None:
    """Return a message if a model's last loss or its weights are not finite, otherwise None."""
    weights = engine.parameters().values()
    losses = [(row["epoch"], row["loss"]) for row in run.of(engine, index) if row["epoch"] > 0]
    finite = all(bool(tensor[index].isfinite().all()) for tensor in weights)
    if finite and (not losses or isfinite(losses[-1][1])):
        return None
    when = [f"its loss is {loss} after epoch {epoch}" for epoch, loss in losses if not isfinite(loss)][:1]
    what = ", and ".join([*when, *["its weights are not finite"] * (not finite)])
    return f"diverged: {what}; the learning rate is {engine.recipe.learning_rate:g}"


def save_run(engine: Engine, run: RunState, folder: Path) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """Write seed-N.safetensors, and seed-N/epoch-E.safetensors for each snapshot, of the seeds that did not diverge.

    Returns a row per final checkpoint, and the reason for each seed that was not saved.
    """
    import pandas as pd

    rows, lost = [], {}
    for index, seed in enumerate(engine.seeds):
        if (reason := describe_divergence(engine, run, index)) is not None:
            lost[seed] = reason
            continue
        path, summary = folder / f"seed-{seed}.safetensors", run.summary(engine, index)
        every = {path: (engine.parameters(), summary | {"curve": compact(pd.DataFrame(run.of(engine, index)))})}
        every |= {folder / f"seed-{seed}" / f"epoch-{epoch}.safetensors": (stacked, {"epochs": epoch})
                  for epoch, stacked in sorted(run.snapshots.items())}  # fmt: skip
        for file, (stacked, facts) in every.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            mine = {parameter: tensor[index] for parameter, tensor in stacked.items()}
            save_checkpoint(file, engine.spec, mine, seed, facts, engine.task)
        rows.append({"seed": seed, **summary, "checkpoint": str(path)})
    return rows, lost
