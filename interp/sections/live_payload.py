"""The data of the live panel, from which the page runs the model itself.

It contains the weights in the model's own precision, a description of the forward pass, the task's tokens and answers,
right answers if known, and reference inputs with torch's logits, on which the page tests itself. Frames, sliders and
alphabets are inferred from samples and from the task's declarations, never from its name.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.architecture import plain
from interp.architecture.comparison import cast
from interp.architecture.task_model import TaskModel, standing_hooks
from interp.errors import InterpError, UnsupportedError
from interp.measures.generation import layout
from interp.measures.outputs import head_outputs
from interp.measures.separation import fit_separator
from interp.measures.subject import Subject
from interp.sections.live_inputs import KNOWN_INPUTS, Inputs
from interp.spec import Construction
from interp.tasks import Batch, Task

MAX_WEIGHT_BYTES = 2_000_000
"""Largest size of the weights for a panel, so that the page can still be sent by mail."""


def payload(subject: Subject, load: str | None = None) -> dict[str, Any]:
    """Return the panel's data. load: Python code that loads the model, for "copy as Python".

    Raises UnsupportedError, with the reason, if there is no panel: too many weights, modules that the page's forward
    pass does not support, or a task without samples.
    """
    model, task = subject.model, subject.task
    if names := standing_hooks(model):
        raise UnsupportedError(f"there is a hook at {names[0]}, and a page runs only models without hooks")
    arch = plain.describe(model)
    tensors = _in_task_order(subject, plain.weights(model))
    n_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    if n_bytes > MAX_WEIGHT_BYTES:
        raise UnsupportedError(
            f"the model has {n_bytes / 1e6:.1f} MB of weights, and a page carries at most {MAX_WEIGHT_BYTES / 1e6:.0f}"
        )
    inputs = Inputs(subject)
    tests = inputs.references()
    n_out = int(arch["n_out"]) if subject.output_ids is None else len(subject.output_ids)
    found = {
        "arch": {**arch, "n_out": n_out},
        "weights": {name: plain.pack(tensor) for name, tensor in tensors.items()},
        "task": _task(subject, inputs, n_out),
        "frame": inputs.frame,
        "examples": inputs.examples(),
        "tests": {
            "tokens": [row.tokens[0].tolist() for row in tests],
            "places": [subject.read_mask(row)[0].nonzero()[:, 0].tolist() for row in tests],
            "logits": plain.pack(_logits(subject, tests)),
        },
        "token_ids": None if subject.token_ids is None else subject.token_ids.tolist(),
        "load": load.splitlines() if load else _loading(subject),
        "proved": None,
        "counts": None,
        "table": _table(task),
        "generates": _generates(subject, inputs),
        # Inputs that grow: only for yes-or-no answers with a known rule, on inputs of any length.
        "lengths": inputs.readout != "all" and n_out == 1 and task.rule is not None and not arch["fixed_length"],
    }
    if arch["counts"] and subject.count_space:
        found["counts"] = counts(subject, inputs)
    return found


def _in_task_order(subject: Subject, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the parameters, with embeddings and outputs in the order of the task's tokens and answers."""
    found, ids, outs = dict(tensors), subject.token_ids, subject.output_ids
    if ids is not None:
        found["embed.W_E"] = found["embed.W_E"][ids]
    if outs is not None:
        found["unembed.W_U"] = found["unembed.W_U"][:, outs]
        if "unembed.b_U" in found:
            found["unembed.b_U"] = found["unembed.b_U"][outs]
    return found


def _task(subject: Subject, inputs: Inputs, n_out: int) -> dict[str, Any]:
    task, decision = subject.task, subject.decision
    inputs.check_rule()
    words = tuple(map(str, task.answer_words))
    return {
        "name": task.name,
        "vocabulary": list(task.vocabulary),
        "pad": task.pad_id,
        "readout": inputs.readout,
        "answers": [*words, *map(str, range(len(words), n_out))],
        "decision": decision.kind,
        "tolerance": decision.tolerance,
        "among": decision.among,
        "n_out": n_out,
        "rule": task.rule,
        "known": None if task.rule is not None else inputs.known(),
    }


def _generates(subject: Subject, inputs: Inputs) -> dict[str, Any] | None:
    """Return the start and end of generated answers, and each output's token; None if answers are not generated."""
    batch, declared = inputs.splits[-1], subject.task.generates
    found = layout(subject, batch)
    if isinstance(found, str):
        return None
    if declared is not None and isinstance(declared.start, str):
        start = {"token": subject.task.token_id(declared.start)}
    elif len(set(found.starts.tolist())) == 1:
        start = {"position": int(found.starts[0]) + 1}
    else:
        return None
    length = found.wanted.shape[1] if declared is None else declared.length
    return {"start": start, "stop": found.stop, "length": length, "tokens": found.tokens.tolist()}


