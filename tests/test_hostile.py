"""Whatever a file from strangers says: one sentence under 300 characters, and nothing of it is run."""

import json
import os
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import interp
from interp.families.count01 import Count01
from interp.models.architecture.checkpoint import save_checkpoint
from interp.models.spec import ModelSpec, TaskRef
from interp.models.training_curves import no_curve
from interp.tasks import make_task
from interp.tasks.task import tensors_sha256


def spec(
    task: str = "count01", parameters: dict[str, Any] | None = None, n_heads: int = 1, n_layers: int = 1, **fields: Any
) -> ModelSpec:
    whole = {"d_model": 8, "readout_at": "=" if task == "count01" else "all"} | fields
    return ModelSpec(
        task={"name": task, "parameters": parameters or {}},
        layers=[{"d_head": 2, "n_heads": n_heads}] * n_layers,
        **whole,
    )


def refused(call: Callable[[], Any], words: str = "") -> None:
    with pytest.raises(interp.InterpError) as error:
        call()
    lines = re.split(r"; \(\d+\) ", str(error.value))  # a spec lists its problems
    assert len(lines) <= 21
    assert all(len(line) < 300 and "\n" not in line for line in lines), str(error.value)
    assert words in str(error.value)


def training(**recipe: Any) -> dict[str, Any]:
    return {"kind": "training", **recipe}


@pytest.mark.parametrize("text", [
    "self = 1\n", "d_model = " + "9" * 5000, "x = " + "[" * 1000 + "]" * 1000,
    "x = " + "[" * 100_000 + "]" * 100_000, "x = " + "{a=" * 900 + "1" + "}" * 900,
    "\n".join(f"field{i} = 1" for i in range(20_000)), "x" * 5000 + " = 1",
    "d_model = 'a'\nb = '" + "z" * 100_000 + "'", "schema = " + "9" * 30, "d_model = 1e999",
    "#" * 2**21,
    "[task]\nname = '" + "z" * 5000 + "'\n",
    "d_model = 4\nlayers = [{d_head = 2}]\ntask = {name = '" + "z" * 5000 + "'}",
    "d_model = 4\nlayers = [{d_head = 2}]\ntask = {name = 'count01'}\npositions = '" + "q" * 5000 + "'",
    "d_model = 4\nlayers = [{d_head = 2}]\ntask = {name = 'count01', parameters = {self = 1}}",
    "d_model = 4\nlayers = [{d_head = 2}]\ntask = {name = 'count01', data_seed = 18446744073709551616}",
], ids=range(16))  # fmt: skip
def test_specs_on_disk(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.toml").write_text(text)
    refused(lambda: interp.build(tmp_path / "m.toml"))


@pytest.mark.parametrize("name", ["pipe", "zeros", "loop", "folder", "utf16", "noise"])
def test_files_that_are_no_files(tmp_path: Path, name: str) -> None:
    if name in ("pipe", "zeros", "loop") and not hasattr(os, "mkfifo"):
        pytest.skip("Windows has no pipes and no /dev/zero among its files")
    for path in (tmp_path / f"{name}.toml", tmp_path / f"{name}.safetensors"):
        if name == "pipe":
            os.mkfifo(path)
        elif name == "folder":
            path.mkdir()
        elif name in ("zeros", "loop"):
            path.symlink_to("/dev/zero" if name == "zeros" else path)
        else:
            path.write_bytes("d_model = 4".encode("utf-16") if name == "utf16" else bytes(range(256)) * 20)
    refused(lambda: ModelSpec.from_toml(tmp_path / f"{name}.toml"))
    refused(lambda: interp.build(tmp_path / f"{name}.toml"))
    refused(lambda: interp.load(tmp_path / f"{name}.safetensors"))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"d_model": ' + "9" * 5000 + "}", '{"a":' * 900 + "1" + "}" * 900])
def test_specs_as_json(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.json").write_text(text)
    torch.save({"a": torch.ones(1)}, tmp_path / "m.pt")
    refused(lambda: interp.load(tmp_path / "m.pt"), "m.json")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("content", [
    lambda: {"a": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)},
    lambda: {"embed.W_E": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])},
    lambda: {}, lambda: {f"t{i}": torch.ones(1) for i in range(2000)}, lambda: {"n" * 5000: torch.ones(1)},
    lambda: {"embed.W_E": torch.ones(3).to(torch.float8_e4m3fn)}, lambda: None,
], ids=range(7))  # fmt: skip
def test_state_dicts(tmp_path: Path, content: Callable[[], Any]) -> None:
    torch.save(content(), tmp_path / "a.pt")
    refused(lambda: interp.load(tmp_path / "a.pt", spec=spec()))


