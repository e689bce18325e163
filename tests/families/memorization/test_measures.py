"""Measures of memorization models against numbers worked out from logits, weights and random models."""

import numpy as np
import pytest
import torch
from closeness import close
from drawn_weights import draw

import interp
from interp.errors import UnsupportedError
from interp.families.memorization import bigram, kgram, least_squares, lookup, measures, rank_d_optimum
from interp.families.memorization.constructions.models import memorization_spec
from interp.models.lens import HookedTransformer, HookedTransformerConfig, quiet_construction
from interp.models.subject import Subject

TASK = kgram(N=4, M=6, k=2, concentration=0.5, prior="zipf", seed=1)
SPEC = memorization_spec(TASK, 3, 4, dtype="float64", origin=interp.Training(init="torch"))


def by_hand(model: interp.TaskModel, skip: int | None = None) -> np.ndarray:
    """Logits with one head left out, from the pattern and the weights."""
    tokens = TASK.all_contexts().tokens
    attn = model.blocks[0].attn
    _, cache = model.run_with_cache(tokens)
    x = model.embed.W_E[tokens]
    seen = x + attn.W_pos
    out = x[:, -1].clone()
    for head in range(model.cfg.n_heads):
        if head != skip:
            out += cache["pattern", 0][:, head, -1, :, None].mul(seen).sum(1) @ attn.W_O[head]
    return (out @ model.unembed.W_U).detach().numpy()


def test_rows_and_totals() -> None:
    model = interp.build(SPEC, seed=1)
    logits = by_hand(model)
    q = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    kl = (TASK.conditional * np.log(TASK.conditional / q)).sum(1)
    right = logits.argmax(1) == TASK.conditional.argmax(1)
    found = measures.memorization(model)
    close(measures.context_logits(model), logits, atol=1e-12)
    close(found.rows["kl"], kl, atol=1e-12)
    assert found.kl == pytest.approx(float(TASK.prior @ kl))
    assert found.cross_entropy == pytest.approx(float(-TASK.prior @ (TASK.conditional * np.log(q)).sum(1)))
    assert (found.memorized, found.contexts, found.formula) == (right.sum(), 16, 4 * 3 + 3)
    assert found.accuracy == pytest.approx(float(TASK.prior @ right))
    assert list(found.rows["right"]) == list(right)
    np.testing.assert_allclose(found.rows["q"], q[np.arange(16), TASK.conditional.argmax(1)])
    assert found.parameters == 4 * 3 + 2 * 3 + 2 * 4 * 9 + 3 * 6
    assert "associations memorized" in str(found)


def test_a_look_up_table_with_zeros() -> None:
    task = lookup(N=3, M=4, k=1)
    model = interp.build(memorization_spec(task, 2, 1, origin=interp.Training(init="torch")))
    assert np.isfinite(measures.memorization(model).kl)
    assert measures.memorization(model).entropy == 0


def test_heads_left_out() -> None:
    model = interp.build(SPEC, seed=2)
    table = measures.head_table(model)
    for head in range(4):
        logits = by_hand(model, skip=head)
        logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        kl = float(TASK.prior @ (TASK.conditional * (np.log(TASK.conditional) - logs)).sum(1))
        assert table["kl_without"][head] == pytest.approx(kl)
        assert table["kl_increase"][head] == pytest.approx(kl - measures.memorization(model).kl)


@pytest.mark.parametrize(
    ("n", "k", "d", "heads"), [(4, 2, 3, 2), (4, 2, 6, 3), (3, 3, 5, 6), (5, 1, 3, 4), (5, 1, 7, 2)]
)
def test_the_attention_matrix_has_the_rank_of_erratum_5(n: int, k: int, d: int, heads: int) -> None:
    model = interp.build(memorization_spec(kgram(N=n, M=4, k=k), d, heads, dtype="float64"))
    draw(model, 0, dtype=torch.float64)
    found = measures.attention_matrix(model)
    assert found.rank == found.generic
    assert found.rank <= found.rank_with_residual <= min(n**k, found.rank + d)
    assert len(found.singular_values) == min(n**k, heads * d)


