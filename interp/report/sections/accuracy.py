"""Is the model right? Proved on every input if there is a certificate, otherwise measured.

Also: the exact match of generated answers, and the curves of the training run.
"""

from collections.abc import Sequence
from numbers import Integral

import numpy as np
import pandas as pd

from interp.certificates import Certificate
from interp.certificates.drawing import by_length, margins_by_length
from interp.certificates.enumeration import EXACT_MATCH
from interp.errors import InterpError
from interp.measures.accuracy import WORK, Accuracy, accuracy_on, generate, not_generated
from interp.models.training_curves import no_curve, training_curve
from interp.report import Report
from interp.report.sections.base import Study, section
from interp.support import figures as draw
from interp.support import words
from interp.support.words import counted
from interp.tasks.populations import Population


@section("accuracy", title="Accuracy", order=100, block="proof")
def make(study: Study, report: Report) -> None:
    """Show a certificate with its tables, or the accuracy on all inputs or on a sample, with its interval."""
    certificate = study.certificate
    if isinstance(certificate, Certificate):
        _certified(report, study, certificate)
    else:
        _measured(report, study, certificate)


def _certified(report: Report, study: Study, certificate: Certificate) -> None:
    task = study.task
    report.say(certificate_sentence(certificate, apart=True), "proof", ["frontier", "margins"])
    exact = certificate.accuracy if isinstance(certificate.accuracy, float) else None
    if certificate.status == "refuted" and exact is not None and (drawn := describe_sampled_accuracy(study, exact)):
        report.say(drawn, "proof")
    by_difference = task.contrast is not None and "difference" in certificate.tables.get("errors", ())
    if by_difference and task.contrast is not None:
        report.say(rule_sentence(certificate.tables["errors"], task.counted, task.contrast), "what", ["errors"])
    if certificate.status == "certified":
        word = ", if the task labels its inputs as it declares" if certificate.on_trust else ""
        every = f"on every input of the domain ({certificate.domain})"
        report.say(f"Always right{word}: the model gives the right answer {every}.", "what")
    if certificate.status == "refuted":
        report.say(describe_errors(certificate), "what")
    report.mark = words.STATES[certificate.status]
    report.heading("Accuracy on every input", certificate_sentence(certificate))
    report.add_table("certificate", _as_rows(certificate), f"The certificate. Method: {certificate.method}.")
    for name, (caption, formats) in TABLES.items():
        if name in certificate.tables:
            report.add_table(name, certificate.tables[name], caption, formats)
    if by_difference:
        report.add_figure(
            "errors",
            draw.error_by_difference(
                certificate.tables["errors"], tokens=task.counted, answers=task.contrast or ("", "")
            ),
            "Errors by difference: the share of wrong answers among all inputs with the same difference, the number of "
            f"'{task.counted[1]}' minus that of '{task.counted[0]}'.",
        )
    elif len(certificate.tables.get("errors", ())):
        report.add_table("errors", certificate.tables["errors"], "Inputs that the model gets wrong.", max_rows=12)
    if certificate.n_errors and "frontier" in certificate.tables:
        report.add_figure(
            "frontier",
            draw.error_frontier(certificate.tables["frontier"], task.counted),
            f"The error frontier: for each number of '{task.counted[2]}', the range in which the model is wrong of the "
            f"number of '{task.counted[1]}' minus that of '{task.counted[0]}'.",
        )
    if "lengths" in certificate.tables:
        both = by_length(certificate.tables["lengths"])
        if len(both):
            report.add_figure(
                "margins",
                margins_by_length(both),
                margins_caption(certificate.tables["lengths"], bounded="rounding" in set(both["quantity"])),
            )
        report.add_table("lengths", certificate.tables["lengths"], LENGTHS, max_rows=12)
    report.add_fact("accuracy", accuracy_or_range(certificate))
    report.add_fact("exact", isinstance(certificate.accuracy, float))
    report.add_fact("certificate", certificate.status)


def margins_caption(lengths: pd.DataFrame, bounded: bool) -> str:
    """Return the caption of the margins by length. bounded: whether there are bounds on rounding."""
    rounding = (
        ", and how much rounding can change it, in any order of evaluation. If the margin is larger, every string of "
        "that length is right."
    )
    wrong = lengths.loc[lengths["smallest_margin"] <= 0, "length"]
    missing = f" Not drawn, because a string is wrong: length {words.joined(map(str, wrong))}." if len(wrong) else ""
    return f"The smallest margin over all strings of a length{rounding if bounded else '.'}{missing}"


