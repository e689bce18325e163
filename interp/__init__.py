"""interp: find out what small transformers compute, and how, and prove it.

The public names are imported on first use: importing interp imports neither torch nor transformer_lens.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_PUBLIC = {
    "Batch": "interp.tasks",
    "Certificate": "interp.certificates",
    "Explanation": "interp.explanations",
    "Hypothesis": "interp.measures.hypothesis",
    "InterpError": "interp.errors",
    "Layer": "interp.spec",
    "ModelSpec": "interp.spec",
    "Report": "interp.report",
    "Task": "interp.tasks",
    "TaskModel": "interp.architecture.task_model",
    "Training": "interp.spec",
    "Variable": "interp.measures.hypothesis",
    "ablate_heads": "interp.measures.ablation",
    "analyze": "interp._analyze",
    "build": "interp.zoo",
    "certify": "interp._analyze",
    "compile": "interp.programs.compile",
    "explain": "interp._analyze",
    "check_conversion": "interp.readers.inspection",
    "head_metrics": "interp.measures.heads",
    "learn_automaton": "interp.explanations.automata",
    "list_models": "interp.listing",
    "list_tasks": "interp.listing",
    "live": "interp.sections.live",
    "load": "interp.zoo",
    "register_task": "interp.tasks",
    "reweight_attention": "interp.measures.interventions",
    "save": "interp.zoo",
    "section": "interp.sections",
    "sweep": "interp.sweeps.sweep",
    "evaluate_circuit": "interp.measures.faithfulness",
    "evaluate_hypothesis": "interp.measures.hypothesis_scores",
    "train": "interp.training.train",
}
_ROOMS = (
    "architecture",
    "certificates",
    "constructions",
    "explanations",
    "measures",
    "mechanisms",
    "programs",
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
    from interp._analyze import explain as explain
    from interp.architecture.task_model import TaskModel as TaskModel
    from interp.certificates import Certificate as Certificate
    from interp.errors import InterpError as InterpError
    from interp.explanations import Explanation as Explanation
    from interp.explanations.automata import learn_automaton as learn_automaton
    from interp.listing import list_models as list_models
    from interp.listing import list_tasks as list_tasks
    from interp.measures.ablation import ablate_heads as ablate_heads
    from interp.measures.faithfulness import evaluate_circuit as evaluate_circuit
    from interp.measures.heads import head_metrics as head_metrics
    from interp.measures.hypothesis import Hypothesis as Hypothesis
    from interp.measures.hypothesis import Variable as Variable
    from interp.measures.hypothesis_scores import evaluate_hypothesis as evaluate_hypothesis
    from interp.measures.interventions import reweight_attention as reweight_attention
    from interp.programs.compile import compile as compile
    from interp.readers.inspection import check_conversion as check_conversion
    from interp.report import Report as Report
    from interp.sections import section as section
    from interp.sections.live import live as live
    from interp.spec import Layer as Layer
    from interp.spec import ModelSpec as ModelSpec
    from interp.spec import Training as Training
    from interp.sweeps.sweep import sweep as sweep
    from interp.tasks import Batch as Batch
    from interp.tasks import Task as Task
    from interp.tasks import register_task as register_task
    from interp.training.train import train as train
    from interp.zoo import build as build
    from interp.zoo import load as load
    from interp.zoo import save as save
