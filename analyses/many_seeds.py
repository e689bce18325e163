"""Which algorithm did each of many seeds learn? Four studies: count01, histogram, modular-addition and languages.

python analyses/many_seeds.py count01 --out out/seeds [--quick | --smoke]

Trains the models (OUT/models/STUDY/CELL/seed-N.safetensors; those that are there are not trained again), explains each,
and puts them into classes by the program of their parts (interp.compare; OUT/compared/STUDY, which goes on after a
kill). count01: the recipe of count01/paper with 16, 8, 4 and 2 heads; do seeds that are right differ in their algorithm
from those that are wrong? histogram: six kinds of model in a grid of d and p. modular-addition: the recipe of
algorithmic/modular-addition; clock or pizza? languages: those of languages/parity-learned and languages/first-learned;
which algorithms hold at four times the length? Full: 200 seeds of the paper's size and 64 of each smaller one, three of
each cell, 30, and 50. Quick: a few seeds. Smoke: two.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from shared.accuracy_over_lengths import accuracy_by_length
from shared.clock_or_pizza import clock_or_pizza
from shared.script import Arguments, run

import interp
from interp.errors import InterpError, check_one_of
from interp.families.histogram.constructions.models import histogram_spec
from interp.models.model_files import find_spec
from interp.models.spec import ModelSpec
from interp.programs.many.compare import ComparedModels
from interp.report import Report
from interp.report.compared import GRADE_WORDS, comparison_page
from interp.tasks import make_task
from interp.tasks.populations import wilson

STUDIES = ("count01", "histogram", "modular-addition", "languages")
HEADS = (16, 8, 4, 2)
GRID = (2, 4, 8, 16, 32, 64)
MIXING = ("bos", "bos-softmax", "dot", "dot-softmax", "lin", "lin-softmax")
RIGHT = 0.99
"""Accuracy from which on a seed counts as right."""
LONGER, STRINGS = 4, 1000
"""Recognizers are tried at this many times their length, on this many strings."""
TOGETHER = 16
"""Seeds that train together; a run that was killed trains its last ones again."""

Cell = tuple[str, ModelSpec, int]


def cells(study: str, arguments: Arguments) -> Iterator[Cell]:
    """The cells of a study: the folder, the spec and the number of seeds."""
    if study == "count01":
        spec = ModelSpec.from_toml(find_spec("count01/paper"))
        for heads in arguments.pick(HEADS, HEADS[:2], HEADS[1:2]):
            n = arguments.pick(200 if heads == HEADS[0] else 64, 6, 2)
            layer = spec.layers[0].model_copy(update={"n_heads": heads})
            yield f"heads={heads}", _short(spec.model_copy(update={"layers": (layer,)}), arguments), n
    elif study == "histogram":
        for kind in arguments.pick(MIXING, MIXING[2:4], MIXING[2:3]):
            for d in arguments.pick(GRID, (8, 32), (8,)):
                for p in arguments.pick(GRID, (8, 32), (32,)):
                    spec = ModelSpec.from_toml(find_spec(f"histogram/{kind}"))
                    task = make_task(spec.task)
                    made = histogram_spec(kind, task, d, p, origin=spec.origin)  # type: ignore[arg-type]
                    yield f"kind={kind}/d={d}/p={p}", _short(made, arguments), arguments.pick(3, 2, 2)
    elif study == "modular-addition":
        spec = ModelSpec.from_toml(find_spec("algorithmic/modular-addition"))
        yield "as-shipped", _short(spec, arguments), arguments.pick(30, 3, 2)
    else:
        for name in ("parity-learned", "first-learned"):
            spec = ModelSpec.from_toml(find_spec(f"languages/{name}"))
            yield name, _short(spec, arguments), arguments.pick(50, 4, 2)


def _short(spec: ModelSpec, arguments: Arguments) -> ModelSpec:
    """The spec as it is; in a smoke run, trained for two epochs."""
    if arguments.mode != "smoke":
        return spec
    return spec.model_copy(update={"origin": spec.training.model_copy(update={"epochs": 2})})


def trained(folder: Path, spec: ModelSpec, n: int) -> None:
    """Train the seeds that have no checkpoint yet."""
    files = {seed: folder / f"seed-{seed}.safetensors" for seed in range(n)}
    left = [seed for seed, file in files.items() if not file.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for start in range(0, len(left), TOGETHER):
        for model in interp.train(spec, seeds=left[start : start + TOGETHER]):
            interp.save(model, files[model.seed])


def split_by_right(found: ComparedModels) -> pd.DataFrame:
    """How many models of each algorithm are right, and how many are not."""
    frame = found.to_frame("models")
    frame["right"] = frame["accuracy"] >= RIGHT
    return frame.groupby(["algorithm", "right"]).size().unstack(fill_value=0).reset_index()


def at_greater_length(found: ComparedModels, folder: Path) -> pd.DataFrame:
    """Of the models of each algorithm that are right at their length, those that are at LONGER times that."""
    models = [interp.load(folder / f"{row['model']}.safetensors") for row in found.rows]
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


def clocks(found: ComparedModels, folder: Path) -> pd.DataFrame:
    """Each model's algorithm, and the two numbers that tell a clock from a pizza."""
    numbers = [clock_or_pizza(interp.load(folder / f"{row['model']}.safetensors")) for row in found.rows]
    return pd.concat([found.to_frame("models")[["model", "algorithm", "accuracy"]], pd.DataFrame(numbers)], axis=1)