def _measured(report: Report, study: Study, why: str) -> None:
    measured, inputs = study.once(measure_accuracy), study.once(population)
    report.heading(
        "Accuracy on every input" if measured.exact else "Accuracy on a sample",
        f"No certificate: {why.split(' cannot be certified: ', 1)[-1].split(' (methods for other kinds', 1)[0]}.",
    )
    report.add_table("accuracy", measured.to_frame(), accuracy_caption(measured))
    report.say(describe_answers(measured), "what")
    report.say(accuracy_sentence(measured, inputs), "proof")
    if measured.exact and (drawn := describe_sampled_accuracy(study, measured.accuracy, measured.weighted)):
        report.say(drawn, "proof")
    report.mark = "measured"
    report.add_fact("accuracy", measured.accuracy)
    report.add_fact("exact", measured.exact)
    report.add_fact("certificate", "none")


def population(study: Study) -> Population:
    """Return all inputs, or a sample of the last split, however long its inputs are."""
    return study.population("accuracy", split=study.task.splits[-1], fixed=False, seconds=WORK)


def measure_accuracy(study: Study) -> Accuracy:
    """Return the accuracy on all inputs or on a sample; use it with study.once."""
    return accuracy_on(study.subject, study.once(population))


def describe_sampled_accuracy(study: Study, exact: float, weighted: float | None = None) -> str:
    """Return a sentence on the accuracy with inputs from the task's sampler; "" if it equals `exact`.

    exact: accuracy with each input once. weighted: accuracy with the task's declared weights. Without weights, a sample
    is measured, and reported only if its interval does not contain the exact number.
    """
    if weighted is not None:
        same = abs(weighted - exact) < 1e-9
        return "" if same else f"On inputs drawn with the task's sampler, accuracy is {words.share(weighted, 6)}."
    shown = dict(study.populations)
    try:
        drawn = study.population("accuracy", split=study.task.splits[-1], fixed=False, exact=False)
    except InterpError:  # the task has no sampler for these inputs
        return ""
    said = "" if drawn.exact else drawn_sentence(accuracy_on(study.subject, drawn), exact, drawn)
    if not said:
        study.populations = shown  # the inputs listed are those of numbers that a section shows
    return said


def drawn_sentence(found: Accuracy, exact: float, drawn: Population) -> str:
    """Return a sentence on a sample's accuracy; "" if its interval contains the accuracy with every input once."""
    if found.low <= exact <= found.high:
        return ""
    return (
        f"With the task's sampler, accuracy is {words.share(found.accuracy)} {drawn.on} "
        f"(95% interval {words.at_least(found.low)} to {words.at_most(found.high)})."
    )


LENGTHS = (
    "The certificate by length. smallest_margin: over all strings of that length; negative if a string is wrong. "
    "rounding: how much rounding can change it, in any order of evaluation; inf if there is no bound."
)
TABLES: dict[str, tuple[str, dict[str, str]]] = {
    "accuracy": ("Exact accuracy of each answer that is read.", {"accuracy": ".6f"}),
    "counts": (
        "Pairs of a sequence and a position, by their right count: proved right; proved wrong; right, but with a "
        "margin below the rounding error (close); too close to decide (tied); and undecided when the time ran out.",
        {},
    ),
}
"""Tables of certificates that a report shows: captions and number formats."""


ON_RECORD = "Read from the certificates that came with interp for these weights; interp certify proves it again."


def certificate_sentence(found: Certificate, apart: bool = False) -> str:
    """Return a certificate as a sentence; an accuracy is never printed as 1 if an input is wrong.

    apart: without where it was read, which the section says.
    """
    record = [ON_RECORD] if found.on_record and not apart else []
    whole = [note for note in found.notes if note.startswith(EXACT_MATCH)]
    return " ".join(
        [_verdict_of(found), *(f"{note[:1].upper()}{note[1:]}." for note in (*whole, *found.on_trust)), *record]
    )


