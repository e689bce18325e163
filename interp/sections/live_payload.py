"""What the live panel is told of a model and its task: plain data, from which the page runs the model itself.

Weights in the model's own precision, the words of the forward pass, the task's tokens and answers, what is right where
that can be said, and reference inputs with torch's logits, on which the page tests itself. Nothing here knows a task by
its name: frames, sliders and alphabets are read off samples and off what a task declares.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.architecture import plain
from interp.architecture.answers import right_classes
from interp.architecture.task_model import TaskModel, standing_hooks
from interp.errors import InterpError, UnsupportedError, short
from interp.measures.generation import layout
from interp.measures.subject import Subject
from interp.spec import Construction
from interp.tasks import Batch, Task
from interp.tasks.rules import evaluate

MAX_WEIGHT_BYTES = 2_000_000
"""Models with more weights than this leave the panel out: the page would no longer be one that can be mailed."""
RULED = 10
"""Samples of each split on which a task's rule is compared with its labels."""

REFERENCES = 20
KNOWN_INPUTS = 5_000
KNOWN_LENGTH = 64
SAMPLES = 200
SHORT = 40
"""Tokens of an example that can be read, and clicked one by one."""


def payload(subject: Subject, load: str | None = None) -> dict[str, Any]:
    """The panel's data. load: Python that makes `model`, for "copy as Python".

    Raises UnsupportedError with the reason where there is no panel: too many weights, parts that the page's forward
    pass has no word for, or a task without samples.
    """
    model, task = subject.model, subject.task
    if names := standing_hooks(model):
        raise UnsupportedError(f"a hook stands at {names[0]}, and a page has the model without hooks")
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
            "places": [subject.reads(row)[0].nonzero()[:, 0].tolist() for row in tests],
            "logits": plain.pack(_logits(subject, tests)),
        },
        "token_ids": None if subject.token_ids is None else subject.token_ids.tolist(),
        "load": load.splitlines() if load else _loading(subject),
        "proved": None,
        "counts": None,
        "table": _table(task),
        "generates": _generates(subject, inputs),
        # Does the answer hold as the input grows? Asked of yes or no about inputs of any length, by a known rule.
        "lengths": inputs.readout != "all" and n_out == 1 and task.rule is not None and not arch["fixed_length"],
    }
    if arch["counts"] and subject.count_space:
        from interp.sections.live_counts import counts

        found["counts"] = counts(subject, inputs)
    return found


