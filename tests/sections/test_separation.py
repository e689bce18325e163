"""Gains of pairs of heads, by hand."""

import numpy as np
import pandas as pd
from closeness import close

from interp.sections.separation import pair_gains


def test_a_pair_gains_over_its_better_member() -> None:
    alone = {0: 0.5, 3: 0.9, 7: 0.8}
    pairs = {(0, 3): 0.95, (0, 7): 0.8, (3, 7): 0.99}
    rows = [((head,), value) for head, value in alone.items()] + list(pairs.items())
    found = pair_gains(pd.DataFrame(rows, columns=["heads", "s_acc"]), [3, 7, 0])
    assert np.isnan(np.diag(found)).all()
    np.fill_diagonal(found, 0.0)
    close(found, np.array([[0.0, 0.09, 0.05], [0.09, 0.0, 0.0], [0.05, 0.0, 0.0]]), atol=1e-12)
