"""Live panels in a browser: they test themselves, and answer to typing, dragging, switching, undo and links."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from browser import Page, find_browser
from report.hostile import HOSTILE, HostileTokens

import interp
from interp.models.subject import Subject
from interp.report import Report
from interp.report.sections.live_payload import payload

pytestmark = pytest.mark.skipif(find_browser() is None, reason="no Chromium: live panels are not tried in a browser")

BUTTONS = "[...document.querySelectorAll('.live button')]"


@pytest.fixture(autouse=True)
def _no_errors(page: Page) -> Iterator[None]:
    page.errors.clear()
    page.size(1280, 900)
    yield
    assert page.errors == []


def opened(page: Page, report: Report, folder: Path, fragment: str = "") -> Path:
    path = report.save(folder / "page.html")
    page.open(path, fragment)
    assert page.run("document.querySelector('#live').dataset.selfTest") == "ok"
    return path


def text(page: Page, selector: str) -> str:
    page.settle()
    return str(page.run(f"document.querySelector({json.dumps(selector)}).textContent"))


def set_value(page: Page, selector: str, value: object, event: str = "input") -> None:
    where = f"document.querySelector({json.dumps(selector)})"
    page.run(f"{where}.value = {json.dumps(value)}; {where}.dispatchEvent(new Event('{event}', {{bubbles: true}}))")
    page.settle()


def press(page: Page, words: str) -> None:
    page.run(f"{BUTTONS}.find((button) => button.textContent === {json.dumps(words)}).click()")
    page.settle()


def hash_of(page: Page) -> str:
    page.wait("location.hash.startsWith('#live=')")
    page.run("new Promise((done) => setTimeout(done, 250))")
    return str(page.run("location.hash"))


def test_counts_sliders_switches_attention_by_hand_undo_and_link(page: Page, tmp_path: Path) -> None:
    path = opened(page, interp.live("count01/paper"), tmp_path)
    for slider, value in enumerate((10, 14, 3)):
        set_value(page, f"#live-count-{slider}", value)
    assert "answers 4, which is right" in text(page, ".live-decision")
    page.run("document.querySelectorAll('.live-planes input').forEach((box, i) => i % 2 && box.click())")
    assert "edited" in text(page, ".live-decision ~ .live-note")
    page.run("document.querySelector('.live-check input').click()")
    page.settle()
    set_value(page, "#live-ratio-0", -1)
    edited, link = text(page, ".live-bars tbody"), hash_of(page)
    assert link.startswith("#live=counts:10,14,3;off:0.1,0.3")
    assert "ratios:0.1,1" in link
    press(page, "Undo")
    assert text(page, ".live-bars tbody") != edited
    for _ in range(20):
        press(page, "Undo")
    assert page.run(f"{BUTTONS}.find((button) => button.textContent === 'Undo').disabled")
    page.open(path, link)
    assert text(page, ".live-bars tbody") == edited
    press(page, "Reset")
    assert page.run("document.querySelector('#live').dataset.edited") == "false"


def test_the_map_loads_an_input_and_its_errors_are_the_models(page: Page, tmp_path: Path) -> None:
    opened(page, interp.live("count01/paper"), tmp_path)
    page.run(
        "{const map = document.querySelector('.live-map'), box = map.getBoundingClientRect();"
        "map.dispatchEvent(new MouseEvent('click', {bubbles: true, clientX: box.left + box.width * 0.5,"
        " clientY: box.top + box.height * 0.3}))}"
    )
    page.settle()
    counts = [int(page.run(f"document.querySelector('#live-count-{i}').value")) for i in range(3)]
    assert counts[1] - counts[0] == 5
    assert "which is right" in text(page, ".live-decision")


def test_typing_menus_positions_and_what_cannot_be_typed(page: Page, tmp_path: Path) -> None:
    opened(page, interp.live("histogram/dot-exact"), tmp_path)
    set_value(page, "#live-text", "1 2 4 4 2 2 4 7 7 4")
    spans = "[...document.querySelectorAll('.live-positions button span')]"
    answers = page.run(f"{spans}.map((span) => span.textContent).join(' ')")
    assert answers == "1 3 4 4 3 3 4 2 2 4"
    page.run("document.querySelectorAll('.live-positions button')[8].click()")
    assert text(page, ".live-decision").startswith("Position 8 (7): the model answers 2")
    set_value(page, ".live-menus select:nth-of-type(9)", "4", "change")
    assert page.run("document.querySelectorAll('.live-positions button span')[9].textContent") == "5"
    set_value(page, "#live-text", "1 2 x")
    assert '"x" is not a token' in text(page, ".live-trouble")
    assert page.run("document.querySelector('#live-text').getAttribute('aria-invalid')") == "true"


def test_what_is_no_input_of_the_task_is_not_judged(page: Page, tmp_path: Path) -> None:
    opened(page, interp.live("algorithmic/modular-addition"), tmp_path)
    set_value(page, "#live-text", "100 20")
    assert text(page, ".live-decision") == "The model answers 7, which is right."
    set_value(page, "#live-text", "20")
    assert "does not know" in text(page, ".live-decision")


def test_strings_grow_and_their_first_error_is_found(page: Page, tmp_path: Path) -> None:
    opened(page, interp.live("languages/parity"), tmp_path)
    set_value(page, "#live-text", "0111")
    assert "which is right" in text(page, ".live-decision")
    set_value(page, "#live-length", 7)
    assert page.run("document.querySelector('#live-text').value") == "0111011"
    page.run("document.querySelector('.live-heads input').click()")
    page.settle()
    assert page.run("document.querySelector('#live').dataset.edited") == "true"


def test_contexts_of_a_table_are_loaded_by_a_click(page: Page, tmp_path: Path) -> None:
    opened(page, interp.live("memorization/kgram"), tmp_path)
    page.run("document.querySelectorAll('.live-table button')[37].click()")
    page.settle()
    assert page.run("[...document.querySelectorAll('.live-menus select')].map((s) => s.value).join()") == "3,7"
    assert page.run("document.querySelectorAll('.live-table button')[37].getAttribute('aria-pressed')") == "true"


def test_a_panel_opens_at_the_first_position_that_is_read(page: Page, tmp_path: Path) -> None:
    opened(page, interp.live("algorithmic/addition"), tmp_path)  # the page does not know the right sums
    buttons = "[...document.querySelectorAll('.live-positions button')]"
    assert page.run(f"{buttons}.findIndex((each) => each.getAttribute('aria-pressed') === 'true')") == 21


def test_everything_has_a_name_and_the_decision_is_said(page: Page, tmp_path: Path) -> None:
    for name in ("count01/minimal", "memorization/kgram"):
        opened(page, interp.live(name), tmp_path)
        named = "each.getAttribute('aria-label') || each.textContent.trim() || (each.labels && each.labels.length)"
        controls = "[...document.querySelectorAll('.live input, .live select, .live button')]"
        unnamed = page.run(f"{controls}.filter((each) => !({named})).length")
        assert unnamed == 0
        page.wait("document.querySelector('.live [role=status].live-hidden').textContent.length > 10")


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_jumps_and_nothing_is_wider_than_the_screen(page: Page, tmp_path: Path, width: int) -> None:
    page.size(width, 844, mobile=width < 500)
    opened(page, interp.live("count01/paper"), tmp_path)
    page.settle()
    assert page.run("document.documentElement.scrollWidth") <= width
    before = page.run("document.querySelector('.live-body').offsetHeight")
    for slider, value in enumerate((10, 14, 3)):
        set_value(page, f"#live-count-{slider}", value)
    page.run("document.querySelector('.live-planes input').click()")
    page.settle()
    assert abs(page.run("document.querySelector('.live-body').offsetHeight") - before) <= 24


def test_hostile_names_stay_text(page: Page, tmp_path: Path) -> None:
    spec = interp.ModelSpec(
        task=HostileTokens().ref, d_model=4, layers=[{"n_heads": 1, "d_head": 4}], readout_at="last", n_out=2
    )  # type: ignore[arg-type]
    report = Report(HOSTILE)
    report.add_live(payload(Subject.of(interp.build(spec)), f"model = {HOSTILE!r}"))
    opened(page, report, tmp_path)
    page.run("document.querySelectorAll('.live-head button')[0].click()")
    page.run("document.querySelector('.live-python').open = true")
    page.settle()
    assert page.run("window.hacked") is None
    assert page.run("document.querySelectorAll('.live img, .live b b, .live i i').length") == 0
    assert HOSTILE in text(page, ".live-menus")


def test_wrong_numbers_switch_the_panel_off(page: Page, tmp_path: Path) -> None:
    data = payload(Subject.of(interp.load("count01/minimal")))
    data["arch"]["layers"][0]["scale"] *= 1.01
    report = Report("wrong")
    report.add_live(data)
    page.open(report.save(tmp_path / "page.html"))
    assert page.run("document.querySelector('#live').dataset.selfTest") == "mismatch"
    assert "switched off" in text(page, "#live")


def test_a_panel_that_is_left_out_says_why(page: Page, tmp_path: Path) -> None:
    report = Report("big")
    report.add_live("Left out: the model has 9 MB of <b>weights</b>.")
    page.open(report.save(tmp_path / "page.html"))
    assert page.run("document.querySelector('#live').dataset.selfTest") == "off"
    assert "<b>weights</b>" in text(page, "#live")


def test_two_models_on_a_page_have_their_own_state(page: Page, tmp_path: Path) -> None:
    report = Report("two")
    for name in ("count01/minimal", "count01/paper"):
        report.attach(interp.live(name), prefix=name)
    opened(page, report, tmp_path, "#live=counts:1,2,3&live-2=counts:4,5,6")
    values = page.run("[...document.querySelectorAll('.live input[type=range][id*=count]')].map((s) => s.value).join()")
    assert values == "1,2,3,4,5,6"


@pytest.mark.parametrize(
    ("name", "fragment"),
    [
        ("count01/paper", "#live=counts:3,4,1;off:0.3,0.5;ratios:0.5,20"),
        ("languages/parity", "#live=tokens:2.0.1.1;off:0.0,0.mlp"),
        ("histogram/dot", "#live=tokens:1.2.4.4.2.2.4.7.7.4;off:0.0;at:3"),
    ],
)
@pytest.mark.thinned(3)
def test_copied_python_gives_what_the_page_shows(page: Page, tmp_path: Path, name: str, fragment: str) -> None:
    opened(page, interp.live(name), tmp_path, fragment)
    press(page, "Copy as Python")
    given: dict[str, object] = {"print": lambda value: given.update(printed=value)}
    exec(text(page, ".live-python code"), given)
    printed = given["printed"]
    assert isinstance(printed, torch.Tensor)
    cells = "[...document.querySelectorAll('.live-bars')[0].querySelectorAll('tbody td.number')]"
    shown = page.run(f"{cells}.map((cell) => cell.textContent)")
    numbers = [float(one.replace("−", "-")) for one in shown if one and not one.startswith(("<", ">"))]
    for value in printed.tolist()[:3]:
        assert min(abs(value - one) for one in numbers) < max(1e-3, 1e-3 * abs(value))


@pytest.mark.slow
def test_every_model_of_the_zoo_passes_its_own_test_in_the_page(page: Page, tmp_path: Path) -> None:
    tried = 0
    for name in interp.list_models()["name"]:
        try:
            report = interp.live(str(name))
        except interp.InterpError:  # checkpoints that are not shipped, constructions that need a table
            continue
        opened(page, report, tmp_path)
        assert float(page.run("document.querySelector('#live').dataset.deviation")) < 1e-4, name
        tried += 1
    assert tried > 20


@pytest.mark.slow
def test_a_click_loads_an_input_and_the_proof_domain_is_shown(page: Page, tmp_path: Path) -> None:
    report = interp.analyze("count01/paper", sections=["live", "accuracy"])
    opened(page, report, tmp_path)
    plot = "document.querySelector('figure .plot')"
    page.run("document.querySelectorAll('main details').forEach((one) => { one.open = true; })")
    page.run(f"{plot}.scrollIntoView()")
    page.wait(f"{plot}._ev !== undefined && {plot}.data !== undefined")
    page.settle()
    page.run(f"{plot}.emit('plotly_click', {{points: [{{id: 'difference:2,160', data: {{}}}}]}})")
    page.settle()
    counts = [int(page.run(f"document.querySelector('#live-count-{i}').value")) for i in range(3)]
    assert (counts[1] - counts[0], counts[2]) == (2, 160)
    for slider, value in enumerate((180, 190, 20)):
        set_value(page, f"#live-count-{slider}", value)
    assert "is among the inputs that were checked" in text(page, ".live-steady")
    set_value(page, "#live-count-0", 150)
    assert "nothing is claimed about this input" in text(page, ".live-steady")


@pytest.mark.slow
def test_a_page_is_small_enough_to_be_mailed(tmp_path: Path) -> None:
    from interp.report.live import script

    for name in ("count01/paper", "languages/parity"):
        data = payload(Subject.of(interp.load(name)))
        assert len(script([data]).encode()) < 100_000
        assert len(json.dumps(data)) < 400_000
