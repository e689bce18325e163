"""What every shipped model, construction and training engine gave before a change, and what it gives now.

    python tests/golden.py --show              what moved: case, path, old -> new (exit status 1 if anything did)
    python tests/golden.py --write             writes the files anew (make golden)
    ... --only count01/paper languages         these cases, or all whose names begin so
    ... --keys certificate ablation            these keys only

One JSON file in tests/golden/ per case. A case is a trained model or a construction, the latter also in a second size
("@small"); an engine's training run ("training/vmap"); or "evidence", what the checker says of the files in
tests/golden/evidence/, which stay as they are (certificate.evidence(path) adds one). Numbers of inputs are given and
searches end after a number of steps, so that nothing depends on time. Integers and text are compared exactly, floats
and decimals in text within the tolerances below.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import torch
from short_count01 import Short

import interp
from interp.certificates import budgets, certify_model, check, histogram
from interp.certificates.known import known
from interp.constructions import registered_constructions
from interp.errors import InterpError
from interp.explanations.shipped import shipped
from interp.measures.subject import Subject
from interp.report.items import Heading

FOLDER = Path(__file__).parent / "golden"
EVIDENCE = FOLDER / "evidence"
MODELS = Path(__file__).parent.parent / "models"
RELATIVE, ABSOLUTE = 1e-4, 1e-6
"""Two floats are the same within the sum of these; models in float32 give 1e-5 on other CPUs."""
DIGITS = 7
ROWS = 20
"""Rows kept of a table; of the rest, its length and each number column's mean, least and largest value."""
INPUTS = 200
NOT_KEPT = ("seconds", "source", "probes", "probed", "on_record")
"""Fields of certificates that depend on the machine, or on the model in memory."""

NORM = {"layer_norm": True, "eps": 1e-5}
BIGRAM, KGRAM, LOOKUP = ({"table": f"memorization/{name}"} for name in ("bigram", "kgram", "lookup"))
SIZES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "algorithmic/addition-exact": ({}, {"digits": 6}),
    "algorithmic/induction-exact": ({}, {"v": 5, "length": 8, "shortest": 2, "longest": 3}),
    "algorithmic/max-of-k-exact": ({}, {"K": 3, "v": 8}),
    "algorithmic/modular-addition-fourier": ({}, {"p": 13, "frequencies": "1 3 4"}),
    "count01/minimal": ({}, {"N": 12, "n_max": 300}),
    "languages/first": ({}, NORM), "languages/one": ({}, NORM), "languages/parity": ({}, NORM),
    "languages/palindrome": ({}, {"variant": "mirror"}),
    "memorization/capacity": (LOOKUP | {"d_model": 6, "n_heads": 8}, KGRAM | {"d_model": 2, "n_heads": 3}),
    "memorization/corollary2": (LOOKUP | {"length": 3, "rank": 4}, KGRAM | {"length": 3, "rank": 2}),
    "memorization/theorem1": (BIGRAM | {"d_model": 8}, KGRAM | {"d_model": 3}),
}  # fmt: skip
"""The two sizes of each construction but those of histograms; table: that of a model."""
ENGINES = {
    "count-space-fused": "count01/paper", "count-space": "count01/paper", "fused": "histogram/dot",
    "stacked": "histogram/dot-softmax", "encoder-fused": "languages/one-learned", "encoder": "languages/one-learned",
    "exact-kl": "memorization/bigram", "vmap": "algorithmic/addition", "reference": "algorithmic/max-of-k",
}  # fmt: skip
"""Whose architecture and data each engine trains."""
LONG = {"algorithmic/induction", "algorithmic/brackets"}
"""Their certificates take minutes, so those shipped with interp are compared."""


# ---------------------------------------------------------------- plain data


