"""The smallest automaton that gives a string model's answers, compared with the task's own automaton."""

from interp.explanations.automata import STRINGS, Learned, LearnedAutomaton, learn_automaton, sentence
from interp.explanations.strings import Strings
from interp.measures.runs import operations
from interp.populations import SPEED
from interp.report import Report
from interp.report.figures_automata import MOST_STATES, automaton
from interp.sections.base import Study, section

SECONDS = 1.0
"""Budget, in nominal seconds, for running all strings if the user gives no length."""


def strings(study: Study) -> Strings:
    """Return the strings of the study's task."""
    return Strings.of(study.subject)


def needs(study: Study) -> str | None:
    """Require a task of strings, each with an answer."""
    subject = study.subject
    if subject.read_at == "all" and study.model.cfg.attention_dir != "causal":
        return "every position has an answer, which may depend on later tokens"
    return None if study.once(strings).longest(subject, STRINGS) >= 2 else "the model has too few positions for strings"


def seconds(study: Study, length: int) -> float:
    """Return the nominal seconds in which the model runs all strings of a length."""
    known = study.once(strings)
    return len(known.letters) ** length * operations(study.subject, length + known.marks) / SPEED


def affordable(study: Study) -> int:
    """Return the largest length such that all strings up to it fit SECONDS."""
    known = study.once(strings)
    most = known.longest(study.subject, STRINGS)
    length, spent = 1, seconds(study, 1)
    while length < most and (spent := spent + seconds(study, length + 1)) <= SECONDS:
        length += 1
    return known.fixed or length


def cost(study: Study) -> float:
    """Return the nominal seconds, of strings of at least 4 symbols."""
    least = min(4, study.once(strings).longest(study.subject, STRINGS))
    return seconds(study, max(least, study.once(affordable)))


def found(study: Study, longest: int) -> Learned:
    """Return the learned automaton; use it with study.once."""
    return learn_automaton(study.subject, longest)


@section("automaton", title="As an automaton", order=130, needs=needs, cost=cost)
def make(study: Study, report: Report, longest: int | None = None) -> None:
    """Show the smallest automaton with the model's answers on every string up to a length, and the task's own.

    longest: the length in symbols (default: as long as all fit SECONDS).
    """
    learned = study.once(found, study.once(affordable) if longest is None else longest)
    report.heading(
        "As an automaton",
        f"{sentence(learned)} It was learned by Angluin's L* from the answers to all of these strings. No smaller "
        "automaton gives the same answers.",
    )
    shown = []
    if learned.shown is not None:
        where = "" if learned.model is not None else f", on strings of at most {learned.shown.longest} symbols"
        shown += _show(report, "automaton_model", learned.shown, f"The model as an automaton{where}.")
    if learned.task is not None and not learned.same:
        shown += _show(report, "automaton_task", learned.task, "The task's own automaton, learned from its labels.")
    if learned.model is not None:
        report.say(sentence(learned), "what", shown)
        report.add_fact("automaton_states", learned.model.states)
    if learned.task is not None:
        report.add_fact("automaton_states_task", learned.task.states)
    report.add_fact("automaton_longest", learned.longest)
    report.add_fact("automaton_wrong", learned.different)


def _show(report: Report, key: str, one: LearnedAutomaton, caption: str) -> list[str]:
    """Add a drawing, if it is small enough to read, and a table. Return the keys of the drawings."""
    small = one.states <= MOST_STATES
    if small:
        drawing = automaton(one.following, [one.word(state) for state in range(one.states)], one.alphabet)
        report.add_figure(key, drawing, caption)
    report.add_table(f"{key}_table", one.to_frame(), f"{caption} Access: the shortest string that ends in the state.")
    return [key] if small else []
