"""Position formulas against their definitions, element by element."""

import math

import pytest
import torch

from interp.errors import InterpError
from interp.models.architecture.formulas import position_codes, position_formula


def mirror(i: int, n: int) -> list[float]:
    strength = math.sqrt(math.log(16 * n) / (1 - math.cos(math.pi / (n - 1))))
    return [strength * math.cos(math.pi * i / (n - 1)), strength * math.sin(math.pi * i / (n - 1))]


DEFINITIONS = {
    "first": lambda i, n: [float(i == 1)],
    "fraction": lambda i, n: [i / n],
    "parity": lambda i, n: [i / n, math.cos(math.pi * i)],
    "halves": lambda i, n: [i, n - 1 - i, float(i <= (n - 1) / 2), float(i >= (n - 1) / 2)],
    "mirror": mirror,
    "sinusoidal": lambda i, n: [f(i / 10000 ** (2 * j / 8)) for j in range(4) for f in (math.sin, math.cos)],
}


def evaluate(name: str, lengths: list[int], width: int, d_model: int) -> torch.Tensor:
    i = torch.arange(width, dtype=torch.float64).expand(len(lengths), -1)
    return position_formula(name)(i, torch.tensor(lengths, dtype=torch.float64)[:, None], d_model)


@pytest.mark.parametrize("name", DEFINITIONS)
@pytest.mark.parametrize("doubled", [False, True])
def test_definitions(name: str, doubled: bool) -> None:
    if doubled and name == "sinusoidal":
        return
    lengths = [2, 5, 8, 9]
    code = evaluate(f"{name}-doubled" if doubled else name, lengths, 9, 16 if doubled else 8)
    for row, n in zip(code, lengths):
        for i in range(n):
            values = DEFINITIONS[name](i, n)
            half = values + [0.0] * (8 - len(values))
            wanted = half + [-x for x in half] if doubled else half
            torch.testing.assert_close(row[i], torch.tensor(wanted, dtype=torch.float64), atol=1e-12, rtol=1e-12)


def test_mirror_images_have_equal_codes_to_the_last_bit() -> None:
    code = evaluate("mirror", [1002], 1002, 2)[0]
    assert torch.equal(code * torch.tensor([-1.0, 1.0]), code.flip(0))


def test_codes_that_repeat() -> None:
    codes, index = position_codes("first", 50, 4)
    assert len(codes) == 2
    assert torch.equal(codes[index], evaluate("first", [50], 50, 4)[0])
    assert len(position_codes("fraction", 50, 4)[0]) == 50
    assert len(position_codes("halves", 9, 4)[0]) == 9


def test_refusals() -> None:
    with pytest.raises(InterpError, match="d_model = 3"):
        evaluate("halves", [4], 4, 3)
    with pytest.raises(InterpError, match="even d_model"):
        evaluate("first-doubled", [4], 4, 3)
    with pytest.raises(InterpError, match="unknown position formula"):
        position_formula("frist")
    with pytest.raises(InterpError, match="n = 0"):
        position_codes("first", 0, 4)


ALONE = {"first": [0.0], "fraction": [0.0], "parity": [0.0, 1.0], "halves": [0.0, 0.0, 1.0, 1.0]}


@pytest.mark.parametrize("name", ALONE)
def test_a_row_of_one_token(name: str) -> None:
    """CLS alone: position 0 of n = 1."""
    assert evaluate(name, [1], 1, 4)[0, 0].tolist() == ALONE[name] + [0.0] * (4 - len(ALONE[name]))


def test_a_mirror_of_one_token_is_its_own_image() -> None:
    """There is no second position to tell it from: what n = 2 would give at position 0, with ln 16 for ln 32."""
    strength = math.sqrt(math.log(16) / 2)
    assert evaluate("mirror", [1], 1, 2)[0, 0].tolist() == pytest.approx([strength, 0.0], abs=1e-15)
