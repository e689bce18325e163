"""What a new user trips over: each thing that went wrong once, as they would type it."""

import json
import pickle
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from command_line import run

import interp
from interp import cli
from interp.errors import InterpError
from interp.models.architecture.parameters import model_problems
from interp.models.spec import Layer, ModelSpec, TaskRef, Training
from interp.support.figures.heads import circuit
from interp.support.progress import LateBar
from interp.tasks import make_task
from interp.training import results, train

SPEC = ModelSpec(
    task=TaskRef(name="count01"),
    d_model=4,
    layers=(Layer(d_head=2),),
    readout_at="=",
    origin=Training(epochs=2, data="fresh", samples_per_epoch=64, batch_size=32),
)


@pytest.fixture(autouse=True)
def _wide_and_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")


def test_a_training_is_whole_after_save_and_load(tmp_path: Path) -> None:
    (model,) = interp.train(SPEC, [3], progress=False, folder=tmp_path / "new" / "folder")
    assert model.summary["epochs"] == 2
    assert model.summary["engine"] in train.ENGINES
    found = interp.load(interp.save(model, tmp_path / "a.safetensors"))
    assert found.summary["engine"] == model.summary["engine"]
    assert list(found.history.columns) == list(model.history.columns)
    assert found.history["epoch"].tolist() == [0, 1, 2]
    np.testing.assert_allclose(found.history["accuracy"], model.history["accuracy"], rtol=1e-4)
    again = interp.save(found, tmp_path / "b.safetensors")
    assert again.read_bytes() == (tmp_path / "a.safetensors").read_bytes()


def test_training_never_replaces_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.toml").write_text(SPEC.to_toml())
    code, out, err = run("train", "m.toml", "--out", "run")
    assert code == 0, err
    assert any(name in out for name in train.ENGINES)  # which engine trained
    before = (tmp_path / "run/seed-0.safetensors").read_bytes()
    for extra, words in (((), "would replace it"), (("--resume",), "this run is finished")):
        code, _, err = run("train", "m.toml", "--out", "run", *extra)
        assert code == 2
        assert words in err
    assert (tmp_path / "run/seed-0.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    ("options", "words"),
    [(("--workers", "0"), "workers = 0"), (("--workers", "-1"), "workers = -1"), (("--out", "grid.toml"), "is a file")],
)
def test_dry_runs_check_their_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.toml").write_text(SPEC.to_toml())
    (tmp_path / "grid.toml").write_text('base = "m.toml"\n')
    code, out, err = run("sweep", "grid.toml", "--dry-run", *options)
    assert code == 2, out
    assert words in err
    assert "Traceback" not in err


def test_positions_get_the_sentence_that_is_about_them() -> None:
    task = make_task("count01")
    assert model_problems(SPEC.replace(positions="learned"), task) == [
        "positions = 'learned' needs max_length, the number of positions that have weights"
    ]
    (unknown,) = model_problems(SPEC.replace(positions="spiral"), task)
    assert unknown.startswith("unknown positions 'spiral'; known: none, learned, sinusoidal")


def test_a_spec_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "model.toml").write_text(SPEC.to_toml())
    with pytest.raises(InterpError, match=r"model.toml is a spec, not a checkpoint: interp.build"):
        interp.analyze(tmp_path / "model.toml")


def test_a_file_of_plain_data_is_called_what_it_is(tmp_path: Path) -> None:
    model = interp.build("algorithmic/max-of-k-exact", K=2, v=4)
    found = interp.explain(model)
    files = {
        "x.json": (found.to_json(), f"an explanation of {found.model}, not a checkpoint: give the model itself"),
        "p.json": (found.program.to_json(), "a program, not a checkpoint: interp.compile makes a model"),
        "s.json": (json.dumps(model.spec.to_dict()), "a spec, not a checkpoint: interp.build"),
        "g.toml": ('base = "model.toml"\naxes = {}', "the grid of a sweep, not a checkpoint: interp.sweep"),
        "ids.json": ('{"a": 0}', "a JSON file without a model, not a checkpoint: give a checkpoint"),
        "list.json": ("[1]", "a JSON file without a model, not a checkpoint: give a checkpoint"),
        "bad.json": ("{", "neither a checkpoint nor a readable JSON file"),
    }
    for name, (text, sentence) in files.items():
        (tmp_path / name).write_text(text)
        for take in (interp.explain, interp.analyze, interp.load):
            with pytest.raises(InterpError, match=re.escape(f"{name} is {sentence}")):
                take(tmp_path / name)
    proof = interp.certify(model).evidence(tmp_path / "proof.json.gz")
    with pytest.raises(InterpError, match=r"gz is the evidence of a certificate of max-of-k-.*: give the model itself"):
        interp.explain(proof)


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


def test_a_default_that_is_spelled_out_is_no_other_task(tmp_path: Path) -> None:
    tasks = (TaskRef(name="histogram"), TaskRef(name="histogram", parameters={"T": 32}))
    specs = [SPEC.replace(task=task, readout_at="all", direction="bidirectional") for task in tasks]
    (its,), (mine,) = (interp.train(spec, progress=False, engine="reference") for spec in specs)
    assert mine.spec == its.spec
    assert mine.embed.W_E.equal(its.embed.W_E)
    interp.save(mine, tmp_path / "mine.safetensors")
    assert interp.load(tmp_path / "mine.safetensors").spec == its.spec


