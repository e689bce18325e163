"""Zsámboki et al. 2025: do attention heads compete or cooperate during counting?"""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pandas as pd
import torch
from claim_checks.base import Found, check, kept, number, spread, study, verdict
from scipy.stats import fisher_exact
from shared.count01_facts import facts

import interp
from interp.families.count01 import Count01
from interp.families.count01.constructions import largest_n2
from interp.measures.heads import FAILED, head_outputs

SHIPPED = tuple(f"count01/paper/seed-{seed}" for seed in range(4))
FRESH = range(100, 108)
"""Seeds of eight models that no choice was made on; data_seed 1 is a fresh data set."""


@cache
def shipped() -> tuple[interp.TaskModel, ...]:
    return tuple(interp.load(name) for name in SHIPPED)


@cache
def fresh() -> pd.DataFrame:
    """The paper's facts about eight models of recipe A on fresh seeds and data: one row each."""
    spec = shipped()[0].spec
    spec = spec.replace(task=spec.task.model_copy(update={"data_seed": 1}))
    models = interp.train(spec, seeds=FRESH)
    train, test = (models[0].task.dataset(split) for split in ("train", "test"))
    return pd.concat([facts(model, train=train, test=test) for model in models], ignore_index=True)


# ---------------------------------------------------------------- the language, the data, the architecture


@check("count01.rule")
def rule() -> Found:
    """Definition 3.1 against its own words, on all strings of up to six of 0, 1, 2."""
    task, wrong, n = Count01(), 0, 0
    for length in range(7):
        for symbols in product("012", repeat=length):
            four = symbols.count("1") > symbols.count("0")
            wrong += not task.is_member(f"[BOS]{''.join(symbols)}={'4' if four else '5'}[EOS]")
            wrong += task.is_member(f"[BOS]{''.join(symbols)}={'5' if four else '4'}[EOS]")
            n += 1
    return Found(f"{wrong} of {n} strings judged differently by Definition 3.1", verdict(wrong == 0, True), n)


@check("count01.data")
def data() -> Found:
    task, shown = Count01(), []
    expected = {"train": (7000, 0, 100, 100), "validation": (1500, 101, 150, 150), "test": (1500, 151, 200, 200)}
    right = True
    for split, (size, low, high, noise) in expected.items():
        counts = task.dataset_counts(split)
        inside = (counts[:, :2] >= low) & (counts[:, :2] <= high)
        right &= len(counts) == size and bool(inside.all()) and int(counts[:, 2].max()) <= noise
        shown.append(f"{len(counts)} in {int(counts[:, :2].min())}..{int(counts[:, :2].max())}")
    return Found(", ".join(shown), verdict(right), 3)


@check("count01.order")
def order() -> Found:
    """The same counts in two orders, through the model's own forward pass in float64."""
    model = interp.load(SHIPPED[0], dtype="float64")
    counts = model.task.sample_counts(20, "train", seed=1)
    rows = [model.task.sentences(counts, seed) for seed in (1, 2)]
    at = (rows[0].tokens == model.task.token_id("=")).int().argmax(1)
    with torch.no_grad():
        one, two = (model(batch.tokens)[torch.arange(20), at] for batch in rows)
    gap = float((one - two).abs().max() / one.abs().max())
    return Found(f"largest relative difference of logits {gap:.0e}", verdict(gap < 1e-12), 20)


@check("count01.ratios")
def ratios() -> Found:
    """Attention of '=' to a '0' over that to a '1', over inputs: the spread within a head."""
    model = interp.load(SHIPPED[0], dtype="float64")
    batch = model.task.sentences(torch.tensor([[3, 5, 2], [9, 1, 0], [1, 1, 30], [20, 20, 20]]))
    _, cache = model.run_with_cache(batch.tokens)
    found = []
    for row, tokens in enumerate(batch.tokens):
        at = int((tokens == model.task.token_id("=")).int().argmax())
        zero, one = (int((tokens == model.task.token_id(token)).int().argmax()) for token in "01")
        found.append((cache["pattern", 0][row, :, at, zero] / cache["pattern", 0][row, :, at, one]).detach())
    stacked = torch.stack(found)
    gap = float((stacked.amax(0) / stacked.amin(0) - 1).max())
    return Found(f"a head's ratio varies by {gap:.0e} over inputs", verdict(gap < 1e-10), len(batch))


@check("count01.skip")
def skip() -> Found:
    """Accuracy of all heads with and without the skip connection and the projection bias."""
    gaps = []
    for model in shipped():
        outputs = head_outputs(model, model.task.dataset("test"))
        both = [
            float((outputs.logits(range(16), with_skip=kept).argmax(-1) == outputs.labels).double().mean())
            for kept in (True, False)
        ]
        gaps.append(both[0] - both[1])
    largest = max(map(abs, gaps))
    return Found(f"accuracy changes by at most {largest:.4f}", verdict(largest < 0.05), 4, spread(gaps, 4))


