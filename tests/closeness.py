"""One comparison of numbers: within `atol`, whatever their size. numpy adds a relative 1e-7 on its own, torch one by
dtype, which lets an error of 1e-7 pass where 1e-15 is written."""

from typing import Any

import numpy as np
import torch


def close(actual: Any, expected: Any, atol: float) -> None:
    """Every number of actual lies within atol of expected; nan is close to nothing. Arrays, tensors and numbers."""
    mine, theirs = (np.asarray(x.detach().cpu() if isinstance(x, torch.Tensor) else x) for x in (actual, expected))
    np.testing.assert_allclose(mine, theirs, rtol=0, atol=atol, equal_nan=False)
