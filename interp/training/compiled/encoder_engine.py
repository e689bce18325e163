"""The compiled encoder engine: models of the published shape, one model per core at a time (encoder_kernel, numba)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from interp.architecture.encoder import DistinctRows, distinct_rows
from interp.architecture.parameters import initialize
from interp.spec import Bias, ModelSpec
from interp.tasks import Task
from interp.training.compiled.encoder_layout import (
    ABSENT,
    Sizes,
    Strings,
    Work,
    flat_vector,
    named_views,
    params_of,
    workspace,
)
from interp.training.engines.base import Engine, EpochResult, learning_rate
from interp.training.engines.encoder import EncoderEngine, epoch_strings, held_out_strings

KERNEL_DTYPES = {torch.float32: np.float32, torch.float64: np.float64}


class FusedEncoderEngine(Engine):
    """Exact training of post-layer-norm encoders with one scalar answer, string after string in compiled code."""

    name = "encoder-fused"

    def __init__(self, spec: ModelSpec, task: Task, seeds: Sequence[int], device: torch.device, dtype: torch.dtype):
        super().__init__(spec, task, seeds, device, dtype)
        self.kind = KERNEL_DTYPES[dtype]
        self.sizes = sizes_of(spec)
        # Parameters and Adam's two moments of each model, as the kernel lays them out.
        self.flat, self.m, self.v = ([flat_vector(self.sizes, task.d_vocab, self.kind) for _ in seeds] for _ in "pmv")
        for flat, seed in zip(self.flat, seeds):
            fresh = initialize(spec, task, seed, dtype)
            for name, view in named_views(flat, self.sizes, task.d_vocab).items():
                view[...] = fresh[name].numpy()
        self.held_out = held_out_strings(spec, task)
        self.held_out_strings = strings_of(spec, distinct_rows(spec, task, self.held_out), self.kind)
        self.spare: list[Work] = []

    @classmethod
    def refusal(cls, spec: ModelSpec, task: Task, device: torch.device) -> str | None:
        if (reason := EncoderEngine.refusal(spec, task, device)) is not None:
            return reason
        first, every = spec.layers[0], Bias(q=True, k=True, v=True, o=True)
        if first.norm != "post" or first.mlp is None or first.mlp.activation != "relu" or first.bias != every:
            return "the compiled encoder has post-layer-norm, ReLU neurons and all biases"
        if any(layer != first for layer in spec.layers) or not spec.readout_bias or spec.training.weight_decay:
            return "the compiled encoder has layers all alike, a bias of the readout and no weight decay"
        if device.type != "cpu":
            return f"the compiled encoder runs on the CPU, not on {device.type}"
        if find_spec("numba") is None:
            return "the compiled encoder needs numba: pip install 'interp[fast]'"
        return None

    def run_epoch(self, epoch: int) -> EpochResult:
        rows, labels = epoch_strings(self.spec, self.task, self.seeds, epoch)
        steps = -(-labels.shape[1] // self.recipe.batch_size)
        done = (epoch - 1) * steps
        rates = np.array([learning_rate(self.recipe, done + step, steps) for step in range(steps)])

        def train_one(index: int) -> tuple[float, float]:
            mine = strings_of(self.spec, rows, self.kind, index, labels[index])
            return self._train(index, mine, rates, done), self._accuracy(index)

        # The compiled loop releases the GIL: threads are as good as processes, and share the compiled code.
        with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
            loss, accuracy = zip(*pool.map(train_one, range(len(self.seeds))))
        return EpochResult(torch.tensor(loss, dtype=torch.float64), torch.tensor(accuracy, dtype=torch.float64))

    def _train(self, index: int, strings: Strings, rates: np.ndarray, done: int) -> float:
        from interp.training.compiled.encoder import train

        n_tokens, s = self.task.d_vocab, self.sizes
        flat, grad = self.flat[index], flat_vector(s, n_tokens, self.kind)
        P, G = params_of(flat, s, n_tokens), params_of(grad, s, n_tokens)
        skip = P.embed.size if self.spec.embedding == "frozen" else 0
        (beta1, beta2), size = self.recipe.betas, self.recipe.batch_size
        with self._workspace(strings) as work:
            loss: float = train(
                s, P, G, work, strings, flat, grad, self.m[index], self.v[index],
                skip, done, size, rates, beta1, beta2, self.recipe.eps,
            )  # fmt: skip
        return loss

    @contextmanager
    def _workspace(self, strings: Strings) -> Iterator[Work]:
        """Arrays that are large enough, one set for each thread, used again in the next epoch."""
        rows = strings.tokens.shape[1]
        work = self.spare.pop() if self.spare else None
        if work is None or work.x.shape[1] < rows:
            work = workspace(self.sizes, rows, self.kind)
        yield work
        self.spare.append(work)

    def evaluate(self) -> Tensor:
        return torch.tensor([self._accuracy(index) for index in range(len(self.seeds))], dtype=torch.float64)

    def _accuracy(self, index: int) -> float:
        from interp.training.compiled.encoder import answers

        out = np.empty(len(self.held_out), self.kind)
        with self._workspace(self.held_out_strings) as work:
            parameters = params_of(self.flat[index], self.sizes, self.task.d_vocab)
            answers(self.sizes, parameters, work, self.held_out_strings, out)
        return float(((out > 0) == self.held_out.labels.numpy()).mean())

    def parameters(self) -> dict[str, Tensor]:
        views = [named_views(flat, self.sizes, self.task.d_vocab) for flat in self.flat]
        return {name: torch.from_numpy(np.stack([view[name] for view in views])) for name in views[0]}

    def state(self) -> dict[str, Tensor]:
        kept = {"flat": self.flat, "m": self.m, "v": self.v}
        return {name: torch.from_numpy(np.stack(arrays)) for name, arrays in kept.items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        for name, arrays in {"flat": self.flat, "m": self.m, "v": self.v}.items():
            for array, saved in zip(arrays, state[name].numpy()):
                array[...] = saved


def sizes_of(spec: ModelSpec) -> Sizes:
    """What the compiled code loops over."""
    layer = spec.layers[0]
    neurons = layer.mlp.d_mlp if layer.mlp else 0
    return Sizes(len(spec.layers), layer.n_heads, spec.d_model, layer.d_head, neurons, layer.norm_eps)


def strings_of(
    spec: ModelSpec, rows: DistinctRows, dtype: Any, model: int = 0, labels: Tensor | None = None
) -> Strings:
    """One model's strings as the compiled loop reads them: the row that is read first, and padded widths."""
    tokens, codes, counts, read = (getattr(rows, name)[model] for name in ("tokens", "codes", "counts", "read"))
    swap = torch.arange(tokens.shape[1]).repeat(len(tokens), 1)
    swap[:, 0] = read
    swap.scatter_(1, read[:, None], 0)
    tokens, codes, counts = (table.gather(1, swap) for table in (tokens, codes, counts))
    lanes = 64 // np.dtype(dtype).itemsize
    width = -(-tokens.shape[1] // lanes) * lanes
    log_counts = np.full((len(tokens), width), ABSENT, dtype)
    log_counts[:, : tokens.shape[1]] = np.where(counts > 0, counts.clamp(min=1).log(), ABSENT)
    depth = -(-rows.table.shape[1] // lanes) * lanes
    table = np.zeros((len(rows.table), depth), dtype)
    table[:, : rows.table.shape[1]] = rows.table
    return Strings(
        np.ascontiguousarray(tokens.numpy()),
        np.ascontiguousarray(codes.numpy()),
        log_counts,
        (counts > 0).sum(1).numpy(),
        factors(spec, rows.lengths[model].numpy()),
        np.zeros(len(tokens)) if labels is None else labels.double().numpy(),
        table,
    )


def factors(spec: ModelSpec, lengths: np.ndarray) -> np.ndarray:
    """What the scores of each string are multiplied by."""
    layer = spec.layers[0]
    scale = layer.factor(spec.d_model)
    if layer.log_length == "none":
        return np.full(len(lengths), scale)
    return scale * np.log(lengths if layer.log_length == "current" else np.full(len(lengths), layer.log_length))


def loss_and_gradient(
    spec: ModelSpec, flat: np.ndarray, n_tokens: int, strings: Strings
) -> tuple[float, dict[str, np.ndarray]]:
    """The mean loss (nats) and its gradient by name."""
    from interp.training.compiled.encoder import gradient

    sizes = sizes_of(spec)
    grad = flat_vector(sizes, n_tokens, flat.dtype)
    P, G = params_of(flat, sizes, n_tokens), params_of(grad, sizes, n_tokens)
    loss = gradient(sizes, P, G, workspace(sizes, strings.tokens.shape[1], flat.dtype), strings)
    return float(loss), named_views(grad, sizes, n_tokens)
