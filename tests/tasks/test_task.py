"""The protocol of tasks: registration, references, parsing, tables."""

import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import interp.families
from interp.errors import InterpError, check_size
from interp.families.algorithmic.tasks import modular_addition
from interp.families.count01 import Count01
from interp.models.spec import TaskRef
from interp.tasks import IGNORED, Batch, Task, make_task, register_task, registered_tasks, registry, task_checks
from interp.tasks.registry import load_plug_ins
from interp.tasks.task import tensors_sha256


class Sums(Task):
    """Labels by a table of the user's."""

    name = "base-test-sums"
    readout = "last"
    vocabulary = ("a", "ab", "b", "[PAD]")
    pad = "[PAD]"
    defaults: ClassVar[Mapping[str, Any]] = {"k": 2, "rate": 0.5, "flag": False, "word": "x"}

    def __init__(self, data_seed: int = 0, table: Tensor | None = None, **parameters: Any) -> None:
        super().__init__(data_seed, **parameters)
        self.table = table

    @property
    def n_out(self) -> int:
        return 2

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        zeros = torch.zeros(n, dtype=torch.long)
        return Batch(zeros[:, None], zeros + 1, zeros)

    def classes(self, batch: Batch) -> Tensor:
        return batch.tokens

    def tables(self) -> dict[str, Tensor]:
        return {} if self.table is None else {"table": self.table}

    @classmethod
    def from_tables(cls, tables: Mapping[str, Tensor], data_seed: int = 0, **parameters: Any) -> Task:
        return cls(data_seed, tables["table"], **parameters)


register_task(Sums)
TASK = Sums()


# ---------------------------------------------------------------- names


def test_registration() -> None:
    assert registered_tasks()["base-test-sums"] is Sums
    assert list(registered_tasks()) == sorted(registered_tasks())
    assert register_task(Sums) is Sums  # a notebook cell run twice
    with pytest.raises(InterpError, match="already registered"):
        register_task(type("Other", (Sums,), {"name": "count01"}))


@pytest.mark.parametrize("thing", [int, type("Nameless", (Task,), {})])
def test_only_named_tasks_are_registered(thing: Any) -> None:
    with pytest.raises(InterpError, match="subclass"):
        inspect.unwrap(register_task)(thing)  # past the type checks of the tests, as a user would meet it


def test_references_and_tasks_are_inverse() -> None:
    for task in (TASK, Sums(k=3, rate=1, data_seed=4), Sums(word="y", flag=True), Count01(data_seed=2)):
        again = make_task(task.ref)
        assert type(again) is type(task)
        assert (again.parameters, again.data_seed) == (task.parameters, task.data_seed)
        assert again.ref == task.ref
    assert TASK.ref == TaskRef(name="base-test-sums")  # defaults are left out


@pytest.mark.parametrize(("parameters", "word"), [
    ({"j": 1}, "'j'"), ({"k": 2.5}, "k = 2.5 must be an int"), ({"k": True}, "k = True"),
    ({"flag": 1}, "flag = 1"), ({"word": 1}, "word = 1"), ({"rate": "1"}, "rate = '1'"),
])  # fmt: skip
def test_parameters_are_checked(parameters: dict[str, Any], word: str) -> None:
    with pytest.raises(InterpError) as error:
        Sums(**parameters)
    assert word in str(error.value)


def test_unknown_tasks_name_the_closest() -> None:
    with pytest.raises(InterpError, match="did you mean 'count01'"):
        make_task("cuont01")


# ---------------------------------------------------------------- text


@given(st.lists(st.sampled_from(["a", "ab", "b", "[PAD]"]), max_size=9))
def test_spaces_part_tokens_where_one_begins_another(words: list[str]) -> None:
    assert [TASK.vocabulary[token] for token in TASK.parse(" ".join(words))] == words


@given(st.lists(st.sampled_from(["a", "b", "[PAD]"]), max_size=9))
def test_parse_takes_the_longest_token(words: list[str]) -> None:
    found = [TASK.vocabulary[token] for token in TASK.parse("".join(words))]
    assert "".join(found) == "".join(words)
    assert "".join(found).count("ab") == found.count("ab")  # never an a and a b where ab would do


