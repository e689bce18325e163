"""Inside a counting model: attention, artificial mixtures and logits (Figures 3, 4, 5, 8, 9 and 15 of Behrens et al.).

python analyses/counting_introspection.py histogram/bos-softmax-exact --out out/inside [--quick | --smoke]

Full: logits for 16 tokens and mixtures on fine grids. Quick: 6 tokens. Smoke: 3 tokens and coarse grids.
"""

from __future__ import annotations

import pandas as pd

import interp
from interp.errors import UnsupportedError
from interp.measures.counting import Counter, attention_by_relation
from interp.measures.counting_readout import logits_by_count, probe_three, probe_two
from interp.measures.mechanism import mechanism
from interp.report import Report
from interp.report import figures as draw
from interp.report.script import Arguments, run


def study(arguments: Arguments) -> Report:
    model = interp.load(arguments.checkpoint)
    counter = Counter.of(model)
    report = Report(f"Inside {arguments.checkpoint}")
    report.section("Attention by relation and count (Figure 3)")
    weights = attention_by_relation(model, n=arguments.pick(2000, 500, 100))
    report.add_table("attention", weights, "Mean attention of a position to its keys, by its own count.")
    report.add_figure(
        "attention",
        draw.lines(weights, "count", "mean", "relation", markers=True, y_title="attention"),
        "To itself, to the same token elsewhere, to other tokens, and to [BOS].",
    )
    _mixtures(report, model, counter, arguments)
    _logits(report, model, counter, arguments)
    report.verdict = str(mechanism(model))
    return report


def _mixtures(report: Report, model: interp.TaskModel, counter: Counter, arguments: Arguments) -> None:
    report.section("The readout on artificial mixtures (Figures 3, 4, 5 and 15)")
    tokens = [str(token) for token in range(min(4, counter.task.T))]
    steps = arguments.pick(201, 101, 21)
    try:
        two = [probe_two(model, own, other, steps) for own in tokens for other in tokens if own != other]
        three = probe_three(model, steps=arguments.pick(81, 41, 11)) if counter.task.T > 3 else None
    except UnsupportedError as error:
        report.add_text(f"Not shown: {error}.")
        return
    probes = pd.concat(two, ignore_index=True)
    spread = probes.groupby("alpha")["answer"].agg(["min", "max", "mean"]).reset_index()
    report.add_table("mixtures_of_two", probes, "The answer by own token, other token and share.", max_rows=10)
    long = spread.melt("alpha", var_name="over the tokens", value_name="answer")
    report.add_figure(
        "mixtures_of_two",
        draw.lines(long, "alpha", "answer", "over the tokens", x_title=f"share of {_key(counter)} in the mixture"),
        "Least, greatest and mean answer over all pairs of tokens: do they matter, or the share alone?",
    )
    if three is not None:
        grid = three.pivot(index="own_share", columns="other_share", values="answer")
        label = [f"{share:.3f}" for share in grid.columns]
        report.add_table("mixtures_of_three", three, "The answer by the shares of token 1 (own) and 2.", max_rows=10)
        report.add_figure(
            "mixtures_of_three",
            draw.heatmap(grid.to_numpy(float), label, label, "share of token 2", "share of the own token 1", "answer"),
            "Mixtures of the tokens 1, 2 and 3 beside the own token 1.",
        )


def _key(counter: Counter) -> str:
    return "[BOS]" if counter.task.bos else "the own token"


def _logits(report: Report, model: interp.TaskModel, counter: Counter, arguments: Arguments) -> None:
    report.section("Logits by count (Figures 8 and 9)")
    tokens = [str(token) for token in range(min(arguments.pick(16, 6, 3), counter.task.T))]
    logits = logits_by_count(model, tokens)
    report.add_table("logits", logits, "Logits at the first position of [t, ..., t, v, ..., v].", max_rows=10)
    for token in tokens[:3]:
        part = logits[logits["token"] == token].assign(answer=lambda frame: "answer " + frame["answer"].astype(str))
        report.add_figure(
            f"logits_{token}",
            draw.lines(part, "count", "logit", "answer", x_title=f"times token {token} occurs", markers=True),
            f"Each answer's logit at a position of token {token}.",
        )


if __name__ == "__main__":
    run(study, __doc__, default="histogram/bos-softmax-exact")
