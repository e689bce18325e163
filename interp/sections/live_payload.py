"""What the live panel is told of a model and its task: plain data, from which the page runs the model itself.

Weights in the model's own precision, the words of the forward pass, the task's tokens and answers, what is right where
that can be said, and reference inputs with torch's logits, on which the page tests itself. Nothing here knows a task by
its name: frames, sliders and alphabets are read off samples and off what a task declares.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.architecture import plain
from interp.architecture.task_model import TaskModel
from interp.errors import UnsupportedError
from interp.measures.subject import Subject
from interp.spec import Construction
from interp.tasks import Batch, Task
from interp.tasks.base import IGNORED

MAX_WEIGHT_BYTES = 2_000_000
"""Models with more weights than this leave the panel out: the page would no longer be one that can be mailed."""

REFERENCES = 20
KNOWN_INPUTS = 5_000
SAMPLES = 200


def payload(subject: Subject, load: str | None = None) -> dict[str, Any]:
    """The panel's data. load: Python that makes `model`, for "copy as Python".

    Raises UnsupportedError with the reason where there is no panel: too many weights, parts that the page's forward
    pass has no word for, or a task without samples.
    """
    model, task = subject.model, subject.task
    arch = plain.describe(model)
    tensors = _in_task_order(subject, plain.weights(model))
    n_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    if n_bytes > MAX_WEIGHT_BYTES:
        raise UnsupportedError(
            f"the model has {n_bytes / 1e6:.1f} MB of weights, and a page carries at most {MAX_WEIGHT_BYTES / 1e6:.0f}"
        )
    inputs = _Inputs(subject)
    tests = inputs.references()
    found = {
        "arch": {**arch, "n_out": _outputs(subject, arch)},
        "weights": {name: plain.pack(tensor) for name, tensor in tensors.items()},
        "task": _task(subject, inputs),
        "frame": inputs.frame(),
        "examples": inputs.examples(tests),
        "tests": {"tokens": [row.tolist() for row in tests], "logits": plain.pack(_logits(subject, inputs, tests))},
        "token_ids": None if subject.token_ids is None else subject.token_ids.tolist(),
        "load": load.splitlines() if load else _loading(subject),
        "proved": None,
        "counts": None,
        "table": _table(task),
    }
    if arch["counts"] and subject.count_space:
        from interp.sections.live_counts import counts

        found["counts"] = counts(subject, inputs)
    return found


def _in_task_order(subject: Subject, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters with the rows of the embedding, and the outputs, in the order of the task's tokens."""
    found, ids = dict(tensors), subject.token_ids
    if ids is not None:
        found["embed.W_E"] = found["embed.W_E"][ids]
        found["unembed.W_U"] = found["unembed.W_U"][:, ids]
        if "unembed.b_U" in found:
            found["unembed.b_U"] = found["unembed.b_U"][ids]
    return found


def _outputs(subject: Subject, arch: Mapping[str, Any]) -> int:
    return int(arch["n_out"]) if subject.token_ids is None else len(subject.token_ids)


def _task(subject: Subject, inputs: _Inputs) -> dict[str, Any]:
    model, task = subject.model, subject.task
    spec = model.spec if isinstance(model, TaskModel) else None
    n_out = _outputs(subject, plain.describe(model))
    rule = getattr(task, "rule", None)
    return {
        "name": task.name,
        "vocabulary": list(task.vocabulary),
        "pad": task.pad_id,
        "readout": inputs.readout,
        "answers": list(_answer_words(task, n_out)),
        "decision": spec.decision if spec else "argmax",
        "tolerance": spec.tolerance if spec else None,
        "n_out": n_out,
        "rule": rule,
        "known": None if rule is not None else inputs.known(),
    }


def _answer_words(task: Task, n_out: int) -> tuple[str, ...]:
    """A word for each output."""
    words = tuple(getattr(task, "answer_words", ()))
    if len(words) >= max(n_out, 2):
        return tuple(map(str, words))
    if n_out == 1:
        return ("no", "yes")
    return task.vocabulary if n_out == task.d_vocab else tuple(map(str, range(n_out)))


def _table(task: Task) -> dict[str, Any] | None:
    """The conditional table of a task that has one: the distribution to memorize beside the model's."""
    conditional, contexts = getattr(task, "conditional", None), getattr(task, "contexts", None)
    if conditional is None or contexts is None or len(contexts) > KNOWN_INPUTS:
        return None
    values = torch.from_numpy(np.asarray(conditional, dtype=np.float32))
    return {"contexts": [list(map(int, context)) for context in contexts], "conditional": plain.pack(values)}


def _loading(subject: Subject) -> list[str]:
    """Python that makes this model where its spec says it all; else a line for the reader to fill in."""
    model = subject.model
    if isinstance(model, TaskModel) and isinstance(model.spec.origin, Construction) and not subject.task.tables():
        return [f"model = interp.build(interp.ModelSpec.from_dict({model.spec.to_dict()!r}))"]
    return ['model = interp.load("FILE.safetensors")  # the checkpoint of this page']


