"""Automata as drawings: every arrow is there, letters of one arrow together, and words for those who cannot see it."""

from __future__ import annotations

import pytest

from interp.errors import InterpError
from interp.report import theme
from interp.report.figures_automata import MOST_STATES, automaton
from interp.report.reading import finding, instead

PARITY = [(0, 1), (1, 0)]


def test_every_arrow_has_its_letters() -> None:
    drawn = automaton([(1, 2), (1, 1), (2, 0)], ["", "no", "yes"], ("a", "b"))
    labels = sorted(trace.text[0] for trace in drawn.data if trace.mode == "text" and trace.text[0] != "start")
    assert labels == ["a", "a", "a, b", "b", "b"]
    named = {trace.name: list(trace.text) for trace in drawn.data if trace.mode == "markers+text"}
    assert named == {"no string ends here": ["0"], "no": ["1"], "yes": ["2"]}


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
        nodes = next(trace for trace in drawn.data if trace.mode == "markers+text")
        points = list(zip(nodes.x, nodes.y))
        nearest = min((a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2 for i, a in enumerate(points) for b in points[:i]) ** 0.5
        pixels = (drawn.layout.height - 32) / (drawn.layout.yaxis.range[1] - drawn.layout.yaxis.range[0])
        assert nearest * pixels > nodes.marker.size


def test_colors_have_a_dark_partner_or_are_for_light_fills() -> None:
    drawn = automaton([(s,) for s in range(7)], list("abcdefg"), ("x",))
    for trace in drawn.data:
        if trace.mode == "markers+text":
            assert trace.marker.color in theme.DARK


def test_too_many_states_are_refused() -> None:
    with pytest.raises(InterpError, match="an automaton of 15 states: 1 to 14 can be drawn"):
        automaton([(0,)] * 15, ["no"] * 15, ("a",))