@check("count01.four_or_five")
def four_or_five() -> Found:
    """Does a trained model ever answer anything else than '4' or '5' at '='? Over the whole test domain."""
    others = 0
    for model in shipped():
        table = interp.certify(model).tables["accuracy"]
        over_all, of_two = (float(value) for value in table["accuracy"][:2])
        others += round((of_two - over_all) * 502_500)
    return Found(
        f"{others} of 4 x 502,500 answers are wrong over all tokens and right among two", verdict(others == 0), 4
    )


# ---------------------------------------------------------------- the minimal solution (appendix A)


@check("count01.minimal")
def minimal() -> Found:
    found = interp.certify(interp.build("count01/minimal"), box="cube")
    return Found(
        f"{found.n_errors} errors on {found.n_inputs:,} inputs at N = 8: {found.status}",
        verdict(found.status == "certified", True),
        found.n_inputs,
    )


@check("count01.minimal_large_n")
def minimal_large_n() -> Found:
    """The tie goes to '5' up to a number of 2s that grows with N."""
    limits = [largest_n2(N) for N in (7, 8, 9, 10)]
    right = limits == sorted(limits) and limits[0] < 200 <= limits[1]
    return Found(f"right up to n2 = {', '.join(map(str, limits))} for N = 7, 8, 9, 10", verdict(right, True), 4)


@check("count01.minimal_eos")
def minimal_eos() -> Found:
    table = interp.certify(interp.build("count01/minimal"), box="cube").tables["accuracy"]
    accuracy = float(table["accuracy"][2])
    wrong = round((1 - accuracy) * 8_120_601)
    return Found(f"[EOS] wrong on {wrong:,} inputs of the cube", verdict(wrong == 0, True), 8_120_601)


@check("count01.table1_heads")
def table1_heads() -> Found:
    return Found(f"20 experiments of 64 heads are {20 * 64:,} heads", verdict(20 * 64 == 1920), 1)


# ---------------------------------------------------------------- trained models: accuracy and heads


@check("count01.accuracy")
def accuracy() -> Found:
    values = [float(interp.certify(model).accuracy) for model in shipped()]
    return Found(
        f"mean {np.mean(values):.4f} over all 502,500 test inputs", verdict(min(values) > 0.95), 4, spread(values)
    )


def _fact(name: str, low: float, high: float) -> Found:
    """The mean of a fact over the fresh models; it holds where that lies in the range."""
    values = fresh()[name]
    mean = float(values.mean())
    holds = verdict(low <= mean <= high, otherwise="not reproduced")
    return Found(f"mean {number(mean)}", holds, len(values), spread(values))


RANGES = {
    # fact: what we take the printed words to mean, as a range of the mean over models
    "accuracy": (0.97, 1.0),
    "successful": (0.4, 0.6),
    "failed": (0.3, 0.5),
    "mixed": (0.0, 0.15),
    "chance_singles": (0.85, 1.0),
    "good_pairs": (0.0, 0.05),
    "improved_pairs": (0.0, 0.15),
    "best_head": (0.98, 1.0),
    "best_pair": (0.9995, 1.0),
    "w01_low": (0.8, 1.25),
    "w01_high": (0.8, 1.25),
    "w02_above_10": (0.9, 1.0),
    "eos_singles": (0.36, 0.56),
    "eos_pairs": (0.40, 0.60),
}
for _name, _range in RANGES.items():
    check(f"count01.fact.{_name}", cheap=False)(lambda name=_name, range=_range: _fact(name, *range))


@check("count01.failed_heads")
def failed_heads() -> Found:
    """How much of the attention of '=' failed heads put on '=' itself, on one test sentence."""
    shares = []
    for model in shipped():
        s_acc = interp.head_metrics(model, "singles")["s_acc"].to_numpy()
        batch = model.task.sample(1, "test", seed=0)
        at = int((batch.tokens[0] == model.task.token_id("=")).int().argmax())
        _, cache = model.run_with_cache(batch.tokens, names_filter="blocks.0.attn.hook_pattern")
        shares += cache["pattern", 0][0, s_acc <= FAILED, at, at].tolist()
    high = float(np.mean(np.array(shares) > 0.9))
    return Found(
        f"{high:.2f} of {len(shares)} failed heads put over 90% of the attention of '=' on '=' itself",
        verdict(high < 0.5, otherwise="not reproduced"),
        len(shares),
        spread(shares),
    )


