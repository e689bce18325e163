"""Drawings of finite automata: states on a circle, and arrows with their letters."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from interp.errors import InterpError
from interp.report import theme

MOST_STATES = 14
"""Largest number of states of a readable drawing."""
RADIUS = 0.11
ON_LIGHT = "#111111"
"""Color of text on fills that are light in both themes."""
FILLS = (theme.PAPER, theme.BLUE, theme.ORANGE, theme.GREEN, theme.PURPLE, theme.SKY, theme.VERMILLION)
Point = tuple[float, float]


def automaton(following: Sequence[Sequence[int]], answers: Sequence[str], alphabet: Sequence[str]) -> go.Figure:
    """Draw an automaton that starts in state 0.

    Args:
        following: following[state][letter], the next state.
        answers: the answer of each state, in words. States with the same answer share a color, named in the legend.
        alphabet: the letters, written next to the arrows.

    Raises:
        InterpError: there are no states, or too many to draw.
    """
    n = len(following)
    if not 1 <= n <= MOST_STATES:
        raise InterpError(f"an automaton of {n} states: 1 to {MOST_STATES} can be drawn")
    places = _places(n)
    size = _half(n)
    drawn = theme.figure(height=min(620, 240 + 40 * n))
    labels: dict[tuple[int, int], list[str]] = {}
    for state, row in enumerate(following):
        for letter, target in zip(alphabet, row):
            labels.setdefault((state, target), []).append(letter)
    drawn.add_traces(
        [trace for pair, letters in labels.items() for trace in _arrow(places, pair, letters, labels, size)]
    )
    drawn.add_traces(_start(places[0], size))
    fills = dict(zip(["", *sorted(set(answers) - {""})], itertools.cycle(FILLS)))  # an answer has one in all automata
    for answer in dict.fromkeys(answers):
        drawn.add_trace(_nodes(places, answers, answer, fills[answer]))
    reach = size + 0.45
    drawn.update_xaxes(visible=False, range=[-reach, reach], constrain="domain")
    drawn.update_yaxes(visible=False, range=[-reach, reach], scaleanchor="x")
    height = int(drawn.layout.height)
    meta = {"max_width": height, "min_height": min(height, 80 + 19 * n), "words": _words(following, answers, alphabet)}
    return drawn.update_layout(showlegend=True, margin={"l": 8, "r": 8, "t": 24, "b": 8}, meta=meta)


def _words(following: Sequence[Sequence[int]], answers: Sequence[str], alphabet: Sequence[str]) -> str:
    """Describe the automaton in words, for screen readers."""
    states = [
        f"state {state}{f' ({answer})' if answer else ''}: "
        + ", ".join(f"{letter} leads to {target}" for letter, target in zip(alphabet, row))
        for state, (row, answer) in enumerate(zip(following, answers))
    ]
    return f"An automaton that starts in state 0. {'; '.join(states)}."


def _places(n: int) -> list[Point]:
    """Return the states' positions on a circle, the first at the left."""
    if n == 1:
        return [(0.0, 0.0)]
    r = _half(n)
    return [(-r * math.cos(2 * math.pi * i / n), r * math.sin(2 * math.pi * i / n)) for i in range(n)]


def _half(n: int) -> float:
    return 0.0 if n == 1 else max(0.5, 0.4 / math.sin(math.pi / n))


def _nodes(places: Sequence[Point], answers: Sequence[str], answer: str, fill: str) -> go.Scatter:
    mine = [state for state, said in enumerate(answers) if said == answer]
    light = {theme.ORANGE, theme.SKY, theme.PURPLE}
    ink = theme.INK if fill == theme.PAPER else ON_LIGHT if fill in light else theme.PAPER
    return go.Scatter(
        x=[places[state][0] for state in mine],
        y=[places[state][1] for state in mine],
        mode="markers+text",
        text=[str(state) for state in mine],
        textfont={"size": 14, "color": ink},
        marker={"size": 36, "color": fill, "line": {"color": theme.INK, "width": 2}},
        name=answer or "no string ends here",
        hovertext=[f"state {state}: {answer or 'no string ends here'}" for state in mine],
        hoverinfo="text",
    )


