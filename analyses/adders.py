"""Of the small adders that pass a test of 10,010 random pairs, how many are right on all 10^20?

python analyses/adders.py --out out/adders [--quick | --smoke]

Trains seeds of one shape (one layer, two rotary heads, RMS norms, 924 parameters), as many as fit in a few hours (300;
quick: 8; smoke: 2 of two-digit adders), tests each on 10,010 random pairs, as a public contest of small adders does,
and certifies each on every pair. Where they err is asked of pairs with long chains of carries, which random pairs
rarely have. Models are kept in OUT/models: a study that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pandas as pd

import interp
from interp.architecture.task_model import TaskModel
from interp.certificates import certify_model
from interp.errors import UnsupportedError
from interp.measures.generation import generate, generation_accuracy
from interp.report import Report
from interp.report import figures as draw
from interp.report.script import Arguments, run
from interp.spec import MLP
from interp.tasks import Addition

TESTED = 10_010
"""Random pairs of the contest's test."""
TOGETHER = 4
"""Seeds that train side by side, and whose work is lost together where the study is interrupted."""
LISTED = 100_000
"""So few pairs are all run."""


def shape(digits: int, epochs: int) -> interp.ModelSpec:
    """One layer: two heads whose second pair of dimensions turns once in digits + 1 positions, 16 GELU neurons."""
    layer = interp.Layer(
        n_heads=2, d_head=4, norm="pre", norm_kind="rms", mlp=MLP(d_mlp=16, activation="gelu", bias=False)
    )
    recipe = interp.Training(
        data="fresh", samples_per_epoch=8192, batch_size=64, epochs=epochs, learning_rate=1e-2,
        final_learning_rate=1e-2 / 30, schedule="cosine", warmup_epochs=1, init="torch", embedding_std=0.3,
        betas=(0.9, 0.98),
    )  # fmt: skip
    return interp.ModelSpec(
        task=Addition(digits=digits, plus="0", equals="0").ref,
        d_model=12,
        layers=(layer,),
        positions="rotary",
        positions_enter="attention",
        rotary_base=round(((digits + 1) / (2 * math.pi)) ** 2, 4),
        final_norm="rms_norm",
        tied_embeddings=True,
        readout_bias=False,
        origin=recipe,
    )


def trained(spec: interp.ModelSpec, seeds: int, folder: Path) -> list[TaskModel]:
    """The models of all seeds; those that lie in the folder are read, the others trained and put there."""
    for first in range(0, seeds, TOGETHER):
        group = [seed for seed in range(first, min(first + TOGETHER, seeds)) if not path_of(folder, seed).exists()]
        if not group:
            continue
        state = folder / f"training-{group[0]}-{group[-1]}"
        for model in interp.train(spec, seeds=group, folder=state, resume=True, progress=False):
            interp.save(model, path_of(folder, model.seed))
        shutil.rmtree(state)
    return [interp.load(path_of(folder, seed)) for seed in range(seeds)]


def path_of(folder: Path, seed: int) -> Path:
    return folder / f"seed-{seed}.safetensors"


def judged(model: TaskModel, tested: int) -> dict[str, object]:
    """One row: the contest's test, and what is true of all pairs."""
    accuracy = generation_accuracy(model, n=tested, seed=1)
    wrong = round((1 - accuracy.generated.accuracy) * accuracy.generated.rows)
    row: dict[str, object] = {
        "seed": model.seed,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "digits right": accuracy.teacher_forced.accuracy,
        "pairs right": accuracy.generated.accuracy,
        "wrong in the test": wrong,
    }
    return row | on_every_pair(model)


