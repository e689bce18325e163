"""Each kind of live panel, used from end to end by pointer and keys: typed, dragged, switched, undone, reset, sent."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from browser import Page, find_browser
from report.hostile import HOSTILE, HostileTokens

import interp
from interp.models.subject import Subject
from interp.report import Report
from interp.report.sections.live_payload import payload

pytestmark = [
    pytest.mark.skipif(find_browser() is None, reason="no Chromium: live panels are not used"),
    pytest.mark.slow,
]


@dataclass(frozen=True)
class Kind:
    """A model, what is typed where, what is dragged (a slider) or clicked, and what switches a part off."""

    model: str
    field: str
    typed: str
    dragged: str
    switch: str = ".live-heads input[type=checkbox]"


KINDS = {
    "counts": Kind("count01/paper", "input[type=number]", "9", "input[type=range]", ".live-planes input"),
    "positions": Kind("histogram/dot", "#live-text", "1 2 4 4 2 2 4 7 7 4", ".live-positions button:nth-child(4)"),
    "strings": Kind("languages/first-learned", "#live-text", "0110", "#live-length"),
    "table": Kind("memorization/lookup", "#live-text", "3 7", ".live-table button:nth-child(50)"),
    "any other": Kind("algorithmic/induction", "#live-text", "1 2 3 1 2", ".live-menus select:nth-of-type(2)"),
}
DECISION = "document.querySelector('.live-decision').textContent"
SHOWN = "document.querySelector('.live-bars').textContent"


def center(page: Page, selector: str) -> tuple[float, float]:
    where = f"document.querySelector({json.dumps('.live ' + selector)})"
    page.run(f"{where}.scrollIntoView({{block: 'center'}})")
    page.settle()
    box = page.run(f"(({{left, top, width, height}}) => [left, top, width, height])({where}.getBoundingClientRect())")
    return box[0] + box[2] / 2, box[1] + box[3] / 2


def pointer(page: Page, kind: str, x: float, y: float) -> None:
    page.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1, buttons=1)
    page.settle()


def drag(page: Page, selector: str) -> None:
    """Takes hold of the middle and moves 40 pixels to the right: a slider follows, anything else is clicked."""
    x, y = center(page, selector)
    pointer(page, "mousePressed", x, y)
    for step in range(1, 6) if "range" in selector or "length" in selector else ():
        pointer(page, "mouseMoved", x + 8 * step, y)
    pointer(page, "mouseReleased", x, y)


def type_in(page: Page, selector: str, text: str) -> None:
    x, y = center(page, selector)
    pointer(page, "mousePressed", x, y)
    pointer(page, "mouseReleased", x, y)
    page.run("document.activeElement.select()")
    page.send("Input.insertText", text=text)
    page.run("document.activeElement.dispatchEvent(new Event('change', {bubbles: true}))")
    page.run("document.activeElement.blur()")
    page.settle()


def press(page: Page, words: str) -> bool:
    """Presses a button by its words; False where it is disabled."""
    button = f"[...document.querySelectorAll('.live button')].find((one) => one.textContent === {json.dumps(words)})"
    alive = not page.run(f"{button}.disabled")
    page.run(f"{button}.click()")
    page.settle()
    return alive


@pytest.mark.parametrize("kind", KINDS)
def test_used_from_end_to_end(page: Page, tmp_path: Path, kind: str) -> None:
    used = KINDS[kind]
    page.size(1280, 900)
    page.errors.clear()
    path = interp.live(used.model).save(tmp_path / "page.html")
    page.open(path)
    assert page.run("document.querySelector('#live').dataset.selfTest") == "ok"
    first = page.run(SHOWN)
    type_in(page, used.field, used.typed)
    typed = page.run(SHOWN)
    assert typed != first
    if "select" in used.dragged:  # the keyboard
        page.run(f"document.querySelector('.live {used.dragged}').focus()")
        page.key("ArrowDown", 40)
        page.settle()
    else:
        drag(page, used.dragged)
    dragged = page.run(SHOWN) + page.run(DECISION)
    assert dragged != typed
    x, y = center(page, used.switch)
    pointer(page, "mousePressed", x, y)
    pointer(page, "mouseReleased", x, y)
    assert page.run("document.querySelector('#live').dataset.edited") == "true"
    edited = page.run(SHOWN)
    page.run("new Promise((done) => setTimeout(done, 300))")
    link = page.run("location.hash")
    assert link.startswith("#live=")
    assert "off:0.0" in link
    given: dict[str, object] = {"print": lambda value: given.update(printed=value)}
    press(page, "Copy as Python")
    exec(page.run("document.querySelector('.live-python code').textContent"), given)
    logits = given["printed"]
    assert isinstance(logits, torch.Tensor)
    cells = "[...document.querySelector('.live-bars').tBodies[0].rows].map((row) => row.cells[2].textContent)"
    shown = [float(cell.replace("−", "-")) for cell in page.run(cells)]
    for value in shown:
        assert min(abs(value - one) for one in logits.tolist()) < max(6e-3, 1e-3 * abs(value))
    page.open(path, link)
    assert page.run(SHOWN) == edited
    assert press(page, "Reset")
    assert page.run(SHOWN) == first
    assert press(page, "Undo")
    assert page.run(SHOWN) == edited
    page.open(path, link)
    assert not press(page, "Undo")
    assert page.errors == []


def test_undo_goes_back_step_by_step(page: Page, tmp_path: Path) -> None:
    page.open(interp.live("histogram/dot").save(tmp_path / "page.html"))
    states = [page.run(SHOWN)]
    for text in ("1 2 4 4 2 2 4 7 7 4", "3 3 3 3 3 3 3 3 3 3"):
        type_in(page, "#live-text", text)
        states.append(page.run(SHOWN))
        press(page, "All heads off")
        states.append(page.run(SHOWN))
        press(page, "All on")
    for _ in range(6):
        press(page, "Undo")
    assert page.run(SHOWN) == states[0]


def test_a_pinned_input_stays_beside_the_next_ones(page: Page, tmp_path: Path) -> None:
    page.size(1280, 900)
    page.errors.clear()
    path = interp.live("histogram/dot").save(tmp_path / "page.html")
    page.open(path)
    views = "[...document.querySelectorAll('.live-pair > div')].filter((one) => !one.hidden)"
    shown = f"{views}.map((one) => one.textContent)"
    matrices = f"{views}.map((one) => one.querySelector('table').textContent)"
    type_in(page, "#live-text", "1 2 4 4 2 2 4 7 7 4")
    (first,) = page.run(matrices)
    assert press(page, "Pin this input")
    type_in(page, "#live-text", "3 3 3 3 3 3 3 3 3 5")
    held, now = page.run(matrices)
    assert held == first != now
    assert page.run(shown)[0].startswith("Pinned input: 1 2 4 4 2 2 4 7 7 4. The model answers 1 at position 0.")
    assert page.run(shown)[1].startswith("This input: 3 3 3 3 3 3 3 3 3 5. The model answers")
    page.run("new Promise((done) => setTimeout(done, 300))")
    link = page.run("location.hash")
    assert "pin:1.2.4.4.2.2.4.7.7.4" in link
    page.open(path, link)
    assert page.run(matrices) == [held, now]
    assert press(page, "Unpin")
    assert page.run(matrices) == [now]
    page.open(path, link.replace("pin:1.2", "pin:1.99"))
    assert page.run(matrices) == [now]
    assert page.errors == []


def test_hostile_names_stay_text_wherever_they_stand(page: Page, tmp_path: Path) -> None:
    page.errors.clear()
    spec = interp.ModelSpec(
        task=HostileTokens().ref, d_model=4, layers=[{"n_heads": 2, "d_head": 4}], readout_at="last", n_out=2
    )  # type: ignore[arg-type]
    report = interp.analyze(interp.build(spec), sections=["live", "accuracy", "heads", "embeddings", "example"])
    hostile = Report(HOSTILE, subtitle=HOSTILE, metadata={HOSTILE: HOSTILE})
    hostile.attach(report, prefix=HOSTILE)
    hostile.add_live(payload(Subject.of(interp.build(spec)), f"model = {HOSTILE!r}"))
    page.open(hostile.save(tmp_path / "page.html"))
    for number in range(page.run("document.querySelectorAll('figure .plot').length")):
        page.run("document.querySelectorAll('main details').forEach((one) => { one.open = true; })")
        page.run(f"document.querySelectorAll('figure .plot')[{number}].scrollIntoView()")
        page.wait(f"document.querySelectorAll('figure .plot')[{number}].data !== undefined")
    press(page, "Copy as Python")
    assert page.run("window.hacked") is None
    assert page.run("document.querySelectorAll('main img').length") == 0
    assert page.errors == []
