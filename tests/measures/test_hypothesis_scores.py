"""Scrubbing and interchange against loops over all draws, on planted mechanisms, and on wrong hypotheses."""

from itertools import product

import pytest
import torch
from planted import Pairing, planted
from standins import Balance, standin

import interp
from interp import Hypothesis, Variable
from interp.measures import runs, scrubbing
from interp.measures.hypothesis import Place, Units
from interp.measures.hypothesis_scores import evaluate_hypothesis as score
from interp.models.subject import Subject


@pytest.fixture(scope="module")
def pairing() -> Subject:
    return Subject.external(planted(), Pairing())


RIGHT = Hypothesis([Variable("a", at="head 0.0"), Variable("b", at="head 0.1")], answer=lambda a, b: 3 * a + b)


def test_the_planted_hypothesis_is_true_on_every_draw(pairing) -> None:
    found = score(pairing, RIGHT)
    assert found.population.exact
    assert found.exact
    assert found.scrubbed.accuracy == found.model.accuracy == found.agreement == 1.0
    assert (found.scrubbed.low, found.scrubbed.high) == (1.0, 1.0)
    assert found.loss_recovered == pytest.approx(1.0, abs=1e-9)
    assert found.shuffled.accuracy == pytest.approx(1 / 9)
    assert found.interchange[["stays_n", "stays", "changes_n", "changes", "values"]].values.tolist() == [
        [27, 1.0, 54, 1.0, 3],
        [27, 1.0, 54, 1.0, 3],
    ]
    assert "every draw" in str(found)
    assert "on all 9 inputs" in str(found)
    assert "1 on 54 pairs whose answer changes to one that the model did not give, 1 on 27 whose" in str(found)


def test_what_the_model_gave_anyway_is_no_change(pairing) -> None:
    """With a as 2 - a, 54 of the pairs change the hypothesis' answer by a; of 18, the model answers so without it."""
    found = score(pairing, Hypothesis(RIGHT.variables, answer=lambda a, b: 3 * (2 - a) + b))
    assert found.interchange["changes_n"].tolist() == [54 - 18, 54]


WRONG = {
    "swapped heads": Hypothesis([Variable("a", at="head 0.1"), Variable("b", at="head 0.0")], answer=RIGHT.answer),
    "permuted": Hypothesis(
        [
            Variable("a", at="head 0.0", function=lambda tokens: tokens[:, 1]),
            Variable("b", at="head 0.1", function=lambda tokens: tokens[:, 0]),
        ]
    ),
    "constant": Hypothesis(
        [Variable(name, at=f"head 0.{i}", function=lambda tokens: 0 * tokens[:, 0]) for i, name in enumerate("ab")]
    ),
    "half": Hypothesis([Variable("a", at="head 0.0")]),
}


@pytest.mark.parametrize(
    ("name", "most"), [("swapped heads", 0.4), ("permuted", 0.4), ("constant", 0.12), ("half", 0.34)]
)
def test_wrong_hypotheses_score_low(pairing, name, most) -> None:
    found = score(pairing, WRONG[name])
    assert found.exact
    assert found.scrubbed.accuracy <= most
    assert found.loss_recovered < 0.6
    if name == "swapped heads":
        assert (found.interchange["changes"] < 0.2).all()
    if name == "constant":
        assert found.loss_recovered == pytest.approx(0.0, abs=1e-9)
        assert found.interchange["reason"].str.startswith("by the hypothesis, no pair of inputs").all()
        assert found.interchange["stays"].tolist() == pytest.approx([1 / 9, 1 / 9])  # its answer is one of 9
        assert "accuracy 0.1111 on 81 pairs whose answer stays (by the hypothesis, no answer changes)" in str(found)


