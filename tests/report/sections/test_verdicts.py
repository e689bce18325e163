"""Sentences of verdicts against tables of cases: perfect, half-trained, random, broken and tied models."""

from dataclasses import replace

import pandas as pd
import pytest
import torch
from some_inputs import every, some

from interp.certificates import Certificate
from interp.families.algorithmic import Addition
from interp.families.count01.sections.head_failures import sentence as failures
from interp.families.count01.sections.separation import facts_of
from interp.families.count01.sections.separation import sentence as heads_sentence
from interp.families.histogram.measures.relation_or_inventory import Mechanism
from interp.families.histogram.sections.answers import answers_sentence as which_counts
from interp.families.languages import Parity
from interp.families.languages.sections import sentence as lengths
from interp.families.memorization.measures import Memorization
from interp.families.memorization.sections import sentence as table_sentence
from interp.measures.accuracy import Accuracy
from interp.measures.runs import ScoreWithLoss
from interp.report import Report
from interp.report.sections import accuracy as accuracy_section
from interp.report.sections.heads import (
    describe_induction,
    describe_lowest_accuracy,
    describe_needed_parts,
    describe_readable_heads,
    find_needed_parts,
    name_most_needed_part,
)
from interp.report.sections.question import describe_example, describe_inputs
from interp.tasks import Task


def certificate(
    status: str, accuracy: float | tuple[float, float], n_errors: int | None, wrong: str | None
) -> Certificate:
    return Certificate("a model", status, accuracy, 1000, 0.1, wrong, "a method", "every pair", 0.1, n_errors=n_errors)  # type: ignore[arg-type]


def accuracy_of(right: float, n: int, exact: bool = False) -> Accuracy:
    return Accuracy(ScoreWithLoss(n, right, n, exact))


@pytest.mark.parametrize(("status", "accuracy", "errors", "says"), [
    ("certified", 1.0, 0, "Proved right on all of the 1,000 inputs"),
    ("refuted", 1 - 3e-10, 320, "Accuracy 0.9999999997, exact"),
    ("refuted", (0.5123457, 0.9999999), None, "is in the range 0.512345 to 0.999000"),  # outward, and one is wrong
    ("undecided", (0.999718, 1.0), None, "Not decided: the accuracy in exact arithmetic"),
    ("undecided", 1.0, 0, "Accuracy 1 in exact arithmetic"),
    ("undecided", 0.5, 500, "Accuracy 0.500000 in exact arithmetic, exact over"),
])  # fmt: skip
def test_certificates(status, accuracy, errors, says) -> None:
    wrong = "a b" if status == "refuted" else None
    text = accuracy_section.certificate_sentence(certificate(status, accuracy, errors, wrong))
    assert says in text
    assert ("Proved" in text) == (status == "certified")
    assert ("it is wrong at 'a b'" in text) == (wrong is not None)


def test_one_input_is_no_inputs() -> None:
    measured = accuracy_of(1, 1, exact=True)
    assert "exact: the only input was run." in accuracy_section.accuracy_sentence(measured, every(1))
    assert accuracy_section.accuracy_caption(measured) == "The only input was run."
    assert " on 1 input (" in str(replace(certificate("refuted", 0.0, 1, "a"), n_inputs=1))


@pytest.mark.parametrize(("inputs", "answers", "errors", "says"), [
    (1, None, 1, "Always wrong: on the only input."),
    (1_000, None, 1_000, "Always wrong: on all of the 1,000 inputs."),
    (1_000, 8_000, 8_000, "Always wrong: on all of the 8,000 answers."),
    (1_000, None, 85, "Not always right: wrong on 85 of the 1,000 inputs."),
    (1_000, 8_000, 85, "Not always right: wrong on 85 of the 8,000 answers."),
    (1_000, None, None, "Not always right: it is wrong on some inputs of the domain."),
])  # fmt: skip
def test_errors_are_counted_in_inputs_or_answers(inputs, answers, errors, says) -> None:
    accuracy = 1 - errors / (answers or inputs) if errors else (0.9, 0.95)
    found = replace(certificate("refuted", accuracy, errors, "a b"), n_inputs=inputs, n_answers=answers)
    assert accuracy_section.describe_errors(found) == says
    text = accuracy_section.certificate_sentence(found)
    assert "weighted" not in text
    assert errors is None or f"It is wrong on {'all' if says.startswith('Always') else errors} of " in text