def test_parse_and_format() -> None:
    assert TASK.parse("a b ab [PAD]") == [0, 2, 1, 3]
    assert TASK.format([0, 2, 3]) == "a b [PAD]"
    assert TASK.format(torch.tensor([1, 0])) == "ab a"
    assert TASK.parse("") == []
    with pytest.raises(InterpError, match="'c' at position 2"):
        TASK.parse("abcab")
    with pytest.raises(InterpError, match=r"'\[' at position 0"):
        TASK.parse("[PAD")


def test_samples_of_a_split_and_seed_are_those_of_every_release() -> None:
    """Published numbers are of these draws; the streams of all splits and seeds differ."""
    streams = [TASK.generator(split, seed) for seed in range(20) for split in TASK.splits]
    assert len({stream.initial_seed() for stream in streams}) == len(streams)
    task = make_task("count01")
    assert torch.randint(100, (6,), generator=task.generator("test", 3)).tolist() == [4, 8, 83, 1, 29, 50]


def test_small_properties() -> None:
    assert (TASK.d_vocab, TASK.pad_id, TASK.token_id("b")) == (4, 3, 2)
    assert repr(Sums(k=3)) == "Sums(k=3, rate=0.5, flag=False, word='x')"
    with pytest.raises(InterpError, match="no fixed data set"):
        TASK.dataset("test")
    with pytest.raises(InterpError, match="'tets'"):
        TASK.check_split("tets")


# ---------------------------------------------------------------- batches


def test_one_input_of_a_batch_is_a_batch_of_one() -> None:
    batch = make_task("parity").sample(3)
    for number, one in enumerate(batch):
        assert len(one) == 1
        assert one.tokens.equal(batch.tokens[number : number + 1])
        assert repr(one) == repr(batch[number : number + 1])
    assert number == 2
    assert repr(batch[-1]) == repr(batch[2:])
    with pytest.raises(IndexError):
        batch[3]


def test_batches() -> None:
    batch = Batch(torch.arange(12).reshape(3, 4), torch.tensor([4, 2, 0]), torch.tensor([True, False, True]))
    assert batch.attention_mask.tolist() == [[True] * 4, [True, True, False, False], [False] * 4]
    assert len(batch[:2]) == 2
    assert batch[torch.tensor([2])].lengths.tolist() == [0]
    assert batch.to("cpu").tokens.equal(batch.tokens)
    assert len(Sums().sample(0)) == 0


# ---------------------------------------------------------------- tables and sizes


def test_a_task_with_a_table_needs_just_that_table() -> None:
    table = torch.tensor([[0.25, 0.75]], dtype=torch.float64)
    task = Sums(table=table, k=5)
    assert task.ref.table_sha256 is not None
    again = make_task(task.ref, {"table": table.clone()})
    assert again.table.equal(table)
    assert again.ref == task.ref
    for tables in (None, {}, {"table": table.flip(1)}, {"table": table.float()}, {"tables": table}):
        with pytest.raises(InterpError, match="sha256"):
            make_task(task.ref, tables)
    with pytest.raises(InterpError, match="sha256"):
        make_task("count01", {"table": table})
    with pytest.raises(InterpError, match="no tables"):
        Count01.from_tables({"table": table})


def test_the_hash_covers_names_dtypes_shapes_bytes_and_salt() -> None:
    one = {"x": torch.arange(6.0), "y": torch.zeros(2, 3)}
    others = [
        {"x": torch.arange(6.0), "z": torch.zeros(2, 3)}, {"x": torch.arange(6.0), "y": torch.zeros(3, 2)},
        {"x": torch.arange(6.0).double(), "y": torch.zeros(2, 3)},
        {"x": torch.arange(6.0), "y": torch.zeros(2, 3, dtype=torch.int32)},
        {"x": torch.arange(6.0).flip(0), "y": torch.zeros(2, 3)}, {"x": torch.arange(6.0), "y": -torch.zeros(2, 3)},
        {"x": torch.arange(6.0)}, {"y": torch.arange(6.0), "x": torch.zeros(2, 3)}, {},
    ]  # fmt: skip
    hashes = {tensors_sha256(tensors) for tensors in (one, *others)} | {tensors_sha256(one, "salt")}
    assert len(hashes) == len(others) + 2
    reordered = {"y": one["y"].T.contiguous().T, "x": one["x"]}  # order and memory layout are no content
    assert tensors_sha256(reordered) == tensors_sha256(one)
    assert tensors_sha256({"x": torch.zeros(0), "y": torch.tensor(True)}) != tensors_sha256({})
    assert tensors_sha256({"x": torch.zeros(2, dtype=torch.bfloat16)}) != tensors_sha256({"x": torch.zeros(2).half()})


