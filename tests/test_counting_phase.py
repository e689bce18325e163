"""What the study of Figure 1 says of a cell that lies far from the published one."""

import runpy
from pathlib import Path

import pandas as pd
import pytest

STUDY = runpy.run_path(str(Path(__file__).resolve().parent.parent / "analyses" / "counting_phase.py"))


@pytest.mark.parametrize(("d", "p", "ours", "published", "std", "says"), [
    (8, 8, [50.0, 50.1, 50.2], 50.9, 0.1, "0.8 points: runs that hardly differ"),
    (8, 8, [50.0, 51.0, 90.0], 80.0, 1.0, "two groups, 2 at 50% and 1 at 90%"),
    (8, 8, [50.0, 58.0, 66.0], 60.0, 1.0, "the published mean lies among our runs"),
    (8, 8, [50.0, 51.0, 52.0], 80.0, 11.0, "the published runs differ widely (std 11)"),
    # all of ours lie below: that they end in groups does not explain it, and print has 75, 82 and 67 along p there
    (
        4, 16, [47.0, 65.0, 66.0], 82.227, 6.5,
        "print is uneven: 82%, more than at both neighbors along p (75% and 67%)",
    ),
    (4, 16, [90.0, 91.0, 92.0], 82.227, 6.5, "not explained"),
    (1, 1, [10.0, 11.0, 12.0], 50.0, 1.0, "not explained"),  # a corner has no neighbors on both sides
])  # fmt: skip
def test_what_speaks_to_a_difference(
    d: int, p: int, ours: list[float], published: float, std: float, says: str
) -> None:
    runs = pd.DataFrame({"model": "bos-softmax", "d": d, "p": p, "accuracy": [each / 100 for each in ours]})
    mean = sum(ours) / len(ours)
    cell = pd.Series(
        {"model": "bos-softmax", "d": d, "p": p, "mean": mean, "best": max(ours), "published mean": published,
         "published std": std, "difference": mean - published, "z": 4.0 if mean > published else -4.0}
    )  # fmt: skip
    assert says in STUDY["_why"](cell, runs)