@check("count01.all_heads", cheap=False)
def all_heads() -> Found:
    """The l-acc of all 16 heads together."""
    values = []
    for model in shipped():
        metrics = interp.head_metrics(model, [tuple(range(16))])
        values.append(float(metrics["l_acc"].iloc[0]))
    return Found(f"mean {number(float(np.mean(values)))}", verdict(min(values) >= 0.97), 4, spread(values))


# ---------------------------------------------------------------- studies


@check("count01.figure2", cheap=False)
def figure2() -> Found:
    """Mean accuracy of the cell that the paper chose, and of all cells with one head."""
    cells = study("count01_size")["cells"]
    main = cells[(cells["d"] == 32) & (cells["heads"] == cells["heads"].max())].iloc[0]
    one = cells[cells["heads"] == 1]["mean"].mean()
    return Found(
        f"{main['mean']:.3f} at d = 32 with {main['heads']:.0f} heads, {one:.3f} on average with one head",
        verdict(main["mean"] > one and main["mean"] > 0.95),
        3,
        f"std over seeds {main['std']:.3f}",
    )


@check("count01.figure4", cheap=False)
def figure4() -> Found:
    """Size of group from which on the median group stays at .98 or above, by metric, over 500 random groups."""
    sizes = []
    for name, table in study("count01_subsets").items():
        if name.endswith("sizes"):
            sizes.append({m: _first_size(table, f"{m}_0.5") for m in ("s_acc", "roc_auc", "l_acc")})
    found = pd.DataFrame(sizes)
    words = ", ".join(f"{name} {found[name].mean():.0f}" for name in found)
    holds = found["s_acc"].max() <= 4 and found["roc_auc"].max() <= 5 and found["l_acc"].min() >= 9
    return Found(f"median group at .98 from size {words}", verdict(holds), len(found))


def _first_size(table: pd.DataFrame, column: str) -> float:
    good = table.set_index("size")[column] >= 0.98
    stays = good[::-1].cummin()[::-1]
    return float(stays.index[stays].min()) if stays.any() else float(table["size"].max())


def _c(printed: bool) -> float:
    """C of the separators: 1000, or with the printed 1/n in the objective 1000 / (2 n)."""
    return 1000 / (2 * len(shipped()[0].task.dataset("train").tokens)) if printed else 1000.0


@cache
def counting_sentences() -> interp.Batch:
    """The training sentences with a '0' or a '1': without attention to anything else, the others have no output."""
    task = shipped()[0].task
    return task.dataset("train")[task.dataset_counts("train")[:, :2].sum(1) > 0]


def _figure8(printed: bool) -> Found:
    """s-acc at w01 in .1..10 and at the two extremes, no attention to '2'; also fitted on counting_sentences alone."""
    parts, everywhere = [], {"of every sentence": None, "without the empty ones": counting_sentences()}
    for name, train in everywhere.items():
        for model in shipped():
            ratios = (0.001, 0.1, 1.0, 10.0, 1000.0)
            table = interp.reweight_attention(model, w01=ratios, C=_c(printed), train=train).to_frame()
            parts.append(table.assign(fitted=name))
    found = pd.concat(parts)
    inside = found["w01"].between(0.09, 11)
    by_fit, extremes = (part.groupby("fitted", sort=False)["s_acc"] for part in (found[inside], found[~inside]))
    near, drop = by_fit.apply(lambda s: (s > 0.95).mean()), by_fit.mean() - extremes.mean()
    all_of_them, some = everywhere
    return Found(
        f"mean {by_fit.mean()[all_of_them]:.3f} inside, {extremes.mean()[all_of_them]:.3f} at .001 and 1000; "
        f"{near[all_of_them]:.2f} above .95 inside. Without the two training sentences that have neither '0' nor '1': "
        f"{by_fit.mean()[some]:.3f}, {extremes.mean()[some]:.3f}, {near[some]:.2f}",
        verdict(near[all_of_them] > 0.95 and drop[all_of_them] > 0.2, otherwise="not reproduced"),
        len(shipped()),
        f"std over heads {by_fit.std()[all_of_them]:.3f} and {extremes.std()[all_of_them]:.3f}",
    )


def _figure9(printed: bool) -> Found:
    """s-acc at w02 = .01 and 10,000, equal attention to '0' and '1'."""
    frames = [
        interp.reweight_attention(model, w01=1.0, w02=(0.01, 1e4), C=_c(printed)).to_frame() for model in shipped()
    ]
    table = pd.concat(frames)
    low, high = (table[table["w02"] == bound]["s_acc"] for bound in (0.01, 1e4))
    holds = high.mean() - low.mean() > 0.2 and high.std() < low.std()
    return Found(
        f"mean {low.mean():.3f} at .01, {high.mean():.3f} at 10,000",
        verdict(holds, otherwise="not reproduced"),
        len(shipped()),
        f"std over heads {low.std():.3f} and {high.std():.3f}",
    )


