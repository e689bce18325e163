"""The comparison that tests share: absolute, also where numpy and torch would forgive."""

import numpy as np
import pytest
import torch
from closeness import close


def test_no_relative_part_is_forgiven() -> None:
    one = np.array([1.0, 1e3])
    np.testing.assert_allclose(one * (1 + 1e-8), one, atol=1e-15)
    with pytest.raises(AssertionError):
        close(one * (1 + 1e-8), one, atol=1e-15)
    with pytest.raises(AssertionError):
        close(torch.tensor([np.nan]), np.array([np.nan]), atol=1e9)
    close(torch.tensor([1.0, np.inf], requires_grad=True), [1.0 + 2e-8, np.inf], atol=1e-7)
