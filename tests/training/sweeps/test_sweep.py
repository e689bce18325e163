"""Whole sweeps: the runs are those of interp.train, each is done once, failures are rows, kills change nothing."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import tomli_w
import torch
from sweep_work import small_grid

import interp
from interp import cli
from interp.errors import InterpError
from interp.programs.many.compare import sources_of
from interp.tasks import make_task, registry
from interp.tasks.registry import import_file
from interp.training.sweeps import jobs, table
from interp.training.sweeps.grid import make_grid
from interp.training.sweeps.jobs import failed, jobs_of
from interp.training.sweeps.sweep import _of_grid, estimate
from interp.training.sweeps.table import FILE, RunTable, read_runs

ROOT = Path(__file__).resolve().parent.parent.parent.parent

RESULTS = ["spec_id", "seed", "accuracy", "best_accuracy", "loss", "epochs", "engine", "error", "curve"]
"""Columns that depend on the run alone, not on when and where it was done."""


def curves(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in (folder / "curves").iterdir()}


@pytest.mark.slow
def test_runs_are_those_of_interp_train_and_are_not_done_twice(tmp_path: Path) -> None:
    grid = make_grid(small_grid(axes={"readout_width": [4, 8]}))
    runs = interp.sweep(grid, tmp_path, workers=1)
    assert runs[["readout_width", "seed"]].to_numpy().tolist() == [[4, 0], [4, 1], [8, 0], [8, 1]]
    for cell in grid.cells:
        for model in interp.train(cell.spec, grid.seeds):
            (mine,) = runs[(runs["spec_id"] == cell.spec.id) & (runs["seed"] == model.seed)].to_dict("records")
            history = model.history[model.history["epoch"] > 0]
            assert (mine["loss"], mine["accuracy"]) == tuple(history.iloc[-1][["loss", "accuracy"]])
            assert mine["best_accuracy"] == history["accuracy"].max()
            curve = pd.read_csv(tmp_path / mine["curve"])
            assert curve["loss"].to_list() == pytest.approx(history["loss"].to_list(), rel=1e-6)
            assert curve["epoch"].to_list() == [1, 2, 3]
    before = (tmp_path / FILE).read_bytes()
    pd.testing.assert_frame_equal(interp.sweep(grid, tmp_path), runs)
    assert (tmp_path / FILE).read_bytes() == before
    # A grid that has grown does what is new; what the table has beyond the grid stays.
    more = interp.sweep(make_grid(small_grid(axes={"readout_width": [8, 2]}, seeds=1)), tmp_path, workers=1)
    assert more[["readout_width", "seed"]].to_numpy().tolist() == [[8, 0], [2, 0]]
    assert (tmp_path / FILE).read_bytes().startswith(before)
    assert len(read_runs(tmp_path)) == 5
    with pytest.raises(InterpError, match="has a table of 5 runs; continue it with resume"):
        interp.sweep(grid, tmp_path, resume=False)


def test_longest_jobs_come_first_and_stacked_seeds_together() -> None:
    axes = {"readout_width": [2, 64], "origin.samples_per_epoch": [200, 100_000]}
    jobs = jobs_of(make_grid(small_grid(axes=axes)), {})
    assert [job.axes["origin.samples_per_epoch"] for job in jobs] == [100_000] * 4 + [200] * 4
    assert [job.axes["readout_width"] for job in jobs[:4]] == [64, 64, 2, 2]
    untrained = make_grid(small_grid(epochs=0))
    assert all(job.work > 0 for job in jobs_of(untrained, {}))
    counting = {"base": "models/count01/paper/model.toml", "seeds": 70}
    # 8192 rows a step in batches of 128 are 64 models.
    assert [len(job.seeds) for job in jobs_of(make_grid(counting, folder=ROOT), {})] == [64, 6]


def test_bad_input_leaves_no_folder(tmp_path: Path, monkeypatch, capsys) -> None:
    with pytest.raises(InterpError, match="workers = 0 must be an integer of at least 1"):
        interp.sweep(make_grid(small_grid()), tmp_path / "out", workers=0)
    grid = tmp_path / "grid.toml"
    grid.write_text(tomli_w.dumps(small_grid(axes={"readout_width": [0], "d_modl": [1]}, seeds=[])))
    assert shell(monkeypatch, grid, "-o", tmp_path / "out") == 2
    assert "seeds = []: the grid has no runs" in capsys.readouterr().err
    grid.write_text(tomli_w.dumps(small_grid(axes={"readout_width": [0], "d_modl": [1]})))
    assert shell(monkeypatch, grid, "-o", tmp_path / "out") == 2
    printed = capsys.readouterr().err
    assert "readout_width = 0" in printed
    assert "unknown field 'd_modl'" in printed
    assert not (tmp_path / "out").exists()


def shell(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """`interp sweep ...` in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["interp", "sweep", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return stop.value.code


@pytest.mark.slow
def test_a_failing_run_is_a_row_and_is_tried_again(tmp_path: Path, monkeypatch, capsys) -> None:
    grid, out = tmp_path / "grid.toml", tmp_path / "out"
    grid.write_text(tomli_w.dumps(small_grid(axes={"task.parameters.T": [3, 8]}, seeds=1)))  # 3 tokens, 5 positions
    assert shell(monkeypatch, grid, "-o", out, "--workers", 1) == 1
    printed = capsys.readouterr()
    assert "need an alphabet of T >= 5, not T = 3" in printed.out
    assert "1 of 2 runs are in" in printed.err
    runs = read_runs(out)
    assert runs.set_index("task.parameters.T")["error"].str.contains("alphabet").to_dict() == {3: True, 8: False}
    assert runs["accuracy"].notna().sum() == 1
    assert shell(monkeypatch, grid, "-o", out) == 2
    assert "continue it with resume (--resume)" in capsys.readouterr().err
    assert shell(monkeypatch, grid, "-o", out, "--workers", 1, "--resume", "--format", "csv") == 1
    assert capsys.readouterr().out.startswith("task.parameters.T,seed,accuracy")
    assert len((out / FILE).read_text().splitlines()) == 3  # the good run was not done again


def test_a_diverged_run_is_a_row_with_an_error_and_no_accuracy() -> None:
    grid = make_grid(small_grid(axes={"origin.learning_rate": [1e30, 1e-3]}, engine="reference", seeds=1))
    wild, tame = (jobs.run_job(job)[0] for job in jobs_of(grid, {}))
    assert wild.row["error"].startswith("diverged: its loss is nan after epoch 1, and its weights")
    assert (wild.row["accuracy"], wild.row["best_accuracy"], wild.row["loss"], wild.loss) == (None, None, None, [])
    assert tame.row["error"] == ""
    assert len(tame.loss) == 3


OWN_TASK = """
import interp
@interp.register_task
class Own(interp.families.languages.Parity):
    "Parity under another name."
    name = "own-of-a-sweep"
"""


def test_a_worker_knows_a_users_own_task(tmp_path: Path) -> None:
    file = tmp_path / "own_task_of_a_sweep.py"
    file.write_text(OWN_TASK)
    base = {"d_model": 4, "direction": "bidirectional", "task": {"name": "own-of-a-sweep"}, "layers": [{"d_head": 4}]}
    base |= {"readout": "scalar", "readout_at": "first", "decision": "sigmoid"}
    base |= {"origin": {"kind": "training", "data": "fresh", "samples_per_epoch": 8, "batch_size": 8}}
    try:
        import_file(file)
        (job,) = jobs_of(make_grid(small_grid(base=base, axes={}, engine="reference", seeds=1)), {})
        registry._REGISTRY.pop("own-of-a-sweep")  # as in a worker that starts
        (outcome,) = jobs.run_job(job)
        assert outcome.row["error"] == ""
        assert len(outcome.loss) == 3
    finally:
        registry._REGISTRY.pop("own-of-a-sweep", None)
        sys.modules.pop(file.stem, None)


def test_rows_stand_under_the_axes_of_the_grid_that_asks(tmp_path: Path) -> None:
    width = {"fields": ["readout_width"], "values": [4, 8]}
    first, second = (make_grid(small_grid(axes={name: width}, seeds=1)) for name in ("p", "width"))
    with RunTable(tmp_path) as table:
        table.append([failed(job, "")[0].row for job in jobs_of(first, {})])
        rows = _of_grid(second, table.rows)
    assert [row["axes"] for row in rows] == [{"width": 4}, {"width": 8}]


def test_an_interrupted_sweep_says_how_to_resume_and_exits_130(tmp_path: Path, monkeypatch, capsys) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text(tomli_w.dumps(small_grid(seeds=3)))

    def interrupt(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(interp, "sweep", interrupt)
    given = ("-o", tmp_path / "out", "--only", "readout_width=4", "--seeds", "0,2", "--workers", 3, "--device", "cpu")
    assert shell(monkeypatch, grid, *given) == 130
    said = f"interp sweep {grid} {' '.join(map(str, given))} --resume"
    assert said in capsys.readouterr().err.replace("\n", "")


@pytest.mark.parametrize(("error", "code"), [("", 0), ("no memory", 1)])
def test_the_exit_code_says_whether_a_run_failed(error: str, code: int, tmp_path: Path, monkeypatch, capsys) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text(tomli_w.dumps(small_grid()))
    runs = pd.DataFrame({"readout_width": [4], "seed": [0], "error": [error]})
    monkeypatch.setattr(interp, "sweep", lambda *arguments, **options: runs)
    assert shell(monkeypatch, grid, "-o", tmp_path / "out", "--workers", 1) == code
    assert f"{1 - code} of 1 runs are in" in capsys.readouterr().err


def test_a_table_is_continued_only_with_resume(tmp_path: Path) -> None:
    """All runs are in the table, so nothing is trained: with resume it is given back, without it is refused."""
    grid = make_grid(small_grid(axes={"readout_width": [4]}))
    with RunTable(tmp_path) as table:
        for job in jobs_of(grid, {}, "cpu"):
            table.append([{**outcome.row, "error": ""} for outcome in failed(job, "")])
    runs = interp.sweep(grid, tmp_path, workers=1, progress=False)
    assert runs["seed"].to_list() == [0, 1]
    with pytest.raises(InterpError, match="has a table of 2 runs; continue it with resume"):
        interp.sweep(grid, tmp_path, workers=1, resume=False, progress=False)


def test_runs_of_other_settings_are_not_continued(tmp_path: Path) -> None:
    """The columns of a table are the grid's axes, so a mean over a cell would mix runs of 3 and of 4 epochs."""
    with RunTable(tmp_path) as table:
        for job in jobs_of(make_grid(small_grid(axes={"readout_width": [4]})), {}, "cpu"):
            table.append([{**outcome.row, "error": ""} for outcome in failed(job, "")])
    other = make_grid(small_grid(axes={"readout_width": [4]}, epochs=4))
    for run in (interp.sweep, estimate):
        with pytest.raises(InterpError, match=r"runs of another grid: origin\.epochs was 3, now 4; choose another"):
            run(other, tmp_path)


def test_runs_of_a_task_with_other_labels_are_not_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of a task may be changed between two runs of one grid; rows from before this was noticed go on."""
    grid = make_grid(small_grid(axes={"readout_width": [4]}))
    with RunTable(tmp_path) as table:
        for job in jobs_of(grid, {}, "cpu"):
            table.append([{**outcome.row, "error": ""} for outcome in failed(job, "")])
    kind = type(make_task(grid.cells[0].spec.task))
    sample = kind.sample
    monkeypatch.setattr(kind, "sample", lambda self, n, split, seed=0: replace(
        batch := sample(self, n, split, seed), labels=batch.labels.flip(0)))  # fmt: skip
    for run in (interp.sweep, estimate):
        with pytest.raises(
            InterpError, match=r"has runs of task histogram with other inputs or labels than it has now"
        ):
            run(grid, tmp_path)
    lines = [json.loads(line) for line in (tmp_path / FILE).read_text().splitlines()]
    older = [json.dumps({name: value for name, value in line.items() if name != "inputs"}) for line in lines]
    (tmp_path / FILE).write_text("\n".join(older) + "\n")
    assert len(interp.sweep(grid, tmp_path, workers=1, progress=False)) == 2


@pytest.mark.slow
def test_a_full_disk_stops_a_sweep_that_then_goes_on(tmp_path: Path, monkeypatch) -> None:
    grid = make_grid(small_grid(axes={"readout_width": [4, 8, 16]}, seeds=2))
    write = table.write_at

    def disk_of_4000_bytes(handle: int, data: bytes, offset: int) -> int:
        if (room := 4000 - offset) <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(handle, data[:room], offset)

    with monkeypatch.context() as patch:
        patch.setattr(table, "write_at", disk_of_4000_bytes)
        with pytest.raises(InterpError, match=r"No space left on device; the \d runs before are kept"):
            interp.sweep(grid, tmp_path, workers=1, progress=False)
    kept = (tmp_path / FILE).read_bytes()
    assert 0 < len(read_runs(tmp_path)) < 6
    assert kept.endswith(b"\n")
    assert len(interp.sweep(grid, tmp_path, workers=1, progress=False)) == 6
    assert (tmp_path / FILE).read_bytes().startswith(kept)
    assert (tmp_path / FILE).read_bytes().count(b"\n") == 6


def test_a_dry_run_counts_and_writes_nothing(tmp_path: Path) -> None:
    found = estimate(make_grid(small_grid()), tmp_path / "out")
    assert (found.cells, found.runs, found.left) == (6, 12, 12)
    assert 20_000 < found.disk < 50_000
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_sweep_killed_at_random_ends_with_the_same_table(tmp_path: Path) -> None:
    axes = {"readout_width": list(range(1, 11)), "d": {"fields": ["d_model", "layers.0.d_head"], "values": [2, 4]}}
    grid = tmp_path / "grid.toml"
    grid.write_text(tomli_w.dumps(small_grid(axes=axes, epochs=8)))
    undisturbed = interp.sweep(grid, tmp_path / "calm", workers=1, progress=False)
    assert len(undisturbed) == 40

    table, moments, kept = tmp_path / "killed" / FILE, random.Random(4), b""
    command = ["interp", "sweep", str(grid), "-o", str(table.parent), "--resume", "--workers"]
    for workers in (1, 2, 1, 2, 1):
        # A run is four calls: sync and rename of its curve, write and sync of its row.
        call = moments.randint(1, 30)
        died = subprocess.run(
            [sys.executable, str(ROOT / "tests" / "sweep_work.py"), str(call), *command, str(workers)],
            stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        assert died.returncode == -signal.SIGKILL
        after = table.read_bytes()
        assert after.startswith(kept)  # nothing that was finished is lost
        kept = after[: after.rfind(b"\n") + 1]
    assert 0 < kept.count(b"\n") < 40
    resumed = interp.sweep(grid, table.parent, workers=2, progress=False)
    whole = table.read_bytes()
    assert whole.startswith(kept)
    assert whole.count(b"\n") == 40  # nothing was done twice
    pd.testing.assert_frame_equal(resumed[RESULTS], undisturbed[RESULTS], check_exact=True)
    assert curves(table.parent) == curves(tmp_path / "calm")


@pytest.mark.slow
def test_fast_workers_never_load_transformer_lens_or_pandas() -> None:
    code = """
import sys, dataclasses
from interp.models.spec import ModelSpec
from interp.training.sweeps.pool import run_here
from interp.training.sweeps.jobs import Job, run_job
from sweep_work import small_grid
count01 = ModelSpec.from_toml("models/count01/paper/model.toml")
count01 = count01.replace(origin=count01.training.model_copy(update={"epochs": 1}))
histogram = ModelSpec.from_dict(small_grid()["base"])
histogram = histogram.replace(origin=histogram.training.model_copy(update={"epochs": 1}))
for spec in (count01, histogram):
    (outcome,) = run_job(Job(spec.to_dict(), spec.id, (0,), 1))
    assert not outcome.row["error"], outcome.row
    print(outcome.row["engine"], sys.modules["torch"].get_num_threads())
print(*sorted({"transformer_lens", "pandas", "sklearn", "plotly"} & set(sys.modules)))
"""
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *sys.path]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env={**os.environ, **paths}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["count-space 1", "fused 1", ""]


@pytest.mark.slow
def test_a_sweep_keeps_models_that_can_be_compared(tmp_path: Path) -> None:
    grid = make_grid(small_grid(axes={"readout_width": [4]}))
    interp.sweep(grid, tmp_path, workers=1, progress=False)
    with pytest.raises(InterpError, match="the sweep kept no models: repeat it with models=True"):
        sources_of(tmp_path)
    assert (estimate(grid, tmp_path).left, estimate(grid, tmp_path, models=True).left) == (0, 2)
    runs = interp.sweep(grid, tmp_path, workers=1, models=True, progress=False)
    found = sources_of(tmp_path)
    assert [(one.name, one.axes) for one in found] == [
        (f"models/readout_width=4/seed-{seed}", {"readout_width": 4}) for seed in (0, 1)
    ]
    for one, model in zip(found, interp.train(grid.cells[0].spec, grid.seeds, progress=False)):
        kept = one.load()
        assert kept.seed == model.seed
        assert kept.summary["accuracy"] == runs.set_index("seed")["accuracy"][model.seed]
        assert all(map(torch.equal, kept.parameters(), model.parameters()))
    before = (tmp_path / FILE).read_bytes()
    interp.sweep(grid, tmp_path, workers=1, models=True, progress=False)
    assert (tmp_path / FILE).read_bytes() == before