def _verdict_of(certificate: Certificate) -> str:
    where = f"the {words.counted(certificate.n_inputs, 'input')} of the domain ({certificate.domain})"
    if certificate.status == "certified":
        return f"Proved right on all of {where}."
    wrong = (
        f" For example, it is wrong at {quoted_input(certificate.counterexample)}."
        if certificate.counterexample
        else ""
    )
    number = ""
    if certificate.n_errors:
        several, of = certificate.n_inputs, "them"
        if certificate.n_answers is not None:
            several, of = certificate.n_answers, f"the {certificate.n_answers:,} answers"
        number = f" It is wrong on {'all' if certificate.n_errors == several else f'{certificate.n_errors:,}'} of {of}."
    real = " in exact arithmetic" if certificate.status == "undecided" else ""
    if isinstance(certificate.accuracy, float):
        answers = certificate.n_answers or certificate.n_inputs
        even = certificate.n_errors is None or abs(certificate.accuracy - 1 + certificate.n_errors / answers) < 1e-6
        weighted = "" if even else ", each input weighted by its probability"
        if certificate.accuracy == 1 and real:
            why = "not proved for the model as it runs, because a margin does not exceed the rounding error"
            return f"Accuracy 1{real} over {where}; {why}."
        return f"Accuracy {words.share(certificate.accuracy, 6)}{real}, exact over {where}{weighted}.{number}{wrong}"
    lies = f"is in the range {accuracy_or_range(certificate)}"
    if certificate.confidence is not None:
        lies = (
            f"is in the range {accuracy_or_range(certificate)}, from a sample "
            f"(confidence {100 * certificate.confidence:g}%)"
        )
    if certificate.status == "undecided":
        return f"Not decided: the accuracy{real} over {where} {lies}.{wrong}"
    return f"Wrong on at least one of {where}; its accuracy {lies}.{number}{wrong}"


def quoted_input(counterexample: str) -> str:
    """Put a counterexample's input in quotation marks, so that ")(((" does not look like punctuation."""
    for separator in (": the answer at position ", ": the answer is ", ": the generated answer is "):
        text, colon, rest = counterexample.rpartition(separator)
        if colon:
            return f"'{text}'{colon}{rest}"
    return f"'{counterexample}'"


def accuracy_sentence(found: Accuracy, inputs: Population) -> str:
    """Return a measured accuracy as a sentence."""
    if found.exact:
        return f"Accuracy {words.share(found.accuracy, 6)}, exact: {_all_run(found.rows)}."
    return (
        f"Accuracy {words.share(found.accuracy)} {inputs.on}; the 95% interval is {words.at_least(found.low)} to "
        f"{words.at_most(found.high)}."
    )


def describe_errors(found: Certificate) -> str:
    """Return a sentence on a refuted model, with the number of its errors if known."""
    if not found.n_errors:
        return "Not always right: it is wrong on some inputs of the domain."
    several, what = (found.n_inputs, "input") if found.n_answers is None else (found.n_answers, "answer")
    of = words.counted(several, what)
    if found.n_errors == several:
        return f"Always wrong: on {f'all of the {of}' if several > 1 else f'the only {what}'}."
    return f"Not always right: wrong on {found.n_errors:,} of the {of}."


def describe_answers(found: Accuracy) -> str:
    """Return a sentence on whether a model is right on the inputs that were run."""
    wrong = round((1 - found.accuracy) * found.answers)
    run = f"the {words.counted(found.answers, 'answer')} {'of all inputs' if found.exact else 'that were sampled'}"
    if not wrong:
        return f"{'Always right: no' if found.exact else 'No'} error in {run}."
    if wrong == found.answers:
        return f"{'Always wrong: on' if found.exact else 'Wrong on'} all of {run}."
    return f"Not always right: wrong on {wrong:,} of {run}."


def rule_sentence(errors: pd.DataFrame, counted: Sequence[str], contrast: tuple[str, str]) -> str:
    """Return a sentence on the threshold rule that the answers follow, if any; contrast[0] is right above 0.

    errors: columns difference (n1 - n0), errors, inputs. Return "" if there is no such rule, or some answers are
    neither of the two (attrs["neither"]).
    """
    if errors.attrs.get("neither", 0):
        return ""
    zero, one = counted[:2]
    says = errors.assign(
        always=(errors["errors"] == 0) == (errors["difference"] > 0),  # if not mixed: the answer is contrast[0]
        mixed=(errors["errors"] > 0) & (errors["errors"] < errors["inputs"]),
    ).sort_values("difference")
    sure = says[~says["mixed"]]
    first = sure[sure["always"]]["difference"].min()
    last = sure[~sure["always"]]["difference"].max()
    name = f"the number of '{one}' minus that of '{zero}'"
    where = f"On all {errors['inputs'].sum():,} inputs that were checked, it answers"
    if pd.isna(first) or pd.isna(last):
        answer = contrast[0 if pd.isna(last) else 1]
        return f"{where} '{answer}' whatever the counts." if len(sure) == len(says) else ""
    if last > first:
        return ""
    if not says["mixed"].any():
        return f"{where} '{contrast[0]}' exactly if {name} is at least {first}."
    middle = says[says["mixed"]]["difference"]
    if middle.min() < last or middle.max() > first:
        return ""
    return (
        f"{where} '{contrast[0]}' if {name} is at least {first}, and '{contrast[1]}' if it is at most {last}; in "
        "between, the answer depends on the other counts."
    )


