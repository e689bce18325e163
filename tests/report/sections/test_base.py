"""The framework of sections: discovery, needs, options, what is shared, and a user's own section."""

import ast
import re
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

import interp
from interp.errors import InterpError, UnsupportedError
from interp.models.subject import Subject
from interp.report import Report
from interp.report.analyze import list_sections
from interp.report.sections import Study, all_sections, base, section
from interp.tasks import registered_tasks


@pytest.fixture
def study() -> Study:
    return Study(Subject.of(interp.build("count01/minimal")))


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    all_sections()  # those of files are registered first, or the copy would lose them
    monkeypatch.setattr(base, "_SECTIONS", dict(base._SECTIONS))


def test_files_of_the_folder_are_found_and_ordered() -> None:
    found = all_sections()
    assert "accuracy" in [one.name for one in found]
    assert [one.order for one in found] == sorted(one.order for one in found)


def test_sections_know_nothing_of_each_other() -> None:
    files = {file.stem: file.read_text() for file in Path(base.__file__).parent.glob("*.py")}
    ones = {stem for stem, text in files.items() if "\n@section(" in text}
    assert "accuracy" in ones
    for stem, text in files.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("interp.report.sections."):
                assert (node.module or "").split(".")[-1] not in ones, stem


def keyed(text: str, kinds: set[str]) -> list[str]:
    """Where code asks what a task is called or of which class it is, rather than what it declares."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call | ast.Compare | ast.Subscript):
            continue
        is_kind = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance"
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        named = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} if is_kind or sides else set()
        by_name = [side for side in sides if isinstance(side, ast.Attribute) and side.attr in ("name", "family")]
        of_task = any("task" in ast.unparse(side.value).split(".")[-1] or side.attr == "family" for side in by_name)
        literal = any(
            isinstance(each, ast.Constant) and isinstance(each.value, str) for s in sides for each in ast.walk(s)
        )
        if (is_kind and kinds & named) or (sides and kinds & named) or (of_task and literal):
            found.append(ast.unparse(node))
        if isinstance(node, ast.Subscript) and ast.unparse(node.slice).endswith(("task.name", ".family")):
            found.append(ast.unparse(node))
    return found


def test_what_counts_as_keyed() -> None:
    bad = ["isinstance(task, Parity)", "type(model.task) is Parity", "model.task.name != 'parity'",
           "TABLE[task.family]", "task.name in ('one', 'parity')", "kind.family == 'languages'",
           "TABLE[subject.task.name]"]  # fmt: skip
    assert all(keyed(text, {"Parity"}) for text in bad)
    good = [
        "isinstance(task, str)",
        "f'task {task.name}'",
        "name == 'heads'",
        "task.name != own.name",
        "cast(Parity, task)",
    ]
    assert not any(keyed(text, {"Parity"}) for text in good)


@pytest.mark.slow
def test_nothing_at_the_top_is_keyed_by_a_family_or_a_task() -> None:
    """Methods of certification and engines of training know the labels that their arguments are about; no one else."""
    top = Path(interp.__file__).parent
    kinds = {kind.__name__ for kind in registered_tasks().values() if kind.__module__.startswith("interp.")}
    kinds |= {"Language", "TableTask"}
    rooms = ("report", "measures", "models", "training/sweeps")
    files = [*top.glob("*.py"), *(file for room in rooms for file in (top / room).rglob("*.py"))]
    assert len(files) > 80
    for file in files:
        assert not keyed(file.read_text(), kinds), file
        for node in ast.walk(ast.parse(file.read_text())):
            if file.parent.name != "measures" and isinstance(node, ast.ImportFrom):  # measures name types in signatures
                assert not ((node.module or "").startswith("interp.tasks") and kinds & {one.name for one in node.names})


def test_what_sections_share_is_computed_once(study: Study) -> None:
    calls = []

    def shared(study: Study, number: int = 5) -> int:
        calls.append(number)
        if number < 0:
            raise UnsupportedError("no")
        return 2 * number

    assert [study.once(shared, 3), study.once(shared, 3), study.once(shared, 4)] == [6, 6, 8]
    assert [study.once(shared), study.once(shared, 5)] == [10, 10]
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="no"):
            study.once(shared, -1)
    assert calls == [3, 4, 5, -1]


def test_a_section_of_ones_own_appears_in_a_report(own: None) -> None:
    @section("mine", title="Mine", order=1)
    def mine(study: Study, report: Report, rows: int = 3) -> None:
        report.heading("Mine")
        report.add_table("mine", pd.DataFrame({"row": range(rows)}), "Mine.")
        report.add_fact("rows", rows)
        report.say("It has rows.")

    model = interp.build("count01/minimal")
    report = interp.analyze(model, sections=["mine"], options={"mine": {"rows": 5}})
    assert list(report.tables) == ["mine"]
    assert report.facts == {"rows": 5}
    assert report.verdict == "It has rows."
    assert "mine" in list(list_sections(model)["section"])
    with pytest.raises(InterpError, match=r"unknown section 'mind'.*did you mean 'mine'"):
        interp.analyze(model, sections=["mind"])
    with pytest.raises(InterpError, match="unknown option of section mine 'row'; known: rows"):
        interp.analyze(model, sections=["mine"], options={"mine": {"row": 5}})


def test_one_member_of_a_task_is_named_by_itself(own: None) -> None:
    @section("of-counted", title="Of counted", task="counted")
    def made(study: Study, report: Report) -> None:
        report.heading("Of counted")

    assert interp.analyze("count01/minimal", sections=["of-counted"]).made
    with pytest.raises(UnsupportedError, match=r"does not apply: task parity declares no counted$"):
        interp.analyze("languages/parity", sections=["of-counted"])


def test_the_table_of_inputs_lists_the_sections_that_are_there(own: None) -> None:
    @section("chooses", title="Chooses", order=1)
    def made(study: Study, report: Report) -> None:
        for name in ("chooses", "heads"):
            study.population(name)
        report.heading("Chooses")

    report = interp.analyze("languages/parity", sections=["chooses", "method"], inputs=20)
    assert list(report.tables["inputs"]["section"]) == ["Chooses"]


def test_needs_and_costs(own: None) -> None:
    @section("never", title="Never", needs=lambda study: "it has no wings")
    def never(study: Study, report: Report) -> None:
        raise AssertionError

    @section("costly", title="Costly", cost=lambda study: 75.4)
    def costly(study: Study, report: Report) -> None:
        report.heading("Costly", "It took long.")

    @section("cheap", title="Cheap", cost=lambda study: 4.9)
    def cheap(study: Study, report: Report) -> None:
        report.heading("Cheap")

    @section("refusing", title="Refusing")
    def refusing(study: Study, report: Report) -> None:
        raise UnsupportedError("three heads are needed")

    model = interp.build("count01/minimal")
    found = list_sections(model).set_index("section")
    assert found.loc["never", ["status", "note"]].tolist() == ["does not apply", "it has no wings"]
    assert found.loc["costly", ["status", "note"]].tolist() == ["on request", "about 75 s"]
    assert found.loc["refusing", "status"] == found.loc["cheap", "status"] == "applies"
    with pytest.raises(UnsupportedError, match="section never does not apply: it has no wings"):
        interp.analyze(model, sections=["never"])
    report = interp.analyze(model, sections=["costly"])
    assert "Costly" in report.html()
    assert report.sections.equals(list_sections(model))
    assert "Not shown: three heads are needed." in interp.analyze(model, sections=["refusing"]).html()


def test_a_section_that_fails_does_not_lose_the_others(own: None, capfd: pytest.CaptureFixture[str]) -> None:
    @section("before", title="Before", order=-2)
    def before(study: Study, report: Report) -> None:
        report.heading("Before", "It begins.")
        raise ZeroDivisionError("division by zero")

    @section("cannot_say", title="Cannot say", order=-1, needs=lambda study: str(1 // 0))
    def cannot_say(study: Study, report: Report) -> None: ...

    @section("after", title="After")
    def after(study: Study, report: Report) -> None:
        report.heading("After", "It is complete.")

    with pytest.warns(RuntimeWarning, match="ZeroDivisionError"):
        report = interp.analyze(interp.load("count01/minimal"), sections=["before", "cannot_say", "after"])
    page = report.html()
    assert "The rest is not shown: it failed with ZeroDivisionError: division by zero." in page
    assert "Not shown: it failed with ZeroDivisionError: integer division or modulo by zero." in page
    assert "It begins." in page
    assert "It is complete." in page
    assert report.title == "count01/minimal"
    assert capfd.readouterr().err.splitlines() == ["report: Before", "report: After"]


def test_sections_of_several_models_side_by_side(own: None) -> None:
    @section("two_heads", title="Two heads", needs=lambda study: None if study.model.cfg.n_heads == 2 else "one head")
    def two_heads(study: Study, report: Report) -> None: ...

    @section("costly", title="Costly", cost=lambda study: 75.4)
    def costly(study: Study, report: Report) -> None: ...

    models = [interp.build("languages/parity"), interp.build("languages/first")]
    table = list_sections(models).set_index("section")
    assert list(table.columns) == ["title", *(f"{model.spec.id}, seed 0" for model in models)]
    assert table.loc["two_heads"].tolist() == ["Two heads", "applies", "no: one head"]
    assert table.loc["costly"].tolist() == ["Costly", *["on request, about 75 s"] * 2]
    with pytest.raises(InterpError, match="no model is given"):
        list_sections([])


def test_a_name_is_taken_once(own: None) -> None:
    with pytest.raises(InterpError, match="a section named 'accuracy' is registered already"):

        @section("accuracy", title="Another")
        def another(study: Study, report: Report) -> None: ...


def test_no_sections_are_no_report() -> None:
    with pytest.raises(InterpError, match="sections is empty: name at least one"):
        base.fill(Study(Subject.of(interp.build("count01/minimal"))), Report("empty"), [])


def test_no_two_sections_have_the_same_heading() -> None:
    root = Path(interp.__file__).parent
    files = [
        *root.glob("report/sections/[a-z]*.py"),
        *root.glob("families/*/sections.py"),
        *root.glob("families/*/sections/*.py"),
    ]
    headings = {path: set(re.findall(r'report\.heading\(\s*"([^"]+)"', path.read_text("utf-8"))) for path in files}
    headings.pop(root / "report" / "sections" / "base.py")  # an example in its docstring
    seen = Counter(heading for each in headings.values() for heading in each)
    assert len(seen) > 30
    assert [heading for heading, n in seen.items() if n > 1] == []


def test_options_ask_for_a_costly_section(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(base, "_SECTIONS", {})

    @section("costly", title="Costly", cost=lambda study: 75.4)
    def costly(study: Study, report: Report, words: str = "") -> None:
        made.append(words)

    monkeypatch.setattr(base, "all_sections", lambda: list(base._SECTIONS.values()))
    base.fill(study, Report("mine"), None, {})
    base.fill(study, Report("mine"), None, {"costly": {"words": "asked for"}})
    assert made == ["asked for"]


def test_a_section_of_more_than_a_day_is_out_of_reach() -> None:
    assert [base.time_needed(seconds) for seconds in (0.2, 71.6, 1e12)] == [
        "about 1 s", "about 72 s", "out of reach: more than a day"
    ]  # fmt: skip
