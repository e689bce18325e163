"""The list of mutants is up to date, and the tool that runs them tells a test that notices from one that does not."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from pathlib import Path

import mutants
import pytest


def test_there_are_a_hundred_mutants_that_still_fit_their_files() -> None:
    """More may be listed: what a change of the code has left behind is shown by `python tests/mutants.py --score`."""
    listed = mutants.read()
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in listed}) == len(listed)
    assert sum(mutant.applied() is not None for mutant in listed) >= 100
    rooms = {mutant.room for mutant in listed}
    assert {
        "architecture",
        "certificates",
        "constructions",
        "measures",
        "sweeps",
        "tasks",
        "theory",
        "training",
    } <= rooms


def test_each_mutant_is_still_python() -> None:
    for mutant in mutants.read():
        if (text := mutant.applied()) is not None:
            ast.parse(text)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of one file with two lines, of which its test looks at one."""
    root = tmp_path / "project"
    files = {
        "toy/sums.py": "def double(x):\n    return x + x\n\n\ndef triple(x):\n    return x + x + x\n",
        "tests/test_sums.py": "from toy.sums import double\n\n\ndef test_it():\n    assert double(3) == 6\n",
        "pyproject.toml": '[tool.pytest.ini_options]\nmarkers = ["slow: x"]\npythonpath = ["."]\n',
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    monkeypatch.setattr(mutants, "ROOT", root)
    return root


def test_what_a_test_looks_at_is_killed_and_the_rest_survives(tree: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    file = "toy/sums.py"
    seen = mutants.Mutant(file, "return x + x\n", "return x * x\n", mutants.mirrored(file))
    unseen = mutants.Mutant(file, "return x + x + x", "return x + x", mutants.mirrored(file), "nobody asks for it")
    gone = mutants.Mutant(file, "return y", "return z", mutants.mirrored(file))
    verdicts = iter([("passed", 0.1), ("failed", 0.1), ("passed", 0.1)])
    texts = []

    def run_tests(copy: Path, mutant: mutants.Mutant, limit: float) -> tuple[str, float]:
        assert copy != tree
        assert mutant.tests == ("tests/test_sums.py",)
        texts.append((copy / file).read_text())
        return next(verdicts)

    monkeypatch.setattr(mutants, "run_tests", run_tests)
    monkeypatch.setattr(mutants, "LIBRARIES", ())
    mutants.run([seen, unseen, gone], tmp_path / "results.jsonl", minutes=1)
    original = (tree / file).read_text()
    assert texts == [original, seen.applied(tree), unseen.applied(tree)]
    rows = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [row["verdict"] for row in rows] == ["killed", "survived"]
    mutants.run([seen, unseen, gone], tmp_path / "results.jsonl", minutes=1)  # what is known is not run again
    said = mutants.score([seen, unseen, gone], tmp_path / "results.jsonl")
    assert re.match(r"toy +1 of +2 killed +50\.0 %  \(1 without a verdict\)", said)
    assert "survived: toy/sums.py: return x + x\n    nobody asks for it" in said
    (tree / "tests/test_sums.py").write_text("def test_it():\n    pass\n")  # other tests: verdicts are gone
    assert "(3 without a verdict)" in mutants.score([seen, unseen, gone], tmp_path / "results.jsonl")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_tests_run_in_a_fork(tree: Path) -> None:
    mutant = mutants.Mutant("toy/sums.py", "", "", ("tests/test_sums.py",))
    assert mutants.run_tests(tree, mutant, 100)[0] == "passed"
    (tree / "toy/sums.py").write_text("def double(x):\n    return x\n")
    assert mutants.run_tests(tree, mutant, 100)[0] == "failed"
    (tree / "tests/test_sums.py").write_text("import time\n\n\ndef test_it():\n    time.sleep(60)\n")
    assert mutants.run_tests(tree, mutant, 1)[0] == "slow"
