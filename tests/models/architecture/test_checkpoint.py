"""Checkpoints: what is written is what is read, and nothing that is broken or hostile gets through."""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from interp.errors import CheckpointError, InterpError, SpecError
from interp.models.architecture import checkpoint as module
from interp.models.architecture import header
from interp.models.architecture.checkpoint import read_checkpoint, save_checkpoint
from interp.models.architecture.header import read_header
from interp.models.architecture.parameters import initialize
from interp.models.spec import Bias, Layer, ModelSpec, TaskRef
from interp.tasks import Batch, Task, make_task, register_task

SPEC = ModelSpec(
    task=TaskRef(name="count01"), d_model=3, layers=(Layer(d_head=2, bias=Bias(o=True)),), readout_at="=",
    dtype="float64",
)  # fmt: skip
WEIGHTS = {  # drawn in float32; a third of it needs all bits of a float64
    name: tensor / 3 for name, tensor in initialize(SPEC, make_task("count01"), seed=7).items()
}
SUMMARY = {"accuracy": 0.75, "epochs": 3, "recipe": "A"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A good checkpoint."""
    return save_checkpoint(tmp_path / "model.safetensors", SPEC, WEIGHTS, seed=7, summary=SUMMARY)


def parts(path: Path) -> tuple[dict[str, Any], bytes]:
    """Header and body of a safetensors file, by the format's definition."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def put(path: Path, header: Mapping[str, Any] | str, body: bytes) -> None:
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def refused(path: Path, word: str) -> None:
    """One clear sentence that names the file."""
    with pytest.raises(CheckpointError) as error:
        read_checkpoint(path)
    assert str(path) in str(error.value)
    assert word in str(error.value), str(error.value)
    assert "\n" not in str(error.value)


# ---------------------------------------------------------------- round trip


def test_what_is_written_is_read(path: Path) -> None:
    found = read_checkpoint(path)
    assert found.spec == SPEC
    assert found.seed == 7
    assert found.summary == SUMMARY
    assert set(found.versions) == {"interp", "torch", "transformer-lens"}
    assert found.versions["torch"] == version("torch")  # torch.__version__ adds +cu130 to it
    assert found.tensors.keys() == WEIGHTS.keys()
    for name, tensor in WEIGHTS.items():
        assert found.tensors[name].equal(tensor)
        assert found.tensors[name].dtype == torch.float64
    header = read_header(path)
    assert (header.spec, header.seed, header.summary, header.versions) == (SPEC, 7, SUMMARY, found.versions)


def test_the_file_is_plain_safetensors(path: Path) -> None:
    """Numpy alone reads it: little-endian bodies at the offsets that the header states."""
    header, body = parts(path)
    record = json.loads(header.pop("__metadata__")["interp"])
    assert ModelSpec.from_dict(record["spec"]) == SPEC
    assert set(header) == set(WEIGHTS)
    for name, entry in header.items():
        start, stop = entry["data_offsets"]
        array = np.frombuffer(body[start:stop], "<f8").reshape(entry["shape"])
        assert (array == WEIGHTS[name].numpy()).all()


def test_equal_arguments_give_equal_bytes(tmp_path: Path) -> None:
    """safetensors itself orders its metadata at random."""
    files = [save_checkpoint(tmp_path / f"{i}.safetensors", SPEC, WEIGHTS, 0).read_bytes() for i in range(8)]
    assert len(set(files)) == 1


@pytest.mark.slow
def test_reading_needs_neither_transformer_lens_nor_pandas(path: Path) -> None:
    code = (
        "import sys; from interp.models.architecture.checkpoint import read_checkpoint\n"
        f"read_checkpoint({str(path)!r})\n"
        "print([name for name in ('transformer_lens', 'pandas') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_dtypes_and_odd_memory_layouts(tmp_path: Path, dtype: Any) -> None:
    spec = SPEC.replace(dtype=dtype)
    odd = {name: tensor.to(getattr(torch, dtype)) for name, tensor in WEIGHTS.items()}
    odd["embed.W_E"] = odd["embed.W_E"].T.contiguous().T  # transposed
    odd["unembed.b_U"] = odd["unembed.b_U"][:1].expand(8)  # shared
    found = read_checkpoint(save_checkpoint(tmp_path / "odd.safetensors", spec, odd, 0)).tensors
    assert all(found[name].equal(tensor) for name, tensor in odd.items())


def test_the_mode_of_the_file_follows_the_umask(path: Path) -> None:
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask


# ---------------------------------------------------------------- hostile and broken files


def test_a_pickle_under_our_name_runs_nothing(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
            return os.mkdir, (str(tmp_path / "ran"),)

    for name, data in (("a", pickle.dumps(Evil())), ("b", b"")):
        path = tmp_path / f"{name}.safetensors"
        path.write_bytes(data)
        refused(path, "safetensors")
    torch.save({"x": Evil()}, tmp_path / "c.safetensors")
    refused(tmp_path / "c.safetensors", "safetensors")
    assert not (tmp_path / "ran").exists()


def test_truncated_anywhere(path: Path) -> None:
    whole = path.read_bytes()
    for size in [*range(0, 40), *range(40, len(whole), 37), len(whole) - 1]:
        path.write_bytes(whole[:size])
        refused(path, "not a whole safetensors file")


@pytest.mark.slow
def test_a_flipped_bit_anywhere(path: Path) -> None:
    """Every byte of the file, one bit each: refused, or read as exactly the same."""
    whole, generator, read = path.read_bytes(), np.random.default_rng(0), 0
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << int(generator.integers(8))
        path.write_bytes(damaged)
        try:
            found = read_checkpoint(path)
        except CheckpointError:
            continue
        read += 1
        assert (found.spec, found.seed, found.summary) == (SPEC, 7, SUMMARY)
        assert all(found.tensors[name].equal(tensor) for name, tensor in WEIGHTS.items())
    assert read < 8


@pytest.mark.parametrize("size", [2**62, 2**63 + 5, 10**9, 0, 1])
def test_absurd_header_lengths(path: Path, size: int) -> None:
    path.write_bytes(size.to_bytes(8, "little") + path.read_bytes()[8:])
    refused(path, "not a whole safetensors file")


@pytest.mark.parametrize("text", ["{}", "[]", "null", '"x"', "{" * 100_000, '{"a": 1e999}', "\x00\xff"])
def test_headers_that_are_none(path: Path, text: str) -> None:
    put(path, text, parts(path)[1])
    refused(path, "")


def test_lying_shapes_and_offsets(path: Path) -> None:
    header, body = parts(path)
    embedding = header["embed.W_E"]
    start, stop = embedding["data_offsets"]
    lies = [
        {"shape": [80_000, 3]}, {"shape": [2**40, 2**40]}, {"shape": [-8, -3]}, {"shape": [8, 3, 0]},
        {"shape": "8x3"}, {"dtype": "F32"}, {"dtype": "PICKLE"}, {"data_offsets": [0, stop - start]},
        {"data_offsets": [start, 10**15]}, {"data_offsets": [stop, start]}, {"data_offsets": [start, stop - 8]},
    ]  # fmt: skip
    for lie in lies:
        put(path, header | {"embed.W_E": embedding | lie}, body)
        refused(path, "")
    put(path, header | {"unembed.b_U": header["embed.W_E"]}, body)
    refused(path, "not a whole safetensors file")


def rewritten(path: Path, change: Callable[[dict[str, Any]], Any], tensors: Mapping[str, Tensor] | None = None) -> None:
    """The file with its record changed and the hash made right again: what someone who knows the format would do."""
    record = json.loads(parts(path)[0]["__metadata__"]["interp"])
    tensors = dict(WEIGHTS if tensors is None else tensors)
    del record["sha256"]
    change(record)
    record.setdefault("sha256", module.tensors_sha256(tensors, header.canonical(record)))
    from safetensors.torch import save_file

    save_file(tensors, path, metadata={"format": "pt", "interp": json.dumps(record)})


def test_the_rewriting_of_these_tests_is_itself_read(path: Path) -> None:
    rewritten(path, lambda record: record.update(seed=9))
    assert read_checkpoint(path).seed == 9


SPEC_WITH_PROBLEMS = SPEC.to_dict() | {"max_length": 5}


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda r: r.update(schema=2), "schema 2"), (lambda r: r.update(schema="1"), "schema"),
        (lambda r: r.update(schema=0), "schema"), (lambda r: r.update(schema=True), "schema"),
        (lambda r: r.pop("schema"), "schema"), (lambda r: r.pop("seed"), "seed"),
        (lambda r: r.update(seed=-1), "seed"), (lambda r: r.update(seed="0"), "seed"),
        (lambda r: r.update(extra=1), "must have"), (lambda r: r.update(sha256=5), "sha256"),
        (lambda r: r.update(sha256="0" * 64), "damaged"), (lambda r: r.update(summary=[1]), "summary"),
        (lambda r: r.update(versions="1"), "versions"), (lambda r: r.update(spec=[]), "spec"),
        (lambda r: r.update(spec=SPEC.to_dict() | {"schema": 99}), "schema 99"),
        (lambda r: r.update(spec=SPEC.to_dict() | {"d_modle": 5}), "d_modle"),
        (lambda r: r.update(spec=SPEC_WITH_PROBLEMS), "max_length"),
        (lambda r: r.update(spec=SPEC.to_dict() | {"task": {"name": "count02"}}), "count02"),
        (lambda r: r.update(spec=SPEC.to_dict() | {"task": {"name": "count01", "parameters": {"T": 3}}}), "'T'"),
        (lambda r: r.update(spec=SPEC.to_dict() | {"task": {"name": "count01", "table_sha256": "ab"}}), "tables"),
        (lambda r: r.update(spec=SPEC.to_dict() | {"d_model": 10**12}), "shape"),
    ],
)  # fmt: skip
def test_records_that_lie(path: Path, change: Callable[[dict[str, Any]], Any], word: str) -> None:
    rewritten(path, change)
    refused(path, word)


