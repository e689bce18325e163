"""Accuracy, loss and both kinds of errors of a recognizer of strings, against length and number format."""

from __future__ import annotations

import pandas as pd

from interp import words
from interp.measures import languages as measures
from interp.report import Report
from interp.report import figures as draw
from interp.sections import _shared as shared
from interp.sections.base import Study, section

LENGTHS = (2, 4, 6, 10, 20, 30, 60, 100, 200, 400)
FORMATS = ("float64", "float32", "float16", "bfloat16")
LONGEST = 1000
STRINGS, SAMPLED = 60, 2000
SHARES = (-0.03, 1.05)
"""The range of axes of accuracies and rates."""


@section("string_lengths", title="Length and number format", order=140, needs=shared.needs_recognizer)
def make(study: Study, report: Report) -> None:
    """Sampled strings of many lengths, also beyond the one that the model is made for, in four number formats."""
    model = study.subject.task_model
    task = measures.language_of(model)
    made_for = {int(task.parameters[key]) for key in ("length", "test_length")}
    lengths = sorted(n for n in {*LENGTHS, *made_for} if n % 2 == 0 and 0 < n <= LONGEST)  # Dyck has no odd lengths
    most = model.spec.max_length
    if most is not None:  # it has weights for so many positions, and no more
        lengths = [n for n in lengths if task.strings(1, n, seed=0).tokens.shape[1] <= most]
    beyond = ", also beyond the length for which the model is made" if max(lengths) > max(made_for) else ""
    own = str(model.embed.W_E.dtype).removeprefix("torch.")
    frames = []
    for name in (own, *(name for name in FORMATS if name != own)):
        # Half formats are slow on a CPU.
        allowed = lengths if name.startswith("float") and name != "float16" else [n for n in lengths if n <= 100]
        frames.append(measures.length_curve(model, allowed, (name,), n=STRINGS))
    curve = pd.concat(frames, ignore_index=True)
    baseline = task.strings(SAMPLED, lengths[-1], seed=1).labels.double().mean()
    always = max(float(baseline), 1 - float(baseline))
    report.section(
        "Length and number format",
        f"{STRINGS} strings of each length from the language's distribution, with the weights rounded to each format "
        f"and all arithmetic in it{beyond}. Always giving the more frequent answer would be right on "
        f"{words.portion(always, 3)} of {SAMPLED:,} sampled strings of {lengths[-1]} symbols.",
    )
    report.add_figure(
        "accuracy_by_length",
        draw.lines(curve, "length", "accuracy", "dtype", "symbols", "accuracy", "log", markers=True).update_yaxes(
            range=SHARES
        ),
        "Accuracy against length, in four number formats.",
    )
    if (curve["cross_entropy_bits"] > 0).any():  # NaN for an indicator
        report.add_figure(
            "cross_entropy_by_length",
            draw.lines(curve[curve["cross_entropy_bits"] > 0], "length", "cross_entropy_bits", "dtype", "symbols",
                       "cross-entropy (bits)", "log", "log", markers=True),
            "Cross-entropy against length: 1 bit is a coin's."
            + (" A proof of the sign alone leaves it near 1." if shared.is_exact(study) else ""),
        )  # fmt: skip
    mine = curve[curve["dtype"] == own]
    kinds = mine.melt("length", ["false_accept_rate", "false_reject_rate"], "kind", "rate").dropna()
    kinds["kind"] = kinds["kind"].map({"false_accept_rate": "false accepts", "false_reject_rate": "false rejects"})
    if not kinds.empty:
        report.add_figure(
            "errors_by_length",
            draw.lines(kinds, "length", "rate", "kind", "symbols", "rate", "log", markers=True).update_yaxes(
                range=SHARES
            ),
            f"Share of the strings outside the language that are accepted, and of members that are rejected ({own}).",
        )
    if (mine["smallest_logit"] > 0).any():
        report.add_figure(
            "smallest_logit",
            draw.lines(curve[curve["smallest_logit"] > 0], "length", "smallest_logit", "dtype", "symbols",
                       "smallest |logit|", "log", "log", markers=True),
            "The answer that is nearest to a wrong one.",
        )  # fmt: skip
    report.add_table("by_length", curve, "The same as numbers, false accepts and false rejects apart.", max_rows=12)
    trained_on = None if shared.is_exact(study) else int(task.parameters["length"])
    report.say(sentence(mine, trained_on), "what", ["accuracy_by_length", "cross_entropy_by_length"])
    report.add_fact("cross_entropy_bits", float(mine["cross_entropy_bits"].iloc[-1]))
    report.add_fact("accuracy_longest", float(mine["accuracy"].iloc[-1]))
    report.add_fact("longest", int(mine["length"].iloc[-1]))


def sentence(curve: pd.DataFrame, trained_on: int | None = None) -> str:
    """What the curve in the model's own number format says, in words; trained_on: symbols of the training strings."""
    low, longest = curve[curve["accuracy"] < 0.999], int(curve["length"].iloc[-1])
    if low.empty:
        where = f"Sampled strings of up to {longest} symbols are all answered rightly"
    else:
        worst = low.loc[low["accuracy"].idxmin()]
        accepts, rejects = int(low["false_accepts"].sum()), int(low["false_rejects"].sum())
        good = curve[curve["length"] < int(low["length"].iloc[0])]["length"]
        upto = f"Sampled strings of up to {int(good.max())} symbols are all answered rightly. " if len(good) else ""
        where = (
            f"{upto}By length, sampled accuracy is lowest at {int(worst['length'])} symbols "
            f"({words.share(float(worst['accuracy']), 3)}); in all {words.counted(accepts, 'false accept')} and "
            f"{words.counted(rejects, 'false reject')}"
        )
    mine = curve[curve["length"] == trained_on]
    trained = (
        ""
        if mine.empty or low.empty
        else f" At {trained_on} symbols, as in training, sampled accuracy is "
        f"{words.share(float(mine['accuracy'].iloc[0]), 3)}."
    )
    bits = float(curve["cross_entropy_bits"].iloc[-1])
    coin = " (a coin has 1: the sign of the output is right, its size small)" if 0.9 < bits < 1 and low.empty else ""
    loss = "" if bits != bits else f" Cross-entropy at {longest} symbols: {words.number(bits, 3)} bits{coin}."
    return f"{where} ({curve['dtype'].iloc[0]}).{trained}{loss}"
