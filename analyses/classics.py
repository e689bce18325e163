"""What is published about max-of-K, modular addition and induction, beside our trained models.

python analyses/classics.py --out out/classics [--quick | --smoke]

Modular addition (Nanda et al. 2023): a few key frequencies in embedding and readout, and logits that are a sum of
cos(2 pi k (a + b - c) / p) at these. Max-of-K (Gross et al. 2024): scores that grow with the number, and values that
copy it. Induction (Olsson et al. 2022): a head that attends to the token before feeds, through its keys, a head that
attends behind the last occurrence of its own token. Quick and smoke: fewer sequences.
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import torch
from shared.script import Arguments, run

import interp
from interp.families.algorithmic import Induction
from interp.measures.circuits import composition_scores, number_circuits
from interp.measures.edges import path_patching
from interp.measures.embeddings import output_spectra, spectra
from interp.report import Report
from interp.tasks import Batch, Pairs

KEY_POWER = 0.05
"""A frequency with at least this share of the readout's power is a key frequency."""


def modular_addition(name: str) -> pd.DataFrame:
    """Power of embedding and readout, and share of the logits, at the key frequencies, then at all others together."""
    model = interp.load(name)
    table = spectra(model)
    (pairs,) = model.task.inputs(chunk=model.task.n_inputs)
    shares = output_spectra(model, pairs).set_index("frequency")["power"]
    wide = table.pivot_table(index="frequency", columns="what", values="power")
    key = sorted(wide.index[wide["readout"] >= KEY_POWER])
    rows = [(str(k), wide["embedding"][k], wide["readout"][k], shares[k]) for k in key]
    rest = [k for k in wide.index if k not in key]
    rows.append(
        ("all others", wide["embedding"][rest].sum(), wide["readout"][rest].sum(), sum(shares[k] for k in rest))
    )
    return pd.DataFrame(rows, columns=["frequency", "embedding", "readout", "logits"])


def max_of_k(names: list[str]) -> pd.DataFrame:
    """How often the score of '=' grows from one number to the next, and for how many numbers OV raises it most."""
    rows = []
    for name in names:
        (head,) = number_circuits(interp.load(name)).itertuples()
        rows.append((name, head.grows, head.range, head.copied))
    return pd.DataFrame(rows, columns=["model", "score grows", "score range", "copied"])


def induction(name: str, rows: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Where each head looks, how first-layer heads compose with it, and path patching between heads.

    The token before: where a token stands for the first time, which is where it is looked for later. Behind the same:
    where the answer is determined, to all positions behind an earlier same token.
    """
    model = interp.load(name)
    batch = model.task.sample(rows, seed=5)
    with torch.no_grad():
        _, cache = model.run_with_cache(batch.tokens)
    last, place = model.task.last_seen(batch.tokens), torch.arange(batch.tokens.shape[1])
    first, (asked, query) = (last < 0) & (place > 1), (last >= 0).nonzero(as_tuple=True)
    behind = batch.tokens[:, None, :-1] == batch.tokens[:, 1:, None]
    behind = torch.nn.functional.pad(behind & (place[:-1] < place[1:, None]), (1, 0, 1, 0))[asked, query]
    string, new = first.nonzero(as_tuple=True)
    looks = []
    for layer in range(2):
        for head, pattern in enumerate(cache["pattern", layer].transpose(0, 1)):
            before, after = pattern[string, new, new - 1].mean(), (pattern[asked, query] * behind).sum(-1).mean()
            looks.append((f"head {layer}.{head}", float(before), float((1 / (new + 1.0)).mean()), float(after),
                          float((behind.sum(-1) / (query + 1.0)).mean())))  # fmt: skip
    columns = ["head", "token before", "token before, uniform", "behind the same", "behind the same, uniform"]
    between = composition_scores(model).to_frame()
    for kind, pairs in exchanged(model.task, batch).items():
        names = {"sender": "writer", "receiver": "reader", "recovered": kind}
        between = between.merge(path_patching(model, pairs).to_frame().rename(columns=names), on=["writer", "reader"])
    return pd.DataFrame(looks, columns=columns), between


def exchanged(task: Induction, batch: Batch) -> dict[str, Pairs]:
    """Pairs in which two tokens of the string change places, by what is asked: place (one of the two: where it stands
    tells the answer) and content (another: one of the two stands behind it)."""
    pairs = task.corrupt(batch, seed=1)
    clean, other = pairs.clean.tokens, pairs.corrupted.tokens
    moved = (clean[:, :, None] == clean.masked_fill(clean == other, -1)[:, None]).any(-1)
    found = {}
    for kind, asked in {"place": moved, "content": ~moved}.items():
        sides = (replace(side, labels=side.labels.masked_fill(~asked, -1)) for side in (pairs.clean, pairs.corrupted))
        found[kind] = Pairs(*sides)
    return found


def study(arguments: Arguments) -> Report:
    addition = modular_addition("algorithmic/modular-addition")
    largest = max_of_k([f"algorithmic/max-of-k{kind}/seed-{i}" for kind in ("", "-positions") for i in range(2)])
    where, between = induction("algorithmic/induction", arguments.pick(96, 48, 12))
    report = Report("Four classics, beside what is published")
    report.heading("Modular addition", "Shares of power at the key frequencies, and of the variance of the logits.")
    report.add_table("frequencies", addition, "Published: five key frequencies, 14, 35, 41, 42 and 52, in their model.")
    report.heading("Max-of-K", "The score of '=' for each number, and which answer attending to a number raises most.")
    report.add_table("max_of_k", largest, "Score grows: share of steps from one number to the next at which it does.")
    report.heading("Induction", "Mean attention where the answer is determined; composition and path patching.")
    report.add_table(
        "attention",
        where,
        "Shares of attention. The token before: where a token stands for the first time. Behind the same: where the "
        "answer is determined, to all positions behind an earlier same token. Uniform: of a head without preference.",
    )
    report.add_table(
        "between_heads", between,
        "Composition scores, and path patching on pairs in which two tokens of the string change places: what the one "
        "edge recovers (0 as corrupted, 1 as clean), place: where one of the two is asked about, content: where one "
        "of the two is the answer.",
    )  # fmt: skip
    key = addition["frequency"].tolist()[:-1]
    best = between.loc[between["place"].idxmax()]
    share = where.set_index("head")
    report.verdict = (
        f"Addition mod 113 keeps {len(key)} key frequencies ({', '.join(key)}), which hold "
        f"{addition['readout'].iloc[:-1].sum():.3f} of the readout's power and "
        f"{addition['logits'].iloc[:-1].sum():.3f} of the logits' variance. "
        f"Max-of-K: the score grows at {largest['score grows'].min():.2f} to "
        f"{largest['score grows'].max():.2f} of the steps, and OV copies {largest['copied'].min():.2f} to "
        f"{largest['copied'].max():.2f} of the numbers. Induction: {best['writer']}, with "
        f"{share.loc[best['writer'], 'token before']:.3f} of its attention on the token before (uniform: "
        f"{share.loc[best['writer'], 'token before, uniform']:.3f}), feeds {best['reader']}, with "
        f"{share.loc[best['reader'], 'behind the same']:.3f} behind the same token (uniform: "
        f"{share.loc[best['reader'], 'behind the same, uniform']:.3f}): K-composition {best['K']:.3f}, Q "
        f"{best['Q']:.3f}, V {best['V']:.3f}; path patching of this one edge recovers {best['place']:.3f} where a "
        f"token's place decides, and {best['content']:.3f} where what stands there does."
    )
    return report


if __name__ == "__main__":
    run(study, __doc__)