def _in_task_order(subject: Subject, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters with the rows of the embedding, and the outputs, in the order of the task's tokens and answers."""
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
    """Where answers start and stop that are generated token by token, and the token of each output; None without."""
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


def _logits(subject: Subject, rows: list[Batch]) -> Float[Tensor, "reads n_out"]:
    """torch's logits at the positions that are read, row by row, so that nothing is padded."""
    if subject.model.cfg.dtype not in (torch.float32, torch.float64):
        # Half precision says little about the function of the weights; the page runs in double, so these do as well.
        subject = replace(subject, model=copy.deepcopy(subject.model).double())
    return torch.cat([subject.logits(row) for row in rows]).double()


class Inputs:
    """Samples of the task's inputs, as rows without padding, up to where a causal model's answer is read."""

    def __init__(self, subject: Subject) -> None:
        self.subject, self.task = subject, subject.task
        self.causal = subject.model.cfg.attention_dir == "causal"
        at = subject.read_at
        self.readout: str | int = at if at in ("all", "first", "last") else self.task.token_id(at)
        self.splits = [self.task.sample(SAMPLES, split, seed=3) for split in self.task.splits]
        self.batches = [self.cut(batch, row) for batch in self.splits for row in range(len(batch))]
        if not self.batches:
            raise UnsupportedError(f"task {self.task.name} has no samples")
        self.rows = [batch.tokens[0] for batch in self.batches]

    def cut(self, batch: Batch, row: int) -> Batch:
        """One row of a batch without its padding, and, for a causal model, without what follows its answer."""
        one = batch[row : row + 1]
        length = int(one.lengths[0])
        if self.causal and self.readout != "all":
            length = int(self.subject.answer_positions(one.tokens)[0]) + 1
        labels = one.labels[:, :length] if one.labels.ndim == 2 else one.labels
        return Batch(one.tokens[:, :length], torch.tensor([length]), labels)

    @cached_property
    def frame(self) -> dict[str, Any]:
        """Tokens that every sample begins and ends with, those between, and the only length, where there is one."""
        rows = [row.tolist() for row in self.rows]
        shortest = min(map(len, rows))
        same = [len({row[i] for row in rows}) == 1 for i in range(shortest)]
        ends = [len({row[-1 - i] for row in rows}) == 1 for i in range(shortest)]
        before = next((i for i, equal in enumerate(same) if not equal), 0)
        after = next((i for i, equal in enumerate(ends) if not equal), 0)
        first = rows[0]
        prefix, suffix = first[:before], first[len(first) - after :]
        alphabet = sorted({token for row in rows for token in row[before : len(row) - after]})
        return {"prefix": prefix, "suffix": suffix, "alphabet": alphabet, "only": self._only_length()}

    def _only_length(self) -> int | None:
        """The number of tokens of every input, where the task refuses a row with one of them doubled."""
        if len({len(row) for row in self.rows}) > 1:
            return None
        row = self.rows[0]
        middle = len(row) // 2
        try:
            self.task.check_input(torch.cat([row[: middle + 1], row[middle:]])[None])
        except InterpError:
            return len(row)
        return None

    def references(self) -> list[Batch]:
        """Twenty different inputs of all lengths among the shorter half."""
        by_tokens = {
            tuple(batch.tokens[0].tolist()): batch for batch in sorted(self.batches, key=lambda b: int(b.lengths[0]))
        }
        different = list(by_tokens.values())
        shorter = different[: max(REFERENCES, len(different) // 2)]
        return [shorter[i * len(shorter) // REFERENCES] for i in range(min(REFERENCES, len(shorter)))]

    def examples(self) -> list[list[int]]:
        """A few inputs to begin with: the task's own example first, where it has one."""
        own, rows = self.task.example, [batch.tokens[0] for batch in self.references()]
        first = [] if own is None else [self.cut(own, 0).tokens[0]]
        found = [row.tolist() for row in [*first, *rows]]
        short = [row for row in found if len(row) <= SHORT]
        return short or [row for row in map(self._shortened, found) if row] or found[:1]

    def _shortened(self, row: list[int]) -> list[int]:
        """A long input with fewer tokens between its fixed ends, [] where the task or the model knows no such input."""
        frame, spec = self.frame, getattr(self.subject.model, "spec", None)
        if frame["only"] is not None or self.task.rule is None or (spec is not None and spec.max_length is not None):
            return []
        start, end = len(frame["prefix"]), len(frame["suffix"])
        return row[: start + SHORT // 4] + row[len(row) - end :]

    def check_rule(self) -> None:
        """Raise InterpError where the task's rule says otherwise than its labels, of a few samples of each split."""
        for batch in self.splits if self.task.rule is not None else ():
            part = batch[:RULED]
            at, rights = self.subject.reads(part), self._rights(part)
            for row in range(len(part)):
                tokens = self.cut(part, row).tokens[0].tolist()
                places = at[row].nonzero()[:, 0].tolist() if self.readout != "all" else range(len(tokens))
                self._compare(tokens, dict(zip(places, rights[row])))

    def _compare(self, tokens: list[int], rights: dict[int, int]) -> None:
        for place, right in rights.items():
            try:
                said: object = evaluate(self.task.rule, tokens, place)
            except (InterpError, KeyError, TypeError, ValueError, IndexError, ZeroDivisionError) as error:
                said = f"{type(error).__name__}: {error}"
            if said != right:
                raise InterpError(
                    f"the rule of task {self.task.name} gives {said!r} at position {place} of "
                    f"{short(self.task.format(tokens))!r}, its classes {right}"
                )

    def known(self) -> list[list[list[int]]]:
        """Inputs with the right output at each place that is read: the whole domain where it is small, else samples."""
        total = self.task.n_inputs
        batches = self.task.inputs() if total is not None and total <= KNOWN_INPUTS else iter(self.splits)
        found = []
        for batch in batches:
            rights = self._rights(batch)
            for row in range(len(batch)):
                tokens = self.cut(batch, row).tokens[0].tolist()
                if len(tokens) <= KNOWN_LENGTH:
                    found.append([tokens, rights[row][: len(tokens)]])
        return found

    def _rights(self, batch: Batch) -> list[list[int]]:
        """The right output index at the place that is read, or at every place; -1 where nobody reads."""
        if self.readout != "all":
            return right_classes(self.task, batch, self.subject.read_at)[:, None].tolist()
        return self.task.classes(batch).masked_fill(~self.subject.reads(batch), -1).tolist()
