import csv

import mpmath
import numpy as np
import pytest
from closeness import close

from interp.families.memorization.theory import attention_heads, table


def generic(n, k, d, heads, seed=0, spread=6.0):
    rng = np.random.default_rng(seed)
    W_QK = rng.normal(size=(heads, d, d)) * spread / (2 * np.sqrt(d))
    return np.array(table.all_contexts(n, k)), rng.normal(size=(n, d)), rng.normal(size=(k, d)), W_QK


def exact_rank(n, k, d, heads, seed=0):
    """Rank at 120 digits, by Gaussian elimination with full pivoting: the independent reference."""
    contexts, W_E, W_pos, W_QK = generic(n, k, d, heads, seed)
    with mpmath.workdps(120):
        rows = []
        for tokens in contexts:
            x = [
                [mpmath.mpf(float(a)) + mpmath.mpf(float(b)) for a, b in zip(W_E[t], W_pos[j])]
                for j, t in enumerate(tokens)
            ]
            row = []
            for W in W_QK:
                query = [mpmath.fsum(x[-1][a] * mpmath.mpf(float(W[a, b])) for a in range(d)) for b in range(d)]
                weights = [mpmath.exp(mpmath.fdot(query, key) / mpmath.sqrt(d)) for key in x]
                total = mpmath.fsum(weights)
                row += [mpmath.fsum(w * key[b] for w, key in zip(weights, x)) / total for b in range(d)]
            rows.append(row)
        rank = 0
        while rows and rows[0]:
            i, j = max(
                ((i, j) for i in range(len(rows)) for j in range(len(rows[0]))), key=lambda at: abs(rows[at[0]][at[1]])
            )
            pivot = rows.pop(i)
            if abs(pivot[j]) < mpmath.mpf(10) ** -80:
                break
            rank += 1
            rows = [
                [value - row[j] / pivot[j] * top for b, (value, top) in enumerate(zip(row, pivot)) if b != j]
                for row in rows
            ]
        return rank


@pytest.mark.parametrize(("n", "k", "d", "heads", "rank"), [
    (6, 1, 2, 3, 2),  # erratum 4: rank 2 of 6 whatever the number of heads
    (3, 2, 1, 9, 9), (3, 2, 2, 5, 9), (3, 2, 4, 2, 7),
    (4, 2, 6, 3, 13),  # erratum 5: 13 of 16, printed 16
    (3, 3, 5, 6, 25),  # 25 of 27
    (4, 2, 3, 5, 15),
    (3, 2, 5, 3, 9),
    *(pytest.param(*row, marks=pytest.mark.slow) for row in ((3, 3, 7, 4, 17), (4, 3, 3, 8, 24), (5, 2, 7, 4, 21))),
])  # fmt: skip
def test_erratum_5_rank_at_120_digits(n, k, d, heads, rank):
    assert attention_heads.attention_rank(n, k, d, heads) == rank
    assert exact_rank(n, k, d, heads) == rank


def test_float64_rank_where_it_is_well_conditioned():
    for n, k, d, heads in [(5, 2, 3, 4), (8, 2, 4, 20), (4, 2, 8, 3), (6, 2, 9, 5), (4, 3, 7, 6)]:
        matrix = attention_heads.attention_matrix(*generic(n, k, d, heads))
        values = np.linalg.svd(matrix, compute_uv=False)
        assert (values > 1e-11 * values[0]).sum() == attention_heads.attention_rank(n, k, d, heads)


def test_heads_needed_is_the_least_number_of_full_rank():
    for n, k in [(3, 2), (4, 2), (3, 3), (2, 4), (5, 3), (3, 4)]:
        for d in range(1, 12):
            least = attention_heads.heads_needed(n, k, d, spare=0.0)
            assert attention_heads.attention_rank(n, k, d, least) == n**k
            assert attention_heads.attention_rank(n, k, d, least - 1) < n**k
    assert attention_heads.heads_needed(5, 1, 3) == 0
    assert attention_heads.heads_needed(4, 2, 4, spare=0.0) == 4
    assert attention_heads.heads_needed(4, 2, 4) == 5
    assert attention_heads.heads_needed(16, 2, 8) == 40
    assert attention_heads.heads_needed(12, 2, 4, n_contexts=137, spare=0.0) == 35


