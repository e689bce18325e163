"""Recognizers as automata: zoo models, strangers, what each sentence says, and what is refused."""

import copy

import pytest
import torch
from drawn_weights import hooked, set_to_zero
from standins import standin

import interp
from interp.errors import InterpError, UnsupportedError
from interp.models.lens import HookedTransformer
from interp.models.subject import Subject
from interp.programs.explanations.automata import Learned, LearnedAutomaton, learn_automaton, sentence
from interp.programs.explanations.strings import Strings
from interp.tasks.questions import NextSymbols


@pytest.mark.parametrize(("name", "states"), [("parity", 2), ("first", 3), ("one", 3), ("first-learned", 3)])
def test_languages_of_the_zoo(name, states) -> None:
    found = learn_automaton(interp.load(f"languages/{name}"), 8)
    assert (found.model.states, found.task.states, found.different) == (states, states, 0)
    assert found.same
    assert found.strings == 2**9 - 2
    assert str(found).endswith(f"the model is an automaton of {states} states, the task's own.")


@pytest.mark.parametrize(("name", "longest"), [("ends", 5), ("balance", 8)])
def test_an_external_model_agrees_with_its_automaton(name, longest) -> None:
    subject = standin(name)
    found = learn_automaton(subject, longest, most_states=200)
    strings = Strings.of(subject)
    (batch,) = strings.all(longest)
    tokens = batch.tokens[:, strings.before : strings.before + longest]
    given = subject.answers(batch)
    given = given if given.ndim == 1 else given[:, -1]
    assert [subject.task.answer_words.index(found.model.answer(row)) for row in tokens] == given.tolist()
    assert found.task.states < found.model.states or found.different == 0


def test_a_model_that_is_an_automaton_of_another_language() -> None:
    """The sign of the output turned round: the complement of PARITY, wrong on every string."""
    model = copy.deepcopy(interp.build("languages/parity"))
    with torch.no_grad():
        model.unembed.W_U.neg_()
        model.unembed.b_U.neg_()
    found = learn_automaton(model, 6)
    assert (found.model.states, found.different, found.example) == (2, 126, "0")
    assert str(found) == (
        "On every string of 1 to 6 symbols (126), the model is an automaton of 2 states. The task's own has 2 states. "
        "The model is wrong on 126 of them, such as '0'."
    )
    assert found.model.accepts("0") is True
    assert found.task.accepts("0") is False
    assert found.model.accepts("01") is False


def test_a_model_that_always_says_no_and_one_that_is_not_finite() -> None:
    model = copy.deepcopy(interp.build("languages/parity"))
    with torch.no_grad():
        model.unembed.W_U.zero_()
        model.unembed.b_U.fill_(-1.0)
    found = learn_automaton(model, 4)
    assert found.model.states == 1
    assert str(found).startswith("On every string of 1 to 4 symbols (30), the model gives one answer, not a member. ")
    with torch.no_grad():
        model.unembed.b_U.fill_(float("nan"))
    assert learn_automaton(model, 4).model.word(0) == "no finite output"


def test_too_many_states_are_said_and_shorter_strings_looked_at() -> None:
    found = learn_automaton(interp.build("languages/palindrome"), 7, most_states=20)
    assert found.model is None
    assert found.shorter.states <= 20
    shorter = learn_automaton(interp.build("languages/palindrome"), found.shorter.longest, most_states=20)
    assert shorter.model == found.shorter
    assert learn_automaton(interp.build("languages/palindrome"), shorter.longest + 1, most_states=20).model is None
    assert str(found).startswith(
        "No automaton of at most 20 states gives the model's answers on every string of 1 to 7"
    )


def one(states: int, longest: int = 4) -> LearnedAutomaton:
    strings = Strings.of(Subject.of(interp.build("languages/parity")))
    following = tuple((s, (s + 1) % states) for s in range(states))
    return LearnedAutomaton(("0", "1"), following, (0,) * states, ("no", "yes"), ("",) * states, longest, strings)