@pytest.mark.parametrize(
    "text", ["{", "", "nul", "[" * 100_000, "{}", "[1]", '{"schema": NaN}', '{"schema": 1, "seed": 1e999}']
)
def test_metadata_that_is_no_record(path: Path, text: str) -> None:
    header, body = parts(path)
    put(path, header | {"__metadata__": {"format": "pt", "interp": text}}, body)
    refused(path, "interp header")


@pytest.mark.parametrize("metadata", [None, {}, {"format": "pt"}, {"interp": "{}"}, {"format": "np", "interp": "{}"}])
def test_files_without_our_header_say_what_to_do(path: Path, metadata: dict[str, str] | None) -> None:
    header, body = parts(path)
    header["__metadata__"] = metadata
    put(path, {name: value for name, value in header.items() if value is not None}, body)
    refused(path, "model.toml")


@pytest.mark.parametrize(
    ("tensors", "word"),
    [
        (WEIGHTS | {"embed.W_E": WEIGHTS["embed.W_E"] * torch.nan}, "not finite"),
        (WEIGHTS | {"unembed.b_U": WEIGHTS["unembed.b_U"] + torch.inf}, "not finite"),
        (WEIGHTS | {"unembed.b_V": torch.zeros(1)}, "unexpected unembed.b_V"),
        ({name: tensor for name, tensor in WEIGHTS.items() if name != "embed.W_E"}, "missing embed.W_E"),
        (WEIGHTS | {"embed.W_E": torch.zeros(8, 4, dtype=torch.float64)}, "(8, 4)"),
        (WEIGHTS | {"embed.W_E": torch.zeros(8, 3)}, "F32"),
        (WEIGHTS | {"embed.W_E": torch.zeros(8, 3, dtype=torch.int64)}, "I64"),
        (WEIGHTS | {"task.table": torch.zeros(2)}, "tables"),
    ],
)
def test_tensors_that_do_not_fit(path: Path, tensors: dict[str, Tensor], word: str) -> None:
    rewritten(path, lambda record: None, tensors)
    refused(path, word)


