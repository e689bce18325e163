"""What is equal or 0 up to rounding."""

import torch
from closeness import close

from interp.models.architecture.ties import first_largest, leveled


def test_the_first_of_those_that_are_largest_up_to_rounding() -> None:
    rows = torch.tensor([[1.0, 3.0, 3.0 + 1e-6, 2.0], [-1.0, 0.0, 1e-30, -1.0], [-2.0, -1.0, -0.9, -0.8999999]])
    assert first_largest(rows).tolist() == [1, 1, 2]
    assert first_largest(rows, within=0.15).tolist() == [1, 1, 1]
    assert first_largest(torch.tensor([-torch.inf, 1.0, torch.inf])) == 2


def test_what_is_equal_or_zero_up_to_rounding_becomes_so() -> None:
    noise = 1e-7 * torch.randn(4, generator=torch.Generator().manual_seed(0))
    values = torch.tensor([1.0, 1.0, 0.0, -4.0])
    close(leveled(values + noise), values, atol=2e-5)
    assert len(leveled(values + noise).unique()) == 3
    assert leveled(torch.zeros(3)).tolist() == [0.0, 0.0, 0.0]
