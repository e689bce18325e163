"""Head outputs in a plane, with value vectors and separators, as in Figures 6, 7 and 15 (section 5.3)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from interp.measures.circuits import circuit_tables
from interp.measures.outputs import HeadOutputs
from interp.measures.separation import fit_separator
from interp.measures.subject import Model, Subject


@dataclass(frozen=True)
class HeadPlanes:
    """Head outputs and value vectors in a plane per head.

    points: head, x, y, label, one row per head and input. values: head, token, x, y of the tokens' value vectors.
    lines: (w1, w2, b) of each head's separator, fitted on the training outputs, if d_head is 1 or 2. Wider heads are
    shown in their two principal components, whose shares of the variance are in `variance`. If d_head is 1, y is the
    index of the answer among those that occur, and value vectors are drawn at middle height.
    """

    points: pd.DataFrame
    values: pd.DataFrame
    lines: dict[int, tuple[float, float, float]]
    variance: dict[int, tuple[float, float]]


def head_planes(
    model: Model, fitted: HeadOutputs, tested: HeadOutputs, tokens: Sequence[str] = ("0", "1", "2"), C: float = 1000.0
) -> HeadPlanes:
    """Compute the planes of all heads, with separators (with this C) from `fitted` and points from `tested`."""
    from sklearn.decomposition import PCA

    subject = Subject.of(model)
    ids = [subject.task.token_id(token) for token in tokens]
    vectors = circuit_tables(subject).values[0, :, ids].numpy() if subject.count_space else None
    words = np.array(subject.task.answer_words)[tested.labels]
    row = np.unique(tested.labels.numpy(), return_inverse=True)[1]
    points, values = [], []
    lines: dict[int, tuple[float, float, float]] = {}
    variance: dict[int, tuple[float, float]] = {}
    for head in range(tested.n_heads):
        z, d_head = tested.z[:, head].numpy(), tested.z.shape[-1]
        its_values = np.zeros((0, d_head)) if vectors is None else vectors[head]
        if d_head > 2:
            plane = PCA(n_components=2, svd_solver="full").fit(z)
            z, its_values = plane.transform(z), plane.transform(its_values) if len(its_values) else np.zeros((0, 2))
            first, second = (float(share) for share in plane.explained_variance_ratio_)
            variance[head] = first, second
        else:
            w, b = fit_separator(fitted.z[:, head].numpy(), fitted.labels.numpy(), C=C)
            lines[head] = (float(w[0]), float(w[1]) if d_head == 2 else 0.0, b)
        if d_head == 1:
            middle = np.full((len(its_values), 1), row.max() / 2)
            z, its_values = np.hstack([z, row[:, None]]), np.hstack([its_values, middle])
        points.append(pd.DataFrame({"head": head, "x": z[:, 0], "y": z[:, 1], "label": words}))
        named = list(tokens)[: len(its_values)]
        values.append(pd.DataFrame({"head": head, "token": named, "x": its_values[:, 0], "y": its_values[:, 1]}))
    return HeadPlanes(pd.concat(points, ignore_index=True), pd.concat(values, ignore_index=True), lines, variance)
