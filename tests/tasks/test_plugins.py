"""Tasks of installed packages: found by their entry point, and one that fails does not stop the others."""

import sys
from pathlib import Path

import pytest

import interp
from interp.tasks import registry

TASK = """
import interp
@interp.register_task
class Installed(interp.families.languages.Parity):
    "Parity under another name."
    name = "installed-test"
"""


def installed(folder: Path, package: str, source: str) -> None:
    """What an installer leaves behind: a module, and metadata that name it."""
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (folder / f"{package}.py").write_text(source, "utf-8")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", "utf-8")
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\nmine = {package}\n", "utf-8")


def test_an_installed_package_brings_its_tasks(tmp_path, monkeypatch) -> None:
    installed(tmp_path, "broken_tasks_of_a_test", "raise RuntimeError('half installed')")
    installed(tmp_path, "tasks_of_a_test", TASK)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        with pytest.warns(UserWarning, match="mine = broken_tasks_of_a_test could not be imported: RuntimeError: half"):
            registry.load_installed()
        assert "installed-test" in list(interp.list_tasks()["name"])
        assert registry.make_task("installed-test").sample(3).labels.dtype.is_floating_point is False
    finally:
        registry._REGISTRY.pop("installed-test", None)
        sys.modules.pop("tasks_of_a_test", None)


def test_a_task_says_which_file_registers_it() -> None:
    assert registry.file_of(interp.families.languages.Parity) is None  # every process has ours
    assert registry.file_of(InAFile) == Path(__file__).resolve()
    at_a_prompt = type(
        "Prompted", (interp.families.languages.Parity,), {"__module__": "of_no_file", "name": "prompted"}
    )
    with pytest.raises(interp.InterpError, match="task prompted is defined at a prompt or in a notebook"):
        registry.file_of(at_a_prompt)


class InAFile(interp.families.languages.Parity):
    name = "in-a-file"