@pytest.mark.parametrize(("right", "exact", "says"), [
    (199, False, "Accuracy 0.9950 on a sample of 200 inputs (split test, seed 0); the 95% interval is "
                 "0.9722 to 0.9992."),
    (198.85, True, "Accuracy 0.994250, exact: all 200 inputs were run"),
    (199.999998, True, "Accuracy 0.99999999, exact"),
])  # fmt: skip
def test_measured(right: float, exact: bool, says: str) -> None:
    inputs = every(200) if exact else some(200)
    assert says in accuracy_section.accuracy_sentence(accuracy_of(right, 200, exact), inputs)


def test_how_the_sampler_draws_inputs_is_a_number_of_its_own() -> None:
    found = accuracy_of(499, 1000)
    assert accuracy_section.drawn_sentence(found, 0.51, some(1000)) == ""
    said = accuracy_section.drawn_sentence(found, 0.9974, some(1000))
    assert "With the task's sampler, accuracy is 0.4990 on a sample of 1,000 inputs" in said
    assert "(95% interval 0.4680" in said


@pytest.mark.parametrize(("counterexample", "says"), [
    (")(((: the answer at position 4 is yes, right is no", "')(((': the answer at position 4 is yes, right is no"),
    ("a: b: the answer at position 1 is x, right is y", "'a: b': the answer at position 1 is x, right is y"),
    ("0 1 1", "'0 1 1'"),
])  # fmt: skip
def test_the_input_of_a_counterexample_stands_in_quotation_marks(counterexample: str, says: str) -> None:
    assert accuracy_section.quoted_input(counterexample) == says
    found = certificate("refuted", 0.5, 500, counterexample)
    assert f"it is wrong at {says}." in accuracy_section.certificate_sentence(found)


def errors_of(answers_one: dict[int, float]) -> pd.DataFrame:
    """The table of errors of a model that answers '4' for this share of 10 inputs of each difference."""
    rows = []
    for difference, share in answers_one.items():
        right = share if difference > 0 else 1 - share
        rows.append((difference, round(10 * (1 - right)), 10))
    return pd.DataFrame(rows, columns=["difference", "errors", "inputs"])


@pytest.mark.parametrize(("answers", "says"), [
    ({-1: 0, 0: 0, 1: 1, 2: 1}, "On all 40 inputs that were checked, it answers '4' exactly if the number of '1' minus "
                                "that of '0' is at least 1."),
    ({-1: 0, 0: 0, 1: 0, 2: 1}, "is at least 2."),
    ({-1: 0, 0: 0.3, 1: 0.6, 2: 1}, "at least 2, and '5' if it is at most -1; in between"),
    ({-1: 0, 0: 0, 1: 0, 2: 0}, "it answers '5' whatever the counts"),
    ({-1: 1, 0: 1, 1: 1, 2: 1}, "it answers '4' whatever the counts"),
    ({-1: 1, 0: 0, 1: 1, 2: 0}, ""),  # no rule
    ({-1: 0.5, 0: 0.5, 1: 0.5, 2: 0.5}, ""),  # random
    ({-1: 1, 0: 1, 1: 0, 2: 0}, ""),  # the wrong way round: no rule of this kind
    ({-2: 0.5, -1: 0, 0: 0, 1: 1, 2: 1}, ""),  # mixed outside of the boundary
])  # fmt: skip
def test_rules(answers: dict[int, float], says: str) -> None:
    text = accuracy_section.rule_sentence(errors_of(answers), ("0", "1", "2"), ("4", "5"))
    assert says in text if says else text == ""


