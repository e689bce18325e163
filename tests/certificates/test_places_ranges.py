"""Ranges over (place, state) against all inputs, one by one; cells cut and counted as they are."""

from __future__ import annotations

import numpy as np
import torch

from interp.certificates.places_count import Pattern, union
from interp.certificates.places_ranges import Cells, Routes, Sums
from interp.tasks import Addition, Brackets
from interp.tasks.automata import Paths, declared

ADDITION = Addition(base=3, digits=2)
(PATHS,) = declared(ADDITION)
ROWS = torch.cat(list(PATHS.rows())).numpy()
STATES = PATHS.walk(torch.from_numpy(ROWS))
AT = 6
TOKENS = sorted(set(ROWS[:, AT].tolist()))


def members(cells: Cells, index: int, token: int) -> np.ndarray:
    """Which rows lie in a cell."""
    inside = ROWS[:, AT] == token
    for cut, states in cells.states.items():
        inside &= STATES[:, cut] == states[index]
    for place, tokens in cells.tokens.items():
        inside &= ROWS[:, PATHS.order[place]] == tokens[index]
    return inside


def some_cells(routes: Routes, places: list[int]) -> list[Cells]:
    """All inputs, then parted at one place after the other."""
    found = [routes.whole(PATHS.reads[AT][0])]
    for place in places:
        found.append(routes.split(found[-1], place))
    return found


def test_cells_part_all_inputs() -> None:
    for token in TOKENS:
        routes = Routes.of(PATHS, AT, token)
        for cells in some_cells(routes, [5, 1, 3]):
            sizes = routes.sizes(cells)
            inside = np.stack([members(cells, index, token) for index in range(len(cells))])
            assert inside.sum(1).tolist() == sizes.tolist()
            assert (inside.sum(0) == (ROWS[:, AT] == token)).all()
            for index in range(len(cells)):
                example = routes.example(cells, index)
                assert (ROWS[inside[index]] == example).all(1).any()


def test_ranges_hold_and_are_met() -> None:
    rng = np.random.default_rng(0)
    loosest = 0.0
    for token in TOKENS:
        routes = Routes.of(PATHS, AT, token)
        weight = np.exp(rng.normal(size=(PATHS.length, ADDITION.d_vocab)) * 2)
        weight[-1] = 0  # nobody sees the last place
        sums = Sums(routes, weight, rng.normal(size=(2, PATHS.length, ADDITION.d_vocab)), 1e-14)
        order = list(PATHS.order)
        w = weight[np.arange(PATHS.length), ROWS[:, order]]
        c = sums.coordinates[:, np.arange(PATHS.length), ROWS[:, order]]
        mean = (w * c).sum(2) / w.sum(1)
        for cells in some_cells(routes, [5, 1, 3]):
            low, high = sums.box(cells)
            for index in range(len(cells)):
                inside = mean[:, members(cells, index, token)]
                assert (low[:, index] <= inside.min(1)).all()
                assert (high[:, index] >= inside.max(1)).all()
                loosest = max(
                    loosest, float(np.maximum(inside.min(1) - low[:, index], high[:, index] - inside.max(1)).max())
                )
    assert 0 < loosest < 0.05  # of about 3: between two values of the grid the chord is near


def test_a_token_that_hardly_counts_gives_no_bound_but_the_range() -> None:
    routes = Routes.of(PATHS, AT, TOKENS[0])
    sums = Sums(routes, np.ones((PATHS.length, ADDITION.d_vocab)), np.ones((1, PATHS.length, ADDITION.d_vocab)), 1.0)
    low, high = sums.box(routes.whole(PATHS.reads[AT][0]))
    assert (low == 1).all()
    assert (high == 1).all()


def by_hand(paths: Paths, patterns: list[Pattern]) -> int:
    """Inputs in any pattern, one by one."""
    rows = torch.cat(list(paths.rows()))
    states, held = paths.walk(rows), np.zeros(len(rows), dtype=bool)
    for one in patterns:
        inside = np.ones(len(rows), dtype=bool)
        for cut, state in one.states.items():
            inside &= states[:, cut] == state
        for place, token in one.tokens.items():
            inside &= rows[:, paths.order[place]].numpy() == token
        held |= inside
    return int(held.sum())


def test_inputs_in_any_of_some_sets_are_counted_once() -> None:
    rng = np.random.default_rng(3)
    for paths in (PATHS, declared(Brackets(length=7, shortest=7))[0]):
        for _ in range(40):
            patterns = []
            for _ in range(int(rng.integers(1, 12))):
                cuts = rng.integers(0, paths.length + 1, size=int(rng.integers(0, 3)))
                places = rng.integers(0, paths.length, size=int(rng.integers(0, 4)))
                patterns.append(Pattern({int(cut): int(rng.integers(len(paths.completions[cut]))) for cut in cuts},
                                        {int(place): int(rng.integers(3)) for place in places}))  # fmt: skip
            assert union(paths, patterns) == by_hand(paths, patterns)
    assert union(PATHS, []) == 0
    assert union(PATHS, [Pattern({}, {})]) == PATHS.n_inputs == 81
    assert union(PATHS, [Pattern({}, {7: 1})], most=3) is None
