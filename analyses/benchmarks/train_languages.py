"""How much faster are the encoder engines than the published training loop of the formal-language models?

    python analyses/benchmarks/train_languages.py [--quick] [--rounds 3] [--seeds 20] [--length 100]

A: torch.nn.TransformerEncoder of the published shape at batch 1, one seed after another: a step of Adam for each of 100
strings, then a test on 100 strings (one batch); a few steps are run and extrapolated to an epoch of all seeds.
B: the stacked engine, all seeds in one torch operation. C: the compiled engine. B and C run whole epochs, drawing the
strings and testing included. Twice: FIRST with the code I[i = 1], where a string has four distinct rows, and with i/n,
where each position is a row of its own. All on one thread, taking turns. Prints seconds for 1000 epochs of all seeds
(extrapolated) and the ratios, min, median and max over the rounds. Gradients are equal: tests/training/test_encoder.py.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from itertools import count

import numpy as np
import torch
from torch import nn

from interp.families.languages import First
from interp.families.languages.compiled.engine import FusedEncoderEngine
from interp.families.languages.constructions.learned import PUBLISHED, learned_spec
from interp.families.languages.training import EncoderEngine
from interp.models.architecture.formulas import position_codes
from interp.tasks import make_task
from interp.training.engines.base import Engine

EPOCHS, STRINGS = 1000, 100


class Published(nn.Module):
    """The published learned model, plainly: batch_first, no dropout, read at position 0."""

    def __init__(self, codes: torch.Tensor) -> None:
        super().__init__()
        self.codes = codes
        self.embedding = nn.Embedding(4, 16)
        layer = nn.TransformerEncoderLayer(16, 1, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(16, 1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.out(self.encoder(self.embedding(tokens) + self.codes)[:, 0])[:, 0]
        return answer


def plain(positions: str, length: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """One training step on one fresh string, and one test on 100."""
    table, of = position_codes(positions, length + 1, 16)
    model = Published(table[of].float())
    adam = torch.optim.Adam(model.parameters(), lr=PUBLISHED.learning_rate)
    loss_of = nn.BCEWithLogitsLoss()

    def strings(n: int) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = torch.randint(0, 2, (n, length + 1))
        tokens[:, 0] = 2
        return tokens, tokens[:, 1].float()

    def step() -> None:
        tokens, label = strings(1)
        loss = loss_of(model(tokens), label)
        adam.zero_grad()
        loss.backward()
        adam.step()

    @torch.no_grad()
    def test() -> None:
        tokens, label = strings(STRINGS)
        ((model(tokens) > 0) == label.bool()).double().mean()

    return step, test


def epochs_of(kind: type[Engine], positions: str, length: int, seeds: int) -> Callable[[], object]:
    """One epoch of all seeds."""
    spec = learned_spec(First(length=length), positions)
    engine = kind(spec, make_task(spec.task), range(seeds), torch.device("cpu"), torch.float32)
    epochs = count(1)
    return lambda: engine.run_epoch(next(epochs))


def seconds(work: Callable[[], object], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - start) / times


def compare(positions: str, rounds: int, seeds: int, length: int) -> None:
    step, test = plain(positions, length)
    stacked = epochs_of(EncoderEngine, positions, length, seeds)
    compiled = epochs_of(FusedEncoderEngine, positions, length, seeds)
    for work in (step, test, stacked, compiled):
        work()  # warm up
    rows = []
    for _ in range(rounds):
        a = seeds * (STRINGS * seconds(step, 50) + seconds(test, 3))
        b, c = seconds(stacked, 2), seconds(compiled, 4)
        rows.append((EPOCHS * a, EPOCHS * b, EPOCHS * c, a / b, a / c))
    print(f"\n{positions}: {seeds} seeds, length {length}, {EPOCHS} epochs of {STRINGS} strings (extrapolated)")
    names = ("A plain loop (s)", "B stacked (s)", "C compiled (s)", "ratio A/B", "ratio A/C")
    for name, column in zip(names, np.array(rows).T):
        low, middle, high = np.quantile(column, [0, 0.5, 1])
        print(f"{name:18} min {low:10,.4g}   median {middle:10,.4g}   max {high:10,.4g}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--length", type=int, default=100)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):  # the compiled engine would use all cores
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for positions in ("first", "fraction"):
        compare(positions, 1 if given.quick else given.rounds, given.seeds, given.length)


if __name__ == "__main__":
    main()