def plain(value: Any) -> Any:
    """Data for JSON: floats rounded, tables shortened, everything else by its fields or as text."""
    if isinstance(value, pd.DataFrame):
        return table(value)
    if isinstance(value, torch.Tensor | np.ndarray):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value) if one.name not in NOT_KEPT}
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, np.bool_ | np.integer | int):
        return bool(value) if isinstance(value, np.bool_) else int(value)
    if isinstance(value, np.floating | float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else str(value)
    return str(value)


def table(frame: pd.DataFrame) -> dict[str, Any]:
    """The columns of a table, its length, its first rows, and the numbers of all rows in short if there are more."""
    timed = [name for name in frame.columns if "seconds" in str(name)]
    frame = frame.drop(columns=timed)
    found = {
        "columns": plain(list(frame.columns)),
        "n": len(frame),
        "rows": plain([list(row) for row in frame.head(ROWS).itertuples(index=False)]),
    }
    if len(frame) > ROWS:
        numbers = frame.select_dtypes("number").astype(float)
        found["all"] = {str(name): plain([one.mean(), one.min(), one.max()]) for name, one in numbers.items()}
    return found


DECIMAL = re.compile(r"(-?\d*\.\d+(?:e[+-]?\d+)?|-?\d+e[+-]?\d+)")


def same(old: Any, new: Any) -> bool:
    """Integers and text exactly, floats within the tolerance, decimals in text up to one in their last digit."""
    if isinstance(old, str) and isinstance(new, str) and old != new:
        mine, theirs = DECIMAL.split(old), DECIMAL.split(new)
        if mine[::2] != theirs[::2]:
            return False
        return all(abs(float(a) - float(b)) <= 1.01 * unit(a) for a, b in zip(mine[1::2], theirs[1::2]))
    if type(old) in (int, float) and type(new) in (int, float) and float in (type(old), type(new)):
        return abs(old - new) <= ABSOLUTE + RELATIVE * max(abs(old), abs(new))
    return type(old) is type(new) and old == new


def unit(number: str) -> float:
    """One in the last digit of a decimal."""
    mantissa, _, exponent = number.partition("e")
    return float(10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2])))


def differences(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every path at which two trees of plain data differ, with both values (None: there is none)."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from differences(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (mine, theirs) in enumerate(zip(old, new)):
            yield from differences(mine, theirs, f"{path}[{index}]")
    elif not same(old, new):
        yield path, old, new


# ---------------------------------------------------------------- models


def model_cases() -> dict[str, Callable[[], interp.TaskModel]]:
    """How to make each model: the default checkpoint of every trained one, every construction in two sizes."""
    listed, found = interp.list_models().set_index("name"), {}
    for name in registered_constructions():
        first, second = SIZES.get(name, ({}, {"T": 4, "L": 3}))
        found |= {name: partial(built, name, first), f"{name}@small": partial(built, name, second)}
    for name in listed.index[[bool(seeds) for seeds in listed["seeds"]]]:
        found[name] = partial(interp.load, name)
    return dict(sorted(found.items()))


def built(name: str, sizes: dict[str, Any]) -> interp.TaskModel:
    table = {"table": interp.load(sizes["table"]).task} if "table" in sizes else {}
    return interp.build(name, **(sizes | table))


def certificate(name: str, model: interp.TaskModel) -> Any:
    if name in LONG:
        return known(model)
    options = {"histogram": {"seconds": 1.0, "samples": 0}, "languages": {"longest": 8}}
    return certify_model(model, **options.get(name.split("/")[0], {}))


def report(name: str, model: interp.TaskModel) -> Any:
    listed = interp.analyze(model, sections=["accuracy"], inputs=INPUTS).sections
    apply = [row.section for row in listed.itertuples() if row.status != "does not apply"]
    chosen = [section for section in apply if section not in ("explanation", "live")]
    options = {"automaton": {"longest": 5}} if "automaton" in chosen else {}
    made = interp.analyze(model, sections=chosen, options=options, inputs=INPUTS)
    return {
        "sections": [section for section in apply if section != "explanation"],
        "headings": [item.title for item in made.items if isinstance(item, Heading)],
        "verdict": {said.about: said.text for said in made.said},
        "facts": made.facts,
        "tables": made.tables,
    }


def explanation(name: str, model: interp.TaskModel) -> Any:
    found = shipped(Subject.of(model))
    if found is None or found.program is None:
        return None if found is None else {"reason": found.reason}
    return {"sentence": found.sentence, "source": found.source, "share": found.agreement, "parts": found.to_frame(),
            "constants": found.constants, "joint": found.joint, "recovered": found.recovered}  # fmt: skip


def head_metrics(name: str, model: interp.TaskModel) -> Any:
    split = model.task.splits[-1]
    return interp.head_metrics(
        model, train=model.task.sample(2 * INPUTS, split, seed=1), test=model.task.sample(INPUTS, split, seed=2)
    )


def ablation(name: str, model: interp.TaskModel) -> Any:
    split = model.task.splits[-1]
    test, reference = (model.task.sample(INPUTS, split, seed=seed) for seed in (1, 2))
    return {mode: interp.ablate_heads(model, mode=mode, test=test, reference=reference)
            for mode in ("zero", "mean", "pooled_mean", "resample")}  # fmt: skip


KEYS: dict[str, Callable[[str, interp.TaskModel], Any]] = {
    "certificate": certificate, "explanation": explanation, "head_metrics": head_metrics,
    "ablation": ablation,
}  # fmt: skip


# ---------------------------------------------------------------- training and evidence


def training(engine: str) -> Any:
    """Twenty steps of two seeds: the history, and mean and norm of each tensor at the end."""
    spec = interp.ModelSpec.from_toml(MODELS / ENGINES[engine] / "model.toml")
    recipe = {"batch_size": 4, "samples_per_epoch": 4 if spec.training.data == "fresh" else None, "epochs": 20}
    if engine.startswith("count-space"):
        spec, recipe = spec.replace(task=Short().ref), {"batch_size": 12, "epochs": 4}
    recipe |= {"warmup_epochs": 0, "learning_rate": 0.01}
    spec = spec.replace(origin=spec.training.model_copy(update=recipe))
    trained = interp.train(spec, seeds=(0, 1), engine=engine, dtype="float64", progress=False)
    return [
        {"history": model.history,
         "weights": {key: [one.mean().item(), one.norm().item()] for key, one in model.named_parameters()}}
        for model in trained
    ]  # fmt: skip


def judged(path: Path) -> Any:
    """What the checker says of a file, and of the same with four times the margin."""
    evidence = check.read(str(path))
    claim = evidence["claim"]
    more = (4 * float.fromhex(claim["margin"])).hex()
    larger = claim | {"margin": more, "sentence": claim["sentence"].replace(claim["margin"], more)}
    return [verdict(evidence), verdict(evidence | {"claim": larger})]


def verdict(evidence: dict[str, Any]) -> dict[str, Any]:
    try:
        _, sentence, rounding = check.check(evidence)
        return {"proved": sentence, "rounding": rounding}
    except check.Fault as fault:
        return {"fault": str(fault)}


# ---------------------------------------------------------------- everything


def case_names() -> list[str]:
    return [*model_cases(), *(f"training/{engine}" for engine in ENGINES), "evidence"]


def results(case: str) -> dict[str, Callable[[], Any]]:
    """How to make the value of each key of a case."""
    if case == "evidence":
        return {path.name: partial(judged, path) for path in sorted(EVIDENCE.glob("*.json.gz"))}
    if case.startswith("training/"):
        return {"run": partial(training, case.removeprefix("training/"))}
    model = model_cases()[case]()
    return {key: partial(function, case, model) for key, function in KEYS.items()}


def value(make: Callable[[], Any]) -> Any:
    try:
        return plain(make())
    except InterpError as error:
        return {"refused": f"{type(error).__name__}: {error}"}


def now(case: str, keys: Sequence[str] = ()) -> dict[str, Any]:
    """The case as it is today: these keys, or all."""
    return {key: value(make) for key, make in results(case).items() if not keys or key in keys}


def stored(case: str) -> dict[str, Any]:
    path = FOLDER / f"{case}.json"
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}