def test_an_archive_without_its_tensors(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(2)}, tmp_path / "a.pt")
    with zipfile.ZipFile(tmp_path / "a.pt") as whole, zipfile.ZipFile(tmp_path / "b.pt", "w") as part:
        for name in whole.namelist():
            if "/data/" not in name:
                part.writestr(name, whole.read(name))
    refused(lambda: interp.load(tmp_path / "b.pt", spec=spec()), "b.pt")


@pytest.mark.parametrize("names", [[f"t{i}" for i in range(2_000)], ["n" * 5000]], ids=["many", "long"])
def test_checkpoints_of_strange_names(tmp_path: Path, names: list[str]) -> None:
    interp.save(interp.build(spec()), tmp_path / "ok.safetensors")
    with safe_open(tmp_path / "ok.safetensors", "pt") as file:
        metadata = file.metadata()
    save_file({name: torch.ones(1) for name in names}, tmp_path / "s.safetensors", metadata=metadata)
    refused(lambda: interp.load(tmp_path / "s.safetensors"), "s.safetensors")


@pytest.mark.parametrize(("shape", "contexts", "dtype", "largest"), [
    ((0, 0), (0, 1), torch.float64, None), ((3, 2), (3, 1), torch.float8_e4m3fn, None),
    ((3, 2), (3, 1), torch.float64, 10**15), ((3, 2), (3, 1), torch.float64, -1),
    ((3, 2), (3, 0), torch.float64, None), ((3, 2), (3, 200), torch.float64, None),
])  # fmt: skip
def test_tables_of_tasks(shape: Any, contexts: Any, dtype: torch.dtype, largest: int | None) -> None:
    tables = {
        "conditional": (torch.ones(shape) / max(1, shape[-1])).to(dtype),
        "prior": torch.ones(shape[0], dtype=torch.float64) / max(1, shape[0]),
        "contexts": torch.zeros(contexts, dtype=torch.long),
    }
    if contexts[1]:
        tables["contexts"][:, 0] = torch.arange(contexts[0])
    if largest is not None:
        tables["contexts"][-1, -1] = largest
    ref = TaskRef(name="table", table_sha256=tensors_sha256(tables))
    refused(lambda: make_task(ref, tables))


@pytest.mark.parametrize("size", ["d_model", "d_head", "n_layers", "d_vocab"])
def test_configs_of_any_integer(tmp_path: Path, size: str) -> None:
    torch.save({"embed.W_E": torch.ones(8, 4)}, tmp_path / "m.pt")
    config = {"d_model": 4, "n_layers": 1, "n_heads": 1, "d_head": 2, "n_ctx": 10, "d_vocab": 8, "attn_only": True}
    refused(lambda: interp.load(tmp_path / "m.pt", config=config | {size: 10**4000}, task="count01"))


def test_weights_in_eight_bits(tmp_path: Path) -> None:
    """torch itself has no isfinite for them."""
    model = interp.build(spec(origin=training()))
    eight = {name: p.detach().to(torch.float8_e4m3fn) for name, p in model.named_parameters()}
    torch.save(eight, tmp_path / "m.pt")
    (tmp_path / "m.json").write_text(json.dumps(model.spec.to_dict()))
    refused(lambda: interp.load(tmp_path / "m.pt"), "float8_e4m3fn, which specs do not support")


@pytest.mark.parametrize(
    "curve",
    ["abc", 5, [{"a": 1}], {"epoch": {"a": 1}, "loss": [1], "accuracy": [1]},
     {"epoch": [1, 2], "loss": [1], "accuracy": [1]}, {"epoch": [1], "loss": ["x"], "accuracy": [[1]]}],
)  # fmt: skip
def test_curves_that_are_none(tmp_path: Path, curve: Any) -> None:
    model = interp.build(spec(origin=training()))
    tensors = {name: p.detach() for name, p in model.named_parameters()}
    save_checkpoint(tmp_path / "m.safetensors", model.spec, tensors, 0, {"curve": curve})
    loaded = interp.load(tmp_path / "m.safetensors")
    assert loaded.history is None
    assert no_curve(loaded) == "the checkpoint's training curve has a format that this version does not know"


@pytest.mark.parametrize("name", ["../../evil", "a" * 101, "a b", "", "/a", "ä", "a\\b", "."])
def test_names_of_tasks(name: str) -> None:
    kind = type("Evil", (Count01,), {"name": name, "__module__": "evil"})
    refused(lambda: interp.register_task(kind), "name")


@pytest.mark.parametrize(
    "name", ["x" * 5000, "x" * 5000 + ".pt", "x/" * 2000, "~nouser/x", "a\0b", "", "/"], ids=range(7)
)
def test_names(name: str) -> None:
    for call in (interp.load, interp.build, interp.analyze, interp.certify):
        refused(lambda call=call: call(name))
