"""Which algorithm did each of many seeds learn? Five studies: count01, histogram, modular-addition, parity and first.

python analyses/many_seeds.py count01 [SEEDS] --out out/seeds [--quick | --smoke]

Trains SEEDS models of each cell (OUT/models/STUDY/CELL/seed-N.safetensors; those that are there are not trained
again), explains each, and puts them into classes by the program of their parts (interp.compare; OUT/compared/STUDY,
which goes on after a kill). count01: the recipe of count01/paper with 16, 8, 4 and 2 heads; do seeds that are right
differ in their algorithm from those that are wrong, and are their heads a pseudo-ensemble? histogram: six kinds of
model in a grid of d and p, and of them those that are right; relation or inventory? modular-addition: the recipe of
algorithmic/modular-addition; clock or pizza? parity and first: those of languages/parity-learned and
languages/first-learned; which algorithms hold at four times the length? Full: 200 seeds of the paper's size and 64 of
each smaller one, three of each cell, 30, and 50, unless SEEDS says how many. Quick: a few seeds. Smoke: two.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from shared.accuracy_over_lengths import accuracy_by_length
from shared.clock_or_pizza import clock_or_pizza
from shared.pseudo_ensembles import RIGHT, heads_alone, pseudo_ensembles
from shared.script import Arguments, run

import interp
from interp.errors import InterpError, check_one_of
from interp.families.histogram.constructions.models import histogram_spec
from interp.families.histogram.measures.relation_or_inventory import mechanism
from interp.families.histogram.theory.bounds import feasibility
from interp.models.model_files import find_spec
from interp.models.spec import ModelSpec
from interp.programs.explanations import Explanation
from interp.programs.many.compare import ComparedModels
from interp.programs.steps import Product, Step
from interp.programs.waves import Waves
from interp.report import Report
from interp.report.compared import GRADE_WORDS, comparison_page
from interp.tasks import make_task
from interp.tasks.scores import wilson

STUDIES = ("count01", "histogram", "modular-addition", "parity", "first")
HEADS = (16, 8, 4, 2)
GRID = (2, 4, 8, 16, 32, 64)
TOKENS = 32
"""Alphabet of the histogram models."""
MIXING = ("bos", "bos-softmax", "dot", "dot-softmax", "lin", "lin-softmax")
LONGER, STRINGS = 4, 1000
"""Recognizers are tried at this many times their length, on this many strings."""
TOGETHER = 16
"""Seeds that train together; a run that was killed trains its last ones again."""
PUBLISHED = Path(__file__).parent / "published" / "behrens_T32_L10_mean.csv"

Cell = tuple[str, ModelSpec, int]
"""The folder of a cell, its spec, and how many seeds it has."""


def cells(study: str, arguments: Arguments, seeds: int | None) -> Iterator[Cell]:
    """The cells of a study. seeds: how many each has, if not as many as the study says."""
    if study == "count01":
        spec = ModelSpec.from_toml(find_spec("count01/paper"))
        for heads in arguments.pick(HEADS, HEADS[:2], HEADS[1:2]):
            n = arguments.pick(200 if heads == HEADS[0] else 64, 6, 2)
            layer = spec.layers[0].model_copy(update={"n_heads": heads})
            yield f"heads={heads}", _short(spec.model_copy(update={"layers": (layer,)}), arguments), seeds or n
    elif study == "histogram":
        for kind in arguments.pick(MIXING, MIXING, MIXING[2:3]):
            for d, p in product(arguments.pick(GRID, (8, 32), (8,)), arguments.pick(GRID, (8, 32), (32,))):
                spec = ModelSpec.from_toml(find_spec(f"histogram/{kind}"))
                made = histogram_spec(kind, make_task(spec.task), d, p, origin=spec.origin)  # type: ignore[arg-type]
                yield f"kind={kind}/d={d}/p={p}", _short(made, arguments), seeds or arguments.pick(3, 1, 2)
    elif study == "modular-addition":
        spec = ModelSpec.from_toml(find_spec("algorithmic/modular-addition"))
        yield "as-shipped", _short(spec, arguments), seeds or arguments.pick(30, 3, 2)
    else:
        spec = ModelSpec.from_toml(find_spec(f"languages/{study}-learned"))
        yield "as-shipped", _short(spec, arguments), seeds or arguments.pick(50, 4, 2)


def _short(spec: ModelSpec, arguments: Arguments) -> ModelSpec:
    """The spec as it is; in a smoke run, trained for two epochs."""
    if arguments.mode != "smoke":
        return spec
    return spec.model_copy(update={"origin": spec.training.model_copy(update={"epochs": 2})})


def trained(folder: Path, spec: ModelSpec, n: int) -> list[Path]:
    """Train the seeds that have no checkpoint yet; return the files of all."""
    files = [folder / f"seed-{seed}.safetensors" for seed in range(n)]
    left = [seed for seed, file in enumerate(files) if not file.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for start in range(0, len(left), TOGETHER):
        for model in interp.train(spec, seeds=left[start : start + TOGETHER]):
            interp.save(model, files[model.seed])
    return files


def split_by_right(found: ComparedModels) -> pd.DataFrame:
    """How many models of each algorithm are right, and how many are not."""
    frame = found.to_frame("models")
    frame["right"] = frame["accuracy"] >= RIGHT
    return frame.groupby(["algorithm", "right"]).size().unstack(fill_value=0).reset_index()


def at_greater_length(found: ComparedModels) -> pd.DataFrame:
    """Of the models of each algorithm that are right at their length, those that are at LONGER times that."""
    models = [interp.load(row["model"]) for row in found.rows]
    length = LONGER * models[0].task.parameters["length"]
    tried = accuracy_by_length(models, [length], STRINGS)
    frame = found.to_frame("models")[["model", "algorithm", "accuracy"]].assign(longer=tried["accuracy"])
    rows = []
    for algorithm, part in frame.groupby("algorithm", sort=False):
        right = part[part["accuracy"] >= RIGHT]
        hold = int((right["longer"] >= RIGHT).sum())
        low, high = wilson(hold / len(right), len(right)) if len(right) else (float("nan"), float("nan"))
        rows.append((algorithm, len(part), len(right), length, hold, low, high, part["longer"].mean()))
    columns = ["algorithm", "models", "right", "length", "hold", "low", "high", "accuracy"]
    return pd.DataFrame(rows, columns=columns)


def clocks(found: ComparedModels) -> pd.DataFrame:
    """Each model's algorithm, the frequencies of its program, whether the program's waves fade with the distance of the
    two numbers (a pizza's do), and the two numbers that tell a clock from a pizza."""
    rows = []
    for row in found.rows:
        waves = [step for step in steps_of(row) if isinstance(step, Waves)]
        frequencies = sorted({k for step in waves for k in step.frequencies if k})  # 0 is a constant
        rows.append({
            "frequencies": " ".join(map(str, frequencies)), "n": len(frequencies),
            "fading": any(step.fading for step in waves), **clock_or_pizza(interp.load(row["model"])),
        })  # fmt: skip
    shown = ["model", "algorithm", "accuracy", "level"]
    return pd.concat([found.to_frame("models")[shown], pd.DataFrame(rows)], axis=1)


def steps_of(row: dict[str, Any]) -> tuple[Step, ...]:
    """The steps of a model's program; none without one."""
    program = Explanation.from_json(json.dumps(row["explanation"])).program
    return () if program is None else (*program.steps, program.answer)


# ---------------------------------------------------------------- histogram: relation or inventory


def by_program(row: dict[str, Any]) -> str:
    """Inventory: the program reads how often its own token is in what the head has read. Relation: it reads the head
    alone, so the attention must have told equal tokens from others."""
    steps = steps_of(row)
    own = any(isinstance(step, Product) and "token" in step.of for step in steps)
    return "no program" if not steps else "inventory" if own else "relation"


def phase_diagram(found: dict[str, ComparedModels], files: dict[str, list[Path]]) -> pd.DataFrame:
    """One row for each cell: the published accuracy and ours, what the paper's bounds allow, and how many models count
    in which way by their program, and by interventions (histogram.mechanism); of those with a program, of how many
    interventions say the same, and of how many they say "mixed"."""
    published = pd.read_csv(PUBLISHED).set_index(["model", "d", "p"])["value"] / 100
    read = {row["model"]: row for one in found.values() for row in one.rows}
    rows = []
    for cell, models in files.items():
        kind, d, p = (part.partition("=")[2] for part in cell.split("/"))
        right = [str(file) for file in models if str(file) in read]
        ways = [(by_program(read[name]), mechanism(interp.load(name)).verdict) for name in right]
        rows.append({
            "kind": kind, "d": int(d), "p": int(p),
            "published": published.get((kind.replace("-softmax", "+sftm"), int(d), int(p))),
            "accuracy": np.mean([interp.accuracy(interp.load(file), n=1000).accuracy for file in models]),
            "models": len(models), "right": len(right), "bounds": allowed(kind, int(d), int(p)),
            "by program": counted(program for program, _ in ways), "by interventions": counted(way for _, way in ways),
            "agree": sum(way == f"{program}-based" for program, way in ways),
            "mixed": sum(way == "mixed" for program, way in ways if program != "no program"),
        })  # fmt: skip
    return pd.DataFrame(rows)


def allowed(kind: str, d: int, p: int) -> str:
    """What the paper's printed bounds allow: a relation (one neuron), an inventory (a neuron for each token)."""
    bounds = feasibility(kind).set_index("p")["printed"].astype(float)
    ways = {"relation": bounds.fillna(np.inf)["1"], "inventory": bounds["T"] if p >= TOKENS else np.inf}
    return " or ".join(way for way, least in ways.items() if d >= least) or "neither"


def counted(words: Iterable[str]) -> str:
    return ", ".join(f"{n} {word}" for word, n in Counter(words).most_common())


# ---------------------------------------------------------------- the study


def study(arguments: Arguments) -> Report:
    name, seeds = asked(arguments)
    top, files, report = arguments.out / "models" / name, {}, Report(f"Which algorithm did each seed learn: {name}")
    for folder, spec, n in cells(name, arguments, seeds):
        files[folder] = trained(top / folder, spec, n)
    groups: dict[str, list[Path]] = {}
    for folder, models in files.items():
        right = [file for file in models if name != "histogram" or is_right(file)]
        groups.setdefault(folder.split("/")[0] if name == "histogram" else name, []).extend(right)
    found = {
        group: interp.compare(models, arguments.out / "compared" / group) for group, models in groups.items() if models
    }
    for group, one in found.items():
        pages(report, group, one)
        if name == "count01":
            models = one.to_frame("models")
            models = models[["heads", "model", "algorithm", "accuracy"]].join(heads_alone(models["model"]))
            report.add_table("heads", models, heads_alone.__doc__ or "")
            report.add_table("pseudo-ensembles", pseudo_ensembles(models), pseudo_ensembles.__doc__ or "")
        if name in ("parity", "first"):
            report.add_table(
                f"longer-{group}", at_greater_length(one),
                f"Models of each algorithm, those of them that are right, and those of these that are at {LONGER} "
                f"times the length, on {STRINGS} strings, with Wilson's 95% interval; accuracy: the mean of all there.",
            )  # fmt: skip
        if name == "modular-addition":
            report.add_table(
                "clock-or-pizza", clocks(one),
                "Distance irrelevance is high and gradient symmetry low in a clock, and the other way round in a pizza "
                "(Zhong et al. 2023).",
            )  # fmt: skip
    if name == "histogram":
        report.add_table(
            "phase-diagram", phase_diagram(found, files),
            "One row for each cell: the paper's mean accuracy and ours (on 1,000 inputs), what the paper's bounds "
            f"allow, and how many models with an accuracy of at least {RIGHT} count by relation or inventory.",
        )  # fmt: skip
    report.verdict = " ".join(one.title for one in found.values())
    return report


def asked(arguments: Arguments) -> tuple[str, int | None]:
    """The study, and the number of seeds in each cell if it is given."""
    name, *more = arguments.checkpoints
    if len(more) > 1 or not all(one.isdigit() and int(one) for one in more):
        raise InterpError(f"after the study, only a number of seeds is expected, not {' '.join(more)}")
    return check_one_of("study", name, STUDIES), int(more[0]) if more else None


def is_right(file: Path) -> bool:
    return interp.accuracy(interp.load(file), n=1000).accuracy >= RIGHT


def pages(report: Report, group: str, found: ComparedModels) -> None:
    """Add the tables and the figure of one comparison."""
    for key, table in comparison_page(found).tables.items():
        report.add_table(f"{key}-{group}", table, f"{key} of {group}.")
    report.add_table(
        f"right-{group}", split_by_right(found),
        f"Models of each algorithm with an accuracy of at least {RIGHT} (True), and below it (False); programs are one "
        f"algorithm if they are {GRADE_WORDS[found.grade]}.",
    )  # fmt: skip
    report.add_figure(f"algorithms-{group}", found.plot(), "Each model, by its algorithm.")


if __name__ == "__main__":
    run(study, __doc__, default="count01", what="study, and the number of seeds")
