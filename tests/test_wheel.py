"""A wheel, built through the source distribution, works in an empty folder and carries the trained models."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_four_commands_from_an_empty_folder(tmp_path: Path) -> None:
    python = sys.executable
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    # Without --sdist or --wheel the wheel is built from the source distribution.
    run([python, "-m", "build", "--no-isolation", "--outdir", str(tmp_path / "dist"), str(ROOT)], tmp_path)
    wheel = next((tmp_path / "dist").glob("*.whl"))
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"interp", f"interp-{wheel.name.split('-')[1]}.dist-info"}
    shipped = {name.removeprefix("interp/_models/") for name in names if "/_models/" in name}
    here = {str(path.relative_to(ROOT / "models")) for kind in ("model.toml", "*.safetensors")
            for path in (ROOT / "models").glob(f"*/*/{kind}") if path.stat().st_size < 2_000_000}  # fmt: skip
    assert shipped == here | {"certificates.csv"}
    assert "count01/paper/model.toml" in shipped

    target = tmp_path / "elsewhere"
    run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(wheel)], tmp_path)
    assert {path.name for path in target.iterdir() if path.is_dir()} - {"bin"} == {
        "interp", f"interp-{wheel.name.split('-')[1]}.dist-info"
    }  # fmt: skip
    empty = tmp_path / "empty"
    empty.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "INTERP_MODELS"}
    environment |= {"PYTHONPATH": str(target), "NO_COLOR": "1", "COLUMNS": "200"}
    where = run([python, "-c", "import interp; print(interp.__file__)"], empty, environment)
    assert where.startswith(str(target))
    command = [python, "-m", "interp.cli"]
    assert "count01/paper" in run([*command, "models"], empty, environment)
    assert "histogram" in run([*command, "tasks"], empty, environment)
    assert "certified" in run([*command, "certify", "count01/minimal"], empty, environment).lower()
    (empty / "models").mkdir()  # another project's
    (empty / "models" / "net.pt").write_bytes(b"")
    run([*command, "analyze", "count01/paper", "--out", "report.html"], empty, environment)
    assert (empty / "report.html").stat().st_size > 100_000
    loaded = "import interp; print(interp.load('histogram/dot/seed-1').spec.id)"
    assert run([python, "-c", loaded], empty, environment).startswith("histogram-")
