"""How much faster do the compiled kernels train the histogram models than the published training loop?

    python analyses/benchmarks/train_histogram.py [--quick] [--models dot+sftm lin ...] [--rounds 9] [--no-engines]

A: the published algorithm in plain torch (nn.Embedding, nn.Linear for queries and keys, ReLU readout, eager Adam,
batches of 32), no DataLoader. B: interp's compiled loop, one model. One thread each, in turns; CPU time, so that
other work on the machine counts as little as possible. Two ratios per size, as min, median and max over the rounds:
  step   A on batches made before, against B as it is: B's sampler is part of its loop, so this is a lower bound
  whole  both with sampling and labels; A draws sample by sample in Python, as the published code does
Columns: A, A' (with sampling), B, and `draw`, B's sampler alone (shuffled positions only for lin, as in the loop), in
microseconds per step; `eval`: the accuracy on the validation data after an epoch, per step; `data`: the
share of an epoch that sampling and evaluation take (labels come with the sequences). What bounds a step: `plain` and
`own`, the floating-point operations of its products as A and as B does them, in millions; `exp`, exponentials, in
thousands; `KB`, what Adam reads and writes; `peak`, the share of this core's single-precision matrix product (512 x
512, best of the run) that B reaches with `own`; and `Adam`, the share of the step that Adam takes, which is bound by
one division and one square root a parameter.

Then all engines of interp.train that take the spec, side by side: one epoch each in turn, microseconds per step of one
model with sampling and labels and without the evaluation after it, and the ratio of A' to it (min, median, max).
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import nn

from interp.families.histogram import Histogram
from interp.families.histogram.compiled.arrays import adam_step
from interp.families.histogram.compiled.engine import no_subnormals
from interp.families.histogram.compiled.kernel import draw_sequence, scramble, shuffle_places
from interp.families.histogram.constructions.models import histogram_spec
from interp.families.histogram.theory.ranges import MixingKind
from interp.models.spec import Training
from interp.training.train import ENGINES

T, L, BATCH, EPOCH, CLASSES = 32, 10, 32, 10_000, 11
STEPS = -(-EPOCH // BATCH)
MODELS = {  # name: mixing, softmax, bos
    "dot+sftm": ("dot", True, False),
    "lin": ("lin", False, False),
    "lin+sftm": ("lin", True, False),
    "dot": ("dot", False, False),
    "bos": ("dot", False, True),
    "bos+sftm": ("dot", True, True),
}
SIZES = ((8, 8), (32, 32), (128, 128))
SPECS: dict[str, MixingKind] = {
    "dot+sftm": "dot-softmax", "lin": "lin", "lin+sftm": "lin-softmax", "dot": "dot", "bos": "bos",
    "bos+sftm": "bos-softmax",
}  # fmt: skip
STACKS = (("reference", 1), ("vmap", 1), ("vmap", 16), ("fused", 1))
"""Engines, and how many models they train side by side."""
CPU = torch.device("cpu")
SHORT = 1920
"""Sequences of an epoch in the comparison of engines."""


class Published(nn.Module):
    """The paper's model, position by position."""

    def __init__(self, mixing: str, softmax: bool, bos: bool, d: int, p: int) -> None:
        super().__init__()
        self.softmax, self.bos, self.d = softmax, bos, d
        self.embed = nn.Embedding(T + bos, d)
        self.query = nn.Linear(d, d, bias=False) if mixing == "dot" else None
        self.key = nn.Linear(d, d, bias=False) if mixing == "dot" else None
        self.mix = nn.Parameter(torch.randn(L, L) / L) if mixing == "lin" else None
        self.hidden, self.out = nn.Linear(d, p), nn.Linear(p, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        if self.query is not None and self.key is not None:
            scores = self.query(x) @ self.key(x).transpose(1, 2) / self.d**0.5
        else:
            assert self.mix is not None
            scores = self.mix
        x = x + (scores.softmax(-1) if self.softmax else scores) @ x
        logits: torch.Tensor = self.out(torch.relu(self.hidden(x)))
        return logits[:, 1:] if self.bos else logits


def draw_published(n: int, bos: bool, generator: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """n sequences and their counts, one sample at a time."""
    tokens, counts = [], []
    for _ in range(n):
        left, sizes = L, []
        while left:
            sizes.append(int(generator.integers(1, left)) if left > 1 else 1)
            left -= sizes[-1]
        names = generator.permutation(T)[: len(sizes)]
        order = generator.permutation(L)
        tokens.append(np.repeat(names, sizes)[order])
        counts.append(np.repeat(sizes, sizes)[order])
    x = torch.from_numpy(np.stack(tokens))
    return torch.cat([torch.full((n, 1), T), x], 1) if bos else x, torch.from_numpy(np.stack(counts))


class Baseline:
    def __init__(self, name: str, d: int, p: int) -> None:
        torch.manual_seed(0)
        self.bos, self.generator = MODELS[name][2], np.random.default_rng(0)
        self.model = Published(*MODELS[name], d, p)
        self.adam = torch.optim.Adam(self.model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9)
        self.batches = [draw_published(BATCH, self.bos, self.generator) for _ in range(32)]

    def train(self, tokens: torch.Tensor, counts: torch.Tensor) -> None:
        self.adam.zero_grad()
        nn.functional.cross_entropy(self.model(tokens).reshape(-1, CLASSES), counts.reshape(-1)).backward()
        self.adam.step()

    def steps(self, n: int) -> None:
        for i in range(n):
            self.train(*self.batches[i % len(self.batches)])

    def whole(self, n: int) -> None:
        for _ in range(n):
            self.train(*draw_published(BATCH, self.bos, self.generator))


class Compiled:
    def __init__(self, name: str, d: int, p: int) -> None:
        self.engine = engine_of(name, d, p, "fused", 1, EPOCH)
        self.flat, self.linear = self.engine.flat[0], MODELS[name][0] == "lin"
        self.spare = [self.engine.layout.zeros() + 1e-3 for _ in range(4)]
        self.epochs_done = 1
        self.drawn = tuple(np.zeros((BATCH, L), np.int64) for _ in range(3))

    def epoch(self) -> None:
        self.epochs_done += 1
        with no_subnormals():  # as the engine trains
            self.engine.train_one(0, self.epochs_done)

    def draw(self) -> None:
        _draw_sequences(self.epochs_done, *self.drawn, STEPS, self.linear)

    def evaluate(self) -> None:
        self.engine.evaluate()

    def adam(self) -> None:
        _adam_steps(*self.spare, STEPS)


@njit(nogil=True)
def _adam_steps(flat: Any, grad: Any, m: Any, v: Any, steps: int) -> None:
    for step in range(steps):
        adam_step(flat, grad, m, v, 0, 1000 + step, 0.0, 0.9, 0.98, 1e-9)


@njit(nogil=True)
def _draw_sequences(seed: int, token: Any, count: Any, place: Any, steps: int, shuffled: bool) -> None:
    state = np.empty(1, np.uint64)
    state[0] = scramble(np.uint64(seed))
    for _ in range(steps):
        for b in range(BATCH):
            distinct = draw_sequence(state, token, count, b * L, T, L, True)
            if shuffled:
                shuffle_places(state, place, b * L, count, b * L, distinct)


def exponentials(name: str, tokens: np.ndarray) -> float:
    """Exponentials of a step: of the loss, and of a softmax over scores."""
    mixing, softmax, bos = MODELS[name]
    distinct = np.array([len(set(sequence)) for sequence in tokens.tolist()])
    rows = BATCH * (distinct.mean() if mixing == "dot" else L)
    pairs = BATCH * (distinct * (distinct + bos)).mean() if mixing == "dot" else L * L
    return float(rows * CLASSES + (pairs if softmax else 0))


def flops(name: str, d: int, p: int, tokens: np.ndarray) -> tuple[float, float]:
    """Floating-point operations of the products of a step, forward and backward: by position, and as the kernels do."""
    mixing, _, bos = MODELS[name]
    long = L + bos
    project = 2 * d if mixing == "dot" else 0
    plain = 6 * BATCH * (long * d * (project + p) + long * long * d * (2 if mixing == "dot" else 1) + L * p * CLASSES)
    distinct = np.array([len(set(sequence)) for sequence in tokens.tolist()])
    rows = BATCH * (distinct.mean() if mixing == "dot" else L)
    pairs = BATCH * ((distinct * (distinct + bos)).mean() if mixing == "dot" else L * distinct.mean())
    scores = (T + bos) ** 2 * d if mixing == "dot" else 0
    return float(plain), float(6 * ((T + bos) * d * (project + p) + scores + rows * p * CLASSES + pairs * p))


def seconds(work: Callable[[], object], repeat: int) -> float:
    """CPU seconds of one call."""
    start = time.process_time()
    for _ in range(repeat):
        work()
    return (time.process_time() - start) / repeat


def engine_of(name: str, d: int, p: int, engine: str, models: int, samples: int = SHORT) -> Any:
    """An engine of interp.train with models in training."""
    recipe = Training(
        batch_size=BATCH, data="fresh", samples_per_epoch=samples, betas=(0.9, 0.98), eps=1e-9, init="torch"
    )
    spec = histogram_spec(SPECS[name], Histogram(bos=MODELS[name][2], zero_class=True), d, p, origin=recipe)
    trainer = ENGINES[engine](spec, Histogram(bos=MODELS[name][2], zero_class=True), range(models), CPU, torch.float32)
    trainer.run_epoch(1)
    return trainer


def compare_engines(name: str, d: int, p: int, rounds: int) -> None:
    """One line per engine: microseconds per model-step, and the ratio to the published loop in the same round."""
    published = Baseline(name, d, p)
    engines = {stack: engine_of(name, d, p, *stack) for stack in STACKS}
    steps = SHORT // BATCH
    ratios: dict[tuple[str, int], list[float]] = {stack: [] for stack in STACKS}
    times: dict[tuple[str, int], list[float]] = {stack: [] for stack in STACKS}
    for epoch in range(2, 2 + rounds):
        for stack, engine in engines.items():
            whole = seconds(partial(published.whole, steps), 1)
            spent = seconds(partial(engine.run_epoch, epoch), 1) - seconds(engine.evaluate, 1)
            times[stack].append(spent / steps / stack[1])
            ratios[stack].append(whole * stack[1] / spent)
    for stack in STACKS:
        cells = [f"{1e6 * float(np.median(times[stack])):8.1f}"]
        cells += [f"{pick(ratios[stack]):7.1f}" for pick in (min, np.median, max)]
        print(f"{name:8s} {d:3d} {p:3d} {stack[0]:>10s} {stack[1]:6d} " + " ".join(cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=None)
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--quick", action="store_true", help="dot+sftm and lin, 3 rounds")
    parser.add_argument("--no-engines", action="store_true", help="leave the comparison of all engines out")
    options = parser.parse_args()
    models = options.models or (["dot+sftm", "lin"] if options.quick else list(MODELS))
    rounds = options.rounds or (3 if options.quick else 9)
    torch.set_num_threads(1)
    matrix, peak = torch.randn(512, 512), 0.0
    print(f"{'us per step (median)':>52s} {'step: A / B':>20s} {'whole: A / B':>20s} {'what bounds a step':>34s}")
    labels = ("A", "A'", "B", "draw", "eval", "min", "med", "max", "min", "med", "max", "data", "plain", "own", "exp",
              "KB", "peak", "Adam")  # fmt: skip
    print("model      d   p " + " ".join(f"{label:>6s}" for label in labels))
    for name in models:
        for d, p in SIZES:
            published, compiled = Baseline(name, d, p), Compiled(name, d, p)
            published.whole(3)
            compiled.epoch()
            compiled.adam()
            times: dict[str, list[float]] = {"A": [], "A'": [], "B": [], "draw": [], "eval": []}
            adam = []
            for _ in range(rounds):
                times["B"].append(seconds(compiled.epoch, 5) / STEPS)
                times["A"].append(seconds(partial(published.steps, 60), 1) / 60)
                times["B"].append(seconds(compiled.epoch, 5) / STEPS)
                times["A'"].append(seconds(partial(published.whole, 60), 1) / 60)
                times["draw"].append(seconds(compiled.draw, 5) / STEPS)
                times["eval"].append(seconds(compiled.evaluate, 5) / STEPS)
                adam.append(seconds(compiled.adam, 5) / STEPS)
                peak = max(peak, *(2 * 512**3 / seconds(partial(torch.mm, matrix, matrix), 2) for _ in range(5)))
            step = [a / b for a, b in zip(times["A"], times["B"][::2], strict=True)]
            whole = [a / b for a, b in zip(times["A'"], times["B"][1::2], strict=True)]
            tokens = Histogram(bos=False, zero_class=True).sample(3000, "train", seed=1).tokens.numpy()
            plain, own = flops(name, d, p, tokens)
            step_time, draw, test = (float(np.median(times[key])) for key in ("B", "draw", "eval"))
            cells = [f"{1e6 * float(np.median(values)):6.1f}" for values in times.values()]
            cells += [f"{pick(ratios):6.1f}" for ratios in (step, whole) for pick in (min, np.median, max)]
            cells += [f"{(draw + test) / (step_time + test):6.0%}", f"{plain / 1e6:6.2f}", f"{own / 1e6:6.2f}"]
            cells += [f"{exponentials(name, tokens) / 1e3:6.2f}", f"{7 * compiled.flat.nbytes / 1e3:6.0f}"]
            cells += [f"{own / step_time / peak:6.0%}", f"{float(np.median(adam)) / step_time:6.0%}"]
            print(f"{name:8s} {d:3d} {p:3d} " + " ".join(cells), flush=True)
    print(f"single-precision matrix product: {peak / 1e9:.0f} GFLOP/s on one core\n")
    if not options.no_engines:
        print("model      d   p     engine models  us/step  A' / engine: min     med     max")
        for name in models:
            for d, p in SIZES:
                compare_engines(name, d, p, rounds)


if __name__ == "__main__":
    main()
