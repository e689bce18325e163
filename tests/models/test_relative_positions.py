"""Rotary positions and ALiBi against their definitions, and what makes them relative."""

import pytest
import torch

from interp.models.relative_positions import alibi_bias, alibi_slopes, rotated

PLACES = torch.arange(9)


def vectors(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("adjacent", [True, False])
@pytest.mark.parametrize("dim", [2, 4, 6])
def test_a_pair_turns_by_its_angle(adjacent: bool, dim: int) -> None:
    x = vectors(2, 9, 3, 6)
    got = rotated(x, PLACES, 10.0, dim, adjacent)
    for j in range(dim // 2):
        one, other = (2 * j, 2 * j + 1) if adjacent else (j, j + dim // 2)
        turn = torch.polar(torch.ones(9, dtype=torch.float64), PLACES.double() * 10.0 ** (-2 * j / dim))
        wanted = torch.complex(x[..., one], x[..., other]) * turn[:, None]
        torch.testing.assert_close(torch.complex(got[..., one], got[..., other]), wanted, rtol=1e-12, atol=1e-12)
    assert got[..., dim:].equal(x[..., dim:])


def test_scores_depend_on_distance_alone() -> None:
    q, k = vectors(1, 1, 1, 6), vectors(1, 1, 1, 6).flip(-1)

    def score(i: int, j: int) -> float:
        one, other = (rotated(x, torch.tensor([at]), 100.0, 6, False) for x, at in ((q, i), (k, j)))
        return float((one * other).sum())

    assert score(7, 2) == pytest.approx(score(1005, 1000), rel=1e-9)
    assert abs(score(7, 2) - score(7, 3)) > 1e-3


def test_rows_may_stand_at_places_of_their_own() -> None:
    x, at = vectors(2, 4, 1, 4), torch.tensor([[3, 0, 7, 7], [1, 2, 5, 8]])
    whole = [rotated(row.expand(9, -1, -1).clone(), PLACES, 50.0, 4, True) for row in x.unbind(1)[0][:, None]]
    got = rotated(x, at, 50.0, 4, True)
    for row in range(2):
        torch.testing.assert_close(got[row, 0], whole[row][at[row, 0]], rtol=1e-12, atol=1e-12)


def test_long_angles_keep_the_precision_of_the_format() -> None:
    x, far = torch.tensor([[[[1.0, 0.0]]]]), torch.tensor([123_457])
    assert float(rotated(x, far, 1e4, 2, True)[0, 0, 0, 0]) == pytest.approx(
        float(torch.cos(torch.tensor(123_457.0, dtype=torch.float64))), abs=1e-6
    )


def test_slopes_of_eight_heads_are_the_paper_s() -> None:
    """Press et al. 2021, section 3: 1/2, 1/4, ..., 1/256 for eight heads."""
    assert alibi_slopes(8).tolist() == [2.0**-h for h in range(1, 9)]
    bias = alibi_bias(torch.tensor([1, 3]), 4, 2)
    assert bias.shape == (2, 2, 4)
    assert bias[0].tolist() == [[-1 / 16, 0.0, 0.0, 0.0], [-3 / 16, -2 / 16, -1 / 16, 0.0]]