@pytest.mark.parametrize(("sampled", "says"), [
    (0, "These sections used all inputs"),
    (1, "1 section of 3 used a data set or a seeded sample, so its shares have 95% intervals; the others used all"),
    (2, "2 sections of 3 used a data set or a seeded sample, so their shares have 95% intervals; the other used"),
    (3, "These sections used a data set or a seeded sample, so their shares have 95% intervals."),
])  # fmt: skip
def test_sections_on_samples_are_counted(sampled: int, says: str) -> None:
    assert describe_inputs(sampled, 3).startswith(says)


def test_errors_with_a_third_answer_show_no_rule() -> None:
    errors = errors_of({-1: 1, 0: 1, 1: 1, 2: 1})  # right where '4' is, wrong elsewhere: by '4', or by another token?
    errors.attrs["neither"] = 20
    assert accuracy_section.rule_sentence(errors, ("0", "1", "2"), ("4", "5")) == ""


def facts(**changes: float) -> dict[str, float]:
    found = {"heads": 16, "successful": 8, "failed": 8, "mixed": 0, "best s_acc": 1.0, "best pair": 1.0, "pairs": 120,
             "better pairs": 3, "heads alone": 0, "pairs alone": 2, "model": 0.98, "guess": 0.51}  # fmt: skip
    return found | changes


@pytest.mark.parametrize(("changes", "says", "never"), [
    ({}, "pseudo-ensemble", "cooperate"),
    ({"successful": 1}, "One head separates the answers alone", "ensemble"),
    ({"successful": 0, "best pair": 0.98}, "The heads cooperate", "ensemble"),  # as much as a successful head has
    ({"successful": 0, "best pair": 0.7}, "No head and no pair", "The heads cooperate"),
    ({"model": 0.51, "successful": 4}, "does not solve the task", "pseudo-ensemble"),  # untrained, lucky heads
    ({"heads": 1, "pairs": 0, "successful": 0, "mixed": 1, "best s_acc": 0.97, "model": 1.0}, "only one head", "0 of"),
])  # fmt: skip
def test_heads(changes: dict[str, float], says: str, never: str) -> None:
    text = heads_sentence(facts(**changes))
    assert says in text
    assert never not in text


def test_a_pair_is_better_than_the_better_of_its_heads() -> None:
    heads = pd.DataFrame({"head": [0, 1, 2], "s_acc": [0.9, 0.6, 0.7], "l_acc": [0.5, 0.9, 0.5],
                          "category": ["mixed", "failed", "mixed"]})  # fmt: skip
    pairs = pd.DataFrame({"heads": [(0, 1), (0, 2), (1, 2)], "s_acc": [0.905, 0.95, 0.7], "l_acc": [0.5, 0.5, 0.9]})
    found = facts_of(heads, pairs)
    assert (found["better pairs"], found["pairs"], found["best pair"]) == (1, 3, 0.95)
    assert (found["mixed"], found["failed"], found["heads alone"], found["pairs alone"]) == (2, 1, 1, 1)


@pytest.mark.parametrize(("shares", "says"), [
    ([{"0": 0.5, "1": 0.49, "=": 0.01}] * 2,
     "each give at least 0.990 of the attention to '0' and '1' (on average 0.500 and 0.490)."),
    ([{"0": 1e-9, "1": 0.01, "=": 0.98999}] * 3,
     "each give at least 0.989 of the attention to '=' itself; '0' and '1' get at most 1e-09 and 0.01."),
    ([{"0": 0.0, "1": 0.0123, "=": 0.98}] * 2, "'0' and '1' get at most 0 and 0.013."),
    ([{"0": 0.0, "1": 0.04, "[BOS]": 0.96}],
     "The failed head gives 0.960 of the attention to '[BOS]'; '0' and '1' get 0 and 0.04."),
    ([{"0": 0.3, "1": 0.3, "=": 0.4}, {"0": 0.1, "1": 0.1, "=": 0.8}],
     "each give 0.200 to 0.600 of the attention to '0' and '1' together."),
])  # fmt: skip
def test_why_heads_fail(shares: list[dict[str, float]], says: str) -> None:
    rows = [(head, "failed", token, share) for head, mine in enumerate(shares) for token, share in mine.items()]
    table = pd.DataFrame(rows, columns=["head", "category", "token", "share"])
    assert failures(table, "failed", ("0", "1"), "=").endswith(says)