def test_the_residual_stream_carries_d_associations_more() -> None:
    model = interp.build("memorization/capacity", table=lookup(N=10, M=10), d_model=3, n_heads=5, d_head=2)
    found = measures.attention_matrix(model)
    assert (found.rank, found.rank_with_residual, found.generic) == (10, 13, None)
    assert measures.memorization(model).formula == 13


def test_theorem_1_is_at_the_optimum_and_least_squares_is_not() -> None:
    best = rank_d_optimum(TASK, 2)
    at = measures.optimum_gap(interp.build("memorization/theorem1", table=TASK, d_model=2))
    assert abs(at.gap) < 1e-9
    assert at.angles.max() < 1e-5
    target = least_squares(TASK, 2)
    above = measures.optimum_gap(interp.build("memorization/theorem1", table=TASK, W_U=target.W_U, W_E=target.W_E))
    assert above.gap == pytest.approx(target.kl - best.kl, abs=1e-9)
    assert above.evidence == best.evidence
    assert str(above).startswith("divergence")


def test_what_the_unembedding_expresses() -> None:
    task = bigram(N=20, M=8, concentration=1.0, prior="uniform")
    target = least_squares(task, 3)
    table = measures.spectrum(interp.build("memorization/theorem1", table=task, W_U=target.W_U, W_E=target.W_E))
    assert table["expressed"][:3].to_numpy() == pytest.approx(1)
    assert table["expressed"][3:].to_numpy() == pytest.approx(0, abs=1e-9)
    assert table["angle"][:3].max() < 1e-5


def test_a_hooked_transformer_of_your_own() -> None:
    task = bigram(N=6, M=6)
    with quiet_construction():
        mine = HookedTransformer(
            HookedTransformerConfig(
                n_layers=1, d_model=4, n_heads=2, d_head=2, n_ctx=4, d_vocab=6, attn_only=True, normalization_type=None
            )
        )
    subject = Subject.external(mine, task)
    logits = mine(task.all_contexts().tokens)[:, -1].detach().double().numpy()
    close(measures.context_logits(subject), logits, atol=1e-6)
    assert measures.memorization(subject).formula is None  # contexts of one token: heads are of no use
    assert len(measures.head_table(subject)) == 2


def test_refusals() -> None:
    other = interp.build("histogram/dot-exact", T=5, L=4)
    with pytest.raises(UnsupportedError, match="declares no conditional"):
        measures.memorization(other)
    baseline = interp.build(memorization_spec(TASK, 3, 1, d_mlp=4))
    assert measures.memorization(baseline).formula is None
    with pytest.raises(UnsupportedError, match="MLP"):
        measures.head_table(baseline)
    biased = interp.build(SPEC.replace(readout_bias=True))
    with torch.no_grad():
        biased.unembed.b_U += 1
    with pytest.raises(UnsupportedError, match="rank d"):
        measures.optimum_gap(biased)


def test_silent_heads_have_rank_0_and_the_readout_bias_counts() -> None:
    model = interp.build(SPEC.replace(readout_bias=True), seed=1)
    with torch.no_grad():
        model.unembed.b_U.copy_(torch.arange(6.0))
    logits = by_hand(model, skip=1) + np.arange(6)
    logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    kl = float(TASK.prior @ (TASK.conditional * (np.log(TASK.conditional) - logs)).sum(1))
    assert measures.head_table(model)["kl_without"][1] == pytest.approx(kl)
    with torch.no_grad():
        model.blocks[0].attn.W_O.zero_()
        model.embed.W_E.zero_()
        model.blocks[0].attn.W_pos.zero_()
    assert measures.attention_matrix(model).rank == 0