def _all_run(rows: int) -> str:
    return "the only input was run" if rows == 1 else f"all {rows:,} inputs were run"


def accuracy_caption(found: Accuracy) -> str:
    if found.exact:
        sentence = _all_run(found.rows)
        return f"{sentence[0].upper()}{sentence[1:]}."
    several = " Each row is one observation: the answers in a row are not independent." * (found.answers > found.rows)
    return f"{found.rows:,} inputs drawn with the task's sampler; 95% Wilson interval.{several}"


def accuracy_or_range(found: Certificate) -> float | str:
    """Return the exact accuracy as a number, or an interval in words, rounded outward and below 1 if the model errs."""
    if isinstance(found.accuracy, float):
        return found.accuracy
    low, high = found.accuracy
    top = "less than 1" if found.status == "refuted" and high == 1 else words.at_most(high, 6)
    return f"{words.at_least(low, 6)} to {top}"


def _as_rows(certificate: Certificate) -> pd.DataFrame:
    """Return a certificate as a table of two columns, for narrow screens."""
    row = certificate.to_frame().iloc[0].drop(["model", "seconds", "notes", "on_trust"])  # each note has its own row
    row["accuracy"] = accuracy_or_range(certificate)
    named = [(name.replace("_", " "), _said(value)) for name, value in row.items() if value is not None]
    return pd.DataFrame(
        [*named, *(("note", note) for note in (*certificate.notes, *certificate.on_trust))],
        columns=["property", "value"],
    )


def _said(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, Integral) else str(value)


def needs_generation(study: Study) -> str | None:
    """Require answers that are sequences of tokens."""
    return not_generated(study.subject, study.data()[slice(0, 20)])


@section("generation", title="Generated answers", order=25, needs=needs_generation)
def generated_answers(study: Study, report: Report) -> None:
    """Show how often generated answers match exactly, and the share of right tokens by place."""
    answers = generate(study.subject, study.data()[slice(0, 20)]).asked.shape[1]
    drawn = study.population("generation", answers + 1, whole=True)
    generated = generate(study.subject, drawn.batch)
    forced = float(generated.teacher_forced[generated.asked].double().mean())
    report.heading("Generated answers", generated_sentence(str(drawn.score(generated.exact)), forced, drawn.on))
    table = generated.by_place()
    long = pd.concat(
        [
            pd.DataFrame({"place": table["place"].astype(str), "right": table[name], "tokens before it": before})
            for name, before in (("teacher_forced", "the right ones"), ("generated", "the model's own"))
        ]
    )
    report.add_figure(
        "generation",
        draw.bars(
            long, "place", "right", "tokens before it", x_title="place in the answer", y_title="share of right tokens"
        ),
        f"Share of right tokens at each place of the answer, {drawn.on}: if the tokens before it are the right ones, "
        "and if they are the model's own.",
    )
    report.add_table("generation", table, "Shares of right tokens per place; rows: answers that reach this place.")
    report.add_fact("exact_match", float(np.round(float(generated.exact.double().mean()), 6)))


def generated_sentence(exact: str, forced: float, on: str) -> str:
    """Return a sentence on exact match and on single tokens."""
    return (
        f"The share of answers that the model generates without any error is {exact} {on}. If the tokens before it "
        f"are right, the share of single tokens that are right is {words.share(forced)} on the same inputs."
    )


@section("training", title="Training", order=940, block="method", needs=lambda study: no_curve(study.subject))
def curve_of_training(study: Study, report: Report) -> None:
    """Show the curve of the training run or from the checkpoint."""
    curve = training_curve(study.subject)
    last = curve.iloc[-1]
    report.heading(
        "Training",
        f"{counted(int(last['epoch']), 'epoch')}; at the end the training loss is {last['loss']:.4g} nats and the "
        f"validation accuracy is {words.share(last['accuracy'])}.",
    )
    report.add_figure("training", draw.history(curve), "Training loss and validation accuracy.")
    report.add_fact("final_loss", float(last["loss"]))