def study(arguments: Arguments) -> Report:
    name = check_one_of("study", arguments.checkpoint, STUDIES)
    folders = {folder: (spec, n) for folder, spec, n in cells(name, arguments)}
    top = arguments.out / "models" / name
    for folder, (spec, n) in folders.items():
        trained(top / folder, spec, n)
    tasks = {spec.task for spec, _ in folders.values()}
    of = {f"{name}/{folder}": top / folder for folder in folders} if len(tasks) > 1 else {name: top}
    pages = {folder: compared(arguments, task, folder) for task, folder in of.items()}  # one for each task
    report = Report(f"Which algorithm did each seed learn: {name}")
    report.verdict = " ".join(page.title for page in pages.values())
    for folder, page in pages.items():
        made = comparison_page(page)
        for key, table in made.tables.items():
            report.add_table(f"{key}-{page.rows[0]['task']}", table, f"{key} of task {page.rows[0]['task']}.")
        report.add_table(
            f"right-{page.rows[0]['task']}", split_by_right(page),
            f"Models of each algorithm with an accuracy of at least {RIGHT} (True), and below it (False); programs are "
            f"one algorithm if they are {GRADE_WORDS[page.grade]}.",
        )  # fmt: skip
        task = page.rows[0]["task"]
        if name == "languages":
            report.add_table(
                f"longer-{task}", at_greater_length(page, folder),
                f"Models of each algorithm, those of them that are right, and those of these that are at {LONGER} "
                f"times the length, on {STRINGS} strings, with Wilson's 95% interval; accuracy: the mean of all there.",
            )  # fmt: skip
        if name == "modular-addition":
            report.add_table(
                "clock-or-pizza", clocks(page, folder),
                "Distance irrelevance is high and gradient symmetry low in a clock, and the other way round in a pizza "
                "(Zhong et al. 2023).",
            )  # fmt: skip
        report.add_figure(f"algorithms-{page.rows[0]['task']}", page.plot(), "Each model, by its algorithm.")
    return report


def compared(arguments: Arguments, name: str, folder: Path) -> ComparedModels:
    if not folder.is_dir():
        raise InterpError(f"no model was trained in {folder}")
    return interp.compare(folder, arguments.out / "compared" / name)


if __name__ == "__main__":
    run(study, __doc__, default="count01", what="study")
