"""Messages about diverged runs (NaN or infinite), for `interp.train`, the command line and sweeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING

from interp.errors import InterpError
from interp.spec import ModelSpec
from interp.training.engines.base import Engine
from interp.training.state import RunState

if TYPE_CHECKING:
    from interp.architecture.task_model import TaskModel


class Diverged(InterpError):
    """Raised if seeds end with a loss or weights that are not finite.

    models: the models of the other seeds, in order. The constructor's `lost` has the message of `divergence` by seed.
    """

    def __init__(self, spec: ModelSpec, lost: Mapping[int, str], models: Sequence[TaskModel]) -> None:
        seed, said = next(iter(lost.items()))
        many = f"; so did seeds {', '.join(map(str, [*lost][1:]))}" if len(lost) > 1 else ""
        others = "the other one" if len(models) == 1 else f"the {len(models)} others"
        rest = f"; this error's .models holds {others}" if models else ""
        super().__init__(f"seed {seed} of {spec.id} {said}{many}{rest}")
        self.models = list(models)


def divergence(engine: Engine, run: RunState, index: int) -> str | None:
    """Return a message if a model's last loss or its weights are not finite, otherwise None."""
    seed, weights = engine.seeds[index], engine.parameters().values()
    losses = [(row["epoch"], row["loss"]) for row in run.history if row["seed"] == seed and row["epoch"] > 0]
    finite = all(bool(tensor[index].isfinite().all()) for tensor in weights)
    if finite and (not losses or isfinite(losses[-1][1])):
        return None
    when = [f"its loss is {loss} after epoch {epoch}" for epoch, loss in losses if not isfinite(loss)][:1]
    what = ", and ".join([*when, *["its weights are not finite"] * (not finite)])
    return f"diverged: {what}; the learning rate is {engine.recipe.learning_rate:g}"
