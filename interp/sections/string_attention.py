"""What each head of a recognizer looks at from where the answer is read."""

from __future__ import annotations

from interp.measures import languages as measures
from interp.report import Report
from interp.report import figures as draw
from interp.report.aim import inputs
from interp.report.aim import tokens as token_ids
from interp.sections import _shared as shared
from interp.sections.base import Study, section


@section("string_attention", title="Attention from where the answer is read", order=430, needs=shared.needs_recognizer)
def make(study: Study, report: Report) -> None:
    """One string of 16 symbols, position by position and added up by token."""
    model = study.subject.task_model
    task = measures.language_of(model)
    batch = task.strings(40, 16, seed=5)
    row = int(batch.labels.int().argmax())
    tokens = batch.tokens[row : row + 1, : int(batch.lengths[row])]
    frame = measures.attention_from_answer(model, tokens)
    report.section("Attention from where the answer is read")
    frame["part"] = "head " + frame["layer"].astype(str) + "." + frame["head"].astype(str)
    frame["word"] = frame["position"].astype(str) + ": " + frame["token"]
    wide = frame.pivot(index="part", columns="position", values="weight")
    words = frame.drop_duplicates("position").sort_values("position")["word"].tolist()
    report.add_figure(
        "attention_from_answer",
        inputs(
            draw.heatmap(
                wide.to_numpy(), words, list(wide.index), "position and token", "head", "weight", square=False
            ),
            "tokens",
            token_ids(tokens[0].tolist()),
        ),
        f"One string of 16 symbols, {task.format(tokens[0])}: the weights of the row that is read, head by head.",
    )
    sums = frame.groupby(["part", "token"], as_index=False)["weight"].sum()
    report.add_figure(
        "attention_by_symbol",
        draw.bars(sums, "part", "weight", "token", "head", "total weight", stacked=True),
        "The same, added up by token: uniform attention gives each token its share of the string.",
    )