def test_no_file_a_folder_and_a_file_too_big(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(tmp_path / "none.safetensors", "no such file")
    refused(tmp_path, "regular file")
    refused(Path(os.devnull), "regular file")
    size = path.stat().st_size
    monkeypatch.setattr(header, "MAX_BYTES", size - 1)
    refused(path, f"{size:,} bytes")
    monkeypatch.setattr(header, "MAX_BYTES", size)
    assert read_checkpoint(path).seed == 7


# ---------------------------------------------------------------- writing


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"tensors": {}}, "missing"),
        ({"tensors": WEIGHTS | {"embed.W_E": WEIGHTS["embed.W_E"] * torch.nan}}, "not finite"),
        ({"tensors": WEIGHTS, "spec": SPEC.replace(dtype="float32")}, "float32"),
        ({"tensors": WEIGHTS, "summary": {"loss": float("nan")}}, "summary"),
        ({"tensors": WEIGHTS, "summary": {"loss": torch.zeros(1)}}, "summary"),
        ({"tensors": WEIGHTS, "spec": SPEC.replace(max_length=4)}, "max_length"),
        ({"tensors": WEIGHTS, "path": "model.pt"}, ".safetensors"),
        ({"tensors": WEIGHTS, "path": "no/folder/model.safetensors"}, "No such file"),
        ({"tensors": WEIGHTS, "path": "folder.safetensors"}, "is a folder"),
    ],
)
def test_what_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], word: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder.safetensors").mkdir()
    with pytest.raises(InterpError) as error:
        save_checkpoint(**({"path": "new.safetensors", "spec": SPEC, "seed": 0} | change))
    assert word in str(error.value)
    assert os.listdir() == ["folder.safetensors"]


