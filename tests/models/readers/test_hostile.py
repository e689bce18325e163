"""Mutated folders and checkpoints: each is read or refused in one sentence; nothing in them is executed."""

import json
import pickle
import random
import re
import resource
import shutil
import struct
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import interp
from interp.errors import CheckpointError, InterpError
from interp.models.architecture.stock import read_config, stock_model
from interp.models.readers import read
from interp.models.readers.models import inspect

pytest.importorskip("transformers")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

VALUES: list[Any] = [
    0, -1, 3, 10**4000, 1e300, float("nan"), None, True, "", "x" * 10**5, [], [[]], {}, {"a": []}, "relu",
]  # fmt: skip


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A small GPT-2 folder, a Llama folder and a nanoGPT checkpoint."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    root = tmp_path_factory.mktemp("originals")
    gpt2 = GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=5, n_positions=6)
    llama = LlamaConfig(num_hidden_layers=1, hidden_size=8, num_attention_heads=2, intermediate_size=8, vocab_size=5)
    GPT2LMHeadModel(gpt2).save_pretrained(root / "gpt2")
    LlamaForCausalLM(llama).save_pretrained(root / "llama")
    (root / "gpt2" / "vocab.json").write_text('{"a": 0}')
    state = GPT2LMHeadModel(gpt2).state_dict()
    state = {n: t.T.contiguous() if t.ndim == 2 and ".c_" in n else t for n, t in state.items()}
    args = {"n_layer": 1, "n_head": 2, "n_embd": 8, "block_size": 6, "vocab_size": 5, "bias": True}
    (root / "nano").mkdir()
    torch.save({"model": state, "model_args": args}, root / "nano" / "ckpt.pt")
    return [root / "gpt2", root / "llama", root / "nano"]


def mutate(folder: Path, draw: random.Random) -> None:
    """Change one file: a few bytes, its length, or one field of its JSON."""
    path = draw.choice(sorted(path for path in folder.iterdir() if path.is_file()))
    if path.suffix == ".json" and draw.random() < 0.7:
        fields = json.loads(path.read_text())
        fields[draw.choice(sorted(fields))] = draw.choice(VALUES)
        sys.set_int_max_str_digits(0)
        path.write_text(json.dumps(fields))
        sys.set_int_max_str_digits(4300)
        return
    content = bytearray(path.read_bytes())
    if draw.random() < 0.3:
        content = content[: draw.randrange(len(content))]
    else:
        for _ in range(draw.choice([1, 4, 40])):
            content[draw.randrange(min(len(content), 2000))] = draw.randrange(256)
    path.write_bytes(content)


def opened(folder: Path) -> None:
    reading = read(folder / "ckpt.pt" if (folder / "ckpt.pt").exists() else folder)
    stock_model(read_config(reading.fields), reading.tensors)


def read_or_refused(originals: list[Path], tmp_path: Path, seeds: range) -> None:
    before, refused = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0
    for seed in seeds:
        draw = random.Random(seed)
        folder = tmp_path / "one"
        shutil.copytree(draw.choice(originals), folder)
        mutate(folder, draw)
        said, end = "", time.process_time() + 30
        try:
            opened(folder)
        except InterpError as error:
            said = str(error).replace(str(folder), "")
        left = end - time.process_time()
        assert left > 0, (seed, said)  # a file takes milliseconds of CPU: this ends what hangs
        refused += bool(said)
        assert all(len(line) < 400 for line in re.split(r"; \(\d+\) ", said)), (seed, said)
        shutil.rmtree(folder)
    assert refused > len(seeds) // 4
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 10**6  # kB


def test_mutated_files_are_read_or_refused_in_a_sentence(originals: list[Path], tmp_path: Path) -> None:
    read_or_refused(originals, tmp_path, range(200))


@pytest.mark.soak
def test_2000_more_are_read_or_refused(originals: list[Path], tmp_path: Path) -> None:
    read_or_refused(originals, tmp_path, range(200, 2200))


def sparse(path: Path, name: str, numbers: int) -> None:
    """A safetensors file of zeros that takes no room on the disk."""
    header = json.dumps({name: {"dtype": "F32", "shape": [numbers], "data_offsets": [0, 4 * numbers]}}).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + 4 * numbers)


def test_weights_beyond_the_limit_are_not_read(tmp_path: Path) -> None:
    """In one file, in the parts of a folder together, or as views that repeat a few numbers."""
    limit = "more than the limit of 2,147,483,648"
    sparse(tmp_path / "one.safetensors", "a", 10**12)
    for call in (read, inspect, lambda path: interp.load(path, task="count01")):
        with pytest.raises(CheckpointError, match=limit):
            call(tmp_path / "one.safetensors")
    parts = {f"t{i}": f"model-{i}.safetensors" for i in range(3)}
    for name, file in parts.items():
        sparse(tmp_path / file, name, 2**28)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": parts}))
    with pytest.raises(CheckpointError, match=f"the weights in .* {limit}"):
        read(tmp_path)
    wide = torch.zeros(1).expand(2**15, 2**15)
    torch.save({"embed.W_E": wide, "unembed.W_U": wide}, tmp_path / "views.pt")
    assert (tmp_path / "views.pt").stat().st_size < 5000
    with pytest.raises(CheckpointError, match=f"its tensors have 8,589,934,592 bytes, {limit}"):
        read(tmp_path / "views.pt")


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def test_code_in_a_folder_does_not_run(originals: list[Path], tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    folder = tmp_path / "gpt2"
    shutil.copytree(originals[0], folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoModel": "evil.Evil"}}))
    (folder / "evil.py").write_text(f"open({str(ran)!r}, 'w')")
    opened(folder)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"wte.weight": Evil(ran)}))
    with pytest.raises(InterpError, match="without running code"):
        opened(folder)
    torch.save({"model": {"h.0.attn.c_attn.weight": torch.zeros(3, 3)}, "model_args": Evil(ran)}, tmp_path / "ckpt.pt")
    with pytest.raises(InterpError, match="without running code"):
        opened(tmp_path)
    assert not ran.exists()
