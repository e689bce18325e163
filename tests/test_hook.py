"""The checks of shapes are really on, and reach every annotation."""

import os
import re
from pathlib import Path

import jaxtyping
import pytest
import torch

from interp.families.count01 import Count01
from interp.tasks import Batch

ROOT = Path(__file__).resolve().parent.parent
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.environ.get("INTERP_CHECKED") != "all", reason="checks are on in make test-long"),
]


@pytest.mark.parametrize("counts", [torch.zeros(3, 4, dtype=torch.long), torch.zeros(2, 3)], ids=["shape", "dtype"])
def test_a_wrong_shape_or_dtype_fails_in_a_function(counts: torch.Tensor) -> None:
    with pytest.raises(jaxtyping.TypeCheckError, match="label_counts"):
        Count01.label_counts(counts)


def test_a_wrong_shape_fails_in_a_dataclass() -> None:
    tokens = torch.zeros(2, 5, dtype=torch.long)
    Batch(tokens, torch.zeros(2, dtype=torch.long), torch.zeros(2, dtype=torch.long))
    with pytest.raises(jaxtyping.TypeCheckError, match="lengths"):
        Batch(tokens, torch.zeros(3, dtype=torch.long), torch.zeros(2, dtype=torch.long))


@pytest.mark.parametrize("again", [False, True])
def test_every_test_is_checked_whatever_ran_before(again: bool) -> None:
    with pytest.raises(jaxtyping.TypeCheckError):
        Count01.label_counts(torch.zeros(3, 4, dtype=torch.long))
    for _ in range(300):
        Count01.label_counts(torch.zeros(2, 3, dtype=torch.long))


def test_every_axis_of_an_annotation_is_quoted() -> None:
    """An unquoted single axis is an unknown name, and beartype then checks nothing of that function."""
    unquoted = re.compile(r"\b(?:Float|Int|Bool|Complex|Num|Shaped)\[(?:Tensor|np\.ndarray|NDArray[^,]*), *[A-Za-z*]")
    found = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in sorted((ROOT / "interp").rglob("*.py"))
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1)
        if unquoted.search(line)
    ]
    assert found == []
