"""Every study in analyses/ runs, from another folder, and says what it found.

Studies run in the test's own process, as their file would from a shell; two runs in a process of their own see to the
command line, exit codes and standard error.
"""

import ast
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from study_numbers import FOUND, SAID

ROOT = Path(__file__).resolve().parent.parent
STUDIES = sorted((ROOT / "analyses").glob("*.py"))
BENCHMARKS = sorted((ROOT / "analyses" / "benchmarks").glob("*.py"))
SCRIPTS = [*STUDIES, *BENCHMARKS]
LITTLE = {
    "certificates": "--quick --rounds 1 --adders",
    "files_run": "--call interp.load('count01/paper')",
    "scaling": "--smoke",
    "patching": "--smoke",
    "subsets": "--smoke",
    "trace_load": "",
    "train_count01": "--quick",
    "train_histogram": "--models lin --rounds 1 --no-engines",
    "train_vmap": "--rounds 1 --seeds 2 --batch 8",
}
"""Arguments with which a benchmark has little to do."""


def run_here(path: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python PATH --out OUT --smoke`, without a new process."""
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(path.parent))
    monkeypatch.setattr(sys, "argv", [str(path), "--out", str(out), "--smoke"])
    code: object = None
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as end:
        code = end.code
    assert not code, code


@pytest.mark.slow
@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("default")
def test_smoke(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run_here(path, tmp_path / "out", monkeypatch)
    verdict = capsys.readouterr().out.strip()
    assert re.search(SAID.get(path.stem, r"\d"), verdict, re.DOTALL), verdict
    tables = {file.stem: pd.read_csv(file) for file in (tmp_path / "out").glob("*.csv")}
    assert tables
    if path.stem in FOUND:
        FOUND[path.stem](tables)
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000


def test_a_number_of_every_study_is_known() -> None:
    assert sorted([*SAID, *FOUND]) == [path.stem for path in STUDIES]


@pytest.mark.slow
def test_a_study_runs_from_a_shell(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "analyses" / "head_metrics.py"), "--out", str(tmp_path / "out"), "--smoke"],
        cwd=ROOT, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.strip()) > 20, "no verdict"


@pytest.mark.slow
def test_bad_input_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(STUDIES[0]), "count01/nothing", "--out", str(tmp_path / "out"), "--smoke"],
        cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "count01/nothing" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_a_benchmark_runs(path: Path, tmp_path: Path) -> None:
    """In a process of its own: some keep to one core."""
    out = ["--out", str(tmp_path / "out")] if path.stem == "scaling" else []
    done = subprocess.run(
        [sys.executable, str(path), *LITTLE[path.stem].split(), *out],
        cwd=ROOT, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(r"\d", done.stdout)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_no_study_imports_another_or_shadows_a_module(path: Path) -> None:
    names = {script.stem for script in SCRIPTS}
    tree = ast.parse(path.read_text("utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not imported & names
    assert not any(part.startswith("_") for name in imported if name.startswith("interp") for part in name.split("."))
    assert path.stem not in sys.stdlib_module_names
