"""The tests themselves: each file mirrors a module or says what it covers, and none is softer than it reads."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "tests").rglob("test_*.py"))


def mirrors(file: Path) -> bool:
    """tests/theory/test_kl.py mirrors interp/theory/kl.py; tests/test_gallery.py interp/gallery.py or a package."""
    module = ROOT / "interp" / file.relative_to(ROOT / "tests").parent / file.stem.removeprefix("test_")
    return module.with_suffix(".py").is_file() or module.is_dir()


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT / "tests")))
def test_a_file_mirrors_a_module_or_names_what_it_covers(file: Path) -> None:
    first = file.read_text("utf-8").splitlines()[0]
    assert mirrors(file) or (first.startswith('"""') and len(first) > 30)


def test_absolute_tolerances_are_absolute() -> None:
    """numpy adds a relative 1e-7 to an atol that is given alone: closeness.close does not."""
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "assert_allclose":
                named = {keyword.arg for keyword in node.keywords}
                soft = "atol" in named and "rtol" not in named and file.stem != "test_closeness"
                assert not soft, f"{file.relative_to(ROOT)}:{node.lineno}: use close, or say rtol too"


def test_no_verdict_depends_on_how_fast_the_machine_is() -> None:
    """Durations are measured in analyses/benchmarks; a deadline that only ends what hangs is named `end`."""
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Assert):
                text = ast.unparse(node)
                clock = any(word in text for word in (".seconds <", "perf_counter()", "process_time()", "time.time()"))
                assert not clock, f"{file.relative_to(ROOT)}:{node.lineno}: {text}"


def paths_in_the_makefile() -> list[str]:
    """What `make` hands to pytest, with $(addprefix PREFIX,names) written out."""
    text = (ROOT / "Makefile").read_text("utf-8").replace("\\\n", " ")
    for prefix, names in re.findall(r"\$\(addprefix (\S+),([^)]*)\)", text):
        text += " " + " ".join(prefix + name for name in names.split())
    text = re.sub(r"\$\(addprefix [^)]*\)", " ", text)
    return sorted(set(re.findall(r"\btests/[\w/]+(?:\.py)?", text)))


@pytest.mark.parametrize("path", paths_in_the_makefile())
def test_the_makefile_runs_files_that_exist(path: str) -> None:
    """pytest with a missing file runs none of the others."""
    assert (ROOT / path).exists()


def test_no_rank_hangs_on_what_lapack_raises() -> None:
    """Ranks have a tolerance of ours: whether a singular matrix is noticed depends on how a CPU rounds."""
    for path in (ROOT / "interp").rglob("*.py"):
        if "linalg" not in (text := path.read_text("utf-8")):
            continue
        assert "LinAlgError" not in text
        for call in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)):
            if ast.unparse(call.func) in ("np.linalg.matrix_rank", "np.linalg.pinv"):
                tolerance = {"tol", "rtol", "rcond"} & {one.arg for one in call.keywords}
                assert len(call.args) > 1 or tolerance, ast.unparse(call)
