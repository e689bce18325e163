"""Random mutants: the same for the same seed, each still Python, and told apart by whether a test looks at them."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import mutants
import pytest


def test_a_sample_is_seeded_and_every_mutant_is_another_program() -> None:
    found = mutants.sample(mutants.ROOT, 40, 3, ["theory"])
    assert found == mutants.sample(mutants.ROOT, 40, 3, ["theory"])
    assert found != mutants.sample(mutants.ROOT, 40, 4, ["theory"])
    assert len(set(found)) == 40
    for mutant in found:
        text = mutant.applied(mutants.ROOT)
        assert ast.dump(ast.parse(text)) != ast.dump(ast.parse((mutants.ROOT / mutant.file).read_text("utf-8")))
        assert (mutants.ROOT / mutant.tests[0]).is_file()


def test_files_of_a_package_have_its_tests() -> None:
    file = "interp/certificates/check/counts.py"
    own, *others = mutants.mirrored(mutants.ROOT, file)
    assert own == str(Path("tests/certificates/test_check.py"))
    assert set(others) == set(mutants.ALSO["interp/certificates/check/"])


def test_what_is_named_beside_exists() -> None:
    for start, names in mutants.ALSO.items():
        assert any(
            str(path.relative_to(mutants.ROOT)).startswith(start) for path in mutants.ROOT.glob("interp/**/*.py")
        )
        assert all((mutants.ROOT / name).is_file() for name in names)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of one file with two functions, of which its test looks at one."""
    root = tmp_path / "project"
    files = {
        "toy/sums.py": "def double(x: int = 0):\n    return x + x\n\n\ndef triple(x):\n    return x + x + x\n",
        "tests/test_sums.py": "from toy.sums import double\n\n\ndef test_it():\n    assert double(3) == 6\n",
        "pyproject.toml": '[tool.pytest.ini_options]\nmarkers = ["slow: x", "soak: x"]\npythonpath = ["."]\n',
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    monkeypatch.setattr(mutants, "ROOT", root)
    monkeypatch.setattr(mutants, "PACKAGE", "toy")
    return root


def test_what_a_test_looks_at_is_killed_and_the_rest_survives(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every = sorted(mutants.sample(tree, 99, 0), key=lambda m: (m.line, m.start, m.end))
    assert [(m.line, m.new) for m in every] == [(1, "(1)"), (2, "(x - x)"), (6, "(x - x)"), (6, "(x + x - x)")]

    def run_tests(copy: Path, mutant: mutants.Mutant, limit: float) -> tuple[str, float]:
        scope: dict[str, object] = {}
        exec((copy / mutant.file).read_text(), scope)
        return ("passed" if scope["double"](3) == 6 else "failed"), 0.1  # type: ignore[operator]

    monkeypatch.setattr(mutants, "run_tests", run_tests)
    monkeypatch.setattr(mutants, "LIBRARIES", ())
    before = (tree / "toy/sums.py").read_text()
    said = mutants.score(mutants.run(every, minutes=1))
    assert "all               1 of    4 killed, 95% interval 0.046 to 0.699" in said
    assert said.count("survived: toy/sums.py") == 3
    assert (tree / "toy/sums.py").read_text() == before


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_tests_run_in_a_fork(tree: Path) -> None:
    mutant = mutants.sample(tree, 1, 0)[0]
    assert mutants.run_tests(tree, mutant, 100)[0] == "passed"
    (tree / "toy/sums.py").write_text("def double(x):\n    return x\n")
    assert mutants.run_tests(tree, mutant, 100)[0] == "failed"
    (tree / "tests/test_sums.py").write_text("import time\n\n\ndef test_it():\n    time.sleep(60)\n")
    assert mutants.run_tests(tree, mutant, 1)[0] == "slow"
