"""The documentation: its Python runs, its commands exist, every page is in the site, every public name is said."""

import ast
import doctest
import inspect
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
import yaml
from browser import browser, find_browser
from typer.testing import CliRunner

import interp
from interp.certificates.certificate import registered_methods
from interp.certificates.certify import options_of
from interp.cli import app
from interp.models.constructions import registered_constructions
from interp.models.model_files import find_checkpoint
from interp.report.glossary import NOTES
from interp.report.sections.base import _SECTIONS

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))


RESULT = r"^print\(.*\)  # ((?:[\d\[]|certified|refuted|undecided|On every).*?)(?:: .*)?$"


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*HookedTransformer is deprecated.*:DeprecationWarning")
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_python_of_a_page_prints_what_it_says(path: Path, monkeypatch, tmp_path, capsys) -> None:
    """A comment behind print() that starts with a number, a list or a verdict is the result; a quote was printed."""
    (tmp_path / "models").symlink_to(ROOT / "models")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    everything = ""
    for block in blocks(path, "python"):
        exec(compile(block, path.name, "exec"), names)
        everything += (printed := capsys.readouterr().out)
        for said in re.findall(RESULT, block, re.MULTILINE):
            assert said in printed, f"{path.name} says {said!r}, printed is {printed!r}"
    assert all(quote in everything for quote in re.findall(r"^> (.*)$", path.read_text("utf-8"), re.MULTILINE))


@pytest.mark.parametrize("path", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda path: path.stem)
def test_its_commands_are_known(path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for line in "".join(blocks(path, "sh")).splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["make"]:
            assert re.search(rf"^{words[1]}:", makefile, re.MULTILINE), line
        if words[:1] == ["python"]:
            script = next(word for word in words[1:] if not word.startswith("-"))
            assert (ROOT / script).is_file() or (ROOT / script / "__main__.py").is_file(), line
        if words[:1] == ["interp"]:
            shown = CliRunner().invoke(app, [words[1], "--help"])
            assert shown.exit_code == 0, line
            known = shown.output + " ".join(
                f"--{name.replace('_', '-')}" for method in registered_methods().values() for name in options_of(method)
            )
            assert all(word in known for word in words[2:] if word.startswith("--")), line


def test_every_page_is_in_the_site() -> None:
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    listed = {value for entry in yaml.safe_load(text)["nav"] for value in entry.values()}
    made = {"index.md", "gallery.md", "reference.md", "notebooks.md", "claims.md"}
    assert listed == made | {path.name for path in PAGES}


def test_every_model_of_the_gallery_is_there() -> None:
    (listed,) = re.findall(
        r"^GALLERY = (\[.*?^\])", (ROOT / "docs" / "hooks.py").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    names = ast.literal_eval(re.sub(r"\*\((.*?)\)", r"\1", listed))
    assert len(names) >= 10
    exact = registered_constructions()
    assert all(name in exact or find_checkpoint(name).is_file() for name in names)


def test_the_glossary_defines_each_word_as_reports_do() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", (ROOT / "docs" / "glossary.md").read_text("utf-8"), re.MULTILINE)
    words = [word.lower() for word, _ in rows if word != "word"]
    assert len(words) == len(set(words)) >= 40
    assert set(NOTES.items()) <= set(rows)


def test_every_public_name_has_a_docstring() -> None:
    assert [name for name in interp.__all__ if not inspect.getdoc(getattr(interp, name))] == []


def test_what_assistants_read_names_files_that_exist() -> None:
    links = re.findall(r"\]\(([^)]+)\)", (ROOT / "llms.txt").read_text("utf-8"))
    assert len(links) >= 5
    assert all((ROOT / link).is_file() for link in links)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*HookedTransformer is deprecated.*:DeprecationWarning")
@pytest.mark.parametrize("name", interp.__all__)
def test_every_public_name_has_an_example_that_runs(name: str, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    text = inspect.getdoc(getattr(interp, name))
    parsed = doctest.DocTestParser().get_doctest(text, {"interp": interp, "torch": torch}, name, None, 0)
    assert parsed.examples
    said: list[str] = []
    found = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(parsed, out=said.append)
    _SECTIONS.pop("docs-size", None)  # the example of `section`
    assert found.failed == 0, "".join(said)


@pytest.mark.slow
@pytest.mark.skipif(find_browser() is None, reason="no Chromium on this machine")
def test_the_site_builds_and_its_search_works_from_disk(monkeypatch, tmp_path) -> None:
    environment = os.environ | {"INTERP_DOCS_QUICK": "1", "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr  # a broken link or an undocumented name would end it
    assert (tmp_path / "site" / "gallery" / "count01-paper.html").is_file()
    from_root = re.compile(r'(?:href|src)="/')  # such a link leads nowhere from disk
    assert [page.name for page in (tmp_path / "site").glob("*.html") if from_root.search(page.read_text("utf-8"))] == []
    with browser() as page:
        page.open(tmp_path / "site" / "index.html")
        field = "document.querySelector('.md-search__input')"
        page.run(f"{field}.focus(); {field}.value = 'certificate'; {field}.dispatchEvent(new KeyboardEvent('keyup'))")
        page.wait("document.querySelectorAll('.md-search-result__item').length > 2", 60)
        foreign = "performance.getEntriesByType('resource').map(one => one.name).filter(name => !/^file:/.test(name))"
        assert page.run(foreign) == []
        assert page.errors == []


def test_how_it_is_built_lists_the_rooms_of_the_import_contract() -> None:
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]["layers"]
    drawn = (ROOT / "docs/how_it_is_built.md").read_text().split("```text\n")[1].split("```")[0]
    rooms = [re.split(r"\s{2,}", line)[0] for line in drawn.splitlines()]
    assert rooms == contract
