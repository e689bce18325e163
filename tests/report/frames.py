"""Synthetic tables of the shapes that the measures give."""

from itertools import combinations

import numpy as np
import pandas as pd

HEADS = range(16)


def make_frames(seed: int = 0) -> dict[str, pd.DataFrame]:
    random = np.random.default_rng(seed)
    skill = np.where(random.random(16) < 0.5, random.uniform(0.98, 1.0, 16), random.uniform(0.5, 0.85, 16))
    good = skill > 0.97
    w01 = np.where(good, random.uniform(0.88, 1.06, 16), 10 ** random.uniform(-2.5, 2.5, 16))
    w02 = np.where(good, 10 ** random.uniform(1.1, 2.5, 16), 10 ** random.uniform(-1.5, 1.0, 16))
    groups = [(head,) for head in HEADS] + list(combinations(HEADS, 2))
    s_acc = [min(1.0, max(skill[list(group)]) + 0.004 * (len(group) - 1)) for group in groups]
    frames = {
        "groups": pd.DataFrame(
            {
                "heads": groups, "size": [len(group) for group in groups], "s_acc": s_acc,
                "l_acc": random.uniform(0.45, 0.8, len(groups)), "roc_auc": np.clip(np.array(s_acc) + 0.01, 0, 1),
            }
        ),
        "heads": pd.DataFrame(
            {
                "head": list(HEADS), "s_acc": skill, "w01": w01, "w02": w02,
                "category": np.where(good, "successful", np.where(skill > 0.8, "mixed", "failed")),
            }
        ),
    }  # fmt: skip
    points, values, separators = [], [], {}
    for head in HEADS:
        corners = random.normal(0, 1, (3, 2))
        counts = random.integers(1, 200, (1500, 3)).astype(float)
        weights = counts * np.array([1.0, 1 / w01[head], 1 / w02[head]])
        outputs = weights / weights.sum(1, keepdims=True) @ corners
        label = np.where(counts[:, 1] > counts[:, 0], "4", "5")
        split = np.where(np.arange(1500) % 3 == 0, "test", "train")
        points.append(
            pd.DataFrame({"head": head, "x": outputs[:, 0], "y": outputs[:, 1], "label": label, "split": split})
        )
        values.append(pd.DataFrame({"head": head, "token": ["0", "1", "2"], "x": corners[:, 0], "y": corners[:, 1]}))
        direction = outputs[label == "4"].mean(0) - outputs[label == "5"].mean(0)
        separators[head] = (*direction, -float(direction @ outputs.mean(0)))
    frames["points"], frames["values"] = pd.concat(points, ignore_index=True), pd.concat(values, ignore_index=True)
    frames["separators"] = pd.DataFrame.from_dict(separators, orient="index", columns=["w1", "w2", "b"])

    ratios = np.logspace(-3, 3, 25)
    curve = [
        {
            "head": head,
            "ratio": ratio,
            "s_acc": np.clip(1 - 0.05 * np.log10(ratio) ** 2 * random.uniform(0.5, 1.2), 0.5, 1),
        }
        for head in HEADS
        for ratio in ratios
    ]
    frames["curve"] = pd.DataFrame(curve)
    logits = [
        pd.DataFrame(
            {"head": head, "current": current, "next": following, "token": token, "logit": random.normal(shift, 1, 60)}
        )
        for head in [*HEADS, "model"]
        for current, following in [("=", "4"), ("=", "5"), ("4", "[EOS]"), ("5", "[EOS]")]
        for token, shift in zip(["4", "5", "[EOS]"], random.normal(0, 3, 3))
    ]
    frames["logits"] = pd.concat(logits, ignore_index=True)
    difference = np.arange(-200, 201)
    inputs = 15150 - 50 * np.abs(difference)
    errors = np.where((difference > 0) & (difference < 4), inputs * 0.3 / np.maximum(difference, 1), 0).astype(int)
    frames["errors"] = pd.DataFrame({"difference": difference, "errors": errors, "inputs": inputs})
    n2 = np.arange(0, 201)
    frames["frontier"] = pd.DataFrame(
        {
            "n2": n2,
            "min_difference": np.where(n2 < 40, np.nan, 1.0),
            "max_difference": np.where(n2 < 40, np.nan, n2 // 45),
        }
    )
    frames["history"] = pd.DataFrame(
        [
            {
                "seed": seed, "epoch": epoch, "loss": np.exp(-epoch / (10 + 4 * seed)) + 0.002,
                "accuracy": 1 - 0.5 * np.exp(-epoch / 15),
            }
            for seed in range(4)
            for epoch in range(100)
        ]
    )  # fmt: skip
    tokens = ["[BOS]", "0", "1", "2", "=", "4", "5", "[EOS]"]
    frames["qk"] = pd.DataFrame(
        [{"head": h, "query": q, "key": k, "value": random.normal(0, 2)} for h in HEADS for q in tokens for k in tokens]
    )
    return frames
