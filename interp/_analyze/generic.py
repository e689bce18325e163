"""What every report holds, whatever the task: identity, accuracy with its certainty, an example's attention."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pandas as pd
import torch

from interp._lens import HookedTransformer
from interp.architecture.task_model import TaskModel
from interp.certificates import Certificate, certify_model
from interp.errors import UnsupportedError
from interp.measures.accuracy import sampled_accuracy
from interp.measures.subject import Subject
from interp.report import Report
from interp.report import figures as draw
from interp.spec import Construction, Training


def name_of(model: HookedTransformer) -> str:
    """A model that came without a name."""
    return f"{model.spec.id}, seed {model.seed}" if isinstance(model, TaskModel) else "a HookedTransformer of your own"


def subtitle(subject: Subject) -> str:
    """One line on the task and the architecture."""
    cfg = subject.model.cfg
    heads = f"{cfg.n_layers} layer{'s' * (cfg.n_layers > 1)}, {cfg.n_heads} head{'s' * (cfg.n_heads > 1)}"
    return f"task {subject.task.name} · {heads} of dimension {cfg.d_head} · residual stream of {cfg.d_model}"


def metadata(subject: Subject) -> dict[str, str]:
    """Where the model comes from."""
    found = {"interp": version("interp"), "torch": torch.__version__}
    if isinstance(subject.model, TaskModel):
        spec = subject.model.spec
        found = {"spec": spec.id, "seed": str(subject.model.seed), **found}
        if isinstance(spec.origin, Construction):
            found["origin"] = f"construction {spec.origin.name} {spec.origin.variant}".strip()
        elif isinstance(spec.origin, Training):
            recipe = spec.origin
            found["origin"] = f"trained {recipe.epochs} epochs, {recipe.optimizer} {recipe.learning_rate:g}"
    return found


def certificate_of(subject: Subject) -> Certificate | str:
    """The certificate, or the reason why there is none."""
    if not isinstance(subject.model, TaskModel):
        return "A HookedTransformer of your own has no spec that says what its outputs depend on"
    try:
        return certify_model(subject.model)
    except UnsupportedError as error:
        return str(error)


def add_accuracy(report: Report, subject: Subject) -> dict[str, Any]:
    """The section on accuracy: a certificate where a method holds, else a sample with its confidence interval."""
    found = certificate_of(subject)
    if isinstance(found, Certificate):
        report.section("Accuracy on every input", f"{found.method}; domain: {found.domain}.")
        report.add_table("certificate", found.to_frame(), "Nothing is sampled: every input of the domain is covered.")
        return {"accuracy": found.accuracy, "certificate": found.status, "exact": True}
    sample = sampled_accuracy(subject)
    report.section("Accuracy on a sample", f"Not exact: {found}.")
    report.add_table("accuracy", sample.to_frame(), f"{sample.n:,} sampled inputs; the interval is Wilson's, 95%.")
    return {"accuracy": sample.accuracy, "certificate": "none", "exact": False}


def add_attention(report: Report, subject: Subject) -> None:
    """One short input's attention pattern, head by head."""
    batch = subject.task.sample(20, subject.task.splits[-1], seed=0)
    row = int(batch.lengths.argmin())
    tokens = batch.tokens[row : row + 1, : min(40, int(batch.lengths[row]))]
    if isinstance(subject.model, TaskModel) and subject.model.spec.max_length is not None:
        tokens = batch.tokens[row : row + 1]
    with torch.no_grad():
        _, cache = subject.model.run_with_cache(subject.inputs(tokens))
    words = [f"{i}: {subject.task.vocabulary[int(t)]}" for i, t in enumerate(tokens[0])]
    report.section("Attention on one input")
    for layer in range(subject.model.cfg.n_layers):
        pattern = cache["pattern", layer][0].double()
        frame = pd.DataFrame(
            [
                {"head": head, "query": words[q], "key": words[k], "value": float(pattern[head, q, k])}
                for head in range(pattern.shape[0])
                for q in range(len(words))
                for k in range(len(words))
            ]
        )
        report.add_figure(
            f"attention_layer_{layer}",
            draw.circuit(frame, color_title="attention weight"),
            f"Rows: the token that looks; columns: the token it looks at (layer {layer}, one input).",
        )


def fill(report: Report, subject: Subject) -> dict[str, Any]:
    """The report of a task that has no study of its own."""
    row = add_accuracy(report, subject)
    share = f"{row['accuracy']:.4f}" if isinstance(row["accuracy"], float) else f"in {row['accuracy']}"
    report.verdict = f"Accuracy {share}, {'exact' if row['exact'] else 'measured on a sample'}."
    add_attention(report, subject)
    return row
