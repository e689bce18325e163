"""The scalar-to-class readout: argmax by brute force on a fine grid, and the published recursion."""

import math

import numpy as np
import pytest
import torch

from interp.errors import InterpError
from interp.families.histogram.constructions.parts import scalar_readout, separate


def predicted(readout, values):
    return (values[:, None] * readout.weight.numpy() + readout.bias.numpy()).argmax(1)


@pytest.mark.parametrize("rising", [True, False])
@pytest.mark.parametrize("n_out", [None, 7])
def test_argmax_changes_exactly_at_the_thresholds(rising, n_out):
    cuts = np.array([0.1, 0.15, 1.0, 1.5, 40.0])
    ordered = cuts if rising else cuts[::-1]
    readout = scalar_readout(torch.from_numpy(ordered.copy()), rising=rising, n_out=n_out)
    values = np.concatenate([np.linspace(0, 59.7, 3989), cuts - 1e-9, cuts + 1e-9])
    level = (values[:, None] > cuts).sum(1)
    count = level + 1 if rising else 6 - level
    assert (predicted(readout, values) == (count - 1 if n_out is None else count)).all()


def test_published_recursion_for_integer_counts():
    """A.2.1 eqs. 15 and 16 with (b2)_(l-1) as the last term (erratum 3): thresholds l - 1/2."""
    L = 10
    w, b = [-1 + 1 / (L + 1)], [0.0]
    for level in range(2, L + 1):
        w.append(-1 + level / (L + 1))
        b.append((w[-2] - w[-1]) * (level - 0.5) + b[-1])
    readout = scalar_readout(torch.arange(1.5, L, dtype=torch.float64))
    assert readout.weight.tolist() == pytest.approx(w)
    assert readout.bias.tolist() == pytest.approx(b)


def test_lead_next_to_a_threshold():
    """Neighboring lines part by 1/(L + 1) per unit of hidden value."""
    readout = scalar_readout(torch.tensor([1.0, 3.0], dtype=torch.float64))
    logits = np.sort(1.2 * readout.weight.numpy() + readout.bias.numpy())
    assert logits[-1] - logits[-2] == pytest.approx(0.2 / 4)


def test_separate_rising_falling_and_touching():
    def t(*values):
        return torch.tensor(values, dtype=torch.float64)

    rising = separate(t(0.0, 2.0, 5.0), t(1.0, 3.0, 6.0))
    assert (rising.thresholds.tolist(), rising.gap, rising.rising) == ([1.5, 4.0], 1.0, True)
    falling = separate(t(5.0, 2.0, 0.0), t(6.0, 3.0, 1.5))
    assert (falling.thresholds.tolist(), falling.gap, falling.rising) == ([4.0, 1.75], 0.5, False)
    assert separate(t(1.0), t(1.0)).gap == math.inf
    with pytest.raises(InterpError, match=r"counts 2 and 3 overlap \(by 0.5\)"):
        separate(t(0.0, 2.0, 2.5), t(1.0, 3.0, 6.0))
    with pytest.raises(InterpError, match="counts 1 and 2 overlap"):
        separate(t(0.0, 1.0), t(1.0, 2.0))


def test_bad_input_is_one_sentence():
    cuts = torch.tensor([1.0, 0.5], dtype=torch.float64)
    with pytest.raises(InterpError, match="strictly ascending"):
        scalar_readout(cuts)
    with pytest.raises(InterpError, match="n_out must be 3"):
        scalar_readout(cuts, rising=False, n_out=5)
