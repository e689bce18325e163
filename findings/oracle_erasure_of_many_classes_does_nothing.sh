#!/bin/sh
# concept-erasure 0.2.4: OracleEraser gives its input back, bit for bit, where a concept has more than 100 equally
# frequent classes, or is a yes or no that at most one row in a hundred has. With 99 classes it erases all. Eigenvalues
# of the labels' covariance below svd_tol=0.01 count as 0, and k one-hot classes have the eigenvalue 1/k. It is
# documented as one that "surgically erases a concept", with finer edits than LeaceEraser, and nothing warns, while
# LeaceEraser erases the same classes. Whoever erases positions or tokens with oracle labels reads that the model
# needs neither.
# source: https://github.com/EleutherAI/concept-erasure
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HF_HUB_OFFLINE=1 TMPDIR="$work"
python=${FINDINGS_ENV:+$FINDINGS_ENV/bin/python} # an environment that has these packages already
if [ -z "$python" ]; then
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet torch==2.13.0 concept-erasure==0.2.4 numpy==2.4.6
    python="$work/venv/bin/python"
fi
cat > "$work/run.py" <<'END'
import warnings

warnings.simplefilter("ignore")
import torch
from concept_erasure import LeaceEraser, OracleEraser
from torch.nn.functional import one_hot

torch.manual_seed(0)


def seen(classes, labels):  # how far the means of the classes are apart: before, after OracleEraser, after LeaceEraser
    centers = torch.randn(classes, 64)
    rows = centers[labels] + 0.1 * torch.randn(len(labels), 64)
    concept = labels if classes == 2 else one_hot(labels, classes)
    oracle = OracleEraser.fit(rows, concept)(rows, concept)
    leace = LeaceEraser.fit(rows, concept)(rows)

    def spread(at):
        return float(torch.stack([at[labels == label].mean(0) for label in range(classes)]).std(0).mean())

    return [spread(rows), spread(oracle), spread(leace)], torch.equal(oracle, rows)


for classes in (99, 101, 128):
    spreads, untouched = seen(classes, torch.arange(classes).repeat(100))
    print(f"{classes} classes: means of the classes differ by {spreads[0]:.2f}; erased with oracle labels by "
          f"{spreads[1]:.0e}, by LEACE by {spreads[2]:.0e}; the input came back: {untouched}")
    assert untouched == (classes > 100) and (spreads[1] < 1e-4) == (classes < 100) and spreads[2] < 1e-4
for every in (50, 200):
    spreads, untouched = seen(2, (torch.arange(20000) % every == 0).long())
    print(f"one row in {every}: means differ by {spreads[0]:.2f}; erased with oracle labels by {spreads[1]:.0e}, by LEACE "
          f"by {spreads[2]:.0e}; the input came back: {untouched}")
    assert untouched == (every > 100) and (spreads[1] < 1e-4) == (every < 100) and spreads[2] < 1e-4
END
"$python" "$work/run.py"
