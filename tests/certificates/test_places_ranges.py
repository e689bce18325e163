"""Ranges over (place, state) against all inputs, one by one; cells cut and counted as they are."""

import numpy as np
import torch

from interp.certificates.places_ranges import Cells, HeadTerms, Routes, TokenPattern, _crossing, union
from interp.families.algorithmic import Addition
from interp.families.languages import Brackets
from interp.tasks.automata import Paths, declared

ADDITION = Addition(base=3, digits=2)
(PATHS,) = declared(ADDITION)
ROWS = torch.cat(list(PATHS.every())).numpy()
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
    found = [routes.all_inputs(PATHS.reads[AT][0])]
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
                assert (ROWS[inside[index]] == routes.example(cells, index)).all(1).any()


def test_ranges_hold_and_are_met() -> None:
    rng = np.random.default_rng(0)
    loosest = 0.0
    for token in TOKENS:
        routes = Routes.of(PATHS, AT, token)
        weight = np.exp(rng.normal(size=(PATHS.length, ADDITION.d_vocab)) * 2)
        weight[-1] = 0  # nobody sees the last place
        sums = HeadTerms(routes, weight, rng.normal(size=(2, PATHS.length, ADDITION.d_vocab)), 1e-14)
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
    sums = HeadTerms(
        routes, np.ones((PATHS.length, ADDITION.d_vocab)), np.ones((1, PATHS.length, ADDITION.d_vocab)), 1.0
    )
    low, high = sums.box(routes.all_inputs(PATHS.reads[AT][0]))
    assert (low == 1).all()
    assert (high == 1).all()


def by_hand(paths: Paths, patterns: list[TokenPattern]) -> int:
    """Inputs in any pattern, one by one."""
    rows = torch.cat(list(paths.every()))
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
                patterns.append(TokenPattern({int(cut): int(rng.integers(len(paths.completions[cut]))) for cut in cuts},
                                        {int(place): int(rng.integers(3)) for place in places}))  # fmt: skip
            assert union(paths, patterns) == by_hand(paths, patterns)
    assert union(PATHS, []) == 0
    assert union(PATHS, [TokenPattern({}, {})]) == PATHS.n_inputs == 81
    assert union(PATHS, [TokenPattern({}, {7: 1})], most=3) is None


def test_the_zero_of_a_chord_lies_below_the_true_one() -> None:
    """The least of some falling lines is concave: its zero is the least of theirs."""
    rng = np.random.default_rng(4)
    grid = np.linspace(-1, 2, 25)
    zeros, steep = rng.uniform(-2, 3, size=(4, 500)), rng.uniform(0.01, 5, size=(4, 500))
    found = _crossing(grid, (steep * (zeros - grid[:, None, None])).min(1))
    true = np.clip(zeros.min(0), -1, 2)
    assert (found <= true + 1e-12).all()
    assert (true - found < grid[1] - grid[0]).all()
    assert (found >= np.where(true > -1, grid[np.searchsorted(grid, true) - 1], -1) - 1e-12).all()
    one = _crossing(grid, steep[0] * (zeros[0] - grid[:, None]))  # a single line: no chord is needed
    assert np.abs(one - np.clip(zeros[0], -1, 2)).max() < 1e-12
    assert _crossing(grid, np.zeros((25, 1)))[0] == 2
    assert _crossing(grid, np.full((25, 1), -1e-300))[0] == -1
    assert _crossing(grid, np.where(grid[:, None] < 0.5, np.inf, -np.inf))[0] <= 0.5


def test_what_weights_may_be_off_widens_ranges_by_as_much() -> None:
    routes = Routes.of(PATHS, AT, TOKENS[0])
    rng = np.random.default_rng(5)
    weight = np.exp(rng.normal(size=(PATHS.length, ADDITION.d_vocab)))
    coordinates = rng.normal(size=(2, PATHS.length, ADDITION.d_vocab))
    cells = some_cells(routes, [5, 1])[-1]
    sharp, loose = HeadTerms(routes, weight, coordinates, 0.0), HeadTerms(routes, weight, coordinates, 0.01)
    assert (sharp.ends == loose.ends).all()
    (low, high), (lower, higher) = sharp.box(cells), loose.box(cells)
    least, most = (sharp.ends[:, [end]] for end in (0, 1))
    span = 0.01 * (most - least)
    assert np.abs(lower - np.maximum(low - span, least)).max() < 1e-14
    assert np.abs(higher - np.minimum(high + span, most)).max() < 1e-14
    assert (np.minimum(low - lower, higher - high) > 0.009 * (most - least)).any()


def test_paths_between_cuts_are_counted() -> None:
    """Routes, sums from cut to cut, and sums to the end, against all rows."""
    token = TOKENS[-1]
    routes, inside = Routes.of(PATHS, AT, token), ROWS[:, AT] == token
    rng = np.random.default_rng(6)
    sums = HeadTerms(routes, np.exp(rng.normal(size=(PATHS.length, ADDITION.d_vocab))),
                rng.normal(size=(1, PATHS.length, ADDITION.d_vocab)), 0.0)  # fmt: skip
    order = list(PATHS.order)
    cost = sums.costs[:, np.arange(PATHS.length), ROWS[:, order]]  # channels, rows, places
    assert int(routes.endings[0][0]) == inside.sum()
    for start in range(PATHS.length + 1):
        onward = sums.onward(start)
        for state in np.unique(STATES[inside, start]):
            there = inside & (STATES[:, start] == state)
            assert routes.endings[start][state] == len(np.unique(ROWS[there][:, order[start:]], axis=0))
            after = cost[:, there, start:].sum(2)
            assert np.abs(onward[0][:, state] - after.min(1)).max() < 1e-12
            assert np.abs(onward[1][:, state] - after.max(1)).max() < 1e-12
            for stop in range(start, PATHS.length + 1):
                for then in np.unique(STATES[there, stop]):
                    path = there & (STATES[:, stop] == then)
                    many = np.unique(ROWS[path][:, order[start:stop]], axis=0)
                    assert routes.counts(start, stop)[state, then] == len(many)
                    along = cost[:, path, start:stop].sum(2)
                    between = sums.between(start, stop)[:, :, state, then]
                    assert np.abs(between - [along.min(1), along.max(1)]).max() < 1e-12
