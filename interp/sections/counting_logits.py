"""Each answer's logit by the true count (Behrens et al. 2024, Figures 8 and 9)."""

from __future__ import annotations

from interp.measures import counting_readout
from interp.measures.counting import Counter
from interp.report import Report
from interp.report import figures as draw
from interp.report.aim import tokens as piece
from interp.sections import _shared as shared
from interp.sections.base import Study, section


@section("counting_logits", title="Logits by count", order=712, needs=shared.needs_counter)
def make(study: Study, report: Report, tokens: int = 3) -> None:
    """Logits on sequences of two tokens; tokens: of how many."""
    counter = study.once(shared.counter)
    report.section("Logits by count")
    words = [str(token) for token in range(1, 2 if counter.task.T < 4 else min(tokens + 1, counter.task.T))]
    table = counting_readout.logits_by_count(counter, words)
    first = table[table["token"] == words[0]].assign(
        answer=lambda frame: "answer " + frame["answer"].astype(str),
        input=lambda frame: [_sequence(counter, words[0], count) for count in frame["count"]],
    )
    report.add_figure(
        "logits_by_count",
        draw.lines(
            first, "count", "logit", "answer", x_title="times token 1 occurs, the rest being token 0", tokens="input"
        ),
        "Each answer's logit at a position of token 1, by its count (Figures 8 and 9): the highest line should be the "
        "count's own.",
    )
    right = table.loc[table.groupby(["token", "count"])["logit"].idxmax(), ["token", "count", "answer"]]
    wide = right.pivot(index="token", columns="count", values="answer").reset_index()
    wide.columns = ["token", *(f"count {count}" for count in wide.columns[1:])]
    report.add_table("answers_two_tokens", wide, "The answers to these sequences, token by token.")


def _sequence(counter: Counter, word: str, count: int) -> str:
    """The sequence of a point: so many of one token, the rest of the one before it."""
    token = counter.task.token_id(word)
    row = [token] * count + [token - 1] * (counter.task.L - count)
    return piece([*([counter.task.T] if counter.task.bos else []), *row])
