"""The live panel of models whose answers depend on token counts alone: sliders, planes and separators."""

from typing import Any

import numpy as np
import torch

from interp.errors import InterpError
from interp.measures.outputs import head_outputs
from interp.measures.separation import fit_separator
from interp.measures.subject import Subject
from interp.sections.live_inputs import Inputs

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
