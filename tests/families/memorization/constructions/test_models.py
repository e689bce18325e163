"""The memorization constructions by name: HookedTransformers, their files, and what rebuilds them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from closeness import close
from numpy_forward import forward

import interp
from interp.families.memorization import bigram, kgram, kl_divergence, least_squares, lookup, rank_d_optimum, table
from interp.families.memorization.constructions.models import memorization_spec
from interp.models.constructions import construct

SMALL = kgram(N=4, M=6, k=2, concentration=0.5, seed=1)


def logits(model: interp.TaskModel) -> np.ndarray:
    with torch.no_grad():
        return model(model.task.all_contexts().tokens)[:, -1].double().numpy()


@pytest.mark.parametrize(
    ("task", "d"),
    [
        (bigram(N=12, M=7, concentration=5.0, prior="uniform"), 3),
        (SMALL, 3),
        (kgram(N=3, M=9, k=3, seed=2), 5),
        (lookup(N=4, M=5, noise=0.1), 2),
    ],
)
@pytest.mark.thinned(3)
def test_theorem1_by_name_has_the_divergence_of_the_optimum(task, d) -> None:
    model = interp.build("memorization/theorem1", table=task, d_model=d)
    assert isinstance(model, interp.TaskModel)
    assert model.task is task
    assert kl_divergence(task, logits(model)) == pytest.approx(rank_d_optimum(task, d).kl, abs=1e-9)
    layer = model.spec.layers[0]
    assert (layer.d_head, layer.mlp, model.cfg.attn_only) == (d, None, True)
    assert (model.spec.positions_enter, model.spec.max_length) == ("attention", task.order)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "k", "d"), [(32, 2, 16), (10, 3, 8)])
def test_a_target_of_your_own_on_about_a_thousand_contexts(n, k, d) -> None:
    task = kgram(N=n, M=20, k=k, seed=3)
    target = least_squares(task, d)
    model = interp.build("memorization/theorem1", table=task, W_U=target.W_U, W_E=target.W_E)
    assert abs(kl_divergence(task, logits(model)) - target.kl) < 1e-9


def test_the_hooked_model_is_the_numpy_forward() -> None:
    model = interp.build("memorization/theorem1", table=SMALL, d_model=3)
    weights = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
    theirs = [forward(model.spec, weights, list(context))[0][-1] for context in SMALL.contexts]
    close(logits(model), theirs, atol=1e-10)


@pytest.mark.slow
def test_specs_rebuild_their_models() -> None:
    for one in (
        interp.build("memorization/theorem1", table=SMALL, d_model=2, n_heads=9, draw_seed=3),
        interp.build("memorization/theorem1", table=SMALL, d_model=2, epsilon=0.2),
        interp.build("memorization/theorem1", table=bigram(N=5, M=4), d_model=2),
        interp.build("memorization/corollary2", table=kgram(N=3, M=3, seed=1), length=4, rank=1),
        interp.build("memorization/capacity", table=lookup(N=5, M=5), d_model=2, n_heads=3),
        interp.build("memorization/capacity", table=lookup(N=5, M=5), d_model=3, n_heads=4, d_head=1, draw_seed=2),
    ):
        again = interp.build(one.spec)
        assert again.spec == one.spec
        assert all(a.equal(b) for a, b in zip(one.parameters(), again.parameters(), strict=True))


def test_a_target_of_your_own_is_remembered_by_its_hash() -> None:
    target = least_squares(SMALL, 2)
    model = interp.build("memorization/theorem1", table=SMALL, W_U=target.W_U, W_E=target.W_E)
    with pytest.raises(interp.InterpError, match="give its W_U and W_E"):
        interp.build(model.spec)
    arguments = dict(model.spec.origin.arguments)
    same = construct("memorization/theorem1", table=SMALL, W_U=target.W_U, W_E=target.W_E, **arguments)
    assert same.spec == model.spec
    with pytest.raises(interp.InterpError, match="have the hash"):
        construct("memorization/theorem1", table=SMALL, W_U=2 * target.W_U, W_E=target.W_E, **arguments)


@pytest.mark.parametrize("given", [SMALL, table(np.array([[0.1, 0.9], [0.4, 0.6], [0.5, 0.5]]), [0.5, 0.25, 0.25])])
def test_files_hold_the_model_and_its_table(tmp_path: Path, given) -> None:
    model = interp.build("memorization/theorem1", table=given, d_model=2)
    loaded = interp.load(interp.save(model, tmp_path / "model.safetensors"))
    assert loaded.spec == model.spec
    assert np.array_equal(loaded.task.conditional, given.conditional)
    assert np.array_equal(loaded.task.prior, given.prior)
    assert np.array_equal(logits(loaded), logits(model))


def test_corollary2_reads_the_last_tokens_at_every_position() -> None:
    task = kgram(N=3, M=3, k=2, concentration=0.5, seed=2)
    model = interp.build("memorization/corollary2", table=task, length=5, rank=2)
    best = rank_d_optimum(task, 2)
    tokens = task.sequences(40, 5, seed=1)
    out = model(tokens).detach().numpy()
    for end in range(2, 6):
        rows = task.context_index(tokens[:, :end])
        close(out[:, end - 1], best.logits[rows], atol=1e-8)


def test_arrays_become_tasks_and_priors_count() -> None:
    rows = np.random.default_rng(0).dirichlet(np.ones(4), size=6)
    prior = np.arange(1, 7) / 21
    model = interp.build("memorization/theorem1", table=rows, prior=prior, d_model=2)
    assert model.task.ref.name == "table"
    assert kl_divergence(rows, logits(model), prior) == pytest.approx(rank_d_optimum(rows, 2, prior).kl, abs=1e-9)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"d_model": 2}, "needs table"),
        ({"table": SMALL}, "give d_model"),
        ({"table": SMALL, "d_model": 3, "n_heads": 2}, "2 heads are too few"),
        ({"table": [[0.5, 0.6]], "d_model": 1}, "do not sum to one"),
        ({"table": SMALL, "d_model": 0}, "d_model = 0 must be at least 1"),
        ({"table": SMALL, "d": 3}, "d_model"),
    ],
)
def test_refusals(arguments, word) -> None:
    with pytest.raises(interp.InterpError, match=word):
        interp.build("memorization/theorem1", **arguments)


def test_the_baseline_of_one_head_and_an_mlp() -> None:
    spec = memorization_spec(SMALL, 3, 1, d_mlp=5)
    model = interp.build(spec)
    assert model.blocks[0].mlp.W_in.shape == (3, 5)
    # 3 (4 + 2 + 6) embeddings, 2 x 9 attention, 2 x 15 + 5 + 3 MLP
    assert sum(p.numel() for p in model.parameters()) == 36 + 18 + 38
