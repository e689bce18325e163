"""Models from elsewhere and population options on the command line: text to values, and every command end to end."""

import json
from pathlib import Path

import pytest
import torch
from command_line import run
from safetensors.torch import save_file

import interp
from interp.cli import options as cli_options
from interp.models.lens import HookedTransformer, HookedTransformerConfig, quiet_construction

RECALL = Path(__file__).parent.parent / "standins" / "recall"
MINE = "import interp\nfrom standins import Recall\n\ninterp.register_task(Recall)\n"


def test_a_task_by_name_or_with_parameters() -> None:
    assert cli_options.read_task("parity") == "parity"
    made = cli_options.read_task("histogram:T=8, L=4,data_seed=3")
    assert isinstance(made, interp.Task)
    assert (made.parameters["T"], made.parameters["L"], made.data_seed) == (8, 4, 3)


def test_a_parameter_that_is_a_word_stays_one() -> None:
    """The token "0" is not a number, and a mark may be left out."""
    made = cli_options.read_task("addition:plus=0,equals==,digits=3,lead=")
    assert isinstance(made, interp.Task)
    assert {name: made.parameters[name] for name in ("plus", "equals", "digits", "lead")} == {
        "plus": "0", "equals": "=", "digits": 3, "lead": "",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["histogram:T", "histogram:=3", "histogram:T=8,,L=4", "histogram:data_seed=x"])
def test_parameters_that_are_no_pairs_are_refused(text: str) -> None:
    with pytest.raises(interp.InterpError, match="--task"):
        cli_options.read_task(text)


def test_ids_from_text_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "ids.json").write_text('{"a": 3, "=": 0}')
    assert cli_options.read_ids("--tokens", str(tmp_path / "ids.json")) == {"a": 3, "=": 0}
    assert cli_options.read_ids("--tokens", ' {"a": 1}') == {"a": 1}


@pytest.mark.parametrize("text", ["nowhere.json", '{"a": 1', '{"a": "1"}', '{"a": true}', "{" * 3000, "\0"])
def test_ids_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(interp.InterpError, match="--tokens"):
        cli_options.read_ids("--tokens", text)


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """A stranger's weights in a folder without a spec, and the options that make sense of them."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent))
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "weights.safetensors").write_bytes(RECALL.with_suffix(".safetensors").read_bytes())
    (tmp_path / "theirs.json").write_text(RECALL.with_suffix(".json").read_text())
    return (
        str(tmp_path / "weights.safetensors"), "--import", str(tmp_path / "mine.py"), "--task", "standin_recall",
        "--config", str(tmp_path / "theirs.json"),
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore:The tensors do not determine")
def test_every_command_takes_a_model_from_elsewhere(foreign: tuple[str, ...], tmp_path: Path) -> None:
    code, out, err = run("sections", *foreign, "--format", "json")
    assert (code, {row["status"] for row in json.loads(out)} >= {"applies"}) == (0, True), err
    page = tmp_path / "report.html"
    code, out, err = run("analyze", *foreign, "--sections", "question,accuracy", "--inputs", "250", "-o", str(page))
    assert (code, page.is_file()) == (0, True), err
    assert "standin_recall" in page.read_text("utf-8")
    code, _, err = run("certify", *foreign)
    assert code == 2
    assert "does not list its inputs" in err


@pytest.mark.filterwarnings("ignore:The tensors do not determine")
def test_certify_runs_every_input_of_a_model_from_elsewhere(tmp_path: Path) -> None:
    config = {"n_layers": 1, "n_heads": 1, "d_head": 4, "d_model": 4, "n_ctx": 3, "d_vocab": 5, "d_vocab_out": 4,
              "d_mlp": 4, "act_fn": "relu", "normalization_type": "LN", "seed": 0}  # fmt: skip
    with quiet_construction():
        model = HookedTransformer(HookedTransformerConfig(**config))
    save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, tmp_path / "m.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    tokens = {"0": 4, "1": 3, "2": 2, "3": 1, "=": 0}
    outputs = {"0": 3, "1": 2, "2": 1, "3": 0}
    given = (str(tmp_path / "m.safetensors"), "--task", "max-of-k:K=2,v=4", "--config", str(tmp_path / "config.json"),
             "--tokens", json.dumps(tokens), "--outputs", json.dumps(outputs))  # fmt: skip
    code, out, err = run("certify", *given, "--batch-size", "5", "--format", "json")
    assert code == 1, err
    # By hand: tokens and outputs in the stranger's own ids.
    pairs = [(a, b) for a in range(4) for b in range(4)]
    said = model(torch.tensor([[4 - a, 4 - b, 0] for a, b in pairs]))[:, -1].argmax(-1).tolist()
    wrong = sum(3 - answer != max(pair) for answer, pair in zip(said, pairs))
    assert (json.loads(out)[0]["n_errors"], json.loads(out)[0]["n_inputs"]) == (wrong, 16)
    code, _, err = run("certify", *given, "--longest", "5")
    assert (code, "unknown option" in err or "--batch-size" in err) == (2, True)


def test_bad_options_are_one_sentence() -> None:
    for given, said in (
        (("analyze", "count01/minimal", "--inputs", "0"), "inputs = 0 must be a positive integer"),
        (("analyze", "count01/minimal", "--seconds", "-1"), "seconds = -1.0 must be a number above 0"),
        (("analyze", "count01/minimal", "--task", "parity"), "is a model of task count01, not parity"),
        (("certify", "count01/minimal", "--padding", "keep"), "--padding keep: give mask or attend"),
        (("sections", "count01/minimal", "--tokens", "x.json", "--task", "count01"), "no such JSON file"),
    ):
        code, _, err = run(*given)
        assert (code, said in err) == (2, True), err
