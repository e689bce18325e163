"""Every subset of heads against one separator fitted at a time, from zero."""

import numpy as np
import pytest
from closeness import close
from numpy import ndarray

from interp.errors import InterpError
from interp.measures import separation
from interp.measures.separation import SeparatorPath, fit_separator, score_groups
from interp.measures.subsets import all_subsets, sample_subsets


def heads(seed: int, n_heads: int = 5, d_head: int = 2, n: int = 500) -> tuple[ndarray, ndarray, ndarray, ndarray]:
    """Head outputs that each see a part of the answer, some of them nothing; training and test."""
    generator = np.random.default_rng(seed)
    z = generator.normal(size=(2 * n, n_heads, d_head))
    y = np.where(z[:, 0, 0] + 0.7 * z[:, -1, -1] + 0.3 * generator.normal(size=2 * n) > 0.2, 6, 5)
    return z[:n], y[:n], z[n:], y[n:]


@pytest.mark.parametrize(("n_heads", "d_head"), [(5, 2), (4, 1), (3, 4), (1, 3)])
@pytest.mark.thinned(3)
def test_all_subsets_equal_single_fits(n_heads: int, d_head: int) -> None:
    z, y, test_z, test_y = heads(0, n_heads, d_head)
    path = SeparatorPath().fit(z, y)
    table = path.score_subsets(test_z, test_y)
    assert list(table.columns) == ["heads", "size", "s_acc", "objective", "relative_gap"]
    assert list(table["heads"]) == all_subsets(n_heads)
    for row in table.itertuples():
        x, test_x = (a[:, row.heads].reshape(len(a), -1) for a in (z, test_z))
        alone = SeparatorPath().fit(x[:, None], y).score_subsets(test_x[:, None], test_y).iloc[0]
        assert row.size == len(row.heads)
        assert row.objective == pytest.approx(alone["objective"], rel=2e-8)
        assert 0 <= row.relative_gap <= 1e-8
        assert abs(row.s_acc - alone["s_acc"]) <= 1 / len(test_y) + 1e-12
        w, b = path.weights(row.heads)
        np.testing.assert_allclose(w.ravel(), fit_separator(x, y)[0], rtol=1e-3, atol=1e-3)
        assert row.s_acc == np.mean((test_x @ w.ravel() + b > 0) == (test_y == 6))


def test_groups_in_any_order_and_form() -> None:
    z, y, test_z, test_y = heads(1)
    groups = [(4, 0), [0, 4], np.array([2]), (3, 1, 0), (0, 4)]
    path = SeparatorPath().fit(z, y)
    table = path.score_subsets(test_z, test_y, groups=groups)
    assert list(table["heads"]) == [(4, 0), (0, 4), (2,), (3, 1, 0), (0, 4)]
    assert table["s_acc"][0] == table["s_acc"][1] == table["s_acc"][4]
    (forward, b), (backward, same_b) = path.weights((0, 4)), path.weights((4, 0))
    np.testing.assert_array_equal(forward, backward[::-1])
    assert b == same_b
    rotated, _ = path.weights((3, 0, 1))
    np.testing.assert_array_equal(rotated, path.weights((0, 1, 3))[0][[2, 0, 1]])
    np.testing.assert_array_equal(score_groups(z, y, test_z, test_y, groups)["s_acc"], table["s_acc"])


def test_agrees_with_liblinear_on_count01_heads() -> None:
    """Averages of values over 0s, 1s and 2s, as one attention layer makes them; classes overlap."""
    from sklearn.svm import LinearSVC

    generator = np.random.default_rng(0)
    counts = np.append(generator.integers(0, 101, (3000, 3)), np.ones((3000, 1)), axis=1)
    weighted = counts[:, None] * np.exp(generator.normal(size=(4, 4)))
    z = np.einsum("rht,htd->rhd", weighted / weighted.sum(axis=2, keepdims=True), generator.normal(size=(4, 4, 2)))
    y = np.where(counts[:, 1] > counts[:, 0], 5, 6)
    train, test = slice(0, 2000), slice(2000, 3000)
    table = SeparatorPath().fit(z[train], y[train]).score_subsets(z[test], y[test])
    for row in table.itertuples():
        x = z[:, row.heads].reshape(3000, -1)
        theirs = LinearSVC(C=1000.0, tol=1e-8, dual=False, max_iter=100_000).fit(x[train], y[train])
        hinge = np.maximum(0.0, 1.0 - np.where(y[train] == 6, 1, -1) * theirs.decision_function(x[train]))
        objective = 0.5 * (np.sum(theirs.coef_**2) + theirs.intercept_[0] ** 2) + 1000.0 * np.sum(hinge**2)
        assert row.objective <= objective * (1 + 1e-12)
        assert abs(row.s_acc - theirs.score(x[test], y[test])) <= 1 / 1000 + 1e-12


def test_chunks_and_sample_agree_with_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    z, y, test_z, test_y = heads(2, n_heads=6)
    whole = SeparatorPath().fit(z, y).score_subsets(test_z, test_y).set_index("heads")
    monkeypatch.setattr(separation, "_CHUNK", 3 * len(z))
    small = SeparatorPath().fit(z, y).score_subsets(test_z, test_y).set_index("heads")
    np.testing.assert_allclose(small["objective"], whole["objective"], rtol=2e-8)
    close(small["s_acc"], whole["s_acc"], atol=1 / len(test_y) + 1e-12)
    some = SeparatorPath().fit(z, y).score_subsets(test_z, test_y, sample_subsets(6, 20, seed=4)).set_index("heads")
    assert len(some) == 20
    np.testing.assert_allclose(some["objective"], whole.loc[some.index, "objective"], rtol=2e-8)