@pytest.mark.slow
def test_a_folder_with_a_run_is_refused_unless_it_is_continued(tmp_path: Path) -> None:
    (model,) = interp.train(SPEC, progress=False, folder=tmp_path / "run")  # its state stays there
    before = (tmp_path / "run" / results.FILE).read_bytes()
    with pytest.raises(InterpError, match="has the state of a run: resume=True"):
        interp.train(SPEC, progress=False, folder=tmp_path / "run")
    assert (tmp_path / "run" / results.FILE).read_bytes() == before
    (again,) = interp.train(SPEC, progress=False, folder=tmp_path / "run", resume=True)
    assert again.embed.W_E.equal(model.embed.W_E)
    interp.save(model, (tmp_path / "seed-1.safetensors"))
    for resume in (False, True):
        with pytest.raises(InterpError, match=r"seed-1.safetensors: "):
            interp.train(SPEC, [0, 1], progress=False, folder=tmp_path, resume=resume)
    assert interp.train(SPEC, [0], progress=False, folder=tmp_path)


def test_without_numba_it_is_said_once_where_it_matters(monkeypatch, capsys) -> None:
    whole = ModelSpec.from_toml(Path(__file__).parents[1] / "models/histogram/dot/model.toml")
    short = {"epochs": 1, "samples_per_epoch": 64}
    spec = whole.replace(origin=whole.training.model_copy(update=short))
    engine = "interp.families.histogram.compiled.engine"
    monkeypatch.setattr(f"{engine}.find_spec", lambda name: None)
    monkeypatch.setattr(f"{engine}.compiled_mark", lambda dtype: Path("/nowhere"))
    train._say_once.cache_clear()
    interp.train(spec)  # so few steps that compiling would take longer
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(
        "interp.families.histogram.compiled.engine.compiled_mark", lambda *names: Path("/")
    )  # compiled before
    for _ in range(2):
        interp.train(spec)
    said = capsys.readouterr().err
    assert said.count("needs numba: pip install numba") == 1
    assert "the vmap engine" in said


def test_the_bar_names_the_engine(monkeypatch) -> None:
    titles = []

    class Bar(LateBar):
        def __init__(self, title: str) -> None:
            titles.append(title)
            super().__init__(title)

    monkeypatch.setattr("interp.support.progress.LateBar", Bar)
    (model,) = interp.train(SPEC)
    assert titles == [f"training 1 x {SPEC.id} ({model.summary['engine']})"]


@pytest.mark.slow
def test_batches_specs_and_certificates_display_in_notebooks() -> None:
    model = interp.build("count01/minimal")
    batch = model.task.batch(torch.tensor([model.task.parse("[BOS]0110=")]))
    assert ">[BOS]0110=<" in batch._repr_html_()
    assert ">5<" in batch._repr_html_()  # two 1s are not more than two 0s
    assert repr(batch) == "Batch of 1 input of task count01: '[BOS]0110=' -> 5"
    strange = replace(batch, tokens=batch.tokens + 99)
    assert f"'{' '.join(map(str, strange.tokens[0].tolist()))}' -> 6" in repr(strange)  # ids of no token: as they are
    assert pickle.loads(pickle.dumps(batch)).task is None
    assert "first 8 shown" in model.task.sample(9)._repr_html_()
    assert SPEC.id in SPEC._repr_html_()
    assert "&quot;count01&quot;" in SPEC._repr_html_()
    assert "seed" not in SPEC._repr_html_()
    found = interp.certify(model)._repr_html_()
    assert "certified" in found
    assert "502,500" in found
    assert "None" not in found
    text = SPEC.replace(task=TaskRef(name="count01", parameters={"x": "<script>"}))._repr_html_()
    assert "<script>" not in text


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("languages/one", "--longest", "5"), 0, "every string of 1 to 5 symbols"),
        (("languages/one", "--longest=5"), 0, "every string of 1 to 5 symbols"),
        (("languages/one", "--options"), 0, "--longest"),
        (("memorization/bigram", "--options"), 0, "--max-kl"),
        (("languages/one", "--longest", "five"), 2, "--longest five: give an integer"),
        (("languages/one", "--longest"), 2, "--longest needs a value"),
        (("languages/one", "--box", "cube"), 2, "unknown option '--box'; known: --longest"),
        (("languages/one", "5"), 2, "'5' follows no option"),
        (("--longest", "5", "languages/one"), 2, "name the model before its options"),
        (("--help",), 0, "--evidence"),
    ],
)
def test_options_of_certificates_are_those_of_their_method(
    monkeypatch, capsys, arguments: tuple[str, ...], code: int, words: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["interp", "certify", *arguments])
    with pytest.raises(SystemExit) as left:
        cli.main()
    said = capsys.readouterr()
    assert (left.value.code or 0, words in said.out + said.err) == (code, True), said
    assert "--box" not in said.out


def test_attention_weights_are_colored_from_0_to_1() -> None:
    shares = pd.DataFrame({"head": "0.0", "query": ["a", "b"], "key": ["c", "c"], "value": [0.0, 0.9]})
    axis = circuit(shares, shares=True).layout.coloraxis
    assert (axis.cmin, axis.cmax) == (0.0, 1.0)
    assert circuit(shares).layout.coloraxis.cmin == pytest.approx(-0.9)
    assert circuit(shares.assign(value=[-1.0, 0.5])).layout.coloraxis.cmin == -1.0
