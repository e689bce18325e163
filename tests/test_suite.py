"""The tests themselves: each file mirrors a module or says what it covers, and none is softer than it reads."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "tests").rglob("test_*.py"))
MODULES = sorted((ROOT / "interp").rglob("*.py"))


@cache
def text(file: Path) -> str:
    return file.read_text("utf-8")


@cache
def nodes(file: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(text(file))))


def mirrors(file: Path) -> bool:
    """tests/models/test_zoo.py mirrors interp/models/zoo.py, or a package."""
    module = ROOT / "interp" / file.relative_to(ROOT / "tests").parent / file.stem.removeprefix("test_")
    return module.with_suffix(".py").is_file() or module.is_dir()


def test_a_file_mirrors_a_module_or_names_what_it_covers() -> None:
    for file in FILES:
        said = re.match(r'"""(.*?)"""', text(file), re.DOTALL)
        assert mirrors(file) or (said and len(said[1]) > 26), file.relative_to(ROOT)


def test_absolute_tolerances_are_absolute() -> None:
    """numpy adds a relative 1e-7 to an atol that is given alone: closeness.close does not."""
    for file in (file for file in FILES if "assert_allclose" in text(file)):
        for node in nodes(file):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "assert_allclose":
                named = {keyword.arg for keyword in node.keywords}
                soft = "atol" in named and "rtol" not in named and file.stem != "test_closeness"
                assert not soft, f"{file.relative_to(ROOT)}:{node.lineno}: use close, or say rtol too"


def test_no_verdict_depends_on_how_fast_the_machine_is() -> None:
    """Durations are measured in analyses/benchmarks; a deadline that only ends what hangs is named `end`."""
    clocks = (".seconds <", "perf_counter()", "process_time()", "time.time()")
    for file in (file for file in FILES if any(word in text(file) for word in clocks)):
        for node in nodes(file):
            if isinstance(node, ast.Assert):
                said = ast.unparse(node)
                assert not any(word in said for word in clocks), f"{file.relative_to(ROOT)}:{node.lineno}: {said}"


def paths_in_the_makefile() -> list[str]:
    """What `make` hands to pytest, with $(addprefix PREFIX,names) written out."""
    rules = text(ROOT / "Makefile").replace("\\\n", " ")
    for prefix, names in re.findall(r"\$\(addprefix (\S+),([^)]*)\)", rules):
        rules += " " + " ".join(prefix + name for name in names.split())
    rules = re.sub(r"\$\(addprefix [^)]*\)", " ", rules)
    return sorted(set(re.findall(r"\btests/[\w/]+(?:\.py)?", rules)))


@pytest.mark.parametrize("path", paths_in_the_makefile())
def test_the_makefile_runs_files_that_exist(path: str) -> None:
    """pytest with a missing file runs none of the others."""
    assert (ROOT / path).exists()


def test_no_rank_hangs_on_what_lapack_raises() -> None:
    """Ranks have a tolerance of ours: whether a singular matrix is noticed depends on how a CPU rounds."""
    for path in MODULES:
        assert "LinAlgError" not in text(path)
        if not re.search(r"linalg\.(matrix_rank|pinv)", text(path)):
            continue
        for call in (node for node in nodes(path) if isinstance(node, ast.Call)):
            if ast.unparse(call.func) in ("np.linalg.matrix_rank", "np.linalg.pinv"):
                tolerance = {"tol", "rtol", "rcond"} & {one.arg for one in call.keywords}
                assert len(call.args) > 1 or tolerance, ast.unparse(call)


LONGEST = 60
"""Characters of a test's name."""


def test_names_of_tests_are_short_sentences() -> None:
    for file in FILES:
        for name in re.findall(r"^ *(?:async )?def (test_\w+)", text(file), re.MULTILINE):
            assert len(name) <= LONGEST, f"{file.relative_to(ROOT)}: {name} has {len(name)} characters"


