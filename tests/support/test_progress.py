"""Bars of long work: in a notebook (a kernel without ipywidgets), on a terminal, and in a script."""

import os
import pty
import subprocess
import sys

import nbformat
import pytest
from nbclient import NotebookClient

from interp.support.progress import LateBar

PATIENT = "from interp.support.progress import LateBar\nLateBar.PATIENCE = -1\nLateBar.PAUSE = 0\n"


def outputs(*cells: str) -> list[list[str]]:
    """Run cells in a kernel; return the plain text of each cell's outputs."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=300, kernel_name="python3", extra_arguments=["--log-level=ERROR"]).execute()
    return [
        [one.get("text") or one.get("data", {}).get("text/plain", "") for one in cell.outputs]
        for cell in notebook.cells
    ]


LOOP = "with LateBar('outer') as bar:\n    for i in range(3):\n        bar.update(i, 3, 'more')\n"


@pytest.mark.slow
def test_a_notebook_keeps_the_last_state_of_a_bar() -> None:
    nested = f"{LOOP}        with LateBar('inner') as one:\n            one.step()\n"
    failing = "with LateBar('search') as bar:\n    bar.step('x')\n    raise ValueError"
    said = outputs(
        "import sys\n" + PATIENT,
        LOOP,
        nested,
        f"try:\n    {failing.replace(chr(10), chr(10) + '    ')}\nexcept ValueError: pass",
    )
    assert said[1:] == [[f"outer {'━' * 24} 3/3 done"], [f"outer {'━' * 24} 3/3 done"], ["search: 1 steps stopped"]]


def test_work_inside_other_work_shows_in_its_line(capsys, monkeypatch) -> None:
    shown = []
    monkeypatch.setattr(LateBar, "_show", lambda self, *state: shown.append((self.title, *state)))
    with LateBar("report") as bar:
        bar.update(1, 9, "Heads")
        with LateBar("probe") as inner:
            inner.update(2, 4, "rank")
            inner.step()
    with LateBar("probe") as alone:
        alone.step("rank")
    assert shown == [
        ("report", 1, 9, "Heads"), ("report", 1, 9, "Heads · probe 2/4"), ("report", 1, 9, "Heads · probe 3"),
        ("probe", 1, None, "rank"),
    ]  # fmt: skip


@pytest.mark.parametrize(("every", "said"), [(None, []), (0, [0, 4, 10, 11, 12]), (10, [0, 10, 12])])
def test_a_script_has_a_line_every_so_often(every: int | None, said: list[int], capsys, monkeypatch) -> None:
    clock = iter((0.0, 0.0, 4.0, 10.0, 11.0, 12.0))
    monkeypatch.setattr(LateBar, "_show", lambda *state: None)
    monkeypatch.setattr("interp.support.progress.time.monotonic", lambda: next(clock))
    bar = LateBar("x", lines=every)
    for now in (0, 4, 10, 11, 12):
        bar.update(now, 12, str(now))
    assert capsys.readouterr().err.splitlines() == [f"x: {now}" for now in said]


@pytest.mark.parametrize(("done", "total", "filled"), [(12, 24, 12), (1, 25, 0), (24, 24, 24), (30, 24, 24), (0, 0, 0)])
def test_a_bar_is_filled_by_its_share(done: int, total: int, filled: int) -> None:
    assert LateBar("x")._text(done, total, "").split()[1] == "━" * filled + "┄" * (24 - filled)


SCRIPT = f"{PATIENT}{LOOP}from interp.support.progress import tell\ntell('wrote x')"


def test_a_terminal_shows_a_bar_that_goes_away() -> None:
    ours, theirs = pty.openpty()
    run = subprocess.Popen([sys.executable, "-c", SCRIPT], stderr=theirs, env={**os.environ, "TERM": "xterm"})
    run.wait(timeout=120)
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 4096):
            said += part
    except OSError:  # the other end is closed
        pass
    assert b"outer" in said
    assert b"wrote x" in said


def test_a_script_without_a_terminal_has_no_bar() -> None:
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert (run.stdout, run.stderr) == ("", "wrote x\n")


CALLS = {
    "find_circuit": "interp.find_circuit(interp.load('languages/parity'), edges=True)",
    "path_patching": "interp.path_patching(interp.load('languages/parity'))",
    "probe": "interp.probe(interp.load('algorithmic/max-of-k'))",
    "explain": "interp.explain(interp.build('algorithmic/max-of-k-exact', K=3, v=8))",
    "certify": "interp.certify('algorithmic/modular-addition')",
    "report": "interp.analyze('count01/minimal', sections=['question', 'accuracy'], out=OUT)",
}


@pytest.mark.slow
def test_every_long_call_shows_a_bar_in_a_notebook(tmp_path) -> None:
    said = outputs(f"import interp\nOUT = {str(tmp_path / 'report.html')!r}\n{PATIENT}", *CALLS.values())
    for name, cell in zip(CALLS, said[1:]):
        assert any(line.startswith(name) and line.endswith(" done") for line in cell), (name, cell)
    assert f"wrote {tmp_path / 'report.html'}" in said[-1]
    assert (tmp_path / "report.html").is_file()
