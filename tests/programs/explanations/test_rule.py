"""Rules: fitted, compressed, counted, as words and as source; the two ways to run one agree."""

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch

import interp
from interp.programs.explanations.bench import Setting, View
from interp.programs.explanations.forms import Grouped, Sum
from interp.programs.explanations.quantities import Quantity, candidates
from interp.programs.explanations.rule import Rule
from interp.programs.explanations.search import Data, fits, search

BITS = Setting(("0", "1", "[CLS]"), ("[CLS]",), False, ("no", "yes"))
ONES, ZEROS = Quantity(BITS, "count", ("1",)), Quantity(BITS, "count", ("0",))


DIGITS = Setting(("0", "1", "[CLS]"), ("[CLS]",), False, ("0", "1", "2", "3", "4"))
OWN, OWN_COUNT = Quantity(DIGITS, "own"), Quantity(DIGITS, "own count", ())


def strings(length: int = 8, setting: Setting = BITS) -> View:
    """All strings of one length behind [CLS]."""
    bits = torch.cartesian_prod(*[torch.arange(2)] * length)
    tokens = torch.cat([torch.full((len(bits), 1), 2), bits], 1)
    n = len(tokens)
    return View.of(setting, interp.Batch(tokens, torch.full((n,), length + 1), torch.zeros(n, dtype=torch.long)))


def searched(answers: np.ndarray, view: View, most: int = 50) -> Rule | None:
    of = candidates(BITS)
    values = [one.values(view)[:, 0].numpy() for one in of]
    found = search(Data.made(of, values, [0] * len(of), answers, np.arange(len(answers)), True), 0.99, most)
    return found[0].rule if found else None


def test_a_threshold_is_found_and_said() -> None:
    view = strings()
    ones = ONES.values(view)[:, 0].numpy()
    rule = searched((ones >= 3).astype(int), view)
    assert rule.constants <= 4
    for row in range(0, 256, 5):
        tokens = [BITS.vocabulary[t] for t in view.tokens[row].tolist()]
        assert rule(tokens, 0) == ("yes" if ones[row] >= 3 else "no")


def test_balanced_strings_are_two_conditions() -> None:
    view = strings()
    level = (view.is_token("0") - view.is_token("1")).cumsum(1)
    balanced = ((level[:, -1] == 0) & (level.amin(1) >= 0)).long().numpy()
    rule = searched(balanced, view)
    assert (rule.answers([one.values(view)[:, 0] for one in rule.quantities]).numpy() == balanced).all()


def test_random_answers_have_no_rule() -> None:
    view = strings()
    assert searched(np.random.default_rng(0).integers(0, 2, 256), view) is None


def test_the_never_rule_does_not_explain_rare_answers() -> None:
    """One string in 256: a constant would be right on 99.6%."""
    answers = np.zeros(256, dtype=int)
    answers[0b01101001] = 1
    assert searched(answers, strings(), most=3) is None


@pytest.mark.parametrize(("rule", "words", "constants"), [
    (Rule(BITS, "steps", (ONES,), {"starts": [2], "answers": [0, 1]}),
     "The answer is yes if the number of 1s is at least 2, otherwise no.", 4),
    (Rule(BITS, "all", (ONES, ZEROS), {"values": [[1], [2, 3]], "yes": 1, "no": 0}),
     "The answer is yes if the number of 1s is 1 and the number of 0s is 2 or 3, otherwise no.", 6),
    (Rule(BITS, "all", (ONES, ZEROS), {"values": [[1, 2, 3], [2, 3, 4, 5]], "yes": 1, "no": 0}),
     "The answer is yes if the number of 1s is 1, 2 or 3 and the number of 0s is from 2 to 5, otherwise no.", 10),
    (Rule(BITS, "all", (Quantity(BITS, "remainder", ("1", 2)),), {"values": [[1]], "yes": 1, "no": 0}),
     "The answer is yes if the number of 1s is odd, otherwise no.", 4),
    (Rule(BITS, "all", (Quantity(BITS, "remainder", ("1", 3)),), {"values": [[1]], "yes": 1, "no": 0}),
     "The answer is yes if the number of 1s modulo 3 is 1, otherwise no.", 4),
    (Rule(BITS, "sum", (ONES, ZEROS), {"weights": [1.0, -0.5], "threshold": 0.25, "yes": 1, "no": 0}),
     "The answer is yes if 1 × (the number of 1s) − 0.5 × (the number of 0s) is above 0.25, otherwise no.", 7),
    (Rule(BITS, "table", (ONES,), {"entries": [[0, 1], [3, 1]], "default": 0}),
     "The answer is looked up by the number of 1s in a table of 2 entries: 0 gives yes, 3 gives yes, anything else "
     "gives no.", 4),
    (Rule(DIGITS, "table", (OWN,), {"entries": [[0, 0], [1, 1]], "default": 3}),
     "The answer is the current token if this is 0 or 1, otherwise 3.", 3),
    (Rule(DIGITS, "except", (OWN_COUNT, OWN), {"shift": 0, "entries": [[2, 1, 1]]}),
     "The answer is how often the current token occurs, except for 1 pair of this number and "
     "the current token (2 and 1 give 1).", 1),
])  # fmt: skip
def test_words_constants_and_both_ways_to_run(rule: Rule, words: str, constants: int) -> None:
    assert rule.words == words
    assert rule.constants == constants
    assert Rule.from_json(rule.to_json()) == rule
    view, place = strings(4, rule.setting), 4 if rule.setting is DIGITS else 0
    tensors = rule.at(view, torch.arange(16), torch.full((16,), place))
    for row in range(16):
        tokens = [rule.setting.vocabulary[t] for t in view.tokens[row].tolist()]
        assert rule(tokens, place) == rule.setting.answers[int(tensors[row])]


