"""JavaScript in fewer characters: the same tokens, lines that must end still end, strings are left alone."""

import shutil
import subprocess
from importlib.resources import files

import pytest

from interp.report.live import FILES, script
from interp.report.live.minify import minify


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("const  a = 1; // why\n\nlet b = a + +a - -b;", "const a=1;let b=a+ +a- -b;"),
        ("return\nx", "return\nx"),
        ("a\n(b)", "a\n(b)"),
        ("a\n++b", "a\n++b"),
        ("x = {\n  a,\n  b,\n}\ny", "x={a,b,}\ny"),
        ('s = "a  // b" + \'c  "d"\'', 's="a  // b"+\'c  "d"\''),
        ("t = `a  ${ f({ b: `c  ${d}` }) }  // e` + 1", "t=`a  ${f({b:`c  ${d}`})}  // e`+1"),
        ('t.replace(/[/ ]  \\/ "/g, x) / 2 / y', 't.replace(/[/ ]  \\/ "/g,x)/2/y'),
        ("if (a) b\nelse c", "if(a)b\nelse c"),
        ("a /* b\n c */ = 1", "a=1"),
        ("a / /b/.length", "a/ /b/.length"),
    ],
)
def test_cases(text: str, wanted: str) -> None:
    assert minify(text) == wanted + "\n"


def test_a_template_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match="no end"):
        minify("a = `b")


def test_nothing_but_space_and_comments_is_lost() -> None:
    folder = files("interp.report.live")
    for name in FILES:
        text = (folder / f"{name}.js").read_text("utf-8")
        said = ("//", " // ", "/*")
        lines = [line for line in text.splitlines() if not any(sign in line for sign in said)]
        small = "".join(minify(text).split())
        missing = [line for line in lines if "".join(line.split()) not in small]
        assert not missing, (name, missing)


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node: the syntax is not checked")
def test_every_choice_of_files_is_a_program() -> None:
    panels = [{"counts": {}}, {"counts": None, "lengths": True, "table": {}}]
    for chosen in (panels[:1], panels[1:], panels):
        checked = subprocess.run(["node", "--check", "-"], input=script(chosen), text=True, capture_output=True)
        assert checked.returncode == 0, checked.stderr