def of_parts(without: dict[str, float], whole: float = 1.0) -> pd.DataFrame:
    table = pd.DataFrame({"part": list(without), "accuracy_mean": list(without.values())})
    table.attrs |= {"accuracy": whole, "train": 500}
    return table


@pytest.mark.parametrize(("without", "whole", "n", "parts", "most"), [
    ({"0.0": 0.2, "mlp 0": 0.999}, 1.0, 0, ["0.0"], "0.0"),
    ({"0.0": 0.1, "mlp 0": 0.0}, 0.99996, 0, ["mlp 0", "0.0"], "mlp 0"),
    ({"0.0": 0.96, "0.1": 0.97}, 1.0, 1000, [], "none"),
    ({"0.0": 0.0, "0.1": 0.0}, 0.0, 1000, [], "none"),  # a model that is never right misses no part
    ({"0.0": 0.2, "0.1": 0.3}, 0.32, 1000, [], "none"),  # no better than the most frequent answer
    ({"0.0": 0.5, "0.1": 0.51}, 1.0, 1000, ["0.0", "0.1"], "0.0 or 0.1"),
    ({"0.0": 0.5, "0.1": 0.88}, 0.95, 200, ["0.0"], "0.0"),  # on so few inputs, the second may be chance
    ({"0.0": 0.5, "0.1": 0.88}, 0.95, 5_000, ["0.0", "0.1"], "0.0"),
])  # fmt: skip
def test_a_part_is_needed_if_accuracy_falls_beyond_chance(without, whole, n, parts, most) -> None:
    table, inputs = of_parts(without), some(n) if n else every(95)
    assert list(find_needed_parts(table, whole, 0.3, inputs).index) == parts
    assert name_most_needed_part(table, whole, 0.3, inputs) == most


def test_parts_that_are_needed_are_named_with_what_is_left() -> None:
    table = of_parts({f"0.{i}": 0.1 + i / 100 for i in range(5)} | {"mlp 0": 0.999})
    text = describe_needed_parts(table, 1.0, 0.3, every(95))
    assert text.startswith(
        "On all 95 inputs, accuracy falls from 1 when one of these is replaced by its mean over 500 "
    )
    assert text.endswith("0.0 (to 0.1000), 0.1 (to 0.1100), 0.2 (to 0.1200) and 2 more. Without any other part it is "
                         "0.9990.")  # fmt: skip
    none = describe_needed_parts(of_parts({"0.0": 1.0, "0.1": 1.0}), 1.0, 0.3, every(95))
    assert "does not lower accuracy by more than 0.05: it is then 1 (1 with all parts)" in none
    assert describe_needed_parts(of_parts({"0.0": 0.02}), 1.0, 0.3, every(95)) == ""  # one part: nothing to tell apart
    table.attrs["by_position"] = True
    assert "by its mean at each position over 500 training inputs" in describe_needed_parts(table, 1.0, 0.3, some(200))


def test_one_number_is_printed_in_one_way() -> None:
    """As "or more", the accuracy without a part that the model does not need was rounded down, next to the whole."""
    table, whole = of_parts({"head 0.0": 0.77518, "MLP 0": 0.8}), 0.77518
    said = describe_needed_parts(table, whole, 0.3, every(100_000))
    assert said.endswith("it is then 0.7752 at worst (0.7752 with all parts).")
    table.attrs["accuracy"] = whole
    assert "accuracy is 0.7752 at worst (0.7752 with all)" in describe_lowest_accuracy(table, every(100_000))


