"""The layout of a histogram model's parameters in the kernels' flat vector, and the work arrays of a training step.

Each matrix is stored in the orientation in which all three of its products (forward, gradient of the weights, gradient
of the input) read it row by row. Every row is padded to whole vectors with zeros. Padding has zero gradient, so Adam
keeps it zero.

numba recompiles a function only if the function's own file changed. So a hash of all files in this folder enters each
compiled function as a captured value, which is part of the key of numba's cache.
"""

import hashlib
import math
from collections import namedtuple
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

PAD_BYTES = 64  # one vector

# Sizes and flags of the compiled code. vocab: T, or T + 1 with the BOS token; classes: n_out;
# first: the count that class 0 stands for.
Sizes = namedtuple("Sizes", "T vocab L d p classes first dot softmax bos frozen scale")

# embed (vocab, D); project: W_Q, W_K and W_in transposed and stacked, (2 d + p, D), and its two parts; b_in
# (P); out: W_out transposed (classes, P); b_out (C); mix: W_mix transposed (L, Lpad). Unused parts have no rows. D,
# P, C, Lpad are d, p, classes, L padded.
Params = namedtuple("Params", "embed project query_key w_in b_in out b_out mix")

# The sequences of an epoch: n, drawn from the generator's state ([seed]); or given tokens (n, L).
TrainingData = namedtuple("TrainingData", "n tokens state published")


@cache
def sources() -> str:
    """Return the SHA-256 of the files in this folder."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def padded(n: int, dtype: Any) -> int:
    """Round n numbers up to whole vectors."""
    lanes = PAD_BYTES // np.dtype(dtype).itemsize
    return -(-n // lanes) * lanes


def aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return zeros aligned to the vector size."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.zeros(size + PAD_BYTES, np.uint8)
    offset = -raw.ctypes.data % PAD_BYTES
    return raw[offset : offset + size].view(dtype).reshape(shape)


class Layout:
    """The blocks of a flat vector: their padded shapes, in order. Vectors are stored as matrices with one row."""

    def __init__(self, sizes: Sizes, dtype: Any) -> None:
        s, self.sizes, self.dtype = sizes, sizes, np.dtype(dtype)
        D, P, C, M = (padded(n, dtype) for n in (s.d, s.p, s.classes, s.L))
        self.shapes = {
            "embed": (s.vocab, D),
            "project": ((2 * s.d if s.dot else 0) + s.p, D),
            "b_in": (1, P),
            "out": (s.classes, P),
            "b_out": (1, C),
            "mix": (0 if s.dot else s.L, M),
        }

    def zeros(self) -> np.ndarray:
        """Return a zero vector for parameters, gradients or a moment of Adam."""
        return aligned((sum(math.prod(shape) for shape in self.shapes.values()),), self.dtype)

    def blocks(self, flat: np.ndarray) -> Params:
        """Return the parts of a flat vector in the compiled code's format (views)."""
        blocks, at = {}, 0
        for name, shape in self.shapes.items():
            size = math.prod(shape)
            blocks[name] = flat[at : at + size].reshape(shape)
            at += size
        split = len(blocks["project"]) - self.sizes.p
        return Params(query_key=blocks["project"][:split], w_in=blocks["project"][split:], **blocks)

    def views(self, flat: np.ndarray) -> dict[str, np.ndarray]:
        """Return the parameters by name, in their shapes (x @ W) and without padding; writing to one writes to flat."""
        block, (d, p, n) = self.blocks(flat), (self.sizes.d, self.sizes.p, self.sizes.classes)
        views = {"embed.W_E": block.embed[:, :d]}
        if self.sizes.dot:
            views["blocks.0.attn.W_Q"] = block.query_key[:d, :d].T[None]
            views["blocks.0.attn.W_K"] = block.query_key[d:, :d].T[None]
        else:
            views["blocks.0.attn.W_mix"] = block.mix[:, : self.sizes.L].T[None]
        views["unembed.W_in"] = block.w_in[:, :d].T
        views["unembed.b_in"] = block.b_in[0, :p]
        views["unembed.W_out"] = block.out[:, :p].T
        views["unembed.b_out"] = block.b_out[0, :n]
        return views


def _arrays(s: Any, batch: int, dtype: Any) -> dict[str, np.ndarray]:
    """Make work arrays for one training step on at most `batch` sequences."""

    def zeros(*shape: int) -> np.ndarray:
        return aligned(shape, dtype)

    def integers(*shape: int) -> np.ndarray:
        return np.zeros(shape, np.int64)

    P, C, V, M = (padded(n, dtype) for n in (s.p, s.classes, s.vocab, s.L))
    d, qk, columns = s.d, 2 * s.d if s.dot else 0, s.L + int(s.bos)
    table, d_query_key = zeros(qk + s.p, V), zeros(qk, V)
    coefficients, rows = batch * columns * M, batch * s.L + 4  # rows are processed in fours
    return {
        # one batch: the distinct tokens of each sequence, their multiplicities, their number (without BOS), for each
        # position the index of its token among them; the rows and columns (tokens, with BOS) of its coefficient
        # matrix, which starts at start[b]
        "token": integers(batch, columns), "count": integers(batch, columns), "distinct": integers(batch),
        "place": integers(batch, s.L), "rows": integers(batch), "columns": integers(batch),
        "start": integers(batch + 1),
        # token tables: embed transposed; project times that, and its parts; W_in's part transposed back to (vocab, P)
        "embed_t": zeros(d, V), "table": table, "query": table[: qk // 2], "key": table[qk // 2 : qk],
        "values_t": table[qk:], "values": zeros(s.vocab, P), "scores": zeros(s.vocab, V),
        # their gradients
        "d_query_key": d_query_key, "d_query": d_query_key[: qk // 2], "d_key": d_query_key[qk // 2 :],
        "d_values": zeros(s.vocab, P), "d_scores": zeros(s.vocab, V), "d_scores_t": zeros(s.vocab, V),
        # mixing coefficients, sequence after sequence
        "attention": zeros(coefficients), "coefficient": zeros(coefficients), "d_coefficient": zeros(coefficients),
        "mix": zeros(s.L, M), "d_mix": zeros(s.L, M),
        # rows: hidden values, their gradient, logits, their gradient (classes, rows), labels, weights, maxima of their
        # logits (the last vector may reach beyond the rows); W_out
        "hidden": zeros(rows, P), "d_hidden": zeros(rows, P), "logits": zeros(rows, C),
        "d_logits": zeros(s.classes, padded(rows, dtype)), "label": integers(rows),
        "weight": zeros(rows + PAD_BYTES), "top": zeros(rows + PAD_BYTES), "out_t": zeros(s.p, C),
    }  # fmt: skip


Work: Any = namedtuple("Work", _arrays(Sizes(*[1] * len(Sizes._fields)), 1, np.float32))  # type: ignore[misc]


def workspace(s: Any, batch: int, dtype: Any) -> Any:
    return Work(**_arrays(s, batch, dtype))