@pytest.mark.parametrize("value", [0, -1, True, 2.0, "3", None, np.int64(3)])
def test_sizes(value: Any) -> None:
    assert check_size("n", 1) == 1
    with pytest.raises(InterpError, match="n = "):
        inspect.unwrap(check_size)("n", value)


def test_a_folder_with_tasks_is_all_that_a_family_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = inspect.getsource(modular_addition).replace('name = "modular-addition"', 'name = "base-test-dropped"')
    (tmp_path / "dropped").mkdir()
    (tmp_path / "dropped" / "tasks.py").write_text(source, "utf-8")
    monkeypatch.setattr(interp.families, "__path__", [*interp.families.__path__, str(tmp_path)])
    load_plug_ins("tasks")
    try:
        task = make_task(TaskRef(name="base-test-dropped", parameters={"p": 3}))
        assert task.sample(2, seed=1).labels.max() < 3
    finally:
        registry._REGISTRY.pop("base-test-dropped", None)
        sys.modules.pop("interp.families.dropped.tasks", None)


class Parities(Task):
    """Is the number of 1s so far odd?"""

    name, vocabulary, pad, answer_words = "base-parities", ("0", "1", "_"), "_", ("even", "odd")

    def batch(self, tokens: torch.Tensor) -> Batch:
        real = tokens != 2
        return Batch(tokens, real.sum(1), ((tokens == 1).cumsum(1) % 2).masked_fill(~real, -1))

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        return self.batch(torch.randint(2, (n, 4), generator=torch.Generator().manual_seed(seed)))


def test_a_task_that_states_labels_needs_no_classes_or_outputs() -> None:
    task = Parities()
    assert task.n_out == 2
    batch = task.batch(torch.tensor([[1, 0, 1, 2]]))
    assert task.classes(batch).tolist() == [[1, 1, 0, IGNORED]]
    assert task.answers(task.classes(batch), batch.tokens).tolist() == [[1, 1, 0, IGNORED]]
    task_checks.check_made(task)


def test_one_label_per_row_stands_where_the_answer_is_read() -> None:
    class Last(Parities):
        name, readout = "base-last-parity", "last"

        def batch(self, tokens: torch.Tensor) -> Batch:
            return Batch(tokens, (tokens != 2).sum(1), (tokens == 1).sum(1) % 2)

    task = Last()
    assert task.classes(task.batch(torch.tensor([[1, 0, 1, 2], [1, 1, 1, 0]]))).tolist() == [
        [IGNORED, IGNORED, 0, IGNORED],
        [IGNORED, IGNORED, IGNORED, 1],
    ]
    task_checks.check_made(task)

    class Everywhere(Last):
        name, readout = "base-everywhere", "all"

    with pytest.raises(InterpError, match="answers are read at 'all', so they must be"):
        Everywhere().classes(Everywhere().sample(2))


class Residues(Task):
    """Two digits: their sum modulo p, as a word."""

    name, readout, defaults = "base-residues", "last", {"p": 3}

    def __init__(self, data_seed: int = 0, **parameters: Any) -> None:
        super().__init__(data_seed, **parameters)
        p = int(self.parameters["p"])
        self.vocabulary = tuple(map(str, range(10)))
        self.answer_words = tuple(f"{i} mod {p}" for i in range(p))
        self.n_inputs, self.describe = 100, f"The sum modulo {p}."

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        return self.batch(torch.randint(10, (n, 2), generator=torch.Generator().manual_seed(seed)))

    def batch(self, tokens: torch.Tensor) -> Batch:
        return Batch(tokens, torch.full((len(tokens),), 2), tokens.sum(1) % int(self.parameters["p"]))


def test_members_may_be_set_in_init_where_parameters_decide_them() -> None:
    for p in (3, 5):
        task = Residues(p=p)
        task_checks.check_made(task)
        assert (task.n_out, task.n_classes, task.n_inputs) == (p, p, 100)
        assert task.answer_words[-1] == f"{p - 1} mod {p}"
        assert task.describe == f"The sum modulo {p}."
