"""Certificates on generated answers, against the original library's model generating one row at a time."""

import copy
from functools import cached_property
from typing import Any

import pytest
import torch
from drawn_weights import hooked, set_to_zero
from saved_models import SHAPES, Brackets, Forward, Sorting, Sums
from torch import Tensor

import interp
from interp.errors import CheckpointError, InterpError, UnsupportedError
from interp.tasks import Generates

pytestmark = pytest.mark.filterwarnings("ignore")


def their_answer(forward: Forward, ids: dict[str, int], question: str, stop: str, length: int) -> str:
    """What the original generates: no batch, no padding, one token after the other."""
    words, row, said = {i: word for word, i in ids.items()}, [ids[c] for c in question], ""
    while len(said) < length and not said.endswith(stop):
        row.append(int(forward(torch.tensor([row]))[0, -1].argmax()))
        said += words[row[-1]]
    return said


def nano_sums(error: float = 0.0) -> tuple[Any, Any, dict[str, int]]:
    """The two-digit adder of nanoGPT's shape as we read it and as it is, both with the same error in their weights."""
    shape = SHAPES["nanogpt"]
    ids = dict(shape.load["tokens"])
    saved = torch.load(shape.path("nanogpt"), weights_only=True)
    saved["model"]["_orig_mod.transformer.h.1.mlp.c_proj.weight"] *= 1 - error
    theirs: Any = shape.original(shape.path("nanogpt"))
    theirs.load_state_dict({name.removeprefix("_orig_mod."): t for name, t in saved["model"].items()})
    names = {f"transformer.{name}": t for name, t in theirs.transformer.state_dict().items()}
    return interp.load(names, task=Sums(), tokens=ids, config={"n_heads": 2, "act_fn": "gelu"}), theirs, ids


@pytest.mark.parametrize("error", [0.0, 0.8])
def test_exact_match_is_that_of_the_original(error: float) -> None:
    model, theirs, ids = nano_sums(error)
    with torch.no_grad():
        said = {question: their_answer(theirs, ids, question, "$", 3) for question in Sums().questions()}
    task = Sums()
    wrong = [question for question in Sums().questions() if said[question] != task.answer(question)]
    found = interp.certify(model)
    assert (found.status == "refuted") == bool(wrong) == bool(error)
    assert f"exact match: generated token by token, {100 - len(wrong)} of 100 answers" in found.notes[0]
    if wrong:
        question = str(found.counterexample).split(": ")[0]
        assert question in wrong
        right = task.answer(question)
        assert found.counterexample == f"{question}: the generated answer is {said[question]}, right is {right}"


@pytest.mark.parametrize(("length", "written"), [(3, "777"), (4, "7777"), (6, "77777")])
def test_a_counterexample_shows_all_that_the_model_wrote(length: int, written: str) -> None:
    """A model of eight positions that writes 7 for ever, where "0$" is right: until the length or the positions end."""
    generates = Generates(start="=", stop="$", length=length)
    task = type("Longer", (Sums,), {"name": "sums_written_on", "generates": generates})()
    model = hooked(n_layers=1, d_model=2, d_head=2, n_ctx=8, d_vocab=14, attn_only=True)
    with torch.no_grad():
        set_to_zero(model)
        model.unembed.b_U[7] = model.pos_embed.W_pos[0, 0] = 1.0
    found = interp.certify(interp.load(model, task=task))
    assert found.counterexample == f"0+0=: the generated answer is {written}, right is 0$"


def sorter(task: Sorting | None = None) -> Any:
    """The sorter of Llama's shape."""
    return interp.load(SHAPES["llama"].path("llama"), task=task or Sorting(), **SHAPES["llama"].load)


def biased_sorter(**shift: float) -> Any:
    """A sorter that likes some letters too much; Llama's readout has no bias, so a spec with one takes its weights."""

    class LongestFirst(Sorting):
        name = "saved_sorting_reversed"

        def questions(self) -> list[str]:
            return super().questions()[::-1]

    model = sorter(LongestFirst())
    tensors = {name: tensor.detach() for name, tensor in model.named_parameters()}
    tensors["unembed.b_U"] = torch.zeros(model.cfg.d_vocab_out)
    for word, amount in shift.items():
        tensors["unembed.b_U"][Sorting.vocabulary.index(word)] = amount
    return interp.TaskModel(model.spec.model_copy(update={"readout_bias": True}), model.task, tensors)


def test_the_counterexample_is_the_shortest_question() -> None:
    found = interp.certify(biased_sorter(c=9.0))
    table = found.tables["wrong inputs"]
    assert found.status == "refuted"
    shortest = min(text.index("=") for text in table["input"])
    assert str(found.counterexample).index("=") == shortest
    assert shortest < table["input"][0].index("=")


def test_a_task_that_cannot_be_generated_says_why() -> None:
    class Asked(Sorting):
        """The same rows, read at the last token."""

        name, readout = "saved_sorting_last", "last"

        def batch(self, tokens: Tensor) -> interp.Batch:
            return interp.Batch(tokens, tokens.ne(self.vocabulary.index("_")).sum(1), torch.full((len(tokens),), 4))

        def classes(self, batch: interp.Batch) -> Tensor:
            classes = torch.full_like(batch.tokens, -100)
            classes[torch.arange(len(classes)), batch.lengths - 1] = batch.labels
            return classes

    assert (
        "answers are not generated: task saved_sorting_last is read at one" in interp.certify(sorter(Asked())).notes[0]
    )


