"""Does interp.explain find the mechanisms of models whose mechanism is known by proof, and does it say false ones?

python analyses/explain_constructions.py --out out/explain_constructions [--quick | --smoke]

KNOWN lists, for each part of an exact construction, what is true of it: where it looks, what it moves, what it carries,
or that it is not needed. Whatever is said besides counts as false; a part may be known in several wordings. The verdict
says how many known things are found and how many false ones are said. Then models that have learned nothing: trained
models of the zoo at their initial weights, and with the entries of each weight shuffled. None may get a program.
Full: up to 1 minute per model; quick: 20 seconds; smoke: two small models.
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import torch

import interp
from interp.architecture.parameters import initialize
from interp.architecture.task_model import TaskModel
from interp.explanations import Explanation
from interp.report import Report
from interp.report.script import Arguments, run

TOKEN = "reads the attended token"
NUMBER = "reads the attended number along one direction"
ALIKE = "reads the same from every token of the string"
BEHIND = "looks at the tokens that followed earlier occurrences of the current one"
FOLLOWED = "carries the token that followed the most recent earlier occurrence of the current one"
LAST = "looks at the token that followed the most recent earlier occurrence of the current one"
SAME = "gives all occurrences of the current token one weight and everything else another"
OWN_COUNT = "carries how often the current token occurs"
WITH_TOKEN = f"{OWN_COUNT} and its own token"
EVEN = "looks evenly at everything it sees"
CUT = "cut"
FIXED = "looks by a fixed pattern, whatever the tokens"
DIGIT = "the next digit of the sum of the two numbers in base 10, carries included (least significant digit first)"
COLUMN, CARRY = "the sum of the two digits at the next place", "the carry into the next place"
COUNTER = {"looks": {SAME}, "carries": {OWN_COUNT, WITH_TOKEN}}
Known = dict[str, dict[str, set[str]]]
KNOWN: dict[str, Known] = {
    "algorithmic/max-of-k-exact": {
        "head 0.0": {"looks": {"looks at the largest number"}, "inside": {NUMBER, TOKEN},
                     "carries": {"carries the largest number"}},
    },
    "algorithmic/induction-exact": {
        "head 0.0": {"looks": {"looks at the previous token"}, "inside": {TOKEN},
                     "carries": {"carries the previous token"}},
        "head 0.1": {"status": {CUT}},
        "head 1.0": {"status": {CUT}},
        "head 1.1": {"looks": {BEHIND, LAST}, "inside": {TOKEN},
                     "carries": {FOLLOWED}},
    },
    "algorithmic/modular-addition-fourier": {
        "head 0.0": {"looks": {EVEN}, "inside": {TOKEN}, "carries": {"carries the sum of the numbers modulo 113"}},
    },
    "algorithmic/addition-exact": {
        "head 0.0": {"looks": {FIXED}, "inside": {NUMBER}, "carries": {f"carries {COLUMN}"}},
        "head 0.1": {"looks": {FIXED}, "inside": {NUMBER},
                     "carries": {"carries the sum of the two digits one place lower"}},
        "MLP 0": {"carries": {f"carries {DIGIT} and {COLUMN}", f"carries {COLUMN} and {CARRY}",
                              f"carries {COLUMN} and {DIGIT}", f"carries {DIGIT} and {CARRY}"}},
    },
    "count01/minimal": {
        "head 0.0": {"looks": {"looks by a fixed weight for each attended token"}, "inside": {TOKEN, NUMBER},
                     "carries": {"carries the number of 1s minus the number of 0s, rounded to 32 levels"}},
    },
    "languages/one": {"head 0.0": {"looks": {EVEN}, "inside": {TOKEN}, "carries": {"carries the number of 1s"}}},
    "languages/parity": {"head 0.0": {"looks": {EVEN}, "inside": {TOKEN}, "carries": {"carries the number of 1s"}}},
    "histogram/dot-exact": {"head 0.0": COUNTER | {"inside": {TOKEN, ALIKE}}},
    "histogram/bos-exact": {"head 0.0": COUNTER | {"inside": {TOKEN, ALIKE}}},
    "histogram/bos-softmax-exact": {"head 0.0": COUNTER | {"inside": {TOKEN, ALIKE}}},
    "histogram/lin-exact": {
        "head 0.0": {"looks": {EVEN}, "inside": {TOKEN}, "carries": {OWN_COUNT, WITH_TOKEN}},
    },
    "histogram/lin-softmax-exact": {
        "head 0.0": {"looks": {EVEN}, "inside": {TOKEN}, "carries": {OWN_COUNT, WITH_TOKEN}},
    },
}  # fmt: skip
SIZES = {"algorithmic/max-of-k-exact": {"K": 3, "v": 8}, "histogram/dot-exact": {"T": 6, "L": 5}}
"""Of the two models of a smoke run."""
LEARN_NOTHING = (
    "histogram/dot", "histogram/lin-softmax", "algorithmic/addition", "algorithmic/brackets", "algorithmic/induction",
    "algorithmic/max-of-k", "algorithmic/modular-addition", "languages/parity-learned", "languages/first-learned",
    "memorization/lookup",
)  # fmt: skip


def scored(found: Explanation, known: Known) -> list[dict[str, object]]:
    """A line for each thing that is known, and for each that is said of a known part and is not among them."""
    lines = []
    for part in found.parts:
        told = {"looks": part.looks, "inside": part.inside,
                "carries": part.carries if part.status == "explained" else None}  # fmt: skip
        for aspect in ("status", *told):
            true = known.get(part.part, {}).get(aspect, set())
            said = (CUT if part.status == CUT else None) if aspect == "status" else told[aspect]
            if true or (said and part.part in known):
                verdict = "found" if said in true else "false" if said else "not found"
                names = " / ".join(sorted(true))
                lines.append({"part": part.part, "aspect": aspect, "known": names, "said": said, "verdict": verdict})
    return lines


def broken(name: str) -> Iterator[dict[str, object]]:
    """A trained model's shape with its initial weights, and with shuffled ones."""
    trained = interp.load(name)
    generator = torch.Generator().manual_seed(0)
    shuffled = {
        name: weight.detach().flatten()[torch.randperm(weight.numel(), generator=generator)].view_as(weight)
        for name, weight in trained.named_parameters()
    }
    start = initialize(trained.spec, trained.task, seed=1)
    for weights, tensors in (("initial", start), ("shuffled", shuffled)):
        model = TaskModel(trained.spec, trained.task, tensors, seed=0)
        found = interp.explain(model, seconds=20.0)
        program = found.program.words if found.program else "none"
        yield {"model": name, "weights": weights, "program": program, "parts": len(found.parts), "said": found.sentence}


