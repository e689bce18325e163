"""Relation or inventory: which mechanism do models learn where both are possible? (Figure 6's question)

python analyses/counting_mechanisms.py --out out/mechanisms [--quick | --smoke]

Looks at all trained histogram models that are found, and trains dot, bos and bos-softmax with as many neurons and
dimensions as either mechanism needs. Full: T = 32, L = 10, d = p = 64, 10 seeds, 500 epochs. Quick: T = 16, L = 6,
d = p = 32, 5 seeds, 100 epochs. Smoke: T = 6, L = 4, one seed.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from shared.script import Arguments, run

import interp
from interp.families.histogram import Histogram
from interp.families.histogram.constructions.models import histogram_spec
from interp.families.histogram.measures.counting import readout_spectrum
from interp.families.histogram.measures.relation_or_inventory import mechanism, neuron_selectivity, tokens_per_neuron
from interp.families.histogram.theory.ranges import MixingKind
from interp.models.spec import Training
from interp.report import Report
from interp.support import figures as draw

EITHER: tuple[MixingKind, ...] = ("dot", "bos", "bos-softmax")


def study(arguments: Arguments) -> Report:
    report = Report("Relation or inventory?")
    shipped = [name for name, kind, family, seeds in _models() if kind == "trained" and family == "histogram" and seeds]
    if shipped:
        report.heading("Models that are here")
        report.add_table(
            "models",
            pd.DataFrame([_row(name, interp.load(name)) for name in shipped]),
            "Every trained histogram model.",
        )
        report.add_figure(
            "spectra",
            draw.lines(_spectra(shipped), "index", "value", "model", y_title="singular value", y_type="log"),
            "Singular values of the readout's first matrix, from the largest, of every trained histogram model (Figure "
            "6): an inventory falls after the T-th. Values below a millionth of the largest are left out.",
        )
    exact = [name for name, kind, family, _ in _models() if kind == "exact" and family == "histogram"]
    report.heading("Exact models", "What each is follows from its proof; the verdict must agree.")
    T, L = arguments.pick(32, 32, 6), arguments.pick(10, 10, 4)
    rows = [_row(name, interp.build(name, T=T, L=L)) for name in exact]
    report.add_table("exact", pd.DataFrame(rows), "The default variants.")
    learned = pd.DataFrame([row for name in EITHER for row in _trained(name, arguments)])
    report.heading("Learned where both are possible")
    report.add_table("learned", learned, "One row for each model and seed.", max_rows=60)
    report.add_figure(
        "conflict",
        draw.scatter(
            learned, "by contents", "by weights", "model",
            x_title="answer follows the contents", y_title="answer follows the weights",
        ),
        "Weights and contents of the mixture stand for different counts: which does the answer follow? Relations lie "
        "at (0, 1), inventories at (1, 0).",
    )  # fmt: skip
    report.add_figure(
        "dip",
        draw.scatter(learned, "relation", "dip", "model", y_title="dip of the singular values after the T-th"),
        "The singular values of the readout's first matrix against the causal evidence (relation: 1 relation-based, 0 "
        "inventory-based).",
    )
    counted = learned[learned["mechanism"] != "does not count"]
    parts = [
        f"{name}: " + ", ".join(f"{n} {verdict}" for verdict, n in part["mechanism"].value_counts().items())
        + f" (mean relation {part['relation'].mean():.2f})"
        for name, part in counted.groupby("model", sort=False)
    ]  # fmt: skip
    report.verdict = f"Of {len(learned)} models trained with room for either mechanism, {len(counted)} count. " + (
        "; ".join(parts) + "." if parts else ""
    )
    return report


def _models() -> list[tuple[str, str, str, tuple[int, ...]]]:
    table = interp.list_models()
    return list(zip(table["name"], table["kind"], table["family"], table["seeds"]))


def _trained(name: MixingKind, arguments: Arguments) -> list[dict[str, Any]]:
    pick = arguments.pick
    task = Histogram(T=pick(32, 16, 6), L=pick(10, 6, 4), bos=name.startswith("bos"), zero_class=True)
    recipe = Training(
        epochs=pick(500, 100, 40), batch_size=32, data="fresh", samples_per_epoch=pick(10_000, 5_000, 2_000),
        betas=(0.9, 0.98), eps=1e-9, init="torch",
    )  # fmt: skip
    width = pick(64, 32, 12)
    spec = histogram_spec(name, task, width, width, origin=recipe)
    models = interp.train(spec, seeds=range(pick(10, 5, 1)))
    return [{"model": name, "seed": model.seed, **_facts(model)} for model in models]


def _spectra(names: list[str]) -> pd.DataFrame:
    """Columns model, index, value."""
    frames = []
    for name in names:
        frame = readout_spectrum(interp.load(name)).to_frame()
        frames.append(frame[frame["value"] > 1e-6 * frame["value"].max()].assign(model=name))
    return pd.concat(frames, ignore_index=True)


def _row(name: str, model: interp.TaskModel) -> dict[str, Any]:
    return {"model": name, **_facts(model)}


def _facts(model: interp.TaskModel) -> dict[str, Any]:
    found = mechanism(model)
    return {
        "accuracy": found.accuracy,
        "mechanism": found.verdict,
        "relation": found.relation,
        "by weights": found.by_weights,
        "by contents": found.by_contents,
        "explained": found.explained,
        "own loss": found.own_loss,
        "other loss": found.other_loss,
        "dip": readout_spectrum(model).dip,
        "tokens per neuron": tokens_per_neuron(neuron_selectivity(model)),
    }


if __name__ == "__main__":
    run(study, __doc__)
