"""Sentences of verdicts against tables of cases: perfect, half-trained, random, broken and tied models."""

from __future__ import annotations

import pandas as pd
import pytest

from interp.certificates import Certificate
from interp.measures.accuracy import Accuracy
from interp.sections.accuracy import accuracy_sentence, certificate_sentence, mark_of, rule_sentence
from interp.sections.head_failures import sentence as failures
from interp.sections.question import sentence as question
from interp.sections.separation import sentence as heads_sentence


def certificate(
    status: str, accuracy: float | tuple[float, float], n_errors: int | None, wrong: str | None
) -> Certificate:
    return Certificate("a model", status, accuracy, 1000, 0.1, wrong, "a method", "every pair", 0.1, n_errors=n_errors)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("status", "accuracy", "errors", "wrong", "says", "never"),
    [
        ("certified", 1.0, 0, None, "Proved right on all of the 1,000 inputs", "wrong"),
        ("refuted", 0.5, 500, "a b", "Accuracy 0.500000, exact", "Proved"),
        ("refuted", 1 - 3e-10, 320, "a b", "Accuracy 0.9999999997, exact", "Accuracy 1 "),
        ("refuted", (0.999, 0.9999999), None, "a b", "known to lie from 0.999000 to 0.9999999", "Accuracy exactly"),
        ("refuted", 0.0, 1000, "a b", "Accuracy 0, exact", "Proved"),
        ("undecided", (0.999718, 1.0), None, None, "Not decided: the accuracy in exact arithmetic", "Proved"),
        ("undecided", 1.0, 0, None, "Accuracy 1 in exact arithmetic", "Proved"),
    ],
)
def test_certificates(status, accuracy, errors, wrong, says, never) -> None:
    text = certificate_sentence(certificate(status, accuracy, errors, wrong))
    assert says in text
    assert never not in text
    assert ("it is wrong at a b" in text) == (wrong is not None)


def test_marks() -> None:
    marks = [mark_of(certificate(status, 0.5, 1, "a")) for status in ("certified", "refuted", "undecided")]
    assert marks == ["proved", "refuted", "undecided"]


@pytest.mark.parametrize(
    ("accuracy", "exact", "says"),
    [
        (0.9995, False, "Accuracy 0.9995 on a sample of 200 different inputs (95% interval 0.9000 to 0.99999)"),
        (0.99425, True, "Accuracy 0.994250, exact: all 200 inputs were run"),
        (1.0, True, "Accuracy 1, exact"),
        (0.99999999, True, "Accuracy 0.99999999, exact"),
    ],
)
def test_measured(accuracy: float, exact: bool, says: str) -> None:
    low, high = (accuracy, accuracy) if exact else (0.9, 0.99999)
    assert says in accuracy_sentence(Accuracy(accuracy, low, high, 200, 200, exact))


def errors_of(answers_one: dict[int, float]) -> pd.DataFrame:
    """The table of errors of a model that answers '4' for this share of 10 inputs of each difference."""
    rows = []
    for difference, share in answers_one.items():
        right = share if difference > 0 else 1 - share
        rows.append((difference, round(10 * (1 - right)), 10))
    return pd.DataFrame(rows, columns=["difference", "errors", "inputs"])


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ({-1: 0, 0: 0, 1: 1, 2: 1}, "'4' exactly if the number of '1' minus that of '0' is at least 1."),
        ({-1: 0, 0: 0, 1: 0, 2: 1}, "'4' exactly if the number of '1' minus that of '0' is at least 2."),
        ({-1: 0, 0: 0.3, 1: 0.6, 2: 1}, "at least 2, '5' wherever it is at most -1; in between"),
        ({-1: 0, 0: 0, 1: 0, 2: 0}, "it answers '5' whatever the counts"),
        ({-1: 1, 0: 1, 1: 1, 2: 1}, "it answers '4' whatever the counts"),
        ({-1: 1, 0: 0, 1: 1, 2: 0}, ""),  # no rule
        ({-1: 0.5, 0: 0.5, 1: 0.5, 2: 0.5}, ""),  # random
        ({-1: 1, 0: 1, 1: 0, 2: 0}, ""),  # the wrong way round: no rule of this kind
        ({-2: 0.5, -1: 0, 0: 0, 1: 1, 2: 1}, ""),  # mixed outside of the boundary
    ],
)
def test_rules(answers: dict[int, float], says: str) -> None:
    text = rule_sentence(errors_of(answers), ("0", "1", "2"), ("4", "5"))
    assert says in text if says else text == ""


def facts(**changes: float) -> dict[str, float]:
    found = {"heads": 16, "successful": 8, "failed": 8, "mixed": 0, "best s_acc": 1.0, "best pair": 1.0, "pairs": 120,
             "better pairs": 3, "heads alone": 0, "pairs alone": 2, "model": 0.98, "guess": 0.51}  # fmt: skip
    return found | changes


@pytest.mark.parametrize(
    ("changes", "says", "never"),
    [
        ({}, "pseudo-ensemble", "cooperate"),
        ({"successful": 1}, "One head separates the answers alone", "ensemble"),
        ({"successful": 0, "best pair": 0.99}, "The heads cooperate", "ensemble"),
        ({"successful": 0, "best pair": 0.7}, "No head and no pair", "The heads cooperate"),
        ({"model": 0.03, "successful": 0, "better pairs": 30}, "does not solve the task", "The heads cooperate"),
        ({"model": 0.51, "successful": 4}, "does not solve the task", "pseudo-ensemble"),  # untrained, lucky heads
        ({"heads": 1, "pairs": 0, "successful": 0, "mixed": 1, "best s_acc": 0.97, "model": 1.0},
         "one head, which answers alone", "0 of 1"),
    ],
)  # fmt: skip
def test_heads(changes: dict[str, float], says: str, never: str) -> None:
    text = heads_sentence(facts(**changes))
    assert says in text
    assert never not in text


def test_the_first_line_names_the_task_and_one_input() -> None:
    import interp

    text = question(interp.tasks.Count01())
    assert text.startswith("Task count01: Answer '4' if there are more 1s than 0s")
    assert "= 4 [EOS] has the answer '4'." in text or "= 5 [EOS] has the answer '5'." in text


@pytest.mark.parametrize(
    ("shares", "says"),
    [
        ([{"0": 0.5, "1": 0.49, "=": 0.01}] * 2,
         "each give at least 0.990 of the attention to '0' and '1' (on average 0.500 and 0.490)."),
        ([{"0": 1e-9, "1": 0.01, "=": 0.98999}] * 3,
         "each give at least 0.990 of the attention to '=' itself; '0' and '1' get at most 1e-09 and 0.01."),
        ([{"0": 0.0, "1": 0.04, "[BOS]": 0.96}],
         "The failed head gives 0.960 of the attention to '[BOS]'; '0' and '1' get 0 and 0.04."),
        ([{"0": 0.3, "1": 0.3, "=": 0.4}, {"0": 0.1, "1": 0.1, "=": 0.8}],
         "each give 0.200 to 0.600 of the attention to '0' and '1' together."),
    ],
)  # fmt: skip
def test_why_heads_fail(shares: list[dict[str, float]], says: str) -> None:
    rows = [(head, "failed", token, share) for head, mine in enumerate(shares) for token, share in mine.items()]
    table = pd.DataFrame(rows, columns=["head", "category", "token", "share"])
    assert failures(table, "failed", ("0", "1"), "=").endswith(says)
