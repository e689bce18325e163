"""Of the small adders that pass a test of 10,010 random pairs, how many are right on all 10^20?

python analyses/adders.py --out out/adders [--quick | --smoke]
python analyses/adders.py 300 --out out/adders

Trains seeds of one shape (one layer, two rotary heads, RMS norms, 924 parameters), 20 of them if no number is given
(quick: 8; smoke: 2 of two-digit adders), tests each on 10,010 random pairs, as a public contest of small adders does,
and certifies each on every pair. Where they err is asked of pairs with long chains of carries, which random pairs
rarely have. A seed takes one to two minutes of a core. Models, and what is found of each, are kept in OUT/models: a
study that was interrupted goes on where it stopped. analyses/sweeps/adders.csv and adders_by_chain.csv are its tables.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from shared.script import Arguments, run

import interp
from interp.certificates import certify_model
from interp.errors import InterpError, UnsupportedError
from interp.families.algorithmic import Addition
from interp.measures.accuracy import generate, generation_accuracy
from interp.models.architecture.task_model import TaskModel
from interp.models.spec import MLP
from interp.report import Report
from interp.support import figures as draw
from interp.support.files import write_atomically

TESTED = 10_010
"""Random pairs of the contest's test."""
TOGETHER = 4
"""Seeds that train side by side, and whose work is lost together where the study is interrupted."""
LISTED = 100_000
"""So few pairs are all run."""
SAMPLES = 16_384
"""Pairs of an epoch."""
GROUPS = {True: "right on every pair", False: "not certified, but pass the test", None: "fail the test"}


