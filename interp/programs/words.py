"""Steps of programs in words: where a head attends, what a map depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import torch

from interp.programs import relations
from interp.programs.attention_words import where
from interp.programs.language import Program
from interp.programs.steps import NEVER, Evened, Head, Linear, Matrix, Normed, Product, Step, Sums, Table, Values
from interp.programs.variable_words import (
    NAMED,
    class_words,
    classed,
    product_words,
    said,
    sums_behind,
    variables_words,
)
from interp.programs.waves import Cosines, Waves
from interp.support import words


def step_words(program: Program, step: Step, brief: bool = False) -> str:
    """What a step does, without its subject: "attends to the position before and reads the token".

    brief: without the weights of a soft head.
    """
    if isinstance(step, Head) and step.evened:
        return f"reads {said(program, step.value)} (even attention changes no answer)"
    if isinstance(step, Head):
        does = f"adds up {said(program, step.value)} over the positions that it sees," if step.total else "attends"
        reads = "" if step.total else f" and reads {said(program, step.value)}"
        return f"{does} {where(program, step, brief)}{reads}"
    if isinstance(step, Product):
        return f"takes {product_words(program, step)}"
    if isinstance(step, Evened):
        return f"divides {said(program, step.head)} by the weights of its scores: {said(program, step.name)}"
    if isinstance(step, Normed):
        return f"divides {variables_words(program, step.divided)} by the length of {said(program, step.length)}"
    of = variables_words(program, step.of)
    if isinstance(step, Waves):
        return waves_words(program, step)
    if isinstance(step, Sums):
        n = words.counted(len(step.bias), "weighted sum")
        return f"makes {n} over {of}{', or 0 where they are negative' if step.ramps else ''}"
    if isinstance(step, Table):
        if equal := _says_of_two(program, step):
            return f"says {equal}"
        if not step.part and len(step.of) == 1:
            return f"says {class_words(program, step)}"
        read = [at for at in range(len(step.of)) if len(set(_classes(program, step, at))) > 1] or [0]
        of = words.joined(_read_as(program, step, at) for at in read)
        if len(read) == 1 and of.startswith("whether ") and len(set(step.entries)) == 2:
            return f"says {of}"
        cells = words.counted(prod(len(set(_classes(program, step, at))) for at in read), "entry", "entries")
        return f"looks up {of} in a table of {cells}"
    if isinstance(step, Linear) and len(step.of) == 1 and len(two := program.values[step.of[0]]) == 2:
        reader = program.by_name.get(step.of[0])
        if isinstance(reader, Head):
            value = next((value for value in two if value not in ("others", "other")), two[0])
            n = words.counted(len(step.values), "value")
            return f"takes one of {n} by limits of the share of {value!r} in {said(program, step.of[0])}"
    if len(step.values) == 2:
        return f"takes one of two values by the sign of a weighted sum over {of}"
    return f"takes the value with the largest weighted sum over {of}"


def _classes(program: Program, step: Table, at: int) -> tuple[int, ...]:
    """For each value of the variable that a table reads at a place, the first value with the same entries."""
    sizes = [len(program.values[name]) for name in step.of]
    rows = torch.tensor(step.entries).reshape(sizes).movedim(at, 0).reshape(sizes[at], -1).tolist()
    return tuple(map(rows.index, rows))


def _read_as(program: Program, step: Table, at: int) -> str:
    """A variable that a table reads, as coarsely as the table does: "whether the token is 'a'"."""
    return classed(said(program, name := step.of[at]), program.values[name], _classes(program, step, at))


def _says_of_two(program: Program, step: Table) -> str:
    """What a table of two values says of two variables that have the same values: whether they are equal, say."""
    if len(step.of) != 2 or len(set(step.entries)) != 2:
        return ""
    (first, second), (values, others) = step.of, (program.values[name] for name in step.of)
    if values != others or len(values) < 2:
        return ""
    rows = torch.tensor(step.entries).reshape(len(values), -1)
    for entry in sorted(set(step.entries), reverse=True):
        for kind in relations.COMPARED:
            wrong = (rows == entry) != relations.base(kind, 0, *rows.shape)
            out = wrong.diagonal().nonzero()[:, 0].tolist()
            few = kind == "equal" and len(out) <= relations.EXCEPTIONS and 2 * len(out) < len(values)
            if int(wrong.sum()) == len(out) and (few or not out):
                but = f", and neither is {words.either([repr(values[at]) for at in out], NAMED)}" if out else ""
                both = relations.compared(kind, said(program, second), said(program, first), values)
                return f"whether {both}{but}"
    return ""


def waves_words(program: Program, step: Waves) -> str:
    """What waves are made of: "makes cos and sin of 2πk(x + y)/7, for k = 1 and 3, where x and y are ..."."""
    k = words.joined(map(str, step.frequencies))
    if step.terms != 2:
        return f"makes cos and sin of 2πkx/{step.period} for k = {k}, where x is {variables_words(program, step.of)}"
    fading = f", times |cos(πk(x − y)/{step.period})|" * step.fading
    waves = f"cos and sin of 2πk(x + y)/{step.period}{fading}, for k = {k}"
    return f"makes {waves}, where x and y are the numbers that {parts_words(step.of)} read{'s' * (len(step.of) == 1)}"


def answer_words(program: Program) -> str:
    """How the answer follows from the variables, as a sentence."""
    answer = program.answer
    if isinstance(answer, Cosines):
        return _cosines(program, answer)
    of = [*dict.fromkeys(said(program, name) for name in answer.of)]
    if (limits := _by_limits(program, answer)) is not None:
        return limits
    if len(of) == 1:
        step = program.by_name.get(answer.of[0])
        if isinstance(step, Table) and not step.part:
            inner = words.joined(said(program, name) for name in step.of)
            return f"The answer is looked up by {inner} in a table of {len(step.entries)} entries."
        if isinstance(step, Head) and not (step.hard and step.query) and _itself(program):
            mixed, head = said(program, step.value).removeprefix("the "), step.part or step.name
            if step.key == "position" and sum(score > NEVER for score in step.scores[0]) == 1:
                return f"The answer is the {mixed} that {head} reads."
            others = set(program.values[step.value]) - set(program.answers)
            among = ", among those that are answers" if others else ""
            return f"The answer is the {mixed} with the largest share of the attention of {head}{among}."
        return f"The answer follows from {of[0]}."
    parts = [text.removeprefix("the value of ") for text in of if text.startswith("the value of ")]
    if len(parts) > 1:
        of = [*(text for text in of if not text.startswith("the value of ")), f"the values of {parts_words(parts)}"]
    return f"The answer is the one with the largest weighted sum over {words.joined(of)}."


def _by_limits(program: Program, answer: Linear) -> str | None:
    """How an answer follows from limits of an own weight for each value; see read_limits. None for other answers."""
    own = program.by_name.get(answer.of[1]) if 2 <= len(answer.of) <= 3 else None
    if not isinstance(own, Product) or own.part or own.of[0] != answer.of[0]:
        return None
    value = said(program, answer.of[0]).removeprefix("the ")
    text = f"The answer follows from {said(program, own.name)}, by limits for each {value}"
    if len(answer.of) == 2:
        return f"{text}."
    if (sums := sums_behind(program, answer.of[2])) is None:
        return None
    n, of = len(sums.bias), said(program, own.of[1])
    return f"{text}; {n} of these {'are limits of weighted sums' if n > 1 else 'is one of a weighted sum'} over {of}."


def _cosines(program: Program, answer: Cosines) -> str:
    """The answer as a sum of waves, with their amplitudes relative to the largest."""
    step = program.step(answer.of[0])
    assert isinstance(step, Waves)
    top = max(map(abs, answer.amplitudes))
    sizes = [f"{size / top:.2g}" for size in answer.amplitudes]
    k = words.joined(map(str, answer.frequencies))
    equal = len(set(sizes)) == 1
    a = "" if equal else "a "
    size = "" if equal else f", and relative amplitudes a = {words.joined(sizes)}"
    x = "x + y" if step.terms == 2 else "x"
    fading = f"|cos(πk(x − y)/{step.period})| " * step.fading
    return (
        f"The answer is the number c with the largest sum of the waves {a}{fading}cos(2πk({x} − c)/{step.period}) "
        f"for k = {k}{size}."
    )


def _itself(program: Program) -> bool:
    """Whether the answer is the value that has the largest share."""
    answer = program.answer
    assert isinstance(answer, Linear)
    ((of,), (weights,)) = answer.of, answer.weights
    return not any(answer.bias) and weights == same_word(program.values[of], program.answers)


def same_word(values: Values, answers: Values) -> Matrix:
    """The weights of the answer whose word is that of the value; none for other values."""
    return tuple(tuple(float(value == answer) for answer in answers) for value in values)


def grouped(phrases: Mapping[str, str]) -> list[tuple[list[str], str]]:
    """Parts with the same phrase together, in order: [(["head 0.3", "head 0.4"], "attends ..."), ...]."""
    groups: dict[str, list[str]] = {}
    for part, phrase in phrases.items():
        groups.setdefault(phrase, []).append(part)
    return [(parts, phrase) for phrase, parts in groups.items()]


def parts_words(parts: Sequence[str]) -> str:
    """Names of parts in a sentence: "heads 0.3, 0.4 and 0.5", "MLP 0"."""
    heads = [part.removeprefix("head ") for part in parts if part.startswith("head ")]
    others = [part for part in parts if not part.startswith("head ")]
    said_ = [f"head{'s' * (len(heads) > 1)} {words.joined(heads)}"] if heads else []
    return words.joined([*said_, *others])


PLURALS = {
    "that it sees": "that they see", "it attends": "they attend", "attends": "attend", "reads": "read",
    "looks up": "look up", "makes": "make", "takes": "take", "says": "say", "adds up": "add up", "divides": "divide",
    "adds its mean": "add their means", "its own": "their own",
}  # fmt: skip
"""What changes in the description of a part where several do the same."""


def plural(phrase: str) -> str:
    """A description of several parts: "attend ..." for "attends ..."."""
    for singular, several in PLURALS.items():
        phrase = phrase.replace(singular, several)
    return phrase
