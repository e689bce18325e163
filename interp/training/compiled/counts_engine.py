"""The compiled count-space engine: one layer without positions on a fixed data set, one model per core at a time.

The loop is in count_kernel.py (numba, the optional extra `fast`); this file gives it the face of all engines.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from interp.architecture.parameters import initialize, outputs
from interp.architecture.symmetric import SAFE_SPREAD, rows_of
from interp.errors import InterpError
from interp.spec import ModelSpec
from interp.tasks import IGNORED, Batch, Task
from interp.training.compiled.counts_layout import Data, Sizes, flat_vector, named_views, params_of, workspace
from interp.training.data import epoch_order, training_set, validation_set
from interp.training.engines.base import Engine, EpochResult, learning_rate
from interp.training.engines.counts import CountSpaceEngine

KERNEL_DTYPES = {torch.float32: np.float32, torch.float64: np.float64}


class FusedCountSpaceEngine(Engine):
    """Exact training of what the count-space engine trains, on the same batches, in compiled code."""

    name = "count-space-fused"

    def __init__(self, spec: ModelSpec, task: Task, seeds: Sequence[int], device: torch.device, dtype: torch.dtype):
        if dtype not in KERNEL_DTYPES:
            raise InterpError(f"dtype {dtype}; the compiled count space trains in float32 or float64")
        super().__init__(spec, task, seeds, device, dtype)
        self.kind, self.sizes = KERNEL_DTYPES[dtype], sizes_of(spec, task, dtype)
        # Parameters and Adam's two moments of each model, as the kernel lays them out.
        self.flat, self.m, self.v = ([flat_vector(self.sizes, self.kind) for _ in seeds] for _ in "pmv")
        for flat, seed in zip(self.flat, seeds):
            fresh = initialize(spec, task, seed, dtype)
            for name, view in named_views(flat, self.sizes).items():
                view[...] = fresh[name].numpy()
        self.data = data_of(spec, task, training_set(spec, task), self.kind)
        self.held_out_batch = validation_set(task)
        self.held_out = first_reads(data_of(spec, task, self.held_out_batch, self.kind))
        self.sentences = len(self.data.query) // self.data.reads
        self.steps = -(-self.sentences // self.recipe.batch_size)

    @classmethod
    def refusal(cls, spec: ModelSpec, task: Task, device: torch.device) -> str | None:
        if (reason := CountSpaceEngine.refusal(spec, task, device)) is not None:
            return reason
        layer = spec.layers[0]
        if layer.query_key != "learned" or layer.value_output != "learned" or spec.readout != "linear":
            return "the compiled count space has learned factors of queries, keys and values, and a linear readout"
        if spec.training.weight_decay:
            return "the compiled count space trains without weight decay"
        if device.type != "cpu":
            return f"the compiled count space runs on the CPU, not on {device.type}"
        if find_spec("numba") is None:
            return "the compiled count space needs numba: pip install 'interp[fast]'"
        return None

    @classmethod
    def seeds_together(cls, spec: ModelSpec, device: torch.device) -> int:
        """They train one by one, but share the rows of the data set, which take longer to count than to train on."""
        return CountSpaceEngine.seeds_together(spec, device)

    def run_epoch(self, epoch: int) -> EpochResult:
        done = (epoch - 1) * self.steps
        rates = np.array([learning_rate(self.recipe, done + step, self.steps) for step in range(self.steps)])

        def train_one(index: int) -> tuple[float, float]:
            return self._train(index, epoch, rates, done), self._accuracy(index)

        # The compiled loop releases the GIL: threads are as good as processes, and share the compiled code.
        with ThreadPoolExecutor(max_workers=min(len(self.seeds), len(os.sched_getaffinity(0)))) as pool:
            loss, accuracy = zip(*pool.map(train_one, range(len(self.seeds))))
        return EpochResult(torch.tensor(loss, dtype=torch.float64), torch.tensor(accuracy, dtype=torch.float64))

    def _train(self, index: int, epoch: int, rates: np.ndarray, done: int) -> float:
        from interp.training.compiled.counts import train

        s, flat, grad, size = self.sizes, self.flat[index], flat_vector(self.sizes, self.kind), self.recipe.batch_size
        P, work = params_of(flat, s), workspace(s, size * self.data.reads, self.kind)
        order = epoch_order(self.spec, self.sentences, self.seeds[index], epoch).numpy()
        skip = P.embed.size if self.spec.embedding == "frozen" else 0
        loss: float = train(
            s, P, params_of(grad, s), work, self.data, order, flat, grad, self.m[index], self.v[index],
            skip, done, size, rates, *self.recipe.betas, self.recipe.eps,
        )  # fmt: skip
        return loss

    def evaluate(self) -> Tensor:
        return torch.tensor([self._accuracy(index) for index in range(len(self.seeds))], dtype=torch.float64)

    def _accuracy(self, index: int) -> float:
        """Accuracy at the first position that is read, the task's answer."""
        logits = logits_of(self.sizes, self.flat[index], self.held_out)
        answers = self.task.answers(torch.from_numpy(logits.argmax(-1)), self.held_out_batch.tokens)
        return float((answers == self.held_out_batch.labels).double().mean())

    def parameters(self) -> dict[str, Tensor]:
        views = [named_views(flat, self.sizes) for flat in self.flat]
        return {name: torch.from_numpy(np.stack([view[name] for view in views])) for name in views[0]}

    def state(self) -> dict[str, Tensor]:
        kept = {"flat": self.flat, "m": self.m, "v": self.v}
        return {name: torch.from_numpy(np.stack(arrays)) for name, arrays in kept.items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        for name, arrays in {"flat": self.flat, "m": self.m, "v": self.v}.items():
            for array, saved in zip(arrays, state[name].numpy()):
                array[...] = saved


def sizes_of(spec: ModelSpec, task: Task, dtype: torch.dtype) -> Sizes:
    """What the compiled code loops over."""
    layer = spec.layers[0]
    return Sizes(
        T=task.d_vocab,
        d=spec.d_model,
        heads=layer.n_heads,
        d_head=layer.d_head,
        width=layer.n_heads * layer.d_head,
        classes=outputs(spec, task),
        norm=layer.norm == "pre",
        b_q=layer.bias.q,
        b_k=layer.bias.k,
        b_v=layer.bias.v,
        b_o=layer.bias.o,
        b_u=spec.readout_bias,
        scale=float(layer.factor(spec.d_model)),
        eps=float(layer.norm_eps),
        safe=SAFE_SPREAD[dtype],
    )


def data_of(spec: ModelSpec, task: Task, batch: Batch, dtype: Any) -> Data:
    """The rows of a data set that are read, sentence after sentence."""
    classes = task.classes(batch)
    rows = rows_of(spec, task.d_vocab, batch, classes)
    if rows is None:
        raise ValueError("count space was chosen for sentences with different numbers of reads")
    return Data(
        query=rows.query.flatten().long().numpy(),
        counts=rows.counts.flatten(0, 1).numpy().astype(dtype),
        target=classes[classes != IGNORED].long().numpy(),
        reads=rows.query.shape[1],
    )


def first_reads(data: Data) -> Data:
    """Only the first row of each sentence, the task's answer."""
    query, counts, target = (np.ascontiguousarray(column[:: data.reads]) for column in data[:3])
    return Data(query, counts, target, reads=1)


def logits_of(sizes: Sizes, flat: np.ndarray, data: Data, rows: int = 256) -> np.ndarray:
    """Logits of all rows, (rows, n_out), about `rows` at a time."""
    from interp.training.compiled.counts import logits

    sentences = np.arange(len(data.query) // data.reads)
    out = np.empty((len(data.query), sizes.classes), flat.dtype)
    work = workspace(sizes, max(rows, data.reads), flat.dtype)
    logits(sizes, params_of(flat, sizes), work, data, sentences, out)
    return out


def loss_and_gradient(sizes: Sizes, flat: np.ndarray, data: Data) -> tuple[float, dict[str, np.ndarray]]:
    """The mean loss over all rows (nats) and its gradient by name."""
    from interp.training.compiled.counts import train

    flat, (grad, m, v) = flat.copy(), (flat_vector(sizes, flat.dtype) for _ in "gmv")
    n = len(data.query) // data.reads
    work = workspace(sizes, len(data.query), flat.dtype)
    # One step at rate 0: the loop that trains is the loop that is tested.
    loss = train(
        sizes, params_of(flat, sizes), params_of(grad, sizes), work, data, np.arange(n), flat, grad, m, v,
        0, 0, n, np.zeros(1), 0.9, 0.999, 1e-8,
    )  # fmt: skip
    return float(loss), named_views(grad, sizes)
