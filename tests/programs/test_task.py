"""The task of a program: its rows, its labels, and what is not an input."""

import pytest
import torch

from interp.errors import InterpError
from interp.programs.language import Head, Linear, Program
from interp.programs.task import ENDS, ProgramTask
from interp.tasks import domain, task_checks

EVENLY = Head("shares", "", "", ((0.0,),), "token")
MORE = Linear("answer", ("shares",), (((0.0, 1.0), (0.0, -1.0), *((0.0, 0.0),) * 3),), (1e-3, 0.0), ("no", "yes"))
PADDED = Program(("a", "b", "<", "=", "pad"), 5, False, (EVENLY,), MORE, read="=", pad="pad")


def padded(**given: object) -> ProgramTask:
    return ProgramTask(program=PADDED.to_json(), **{"shortest": 1, "first": "<", "last": "=", **given})


def test_all_rows_with_marks_and_padding() -> None:
    task_checks.check_task(ProgramTask)
    task = padded()
    batches = list(domain.every_input(task))
    rows = {task.format(row) for batch in batches for row in batch.tokens}
    contents = ("a", "b", *(x + y for x in "ab" for y in "ab"), *(x + y + z for x in "ab" for y in "ab" for z in "ab"))
    assert rows == {f"<{text}={'pad' * (3 - len(text))}" for text in contents}
    for batch in batches:
        for row, label in zip(batch.tokens, batch.labels.tolist()):
            text = task.format(row)
            assert label == (text.replace("pad", "").count("a") > text.count("b"))


def test_the_sampler() -> None:
    """Lengths are uniform, and weights are in proportion to how often a row is drawn."""
    task = padded()
    batch = task.sample(6000, seed=3)
    found = batch.lengths.bincount()
    assert found[:3].sum() == 0
    assert bool(((found[3:] - 2000).abs() < 200).all())
    rows = torch.cat([one.tokens for one in task.inputs()])
    weights = torch.cat([task.weights(one) for one in task.inputs()])
    drawn = torch.tensor([(batch.tokens == row).all(1).double().mean() for row in rows])
    assert float((drawn - weights / weights.sum()).abs().max()) < 0.03
    assert task.sample(5, seed=3).tokens.equal(task.sample(5, seed=3).tokens)


def test_what_is_no_input() -> None:
    task = padded()
    for text in ("<=padpadpad", "<ab=a", "<aaaa", "ab=padpad", "<a<=pad", "<apad=pad"):
        with pytest.raises(InterpError, match="is not an input"):
            task.batch(torch.tensor([task.parse(text)]))


def test_refusals() -> None:
    for given, said in (({"first": "x"}, "not a token"), ({"shortest": 4}, "4 to 3")):
        with pytest.raises(InterpError, match=said):
            padded(**given)
    with pytest.raises(InterpError, match="with padding"):
        ProgramTask(program=ENDS.to_json(), shortest=2)
