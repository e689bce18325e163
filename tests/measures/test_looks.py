"""Where heads look, against loops over queries and keys."""

from __future__ import annotations

import math

import pytest
import torch
from standins import NAMES, padding_hooks, standin

import interp
from interp.measures.looks import KINDS, looks


@pytest.mark.parametrize("at", ["all", "read"])
@pytest.mark.parametrize("name", NAMES)
def test_every_share_by_loops(name, at) -> None:
    subject = standin(name)
    model, batch = subject.model, subject.task.sample(5, seed=3)
    patterns = {}
    keep = (lambda n: n.endswith("hook_pattern"), lambda p, hook: patterns.update({hook.layer(): p.double()}))
    model.run_with_hooks(batch.tokens, fwd_hooks=[*padding_hooks(model, batch), keep])
    table = looks(subject, batch, at).set_index(["layer", "head"])
    for (layer, head), found in table.iterrows():
        sums, queries = dict.fromkeys(["entropy", "uniform", *KINDS], 0.0), 0
        for row in range(5):
            n, words = int(batch.lengths[row]), batch.tokens[row].tolist()
            read = {"recall": [6], "ends": [0], "balance": range(8)}[name]
            for q in range(n) if at == "all" else read:
                queries += 1
                sums["uniform"] += math.log(q + 1 if model.cfg.attention_dir == "causal" else n)
                for k in range(n):
                    weight = float(patterns[layer][row, head, q, k])
                    sums["entropy"] -= weight * math.log(weight) if weight > 0 else 0.0
                    sums["self"] += weight * (k == q)
                    sums["previous"] += weight * (k == q - 1)
                    sums["first"] += weight * (k == 0)
                    sums["same"] += weight * (words[k] == words[q] and k != q)
                    sums["after_same"] += weight * (k > 0 and k - 1 < q and words[k - 1] == words[q])
        for key, value in sums.items():
            assert found[key] == pytest.approx(value / queries, abs=1e-6), key


def test_the_second_layer_of_recall_looks_behind_the_same_key() -> None:
    table = looks(standin("recall"), standin("recall").task.sample(200, seed=1), "read")
    assert table[table["layer"] == 1]["after_same"].max() > 0.9


def test_raw_scores_have_no_entropy() -> None:
    model = interp.load("histogram/dot")
    table = looks(model, model.task.sample(5))
    assert table["entropy"].isna().all()
    assert table["self"].notna().all()


def test_no_padding_is_counted() -> None:
    subject = standin("ends")
    batch = subject.task.sample(6, seed=3)
    wide = subject.task.batch(torch.nn.functional.pad(batch.tokens[:, :7], (0, 1), value=4))
    narrow = subject.task.batch(wide.tokens[:, : int(wide.lengths.max())])
    a, b = looks(subject, wide), looks(subject, narrow)
    assert (a - b).abs().to_numpy(float).max() < 1e-6
