"""A number of each study that is known without it: in closed form, by exhaustion, of a shipped model, or as printed."""

from collections.abc import Callable
from math import sqrt

import numpy as np
import pandas as pd

Tables = dict[str, pd.DataFrame]

SAID = {
    "adders": r"^Of 2 adders of 924 parameters, 0 make no mistake on 300 random pairs",
    "ablate_heads": r"Accuracy 0\.98\d+ with all heads\. Mean-ablating head 0\.4 costs most",
    "attack_certificates": r"^9 models at the edge, [1-9] certified, [1-9] refuted: 0 certificates say what is false",
    "attention_ratios": r"7 of 16 heads are successful.*w01 from 0\.92 to 1\.00",
    "claims": r"counting\.a21: holds: certified on all 32\^10 sequences, p = 1\n",
    "classics": r"Addition mod 113 keeps 4 key frequencies \(16, 21, 29, 36\)",
    "count01_failures": r"shipped: 8 failed heads in 1 model \(8 looks away\)\. Start torch\.nn's",
    "count01_heads": r"successful heads 0\.44 \(paper \.5\), failed 0\.50",
    "counting_frontier": r"^9 of 9 constructions .*bos-softmax \(p = 1\) 3, bos-softmax \(p = T\) 3\.",  # erratum 20
    "counting_grid": r"the grid's 1176 runs",  # 6 models x 14 x 14 sizes
    "counting_introspection": r"relation-based: .* the answer follows the weights by 1 and the contents by 0\.",
    "counting_phase": r"^Figure 1: 144 of 1176 .*z has mean 0\.05 and std 0\.86; .* 3 beyond 3",  # equal: 0, 1
    "evidence": r"agrees with .* each of its 100 inputs.* exactly 27 of 100.*\n1 of 1 models have evidence that holds",
    "explain_compiled": r"^2 of 2 compiled models are explained .* and 0 otherwise.* 3 of 3 and 0 of 5 others \(all",
    "explain_judged": r"^1 models: 1 programs have an error of at most 0\.05 without noise, .* agree on 1\. Oth",
    "explain_outside": r"^1 compiled models: 1 explained and true, .* Of (\d+) claims that were tried, \1 hold\.",
    "explain_trained": r"^1 trained models: 1 explained, 0 imitated, 0 in part, 0 answers only, 0 none\.",
    "explain_zoo": r"^1 models: 1 explained, 0 imitated, 0 in part, 0 answers only, 0 none\.",
    "head_metrics": r"7 of 16 heads are successful .*, 8 failed, 1 mixed\. \d+ of 120 pairs",  # 16 * 15 / 2
    "known_certificates": r"^1 of 1 certificates are kept\.$",
    "language_learning": r"PARITY 0\.500 \(0 of 2 runs perfect\), PALINDROME",  # Nowak et al.: not learned
    "many_planted": r"^noise 0, by steps: 0 of 6 pairs wrong; noise 0, by shape: 0 of 6 pairs wrong$",
    "many_seeds": r"^2 models of task count01, by the same shape\. none: 2 \(100%",  # two epochs teach nothing
    "max_of_k_compact": r"266 to 266 errors",  # of one seed trained for a few steps
    "max_of_k_proofs": r"at least 0\.9999799 of 16,777,216 .*all but 0 of 512 sequences",  # 64^4, where 85 err; 8^3
    "memorization_bounds": r"0 found in the true readings.* d = 504 for 50 outputs, where d = 49 already gives zero",
    "memorization_tables": r"^Every bound holds on 3 of 3 instances\. f_wls is above f_ls on 0 of 3",
    "memorization_theorem1": r"corrected formula right in 3 of 3 cases, printed in 1\..*least d\^\(k\+1\) 0\.1092",
    "memorization_training": r"\n?.* 0 of 2 settings have a seed below it",  # the best rank-d map
    "palindrome_precision": r"exact to 12 in bfloat16, 19 in float16, 43 in float32, 95 in float64",
    "print_and_ours": r"97\.6% of 1,176 cells.*4 of 8 rows agree.*12 means within 0\.07 of print.*44 cells",
    "retrain": r"memorization/lookup \(engine exact-kl; accuracy 1\.0000, now 1\.0000\)",
    "reweight_attention": r"the worst of 16 heads has s-acc 0\.96\d .* from 0\.93\d to 0\.97\d",  # as C = 1000 gives
}
"""What standard output must match."""


def _exact_models_are_right(tables: Tables) -> None:
    found = tables["certificates"]
    longer = found["name"] == "algorithmic/addition-exact"  # its proof takes 2 s, a smoke run's search 0.2
    exact = found[(found["kind"] == "exact") & ~longer]
    assert set(exact["status"]) == {"certified"}
    assert (exact["accuracy low"].astype(float) == 1).all()


