"""What the arithmetics of certificates say of a few numbers, for the golden outputs: every term of an error is seen.

Formats are so coarse, and losses by underflow so large, that no term hides behind another. The checker's are whole
numbers, the same on every machine.
"""

import random
from typing import Any
from unittest import mock

import numpy as np
import torch

from interp.certificates import places_forms
from interp.certificates.arithmetic import Arithmetic, Tracked, exact
from interp.certificates.check import enclosures, forms, layer
from interp.certificates.places_forms import FormArithmetic, Forms

COARSE = {"u": 2.0**-7, "smallest": 2.0**-9, "largest": 1e4}


def waves(*shape: int) -> torch.Tensor:
    return 2 * torch.arange(1, np.prod(shape) + 1, dtype=torch.float64).mul(1.7).sin().view(shape)


def tracked() -> dict[str, Tracked | torch.Tensor]:
    numbers = Arithmetic(2.0**-24)
    vars(numbers).update(COARSE)
    x, y, gain = Tracked(waves(3, 3), waves(3, 3).abs() / 16), Tracked(waves(4, 3)[1:], waves(3, 3).abs() / 9), waves(3)
    return {
        "linear": numbers.linear(x, waves(3, 2), waves(2)), "cut": Arithmetic(2.0**-8, True).linear(x, waves(3, 2)),
        "add": numbers.add(x, y), "product": numbers.product(x, y),
        "whole": numbers.linear(exact(waves(2, 3).round()), waves(3, 2).round()), "total": numbers.total([x, y, y]),
        "relu": numbers.activation(x, "relu"), "gelu": numbers.activation(x, "gelu"), "mix": numbers.mix(x, y),
        **{kind: numbers.norm(x, kind, gain, -gain, 0.5) for kind in ("layer", "rms")},
        "scores": numbers.scores(x, y, 0.7), "nothing": numbers.scores(x, y, 0.0),
        "softmax": Arithmetic(2.0**-12).softmax(x),
        "weights": Arithmetic(2.0**-16).weight_error(x.error, x.size, 300),
        "mean": numbers.average(x, gain**2, gain, 5),
    }  # fmt: skip


def linear_bounds(size: float) -> dict[str, Forms]:
    numbers = FormArithmetic(torch.float32)
    vars(numbers).update(COARSE)
    center, slopes, gain = waves(4, 2).numpy(), size * waves(4, 3, 2).numpy(), waves(4).numpy()
    x = Forms(center, slopes, np.abs(slopes[:, 0]) / 5, np.abs(center) / 50)
    y = Forms(center[::-1] + 1, slopes[::-1], np.abs(slopes[:, 1]) / 4, np.abs(center) / 70)
    with mock.patch.object(places_forms, "U64", 2.0**-13):
        return {
            "linear": numbers.linear(x, waves(4, 3), waves(3)), "shifted": numbers.shifted(x, gain),
            "times": numbers.times(x, y), **{kind: numbers.norm(x, kind, gain, gain, 0.5) for kind in ("layer", "rms")},
            **{name: numbers.activation(y, name) for name in ("relu", *places_forms.CURVES)},
        }  # fmt: skip


def whole_forms(size: int) -> dict[str, Any]:
    rng = random.Random(size)

    def some(n: int, most: int) -> list[int]:
        return [rng.randrange(-most, most) for _ in range(n)]

    def form() -> forms.Form:
        return forms.Form(some(4, 2**65), [some(4, size) for _ in range(3)], [abs(r) for r in some(4, size)])

    x, y, columns = form(), form(), forms.Columns([some(4, 2**193) for _ in range(3)], some(3, 2**192))
    return {
        "columns": columns(x), "added": forms.added(x, y), "product": forms.product(x, y),
        "rms": forms.rms(x, some(4, 2**65), 2**60), "leads": [forms.lead(x, columns, right) for right in range(3)],
        **{name: forms.activated(x, name) for name in ("relu", "gelu", "silu")},
    }  # fmt: skip


def enclosed(name: str) -> dict[str, Any]:
    rng, f = random.Random(0), enclosures.FORMATS[name]

    def vec(n: int) -> enclosures.Vec:
        one = enclosures.ONE
        return enclosures.Vec(*(tuple(rng.randrange(-most, most) if most > one else rng.randrange(most)
                                      for _ in range(n)) for most in (2 * one, one >> 8, one >> 12)))  # fmt: skip

    x, y, rows = vec(4), vec(4), [vec(2) for _ in range(4)]
    return {
        "norm": enclosures.layer_norm(x, y.mid, y.mid[::-1], enclosures.ONE >> 4, f), "plus": enclosures.plus(x, y, f),
        "relu": enclosures.relu(x), "matrix": enclosures.Matrix([y.mid, y.mid[::-1]], x.mid[:2])(x, f),
        "attend": [layer.attend(x, rows, softmax, f) for softmax in (True, False)],
        "exponentials": [enclosures.exp_between(-abs(part)) for part in (*x.mid, 50 * x.mid[0])],
        "sines": [enclosures.sine_between(a, 17) for a in (0, 1, 5, 8)],
    }  # fmt: skip


def bounds() -> dict[str, Any]:
    return {
        "tracked": tracked(),
        **{f"linear bounds {size}": linear_bounds(size) for size in (0.001, 0.05, 1.0)},
        **{f"whole forms {bits}": whole_forms(2**bits) for bits in (50, 60, 64, 68)},
        **{name: enclosed(name) for name in ("reals", "float32")},
    }  # fmt: skip
