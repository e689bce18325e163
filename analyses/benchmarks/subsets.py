"""How much faster than liblinear are optimal separators for every subset of heads?

    python analyses/benchmarks/subsets.py                     # synthetic head outputs, 16 heads, all 65,535 subsets
    python analyses/benchmarks/subsets.py count01/paper       # the head outputs of a trained model
    python analyses/benchmarks/subsets.py --quick             # 11 heads, a few seconds

Ours (A) solves all subsets; after each piece of its work liblinear at tolerance 1e-8 (B) fits a few subsets of the
same size, drawn at random, so that both see the same machine at the same time, on one thread. The ratio of a drawn
subset is B's time for it over A's mean time for its size; the totals weigh each size by its number of subsets. A's
time counts everything (starts, proofs on all rows, scoring the test rows), B's the fit alone.
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings
from dataclasses import dataclass, field
from math import comb

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from interp.measures.separation import SeparatorPath
from interp.measures.subsets import Group, all_subsets, sample_subsets, subset_logit_metrics

C, TOLERANCE = 1000.0, 1e-8


@dataclass(frozen=True)
class Heads:
    """Head outputs of training and test rows, and what each head adds to the test rows' logits."""

    name: str
    train_z: np.ndarray  # (rows, heads, d_head)
    train_y: np.ndarray  # (rows,): class indices
    test_z: np.ndarray
    test_y: np.ndarray
    contributions: np.ndarray  # (test rows, heads, classes)
    bias: np.ndarray  # (classes,)

    def first(self, n: int) -> Heads:
        z, test_z, parts = (a[:, :n] for a in (self.train_z, self.test_z, self.contributions))
        return Heads(self.name, z, self.train_y, test_z, self.test_y, parts, self.bias)


