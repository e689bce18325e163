"""Sentences about an explanation, as functions of plain facts."""

from __future__ import annotations

from collections.abc import Sequence

from interp import words
from interp.explanations.findings import Agreement, PartRole

NAMED = 4
"""Largest number of parts of a kind, and of groups of parts, that the summary names."""


def nothing_found(reason: str) -> str:
    """Return the only sentence for a model without a program."""
    return f"No explanation found{f': {reason}' if reason else ''}."


def how(program: str, parts: Sequence[PartRole], agreement: Agreement, notes: Sequence[str] = ()) -> str:
    """Return the summary: the program in words, the method (first sentence of each note), the parts, the agreement."""
    methods = [f"{note.split('. ')[0].removesuffix('.')}." for note in notes]
    return " ".join(one for one in (program, *methods, parts_sentence(parts), truth(agreement)) if one)


def truth(agreement: Agreement) -> str:
    """Say how many of the model's answers the program gives."""
    text = f"This program gives {agreement}"
    if agreement.wrong is not None and agreement.right is not None and agreement.changed:
        right, wrong = words.portion(agreement.right), words.portion(agreement.wrong)
        text += f": {right} where the model is right and {wrong} where it is wrong"
    return f"{text}."


def parts_sentence(parts: Sequence[PartRole]) -> str:
    """Say what each part does, if a replacement confirmed it, and which parts were not explained.

    Parts that do the same share a sentence. Explained parts come first, layer by layer.
    """
    if not parts:
        return "The parts of the model were not tested: time ran out."
    groups: dict[tuple[bool, str], list[str]] = {}
    for one in sorted(parts, key=_layer):
        explained = one.status == "explained"
        does = [text for text in (one.looks, one.inside, one.carries if explained else None) if text]
        if one.status != "cut" and (does or explained):
            groups.setdefault((not explained, words.joined(does)), []).append(one.part)
    ordered = sorted(groups.items(), key=lambda item: item[0][0])
    said = [f"{named(group)}{': each ' if len(group) > 1 else ' '}{does}" for (_, does), group in ordered]
    text = []
    if said:
        left = [part for _, group in ordered[NAMED:] for part in group]
        more = f"; for {named(left)} see the table of parts" if left else ""
        text.append(f"In the model: {'; '.join(said[:NAMED])}{more}.")
    kept = [one.part for one in parts if one.status == "kept"]
    if kept:
        outputs, are = ("output", "is") if len(kept) == 1 else ("outputs", "are")
        text.append(f"The {outputs} of {named(kept)} {are} not explained.")
    return " ".join(text)


def _layer(one: PartRole) -> int:
    return int(one.part.split(" ")[1].split(".")[0])


def named(parts: Sequence[str]) -> str:
    """Name parts: "heads 0.0 and 0.1", "head 0.0 and MLP 1". Only the first NAMED of each kind are named.

    >>> named(["head 0.0", "head 0.1", "MLP 0"])
    'heads 0.0 and 0.1 and MLP 0'
    """
    said = []
    for kind in dict.fromkeys(part.split(" ")[0] for part in parts):
        which = [part.split(" ")[1] for part in parts if part.startswith(f"{kind} ")]
        others = [f"{len(which) - NAMED} more"] if len(which) > NAMED else []
        said.append(f"{kind}{'s' if len(which) > 1 else ''} {words.joined([*which[:NAMED], *others])}")
    return words.joined(said)
