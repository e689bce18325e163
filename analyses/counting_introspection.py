"""Inside a counting model: attention, artificial mixtures and logits (Figures 3, 4, 5, 8, 9 and 15 of Behrens et al.).

python analyses/counting_introspection.py histogram/bos-softmax-exact --out out/inside [--quick | --smoke]

The report's sections on counting, and mixtures of all pairs of four tokens. Full: logits for 16 tokens and mixtures on
fine grids. Quick: 6 tokens. Smoke: 3 tokens and coarse grids.
"""

from __future__ import annotations

import pandas as pd
from shared.script import Arguments, run

import interp
from interp.families.histogram.measures.counting import CountingModel, probe_two
from interp.report import Report
from interp.support import figures as draw

WANTED = ("counting_attention", "counting_mechanism", "counting_logits", "counting_probes")


def study(arguments: Arguments) -> Report:
    name = arguments.checkpoint
    known = interp.analyze(name, sections=["accuracy"]).sections.set_index("section")["status"]
    options = {"counting_logits": {"tokens": arguments.pick(16, 6, 3)}}
    wanted = [section for section in WANTED if known[section] == "applies"] or list(WANTED)
    report = interp.analyze(name, sections=wanted, options=options)
    if "counting_probes" in wanted:
        _mixtures(report, CountingModel.of(interp.load(name)), arguments.pick(201, 101, 21))
    return report


def _mixtures(report: Report, counter: CountingModel, steps: int) -> None:
    report.heading("Mixtures of two tokens (Figures 3, 4, 5 and 15)")
    tokens = [str(token) for token in range(min(4, counter.task.T))]
    two = [probe_two(counter, own, other, steps) for own in tokens for other in tokens if own != other]
    probes = pd.concat(two, ignore_index=True)
    spread = probes.groupby("alpha")["answer"].agg(["min", "max", "mean"]).reset_index()
    report.add_table("mixtures_of_two", probes, "The answer by own token, other token and share.", max_rows=10)
    long = spread.melt("alpha", var_name="over the tokens", value_name="answer")
    key = "[BOS]" if counter.task.bos else "the own token"
    report.add_figure(
        "mixtures_of_two",
        draw.lines(long, "alpha", "answer", "over the tokens", x_title=f"share of {key} in the mixture"),
        "Least, greatest and mean answer over all pairs of tokens: do they matter, or the share alone?",
    )


if __name__ == "__main__":
    run(study, __doc__, default="histogram/bos-softmax-exact")