def test_a_table_that_copies_what_it_looks_up_is_no_table() -> None:
    """However many values are listed: what is looked up is copied, so the rule is no listing."""
    letters = Setting(tuple("abcdefghijklmnop"), (), True, tuple("abcdefghijklmnop"))
    following = Quantity(letters, "continued")
    rule = Rule(letters, "table", (following,), {"entries": [[1, 1], [2, 2], [3, 3], [4, 4]], "default": 0})
    token = "the token that followed the most recent earlier occurrence of the current one"
    assert rule.words == f"The answer is {token} if this is b, c, d or e, otherwise a."
    long = Rule(letters, "table", (following,), {"entries": [[at, at] for at in range(1, 15)], "default": 0})
    assert "if this is one of 14 values (b, c, " in long.words
    assert not long.listing
    other = Rule(letters, "table", (following,), {"entries": [[1, 1], [2, 3]], "default": 0})
    assert other.words.startswith("The answer is looked up by")


def test_a_weighted_sum_is_fitted() -> None:
    view = strings()
    values = [one.values(view)[:, 0].numpy() for one in (ONES, ZEROS)]
    answers = (2 * values[0] > values[1]).astype(int)
    found = Sum().weigh(Grouped(BITS, (ONES, ZEROS), values, answers))
    assert found is not None
    rule = Rule(BITS, "sum", (ONES, ZEROS), found)
    assert (rule.answers([torch.from_numpy(v) for v in values]).numpy() == answers).all()


def test_a_number_with_exceptions_is_found() -> None:
    view = strings(4, DIGITS)
    of = [OWN_COUNT, OWN]
    values = [one.values(view)[:, 1:].flatten().numpy() for one in of]
    answers = np.where((values[0] == 4) & (values[1] == 1), 3, values[0])
    found = fits(Grouped(DIGITS, of, values, answers))
    best = min((rule for rule in found if rule.form == "except"), key=lambda r: r.constants)
    assert best.data["entries"] == [[4, 1, 3]]
    assert (best.answers([torch.from_numpy(v) for v in values]).numpy() == answers).all()


def test_a_table_leaves_out_what_costs_nothing() -> None:
    values = np.array([0] * 5000 + [1] * 5000 + [2])
    answers = np.array([0] * 5000 + [1] * 5000 + [1])
    found = {rule.form: rule for rule in fits(Grouped(BITS, (ONES,), [values], answers))}
    assert len(found["table"].data["entries"]) == 1
    answers = np.array([0] * 5000 + [0] * 2497 + [1] * 2503 + [0])  # the default is right nearly as often
    half = {rule.form: rule for rule in fits(Grouped(BITS, (ONES,), [values], answers))}
    assert half["table"].data["entries"] == []


@pytest.mark.parametrize(
    "data",
    [None, {}, {"setting": {}, "rule": {}}, "x", 3, {"setting": asdict(BITS), "rule": {"form": "exec", "of": []}},
     {"setting": asdict(BITS), "rule": {"form": "same", "of": [], "more": {b"bytes"}}},
     {"setting": asdict(BITS), "rule": {"form": "same", "of": [], "more": [print]}}],
)  # fmt: skip
def test_what_is_not_a_program_is_refused(data: Any) -> None:
    with pytest.raises(interp.InterpError):
        Rule.from_json(data)


def test_source_holds_strings_only_as_literals() -> None:
    """A token that looks like code stays a token."""
    evil = Setting(("'); import os #", "1"), (), False, ("no", "yes"))
    program = Rule(evil, "table", (Quantity(evil, "own"),), {"entries": [[0, 1]], "default": 0})
    assert program(["'); import os #"], 0) == "yes"


@pytest.mark.parametrize("rule", [
    {"form": "steps", "of": [["count", "a"]], "starts": ["1 or print()"], "answers": [0, 1]},
    {"form": "all", "of": [["remainder", "a", "2 or print()"]], "values": [[1]]},
    {"form": "all", "of": [["sum modulo", "2 or print()"]], "values": [[1]]},
])  # fmt: skip
def test_text_is_no_number_of_a_rule(rule: dict[str, Any]) -> None:
    """Numbers are written into the source as they are."""
    setting = {"vocabulary": ["a", "b"], "marks": [], "causal": True, "answers": ["no", "yes"], "fixed": []}
    with pytest.raises(interp.InterpError, match=r"is not a rule|the constants of a rule are numbers"):
        Rule.from_json({"setting": setting, "rule": rule})
