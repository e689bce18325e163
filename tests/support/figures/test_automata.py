"""Automata as drawings: every arrow is there, in the style of its letters, and words for those who cannot see it."""

import math

import numpy as np
import plotly.graph_objects as go
import pytest

from interp.errors import InterpError
from interp.report.reading import finding, instead
from interp.support.figures import theme
from interp.support.figures.automata import MOST_STATES, ON_LIGHT, RADIUS, automaton, is_readable

PARITY = [(0, 1), (1, 0)]


def numbers(drawn: go.Figure) -> dict[str, go.Scatter]:
    """The numbers of the states, by their answer."""
    return {trace.legendgroup: trace for trace in drawn.data if trace.mode == "text" and trace.legendgroup}


def ends(drawn: go.Figure, name: str) -> set[tuple[int, int]]:
    """The states that the arrows of this name leave and reach: those nearest to the ends of its curves."""
    states = {number: (x, y) for trace in numbers(drawn).values() for number, x, y in zip(trace.text, trace.x, trace.y)}
    line = next(trace for trace in drawn.data if trace.name == name)
    gaps = np.flatnonzero(np.isnan(line.x))
    curves = np.split(np.stack([line.x, line.y], 1), gaps)
    curves = [curve[~np.isnan(curve).any(1)] for curve in curves]

    def nearest(point: np.ndarray) -> int:
        return int(min(states, key=lambda state: math.dist(states[state], point)))

    return {(nearest(curve[0]), nearest(curve[-1])) for curve in curves}


def test_every_letter_has_its_arrows() -> None:
    drawn = automaton([(1, 2, 1), (1, 1, 1), (2, 0, 2)], ["", "no", "yes"], ("a", "<", "c"))
    assert ends(drawn, "on a, c") == {(0, 1), (1, 1), (2, 2)}  # letters that do the same share arrows
    assert ends(drawn, "on &lt;") == {(0, 2), (1, 1), (2, 0)}
    named = {answer: list(trace.text) for answer, trace in numbers(drawn).items()}
    assert set(named) == {trace.name for trace in drawn.data if trace.mode == "markers" and trace.name}
    assert named == {"no string ends here": ["0"], "no": ["1"], "yes": ["2"]}
    styles = {(trace.line.color, trace.line.dash) for trace in drawn.data if (trace.name or "").startswith("on ")}
    assert len(styles) == 2


def test_arrows_between_the_same_states_lie_apart() -> None:
    drawn = automaton([(1, 1, 1), (0, 1, 0)], ["no", "yes"], ("a", "b", "c"))
    highest = [max(abs(y) for y in trace.y if not math.isnan(y)) for trace in drawn.data
               if (trace.name or "").startswith("on ")]  # fmt: skip
    assert len(set(np.round(highest, 2))) == 2


def test_a_narrow_page_shows_all_of_it_at_once() -> None:
    """On a phone, 340 pixels: no scrolling, and every number fits on its state."""
    for n in range(1, MOST_STATES + 1):
        drawn = automaton([(s, s) for s in range(n)], ["no"] * n, ("0", "1"))
        assert drawn.layout.meta["min_height"] <= 340 <= drawn.layout.meta["max_width"] + 60
        low, high = drawn.layout.yaxis.range
        assert RADIUS * (340 - 90) / (high - low) > 8  # half of two digits of 13 pixels
        for trace in drawn.data:
            for values in (trace.x, trace.y):
                inside = [value for value in values if not math.isnan(value)]
                assert low + 0.05 < min(inside)
                assert max(inside) < high - 0.05


def test_it_says_itself_in_words_and_is_always_drawn() -> None:
    drawn = automaton(PARITY, ["no", "yes"], ("0", "1"))
    assert finding(drawn) == (
        "An automaton that starts in state 0. state 0 (no): 0 leads to 0, 1 leads to 1; state 1 (yes): 0 leads to 1, "
        "1 leads to 0."
    )
    assert instead(drawn) is None


def test_states_do_not_touch() -> None:
    for n in range(2, MOST_STATES + 1):
        drawn = automaton([((s + 1) % n, s) for s in range(n)], ["no"] * n, ("0", "1"))
        nodes = numbers(drawn)["no"]
        points = list(zip(nodes.x, nodes.y))
        nearest = min(math.dist(a, b) for i, a in enumerate(points) for b in points[:i])
        assert nearest > 4 * RADIUS  # as much as a state between two


def test_colors_have_a_dark_partner_or_are_for_light_fills() -> None:
    drawn = automaton([(s,) for s in range(7)], list("abcdefg"), ("x",))
    assert {trace.fillcolor for trace in drawn.data if trace.fill} <= set(theme.DARK)
    assert {trace.textfont.color for trace in numbers(drawn).values()} <= {*theme.DARK, ON_LIGHT}


def test_too_many_states_are_refused() -> None:
    with pytest.raises(InterpError, match="an automaton of 15 states: 1 to 14 can be drawn"):
        automaton([(0,)] * 15, ["no"] * 15, ("a",))


def test_few_arrows_between_states_are_readable() -> None:
    around = [[(state + step) % 10 for step in (1, 2)] for state in range(10)]
    assert is_readable(around)
    assert is_readable([[*row, *row] for row in around])  # these letters share arrows
    assert not is_readable([[*row, (state + 3) % 10] for state, row in enumerate(around)])
    assert is_readable([[*row, state] for state, row in enumerate(around)])
    assert not is_readable([[state, state] for state in range(MOST_STATES + 1)])
