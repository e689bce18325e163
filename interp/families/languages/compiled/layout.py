"""The layout of an encoder's parameters in the compiled loop's flat vector, and the work arrays of one string.

Every row is padded to whole vectors with zeros. Padding has zero gradient, so Adam keeps it zero.
"""

from collections import namedtuple
from functools import partial
from typing import Any

import numpy as np

from interp.training.compiled.layout import Layout, aligned, padded, tuple_of

ABSENT = -1e30
"""ln of the multiplicity of an absent row: its exponential is zero."""

Sizes = namedtuple("Sizes", "layers heads d dh f eps")

Params = namedtuple("Params", "embed WQ WK WV bQ bK bV WO bO w1 b1 Win bin Wout bout w2 b2 U bU")

StringRows = namedtuple("StringRows", "tokens codes log_counts rows factor labels table")
"""tokens, codes (strings, rows), ln of multiplicities (strings, padded rows), rows of each string, factor of its
scores, labels (strings,), and the table of position codes (codes, padded d)."""


def layout(s: Any, n_tokens: int, dtype: Any) -> Layout:
    """Return the matrices of all layers and heads in order."""
    D, K, F, L, H = padded(s.d, dtype), padded(s.dh, dtype), padded(s.f, dtype), s.layers, s.heads
    into, bias, wide = (L, H, s.d, K), (L, H, K), (L, D)
    shapes = {
        "embed": (n_tokens, D), "WQ": into, "WK": into, "WV": into, "bQ": bias, "bK": bias, "bV": bias,
        "WO": (L, H, s.dh, D), "bO": wide, "w1": wide, "b1": wide, "Win": (L, s.d, F), "bin": (L, F),
        "Wout": (L, s.f, D), "bout": wide, "w2": wide, "b2": wide, "U": (1, D), "bU": (padded(1, dtype),),
    }  # fmt: skip
    return Layout(shapes, np.dtype(dtype), Params, partial(_views_by_name, s))


def _views_by_name(s: Any, part: Params) -> dict[str, np.ndarray]:
    d, dh, f = s.d, s.dh, s.f
    views = {"embed.W_E": part.embed[:, :d]}
    for i in range(s.layers):
        own = {"ln1.w": part.w1[i, :d], "ln1.b": part.b1[i, :d]}
        own |= {f"attn.W_{x}": getattr(part, f"W{x}")[i, :, :, :dh] for x in "QKV"}
        own |= {f"attn.b_{x}": getattr(part, f"b{x}")[i, :, :dh] for x in "QKV"}
        own |= {"attn.W_O": part.WO[i, :, :, :d], "attn.b_O": part.bO[i, :d]}
        own |= {"ln2.w": part.w2[i, :d], "ln2.b": part.b2[i, :d]}
        own |= {"mlp.W_in": part.Win[i, :, :f], "mlp.b_in": part.bin[i, :f]}
        own |= {"mlp.W_out": part.Wout[i, :, :d], "mlp.b_out": part.bout[i, :d]}
        views |= {f"blocks.{i}.{name}": view for name, view in own.items()}
    return views | {"unembed.W_U": part.U[:, :d].T, "unembed.b_U": part.bU[:1]}


def _arrays(s: Any, rows: int, dtype: Any) -> dict[str, np.ndarray]:
    """Make work arrays for one string of at most `rows` rows."""

    def zeros(*shape: int) -> np.ndarray:
        return aligned(shape, dtype)

    D, K, F, R = (padded(n, dtype) for n in (s.d, s.dh, s.f, rows))
    L, H, d = s.layers, s.heads, s.d
    mask = zeros(D)
    mask[:d] = 1  # no padding
    return {
        # kept from the forward pass, layer by layer: streams, attention, normalized rows and 1/deviation, neurons
        "x": zeros(L + 1, rows, D), "q": zeros(L, H, rows, K), "k": zeros(L, H, rows, K), "v": zeros(L, H, rows, K),
        "p": zeros(L, H, rows, R), "z": zeros(L, H, rows, K), "hat1": zeros(L, rows, D), "hat2": zeros(L, rows, D),
        "r1": zeros(L, rows), "r2": zeros(L, rows), "mid": zeros(L, rows, D), "hidden": zeros(L, rows, F),
        # transposed weights
        "WQt": zeros(L, H, s.dh, D), "WKt": zeros(L, H, s.dh, D), "WVt": zeros(L, H, s.dh, D), "WOt": zeros(L, H, d, K),
        "Wint": zeros(L, s.f, D), "Woutt": zeros(L, d, F),
        # scratch
        "flip": zeros(s.dh, R), "dx": zeros(rows, D), "dmid": zeros(rows, D), "dhidden": zeros(rows, F),
        "dz": zeros(rows, K), "dp": zeros(rows, R), "dq": zeros(rows, K), "dk": zeros(rows, K), "dv": zeros(rows, K),
        "mask": mask,
    }  # fmt: skip


Work: Any = tuple_of(_arrays, Sizes)


def workspace(s: Any, rows: int, dtype: Any) -> Any:
    return Work(**_arrays(s, rows, dtype))
