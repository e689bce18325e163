"""How many associations does a trained attention-only layer memorize, beside the published runs and the lower bound?

python analyses/memorization_capacity.py --out out/capacity [--quick | --smoke]

A look-up table of 2-grams over N tokens: N^2 contexts, one right next token each. One layer of H heads of width d_h in
d dimensions, trained on a fixed sample of 16,384 sequences with the published recipe (batches of 256, 64 epochs, Adam
with the rate falling linearly from 1e-2 to 5e-4; heads share one d -> d_h compression and one decompression where
d_h < d; weights start as torch.nn's Linear and MultiheadAttention do). Accuracy is exact, over all N^2 contexts.
Experiments: 1, H for d = d_h; 2, d_h at d = 10, H = 20; 6, d = 2 and N = 10; and attention against one head with an MLP
(GELU) of as many parameters at N = 70, d = 10. Beside them the construction that holds H d_h + d associations exactly.

Full: every published cell, 5 seeds each, as published (about 25 minutes of one core). Quick: 2 seeds, a part of the
cells, the whole recipe (about 3 minutes). Smoke: three cells, one epoch. Published means: arXiv 2411.10115's data.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from shared.script import Arguments, run
from torch import Tensor
from torch.nn import functional

from interp.errors import InterpError
from interp.families.memorization import TableTask, lookup
from interp.families.memorization.constructions.capacity import capacity as build_capacity
from interp.families.memorization.constructions.models import memorization_spec
from interp.families.memorization.theory.attention_heads import accuracy_lower_bound, memorized_associations
from interp.families.memorization.training import context_logits
from interp.models.spec import ModelSpec
from interp.report import Report
from interp.support import figures as draw

PUBLISHED = Path(__file__).parent / "published" / "dana_capacity.csv"
BATCH, EPOCHS, FIRST_RATE, LAST_RATE = 256, 64, 1e-2, 5e-4
QUICK = {1: ("heads", (1, 31)), 2: ("d_head", (1, 5, 10)), 6: ("heads", (1, 9, 21))}
QUICK_WIDTHS = (3, 5, 9)
"""The part of the published cells that --quick trains: by experiment, a column and its values; d of experiment 1."""


@dataclass(frozen=True)
class Cell:
    """One architecture on a look-up table over `vocabulary` tokens; width: of an MLP after the heads."""

    vocabulary: int
    d_model: int
    d_head: int
    heads: int
    width: int = 0

    @property
    def parameters(self) -> int:
        """Embeddings, positions and unembedding; four matrices a head; compression; the MLP with its first bias."""
        d, dh = self.d_model, self.d_head
        shared = 2 * d * dh if dh < d else 0
        return 2 * self.vocabulary * d + 2 * dh + 4 * self.heads * dh * dh + shared + self.width * (2 * d + 1)

    def spec(self, task: TableTask) -> ModelSpec:
        return memorization_spec(task, self.d_model, self.heads, self.d_head, d_mlp=self.width, activation="gelu")


def train(cell: Cell, seeds: int, epochs: int) -> tuple[np.ndarray, np.ndarray]:
    """Accuracy over the table, exact, and over the training sample, of one model per seed.

    Each seed has a table and a sample of its own.
    """
    tasks = [lookup(N=cell.vocabulary, M=cell.vocabulary, seed=seed) for seed in range(seeds)]
    spec, contexts = cell.spec(tasks[0]), torch.tensor(tasks[0].contexts)
    rows = torch.stack([task.context_index(task.dataset("train").tokens) for task in tasks])
    targets = torch.stack([task.targets for task in tasks])
    leaves = {name: leaf.requires_grad_() for name, leaf in initial(cell, seeds).items()}
    adam = torch.optim.Adam(list(leaves.values()), lr=FIRST_RATE, fused=True)
    steps = epochs * (rows.shape[1] // BATCH)
    generator = torch.Generator().manual_seed(0)
    for step in range(steps):
        if step % (rows.shape[1] // BATCH) == 0:
            order = torch.stack([row[torch.randperm(len(row), generator=generator)] for row in rows])
        at = step % (rows.shape[1] // BATCH) * BATCH
        chosen = order[:, at : at + BATCH]
        logits = context_logits(spec, tasks[0], composed(cell, leaves), contexts[chosen])
        loss = functional.cross_entropy(logits.transpose(1, 2), targets.gather(1, chosen), reduction="sum") / BATCH
        adam.param_groups[0]["lr"] = FIRST_RATE + (LAST_RATE - FIRST_RATE) * step / steps
        adam.zero_grad()
        loss.backward()
        adam.step()
    with torch.no_grad():
        tensors = composed(cell, leaves)
        parts = [context_logits(spec, tasks[0], tensors, part[None]).argmax(-1) for part in contexts.split(500)]
        answers = torch.cat(parts, 1)
    right = answers == targets
    return right.double().mean(1).numpy(), right.gather(1, rows).double().mean(1).numpy()


def initial(cell: Cell, seeds: int) -> dict[str, Tensor]:
    """Weights as torch.nn draws them: Linear uniform in +-1/sqrt(fan-in), packed q, k, v by Xavier."""
    generator = torch.Generator().manual_seed(1)
    d, dh, n, heads = cell.d_model, cell.d_head, cell.vocabulary, cell.heads

    def uniform(reach: float, *shape: int) -> Tensor:
        return (torch.rand(seeds, *shape, generator=generator) * 2 - 1) * reach

    packed = (6 / (4 * dh)) ** 0.5  # in_proj_weight has shape (3 d_h, d_h)
    leaves = {"E": uniform(d**-0.5, n, d), "pos": uniform(dh**-0.5, 2, dh), "U": uniform(d**-0.5, d, n)}
    leaves |= {name: uniform(packed, heads, dh, dh) for name in "QKV"} | {"O": uniform(dh**-0.5, heads, dh, dh)}
    if dh < d:
        leaves |= {"compress": uniform(d**-0.5, d, dh), "decompress": uniform(dh**-0.5, dh, d)}
    if cell.width:
        leaves |= {"in": uniform(d**-0.5, d, cell.width), "b_in": uniform(d**-0.5, cell.width)}
        leaves |= {"out": uniform(cell.width**-0.5, cell.width, d)}
    return leaves


def composed(cell: Cell, leaves: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same function in the names of a task model: shared compression multiplied into every head."""
    heads = {name: leaves[name] for name in "QKVO"}
    positions = leaves["pos"]
    if cell.d_head < cell.d_model:
        narrow, wide = leaves["compress"], leaves["decompress"]
        heads = {name: narrow[:, None] @ heads[name] for name in "QKV"} | {"O": heads["O"] @ wide[:, None]}
        # Positions are added behind the compression: any p with p C = pos does.
        positions = torch.linalg.solve(narrow.mT @ narrow, positions, left=False) @ narrow.mT
    at = "blocks.0."
    tensors = {"embed.W_E": leaves["E"], f"{at}attn.W_pos": positions, "unembed.W_U": leaves["U"]}
    tensors |= {f"{at}attn.W_{name}": heads[name] for name in "QKVO"}
    if cell.width:
        tensors |= {f"{at}mlp.W_in": leaves["in"], f"{at}mlp.b_in": leaves["b_in"], f"{at}mlp.W_out": leaves["out"]}
        tensors[f"{at}mlp.b_out"] = torch.zeros_like(leaves["out"][:, 0])
    return tensors