for _figure, _check in (("figure8", _figure8), ("figure9", _figure9)):
    check(f"count01.{_figure}", cheap=False)(lambda run=_check: run(printed=False))
    check(f"count01.{_figure}_printed", cheap=False)(lambda run=_check: run(printed=True))


@check("count01.successful_printed", cheap=False)
def successful_printed() -> Found:
    """Share of successful heads where the objective has the printed 1/n."""
    shares = [float(facts(model, C=_c(printed=True))["successful"].iloc[0]) for model in shipped()]
    return Found(
        f"{number(float(np.mean(shares)))} of the heads",
        verdict(0.3 <= np.mean(shares) <= 0.7, otherwise="not reproduced"), len(shares), spread(shares),
    )  # fmt: skip


@check("count01.figure10", cheap=False)
def figure10() -> Found:
    table = study("count01_dynamics")["correlation"].set_index("from epoch")["pearson"]
    words = ", ".join(f"{value:.2f} from epoch {epoch}" for epoch, value in table.items())
    return Found(words, verdict(table.min() > 0.5), 2)


@check("count01.heads_settle", cheap=False)
def heads_settle() -> Found:
    """Share of heads whose s-acc moves by more than .05 between epochs 50 and 100."""
    heads = study("count01_dynamics")["heads"].pivot_table(index=["seed", "head"], columns="epoch", values="s_acc")
    moved = float(((heads[100] - heads[50]).abs() > 0.05).mean())
    return Found(f"{moved:.2f} of the heads move by more than .05 after epoch 50", verdict(moved < 0.1), len(heads))


@check("count01.readout_still", cheap=False)
def readout_still() -> Found:
    """How much a head's share in the readout, and the norm of its W_O, change from an epoch to the 100th: medians."""
    heads = study("count01_dynamics")["heads"]
    share, norm = (_changes(heads, column, (10, 20, 30, 50)) for column in ("weight", "W_O"))
    return Found(
        "median change to epoch 100: " + ", ".join(f"{moved:.0%} from {start}" for start, moved in share.items()),
        verdict(share[10] < 0.15, otherwise="not reproduced"),
        len(heads[["seed", "head"]].drop_duplicates()),
        "norm of W_O: " + ", ".join(f"{moved:.0%} from {start}" for start, moved in norm.items()),
    )


def _changes(heads: pd.DataFrame, column: str, starts: tuple[int, ...]) -> dict[int, float]:
    """The median over heads of the relative change of a column from each epoch to the 100th."""
    at = heads.pivot_table(index=["seed", "head"], columns="epoch", values=column)
    return {start: float((at[100] / at[start] - 1).abs().median()) for start in starts}


@check("count01.figure14_left")
def figure14_left() -> Found:
    """Untrained heads that separate perfectly, over four initializations."""
    table = kept("count01_untrained")
    perfect = table["perfect"]
    near = bool(((perfect > 0.008) & (perfect < 0.02)).any())
    return Found(
        f"{perfect.min():.4f} to {perfect.max():.4f}, by initialization",
        verdict(near, otherwise="not reproduced"),
        int(table["heads"].sum()),
        ", ".join(f"{name}: {share:.4f}" for name, share in zip(table["initialization"], perfect)),
    )


def chances(found: pd.Series) -> tuple[float, float]:
    """p of Fisher's exact test of our share of good heads in a row of Table 1, and of perfect ones, against print's."""
    heads = int(found["heads"])
    counts = [[round(found[column] * heads) for column in (kind, f"paper {kind}")] for kind in ("good", "perfect")]
    good, perfect = (float(fisher_exact([[n, heads - n] for n in pair]).pvalue) for pair in counts)
    return good, perfect


def _table1(row: int) -> Found:
    """A row of Table 1: can the paper's shares of good and of perfect heads and ours be of one kind of training?"""
    found = kept("count01_table1").iloc[row]
    good, perfect = chances(found)
    return Found(
        f"good {found['good']:.3f}, perfect {found['perfect']:.3f}; p = {good:.2g} and {perfect:.2g}",
        verdict(min(good, perfect) >= 0.05, otherwise="not reproduced"),
        int(found["heads"]),
        f"95% intervals {found['good low']:.3f} to {found['good high']:.3f}, "
        f"{found['perfect low']:.3f} to {found['perfect high']:.3f}; {found['runs']} runs",
    )


for _row, _name in enumerate(("d32", "d16", "d8", "d4", "d2", "d2x64", "d1", "d1x64")):
    check(f"count01.table1.{_name}")(lambda row=_row: _table1(row))
