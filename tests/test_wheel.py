"""A wheel, built through the source distribution, works in an empty folder and carries the trained models."""

import os
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    # Without --sdist or --wheel the wheel is built from the source distribution.
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)], folder)
    return next(folder.glob("*.whl"))


def outside() -> dict[str, str]:
    """An environment that knows nothing of this clone."""
    environment = {name: value for name, value in os.environ.items() if name not in ("INTERP_MODELS", "PYTHONPATH")}
    return environment | {"NO_COLOR": "1", "COLUMNS": "200"}


@pytest.mark.slow
def test_a_fresh_environment_with_only_the_wheel_s_requirements(wheel: Path, tmp_path: Path) -> None:
    """No extras, and the newest TransformerLens that the wheel allows. Two minutes and 1.8 GB, for a while."""
    run([sys.executable, "-m", "venv", str(tmp_path / "venv")], tmp_path)
    python = str(tmp_path / "venv" / "bin" / "python")
    # The build of torch that is here: another may be many times larger. Nobody needs all of it compiled.
    install = [python, "-m", "pip", "install", "--quiet", "--no-compile", f"torch=={version('torch')}", str(wheel)]
    done = subprocess.run(install, env=outside(), cwd=tmp_path, capture_output=True, text=True)
    if done.returncode and any(
        word in done.stderr for word in ("No matching distribution", "connection", "Connection")
    ):
        pytest.skip(f"pip finds no packages here: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    installed = {line.split("==")[0].lower() for line in run([python, "-m", "pip", "freeze"], tmp_path).split()}
    assert not installed & {"numba", "kaleido", "dask", "pytest", "mkdocs"}
    empty = tmp_path / "empty"
    empty.mkdir()
    command = [str(tmp_path / "venv" / "bin" / "interp")]
    assert "count01/paper" in run([*command, "models"], empty, outside())
    assert "certified on 502,500 inputs" in run([*command, "certify", "count01/minimal"], empty, outside())
    run([*command, "analyze", "count01/paper", "--out", "report.html"], empty, outside())
    assert (empty / "report.html").stat().st_size > 100_000
    code = (
        "m = interp.load('count01/paper'); b = m.task.sample(20, 'train'); print(m.predict(b.tokens).equal(b.labels))"
    )
    assert run([python, "-c", f"import interp; {code}"], empty, outside()).strip() == "True"


@pytest.mark.slow
def test_four_commands_from_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    python = sys.executable
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
    environment = outside() | {"PYTHONPATH": str(target)}
    where = run([python, "-c", "import interp; print(interp.__file__)"], empty, environment)
    assert where.startswith(str(target))
    command = [python, "-m", "interp"]
    assert "count01/paper" in run([*command, "models"], empty, environment)
    assert "histogram" in run([*command, "tasks"], empty, environment)
    assert "certified" in run([*command, "certify", "count01/minimal"], empty, environment).lower()
    (empty / "models").mkdir()  # another project's
    (empty / "models" / "net.pt").write_bytes(b"")
    run([*command, "analyze", "count01/paper", "--out", "report.html"], empty, environment)
    assert (empty / "report.html").stat().st_size > 100_000
    loaded = "import interp; print(interp.load('histogram/dot/seed-1').spec.id)"
    assert run([python, "-c", loaded], empty, environment).startswith("histogram-")
