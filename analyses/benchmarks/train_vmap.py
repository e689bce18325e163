"""How much faster does the vmap engine train 16 seeds side by side than the reference engine one after another?

    python analyses/benchmarks/train_vmap.py [--quick] [--rounds 5] [--seeds 16] [--batch 8 32 128 512]

Models of two layers, d_model 32, two heads of 16, each on a task of its own: attention only and read at every position
(induction), pre-norm with MLPs and read at one (max-of-k), post-norm with MLPs, bidirectional and padded (brackets). A:
the reference engine, the task model itself. B: the vmap engine. Both draw the same fresh rows, and both take whole
steps (forward, backward, AdamW); evaluation is left out. One thread, taking turns, in seconds of the processor, which
do not count what other processes take. Prints milliseconds a step of all seeds and the ratios, min, median and max over
the rounds, and beside them what share of B is matrix products and softmax as torch's profiler counts them: the rest
are sums, copies and the price of an operation. That both train the same models: tests/training/engines/test_vmap.py.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from interp.models.spec import MLP, Layer, ModelSpec, TaskRef, Training
from interp.tasks import make_task
from interp.training.train import ENGINES

STEPS = 6
HEADS = {"n_heads": 2, "d_head": 16}
MODELS: dict[str, dict[str, Any]] = {
    "induction": {
        "task": TaskRef(name="induction", parameters={"v": 16, "length": 16, "shortest": 3, "longest": 8}),
        "layers": (Layer(**HEADS),) * 2, "positions": "learned", "max_length": 17, "readout_at": "all",
    },
    "max-of-k": {
        "task": TaskRef(name="max-of-k"), "layers": (Layer(**HEADS, norm="pre", mlp=MLP(d_mlp=128)),) * 2,
        "positions": "learned", "max_length": 5, "readout_at": "=",
    },
    "brackets": {
        "task": TaskRef(name="brackets"), "layers": (Layer(**HEADS, norm="post", mlp=MLP(d_mlp=128)),) * 2,
        "positions": "learned", "max_length": 17, "readout_at": "[CLS]", "readout": "scalar", "decision": "sigmoid",
        "direction": "bidirectional",
    },
}  # fmt: skip


def steps_of(engine: str, model: str, batch: int, seeds: int) -> Callable[[], None]:
    """STEPS training steps of every seed, on fresh rows."""
    recipe = Training(
        data="fresh", batch_size=batch, samples_per_epoch=STEPS * batch, optimizer="adamw", weight_decay=0.01,
        init="torch",
    )  # fmt: skip
    spec = ModelSpec(d_model=32, origin=recipe, **MODELS[model])
    trainer: Any = ENGINES[engine](spec, make_task(spec.task), range(seeds), torch.device("cpu"), torch.float32)
    epoch = 0

    def run() -> None:
        nonlocal epoch
        epoch += 1
        for group in trainer.groups:
            trainer.train_group(group, epoch)

    return run


def milliseconds(work: Callable[[], None]) -> float:
    start = time.process_time()
    work()
    return 1e3 * (time.process_time() - start) / STEPS


def products(work: Callable[[], None]) -> float:
    """The share of matrix products and softmax in what torch's operations take."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        work()
    took = {event.key: event.self_cpu_time_total for event in seen.key_averages()}
    known = sum(t for key, t in took.items() if any(part in key for part in ("bmm", "::mm", "addmm", "_softmax")))
    return known / sum(took.values())


def compare(model: str, batch: int, seeds: int, rounds: int) -> None:
    a, b = (steps_of(engine, model, batch, seeds) for engine in ("reference", "vmap"))
    a(), b()
    rows = np.array([(milliseconds(a), milliseconds(b)) for _ in range(rounds)])
    ratio = np.quantile(rows[:, 0] / rows[:, 1], [0, 0.5, 1])
    mine, its = np.median(rows, 0)
    print(
        f"{model:10} batch {batch:4}   A {mine:8.1f} ms   B {its:7.1f} ms   A/B min {ratio[0]:5.2f} median "
        f"{ratio[1]:5.2f} max {ratio[2]:5.2f}   products {products(b):.2f} of B",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two rounds")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--batch", type=int, nargs="+", default=[8, 32, 128, 512])
    given = parser.parse_args()
    torch.set_num_threads(1)
    for model in MODELS:
        for batch in given.batch:
            compare(model, batch, given.seeds, 2 if given.quick else given.rounds)


if __name__ == "__main__":
    main()
