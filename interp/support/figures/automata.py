"""Drawings of finite automata: states on a circle, and arrows whose color and dash name their letters."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from interp.errors import InterpError, first_few
from interp.support.figures import theme

MOST_STATES = 14
"""Largest number of states that are drawn."""
MOST_ARROWS = 28
"""Largest number of arrows between states, one for each letter, of a readable drawing."""
RADIUS = 0.17
"""Radius of a state. All lengths are in units of the axes, so that a narrow page shows the same drawing, smaller."""
TIP = 0.07
"""Distance from a state to the middle of an arrow's tip."""
ON_LIGHT = "#111111"
"""Color of text on fills that are light in both themes."""
LIGHT = {theme.ORANGE, theme.SKY, theme.PURPLE}
FILLS = (theme.PAPER, theme.BLUE, theme.ORANGE, theme.GREEN, theme.PURPLE, theme.SKY, theme.VERMILLION)
LETTERS = (theme.VERMILLION, theme.GREEN, theme.PURPLE, theme.SKY, theme.GREY, theme.INK)
DASHES = ("solid", "dash", "dot", "dashdot")
Point = tuple[float, float]


def is_readable(following: Sequence[Sequence[int]]) -> bool:
    """Whether a drawing of an automaton has few enough states, and arrows between them. following: see `automaton`."""
    columns = dict.fromkeys(zip(*following))  # letters that lead everywhere to the same states share their arrows
    arrows = sum(target != state for targets in columns for state, target in enumerate(targets))
    return len(following) <= MOST_STATES and arrows <= MOST_ARROWS


def automaton(following: Sequence[Sequence[int]], answers: Sequence[str], alphabet: Sequence[str]) -> go.Figure:
    """Draw an automaton that starts in state 0.

    Args:
        following: following[state][letter], the next state.
        answers: the answer of each state, in words. States with the same answer share a color, named in the legend.
        alphabet: the letters, named in the legend. Letters that lead everywhere to the same states share their arrows.

    Raises:
        InterpError: there are no states, or too many to draw.
    """
    n = len(following)
    if not 1 <= n <= MOST_STATES:
        raise InterpError(f"an automaton of {n} states: 1 to {MOST_STATES} can be drawn")
    places, drawn = _places(n), theme.figure(height=min(620, 240 + 40 * n))
    alike: dict[tuple[int, ...], list[str]] = {}
    for letter, targets in zip(alphabet, zip(*following)):
        alike.setdefault(targets, []).append(letter)
    before: Counter[frozenset[int]] = Counter()  # arrows so far between two states, in any direction
    for number, (targets, letters) in enumerate(alike.items()):
        curves = []
        for state, target in enumerate(targets):
            curves.append(_curve(places[state], places[target], before[frozenset((state, target))]))
            before[frozenset((state, target))] += 1
        name = f"on {theme.plain(first_few(letters))}"
        drawn.add_traces(_arrows(curves, LETTERS[number % len(LETTERS)], DASHES[number % len(DASHES)], name))
    drawn.add_traces(_start(places[0]))
    fills = dict(zip(["", *sorted(set(answers) - {""})], itertools.cycle(FILLS)))  # an answer has one in all automata
    for answer in dict.fromkeys(answers):
        mine = {state: place for state, (place, its_answer) in enumerate(zip(places, answers)) if its_answer == answer}
        drawn.add_traces(_states(mine, answer or "no string ends here", fills[answer]))
    loops = max([count for pair, count in before.items() if len(pair) == 1], default=0)
    reach = _half(n) + 0.45 + 0.08 * loops
    drawn.update_xaxes(visible=False, range=[-reach, reach], constrain="domain")
    drawn.update_yaxes(visible=False, range=[-reach, reach], scaleanchor="x")
    height = int(drawn.layout.height)
    meta = {"max_width": height, "min_height": min(height, 340), "words": _words(following, answers, alphabet)}
    margin = {"l": 8, "r": 8, "t": 24, "b": 8}
    return drawn.update_layout(showlegend=True, legend_itemwidth=44, margin=margin, meta=meta)


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
    r = _half(n)
    return [(-r * math.cos(2 * math.pi * i / n), r * math.sin(2 * math.pi * i / n)) for i in range(n)]


def _half(n: int) -> float:
    return 0.0 if n == 1 else max(0.5, 0.4 / math.sin(math.pi / n))