def _logits(subject: Subject, inputs: _Inputs, rows: list[Tensor]) -> Float[Tensor, "reads n_out"]:
    """torch's logits at the positions that are read, row by row, so that nothing is padded."""
    model, found = subject.model, []
    # Half precision says little about the weights' function; the page runs in double, so these do as well.
    halves = model.cfg.dtype not in (torch.float32, torch.float64)
    if halves:
        import copy

        model = copy.deepcopy(model).double()
    with torch.no_grad():
        for row in rows:
            out = subject.columns(model(subject.inputs(row[None]).to(model.cfg.device)))[0]
            found.append(out[inputs.places(row)].cpu())
    return torch.cat(found).double()


class _Inputs:
    """Samples of the task's inputs, as rows without padding, up to where a causal model's answer is read."""

    def __init__(self, subject: Subject) -> None:
        model, self.task = subject.model, subject.task
        self.fixed = plain.describe(model)["max_length"] if isinstance(model, TaskModel) else None
        self.causal = plain.describe(model)["causal"]
        at = model.spec.readout_at if isinstance(model, TaskModel) else self.task.readout
        self.readout: str | int = at if at in ("all", "last") else self.task.token_id(at)
        self.splits = [self.task.sample(SAMPLES, split, seed=3) for split in self.task.splits]
        self.rows = self.unpadded(self.splits[0])
        if not self.rows:
            raise UnsupportedError(f"task {self.task.name} has no samples")

    def places(self, row: Int[Tensor, "length"]) -> list[int]:
        """The positions of a row that are read."""
        if self.readout == "all":
            return list(range(len(row)))
        return [len(row) - 1] if self.readout == "last" else [int((row == self.readout).int().argmax())]

    def unpadded(self, batch: Batch) -> list[Tensor]:
        rows = [tokens[: int(length)] for tokens, length in zip(batch.tokens, batch.lengths)]
        if not self.causal or self.readout == "all":
            return rows
        return [row[: self.places(row)[0] + 1] for row in rows]

    def frame(self) -> dict[str, Any]:
        """Tokens that every sample begins and ends with, and those that stand between."""
        shortest = min(map(len, self.rows))
        same = [len({int(row[i]) for row in self.rows}) == 1 for i in range(shortest)]
        ends = [len({int(row[-1 - i]) for row in self.rows}) == 1 for i in range(shortest)]
        before = next((i for i, equal in enumerate(same) if not equal), 0)
        after = next((i for i, equal in enumerate(ends) if not equal), 0)
        first = self.rows[0].tolist()
        prefix, suffix = first[:before], first[len(first) - after :]
        alphabet = sorted({int(token) for row in self.rows for token in row[before : len(row) - after]})
        return {"prefix": prefix, "suffix": suffix, "alphabet": alphabet}

    def references(self) -> list[Tensor]:
        """Twenty inputs of all lengths among the shorter half, different ones where there are as many."""
        different = list({tuple(row.tolist()): row for row in sorted(self.rows, key=len)}.values())
        shorter = different[: max(REFERENCES, len(different) // 2)]
        chosen = [shorter[i * len(shorter) // REFERENCES] for i in range(min(REFERENCES, len(shorter)))]
        return chosen

    def examples(self, tests: list[Tensor]) -> list[list[int]]:
        """A few inputs to begin with: the task's own example first, where it has one; else one of middling length."""
        own = getattr(self.task, "example", None)
        first = self.unpadded(own)[:1] if isinstance(own, Batch) else []
        short = [row for row in tests if len(row) <= 40] or tests[:1]
        middle = len(short) // 2
        return [row.tolist() for row in [*first, *short[middle:], *short[:middle]]]

    def known(self) -> list[list[list[int]]] | None:
        """Inputs with the right output at each place that is read: the whole domain where it is small, else samples."""
        try:
            few = (self.task.n_inputs or KNOWN_INPUTS + 1) <= KNOWN_INPUTS  # type: ignore[attr-defined]
            batches = list(self.task.inputs()) if few else self.splits  # type: ignore[attr-defined]
        except (AttributeError, UnsupportedError):
            batches = self.splits
        found = []
        for batch in batches:
            classes = self.task.classes(batch)
            for row, right in zip(self.unpadded(batch), classes):
                if len(row) <= 64:
                    found.append([row.tolist(), self._right(row, right)])
        return found

    def _right(self, row: Tensor, classes: Int[Tensor, "length"]) -> list[int]:
        if self.readout == "all":
            return [-1 if value == IGNORED else value for value in classes[: len(row)].tolist()]
        here = int(classes[self.places(row)[0]])
        if here == IGNORED:  # the model is read elsewhere than where the task writes its one answer
            given = classes[classes != IGNORED]
            here = int(given[0]) if len(given) == 1 else -1
        return [here]