@pytest.mark.slow
def test_every_draw_is_what_loops_give() -> None:
    """Two variables, of which neither is true, on a stock model of two layers, against all draws by hand."""
    subject = standin("recall")
    batch = subject.task.sample(5, seed=5)
    hypothesis = Hypothesis(
        [
            Variable("asked", at="stream 1", function=lambda tokens: tokens[:, -1] % 2),
            Variable("value", at="head 1.0", function=lambda tokens: tokens[:, 1] % 2),
        ]
    )
    found = score(subject, hypothesis, batch)
    assert found.exact
    stream, head = "blocks.1.hook_resid_pre", "blocks.1.attn.hook_z"
    _, cache = subject.run_with_cache(batch, names_filter=[stream, head])
    asked, value, labels = batch.tokens[:, -1] % 2, batch.tokens[:, 1] % 2, batch.labels
    right, loss = [], []
    for x in range(5):
        for rest, i, j in product(range(5), repeat=3):
            if asked[i] != asked[x] or value[j] != value[x]:
                continue

            def put_stream(activation, hook, i=i):
                activation[:, -1] = cache[stream][i, -1]
                return activation

            def put_head(activation, hook, j=j):
                activation[:, -1, 0] = cache[head][j, -1, 0]
                return activation

            out = subject.model.run_with_hooks(
                subject.inputs(batch.tokens[rest : rest + 1]), fwd_hooks=[(stream, put_stream), (head, put_head)]
            )
            logits = subject.columns(out)[0, -1].double()
            right.append((x, float(logits.argmax() == labels[x])))
            loss.append((x, float(logits.logsumexp(-1) - logits[labels[x]])))
    for pairs, given in ((right, found.scrubbed.accuracy), (loss, found.scrubbed.loss)):
        means = [sum(v for x, v in pairs if x == k) / sum(x == k for x, _ in pairs) for k in range(5)]
        assert given == pytest.approx(sum(means) / 5, abs=1e-5)


@pytest.mark.slow
def test_interchange_is_what_a_loop_gives() -> None:
    subject = standin("ends")
    batch = subject.task.sample(14, seed=3)
    first = Variable("first", at="stream 1 @ 1", function=lambda tokens: tokens[:, 1])
    last = Variable("last", function=lambda tokens: tokens[torch.arange(len(tokens)), (tokens != 4).sum(1) - 1])
    hypothesis = Hypothesis([first, last], answer=lambda first, last: first == last)
    found = score(subject, hypothesis, batch).interchange.iloc[0]
    name = "blocks.1.hook_resid_pre"
    _, cache = subject.run_with_cache(batch, names_filter=[name])
    ends = batch.tokens[torch.arange(14), batch.lengths - 1]
    own = subject.answers(batch)
    program = [int(batch.tokens[row, 1] == ends[row]) for row in range(14)]
    right, n = {True: 0, False: 0}, {True: 0, False: 0}
    for base, source in product(range(14), repeat=2):

        def put(activation, hook, source=source):
            activation[:, 1] = cache[name][source, 1]
            return activation

        with subject.model.hooks(fwd_hooks=[(name, put)]):
            answer = subject.answers(batch[base : base + 1])[0]
        wanted = int(batch.tokens[source, 1] == ends[base])
        if (change := wanted != program[base]) and wanted == own[base]:
            continue
        n[change] += 1
        right[change] += int(answer == wanted)
    assert (found.changes_n, found.stays_n) == (n[True], n[False])
    assert found.changes == pytest.approx(right[True] / n[True])
    assert found.stays == pytest.approx(right[False] / n[False])
    assert min(n.values()) > 0


@pytest.mark.parametrize("name", ["ends", "balance"])
def test_at_each_position_the_token_is_all_there_is_to_know(name) -> None:
    """Padding and one read, causal and a read at each position: donors at each position agree on the token there."""
    subject = standin(name)
    batch = subject.task.sample(40, seed=1)
    tokens = Hypothesis([Variable("token", at="stream 0 @ each", function=lambda tokens: tokens)])
    found = score(subject, tokens, batch)
    assert not found.exact
    assert found.scrubbed.n == len(runs.reads_of(subject, batch))
    assert found.scrubbed == found.model
    assert found.loss_recovered == pytest.approx(1.0)
    anything = Hypothesis([Variable("token", at="stream 0 @ each", function=lambda tokens: tokens.clamp(1, 1))])
    assert score(subject, anything, batch).scrubbed.accuracy < 0.75 * found.model.accuracy