def test_collapsed_heads() -> None:
    """A head with the same output on every row does not break the separator, and adds to it only a cheaper bias."""
    z, y, test_z, test_y = heads(3, n_heads=3)
    z[:, 1], test_z[:, 1] = 0.25, 0.25
    table = SeparatorPath().fit(z, y).score_subsets(test_z, test_y).set_index("heads")
    assert table["relative_gap"].max() <= 1e-8
    assert abs(table.loc[[(0,)], "s_acc"].iloc[0] - table.loc[[(0, 1)], "s_acc"].iloc[0]) <= 2 / len(test_y)
    majority = max(np.mean(test_y == 5), np.mean(test_y == 6))
    assert table.loc[[(1,)], "s_acc"].iloc[0] == majority


def test_starts_are_as_good_as_the_best_smaller_group() -> None:
    z, y, test_z, test_y = heads(7, n_heads=4)
    path = SeparatorPath().fit(z, y)
    table = path.score_subsets(test_z, test_y).set_index("heads")
    for group in all_subsets(4)[4:]:
        start = path._start(group)
        hinge = np.maximum(0, 1 - np.where(y == 6, 1, -1) * (z[:, group].reshape(len(z), -1) @ start[:-1] + start[-1]))
        smaller = [group[:i] + group[i + 1 :] for i in range(len(group))]
        best = min(table["objective"][part] for part in smaller)
        assert 0.5 * start @ start + 1000 * (hinge**2).sum() == pytest.approx(best, rel=1e-9)


def test_rows_on_the_plane_get_the_first_class() -> None:
    """Outputs of zero and balanced classes: w = b = 0, and every row lies on the plane."""
    z, y = np.zeros((40, 2, 2)), np.array([5, 6] * 20)
    table = SeparatorPath().fit(z, y).score_subsets(z[:10], np.array([5] * 7 + [6] * 3))
    assert set(table["s_acc"]) == {0.7}


def test_solved_subsets_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    z, y, test_z, test_y = heads(4)
    path = SeparatorPath().fit(z, y)
    first = path.score_subsets(test_z, test_y)
    monkeypatch.setattr(separation, "solve_groups", lambda *_: pytest.fail("solved again"))
    assert path.score_subsets(test_z, test_y).equals(first)
    path.score_subsets(z, y, sample_subsets(5, 7, seed=0))
    monkeypatch.undo()
    other = path.fit(z[:300], y[:300]).score_subsets(test_z, test_y)  # new rows, nothing may be kept
    assert not np.allclose(other["objective"], first["objective"])


def test_stop_returns_what_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    z, y, test_z, test_y = heads(5)
    monkeypatch.setattr(separation, "_CHUNK", 4 * len(z))
    path = SeparatorPath().fit(z, y)
    calls: list[tuple[int, int]] = []

    def stop(done: int, total: int) -> bool:
        calls.append((done, total))
        return done >= 7

    table = path.score_subsets(test_z, test_y, stop=stop)
    assert calls == [(4, 31), (5, 31), (9, 31)]
    assert list(table["heads"]) == all_subsets(5)[:9]
    assert len(path.score_subsets(test_z, test_y)) == 31  # and goes on from there


Z, Y, TEST_Z, TEST_Y = heads(6, n=30)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"groups": []}, "no groups of heads"), ({"groups": [(0,), ()]}, "a group of heads is empty"),
        ({"groups": [(0, 1, 0)]}, "the group (0, 1, 0) repeats a head"),
        ({"groups": [(0, 5)]}, "names head 5, but the heads are 0 to 4"), ({"groups": [(-1,)]}, "names head -1"),
        ({"groups": [0, 1]}, "0 is not a group of heads"),
        ({"test_z": TEST_Z[:, :4]}, "(heads, d_head) = (4, 2), but train_z has (5, 2)"),
        ({"test_z": np.full_like(TEST_Z, np.nan)}, "test_z has 300 values that are NaN"),
        ({"y": TEST_Y + 1}, "but the separator was fitted on 5 and 6"),
        ({"y": TEST_Y[:-1]}, "one label per row"),
    ],
)  # fmt: skip
def test_bad_requests(arguments: dict, sentence: str) -> None:
    path = SeparatorPath().fit(Z, Y)
    with pytest.raises(InterpError) as error:
        path.score_subsets(**{"test_z": TEST_Z, "y": TEST_Y, **arguments})
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_bad_training_rows() -> None:
    with pytest.raises(InterpError, match="one class only"):
        SeparatorPath().fit(Z, np.ones(30))
    with pytest.raises(InterpError, match=r"train_z has shape \(30, 10\)"):
        SeparatorPath().fit(Z.reshape(30, -1), Y)
    few = SeparatorPath().fit(Z[:8], Y[:8])
    with pytest.raises(InterpError, match="8 rows are fewer than 10 features"):
        few.score_subsets(TEST_Z, TEST_Y)
    few.score_subsets(TEST_Z, TEST_Y, groups=[(0, 1, 2, 3)])  # 8 features are enough for 8 rows
    with pytest.raises(InterpError, match="call fit"):
        SeparatorPath().score_subsets(TEST_Z, TEST_Y)


@pytest.mark.slow
def test_the_group_that_cannot_be_proven_is_named() -> None:
    z = Z.copy()
    z[:, 2] += 1e15
    with pytest.raises(InterpError, match=r"separator of heads \(2,\) was not proven optimal"):
        SeparatorPath().fit(z, Y).score_subsets(TEST_Z, TEST_Y)
