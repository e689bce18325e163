"""What every shipped model, construction and training engine gave before a change, and what it gives now.

    python tests/golden.py --show              what moved: case, path, old -> new (exit status 1 if anything did)
    python tests/golden.py --write             writes the files anew (make golden)
    ... --only count01/paper languages         these cases, or all whose names begin so
    ... --keys certificate ablation            these keys only

One JSON file in tests/golden/ per case. A case is a trained model or a construction, the latter also in a second size
("@small"); an engine's training run ("training/vmap"); "bounds", what the certificates' arithmetics make of some
numbers; or "evidence", what the checker says of the files in tests/golden/evidence/, which stay as they are
(certificate.evidence(path) adds one). Numbers of inputs are given and searches end after a number of steps, so that
nothing depends on time. Integers and text are compared exactly, floats and decimals in text within the tolerances
below.
"""

import argparse
import inspect
import json
import math
import re
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import pandas as pd
import torch
from bounds import bounds
from short_count01 import Short

import interp
import interp.programs.compile  # registers programs/compiled
from interp.certificates import certify_model, check, known
from interp.families.histogram.certificates import certify as histogram
from interp.models.constructions import registered_constructions
from interp.models.subject import Subject
from interp.programs.explanations.explanation import shipped
from interp.programs.task import ENDS
from interp.report.items import Heading

FOLDER = Path(__file__).parent / "golden"
RELATIVE, ABSOLUTE = 5e-4, 1e-6
"""Two floats are the same within the sum of these; models in float32 give 3e-4 on other CPUs."""
ROWS = 20  # of a table; of a longer one also each number column's mean, least and largest value
INPUTS, FEW = 200, 64  # of measures, and of each section of a report
NOT_KEPT = ("seconds", "source", "probes", "probed", "on_record")
"""Fields of certificates that depend on the machine, or on the model in memory."""

NOT_COMPARED = {"heads": ("s_acc",)}
"""Columns of tables that rounding decides, so that they differ between CPUs: the optimal separator of classes that are
not separable, by outputs of size 1000 that differ by 1e-4 between CPUs (histogram/bos-all-counts, memorization/lookup).
"""
ESTIMATED = ("algorithmic/modular-addition", "algorithmic/modular-addition-fourier", "programs/compiled",
             "algorithmic/modular-addition-fourier@small", "programs/compiled@small", "programs/drawn-5@small",
             "programs/drawn-6@small", "programs/drawn-8@small")  # fmt: skip
ROUNDED = ("certificate.rounding", "certificate.notes", "report.tables.certificate", "found_anew.parts[0].without")
OF_THIS_CPU = {
    **dict.fromkeys(ESTIMATED, ROUNDED),
    "algorithmic/brackets": ("report.tables.by_length",),
    "languages/palindrome": ("report.tables.by_length", "report.facts.accuracy_longest", "report.verdict[3]"),
    "languages/parity-learned": ("report.tables.by_length",),
    "languages/parity@small": ("report.tables.heads.rows[2][3]",),  # without MLP 0, both outputs are equal
    "memorization/corollary2": (
        "head_metrics.rows[0][4]",
        "head_metrics.rows[6][4]",
    ),  # scores that just count as equal, or just not
}
"""Parts of cases that differ, too: rounding errors that are measured, models in half precision, and answers that
rounding decides: of equal outputs, or to strings so long that float64 is not enough."""

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
    "memorization/corollary2": (KGRAM | {"length": 4, "rank": 3}, KGRAM | {"length": 3, "rank": 2}),
    "memorization/theorem1": (BIGRAM | {"d_model": 8}, KGRAM | {"d_model": 3}),
    "programs/compiled": ({"program": ENDS}, {"program": ENDS, "decoys": 2, "rotate": 2}),
}  # fmt: skip
"""The two sizes of each construction but those of histograms; table: that of a model."""
ENGINES = {
    "count-space": "count01/paper", "fused": "histogram/dot",
    "encoder": "languages/one-learned", "exact-kl": "memorization/bigram", "vmap": "algorithmic/max-of-k-positions",
    "reference": "algorithmic/max-of-k-positions",
}  # fmt: skip
"""Whose architecture and data each engine trains."""


