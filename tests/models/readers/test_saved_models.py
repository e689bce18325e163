"""Every shape of tests/saved_models.py: read, inspected, compared with its library, certified and reported on."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from command_line import run
from safetensors.torch import save_file
from saved_models import FOLDER, SHAPES, as_lens

import interp
from interp.errors import InterpError
from interp.measures.accuracy import not_generated
from interp.models.readers.models import inspect
from interp.models.subject import Subject

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")

KNOWN = [name for name, shape in SHAPES.items() if shape.reader]
CERTIFIED = {"gpt2": "refuted", "qwen3": "refuted", "adder": "refuted"}
"""The two recognizers were trained for seconds, and err on a few strings. The adder was trained on the outputs of its
answers alone, and '+' or '=' is often its largest output. All others are right on every input."""


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.thinned(2)
def test_a_saved_model_has_its_librarys_logits(name: str) -> None:
    assert SHAPES[name].deviation(name) < 1e-5


def test_the_files_are_small() -> None:
    for name in SHAPES:
        assert sum(path.stat().st_size for path in (FOLDER / name).iterdir()) < 40_000, name


@pytest.mark.parametrize("name", KNOWN)
def test_inspect_names_the_format_and_what_is_missing(name: str) -> None:
    shape = SHAPES[name]
    found = inspect(shape.path(name), shape.load.get("config"))
    said = dict(found.rows)
    assert found.ready
    assert said["format"] == shape.reader
    assert "interp.load(" in said["missing"]
    if shape.library == "transformers":
        assert said["compared with the original"].startswith("logits differ by at most")


@pytest.mark.parametrize(
    ("name", "words"), [("encoder", r"config=\{\"n_heads\": 4\}"), ("modular", r"config=\{'act_fn': 'relu'\}")]
)
def test_inspect_asks_for_what_a_file_leaves_open(name: str, words: str) -> None:
    found = inspect(SHAPES[name].path(name))
    assert not found.ready
    assert re.search(words, dict(found.rows)["missing"])


def test_inspect_lists_the_config_and_words_in_order_of_ids(tmp_path: Path) -> None:
    folder = shutil.copytree(FOLDER / "gpt2", tmp_path / "gpt2")
    (folder / "vocab.json").write_text('{"a": 1, "b": 0, "=": 4}')
    said = dict(inspect(folder).rows)
    assert said["n_heads"] == str(json.loads((folder / "config.json").read_text())["n_head"])
    assert said["vocabulary"] == "'b': 0, 'a': 1, '=': 4"


def test_inspect_describes_a_checkpoint_of_interp(tmp_path: Path) -> None:
    model = interp.load("count01/paper/seed-2")
    path = interp.save(model, tmp_path / "mine.safetensors")
    found = inspect(path)
    said = dict(found.rows)
    assert found.ready
    assert (said["format"], said["spec"], said["seed"]) == ("a checkpoint of interp", model.spec.id, "2")
    assert said["task"] == "Count01()"
    assert '"learning_rate": 0.0002' in said["origin"]
    assert float(said["at the end: accuracy"]) == model.summary["accuracy"]
    assert said["missing"] == f"nothing: interp.load({str(path)!r})"


def test_inspect_lists_settings_and_tensors_of_a_bare_state_dict() -> None:
    state = {"h.0.attn.c_attn": (24, 8), "wte": (5, 8), "wpe": (6, 8)}
    found = inspect({f"{name}.weight": torch.zeros(shape) for name, shape in state.items()})
    said = dict(found.rows)
    assert not found.ready
    assert "number of heads" in said["missing"]
    assert said["setting n_heads"]
    assert said["wte.weight"] == "(5, 8) float32"


def test_the_inspect_command_says_first_what_is_missing(tmp_path: Path) -> None:
    saved = {"embed.W_E": torch.zeros(3, 2), "unembed.W_U": torch.zeros(2, 3)}
    saved |= {f"blocks.0.attn.W_{name}": torch.zeros(1, 2, 2) for name in "QKVO"}
    save_file(saved, tmp_path / "model.safetensors")
    code, out, _ = run("inspect", str(tmp_path / "model.safetensors"))
    rows = [line.split()[0] for line in out.splitlines()]
    assert (code, rows[2:5]) == (3, ["file", "reader", "missing"])
    assert rows[-1] == "other"
    assert len(rows) < 25
    _, listed, _ = run("inspect", str(tmp_path / "model.safetensors"), "--format", "json")
    assert '"setting rotary_base"' in listed


@pytest.mark.slow
def test_the_command_prints_what_inspect_finds() -> None:
    call = [sys.executable, "-c", "from interp.cli import main; main()", "inspect", str(FOLDER / "gpt2")]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Hugging Face GPT-2" in done.stdout


def test_a_module_that_no_reader_knows_is_told_what_to_do() -> None:
    with pytest.raises(InterpError, match=r"no reader knows; known formats: .*nanoGPT.* use interp\.check_conversion"):
        inspect(SHAPES["adder"].path("adder"))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", SHAPES)
def test_every_input_is_certified_or_has_a_counterexample(name: str) -> None:
    found = interp.certify(SHAPES[name].subject(name))
    assert found.status == CERTIFIED.get(name, "certified")
    assert found.n_inputs == SHAPES[name].task().n_inputs
    assert (found.counterexample is not None) == (found.status == "refuted")
    among = "outputs that the task does not name; among those that it names, 0 of 48 answers are wrong"
    assert any(among in note for note in found.notes) == (name == "adder")


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_one_call_reports_on_a_saved_model(name: str) -> None:
    """As on a model of ours: measures, patching, the live panel with its self-test, and a certificate."""
    subject: Any = SHAPES[name].subject(name)
    report = interp.analyze(subject, seconds=20)
    page = report.html()
    assert "could not be made" not in page
    assert report.facts["certificate"] == CERTIFIED.get(name, "certified")
    studied = Subject.of(subject)
    generated = not_generated(studied, studied.task.sample(20)) is None
    assert ("exact_match" in report.facts) == generated


# ---------------------------------------------------------------- the table of docs/saved_models.md


def nanos_state() -> dict[str, Any]:
    return dict(torch.load(SHAPES["nanogpt"].path("nanogpt"), weights_only=True)["model"])


def encoder() -> Any:
    return SHAPES["encoder"].original(SHAPES["encoder"].path("encoder"))


def theirs() -> Any:
    return transformers.GPT2LMHeadModel.from_pretrained(SHAPES["gpt2"].path("gpt2"))


ADDER, ADDERS_CONFIG = as_lens(torch.load(SHAPES["adder"].path("adder"), weights_only=True))
ROWS: list[tuple[str, str, Callable[[], dict[str, Any]]]] = [
    ("a Hugging Face folder", "gpt2", dict),
    ("a transformers model in memory", "gpt2", lambda: {"model": theirs()}),
    ("nanoGPT's", "nanogpt", dict),
    ("a state dict with GPT-2's names", "nanogpt", lambda: {"model.pt": nanos_state()}),
    ("a module around", "encoder", lambda: {"module": encoder()}),
    ("its state dict", "encoder", lambda: {"model.pt": encoder().state_dict()}),
    ("TransformerLens weights and config", "adder", lambda: {"model.pt": ADDER}),
    ("plain tensors", "modular", lambda: {"model.pt": torch.load(SHAPES["modular"].path("modular"))}),
    ("a module of your own", "adder", lambda: {"tensors": ADDER, "config": ADDERS_CONFIG}),
]
"""The beginning of each row, the shape that stands for it, and what the row calls its file or object."""


def rows_of_the_table() -> list[list[str]]:
    page = (Path(__file__).parents[3] / "docs" / "saved_models.md").read_text()
    return [line.strip("| ").split(" | ") for line in page.splitlines() if re.match(r"\| .*interp\.load\(", line)]


@pytest.mark.parametrize("number", range(len(ROWS)), ids=[start for start, *_ in ROWS])
@pytest.mark.thinned(2)
def test_each_row_of_the_table_runs(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (said, code), (start, name, given) = rows_of_the_table()[number], ROWS[number]
    assert said.startswith(start)
    assert len(rows_of_the_table()) == len(ROWS)
    shape = SHAPES[name]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").symlink_to(FOLDER / "gpt2")
    (tmp_path / "ckpt.pt").symlink_to(SHAPES["nanogpt"].path("nanogpt"))
    (tmp_path / "config.json").write_text(json.dumps(ADDERS_CONFIG))
    names = given()
    if "model.pt" in names:
        torch.save(names.pop("model.pt"), tmp_path / "model.pt")
    ids = {key: value for key, value in shape.load.items() if key != "config"}  # the fixture's, which no row can know
    names |= {"task": shape.task(), "interp": SimpleNamespace(load=partial(interp.load, **ids))}
    model = eval(code.strip("`"), names)
    assert interp.check_conversion(shape.original(shape.path(name)), model).difference < 1e-3
