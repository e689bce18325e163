"""What is said of an explanation, level by level."""

from __future__ import annotations

from dataclasses import replace

from interp.explanations.explanation import Explanation
from interp.explanations.findings import Agreement, PartRole
from interp.explanations.quantities import Quantity
from interp.explanations.rule import LISTED, Rule
from interp.explanations.sentences import TABLE, how, summary
from interp.explanations.setting import Setting
from interp.programs.language import Linear, Program

READS = "attends to the first position and reads the token"
PARTS = (
    PartRole("head 0.0", "explained", READS, READS, kept=1.0),
    PartRole("head 0.1", "explained", READS, READS, kept=1.0),
    PartRole("head 0.2", "not used"),
    PartRole("MLP 0", "kept"),
)
FOUND = Explanation("a", "b", 9, "in part", parts=PARTS, without=1.0, joint=0.995, tested_on="on all 8 inputs")


def test_parts_that_do_the_same_are_said_once() -> None:
    assert how(FOUND) == (
        "3 of 4 parts are used (heads 0.0 and 0.1 and MLP 0): with the other at its mean, all of the answers stay on "
        "all 8 inputs. Heads 0.0 and 0.1 attend to the first position and read the token. Not described: MLP 0; with "
        "the descriptions of the others in place, 0.9950 of the answers stay."
    )
    assert summary(FOUND).startswith("Explained in part. 3 of 4")


def test_parts_that_no_step_reads() -> None:
    answer = Linear("answer", ("token",), (((1.0, 0.0), (0.0, 1.0)),), (0.0, 0.0), ("a", "b"))
    program = Program(("a", "b"), 1, True, (), answer)
    agreement = Agreement(2, 0, 1.0, 1.0, 1.0, 1.0, "on all 2 inputs")
    parts = (*PARTS[:1], PartRole("head 0.2", "minor"), PartRole("MLP 0", "kept"))
    assert how(replace(FOUND, level="explained", parts=parts, program=program, agreement=agreement)) == (
        f"All 3 parts are used. Head 0.0 {READS}; head 0.2 matters for few of the answers, and no step reads it; MLP 0 "
        "is not described, and no step reads it. The answer follows from the token: by itself, this program gives all "
        "of the model's answers on all 2 inputs."
    )


def test_all_parts_are_used() -> None:
    said = [how(replace(FOUND, parts=(PARTS[0],) * n)).partition(". ")[0] for n in (1, 2, 3)]
    assert said == ["The only part is used", "Both parts are used", "All 3 parts are used"]


def test_nothing_is_said_of_parts_that_do_nothing() -> None:
    idle = replace(FOUND, parts=tuple(replace(one, status="not used", does="", brief="") for one in PARTS))
    assert how(idle) == "No head or MLP is used: with all of them at their means, all of the answers stay."


def test_without_anything_the_reason_is_said() -> None:
    none = Explanation("a", "b", 9, reason="the model answers 0")
    assert summary(none) == "No explanation found: the model answers 0."
    assert how(none) == ""


def test_agreement() -> None:
    assert (
        str(Agreement(64, 0, 1.0, 1.0, 1.0, 1.0, "on all 64 inputs")) == "all of the model's answers on all 64 inputs"
    )
    sampled = Agreement(100_000, 1, 0.99999, 0.9, 0.9999, 0.999999, "on a sample")
    assert str(sampled) == "0.99999 of the model's answers on a sample (95% interval 0.9999 to 0.999999)"


def test_a_long_table_is_said_to_be_no_algorithm() -> None:
    setting = Setting(tuple("abcdefghijklmnop"), (), True, ("x", "y"))
    first = (Quantity(setting, "place", (0,)),)
    agreement = Agreement(16, 0, 1.0, 1.0, 1.0, 1.0, "on all 16 inputs")
    kept = tuple(PartRole(f"head 0.{head}", "kept", without=0.3 + head / 10) for head in range(2))

    def said(n: int, without: float = 0.0) -> str:
        rule = Rule(setting, "table", first, {"entries": [[at, 1] for at in range(n)], "default": 0})
        parts = (*kept, PartRole("MLP 0", "kept", without=without))
        return summary(Explanation("a", "b", 9, "answers only", parts=parts, rule=rule, agreement=agreement))

    held = "3 parts hold the table together: with any one of them at its mean, at most 0.4000 of the answers stay."
    assert said(LISTED + 1).startswith(f"{TABLE}The answer is looked up by the first token in a table of 13 entries")
    assert held in said(LISTED + 1)
    assert "hold" not in said(LISTED + 1, without=1.0)
    assert said(LISTED).startswith("The answer is looked up")