def shape(digits: int, epochs: int) -> interp.ModelSpec:
    """One layer: two heads whose second pair of dimensions turns once in digits + 1 positions, 16 GELU neurons."""
    layer = interp.Layer(
        n_heads=2, d_head=4, norm="pre", norm_kind="rms", mlp=MLP(d_mlp=16, activation="gelu", bias=False)
    )
    recipe = interp.Training(
        data="fresh", samples_per_epoch=SAMPLES, batch_size=128, epochs=epochs, learning_rate=1e-2,
        final_learning_rate=1e-4, schedule="cosine", warmup_epochs=1, init="torch", embedding_std=0.3,
        betas=(0.9, 0.98),
    )  # fmt: skip
    return interp.ModelSpec(
        task=Addition(digits=digits, plus="0", equals="0", chains=0.25).ref,
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


def trained(spec: interp.ModelSpec, seeds: int, folder: Path) -> Iterator[TaskModel]:
    """The models of all seeds; those that lie in the folder are read, the others trained and put there."""
    for first in range(0, seeds, TOGETHER):
        together = range(first, min(first + TOGETHER, seeds))
        if group := [seed for seed in together if not path_of(folder, seed).exists()]:
            state = folder / f"training-{group[0]}-{group[-1]}"
            for model in interp.train(spec, seeds=group, folder=state, resume=True, progress=False):
                interp.save(model, path_of(folder, model.seed))
            shutil.rmtree(state)
        yield from (interp.load(path_of(folder, seed)) for seed in together)


def path_of(folder: Path, seed: int) -> Path:
    return folder / f"seed-{seed}.safetensors"


def judged(model: TaskModel, tested: int, pairs: int, folder: Path) -> tuple[dict[str, object], pd.DataFrame]:
    """The contest's test and what is true of all pairs, as a row; errors by length of chains. Kept in the folder."""
    note = path_of(folder, model.seed).with_suffix(".json")
    if not note.exists():
        found = {"row": tested_row(model, tested), "chains": by_chain(model, pairs).to_dict("records")}
        write_atomically(note, json.dumps(found, default=int))
    found = json.loads(note.read_text())
    return found["row"], pd.DataFrame(found["chains"])


def tested_row(model: TaskModel, tested: int) -> dict[str, object]:
    accuracy = generation_accuracy(model, n=tested, seed=1)
    wrong = round((1 - accuracy.generated.accuracy) * accuracy.generated.rows)
    row: dict[str, object] = {
        "seed": model.seed,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "digits right": accuracy.teacher_forced.accuracy,
        "pairs right": accuracy.generated.accuracy,
        "wrong in the test": wrong,
    }
    return row | on_every_pair(model, seconds=20 if wrong else 600)


def on_every_pair(model: TaskModel, seconds: float) -> dict[str, object]:
    """The verdict, how many pairs are wrong at least and at most, and the seconds it took."""
    n_inputs = model.task.n_inputs
    if n_inputs <= LISTED:
        wrong = sum(int((~generate(model, batch).right.all(1)).sum()) for batch in model.task.inputs())
        return {"status": "refuted" if wrong else "certified", "wrong at least": wrong, "wrong at most": wrong}
    try:
        found = certify_model(model, seconds=seconds)
    except UnsupportedError as error:
        return {"status": f"no certificate: {error}"}
    counted = found.tables["inputs"].iloc[0]
    return {
        "status": found.status,
        "wrong at least": counted["wrong at least"],
        "wrong at most": counted["wrong at most"],
        "worst margin": found.worst_margin,
        "counterexample": found.counterexample,
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


def asked_seeds(arguments: Arguments) -> int:
    if not arguments.checkpoint.isdecimal() or int(arguments.checkpoint) < 1:
        raise InterpError(f"{arguments.checkpoint} is not a number of seeds")
    return int(arguments.pick(int(arguments.checkpoint), 8, 2))


def study(arguments: Arguments) -> Report:
    seeds, digits = asked_seeds(arguments), arguments.pick(10, 10, 2)
    tested, epochs, pairs = arguments.pick((TESTED, 40, 20_000), (TESTED, 40, 5_000), (300, 1, 500))
    spec, folder = shape(digits, epochs), arguments.out / "models"
    found = [judged(model, tested, pairs, folder) for model in trained(spec, seeds, folder)]
    table = pd.DataFrame([row for row, _ in found])
    if "worst margin" in table:
        table["worst margin"] = table["worst margin"].where(table["status"] == "certified")
    chains = pd.concat([part for _, part in found]).merge(table[["seed", "wrong in the test", "status"]], on="seed")
    groups = (chains["status"] == "certified").where(chains["wrong in the test"] == 0, None)
    chains["adders"] = groups.map(GROUPS).fillna(GROUPS[None])
    mean = chains.groupby(["chain", "adders"], as_index=False)["wrong"].mean()

    n_inputs = Addition(**dict(spec.task.parameters)).n_inputs
    report = Report("Small adders: a test of random pairs, and every pair")
    report.verdict = verdict(table, tested, n_inputs)
    report.heading(
        "The test and every pair",
        f"{seeds} seeds of one shape, each trained on {epochs * SAMPLES:,} random pairs. The test: {tested:,} others, "
        "on which a model generates all digits of the sum. Every pair: a proof, or how many pairs are wrong.",
    )
    report.add_table("adders", table, "One row for each seed. A pair is right if every generated digit is.")
    report.heading(
        "Where they err",
        "Pairs with long chains of carries, given the right digits so far. The length of a chain is how many places a "
        "carry has come through: 0 without one, 1 where it is born one place before.",
    )
    for key, part, words in (
        ("passed", mean[mean["adders"] != GROUPS[None]], "pass the test"),
        ("failed", mean[mean["adders"] == GROUPS[None]], "fail the test"),
    ):
        if len(part):
            report.add_figure(
                key,
                draw.lines(part, "chain", "wrong", "adders", "length of the carry chain", "share of wrong digits"),
                f"Adders that {words}: the share of wrong digits by the length of the carry chain that ends in them, "
                "the mean over adders.",
            )
    report.add_table("by_chain", chains, "The same as numbers, adder by adder.", max_rows=24)
    return report


if __name__ == "__main__":
    run(study, __doc__, default="20", what="how many seeds")