def _states(places: dict[int, Point], answer: str, fill: str) -> list[go.Scatter]:
    """Return the states with one answer: an entry in the legend, their discs, and their numbers on them."""
    turn = np.linspace(0, 2 * math.pi, 60)
    discs = [np.array(place) + RADIUS * np.stack([np.cos(turn), np.sin(turn)], 1) for place in places.values()]
    ink = theme.INK if fill == theme.PAPER else ON_LIGHT if fill in LIGHT else theme.PAPER
    line, at = {"color": theme.INK, "width": 2}, dict(zip("xy", zip(*places.values())))
    return [
        go.Scatter(**at, mode="markers", name=answer, legendgroup=answer, hoverinfo="skip",
                   marker={"size": 6, "color": fill, "line": line}),  # under the discs: larger in the legend
        _line(discs, fill="toself", fillcolor=fill, line=line, legendgroup=answer, showlegend=False),
        go.Scatter(**at, mode="text", text=list(map(str, places)), textfont={"size": 13, "color": ink},
                   hoverinfo="text", hovertext=[f"state {state}: {answer}" for state in places],
                   legendgroup=answer, showlegend=False),
    ]  # fmt: skip


def _line(curves: Sequence[np.ndarray], **more: Any) -> go.Scatter:
    """Return one trace of several curves."""
    gap = np.full((1, 2), np.nan)
    points = np.concatenate([part for curve in curves for part in (curve, gap)][:-1])
    return go.Scatter(x=points[:, 0], y=points[:, 1], mode="lines", hoverinfo="skip", **more)


def _arrows(curves: Sequence[np.ndarray], color: str, dash: str, name: str | None) -> list[go.Scatter]:
    """Return arrows along curves, with an entry in the legend if they have a name."""
    line = _line(curves, name=name, showlegend=name is not None, line={"color": color, "width": 1.8, "dash": dash})
    angles = [math.degrees(math.atan2(*(curve[-1] - curve[-3]))) for curve in curves]
    tips = go.Scatter(
        x=[curve[-1][0] for curve in curves], y=[curve[-1][1] for curve in curves], mode="markers", hoverinfo="skip",
        showlegend=False, marker={"symbol": "triangle-up", "size": 9, "angle": angles, "color": color},
    )  # fmt: skip
    return [line, tips]


def _curve(start: Point, end: Point, before: int) -> np.ndarray:
    """Return a curve from one state to another. before: the number of arrows between them that are drawn already.

    It is bent towards the middle of the circle, so that it does not pass through the states between.
    """
    a, b = np.array(start), np.array(end)
    if start == end:
        outward = a / np.linalg.norm(a) if np.linalg.norm(a) > 0 else np.array([0.0, 1.0])
        center, radius = a + (RADIUS + 0.05 + 0.04 * before) * outward, 0.12 + 0.04 * before
        turn = math.atan2(*-outward[::-1]) + np.linspace(0, 2 * math.pi, 200)
        curve = center + radius * np.stack([np.cos(turn), np.sin(turn)], 1)
    else:
        middle, across = (a + b) / 2, np.array([b[1] - a[1], a[0] - b[0]]) / np.linalg.norm(b - a)
        inward = -across if across @ middle > 0 else across
        control, t = middle + (0.1 + 0.32 * before) * inward, np.linspace(0, 1, 200)[:, None]
        curve = (1 - t) ** 2 * a + 2 * t * (1 - t) * control + t**2 * b
    apart = [np.linalg.norm(curve - end, axis=1) for end in (a, b)]
    last = np.arange(len(curve)) > len(curve) // 2
    return curve[(apart[0] > RADIUS) & ((apart[1] > RADIUS + TIP) | ~last)]


def _start(at: Point) -> list[go.Scatter]:
    """Return the arrow that leads into the first state from outside, below it."""
    away = np.array([-0.6, -0.8])
    line = np.array(at) + np.linspace(RADIUS + 0.22, RADIUS + TIP, 5)[:, None] * away
    word = go.Scatter(x=[line[0][0]], y=[line[0][1]], mode="text", text=["start"], textposition="bottom center",
                      hoverinfo="skip", textfont={"size": 12, "color": theme.GREY}, showlegend=False)  # fmt: skip
    return [*_arrows([line], theme.INK, "solid", None), word]
