"""interp: take small transformers apart. What does a model compute, how, and can that be proved?

The names below load what they need on first use: importing interp imports neither torch nor transformer_lens.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_PUBLIC = {
    "Batch": "interp.tasks",
    "Certificate": "interp.certificates",
    "InterpError": "interp.errors",
    "Layer": "interp.spec",
    "ModelSpec": "interp.spec",
    "Pairs": "interp.tasks",
    "Report": "interp.report",
    "Task": "interp.tasks",
    "TaskModel": "interp.architecture.task_model",
    "TaskRef": "interp.spec",
    "Training": "interp.spec",
    "ablate_heads": "interp.measures.ablation",
    "analyze": "interp._analyze",
    "build": "interp.zoo",
    "certify": "interp._analyze",
    "head_metrics": "interp.measures.heads",
    "list_models": "interp.listing",
    "list_sections": "interp._analyze",
    "list_tasks": "interp.listing",
    "live": "interp.sections.live",
    "load": "interp.zoo",
    "register_task": "interp.tasks",
    "reweight_attention": "interp.measures.interventions",
    "save": "interp.zoo",
    "section": "interp.sections",
    "sweep": "interp.sweeps.sweep",
    "test_circuit": "interp.measures.faithfulness",
    "train": "interp.training.train",
}
_ROOMS = (
    "architecture",
    "certificates",
    "constructions",
    "measures",
    "report",
    "sections",
    "spec",
    "sweeps",
    "tasks",
    "theory",
    "training",
)

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("interp")
    if name in _PUBLIC:
        value = getattr(importlib.import_module(_PUBLIC[name]), name)
        globals()[name] = value
        return value
    if name in _ROOMS:
        return importlib.import_module(f"interp.{name}")
    raise AttributeError(f"module 'interp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *_ROOMS, "__version__"]


if TYPE_CHECKING:
    from interp._analyze import analyze as analyze
    from interp._analyze import certify as certify
    from interp._analyze import list_sections as list_sections
    from interp.architecture.task_model import TaskModel as TaskModel
    from interp.certificates import Certificate as Certificate
    from interp.errors import InterpError as InterpError
    from interp.listing import list_models as list_models
    from interp.listing import list_tasks as list_tasks
    from interp.measures.ablation import ablate_heads as ablate_heads
    from interp.measures.faithfulness import test_circuit as test_circuit
    from interp.measures.heads import head_metrics as head_metrics
    from interp.measures.interventions import reweight_attention as reweight_attention
    from interp.report import Report as Report
    from interp.sections import section as section
    from interp.sections.live import live as live
    from interp.spec import Layer as Layer
    from interp.spec import ModelSpec as ModelSpec
    from interp.spec import TaskRef as TaskRef
    from interp.spec import Training as Training
    from interp.sweeps.sweep import sweep as sweep
    from interp.tasks import Batch as Batch
    from interp.tasks import Pairs as Pairs
    from interp.tasks import Task as Task
    from interp.tasks import register_task as register_task
    from interp.training.train import train as train
    from interp.zoo import build as build
    from interp.zoo import load as load
    from interp.zoo import save as save