def test_exact_rounding_is_allowed(tmp_path: Path) -> None:
    """A float32 model that was computed with in float64 has lost nothing and goes back."""
    weights = {name: tensor.float().double() for name, tensor in WEIGHTS.items()}
    path = save_checkpoint(tmp_path / "a.safetensors", SPEC.replace(dtype="float32"), weights, 0)
    assert read_checkpoint(path).tensors["embed.W_E"].double().equal(weights["embed.W_E"])


def test_a_failure_while_writing_keeps_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match="No space left"):
        save_checkpoint(path, SPEC, WEIGHTS, seed=8)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


# ---------------------------------------------------------------- a task with a table


@register_task
class TableTask(Task):
    """A task whose labels are a table that no parameter generates."""

    name = "checkpoint-test-table"
    vocabulary = ("a", "b")
    defaults: ClassVar[dict[str, int]] = {"k": 1}

    def __init__(self, data_seed: int = 0, table: Tensor | None = None, **parameters: Any) -> None:
        super().__init__(data_seed, **parameters)
        self.table = torch.eye(2, dtype=torch.float64) if table is None else table

    n_out = 2

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        tokens = torch.randint(2, (n, 1), generator=torch.Generator().manual_seed(seed))
        return Batch(tokens, torch.ones(n, dtype=torch.long), self.table.argmax(1)[tokens])

    def tables(self) -> dict[str, Tensor]:
        return {"table": self.table}

    @classmethod
    def from_tables(cls, tables: Mapping[str, Tensor], data_seed: int = 0, **parameters: Any) -> Task:
        return cls(data_seed, tables["table"], **parameters)


def test_a_table_travels_with_the_model(tmp_path: Path) -> None:
    task = TableTask(table=torch.tensor([[0.25, 0.75], [1.0, 0.0]], dtype=torch.float64), k=2)
    spec = ModelSpec(task=task.ref, d_model=2, layers=(Layer(d_head=2),))
    weights = initialize(spec, task, 0)
    path = save_checkpoint(tmp_path / "table.safetensors", spec, weights, 0, task=task)
    found = read_checkpoint(path)
    assert isinstance(found.task, TableTask)
    assert found.task.table.equal(task.table)
    assert found.task.parameters == {"k": 2}
    assert found.tensors.keys() == weights.keys()
    with pytest.raises(InterpError, match="tables"):  # another table is another task
        save_checkpoint(path, spec, weights, 0)
    with pytest.raises(InterpError, match="task"):
        save_checkpoint(path, spec, weights, 0, task=TableTask(k=2))


def test_problems_of_a_spec_are_its_own_error(tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        save_checkpoint(tmp_path / "x.safetensors", SPEC.replace(layers=()), WEIGHTS, 0)
