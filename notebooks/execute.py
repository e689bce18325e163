"""Runs notebooks and keeps what their cells put out, figures as SVG: python notebooks/execute.py [NAME.ipynb ...]

A page of GitHub, or of nbconvert, loads no plotly; an SVG needs none. Whole reports (megabytes) are left out: they are
made where the notebook is run. Needs the extra `static` (kaleido and a Chromium).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import nbformat
import plotly.io as pio
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
LARGEST = 100_000
"""Characters of an output that is kept."""
WIDTH, HEIGHT = 800, 420


def execute(path: Path) -> None:
    """Runs a notebook in the project's root and writes it with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}).execute()
    for cell in notebook.cells:
        cell.get("metadata", {}).pop("execution", None)
        for output in cell.get("outputs", []):
            if "data" in output:
                output["data"] = kept(output["data"])
            if "text" in output:
                output["text"] = relative(output["text"])
    nbformat.write(notebook, path)


def kept(data: dict[str, Any]) -> dict[str, Any]:
    """One output as it is shipped: a figure as SVG, anything else as it is where it is small."""
    figure = data.get("application/vnd.plotly.v1+json")
    if figure is not None:
        drawn = pio.from_json(pio.json.to_json_plotly({key: figure[key] for key in ("data", "layout")}))
        meta = drawn.layout.meta if isinstance(drawn.layout.meta, dict) else {}
        width = int(meta.get("max_width", max(WIDTH, meta.get("min_width", 0))))
        picture = pio.to_image(drawn, format="svg", width=width, height=int(drawn.layout.height or HEIGHT))
        return {"image/svg+xml": picture.decode(), "text/plain": "Figure"}
    return {
        kind: relative(value) if isinstance(value, str) else value
        for kind, value in data.items()
        if len(str(value)) <= LARGEST
    }


def relative(text: str) -> str:
    """Paths below the project's root as they are in every clone."""
    return text.replace(f"{ROOT}/", "")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path, help="by default all in notebooks/")
    for one in parser.parse_args().notebooks or sorted(Path(__file__).parent.glob("*.ipynb")):
        execute(one)
        print(f"wrote {one} ({one.stat().st_size / 1e3:.0f} kB)", file=sys.stderr)