def _arrow(
    places: Sequence[Point],
    pair: tuple[int, int],
    letters: Sequence[str],
    labels: dict[tuple[int, int], list[str]],
    size: float,
) -> list[go.Scatter]:
    """Return a curve from one state to another (bent more if there is also one back), its tip, and its letters."""
    source, target = np.array(places[pair[0]]), np.array(places[pair[1]])
    if pair[0] == pair[1]:
        curve = _loop(source)
    else:
        along = (target - source) / np.linalg.norm(target - source)
        side = np.array([along[1], -along[0]])
        bend = 0.22 if (pair[1], pair[0]) in labels else 0.06
        curve = _bezier(source, (source + target) / 2 + bend * 2 * side, target)
        far = (np.linalg.norm(curve - source, axis=1) > RADIUS) & (
            np.linalg.norm(curve - target, axis=1) > RADIUS + 0.02
        )
        curve = curve[far]
    middle = curve[len(curve) // 2]
    if pair[0] == pair[1]:
        label = source + (middle - source) * 1.25
    else:
        label = middle + 0.07 * side
    step = curve[-1] - curve[-3]
    angle = math.degrees(math.atan2(step[0], step[1]))
    line = go.Scatter(x=curve[:, 0], y=curve[:, 1], mode="lines", line={"color": theme.GREY, "width": 1.6},
                      hoverinfo="skip", showlegend=False)  # fmt: skip
    head = go.Scatter(x=[curve[-1][0]], y=[curve[-1][1]], mode="markers", hoverinfo="skip", showlegend=False,
                      marker={"symbol": "triangle-up", "size": 10, "angle": angle, "color": theme.GREY})  # fmt: skip
    text = go.Scatter(x=[label[0]], y=[label[1]], mode="text", text=[", ".join(letters)], hoverinfo="skip",
                      textfont={"size": 13, "color": theme.INK}, showlegend=False)  # fmt: skip
    return [line, head, text]


def _bezier(a: np.ndarray, control: np.ndarray, b: np.ndarray) -> np.ndarray:
    t = np.linspace(0, 1, 60)[:, None]
    return (1 - t) ** 2 * a + 2 * t * (1 - t) * control + t**2 * b


def _loop(at: np.ndarray) -> np.ndarray:
    """Return a loop on the outer side of a state."""
    out = at / np.linalg.norm(at) if np.linalg.norm(at) > 0 else np.array([0.0, 1.0])
    center = at + 0.17 * out
    start = math.atan2(-out[1], -out[0])
    turn = np.linspace(start + 0.75, start + 2 * math.pi - 0.75, 40)
    return center + 0.12 * np.stack([np.cos(turn), np.sin(turn)], 1)


def _start(at: Point, size: float) -> list[go.Scatter]:
    """Return the arrow that leads into the first state from outside, below it."""
    x, y = at
    end = np.array([x - RADIUS * 0.75, y - RADIUS * 0.75])
    begin = end - np.array([0.2, 0.2])
    line = go.Scatter(x=[begin[0], end[0]], y=[begin[1], end[1]], mode="lines", line={"color": theme.INK, "width": 1.6},
                      hoverinfo="skip", showlegend=False)  # fmt: skip
    head = go.Scatter(x=[end[0]], y=[end[1]], mode="markers", hoverinfo="skip", showlegend=False,
                      marker={"symbol": "triangle-up", "size": 10, "angle": 45, "color": theme.INK})  # fmt: skip
    word = go.Scatter(x=[begin[0]], y=[begin[1] - 0.05], mode="text", text=["start"], hoverinfo="skip",
                      textfont={"size": 12, "color": theme.GREY}, showlegend=False)  # fmt: skip
    return [line, head, word]
