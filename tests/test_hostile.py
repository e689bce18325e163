"""Whatever a file, a name or an argument says: one sentence under 300 characters, before anything large is made.

Limits of each refusal: 2 s, as so many calls of functions (a clock would measure the machine), and 1 GB of memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import interp
from interp.errors import InterpError, gigabytes, need
from interp.families.count01 import Count01
from interp.models.architecture.checkpoint import save_checkpoint
from interp.models.spec import ModelSpec, TaskRef
from interp.models.training_curves import no_curve
from interp.tasks import make_task
from interp.tasks.task import tensors_sha256
from interp.training.sweeps.grid import read_grid
from interp.training.sweeps.jobs import peak_memory


def spec(
    task: str = "count01", parameters: dict[str, Any] | None = None, n_heads: int = 1, n_layers: int = 1, **fields: Any
) -> ModelSpec:
    whole = {"d_model": 8, "readout_at": "=" if task == "count01" else "all"} | fields
    return ModelSpec(
        task={"name": task, "parameters": parameters or {}},
        layers=[{"d_head": 2, "n_heads": n_heads}] * n_layers,
        **whole,
    )


MOST_CALLS = 2_500_000  # of Python or C functions: two seconds
PACKAGE = str(Path(interp.__file__).parent)
MOST_MEMORY = 10**9 // 1024  # kB


@cache
def counted(file: str) -> bool:
    """Our code and the readers of files; checks of annotations run in tests only."""
    return any(part in file for part in (PACKAGE, "tomllib", "json"))


class Meter:
    """Calls of functions, and growth of the largest memory that this process ever took."""

    def __enter__(self) -> Meter:
        self.calls, self.memory = 0, peak_memory() // 1024
        sys.setprofile(self.count)
        return self

    def count(self, frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            self.calls += counted(frame.f_code.co_filename)

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)
        self.memory = peak_memory() // 1024 - self.memory


def refused(call: Callable[[], Any], words: str = "") -> None:
    with pytest.raises(InterpError) as error, Meter() as meter:
        call()
    assert meter.calls < MOST_CALLS
    assert meter.memory < MOST_MEMORY
    lines = str(error.value).split("\n  - ")  # a spec lists its problems, a line each
    assert len(lines) <= 20
    assert all(len(line) < 300 and "\n" not in line for line in lines), str(error.value)
    assert words in str(error.value)


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    """What a first call imports is nobody's fault."""
    interp.build("count01/minimal")


def test_the_meter_counts() -> None:
    with Meter() as meter:
        torch.ones(3 * 10**7).sum()
        json.loads(json.dumps(list(range(1000))))
        spec().problems()
    assert 5 < meter.calls < 2000
    assert meter.memory > 10**5 or peak_memory() // 1024 > 3 * 10**5


def training(**recipe: Any) -> dict[str, Any]:
    return {"kind": "training", **recipe}


# ---------------------------------------------------------------- sizes and types


@pytest.mark.parametrize(
    ("name", "sizes", "words"),
    [
        ("histogram/dot-exact", {"T": 4.5}, "T = 4.5 must be an integer"),
        ("histogram/dot-exact", {"T": "4"}, "T = '4' must be an integer"),
        ("histogram/dot-exact", {"p": 2.5}, "p = 2.5 must be an integer"),
        ("histogram/dot-exact", {"T": True}, "T = True"),
        ("histogram/dot-exact", {"d_model": 0}, "d_model"),
        ("histogram/dot-exact", {"T": 10**8}, "INTERP_MAX_GB"),
        ("histogram/dot-exact", {"T": 10**6}, ""),
        ("languages/parity", {"c": "x"}, "c = 'x' must be a number"),
        ("languages/parity", {"c": 1e308}, ""),
        ("languages/parity", {"layer_norm": 1}, "true or false"),
        ("count01/minimal", {"N": 10**7}, "INTERP_MAX_GB"),
    ],
)
def test_arguments_of_constructions(name: str, sizes: dict[str, Any], words: str) -> None:
    refused(lambda: interp.build(name, **sizes), words)


