"""What the README says is done here: its Python runs, its commands and targets exist, its links lead somewhere."""

import re
import shlex
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from typer.testing import CliRunner

from interp.certificates.certificate import registered_methods
from interp.certificates.certify import options_of
from interp.cli import app

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*HookedTransformer is deprecated.*:DeprecationWarning")
def test_its_python_prints_what_it_says(monkeypatch, tmp_path, capsys) -> None:
    """What stands behind each print is the beginning of what it prints, and the last line writes the report."""
    monkeypatch.chdir(tmp_path)
    (block,) = blocks("python")
    names: dict[str, object] = {}
    for line in block.splitlines():
        exec(compile(line, "README.md", "exec"), names)
        printed = capsys.readouterr().out
        if line.startswith("print("):
            said = line.split("  # ", 1)[1].removesuffix(", proved on all 502,500 counts of tokens")
            assert printed.startswith(said), line
    assert block.count("print(") == 4
    assert names["interp"].certify(names["model"]).n_inputs == 502_500
    assert (tmp_path / "report.html").stat().st_size > 100_000


@pytest.mark.slow
def test_its_python_in_a_cell_shows_the_report(tmp_path) -> None:
    (block,) = blocks("python")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(f"import os; os.chdir({str(tmp_path)!r})")])
    notebook.cells.append(nbformat.v4.new_code_cell(block))
    NotebookClient(notebook, timeout=900, kernel_name="python3", extra_arguments=["--log-level=ERROR"]).execute()
    shown = notebook.cells[1].outputs
    assert any("<iframe" in output.get("data", {}).get("text/html", "") for output in shown)
    assert any("wrote report.html" in output.get("data", {}).get("text/plain", "") for output in shown)


def test_it_opens_with_what_it_is_a_picture_and_code() -> None:
    """A sentence, the picture, eight lines of Python with what they print; benchmarks come last."""
    assert len(TEXT.splitlines()) <= 75
    order = ["**interp takes", "![", "```python", "**Why:**", "analyses/benchmarks"]
    places = [TEXT.index(mark) for mark in order]
    assert places == sorted(places)
    assert places[2] < 1_600


def test_its_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"\bmake ([a-z][a-z0-9-]+)", TEXT))
    assert {"report", "test", "test-long", "test-fast", "check", "docs"} <= targets
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_the_commands_by_hand_are_those_of_make() -> None:
    makefile = (ROOT / "Makefile").read_text().replace("$(BIN)", ".venv/bin").replace(" --quiet", "")
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    by_hand = next(block for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) if "-m venv .venv" in block)
    for line in by_hand.splitlines()[1:]:
        assert line in makefile, line


def test_its_benchmarks_exist() -> None:
    named = re.findall(r"`(?:python )?(analyses/benchmarks/[a-z0-9_]+\.py)", TEXT)
    assert len(named) >= 3
    assert all((ROOT / path).is_file() for path in named)


def test_its_commands_are_ones_that_the_command_line_knows() -> None:
    for line in "".join(blocks("sh")).splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["interp"]:
            shown = CliRunner().invoke(app, [words[1], "--help"])
            assert shown.exit_code == 0, line
            for option in [word for word in words[2:] if word.startswith("--")]:
                known = [f"--{name}" for method in registered_methods().values() for name in options_of(method)]
                assert option in shown.output or option in known, f"{option} in {line}"
        if words[:1] == ["python"]:
            assert (ROOT / words[1]).is_file(), line


def test_its_links_and_pictures_exist() -> None:
    links = re.findall(r"\]\(([^)]+)\)", TEXT)
    assert len(links) >= 2
    assert all((ROOT / link).exists() for link in links if not link.startswith("http"))
