"""What a task may state wrongly, one sentence each; text of tokens of several digits; tasks from outside."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from majority import MoreB

import interp
from interp import cli
from interp.errors import InterpError, UnsupportedError
from interp.families.histogram import Histogram
from interp.families.languages import Parity
from interp.families.memorization import LookupTask
from interp.models.spec import Layer, ModelSpec, TaskRef
from interp.tasks import IGNORED, Batch, Task, make_task, register_task, registered_tasks, registry, task_checks
from interp.tasks.batch_checks import LABELS, check_padding, check_tokens


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    return


class Good(Task):
    """Is the first bit set?"""

    name = "checks-good"
    vocabulary = ("0", "1")
    readout = "last"
    n_out = 2

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        tokens = torch.randint(0, 2, (n, 3), generator=torch.Generator().manual_seed(seed))
        return Batch(tokens, torch.full((n,), 3), tokens[:, 0])

    def classes(self, batch: Batch) -> torch.Tensor:
        classes = torch.full_like(batch.tokens, IGNORED)
        classes[:, -1] = batch.labels
        return classes

    def answers(self, classes: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return classes


def test_a_good_task_is_registered() -> None:
    assert register_task(Good) is Good
    assert registered_tasks()["checks-good"] is Good


def _short(self: Task, n: int, split: str = "test", seed: int = 0) -> Batch:
    batch = Good.sample(self, n, split, seed)
    return Batch(batch.tokens, batch.lengths, batch.labels.int())


BAD: list[tuple[dict[str, Any], str]] = [
    ({"vocabulary": ("0", "1", "0")}, "vocabulary has '0' twice"),
    ({"vocabulary": ["0", "1"]}, "must be a tuple of words"),
    ({"vocabulary": ("0", "a b")}, "the token 'a b' contains a space"),
    ({"pad": "x"}, "pad names 'x', which is not a token"),
    ({"readout": "="}, "readout names '=', which is not a token"),
    ({"counted": ("2",)}, "counted names '2'"),
    ({"contrast": ("0", "2")}, "must be two of its answer_words: 0, 1"),
    ({"cyclic": {"a": ("0", "7")}}, r"cyclic\['a'\] names '7'"),
    ({"n_out": 0}, "n_out = 0 must be a positive integer"),
    ({"n_out": 2.0}, "n_out = 2.0 must be a positive integer"),
    ({"n_inputs": "8"}, "n_inputs = '8' must be a positive integer, or None"),
    ({"splits": "test"}, "splits = 'test' must be a tuple of words"),
    ({"counted": "01"}, "counted = '01' must be a tuple of words"),
    ({"cyclic": ("0", "1")}, "must be a dict from names to tuples of tokens"),
    (
        {"counted": ("0",), "count_ranges": {"test": ((3, 2),)}},
        r"count_ranges\['test'\] = .* must be \(lowest, highest\)",
    ),
    ({"answer_words": ("no", "no")}, "answer_words has 'no' twice"),
    ({"answer_words": ("one",)}, "answer_words has 1 words for 2 answers"),
    ({"sample": lambda self, n, split="test", seed=0: torch.zeros(n, 3)}, "gives a Tensor; it must be an interp.Batch"),
    (
        {"sample": _short},
        "labels of shape .3,. and torch.int32; answers are read at 'last', so they must be .3,. "
        f"of {re.escape(LABELS)}$",
    ),
    (
        {"classes": lambda self, batch: batch.labels},
        r"classes\(batch\) gives shape \(3,\) and torch.int64; it must be \(3, 3\)",
    ),
    ({"classes": lambda self, batch: batch.tokens + 5}, "classes.batch. runs from 5 to 6, outside 0 to 1"),
    ({"classes": lambda self, batch: torch.full_like(batch.tokens, -100)}, "IGNORED everywhere"),
    ({"answers": lambda self, classes, tokens: classes == 1}, f"in the same units, labels of {re.escape(LABELS)}$"),
    ({"answers": lambda self, classes, tokens: 1 - classes}, "where the label is"),
    ({"sample": lambda self, n, split="test", seed=0: undefined}, "define it above the class"),
    ({"readout": "first"}, r"read at 'first', which is position 0 of row 0, where classes\(batch\) is IGNORED"),
]


@pytest.mark.parametrize(("changes", "sentence"), BAD, ids=[sentence[:30] for _, sentence in BAD])
def test_a_task_that_cannot_work_is_refused(changes: dict[str, Any], sentence: str) -> None:
    kind = type("Bad", (Good,), {"name": "checks-bad", "__module__": __name__, **changes})
    with pytest.raises(InterpError, match=f"^task checks-bad: .*{sentence}"):
        register_task(kind)
    assert "checks-bad" not in registered_tasks()


def test_missing_members_are_named() -> None:
    kind = type("Bad", (Task,), {"name": "checks-bad", "vocabulary": ("0",), "n_out": 1})
    with pytest.raises(InterpError, match=r"define sample; help\(interp.Task\)"):
        register_task(kind)


@pytest.mark.parametrize("kind", [k for k in registered_tasks().values() if k.__module__.startswith("interp.")])
def test_our_own_tasks_pass(kind: type[Task]) -> None:
    task_checks.check_task(kind)


def test_rows_are_filled_up_on_the_right_with_the_pad() -> None:
    """Masks are made from lengths, places from tokens: where the two disagree something would be read wrongly."""
    padded = type("Padded", (Good,), {"name": "checks-padded", "vocabulary": ("0", "1", "_"), "pad": "_"})()
    lengths = torch.tensor([3, 2])
    rows = torch.tensor([[0, 1, 0], [1, 0, 2]])
    check_padding(padded, Batch(rows, lengths, rows[:, 0]))
    with pytest.raises(InterpError, match=r"row 1 has '1' at position 2, after its 2 tokens: .* with '_'"):
        check_padding(padded, Batch(torch.tensor([[0, 1, 0], [1, 0, 1]]), lengths, rows[:, 0]))
    with pytest.raises(InterpError, match=r"row 1 has '_' at position 0, before a token: .* on the right"):
        check_padding(padded, Batch(rows.flip(1), lengths, rows[:, 0]))
    with pytest.raises(InterpError, match="have different lengths, but it names no padding token"):
        check_padding(Good(), Batch(rows, lengths, rows[:, 0]))


class Numbers(Good):
    """Tokens of several digits."""

    name = "checks-numbers"
    vocabulary = (*map(str, range(120)), "[END]")


@given(st.lists(st.integers(0, 120), max_size=6))
def test_parse_is_the_inverse_of_format(ids: list[int]) -> None:
    task = Numbers()
    assert task.parse(task.format(ids)) == ids


@pytest.mark.parametrize("task", [Histogram(T=12, L=4), Histogram(T=3, L=3, bos=True), LookupTask(N=11, k=2), Parity()])
def test_our_tasks_read_what_they_write(task: Task) -> None:
    batch = task.sample(5, "test", seed=1)
    for row, length in zip(batch.tokens, batch.lengths):
        ids = row[: int(length)].tolist()
        assert task.parse(task.format(ids)) == ids


# ---------------------------------------------------------------- what is right on a sample and wrong elsewhere

WORDS = torch.tensor([[*word, 2] for word in product((0, 1), repeat=3)])


class Three(MoreB):
    """Are there more b than a among three?"""

    name = "validation-test-three"
    n_inputs = 8
    words = WORDS

    def answers(self, classes: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return classes


def lists(tokens: Any = None, lengths: Any = None, labels: Any = None) -> dict[str, Any]:
    """Inputs that are listed otherwise than they are sampled."""
    changes = {"tokens": tokens, "lengths": lengths, "labels": labels}

    def inputs(self: Task, chunk: int = 4096) -> Iterator[Batch]:
        for batch in Three.inputs(self, chunk):  # type: ignore[arg-type]
            parts = {name: getattr(batch, name) for name in changes}
            yield Batch(**{name: change(parts[name]) if (change := changes[name]) else parts[name] for name in parts})

    return {"inputs": inputs}


def late(name: str, change: Callable[[Any], Any]) -> dict[str, Any]:
    """A method that is right where the task is made, and wrong for more rows."""

    def method(self: Task, first: Any, *rest: Any) -> Any:
        given = getattr(Three, name)(self, first, *rest)
        return given if len(first) <= 3 else change(given)

    return {name: method}


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "labels by position": (
        lists(labels=lambda y: y[:, None].expand(-1, 4).clone()),
        r"inputs\(4096\) has labels of shape \(8, 4\) and torch.int64; answers are read at 'last', so they must be "
        rf"\(8,\) of {re.escape(LABELS)}$",
    ),
    "tokens outside": (lists(tokens=lambda t: t - 1), "has token ids outside 0 to 2"),
    "lengths of 0": (lists(lengths=lambda n: n * 0), "lengths from 0 to 0; .* 1 to 4"),
    "rows and no batches": (
        {"inputs": lambda self, chunk=4096: WORDS.split(8)},
        "gives a Tensor; it must be an interp",
    ),
    "no batch": (late("batch", lambda batch: batch.labels), r"batch\(tokens\) gives a Tensor; it must be an interp.B"),
    "other tokens": ({"batch": lambda self, t: Three.batch(self, 1 - t.clamp(max=1))}, "changes the tokens"),
    "classes that are none": (late("classes", lambda c: None), r"classes\(batch\) gives a NoneType; it must be .8, 4."),
    "classes beyond": (late("classes", lambda c: c + 101 * (c >= 0)), "runs from 101 to 102, outside 0 to 1"),
    "answers in a column": (late("answers", lambda a: a[:, None]), r"gives shape .8, 1. .*both must be in the same un"),
}


def wrong(changes: dict[str, Any]) -> Task:
    return type("Wrong", (Three,), {"name": "wrong", "__module__": __name__, **changes})()


@pytest.mark.parametrize("what", WRONG)
def test_a_task_with_wrong_inputs_has_no_accuracy_or_certificate(what: str) -> None:
    changes, sentence = WRONG[what]
    spec = ModelSpec(task=TaskRef(name="wrong"), d_model=2, layers=(Layer(d_head=2),), readout_at="last")
    for look in (interp.certify, interp.accuracy):
        with pytest.raises(InterpError, match=f"task wrong: .*{sentence}"):
            look(interp.TaskModel(spec, wrong(changes)))


def test_what_a_sampler_returns_is_checked_at_every_call() -> None:
    always = wrong({"sample": lambda self, n, split="test", seed=0: Three.sample(self, 3, split, seed)})
    task_checks.check_made(always)
    with pytest.raises(InterpError, match=r"^task wrong: sample\(2\) gives 3 rows$"):
        always.sample(2)


def test_a_model_is_built_for_a_task_without_a_sampler() -> None:
    def none(self: Task, n: int, split: str = "test", seed: int = 0) -> Batch:
        raise NotImplementedError

    task = wrong({"sample": none})
    with pytest.raises(UnsupportedError, match=r"^task wrong does not implement sample\(3\)$"):
        task.sample(3)
    task_checks.check_made(task)


# ---------------------------------------------------------------- from outside

FILE = '''
import torch
from interp.tasks import IGNORED, Batch, Task, register_task

@register_task
class Outside(Task):
    """Which token is it?"""
    name = "outside"
    vocabulary = ("a", "b")
    readout = "last"
    n_out = 2
    def sample(self, n, split="test", seed=0):
        tokens = torch.arange(n)[:, None] % 2
        return Batch(tokens, torch.ones(n, dtype=torch.long), tokens[:, 0])
    def classes(self, batch):
        return batch.tokens
    def answers(self, classes, tokens):
        return classes
'''


@pytest.mark.slow
def test_the_command_line_imports_a_file_that_is_named(tmp_path: Path, monkeypatch, capsys) -> None:
    (tmp_path / "mine.py").write_text(FILE)
    (tmp_path / "broken.py").write_text("1 / 0")
    command = [sys.executable, "-m", "interp", "tasks", "--format", "csv", "--import"]
    found = subprocess.run([*command, str(tmp_path / "mine.py")], capture_output=True, text=True)
    assert "outside,custom,2,2,last" in found.stdout, found.stderr
    monkeypatch.setattr(sys, "argv", ["interp", *command[3:], str(tmp_path / "broken.py")])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    said = capsys.readouterr().err
    assert (stop.value.code, "ZeroDivisionError" in said, "Traceback" in said) == (2, True, False)


def test_an_unknown_task_says_how_to_register_it() -> None:
    with pytest.raises(InterpError, match=r"unknown task 'outsid'.*use --import my_tasks.py on the command line"):
        make_task("outsid")


@pytest.mark.slow
def test_rooms_answer_in_a_fresh_python() -> None:
    code = (
        "import interp; assert 'heads' in dir(interp.measures); assert interp.measures.subsets.all_subsets; "
        "assert interp.models.spec.ModelSpec is interp.ModelSpec; interp.Layer; interp.Training; "
        "interp.models.spec.TaskRef"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_a_spec_is_read_where_its_task_says() -> None:
    spec = interp.ModelSpec(task="count01", d_model=4, layers=(interp.Layer(d_head=2),))
    model = interp.build(spec)
    assert model.spec.readout_at == "="
    assert model.predict(model.task.sample(2).tokens).shape == (2,)
    assert spec.replace(d_model=6).read_as("last").readout_at == "last"
    assert spec.replace(readout_at="all").read_as("last").readout_at == "all"
    assert interp.train(spec.replace(origin=interp.Training(epochs=0)))[0].spec.readout_at == "="


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (torch.zeros(2, 3, dtype=torch.bool), r"shape \(2, 3\) and torch.bool must be rows of integer ids"),
        (torch.zeros(2, 3), r"torch.float32 must be rows of integer ids"),
        (torch.zeros(3, dtype=torch.long), r"shape \(3,\) and torch.int64 must be rows"),
        (torch.tensor([[0, 4]]), "token ids run from 0 to 4; task parity has ids 0 to 3"),
        (torch.tensor([[-1, 2]]), "token ids run from -1 to 2"),
    ],
)
def test_rows_of_tokens_are_integers_that_the_task_knows(tokens: torch.Tensor, said: str) -> None:
    task = Parity()
    with pytest.raises(InterpError, match=said):
        check_tokens(task, tokens)
    check_tokens(task, torch.tensor([[0, 3]]))
    check_tokens(task, torch.zeros(0, 3, dtype=torch.long))


def test_rows_padded_on_the_left_are_refused_at_the_door() -> None:
    class Left(Good):
        name, vocabulary, pad = "checks-left", ("0", "1", "_"), "_"

        def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
            tokens = super().sample(n, split, seed).tokens.clone()
            tokens[:, 0] = 2
            return Batch(tokens, torch.full((n,), tokens.shape[1] - 1), tokens[:, -1])

    said = "has '_' at position 0, before a token: rows must be padded on the right"
    with pytest.raises(InterpError, match=said):
        task_checks.check_made(Left())
    model = interp.build("languages/first")
    row = torch.tensor([[model.task.pad_id, *model.task.sample(1).tokens[0, :3].tolist()]])
    with pytest.raises(InterpError, match=r"has '\[PAD\]' at position 0, before a token"):
        model.predict(row)
