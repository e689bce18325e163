"""The report on memorization models: the verdict in words, models that lack a part."""

import numpy as np
import pytest

import interp
from interp.errors import UnsupportedError
from interp.families.memorization import bigram, kgram, least_squares, lookup
from interp.families.memorization.constructions.models import memorization_spec
from interp.models.lens import HookedTransformer, HookedTransformerConfig, quiet_construction
from interp.models.subject import Subject

SMALL = kgram(N=4, M=6, k=2, seed=1)
TABLE = ["table", "table_optimum", "table_contexts", "table_heads", "table_attention"]
"""The sections that tasks with a table have."""


def test_a_model_above_the_optimum_says_by_how_much() -> None:
    target = least_squares(SMALL, 2)
    model = interp.build("memorization/theorem1", table=SMALL, W_U=target.W_U, W_E=target.W_E)
    report = interp.analyze(model, sections=TABLE)
    table = report.tables["optimum"].set_index("map")["divergence (nats)"]
    assert table["the model"] == pytest.approx(table["least squares f_ls"])
    gap = table["the model"] - table["best rank-2 map found"]
    assert f"is {gap:.2g} nats" in report.verdict


def test_contexts_of_one_token_and_unequal_priors() -> None:
    model = interp.build("memorization/theorem1", table=bigram(N=8, M=5, concentration=1.0), d_model=2)
    report = interp.analyze(model, sections=TABLE)
    assert "which have probability" in report.verdict
    assert "H d_h + d" not in report.verdict
    assert report.figures["kl_by_row"].layout.xaxis.type == "log"


def test_width_enough_for_zero() -> None:
    report = interp.analyze(interp.build("memorization/theorem1", table=kgram(N=3, M=3), d_model=2), sections=TABLE)
    assert "Width 2 is enough for divergence zero." in report.verdict
    assert "kl_beside_optimum" not in report.figures
    wide = interp.analyze(interp.build("memorization/theorem1", table=kgram(N=3, M=3), d_model=4), sections=TABLE)
    assert "Width 2 is enough for divergence zero; the model has 4" in wide.verdict


def test_a_look_up_table_and_the_capacity_construction() -> None:
    model = interp.build("memorization/capacity", table=lookup(N=6, M=6), d_model=2, n_heads=4)
    report = interp.analyze(model, sections=["table"])
    assert "memorizes H d_h + d = 10 associations of any table" in report.verdict
    assert np.isfinite(report.tables["memorization"]["divergence (nats)"][0])


def test_a_model_with_an_mlp_and_a_comparison() -> None:
    recipe = interp.Training(init="torch")
    specs = [memorization_spec(SMALL, 3, 2, origin=recipe), memorization_spec(SMALL, 3, 1, d_mlp=4, origin=recipe)]
    models = [interp.build(spec) for spec in specs]
    table = interp.analyze(models, sections=["accuracy", "table", "table_optimum"]).tables["comparison"]
    assert list(table["certificate"]) == ["refuted", "refuted"]
    assert (table["above optimum"] > 0).all()
    assert "table_heads" in interp.analyze(models[0], sections=["table_heads"]).tables
    with pytest.raises(UnsupportedError, match="not a sum over heads"):
        interp.analyze(models[1], sections=["table_heads"])


def test_a_hooked_transformer_of_your_own() -> None:
    with quiet_construction():
        mine = HookedTransformer(
            HookedTransformerConfig(
                n_layers=1, d_model=4, n_heads=2, d_head=2, n_ctx=4, d_vocab=6, attn_only=True, normalization_type=None
            )
        )
    report = interp.analyze(Subject.external(mine, task=kgram(N=6, M=6)), sections=TABLE)
    assert "associations are memorized" in report.verdict
    assert {"optimum", "table_heads", "attention_matrix"} <= set(report.tables)
