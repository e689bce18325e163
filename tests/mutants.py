"""Do the tests notice? Small random mistakes go into a copy of the tree, one at a time, and the tests of the file run.

    make mutants N=100 SEED=0                          a sample over every room: score, its interval, the survivors
    python tests/mutants.py --room certificates        one room;  --file interp/models/spec.py: one file;  --minutes 10
    python tests/mutants.py --log FILE                 keep the verdicts: the same command goes on where it was stopped

A mistake is a comparison, an operator, a number, a sign or a condition that is changed in one place of a syntax tree;
every place of every file is as likely as any other. (mutmut 3.8 leaves out what is decorated or stands outside of
functions, a fifth of these places, and half of its mutants drop an argument of a call: its score says another thing.)
A test file is run once without any mutant when it is first asked, while the functions that its tests call are noted.
A mutant is killed when one of the tests that call its function fails or takes ten times as long, and passes without the
mutant; those of its own test file are asked first, then those of its room and of every file that imports it, for
MOST_SECONDS at most, and last the golden outputs. The same seed draws the same mutants of the same tree. What nobody
can notice (a mistake in a message, a bound that is only looser) counts as a survivor, and so does what only slow tests
would see, but for tests that are slow because they compile: the score is one from below.
"""

import argparse
import ast
import hashlib
import importlib
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "interp"
LIBRARIES = ("numpy", "torch", "pandas", "scipy.optimize", "sklearn.svm", "plotly.graph_objects", "pytest", "pydantic",
             "transformer_lens", "jaxtyping", "beartype", "safetensors.torch", "typer", "rich", "jinja2")  # fmt: skip
OPTIONS = ("-x", "-q", "-p", "no:xdist", "--tb=line",
           "-W", "ignore::pytest.PytestAssertRewriteWarning")  # fmt: skip # libraries with plugins are loaded before
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Add,
    ast.Pow: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip

NO_TESTS = 5
"""What pytest says where every test of a file is one of the slow ones."""
FAILED = "failed-test"
GOLDEN = "tests/test_golden.py"
"""What every shipped model gives: it is asked of every module."""
MOST_SECONDS = 25.0
"""Tests that take longer than this together are not all run for one mutant."""


@dataclass(frozen=True)
class Mutant:
    """One mistake: the source from start to end, in bytes of the file, becomes `new`.

    function: the first line of the innermost function that holds it, or 0 for none.
    """

    file: str
    line: int
    start: int
    end: int
    old: str
    new: str
    function: int

    @property
    def room(self) -> str:
        return room_of(self.file)

    def applied(self, root: Path) -> str:
        data = (root / self.file).read_bytes()
        return (data[: self.start] + self.new.encode() + data[self.end :]).decode()

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.old!r:.60} -> {self.new!r:.60}"


def room_of(file: str) -> str:
    """The folder of a module, or its family."""
    parts = Path(file).parts
    return "top" if len(parts) == 2 else parts[2] if parts[1] == "families" and len(parts) > 3 else parts[1]


def candidates(root: Path, file: str) -> tuple[str, ...]:
    """The test files of a module: its own, those of its room or family, all others that import it, and those of the
    modules that do."""
    *packages, stem = Path(file).with_suffix("").parts
    room = root.joinpath("tests", *packages[1 : 3 if packages[1:2] == ["families"] else 2])
    named = f"{'.'.join(packages)}.{stem}"
    package = "|".join(re.escape(".".join(packages[:n])) for n in range(1, len(packages) + 1))
    kinds = [node.name for node in ast.parse((root / file).read_text("utf-8")).body if isinstance(node, ast.ClassDef)]
    names = rf"\b({'|'.join([stem, *kinds])})\b"
    beside = re.compile(rf"^from ({package}) import (.*|\([^)]*){names}", re.MULTILINE)
    found = set()
    for path in (root / "tests").rglob("test_*.py"):
        text = path.read_text("utf-8")
        if path.parent == room or (len(packages) > 1 and room in path.parents) or named in text or beside.search(text):
            found.add(path)
    for path in (root / packages[0]).rglob("*.py"):
        mirror = root / "tests" / path.relative_to(root / packages[0]).with_name(f"test_{path.stem}.py")
        if mirror.is_file() and (named in (text := path.read_text("utf-8")) or beside.search(text)):
            found.add(mirror)
    order = sorted(found - {root / GOLDEN}, key=lambda p: (p.name != f"test_{stem}.py", room not in p.parents, p))
    return tuple(str(path.relative_to(root)) for path in order)


