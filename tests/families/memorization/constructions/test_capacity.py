"""H d_h + d associations, each checked through the model itself."""

import contextlib
import itertools

import numpy as np
import pytest
from closeness import close

import interp
from interp.families.memorization import lookup
from interp.families.memorization.constructions.capacity import _invertible, capacity
from interp.families.memorization.theory.drawn_tables import dirichlet_table
from interp.models.constructions import construct


@pytest.mark.parametrize(
    ("n", "heads", "d_head", "d"),
    [(10, 1, 2, 2), (10, 17, 2, 2), (20, 6, 3, 5), (20, 12, 1, 4), (50, 16, 5, 5), (6, 10, 5, 5), (9, 3, 2, 3)],
)
def test_so_many_associations_are_right(n, heads, d_head, d) -> None:
    task = lookup(N=n, M=n, seed=n)
    made = construct("memorization/capacity", table=task, d_model=d, n_heads=heads, d_head=d_head)
    batch = task.all_contexts()
    right = made.model().predict(batch.tokens) == batch.labels
    formula = min(heads * d_head + d, n * n)
    assert made.weights.numbers["associations"] == formula
    assert int(right.sum()) == made.weights.numbers["memorized"] >= formula
    assert made.weights.numbers["accuracy"] == pytest.approx(float(right.double().mean()))
    shapes = {name.split(".")[-1]: tuple(tensor.shape) for name, tensor in made.weights.tensors.items()}
    assert shapes["W_V"] == (heads, d, d_head)


def test_one_association_more_is_not_in_the_heads() -> None:
    """Off the chosen contexts nothing is promised: with two outputs as good as random, about half are wrong."""
    numbers = capacity(lookup(N=30, M=30, seed=0), 3, 4, 3).weights.numbers
    assert numbers["associations"] == 15
    assert numbers["memorized"] < 15 + 0.2 * 885


def test_the_likeliest_contexts_are_chosen() -> None:
    task = lookup(N=8, M=8, prior="zipf", seed=1)
    model = interp.build("memorization/capacity", table=task, d_model=2, n_heads=3)
    batch = task.all_contexts()
    right = model.predict(batch.tokens) == batch.labels
    assert right[:8].all()
    assert float(np.sum(task.prior[right.numpy()])) >= task.prior[:8].sum()


@pytest.mark.parametrize(("table", "sizes", "word"), [
    (lookup(N=6, M=6, k=1), {"d_model": 2, "n_heads": 2}, "at least 2 tokens"),
    (lookup(N=6, M=6), {"d_model": 1, "n_heads": 2}, "d of at least 2"),
    (lookup(N=6, M=6), {"d_model": 2, "n_heads": 0}, "n_heads = 0"),
    (lookup(N=9, M=9), {"d_model": 3, "n_heads": 3, "d_head": 8}, "rank 12 only"),
    (dirichlet_table(3, 4, order=2), {"d_model": 8, "n_heads": 1, "d_head": 1}, "rank 4 only"),
    # Four contexts with two right outputs between them: B has rank 2 of 3.
    (lookup(N=3, M=3, seed=3), {"d_model": 3, "n_heads": 1, "d_head": 1}, "residual stream is singular"),
])  # fmt: skip
def test_refusals(table, sizes, word) -> None:
    with pytest.raises(interp.InterpError, match=word):
        capacity(table, **sizes)


def test_a_stream_wider_than_the_tokens_is_built_or_refused() -> None:
    """d > N: B is singular where no embedding reaches. Which sizes are built must not hang on a CPU's rounding."""
    task, built = lookup(N=4, M=4, seed=4), []
    for d, heads, d_head in itertools.product((5, 6, 8, 12), (1, 3, 6), (1, 2, 5)):
        with contextlib.suppress(interp.InterpError):
            weights = capacity(task, d, heads, d_head).weights
            built.append((d, heads, d_head))
            assert weights.numbers["memorized"] >= weights.numbers["associations"]
            assert max(float(tensor.abs().max()) for tensor in weights.tensors.values()) < 1e7
            right = construct("memorization/capacity", table=task, d_model=d, n_heads=heads, d_head=d_head).model()
            batch = task.all_contexts()
            assert int((right.predict(batch.tokens) == batch.labels).sum()) >= weights.numbers["associations"]
    # 16 contexts need H min(d_h, N + k - 2) + N independent features: 3 heads of 5 count as 4 each.
    assert built == [(d, heads, d_head) for d in (5, 6, 8, 12) for heads, d_head in ((3, 5), (6, 2), (6, 5))]


def test_completing_the_map_changes_no_reachable_value() -> None:
    rng = np.random.default_rng(0)
    embedded = rng.standard_normal((7, 2)) @ rng.standard_normal((2, 5))
    B = np.linalg.lstsq(embedded, rng.standard_normal((7, 5)), rcond=1e-10)[0]
    completed, condition = _invertible(B, embedded)
    close(embedded @ completed, embedded @ B, atol=1e-12)
    assert np.linalg.cond(completed) == pytest.approx(condition, rel=1e-6)
    assert condition < 1e3
    assert _invertible(np.outer(B[:, 0], B[0]), embedded)[1] > 1e12
