"""Parts of PALINDROME's proof: what leaks past the mirror image, and weights that are stored rounded."""

import pytest
import torch

import interp
from interp.certificates import rounding
from interp.certificates.rounding import Tracked
from interp.families.languages.certificates import palindrome as palindrome_proof

LENGTH = 6
TOKENS = LENGTH + 2


def margin_with(leak: float, error: float, monkeypatch: pytest.MonkeyPatch) -> tuple[float, float]:
    """Margin and bound of the mirror's proof where one row of the pattern leaks so much, known up to an error."""
    value = torch.eye(TOKENS, dtype=torch.float64).flip(1)[None, None].clone()
    value[0, 0, 2, 0] = leak
    errors = torch.zeros_like(value)
    errors[0, 0, 2, 0] = error
    monkeypatch.setattr(rounding, "pattern", lambda *args: Tracked(value, errors))
    return palindrome_proof._mirror(interp.build("languages/palindrome", variant="mirror", dtype="float32"), LENGTH)


def test_what_might_leak_by_rounding_counts_as_a_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    assert margin_with(0.2, 0.0, monkeypatch)[0] > 0
    assert margin_with(0.3, 0.0, monkeypatch)[0] < 0
    assert margin_with(0.2, 0.1, monkeypatch)[0] < 0


def test_averages_of_the_mirror_are_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """An average of eight terms near 1 loses half a unit of float32 at least once in each of its seven sums."""
    margin, bound = margin_with(0.0, 0.0, monkeypatch)
    assert margin == pytest.approx(11 / 16 / TOKENS)
    assert bound > 7 * 2.0**-25


def test_the_binary_weights_are_stored_rounded() -> None:
    """2^i / (2^n - 1) is not a number of float32: the bound is that of rounded weights, of all three worst strings."""
    model = interp.build("languages/palindrome", dtype="float32")
    margin, bound = palindrome_proof._binary(model, LENGTH)
    assert margin == pytest.approx(1 / (2**TOKENS - 1))
    symbols = torch.tensor([[1] * 6, [1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]])
    tokens = model.task.of_symbols(symbols, torch.full((3,), LENGTH)).tokens
    _, as_stored = rounding.forward_with_bound(model, tokens)
    assert bound > float(as_stored.sum())