def study(arguments: Arguments) -> Report:
    small = arguments.mode == "smoke"
    rows = []
    for name in SIZES if small else KNOWN:
        found = interp.explain(
            interp.build(name, **SIZES[name] if small else {}), seconds=arguments.pick(60.0, 20.0, 20.0)
        )
        rows += [{"model": name, **line} for line in scored(found, KNOWN[name])]
    table = pd.DataFrame(rows)
    counts = table["verdict"].value_counts()
    blank = pd.DataFrame([line for name in LEARN_NOTHING[: 1 if small else None] for line in broken(name)])
    report = Report("Known mechanisms, found and false")
    report.section("Parts", "What is known of each part by proof, and what interp.explain says of it.")
    report.add_table("parts", table, "One row for each thing that is known or said.", max_rows=120)
    known, right, wrong = int((table["known"] != "").sum()), int(counts.get("found", 0)), int(counts.get("false", 0))
    report.section("Models that have learned nothing", "No program is the right answer here.")
    report.add_table("nothing", blank, "What interp.explain says of them.", max_rows=60)
    programs = int((blank["program"] != "none").sum())
    report.verdict = (
        f"{right} of {known} known parts are found, and {wrong} false ones are said. {programs} of {len(blank)} models "
        "that have learned nothing get a program."
    )
    return report


if __name__ == "__main__":
    run(study, __doc__)
