"""The durable table: torn lines, full disks, two writers, rows that are no rows."""

import json
import os
import signal
import stat
from pathlib import Path

import pytest

from interp.errors import InterpError
from interp.training.sweeps.jobs import Job, failed
from interp.training.sweeps.table import FILE, LOCK, RunTable, read_rows, read_runs


def a_row(name: str, seed: int = 0, **fields: object) -> dict:
    job = Job(spec={"d_model": 3, "layers": [{"d_head": 2}, {"d_head": 5}]}, spec_id=name, seeds=(seed,), epochs=1)
    return {**failed(job, "")[0].row, "axes": {"d": 3}, **fields}


def test_rows_come_back_as_a_tidy_table(tmp_path: Path) -> None:
    with RunTable(tmp_path) as table:
        table.append([a_row("b", 1, accuracy=0.5, error="it failed")])
        table.append([a_row("b", 1, accuracy=0.75), a_row("a", accuracy=None)])
        assert set(table.rows) == {("b", 1), ("a", 0)}
    frame = read_runs(tmp_path)
    assert frame["spec_id"].to_list() == ["b", "a"]
    assert frame["accuracy"].fillna(-1).to_list() == [0.75, -1]
    assert frame["error"].to_list() == ["", ""]  # the later row of a run counts
    assert frame["spec.layers.1.d_head"].to_list() == [5, 5]
    assert frame.columns[0] == "d"
    assert "version.torch" in frame.columns


@pytest.mark.parametrize("step", [37, pytest.param(7, marks=pytest.mark.slow)])
def test_a_table_cut_at_any_byte_is_its_whole_lines_and_goes_on(tmp_path: Path, step: int) -> None:
    rows = [a_row(name, loss=value) for name, value in (("a", 0.1), ("b", 1 / 3), ("ü", 2.0))]
    with RunTable(tmp_path) as table:
        for row in rows:
            table.append([row])
    whole = (tmp_path / FILE).read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(0, len(whole) + 1, step):
        (tmp_path / FILE).write_bytes(whole[:cut])
        kept = sum(end <= cut for end in ends)
        assert read_rows(tmp_path / FILE) == (rows[:kept], ([0, *ends])[kept])
        with RunTable(tmp_path) as table:
            assert list(table.rows.values()) == rows[:kept]
            table.append(rows[kept:])
        assert (tmp_path / FILE).read_bytes() == whole


def test_a_torn_line_with_zero_bytes_is_cut_off(tmp_path: Path) -> None:
    """What some file systems leave after a power failure."""
    with RunTable(tmp_path) as table:
        table.append([a_row("a")])
    with (tmp_path / FILE).open("ab") as file:
        file.write(bytes(5000))  # longer than the row that is written over them
    with RunTable(tmp_path) as table:
        table.append([a_row("b")])
    assert read_runs(tmp_path)["spec_id"].to_list() == ["a", "b"]
    assert (tmp_path / FILE).read_bytes().endswith(b"\n")


@pytest.mark.parametrize("line", ["[]", "{}", "not JSON", '{"spec_id": "a", "seed": 0}', "\0"])
def test_a_whole_line_that_is_no_row_is_refused(line: str, tmp_path: Path) -> None:
    with RunTable(tmp_path) as table:
        table.append([a_row("a")])
    with (tmp_path / FILE).open("a") as file:
        file.write(line + "\n")
    before = (tmp_path / FILE).read_bytes()
    for use in (RunTable(tmp_path).__enter__, lambda: read_runs(tmp_path)):
        with pytest.raises(InterpError, match=r"line 2 of .*runs.jsonl is not a row"):
            use()
    assert (tmp_path / FILE).read_bytes() == before


def test_no_room_leaves_the_table_as_it_was(tmp_path: Path) -> None:
    """A limit on the size of files is as good as a full disk: the write stops in the middle of a line."""
    resource = pytest.importorskip("resource", reason="Windows has no limit on the size of a process's files")
    limits, old = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with RunTable(tmp_path) as table:
            table.append([a_row("a")])
            before = (tmp_path / FILE).read_bytes()
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, limits[1]))
            with pytest.raises(InterpError, match=r"cannot write .*runs.jsonl: File too large; the 1 runs before"):
                table.append([a_row("b")])
            assert (tmp_path / FILE).read_bytes() == before
            with pytest.raises(InterpError, match=r"cannot write .*curves.*File too large"):
                table.save_curve(a_row("b"), [1.0] * 1000, [1.0] * 1000)
            assert not list((tmp_path / "curves").iterdir())
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            table.append([a_row("b")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, old)
    assert read_runs(tmp_path)["spec_id"].to_list() == ["a", "b"]


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with RunTable(tmp_path) as table:
        with pytest.raises(InterpError, match=r"another sweep is writing to .* \(process \d+ on "):
            RunTable(tmp_path).__enter__()
        table.append([a_row("a")])
        assert len(read_runs(tmp_path)) == 1  # readers need no lock
    with RunTable(tmp_path) as table:
        assert len(table.rows) == 1


def test_leftovers_of_a_crash_are_removed(tmp_path: Path) -> None:
    (tmp_path / "curves").mkdir()
    (tmp_path / "curves" / ".a-seed-0.csv-x1.tmp").write_text("epo")
    with RunTable(tmp_path) as table:
        assert table.save_curve(a_row("a"), [0.5, 0.25], [0.0, 1 / 3]) == "curves/a-seed-0.csv"
    assert [file.name for file in (tmp_path / "curves").iterdir()] == ["a-seed-0.csv"]
    assert (tmp_path / "curves" / "a-seed-0.csv").read_text() == "epoch,loss,accuracy\n1,0.5,0\n2,0.25,0.3333333\n"


def test_a_folder_that_cannot_be_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InterpError, match=r"cannot write to .*file"):
        RunTable(tmp_path / "file").__enter__()
    with pytest.raises(InterpError, match="no table of a sweep"):
        read_runs(tmp_path)


def test_lines_are_json_that_others_can_read(tmp_path: Path) -> None:
    with RunTable(tmp_path) as table:
        table.append([a_row("a", loss=0.1)])
        with pytest.raises(ValueError, match="JSON"):
            table.append([a_row("b", loss=float("nan"))])
    (line,) = (tmp_path / FILE).read_text().splitlines()
    assert json.loads(line)["loss"] == 0.1


def test_parts_of_a_grid_that_were_run_apart_are_one_table(tmp_path: Path) -> None:
    with RunTable(tmp_path / "one") as table:
        table.append([a_row("a", 0, accuracy=0.5), a_row("b", 0, accuracy=0.25)])
    with RunTable(tmp_path / "two") as table:
        table.append([a_row("a", 1, accuracy=0.75), a_row("b", 0, error="it failed")])
    frame = read_runs(tmp_path / "one", tmp_path / "two").set_index(["spec_id", "seed"])
    assert frame["accuracy"].to_dict() == {("a", 0): 0.5, ("b", 0): 0.25, ("a", 1): 0.75}


def test_others_may_read_who_is_writing(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with RunTable(tmp_path):
            assert stat.S_IMODE((tmp_path / LOCK).stat().st_mode) == 0o644
    finally:
        os.umask(before)
