"""The result of explain: the program of a model's parts, or a rule for its answers, and how often they agree.

What its sentences say of a part is what its replacement in the running model bears out. The explanations that come with
interp are found by the hash of the weights.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache, partial
from html import escape
from importlib.resources import files
from typing import Any, Literal, TypeAlias

import pandas as pd

from interp.errors import InterpError, check_one_of, quoted, short
from interp.measures.hypothesis import Hypothesis
from interp.measures.interchange import Cases
from interp.models.architecture.task_model import TaskModel, hooked
from interp.models.subject import Subject
from interp.models.zoo import load
from interp.programs.as_hypothesis import as_hypothesis
from interp.programs.attention_words import positions_words
from interp.programs.explanations.findings import (
    AT_ITS_MEANS,
    AT_ONCE,
    OUT,
    READOUT,
    USED,
    Agreement,
    Cancelling,
    PairRole,
    PartRole,
    ReadsLess,
    ReadsMore,
    StandIns,
    VariableRole,
    svg,
)
from interp.programs.explanations.rule import Rule
from interp.programs.language import Normed, Program, Sums, entries, misread
from interp.programs.proof import ProgramProof, prove
from interp.programs.source import source
from interp.programs.words import answer_words, grouped, parts_words, plural
from interp.support import words
from interp.support.records import from_plain
from interp.support.resources import threads_for
from interp.support.views import InlineSvg, view
from interp.tasks.task import tensors_sha256

REPR_LINES, REPR_WIDTH = 40, 110
"""Most lines, and characters per line, of the text that a terminal or a notebook shows of an explanation."""
SCHEMA = 4
SHIPPED = "shipped.json"
"""The file of the explanations that come with interp, by the hash of the weights."""

Level: TypeAlias = Literal["explained", "imitated", "in part", "answers only", "none"]
LEVELS: tuple[Level, ...] = ("explained", "imitated", "in part", "answers only", "none")
COLUMNS = ("part", "status", "does", "variable", "without", "moved", "kept", "elsewhere", "finds_none", "only_from",
           "note")  # fmt: skip
"""What a table says of each part."""
GIVEN: tuple[Level, ...] = ("explained", "imitated")
"""The levels at which a program of the parts gives the model's answers."""


