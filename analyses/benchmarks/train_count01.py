"""How much faster is training in count space than training the same model on sequences?

    python analyses/benchmarks/train_count01.py [--quick] [--rounds 5]

A: a stock HookedTransformer (use_attn_result off) of the paper's main model on padded sequences, batches of 128, Adam.
B: the count-space engine with one model. C: the same with 64 models. All on one thread, taking turns; an epoch of A is
extrapolated from whole training steps (55 a epoch), those of B and C are run. Prints model-epochs per second and the
ratios to A, each as min, median and max over the rounds. Loss and gradients are equal (tests/training).
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch
from transformer_lens import HookedTransformer, HookedTransformerConfig

import interp
from interp.spec import Bias, Layer, Training
from interp.tasks import IGNORED, Count01
from interp.training.count_space import CountSpaceEngine

SPEC = interp.ModelSpec(
    task=Count01().ref,
    d_model=32,
    layers=(Layer(n_heads=16, d_head=2, scale=1.0, norm="pre", bias=Bias(o=True)),),
    readout_at="=",
    origin=Training(learning_rate=2e-4, schedule="cosine"),
)


def stock_step() -> Callable[[], None]:
    """One training step of a stock model on the next 128 sentences."""
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    cfg = HookedTransformerConfig(
        n_layers=1, d_model=32, n_heads=16, d_head=2, attn_only=True, n_ctx=304, d_vocab=8, d_vocab_out=8,
        normalization_type="LN", use_attn_scale=False, use_attn_result=False, device="cpu",
    )  # fmt: skip
    model, task = HookedTransformer(cfg), Count01()
    batch = task.dataset("train")
    classes = task.classes(batch)
    adam = torch.optim.Adam(model.parameters(), lr=2e-4)
    position = 0

    def step() -> None:
        nonlocal position
        rows = slice(position, position + 128)
        position = (position + 128) % 6912
        read = classes[rows] != IGNORED
        loss = torch.nn.functional.cross_entropy(model(batch.tokens[rows])[read], classes[rows][read])
        adam.zero_grad()
        loss.backward()
        adam.step()

    return step


def counted_epochs(models: int) -> Callable[[], None]:
    """One epoch of so many models in count space."""
    engine = CountSpaceEngine(SPEC, Count01(), range(models), torch.device("cpu"), torch.float32)
    epoch = 0

    def run() -> None:
        nonlocal epoch
        epoch += 1
        engine.run_epoch(epoch)

    return run


def seconds(work: Callable[[], None], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - start) / times


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two rounds")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    step, one, many = stock_step(), counted_epochs(1), counted_epochs(64)
    for work in (step, one, many):
        work()  # warm up
    rates = []
    for _ in range(2 if given.quick else given.rounds):
        a = 1 / (55 * seconds(step, 1))
        b = 1 / seconds(one, 8)
        c = 64 / seconds(many, 2)
        rates.append((a, b, c, b / a, c / a))
        print(f"A {a:.4f}   B {b:.1f}   C {c:.1f} model-epochs/s   B/A {b / a:,.0f}   C/A {c / a:,.0f}", flush=True)
    names = ("A stock, 1 model", "B counts, 1 model", "C counts, 64 models", "ratio B/A", "ratio C/A")
    for name, column in zip(names, np.array(rates).T):
        low, middle, high = np.quantile(column, [0, 0.5, 1])
        print(f"{name:22} min {low:12,.4g}   median {middle:12,.4g}   max {high:12,.4g}")


if __name__ == "__main__":
    main()
