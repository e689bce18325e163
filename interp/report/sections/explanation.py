"""The algorithm of a model: a sentence on the first screen, and the program with the role of each part.

The answers of a model of strings are shown as an automaton, too.
"""

import math

import pandas as pd

from interp.certificates import Certificate
from interp.measures.runs import operations
from interp.programs.explanations import Explanation, automata, explain_subject
from interp.programs.explanations.automata import STRINGS, Learned, LearnedAutomaton, learn_automaton
from interp.programs.explanations.bench import STEPS_PER_SECOND
from interp.programs.explanations.engine import FEWEST, MOST, WORK, work
from interp.programs.explanations.explanation import MOST_EDGES, how, imitated, numbered, shipped, steps_of, summary
from interp.programs.explanations.findings import STATUSES, svg
from interp.programs.explanations.strings import Strings
from interp.programs.words import answer_words
from interp.report import Report
from interp.report.sections.base import Study, section
from interp.support import words
from interp.support.figures.automata import automaton, is_readable
from interp.tasks.populations import SPEED, InputsAsked

REQUEST = "interp explain MODEL searches for one; interp analyze MODEL --sections explanation shows it on a page"
SEARCH, LEAST_STEPS = 150.0, 200
"""Budget of a search in a report, in nominal seconds, and the fewest steps with which a search is worth starting."""
MOST_WORDS = 80
"""Most words of the card "How" on the first screen."""
LEAST_WORDS = 8
"""Fewest words that a step is cut to."""
DRAWN = (
    "From the tokens to the answer: the parts that are used, and what each does. Parts that do the same share a box. "
    "Dashed: what this part does is not described."
)