def plain(value: Any) -> Any:
    """Data for JSON: floats rounded, tables shortened, everything else by its fields or as text."""
    if isinstance(value, pd.DataFrame):
        return table(value)
    if hasattr(value, "tolist"):  # tensors, arrays and their scalars
        return plain(value.tolist())
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value) if one.name not in NOT_KEPT}
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, str | int) else str(value)


def table(frame: pd.DataFrame) -> dict[str, Any]:
    """The columns of a table, its length, its first rows, and the numbers of all rows in short if there are more."""
    frame = frame.drop(columns=[name for name in frame.columns if "seconds" in str(name)])
    rows = [list(row) for row in frame.head(ROWS).itertuples(index=False)]
    found = {"columns": plain(list(frame.columns)), "n": len(frame), "rows": plain(rows)}
    if len(frame) > ROWS:
        numbers = frame.select_dtypes("number").astype(float)
        found["all"] = {str(name): plain([one.mean(), one.min(), one.max()]) for name, one in numbers.items()}
    return found


DECIMAL = re.compile(r"(-?\d*\.\d+(?:e[+-]?\d+)?|-?\d+e[+-]?\d+)")


def same(old: Any, new: Any) -> bool:
    """Integers and text exactly, floats within the tolerance, decimals in it up to one in their last digit or 1e-5."""
    if isinstance(old, str) and isinstance(new, str) and old != new:
        mine, theirs = DECIMAL.split(old), DECIMAL.split(new)
        pairs = zip(map(Decimal, mine[1::2]), map(Decimal, theirs[1::2]))
        return mine[::2] == theirs[::2] and all(
            abs(a - b) <= max(Decimal((0, (1,), a.as_tuple()[2])), abs(a) / 100_000) for a, b in pairs
        )
    if type(old) in (int, float) and type(new) in (int, float) and float in (type(old), type(new)):
        return abs(old - new) <= ABSOLUTE + RELATIVE * max(abs(old), abs(new))
    return type(old) is type(new) and old == new


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


def model_cases() -> dict[str, Callable[[], interp.TaskModel]]:
    """How to make each model: the default checkpoint of every trained one, every construction in two sizes."""
    listed, found = interp.list_models().set_index("name"), {}
    for name in registered_constructions():
        first, second = SIZES.get(name, ({}, {"T": 4, "L": 3}))
        found |= {name: partial(built, name, first), f"{name}@small": partial(built, name, second)}
    found |= {f"programs/drawn-{seed}@small": partial(drawn, seed) for seed in (5, 6, 8)}
    for name in listed.index[[bool(seeds) for seeds in listed["seeds"]]]:
        found[name] = partial(interp.load, name)
    return dict(sorted(found.items()))


def built(name: str, sizes: dict[str, Any]) -> interp.TaskModel:
    table = {"table": interp.load(sizes["table"]).task} if "table" in sizes else {}
    return interp.build(name, **(sizes | table))


def drawn(seed: int) -> interp.TaskModel:
    sys.path.append(str(FOLDER.parents[1] / "analyses"))
    from shared.random_programs import random_program

    return interp.compile(random_program(seed), decoys=1, rotate=seed, seed=seed)


def certificate(name: str, model: interp.TaskModel) -> Any:
    if name in ("algorithmic/induction", "algorithmic/brackets"):  # these take minutes: the ones shipped with interp
        return known.find_known(model)
    options = {"histogram": {"seconds": 1.0, "samples": 0}, "languages": {"longest": 8}}
    found = certify_model(model, **options.get(name.split("/")[0], {}))
    return plain(found) | {"counterexample": found.counterexample or ""}


def report(name: str, model: interp.TaskModel) -> Any:
    listed = interp.analyze(model, sections=["question"], inputs=FEW).sections
    apply = [row.section for row in listed.itertuples() if row.status != "does not apply"]
    chosen = [section for section in apply if section not in ("explanation", "live")]
    options = {"automaton": {"longest": 5}} if "automaton" in chosen else {}
    made = interp.analyze(model, sections=chosen, options=options, inputs=FEW)
    return {
        "sections": [section for section in apply if section != "explanation"],
        "headings": [item.title for item in made.items if isinstance(item, Heading)],
        "verdict": [f"{said.about}: {said.text}" for said in made.said],
        "facts": made.facts,
        "tables": made.tables,
    }