def _table(task: Task) -> dict[str, Any] | None:
    """Return the distribution that the model should memorize, if the task has a conditional table."""
    conditional, contexts = getattr(task, "conditional", None), getattr(task, "contexts", None)
    if conditional is None or contexts is None or len(contexts) > KNOWN_INPUTS:
        return None
    values = torch.from_numpy(np.asarray(conditional, dtype=np.float32))
    return {"contexts": [list(map(int, context)) for context in contexts], "conditional": plain.pack(values)}


def _loading(subject: Subject) -> list[str]:
    """Return Python that builds this model if its spec determines it; otherwise a line for the reader to complete."""
    model = subject.model
    if isinstance(model, TaskModel) and isinstance(model.spec.origin, Construction) and not subject.task.tables():
        return [f"model = interp.build(interp.ModelSpec.from_dict({model.spec.to_dict()!r}))"]
    return ['model = interp.load("FILE.safetensors")  # the checkpoint of this page']


def _logits(subject: Subject, rows: list[Batch]) -> Float[Tensor, "reads n_out"]:
    """Return torch's logits at the positions that are read, row by row, so that nothing is padded."""
    if subject.model.cfg.dtype not in (torch.float32, torch.float64):
        # The page computes in double precision, so half-precision models must do so here.
        subject = replace(subject, model=cast(subject.model, torch.float64))
    return torch.cat([subject.logits(row) for row in rows]).double()


FITTED_ROWS = 2_000
"""Number of inputs to which planes and separators are fitted."""


def counts(subject: Subject, inputs: Inputs) -> dict[str, Any] | None:
    """Return a slider per token with a varying count, and each head's plane; None if sliders do not suit the inputs.

    sliders: token and largest count in any split. fixed: counts that are the same in every input.
    """
    if inputs.readout == "all":
        return None
    d_vocab = subject.task.d_vocab
    queries = {int(one.tokens[0, subject.answer_positions(one.tokens)[0]]) for one in inputs.batches}
    table = torch.stack([torch.bincount(row, minlength=d_vocab) for row in inputs.rows])
    least, most = table.amin(0), table.amax(0)
    varying = [token for token in range(d_vocab) if least[token] != most[token]]

    if len(queries) != 1 or not 2 <= len(varying) <= 6 or most[varying].sum() < 8:
        return None
    counted = [subject.task.token_id(token) for token in subject.task.counted]
    sliders = [*(token for token in counted if token in varying), *(token for token in varying if token not in counted)]
    fixed = [0 if token in varying else int(least[token]) for token in range(d_vocab)]
    start = torch.bincount(torch.tensor(inputs.examples()[0]), minlength=d_vocab)
    planes, words = _planes(subject)
    return {
        "query": queries.pop(),
        "sliders": [{"token": token, "max": _rounded_up(int(most[token]))} for token in sliders],
        "start": [int(start[token]) for token in sliders],
        "fixed": fixed,
        "tokens": sliders + [token for token in range(d_vocab) if fixed[token]],
        "axes": [0, 1],
        "planes": planes,
        "plane_words": words,
    }


def _rounded_up(value: int) -> int:
    """Round up to two leading digits, so that a slider ends at 200, not at 199."""
    step = 10 ** max(0, len(str(value)) - 2)
    return -(-value // step) * step


def _planes(subject: Subject) -> tuple[list[dict[str, Any]], str]:
    """Return each head's plane (mean and two axes), with a separator (w1, w2, b) if d_head is 2, and a label."""
    batch = subject.task.sample(FITTED_ROWS, subject.task.splits[0], seed=0)
    outputs = head_outputs(subject, batch)
    d_head = outputs.z.shape[-1]
    found: list[dict[str, Any]] = []
    for head in range(outputs.n_heads):
        z = outputs.z[:, head].double().numpy()
        mean, axes = np.zeros(d_head), np.eye(d_head)
        if d_head > 2:
            mean = z.mean(0)
            axes = np.linalg.svd(z - mean, full_matrices=False)[2][:2]
        line = _separator(z, outputs.labels.numpy()) if d_head == 2 else None
        found.append({"mean": mean.tolist(), "axes": axes.tolist(), "line": line})
    words = "Plane: a head's two coordinates." if d_head == 2 else "Plane: two principal components of a head's output."
    return found, "Line: a head's one coordinate." if d_head == 1 else words


def _separator(z: np.ndarray, labels: np.ndarray) -> list[float] | None:
    try:
        w, b = fit_separator(z, labels)
    except InterpError:  # more than two answers, or no separator that is proved to be the best
        return None
    return [*map(float, w), b]