@pytest.mark.parametrize(("without", "says"), [
    ({"head 0.0": 0.03}, "The only part is head 0.0. With it mean-ablated, accuracy is 0.0300 (otherwise 1)."),
    ({"head 0.0": 299 / 300, "MLP 0": 1.0}, "0.9967 at worst (1 with all); it is lowest without head 0.0."),
    ({"head 0.0": 0.9, "MLP 0": 0.9, "head 0.1": 1.0}, "it is lowest without head 0.0 or MLP 0."),
    ({"head 0.0": 1.0, "head 0.1": 1.0}, "With any one part mean-ablated, accuracy is 1 (1 with all)."),
])  # fmt: skip
def test_the_part_without_which_accuracy_is_lowest(without: dict[str, float], says: str) -> None:
    assert describe_lowest_accuracy(of_parts(without), every(100_000)).endswith(says)


@pytest.mark.parametrize(("s_acc", "chance", "says"), [
    ([1.0, 0.5], 0.5, "read from head 0.0: a linear separator of its output is right on all"),
    ([0.99996, float("nan")], 0.5, "right on 0.99996 of the answers"),
    ([1.0] * 9, 0.5, "read from any of 9, such as head 0.0: a linear"),
    ([1.0, 0.99], 0.96, "best read from head 0.0"),
    ([0.52, 0.5], 0.5, ""),
    ([float("nan")], 0.5, ""),
    ([0.97, 0.96], 0.96, ""),
    ([1.0], 1.0, ""),  # one answer: nothing to read
])  # fmt: skip
def test_answers_are_read_off_a_head_where_that_beats_guessing(s_acc: list[float], chance: float, says: str) -> None:
    table = pd.DataFrame({"part": [f"head 0.{h}" for h in range(len(s_acc))], "s_acc": s_acc})
    table.attrs["chance"] = chance
    text = describe_readable_heads(table, every(100_000))
    assert says in text if says else "read" not in text


@pytest.mark.parametrize(("entropy", "says"), [(0.3, "(induction): head 0.0."), (float("nan"), "")])
def test_only_shares_of_attention_go_somewhere(entropy: float, says: str) -> None:
    table = pd.DataFrame({"part": ["head 0.0"], "kind": ["head"], "entropy": [entropy], "induction": [0.9]})
    assert describe_induction(table).endswith(says)
    assert bool(describe_induction(table)) == bool(says)


@pytest.mark.parametrize(("right", "exact", "says"), [
    (200, True, "Always right: no error in the 200 answers of all inputs."),
    (200, False, "No error in the 200 answers that were sampled."),
    (199, False, "Not always right: wrong on 1 of the 200 answers that were sampled."),
    (0, True, "Always wrong: on all of the 200 answers of all inputs."),
    (0, False, "Wrong on all of the 200 answers that were sampled."),
])  # fmt: skip
def test_whether_a_model_computes_what_is_asked(right: int, exact: bool, says: str) -> None:
    assert accuracy_section.describe_answers(accuracy_of(right, 200, exact)) == says


def curve(accuracies: dict[int, float], bits: float = 0.1) -> pd.DataFrame:
    rows = [(n, a, round(60 * (1 - a)), 0, bits, "float32") for n, a in accuracies.items()]
    columns = ["length", "accuracy", "false_accepts", "false_rejects", "cross_entropy_bits", "dtype"]
    return pd.DataFrame(rows, columns=columns)


@pytest.mark.parametrize(("accuracies", "bits", "trained_on", "says", "never"), [
    ({2: 1.0, 100: 1.0}, 0.1, None, "up to 100 symbols are all classified correctly (float32).", "false"),
    ({2: 1.0, 100: 1.0}, 0.99999, None, "0.99999 bits (a coin toss has 1: the sign of the output", "1 bits"),
    ({2: 1.0, 10: 1.0, 100: 59 / 60}, 0.1, 10,
     "up to 10 symbols are all classified correctly. By length, sampled accuracy is lowest at 100 symbols "
     "(0.983); in "
     "all 1 false accept and 0 false rejects (float32). At 10 symbols, as in training, sampled accuracy is 1.",
     "1 false accepts"),
    ({2: 0.5, 10: 1.0}, 1.2, 10, "lowest at 2 symbols (0.500)", "up to"),
])  # fmt: skip
def test_lengths(accuracies, bits, trained_on, says, never) -> None:
    text = lengths(curve(accuracies, bits), trained_on)
    assert says in text
    assert never not in text


