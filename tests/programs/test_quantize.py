"""Numbers of rows, against torch's own."""

import pytest
import torch

from interp.measures.runs import Part
from interp.programs.quantize import Quantized, apart, clustered, distinct, in_order_of_appearance, numbered


@pytest.mark.parametrize("most", [2, 20_000, 2**30], ids=["few", "many", "too large for one number"])
def test_equal_rows_have_one_number_in_order(most: int) -> None:
    rows = torch.randint(-most, most, (60, 2), generator=torch.Generator().manual_seed(most)).double()
    rows[30:50] = rows[:20]
    assert numbered(rows).tolist() == rows.unique(dim=0, return_inverse=True)[1].tolist()


def test_values_are_numbered_by_where_they_occur_first() -> None:
    assert in_order_of_appearance(torch.tensor([7, 3, 7, 5, 3])).tolist() == [0, 1, 0, 2, 1]


def test_the_mean_of_many_equal_outputs_is_these() -> None:
    points = torch.tensor([[1000 / 3, 1.0]]).repeat(20_000, 1)
    different, back = distinct(points)
    assert torch.equal(different, points[:1])
    base = Quantized(Part(0), torch.zeros(200, 100).long(), points[:1], torch.ones(200, 100).bool(), points, 0.0)
    assert torch.equal(clustered(base, points, different, back, None, 1).vectors, points[:1])


def test_points_have_the_order_and_distances_of_any_form() -> None:
    """Where a model was turned, or points had another order, equal distances were merged in another order."""
    draw = torch.Generator().manual_seed(0)
    points = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    turn = torch.linalg.qr(torch.randn(2, 2, generator=draw, dtype=torch.float64)).Q
    for form in (points, (points.double() @ turn).float()):
        different, back = distinct(form)
        assert back.tolist() == [0, 1, 2, 3, 1]
        assert len({*apart(different).round(9)}) == 2