class Signed(Balance):
    """The stand-in's task with answers in other units: at a letter b, those of the outputs plus ten."""

    name = "hypothesis-test-signed"

    def batch(self, tokens: torch.Tensor) -> interp.Batch:
        plain = super().batch(tokens)
        return interp.Batch(tokens, plain.lengths, self.answers(plain.labels, tokens))

    def classes(self, batch: interp.Batch) -> torch.Tensor:
        return batch.labels % 10

    def answers(self, classes: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return classes + 10 * tokens


def test_answers_at_each_position_are_in_the_units_of_the_labels() -> None:
    subject = Subject.external(standin("balance").model, Signed())
    batch = subject.task.sample(40, seed=1)
    units = Units.of(subject, batch)
    answers = scrubbing.labels_of(subject, units, torch.arange(len(units)), units.classes)
    assert answers.tolist() == batch.labels.flatten().tolist()


def _number(row):
    return torch.arange(len(row))


@pytest.mark.parametrize("name", ["recall", "ends", pytest.param("balance", marks=pytest.mark.slow)])
def test_the_recursion_reaches_the_tokens(name) -> None:
    """What the answer reads is all made of one row's streams below; with these anything, so is the answer."""
    subject = standin(name)
    batch = subject.task.sample(60, seed=1)
    last = subject.model.cfg.n_layers

    def chain(token) -> Hypothesis:
        row = Variable("row", at="stream 0 @ each", function=token)
        if last == 1:
            return Hypothesis([row, Variable("end", at="stream 1", of="row", function=_number)])
        inner = Variable("inner", at="stream 1 @ each", of="row", function=lambda row: row)
        return Hypothesis([Variable("end", at=f"stream {last}", of="inner", function=_number), inner, row])

    found = score(subject, chain(lambda tokens: tokens), batch)
    assert found.scrubbed == found.model
    assert (found.interchange["alone"] == 1).any()
    assert score(subject, chain(lambda tokens: 0 * tokens), batch).scrubbed.accuracy < 0.8 * found.model.accuracy


def test_only_the_subspace_of_a_vector_is_interchanged(pairing) -> None:
    """The stream at '=' holds both copies, in known dimensions."""
    eye = torch.eye(13, dtype=torch.float64)
    places = [Place(1, basis=eye[:, 7:10]), Place(1, basis=eye[:, 10:13] @ torch.randn(3, 3, dtype=torch.float64))]
    right = [Variable("a", at=places[0]), Variable("b", at=places[1])]
    found = score(pairing, Hypothesis(right, answer=RIGHT.answer))
    assert found.scrubbed.accuracy == 1.0
    assert found.interchange["changes"].tolist() == [1.0, 1.0]
    wrong = [Variable("b", at=places[0]), Variable("a", at=places[1])]
    assert score(pairing, Hypothesis(wrong)).interchange["changes"].max() < 0.5


def test_a_variable_without_a_place_is_what_the_rest_agrees_on(pairing) -> None:
    found = score(pairing, Hypothesis([Variable("a", at="head 0.0"), Variable("b")], answer=RIGHT.answer))
    assert found.scrubbed.accuracy == 1.0
    assert found.interchange["variable"].tolist() == ["a"]


def test_a_sample_has_an_interval() -> None:
    model = interp.load("algorithmic/max-of-k")
    found = score(
        model,
        Hypothesis([Variable("largest", at="head 0.0", function=lambda tokens: tokens[:, :-1].amax(1))]),
        model.task.sample(500, seed=1),
        pairs=200,
    )
    assert not found.exact
    assert found.scrubbed.low < found.scrubbed.accuracy <= found.scrubbed.high
    assert 100 <= found.interchange["changes_n"][0] <= 200
    assert "95% interval" in str(found)


def test_a_model_that_always_gives_one_answer_changes_nothing() -> None:
    model = interp.build(interp.load("languages/parity-learned").spec, seed=1)
    with torch.no_grad():
        model.unembed.W_U.zero_()
        model.unembed.b_U.fill_(0.5)
    batch = model.task.enumerate_up_to(5)
    odd = Hypothesis([Variable("odd", at="MLP 1", function=lambda tokens: (tokens == 1).sum(1) % 2)])
    found = score(model, odd, batch)
    none = "by the hypothesis, no pair of inputs with another odd must have another answer"
    assert found.interchange[["reason", "stays"]].values.tolist() == [[none, 1.0]]
    told = Hypothesis(odd.variables, answer=lambda odd: odd)
    assert score(model, told, batch).interchange["changes"][0] == 0.0


def test_values_of_their_own_are_said_to_test_nothing(pairing) -> None:
    """Without an answer to compute, other combinations of values have none: then nothing is interchanged."""
    own = Variable("own", at="head 0.0", function=lambda tokens: 10 * tokens[:, 0] + tokens[:, 1])
    found = score(pairing, Hypothesis([own, Variable("b", at="head 0.1")]))
    assert (found.alone, found.interchange["alone"].tolist()) == (0.0, [1.0, 0.0])
    whole = score(pairing, Hypothesis([own], answer=lambda own: own // 10 == own % 10))
    assert "each input has a value that no other input has" in str(whole).splitlines()[1]
    again = Variable("again", at="head 0.1", function=own.function)
    found = score(pairing, Hypothesis([own, again]))
    assert found.alone == 1.0
    assert found.loss_recovered == pytest.approx(1.0)
    assert "But each input has a value at each place that no other input has" in str(found)
    assert found.interchange["reason"][0].startswith("not tested: for 0.8889 of the pairs the hypothesis has no answer")


REFUSED = [
    ([Variable("a", at="head 1.0")], "unknown head 'head 1.0'; known: head 0.0, head 0.1"),
    ([Variable("a", at="MLP 0")], "there is no MLP 0: this model has no MLPs"),
    ([Variable("a", at="stream 2")], "unknown residual stream '2'; known: 0, 1"),
    ([Variable("a", at="neuron 0.1")], "unknown layer of neurons '0'; known: none"),
    ([Variable("a", at="tail 0.0")], "'tail 0.0' is not a place; write it as"),
    ([Variable("a", at="head 0.0 @ 3")], "an input of 3 tokens has no such position"),
    ([Variable("a", at="head 0.0 @ there")], "position 'there' must be a number, 'read' or 'each'"),
    ([Variable("c", at="head 0.0")], "unknown feature of task planted_pairing 'c'; known: a, b, answer"),
    ([Variable("a")], "no variable of the hypothesis has a place"),
    ([Variable("a", at="head 0.0"), Variable("b", at="head 0.0")], "head 0.0 is the place of a and of b"),
    ([Variable("a", at=Place(0, basis=torch.zeros(13, 1)))], "spans nothing"),
    ([Variable("a", at=Place(0, basis=torch.zeros(4, 1)))], "it must be a tensor of 13 rows"),
    ([Variable("a", at="head 0.0", function=lambda tokens: tokens / 2)], "values that are not whole numbers"),
    (
        [Variable("a", at="head 0.0", function=lambda tokens: tokens[:2])],
        r"values of shape \(2, 3\); it must be \(9,\)",
    ),
    ([Variable("a", at="head 0.0"), Variable("b", at="head 0.1", of="a")], "variable b does not follow from a"),
]


@pytest.mark.parametrize(("variables", "sentence"), REFUSED)
def test_what_does_not_fit_the_model_is_refused(pairing, variables, sentence) -> None:
    with pytest.raises(interp.InterpError, match=sentence):
        score(pairing, Hypothesis(variables))


def test_what_is_not_a_hypothesis_is_refused(pairing) -> None:
    with pytest.raises(interp.InterpError, match=r"a str is not a hypothesis: interp.Hypothesis"):
        score(pairing, "head 0.0 copies a")


def test_it_is_public() -> None:
    assert interp.evaluate_hypothesis is score


@pytest.mark.parametrize(("subject", "words"), [
    (standin("recall"), ["0", "1", "2"]), (Subject.of(interp.build("languages/parity")), ["not a member", "a member"]),
], ids=["by number", "by word"])  # fmt: skip
@pytest.mark.thinned(2)
def test_answers_are_named_and_counted(subject: Subject, words: list[str]) -> None:
    batch = subject.task.sample(60, seed=1)
    found = score(subject, Hypothesis([Variable("answer", at="head 0.0")]), inputs=batch).by_answer
    classes = runs.reads_of(subject, batch).classes
    wanted = {word: int((classes == c).sum()) for c, word in enumerate(words)}
    assert dict(zip(found["answer"], found["reads"])) == wanted
    assert min(wanted.values()) > 0


def test_answers_that_no_input_has_are_refused() -> None:
    """A condition where the task's answers are other numbers: it would agree with none of them."""
    model = interp.load("count01/minimal")
    guess = interp.Hypothesis([interp.Variable("answer", at="head 0.0")], answer=lambda answer: answer > 100)
    with pytest.raises(interp.InterpError, match="the hypothesis answers 0, which no input of task count01"):
        interp.evaluate_hypothesis(model, guess, model.task.sample(20, seed=0), pairs=20)
