"""One training step of a compiled loop at learning rate 0: the loss and the gradient that training uses."""

from typing import Any

import numpy as np

from interp.families.histogram.compiled.layout import Layout


def loss_and_gradient(
    loop: Any, sizes: Any, made: Layout, flat: np.ndarray, work: Any, data: Any, n: int
) -> tuple[float, np.ndarray]:
    """Mean loss (nats) of n examples, and its gradient as a flat vector."""
    flat, (grad, m, v) = flat.copy(), (made.zeros() for _ in "gmv")
    blocks = made.blocks(flat), made.blocks(grad)
    loss = loop.train(sizes, *blocks, work, data, flat, grad, m, v, 0, 0, n, np.zeros(1), 0.9, 0.999, 1e-8)
    return float(loss), grad
