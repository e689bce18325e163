"""Planted patterns come back in words: by distance, by position, or not at all."""

from __future__ import annotations

import torch

from interp.mechanisms.fixed_patterns import in_words


def test_distances_are_named_with_their_mean_weight() -> None:
    pattern = torch.zeros(6, 6)
    for query in (3, 4, 5):
        pattern[query, query - 1], pattern[query, query - 3] = 0.75, 0.25
    said = in_words(pattern, [3, 4, 5])
    assert said == "on average 0.75 on the previous token and 0.25 on the token 3 positions back"
    assert in_words(torch.eye(6), [0, 1]) == "on average 1.00 on the current position"


def test_one_reading_position_names_positions() -> None:
    row = torch.tensor([0.1, 0.6, 0.28, 0.02]).expand(4, 4)
    assert in_words(row, [0]) == "from position 0: 0.60 on position 1, 0.28 on position 2 and 0.10 on position 0"
    every_other = torch.tensor([0.2, 0.0] * 4 + [0.2]).expand(9, 9)
    assert in_words(every_other, [0]) == "from position 0: 0.20 on each of positions 0, 2, ..., 8"


def test_a_scattered_pattern_has_no_words() -> None:
    scattered = torch.full((40, 40), 1 / 40)
    assert in_words(scattered, [39, 38]) == ""
    scattered[0, :3] = 0.1
    assert in_words(scattered / scattered.sum(1, keepdim=True), [0]) == ""