def _weighted_mean_of_heads(tables: Tables) -> None:
    heads, models = tables["heads"], tables["checkpoints"].set_index(["seed", "epoch"])
    for at, part in heads.groupby(["seed", "epoch"]):
        mean = float(np.average(part["s_acc"], weights=part["weight"]))
        assert abs(mean - models.loc[at, "weighted_s_acc"]) < 1e-12


def _sum_of_learning_rates(tables: Tables) -> None:
    """7,000 sentences in batches of 128 are 55 steps of 2e-4."""
    constant = tables["course"].query("recipe == '2e-4 constant'")
    np.testing.assert_allclose(constant["path"], 55 * 2e-4 * constant["epoch"], rtol=1e-12)


def _wilson_intervals(tables: Tables) -> None:
    """None of two heads: the upper end is z^2 / (n + z^2). The paper's shares are those of Table 1."""
    found = tables["table_1"]
    assert found["paper good"].tolist() == [0.74, 0.54]
    none = found[found["good"] == 0]
    np.testing.assert_allclose(none["good high"], 1.959964**2 / (none["heads"] + 1.959964**2), rtol=1e-6)


def _hardly_trained_models_guess(tables: Tables) -> None:
    assert tables["models"]["accuracy"].between(0.47, 0.53).all()
    means = tables["models"].groupby(["d", "heads"])["accuracy"].mean()
    np.testing.assert_allclose(tables["cells"]["mean"], means, rtol=1e-12)


def _shapley_values_share_out_the_whole(tables: Tables) -> None:
    """They sum to what all four heads reach together beyond none of them, which guesses: .5."""
    values = tables["count01-paper-shapley"]["Shapley: separation accuracy"].sum()
    whole = tables["count01-paper-sizes"].set_index("size").loc[4, "s_acc_0.5"]
    assert abs(values - (whole - 0.5)) < 1e-9
    assert tables["comparison"]["groups"].tolist() == [2**4 - 1]


def _says_one_of_all(tables: Tables) -> None:
    """Of 32^10 sequences (31/32)^9 of the positions hold a token of their own: right of a model that always says 1."""
    (row,) = tables["certified"].to_dict("records")
    assert row["status"] == "refuted"
    assert row["low"] < (31 / 32) ** 9 < row["high"] < row["low"] + 0.05


def _cosines_of_random_vectors(tables: Tables) -> None:
    """Between independent vectors of d dimensions they have mean 0 and standard deviation 1 / sqrt(d)."""
    (row,) = tables["entangled"].to_dict("records")
    assert abs(row["mean_cosine"]) < 0.05
    assert abs(row["std_cosine"] - 1 / sqrt(row["d"])) < 0.03


def _exact_mechanisms(tables: Tables) -> None:
    found = tables["exact"].set_index("model")
    relation = {f"histogram/{name}-exact": 1.0 for name in ("bos", "bos-softmax", "dot")}
    relation |= {f"histogram/{name}-exact": 0.0 for name in ("dot-softmax", "lin", "lin-softmax")}
    assert {name: round(value, 9) for name, value in found["relation"].items()} == relation
    assert (found["accuracy"] == 1).all()


def _nowak_means(tables: Tables) -> None:
    """FIRST at 1,000 symbols, trained on 10 and 100, without and with log-length scaling; ONE on 10 and 30."""
    published = tables["at_1000_symbols"]["published mean"].dropna().tolist()
    assert published == [0.513, 0.8895, 0.9755, 1.0, 0.669, 0.542]


def _dana_cells(tables: Tables) -> None:
    found = tables["capacity"].dropna(subset=["published"])
    assert found["H d_h + d"].tolist() == (found["H"] * found["d_h"] + found["d"]).tolist()
    assert (found["accuracy"] - found["published"]).abs().max() < 0.12  # a few of the published steps
    assert (found["accuracy"] > found["lower bound"]).all()


FOUND: dict[str, Callable[[Tables], None]] = {
    "certify_zoo": _exact_models_are_right,
    "count01_dynamics": _weighted_mean_of_heads,
    "count01_recipes": _sum_of_learning_rates,
    "count01_single_heads": _wilson_intervals,
    "count01_size": _hardly_trained_models_guess,
    "count01_subsets": _shapley_values_share_out_the_whole,
    "counting_certified": _says_one_of_all,
    "counting_entangled": _cosines_of_random_vectors,
    "counting_mechanisms": _exact_mechanisms,
    "language_generalization": _nowak_means,
    "memorization_capacity": _dana_cells,
}
"""What the tables must hold."""