CASES = {
    "perfect": (Learned(one(2), None, one(2), 4, 30, 0, "", 64, 0.0),
        "On every string of 1 to 4 symbols (30), the model is an automaton of 2 states, the task's own."),
    "one error": (Learned(one(5), None, one(2), 4, 30, 1, "01", 64, 0.0),
        "On every string of 1 to 4 symbols (30), the model is an automaton of 5 states. The task's own has 2 states. "
        "The model is wrong on one of them, '01'."),
    "one error, perhaps on no input": (Learned(one(5), None, one(2), 4, 30, 1, "01", 64, 0.0, inferred=True),
        "On every string of 1 to 4 symbols (30 strings, inputs of the task or not), the model is an automaton of 5 "
        "states. The task's own has 2 states. The model is wrong on one of them, '01' (it may not be an input of the "
        "task)."),
    "constant": (Learned(one(1), None, one(2), 4, 30, 15, "1", 64, 0.0),
        "On every string of 1 to 4 symbols (30), the model gives one answer, no. The task's own automaton has 2 "
        "states. The model is wrong on 15 of them, such as '1'."),
    "random": (Learned(None, one(9, 3), one(2), 4, 30, 16, "0", 64, 0.0),
        "No automaton of at most 64 states gives the model's answers on every string of 1 to 4 symbols (30); on every "
        "string of 1 to 3 symbols one of 9 states does. The smallest with the right answers has 2 states. The model is "
        "wrong on 16 of them, such as '0'."),
    "the task is large, too": (Learned(None, None, None, 1, 2, 0, "", 1, 0.0),
        "No automaton of at most 1 state gives the model's answers on every string of 1 symbol (2)."),
    "only the task is large": (Learned(one(2), None, None, 4, 30, 3, "0", 64, 0.0),
        "On every string of 1 to 4 symbols (30), the model is an automaton of 2 states. The task's own has more than "
        "64. The model is wrong on 3 of them, such as '0'."),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_sentences(case) -> None:
    found, said = CASES[case]
    assert sentence(found) == said


def test_the_object() -> None:
    found = learn_automaton(interp.build("languages/first"), 4).model
    frame = found.to_frame()
    assert frame["access"].tolist() == ["", "0", "1"]
    assert frame["answer"].tolist() == ["", "not a member", "a member"]
    assert frame[["on 0", "on 1"]].values.tolist() == [[1, 2], [1, 1], [2, 2]]
    assert found.accepts("10")
    assert not found.accepts([0, 1])
    assert "<table>" in found._repr_html_()
    with pytest.raises(InterpError, match="the empty string is not an input"):
        found.accepts("")
    with pytest.raises(UnsupportedError, match="the answers are not no and yes, but 0, 1, 2"):
        learn_automaton(standin("balance"), 8).model.accepts("a")


def test_refusals() -> None:
    with pytest.raises(UnsupportedError, match="all inputs of task standin_recall have one length"):
        learn_automaton(standin("recall"))
    with pytest.raises(
        InterpError, match="longest = 9 must be at most 7, by the model's positions and the limit of 1,000,000"
    ):
        learn_automaton(standin("ends"), 9)
    assert interp.learn_automaton is learn_automaton


class AfterOne(NextSymbols):
    """0 may always follow; 1 and the end only directly after a 1."""

    name, vocabulary, symbols = "after_one", ("0", "1"), ("0", "1", "end")

    def sample(self, n, split="test", seed=0):
        return self.batch(torch.randint(2, (n, 6), generator=torch.Generator().manual_seed(seed)))

    def allowed(self, tokens):
        one = tokens == 1
        return torch.stack([torch.ones_like(one), one, one], dim=-1)


def test_sets_of_next_symbols_after_each_prefix() -> None:
    """A stock model whose outputs depend on the current token alone."""
    model = of_last_token([[1.0, -1.0, -1.0], [1.0, 1.0, 1.0]], 6)
    found = learn_automaton(Subject.external(model, AfterOne()))
    assert (found.longest, found.different, found.model.states) == (6, 0, 2)
    assert found.model.answer("01") == "{0, 1, end}"
    assert found.model.answer("10") == "{0}"
    with pytest.raises(UnsupportedError, match="but sets of 0, 1, end"):
        found.model.accepts("1")


class NoTwoOnes(AfterOne):
    """0 may always follow, 1 only after a 0; samples are members."""

    name, symbols = "no_two_ones", ("0", "1")

    def sample(self, n, split="test", seed=0):
        rows = super().sample(n, split, seed).tokens
        for at in range(1, rows.shape[1]):
            rows[:, at] *= 1 - rows[:, at - 1]
        return self.batch(rows)

    def allowed(self, tokens):
        dead = torch.nn.functional.pad((tokens[:, 1:] * tokens[:, :-1]).cumsum(1) > 0, (1, 0))
        return torch.stack([~dead, ~dead & (tokens == 0)], dim=-1)


class LaterEqual(interp.Task):
    """Of two letters, the answer at the first is whether the second is equal, at the second always yes."""

    name, vocabulary, answer_words = "later_equal", ("a", "b"), ("no", "yes")

    def batch(self, tokens):
        equal = (tokens == tokens[:, -1:]).long()
        return interp.Batch(tokens, torch.full((len(tokens),), tokens.shape[1]), equal)

    def sample(self, n, split="test", seed=0):
        return self.batch(torch.randint(2, (n, 2), generator=torch.Generator().manual_seed(seed)))


def of_last_token(outputs: list[list[float]], n_ctx: int) -> HookedTransformer:
    """A stock model whose outputs are those of the current token."""
    n_out = len(outputs[0])
    model = hooked(
        n_layers=1, d_model=4, n_ctx=n_ctx, d_head=4, n_heads=1, d_vocab=2, d_vocab_out=n_out, attn_only=True,
        normalization_type=None,
    )  # fmt: skip
    with torch.no_grad():
        set_to_zero(model)
        model.embed.W_E[:, :2] = torch.eye(2)
        model.unembed.W_U[:2] = torch.tensor(outputs)
    return model


def test_a_model_is_not_asked_about_strings_that_are_no_inputs() -> None:
    """After 11 nothing may follow, which the model does not know, and no one asks it."""
    found = learn_automaton(Subject.external(of_last_token([[1.0, 1.0], [1.0, -1.0]], 4), NoTwoOnes()))
    assert (found.different, found.strings) == (0, 2 + 3 + 5 + 8)  # Fibonacci's numbers
    assert found.model.answer("011") == "not asked"
    assert found.model.answer("010") == "{0, 1}"
    assert "On every string of 1 to 4 symbols that is an input (18), the model is an automaton of 3 states" in str(
        found
    )


def test_an_answer_that_depends_on_later_symbols_is_not_asked() -> None:
    found = learn_automaton(Subject.external(of_last_token([[1.0, 0.0], [0.0, 1.0]], 2), LaterEqual()))
    assert (found.strings, found.different) == (4, 2)  # "aa" and "ba": the model says no


def test_a_language_of_one_letter() -> None:
    class EvenLength(NoTwoOnes):
        name, vocabulary, symbols = "even_length", ("a",), ("a", "end")

        def allowed(self, tokens):
            even = torch.arange(tokens.shape[1]).expand(tokens.shape) % 2 == 1
            return torch.stack([torch.ones_like(even), even], dim=-1)

        def sample(self, n, split="test", seed=0):
            return self.batch(torch.zeros(n, 6, dtype=torch.long))

    model = of_last_token([[1.0, 1.0], [0.0, 0.0]], 6)
    model.cfg.d_vocab = 1
    found = learn_automaton(Subject.external(model, EvenLength()))
    assert (found.longest, found.strings, found.different, found.task.states) == (6, 6, 3, 2)
