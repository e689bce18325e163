"""What is said of an explanation; each sentence is a function of plain facts with a table of cases in the tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from interp import words

if TYPE_CHECKING:
    from interp.explanations.explanation import Agreement, PartRole
    from interp.explanations.program import Program

NAMED = 4
"""Parts that the first screen names."""


def nothing_found(reason: str) -> str:
    """The only sentence about a model without a program."""
    return f"No explanation found{f': {reason}' if reason else ''}."


def how(program: Program, parts: Sequence[PartRole], agreement: Agreement, joint: float | None) -> str:
    """The program, where it happens, and how far it is true."""
    return " ".join(one for one in (program.words, parts_sentence(parts), truth(agreement)) if one)


def truth(agreement: Agreement) -> str:
    """How many of the model's answers the program gives."""
    text = f"This program gives {agreement}"
    if agreement.wrong is not None and agreement.right is not None and agreement.changed:
        right, wrong = words.portion(agreement.right), words.portion(agreement.wrong)
        text += f": {right} of the right ones and {wrong} of the wrong ones"
    return f"{text}."


def parts_sentence(parts: Sequence[PartRole]) -> str:
    """Which parts do what, as far as a replacement has borne it out; and which were not explained."""
    said = []
    for one in parts:
        if one.status == "cut" or not (one.looks or one.inside or one.status == "explained"):
            continue
        does = [text for text in (one.looks, one.inside, one.carries if one.status == "explained" else None) if text]
        said.append(f"{one.part} {words.listed(does)}")
    text = []
    if said:
        more = f"; and {words.counted(len(said) - NAMED, 'more part')}" if len(said) > NAMED else ""
        text.append(f"Where: {'; '.join(said[:NAMED])}{more}.")
    if not parts:
        return "Where it happens was not tested: there was no time left."
    kept = [one.part for one in parts if one.status == "kept"]
    if kept:
        others = [f"{len(kept) - NAMED} more"] if len(kept) > NAMED else []
        named = words.listed([*kept[:NAMED], *others])
        text.append(f"What {named} {'puts' if len(kept) == 1 else 'put'} out is not explained.")
    return " ".join(text)
