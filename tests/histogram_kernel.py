"""The compiled histogram loop at any sizes, outside its engine."""

from typing import Any

import numpy as np
from one_step import loss_and_gradient

from interp.families.histogram.compiled import kernel as histogram_loop
from interp.families.histogram.compiled.layout import Layout, Sizes, TrainingData, workspace

MODELS = {  # name: mixing, softmax, bos
    "lin": ("lin", False, False), "lin+sftm": ("lin", True, False), "dot": ("dot", False, False),
    "dot+sftm": ("dot", True, False), "bos": ("dot", False, True), "bos+sftm": ("dot", True, True),
}  # fmt: skip


class Kernel:
    def __init__(
        self, name: str, T: int, L: int, d: int, p: int, classes: int, dtype: Any = np.float64, frozen: bool = False,
        sampler: str = "published",
    ) -> None:  # fmt: skip
        mixing, softmax, bos = MODELS[name]
        self.sizes = Sizes(T, T + bos, L, d, p, classes, L + 1 - classes, mixing == "dot", softmax, bos, frozen,
                           float(d) ** -0.5)  # fmt: skip
        self.dtype, self.published = dtype, sampler == "published"
        self.layout = Layout(self.sizes, dtype)
        self.zeros, self.views = self.layout.zeros, self.layout.views

    def _data(self, n: int, tokens: np.ndarray | None, seed: int) -> TrainingData:
        given = np.zeros((0, self.sizes.L), np.int64) if tokens is None else np.ascontiguousarray(tokens, np.int64)
        return TrainingData(n, given, np.array([seed], np.uint64), self.published)

    def loss_and_grad(self, flat: np.ndarray, tokens: np.ndarray) -> tuple[float, np.ndarray]:
        n, work = len(tokens), workspace(self.sizes, len(tokens), self.dtype)
        return loss_and_gradient(histogram_loop, self.sizes, self.layout, flat, work, self._data(n, tokens, 0), n)

    def train(
        self, flat: np.ndarray, m: np.ndarray, v: np.ndarray, step: int, seed: int, n: int, batch: int = 32,
        lr: float = 1e-3,
    ) -> float:  # fmt: skip
        """Train on n drawn sequences; return the mean loss."""
        self.work, grad = workspace(self.sizes, batch, self.dtype), self.zeros()
        blocks, steps = (self.layout.blocks(flat), self.layout.blocks(grad)), -(-n // batch)
        loss = histogram_loop.train(
            self.sizes, *blocks, self.work, self._data(n, None, seed), flat, grad, m, v,
            blocks[0].embed.size if self.sizes.frozen else 0, step, batch, np.full(steps, lr), 0.9, 0.98, 1e-9,
        )  # fmt: skip
        return float(loss)

    def draw(self, seed: int, n: int) -> np.ndarray:
        """The n sequences of a training step, (n, L); without linear mixing, equal tokens are neighbors."""
        self.train(self.zeros(), self.zeros(), self.zeros(), 0, seed, n, n)
        w, L = self.work, self.sizes.L
        places = (
            w.place if not self.sizes.dot else [np.repeat(np.arange(k), c[:k]) for k, c in zip(w.distinct, w.count)]
        )
        return np.stack([token[place] for token, place in zip(w.token[:, :L], places)])

    def accuracy(self, flat: np.ndarray, tokens: np.ndarray) -> float:
        work, given = workspace(self.sizes, 32, self.dtype), np.ascontiguousarray(tokens, np.int64)
        return float(histogram_loop.accuracy(self.sizes, self.layout.blocks(flat), work, given))
