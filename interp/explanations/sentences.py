"""Sentences about an explanation. What is said of a part is what its replacement in the running model bears out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp import words
from interp.programs.language import Sums
from interp.programs.words import answer_words, grouped, parts_words, plural

if TYPE_CHECKING:
    from interp.explanations.explanation import Explanation

TABLE = "A look-up table, no algorithm. "
SPARED = 0.9
"""Share of the answers that stay without a part that can nearly be spared."""
NAMED = 3
"""Most groups of parts whose description the summary repeats."""


def summary(found: Explanation) -> str:
    """What was found, level first."""
    if found.level == "explained":
        return f"Explained{_as_network(found)}. {how(found)}"
    rule = f"{found.rule.words} This rule gives {found.agreement}" if found.rule is not None else ""
    table = found.rule is not None and found.rule.listing
    held = _held(found) if table else ""
    if found.level == "in part":
        what = f" A rule for the answers: {rule}, but it is not read from the parts." if rule else ""
        return f"{TABLE if table else ''}{held}Explained in part. {how(found)}{what}"
    if found.level == "answers only":
        return f"{TABLE if table else ''}{rule}. {held}How the model computes it is not explained."
    return f"No explanation found{f': {found.reason}' if found.reason else ''}."


def _held(found: Explanation) -> str:
    """How many answers stay without each part that is used, where none can be spared."""
    used = [one for one in found.parts if one.status != "not used"]
    most = max((1.0 if one.without is None else one.without for one in used), default=1.0)
    if len(used) < 2 or most >= SPARED:
        return ""
    return (
        f"{words.counted(len(used), 'part')} hold the table together: with any one of them at its mean, at most "
        f"{words.at_most(most)} of the answers stay. "
    )


def how(found: Explanation) -> str:
    """How the parts give the answers: which are used, what each does, and what the program of them gives."""
    if not found.parts:
        return ""
    used = [one for one in found.parts if one.status != "not used"]
    if not used:
        return f"No head or MLP is used: with all of them at their means, {_stay(found.without)}."
    text = [_used(found, [one.part for one in used])]
    groups = grouped({one.part: one.brief or one.does for one in used if one.status == "explained"})
    said = [f"{parts_words(parts)} {plural(does) if len(parts) > 1 else does}" for parts, does in groups]
    if len(said) > NAMED:
        n = len(said) - NAMED
        others = f"other {n} descriptions are" if n > 1 else "other description is"
        said = [*said[:NAMED], f"the {others} in the table of parts"]
    kept = [one.part for one in used if one.status == "kept"]
    explained = found.program is not None and found.level == "explained"
    if minor := [one.part for one in used if one.status == "minor"]:
        said.append(_unread(minor, "matters for few of the answers", "matter for few of the answers"))
    if kept and explained:
        said.append(_unread(kept, "is not described", "are not described"))
    if said:
        text.append(f"{_capital('; '.join(said))}.")
    if found.program is not None and explained:
        text.append(
            f"{answer_words(found.program).removesuffix('.')}: by itself, this program gives {found.agreement}."
        )
    elif found.listing:
        text.append(f"A program of these parts gives the answers, but it {found.listing}, so it is no explanation.")
    elif kept:
        text.append(
            f"Not described: {parts_words(kept)}; with the descriptions of the others in place, {_stay(found.joint)}."
        )
    else:
        text.append(
            f"With these descriptions in place, {_stay(found.joint)}, but the parts do not add up to a program."
        )
    return " ".join(text)


def _as_network(found: Explanation) -> str:
    """Say of a program with weighted sums that it is a smaller network: what they stand for is not known."""
    steps = found.program.steps if found.program is not None else ()
    sums = sum(len(step.bias) for step in steps if isinstance(step, Sums))
    n = words.counted(sums, "weighted sum")
    return f" as a smaller network, with {n} of which it is not known what they stand for" if sums else ""


def _unread(parts: list[str], one: str, several: str) -> str:
    said, it = (several, "them") if len(parts) > 1 else (one, "it")
    return f"{parts_words(parts)} {said}, and no step reads {it}"


def _used(found: Explanation, used: list[str]) -> str:
    left = len(found.parts) - len(used)
    n = f"{len(used)} of {words.counted(len(found.parts), 'part')} {'is' if len(used) == 1 else 'are'} used"
    if not left:
        every = {1: "The only part is used.", 2: "Both parts are used."}
        return every.get(len(used), f"All {len(used)} parts are used.")
    which = f" ({parts_words(used)})" if len(used) <= 8 else ""
    others = "the others at their means" if left > 1 else "the other at its mean"
    return f"{n}{which}: with {others}, {_stay(found.without)} {found.tested_on}."


def _stay(share: float | None) -> str:
    return f"{words.portion(share or 0.0)} of the answers stay"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