def synthetic(seed: int, n_heads: int = 16, d_head: int = 2, n_classes: int = 8) -> Heads:
    """Attention averages with random weights per token type; half of the heads weigh '0' and '1' alike and '2' little.

    The counts are Count01's: 7000 training rows with 0..100 of each digit, 1500 test rows with 151..200 (0..200 of
    '2').
    """
    generator = np.random.default_rng(seed)
    train = generator.integers(0, 101, (7000, 3))
    test = np.stack([generator.integers(151, 201, 1500), generator.integers(151, 201, 1500)], axis=1)
    test = np.append(test, generator.integers(0, 201, (1500, 1)), axis=1)
    attention = np.exp(generator.normal(size=(n_heads, 5)))
    good = generator.permutation(n_heads)[: n_heads // 2]
    attention[good, 1] = attention[good, 0] * np.exp(0.03 * generator.normal(size=len(good)))
    attention[good, 2] = attention[good, 0] * np.exp(-generator.uniform(2, 4, len(good)))
    values = generator.normal(size=(n_heads, 5, d_head))
    readout = generator.normal(size=(n_heads, d_head, n_classes))

    def outputs(counts: np.ndarray) -> np.ndarray:
        present = np.append(counts, np.ones((len(counts), 2)), axis=1)  # [BOS] and '=' come once
        weighted = present[:, None] * attention
        return np.einsum("rht,htd->rhd", weighted / weighted.sum(axis=2, keepdims=True), values)

    def answers(counts: np.ndarray) -> np.ndarray:
        return np.where(counts[:, 1] > counts[:, 0], 5, 6)

    test_z = outputs(test)
    contributions = np.einsum("rhd,hdc->rhc", test_z, readout)
    return Heads("synthetic", outputs(train), answers(train), test_z, answers(test), contributions, np.zeros(n_classes))


def trained(name: str) -> Heads:
    """The heads of a checkpoint, on its task's training and test set."""
    import interp
    from interp.measures.heads import head_outputs

    model = interp.load(name)
    train, test = (head_outputs(model, model.task.dataset(split)) for split in ("train", "test"))
    arrays = (train.z, train.labels, test.z, test.labels, test.contributions, test.bias)
    return Heads(name, *(array.detach().numpy() for array in arrays))


@dataclass
class Race:
    """Times of both sides, interleaved: `between` is called after each piece of our work."""

    heads: Heads
    queue: dict[int, list[Group]]
    ours: dict[int, float] = field(default_factory=dict)  # seconds by size, scoring excluded
    theirs: list[dict[str, object]] = field(default_factory=list)
    elsewhere: float = 0.0  # seconds inside `between`, not ours
    last: float = 0.0

    def between(self, done: int, total: int) -> bool:
        now = time.perf_counter()
        n_heads = self.heads.train_z.shape[1]
        ends = np.cumsum([comb(n_heads, size) for size in range(1, n_heads + 1)])
        size = int(np.searchsorted(ends, done)) + 1
        self.ours[size] = self.ours.get(size, 0.0) + now - self.last
        pieces_left = 1 + int(ends[size - 1] - done) // 500
        for _ in range(-(-len(self.queue.get(size, [])) // pieces_left)):
            self.theirs.append(self.liblinear(self.queue[size].pop()))
        self.last = time.perf_counter()
        self.elsewhere += self.last - now
        return False

    def liblinear(self, group: Group) -> dict[str, object]:
        h = self.heads
        x, test_x = (z[:, list(group)].reshape(len(z), -1) for z in (h.train_z, h.test_z))
        begin = time.perf_counter()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fitted = LinearSVC(C=C, tol=TOLERANCE, dual=False, max_iter=100_000).fit(x, h.train_y)
        seconds = time.perf_counter() - begin
        signs = np.where(h.train_y == fitted.classes_[1], 1.0, -1.0)
        hinge = np.maximum(0.0, 1.0 - signs * fitted.decision_function(x))
        objective = 0.5 * (np.sum(fitted.coef_**2) + fitted.intercept_[0] ** 2) + C * np.sum(hinge**2)
        return {
            "heads": group,
            "seconds": seconds,
            "their_objective": objective,
            "their_s_acc": fitted.score(test_x, h.test_y),
            "unconverged": any(issubclass(w.category, ConvergenceWarning) for w in caught),
        }


def run(heads: Heads, n_sample: int, seed: int) -> pd.DataFrame:
    n_heads = heads.train_z.shape[1]
    total = 2**n_heads - 1
    print(f"{heads.name}: {n_heads} heads of dimension {heads.train_z.shape[2]}, {total:,} subsets, ", end="")
    print(f"{len(heads.train_z)} training rows; liblinear on {n_sample} subsets", flush=True)
    queue: dict[int, list[Group]] = {}
    for group in sample_subsets(n_heads, n_sample, seed):
        queue.setdefault(len(group), []).append(group)
    race = Race(heads, queue)
    begin = race.last = time.perf_counter()
    path = SeparatorPath(C).fit(heads.train_z, heads.train_y)
    ours = path.score_subsets(heads.test_z, heads.test_y, all_subsets(n_heads), stop=race.between)
    separating = time.perf_counter() - begin - race.elsewhere
    begin = time.perf_counter()
    columns = (int(heads.test_y.min()), int(heads.test_y.max()))
    subset_logit_metrics(heads.contributions, heads.bias, heads.test_y, columns, all_subsets(n_heads))
    logits = time.perf_counter() - begin

    drawn = pd.DataFrame(race.theirs).merge(ours, on="heads")
    scoring = (separating - sum(race.ours.values())) / total
    each = {size: seconds / comb(n_heads, size) + scoring for size, seconds in race.ours.items()}
    drawn["ratio"] = drawn["seconds"] / drawn["size"].map(each)
    by_size = drawn.groupby("size").agg(
        drawn=("ratio", "size"), liblinear_ms=("seconds", "mean"), ratio=("ratio", "median")
    )
    by_size["liblinear_ms"] *= 1e3
    by_size.insert(1, "subsets", [comb(n_heads, size) for size in by_size.index])
    by_size.insert(2, "ours_ms", [1e3 * each[size] for size in by_size.index])
    print(by_size.round(3).to_string())
    liblinear = float((by_size["subsets"] * by_size["liblinear_ms"]).sum() / 1e3)
    ratios = drawn["ratio"]
    print(f"ratio liblinear / ours over drawn subsets: min {ratios.min():.1f}, median {ratios.median():.1f}, ", end="")
    print(f"max {ratios.max():.1f}")
    print(f"all {total:,} subsets: ours {separating:.1f} s, liblinear {liblinear:.0f} s (estimated): ", end="")
    print(f"{liblinear / separating:.1f} times faster")
    print(f"l-acc and ROC AUC of all subsets: {logits:.1f} s, {logits / separating:.2f} of the time for s-acc")
    n_test = len(heads.test_y)
    apart = (drawn["their_s_acc"] - drawn["s_acc"]).abs().max() * n_test
    excess = drawn["their_objective"] / drawn["objective"] - 1
    print(f"ours: largest relative gap, proven on all rows, {ours['relative_gap'].max():.1e}")
    print(f"liblinear's objective is above ours by a relative {excess.min():.1e} to {excess.max():.1e}; ", end="")
    print(f"{drawn['unconverged'].sum()} fits unconverged")
    print(f"s-acc apart by at most {apart:.0f} of {n_test} test rows")
    print(f"peak memory of this process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GB")
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", nargs="?", help="name or path of a trained model; synthetic heads without it")
    parser.add_argument("--sample", type=int, default=300, help="subsets that liblinear solves (default 300)")
    parser.add_argument("--seed", type=int, default=0)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="the first 11 heads only, 100 subsets for liblinear")
    size.add_argument("--smoke", action="store_true", help="the first 5 heads only, 15 subsets: does it run?")
    arguments = parser.parse_args()
    heads = trained(arguments.checkpoint) if arguments.checkpoint else synthetic(arguments.seed)
    n_heads, sample = (5, 15) if arguments.smoke else (11, 100) if arguments.quick else (16, arguments.sample)
    heads = heads.first(n_heads)
    with threadpool_limits(1):
        run(heads, min(sample, 2 ** heads.train_z.shape[1] - 1), arguments.seed)


if __name__ == "__main__":
    main()
