"""What a new user trips over: each thing that went wrong once, as they would type it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

import interp
from interp.architecture.problems import model_problems
from interp.errors import InterpError
from interp.progress import LateBar
from interp.spec import Layer, ModelSpec, TaskRef, Training
from interp.tasks import make_task
from interp.training.train import ENGINES

SPEC = ModelSpec(
    task=TaskRef(name="count01"),
    d_model=4,
    layers=(Layer(d_head=2),),
    readout_at="=",
    origin=Training(epochs=2, data="fresh", samples_per_epoch=64, batch_size=32),
)


def interp_cli(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    environment = os.environ | {"PYTHONPATH": path, "NO_COLOR": "1", "COLUMNS": "200"}
    command = [sys.executable, "-W", "ignore", "-m", "interp.cli", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_a_training_is_whole_after_save_and_load(tmp_path: Path) -> None:
    (model,) = interp.train(SPEC, [3], progress=False, folder=tmp_path / "new" / "folder")
    assert model.summary["epochs"] == 2
    assert model.summary["engine"] in ENGINES
    found = interp.load(interp.save(model, tmp_path / "a.safetensors"))
    assert found.summary["engine"] == model.summary["engine"]
    assert list(found.history.columns) == list(model.history.columns)
    assert found.history["epoch"].tolist() == [0, 1, 2]
    np.testing.assert_allclose(found.history["accuracy"], model.history["accuracy"], rtol=1e-4)
    again = interp.save(found, tmp_path / "b.safetensors")
    assert again.read_bytes() == (tmp_path / "a.safetensors").read_bytes()


def test_training_never_replaces_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text(SPEC.to_toml())
    first = interp_cli(tmp_path, "train", "m.toml", "--out", "run")
    assert first.returncode == 0, first.stderr
    assert any(name in first.stdout for name in ENGINES)  # which engine trained
    before = (tmp_path / "run/seed-0.safetensors").read_bytes()
    for extra, words in (((), "would replace it"), (("--resume",), "this run is finished")):
        run = interp_cli(tmp_path, "train", "m.toml", "--out", "run", *extra)
        assert run.returncode == 2
        assert words in run.stderr
    assert (tmp_path / "run/seed-0.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--workers", "0"), "workers = 0"),
        (("--workers", "-1"), "workers = -1"),
        (("--out", "grid.toml"), "is a file"),
    ],
)
def test_dry_runs_check_their_options(tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    (tmp_path / "m.toml").write_text(SPEC.to_toml())
    (tmp_path / "grid.toml").write_text('base = "m.toml"\n')
    run = interp_cli(tmp_path, "sweep", "grid.toml", "--dry-run", *options)
    assert run.returncode == 2, run.stdout
    assert words in run.stderr
    assert "Traceback" not in run.stderr


def test_positions_get_the_sentence_that_is_about_them() -> None:
    task = make_task("count01")
    assert model_problems(SPEC.replace(positions="learned"), task) == [
        "positions = 'learned' needs max_length, the number of positions that have weights"
    ]
    (unknown,) = model_problems(SPEC.replace(positions="rotary"), task)
    assert unknown.startswith("unknown positions 'rotary'; known: none, learned, sinusoidal")


def test_a_spec_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "model.toml").write_text(SPEC.to_toml())
    with pytest.raises(InterpError, match=r"model.toml is a spec, not a checkpoint: interp.build"):
        interp.analyze(tmp_path / "model.toml")


def test_widths_of_nothing_are_named() -> None:
    with pytest.raises(InterpError, match="d_model = 0 must be at least 1"):
        interp.build("histogram/dot-exact", d_model=0)


def test_a_model_shows_itself_in_one_line() -> None:
    text = repr(interp.build("count01/minimal"))
    assert text.startswith("TaskModel(count01-d")
    assert "\n" not in text
    assert "seed=0" in text
    assert "Count01" in text


def test_tokens_as_text() -> None:
    model = interp.build("count01/minimal")
    assert model.to_str_tokens("[BOS]01=") == ["[BOS]", "0", "1", "="]
    ids = model.to_tokens("[BOS]01=")
    assert ids.tolist() == [model.task.parse("[BOS]01=")]
    assert model.to_str_tokens(ids[0]) == ["[BOS]", "0", "1", "="]
    assert model.to_string(ids[0]) == "[BOS]01="
    assert model.to_string(torch.cat([ids, ids])) == ["[BOS]01="] * 2
    assert model.to_single_token("=") == model.task.token_id("=")
    with pytest.raises(InterpError, match="'x' at position 1"):
        model.to_str_tokens("0x")
    with pytest.raises(InterpError, match="one length"):
        model.to_tokens(["[BOS]0=", "[BOS]01="])


def test_no_bar_asks_for_ipywidgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interp.progress.find_spec", lambda name: None)
    monkeypatch.setattr(LateBar, "PATIENCE", -1.0)
    bar = LateBar("x")
    bar.console = Console(force_jupyter=True)
    bar.update(1, 2)
    assert bar.bar is None


def test_rooms_answer_in_a_fresh_python() -> None:
    code = "import interp; interp.measures.subject.Subject; interp.spec.Layer; print('subject' in dir(interp.measures))"
    path = os.pathsep.join(entry for entry in sys.path if entry)
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", code], env=os.environ | {"PYTHONPATH": path},
                         capture_output=True, text=True)  # fmt: skip
    assert run.stdout == "True\n", run.stderr