def explanation(name: str, model: interp.TaskModel) -> Any:
    found = shipped(Subject.of(model))
    if found is None or found.program is None:
        return None if found is None else {"reason": found.reason}
    names = ("sentence", "source", "agreement", "constants", "without", "joint")
    return {name: getattr(found, name) for name in names} | {"parts": found.to_frame()}


def found_anew(name: str, model: interp.TaskModel) -> Any:
    """The search for an explanation itself."""
    found = interp.explain(model, seconds=100.0)
    made = () if found.program is None else ("source", "constants")
    kept = [one.name for one in fields(found) if one.name not in ("program", "subject", "rule")]
    return {name: getattr(found, name) for name in (*kept, *made)}


def head_metrics(name: str, model: interp.TaskModel) -> Any:
    split = model.task.splits[-1]
    train, test = (model.task.sample(n, split, seed=seed) for seed, n in ((1, 2 * INPUTS), (2, INPUTS)))
    return interp.head_metrics(model, train=train, test=test).table


def ablation(name: str, model: interp.TaskModel) -> Any:
    split = model.task.splits[-1]
    test, reference = (model.task.sample(INPUTS, split, seed=seed) for seed in (1, 2))
    return {mode: interp.ablate_heads(model, mode=mode, inputs=test, reference=reference).table
            for mode in ("zero", "mean", "pooled_mean", "resample")}  # fmt: skip


MEASURES = (certificate, report, explanation, found_anew, head_metrics, ablation)
SEARCHED = re.compile("(algorithmic/(induction|max|mod)|histogram|programs).*@small")
"""The cases of which the search for an explanation takes less than a second."""


def training(engine: str) -> Any:
    """Twenty steps of two seeds: the history, and mean and norm of each tensor at the end."""
    spec = interp.ModelSpec.from_toml(FOLDER.parents[1] / "models" / ENGINES[engine] / "model.toml")
    recipe = {"batch_size": 4, "samples_per_epoch": 4 if spec.training.data == "fresh" else None, "epochs": 20}
    if engine.startswith("count-space"):
        spec, recipe = spec.replace(task=Short().ref), {"batch_size": 12, "epochs": 4}
    recipe |= {"warmup_epochs": 0, "learning_rate": 0.01}
    spec = spec.replace(origin=spec.training.model_copy(update=recipe))
    trained = interp.train(spec, seeds=(0, 1), engine=engine, dtype="float64", progress=False)
    weights = [{key: [one.mean(), one.norm()] for key, one in model.named_parameters()} for model in trained]
    return {"history": [model.history for model in trained], "weights": weights}


EXACT = (
    "algorithmic.max-of-k-exact@small", "count01.minimal", "count01.paper", "histogram.bos-exact@small",
    "histogram.bos-softmax-exact@small", "histogram.dot-exact@small", "histogram.lin-exact@small",
    "histogram.lin-softmax-exact@small", "languages.one", "memorization.capacity@small",
)  # fmt: skip
"""Evidence that is checked in no time, without logarithms, which begin with a float."""


def judged(path: Path) -> Any:
    """What the checker says of a file, and of the same with four times the margin."""
    evidence = check.read(str(path))
    claim = evidence["claim"]
    more = (4 * float.fromhex(claim["margin"])).hex()
    larger = claim | {"margin": more, "sentence": claim["sentence"].replace(claim["margin"], more)}
    said = [verdict(evidence), verdict(evidence | {"claim": larger})]
    return [*said, numbers(evidence)] if path.name.removesuffix(".json.gz") in EXACT else said


def numbers(evidence: dict[str, Any]) -> dict[str, int]:
    """A checksum of all that each function of the checker returns: whole numbers, the same on every machine."""
    folder, found = str(Path(check.__file__).parent), Counter[str]()

    def note(frame: FrameType, event: str, value: Any) -> None:
        code = frame.f_code
        if event == "return" and code.co_filename.startswith(folder) and not code.co_flags & inspect.CO_GENERATOR:
            name = f"{Path(code.co_filename).stem}.{code.co_qualname}"
            if "<" not in name and isinstance(value, int | tuple | list) and " at 0x" not in (text := repr(value)):
                found[name] = (found[name] + zlib.crc32(text.encode())) % 2**32

    for module in [one for name, one in sys.modules.items() if name.startswith(check.__name__)]:
        for function in vars(module).values():
            getattr(function, "cache_clear", int)()
    sys.setprofile(note)
    verdict(evidence)
    sys.setprofile(None)
    return dict(sorted(found.items()))


