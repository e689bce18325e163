"""The layout of a count-space model's parameters in a flat vector, and the work arrays of a training step.

As in the layout of encoders, every row is padded with zeros to whole vectors of 64 bytes. Padding has zero gradient.
"""

from collections import namedtuple
from functools import partial
from typing import Any

import numpy as np

from interp.training.compiled.layout import Layout, aligned, padded, tuple_of

# Sizes and flags of the compiled code. width: n_heads * d_head; safe: see architecture.reduced.SAFE_SPREAD.
Sizes = namedtuple("Sizes", "T d heads d_head width classes norm b_q b_k b_v b_o b_u scale eps safe")

# embed (T, D); norm_w, norm_b (1, D); project: W_Q, W_K and W_V transposed, stacked, (3 width, D), and
# their biases in one row; w_o (width, D); b_o (1, D); out: W_U transposed (classes, D); b_u (1, C). D, C: d and classes
# padded. Biases that the model lacks are zero and get no gradient.
Params = namedtuple("Params", "embed norm_w norm_b project b_project w_o b_o out b_u")

# Rows: query token, multiplicities of the keys it sees (rows, T), class; `reads` rows belong to each sentence.
# order: the sentences in the order of training.
TrainingData = namedtuple("TrainingData", "query counts target reads order")


def layout(s: Any, dtype: Any) -> Layout:
    """Return the layout for these sizes. Vectors are stored as matrices with one row."""
    D = padded(s.d, dtype)
    norm = 1 if s.norm else 0
    shapes = {
        "embed": (s.T, D),
        "norm_w": (norm, D),
        "norm_b": (norm, D),
        "project": (3 * s.width, D),
        "b_project": (1, padded(3 * s.width, dtype)),
        "w_o": (s.width, D),
        "b_o": (1, D),
        "out": (s.classes, D),
        "b_u": (1, padded(s.classes, dtype)),
    }
    return Layout(shapes, np.dtype(dtype), Params, partial(_named, s))


def _named(s: Any, block: Params) -> dict[str, np.ndarray]:
    d, attn = s.d, "blocks.0.attn."
    views = {"embed.W_E": block.embed[:, :d]}
    if s.norm:
        views |= {"blocks.0.ln1.w": block.norm_w[0, :d], "blocks.0.ln1.b": block.norm_b[0, :d]}
    matrices = block.project.reshape(3, s.heads, s.d_head, -1)[..., :d]
    biases = block.b_project[0, : 3 * s.width].reshape(3, s.heads, s.d_head)
    for name, matrix, bias, exists in zip("QKV", matrices, biases, (s.b_q, s.b_k, s.b_v), strict=True):
        views[f"{attn}W_{name}"] = matrix.transpose(0, 2, 1)
        if exists:
            views[f"{attn}b_{name}"] = bias
    views[f"{attn}W_O"] = block.w_o.reshape(s.heads, s.d_head, -1)[..., :d]
    if s.b_o:
        views[f"{attn}b_O"] = block.b_o[0, :d]
    views["unembed.W_U"] = block.out[:, :d].T
    if s.b_u:
        views["unembed.b_U"] = block.b_u[0, : s.classes]
    return views


def _arrays(s: Any, rows: int, dtype: Any) -> dict[str, np.ndarray]:
    """Make work arrays for one step on at most `rows` rows."""

    def zeros(*shape: int) -> np.ndarray:
        return aligned(shape, dtype)

    T, C, n, mixed = s.T, s.classes, s.width, s.width + s.heads
    D, V, H = (padded(size, dtype) for size in (s.d, T, n))
    # One extra vector per row, because rows at a distance of a power of two would compete for the same cache lines.
    R = padded(rows, dtype) + padded(1, dtype)
    mask = zeros(1, D)
    mask[:, : s.d] = 1  # no padding
    return {
        # the rows of a batch in order of their query tokens, those of token q from start[q]
        "order": np.zeros(rows, np.int64), "start": np.zeros(T + 1, np.int64), "cursor": np.zeros(T, np.int64),
        # token tables: layer norm's output, its transpose, normalized embeddings, 1 / deviation; queries, keys and
        # values, one below the other; embedding with b_O; W_O transposed; W_O W_U; logit offsets
        "inner": zeros(T, D), "inner_t": zeros(s.d, V), "hat": zeros(T, D), "inverse": zeros(T), "mask": mask,
        "table": zeros(3 * n, V), "shifted": zeros(T, D), "shifted_t": zeros(s.d, V), "w_o_t": zeros(s.d, H),
        "readout": zeros(C, H), "offset": zeros(C, V),
        "d_inner": zeros(T, D), "d_table": zeros(3 * n, V), "d_shifted": zeros(T, D), "d_readout": zeros(C, H),
        "d_offset": zeros(C, V),
        # one query token: which keys occur at all and in every row, e^score of each head and key; that times the
        # values, and itself; its gradient
        "present": zeros(1, V), "constant": zeros(1, V), "weights": zeros(s.heads, V), "mix": zeros(mixed, V),
        "d_mix": zeros(mixed, V),
        # rows side by side: multiplicities; numerators, then denominators; logits; weights in the loss
        "counts": zeros(T, R), "mixed": zeros(mixed, R), "d_mixed": zeros(mixed, R), "logits": zeros(C, R),
        "share": zeros(1, R),
    }  # fmt: skip


Work: Any = tuple_of(_arrays, Sizes)


def workspace(s: Any, rows: int, dtype: Any) -> Any:
    return Work(**_arrays(s, rows, dtype))