def test_attention_matrix_by_hand():
    contexts = np.array([[1, 0]])
    W_E, W_pos = np.array([[1.0], [2.0]]), np.array([[0.5], [-0.5]])
    x = np.array([2.5, 0.5])
    weights = np.exp(0.5 * 3 * x)
    expected = weights @ x / weights.sum()
    assert attention_heads.attention_matrix(contexts, W_E, W_pos, np.array([[[3.0]]]))[0, 0] == pytest.approx(expected)


def test_too_soft_or_too_sharp_keys_lose_rank_in_float64():
    # erratum 7: large scales saturate the softmax for small d, and the numerical rank collapses
    sharp = attention_heads.attention_matrix(*generic(8, 2, 2, 32, spread=400.0))
    values = np.linalg.svd(sharp, compute_uv=False)
    assert (values > 1e-11 * values[0]).sum() < 64


def test_erratum_6_the_image_of_one_sequence_does_not_span():
    # d > k: a vector orthogonal to x(t, 1..k) is orthogonal to what any head puts out, so Lemma 3's last step fails.
    contexts, W_E, W_pos, W_QK = generic(3, 2, 4, 50)
    x = W_E[contexts[5]] + W_pos
    v = np.linalg.svd(x)[2][-1]
    outputs = attention_heads.attention_matrix(contexts, W_E, W_pos, W_QK).reshape(9, 50, 4)
    close(outputs[5] @ v, 0, atol=1e-13)
    assert np.abs(outputs[4] @ v).max() > 0.01


@pytest.mark.parametrize(("n", "d", "heads", "rank"), [(6, 3, 11, 33), (8, 4, 15, 60)])
def test_published_version_the_residual_stream_adds_d(n, d, heads, rank):
    # with one head fewer, A alone has rank 33 of 36 (60 of 64), and A with e(t_k) beside it 36 (64)
    contexts, W_E, W_pos, W_QK = generic(n, 2, d, heads)
    matrix = attention_heads.attention_matrix(contexts, W_E, W_pos, W_QK)
    assert attention_heads.attention_rank(n, 2, d, heads) == rank == np.linalg.matrix_rank(matrix, tol=1e-9)
    assert np.linalg.matrix_rank(np.hstack([matrix, W_E[contexts[:, -1]]]), tol=1e-9) == n * n


def test_published_formulas():
    assert attention_heads.memorized_associations(n_heads=20, d_head=10, d=10) == 210
    assert attention_heads.accuracy_lower_bound(50, 1, 3, 3) == pytest.approx(1 / 50 + 49 / 50 * 6 / 2500)
    assert attention_heads.accuracy_lower_bound(4, 100, 10, 10) == 1.0


def test_published_accuracies_of_the_first_rows_meet_the_bound():
    # dana_capacity.csv, experiment 1, d = d_h = 3, vocabulary 50: means of five runs
    published = csv.reader(["1,0.058625", "6,0.065211", "11,0.075781", "16,0.085641"])
    for heads, accuracy in published:
        assert float(accuracy) > attention_heads.accuracy_lower_bound(50, int(heads), 3, 3)


def test_parameters_of_table_c():
    # erratum table C: N = M = 8, d = 4, P = 4 heads: 200; P = 8: 328; P = 16: 584; N = 12, P = 9: 392
    for n, heads, count in [(8, 4, 200), (8, 8, 328), (8, 16, 584), (12, 9, 392), (12, 18, 680), (12, 36, 1256)]:
        assert attention_heads.attention_parameters(n, n, 2, 4, heads) == count
