"""The package as its users get it: what importing costs, what the wheel holds, that imports point downwards."""

import re
import subprocess
import sys
import tomllib
import zipfile
from dataclasses import is_dataclass
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

import interp

ROOT = Path(__file__).resolve().parent.parent


def loaded_by(code: str) -> set[str]:
    """Top-level modules in a fresh interpreter after running code."""
    script = f"import sys; {code}; print(' '.join({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


HEAVY = {"torch", "transformer_lens", "pandas", "plotly", "sklearn", "numba", "wandb", "scipy"}


def test_importing_interp_loads_nothing_heavy() -> None:
    assert not loaded_by("import interp") & HEAVY
    assert not loaded_by("import interp; interp.ModelSpec") & (HEAVY | {"numpy"})
    assert not loaded_by("import interp.cli") & HEAVY


@pytest.mark.slow
def test_that_check_can_fail() -> None:
    assert "torch" in loaded_by("import interp; interp.Task")


@pytest.mark.slow
def test_a_plug_in_may_be_what_is_imported_first() -> None:
    assert "torch" in loaded_by("import interp; interp.compile")


@pytest.mark.slow
def test_training_in_count_space_needs_no_transformer_lens() -> None:
    code = "import interp.families.count01.training, interp.models.architecture.checkpoint"
    assert "transformer_lens" not in loaded_by(code)


def test_public_names_are_these_and_all_load() -> None:
    named = set(re.findall(r"\w+", interp.__doc__.split("Load and build")[1].split("docs/")[0]))
    assert set(interp.__all__) <= named  # help(interp) leads to all of them
    assert dir(interp) == interp.__all__
    assert len(interp.__all__) <= 44
    assert interp.TaskModel.__name__ == "TaskModel"
    for public in interp.__all__:
        assert getattr(interp, public).__doc__, f"{public} has no docstring"
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        _ = interp.lod


def test_public_records_cannot_be_changed() -> None:
    public = {name: getattr(interp, name) for name in (*interp.__all__, *interp._RETURNED)}
    frozen = {name: one.__dataclass_params__.frozen for name, one in public.items() if is_dataclass(one)}
    assert {"Batch", "Certificate", "Explanation", "Hypothesis"} <= frozen.keys()
    assert all(frozen.values()), frozen


@pytest.mark.slow
def test_the_wheel_holds_interp_alone_with_its_data(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(ROOT)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"interp"}
    data = {
        str(p.relative_to(ROOT)) for p in (ROOT / "interp").rglob("*") if p.is_file() and "__pycache__" not in p.parts
    }
    assert data <= set(names)
    assert "interp/py.typed" in names


def test_models_and_analyses_are_no_packages() -> None:
    assert not list((ROOT / "models").rglob("__init__.py"))
    assert not list((ROOT / "analyses").rglob("__init__.py"))


def test_only_one_module_imports_transformer_lens() -> None:
    texts = {path.relative_to(ROOT): path.read_text("utf-8") for path in (ROOT / "interp").rglob("*.py")}
    imports = ("import transformer_lens", "from transformer_lens")
    found = {path.parts[1:3] for path, text in texts.items() if any(line in text for line in imports)}
    assert found == {("models", "lens")}


def test_each_declared_dependency_is_imported() -> None:
    """One that nothing imports would be installed for nothing."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    names = {re.split(r"[<>=;\s]", one)[0].replace("-", "_").replace("scikit_learn", "sklearn") for one in declared}
    code = "\n".join(path.read_text("utf-8") for path in (ROOT / "interp").rglob("*.py"))
    imported = set(re.findall(r"^\s*(?:import|from) (\w+)", code, re.MULTILINE))
    assert names - imported == set()
    assert {"einops", "mpmath"} <= names


def test_no_files_import_each_other_in_a_circle() -> None:
    graph = grimp.build_graph("interp", cache_dir=None)
    TopologicalSorter({name: graph.find_modules_directly_imported_by(name) for name in graph.modules}).prepare()


def test_versions_are_pinned_as_documented() -> None:
    pins = (ROOT / "constraints.txt").read_text()
    assert "torch==2.13.0\n" in pins
    assert "transformer-lens==3.9.0\n" in pins
    assert "://" not in pins