def on_every_pair(model: TaskModel) -> dict[str, object]:
    """The verdict, how many pairs are wrong at least and at most, and the seconds it took."""
    n_inputs = model.task.n_inputs
    if n_inputs <= LISTED:
        wrong = sum(int((~generate(model, batch).right.all(1)).sum()) for batch in model.task.inputs())
        return {"status": "refuted" if wrong else "certified", "wrong at least": wrong, "wrong at most": wrong}
    try:
        found = certify_model(model)
    except UnsupportedError as error:
        return {"status": f"no certificate: {error}"}
    counted = found.tables["inputs"].iloc[0]
    return {
        "status": found.status,
        "wrong at least": counted["wrong at least"],
        "wrong at most": counted["wrong at most"],
        "worst margin": found.worst_margin,
        "seconds": found.seconds,
    }


def by_chain(model: TaskModel, pairs: int) -> pd.DataFrame:
    """The share of wrong digits by how far the carry into them has come, on pairs with long chains."""
    parameters = {**model.task.parameters, "chains": 1.0}
    batch = Addition(**parameters).sample(pairs, "train", seed=2)
    right = generate(model, batch).teacher_forced
    length = model.task.features(batch)["chain_length"][:, model.task.read_places]
    table = pd.DataFrame({"chain": length.flatten().numpy(), "wrong": (~right).flatten().double().numpy()})
    found = table.groupby("chain")["wrong"].agg(["mean", "size"]).reset_index()
    return found.rename(columns={"mean": "wrong", "size": "digits"}).assign(seed=model.seed)


def verdict(table: pd.DataFrame, tested: int, n_inputs: int) -> str:
    """What the table says, in one sentence for the test and one for every pair."""
    passed = table[table["wrong in the test"] == 0]
    counts = passed["status"].map(lambda status: status.split(":")[0]).value_counts()
    parts = [
        f"{counts[status]} {words}"
        for status, words in (
            ("certified", f"certified right on all {n_inputs:,}"),
            ("refuted", "refuted"),
            ("undecided", "undecided"),
            ("no certificate", "without a certificate"),
        )
        if status in counts
    ]
    adders = f"{len(table)} adder{'s' * (len(table) != 1)} of {table['parameters'].iloc[0]} parameters"
    first = f"Of {adders}, {len(passed)} make no mistake on {tested:,} random pairs"
    return f"{first}." if passed.empty else f"{first}. Of these, {', '.join(parts)}."


def study(arguments: Arguments) -> Report:
    seeds, digits = arguments.pick(300, 8, 2), arguments.pick(10, 10, 2)
    tested, epochs = arguments.pick(TESTED, TESTED, 300), arguments.pick(80, 80, 1)
    spec = shape(digits, epochs)
    models = trained(spec, seeds, arguments.out / "models")
    table = pd.DataFrame([judged(model, tested) for model in models])
    chains = pd.concat([by_chain(model, arguments.pick(20_000, 5_000, 500)) for model in models])
    chains = chains.merge(table[["seed", "wrong in the test"]], on="seed")
    chains["adders"] = chains["wrong in the test"].eq(0).map({True: "pass the test", False: "fail the test"})
    mean = chains.groupby(["chain", "adders"], as_index=False)["wrong"].mean()

    n_inputs = models[0].task.n_inputs
    report = Report("Small adders: a test of random pairs, and every pair")
    report.verdict = verdict(table, tested, n_inputs)
    report.section(
        "The test and every pair",
        f"{seeds} seeds of one shape, each trained on {epochs * 8192:,} random pairs. The test: {tested:,} others, "
        "on which a model generates all digits of the sum. Every pair: a proof, or how many pairs are wrong.",
    )
    report.add_table("adders", table, "One row for each seed. A pair is right if every generated digit is.")
    report.section(
        "Where they err",
        "Pairs with long chains of carries, given the right digits so far. The length of a chain is how many places a "
        "carry has come through: 0 without one, 1 where it is born one place before.",
    )
    report.add_figure(
        "chains",
        draw.lines(mean, "chain", "wrong", "adders", "length of the carry chain", "share of wrong digits"),
        "The share of digits that are wrong, by the length of the carry chain that ends in them: the mean over adders.",
    )
    report.add_table("by_chain", chains, "The same as numbers, adder by adder.", max_rows=24)
    return report


if __name__ == "__main__":
    run(study, __doc__)
