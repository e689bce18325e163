"""One step of Adam on a flat vector (Kingma and Ba 2015, algorithm 1), as in torch.optim.Adam without weight decay."""

import math
from typing import Any

from interp.training.compiled.vectors import fill, fma, inner, lanes_of, load, root, store


@inner
def power(base: float, exponent: int) -> float:
    """Return base^exponent, computed by multiplication so that every machine gets the same number; exponent >= 0."""
    result = 1.0
    while exponent > 0:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result


@inner
def adam_step(
    flat: Any, grad: Any, m: Any, v: Any, first: int, step: int, lr: float, beta1: float, beta2: float, eps: float
) -> None:
    """Do Adam step number `step` (1, 2, ...) on all numbers from index `first`; lengths are whole vectors."""
    number = flat.dtype.type
    keep1, take1 = fill(number(beta1)), fill(number(1.0 - beta1))
    keep2, take2 = fill(number(beta2)), fill(number(1.0 - beta2))
    correction = math.sqrt(1.0 - power(beta2, step))
    rate = fill(number(-lr * correction / (1.0 - power(beta1, step))))
    floor = fill(number(eps * correction))
    for at in range(first, len(flat), lanes_of(flat)):
        g = load(grad, at)
        m1 = fma(keep1, load(m, at), take1 * g)
        v1 = fma(keep2, load(v, at), take2 * (g * g))
        store(m, at, m1)
        store(v, at, v1)
        store(flat, at, load(flat, at) + rate * m1 / (root(v1) + floor))
