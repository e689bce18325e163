"""Notebooks run from the first cell to the last; with a picture they are shipped executed, else without output."""

import base64
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def pictures(path: Path) -> list[str]:
    """The pictures that a notebook is shipped with, one an output."""
    outputs = [output for cell in nbformat.read(path, as_version=4).cells for output in cell.get("outputs", [])]
    return [output["data"]["image/svg+xml"] for output in outputs if "image/svg+xml" in output.get("data", {})]


SHIPPED = [path for path in NOTEBOOKS if pictures(path)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_output_is_shipped_with_a_picture_or_not_at_all(path: Path) -> None:
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    if path in SHIPPED:
        assert all(cell.get("execution_count") == number for number, cell in enumerate(cells, 1))
        figure = re.compile(r"^(report\.)?figures[.\[]|\.plot\([^)]*\)$", re.MULTILINE)
        drawing = [cell for cell in cells if figure.search(cell.source)]
        assert len(pictures(path)) == len(drawing)
        assert path.stat().st_size < 400_000
        errors = [output for cell in cells for output in cell.outputs if output.output_type == "error"]
        assert not errors
    else:
        assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in cells)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
@pytest.mark.thinned(4)
def test_nbconvert_shows_the_pictures(path: Path) -> None:
    from nbconvert import HTMLExporter

    page = HTMLExporter().from_filename(str(path))[0]
    shown = re.findall(r'<img[^>]* src="data:image/svg\+xml;base64,([^"]+)"', page)
    assert [base64.b64decode(one).decode() for one in shown] == pictures(path)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_no_output_names_a_folder_of_the_machine_that_ran_it(path: Path) -> None:
    outputs = [cell.get("outputs", []) for cell in nbformat.read(path, as_version=4).cells]
    assert not re.findall(r"(?<![\w.:/<])/(?:home|root|tmp|work|Users|mnt|opt)/[\w./-]+", str(outputs))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=3600, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}).execute()
    assert any(cell.get("outputs") for cell in notebook.cells)


@pytest.mark.slow
def test_a_page_of_nbconvert_shows_figures_as_the_docs_say(tmp_path: Path) -> None:
    said = (ROOT / "docs" / "from_transformerlens.md").read_text("utf-8")
    command = re.search(r"`PLOTLY_RENDERER=(\w+) jupyter nbconvert ([^`]*) notebook.ipynb`", said)
    assert command is not None
    code = "import interp\nmodel = interp.load('algorithmic/max-of-k')\n"
    code += "interp.attention_patterns(model, '3 1 4 1 =').plot()"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)]), tmp_path / "one.ipynb")
    subprocess.run(
        [sys.executable, "-m", "nbconvert", *command[2].split(), "one.ipynb"],
        check=True, cwd=tmp_path, env={**os.environ, "PLOTLY_RENDERER": command[1], "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    page = (tmp_path / "one.html").read_text()
    assert "plotly-graph-div" in page
    assert "Plotly.newPlot" in page
