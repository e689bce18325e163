"""Evidence as a table of inputs with their right answers, which the checker runs again.

This works for any task whose domain is small enough for exact arithmetic. The table contains the labels, and the claim
names its SHA-256. If the domain is too large and the model errs, the table contains inputs on which it errs.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch

from interp.architecture.answers import read_mask, right_classes
from interp.architecture.task_model import TaskModel
from interp.certificates.base import Certificate
from interp.certificates.check.inputs import one_input, sentence
from interp.certificates.check.model import Model
from interp.certificates.check.tasks import known
from interp.certificates.evidence import Finding, checked, register_evidence, stated
from interp.errors import InterpError, UnsupportedError
from interp.tasks import Batch

MOST_WORK = 4e9
"""Largest number of products for the checker, about ten minutes of one process."""

Row = tuple[list[int], list[list[Any]]]
"""Tokens, and the right outputs at each read position."""


@register_evidence("every input, as run", "every multiset", "every product of token sets")
def inputs_evidence(model: TaskModel, certificate: Certificate, options: dict[str, Any]) -> Finding:
    """Tabulate every input that the task lists, or, if these are too many, inputs on which a refuted model errs."""
    task = model.task
    if work(model, task.n_inputs or 0, next(iter(task.inputs(1))).tokens.shape[1]) <= MOST_WORK:
        return table(model, (row for batch in task.inputs(4096) for row in rows_of(model, batch)))
    return counterexamples(model, certificate)


def work(model: TaskModel, rows: int, length: int) -> float:
    """Estimate the number of products for these rows; in one layer, keys and values are computed once per token."""
    size = sum(p.numel() for name, p in model.named_parameters() if "embed.W" not in name or "unembed" in name)
    return float(rows) * size * (length if len(model.spec.layers) > 1 else 1)


def counterexamples(model: TaskModel, certificate: Certificate) -> Finding:
    """Tabulate the inputs that a refuted certificate lists as errors, or its counterexample."""
    if certificate.counterexample is None:
        raise UnsupportedError(
            f"{certificate.n_inputs:,} inputs are too many for the checker to run them again, and none is known to be "
            "wrong: there is no evidence"
        )
    errors = certificate.tables.get("wrong inputs", certificate.tables.get("errors"))
    texts = [] if errors is None or "input" not in errors else list(dict.fromkeys(errors["input"]))[:200]
    texts = texts or [certificate.counterexample.split(":")[0]]
    inputs = [_tokens(model, text) for text in texts]
    for tokens in inputs:
        model.task.check_input(tokens)
    return table(model, [row for tokens in inputs for row in rows_of(model, model.task.batch(tokens))])


def _tokens(model: TaskModel, text: str) -> torch.Tensor:
    return torch.tensor([model.task.parse(text)])


def rows_of(model: TaskModel, batch: Batch) -> Iterator[Row]:
    """Yield the rows of a batch without padding, with the right outputs at the read positions."""
    at = model.spec.readout_at
    mask = read_mask(model.task, batch, at)
    classes = iter(right_classes(model.task, batch, at).tolist())
    for tokens, length, here in zip(batch.tokens.tolist(), batch.lengths.tolist(), mask):
        places = here.nonzero()[:, 0].tolist()
        last = length if model.spec.direction == "bidirectional" or at == "all" else places[-1] + 1
        yield tokens[:last], [[place, [next(classes)]] for place in places]


@register_evidence("every context of the table")
def contexts_evidence(model: TaskModel, certificate: Certificate, options: dict[str, Any]) -> Finding:
    """Tabulate every context of positive probability, with all its most likely answers."""
    task: Any = model.task
    if model.spec.max_length not in (None, task.order):
        raise InterpError(f"evidence is for inputs of one context, {task.order} tokens, not {model.spec.max_length}")
    rows: list[Row] = []
    for i in np.flatnonzero(task.prior > 0):
        pi = task.conditional[i]
        tokens = [int(token) for token in task.contexts[i]]
        rows.append((tokens, [[len(tokens) - 1, np.flatnonzero(pi == pi.max()).tolist()]]))
    return table(model, rows)


def table(model: TaskModel, rows: Iterable[Row]) -> Finding:
    """Return the finding for some inputs: the wrong answers, and the smallest absolute margin of any answer."""
    task, spec = model.task, model.spec
    parts: list[Row] = list({tuple(tokens): (tokens, reads) for tokens, reads in rows}.values())
    double = TaskModel(spec, task, dict(model.named_parameters()), seed=model.seed, dtype="float64")
    by_length: dict[int, list[int]] = {}
    for number, (tokens, _) in enumerate(parts):
        by_length.setdefault(len(tokens), []).append(number)
    margins: list[dict[int, float]] = [{} for _ in parts]
    for numbers in by_length.values():
        for start in range(0, len(numbers), 1024):
            chunk = numbers[start : start + 1024]
            with torch.no_grad():
                out = double(torch.tensor([parts[number][0] for number in chunk])).numpy()
            for number, outputs in zip(chunk, out):
                margins[number] = {place: _margin(spec, outputs[place], right) for place, right in parts[number][1]}
    wrong = [[number, place] for number, found in enumerate(margins) for place, m in found.items() if not m > 0]
    least = min(abs(m) for found in margins for m in found.values())
    token = None if spec.readout_at in ("all", "first", "last") else task.token_id(spec.readout_at)
    plain = [[tokens, reads] for tokens, reads in parts]
    reals = checked(model)
    said = sentence(reals, token, plain, len(wrong), known(reals))
    n = len(parts)

    def rounding(read: Model) -> int:
        """Return 1.5 times the bound on some inputs, including those with the smallest margins."""
        nearest = sorted(range(n), key=lambda number: min(map(abs, margins[number].values())))[:4]
        some = {*nearest, *range(0, n, max(1, n // 128))}
        return max(one_input(read, 1, *plain[number])[1] for number in some) * 3 // 2

    return Finding("inputs", {"read": token, "errors": wrong}, plain, float.fromhex(stated(least)), said, rounding)


def _margin(spec: Any, outputs: np.ndarray, right: list[int]) -> float:
    """Return the largest right output minus the largest other one."""
    if spec.decision == "sigmoid":
        outputs = np.array([0.0, outputs[0]])
    elif spec.decision == "indicator":
        outputs = np.array([abs(outputs[0]), spec.tolerance])
    return float(outputs[right].max() - np.delete(outputs, right).max())
