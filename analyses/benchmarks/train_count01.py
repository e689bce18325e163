"""How much faster is training in count space than training the same model on sequences?

    python analyses/benchmarks/train_count01.py [--quick] [--rounds 5]

A: a stock HookedTransformer (use_attn_result off) of the paper's main model on padded sequences, batches of 128, Adam.
B: the count-space engine with one model. C: the same with 64 models. All on one core, taking turns; an epoch of A is
extrapolated from a whole training step (55 per epoch), the others' are run, with their accuracy on the validation set.
Prints model-epochs per second, microseconds a model-step and ratios, each as min, median and max over the rounds.
Loss and gradients are equal (tests/training).
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from itertools import count

import numpy as np
import torch
from transformer_lens import HookedTransformer, HookedTransformerConfig

import interp
from interp.families.count01 import Count01
from interp.families.count01.training import CountSpaceEngine
from interp.models.spec import Bias, Layer, Training
from interp.tasks import IGNORED
from interp.training.engines.engine import Engine

SPEC = interp.ModelSpec(
    task=Count01().ref,
    d_model=32,
    layers=(Layer(n_heads=16, d_head=2, scale=1.0, norm="pre", bias=Bias(o=True)),),
    readout_at="=",
    origin=Training(learning_rate=2e-4, schedule="cosine"),
)
STEPS = 55  # an epoch: 7000 sentences in batches of 128


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


def counted_epochs(kind: type[Engine], models: int) -> Callable[[], object]:
    """One epoch of so many models in count space."""
    engine = kind(SPEC, Count01(), range(models), torch.device("cpu"), torch.float32)
    epochs = count(1)
    return lambda: engine.run_epoch(next(epochs))


def seconds(work: Callable[[], object], times: int) -> float:
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
    step = stock_step()
    counted = [
        ("B counts, 1 model", 1, 8, counted_epochs(CountSpaceEngine, 1)),
        ("C counts, 64 models", 64, 2, counted_epochs(CountSpaceEngine, 64)),
    ]
    for work in (step, *(run for *_, run in counted)):
        work()  # warm up
    rounds = []
    for _ in range(2 if given.quick else given.rounds):
        rates = {"A stock, 1 model": 1 / (STEPS * seconds(step, 1))}
        rates |= {name: models / seconds(run, times) for name, models, times, run in counted}
        a, b, c = rates.values()
        ratios = {"B/A": b / a, "C/A": c / a}
        rounds.append((*rates.values(), *(1e6 / STEPS / rate for rate in rates.values()), *ratios.values()))
        print("   ".join(f"{name} {ratio:,.1f}" for name, ratio in ratios.items()), flush=True)
    rows = [f"{name}, {unit}" for unit in ("model-epochs/s", "us a model-step") for name in rates]
    for name, column in zip([*rows, *(f"ratio {name}" for name in ratios)], np.array(rounds).T, strict=True):
        low, middle, high = np.quantile(column, [0, 0.5, 1])
        print(f"{name:37} min {low:12,.4g}   median {middle:12,.4g}   max {high:12,.4g}")


if __name__ == "__main__":
    main()