def published_cells(arguments: Arguments) -> Iterator[tuple[int, Cell, float]]:
    """Experiment, architecture and published mean accuracy."""
    table = pd.read_csv(PUBLISHED)
    for number, part in table.groupby("experiment"):
        experiment = int(str(number))
        column, chosen = QUICK[experiment]
        for row in part.to_dict("records")[: 1 if arguments.mode == "smoke" else None]:
            part_of_quick = row[column] in chosen and (experiment != 1 or row["d_model"] in QUICK_WIDTHS)
            if arguments.mode == "full" or part_of_quick:
                cell = Cell(*(int(row[name]) for name in ("vocabulary", "d_model", "d_head", "heads")))
                yield experiment, cell, float(row["accuracy"])


def exact_associations(cell: Cell) -> float:
    """Contexts that the construction gets right beside the H d_h + d promised, by luck included; NaN if it fails."""
    task = lookup(N=cell.vocabulary, M=cell.vocabulary)
    try:
        return build_capacity(task, cell.d_model, cell.heads, cell.d_head).weights.numbers["memorized"]
    except InterpError:
        return float("nan")


def said(experiment: int, cell: Cell, ours: np.ndarray, sampled: np.ndarray, theirs: float = float("nan")) -> None:
    """One line of progress."""
    print(
        f"experiment {experiment}: {cell}: {ours.round(4).tolist()}, on the sample {sampled.mean():.4f}, "
        f"published {theirs:.4f}",
        file=sys.stderr,
        flush=True,
    )


def capacity(arguments: Arguments) -> pd.DataFrame:
    rows = []
    for experiment, cell, theirs in published_cells(arguments):
        ours, sampled = train(cell, arguments.pick(5, 2, 1), arguments.pick(EPOCHS, EPOCHS, 1))
        sizes = cell.heads, cell.d_head, cell.d_model
        rows.append(
            {
                "experiment": experiment,
                **{"N": cell.vocabulary, "d": cell.d_model, "d_h": cell.d_head, "H": cell.heads, "seeds": len(ours)},
                "parameters": cell.parameters,
                "accuracy": float(np.mean(ours)),
                "std": float(np.std(ours, ddof=1)) if len(ours) > 1 else float("nan"),
                "on the sample": float(np.mean(sampled)),
                "published": theirs,
                "lower bound": accuracy_lower_bound(cell.vocabulary, *sizes),
                "memorized": round(float(np.mean(ours)) * cell.vocabulary**2),
                "H d_h + d": memorized_associations(*sizes),
                "construction": exact_associations(cell),
            }
        )
        said(experiment, cell, ours, sampled, theirs)
    return pd.DataFrame(rows)