def moved(case: str, keys: Sequence[str] = ()) -> list[tuple[str, Any, Any]]:
    """What differs from the stored file: path, old and new value."""
    old = {key: one for key, one in stored(case).items() if not keys or key in keys}
    return list(differences(old, now(case, keys)))


def write(case: str, keys: Sequence[str] = ()) -> None:
    """Replace these keys in the file of a case, or all: one line for each entry of a key."""
    data = stored(case) | now(case, keys) if keys else now(case)
    path = FOLDER / f"{case}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(lines(*item) for item in data.items()) + "\n}\n", "utf-8")


def lines(key: str, data: Any) -> str:
    compact = partial(json.dumps, separators=(",", ":"))
    if not isinstance(data, dict):
        return f"{compact(key)}: {compact(data)}"
    return f"{compact(key)}: {{\n" + ",\n".join(f"{compact(name)}: {compact(one)}" for name, one in data.items()) + "}"


@contextmanager
def pinned() -> Iterator[None]:
    """One thread, and no search that the clock ends."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with mock.patch.object(budgets, "CAP", math.inf), mock.patch.object(histogram, "count_rest", return_value=None):
        yield
    torch.set_num_threads(threads)


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare with the golden outputs, or write them.")
    parser.add_argument("--show", action="store_true", help="print what moved (the default)")
    parser.add_argument("--write", action="store_true", help="replace the stored files")
    parser.add_argument("--only", nargs="+", default=[""], help="cases, by the beginnings of their names")
    parser.add_argument("--keys", nargs="+", default=[], help="keys of the cases, such as certificate")
    given = parser.parse_args()
    cases = [case for case in case_names() if case.startswith(tuple(given.only))]
    count = 0
    with pinned():
        for case in cases:
            if given.write:
                write(case, given.keys)
                continue
            for path, old, new in moved(case, given.keys):
                count += 1
                print(f"{case} {path}: {str(old)[:200]} -> {str(new)[:200]}", flush=True)
    print(f"{len(cases)} cases written" if given.write else f"{count} values moved in {len(cases)} cases")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
