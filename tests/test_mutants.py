"""Random mutants: the same for the same seed, each still Python, and told apart by whether a test looks at them."""

import ast
import subprocess
from pathlib import Path

import mutants
import pytest


@pytest.mark.slow
def test_a_sample_is_seeded_and_every_mutant_is_another_program() -> None:
    found = mutants.sample(mutants.ROOT, 40, 3, ["training"])
    assert found == mutants.sample(mutants.ROOT, 40, 3, ["training"])
    assert found != mutants.sample(mutants.ROOT, 40, 4, ["training"])
    assert len(set(found)) == 40
    for mutant in found:
        text = mutant.applied(mutants.ROOT)
        assert ast.dump(ast.parse(text)) != ast.dump(ast.parse((mutants.ROOT / mutant.file).read_text("utf-8")))
        assert mutants.candidates(mutants.ROOT, mutant.file)


def test_tests_of_the_room_and_of_importers_are_asked() -> None:
    found = mutants.candidates(mutants.ROOT, "interp/certificates/check/counts.py")
    assert "tests/certificates/test_check.py" in found
    found = mutants.candidates(mutants.ROOT, "interp/families/histogram/theory/frames.py")
    assert "tests/families/histogram/certificates/test_walk.py" in found
    assert "tests/families/count01/test_tasks.py" not in found
    found = mutants.candidates(mutants.ROOT, "interp/errors.py")
    assert "tests/test_package.py" in found
    assert "tests/certificates/test_places.py" in found  # it imports the module from another room
    found = mutants.candidates(mutants.ROOT, "interp/families/languages/tasks/brackets.py")
    assert "tests/families/algorithmic/tasks/test_numbers.py" in found  # it imports the class from the family


@pytest.mark.parametrize("text", [
    "import interp.toy.double", "from interp.toy import double", "from interp.toy import (\n    half,\n    double,\n)",
])  # fmt: skip
def test_however_a_test_imports_a_module_it_is_asked(text: str, tmp_path: Path) -> None:
    other = "from interp.toy import half\nfrom interp.other import double"
    files = {"interp/toy/double.py": "", "tests/test_a.py": text, "tests/test_b.py": other}
    files |= {"interp/more/user.py": "from interp.toy.double import it", "tests/more/test_user.py": ""}
    for name, said in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(said)
    assert mutants.candidates(tmp_path, "interp/toy/double.py") == ("tests/more/test_user.py", "tests/test_a.py")


def test_compiled_functions_are_asked_of_their_familys_tests() -> None:
    mutant = mutants.Mutant("interp/families/histogram/compiled/arrays.py", 12, 0, 1, "a", "b", 10)
    called, own = frozenset({"interp/training/train.py:3"}), "tests/families/histogram"
    names = (f"{own}/compiled/test_x.py::it", f"{own}/test_y.py::it", "tests/measures/test_z.py::it")
    tests = [mutants.Test(name, 1.0, called) for name in names]
    assert mutants.chosen(mutant, tests) == tests[:2]
    assert not mutants.chosen(mutants.Mutant("interp/training/train.py", 12, 0, 1, "a", "b", 10), tests)


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
    assert [(m.line, m.new, m.function) for m in every] == [
        (1, "(1)", 1), (2, "(x - x)", 1), (6, "(x - x)", 5), (6, "(x + x - x)", 5),
    ]  # fmt: skip

    def run_tests(copy: Path, tests: list[str], limit: float, checked: str) -> tuple[str, float]:
        assert (tests, checked) == (["test_it"], "toy.sums")
        scope: dict[str, object] = {}
        exec((copy / "toy/sums.py").read_text(), scope)
        return ("passed" if scope["double"](3) == 6 else "failed"), 0.1  # type: ignore[operator]

    seen = mutants.Test("test_it", 0.1, frozenset({"toy/sums.py:1"}))
    monkeypatch.setattr(mutants, "run_tests", run_tests)
    monkeypatch.setattr(mutants, "tests_of", lambda tree, file: [seen])
    monkeypatch.setattr(mutants, "LIBRARIES", ())
    before = (tree / "toy/sums.py").read_text()
    said = mutants.score(mutants.run(every, minutes=1))
    assert "all               1 of    4 killed, 95% interval 0.046 to 0.699" in said
    assert said.count("survived: toy/sums.py") == 1  # the default value
    assert said.count("not called: toy/sums.py") == 2
    assert (tree / "toy/sums.py").read_text() == before


