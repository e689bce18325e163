"""The data of the live panel, from which the page runs the model itself.

It contains the weights in the model's own precision, a description of the forward pass, the task's tokens and answers,
right answers if known, and reference inputs with torch's logits, on which the page tests itself. Frames, sliders and
alphabets are inferred from samples and from the task's declarations, never from its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import InterpError, UnsupportedError, short
from interp.measures.accuracy import layout
from interp.measures.heads import head_outputs
from interp.measures.separation import fit_separator
from interp.models.architecture import plain
from interp.models.architecture.answers import right_classes
from interp.models.architecture.task_model import TaskModel, standing_hooks
from interp.models.spec import Construction
from interp.models.subject import Subject
from interp.tasks import Batch, Task
from interp.tasks.rules import evaluate

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
    data = {
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
        data["counts"] = counts(subject, inputs)
    return data


def _in_task_order(subject: Subject, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the parameters, with embeddings and outputs in the order of the task's tokens and answers."""
    ordered, ids, outs = dict(tensors), subject.token_ids, subject.output_ids
    if ids is not None:
        ordered["embed.W_E"] = ordered["embed.W_E"][ids]
    if outs is not None:
        ordered["unembed.W_U"] = ordered["unembed.W_U"][:, outs]
        if "unembed.b_U" in ordered:
            ordered["unembed.b_U"] = ordered["unembed.b_U"][outs]
    return ordered


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
    answers = layout(subject, batch)
    if isinstance(answers, str):
        return None
    if declared is not None and isinstance(declared.start, str):
        start = {"token": subject.task.token_id(declared.start)}
    elif len(set(answers.starts.tolist())) == 1:
        start = {"position": int(answers.starts[0]) + 1}
    else:
        return None
    length = answers.wanted.shape[1] if declared is None else declared.length
    return {"start": start, "stop": answers.stop, "length": length, "tokens": answers.tokens.tolist()}


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
        subject = subject.in_format(torch.float64)
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
    queries = {int(batch.tokens[0, subject.answer_positions(batch.tokens)[0]]) for batch in inputs.batches}
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
    planes: list[dict[str, Any]] = []
    for head in range(outputs.n_heads):
        z = outputs.z[:, head].double().numpy()
        mean, axes = np.zeros(d_head), np.eye(d_head)
        if d_head > 2:
            mean = z.mean(0)
            axes = np.linalg.svd(z - mean, full_matrices=False)[2][:2]
        line = _separator(z, outputs.labels.numpy()) if d_head == 2 else None
        planes.append({"mean": mean.tolist(), "axes": axes.tolist(), "line": line})
    words = "Plane: a head's two coordinates." if d_head == 2 else "Plane: two principal components of a head's output."
    return planes, "Line: a head's one coordinate." if d_head == 1 else words


def _separator(z: np.ndarray, labels: np.ndarray) -> list[float] | None:
    try:
        w, b = fit_separator(z, labels)
    except InterpError:  # more than two answers, or no separator that is proved to be the best
        return None
    return [*map(float, w), b]


RULED = 10
"""Number of samples per split on which a task's rule is compared with its labels."""
REFERENCES = 20
KNOWN_INPUTS = 5_000
KNOWN_LENGTH = 64
SAMPLES = 200
SHORT = 40
"""Largest number of tokens of an example, so that each can be read and clicked."""


class Inputs:
    """Samples of the task's inputs, without padding and, for causal models, up to the read position."""

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
        """Return one row without padding and, for a causal model, without the tokens after its read position."""
        single = batch[row : row + 1]
        length = int(single.lengths[0])
        if self.causal and self.readout != "all":
            length = int(self.subject.answer_positions(single.tokens)[0]) + 1
        labels = single.labels[:, :length] if single.labels.ndim == 2 else single.labels
        return Batch(single.tokens[:, :length], torch.tensor([length]), labels)

    @cached_property
    def frame(self) -> dict[str, Any]:
        """The tokens with which every sample begins and ends, the tokens in between, and the only length, if any."""
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
        """Return the number of tokens of every input, if the task refuses rows with one token repeated."""
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
        """Return twenty different inputs from the shorter half of the samples, of all lengths."""
        by_tokens = {
            tuple(batch.tokens[0].tolist()): batch for batch in sorted(self.batches, key=lambda b: int(b.lengths[0]))
        }
        different = list(by_tokens.values())
        shorter = different[: max(REFERENCES, len(different) // 2)]
        return [shorter[i * len(shorter) // REFERENCES] for i in range(min(REFERENCES, len(shorter)))]

    def examples(self) -> list[list[int]]:
        """Return a few inputs to start with: first the task's own example, if any."""
        example, rows = self.task.example, [batch.tokens[0] for batch in self.references()]
        first = [] if example is None else [self.cut(example, 0).tokens[0]]
        examples = [row.tolist() for row in [*first, *rows]]
        short = [row for row in examples if len(row) <= SHORT]
        return short or [row for row in map(self._shortened, examples) if row] or examples[:1]

    def _shortened(self, row: list[int]) -> list[int]:
        """Remove tokens between the fixed ends of a long input; [] if the task or the model does not accept that."""
        frame, spec = self.frame, getattr(self.subject.model, "spec", None)
        if frame["only"] is not None or self.task.rule is None or (spec is not None and spec.max_length is not None):
            return []
        start, end = len(frame["prefix"]), len(frame["suffix"])
        return row[: start + SHORT // 4] + row[len(row) - end :]

    def check_rule(self) -> None:
        """Raise InterpError if the task's rule contradicts its labels on a few samples per split."""
        for batch in self.splits if self.task.rule is not None else ():
            part = batch[:RULED]
            at, rights = self.subject.read_mask(part), self._rights(part)
            for row in range(len(part)):
                tokens = self.cut(part, row).tokens[0].tolist()
                places = at[row].nonzero()[:, 0].tolist() if self.readout != "all" else range(len(tokens))
                self._compare(tokens, dict(zip(places, rights[row])))

    def _compare(self, tokens: list[int], rights: dict[int, int]) -> None:
        for place, right in rights.items():
            try:
                by_rule: object = evaluate(self.task.rule, tokens, place)
            except (InterpError, KeyError, TypeError, ValueError, IndexError, ZeroDivisionError) as error:
                by_rule = f"{type(error).__name__}: {error}"
            if by_rule != right:
                raise InterpError(
                    f"the rule of task {self.task.name} gives {by_rule!r} at position {place} of "
                    f"{short(self.task.format(tokens))!r}, its classes {right}"
                )

    def known(self) -> list[list[list[int]]]:
        """Return inputs with the right outputs at their read positions: the whole domain if it is small, or samples."""
        total = self.task.n_inputs
        batches = self.task.inputs() if total is not None and total <= KNOWN_INPUTS else iter(self.splits)
        answered = []
        for batch in batches:
            rights = self._rights(batch)
            for row in range(len(batch)):
                tokens = self.cut(batch, row).tokens[0].tolist()
                if len(tokens) <= KNOWN_LENGTH:
                    answered.append([tokens, rights[row][: len(tokens)]])
        return answered

    def _rights(self, batch: Batch) -> list[list[int]]:
        """Return the right output index at the read position, or at every position, with -1 where it is not read."""
        if self.readout != "all":
            return right_classes(self.task, batch, self.subject.read_at)[:, None].tolist()
        return self.task.classes(batch).masked_fill(~self.subject.read_mask(batch), -1).tolist()