@dataclass(frozen=True, repr=False)
class Explanation:
    """What `interp.explain` found in a model.

    level: "explained": the program of the parts gives 99% of the model's answers, and of each frequent answer, and the
    model computes with its variables: with the value of each one from another input, it answers as the program does, in
    95% of the cases in which the program's answer changes, and of those in which it stays; and with the rest of what a
    part reads taken from another input, 99% of the answers stay, and 90% with that of all parts at once. "imitated":
    the program gives the answers, but some of its variables are not the model's, or not shown to be, or a part reads
    more. "in part": some parts have a description that takes their place. "answers only": a rule gives the answers, but
    nothing is said about how the model does it. "none": neither.
    program: the program of the parts, if it is complete. variables: its variables, with their places and interchange
    intervention accuracy. pairs: the same of each two at once. rule: a rule for the answers, searched for where there
    is no such program. agreement: of the program, or else of the rule, with the model. parts: what was found about
    each head and MLP. without: the share of the model's answers that stay with all parts that are minor, not used or
    stand in at their means. moved: the same with the values of those that are minor or not used at other positions of
    the same kind instead, if more answers change than 1 in 1,000. stand_ins: parts of which any one may be at its mean,
    but not all. cancelling: pairs of which both may be at their means, but neither alone. more: parts that read more
    than the program says, which so only imitates the model, or, at level "in part", more than their descriptions say.
    less: what they read in the program or their descriptions, while next to none of the model's answers follow from it.
    rest: the share that stays with the rest of what all parts and the readout read from another input, at once.
    joint: the share that stays with all descriptions in place. tested_on: the inputs of these numbers, in words.
    listing: what a program of the parts gives or has, if it is no explanation. reason: why nothing more was found.
    proved: how the program compares with the model on every input, if that is known; see certify.

    Example:

        >>> found = interp.explain(interp.build("algorithmic/max-of-k-exact", K=3, v=8))
        >>> found.level, found.answer(["3", "1", "4", "="])
        ('explained', '4')
    """

    model: str
    task: str
    parameters: int
    level: Level = "none"
    program: Program | None = None
    rule: Rule | None = None
    agreement: Agreement | None = None
    parts: tuple[PartRole, ...] = ()
    variables: tuple[VariableRole, ...] = ()
    pairs: tuple[PairRole, ...] = ()
    without: float | None = None
    moved: float | None = None
    stand_ins: tuple[StandIns, ...] = ()
    cancelling: tuple[Cancelling, ...] = ()
    more: tuple[ReadsMore, ...] = ()
    less: tuple[ReadsLess, ...] = ()
    rest: float | None = None
    joint: float | None = None
    tested_on: str = ""
    listing: str = ""
    reason: str = ""
    proved: ProgramProof | None = None
    subject: Subject | None = field(default=None, repr=False, compare=False)

    # ------------------------------------------------------------ the program

    @property
    def found(self) -> bool:
        """Whether there is a program or a rule."""
        return self.program is not None or self.rule is not None

    @property
    def source(self) -> str:
        """The program, or else the rule, as Python source. Raises InterpError if there is neither."""
        if self.program is not None:
            return source(self.program)
        return self._rule.source

    @property
    def constants(self) -> int:
        """Numbers, tokens and table entries of the program or rule."""
        return self.program.constants if self.program is not None else self._rule.constants

    def answer(self, tokens: Sequence[str], position: int | None = None) -> Any:
        """Return the answer of the program or rule to a row of tokens (words, without padding).

        position: where, if it answers at each (default: the last). Raises InterpError if there is neither, for rows
        that are no input of it, and for a position of a program that answers at one place.
        """
        row = list(tokens)
        if not row:
            raise InterpError("a row without tokens has no answer")
        at = -1 if position is None else position
        if not -len(row) <= at < len(row):
            raise InterpError(f"a row of {words.counted(len(row), 'token')} has no position {position}")
        if self.program is None:
            return self._rule(row, at % len(row))
        answers = self.program(row)
        if not isinstance(answers, list) and position is not None:
            raise InterpError(f"the program answers at one place of a row ({self.program.read}): leave out position=")
        return answers[at] if isinstance(answers, list) else answers

    @property
    def _rule(self) -> Rule:
        if self.rule is None:
            if self.level == "in part":
                raise InterpError(f"{self.model} is explained in part, so it has no program; see .how and .parts")
            raise InterpError(f"no explanation was found for {self.model}: {self.reason}")
        return self.rule

    @property
    def hypothesis(self) -> Hypothesis:
        """The program's variables with their places: interp.evaluate_hypothesis(model, found.hypothesis).

        Raises InterpError without a program of the parts, and of an explanation that was read from a file if answers
        are sets of outputs.
        """
        if self.program is None:
            raise InterpError(f"{self.model} has no program of its parts, so there is no hypothesis to test")
        if self.subject is None and all(word[0] + word[1:][-1:] == "{}" for word in self.program.answers):
            raise InterpError("the answers are sets of outputs, which a file does not number: explain the model anew")
        copies = {role.part: role.like for role in self.parts if role.like}
        return as_hypothesis(self.program, copies, self._classes(self.program))

    def _classes(self, program: Program) -> list[int] | None:
        """The numbers of a program's answers, if these are sets of outputs; see tasks.sets."""
        if self.subject is None or self.subject.decision.kind != "set":
            return None
        numbers = {self.subject.task.word(number): number for number in range(1 << self.subject.task.n_out)}
        return [numbers[word] for word in program.answers]

    # ------------------------------------------------------------ in words

    @property
    def sentence(self) -> str:
        """A summary in a few sentences."""
        return summary(self)

    @property
    def how(self) -> str:
        """How the parts give the answers; empty if nothing was found about parts."""
        return how(self)

    @property
    def size(self) -> str:
        """The size of the program compared with the model; or else the size of the rule, which is not read from it."""
        if not self.found:
            return "no program and no rule"
        counted = words.counted(self.constants, "constant")
        if self.program is None:
            return f"a rule for the answers with {counted}, which is not read from the model's parts"
        return f"{counted} in place of {words.counted(self.parameters, 'parameter')}"

    @property
    def scores(self) -> str:
        """One line of scores: answers, interchange intervention accuracy, parts used, and what of it is proved."""
        return " · ".join(scores(self))

    def certify(self) -> Explanation:
        """Compare the program with the model on every input; programs.proof has the methods.

        Returns the explanation with its proof, or with the exact share if there are inputs on which they differ.
        Raises InterpError without a program, and UnsupportedError, with the reasons, if no engine applies.

        Example:

            >>> found = interp.explain(interp.build("algorithmic/max-of-k-exact", K=2, v=8)).certify()
            >>> print(found.proved)
            proved on all 64 inputs
        """
        if self.program is None:
            raise InterpError(f"{self.model} has no program of its parts, so there is nothing to prove")
        subject = self.subject or Subject.of(load(self.model))
        with threads_for(subject.model):
            return replace(self, proved=prove(subject, self.program))

    def to_frame(self, what: str = "parts") -> pd.DataFrame:
        """Return one row per part; "variables": one per variable of the program; "pairs": one per two variables;
        "edges": one per edge along which a part reads in the program, while next to none of the model's answers depend
        on it, with the share that stays if what it carries is taken from elsewhere.

        Of variables: places, what each is, and the interchange intervention accuracy on the cases in which the
        program's answer changes and on those in which it stays, with n and 95% interval; undecided: in which share of
        those tried two of the program's answers have the same sum; verdict: whether the model is shown to compute with
        it, or not to ("refuted"), or too few cases tell. Raises InterpError for anything else.
        """
        check_one_of("table of an explanation", what, ("parts", "variables", "pairs", "edges"))
        if what == "parts":
            return pd.DataFrame([asdict(role) for role in self.parts], columns=COLUMNS)
        if what == "edges":
            idle = [(one.reader, one.way, ", ".join(one.sources), one.left) for one in self.less]
            return pd.DataFrame(idle, columns=["part", "side", "reads", "left"])
        if what == "pairs":
            pairs = [dict(zip(("variable", "other"), p.variables)) | p.interchange.row() for p in self.pairs]
            return pd.DataFrame(pairs)
        rows = [{"variable": v.name, "places": ", ".join(v.places), "does": v.does, **v.interchange.row(),
                 "undecided": v.interchange.undecided / max(1, v.interchange.tried),
                 "verdict": v.interchange.verdict, "pairs": v.interchange.how} for v in self.variables]  # fmt: skip
        return pd.DataFrame(rows)

    def count(self, status: str) -> int:
        """Count the parts with a status; see PartRole."""
        return sum(role.status == status for role in self.parts)

    def plot(self) -> InlineSvg:
        """Draw the flow from the tokens to the answer through the parts that are used.

        Raises InterpError if no part is described.

        Example:

            >>> drawing = interp.explain("algorithmic/max-of-k").plot()
            >>> "the answer" in drawing.svg
            True
        """
        drawn = svg(self.parts, answer_words(self.program) if self.program is not None else "")
        if not drawn:
            raise InterpError(f"no part of {self.model} is described, so there is nothing to draw")
        return InlineSvg(drawn)

    def __repr__(self) -> str:
        """Return the sentence and the beginning of the program; print(found) has all."""
        lines = [f"Explanation of {self.model}: {self.level}", *textwrap.wrap(self.sentence, REPR_WIDTH)]
        code = [short(line, REPR_WIDTH) for line in self.source.splitlines()] if self.found else []
        room = REPR_LINES - 2
        if len(lines) + len(code) > room:
            lines = lines[: room // 2] + (["..."] if len(lines) > room // 2 else [])
            code = [*code[: max(0, room - len(lines))], "..."] if code else []
        return "\n".join([*lines, *code, "(print(found) shows all of it, found.plot() draws it)"])

    def __str__(self) -> str:
        if not self.found:
            return self.sentence
        return f"{self.sentence}\n\n{self.size[0].upper()}{self.size[1:]}.\n\n{self.source}"

    def _repr_html_(self) -> str:
        heading = f"<p><b>{escape(self.model)}</b>: {escape(self.sentence)}</p>"
        rows = [(role.part, role.status, role.does, role.variable) for role in self.parts]
        parts = view("Parts", rows, ("part", "status", "does", "makes"))
        code = f"<details><summary>{escape(self.size)}</summary><pre>{escape(self.source)}</pre></details>"
        return f"{heading}{svg(self.parts)}{code if self.found else ''}{parts}"

    # ------------------------------------------------------------ plain data

    def to_json(self) -> str:
        """Return plain data without code, so that a file from a stranger is safe to read."""
        data = {**asdict(replace(self, program=None, rule=None, subject=None)), "schema": SCHEMA}
        del data["subject"]
        data["program"] = None if self.program is None else json.loads(self.program.to_json())
        data["rule"] = None if self.rule is None else self.rule.to_json()
        return json.dumps(data, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Explanation:
        """Read the result of to_json. Raises InterpError for anything else."""
        try:
            data = {"proved": None, "cancelling": (), "more": (), "less": ()} | entries(text, "an explanation", SCHEMA)
            if data["level"] not in LEVELS:
                raise InterpError(f"the level {data['level']!r} is not one of {', '.join(LEVELS)}")
            for one in fields(cls):
                if one.type in PLAIN and one.name in data:
                    data[one.name] = from_plain(PLAIN[one.type], data[one.name], one.name)
            for name, read in READ.items():
                data[name] = None if data[name] is None else read(data[name])
            findings = {name: tuple(from_plain(kind, row, name) for row in data[name]) for name, kind in LISTS.items()}
            for role in findings["parts"]:
                if not PART.fullmatch(role.part):
                    raise ValueError(f"part = {quoted(role.part)} is no head or MLP")
            return cls(**{**data, **findings})
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise misread("an explanation", error) from None


READ: dict[str, Callable[[Any], Any]] = {
    "program": lambda data: Program.from_json(json.dumps(data)), "rule": Rule.from_json,
    "agreement": partial(from_plain, Agreement), "proved": partial(from_plain, ProgramProof),
}  # fmt: skip
"""What reads the entries of plain data that may be null."""
LISTS: dict[str, type] = {
    "parts": PartRole, "variables": VariableRole, "pairs": PairRole, "stand_ins": StandIns, "cancelling": Cancelling,
    "more": ReadsMore, "less": ReadsLess,
}  # fmt: skip
"""What the entries are lists of."""
PART = re.compile(r"head \d+\.\d+|MLP \d+")
PLAIN: dict[Any, Any] = {"str": str, "int": int, "float | None": float | None}
"""The types of the other entries, as they are annotated."""


def weights_hash(subject: Subject) -> str | None:
    """Return the sha256 of a task model's weights and task; None for other models and for models with hooks."""
    model = subject.model
    if not isinstance(model, TaskModel) or subject.token_ids is not None or hooked(model):
        return None
    tensors = {name: parameter.detach().cpu().contiguous() for name, parameter in model.named_parameters()}
    return f"{model.spec.id}:{tensors_sha256(tensors)}"


def shipped(subject: Subject) -> Explanation | None:
    """Return the shipped explanation of exactly these weights, or None."""
    found = _known().get(weights_hash(subject) or "")
    return None if found is None else Explanation.from_json(json.dumps(found))


@cache
def _known() -> dict[str, dict[str, object]]:
    file = files("interp.programs.explanations") / SHIPPED
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


TABLE = "a look-up table, no algorithm"
NAMED = 3
"""Most groups of parts whose description the summary repeats."""
TIES = 0.01
"""Share of the interchanges from which on it is said that the program decides for no answer there."""
FAR = 0.25
"""Share of a head's attention from which on, if so much is given otherwise, its description is said of the program."""
ELSEWHERE = 0.05
"""Up to which share of a head's attention may be given otherwise than it is described."""
WAYS = {
    "query": "the queries of {} read",
    "key": "the keys of {} read",
    "value": "the values of {} read",
    "in": "{} reads",
}
"""Which part reads, and on which side of a head."""
LISTED = 9
"""Most parts at their means that are named."""
MOST_EDGES = 9
"""Most edges on which next to nothing depends that are named."""


def summary(found: Explanation, apart: bool = False) -> str:
    """What was found, level first. apart: as paragraphs, and with a line for each step."""
    gap = "\n\n" if apart else " "
    if found.level == "explained":
        return f"Explained{_as_network(found)}{_proved(found)}.{gap}{how(found, apart)}"
    if found.level == "imitated":
        return f"{imitated(found)}{gap}{how(found, apart)}"
    rule = f"{found.rule.words} This rule gives {found.agreement}" if found.rule is not None else ""
    listing = found.rule is not None and found.rule.listing
    if found.level == "in part":
        kind = f" ({TABLE})" if listing else ""
        what = f"{gap}A rule for the answers{kind}: {rule}, but it is not read from the parts." if rule else ""
        return f"Explained in part.{gap}{how(found, apart)}{what}"
    if found.level == "answers only":
        used = [role for role in found.parts if role.status in USED]
        parts = f"{_used(found, used)}{gap}" if used else ""
        kind = f"{_capital(TABLE)}. " if listing else ""
        return f"{kind}{rule}.{gap}{parts}How the model computes it is not explained."
    return f"No explanation found{f': {found.reason}' if found.reason else ''}."


def _proved(explanation: Explanation) -> str:
    """Whether the program is known to give the model's answers on all inputs."""
    return f", and {explanation.proved}" if explanation.proved is not None and explanation.proved.holds else ""


def how(found: Explanation, apart: bool = False, weights: bool = False) -> str:
    """How the parts give the answers: which are used, what each does, and what the program of them gives; apart: what
    is done comes first, in a list. weights: with those of graded attention."""
    if not found.parts:
        return ""
    used = [role for role in found.parts if role.status in USED]
    if not used:
        return f"No head or MLP is used: with all of them at their means, {_stay(found.without)}."
    steps = steps_of(found, weights=weights)
    done = "\n".join(numbered(steps)) if apart else " ".join(steps)
    text = [_used(found, used), done, " ".join(_borne_out(found, used))]
    return "\n\n".join(filter(None, [*text[1:], text[0]])) if apart else " ".join(filter(None, text))


def steps_of(found: Explanation, short: bool = False, weights: bool = False) -> list[str]:
    """What each group of parts does, and how the answer follows, as sentences. short: all groups, without notes.
    weights: with those of graded attention. Parts that the program does without, as another one carries the same, are
    no steps: that is said apart."""
    used = [role for role in found.parts if role.status in USED and not role.like]
    groups = grouped({
        role.part: f"{(not weights and role.brief) or role.does}{_from(role)}"
        for role in used if role.status == "explained" and role.does
    })  # fmt: skip
    named = {role.part: role for role in used}
    steps = [
        f"{_subject(found, [named[part] for part in parts])} {plural(does) if len(parts) > 1 else does}"
        f"{'' if short else _otherwise([named[part] for part in parts])}."
        for parts, does in groups
    ]
    if len(steps) > NAMED and not short:
        n = len(steps) - NAMED
        others = f"other {n} descriptions are" if n > 1 else "other description is"
        most = max(named[part].elsewhere or 0.0 for parts, _ in groups[NAMED:] for part in parts)
        loose = f", where up to {words.share(most)} of a head's attention in the model is given otherwise"
        steps = [*steps[:NAMED], f"The {others} in the table of parts{loose * (most > ELSEWHERE)}."]
    if found.program is not None:
        steps.append(answer_words(found.program))
    if found.level == "imitated":
        steps[0] = f"The program: {steps[0][0].lower() if steps[0][:3] != 'MLP' else 'M'}{steps[0][1:]}"
    return steps


def numbered(steps: Sequence[str]) -> list[str]:
    """Steps with their numbers, if there are several."""
    return [f"{n}. {step}" for n, step in enumerate(steps, 1)] if len(steps) > 1 else [*steps]


def _subject(found: Explanation, roles: Sequence[PartRole]) -> str:
    """Parts as the subject of a sentence, which is about the program alone where a head attends far from it."""
    named, far = parts_words([role.part for role in roles]), max(role.elsewhere or 0.0 for role in roles) > FAR
    return f"In the program, {named}" if far and found.level != "imitated" else _capital(named)


def _from(role: PartRole) -> str:
    """From where a head attends to certain positions, if not from all."""
    if not role.only_from:
        return ""
    return f" (from {positions_words(role.only_from)}; from others it attends otherwise, which changes no answer)"


def _otherwise(roles: Sequence[PartRole]) -> str:
    """Where some heads attend that find none of what they select, and how much of their attention is given otherwise
    than they are described, if it is much."""
    shares, notes = [role.elsewhere or 0.0 for role in roles], []
    whose = "its" if len(roles) == 1 else "their"
    if any(role.finds_none for role in roles):
        notes.append("where there is none, evenly to all positions")
    if max(shares) > ELSEWHERE:
        notes.append(f"in the model, {words.joined(map(words.share, shares))} of {whose} attention is given otherwise")
    return f" ({'; '.join(notes)})" if notes else ""


def _borne_out(explanation: Explanation, used: Sequence[PartRole]) -> list[str]:
    """What the descriptions leave out, or what a program of them gives, as sentences."""
    text = _reads_less(explanation)
    if explanation.program is not None:
        text += [f"By itself, this program gives {explanation.agreement}.", *_interchanged(explanation)]
        return [*text, *_with_rest(explanation)]
    kept = [role.part for role in used if role.status == "kept"]
    joint = f"with the descriptions{' of the others' if kept else ''} in place, {_stay(explanation.joint)}"
    if len(kept) == len(used):
        text.append("No part has a description that takes its place.")
    else:
        text.append(f"Not described: {parts_words(kept)}; {joint}." if kept else f"{_capital(joint)}.")
    if explanation.more:
        described = "its description says" if len(explanation.more) == 1 else "their descriptions say"
        text.append(f"{_capital(_reads_more(explanation, described))}.")
    if explanation.listing:
        text.append(f"A program of these parts {explanation.listing}, so it is no explanation.")
    elif not kept:
        text.append("No table of them, and no weighted sum over them, gives the answers.")
    return text


def _interchanged(explanation: Explanation) -> list[str]:
    """What the model and the program answer if a variable has its value from another input, as a sentence."""
    scores = [variable.interchange for variable in explanation.variables]
    if not any(score.changes.n for score in scores):
        return []
    which = explanation.variables[0].name if len(scores) == 1 else f"one of {len(scores)} variables"
    changes, stays = ([cases for cases in column if cases.n] for column in zip(*((s.changes, s.stays) for s in scores)))
    drawn = "" if all(cases.exact for cases in (*changes, *stays)) else " drawn"
    text = (
        f"With {which} from another input, in all places where it lives, the model answers as the program then does in "
        f"{_shares(changes)} of the cases{drawn} in which the program's answer changes ({_numbers(changes)})"
    )
    text = f"{text}, and in {_shares(stays)} of those in which it stays ({_numbers(stays)})." if stays else f"{text}."
    tied = [score.undecided / score.tried for score in scores if score.tried]
    if not tied or max(tied) <= TIES:
        return [text]
    share = f"{'up to ' * (len(tied) > 1)}{words.at_most(max(tied))}"
    return [
        text,
        f"In {share} of the interchanges, the program has no answer (two have the same sum): these do not count.",
    ]


def _with_rest(explanation: Explanation) -> list[str]:
    """How many answers stay with all that the program leaves out from another input, if not all do, as a sentence."""
    if explanation.rest in (None, 1.0) or explanation.more:
        return []
    rest = "With the rest of what all parts and the readout read taken from another input at once"
    return [f"{rest}, {words.portion(explanation.rest)} of the answers stay."]


def _numbers(cases: Sequence[Cases]) -> str:
    """How many cases there are, of one variable or at least."""
    return f"{min(group.n for group in cases):,}{' or more' if len(cases) > 1 else ''}"


def _shares(cases: Sequence[Cases]) -> str:
    low, high = min(group.accuracy for group in cases), max(group.accuracy for group in cases)
    return f"{words.at_least(low)} to {words.at_most(high)}" if low < high else words.portion(low)


def imitated(explanation: Explanation, short: bool = False) -> str:
    """Why a program that gives the answers is not said to be what the model does. short: reasons, without numbers."""
    verdicts = [(variable.name, variable.interchange.verdict) for variable in explanation.variables]
    odd, untold = ([name for name, one in verdicts if one == wanted] for wanted in ("refuted", "too few cases"))
    unread = [role.part for role in explanation.parts if role.status == "not read"]
    wrong = bool(odd or unread or explanation.more)
    text = []
    if odd:
        text.append(f"the model does not compute with {_variables(odd)} as the program does")
    if unread:
        text.append(
            f"{'the program' if odd or short else 'it'} does without {parts_words(unread)}, which the model uses"
        )
    if explanation.more:
        text.append(_reads_more(explanation, "the program says", short))
    if untold:
        text.append(f"too few cases tell whether the model computes with {_variables(untold)} as the program does")
    level = f"{'Imitated' if wrong else 'Undecided'}{_as_network(explanation)}"
    gives = "" if short else "a program of its parts gives the model's answers, but "
    return f"{level}{'' if short else _proved(explanation)}: {gives}{', and '.join(text)}."


ONE_SIDE = {"q": "its queries read", "k": "its keys read", "v": "its values read"}
"""The side of a head that reads more, as the words of a sentence."""


def _reads_more(explanation: Explanation, phrase: str, short: bool = False) -> str:
    """Which parts read more than is said, as a sentence without its end. short: without numbers."""
    readers = [entry.reader for entry in explanation.more]
    if short:
        return f"{_readers(readers)} more than {phrase}"
    left = words.at_least(min(entry.left for entry in explanation.more))
    alone = len(readers) == 1 and readers != [AT_ONCE]
    who = ONE_SIDE.get(explanation.more[0].side, "it reads") if alone else "they read"
    rest = f"the rest of what {who}"
    stay = f"with {rest} taken from another input, {left} of the model's answers stay"
    worst = min(explanation.more, key=lambda entry: entry.left)
    if worst.alone < worst.left + (1 - worst.left) / 2:  # one thing makes half of it or more
        whose = "" if len(readers) == 1 else f"for {worst.reader}, "
        stay += f" ({whose}{words.at_least(worst.alone)} with {_source(worst.most)} alone)"
    return f"{_readers(readers)} more than {phrase}: {stay}"


def _reads_less(found: Explanation) -> list[str]:
    """What is read although next to none of the model's answers depend on it, as a sentence."""
    if not found.less:
        return []
    reads = []
    for entry in found.less:
        plain = [_source(name) for name in entry.sources if name in ("token", "position")]
        parts = [name for name in entry.sources if name not in ("token", "position")]
        what = words.joined([*plain, *([parts_words(parts)] if parts else [])])
        reads.append(f"{WAYS[entry.way].format(entry.reader)} {what}")
    least = min(entry.left for entry in found.less)
    where = "In the program" if found.program is not None else "By their descriptions"
    this, it = ("this", "it") if len(reads) == 1 else ("any one of these", "one of these")
    said = {name for entry in found.less for name in (entry.reader, *entry.sources)}
    carried = any(len(variable.places) > 1 and said & {*variable.places} for variable in found.variables)
    places = ", and all that carries the same," if carried else ""
    read = f"{where}, {words.joined(reads)}, but"
    if len(reads) > MOST_EDGES:
        read, this = f"{where}, parts read along {len(reads)} edges (in the table of edges), but", "any one of them"
    if least == 1:
        return [f"{read} no answer changes with {this}{places} taken from elsewhere."]
    return [
        f"{read} next to none of the model's answers depend on {this}: with {it}{places} taken from elsewhere, "
        f"{words.at_least(least)} or more of the answers stay."
    ]


def _source(name: str) -> str:
    return f"the {name}" if name in ("token", "position") else name


def _readers(names: Sequence[str]) -> str:
    """Parts, and the readout, that read something: as the subject of a sentence."""
    if names == [AT_ONCE]:
        return f"{AT_ONCE} read"
    parts = [name for name in names if name != READOUT]
    named = words.joined([*([parts_words(parts)] if parts else []), *([READOUT] if len(parts) < len(names) else [])])
    return f"{named} {'reads' if len(names) == 1 else 'read'}"


def _variables(names: Sequence[str]) -> str:
    return words.joined(names) if len(names) <= NAMED else f"{len(names)} of the program's variables"


def scores(found: Explanation) -> list[str]:
    """The scores of an explanation under the field's names."""
    text = []
    if found.agreement is not None:
        text.append(f"answers {words.share(found.agreement.share)}")
    elif found.joint is not None:
        text.append(f"answers with descriptions in place {words.share(found.joint)}")
    shown = [variable.interchange.accuracy for variable in found.variables if variable.interchange.changes.n]
    if shown:
        worst = " at worst" if min(shown) < max(shown) else ""
        text.append(f"interchange intervention accuracy {words.share(min(shown))}{worst}")
    if found.parts:
        used = sum(role.status not in OUT for role in found.parts)
        text.append(f"{used} of {words.counted(len(found.parts), 'part')} used")
    if found.program is not None:
        text.append(f"answers {found.proved or 'not proved'}")
    return text


def _as_network(explanation: Explanation) -> str:
    """Say of a program with weighted sums that it is a smaller network: what they stand for is not known."""
    steps = explanation.program.steps if explanation.program is not None else ()
    lengths = {step.length for step in steps if isinstance(step, Normed)}
    sums = sum(len(step.bias) for step in steps if isinstance(step, Sums) and step.name not in lengths)
    n, stand = words.counted(sums, "weighted sum"), "it stands" if sums == 1 else "they stand"
    like = "by" if explanation.level == "imitated" else "as"
    return f" {like} a smaller network, with {n} of which it is not known what {stand} for" if sums else ""


def _used(explanation: Explanation, used: Sequence[PartRole]) -> str:
    """Which parts are used, and what stays without the others, without each alone, and without all stand-ins."""
    n, total, on = len(used), len(explanation.parts), f" {explanation.tested_on}"
    every = {1: "The only part is used", 2: "Both parts are used"}.get(n, f"All {n} parts are used")
    several = f"{n} of {words.counted(total, 'part')} {'are' if n > 1 else 'is'} used"
    text = [every if n == total else several]
    if out := [role.part for role in explanation.parts if role.status in OUT]:
        text[0] += (
            f": with {_listed(out)} at {'their means' if len(out) > 1 else 'its mean'}, "
            f"{_stay(explanation.without)}{on}"
        )
        if explanation.moved is not None:
            idle = [role.part for role in explanation.parts if role.status in OUT and role.status != "stands in"]
            text[0] += f"; with the values of {_listed(idle)} at other positions, {words.portion(explanation.moved)}"
        on = ""
    alone = {role.part: role.without or 0.0 for role in explanation.parts}
    groups: list[StandIns | Cancelling] = [*explanation.stand_ins, *explanation.cancelling]
    together = {part for group in groups for part in group.parts}
    if firm := [role.part for role in used if role.part not in together and role.moved is None]:
        which = "it" if total == 1 else f"one of {parts_words(firm)}" if len(firm) > 1 else parts_words(firm)
        which = "one of the used parts" if len(firm) > LISTED else which
        text.append(f"With {which} alone at its mean, {_range([alone[part] for part in firm])}{on}")
        on = ""
    for group in explanation.stand_ins:
        least, both = _range([alone[part] for part in group.parts]), "both" if len(group.parts) == 2 else "all"
        but_one = f"; with all but one, {_range(group.but_one)}" if group.but_one else ""
        text.append(
            f"{_capital(parts_words(group.parts))} stand in for each other: with one of them at its mean, {least}{on}"
            f"{but_one}; with {both}, {words.portion(group.left)}"
        )
        on = ""
    for pair in explanation.cancelling:
        most = _range([alone[part] for part in pair.parts])
        named = _capital(parts_words(pair.parts))
        text.append(f"{named} cancel: with either alone at its mean, {most}{on}; with both, {words.portion(pair.left)}")
        on = ""
    for role in used:
        if role.moved is not None:
            other = f"with its values at other positions, {words.portion(role.moved)}"
            text.append(f"With {role.part} alone at its mean, {_stay(role.without)}{on}; {other}")
    for other in dict.fromkeys(role.like for role in explanation.parts if role.like):
        if further := [role.part for role in explanation.parts if role.like == other and role.alike is None]:
            carry = "carry" if len(further) > 1 else "carries"
            text.append(f"{_capital(parts_words(further))} {carry} what {other} does, too")
        if not (copies := [role for role in used if role.like == other and role.alike is not None]):
            continue
        named, whose = parts_words([role.part for role in copies]), "theirs" if len(copies) > 1 else "its own"
        there = f"with the attention of {other} in place of {whose}, {_stay(copies[0].alike)}"
        text.append(f"The program reads {other} in place of {named}: {there}")
    if at_means := [role for role in used if role.does == AT_ITS_MEANS]:
        theirs = "their means" if len(at_means) > 1 else "its mean"
        stay = _stay(at_means[0].kept)
        text.append(f"With {parts_words([role.part for role in at_means])} at {theirs} at each position, {stay}")
    for part in [role.part for role in explanation.parts if role.status == "not read"]:
        text.append(f"The program does not read {part}, although with it alone at its mean, {_stay(alone[part])}")
    return f"{'. '.join(text)}."


def _listed(parts: Sequence[str]) -> str:
    """Parts that are left out, by name if they are few."""
    return parts_words(parts) if len(parts) <= LISTED else "the others"


def _range(shares: Sequence[float]) -> str:
    """The least and the most of some shares of the answers, which stay."""
    if min(shares) == max(shares):
        return _stay(shares[0])
    return f"{words.at_least(min(shares))} to {words.at_most(max(shares))} of the answers stay"


def _stay(share: float | None) -> str:
    return f"{words.portion(share or 0.0)} of the answers stay"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
