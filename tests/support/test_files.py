"""Files are written whole or not at all, readable by others, with nothing left beside them."""

import errno
import os
import stat
from pathlib import Path

import pytest

from interp.errors import InterpError
from interp.support.files import no_empty_folder, write_atomically


def test_written_files_are_readable_and_nothing_else_is_left(tmp_path: Path) -> None:
    """A temporary file is its owner's alone: its mode must not become the file's."""
    path = write_atomically(tmp_path / "a.txt", "ä")
    assert path.read_bytes() == "ä".encode()
    assert os.name == "nt" or stat.S_IMODE(path.stat().st_mode) == 0o644
    write_atomically(path, b"second")
    assert path.read_bytes() == b"second"
    assert list(tmp_path.iterdir()) == [path]


def test_the_temporary_file_lies_beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rename within one folder is atomic; from another file system it would fail, or copy."""
    seen: list[Path] = []

    def replace(source: str, target: Path) -> None:
        seen.append(Path(source))
        os.rename(source, target)

    monkeypatch.setattr("interp.support.files.os.replace", replace)
    write_atomically(tmp_path / "a.txt", "a")
    assert seen[0].parent == tmp_path
    assert seen[0].name.startswith(".a.txt-")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_what_breaks_off_leaves_the_old_file_and_nothing_else(
    error: BaseException, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_atomically(tmp_path / "a.txt", "old")

    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(f"interp.support.files.os.{moment}", fail)
    with pytest.raises(KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else InterpError) as found:
        write_atomically(path, "new")
    if isinstance(error, OSError):
        assert str(found.value) == f"cannot write {path}: No space left on device"
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(InterpError, match=r"cannot write .*a\.txt: No such file or directory \(folder .*nothing\)"):
        write_atomically(tmp_path / "nothing" / "a.txt", "a")


@pytest.mark.parametrize("kind", ["folder", "pipe", "device", "link to a device"])
def test_what_is_no_regular_file_stays_what_it_is(kind: str, tmp_path: Path) -> None:
    """A rename would put a regular file in the place of /dev/full; in Windows a device's name is not a path at all."""
    path = tmp_path / "target"
    if kind == "folder":
        path.mkdir()
    elif not hasattr(os, "mkfifo"):
        pytest.skip("Windows has no pipes among its files")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "link to a device":
        path.symlink_to(os.devnull)
    else:
        path = Path(os.devnull)
    before = path.lstat().st_mode
    with pytest.raises(InterpError, match=r"cannot write .*: it exists and is a (folder|device).*, not a regular file"):
        write_atomically(path, "a")
    assert path.lstat().st_mode == before


def test_a_name_of_300_letters_is_one_short_sentence(tmp_path: Path) -> None:
    with pytest.raises(InterpError, match="File name too long") as error:
        write_atomically(tmp_path / ("a" * 300), "a")
    assert len(str(error.value)) < 400
    assert not list(tmp_path.iterdir())


def test_empty_folders_of_a_failed_write_are_removed(tmp_path: Path) -> None:
    new = tmp_path / "a" / "b"

    @no_empty_folder(new)
    def work(*names: str) -> None:
        new.mkdir(parents=True, exist_ok=True)
        for name in names:
            (new / name).touch()
        raise InterpError("no room")

    def fail(*names: str) -> None:
        with pytest.raises(InterpError):
            work(*names)

    fail()
    assert not (tmp_path / "a").exists()
    (tmp_path / "a").mkdir()
    fail()
    assert (tmp_path / "a").exists()
    assert not new.exists()
    fail("kept")
    assert (new / "kept").exists()
