"""The command line: tables in three formats, one sentence for bad input, exit codes."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
from command_line import run
from typer.testing import CliRunner

import interp
from interp import cli

ROOT = Path(__file__).resolve().parent.parent.parent
SHORT = """
schema = 1
d_model = 4
readout_at = "="
layers = [{ n_heads = 2, d_head = 2 }]
[task]
name = "count01"
[origin]
kind = "training"
epochs = 1
batch_size = 1000
"""


@pytest.fixture(autouse=True)
def _in_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_tables_in_three_formats() -> None:
    code, out, _ = run("models", "--format", "json")
    assert code == 0
    assert {"count01/paper", "count01/minimal"} <= {row["name"] for row in json.loads(out)}
    code, out, _ = run("tasks", "--format", "csv")
    assert out.splitlines()[0].startswith("name")
    code, out, _ = run("tasks")
    assert "count01" in out


def test_a_line_of_80_characters_for_each_model_and_task() -> None:
    for command in ("models", "tasks"):
        _, out, _ = run(command, terminal=True)
        _, long, _ = run(command, "--long")
        lines = re.sub(r"\x1b\[[0-9]*m", "", out).splitlines()
        assert max(map(len, lines)) <= 80
        rows = json.loads(run(command, "--format", "json")[1])
        assert len(lines) == len(rows) + 1
        piped = run(command)[1]
        assert all(" ".join(row["about"].split()) in piped for row in rows)
        assert max(map(len, long.splitlines())) > 80
        if command == "models":
            states = {line.split()[0]: line.split()[1] for line in piped.splitlines()[1:]}
    assert (states["count01/minimal"], states["count01/paper"]) == ("proved", "refuted")
    assert "\x1b" not in run("certify", "languages/one", "--longest", "3")[1]  # colors are for terminals


def test_version_and_help() -> None:
    assert run("--version")[1] == f"interp {interp.__version__}\n"
    shown = CliRunner().invoke(cli.app, ["--help"]).output
    for command in ("tasks", "models", "train", "analyze", "certify"):
        assert command in shown


def test_train_keeps_snapshots_and_history(tmp_path: Path) -> None:
    text = (ROOT / "models" / "algorithmic" / "modular-addition" / "model.toml").read_text("utf-8")
    for large, small in (("d_mlp = 512", "d_mlp = 4"), ("epochs = 800", "epochs = 3"), ("d_head = 32", "d_head = 2")):
        text = text.replace(large, small)
    (tmp_path / "model.toml").write_text(text, "utf-8")
    given = ("train", str(tmp_path / "model.toml"), "-o", str(tmp_path / "runs"), "--history")
    code, _, _ = run(*given, "--snapshots", "0,2")
    assert code == 0
    history = pd.read_csv(tmp_path / "runs" / "history.csv")
    assert history["epoch"].tolist() == [0, 1, 2, 3]
    curve = interp.load(tmp_path / "runs" / "seed-0.safetensors").history
    assert curve["epoch"].tolist() == [0, 1, 2, 3]
    folder = tmp_path / "runs" / "seed-0"
    assert {path.stem for path in folder.iterdir()} == {"epoch-0", "epoch-2"}
    first, last = interp.load(folder / "epoch-0.safetensors"), interp.load(tmp_path / "runs" / "seed-0.safetensors")
    assert torch.equal(first.embed.W_E, interp.build(first.spec, seed=0).embed.W_E)
    assert not torch.equal(first.embed.W_E, last.embed.W_E)
    code, _, err = run(*given, "--snapshots", "many")
    assert (code, err.strip()) == (2, "interp: --snapshots many: give epochs, such as 0,100,200")


def test_train_writes_checkpoints_and_skips_a_finished_run(tmp_path: Path) -> None:
    (tmp_path / "model.toml").write_text(SHORT)
    code, out, _ = run(
        "train", str(tmp_path / "model.toml"), "--seeds", "2", "-o", str(tmp_path / "runs"), "--format", "json"
    )
    assert code == 0
    rows = json.loads(out)
    assert [row["seed"] for row in rows] == [0, 1]
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == ["seed-0.safetensors", "seed-1.safetensors"]
    assert interp.load(rows[1]["checkpoint"]).seed == 1
    code, _, err = run("train", str(tmp_path / "model.toml"), "--seeds", "3", "-o", str(tmp_path / "runs"), "--resume")
    assert code == 2
    assert "this run is finished" in err
    assert len(err.splitlines()) == 1


def test_a_seed_that_diverged_is_said_and_not_kept(tmp_path: Path) -> None:
    (tmp_path / "model.toml").write_text(SHORT + "learning_rate = 1e30\n")
    code, out, err = run("train", str(tmp_path / "model.toml"), "-o", str(tmp_path / "runs"))
    assert (code, out) == (1, "")
    assert "seed 0 diverged: its loss is nan after epoch 1, and its weights are not finite" in err
    assert not list(tmp_path.glob("runs/*"))


def test_analyze_writes_a_page_and_prints_the_verdict(tmp_path: Path) -> None:
    code, out, err = run(
        "analyze", "count01/minimal", "-o", str(tmp_path / "page.html"), "--sections", "question,accuracy"
    )
    assert code == 0
    assert "Proved right on all of the 502,500 inputs" in out
    assert "wrote" in err
    assert "count01/minimal" in (tmp_path / "page.html").read_text("utf-8")


def test_explain_prints_the_program_or_writes_it_to_a_file(tmp_path: Path) -> None:
    code, whole, _ = run("explain", "histogram/dot-exact")
    assert code == 0
    assert "def answer(tokens):" in whole
    code, out, err = run("explain", "histogram/dot-exact", "--out", str(tmp_path / "e.json"))
    assert code == 0
    assert out.startswith("Explained")
    assert whole.startswith(out.strip())
    assert "def " not in out
    assert err.strip() == f"wrote {tmp_path / 'e.json'}, with the program"
    read = interp.Explanation.from_json((tmp_path / "e.json").read_text("utf-8"))
    assert read.source in whole


@pytest.mark.slow
def test_several_checkpoints_make_a_comparison(tmp_path: Path) -> None:
    code, out, _ = run(
        "analyze", "count01/minimal", "count01/paper", "-o", str(tmp_path / "p.html"), "--format", "json"
    )
    assert code == 0
    assert [row["certificate"] for row in json.loads(out)] == ["certified", "refuted"]


@pytest.mark.slow
def test_certify_in_another_number_format_with_its_notes(tmp_path: Path) -> None:
    """A trained model that is right on all 32^10 sequences; of a narrow exact one float32 might round answers away."""
    code, out, _ = run("certify", "histogram/bos-all-counts", "--seconds", "10")
    assert code == 0
    assert "certified on 1,125,899,906,842,624 inputs" in out
    path = interp.save(interp.build("histogram/dot-softmax-exact", d_model=6), tmp_path / "narrow.safetensors")
    code, out, _ = run("certify", str(path), "--dtype", "float64", "--seconds", "2")
    assert code == 0
    code, out, _ = run("certify", str(path), "--dtype", "float32", "--seconds", "2")
    assert code == 3
    assert "do not exceed the rounding bound of float32" in out


HOSTILE: dict[str, tuple[tuple[str, ...], str]] = {
    "nan": (("histogram/dot-exact", "--seconds", "nan"), "seconds = nan must be a finite number"),
    "inf": (("histogram/dot-exact", "--seconds", "1e400"), "seconds = inf must be a finite number"),
    "negative": (("histogram/dot-exact", "--seconds", "-1"), "must not be negative"),
    "divergence": (("memorization/lookup", "--max-kl", "-1"), "max_kl = -1.0 must not be negative"),
    "no path": (("count01/minimal", "--evidence", ""), "'': evidence is a .json or a .json.gz file"),
    "no folder": (("count01/minimal", "--evidence", "missing/p.json"), "p.json cannot be written: there is no folder"),
    "a folder": (("count01/minimal", "--evidence", "p.json"), "p.json cannot be written: it is a folder"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_certify_refuses_in_one_sentence_before_it_computes(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.json").mkdir()
    words, sentence = HOSTILE[what]
    code, out, err = run("certify", *words)
    assert (code, out, err.strip().count("\n")) == (2, "", 0)
    assert sentence in err
    assert [path.name for path in tmp_path.iterdir()] == ["p.json"]


def test_what_was_certified_is_told_where_it_has_no_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interp.certificates.evidence._WRITERS", {})
    code, out, err = run("certify", "languages/one", "--longest", "3", "--evidence", str(tmp_path / "p.json"))
    assert code == 2
    assert "certified on 14 inputs" in out
    assert "has no evidence" in err
    assert not list(tmp_path.iterdir())


def test_certify_writes_evidence(tmp_path: Path) -> None:
    path = tmp_path / "proof.json.gz"
    code, _, err = run("certify", "languages/one", "--longest", "6", "--evidence", str(path))
    assert (code, str(path) in err.replace("\n", "")) == (0, True)
    assert path.read_bytes()[:2] == b"\x1f\x8b"
    assert run("certify", "languages/one", "--evidence", "proof.txt")[0] == 2


@pytest.mark.parametrize(("name", "expected"), [("count01/minimal", 0), ("memorization/bigram", 1)])
def test_certify_has_the_exit_code_of_its_status(name: str, expected: int) -> None:
    code, out, _ = run("certify", name, "--format", "csv")
    assert code == expected
    assert len(pd.read_csv(__import__("io").StringIO(out))) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["analyze", "count01/papr"], "count01/paper"),
        (["analyze", "nowhere.safetensors"], "nowhere.safetensors"),
        (["analyze", "count01/paper", "-o", "no/such/folder/r.html"], "the folder no/such/folder does not exist"),
        (["certify", "count01/paper", "--box", "tset"], "unknown box of task count01 'tset'"),
        (
            ["certify", "count01/paper", "--seconds", "3"],
            "count box: unknown option '--seconds'; known: --box, --question",
        ),
        (["train", "nowhere.toml"], "no such file: nowhere.toml"),
        (["train", "models/count01/paper/model.toml", "--seeds", "0"], "--seeds 0: give at least 1"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(arguments: list[str], sentence: str) -> None:
    code, out, err = run(*arguments)
    assert code == 2
    assert sentence in err
    assert err.startswith("interp: ")
    assert "Traceback" not in err
    assert out == ""


def test_a_spec_with_problems_lists_them_all(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(
        SHORT.replace("d_model = 4", "d_model = -4").replace("epochs = 1", "epochs = -1")
    )
    code, _, err = run("train", str(tmp_path / "bad.toml"))
    assert code == 2
    assert "d_model = -4" in err
    assert "epochs = -1" in err


@pytest.mark.slow
def test_as_a_program() -> None:
    """A wrong name costs no import of what takes seconds."""
    command = [sys.executable, "-X", "importtime", "-m", "interp", "certify", "x/y"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert len([line for line in lines if not line.startswith("import time:")]) == 1
    assert not [line for line in lines if "transformer_lens" in line or "numba" in line]


def test_python_dash_m_is_the_command_line() -> None:
    run = subprocess.run([sys.executable, "-m", "interp", "--help"], capture_output=True, text=True, check=True)
    assert "analyze" in run.stdout


def test_an_interrupt_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def stopped() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("interp.models.listing.model_rows", stopped)
    monkeypatch.setattr(sys, "argv", ["interp", "models"])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 130
    assert capsys.readouterr().err == "interp: models was interrupted, so nothing was written\n"


@pytest.mark.parametrize(("saved", "said"), [
    ("a row\n", "interp: compare was interrupted; the same command goes on from "),
    ("", "interp: compare was interrupted, so nothing was written"),
])  # fmt: skip
def test_an_interrupted_compare_says_whether_it_goes_on(
    saved: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(models: str, out: Path, *rest: object, **more: object) -> None:
        (out / "compared.jsonl").write_text(saved)
        raise KeyboardInterrupt

    monkeypatch.setattr(interp, "compare", stopped)
    code, _, err = run("compare", "models", "--out", str(tmp_path))
    assert (code, err.startswith(said)) == (130, True), err


@pytest.mark.parametrize("saved", [True, False])
def test_an_interrupted_training_gives_the_command_again(
    saved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*arguments: object, folder: Path, **options: object) -> None:
        if saved:
            folder.mkdir()
            (folder / "training-state.safetensors").touch()
        raise KeyboardInterrupt("interrupted after epoch 3 of 9")

    monkeypatch.setattr("interp.training.train.train_parameters", stopped)
    (tmp_path / "model.toml").write_text(SHORT)
    given = ["train", str(tmp_path / "model.toml"), "--out", str(tmp_path / "my runs"), "--engine", "reference"]
    given += ["--device", "cpu", "--format", "csv"]
    code, _, err = run(*given)
    again = shlex.join(["interp", *given])
    hint = f"; continue with: {again} --resume" if saved else f", and nothing was saved; start again with: {again}"
    assert (code, err) == (130, f"interrupted after epoch 3 of 9{hint}\n")
