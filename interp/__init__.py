"""interp: find out what small transformers compute, and how, and prove it.

Load and build
    load, build, save, list_models, list_tasks, Task, register_task, Batch, ModelSpec, Layer, Training,
    check_conversion
Measure: each takes a model and inputs as text, tokens or a batch; the result has .to_frame() and .plot()
    accuracy, direct_logit_attribution, logit_lens, activation_patching, path_patching, ablate, ablate_heads,
    attention_patterns, head_types, head_metrics, attention_ratios, reweight_attention, probe, singular_values,
    composition_scores, copying_scores
Explain
    find_circuit, evaluate_circuit, Hypothesis, Variable, evaluate_hypothesis, explain, learn_automaton, compile,
    compare
Prove
    certify
Train
    train, sweep
Report
    analyze, section, live

InterpError is raised for bad input. docs/from_transformerlens.md maps TransformerLens to these calls, and
docs/from_the_paper.md maps the figures and tables of four papers.
The public names are imported on first use: importing interp imports neither torch nor transformer_lens.
"""

from typing import TYPE_CHECKING, Any

from interp.support.exports import exports

_ROOMS = {
    "report.analyze": "analyze certify explain",
    "errors": "InterpError",
    "programs.explanations.automata": "learn_automaton",
    "models.listing": "list_models list_tasks",
    "measures.ablation": "ablate ablate_heads",
    "measures.accuracy": "accuracy",
    "measures.attention": "attention_patterns",
    "measures.attention_ratios": "attention_ratios reweight_attention",
    "measures.circuits": "composition_scores copying_scores singular_values",
    "measures.components": "direct_logit_attribution logit_lens",
    "measures.edges": "path_patching",
    "measures.faithfulness": "evaluate_circuit find_circuit",
    "measures.head_types": "head_types",
    "measures.heads": "head_metrics",
    "measures.hypothesis": "Hypothesis Variable",
    "measures.hypothesis_scores": "evaluate_hypothesis",
    "measures.patching": "activation_patching",
    "measures.variables": "probe",
    "programs.compile": "compile",
    "programs.many.compare": "compare",
    "models.readers.models": "check_conversion",
    "report.sections": "section",
    "report.sections.live": "live",
    "models.spec": "Layer ModelSpec Training",
    "training.sweeps.sweep": "sweep",
    "tasks": "Batch Task register_task",
    "training.train": "train",
    "models.zoo": "build load save",
}
"""The public names of each file."""
_RETURNED = {
    "Certificate": "certificates",
    "Explanation": "programs.explanations",
    "Report": "report",
    "TaskModel": "models.architecture.task_model",
}
"""Classes of what these functions return, for annotations; nobody makes one."""

__all__ = sorted(name for names in _ROOMS.values() for name in names.split())
_find, _ = exports(__name__, _ROOMS | {file: name for name, file in _RETURNED.items()})


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("interp")
    value = globals()[name] = _find(name)
    return value


def __dir__() -> list[str]:
    return [*__all__]


if TYPE_CHECKING:
    from interp.certificates import Certificate as Certificate
    from interp.errors import InterpError as InterpError
    from interp.measures.ablation import ablate as ablate
    from interp.measures.ablation import ablate_heads as ablate_heads
    from interp.measures.accuracy import accuracy as accuracy
    from interp.measures.attention import attention_patterns as attention_patterns
    from interp.measures.attention_ratios import attention_ratios as attention_ratios
    from interp.measures.attention_ratios import reweight_attention as reweight_attention
    from interp.measures.circuits import composition_scores as composition_scores
    from interp.measures.circuits import copying_scores as copying_scores
    from interp.measures.circuits import singular_values as singular_values
    from interp.measures.components import direct_logit_attribution as direct_logit_attribution
    from interp.measures.components import logit_lens as logit_lens
    from interp.measures.edges import path_patching as path_patching
    from interp.measures.faithfulness import evaluate_circuit as evaluate_circuit
    from interp.measures.faithfulness import find_circuit as find_circuit
    from interp.measures.head_types import head_types as head_types
    from interp.measures.heads import head_metrics as head_metrics
    from interp.measures.hypothesis import Hypothesis as Hypothesis
    from interp.measures.hypothesis import Variable as Variable
    from interp.measures.hypothesis_scores import evaluate_hypothesis as evaluate_hypothesis
    from interp.measures.patching import activation_patching as activation_patching
    from interp.measures.variables import probe as probe
    from interp.models.architecture.task_model import TaskModel as TaskModel
    from interp.models.listing import list_models as list_models
    from interp.models.listing import list_tasks as list_tasks
    from interp.models.readers.models import check_conversion as check_conversion
    from interp.models.spec import Layer as Layer
    from interp.models.spec import ModelSpec as ModelSpec
    from interp.models.spec import Training as Training
    from interp.models.zoo import build as build
    from interp.models.zoo import load as load
    from interp.models.zoo import save as save
    from interp.programs.compile import compile as compile
    from interp.programs.explanations import Explanation as Explanation
    from interp.programs.explanations.automata import learn_automaton as learn_automaton
    from interp.programs.many.compare import compare as compare
    from interp.report import Report as Report
    from interp.report.analyze import analyze as analyze
    from interp.report.analyze import certify as certify
    from interp.report.analyze import explain as explain
    from interp.report.sections import section as section
    from interp.report.sections.live import live as live
    from interp.tasks import Batch as Batch
    from interp.tasks import Task as Task
    from interp.tasks import register_task as register_task
    from interp.training.sweeps.sweep import sweep as sweep
    from interp.training.train import train as train