def mutants_of(root: Path, file: str) -> Iterator[Mutant]:
    """Every mistake that can be made in a file."""
    text = (root / file).read_text("utf-8")
    lines = [0]
    for line in text.encode().splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    tree = ast.parse(text)
    skipped = {id(part) for node in ast.walk(tree) for part in _annotations(node)}
    data, inside = text.encode(), _functions(tree)
    for node in ast.walk(tree):
        if id(node) in skipped or not isinstance(node, ast.expr):
            continue
        start, end = (
            lines[node.lineno - 1] + node.col_offset,
            lines[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0),
        )
        for new in _changed(node):
            yield Mutant(file, node.lineno, start, end, data[start:end].decode(), f"({new})", inside.get(id(node), 0))


def _functions(tree: ast.AST) -> dict[int, int]:
    """For each node within a function the first line of the innermost one, its decorators included."""
    found: dict[int, int] = {}
    for node in ast.walk(tree):  # inner functions come after those around them
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min(part.lineno for part in [node, *node.decorator_list])
        elif isinstance(node, ast.Lambda):
            first = node.lineno
        else:
            continue
        found |= dict.fromkeys(map(id, ast.walk(node)), first)
    return found


def _annotations(node: ast.AST) -> Iterator[ast.AST]:
    """Parts that no run reads: annotations, and pieces of formatted text."""
    for part in (getattr(node, "annotation", None), getattr(node, "returns", None), *(
        [node] if isinstance(node, ast.JoinedStr) else [])):  # fmt: skip
        if part is not None:
            yield from ast.walk(part)


def _changed(node: ast.expr) -> Iterator[str]:
    """The expression with one mistake, in each way that its own top allows."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
        yield ast.unparse(ast.Compare(node.left, [COMPARISONS[type(node.ops[0])]()], node.comparators))
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        yield ast.unparse(ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right))
    elif isinstance(node, ast.BoolOp):
        yield ast.unparse(ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield ast.unparse(node.operand)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield repr(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield repr(node.value + 1)


def sample(root: Path, n: int, seed: int, rooms: list[str] | None = None, file: str | None = None) -> list[Mutant]:
    """n mutants, drawn without replacement from all of them; the same for the same seed and tree."""
    files = [str(path.relative_to(root)) for path in sorted((root / PACKAGE).rglob("*.py"))]
    files = [name for name in files if name.startswith(file or "") and (rooms is None or room_of(name) in rooms)]
    every = [mutant for name in files for mutant in mutants_of(root, name)]
    return random.Random(seed).sample(every, min(n, len(every)))


def copy_of(root: Path, folder: Path) -> Path:
    """Every file that git knows or would take, in another folder: nothing here touches the working tree."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=root, capture_output=True, check=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        if (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)
    return folder


def put(path: Path, text: str, moment: int) -> None:
    """Compiled files are found by size and second of the source: no two texts of a file may share both."""
    path.write_text(text, "utf-8")
    os.utime(path, (moment, moment))


@dataclass(frozen=True)
class Test:
    """A test that passes on the tree as it is. calls: "file:first line" of each function of the package."""

    name: str
    seconds: float
    calls: frozenset[str]


