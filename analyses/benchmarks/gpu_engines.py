"""How fast do the stacked and the vmap engine train on a GPU, and do CUDA graphs or torch.compile pay?

    python analyses/benchmarks/gpu_engines.py [--quick] [--rounds 5] [--device cuda]

The histogram model dot-softmax (T = 32, L = 10, batches of 32), many seeds side by side. Of each engine, size (d, p)
and number of models: microseconds per model-step as the engine does it (eager), with the whole step (forward, backward,
Adam) captured as a CUDA graph, and with the loss compiled by torch.compile; and how many times faster that is than the
compiled CPU kernel on one core of the same machine and than the same engine on one CPU thread, measured in turns in the
same run. Steps only: rows are made before. The first line names the device.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from interp.families.histogram import Histogram
from interp.families.histogram.constructions.models import histogram_spec
from interp.models.spec import ModelSpec, Training
from interp.training.engines.stacked import epoch_rows, losses
from interp.training.train import ENGINES

T, L, BATCH, STEPS = 32, 10, 32, 6
SIZES, MODELS = ((8, 8), (32, 32), (128, 128)), (64, 256, 1024)
CPU_MODELS = {"stacked": 64, "vmap": 16}


def spec_of(d: int, p: int) -> tuple[ModelSpec, Histogram]:
    recipe = Training(
        batch_size=BATCH, data="fresh", samples_per_epoch=BATCH * STEPS, betas=(0.9, 0.98), eps=1e-9, init="torch"
    )
    task = Histogram(T=T, L=L, zero_class=True)
    return histogram_spec("dot-softmax", task, d, p, origin=recipe), task


class Steps:
    """Training steps of one engine with all its models in one group, on inputs that stay where they are."""

    def __init__(self, engine: str, d: int, p: int, models: int, device: torch.device, mode: str) -> None:
        spec, task = spec_of(d, p)
        trainer: Any = ENGINES[engine](spec, task, range(models), device, torch.float32)
        groups = trainer.groups
        self.leaves = {n: torch.cat([group.leaves[n].detach() for group in groups]) for n in groups[0].leaves}
        group = groups[0]
        group.seeds, group.leaves = list(range(models)), self.leaves
        for leaf in self.leaves.values():
            leaf.requires_grad_()
        self.models, self.device = models, device
        self.inputs = self._inputs(engine, trainer, group, spec, task, mode == "compile")
        self.static = self._copied(self.inputs[0])
        on_gpu = device.type == "cuda"
        self.adam = torch.optim.Adam(
            list(self.leaves.values()), lr=1e-3, betas=(0.9, 0.98), eps=1e-9, fused=True, capturable=on_gpu
        )
        self.replay: Callable[[], None] = self._captured() if mode == "graph" else self._step
        self.done = 0

    def _inputs(self, engine: str, trainer: Any, group: Any, spec: ModelSpec, task: Histogram, compiled: bool) -> list:
        def faster(function: Callable[[Any], Tensor]) -> Callable[[Any], Tensor]:
            return torch.compile(function) if compiled else function

        if engine == "stacked":
            batches = [task.sample(BATCH * STEPS, "train", seed=seed) for seed in range(self.models)]
            rows = epoch_rows(spec, task, L + 1, batches, BATCH).to(self.device, torch.float32)
            self.loss = faster(lambda row: losses(spec, self.leaves, row))
            return [rows[step] for step in range(STEPS)]
        reads = trainer.epoch_reads(range(self.models), 1)
        self.loss = faster(lambda part: trainer.losses(group, part))
        return [reads[:, step * BATCH : (step + 1) * BATCH] for step in range(STEPS)]

    def _copied(self, inputs: Any) -> Any:
        return type(inputs)(*(getattr(inputs, name).clone() for name in inputs.__dataclass_fields__))

    def _step(self) -> None:
        self.adam.zero_grad(set_to_none=True)
        self.loss(self.static).sum().backward()
        self.adam.step()

    def _captured(self) -> Callable[[], None]:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self._step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        self.adam.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            self.loss(self.static).sum().backward()
            self.adam.step()
        return graph.replay

    def run(self, n: int) -> float:
        """Seconds of n steps, each on the next batch."""
        self._wait()
        start = time.perf_counter()
        for _ in range(n):
            new = self.inputs[self.done % STEPS]
            for name in new.__dataclass_fields__:
                getattr(self.static, name).copy_(getattr(new, name))
            self.replay()
            self.done += 1
        self._wait()
        return time.perf_counter() - start

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


class Kernel:
    """The compiled CPU engine, one model on one core, its sampler included."""

    def __init__(self, d: int, p: int) -> None:
        spec, task = spec_of(d, p)
        self.engine, self.epoch = ENGINES["fused"](spec, task, [0], torch.device("cpu"), torch.float32), 0
        self.run(STEPS)

    def run(self, n: int) -> float:
        """Seconds of n steps in whole epochs, without the evaluation after each of them."""
        start = time.perf_counter()
        for _ in range(n // STEPS):
            self.epoch += 1
            self.engine.run_epoch(self.epoch)
        spent, start = time.perf_counter() - start, time.perf_counter()
        for _ in range(n // STEPS):
            self.engine.evaluate()
        return spent - (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one size, 64 models")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.error("there is no CUDA device here; --device cpu checks that the benchmark runs")
    torch.set_num_threads(1)
    named = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"{named}; torch {torch.__version__}; microseconds per model-step and ratios, median of {options.rounds}")
    print("engine   mode      d   p models  us/step  1 core / it  same engine, 1 thread / it")
    many = 50 if device.type == "cuda" else 2
    sizes, counts = (SIZES[:1], MODELS[:1]) if options.quick else (SIZES, MODELS)
    for d, p in sizes:
        kernel = Kernel(d, p)
        for engine in [name for name in ("stacked", "vmap") if name in ENGINES]:
            cpu = Steps(engine, d, p, CPU_MODELS[engine], torch.device("cpu"), "eager")
            cpu.run(1)
            for models in counts:
                for mode in ("eager", "graph", "compile") if device.type == "cuda" else ("eager",):
                    try:
                        gpu = Steps(engine, d, p, models, device, mode)
                        gpu.run(3)
                        times = [
                            (
                                gpu.run(many) / many / models,
                                kernel.run(60 * STEPS) / (60 * STEPS),
                                cpu.run(2) / 2 / cpu.models,
                            )
                            for _ in range(options.rounds)
                        ]
                    except Exception as error:  # one mode that fails on this machine must not hide the others
                        print(f"{engine:8s} {mode:8s} {d:3d} {p:3d} {models:6d}  not measured: "
                              f"{type(error).__name__}: {str(error).splitlines()[0][:90]}", flush=True)  # fmt: skip
                        continue
                    gpu_time, one_core, same = np.array(times).T
                    print(
                        f"{engine:8s} {mode:8s} {d:3d} {p:3d} {models:6d} {1e6 * np.median(gpu_time):8.2f} "
                        f"{np.median(one_core / gpu_time):12.1f} {np.median(same / gpu_time):27.1f}", flush=True,
                    )  # fmt: skip


if __name__ == "__main__":
    main()