def per_parameter(arguments: Arguments) -> pd.DataFrame:
    """Attention against one head and an MLP of as many parameters."""
    n, d = (70, 10) if arguments.mode != "smoke" else (10, 3)
    heads = {"full": (1, 6, 11, 16, 21, 26, 31), "quick": (16,), "smoke": (2,)}[arguments.mode]
    rows = []
    for h in heads:
        attention = Cell(n, d, d, h)
        width = round((attention.parameters - Cell(n, d, d, 1).parameters) / (2 * d + 1))
        for kind, cell in (("attention", attention), ("one head + MLP", Cell(n, d, d, 1, width))):
            if kind != "attention" and not width:
                continue
            ours, sampled = train(cell, arguments.pick(5, 2, 1), arguments.pick(EPOCHS, EPOCHS, 1))
            spread = float(np.std(ours, ddof=1)) if len(ours) > 1 else float("nan")
            said(5, cell, ours, sampled)
            rows.append((h, kind, cell.heads, cell.width, cell.parameters, np.mean(ours), spread))
    return pd.DataFrame(rows, columns=["size", "model", "H", "MLP width", "parameters", "accuracy", "std"])


def study(arguments: Arguments) -> Report:
    torch.set_num_threads(1)
    table, compared = capacity(arguments), per_parameter(arguments)
    report = Report("Associations that attention memorizes")
    report.heading(
        "Look-up tables of 2-grams",
        "Accuracy over all N^2 contexts. Lower bound: 1/N + (1 - 1/N)(H d_h + d)/N^2. The construction holds H d_h + d "
        "contexts exactly; its column counts all contexts that it gets right, luck included.",
    )
    report.add_table(
        "capacity",
        table,
        "Ours, mean and standard deviation over seeds, beside the published means. On the sample: the share of the "
        "training rows that are right, which counts contexts as often as they were drawn.",
    )
    first = table[table["experiment"] == 1]
    lines = [first.assign(kind=[f"d = {d}, ours" for d in first["d"]], value=first["accuracy"])]
    lines += [first.assign(kind=[f"d = {d}, published" for d in first["d"]], value=first["published"])]
    report.add_figure(
        "heads",
        draw.lines(pd.concat(lines), "H", "value", "kind", "heads", "accuracy", markers=True),
        "Experiment 1: accuracy against the number of heads, N = 50, d = d_h.",
    )
    report.add_figure(
        "agreement",
        draw.scatter(
            table.assign(experiment=[f"experiment {e}" for e in table["experiment"]]),
            "published", "accuracy", "experiment", x_title="published mean accuracy", y_title="our mean accuracy",
            diagonal=True,
        ),
        "Every cell, ours against the published mean.",
    )  # fmt: skip
    report.heading("Per parameter", "Attention-only layers, and one head with an MLP of as many parameters.")
    report.add_table("per_parameter", compared, "Mean over seeds.")
    sizes = compared.assign(size=[f"as many as H = {heads}" for heads in compared["size"]])
    report.add_figure(
        "per_parameter",
        draw.bars(sizes, "size", "accuracy", "model", error="std", x_title="parameters"),
        "Accuracy at equal numbers of parameters; whiskers are one standard deviation over seeds.",
    )
    gap, sampled = table["accuracy"] - table["published"], table["on the sample"] - table["published"]
    over = table["memorized"] / table["H d_h + d"]
    wide = compared.pivot_table(index="size", columns="model", values="accuracy").dropna()
    both = ""
    if not wide.empty:
        lead = (wide["attention"] - wide["one head + MLP"]).mean()
        both = (
            f" At equal parameters attention is ahead of one head with an MLP by {lead:+.3f} in accuracy, on average."
        )
    bounded = "all are" if (table["accuracy"] >= table["lower bound"]).all() else "not all are"
    report.verdict = (
        f"Ours minus published: mean {gap.mean():+.4f}, between {gap.min():+.4f} and {gap.max():+.4f}, over "
        f"{len(table)} cells (on the training sample {sampled.mean():+.4f}). Trained layers hold {over.min():.1f} to "
        f"{over.max():.1f} times H d_h + d associations; "
        f"{bounded} above the lower bound.{both}"
    )
    return report


if __name__ == "__main__":
    run(study, __doc__)
