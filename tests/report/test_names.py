"""Shorter names: variables and what they are taken from, never properties; the program does the same."""

import json
import shutil
import subprocess

import pytest

from interp.report.live import FILES, _joined, script
from interp.report.live.minify import join, tokens
from interp.report.live.names import _declared, _roles, shorten


def short(text: str) -> str:
    return join(shorten(list(tokens(text)))).strip()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("const first = 1; first + x.first", "const a=1;a+x.first"),
        ("const { first, second: third } = thing; first", "const{first:a,second:b}=thing;a"),
        ("const f = ({ first = 2 }) => ({ first, second: first });", "const f=({first:a=2})=>({first:a,second:a});"),
        ("(one, [two, ...three]) => `one ${one} ${ {two}.two }`", "(a,[b,...c])=>`one ${a} ${{two:b}.two}`"),
        ("function pick(list) { return list?.list ? list : none; }", "function b(a){return a?.list?a:none;}"),
        (
            "class Box { open(key) { return { key, 'key': this.key }; } }",
            "class Box{open(a){return{key:a,'key':this.key};}}",
        ),
        ("const made = el({ class: kind }); made", "const a=el({class:kind});a"),
        ("let one = 1, two = one; document.title = two", "let a=1,b=a;document.title=b"),
        ("const a = other, word = a;", "const a=other,b=a;"),
        ("undeclared(window.undeclared)", "undeclared(window.undeclared)"),
    ],
)
def test_cases(text: str, wanted: str) -> None:
    assert short(text) == wanted


BROWSER = """
document location history navigator performance Object Array Math JSON Infinity addEventListener setTimeout
requestAnimationFrame matchMedia
"""
PROGRAM = """
const table = { rows: [3, 1, 2], name: "rows", get first() { return this.rows[0]; } };
class Counter {
  constructor(start) { this.count = start; }
  add(count = 1, ...others) { this.count += count + others.length; return this; }
}
function describe({ rows, name: title, missing = "none" }, [head, ...tail]) {
  const total = rows.reduce((sum, each) => sum + each, 0);
  const text = `${title}: ${rows.map((each) => `<${each}>`).join()} ${missing}`;
  try { throw new Error(text); } catch (error) {
    return { total, text, said: error.message, head, tail: tail.length, pattern: /head/.test("head") };
  }
}
const counter = new Counter(2).add().add(2, 0, 0);
console.log(JSON.stringify([describe(table, [table.first, 4, 5]), counter.count, counter]));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node on this machine")
def test_the_program_does_the_same() -> None:
    said = [subprocess.run(["node", "-e", text], capture_output=True, text=True, check=True).stdout
            for text in (PROGRAM, short(PROGRAM))]  # fmt: skip
    assert json.loads(said[0])[0]["said"] == "rows: <3>,<1>,<2> none"
    assert said[0] == said[1]
    assert "describe" not in short(PROGRAM)


def test_a_page_with_every_kind_of_panel_stays_small() -> None:
    panels = [{"counts": {"sliders": []}}, {"lengths": [1]}, {"table": {"rows": []}}, {"generates": {"stop": 1}}]
    assert all(any(needed(panel) for panel in panels) for needed in FILES.values())
    assert len(script(panels).encode()) < 62_000


def test_names_of_the_browser_are_not_taken_for_the_panels_own() -> None:
    program = list(tokens(_joined(tuple(FILES))))
    theirs = set(BROWSER.split())
    assert theirs <= {token.text for token in program}
    assert not theirs & _declared(program, _roles(program))