class Recorder:
    """A plugin of pytest that notes which functions of the package each test calls.

    What is called outside of tests, on import or by a fixture of many tests, counts for all tests of the file.
    """

    def __init__(self, tree: Path) -> None:
        self.start = len(str(tree)) + 1
        self.inside = str(tree / PACKAGE) + os.sep
        self.now, self.shared = set[tuple[str, int]](), set[tuple[str, int]]()
        self.tests: dict[str, tuple[float, set[tuple[str, int]]]] = {}

    def note(self, frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        self.now.add((code.co_filename, code.co_firstlineno))

    def _taken(self) -> set[tuple[str, int]]:
        taken, self.now = self.now, set()
        return taken

    def pytest_runtest_logstart(self) -> None:
        self.shared |= self._taken()

    def pytest_fixture_post_finalizer(self, fixturedef: Any) -> None:
        if fixturedef.scope != "function":
            self.shared |= self.now

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "setup":
            self.shared |= self.now
        if report.when == "call" and report.outcome == "passed":
            self.tests[report.nodeid] = report.duration, self._taken()

    def said(self) -> list[tuple[str, float, list[str]]]:
        return [(name, seconds, sorted(f"{file[self.start :]}:{line}" for file, line in calls | self.shared
                                       if file.startswith(self.inside)))
                for name, (seconds, calls) in self.tests.items()]  # fmt: skip


class Failing:
    """A plugin of pytest that leaves the name of a test that fails in the file FAILED of the tree."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            (self.tree / FAILED).write_text(report.nodeid)


def is_ours(path: Path) -> bool:
    """Whether a folder to import from is this tree's: the repository, or one of its tests."""
    return path == ROOT or path.is_relative_to(ROOT / "tests")


def run_tests(tree: Path, tests: Sequence[str], limit: float, checked: str = "", noted: str = "") -> tuple[str, float]:
    """'passed', 'failed', 'no tests' (all are slow) or 'slow', and the seconds: in a fork, which has the libraries
    and nothing of interp yet.

    checked: a module whose annotations are checked. noted: a file for what the tests call.
    """
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        os.setsid()  # what tests start ends with them
        null = os.open(os.devnull, os.O_WRONLY)
        if not os.environ.get("MUTANTS_SHOW"):
            os.dup2(null, 1)
            os.dup2(null, 2)
        os.chdir(tree)
        sys.path[:] = [str(tree), *(p for p in sys.path if not is_ours(Path(p or ".").resolve()))]
        os.environ["PYTHONPATH"] = str(tree)
        os.environ["INTERP_CHECKED"] = checked
        import pytest

        code, recorder = 1, Recorder(tree)
        if noted:
            threading.settrace(recorder.note)
            sys.settrace(recorder.note)
        try:
            (tree / FAILED).unlink(missing_ok=True)
            options = [option for option in OPTIONS if not (noted and option == "-x")]
            code = pytest.main(
                [*options, "-m", "(compiles or not slow) and not soak", *tests],
                plugins=[recorder if noted else Failing(tree)],
            )
            if noted:
                sys.settrace(None)
                Path(noted).write_text(json.dumps(recorder.said()))
        finally:
            os._exit(int(code))
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        seconds = time.monotonic() - start
        if done:
            said = {0: "passed", NO_TESTS: "no tests"}
            return said.get(os.waitstatus_to_exitcode(status), "failed"), seconds
        if seconds > limit:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "slow", seconds
        time.sleep(0.05)


def tests_of(tree: Path, file: str) -> list[Test]:
    """What each test of one file calls."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calls.json"
        verdict, seconds = run_tests(tree, [file], 1200, noted=str(path))
        print(f"{file}: {verdict} without any mutant, {seconds:.0f} s", flush=True)
        if not path.is_file():
            return []
        return [Test(name, seconds, frozenset(calls)) for name, seconds, calls in json.loads(path.read_text())]


def chosen(mutant: Mutant, tests: Sequence[Test], most: float | None = None) -> list[Test]:
    """The tests that call a mutant's function, or anything of its file where it stands in none: its own test file's
    first, then the fastest. Where none does, as no trace sees into compiled code, those of its family or room."""
    here, own = f"{mutant.file}:", f"test_{Path(mutant.file).stem}.py"
    callers = [test for test in tests if (f"{here}{mutant.function}" in test.calls if mutant.function
                                          else any(call.startswith(here) for call in test.calls))]  # fmt: skip
    beside = str(Path("tests", *Path(mutant.file).parts[1:]).parent).removesuffix("compiled")
    callers = callers or [test for test in tests if test.name.startswith(beside)
                          and ("compiled" in mutant.file or own in test.name)]  # fmt: skip
    found, seconds, most = list[Test](), 0.0, MOST_SECONDS if most is None else most
    for test in sorted(callers, key=lambda test: (own not in test.name, test.seconds, test.name)):
        if seconds + test.seconds <= most:
            found.append(test)
            seconds += test.seconds
    return found


def turns(mutant: Mutant, tree: Path, known: dict[str, list[Test]]) -> Iterator[list[Test]]:
    """The tests to ask of a mutant, file by file until MOST_SECONDS are full: a file is traced when it is its turn.

    Its own test file comes first, then those that name its module, as most of its callers do.
    """
    stem, left = Path(mutant.file).stem, MOST_SECONDS
    files = candidates(tree, mutant.file)
    for file in sorted(files, key=lambda file: (f"test_{stem}.py" not in file, stem not in (tree / file).read_text())):
        if left > 0:
            if file not in known:
                known[file] = tests_of(tree, file)
            if tests := chosen(mutant, known[file], left):
                left -= sum(test.seconds for test in tests)
                yield tests
    if (tree / GOLDEN).is_file():
        known[GOLDEN] = known[GOLDEN] if GOLDEN in known else tests_of(tree, GOLDEN)
        if tests := chosen(mutant, known[GOLDEN]):
            yield tests


def state(root: Path) -> str:
    """A hash of every file in which a mutant or a test is written."""
    found = hashlib.sha256()
    for path in sorted(path for folder in (PACKAGE, "tests") for path in (root / folder).rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            found.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return found.hexdigest()[:16]


def run(mutants: list[Mutant], minutes: float, log: Path | None = None) -> list[tuple[Mutant, str]]:
    """Each mutant with its verdict, "killed", "survived" or "not called"; fewer where the time is over.

    log: a file with verdicts, a line each, which are not asked again of the same tree, and where each new one is added.
    """
    for name in LIBRARIES:
        importlib.import_module(name)
    sys.dont_write_bytecode = False  # the copy is imported once a mutant, and only one of its files is new
    end, traced, verdicts = time.monotonic() + 60 * minutes, dict[str, list[Test]](), list[tuple[Mutant, str]]()
    with tempfile.TemporaryDirectory(prefix="interp-mutants-") as folder:
        tree = copy_of(ROOT, Path(folder).resolve())
        whole = state(tree)
        lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()] if log and log.is_file() else []
        known = {Mutant(**line["mutant"]): line["verdict"] for line in lines if line["tree"] == whole}
        for number, mutant in enumerate(mutants, 1):  # in the order drawn: where time ends, it is a smaller sample
            if mutant in known:
                verdicts.append((mutant, known[mutant]))
                continue
            if time.monotonic() > end:
                print(f"{len(mutants) - number + 1} mutants are left for another time")
                break
            verdict, seconds, asked = judged(mutant, tree, number, traced)
            verdicts.append((mutant, verdict))
            if log:
                with log.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"mutant": asdict(mutant), "verdict": verdict, "tree": whole}) + "\n")
            print(f"{number:>4}/{len(mutants)} {verdict:<10} {seconds:5.1f} s, {asked:>3} tests  {mutant}", flush=True)
    return verdicts


def judged(mutant: Mutant, tree: Path, number: int, traced: dict[str, list[Test]]) -> tuple[str, float, int]:
    """The verdict of one mutant, the seconds that its tests took, and how many they are."""
    seconds, asked, path, text = 0.0, 0, tree / mutant.file, (tree / mutant.file).read_text("utf-8")
    checked = ".".join(Path(mutant.file).with_suffix("").parts)
    for tests in turns(mutant, tree, traced):
        asked += len(tests)
        while tests:
            put(path, mutant.applied(tree), 1_000_000_000 + 2 * number)
            limit = 60 + 10 * sum(test.seconds for test in tests)
            said, more = run_tests(tree, [test.name for test in tests], limit, checked)
            put(path, text, 1_000_000_001 + 2 * number)
            seconds, failed = seconds + more, tree / FAILED
            if said == "passed":
                break
            name = failed.read_text() if said == "failed" and failed.is_file() else ""
            if not name or run_tests(tree, [name], limit, checked)[0] == "passed":
                return "killed", seconds, asked
            left = [test for test in tests if test.name != name]  # it fails by itself, as where types are checked
            tests = left if len(left) < len(tests) else []
    return ("survived" if asked else "not called"), seconds, asked


def interval(killed: int, n: int) -> tuple[float, float]:
    """Wilson's 95% interval of a share."""
    if not n:
        return 0.0, 1.0
    z, share = 1.959964, killed / n
    middle, reach = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return (middle - reach) / (1 + z * z / n), (middle + reach) / (1 + z * z / n)


def score(verdicts: list[tuple[Mutant, str]]) -> str:
    """A line for each room, one for all with its interval, then every survivor."""
    rooms, killed = Counter(m.room for m, _ in verdicts), Counter(m.room for m, said in verdicts if said == "killed")
    lines = [f"{room:<14} {killed[room]:>4} of {n:>4} killed" for room, n in sorted(rooms.items())]
    low, high = interval(killed.total(), len(verdicts))
    lines.append(
        f"all            {killed.total():>4} of {len(verdicts):>4} killed, 95% interval {low:.3f} to {high:.3f}"
    )
    return "\n".join([*lines, *(f"{said}: {mutant}" for mutant, said in verdicts if said != "killed")])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=100, help="how many mutants")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--room", nargs="+", help="only files of these rooms, such as measures")
    parser.add_argument("--file", help="only files whose name begins so, such as interp/models/spec.py")
    parser.add_argument("--minutes", type=float, default=600, help="stop after the mutant that is under way by then")
    parser.add_argument("--log", type=Path, help="a file that keeps the verdicts: what is known is not asked again")
    given = parser.parse_args()
    drawn = sample(ROOT, given.n, given.seed, given.room, given.file)
    print(score(run(drawn, given.minutes, given.log)))


if __name__ == "__main__":
    main()
