"""Where heads look, against loops over queries and keys."""

import copy
import math
from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch
from standins import NAMES, padding_hooks, standin

import interp
from interp.measures.head_types import KINDS, head_types
from interp.models.lens import HookedTransformer, HookedTransformerConfig, quiet_construction
from interp.models.subject import Subject


@pytest.mark.parametrize("at", ["all", "read"])
@pytest.mark.parametrize("name", NAMES)
def test_every_share_by_loops(name, at) -> None:
    subject = standin(name)
    model, batch = subject.model, subject.task.sample(5, seed=3)
    patterns = {}
    keep = (lambda n: n.endswith("hook_pattern"), lambda p, hook: patterns.update({hook.layer(): p.double()}))
    model.run_with_hooks(batch.tokens, fwd_hooks=[*padding_hooks(model, batch), keep])
    table = head_types(subject, batch, at).to_frame().set_index(["layer", "head"])
    for (layer, head), found in table.iterrows():
        sums, queries = dict.fromkeys(["entropy", "uniform", *KINDS], 0.0), 0
        matched = dict.fromkeys(["previous_token", "same_token", "induction"], 0)
        for row in range(5):
            n, words = int(batch.lengths[row]), batch.tokens[row].tolist()
            read = {"recall": [6], "ends": [0], "balance": range(8)}[name]
            for q in range(n) if at == "all" else read:
                queries += 1
                causal = model.cfg.attention_dir == "causal"
                keys = range(q + 1) if causal else range(n)
                matched["previous_token"] += q > 0
                matched["same_token"] += any(words[k] == words[q] and k != q for k in keys)
                matched["induction"] += any(k > 0 and k - 1 < q and words[k - 1] == words[q] for k in keys)
                sums["uniform"] += math.log(q + 1 if model.cfg.attention_dir == "causal" else n)
                for k in range(n):
                    weight = float(patterns[layer][row, head, q, k])
                    sums["entropy"] -= weight * math.log(weight) if weight > 0 else 0.0
                    sums["self"] += weight * (k == q)
                    sums["previous_token"] += weight * (k == q - 1)
                    sums["first_token"] += weight * (k == 0)
                    sums["same_token"] += weight * (words[k] == words[q] and k != q)
                    sums["induction"] += weight * (k > 0 and k - 1 < q and words[k - 1] == words[q])
        assert found["queries"] == queries
        for key, value in sums.items():
            of = matched.get(key, queries)
            assert found[key] == pytest.approx(value / of if of else math.nan, abs=1e-6, nan_ok=True), key
            assert key not in matched or found[f"{key}_queries"] == of


def test_the_second_layer_of_recall_looks_behind_the_same_key() -> None:
    table = head_types(standin("recall"), standin("recall").task.sample(200, seed=1), "read").to_frame()
    assert table[table["layer"] == 1]["induction"].max() > 0.9


def test_raw_scores_have_no_entropy() -> None:
    model = interp.load("histogram/dot")
    table = head_types(model, model.task.sample(5))
    assert table["entropy"].isna().all()
    assert table["self"].notna().all()


def test_no_padding_is_counted() -> None:
    subject = standin("ends")
    batch = subject.task.sample(6, seed=3)
    wide = subject.task.batch(torch.nn.functional.pad(batch.tokens[:, :7], (0, 1), value=4))
    narrow = subject.task.batch(wide.tokens[:, : int(wide.lengths.max())])
    a, b = (head_types(subject, one).to_frame() for one in (wide, narrow))
    assert (a - b).abs().to_numpy(float).max() < 1e-6


@pytest.mark.skipif(find_spec("transformer_lens.HookedTransformer") is None, reason="TransformerLens 4 has no windows")
def test_within_a_window_only_its_tokens_are_seen() -> None:
    subject = standin("recall")
    cfg = {**subject.model.cfg.to_dict(), "use_local_attn": True, "attn_types": ["local", "global"], "window_size": 2}
    with quiet_construction():
        local = HookedTransformer(HookedTransformerConfig.from_dict(cfg))
    local.load_state_dict(subject.model.state_dict())
    with torch.no_grad():
        local.blocks[0].attn.W_Q.zero_()  # attention is uniform where it can be
        local.blocks[0].attn.b_Q.zero_()
    table = head_types(Subject.external(local, subject.task), subject.task.sample(5)).to_frame().set_index("layer")
    of_two, of_all = 6 * math.log(2) / 7, sum(math.log(n) for n in range(1, 8)) / 7
    assert table.loc[0, "uniform"].tolist() == pytest.approx([of_two, of_two])
    assert table.loc[0, "entropy"].tolist() == pytest.approx([of_two, of_two], abs=1e-5)
    assert table.loc[1, "uniform"].tolist() == pytest.approx([of_all, of_all])


@pytest.mark.skipif(find_spec("transformer_lens.HookedTransformer") is None, reason="TransformerLens 4 has no sinks")
def test_a_sink_takes_from_all_tokens_alike() -> None:
    subject = standin("recall")
    with quiet_construction():
        own = HookedTransformer(
            HookedTransformerConfig.from_dict({**subject.model.cfg.to_dict(), "use_attention_sinks": True})
        )
    own.load_state_dict(subject.model.state_dict(), strict=False)
    torch.nn.init.constant_(own.blocks[0].attn.sinks, 2.0)
    batch = subject.task.sample(5)
    found, wanted = (
        head_types(one, batch).to_frame().set_index("layer").loc[0] for one in (replace(subject, model=own), subject)
    )
    assert found["entropy"].to_list() == pytest.approx(wanted["entropy"].to_list(), abs=1e-5)
    assert (found["self"] < wanted["self"]).all()


def test_shares_rounded_to_half_precision_are_shares() -> None:
    subject = standin("recall")
    batch = subject.task.sample(20, seed=1)
    half = copy.deepcopy(subject.model)
    half.to(torch.bfloat16, print_details=False)
    found, wanted = (head_types(one, batch)["entropy"] for one in (replace(subject, model=half), subject))
    assert found.to_list() == pytest.approx(wanted.to_list(), abs=0.03)


def test_induction_is_seen_where_rows_are_two_equal_halves() -> None:
    """At the positions that are read, and at all: queries of the first half, without an earlier token, do not count."""
    model = interp.build("algorithmic/induction-exact")
    generator = torch.Generator().manual_seed(0)
    half = torch.stack([torch.randperm(8, generator=generator) for _ in range(50)])
    start = torch.full((50, 1), model.task.vocabulary.index("[BOS]"))
    batch = model.task.batch(torch.cat([start, half, half], 1))
    head = lambda at: head_types(model, batch, at=at).to_frame().set_index(["layer", "head"]).loc[(1, 1), "induction"]  # noqa: E731
    assert head("read") > 0.99
    assert head("all") > 0.99


def test_inputs_without_a_read_position_are_refused() -> None:
    subject = standin("balance")
    batch = subject.task.sample(5, seed=3)
    unread = replace(batch, labels=torch.full_like(batch.labels, -100))
    with pytest.raises(interp.InterpError, match="no position of these inputs is read"):
        head_types(subject, unread, "read")