@pytest.mark.parametrize(("changes", "says"), [
    ({"by_weights": 0.997, "by_contents": 0.003}, "the weights by 0.997 and the contents by 0.003."),
    ({"by_weights": 1.0, "by_contents": 0.0}, "the weights by 1 and the contents by 0."),
    ({"by_weights": 1 + 5e-15, "by_contents": 1.5e-16}, "the weights by 1 and the contents by 0."),
    ({"by_weights": 0.9999, "by_contents": 3e-5}, "the weights by 0.9999 and the contents by 3e-05."),
    ({"own_loss": 0.8, "other_loss": 0.8}, "costs every token the same, 0.8 of accuracy."),
    ({"own_loss": 0.8, "other_loss": 0.1}, "costs that token 0.8 of accuracy, the others 0.1."),
    ({"verdict": "does not count", "accuracy": 0.03}, "It does not count well enough to study how: accuracy 0.030"),
])  # fmt: skip
def test_mechanisms(changes, says) -> None:
    given = {"verdict": "relation-based", "accuracy": 1.0, "by_weights": 1.0, "by_contents": 0.0, "explained": 1.0,
             "without_contents": 1.0, "without_weights": 0.0, "neurons": 1, "own_loss": 0.5, "other_loss": 0.5,
             "positions": 10}  # fmt: skip
    assert says in str(Mechanism(**(given | changes)))


@pytest.mark.parametrize(
    ("memorized", "formula", "says"),
    [(400, 105, "memorizes H d_h + d = 105 associations of any table; this model memorizes more of this table."),
     (24, 105, "memorizes H d_h + d = 105 associations of any table.")],
)  # fmt: skip
def test_memorized_beside_what_a_construction_can(memorized: int, formula: int, says: str) -> None:
    found = Memorization(
        kl=0.1, entropy=0.0, accuracy=memorized / 400, memorized=memorized, contexts=400,
        parameters=1, formula=formula, rows=pd.DataFrame(),
    )  # fmt: skip
    assert says in table_sentence(found, None, weighted=False, least=19)


def test_a_verdict_goes_from_the_task_to_the_proof() -> None:
    report = Report("t")
    for about in ("proof", "how", "what", "task"):
        report.say(about.capitalize(), about)
    assert report.verdict == "Task\n\nWhat\n\nHow\n\nProof"
    report.verdict = "Other."
    assert report.verdict == "Other."


@pytest.mark.parametrize(("accuracy", "says"), [
    ([1.0, 1.0, 1.0], ""),
    ([1.0, 1.0, 0.93], "In a sample of 2,000 sequences in which every count is equally frequent, it is always "
                       "right for counts 1 and 2 and least accurate for count 3 (0.930)."),
    ([1.0, 0.9996, 0.99999], "always right for count 1 and least accurate for count 2 (0.9996)."),
    ([0.5, 0.9, 0.0], "most accurate for count 2 (0.900) and never right for count 3."),
    ([0.5, 0.5, 0.2], "most accurate for counts 1 and 2 (0.500) and least accurate for count 3 (0.200)."),
    ([0.0, 0.0, 0.0], "its accuracy is the same for every count (0)."),
])  # fmt: skip
def test_which_counts_are_right(accuracy: list[float], says: str) -> None:
    text = which_counts(pd.Series(accuracy, index=[1, 2, 3]), 2000, evenly=True)
    assert text.endswith(says) if says else text == ""


@pytest.mark.parametrize(("task", "row", "said"), [
    (Addition(digits=2), "2 1 + 9 9 = 1 1", "For example, 2 1 + 9 9 = 1 1 has the answer '- - - - - 1 1 1'."),
    (Parity(), "[CLS] 1 1 0", "For example, [CLS] 1 1 0 has the answer 'not a member'."),
])  # fmt: skip
def test_an_example_is_a_question_and_its_answer(task: Task, row: str, said: str) -> None:
    assert describe_example(task, task.batch(torch.tensor([task.parse(row)]))) == said