def test_golden_outputs_are_asked_last(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / mutants.GOLDEN).write_text("")
    calls = frozenset({"toy/sums.py:1"})
    monkeypatch.setattr(mutants, "tests_of", lambda tree, file: [mutants.Test(file, 20.0, calls)])
    first = next(mutants.mutants_of(tree, "toy/sums.py"))
    asked = [[one.name for one in tests] for tests in mutants.turns(first, tree, {})]
    assert asked == [["tests/test_sums.py"], [mutants.GOLDEN]]


def test_a_test_that_fails_without_the_mutant_kills_none(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are asked without it."""

    def run_tests(copy: Path, tests: list[str], limit: float, checked: str) -> tuple[str, float]:
        scope: dict[str, object] = {}
        exec((copy / "toy/sums.py").read_text(), scope)
        wrong = {"test_always": True, "test_it": scope["double"](3) != 6}  # type: ignore[operator]
        failed = [name for name in tests if wrong[name]]
        (copy / mutants.FAILED).write_text("".join(failed[:1]))
        return "failed" if failed else "passed", 0.1

    seen = [mutants.Test(name, 0.1, frozenset({"toy/sums.py:1"})) for name in ("test_always", "test_it")]
    monkeypatch.setattr(mutants, "run_tests", run_tests)
    monkeypatch.setattr(mutants, "tests_of", lambda tree, file: seen)
    monkeypatch.setattr(mutants, "LIBRARIES", ())
    verdicts = mutants.run(mutants.sample(tree, 99, 0), minutes=1)
    assert {mutant.line: said for mutant, said in verdicts if mutant.function == 1} == {1: "survived", 2: "killed"}


def test_a_stopped_run_goes_on(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[mutants.Mutant]()

    def judged(mutant: mutants.Mutant, *rest: object) -> tuple[str, float, int]:
        asked.append(mutant)
        return ("killed" if mutant.function == 1 else "survived"), 0.1, 1

    monkeypatch.setattr(mutants, "judged", judged)
    monkeypatch.setattr(mutants, "LIBRARIES", ())
    every, log = list(mutants.mutants_of(tree, "toy/sums.py")), tree.parent / "log.jsonl"
    wanted = [(mutant, "killed" if mutant.function == 1 else "survived") for mutant in every]
    assert mutants.run(every[:3], 1, log) == wanted[:3]  # and here it was stopped
    assert mutants.run(every, 1, log) == wanted
    assert asked == every  # each once
    (tree / "tests/test_sums.py").write_text("def test_triple(): ...")
    assert mutants.run(every, 1, log) == wanted
    assert asked == every * 2  # what was said of other tests counts for nothing


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_tests_run_in_a_fork(tree: Path) -> None:
    tests = mutants.tests_of(tree, "tests/test_sums.py")
    assert [(one.name, one.calls) for one in tests] == [("tests/test_sums.py::test_it", {"toy/sums.py:1"})]
    names = [one.name for one in tests]
    assert mutants.run_tests(tree, names, 100)[0] == "passed"
    (tree / "toy/sums.py").write_text("def double(x):\n    return x\n")
    assert mutants.run_tests(tree, names, 100)[0] == "failed"
    (tree / "tests/test_sums.py").write_text("import time\n\n\ndef test_it():\n    time.sleep(60)\n")
    assert mutants.run_tests(tree, names, 1)[0] == "slow"
    (tree / "tests/test_sums.py").write_text("import pytest\n\n\n@pytest.mark.slow\ndef test_it(): ...\n")
    assert mutants.run_tests(tree, ["tests/test_sums.py"], 100)[0] == "no tests"


def test_a_file_s_own_tests_run_first_then_the_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutants, "MOST_SECONDS", 60)
    mutant = mutants.Mutant("interp/a.py", 12, 0, 1, "a", "b", 10)
    at, beside = frozenset({"interp/a.py:10"}), frozenset({"interp/a.py:30"})
    slow, fast, other, long = (mutants.Test(name, seconds, calls) for name, seconds, calls in (
        ("slow", 30.0, at), ("fast", 1.0, at), ("other", 2.0, beside), ("long", 40.0, at)))  # fmt: skip
    assert mutants.chosen(mutant, [slow, long, fast, other]) == [fast, slow]
    outside = mutants.Mutant("interp/a.py", 1, 0, 1, "a", "b", 0)
    assert mutants.chosen(outside, [slow, long, fast, other]) == [fast, other, slow]
    mirrored = mutants.Test("tests/test_a.py::test_it", 20.0, at)
    assert mutants.chosen(mutant, [slow, fast, mirrored]) == [mirrored, fast, slow]
