"""Check claims about a table of inputs by running every input."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from .enclosures import Vec, fixed
from .model import Model
from .reading import fields, listed, need, whole, wholes
from .tasks import Known, known

Spread = Callable[..., list[Any]]
"""Functions (work, items) -> [work(*item) for item in items], possibly in several processes."""
WEAKER = "agrees with"
"""The start of a sentence whose right answers come from the file."""
Found = tuple[str, int]
"""The proved sentence, without its margin, and a bound on the rounding of a difference of two outputs."""


def is_right(model: Model, out: Vec, answers: Sequence[int], margin: int) -> bool:
    """Test whether a right output exceeds all others by the margin. Raises Fault if this is not certain."""
    said = list(out.ends())
    if model.spec["decision"] == "sigmoid":  # yes if the output is positive
        said = [(0, 0), said[0]]
    elif model.spec["decision"] == "indicator":  # yes if |output| is at most the tolerance
        edge = fixed(model.spec["tolerance"], "tolerance")
        said = [(max(0, abs(out.mid[0]) - out.rad[0]), abs(out.mid[0]) + out.rad[0]), (edge, edge)]
    others = [j for j in range(len(said)) if j not in answers]
    need(answers and others and max(answers) < len(said), f"answers {answers} are none or all of the outputs")
    if max(said[j][0] for j in answers) - max(said[j][1] for j in others) >= margin:
        return True
    apart = max(said[j][0] for j in others) - max(said[j][1] for j in answers)
    need(apart >= margin, f"the answers {answers} are neither right nor wrong by the margin")
    return False


def inputs(model: Model, domain: Any, parts: Any, margin: int, spread: Spread) -> Found:
    """Run every input of a table. parts: per input [tokens, [[position, right outputs], ...]]."""
    token, errors = fields(domain, "read errors", "claim.domain")
    at, seen, task = model.spec["readout_at"], set(), known(model)
    need(token is None or whole(token, 0, len(model.words) - 1, "read") >= 0, "")
    need(at not in ("all", "first", "last") or token is None, f"answers are read at {at!r:.40}, not at a token")
    need(task is None or token == task.read, f"task {model.task} is not read at token {token}")
    for part in listed(parts, "parts"):
        tokens, reads = listed(part, "a part", 2)
        need(wholes(tokens, 0, len(model.words) - 1, "a token"), "a row is empty")
        seen.add(tuple(tokens))
        places = [whole(listed(item, "a read", 2)[0], 0, len(tokens) - 1, "a place") for item in listed(reads, "reads")]
        need(places and sorted(set(places)) == places, "places must ascend")
        need(all(sorted(set(wholes(item[1], 0, 1 << 24, "an answer"))) == item[1] for item in reads), "answers ascend")
        if at != "all":
            one = {"first": 0, "last": len(tokens) - 1}.get(at)
            one = tokens.index(token) if one is None and token in tokens else one
            need(places == [one], f"row {tokens!r:.80} is not read where its answer stands")
        if task is not None:
            wanted = [[place, [answer]] for place, answer in sorted(task.right(tokens).items())]
            need(reads == wanted, f"what is right in row {tokens!r:.80} is {wanted!r:.200}, not what the file says")
    need(parts and len(seen) == len(parts), "an input occurs twice, or there is none")
    found = spread(partial(one_input, model, margin), parts)
    wrong = [[i, place] for i, (places, _) in enumerate(found) for place in places]
    need(errors == wrong, f"wrong answers are {wrong[:9]}, not as claimed")
    return sentence(model, token, parts, len(wrong), task), max(rounding for _, rounding in found)


def sentence(model: Model, token: int | None, parts: list[Any], wrong: int, task: Known | None) -> str:
    """Return the claim about a table of inputs; it says "right" only for a known task and a whole domain."""
    answers, most = sum(len(part[1]) for part in parts), max(len(item[1]) for part in parts for item in part[1])
    rows = {tuple(part[0]) for part in parts}
    if task is not None and (every := task.every(rows)) is not None:
        said = f"{model.task}: right {every}, {len(rows)} inputs, rows without padding"
        return said + (f" but exactly {wrong} of {answers} answers, which are wrong" if wrong else "")
    where = "rows without padding" + ("" if token is None else f", read at token {token}")
    if task is not None:
        return (f"{model.task}: {wrong} of {answers} answers are wrong in {len(rows)} chosen inputs, {where}, and "
                "nothing is said of any other input")  # fmt: skip
    digest = hashlib.sha256(json.dumps(parts, separators=(",", ":")).encode()).hexdigest()
    several = f", up to {most} outputs for one" if most > 1 else ""
    but = f" but exactly {wrong} of {answers} answers, which differ" if wrong else ""
    return (f"{WEAKER} the table of labels of SHA-256 {digest} that came with this file, named {model.task}: in each "
            f"of its {len(rows)} inputs, {where}, by the {answers} answers that it gives{several}{but}")  # fmt: skip


def said_of(task: str, is_known: bool, said: str) -> str:
    """Return a sentence about a known task, or about a rule that the file calls by this name."""
    return f"{task}: {said}" if is_known else f"{WEAKER} the rule that came with this file, named {task}: {said}"


def one_input(model: Model, margin: int, tokens: list[int], reads: list[Any]) -> tuple[list[int], int]:
    """Return the positions with a wrong answer, and the rounding bound."""
    outs = model.forward(tokens, [place for place, _ in reads])
    wrong = [place for (place, answers), out in zip(reads, outs) if not is_right(model, out, answers, margin)]
    return wrong, 2 * max(max(out.err) for out in outs)
