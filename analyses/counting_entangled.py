"""How does dot count with fewer dimensions than tokens? (Behrens et al. 2024, Figure 7: T = 64, L = 10, p = 128)

python analyses/counting_entangled.py --out out/entangled [--quick | --smoke]

Trains one model per d and shows its confusion matrix and how its embeddings overlap. Full: d = 8, 16, 32, 64, 500
epochs. Quick: d = 8 and 32, 60 epochs. Smoke: d = 8, 2 short epochs.
"""

from __future__ import annotations

import pandas as pd
from shared.script import Arguments, run

import interp
from interp.families.histogram import Histogram
from interp.families.histogram.constructions.models import histogram_spec
from interp.families.histogram.measures.counting import confusion, embedding_overlaps
from interp.models.spec import Training
from interp.report import Report
from interp.support import figures as draw


def study(arguments: Arguments) -> Report:
    widths = {"full": (8, 16, 32, 64), "quick": (8, 32), "smoke": (8,)}[arguments.mode]
    recipe = Training(
        epochs=arguments.pick(500, 60, 2), batch_size=32, data="fresh",
        samples_per_epoch=arguments.pick(10_000, 10_000, 1_000), betas=(0.9, 0.98), eps=1e-9, init="torch",
    )  # fmt: skip
    report, rows = Report("Entangled embeddings"), []
    for d in widths:
        task = Histogram(T=64, zero_class=True)
        (model,) = interp.train(histogram_spec("dot", task, d, 128, origin=recipe))
        overlaps = embedding_overlaps(model)
        different = overlaps[overlaps["relation"] == "different"]["cosine"]
        accuracy = 100 * float(model.history["accuracy"].iloc[-1])
        rows.append((d, accuracy, different.mean(), different.std(), different.abs().max()))
        report.heading(f"d = {d}")
        report.add_table(f"confusion_{d}", confusion(model), "True counts against predicted ones.")
        report.add_figure(
            f"overlaps_{d}",
            draw.lines(_histogram(different), "cosine", "share", x_title="cosine of two tokens' embeddings"),
            "How the embeddings of different tokens overlap (the same token's cosine is 1).",
        )
    table = pd.DataFrame(rows, columns=["d", "accuracy", "mean_cosine", "std_cosine", "largest_cosine"])
    report.heading("All widths")
    report.add_table("entangled", table, "Accuracy in percent; cosines of the embeddings of different tokens.")
    report.verdict = "; ".join(
        f"d = {row.d}: accuracy {row.accuracy:.1f}%, cosines {row.mean_cosine:.2f} +- {row.std_cosine:.2f}"
        for row in table.itertuples()
    )
    return report


def _histogram(values: pd.Series) -> pd.DataFrame:
    counts = pd.cut(values, 41).value_counts(sort=False, normalize=True)
    return pd.DataFrame({"cosine": [interval.mid for interval in counts.index], "share": counts.to_numpy()})


if __name__ == "__main__":
    run(study, __doc__)