COVERED = {
    "tests/programs/test_words.py": "programs/attention_words programs/variable_words",
    "tests/measures/test_restart.py": "measures/restart_changes",
    "tests/measures/test_new_measures.py": "certificates/drawing",
    "tests/models/test_zoo.py": "programs/constructions",
    "tests/cli/test_cli.py": "__main__",
    "tests/models/test_lens.py": "models/lens/common models/lens/v4/parts",
    "tests/test_trips.py": "support/views",
    "tests/families/languages/constructions/test_lengths.py": "models/architecture/limits",
    "tests/certificates/test_check.py": "certificates/check/__main__ certificates/check/counts "
        "certificates/check/decoder certificates/check/inputs "
        "certificates/check/model certificates/check/sequences",
    "tests/certificates/test_check_places.py": "certificates/check/places",
    "tests/certificates/test_forged.py":
        "certificates/check/reading certificates/check/tasks certificates/check/weights",
    "tests/certificates/test_evidence.py": "families/algorithmic/certificates",
    "tests/families/histogram/certificates/test_walk.py": "families/histogram/compiled/multisets",
    "tests/families/algorithmic/test_constructions.py": "families/algorithmic/constructions/addition "
        "families/algorithmic/constructions/max_of_k families/algorithmic/constructions/modular_addition",
    "tests/families/histogram/constructions/test_models.py": "families/histogram/constructions/relation "
        "families/histogram/constructions/inventory",
    "tests/families/languages/constructions/test_values.py":
        "families/languages/constructions/first families/languages/constructions/one "
        "families/languages/constructions/rules",
    "tests/programs/explanations/test_quantities.py": "programs/explanations/kinds_in_order",
    "tests/models/readers/test_models.py": "models/readers/gpt2 models/readers/rotary models/readers/torch_encoder",
    "tests/models/readers/test_saved_models.py": "models/readers/plain_tensors models/readers/sources",
    "tests/report/sections/test_once.py": "families/histogram/sections/parts families/count01/sections/two_answers",
    "tests/families/algorithmic/tasks/test_numbers.py":
        "families/languages/tasks/brackets families/algorithmic/tasks/induction",
    "tests/families/languages/tasks/test_language.py":
        "families/languages/tasks/palindrome families/languages/tasks/regular",
    "tests/families/histogram/compiled/test_kernel.py": "families/histogram/compiled/mixing",
    "tests/training/test_engines.py": "families/count01/training",
}  # fmt: skip
"""Test files, and the modules that they cover without importing them: parts of a module that they do import."""


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def mirrored_modules() -> list[Path]:
    return [
        ROOT / "interp" / file.relative_to(ROOT / "tests").with_name(file.stem.removeprefix("test_")) for file in FILES
    ]


def packages_of(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts))]


def imported() -> set[str]:
    """Every module that some test imports, or names in a string such as a target of monkeypatch."""
    found: set[str] = set()
    for file in (ROOT / "tests").rglob("*.py"):
        for module, several, names in re.findall(r"\bfrom (interp[\w.]*) import (?:\(([^)]*)\)|(.+))", text(file)):
            found |= {module, *(f"{module}.{name}" for name in re.findall(r"\w+", several or names))}
        found |= set(re.findall(r"""(?:["']|^ *import )(interp\.[\w.]+)""", text(file), re.MULTILINE))
    return found


def test_every_module_has_tests() -> None:
    """A file of its name, an import by some test, or a row of COVERED, which lists the modules that need one."""
    mirrored = {str(file.relative_to(ROOT / "tests").with_name(file.stem.removeprefix("test_"))) for file in FILES}
    known, rows = imported(), {module for modules in COVERED.values() for module in modules.split()}
    covered = {f"interp.{row.replace('/', '.')}" for row in rows} | {module_of(file) for file in mirrored_modules()}
    known |= {package for module in known | covered for package in packages_of(module)}
    for module in MODULES:
        path = str(module.relative_to(ROOT / "interp").with_suffix(""))
        if path in mirrored or path.replace("/_", "/").lstrip("_") in mirrored or module_of(module) in known:
            assert path not in rows, f"interp/{path}.py needs no row of COVERED"
        else:
            assert path in rows, f"interp/{path}.py has no test: add one, or name the file that covers it in COVERED"
    for file in (*COVERED, *(f"interp/{module}.py" for module in rows)):
        assert (ROOT / file).is_file(), f"COVERED names {file}, which does not exist"


def names_of_classes(file: Path) -> list[str]:
    """The classes and named tuples that a file defines."""
    code = re.sub(r'""".*?"""', "", text(file), flags=re.DOTALL)
    return re.findall(r"^ *class (\w+)[(:]", code, re.MULTILINE) + re.findall(r'\bnamedtuple\(\s*"(\w+)', code)


def test_one_word_names_one_class() -> None:
    """The layouts of compiled kernels count as one file: each has its own Sizes, Params and TrainingData."""
    where: dict[str, set[str]] = {}
    for file in MODULES:
        path = str(file.relative_to(ROOT / "interp"))
        for name in names_of_classes(file):
            where.setdefault(name, set()).add("layouts" if path.endswith("/compiled/layout.py") else path)
    assert {name: paths for name, paths in where.items() if len(paths) > 1} == {}
