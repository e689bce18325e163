"""Sentences about an explanation. What is said of a part is what its replacement in the running model bears out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from interp import words
from interp.explanations.findings import PartRole
from interp.programs.language import Normed, Sums
from interp.programs.quantize import KEPT
from interp.programs.words import answer_words, grouped, parts_words, plural

if TYPE_CHECKING:
    from interp.explanations.explanation import Explanation

TABLE = "A look-up table, no algorithm. "
NAMED = 3
"""Most groups of parts whose description the summary repeats."""
ELSEWHERE = 0.05
"""Up to which share of a head's attention may go elsewhere than it is described."""
LISTED = 9
"""Most parts at their means that are named."""
USED = ("explained", "kept")
"""The statuses of parts that are used."""


def summary(found: Explanation) -> str:
    """What was found, level first."""
    if found.level == "explained":
        return f"Explained{_as_network(found)}. {how(found)}"
    rule = f"{found.rule.words} This rule gives {found.agreement}" if found.rule is not None else ""
    table = TABLE if found.rule is not None and found.rule.listing else ""
    if found.level == "in part":
        what = f" A rule for the answers: {rule}, but it is not read from the parts." if rule else ""
        return f"{table}Explained in part. {how(found)}{what}"
    if found.level == "answers only":
        used = [one for one in found.parts if one.status in USED]
        parts = f"{_used(found, used)} " if used else ""
        return f"{table}{rule}. {parts}How the model computes it is not explained."
    return f"No explanation found{f': {found.reason}' if found.reason else ''}."


def how(found: Explanation) -> str:
    """How the parts give the answers: which are used, what each does, and what the program of them gives."""
    if not found.parts:
        return ""
    used = [one for one in found.parts if one.status in USED]
    if not used:
        return f"No head or MLP is used: with all of them at their means, {_stay(found.without)}."
    text = [_used(found, used)]
    groups = grouped({one.part: one.brief or one.does for one in used if one.status == "explained"})
    said = [f"{parts_words(parts)} {plural(does) if len(parts) > 1 else does}" for parts, does in groups]
    if len(said) > NAMED:
        n = len(said) - NAMED
        others = f"other {n} descriptions are" if n > 1 else "other description is"
        said = [*said[:NAMED], f"the {others} in the table of parts"]
    if loose := [one for one in used if (one.elsewhere or 0.0) > ELSEWHERE]:
        most = max(one.elsewhere or 0.0 for one in loose)
        share = words.share(most) if len(loose) == 1 else f"up to {words.share(most)}"
        said.append(
            f"in the model, {share} of the attention of {parts_words([one.part for one in loose])} goes elsewhere"
        )
    kept = [one.part for one in used if one.status == "kept"]
    explained = found.program is not None and found.level == "explained"
    if kept and explained:
        several, it = ("are", "them") if len(kept) > 1 else ("is", "it")
        said.append(f"{parts_words(kept)} {several} not described, and no step reads {it}")
    if said:
        text.append(f"{_capital('; '.join(said))}.")
    if found.program is not None and explained:
        text.append(
            f"{answer_words(found.program).removesuffix('.')}: by itself, this program gives {found.agreement}."
        )
        return " ".join(text)
    joint = f"with the descriptions{' of the others' if kept else ''} in place, {_stay(found.joint)}"
    if len(kept) == len(used):
        text.append("No part has a description that takes its place.")
    else:
        text.append(f"Not described: {parts_words(kept)}; {joint}." if kept else f"{_capital(joint)}.")
    if found.listing:
        text.append(f"A program of these parts {found.listing}, so it is no explanation.")
    elif not kept:
        text.append("No table of them, and no weighted sum over them, gives the answers.")
    return " ".join(text)


def _as_network(found: Explanation) -> str:
    """Say of a program with weighted sums that it is a smaller network: what they stand for is not known."""
    steps = found.program.steps if found.program is not None else ()
    lengths = {step.length for step in steps if isinstance(step, Normed)}
    sums = sum(len(step.bias) for step in steps if isinstance(step, Sums) and step.name not in lengths)
    n, stand = words.counted(sums, "weighted sum"), "it stands" if sums == 1 else "they stand"
    return f" as a smaller network, with {n} of which it is not known what {stand} for" if sums else ""


def _used(found: Explanation, used: Sequence[PartRole]) -> str:
    """Which parts are used, and what stays without the others, and without one more."""
    others = [one.part for one in found.parts if one.status not in USED]
    n = len(used)
    if others:
        named = parts_words(others) if len(others) <= LISTED else "the others"
        means = "their means" if len(others) > 1 else "its mean"
        begin = f"{n} of {words.counted(len(found.parts), 'part')} {'are' if n > 1 else 'is'} used"
        text = f"{begin}: with {named} at {means}, {_stay(found.without)} {found.tested_on}; "
        mean, end = "at its mean, too", ""
    else:
        text = {1: "The only part is used: ", 2: "Both parts are used: "}.get(n, f"All {n} parts are used: ")
        mean, end = "at its mean", f" of the answers stay {found.tested_on}"
    shares = {one.part: one.without or 0.0 for one in used}
    spare = [part for part, share in shares.items() if share >= KEPT]
    if spare:  # parts that stand in for each other
        which, least = parts_words(spare), min(shares[part] for part in spare)
        one = f"one of {which}" if len(spare) > 1 else which
        text += f"with {one} {mean}, {_bound(least, 'least', len(spare))}{end or ' stay'}"
        if len(spare) == 1 and least == 1.0:
            text += ", but not with the values that it has at other positions"
        if len(spare) > 1:
            text += f"; with {'both' if len(spare) == 2 else f'all {len(spare)}'}, {words.portion(found.spare or 0.0)}"
    else:
        which = "one more" if others else "it" if n == 1 else "any one"
        text += f"with {which} {mean}, {_bound(max(shares.values()), 'most', n)}{end or ' stay'}"
    return f"{text}."


def _bound(share: float, limit: str, n: int) -> str:
    """A share that is the least, or the most, of n."""
    if n == 1 or share in (0.0, 1.0):
        return words.portion(share)
    return f"at {limit} {words.at_least(share) if limit == 'least' else words.at_most(share)}"


def _stay(share: float | None) -> str:
    return f"{words.portion(share or 0.0)} of the answers stay"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