def budget(study: Study) -> float | None:
    """Return the seconds of a search (see explain_subject) whose work fits SEARCH; None if it is too little to start.

    A step runs the model on the search's inputs, which is counted work; a small model's step counts as a nominal one.
    """
    length = study.data()[slice(0, 200)].tokens.shape[1]
    per_input = work(study.subject, length)
    a_step = max(per_input * min(MOST, max(FEWEST, WORK // per_input)), SPEED / STEPS_PER_SECOND)
    steps = SEARCH * SPEED / a_step
    return steps / STEPS_PER_SECOND if steps >= LEAST_STEPS else None


def request(study: Study) -> str | None:
    """Return how to ask for an explanation if none was shipped and none is searched for."""
    searched = study.explains and study.once(budget) is not None
    return None if searched or study.measure(shipped) is not None else REQUEST


@section("explanation", title="The algorithm", order=250, block="how", request=request)
def make(study: Study, report: Report) -> None:
    """Show the explanation shipped with interp, or search for one: within the budget, or as long as the user asks."""
    explanation = study.measure(shipped)
    seconds = study.asked_of.get("explanation", InputsAsked()).seconds
    if explanation is None and (seconds is not None or "explanation" in study.wanted):
        explanation = explain_subject(study.subject, report.title, math.inf if seconds is None else seconds)
    elif explanation is None and study.explains and (within := study.once(budget)) is not None:
        explanation = explain_subject(study.subject, report.title, within)
    if explanation is None:
        return
    report.say(card(explanation), "how")
    report.add_fact("explanation_level", explanation.level)
    report.heading("The algorithm", evidence(explanation) or explanation.sentence)
    if explanation.found:
        report.add_code(explanation.source)
        report.add_fact("explanation_constants", explanation.constants)
    if explanation.agreement is not None:
        report.add_fact("explanation_share", explanation.agreement.share)
    drawing = svg(explanation.parts, answer_words(explanation.program) if explanation.program is not None else "")
    if drawing:
        report.add_drawing(drawing, DRAWN)
    if explanation.parts:
        report.add_table(
            "explanation_parts",
            explanation.to_frame(),
            "What was found about each head and MLP. explained: its description takes its place in the running model. "
            "kept: it matters, and no description takes its place. not read: answers change without it, but the "
            "program gives them without it. minor: it matters, but for fewer answers than a description may change. "
            "not used: its mean over positions of the same kind (the read position, marks, content) takes its place, "
            "together with all others not used. stands in: the same, but the answers change without the parts "
            "for which it stands in. Column without: the share of the model's answers that stay with this part alone "
            "at its mean. Column moved: the same with its values at other positions, where its mean changes next to "
            "nothing. Column kept: the share that stays with this description and those of earlier parts in place. "
            "All, and the "
            f"means: {explanation.tested_on}.",
            {"without": words.share, "moved": words.share, "kept": words.share},
        )
    if explanation.variables:
        report.add_table(
            "explanation_variables",
            explanation.to_frame("variables"),
            "The variables of the program, and the parts in which each lives. Interchange intervention accuracy: with "
            "the variable's value from another input, in the program and in all its places in the model, how often "
            "both answer the same, where the program's answer changes and where it stays. shown: at least 0.95 "
            "of both, with the lower end of the 95% interval at 0.9 or more. pairs: base and source.",
        )
    if len(explanation.less) > MOST_EDGES:
        report.add_table(
            "explanation_edges",
            explanation.to_frame("edges"),
            "Edges along which parts read in the program, although next to none of the model's answers depend on them. "
            "side: of a head, its queries, keys or values. left: the share of the model's answers that stay if what "
            "one edge carries, and all that carries the same, is taken from other inputs, or other positions.",
            {"left": words.share},
        )
    rows = [(words.joined(group.parts), "stand in for each other", group.left) for group in explanation.stand_ins]
    rows += [(words.joined(group.parts), "cancel", group.left) for group in explanation.cancelling]
    if rows:
        report.add_table(
            "explanation_groups",
            pd.DataFrame(rows, columns=["parts", "together", "left"]),
            "Parts whose effects are seen together alone. stand in for each other: the answers stay without any one, "
            "and change without all. cancel: they change without either, and stay without both. left: the share of "
            "the model's answers that stay with all of them at their means.",
            {"left": words.share},
        )


def card(found: Explanation) -> str:
    """Return the card of the first screen, at most MOST_WORDS words: the level (of a program that imitates, with the
    reasons for it), the steps, and one line of scores."""
    if found.level in ("none", "answers only"):
        return words.fitting(summary(found), MOST_WORDS)[0]
    line = found.scores
    room = MOST_WORDS - words.n_words(f"{line} {MORE}")
    level = f"{found.level.capitalize()}."
    if found.level == "imitated":
        level = words.fitting(imitated(found, short=True), room)[0]
    room -= words.n_words(level)
    steps = "\n".join(numbered(steps_of(found, short=True))) or how(found, apart=True).split("\n\n")[0]
    kept, left = words.fitting(steps, room) if room >= LEAST_WORDS else ("", steps)
    return "\n\n".join(filter(None, [level, kept, MORE if left else "", line]))


MORE = "The rest is below."


def evidence(found: Explanation) -> str:
    """Return sentences on the size of what was found, on the parts, and on the model with their descriptions."""
    if not found.parts or found.joint is None:
        return ""
    named = {status: n for status in STATUSES if (n := found.count(status))}
    parts = words.joined(f"{n} {'not described' if status == 'kept' else status}" for status, n in named.items())
    stay = f"{words.portion(found.joint)} of the model's answers stay {found.tested_on}"
    described = f" With the descriptions in their place, {stay}." if found.count("explained") else ""
    size = f"{'The program has' if found.program is not None else 'There is'} {found.size}. " if found.found else ""
    alone = f"By itself, this program gives {found.agreement}. " if found.program is not None else ""
    return f"{size}{alone}Parts of the model: {parts}.{described}"


SECONDS = 1.0
"""Budget, in nominal seconds, for running all strings if the user gives no length."""


def needs_strings(study: Study) -> str | None:
    """Require a task of strings, each with an answer."""
    subject = study.subject
    if subject.read_at == "all" and study.model.cfg.attention_dir != "causal":
        return "every position has an answer, which may depend on later tokens"
    return (
        None
        if study.measure(Strings.of).longest(subject, STRINGS) >= 2
        else "the model has too few positions for strings"
    )


def seconds(study: Study, length: int) -> float:
    """Return the nominal seconds in which the model runs all strings of a length."""
    known = study.measure(Strings.of)
    return len(known.letters) ** length * operations(study.subject, length + known.marks) / SPEED


def affordable(study: Study) -> int:
    """Return the largest length such that all strings up to it fit SECONDS."""
    known = study.measure(Strings.of)
    most = known.longest(study.subject, STRINGS)
    length, spent = 1, seconds(study, 1)
    while length < most and (spent := spent + seconds(study, length + 1)) <= SECONDS:
        length += 1
    return known.fixed or length


def cost(study: Study) -> float:
    """Return the nominal seconds, of strings of at least 4 symbols."""
    least = min(4, study.measure(Strings.of).longest(study.subject, STRINGS))
    return seconds(study, max(least, study.once(affordable)))


@section("automaton", title="As an automaton", order=130, needs=needs_strings, cost=cost)
def as_automaton(study: Study, report: Report, longest: int | None = None) -> None:
    """Show the smallest automaton with the model's answers on every string up to a length, and the task's own.

    longest: the length in symbols (default: as long as all fit SECONDS).
    """
    learned = study.measure(learn_automaton, study.once(affordable) if longest is None else longest)
    sentence = automata.sentence(learned) + _proved_apart(study, learned)
    report.heading(
        "As an automaton",
        f"{sentence} It was learned by Angluin's L* from the answers to all of these strings. No smaller automaton "
        "gives the same answers.",
    )
    shown = []
    if learned.shown is not None:
        where = "" if learned.model is not None else f", on strings of at most {learned.shown.longest} symbols"
        shown += _show(report, "automaton_model", learned.shown, f"The model as an automaton{where}.")
    if learned.task is not None and not learned.same:
        shown += _show(report, "automaton_task", learned.task, "The task's own automaton, learned from its labels.")
    if learned.model is not None:
        report.say(sentence, "what", shown)
        report.add_fact("automaton_states", learned.model.states)
    if learned.task is not None:
        report.add_fact("automaton_states_task", learned.task.states)
    report.add_fact("automaton_longest", learned.longest)
    report.add_fact("automaton_wrong", learned.different)


def _proved_apart(study: Study, learned: Learned) -> str:
    """Return a sentence if the model errs on strings, but is proved right on the inputs of its task."""
    if not (learned.inferred and learned.different):
        return ""
    certificate = study.certificate
    if not isinstance(certificate, Certificate) or certificate.status != "certified" or certificate.on_trust:
        return ""
    it = "It is none" if learned.different == 1 else "None of these is one"
    return f" {it} of the inputs on which the model is proved right ({certificate.domain})."


def _show(report: Report, key: str, machine: LearnedAutomaton, caption: str) -> list[str]:
    """Add a drawing, if it is small enough to read, and a table. Return the keys of the drawings."""
    small = is_readable(machine.following)
    if small:
        drawing = automaton(
            machine.following, [machine.word(state) for state in range(machine.states)], machine.alphabet
        )
        report.add_figure(key, drawing, caption)
    report.add_table(
        f"{key}_table", machine.to_frame(), f"{caption} Access: the shortest string that ends in the state."
    )
    return [key] if small else []
