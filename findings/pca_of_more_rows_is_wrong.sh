#!/bin/sh
# scikit-learn 1.9.1: PCA of float32 activations where one coordinate is large and hardly varies, like the massive
# activations of language models, finds that coordinate as the first component, with up to a hundred times the variance
# that there is. With one row less it is right. From ten rows per feature on, the solver covariance_eigh is chosen, which
# multiplies first and subtracts the mean from the products, where digits are gone; the documentation says that it takes
# the covariance "on centered data", and only warns of a large range of singular values, which these data do not have
# once they are centered. Whoever takes more activations for a better basis gets a worse one.
# source: https://scikit-learn.org/stable/modules/generated/sklearn.decomposition.PCA.html
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HF_HUB_OFFLINE=1 TMPDIR="$work"
python=${FINDINGS_ENV:+$FINDINGS_ENV/bin/python} # an environment that has these packages already
if [ -z "$python" ]; then
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet scikit-learn==1.9.1 numpy==2.4.6 scipy==1.17.1
    python="$work/venv/bin/python"
fi
cat > "$work/run.py" <<'END'
import numpy as np
from sklearn.decomposition import PCA

d, draws = 64, 20
found = {}
for seed in range(draws):
    draw = np.random.default_rng(seed)
    rows = 0.1 * draw.standard_normal((10 * d, d))
    rows[:, 0] += 0.2 * draw.choice([-1, 1], 10 * d)  # the feature that one looks for: coordinate 0 has the most variance
    rows[:, 7] += 2000
    rows = rows.astype(np.float32)
    true = PCA(svd_solver="full").fit(rows.astype(np.float64))
    for name, fitted in {
        "9.98 rows per feature": PCA().fit(rows[:-1]), "10 rows per feature": PCA().fit(rows),
        "10 rows, svd_solver='full'": PCA(svd_solver="full").fit(rows),
        "10 rows, less their mean": PCA().fit(rows - rows.mean(0, dtype=np.float64).astype(np.float32)),
    }.items():
        found.setdefault(name, []).append((abs(fitted.components_[0] @ true.components_[0]), abs(fitted.components_[0][7]),
                                           fitted.explained_variance_[0] / true.explained_variance_[0]))
assert np.ptp((rows - rows.mean(0, dtype=np.float64)).std(0)[1:]) < 0.02  # the large coordinate varies like the others
for name, values in found.items():
    cosines, large, variances = np.array(values).T
    print(f"{name}: cosine with the first component {np.median(cosines):.3f} (median of {draws}), weight of the large "
          f"coordinate {np.median(large):.3f}, its variance off by a factor of up to {variances.max():.2f}")
    if name == "10 rows per feature":
        assert np.median(cosines) < 0.5 and np.median(large) > 0.9 and variances.max() > 10
    else:
        assert cosines.min() > 0.999 and large.max() < 0.1 and abs(variances - 1).max() < 0.05
END
"$python" "$work/run.py"
