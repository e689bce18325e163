"""A real click on a point of a figure, and what a page makes of it."""

import json
from typing import Any

from browser import Page

# Where a point of each trace lies in the window: the last one that is seen (of bars and boxes the largest).
SPOTS = """
(plot) => plot.calcdata.flatMap((points, curve) => {
  const { trace } = points[0], full = plot._fullLayout, box = plot.getBoundingClientRect();
  if (trace.hoverinfo === "skip" || trace.visible !== true) return [];
  const [xa, ya] = [trace.xaxis, trace.yaxis].map((id) => full[id.replace(/^(.)/, "$1axis")]);
  const { poffset = 0, barwidth = 0, bPos = 0 } = points[0].t || {};
  const middle = (point) => trace.type === "bar" ? [point.p + poffset + barwidth / 2, (point.b || 0) + point.s / 2]
    : trace.type === "box" ? [point.pos + bPos, point.med] : [point.x, point.y];
  const size = (point) => Math.abs(point.s || 0) + (point.q3 - point.q1 || 0);
  if (["bar", "box"].includes(trace.type)) points = [...points].sort((a, b) => size(a) - size(b));
  const said = trace.customdata, told = ([x, y]) => !said || said[y][x]; // where each cell has an input, one that has
  const filled = ([x, y]) => Number.isFinite(points[0].z[y][x]); // an empty cell says nothing
  const cells = () => points[0].z.flatMap((row, y) => Array.from(row, (_, x) => [x, y])).filter(told).filter(filled);
  const places = trace.type === "heatmap" ? cells() : points.map(middle);
  const inside = places.map(([x, y]) => [xa.c2p(x), ya.c2p(y)])
    .filter(([x, y]) => x >= 0 && y >= 0 && x <= xa._length && y <= ya._length)
    .filter(([, y]) => box.top + ya._offset + y > 0 && box.top + ya._offset + y < innerHeight)
    // a wide figure scrolls sideways: what lies beyond its edge cannot be pointed at
    .filter(([x, y]) => plot.contains(document.elementFromPoint(box.left + xa._offset + x, box.top + ya._offset + y)));
  return inside.slice(-1).map(([x, y]) => ({ curve, x: box.left + xa._offset + x, y: box.top + ya._offset + y }));
})
"""


def draw(page: Page, plot: str) -> None:
    """Scrolls to a figure and waits until it is drawn."""
    page.run("document.querySelectorAll('main details').forEach((one) => { one.open = true; })")
    page.run(f"{plot}.scrollIntoView({{block: 'center'}})")
    page.wait(f"{plot}.calcdata !== undefined && {plot}.classList.contains('js-plotly-plot')")
    page.settle()


def spots(page: Page, plot: str) -> list[dict[str, Any]]:
    """For each trace that can be pointed at: its number, and where its last point lies in the window."""
    return list(page.run(f"({SPOTS})({plot})"))


def click(page: Page, x: float, y: float) -> None:
    """The pointer goes there, and its button down and up."""
    for kind, button in (("mouseMoved", "none"), ("mousePressed", "left"), ("mouseReleased", "left")):
        page.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=1)
        page.settle()


def hover(page: Page, plot: str, x: float, y: float) -> str:
    """What stands beside the pointer there."""
    page.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    page.settle()
    page.run("new Promise((done) => setTimeout(done, 60))")
    return str(page.run(f"[...{plot}.querySelectorAll('.hoverlayer text')].map((one) => one.textContent).join(' ')"))


def listen(page: Page) -> None:
    """From now on the page keeps what figures say of a click."""
    page.run("window.heard = []; document.addEventListener('interp-point', ({detail}) => heard.push(detail.state))")


def heard(page: Page) -> list[str]:
    """What was said since the last time."""
    return list(json.loads(page.run("JSON.stringify(heard.splice(0))")))
