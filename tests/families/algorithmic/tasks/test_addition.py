"""Addition: rows and labels by hand and by Python's own sums, in every format, and something that is not an input."""

import itertools

import pytest
import torch

from interp.errors import InterpError
from interp.families.algorithmic import Addition
from interp.tasks import IGNORED, automata, structure

FORMATS = [
    dict(zip(("order", "answer_order", "lead", "plus", "equals", "end"), chosen))
    for chosen in itertools.product(("least", "most"), ("least", "most"), ("", "0", "[BOS]"), ("+", "0", ""),
                                    ("=", "0"), ("", "0", "[END]"))
]  # fmt: skip
FORMATS += [{**FORMATS[0], "lead": "0", "plus": "00", "equals": "0"}]  # [0] + a + [0, 0] + b + [0]


def by_hand(a: int, b: int, digits: int, form: dict[str, str]) -> tuple[list[str], dict[int, str]]:
    """A row as words, and what is right behind each position that is read, with Python's integers."""
    turn = {"least": slice(None, None, -1), "most": slice(None)}
    numbers = [list(f"{number:0{digits}d}")[turn[form["order"]]] for number in (a, b)]
    answer = list(f"{a + b:0{digits + 1}d}")[turn[form["answer_order"]]] + [form["end"]] * bool(form["end"])
    lead, plus, equals = (
        {"": [], "00": ["0", "0"]}.get(form[name], [form[name]]) for name in ("lead", "plus", "equals")
    )
    row = [*lead, *numbers[0], *plus, *numbers[1], *equals]
    return row + answer[:-1], {len(row) - 1 + place: word for place, word in enumerate(answer)}


def test_a_row_by_hand() -> None:
    task = Addition(digits=4)
    batch = task.batch(torch.tensor([task.parse("4 3 2 1 + 9 9 9 0 = 3 3 2 2")]))
    assert batch.labels[0, 9:].tolist() == [3, 3, 2, 2, 0]
    assert task.n_inputs == 10**8
    assert Addition().n_inputs == 10**20


@pytest.mark.parametrize("form", FORMATS[::7] + FORMATS[-1:], ids=lambda form: " ".join(form.values()))
@pytest.mark.thinned(8)
def test_rows_and_labels_against_python(form: dict[str, str]) -> None:
    task = Addition(digits=2, **form)
    rows = torch.cat([batch.tokens for batch in task.inputs(3000)])
    assert len({tuple(row) for row in rows.tolist()}) == len(rows) == 10**4
    first, second = task.numbers(rows)
    batch = task.batch(rows)
    for index in range(0, 10**4, 37):
        a, b = (int(digits[index, 0] + 10 * digits[index, 1]) for digits in (first, second))
        words, right = by_hand(a, b, 2, form)
        assert [task.vocabulary[token] for token in rows[index]] == words
        classes = task.classes(batch)[index].tolist()
        assert {at: task.answer_words[one] for at, one in enumerate(classes) if one != IGNORED} == right


@pytest.mark.parametrize("form", FORMATS[::5] + FORMATS[-1:], ids=lambda form: " ".join(form.values()))
def test_the_automaton_is_the_task(form: dict[str, str]) -> None:
    task = Addition(digits=2, base=3, **form)
    (paths,) = automata.declared(task)
    assert structure.compare(task, [paths]) == ()
    assert paths.n_inputs == 81


def test_one_changed_digit_gives_another_sum() -> None:
    task = Addition(digits=3)
    pairs = task.corrupt(task.sample(50, seed=1), seed=2)
    changed = torch.cat(task.numbers(pairs.clean.tokens), 1) != torch.cat(task.numbers(pairs.corrupted.tokens), 1)
    assert changed.sum(1).eq(1).all()
    assert (pairs.clean.labels != pairs.corrupted.labels).any(1).all()


@pytest.mark.parametrize("text", ["1 2 + 3 4 = 4", "1 2 = 3 4 + 4 6", "1 2 + 3 4 = 5 6", "1 + + 3 4 = 4 6"])
def test_rows_of_another_form_and_wrong_sums_are_refused(text: str) -> None:
    with pytest.raises(InterpError, match=r"of task addition: (it must be|give) 8 tokens"):
        Addition(digits=2).parse(text)


@pytest.mark.parametrize("parameters", [{"order": "up"}, {"base": 1}, {"digits": 0}, {"plus": "a b"}, {"end": "00"}])
def test_parameters_that_make_no_task_are_refused(parameters: dict[str, object]) -> None:
    with pytest.raises(InterpError):
        Addition(**parameters)  # type: ignore[arg-type]


def test_features_by_hand() -> None:
    """95 + 7 = 102: 5 + 7 leave 2 and carry 1; 9 + 0 + 1 pass it on; the last digit is that carry, two places old."""
    task = Addition(digits=2)
    batch = task.batch(torch.tensor([task.parse("5 9 + 7 0 = 2 0")]))
    assert {name: value[0, task.read_places].tolist() for name, value in task.features(batch).items()} == {
        "answer": [2, 0, 1],
        "digit_sum": [12, 9, 0],
        "carry_in": [0, 1, 1],
        "carry_out": [1, 1, 0],
        "chain_length": [0, 1, 2],
    }
    assert task.features(batch)["digit_sum"][0].tolist() == [12, 9, -1, 12, 9, 12, 9, 0]


@pytest.mark.parametrize(("base", "order"), [(2, "least"), (3, "most"), (10, "least")])
def test_a_chain_is_as_long_as_the_run_that_passes_the_carry_on(base: int, order: str) -> None:
    task = Addition(base=base, digits=5, order=order, chains=0.5)
    batch = task.sample(300, "train", seed=4)
    first, second = (n.tolist() for n in task.numbers(batch.tokens))
    chain = task.features(batch)["chain_length"][:, task.read_places].tolist()
    for a, b, lengths in zip(first, second, chain):
        for place, length in enumerate(lengths):
            source = place - length
            sums = [x + y for x, y in zip(a, b)]
            if length:
                assert sums[source] >= base
                assert sums[source + 1 : place] == [base - 1] * (length - 1)
            else:  # below this place, the last sum that does not pass a carry on gives none
                last = [s for s in sums[:place] if s != base - 1]
                assert not last or last[-1] < base


def test_long_chains_are_drawn_for_training_alone() -> None:
    task, plain = Addition(chains=0.5), Addition()

    def longest(task: Addition, split: str) -> float:
        batch = task.sample(2000, split, seed=3)
        return float((task.features(batch)["chain_length"].amax(1) >= 5).double().mean())

    assert longest(plain, "train") < 0.01
    assert longest(task, "train") > 0.08
    assert task.sample(50, "test", 1).tokens.equal(plain.sample(50, "test", 1).tokens)
    assert plain.ref.parameters == ()
    with pytest.raises(InterpError, match="share of training pairs"):
        Addition(chains=1.5)
