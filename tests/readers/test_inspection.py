"""`interp inspect`: each fixture is named, its config listed, and what is missing said."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from interp.errors import InterpError
from interp.readers.models import inspect

pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    from transformers import GPT2Config, GPT2LMHeadModel

    fields = {"n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 5, "n_positions": 6}
    GPT2LMHeadModel(GPT2Config(pad_token_id=0, bos_token_id=0, eos_token_id=0, **fields)).save_pretrained(tmp_path)
    (tmp_path / "vocab.json").write_text('{"a": 1, "b": 0, "=": 4}')
    return tmp_path


def test_a_folder_lacks_only_its_task(folder: Path) -> None:
    found = inspect(folder)
    said = dict(found.rows)
    assert found.ready
    assert said["format"] == "Hugging Face GPT-2"
    assert said["n_heads"] == "2"
    assert said["vocabulary"] == "'b': 0, 'a': 1, '=': 4"
    assert said["compared with the original"].startswith("logits differ by at most")
    assert "interp.load(" in said["missing"]


def test_a_bare_state_dict_names_what_is_missing(tmp_path: Path) -> None:
    torch.save({"h.0.attn.c_attn.weight": torch.zeros(24, 8), "wte.weight": torch.zeros(5, 8),
                "wpe.weight": torch.zeros(6, 8)}, tmp_path / "x.pt")  # fmt: skip
    found = inspect(tmp_path / "x.pt")
    said = dict(found.rows)
    assert not found.ready
    assert "number of heads" in said["missing"]
    assert said["setting n_heads"]
    assert said["wte.weight"] == "(5, 8) float32"


def test_unknown_tensors_name_the_known_formats(tmp_path: Path) -> None:
    torch.save({"fc.weight": torch.zeros(2, 2)}, tmp_path / "x.pt")
    with pytest.raises(InterpError, match=r"which no reader knows; known formats: .*nanoGPT"):
        inspect(tmp_path / "x.pt")


@pytest.mark.slow
def test_the_command_prints_it(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from interp.cli import main; main()", "inspect", str(folder)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Hugging Face GPT-2" in done.stdout
