"""The score of what is said of parts, by hand: known things found, things not said, and false ones."""

from __future__ import annotations

import runpy
from pathlib import Path

from interp.explanations import Explanation, PartRole

STUDY = runpy.run_path(str(Path(__file__).resolve().parents[2] / "analyses" / "explain_constructions.py"))
KNOWN = {
    "head 0.0": {"looks": {"looks here"}, "carries": {"carries a", "carries b"}},
    "head 0.1": {"status": {"cut"}},
    "MLP 0": {"carries": {"carries c"}},
}


def verdicts(*parts: PartRole) -> list[tuple[str, str, str]]:
    lines = STUDY["scored"](Explanation("m", "t", 100, 1.0, parts=parts), KNOWN)
    return [(line["part"], line["aspect"], line["verdict"]) for line in lines]


def test_what_is_known_is_found_in_any_wording() -> None:
    assert verdicts(
        PartRole("head 0.0", "explained", looks="looks here", carries="carries b"), PartRole("head 0.1", "cut")
    ) == [("head 0.0", "looks", "found"), ("head 0.0", "carries", "found"), ("head 0.1", "status", "found")]


def test_false_and_missing_sentences_are_told_apart() -> None:
    said = verdicts(
        PartRole("head 0.0", "kept", looks="looks there", inside="moves x", carries="carries b"),
        PartRole("MLP 0", "cut"),
        PartRole("head 9.9", "explained", carries="anything"),  # nothing is known of it
    )
    assert said == [
        ("head 0.0", "looks", "false"),
        ("head 0.0", "inside", "false"),
        ("head 0.0", "carries", "not found"),
        ("MLP 0", "status", "false"),
        ("MLP 0", "carries", "not found"),
    ]