@pytest.mark.parametrize(
    "fields",
    [
        {"task": "histogram", "parameters": {"T": 10**8}},
        {"task": "histogram", "parameters": {"T": 10**6}, "d_model": 10**4},
        {"task": "bigram", "parameters": {"N": 10**5, "M": 10**5}},
        {"task": "kgram", "parameters": {"k": 50}},
        {"task": "lookup", "parameters": {"k": 50}},
        {"task": "low-rank", "parameters": {"rank": 10**6}},
        {"d_model": 10**8},
        {"readout": "relu_mlp", "readout_width": 10**9},
        {"n_heads": 10**8},
        {"max_length": 10**9, "positions": "learned"},
        {"origin": training(batch_size=10**12)},
        {"origin": training(data="fresh", samples_per_epoch=10**12)},
    ],
)
def test_absurd_sizes_are_refused_before_they_are_made(fields: dict[str, Any]) -> None:
    refused(lambda: interp.build(spec(**fields)), "INTERP_MAX_GB")


def test_too_many_layers_are_refused_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the budget and of the 60,000 layers that pass it, since the meter slows down each of their calls."""
    monkeypatch.setenv("INTERP_MAX_GB", "0.1")
    refused(lambda: interp.build(spec(n_layers=6_000)), "layers would take")


def test_the_budget_is_raised_by_its_option(monkeypatch: pytest.MonkeyPatch) -> None:
    refused(lambda: need("it", 5e9), "it would take 5.0 GB, more than the budget of 4 GB")
    monkeypatch.setenv("INTERP_MAX_GB", "5.5")
    need("it", 5e9)
    for wrong in ("x", "-1", "0", "inf", "1e6"):
        monkeypatch.setenv("INTERP_MAX_GB", wrong)
        refused(gigabytes, "INTERP_MAX_GB")


@pytest.mark.parametrize("seed", [2**64, -1])
def test_seeds(seed: int) -> None:
    refused(lambda: interp.build(spec(), seed=seed), "seed")
    refused(lambda: interp.train(spec(), seeds=[seed]), "seeds")
    refused(lambda: make_task(TaskRef(name="count01", data_seed=seed)), "data_seed")


@pytest.mark.parametrize("seeds", [range(10**8), []], ids=["many", "none"])
def test_numbers_of_seeds(seeds: Any) -> None:
    refused(lambda: interp.train(spec(), seeds=seeds), "seeds")


def test_devices_and_dtypes() -> None:
    refused(lambda: interp.build(spec(), device="mps"), "mps")
    refused(lambda: interp.build(spec(), dtype="float8_e4m3fn"), "float8")


# ---------------------------------------------------------------- files


@pytest.mark.parametrize(
    "text",
    [
        "self = 1\n",
        "d_model = " + "9" * 5000,
        "x = " + "[" * 1000 + "]" * 1000,
        "x = " + "[" * 100_000 + "]" * 100_000,
        "x = " + "{a=" * 900 + "1" + "}" * 900,
        "\n".join(f"field{i} = 1" for i in range(20_000)),
        "x" * 5000 + " = 1",
        "d_model = 'a'\nb = '" + "z" * 100_000 + "'",
        "schema = " + "9" * 30,
        "d_model = 1e999",
        "#" * 2**21,
        "[task]\nname = '" + "z" * 5000 + "'\n",
        "d_model = 4\nlayers = [{d_head = 2}]\ntask = {name = '" + "z" * 5000 + "'}",
        "d_model = 4\nlayers = [{d_head = 2}]\ntask = {name = 'count01'}\npositions = '" + "q" * 5000 + "'",
        "d_model = 4\nlayers = [{d_head = 2}]\ntask = {name = 'count01', parameters = {self = 1}}",
        "d_model = 4\nlayers = [{d_head = 2}]\ntask = {name = 'count01', data_seed = 18446744073709551616}",
    ],
    ids=range(16),
)
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


@pytest.mark.parametrize(
    "text",
    [
        "seeds = 100000000",
        "seeds = 1000000000000000000000000000000",
        "seeds = [1e30]",
        "seeds = [18446744073709551616]",
        "x = " + "[" * 1000 + "]" * 1000,
        "[axes]\nd_model = [" + ",".join(map(str, range(1, 100_001))) + "]",
        "[axes]\n" + "".join(f"a{i} = {{fields=['d_model'], values={list(range(1, 11))}}}\n" for i in range(10)),
    ],
    ids=range(7),
)
def test_grids(tmp_path: Path, text: str) -> None:
    base = "[base]\nd_model=8\nlayers=[{d_head=2}]\nreadout_at='='\ntask={name='count01'}\norigin={kind='training'}\n"
    (tmp_path / "g.toml").write_text(base + text if text.startswith("[axes]") else text + "\n" + base)
    refused(lambda: read_grid(tmp_path / "g.toml"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "content",
    [
        lambda: {"a": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)},
        lambda: {"embed.W_E": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])},
        lambda: {},
        lambda: {f"t{i}": torch.ones(1) for i in range(2000)},
        lambda: {"n" * 5000: torch.ones(1)},
        lambda: {"embed.W_E": torch.ones(3).to(torch.float8_e4m3fn)},
        lambda: None,
    ],
    ids=range(7),
)
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


@pytest.mark.parametrize("names", [[f"t{i}" for i in range(20_000)], ["n" * 5000]], ids=["many", "long"])
def test_checkpoints_of_strange_names(tmp_path: Path, names: list[str]) -> None:
    interp.save(interp.build(spec()), tmp_path / "ok.safetensors")
    with safe_open(tmp_path / "ok.safetensors", "pt") as file:
        metadata = file.metadata()
    save_file({name: torch.ones(1) for name in names}, tmp_path / "s.safetensors", metadata=metadata)
    refused(lambda: interp.load(tmp_path / "s.safetensors"), "s.safetensors")


@pytest.mark.parametrize(
    ("shape", "contexts", "dtype", "largest"),
    [
        ((0, 0), (0, 1), torch.float64, None),
        ((3, 2), (3, 1), torch.float8_e4m3fn, None),
        ((3, 2), (3, 1), torch.float64, 10**15),
        ((3, 2), (3, 1), torch.float64, -1),
        ((3, 2), (3, 0), torch.float64, None),
        ((3, 2), (3, 200), torch.float64, None),
    ],
)
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
    refused(lambda: interp.load(tmp_path / "m.pt", config=config | {size: 10**4000}, task="count01"), size)


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


# ---------------------------------------------------------------- names and things


@pytest.mark.parametrize(
    "name", ["x" * 5000, "x" * 5000 + ".pt", "x/" * 2000, "~nouser/x", "a\0b", "", "/"], ids=range(7)
)
def test_names(name: str) -> None:
    for call in (interp.load, interp.build, interp.analyze, interp.certify):
        refused(lambda call=call: call(name))


WRONG_KINDS = """
interp.load(None)
interp.load(3)
interp.load("count01/paper", spec=5)
interp.build(None)
interp.build(spec, seed="a")
interp.build(spec, seed=1.5)
interp.build(spec, seed=None)
interp.train("count01/paper")
interp.train(None)
interp.train(interp.build("count01/minimal"))
interp.train(spec, seeds=5)
interp.train(spec, seeds=10**30)
interp.train(spec, seeds=["a"])
interp.analyze(None)
interp.analyze(3)
interp.analyze([3])
interp.analyze([])
interp.analyze({"a": 1})
interp.analyze(spec)
interp.certify(None)
interp.certify(3)
interp.certify(spec)
interp.certify("languages/one", longest="5")
interp.certify("languages/one", longest=10**9)
interp.certify("languages/one", longest=True)
interp.certify("histogram/dot-exact", seconds="x")
interp.certify("memorization/bigram", max_kl="x")
interp.certify(exact, box=5)
interp.certify(exact, nope=1)
interp.analyze(exact, sections="heads")
interp.analyze(exact, sections=5)
interp.analyze(exact, options={"heads": 5})
interp.analyze(exact, task=5)
interp.analyze("count01/minimal", device=5)
interp.train(spec, folder=5)
interp.train(spec, folder="/dev/null/x")
interp.train(spec, task=5)
interp.train(spec, engine=5)
interp.train(spec, snapshots=5)
interp.save(exact, None)
interp.save(5, "a.safetensors")
interp.head_metrics(exact, 5)
interp.head_metrics(exact, [(99,)])
interp.reweight_attention(exact, w01=["a"])
interp.evaluate_circuit(exact, heads=5)
interp.evaluate_circuit(exact, heads="head 0.0")
interp.ModelSpec.from_toml(None)
interp.ModelSpec.from_dict([1])
interp.sweep(None)
interp.sweep(5)
interp.report.analyze.list_sections(5)
interp.live(None)
interp.register_task(int)
interp.ablate_heads(exact, inputs=batch.tokens.float())
interp.head_metrics(exact, test=[batch])
interp.evaluate_circuit(exact, heads=[0], inputs=interp.Batch(batch.tokens.float(), batch.lengths, batch.labels))
interp.ablate_heads(exact, inputs=interp.Batch(batch.tokens > 0, batch.lengths, batch.labels))
interp.head_metrics(exact, test=interp.Batch(batch.tokens[:1], batch.lengths, batch.labels))
exact.predict(batch.tokens > 0)
exact.predict(batch.tokens[:1, :0])
interp.build("count01/minimal", seed="x")
interp.Batch(None, None, None)
exact.task.sample(10**10)
interp.analyze(exact, sections=["accuracy"], out=5)
interp.analyze(exact, sections=["accuracy"], out="a" * 300)
interp.save(exact, "a" * 300 + ".safetensors")
interp.train(training, folder="a" * 300)
interp.sweep(make_grid({"base": base}), out=5)
interp.ModelSpec.from_dict({"d_model": 4, "layers": [{"d_head": 2}] * 200_000, "task": {"name": "count01"}})
make_grid({"base": base, "axes": {"layers.².d_head": [1, 2]}})
make_grid({"base": base | {"origin": "x"}, "epochs": 3})
interp.ablate_heads(meta)
interp.analyze(meta)
interp.certify(meta)
interp.save(meta, "m.safetensors")
meta.predict(batch.tokens)
"""


@pytest.mark.slow
def test_things_of_the_wrong_kind() -> None:
    """In a Python of their own: here the checks of annotations would come first."""
    code = f"""
import interp
spec = interp.ModelSpec(task={{"name": "count01"}}, d_model=4, layers=[{{"d_head": 2}}], readout_at="=")
exact = interp.build("count01/minimal")
batch = exact.task.sample(3)
base = {{"task": {{"name": "count01"}}, "d_model": 4, "layers": [{{"d_head": 2}}], "readout_at": "=",
        "origin": {{"kind": "training"}}}}
training, meta = interp.ModelSpec.from_dict(base), interp.build("count01/minimal").to("meta", print_details=False)
from interp.training.sweeps.grid import make_grid
for line in {WRONG_KINDS.split(chr(10))!r}:
    try:
        if line:
            eval(line)
            print("accepted", line)
    except interp.InterpError as error:
        if len(str(error)) >= 300 or chr(10) in str(error):
            print("long", line, error)
    except Exception as error:
        print("raw", line, repr(error))
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", code], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout == ""