def verdict(evidence: dict[str, Any]) -> dict[str, Any]:
    try:
        _, sentence, rounding = check.check(evidence)
        return {"proved": sentence, "rounding": rounding}
    except check.Fault as fault:
        return {"fault": str(fault)}


def case_names() -> list[str]:
    return [*model_cases(), *(f"training/{engine}" for engine in ENGINES), "evidence", "bounds"]


def now(case: str, keys: Sequence[str] = ()) -> dict[str, Any]:
    """The case as it is today: these keys, or all."""
    if case == "evidence":
        makes = {path.name: partial(judged, path) for path in sorted((FOLDER / "evidence").glob("*.json.gz"))}
    elif case == "bounds":
        makes = {"numbers": bounds}
    elif case.startswith("training/"):
        makes = {"run": partial(training, case.removeprefix("training/"))}
    else:
        model = model_cases()[case]()
        makes = {measure.__name__: partial(measure, case, model) for measure in MEASURES
                 if SEARCHED.fullmatch(case) or measure is not found_anew
                 if not case.startswith("programs/drawn") or measure is not report}  # fmt: skip
    found = {}
    for key in (key for key in makes if not keys or key in keys):
        try:
            found[key] = plain(makes[key]())
        except Exception as error:  # a refusal is a result, and a failure is one that --show prints
            found[key] = {"error": f"{type(error).__name__}: {error}"}
    return found


def stored(case: str, keys: Sequence[str] = ()) -> dict[str, Any]:
    path = FOLDER / f"{case}.json"
    data = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return {key: one for key, one in data.items() if not keys or key in keys}


def moved(case: str, keys: Sequence[str] = ()) -> list[tuple[str, Any, Any]]:
    """What differs from the stored file: path, old and new value, except for what rounding decides."""
    found = differences(steady(stored(case, keys)), steady(now(case, keys)))
    return [one for one in found if not one[0].startswith(OF_THIS_CPU.get(case, ("-",)))]


def steady(tree: Any, name: str = "") -> Any:
    """The same without the columns that are not compared."""
    if isinstance(tree, list):
        return [steady(one) for one in tree]
    if not isinstance(tree, dict):
        return tree
    left_out = NOT_COMPARED.get(name, ())
    if not left_out or "rows" not in tree:
        return {key: steady(one, key) for key, one in tree.items()}
    kept = [at for at, column in enumerate(tree["columns"]) if column not in left_out]
    lines = [[row[at] for at in kept] for row in tree["rows"]]
    found = tree | {"columns": [tree["columns"][at] for at in kept], "rows": lines}
    return found | {"all": {key: one for key, one in tree.get("all", {}).items() if key not in left_out}}


def write(case: str, keys: Sequence[str] = ()) -> None:
    """Replace these keys in the file of a case, or all: one line for each entry of a key."""
    data = (stored(case) if keys else {}) | now(case, keys)
    text = re.sub(r'(?<=[\]}"\dle]),(?="[^"\\]+":)', ",\n", json.dumps(data, separators=(",", ":")))
    path = FOLDER / f"{case}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", "utf-8")


@contextmanager
def pinned() -> Iterator[None]:
    """One thread, and clocks that stand still: time ends no search and chooses no number of inputs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    still = partial(mock.patch.object, return_value=0.0)
    with still(time, "monotonic"), still(time, "perf_counter"), still(histogram, "count_rest", return_value=None):
        yield  # count_rest: a walk of a minute
    torch.set_num_threads(threads)


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare with the golden outputs, or write them.")
    parser.add_argument("--show", action="store_true", help="print what moved (the default)")
    parser.add_argument("--write", action="store_true", help="replace the stored files")
    parser.add_argument("--only", nargs="+", default=[""], help="cases, by the beginnings of their names")
    parser.add_argument("--keys", nargs="+", default=[], help="keys of the cases, such as certificate")
    given = parser.parse_args()
    cases = [case for case in case_names() if case.startswith(tuple(given.only))]
    if not cases:
        parser.error(f"no case begins with {' or '.join(given.only)}")
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
