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

OPTIONS: dict[str, dict[str, Any]] = {"histogram": {"budget_seconds": 4.0}}
"""Certificates that search take less time in a report than by themselves, by the task's name."""


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
        return certify_model(subject.model, **OPTIONS.get(subject.task.name, {}))
    except UnsupportedError as error:
        return str(error)


def add_accuracy(report: Report, subject: Subject, found: Certificate | str | None = None) -> dict[str, Any]:
    """The section on accuracy and the verdict on it: a certificate where a method holds, else a sample.

    found: the certificate or why there is none, where it is known already.
    """
    found = certificate_of(subject) if found is None else found
    if isinstance(found, Certificate):
        report.verdict = accuracy_sentence(found)
        report.section("Accuracy on every input", report.verdict)
        report.add_table("certificate", _as_rows(found), f"The certificate, by {found.method}.")
        if "counts" in found.tables:
            report.add_table(
                "certificate_counts",
                found.tables["counts"],
                "Pairs of a sequence and a position by the count that is right there: proved right, proved wrong, "
                "right but within rounding (close), too near to tell (tied), and undecided when the time was up.",
            )
        return {"accuracy": _share(found), "certificate": found.status, "exact": isinstance(found.accuracy, float)}
    sample = sampled_accuracy(subject)
    report.section("Accuracy on a sample", f"Not exact: {found}.")
    report.add_table("accuracy", sample.to_frame(), f"{sample.n:,} sampled inputs; the interval is Wilson's, 95%.")
    report.verdict = f"Accuracy {sample.accuracy:.4f}, measured on a sample of {sample.n:,} inputs."
    return {"accuracy": sample.accuracy, "certificate": "none", "exact": False}


def accuracy_sentence(found: Certificate) -> str:
    """What a certificate says, in words."""
    if found.status == "certified":
        return f"Proved right on every input: {found.domain}."
    what = "over every input in exact arithmetic" if found.status == "undecided" else "over every input"
    wrong = f" For example, it is wrong at {found.counterexample}." if found.counterexample else ""
    if isinstance(found.accuracy, float):
        return f"Accuracy exactly {found.accuracy:.6g} {what}: {found.domain}.{wrong}"
    low, high = found.accuracy
    return f"Accuracy between {low:.6g} and {high:.6g} {what}: {found.domain}.{wrong}"


def _share(found: Certificate) -> float | str:
    """Exact accuracy as a number, an interval in words."""
    return found.accuracy if isinstance(found.accuracy, float) else "{:.6g} to {:.6g}".format(*found.accuracy)


def _as_rows(found: Certificate) -> pd.DataFrame:
    """A certificate as two columns, which fit on a narrow screen."""
    row = found.to_frame().iloc[0].drop("model")
    row["accuracy"] = _share(found)
    named = [(name.replace("_", " "), _said(value)) for name, value in row.items() if value is not None]
    return pd.DataFrame([*named, *(("note", note) for note in found.notes)], columns=["property", "value"])


def _said(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


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
    add_attention(report, subject)
    return row
