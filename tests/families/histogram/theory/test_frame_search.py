"""The search reaches known optima, its criteria are the directly computed ones, and it is reproducible."""

import itertools
import math

import pytest
import torch

from interp.errors import InterpError
from interp.families.histogram.theory.frame_search import (
    STORED,
    _smooth_slack,
    best_kappa,
    best_slack,
    frame_for,
    frame_slack,
    frames_at_hand,
    search_frame,
    stored_frames,
)
from interp.families.histogram.theory.frames import binary_code, mutual_coherence, off_diagonal


def test_slacks_by_direct_arithmetic():
    cloud = torch.tensor([[1.0, 0.2], [-0.5, 1.0], [0.3, -0.9], [-1.0, -0.4]], dtype=torch.float64)
    frame, L, kappa = torch.nn.functional.normalize(cloud, dim=1), 4, 1.7
    c = [float(a @ b) for a, b in itertools.combinations(frame, 2)]
    assert frame_slack(frame, "one-sided", L) == pytest.approx(1 - 3 * max(c) + 2 * min(c))
    assert frame_slack(frame, "squared", L) == pytest.approx(1 - 3 * max(x * x for x in c) + 2 * min(x * x for x in c))

    def phi(k, x):
        weight = math.exp(-kappa * (1 - x))
        return (L - k) * (1 - x) * weight / (k + (L - k) * weight)

    gaps = [min(phi(k, x) for x in c) - max(phi(k + 1, x) for x in c) for k in range(1, L)]
    assert frame_slack(frame, "softmax", L, kappa) == pytest.approx(min(gaps))
    frame = binary_code(6)
    best, slack = best_kappa(frame, L)
    grid = [frame_slack(frame, "softmax", L, k / 100) for k in range(20, 800)]
    assert slack >= max(grid) - 1e-6
    assert 1.44 < best < 3.4  # erratum 26: T = 6, L = 4 works in this window
    assert slack > 0


def test_search_finds_the_known_optimum():
    """Six equiangular lines in three dimensions (the icosahedron): all squares are 1/5, at the Welch bound."""
    found = search_frame("squared", 6, 4, 3, restarts=4, steps=600)
    assert mutual_coherence(found.frame) == pytest.approx(1 / math.sqrt(5), abs=1e-3)
    assert found.slack == pytest.approx(1 - 1 / 5, abs=2e-3)
    torch.testing.assert_close(found.frame.norm(dim=1), torch.ones(6, dtype=torch.float64))


def test_search_is_seeded_and_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    one, two, other = (search_frame("squared", 5, 4, 3, seed=s, restarts=2, steps=60).frame for s in (1, 1, 2))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    assert torch.equal(before, torch.get_rng_state())


def test_stored_frames_are_what_their_keys_say():
    assert sorted(stored_frames()) == sorted((criterion, T, L, d) for criterion, T, L, d, *_ in STORED)
    for (criterion, T, L, d), frame in stored_frames().items():
        assert frame.shape == (T, d)
        torch.testing.assert_close(frame.norm(dim=1), torch.ones(T, dtype=torch.float64))
        assert best_slack(frame, criterion, L) > 0


@pytest.mark.slow
def test_a_stored_frame_is_reproducible():
    criterion, T, L, d, seed, restarts, steps = STORED[0]
    found = search_frame(criterion, T, L, d, seed=seed, restarts=restarts, steps=steps)
    stored = stored_frames()[criterion, T, L, d]
    assert found.slack == pytest.approx(frame_slack(stored, criterion, L), abs=1e-3)


def test_frame_for_prefers_what_is_at_hand():
    stored = stored_frames()["squared", 32, 10, 8]
    assert torch.equal(frame_for("squared", 32, 10, 8), stored)
    assert torch.equal(frame_for("squared", 32, 10), stored)
    assert frame_for("squared", 20, 10, 9).shape == (20, 8)  # rows of a larger frame
    assert frame_for("one-sided", 32, 15).shape == (32, 30)  # two simplices


def test_bad_input_is_one_sentence():
    with pytest.raises(InterpError, match="the softmax criterion needs kappa"):
        frame_slack(torch.eye(3, dtype=torch.float64), "softmax", 4)


@pytest.mark.parametrize("criterion", ["one-sided", "squared", "softmax"])
def test_the_smoothed_slack_is_below_and_tends_to_the_slack(criterion):
    cloud = torch.tensor([[1.0, 0.2], [-0.5, 1.0], [0.3, -0.9], [-1.0, -0.4]], dtype=torch.float64)  # overlaps below 0
    frame, L, kappa = torch.nn.functional.normalize(cloud, dim=1), 5, 2.5
    exact = frame_slack(frame, criterion, L, kappa)
    c, at = off_diagonal(frame)[None], torch.tensor([kappa], dtype=torch.float64)
    blunt, sharp = (float(_smooth_slack(c, criterion, L, at, sharpness)) for sharpness in (3.0, 1e4))
    assert blunt < sharp <= exact + 1e-12
    assert sharp == pytest.approx(exact, abs=0.01)


def test_frames_at_hand_are_all_that_fit_and_no_others():
    (criterion, T, _, d) = next(key for key in stored_frames() if key[0] == "softmax")
    of_this_width = [f for f in frames_at_hand(criterion, T, d) if f.shape == (T, d)]
    assert any(f.equal(stored_frames()[key]) for f in of_this_width for key in stored_frames() if key[0] == criterion)
    for rows, width in ((T, d - 1), (T + 1, d), (2 * T, 3 * T)):
        found = frames_at_hand(criterion, rows, width)
        assert all(f.shape[0] == rows and f.shape[1] <= width for f in found)
        stored = [k for k in stored_frames() if k[0] == criterion and k[1] >= rows and k[3] <= width]
        assert sum(any(f.equal(stored_frames()[k][:rows]) for k in stored) for f in found) == len(stored)
