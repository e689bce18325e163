"""Do the tests notice? Small random mistakes go into a copy of the tree, one at a time, and the tests of the file run.

    make mutants N=100 SEED=0                          a sample over every room: score, its interval, the survivors
    python tests/mutants.py --room certificates        one room;  --file interp/spec.py: one file;  --minutes 10

A mistake is a comparison, an operator, a number, a sign or a condition that is changed in one place of a syntax tree;
every place of every file is as likely as any other.
A mutant is killed when a test of its file's own test file, or of those that ALSO names, fails or takes ten times as
long. The same seed draws the same mutants of the same tree. What nobody can notice (a mistake in a message, a bound
that is only looser) counts as a survivor: the score is one from below.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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


ALSO = {
    "interp/certificates/arithmetic.py": ("tests/certificates/test_rounding.py",),
    "interp/certificates/base.py": ("tests/certificates/test_frozen.py", "tests/certificates/test_scope.py"),
    "interp/certificates/frozen.py": ("tests/certificates/test_liars.py",),
    "interp/tasks/snapshot.py": ("tests/certificates/test_frozen.py",),
    "interp/certificates/check/": ("tests/certificates/test_forged.py", "tests/certificates/test_evidence.py"),
    "interp/certificates/histogram_": ("tests/certificates/test_histogram.py",),
}
"""Files, or beginnings of their names, whose mistakes the tests of other files find, too."""


@dataclass(frozen=True)
class Mutant:
    """One mistake: the source from start to end, in bytes of the file, becomes `new`."""

    file: str
    line: int
    start: int
    end: int
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def room(self) -> str:
        return room_of(self.file)

    def applied(self, root: Path) -> str:
        data = (root / self.file).read_bytes()
        return (data[: self.start] + self.new.encode() + data[self.end :]).decode()

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.old!r:.60} -> {self.new!r:.60}"


def room_of(file: str) -> str:
    parts = Path(file).parts
    return parts[1] if len(parts) > 2 else "top"


def mirrored(root: Path, file: str) -> tuple[str, ...]:
    """The test file of a module's own name, or of the package that it is in, and those that ALSO names."""
    path = Path(file)
    places = [Path("tests", *path.parts[1:-1], f"test_{path.stem}.py")]
    places += [
        Path("tests", *path.parts[1:depth], f"test_{path.parts[depth]}.py") for depth in range(1, len(path.parts) - 1)
    ]
    own = [str(place) for place in places if (root / place).is_file()][:1]
    others = [name for start, names in ALSO.items() if file.startswith(start) for name in names]
    return tuple(dict.fromkeys(own + others))


def mutants_of(root: Path, file: str) -> Iterator[Mutant]:
    """Every mistake that can be made in a file with tests of its own."""
    if not (tests := mirrored(root, file)):
        return
    text = (root / file).read_text("utf-8")
    lines = [0]
    for line in text.encode().splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    tree = ast.parse(text)
    skipped = {id(part) for node in ast.walk(tree) for part in _annotations(node)}
    data = text.encode()
    for node in ast.walk(tree):
        if id(node) in skipped or not isinstance(node, ast.expr):
            continue
        start, end = (
            lines[node.lineno - 1] + node.col_offset,
            lines[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0),
        )
        for new in _changed(node):
            yield Mutant(file, node.lineno, start, end, data[start:end].decode(), f"({new})", tests)


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
    files = [name for name in files if file in (None, name) and (rooms is None or room_of(name) in rooms)]
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


def run_tests(tree: Path, mutant: Mutant, limit: float) -> tuple[str, float]:
    """'passed', 'failed' or 'slow', and the seconds: in a fork, which has the libraries and nothing of interp yet."""
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        os.setsid()  # what tests start ends with them
        null = os.open(os.devnull, os.O_WRONLY)
        if not os.environ.get("MUTANTS_SHOW"):
            os.dup2(null, 1)
            os.dup2(null, 2)
        os.chdir(tree)
        sys.path[:] = [str(tree), *(p for p in sys.path if Path(p or ".").resolve() not in (ROOT, ROOT / "tests"))]
        os.environ["PYTHONPATH"] = str(tree)
        os.environ["INTERP_CHECKED"] = ".".join(Path(mutant.file).with_suffix("").parts)
        import pytest

        code = 1
        try:
            code = pytest.main([*OPTIONS, "-m", "not slow and not soak", *mutant.tests])
        finally:
            os._exit(int(code))
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        seconds = time.monotonic() - start
        if done:
            return ("passed" if status == 0 else "failed"), seconds
        if seconds > limit:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "slow", seconds
        time.sleep(0.05)


def run(mutants: list[Mutant], minutes: float) -> list[tuple[Mutant, str]]:
    """Each mutant with its verdict, "killed" or "survived"; fewer where the time is over or tests fail without any."""
    for name in LIBRARIES:
        importlib.import_module(name)
    sys.dont_write_bytecode = False  # the copy is imported once a mutant, and only one of its files is new
    end, whole, verdicts = time.monotonic() + 60 * minutes, dict[tuple[str, ...], float](), list[tuple[Mutant, str]]()
    with tempfile.TemporaryDirectory(prefix="interp-mutants-") as folder:
        tree = copy_of(ROOT, Path(folder))
        for number, mutant in enumerate(sorted(mutants, key=lambda m: (m.tests, m.file, m.start, m.new)), 1):
            if time.monotonic() > end:
                print(f"{len(mutants) - number + 1} mutants are left for another time")
                break
            if mutant.tests not in whole:
                verdict, whole[mutant.tests] = run_tests(tree, mutant, 600)
                if verdict != "passed":
                    print(f"{' '.join(mutant.tests)}: {verdict} without any mutant")
                    whole[mutant.tests] = math.nan
            if math.isnan(whole[mutant.tests]):
                continue
            path, text = tree / mutant.file, (tree / mutant.file).read_text("utf-8")
            put(path, mutant.applied(tree), 1_000_000_000 + 2 * number)
            verdict, seconds = run_tests(tree, mutant, 60 + 10 * whole[mutant.tests])
            put(path, text, 1_000_000_001 + 2 * number)
            verdicts.append((mutant, "survived" if verdict == "passed" else "killed"))
            print(f"{number:>4}/{len(mutants)} {verdicts[-1][1]:<9} {seconds:5.1f} s  {mutant}", flush=True)
    return verdicts


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
    return "\n".join([*lines, *(f"survived: {mutant}" for mutant, said in verdicts if said == "survived")])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=100, help="how many mutants")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--room", nargs="+", help="only files of these rooms, such as measures")
    parser.add_argument("--file", help="only this file, such as interp/spec.py")
    parser.add_argument("--minutes", type=float, default=600, help="stop after the mutant that is under way by then")
    given = parser.parse_args()
    print(score(run(sample(ROOT, given.n, given.seed, given.room, given.file), given.minutes)))


if __name__ == "__main__":
    main()