# ---------------------------------------------------------------- padding, first tokens, positions


class Wide(Sorting):
    """The same questions in rows with more padding."""

    name = "saved_sorting_wide"

    @cached_property
    def rows(self) -> Tensor:
        rows = super().rows
        return torch.cat([rows, torch.full((len(rows), 4), self.vocabulary.index("_"))], 1)


class Left(Sorting):
    """The same questions with the padding in front of them."""

    name = "saved_sorting_left"

    @cached_property
    def rows(self) -> Tensor:
        rows = super().rows
        return torch.stack([row.roll(int((row == self.vocabulary.index("_")).sum())) for row in rows])


@pytest.mark.slow
def test_padding_after_a_row_is_harmless_and_before_it_refused() -> None:
    ids = dict(SHAPES["llama"].load["tokens"])
    plain = interp.certify(sorter())
    assert interp.certify(sorter(Wide())).notes[0] == plain.notes[0]
    del ids["_"]  # a model without a padding token of its own
    unpadded = interp.certify(interp.load(SHAPES["llama"].path("llama"), task=Sorting(), tokens=ids))
    assert (unpadded.status, unpadded.notes[0]) == (plain.status, plain.notes[0])
    with pytest.raises(InterpError, match="rows must be padded on the right"):
        interp.certify(sorter(Left()))


class NoMark(Brackets):
    """The same brackets without the first token that the model was trained with."""

    name, vocabulary = "saved_brackets_bare", ("(", ")")  # type: ignore[assignment]
    rows = Brackets.rows[:, 1:] - 1

    def allowed(self, tokens: Tensor) -> Tensor:
        return super().allowed(tokens + 1)


@pytest.mark.slow
def test_a_first_token_is_there_only_where_the_task_has_it() -> None:
    """interp adds none: an owner's forward that does is told apart, and a task whose rows begin with it agrees."""
    shape = SHAPES["gpt2"]
    forward = shape.original(shape.path("gpt2"))
    ids = {"(": 0, ")": 1}
    bare = interp.load(shape.path("gpt2"), task=NoMark(), tokens=ids, outputs=shape.load["outputs"])
    assert interp.check_conversion(forward, bare).difference < 1e-5

    def behind_mark(tokens: Tensor) -> Tensor:
        return forward(torch.cat([torch.full((len(tokens), 1), 3), tokens], 1))[:, 1:]

    with pytest.raises(CheckpointError, match=r"on '[()]+' at position \d"):
        interp.check_conversion(behind_mark, bare)
    with_mark, without = interp.certify(shape.subject("gpt2")), interp.certify(bare)
    assert isinstance(with_mark.accuracy, float)
    assert isinstance(without.accuracy, float)
    assert with_mark.accuracy > 0.95 > without.accuracy


def test_generation_starts_at_a_token_or_a_position() -> None:
    """All sums have '=' at position 3: both ways to say where answers start give one certificate."""

    class From(Sums):
        name, generates = "saved_sums_from", Generates(start=4, stop="$", length=3)

    shape = SHAPES["nanogpt"]
    said = [interp.certify(interp.load(shape.path("nanogpt"), task=task, **shape.load)) for task in (Sums(), From())]
    assert said[0].notes[0] == said[1].notes[0]

    class TooFar(Sums):
        name, generates = "saved_sums_late", Generates(start=6, stop="$", length=3)

    with pytest.raises(InterpError, match=r"'0\+0=' has 4 tokens; answers start at 6"):
        interp.certify(interp.load(shape.path("nanogpt"), task=TooFar(), **shape.load))


def test_positions_that_start_elsewhere_are_found_and_cut_off() -> None:
    """An owner whose first token has position 2: the table from there on is the model."""
    model, theirs, ids = nano_sums()
    shifted: Any = copy.deepcopy(theirs)
    table = theirs.transformer["wpe"].weight.detach()
    state = {f"transformer.{name}": t for name, t in theirs.transformer.state_dict().items()}
    state["transformer.wpe.weight"] = torch.cat([torch.randn(2, table.shape[1]), table])
    given: dict[str, Any] = {"task": Sums(), "tokens": ids, "config": {"n_heads": 2, "act_fn": "gelu"}}
    with pytest.raises(CheckpointError, match="differs from forward"):
        interp.check_conversion(shifted, interp.load(state, **given))
    state["transformer.wpe.weight"] = state["transformer.wpe.weight"][2:]
    assert interp.check_conversion(shifted, interp.load(state, **given)).difference < 1e-5
    assert interp.certify(model).status == "certified"


@pytest.mark.parametrize("digits", [1, 4])
def test_a_model_that_sees_its_answers_is_not_certified(digits: int) -> None:
    """A bidirectional model can copy every digit of the sum but the last from the row: right on each of them, and
    wrong on all that it generates. On few inputs, which are run, and on many, which are not."""
    task = interp.models.spec.TaskRef(name="addition", parameters=(("digits", digits),))
    spec = interp.ModelSpec(task=task, d_model=4, direction="bidirectional", layers=(interp.Layer(d_head=2),))
    with pytest.raises(UnsupportedError, match="bidirectional, and rows of task addition hold the answers"):
        interp.certify(interp.build(spec))
