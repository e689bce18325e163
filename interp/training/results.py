"""Saving the results of a training run: checkpoints, with a few kB of training curve in the final ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from interp.architecture.checkpoint import save_checkpoint
from interp.training.divergence import divergence
from interp.training.engines.base import Engine
from interp.training.state import RunState

COLUMNS = ("epoch", "loss", "accuracy")
MOST_POINTS = 100


def compact(history: pd.DataFrame) -> dict[str, list[float | None]]:
    """Keep at most 100 epochs including the first and the last, denser at the start, with 5 digits per number."""
    n = len(history)
    chosen = np.unique(np.geomspace(1, n, min(n, MOST_POINTS)).round().astype(int)) - 1
    # There is no loss before the first epoch, and JSON has no NaN.
    return {
        name: [None if value != value else float(f"{value:.5g}") for value in history[name].iloc[chosen]]
        for name in COLUMNS
    }


def save_run(engine: Engine, run: RunState, folder: Path) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """Write seed-N.safetensors, and seed-N/epoch-E.safetensors for each snapshot, of the seeds that did not diverge.

    Returns a row per final checkpoint, and the reason for each seed that was not saved.
    """
    epochs, rows, lost = pd.DataFrame(run.history), [], {}
    for index, seed in enumerate(engine.seeds):
        if (reason := divergence(engine, run, index)) is not None:
            lost[seed] = reason
            continue
        own, path = epochs[epochs["seed"] == seed], folder / f"seed-{seed}.safetensors"
        last = own.iloc[-1]
        summary: dict[str, Any] = {
            "epochs": int(last["epoch"]),
            "loss": float(last["loss"]),
            "accuracy": float(last["accuracy"]),
            "engine": engine.name,
        }
        every = {path: (engine.parameters(), summary | {"curve": compact(own)})}
        every |= {folder / f"seed-{seed}" / f"epoch-{epoch}.safetensors": (stacked, {"epochs": epoch})
                  for epoch, stacked in sorted(run.snapshots.items())}  # fmt: skip
        for file, (stacked, facts) in every.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            mine = {parameter: tensor[index] for parameter, tensor in stacked.items()}
            save_checkpoint(file, engine.spec, mine, seed, facts, engine.task)
        rows.append({"seed": seed, **summary, "checkpoint": str(path)})
    return rows, lost
